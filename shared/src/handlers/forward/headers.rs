//! The request that a delivery becomes.
//!
//! | header | |
//! |---|---|
//! | `webhook-id` | the same for every attempt and redrive of a delivery, another for any other delivery of any source, and for each time that a person has it run again |
//! | `webhook-timestamp` | when this attempt was signed, in seconds |
//! | `webhook-signature` | one `v1,…` for each of the destination's secrets |
//! | `content-type` | the sender's, if it gave one; `application/octet-stream` in place of one that names this project's own types |
//! | `serializer-delivery-id` | what the sender calls it; unique with the source |
//! | `serializer-source` | the source's name |
//! | `serializer-provider` | its provider, such as `shopify`; absent if nobody said |
//! | `serializer-topic` | what happened, in the sender's words |
//! | `serializer-entity-key` | whose delivery it is: what order is kept for |
//! | `serializer-sequence` | its place among the entity's deliveries; there are gaps |
//! | `serializer-fencing-token` | greater than that of any start before it for this entity |
//! | `serializer-attempt` | which attempt, from 1 |
//! | `serializer-redrive` | how often an operator put it back |
//! | `serializer-run-before` | the token under which it was applied before; absent unless a person has it run again |
//! | `serializer-superseded` | for how many older ones it stands, with `deliver = "latest"`; absent where for none |
//! | `serializer-age` | its event time to what was applied before: `newer`, `same-time`, `older`, `unknown` |
//! | `serializer-received-at` | when it was accepted, RFC 3339 |
//! | `serializer-deferred-until` | when it came into its inbox, where the tables could not be reached when it was accepted: others of its order may have been handled before it; absent otherwise |
//! | `serializer-event-time` | when it happened by the sender's clock, RFC 3339; absent if it does not say |
//! | `traceparent` | where its trace goes on; absent without the feature `otel` |
//!
//! In the values of `serializer-…` headers every byte that is not a visible
//! ASCII character is percent-encoded, and so is `%`: `unquote` and
//! `decodeURIComponent` give the text back.
//!
//! Where a source delivers groups, each of its requests has a list: [`together`].
//!
//! | header | |
//! |---|---|
//! | `webhook-id` | `group:`, that of the first delivery and how many they are. It is signed, and no single delivery's id has a colon: it tells a list from a delivery. A group that failed is sent again in other parts: what was applied is known by the ids in the list |
//! | `content-type` | [`TOGETHER`] |
//! | `serializer-deliveries` | how many they are |
//! | `serializer-source`, `-entity-key`, `-fencing-token` | as above; also in the body, which is signed |

use std::fmt::Write;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request,
    header::{CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;

use crate::{
    handlers::event,
    protocol::{delivery::Delivery, entity::FencingToken},
    sources::destination::{self, Destination},
    time::Timestamp,
    traces,
};

/// Who posts.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("webhook-serializer/", env!("CARGO_PKG_VERSION")));

/// What a list of deliveries is, by its schema `docs/invoke.schema.json`.
pub const TOGETHER: &str = "application/vnd.webhook-serializer.deliveries+json";

/// What the id of a list begins with. The id of a delivery is in base64url.
const GROUP: &str = "group:";

/// A post of `delivery` to `destination`, signed at `now`.
#[doc(hidden)]
pub fn request(
    destination: &Destination,
    delivery: &Delivery,
    token: FencingToken,
    now: Timestamp,
) -> Request<Full<Bytes>> {
    let mut request = post(destination, event::id(delivery), delivery.body().clone(), now);
    let headers = request.headers_mut();
    if let Some(content_type) = delivery.content_type().and_then(passed_on) {
        headers.insert(CONTENT_TYPE, content_type);
    }
    tell(headers, told(delivery, token));
    request
}

/// A post of `deliveries`, at least one, to `destination`, signed at `now`: one
/// list, the oldest first.
#[doc(hidden)]
pub fn together(
    destination: &Destination,
    deliveries: &[&Delivery],
    token: FencingToken,
    now: Timestamp,
) -> Request<Full<Bytes>> {
    let first = deliveries.first().expect("a start is about one at least");
    let id = format!("{GROUP}{}_{}", event::id(first), deliveries.len());
    let number = ("serializer-deliveries", deliveries.len().to_string());
    let mut request = post(destination, id, event::json(deliveries, token).into(), now);
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(TOGETHER));
    let common = [
        number,
        ("serializer-source", first.source().to_string()),
        ("serializer-entity-key", first.entity().to_string()),
        ("serializer-fencing-token", token.to_string()),
    ];
    tell(headers, common.into_iter());
    request
}

/// The content type of a delivery, from its sender's. A sender that names one of
/// ours could pass its body off as a list of another source's deliveries. Not
/// only the exact name: receivers lower-case and trim in different ways.
fn passed_on(content_type: &str) -> Option<HeaderValue> {
    let is_ours = content_type.to_ascii_lowercase().contains("vnd.webhook-serializer");
    match content_type.is_ascii() && !is_ours {
        // One that cannot be a header now did not come in one.
        true => HeaderValue::from_str(content_type).ok(),
        false => Some(HeaderValue::from_static("application/octet-stream")),
    }
}

/// A post of `body`, signed, without what is told of it.
fn post(destination: &Destination, id: String, body: Bytes, now: Timestamp) -> Request<Full<Bytes>> {
    let signed = signed(destination, id, &body, now);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = destination.url().clone();
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, AGENT);
    if let Some(traceparent) = traces::current().text() {
        headers.insert("traceparent", traceparent.try_into().expect("hexadecimal digits are ASCII"));
    }
    for (name, value) in signed {
        headers.insert(name, value.try_into().expect("ids, times and signatures are ASCII"));
    }
    request
}

fn tell(headers: &mut HeaderMap, told: impl Iterator<Item = (&'static str, String)>) {
    for (name, value) in told {
        let value = encoded(&value).try_into().expect("what is encoded is ASCII");
        headers.insert(HeaderName::from_static(name), value);
    }
}

fn signed(destination: &Destination, id: String, body: &[u8], now: Timestamp) -> [(HeaderName, String); 3] {
    let own = [("webhook-id", id.as_str())].into_iter().collect();
    let mut time = String::new();
    let mut signatures = Vec::new();
    for secret in destination.secrets() {
        for (name, value) in destination::rules().sign(&own, body, secret, now) {
            match name.as_str() {
                "webhook-timestamp" => time = value,
                "webhook-signature" => signatures.push(value),
                _ => {}
            }
        }
    }
    [
        (HeaderName::from_static("webhook-id"), id),
        (HeaderName::from_static("webhook-timestamp"), time),
        (HeaderName::from_static("webhook-signature"), signatures.join(" ")),
    ]
}

fn told(delivery: &Delivery, token: FencingToken) -> impl Iterator<Item = (&'static str, String)> {
    let event_time = delivery.event_time().map(|time| ("serializer-event-time", time.to_string()));
    let run_before = delivery.run_before().map(|token| ("serializer-run-before", token.to_string()));
    let deferred = delivery.deferred_until().map(|until| ("serializer-deferred-until", until.to_string()));
    let superseded = Some(delivery.superseded()).filter(|others| *others > 0);
    let superseded = superseded.map(|others| ("serializer-superseded", others.to_string()));
    let provider = delivery.provider().map(|provider| ("serializer-provider", provider.to_owned()));
    [
        ("serializer-delivery-id", delivery.delivery_id().to_string()),
        ("serializer-source", delivery.source().to_string()),
        ("serializer-topic", delivery.topic().to_owned()),
        ("serializer-entity-key", delivery.entity().to_string()),
        ("serializer-sequence", delivery.sequence().to_string()),
        ("serializer-fencing-token", token.to_string()),
        ("serializer-attempt", delivery.attempt().to_string()),
        ("serializer-redrive", delivery.redrive().to_string()),
        ("serializer-age", event::age(delivery.age()).to_owned()),
        ("serializer-received-at", delivery.received_at().to_string()),
    ]
    .into_iter()
    .chain(provider)
    .chain(run_before)
    .chain(deferred)
    .chain(superseded)
    .chain(event_time)
}

/// `text`, percent-encoded where it is not plain ASCII.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a text takes any text");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_are_percent_encoded() {
        assert_eq!(encoded("shop/order/#1:a~b"), "shop/order/#1:a~b");
        assert_eq!(encoded("größe 100%\n"), "gr%C3%B6%C3%9Fe%20100%25%0A");
        assert_eq!(encoded(""), "");
    }
}
