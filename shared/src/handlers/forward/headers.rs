//! The request for a delivery or a group.
//!
//! | header | |
//! |---|---|
//! | `webhook-id` | the delivery's id, unique across sources; the same for every attempt and redrive, a new one for each rewind |
//! | `webhook-timestamp` | the time of this attempt, in seconds |
//! | `webhook-signature` | one `v1,…` for each of the destination's secrets |
//! | `content-type` | the sender's, if it gave one. A type of this project, or one with a non-ASCII character, is replaced by `application/octet-stream` |
//! | `serializer-delivery-id` | the sender's id; unique within the source |
//! | `serializer-source` | the source's name |
//! | `serializer-provider` | the source's provider, such as `shopify`; absent if the provider is unknown |
//! | `serializer-topic` | the sender's topic |
//! | `serializer-entity-key` | the entity, whose deliveries are kept in order |
//! | `serializer-sequence` | the delivery's position in the entity's inbox; there are gaps |
//! | `serializer-fencing-token` | the fencing token of this start, greater than that of any earlier start for this entity |
//! | `serializer-attempt` | the number of the attempt, from 1 |
//! | `serializer-redrive` | how often the delivery was redriven |
//! | `serializer-run-before` | the fencing token under which the delivery ran before a rewind; absent if the delivery was not rewound |
//! | `serializer-superseded` | the number of older deliveries that this delivery supersedes, with `deliver = "latest"`; absent if none |
//! | `serializer-age` | the event's time compared with the times of events that were applied before: `newer`, `same-time`, `older`, `unknown` |
//! | `serializer-received-at` | the time at which the delivery was accepted, RFC 3339 |
//! | `serializer-deferred-until` | the time at which a deferred delivery was appended; absent otherwise. Later deliveries of its entity may have been handled before it |
//! | `serializer-event-time` | the event's time by the sender's clock, RFC 3339; absent if the sender gave none |
//! | `traceparent` | the trace context; absent without the feature `otel` |
//!
//! In the values of `serializer-…` headers, `%` and every byte that is not a visible
//! ASCII character are percent-encoded. Python's `unquote` and JavaScript's
//! `decodeURIComponent` decode them.
//!
//! If a source delivers groups, each request has a list: [`together`].
//!
//! | header | |
//! |---|---|
//! | `webhook-id` | `group:`, the id of the first delivery, and the number of deliveries. The id is signed, and a single delivery's id has no colon, so the prefix proves that the body is a list. After a failure, the deliveries may be sent one by one, so recognise repeats by the ids in the list |
//! | `content-type` | [`TOGETHER`] |
//! | `serializer-deliveries` | the number of deliveries |
//! | `serializer-source`, `-entity-key`, `-fencing-token` | as above; also in the body, which is signed |

use std::fmt::Write;

#[cfg(feature = "scheduler")]
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request,
    header::{CONTENT_TYPE, USER_AGENT},
};

use super::payload::ForwardBody;
use crate::{
    handlers::event::{self, Document},
    protocol::{delivery::Delivery, entity::FencingToken},
    providers::standard_webhooks,
    sources::destination::Destination,
    time::Timestamp,
    traces,
};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("webhook-serializer/", env!("CARGO_PKG_VERSION")));

/// The media type of a list of deliveries. The schema of the list is `docs/invoke.schema.json`.
pub const TOGETHER: &str = "application/vnd.webhook-serializer.deliveries+json";

/// The prefix of the `webhook-id` of a list of deliveries. The id of a single delivery contains no colon.
const GROUP: &str = "group:";

#[doc(hidden)]
pub fn request(
    destination: &Destination,
    delivery: &Delivery,
    token: FencingToken,
    now: Timestamp,
) -> Request<ForwardBody> {
    let mut request = post(destination, event::id(delivery), || delivery.body().clone().into(), now);
    let headers = request.headers_mut();
    if let Some(content_type) = delivery.content_type().and_then(passed_on) {
        headers.insert(CONTENT_TYPE, content_type);
    }
    insert(headers, fields(delivery, token));
    request
}

/// Creates the signed request for a list of deliveries, which is not empty and begins with the oldest.
#[doc(hidden)]
pub fn together(
    destination: &Destination,
    deliveries: &[&Delivery],
    token: FencingToken,
    now: Timestamp,
) -> Request<ForwardBody> {
    let first = deliveries.first().expect("a start has a delivery");
    let id = format!("{GROUP}{}_{}", event::id(first), deliveries.len());
    let number = ("serializer-deliveries", deliveries.len().to_string());
    let document = Document::new(deliveries, token);
    let mut request = post(destination, id, || document.clone().into(), now);
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(TOGETHER));
    let common = [
        number,
        ("serializer-source", first.source().to_string()),
        ("serializer-entity-key", first.entity().to_string()),
        ("serializer-fencing-token", token.to_string()),
    ];
    insert(headers, common.into_iter());
    request
}

/// Creates the signed request for a message in JSON that is not a delivery.
#[cfg(feature = "scheduler")]
pub(super) fn message(destination: &Destination, id: String, body: &Bytes, now: Timestamp) -> Request<ForwardBody> {
    let mut request = post(destination, id, || body.clone().into(), now);
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

/// Returns the content type to send for a sender's `content_type`. This project's own types are replaced,
/// because a sender could otherwise present its body as a list of another source's deliveries. The check
/// ignores case and surrounding text, because receivers normalise types in different ways.
fn passed_on(content_type: &str) -> Option<HeaderValue> {
    let is_ours = content_type.to_ascii_lowercase().contains("vnd.webhook-serializer");
    match content_type.is_ascii() && !is_ours {
        // The type arrived in a header, so it is a valid header value.
        true => HeaderValue::from_str(content_type).ok(),
        false => Some(HeaderValue::from_static("application/octet-stream")),
    }
}

/// Creates a signed request. The function `body` is called twice: for the signature, and for the request. A list is
/// encoded twice, which costs less than the memory for a copy.
fn post(destination: &Destination, id: String, body: impl Fn() -> ForwardBody, now: Timestamp) -> Request<ForwardBody> {
    let signed = standard_webhooks::sign_pieces(id, body().into_pieces(), destination.secrets(), now);
    let mut request = Request::new(body());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = destination.url().clone();
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, AGENT);
    if let Some(traceparent) = traces::current().text() {
        headers.insert("traceparent", traceparent.try_into().expect("hexadecimal digits are ASCII"));
    }
    for (name, value) in standard_webhooks::HEADERS.into_iter().zip(signed) {
        let value = value.try_into().expect("ids, times and signatures are ASCII");
        headers.insert(HeaderName::from_static(name), value);
    }
    request
}

fn insert(headers: &mut HeaderMap, fields: impl Iterator<Item = (&'static str, String)>) {
    for (name, value) in fields {
        let value = encoded(&value).try_into().expect("encoded text is ASCII");
        headers.insert(HeaderName::from_static(name), value);
    }
}

fn fields(delivery: &Delivery, token: FencingToken) -> impl Iterator<Item = (&'static str, String)> {
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

fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a string cannot fail");
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
