//! Bodies, as far as all providers' are alike. Ids and amounts never pass through
//! a float, and nothing that is said about a body quotes it.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{error::Category, value::RawValue};

use super::{
    amount::{Amount, Currency, Money},
    news::FactId,
};

/// A body is not what its topic promises. Its text quotes nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is not JSON.
    #[error("the body is not JSON: line {line}, column {column}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// It is JSON of another form.
    #[error("the body is not what its topic promises: line {line}, column {column}")]
    Form {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// One of its fields is absent or holds something else.
    #[error("the body is not what its topic promises: `{0}` cannot be read")]
    Field(&'static str),
}

/// The body as a `T`.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Malformed> {
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        match error.classify() {
            Category::Data => Malformed::Form { line, column },
            Category::Syntax | Category::Eof | Category::Io => Malformed::Syntax { line, column },
        }
    })
}

/// A text, or a number exactly as it is written: ids beyond 2^53 and amounts
/// never pass through a float.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw.get()).map(Self).map_err(D::Error::custom),
            Some(b'-' | b'0'..=b'9') => Ok(Self(raw.get().to_owned())),
            _ => Err(D::Error::custom("neither a text nor a number")),
        }
    }
}

impl Scalar {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// As the id of a fact.
    pub(super) fn id(&self) -> FactId {
        FactId::new(&self.0)
    }

    /// As an amount of `currency`; `field` is what it is called in the body.
    pub(super) fn money(&self, currency: &Currency, field: &'static str) -> Result<Money, Malformed> {
        let amount = Amount::parse(&self.0).ok_or(Malformed::Field(field))?;
        Ok(Money { currency: currency.clone(), amount })
    }
}

/// The currency that a body names.
pub(super) fn currency(text: &str) -> Result<Currency, Malformed> {
    Currency::parse(text).ok_or(Malformed::Field("currency"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_as_they_are_written() {
        let scalar = |text: &str| read::<Scalar>(text.as_bytes()).map(|scalar| scalar.0);
        assert_eq!(scalar("820982911946154508123"), Ok("820982911946154508123".into()));
        assert_eq!(scalar(r#""a\u00e9""#), Ok("aé".into()));
        assert_eq!(scalar("20.0"), Ok("20.0".into()));
        assert!(scalar("true").is_err() && scalar("null").is_err() && scalar("[1]").is_err());
    }
}
