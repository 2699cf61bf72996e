//! The reasons why a webhook is refused.

use super::{Address, Headers, Uncertified};
use crate::time::Timestamp;

/// The reason why a webhook could not be verified. Its message contains no secret and no
/// signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    #[error("header {0} is missing")]
    Missing(String),
    #[error("header {0} cannot be read")]
    Malformed(String),
    /// Lambda joins the values of a header that comes several times by commas.
    #[error("header {0} has several values, so it probably came several times")]
    Doubled(String),
    /// The query parameter with this name is missing.
    #[error("the URL has no `?{0}=` with the source's secret")]
    NoToken(String),
    /// The body lacks the signature with this name.
    #[error("the body has no `{0}`")]
    NotInBody(&'static str),
    #[error("the signature was made at {0}, too far from now")]
    Stale(Timestamp),
    /// No configured secret or published key made the signature, or the sender signed the webhook for
    /// another recipient.
    #[error("no configured secret or id matches the signature")]
    Mismatch,
    #[error("the sender's key at {0} was not fetched")]
    Unfetched(Address),
    /// The document that was fetched from this address lacks the key. A cached document may be older
    /// than the key. If a newly fetched document lacks the key too, the sender has no such key.
    #[error("the document at {0} does not contain the sender's key")]
    Outdated(Address),
    /// The document at this address holds no usable key. The webhook may still be valid: either the
    /// sender published a bad key, or this project cannot read a good one.
    #[error("the sender's key at {0} cannot be used: {1}")]
    Unusable(Address, String),
    #[error("the sender's certificate: {0}")]
    Certificate(Uncertified),
}

impl Unverified {
    pub(super) fn malformed(name: &str) -> Self {
        Self::Malformed(name.into())
    }

    /// If the header that cannot be read has several values of one length, such as two signatures, names that as the
    /// reason.
    pub(crate) fn explained_by(self, headers: &Headers) -> Self {
        let Self::Malformed(name) = self else { return self };
        let mut values = headers.get(&name).unwrap_or_default().split(',').map(|value| value.trim().len());
        let first = values.next();
        let others: Vec<usize> = values.collect();
        let is_doubled = !others.is_empty() && others.into_iter().all(|length| Some(length) == first);
        if is_doubled { Self::Doubled(name) } else { Self::Malformed(name) }
    }
}
