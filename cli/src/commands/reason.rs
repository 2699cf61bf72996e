//! Options for the reason and the author of an operation, which the operations log stores.

use clap::Args;
use webhook_serializer::protocol::maintain::Reason;

/// The options of a command that needs a reason, because it makes others wait or cannot be undone.
#[derive(Debug, Args)]
pub struct RequiredReason {
    /// The reason; the operations log stores it with your name
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    why: String,
    #[command(flatten)]
    by: Author,
}

/// The options of a command that needs no reason, because it only lets an order continue.
#[derive(Debug, Args)]
pub struct OptionalReason {
    /// The reason; the operations log stores it with your name
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    why: String,
    #[command(flatten)]
    by: Author,
}

#[derive(Debug, Args)]
struct Author {
    /// Your name
    #[arg(long, env = "USER", default_value = "operator", value_name = "NAME")]
    by: String,
}

fn parse_reason(why: &str) -> Result<String, &'static str> {
    match why.trim() {
        "" => Err("give a reason for the operations log"),
        why => Ok(why.to_owned()),
    }
}

impl Author {
    fn reason(&self, why: &str) -> Reason {
        let by = self.by.trim();
        Reason::new(if by.is_empty() { "operator" } else { by }, why)
    }
}

/// A command's options for the operator's name and reason.
pub trait ReasonOptions: Args {
    fn reason(&self) -> Reason;
}

impl ReasonOptions for RequiredReason {
    fn reason(&self) -> Reason {
        self.by.reason(&self.why)
    }
}

impl ReasonOptions for OptionalReason {
    fn reason(&self) -> Reason {
        self.by.reason(&self.why)
    }
}
