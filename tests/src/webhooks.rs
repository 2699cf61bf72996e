//! Signed webhooks, as senders post them.

use serializer::local::samples::SignedWebhook;
use webhook_serializer::{
    functions::ingest::{Http, HttpRequest, RequestContext},
    providers::{self, Headers},
    sources::Sources,
    time::{Env, Timestamp},
};

/// Returns a webhook of a Standard Webhooks source, signed at `now`.
pub fn signed(sources: &Sources, source: &str, id: &str, body: impl Into<Vec<u8>>, now: Timestamp) -> SignedWebhook {
    signed_as(sources, source, &[("webhook-id", id)], body, now)
}

/// Returns a webhook of any source with the headers `sent`, signed at `now`.
pub fn signed_as(
    sources: &Sources,
    source: &str,
    sent: &[(&str, &str)],
    body: impl Into<Vec<u8>>,
    now: Timestamp,
) -> SignedWebhook {
    let body = body.into();
    let source = sources.get(source).expect("a configured source");
    let given: Headers = sent.iter().copied().chain([("content-type", "application/json")]).collect();
    let mut headers = source.sign(&given, &body, now);
    let unsigned = given.iter().filter(|(name, _)| !headers.iter().any(|(signed, _)| signed == name));
    let unsigned: Vec<(String, String)> = unsigned.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    headers.extend(unsigned);
    let collected = headers.iter().cloned().collect();
    let incoming = source.delivery(providers::Request { headers: &collected, body: &body }, now);
    SignedWebhook { source: source.name.to_string(), query: source.query(), headers, body, incoming }
}

/// Returns the body of an order's update, whose entity is `{source}/order/{order}`.
pub fn update(order: &str) -> String {
    format!(r#"{{"type":"order.updated","data":{{"order_id":"{order}"}}}}"#)
}

/// Returns a Function URL's event for a webhook whose body is text.
pub fn request(webhook: &SignedWebhook) -> HttpRequest {
    HttpRequest {
        raw_path: format!("/webhooks/{}", webhook.source),
        raw_query_string: webhook.query.clone().unwrap_or_default(),
        headers: webhook.headers.iter().cloned().collect(),
        body: Some(String::from_utf8(webhook.body.clone()).expect("a text")),
        is_base64_encoded: false,
        request_context: RequestContext { http: Http { method: "POST".into() }, ..RequestContext::default() },
        ..HttpRequest::default()
    }
}

/// Returns incompressible bytes.
pub fn noise(env: &Env, bytes: usize) -> Vec<u8> {
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        noise.extend(env.fraction().to_bits().wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    }
    noise.truncate(bytes);
    noise
}
