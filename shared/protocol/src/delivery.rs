//! Deliveries: [`Incoming`] is appended to an inbox, and [`Delivery`] is passed to a handler.

mod body;
mod codec;
mod json;

use std::{cmp::Ordering, sync::OnceLock};

use bytes::Bytes;

pub use body::{LARGEST_BODY, StoredBody, decoded_body};
pub use codec::{Envelope, InboxItem, PutPart, TOPIC_BYTES, Unpacked, parked_copy};
pub use json::InvalidBody;

use crate::{
    entity::{DeliveryId, EntityKey, FencingToken, Identity, IdentityHash, Sequence, SourceName},
    keys::part_row,
    state::EventTimes,
    table::Key,
    time::{Nonce, Timestamp},
    trace::Trace,
};

/// The error of a parked delivery that belongs to no entity, unless ingest has stored another reason with it.
pub const NO_ENTITY: &str = "the source's rules find no order in the webhook";

/// A delivery to be appended to an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The entity in whose inbox the delivery is stored.
    pub entity: EntityKey,
    /// The delivery's identity. Repeats are recognised by this identity.
    pub identity: Identity,
    /// The provider of the delivery's source, such as `shopify`. `None` if an application appended
    /// the delivery.
    pub provider: Option<String>,
    /// The sender's name for the event, such as `orders/paid`.
    pub topic: String,
    /// The topic family. Event times are compared only within a family.
    pub family: String,
    /// The time of the event by the sender's clock. A time more than five minutes
    /// after `received_at` is not stored.
    pub event_time: Option<Timestamp>,
    /// The time at which the delivery was received, by the receiver's clock.
    pub received_at: Timestamp,
    /// The body's content type, if the sender gave one.
    pub content_type: Option<String>,
    /// The body's bytes.
    pub body: Bytes,
}

/// The age of a delivery's event, compared with the newest applied event of its topic family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Age {
    /// The event is newer than all applied events of its topic family, or no event of the family
    /// was applied before.
    Newer,
    /// The event has the same time as the newest applied event of its topic family. Some senders
    /// give times in whole seconds, so equal times do not tell which event came first.
    SameTime,
    /// The event is older than an applied event of its topic family.
    Older,
    /// The event's age cannot be determined, for one of these reasons:
    ///
    /// - The sender gave no time, or a time too far ahead.
    /// - The entity's row no longer has the newest applied event time of the topic family.
    /// - A rewind runs the delivery again, after later deliveries.
    Unknown,
}

/// A delivery as a handler receives it.
#[derive(Debug, Clone)]
pub struct Delivery {
    incoming: Incoming,
    sequence: Sequence,
    appended_at: Option<Timestamp>,
    #[doc(hidden)]
    pub attempt: u32,
    #[doc(hidden)]
    pub age: Age,
    #[doc(hidden)]
    pub superseded: u32,
    #[doc(hidden)]
    pub run_before: Option<FencingToken>,
    /// The reason, if ingest stored one, that the delivery belongs to no entity.
    #[doc(hidden)]
    pub unrouted: Option<String>,
    /// The trace that is stored with the delivery. In a delivery that a handler gets, the trace of
    /// the handler's start.
    #[doc(hidden)]
    pub trace: Trace,
    parts: Option<BodyParts>,
    /// The body as it is stored. `None` in a delivery that was not read from its row.
    stored: Option<StoredBody>,
    identity_hash: OnceLock<IdentityHash>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BodyParts {
    nonce: Nonce,
    count: u32,
}

impl Delivery {
    /// Creates a delivery for tests that call a handler directly, together with a
    /// `Context::detached`. The delivery is at its first attempt, and its age is unknown.
    ///
    /// ```
    /// # mod webhook_serializer { pub use webhook_serializer_protocol::{delivery::*, entity::*, time::*}; }
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
        Self {
            incoming,
            sequence,
            appended_at: None,
            attempt: 1,
            age: Age::Unknown,
            superseded: 0,
            run_before: None,
            unrouted: None,
            trace: Trace::default(),
            parts: None,
            stored: None,
            identity_hash: OnceLock::new(),
        }
    }

    /// Returns the entity that the delivery belongs to.
    pub fn entity(&self) -> &EntityKey {
        &self.incoming.entity
    }

    /// Returns the delivery's position in its entity's inbox.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Returns the delivery's source, which is its configured sender.
    pub fn source(&self) -> &SourceName {
        &self.incoming.identity.source
    }

    /// Returns the provider of the delivery's source, such as `shopify`. `None` if an application
    /// appended the delivery.
    pub fn provider(&self) -> Option<&str> {
        self.incoming.provider.as_deref()
    }

    /// Returns the sender's delivery id, which repeats of the delivery share. If the sender gives
    /// no id, the body's hash and the period of arrival replace it. A repeat in an adjacent period
    /// then has another id.
    pub fn delivery_id(&self) -> &DeliveryId {
        &self.incoming.identity.delivery_id
    }

    /// Returns how many times an operator has redriven the delivery.
    pub fn redrive(&self) -> u32 {
        self.incoming.identity.redrive
    }

    /// Returns the delivery's identity. Repeats are recognised by this identity.
    pub fn identity(&self) -> &Identity {
        &self.incoming.identity
    }

    #[doc(hidden)]
    pub fn identity_hash(&self) -> IdentityHash {
        *self.identity_hash.get_or_init(|| self.incoming.identity.hash())
    }

    /// Returns the identity hashes to look up in receipts. If a delivery with one of these hashes
    /// was settled, this delivery is a repeat. The delivery's own hash comes first.
    #[doc(hidden)]
    pub fn repeated_hashes(&self) -> impl Iterator<Item = IdentityHash> + use<> {
        std::iter::once(self.identity_hash()).chain(self.incoming.identity.adjacent_hashes())
    }

    /// Returns the sender's name for the event, such as `orders/paid`.
    pub fn topic(&self) -> &str {
        &self.incoming.topic
    }

    /// Returns the topic family. Event times are compared only within a family.
    pub fn family(&self) -> &str {
        &self.incoming.family
    }

    /// Returns the time of the event by the sender's clock. `None` if the sender gave no time, or a
    /// time too far ahead.
    pub fn event_time(&self) -> Option<Timestamp> {
        self.incoming.event_time
    }

    /// Returns the time at which the delivery was received, by the receiver's clock.
    pub fn received_at(&self) -> Timestamp {
        self.incoming.received_at
    }

    /// Returns the time at which a deferred delivery was appended to its inbox. `None` if the
    /// delivery was not deferred.
    ///
    /// A delivery is deferred if the tables cannot be reached when it is received. It then waits in
    /// the queue, and deliveries that are received later may be handled before it.
    pub fn deferred_until(&self) -> Option<Timestamp> {
        self.appended_at
    }

    #[doc(hidden)]
    pub fn appended_at(&self) -> Timestamp {
        self.appended_at.unwrap_or(self.incoming.received_at)
    }

    /// Returns the body's content type, if the sender gave one.
    pub fn content_type(&self) -> Option<&str> {
        self.incoming.content_type.as_deref()
    }

    /// Returns the number of this attempt, counted from 1. If workers died with the delivery and
    /// had recorded no start, all these deaths count as one attempt, because one of the workers may
    /// have started the handler.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    #[doc(hidden)]
    pub fn age_beside(&self, applied: &EventTimes) -> Age {
        let Some(time) = self.incoming.event_time.filter(|_| self.run_before.is_none()) else { return Age::Unknown };
        match applied.of(&self.incoming.family).map(|newest| time.cmp(&newest)) {
            None if applied.may_have_dropped_since(time) => Age::Unknown,
            None | Some(Ordering::Greater) => Age::Newer,
            Some(Ordering::Equal) => Age::SameTime,
            Some(Ordering::Less) => Age::Older,
        }
    }

    /// Returns the age of the delivery's event, compared with the newest applied event of its topic
    /// family.
    pub fn age(&self) -> Age {
        self.age
    }

    /// Returns the number of earlier deliveries that this delivery supersedes. The number is 0
    /// unless the source delivers only the latest of the waiting deliveries. The superseded
    /// deliveries are settled together with this one, and no handler starts for them.
    pub fn superseded(&self) -> u32 {
        self.superseded
    }

    /// Returns the token that tells the runs of a rewound delivery apart. `None` if the delivery
    /// was not rewound.
    ///
    /// A rewind lets the handler run again for a delivery that was applied before. All attempts of
    /// a run have the same token, and each later run has another. A receiver that remembers
    /// delivery ids recognises a run by the delivery id and this token.
    ///
    /// The token comes from the receipt that the delivery had when the run began. Usually it is the
    /// fencing token of the run before. After a further rewind, or the early end of a rewind, it can
    /// be the fencing token of the operator's lease.
    pub fn run_before(&self) -> Option<FencingToken> {
        self.run_before
    }

    /// Returns the W3C Trace Context header `traceparent` for requests that the handler sends.
    /// `None` without the feature `otel`, or if no traces are exported.
    pub fn traceparent(&self) -> Option<String> {
        self.trace.text()
    }

    /// Returns the body as it was received.
    pub fn body(&self) -> &Bytes {
        &self.incoming.body
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the body is not JSON, or if one of its fields does not fit `T`. The
    /// error names the field and quotes no value of the body.
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, InvalidBody> {
        json::parse(&self.incoming.body)
    }

    #[doc(hidden)]
    pub fn redriven(&self, now: Timestamp) -> Incoming {
        let identity = Identity { redrive: self.incoming.identity.redrive + 1, ..self.incoming.identity.clone() };
        Incoming { identity, received_at: now, ..self.incoming.clone() }
    }

    #[doc(hidden)]
    pub fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    /// Returns the body as it is stored, so that a copy needs no compressor.
    #[doc(hidden)]
    pub fn stored_body(&self) -> StoredBody {
        self.stored.clone().unwrap_or_else(|| StoredBody::plain(&self.incoming.body))
    }

    #[doc(hidden)]
    pub fn part_keys(&self) -> Vec<Key> {
        let Some(parts) = &self.parts else { return Vec::new() };
        (0..parts.count).map(|number| part_row(&self.incoming.entity, &parts.nonce, number)).collect()
    }
}
