//! What a check found.

use console::{StyledObject, style};
use serde_json::{Value, json};
use serializer::{say, stack::api::Refusal};

/// How it is with what was checked, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Nothing was looked at; the words say why.
    NotMade,
    /// It works, and may not for long, or not as meant.
    Warning,
    /// It does not work.
    Wrong,
}

/// A line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub check: String,
    pub verdict: Verdict,
    /// What was seen.
    pub says: String,
    /// What to do.
    pub advice: Option<String>,
}

impl Finding {
    fn new(check: &str, verdict: Verdict, says: impl Into<String>, advice: Option<String>) -> Self {
        Self { check: check.to_owned(), verdict, says: says.into(), advice }
    }

    pub fn ok(check: &str, says: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, says, None)
    }

    pub fn warning(check: &str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(check, Verdict::Warning, says, Some(advice.into()))
    }

    pub fn wrong(check: &str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(check, Verdict::Wrong, says, Some(advice.into()))
    }

    pub fn not_made(check: &str, why: impl Into<String>) -> Self {
        Self::new(check, Verdict::NotMade, why, None)
    }

    /// Of a check whose question was refused: nothing is known.
    pub fn refused(check: &str, refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Denied { needed, .. } => Self::not_made(check, format!("who runs this may not {needed}")),
            other => Self::not_made(check, other.to_string()),
        }
    }

    /// On a line, and what to do on another.
    pub fn print(&self, widest: usize) {
        say!("{:<8}  {:<widest$}  {}", self.verdict.styled(), self.check, self.says);
        if let Some(advice) = &self.advice {
            say!("{:<8}  {:<widest$}  {}", "", "", style(format_args!("→ {advice}")).bold());
        }
    }

    pub fn as_json(&self) -> Value {
        json!({ "check": self.check, "result": self.verdict.word(), "says": self.says, "advice": self.advice })
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotMade => "not made",
            Self::Warning => "warning",
            Self::Wrong => "wrong",
        }
    }

    fn styled(self) -> StyledObject<&'static str> {
        let word = style(self.word());
        match self {
            Self::Ok => word.green(),
            Self::NotMade => word.dim(),
            Self::Warning => word.yellow(),
            Self::Wrong => word.red().bold(),
        }
    }
}
