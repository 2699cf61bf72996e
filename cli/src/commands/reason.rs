//! Who acts, and why: stored in the operations log.

use clap::Args;
use webhook_serializer::protocol::maintain::Reason;

/// For verbs whose effect cannot be undone by the opposite verb, or that make others wait.
#[derive(Debug, Args)]
pub struct Because {
    /// Why; stored with your name in the order's history
    #[arg(long, value_name = "TEXT", value_parser = said)]
    why: String,
    #[command(flatten)]
    by: By,
}

/// For verbs that only let an order continue.
#[derive(Debug, Args)]
pub struct MaybeBecause {
    /// Why; stored with your name in the order's history
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

fn said(why: &str) -> Result<String, &'static str> {
    match why.trim() {
        "" => Err("say why, for whoever looks next"),
        why => Ok(why.to_owned()),
    }
}

impl By {
    fn reason(&self, why: &str) -> Reason {
        let by = self.by.trim();
        Reason::new(if by.is_empty() { "operator" } else { by }, why)
    }
}

impl Because {
    pub fn reason(&self) -> Reason {
        self.by.reason(&self.why)
    }
}

impl MaybeBecause {
    pub fn reason(&self) -> Reason {
        self.by.reason(&self.why)
    }
}
