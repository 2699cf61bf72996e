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

impl TableError {
    /// Classifies DynamoDB's error reply by how the caller must react. `code` is the error's name without its namespace.
    ///
    /// If DynamoDB failed, the request may have landed.
    #[doc(hidden)]
    pub fn from_reply(code: &str, message: &str, is_server_error: bool) -> Self {
        match code {
            "TransactionConflictException" | "TransactionInProgressException" | "ReplicatedWriteConflictException" => {
                Self::Conflict
            }
            "ProvisionedThroughputExceededException"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "LimitExceededException" => Self::Throttled,
            _ => {
                let message = format!("{code}: {message}");
                match is_server_error {
                    true => Self::Unknown(message),
                    false => Self::Invalid(InvalidRequest { kind: InvalidKind::from_code(code), message }),
                }
            }
        }
    }

    /// Classifies the reasons of a cancelled transaction, each a code and a message. No reason is a failed condition.
    #[doc(hidden)]
    pub fn from_cancellation<'a>(reasons: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Self {
        match reasons.into_iter().find(|(code, _)| *code != "None") {
            Some(("TransactionConflict", _)) => Self::Conflict,
            Some(("ProvisionedThroughputExceeded" | "ThrottlingError", _)) => Self::Throttled,
            // DynamoDB's message names attributes, types and limits, but no values.
            Some((code, Some(message))) => Self::Invalid(format!("{code}: {message}").into()),
            Some((code, None)) => Self::Invalid(format!("transaction cancelled: {code}").into()),
            None => Self::Unknown("transaction cancelled without a reason".into()),
        }
    }
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
    /// The request itself, because of a bug.
    Request,
    /// The table, which does not exist.
    MissingTable,
    /// A row that this version of the program cannot read.
    UnreadableRow,
    /// The caller's permissions.
    Permission,
    /// The caller's credentials, which have expired or are unknown.
    Credentials,
}

/// Returns whether the error code of an AWS service means that the caller's credentials have expired or are unknown.
///
/// Services with a JSON protocol add `Exception` to the code.
#[doc(hidden)]
pub fn is_credential_error(code: &str) -> bool {
    let name = code.strip_suffix("Exception").unwrap_or(code);
    [
        "ExpiredToken",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignature",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClient",
    ]
    .contains(&name)
}

impl InvalidKind {
    fn from_code(code: &str) -> Self {
        match code {
            "AccessDeniedException" => Self::Permission,
            _ if is_credential_error(code) => Self::Credentials,
            "ResourceNotFoundException" => Self::MissingTable,
            _ => Self::Request,
        }
    }
}

impl<T: Into<String>> From<T> for InvalidRequest {
    fn from(message: T) -> Self {
        Self { kind: InvalidKind::Request, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_error_has_the_code_of_either_protocol() {
        for code in ["ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"] {
            assert!(is_credential_error(code), "{code}");
        }
        assert!(!is_credential_error("AccessDeniedException") && !is_credential_error("Exception"));
    }
}
