//! The JSON document for one or several deliveries.
//!
//! The handler `invoke` sends this document as the event of a function, and `forward` posts it for
//! several deliveries at once. The document's schema is `docs/invoke.schema.json`.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;

use crate::protocol::{
    delivery::{Age, Delivery},
    entity::{FencingToken, Identity},
};

/// The version of the JSON document. This number grows when a field is removed or changes its meaning.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Event<'a> {
    version: u32,
    source: &'a str,
    entity_key: &'a str,
    fencing_token: u64,
    deliveries: Vec<EventDelivery<'a>>,
}

#[derive(Serialize)]
struct EventDelivery<'a> {
    id: String,
    delivery_id: &'a str,
    topic: &'a str,
    provider: Option<&'a str>,
    sequence: u64,
    attempt: u32,
    redrive: u32,
    run_before: Option<u64>,
    superseded: u32,
    age: &'static str,
    received_at: String,
    deferred_until: Option<String>,
    event_time: Option<String>,
    content_type: Option<&'a str>,
    body: String,
    body_is_base64: bool,
    // Without the feature `otel` the field is absent instead of null.
    #[cfg(feature = "otel")]
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

#[doc(hidden)]
pub fn json(deliveries: &[&Delivery], token: FencingToken) -> String {
    let first = deliveries.first().expect("a start has a delivery");
    let event = Event {
        version: VERSION,
        source: first.source().as_str(),
        entity_key: first.entity().as_str(),
        fencing_token: token.0,
        deliveries: deliveries.iter().map(|delivery| EventDelivery::new(delivery)).collect(),
    };
    serde_json::to_string(&event).expect("texts and numbers are JSON")
}

impl<'a> EventDelivery<'a> {
    fn new(delivery: &'a Delivery) -> Self {
        let (body, body_is_base64) = match str::from_utf8(delivery.body()) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (STANDARD.encode(delivery.body()), true),
        };
        Self {
            id: id(delivery),
            delivery_id: delivery.delivery_id().as_str(),
            topic: delivery.topic(),
            provider: delivery.provider(),
            sequence: delivery.sequence().0,
            attempt: delivery.attempt(),
            redrive: delivery.redrive(),
            run_before: delivery.run_before().map(|token| token.0),
            superseded: delivery.superseded(),
            age: age(delivery.age()),
            received_at: delivery.received_at().to_string(),
            deferred_until: delivery.deferred_until().map(|time| time.to_string()),
            event_time: delivery.event_time().map(|time| time.to_string()),
            content_type: delivery.content_type(),
            body,
            body_is_base64,
            #[cfg(feature = "otel")]
            traceparent: delivery.traceparent(),
        }
    }
}

/// Returns the id by which a receiver recognises repeats of a delivery.
///
/// The id is a hash, because senders' ids are unique only within a source and may contain any
/// character. A redrive keeps the id, because the delivery may have been applied although its answers
/// were lost. A rewind changes the id, so that the delivery has its effect again.
pub(super) fn id(delivery: &Delivery) -> String {
    let name = Identity { redrive: 0, ..delivery.identity().clone() }.name();
    match delivery.run_before() {
        Some(token) => format!("{name}_{token}"),
        None => name,
    }
}

pub(super) fn age(age: Age) -> &'static str {
    match age {
        Age::Newer => "newer",
        Age::SameTime => "same-time",
        Age::Older => "older",
        Age::Unknown => "unknown",
    }
}
