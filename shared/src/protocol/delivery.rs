//! Deliveries: what ingest stores and what a handler gets. How they stand in
//! rows is the codec's.

mod codec;

use std::{cmp::Ordering, sync::OnceLock};

use bytes::Bytes;

pub use codec::{Envelope, Item, LARGEST_BODY, PutPart, Unpacked};
pub(crate) use codec::{Stored, TOPIC_BYTES, parked_copy, restored};

use crate::{
    protocol::{
        entity::{DeliveryId, EntityKey, FencingToken, Identity, IdentityHash, Sequence, SourceName},
        keys::part_row,
        state::EventTimes,
        table::Key,
        trace::Trace,
    },
    time::{Nonce, Timestamp},
};

/// A delivery on its way into an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// Whose inbox.
    pub entity: EntityKey,
    /// What makes it the same as another.
    pub identity: Identity,
    /// The name of the provider whose rules its source goes by, such as
    /// `shopify`; `None`: it came through no source.
    pub provider: Option<String>,
    /// What happened, in the sender's words.
    pub topic: String,
    /// Events whose times can be compared.
    pub family: String,
    /// When it happened, by the sender's clock. A time more than five minutes
    /// after `received_at` is not stored.
    pub event_time: Option<Timestamp>,
    /// When it arrived, by ours.
    pub received_at: Timestamp,
    /// The body's content type, if the sender gave one.
    pub content_type: Option<String>,
    /// The body's bytes.
    pub body: Bytes,
}

/// How an event's time stands to the newest one applied of its topic family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Age {
    /// It is newer, or the first.
    Newer,
    /// It is from the same moment. Several senders' clocks tick in whole
    /// seconds: this says nothing about which came first.
    SameTime,
    /// A newer one was applied already.
    Older,
    /// The sender gives no time, or one too far ahead; the order's row dropped the
    /// newest time of its family; or a person has it run again, after what came
    /// behind it.
    Unknown,
}

/// One delivery, as a handler gets it.
#[derive(Debug, Clone)]
pub struct Delivery {
    entity: EntityKey,
    sequence: Sequence,
    identity: Identity,
    provider: Option<String>,
    topic: String,
    family: String,
    event_time: Option<Timestamp>,
    received_at: Timestamp,
    appended_at: Option<Timestamp>,
    content_type: Option<String>,
    body: Bytes,
    pub(crate) attempt: u32,
    pub(crate) age: Age,
    pub(crate) superseded: u32,
    pub(crate) run_before: Option<FencingToken>,
    /// As stored; in a handler's hands that of its run.
    pub(crate) trace: Trace,
    /// Of the row it was read from, for the parts of a large body.
    parts: Option<Parts>,
    identity_hash: OnceLock<IdentityHash>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    nonce: Nonce,
    count: u32,
}

impl Delivery {
    /// `incoming` at its first attempt, of no known age, for calling a handler
    /// directly in its own tests: with [`Context::detached`](crate::Context::detached).
    ///
    /// ```
    /// use webhook_serializer::{Delivery, DeliveryId, EntityKey, Identity, Incoming, Sequence, SourceName, Timestamp};
    ///
    /// let incoming = Incoming {
    ///     entity: EntityKey::parse("shop/order/1").unwrap(),
    ///     identity: Identity {
    ///         source: SourceName::parse("shop").unwrap(),
    ///         delivery_id: DeliveryId::new("a delivery"),
    ///         redrive: 0,
    ///     },
    ///     provider: Some("shopify".into()),
    ///     topic: "orders/paid".into(),
    ///     family: "orders".into(),
    ///     event_time: None,
    ///     received_at: Timestamp::from_secs(1_767_225_600),
    ///     content_type: Some("application/json".into()),
    ///     body: r#"{"total_price":"48.20"}"#.into(),
    /// };
    /// let delivery = Delivery::detached(incoming, Sequence(1));
    /// assert_eq!(delivery.json::<serde_json::Value>().unwrap()["total_price"], "48.20");
    /// ```
    pub fn detached(incoming: Incoming, sequence: Sequence) -> Self {
        let Incoming { entity, identity, provider, topic, family, event_time, received_at, content_type, body } =
            incoming;
        Self {
            entity,
            sequence,
            identity,
            provider,
            topic,
            family,
            event_time,
            received_at,
            appended_at: None,
            content_type,
            body,
            attempt: 1,
            age: Age::Unknown,
            superseded: 0,
            run_before: None,
            trace: Trace::default(),
            parts: None,
            identity_hash: OnceLock::new(),
        }
    }

    /// Whose delivery it is.
    pub fn entity(&self) -> &EntityKey {
        &self.entity
    }

    /// Its place in the inbox.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// The configured sender.
    pub fn source(&self) -> &SourceName {
        &self.identity.source
    }

    /// The name of the provider whose rules its source went by when it was
    /// accepted, such as `shopify`. `None`: an application appended it itself,
    /// or it was stored before deliveries said so.
    pub fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// What the sender calls it; the same for every repeat.
    pub fn delivery_id(&self) -> &DeliveryId {
        &self.identity.delivery_id
    }

    /// How often an operator put it back.
    pub fn redrive(&self) -> u32 {
        self.identity.redrive
    }

    /// All that makes it the same as another.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn identity_hash(&self) -> IdentityHash {
        *self.identity_hash.get_or_init(|| self.identity.hash())
    }

    /// The hashes under which it may have been settled as another delivery, its own
    /// first.
    pub(crate) fn repeated_hashes(&self) -> impl Iterator<Item = IdentityHash> + use<> {
        std::iter::once(self.identity_hash()).chain(self.identity.adjacent_hashes())
    }

    /// What happened, in the sender's words, such as `orders/paid`.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Events whose times can be compared.
    pub fn family(&self) -> &str {
        &self.family
    }

    /// When it happened, by the sender's clock.
    pub fn event_time(&self) -> Option<Timestamp> {
        self.event_time
    }

    /// When it was accepted, by ours.
    pub fn received_at(&self) -> Timestamp {
        self.received_at
    }

    /// When it was put into its inbox, where that was not when it was accepted: the
    /// store was out then, and the delivery waited in the queue. What was accepted
    /// later may have been handled before it. `None`: it has its place in the order
    /// of arrival.
    pub fn deferred_until(&self) -> Option<Timestamp> {
        self.appended_at
    }

    /// When it came into its inbox.
    pub(crate) fn appended_at(&self) -> Timestamp {
        self.appended_at.unwrap_or(self.received_at)
    }

    /// The body's content type, if the sender gave one.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Which attempt this is, from 1. A worker that vanished with the delivery
    /// counts as one: it may have started it.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How its event stands to what was applied of its topic family.
    pub(crate) fn age_beside(&self, applied: &EventTimes) -> Age {
        let Some(time) = self.event_time.filter(|_| self.run_before.is_none()) else { return Age::Unknown };
        match applied.of(&self.family).map(|newest| time.cmp(&newest)) {
            None if applied.may_have_dropped_since(time) => Age::Unknown,
            None | Some(Ordering::Greater) => Age::Newer,
            Some(Ordering::Equal) => Age::SameTime,
            Some(Ordering::Less) => Age::Older,
        }
    }

    /// How its event time stands to what was applied before.
    pub fn age(&self) -> Age {
        self.age
    }

    /// How many older deliveries this one stands for, besides itself: its source
    /// wants only the latest of those that wait. They are settled with it, and
    /// no handler gets them.
    pub fn superseded(&self) -> u32 {
        self.superseded
    }

    /// The token under which it was applied before, where a person has it run once
    /// more: the same for every attempt of this run, another for every other run.
    /// Whoever knows a delivery by its id, and is to let it have its effect again,
    /// knows the run by both.
    pub fn run_before(&self) -> Option<FencingToken> {
        self.run_before
    }

    /// What the header `traceparent` of W3C Trace Context says to whatever this run
    /// causes elsewhere. `None` without the feature `otel`, or where traces are sent
    /// nowhere.
    pub fn traceparent(&self) -> Option<String> {
        self.trace.text()
    }

    /// The body, as the sender sent it.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body as JSON.
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.body)
    }

    /// The same delivery on its way in once more, with the next redrive number.
    pub(crate) fn redriven(&self, now: Timestamp) -> Incoming {
        let identity = Identity { redrive: self.identity.redrive + 1, ..self.identity.clone() };
        Incoming {
            entity: self.entity.clone(),
            identity,
            provider: self.provider.clone(),
            topic: self.topic.clone(),
            family: self.family.clone(),
            event_time: self.event_time,
            received_at: now,
            content_type: self.content_type.clone(),
            body: self.body.clone(),
        }
    }

    /// The parts whose rows hold this delivery's body.
    pub(crate) fn part_keys(&self) -> Vec<Key> {
        let Some(parts) = &self.parts else { return Vec::new() };
        (0..parts.count).map(|number| part_row(&self.entity, &parts.nonce, number)).collect()
    }
}
