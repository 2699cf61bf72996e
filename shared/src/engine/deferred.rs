//! Deferred deliveries, which wait in the queue until a worker can append them.
//!
//! Ingest has verified a deferred delivery and answered 202. The message looks like this:
//!
//! ```json
//! {"delivery":1,"entity":"shop/order/7","source":"shop","id":"…","topic":"order.updated","family":"order",
//!  "received_at":1767225600000,"encoding":"zstd","length":2517,"body":"KLUv…"}
//! ```
//!
//! `delivery` is the format's version. This field comes first, so that a worker recognises even an
//! unreadable message as a delivery, and does not delete it. The body is encoded in base64, and
//! compressed if that makes it shorter. The message holds no headers and no signature.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    protocol::{
        delivery::{Incoming, LARGEST_BODY, StoredBody, TOPIC_BYTES, decoded_body},
        entity::{DeliveryId, EntityKey, Identity, SourceName},
        format::shortened,
        trace::Trace,
    },
    time::Timestamp,
};

/// The longest message that SQS accepts (since August 2025), in bytes.
pub const LARGEST_MESSAGE: usize = 1_048_576;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    /// The version of the message's format, always [`FORMAT`]. This field must stay first: see
    /// [`Deferred::MARK`].
    delivery: u64,
    entity: EntityKey,
    source: SourceName,
    id: DeliveryId,
    #[serde(default, skip_serializing_if = "is_zero")]
    redrive: u32,
    /// The reason, if any, that the delivery belongs to no entity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unrouted: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    topic: String,
    family: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_time: Option<u64>,
    received_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    encoding: String,
    /// The length of the uncompressed body, in bytes.
    length: usize,
    body: String,
    /// The number of times that a worker failed to append this delivery.
    #[serde(default, skip_serializing_if = "is_zero")]
    tries: u32,
    #[cfg_attr(feature = "otel", serde(default, skip_serializing_if = "is_none"))]
    #[cfg_attr(not(feature = "otel"), serde(skip))]
    trace: Trace,
}

#[cfg(feature = "otel")]
fn is_none(trace: &Trace) -> bool {
    *trace == Trace::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

const FORMAT: u64 = 1;

const FIRST_PAUSE: Duration = Duration::from_secs(15);

const LONGEST_PAUSE: Duration = Duration::from_secs(300);

impl Deferred {
    /// The start of every message that holds a deferred delivery, in all versions of the format.
    pub(crate) const MARK: &str = "{\"delivery\":";

    /// Creates the message for `incoming`. Returns `None` if the message could exceed
    /// [`LARGEST_MESSAGE`].
    pub fn of(incoming: &Incoming, unrouted: Option<&str>, trace: Trace) -> Option<Self> {
        let stored = StoredBody::new(&incoming.body);
        let deferred = Self {
            delivery: FORMAT,
            entity: incoming.entity.clone(),
            source: incoming.identity.source.clone(),
            id: incoming.identity.delivery_id.clone(),
            redrive: incoming.identity.redrive,
            unrouted: unrouted.map(str::to_owned),
            provider: incoming.provider.clone(),
            topic: shortened(&incoming.topic, TOPIC_BYTES),
            family: shortened(&incoming.family, TOPIC_BYTES),
            event_time: incoming.event_time.map(Timestamp::as_millis),
            received_at: incoming.received_at.as_millis(),
            content_type: incoming.content_type.as_deref().map(|text| shortened(text, TOPIC_BYTES)),
            encoding: stored.encoding.to_owned(),
            length: incoming.body.len(),
            body: STANDARD.encode(&stored.bytes),
            tries: 0,
            trace,
        };
        // `tries` gets longer with the number of failed appends, so the longest message is measured.
        let last = Self { tries: u32::MAX, ..deferred.clone() };
        (last.text().len() <= LARGEST_MESSAGE).then_some(deferred)
    }

    /// Parses a message that begins with [`Deferred::MARK`]. The error text quotes no content of
    /// the message.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Numbered {
            delivery: u64,
        }
        let Numbered { delivery } = serde_json::from_str(text)
            .map_err(|error| format!("the delivery is damaged at byte {}", error.column()))?;
        if delivery != FORMAT {
            return Err(format!("the delivery has format {delivery}, and this version reads {FORMAT}"));
        }
        // serde's own error message would quote the content.
        serde_json::from_str(text).map_err(|error| format!("a field is wrong or absent at byte {}", error.column()))
    }

    /// Returns the message as JSON. Also escapes U+FFFE and U+FFFF, which JSON leaves unescaped and
    /// SQS refuses.
    pub(crate) fn text(&self) -> String {
        let text = serde_json::to_string(self).expect("a deferred delivery is a plain object");
        text.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff")
    }

    pub fn entity(&self) -> &EntityKey {
        &self.entity
    }

    pub(crate) fn unrouted(&self) -> Option<&str> {
        self.unrouted.as_deref()
    }

    pub(crate) fn trace(&self) -> Trace {
        self.trace
    }

    pub fn received_at(&self) -> Timestamp {
        Timestamp::from_millis(self.received_at)
    }

    /// Returns the delivery, and its body in the form that the inbox stores. The error text quotes
    /// no content of the message.
    pub(crate) fn incoming(&self) -> Result<(Incoming, StoredBody), &'static str> {
        if self.entity.is_kept_forever() {
            return Err("the entity is a job, which takes no deliveries");
        }
        let encoding = ["zstd", "plain"].into_iter().find(|known| *known == self.encoding);
        let Some(encoding) = encoding.filter(|_| self.length <= LARGEST_BODY) else {
            return Err("the body is too long, or has another encoding");
        };
        let bytes: Bytes = STANDARD.decode(&self.body).map_err(|_| "the body is not base64")?.into();
        let body = decoded_body(bytes.clone(), encoding, self.length).map_err(|_| "the body is damaged")?;
        let identity = Identity { source: self.source.clone(), delivery_id: self.id.clone(), redrive: self.redrive };
        let incoming = Incoming {
            entity: self.entity.clone(),
            identity,
            provider: self.provider.clone(),
            topic: self.topic.clone(),
            family: self.family.clone(),
            event_time: self.event_time.map(Timestamp::from_millis),
            received_at: self.received_at(),
            content_type: self.content_type.clone(),
            body,
        };
        Ok((incoming, StoredBody { bytes, encoding }))
    }

    pub(crate) fn again(&self) -> Self {
        Self { tries: self.tries.saturating_add(1), ..self.clone() }
    }

    pub(crate) fn pause(&self) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << self.tries.min(10)).min(LONGEST_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::queue::{Message, Unreadable, WakeUp};

    fn incoming(body: Vec<u8>) -> Incoming {
        Incoming {
            entity: EntityKey::parse("shop/order/größer").unwrap(),
            identity: Identity {
                source: SourceName::parse("shop").unwrap(),
                delivery_id: DeliveryId::new("\u{fffe}\u{1}\"1\""),
                redrive: 2,
            },
            provider: Some("woocommerce".into()),
            topic: "order.updated\u{ffff}".into(),
            family: "order".into(),
            event_time: Some(Timestamp::from_millis(5)),
            received_at: Timestamp::from_millis(9),
            content_type: Some("application/json".into()),
            body: body.into(),
        }
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut noise = vec![0; bytes];
        fastrand::Rng::with_seed(1).fill(&mut noise);
        noise
    }

    fn read(text: &str) -> Result<Message, Unreadable> {
        Message::parse(text)
    }

    #[test]
    fn deferred_delivery_round_trips_through_message() {
        for body in [vec![], b"{\"id\":7}".to_vec(), vec![b' '; LARGEST_BODY], noise(500_000)] {
            let incoming = incoming(body);
            let mut deferred = Deferred::of(&incoming, None, Trace::default()).unwrap();
            for _ in 0..3 {
                let message = Message::Deferred(Box::new(deferred.clone()));
                assert_eq!(message.entity(), &incoming.entity);
                let text = message.text();
                assert!(text.chars().all(|c| c >= ' ' && !['\u{fffe}', '\u{ffff}'].contains(&c)));
                let Ok(Message::Deferred(read)) = read(&text) else { panic!("{}", &text[..200]) };
                assert!(read.incoming().unwrap().0 == incoming);
                deferred = read.again();
            }
        }
    }

    #[test]
    fn oversized_delivery_is_not_deferred() {
        // Random bytes cannot be compressed, and base64 adds a third.
        assert!(Deferred::of(&incoming(noise(LARGEST_MESSAGE * 3 / 4 - 1024)), None, Trace::default()).is_some());
        assert!(Deferred::of(&incoming(noise(LARGEST_MESSAGE * 3 / 4)), None, Trace::default()).is_none());
    }

    #[test]
    fn body_of_half_message_limit_can_be_deferred() {
        let longest = Incoming {
            entity: EntityKey::parse(&format!("s/{}", "o".repeat(500))).unwrap(),
            identity: Identity {
                source: SourceName::parse(&"s".repeat(64)).unwrap(),
                delivery_id: DeliveryId::new("\u{1}".repeat(DeliveryId::MAX_BYTES)),
                redrive: u32::MAX,
            },
            topic: "\u{fffe}".repeat(128),
            family: "\u{fffe}".repeat(128),
            content_type: Some("\u{1}".repeat(10_000)),
            ..incoming(noise(LARGEST_MESSAGE / 2))
        };
        assert!(Deferred::of(&longest, None, Trace::default()).is_some());
    }

    #[test]
    fn requeue_delay_of_deferred_delivery_doubles_up_to_five_minutes() {
        let mut deferred = Deferred::of(&incoming(vec![]), None, Trace::default()).unwrap();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pauses.push(deferred.pause().as_secs());
            deferred = deferred.again();
        }
        assert_eq!(pauses, [15, 30, 60, 120, 240, 300, 300]);
        assert_eq!(Deferred { tries: u32::MAX, ..deferred }.again().pause(), LONGEST_PAUSE);
    }

    #[test]
    fn unreadable_delivery_is_reported_without_content() {
        let text = Deferred::of(&incoming(b"hush".to_vec()), None, Trace::default()).unwrap().text();
        let objection = |text: &str| match read(text) {
            Err(Unreadable::Delivery(reason)) => reason,
            Ok(Message::Deferred(deferred)) => deferred.incoming().unwrap_err().to_owned(),
            other => panic!("{other:?}"),
        };
        for (from, to, expected) in [
            ("\"delivery\":1", "\"delivery\":2", "the delivery has format 2, and this version reads 1"),
            ("\"delivery\":1", "\"delivery\":\"hush\"", "the delivery is damaged at byte"),
            ("\"received_at\":9", "\"received_at\":\"hush\"", "a field is wrong or absent at byte"),
            ("\"length\":4,", "", "a field is wrong or absent at byte"),
            ("\"length\":4", "\"length\":5", "the body is damaged"),
            ("\"length\":4", "\"length\":7000000", "the body is too long, or has another encoding"),
            ("\"plain\"", "\"zstd\"", "the body is damaged"),
            ("\"plain\"", "\"hush\"", "the body is too long, or has another encoding"),
            ("aHVzaA==", "aHVzaA", "the body is not base64"),
            ("shop/order", "cron/order", "the entity is a job, which takes no deliveries"),
            ("shop/order/größer", "nowhere", "a field is wrong or absent at byte"),
        ] {
            let damaged = text.replacen(from, to, 1);
            assert_ne!(damaged, text, "{from}");
            let objection = objection(&damaged);
            assert!(objection.starts_with(expected) && !objection.contains("hush"), "{to}: {objection}");
        }
        for end in Deferred::MARK.len()..text.len() {
            if text.is_char_boundary(end) {
                assert!(objection(&text[..end]).starts_with("the delivery is damaged"));
            }
        }
    }

    #[test]
    fn message_of_unknown_format_is_unreadable() {
        let wake_up = WakeUp::of(&EntityKey::parse("n/a").unwrap());
        assert_eq!(read(&Message::from(wake_up.clone()).text()), Ok(Message::WakeUp(wake_up)));
        for text in ["", "not json", "{}", r#"{"entity":"no-namespace"}"#, "[1]"] {
            assert_eq!(read(text), Err(Unreadable::Nothing), "{text}");
        }
    }
}
