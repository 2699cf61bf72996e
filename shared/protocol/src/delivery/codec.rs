//! Stores deliveries as rows, and reads deliveries from rows.
//!
//! Only the sweep updates a delivery row, to extend its retention, because each update costs the
//! row's full size again. A body too large for one row is split into parts. The parts are written
//! before the sequence is claimed. Only the delivery row, which names the parts, fills the
//! sequence.

use std::time::Duration;

use bytes::Bytes;

use super::{
    BodyParts, Delivery, Incoming,
    body::{LARGEST_BODY, StoredBody, decoded_body},
};
use crate::{
    entity::{DeliveryId, EntityKey, FencingToken, Identity, Sequence, SourceName},
    format::{CorruptRow, FORMAT, attribute as a, check_format, shortened},
    keys::{part_row, sequence_of},
    operation::Operation,
    table::{Key, Row, Write, Written},
    time::{Nonce, Timestamp},
    trace::Trace,
};

/// The most bytes of a body in one row. DynamoDB allows 400 KB for the whole item.
const PART_BYTES: usize = 350 * 1024;

/// The most bytes stored of a topic, a topic family, a provider or a content type.
pub const TOPIC_BYTES: usize = 128;

/// The most that an event's time may be later than the time at which its delivery was
/// received. An event time further ahead is not stored.
const SENDER_AHEAD: Duration = Duration::from_secs(300);

/// The rows of one delivery, ready to be written. The parts of a large body are written first, then
/// the delivery row at the claimed sequence.
#[derive(Debug, Clone)]
pub struct Envelope {
    entity: EntityKey,
    nonce: Nonce,
    row: Row,
    parts: Vec<PutPart>,
}

impl Envelope {
    pub fn pack(incoming: &Incoming, nonce: &Nonce, purge_at: Timestamp) -> Self {
        Self::with_body(incoming, StoredBody::new(&incoming.body), nonce, purge_at)
    }

    pub fn with_body(incoming: &Incoming, stored: StoredBody, nonce: &Nonce, purge_at: Timestamp) -> Self {
        let purge_at = purge_at.as_secs_rounded_up();
        let mut row = Row::new()
            .with(a::VERSION, FORMAT)
            .with(a::NONCE, nonce.as_str())
            .with(a::SOURCE, incoming.identity.source.as_str())
            .with(a::DELIVERY_ID, incoming.identity.delivery_id.as_str())
            .with(a::TOPIC, shortened(&incoming.topic, TOPIC_BYTES))
            .with(a::RECEIVED_AT, incoming.received_at.as_millis())
            .with(a::BODY_BYTES, incoming.body.len() as u64)
            .with(a::ENCODING, stored.encoding)
            .with(a::PURGE_AT, purge_at);
        if let Some(provider) = &incoming.provider {
            row.set(a::PROVIDER, shortened(provider, TOPIC_BYTES));
        }
        if incoming.family != incoming.topic {
            row.set(a::FAMILY, shortened(&incoming.family, TOPIC_BYTES));
        }
        if incoming.identity.redrive > 0 {
            row.set(a::REDRIVE, incoming.identity.redrive);
        }
        // A time too far ahead would make every later event of the family look older.
        if let Some(time) = incoming.event_time.filter(|time| *time <= incoming.received_at + SENDER_AHEAD) {
            row.set(a::EVENT_TIME, time.as_millis());
        }
        if let Some(content_type) = &incoming.content_type {
            row.set(a::CONTENT_TYPE, shortened(content_type, TOPIC_BYTES));
        }
        let mut parts = Vec::new();
        if stored.bytes.len() <= PART_BYTES {
            row.set(a::BODY, stored.bytes);
        } else {
            for (number, chunk) in (0_u32..).zip(stored.bytes.chunks(PART_BYTES)) {
                let part = Row::new()
                    .with(a::VERSION, FORMAT)
                    .with(a::BODY, stored.bytes.slice_ref(chunk))
                    .with(a::PURGE_AT, purge_at);
                parts.push(PutPart { key: part_row(&incoming.entity, nonce, number), row: part });
            }
            row.set(a::PARTS, parts.len() as u64);
        }
        Self { entity: incoming.entity.clone(), nonce: nonce.clone(), row, parts }
    }

    /// Records `token` as the delivery's [`Delivery::run_before`]. A redrive passes on the
    /// `run_before` of the parked delivery, which is `None` unless that delivery was rewound.
    #[must_use]
    pub fn run_before(mut self, token: Option<FencingToken>) -> Self {
        if let Some(token) = token {
            self.row.set(a::RUN_BEFORE, token.0);
        }
        self
    }

    /// Records why the delivery belongs to no entity. The worker parks it with this error.
    #[must_use]
    pub fn unrouted(mut self, reason: Option<&str>) -> Self {
        if let Some(reason) = reason {
            self.row.set(a::ERROR, reason);
        }
        self
    }

    #[must_use]
    pub fn traced(mut self, trace: Trace) -> Self {
        trace.put(&mut self.row);
        self
    }

    #[must_use]
    pub fn deferred_until(mut self, now: Timestamp) -> Self {
        self.row.set(a::APPENDED_AT, now.as_millis());
        self
    }

    pub fn entity(&self) -> &EntityKey {
        &self.entity
    }

    pub fn nonce(&self) -> &Nonce {
        &self.nonce
    }

    /// Returns the writes of the body's parts, which must land before the claim.
    pub fn parts(&self) -> &[PutPart] {
        &self.parts
    }

    /// Returns the delivery row without its key attributes.
    pub fn row(&self) -> &Row {
        &self.row
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct PutPart {
    pub key: Key,
    /// The part's row without its key attributes.
    pub row: Row,
}

impl Operation for PutPart {
    type Outcome = ();

    fn write(&self) -> Write {
        Write::put(self.key.clone(), self.row.clone())
    }

    /// Treats every reply as success. The key contains the append's nonce, so a second try puts the
    /// same row.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

#[derive(Debug, Clone)]
pub enum InboxItem {
    /// A delivery, whose body may still have to be fetched from its parts.
    Delivery(Box<Unpacked>),
    Void(Sequence),
}

impl InboxItem {
    pub fn sequence(&self) -> Sequence {
        match self {
            InboxItem::Delivery(unpacked) => unpacked.delivery.sequence,
            InboxItem::Void(sequence) => *sequence,
        }
    }

    /// Parses a row whose key begins with `d#` (a delivery or tombstone) or `p#` (a parked
    /// delivery).
    pub fn parse(entity: &EntityKey, row: &Row) -> Result<Self, CorruptRow> {
        check_format(row)?;
        let sequence = sequence_of(row).ok_or(CorruptRow::Attribute(a::ITEM))?;
        if row.get(a::VOID).is_some() {
            return Ok(InboxItem::Void(sequence));
        }
        Unpacked::parse(entity, sequence, row).map(|unpacked| InboxItem::Delivery(Box::new(unpacked)))
    }
}

/// A delivery read from its row, before its body is decoded.
#[derive(Debug, Clone)]
pub struct Unpacked {
    delivery: Delivery,
    encoding: String,
    body_bytes: usize,
}

impl Unpacked {
    fn parse(entity: &EntityKey, sequence: Sequence, row: &Row) -> Result<Self, CorruptRow> {
        let text = |name| row.text(name).ok_or(CorruptRow::Attribute(name));
        let nonce = Nonce::from_stored(text(a::NONCE)?);
        let topic = text(a::TOPIC)?.to_owned();
        let count = row.number(a::PARTS).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        // Allow twice as many parts as the largest body can have.
        if count.is_some_and(|count| count as usize > 2 * LARGEST_BODY.div_ceil(PART_BYTES)) {
            return Err(CorruptRow::Attribute(a::PARTS));
        }
        let incoming = Incoming {
            entity: entity.clone(),
            identity: Identity {
                source: SourceName::parse(text(a::SOURCE)?).map_err(|_| CorruptRow::Attribute(a::SOURCE))?,
                delivery_id: DeliveryId::new(text(a::DELIVERY_ID)?),
                redrive: row.number(a::REDRIVE).unwrap_or(0).try_into().unwrap_or(u32::MAX),
            },
            provider: row.text(a::PROVIDER).map(str::to_owned),
            family: row.text(a::FAMILY).map_or_else(|| topic.clone(), str::to_owned),
            topic,
            event_time: row.number(a::EVENT_TIME).map(Timestamp::from_millis),
            received_at: Timestamp::from_millis(
                row.number(a::RECEIVED_AT).ok_or(CorruptRow::Attribute(a::RECEIVED_AT))?,
            ),
            content_type: row.text(a::CONTENT_TYPE).map(str::to_owned),
            body: row.bytes(a::BODY).cloned().unwrap_or_default(),
        };
        let delivery = Delivery {
            appended_at: row.number(a::APPENDED_AT).map(Timestamp::from_millis),
            run_before: row.number(a::RUN_BEFORE).map(FencingToken),
            unrouted: row.text(a::ERROR).map(str::to_owned),
            trace: Trace::of_row(row),
            parts: count.map(|count| BodyParts { nonce, count }),
            ..Delivery::detached(incoming, sequence)
        };
        let body_bytes = row.number(a::BODY_BYTES).ok_or(CorruptRow::Attribute(a::BODY_BYTES))?;
        Ok(Self {
            delivery,
            encoding: text(a::ENCODING)?.to_owned(),
            body_bytes: usize::try_from(body_bytes).unwrap_or(usize::MAX),
        })
    }

    /// Returns the delivery with an undecoded body. The delivery's other fields are enough to
    /// decide whether its handler starts.
    pub fn head(&self) -> &Delivery {
        &self.delivery
    }

    /// Returns the length of the decoded body in bytes.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Decodes the body, given the rows of the body's parts in any order.
    pub fn complete(mut self, parts: &[Row]) -> Result<Delivery, CorruptRow> {
        if let Some(expected) = &self.delivery.parts {
            let mut parts: Vec<(&str, &Bytes)> =
                parts.iter().filter_map(|row| Some((row.text(a::ITEM)?, row.bytes(a::BODY)?))).collect();
            parts.sort_unstable_by_key(|(item, _)| *item);
            if parts.len() != expected.count as usize {
                return Err(CorruptRow::Attribute(a::PARTS));
            }
            let mut stored = Vec::with_capacity(parts.iter().map(|(_, body)| body.len()).sum());
            parts.iter().for_each(|(_, body)| stored.extend_from_slice(body));
            self.delivery.incoming.body = stored.into();
        }
        let bytes = std::mem::take(&mut self.delivery.incoming.body);
        let encoding = if self.encoding == "zstd" { "zstd" } else { "plain" };
        self.delivery.stored = Some(StoredBody { bytes: bytes.clone(), encoding });
        self.delivery.incoming.body = decoded_body(bytes, &self.encoding, self.body_bytes)?;
        Ok(self.delivery)
    }
}

/// Returns the row of a parked delivery: a copy of its delivery row, with the error. If the
/// delivery was rewound, the copy also records `run_before`, the token that its handler got as
/// [`Delivery::run_before`]. `until` is the end of the row's retention; `None` keeps the row
/// forever.
pub fn parked_copy(
    delivery_row: &Row,
    run_before: Option<FencingToken>,
    error: &str,
    now: Timestamp,
    until: Option<Timestamp>,
) -> Row {
    let mut row = delivery_row.clone();
    for name in [a::ENTITY, a::ITEM, a::PURGE_AT] {
        row.remove(name);
    }
    if let Some(token) = run_before {
        row.set(a::RUN_BEFORE, token.0);
    }
    if let Some(until) = until {
        row.set(a::PURGE_AT, until.as_secs_rounded_up());
    }
    row.with(a::ERROR, error).with(a::PARKED_AT, now.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::delivery_row;

    fn incoming(body: Vec<u8>) -> Incoming {
        Incoming {
            entity: EntityKey::parse("shop/order/1").unwrap(),
            identity: Identity {
                source: SourceName::parse("shop").unwrap(),
                delivery_id: DeliveryId::new("1"),
                redrive: 0,
            },
            provider: Some("shopify".into()),
            topic: "orders/create".into(),
            family: "orders".into(),
            event_time: Some(Timestamp::from_millis(5)),
            received_at: Timestamp::from_millis(9),
            content_type: Some("application/json".into()),
            body: body.into(),
        }
    }

    fn at(incoming: &Incoming, sequence: Sequence, envelope: &Envelope) -> Row {
        let key = delivery_row(&incoming.entity, sequence).to_row();
        key.into_iter().fold(envelope.row().clone(), |row, (name, value)| row.with(name, value))
    }

    fn stored_and_read(body: Vec<u8>) -> Delivery {
        let incoming = incoming(body);
        let nonce = Nonce::from_parts(Timestamp::from_millis(9), 3);
        let envelope = Envelope::pack(&incoming, &nonce, Timestamp::from_millis(1000));
        let row = at(&incoming, Sequence(7), &envelope);
        let parts: Vec<Row> = envelope
            .parts()
            .iter()
            .map(|part| crate::memory::evaluate(&part.write(), None).unwrap().unwrap())
            .rev()
            .collect();
        assert!(row.size() < 400 * 1024);
        match InboxItem::parse(&incoming.entity, &row).unwrap() {
            InboxItem::Delivery(unpacked) => unpacked.complete(&parts).unwrap(),
            InboxItem::Void(_) => panic!("a delivery was stored"),
        }
    }

    #[test]
    fn stored_body_is_read_unchanged() {
        let mut noise = vec![0; LARGEST_BODY];
        fastrand::Rng::with_seed(1).fill(&mut noise);
        for body in [vec![], vec![0], vec![b' '; LARGEST_BODY], noise.clone(), noise[..PART_BYTES + 1].to_vec()] {
            let delivery = stored_and_read(body.clone());
            assert!(delivery.body() == &body, "{} bytes", body.len());
            assert_eq!(delivery.sequence(), Sequence(7));
            assert_eq!(delivery.topic(), "orders/create");
            assert_eq!(delivery.provider(), Some("shopify"));
            assert_eq!(delivery.family(), "orders");
        }
    }

    #[test]
    fn body_with_missing_part_is_refused() {
        let mut noise = vec![0; PART_BYTES * 2];
        fastrand::Rng::with_seed(1).fill(&mut noise);
        let incoming = incoming(noise);
        let envelope =
            Envelope::pack(&incoming, &Nonce::from_parts(Timestamp::from_millis(9), 3), Timestamp::from_millis(1));
        let row = at(&incoming, Sequence(7), &envelope);
        let InboxItem::Delivery(unpacked) = InboxItem::parse(&incoming.entity, &row).unwrap() else { panic!() };
        assert_eq!(unpacked.complete(&[]).unwrap_err(), CorruptRow::Attribute(a::PARTS));
    }

    #[test]
    fn body_with_too_many_parts_is_refused_before_reading() {
        let incoming = incoming(Vec::new());
        let envelope =
            Envelope::pack(&incoming, &Nonce::from_parts(Timestamp::from_millis(9), 3), Timestamp::from_millis(1));
        let read = |count: u64| {
            let row = at(&incoming, Sequence(7), &envelope).with(a::PARTS, count);
            InboxItem::parse(&incoming.entity, &row).map(drop)
        };
        let most = 2 * LARGEST_BODY.div_ceil(PART_BYTES) as u64;
        assert_eq!((read(1), read(most)), (Ok(()), Ok(())));
        for count in [most + 1, 2 * most, u64::from(u32::MAX) + 1] {
            assert_eq!(read(count), Err(CorruptRow::Attribute(a::PARTS)), "{count}");
        }
    }

    #[test]
    fn absent_fields_are_not_stored_in_the_row() {
        let said = incoming(Vec::new());
        let silent =
            Incoming { provider: None, family: said.topic.clone(), event_time: None, content_type: None, ..said };
        let envelope =
            Envelope::pack(&silent, &Nonce::from_parts(Timestamp::from_millis(9), 3), Timestamp::from_millis(1));
        for name in [a::PROVIDER, a::FAMILY, a::EVENT_TIME, a::CONTENT_TYPE, a::REDRIVE, a::RUN_BEFORE, a::PARTS] {
            assert_eq!(envelope.row().get(name), None, "{name}");
        }
    }

    #[test]
    fn trace_is_stored_only_with_otel_feature() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let named = |trace: Option<&str>| {
            let incoming = incoming(Vec::new());
            let nonce = Nonce::from_parts(Timestamp::from_millis(9), 3);
            let envelope = Envelope::pack(&incoming, &nonce, Timestamp::from_millis(1)).traced(Trace::parse(trace));
            let row = at(&incoming, Sequence(7), &envelope);
            let InboxItem::Delivery(unpacked) = InboxItem::parse(&incoming.entity, &row).unwrap() else { panic!() };
            unpacked.complete(&[]).unwrap().traceparent()
        };
        assert_eq!(named(None), None);
        assert_eq!(named(Some(trace)).as_deref(), cfg!(feature = "otel").then_some(trace));
    }
}
