//! Extracts the query or the form of a request. A malformed one is answered with an error page.

use std::sync::Arc;

use axum::{
    Form,
    extract::{FromRequest, FromRequestParts, Query, Request},
    http::request::Parts,
    response::Response,
};
use serde::de::DeserializeOwned;

use super::{ConsoleState, frame::PageRequest, problem::Problem};

pub(super) struct Asked<T>(pub(super) T);

pub(super) struct SentForm<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<ConsoleState>> for Asked<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<ConsoleState>) -> Result<Self, Response> {
        let reason = match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => return Ok(Self(query)),
            Err(rejection) => rejection.body_text(),
        };
        let Ok(request) = PageRequest::from_request_parts(parts, shared).await;
        Err(malformed("This address", &reason).page(shared, &request))
    }
}

impl<T: DeserializeOwned> FromRequest<Arc<ConsoleState>> for SentForm<T> {
    type Rejection = Response;

    async fn from_request(request: Request, shared: &Arc<ConsoleState>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let Ok(page) = PageRequest::from_request_parts(&mut parts, shared).await;
        match Form::from_request(Request::from_parts(parts, body), shared).await {
            Ok(Form(form)) => Ok(Self(form)),
            Err(rejection) => Err(malformed("This form", &rejection.body_text()).page(shared, &page)),
        }
    }
}

fn malformed(what: &str, reason: &str) -> Problem {
    let own = ["Failed to deserialize query string: ", "Failed to deserialize form body: "];
    let reason = own.iter().find_map(|own| reason.strip_prefix(own)).unwrap_or(reason);
    Problem::Malformed(format!("{what} has a value that cannot be read: {}.", reason.trim_end_matches('.')))
}
