//! Pages about what went wrong.

use axum::{http::StatusCode, response::Response};
use maud::html;
use webhook_serializer::{engine::store::StoreError, operator::OperatorError};

use super::{
    Shared,
    frame::{Page, Place, Visitor},
};

/// Why a page cannot be shown.
#[derive(Debug)]
pub(super) enum Trouble {
    /// What was asked for makes no sense, or there is no such thing.
    Unknown(String),
    /// The deployment did not answer, or refused.
    Deployment(OperatorError),
}

impl From<OperatorError> for Trouble {
    fn from(error: OperatorError) -> Self {
        Self::Deployment(error)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Deployment(error.into())
    }
}

impl Trouble {
    /// A page that says so, and what to do.
    pub(super) fn page(&self, shared: &Shared, visitor: &Visitor) -> Response {
        let (status, title, said, next) = self.told();
        let body = html! {
            h1 { (title) }
            p.lead { (said) }
            p { (next) }
            p { a.button href="" { "Try again" } " " a href="/" { "What is the matter now" } }
        };
        Page::new(title, Place::Elsewhere).answer(status, shared, visitor, &body)
    }

    /// Status, title, what happened, what to do.
    fn told(&self) -> (StatusCode, &'static str, String, &'static str) {
        match self {
            Self::Unknown(said) => (
                StatusCode::NOT_FOUND,
                "Not found",
                said.clone(),
                "Find it by a part of its key, with the field above.",
            ),
            Self::Deployment(error) => {
                let said = error.to_string();
                if said.contains("AccessDenied") || said.contains("not authorized") {
                    let next = "Ask for the permissions to operate a stack: docs/deploying.md lists them. With them, this page goes on; nothing was changed.";
                    return (StatusCode::FORBIDDEN, "A permission is missing", said, next);
                }
                if said.contains("ExpiredToken") || said.contains("UnrecognizedClient") {
                    let next = "Sign in again (`aws login` or `aws sso login`), start the console anew, and open the address that it prints. Nothing was changed.";
                    return (StatusCode::FORBIDDEN, "The credentials have expired", said, next);
                }
                let next = "Is the local run still there, or the network, or the region? The console keeps nothing of its own: once the tables answer, every page does.";
                (StatusCode::BAD_GATEWAY, "The tables do not answer", said, next)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::protocol::table::TableError;

    use super::*;

    #[test]
    fn a_missing_permission_and_a_lost_connection_are_told_apart() {
        let told = |error: StoreError| Trouble::from(error).told();
        let (status, title, said, _) = told(StoreError::Invalid("AccessDeniedException: dynamodb:Scan".into()));
        assert_eq!((status, title), (StatusCode::FORBIDDEN, "A permission is missing"));
        assert!(said.contains("dynamodb:Scan"), "{said}");
        assert_eq!(
            told(StoreError::Unavailable(TableError::Unknown("connection refused".into()))).1,
            "The tables do not answer"
        );
    }
}
