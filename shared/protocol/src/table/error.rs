//! Failed calls of the store.

/// A failed call of the store. Each variant calls for a different reaction of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The store throttled the request, and nothing landed. Try again later.
    #[error("the store throttles")]
    Throttled,
    /// Another transaction is working on the item and nothing landed. Try again.
    #[error("another transaction is at work on the item")]
    Conflict,
    /// No answer arrived. The request may have landed or not.
    #[error("no answer from the store: {0}")]
    Unknown(String),
    /// The store will never accept the request.
    #[error("the store refuses the request: {0}")]
    Invalid(InvalidRequest),
}

/// A request that the store will never accept, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidRequest {
    /// The thing to change.
    pub kind: InvalidKind,
    /// The store's own words.
    pub message: String,
}

/// The thing to change before the store accepts a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidKind {
    /// The request itself, because of a bug or a missing table.
    Request,
    /// The caller's permissions.
    Permission,
    /// The caller's credentials, which have expired or are unknown.
    Credentials,
}

impl<T: Into<String>> From<T> for InvalidRequest {
    fn from(message: T) -> Self {
        Self { kind: InvalidKind::Request, message: message.into() }
    }
}
