//! Deferred deliveries: verified, answered 202, and not taken by the store. Each
//! waits as a message of the queue until a worker can append it.
//!
//! ```json
//! {"delivery":1,"entity":"shop/order/7","source":"shop","id":"…","topic":"order.updated","family":"order",
//!  "received_at":1767225600000,"encoding":"zstd","length":2517,"body":"KLUv…"}
//! ```
//!
//! `delivery` is the form's number and stands in front: by it a message that
//! cannot be read is known for a delivery, and kept. The body is compressed where
//! that helps, and in base64. Nothing else of the request is in it: no header, no
//! signature.

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

/// The longest body of a message (SQS, since August 2025), in bytes.
pub const LARGEST_MESSAGE: usize = 1_048_576;

/// A deferred delivery, as it stands in a message's body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    /// The form's number.
    delivery: u64,
    entity: EntityKey,
    source: SourceName,
    id: DeliveryId,
    #[serde(default, skip_serializing_if = "is_zero")]
    redrive: u32,
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
    /// Of the body, before it was compressed.
    length: usize,
    body: String,
    /// How often a worker tried in vain.
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

/// The one that this version writes and reads.
const FORM: u64 = 1;

/// How long it is left alone after the first try in vain; each further one doubles
/// it.
const FIRST_PAUSE: Duration = Duration::from_secs(15);

/// The longest pause: so long after an outage, at the most, the last is tried.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

impl Deferred {
    /// How a message begins that is one, whatever its form.
    pub(crate) const MARK: &str = "{\"delivery\":";

    /// `incoming`, where it fits a message; its trace goes on there.
    pub fn of(incoming: &Incoming, trace: Trace) -> Option<Self> {
        let stored = StoredBody::new(&incoming.body);
        let deferred = Self {
            delivery: FORM,
            entity: incoming.entity.clone(),
            source: incoming.identity.source.clone(),
            id: incoming.identity.delivery_id.clone(),
            redrive: incoming.identity.redrive,
            provider: incoming.provider.clone(),
            topic: shortened(&incoming.topic, TOPIC_BYTES),
            family: shortened(&incoming.family, TOPIC_BYTES),
            event_time: incoming.event_time.map(Timestamp::as_millis),
            received_at: incoming.received_at.as_millis(),
            content_type: incoming.content_type.as_deref().map(|said| shortened(said, TOPIC_BYTES)),
            encoding: stored.encoding.to_owned(),
            length: incoming.body.len(),
            body: STANDARD.encode(&stored.bytes),
            tries: 0,
            trace,
        };
        // As long as it can become.
        let last = Self { tries: u32::MAX, ..deferred.clone() };
        (last.text().len() <= LARGEST_MESSAGE).then_some(deferred)
    }

    /// Reads a message that begins with [`Deferred::MARK`].
    ///
    /// # Errors
    ///
    /// Why it cannot be read, without anything of what it holds.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Numbered {
            delivery: u64,
        }
        let Numbered { delivery } =
            serde_json::from_str(text).map_err(|error| format!("it is damaged at byte {}", error.column()))?;
        if delivery != FORM {
            return Err(format!("it is of form {delivery}, and this version reads {FORM}"));
        }
        // Not the error's own words, which quote.
        serde_json::from_str(text).map_err(|error| format!("a field is wrong or absent at byte {}", error.column()))
    }

    /// As it stands in a message's body. Of the characters that a message cannot
    /// hold, JSON escapes all but two.
    pub(crate) fn text(&self) -> String {
        let text = serde_json::to_string(self).expect("a deferred delivery is a plain object");
        text.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff")
    }

    /// Whose it is.
    pub fn entity(&self) -> &EntityKey {
        &self.entity
    }

    /// Where its trace goes on.
    pub(crate) fn trace(&self) -> Trace {
        self.trace
    }

    /// When it arrived, by ours.
    pub fn received_at(&self) -> Timestamp {
        Timestamp::from_millis(self.received_at)
    }

    /// The delivery, and its body as it is to be stored.
    ///
    /// # Errors
    ///
    /// Why it cannot be read, without anything of what it holds.
    pub(crate) fn incoming(&self) -> Result<(Incoming, StoredBody), &'static str> {
        if self.entity.is_kept_forever() {
            return Err("its entity is a job's");
        }
        let encoding = ["zstd", "plain"].into_iter().find(|known| *known == self.encoding);
        let Some(encoding) = encoding.filter(|_| self.length <= LARGEST_BODY) else {
            return Err("its body is too long, or encoded otherwise");
        };
        let bytes: Bytes = STANDARD.decode(&self.body).map_err(|_| "its body is not base64")?.into();
        let body = decoded_body(bytes.clone(), encoding, self.length).map_err(|_| "its body is damaged")?;
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

    /// The same after one more try in vain.
    pub(crate) fn again(&self) -> Self {
        Self { tries: self.tries.saturating_add(1), ..self.clone() }
    }

    /// How long it is left alone then.
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
    fn what_is_deferred_is_read_as_it_was_in_characters_that_a_message_can_hold() {
        for body in [vec![], b"{\"id\":7}".to_vec(), vec![b' '; LARGEST_BODY], noise(500_000)] {
            let incoming = incoming(body);
            let mut deferred = Deferred::of(&incoming, Trace::default()).unwrap();
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
    fn what_does_not_fit_a_message_is_none() {
        // Noise does not shrink, and base64 adds a third.
        assert!(Deferred::of(&incoming(noise(LARGEST_MESSAGE * 3 / 4 - 1024)), Trace::default()).is_some());
        assert!(Deferred::of(&incoming(noise(LARGEST_MESSAGE * 3 / 4)), Trace::default()).is_none());
    }

    #[test]
    fn half_a_message_always_fits() {
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
        assert!(Deferred::of(&longest, Trace::default()).is_some());
    }

    #[test]
    fn each_pause_is_twice_the_last_up_to_five_minutes() {
        let mut deferred = Deferred::of(&incoming(vec![]), Trace::default()).unwrap();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pauses.push(deferred.pause().as_secs());
            deferred = deferred.again();
        }
        assert_eq!(pauses, [15, 30, 60, 120, 240, 300, 300]);
        assert_eq!(Deferred { tries: u32::MAX, ..deferred }.again().pause(), LONGEST_PAUSE);
    }

    #[test]
    fn a_delivery_that_cannot_be_read_is_known_for_one_and_its_words_are_not_repeated() {
        let text = Deferred::of(&incoming(b"hush".to_vec()), Trace::default()).unwrap().text();
        let objection = |text: &str| match read(text) {
            Err(Unreadable::Delivery(reason)) => reason,
            Ok(Message::Deferred(deferred)) => deferred.incoming().unwrap_err().to_owned(),
            other => panic!("{other:?}"),
        };
        for (from, to, expected) in [
            ("\"delivery\":1", "\"delivery\":2", "it is of form 2, and this version reads 1"),
            ("\"delivery\":1", "\"delivery\":\"hush\"", "it is damaged at byte"),
            ("\"received_at\":9", "\"received_at\":\"hush\"", "a field is wrong or absent at byte"),
            ("\"length\":4,", "", "a field is wrong or absent at byte"),
            ("\"length\":4", "\"length\":5", "its body is damaged"),
            ("\"length\":4", "\"length\":7000000", "its body is too long, or encoded otherwise"),
            ("\"plain\"", "\"zstd\"", "its body is damaged"),
            ("\"plain\"", "\"hush\"", "its body is too long, or encoded otherwise"),
            ("aHVzaA==", "aHVzaA", "its body is not base64"),
            ("shop/order", "cron/order", "its entity is a job's"),
            ("shop/order/größer", "nowhere", "a field is wrong or absent at byte"),
        ] {
            let damaged = text.replacen(from, to, 1);
            assert_ne!(damaged, text, "{from}");
            let objection = objection(&damaged);
            assert!(objection.starts_with(expected) && !objection.contains("hush"), "{to}: {objection}");
        }
        for end in Deferred::MARK.len()..text.len() {
            if text.is_char_boundary(end) {
                assert!(objection(&text[..end]).starts_with("it is damaged"));
            }
        }
    }

    #[test]
    fn a_wake_up_stays_one_and_everything_else_is_nothing() {
        let wake_up = WakeUp::of(&EntityKey::parse("n/a").unwrap());
        assert_eq!(read(&Message::from(wake_up.clone()).text()), Ok(Message::WakeUp(wake_up)));
        for text in ["", "not json", "{}", r#"{"entity":"no-namespace"}"#, "[1]"] {
            assert_eq!(read(text), Err(Unreadable::Nothing), "{text}");
        }
    }
}
