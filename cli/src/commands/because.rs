//! Who changes something, and why: written down with what is done.

use clap::{Args, builder::NonEmptyStringValueParser};
use webhook_serializer::protocol::maintain::Reason;

/// For what cannot be taken back by the opposite command, or keeps others waiting.
#[derive(Debug, Args)]
pub struct Because {
    /// Why; written down with your name, for `history`
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    why: String,
    #[command(flatten)]
    by: By,
}

/// For what only lets an order go on.
#[derive(Debug, Args)]
pub struct MaybeBecause {
    /// Why; written down with your name, for `history`
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    why: String,
    #[command(flatten)]
    by: By,
}

#[derive(Debug, Args)]
struct By {
    /// Who you are
    #[arg(long, env = "USER", default_value = "operator", value_name = "NAME")]
    by: String,
}

impl Because {
    pub fn reason(&self) -> Reason {
        Reason::new(&self.by.by, &self.why)
    }
}

impl MaybeBecause {
    pub fn reason(&self) -> Reason {
        Reason::new(&self.by.by, &self.why)
    }
}
