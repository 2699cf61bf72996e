//! The result of one check of `doctor`, printed as a line or as JSON.

use console::style;
use serde_json::{Value, json};
use serializer::{
    say,
    stack::api::Refusal,
    view::tone::{Tone, Word},
};

/// The result of a check. The variants are sorted from the best result to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckVerdict {
    Ok,
    NotMade,
    /// The checked part works, but may fail later or may differ from what its owner intended.
    Warning,
    Wrong,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFinding {
    pub check: String,
    pub verdict: CheckVerdict,
    pub says: String,
    pub advice: Option<String>,
}

impl CheckFinding {
    fn new(check: &str, verdict: CheckVerdict, says: impl Into<String>, advice: Option<String>) -> Self {
        Self { check: check.to_owned(), verdict, says: says.into(), advice }
    }

    pub fn ok(check: &str, says: impl Into<String>) -> Self {
        Self::new(check, CheckVerdict::Ok, says, None)
    }

    pub fn warning(check: &str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(check, CheckVerdict::Warning, says, Some(advice.into()))
    }

    pub fn wrong(check: &str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(check, CheckVerdict::Wrong, says, Some(advice.into()))
    }

    pub fn not_made(check: &str, why: impl Into<String>) -> Self {
        Self::new(check, CheckVerdict::NotMade, why, None)
    }

    pub fn refused(check: &str, refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Denied { needed, .. } => Self::not_made(check, format!("your credentials lack {needed}")),
            other => Self::not_made(check, other.to_string()),
        }
    }

    pub fn print(&self, widest: usize) {
        say!("{:<8}  {:<widest$}  {}", self.verdict.word().styled(), self.check, self.says);
        if let Some(advice) = &self.advice {
            say!("{:<8}  {:<widest$}  {}", "", "", style(format_args!("→ {advice}")).bold());
        }
    }

    pub fn as_json(&self) -> Value {
        json!({ "check": self.check, "result": self.verdict.word().text, "says": self.says, "advice": self.advice })
    }
}

impl CheckVerdict {
    fn word(self) -> Word {
        match self {
            Self::Ok => Word::new("ok", Tone::Good),
            Self::NotMade => Word::new("not made", Tone::Quiet),
            Self::Warning => Word::new("warning", Tone::Warn),
            Self::Wrong => Word::new("wrong", Tone::Bad),
        }
    }
}
