//! The console's errors, and the pages that explain them.

use axum::{http::StatusCode, response::Response};
use maud::html;
use webhook_serializer::{
    InvalidKind, engine::store::StoreError, operator::OperatorError, protocol::entity::EntityKey,
};

use super::{
    ConsoleState,
    frame::{PageFrame, PageRequest, Tab, encoded, timed},
};

#[derive(Debug)]
pub(super) enum Problem {
    Unknown(String),
    UnknownOrder { order: EntityKey, similar: Vec<String> },
    Malformed(String),
    NotAllowed,
    Deployment(OperatorError),
}

impl From<OperatorError> for Problem {
    fn from(error: OperatorError) -> Self {
        Self::Deployment(error)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::Deployment(error.into())
    }
}

impl Problem {
    pub(super) fn page(&self, shared: &ConsoleState, request: &PageRequest) -> Response {
        let (status, title, message, next) = self.describe();
        let body = html! {
            h1 { (title) }
            p.lead { (timed(&message)) }
            @if let Self::UnknownOrder { similar, .. } = self && !similar.is_empty() {
                p { "Similar keys: " @for key in similar { a href={ "/order?key=" (encoded(key)) } { (key) } " " } }
            }
            p { (next) }
            p {
                @if matches!(self, Self::Deployment(_)) { a.button href="" { "Try again" } " " }
                a.button href="/" { "Overview" }
            }
        };
        PageFrame::new(title, Tab::None).answer(status, shared, request, &body)
    }

    pub(super) fn describe(&self) -> (StatusCode, &'static str, String, &'static str) {
        match self {
            Self::Unknown(message) => (
                StatusCode::NOT_FOUND,
                "Not found",
                message.clone(),
                "Search for the order by a part of its key, in the field above.",
            ),
            Self::UnknownOrder { order, .. } => {
                let message = format!(
                    "There is no order {order}: nothing has arrived for this key within the retention period, or the order was erased."
                );
                Self::Unknown(message).describe()
            }
            Self::Malformed(message) => (
                StatusCode::BAD_REQUEST,
                "Not understood",
                message.clone(),
                "Go back, or follow a link of this console.",
            ),
            Self::NotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "Not understood",
                "This address is for another kind of request, such as sending a form.".to_owned(),
                "Nothing was done. Go back to the page with the form.",
            ),
            Self::Deployment(error) => {
                let message = error.to_string();
                match error.invalid_kind() {
                    Some(InvalidKind::Permission) => {
                        let next = "Ask for the permissions to operate a stack, which docs/deploying.md lists, and reload this page.";
                        return (StatusCode::FORBIDDEN, "A permission is missing", message, next);
                    }
                    Some(InvalidKind::Credentials) => {
                        let next = "Sign in with `aws login` or `aws sso login`, restart the console, and open the URL that it prints.";
                        return (StatusCode::FORBIDDEN, "The credentials have expired", message, next);
                    }
                    Some(InvalidKind::Request | InvalidKind::MissingTable | InvalidKind::UnreadableRow) | None => {}
                }
                let next = "Check that `serializer local` still runs, or the network and the region. If it was restarted, restart the console too. Otherwise, pages work again as soon as the tables answer.";
                (StatusCode::BAD_GATEWAY, "The tables do not answer", message, next)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::{InvalidRequest, TableError};

    use super::*;

    #[test]
    fn missing_permission_is_not_shown_as_lost_connection() {
        let describe = |error: StoreError| Problem::from(error).describe();
        let (status, title, message, _) = describe(StoreError::Invalid(InvalidRequest {
            kind: InvalidKind::Permission,
            message: "AccessDeniedException: dynamodb:Scan".into(),
        }));
        assert_eq!((status, title), (StatusCode::FORBIDDEN, "A permission is missing"));
        assert!(message.contains("dynamodb:Scan"), "{message}");
        assert_eq!(
            describe(StoreError::Unavailable(TableError::Unknown("connection refused".into()))).1,
            "The tables do not answer"
        );
    }
}
