//! Serves the webhook endpoint of a local run, as a Function URL does, and the run's environment variables.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::get,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use tokio::net::TcpListener;
use webhook_serializer::functions::ingest::{Http, HttpRequest, Ingest, RequestContext};
use webhook_serializer::protocol::delivery::LARGEST_BODY;

pub(super) async fn serve(
    listener: TcpListener,
    ingest: Arc<Ingest>,
    environment: Vec<(String, String)>,
    until: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let router =
        environment_route(environment).fallback(answer).layer(DefaultBodyLimit::max(LARGEST_BODY)).with_state(ingest);
    Ok(axum::serve(listener, router).with_graceful_shutdown(until).await?)
}

pub(super) async fn serve_environment(
    listener: TcpListener,
    environment: Vec<(String, String)>,
    until: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    Ok(axum::serve(listener, environment_route(environment)).with_graceful_shutdown(until).await?)
}

/// Serves the deployment's environment variables. Commands with `--local`, and functions that were started by hand, use
/// these variables.
fn environment_route<S: Clone + Send + Sync + 'static>(environment: Vec<(String, String)>) -> Router<S> {
    let environment: BTreeMap<String, String> = environment.into_iter().collect();
    Router::new().route("/local", get(async move || Json(environment)))
}

async fn answer(
    State(ingest): State<Arc<Ingest>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // A Function URL joins repeated headers by commas.
    let value = |name: &HeaderName| {
        let all = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        all.collect::<Vec<_>>().join(",")
    };
    let headers = headers.keys().map(|name| (name.to_string(), value(name))).collect();
    // A Function URL sends text as it is and anything else in base64.
    let (body, is_base64_encoded) = match String::from_utf8(body.to_vec()) {
        Ok(text) => (text, false),
        Err(bytes) => (STANDARD.encode(bytes.as_bytes()), true),
    };
    let request = HttpRequest {
        raw_path: uri.path().to_owned(),
        raw_query_string: uri.query().unwrap_or_default().to_owned(),
        headers,
        body: Some(body),
        is_base64_encoded,
        request_context: RequestContext { http: Http { method: method.to_string() }, ..RequestContext::default() },
        ..HttpRequest::default()
    };
    let answer = ingest.answer(&request).await;
    let status = StatusCode::from_u16(answer.status_code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, answer.body).into_response();
    for (name, value) in answer.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
