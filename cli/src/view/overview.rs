//! Collects the orders that are not settled and the parked deliveries, and groups both by source and error.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use webhook_serializer::{
    alerts::alike,
    operator::Parked,
    protocol::{
        entity::{DeliveryId, EntityKey, Sequence, SourceName},
        format::attribute as a,
        keys::{is_parked, sequence_of},
        receipt::Recent,
        state::EntityState,
        table::Row,
    },
    time::{Nonce, Timestamp},
};

use crate::view::{
    order_status::{Kind, OrderStatus, ParkedDeliveries},
    throughput::Throughput,
};

#[derive(Debug, Clone)]
pub struct OrderSummary {
    /// The order's row, without its recent receipts.
    pub state: EntityState,
    pub kind: Kind,
    /// The source of the order's next delivery, if it was read.
    pub source: Option<SourceName>,
    pub topic: Option<String>,
    /// The order's waiting deliveries that were read, by source.
    pub waiting: BTreeMap<SourceName, Backlog>,
    /// The newest time in the order's row.
    pub active_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    pub deliveries: u64,
    /// The time at which the oldest of them arrived.
    pub oldest: Option<Timestamp>,
}

impl OrderSummary {
    /// Returns the time since which deliveries wait; if none wait, the time since which the order is on hold.
    pub fn since(&self) -> Option<Timestamp> {
        self.state.pending_since.or(self.state.hold.since())
    }

    /// Returns the sequence of the order's next delivery, if a delivery waits.
    pub fn next(&self) -> Option<Sequence> {
        (!self.state.is_empty()).then(|| self.state.next())
    }

    pub fn error(&self) -> Option<&str> {
        self.state.last_error.as_deref()
    }

    /// A blocked order may also be on hold. Its kind is then [`Kind::Blocked`].
    pub fn is_on_hold(&self) -> bool {
        self.state.hold.since().is_some()
    }

    pub fn status(&self, parked: Option<ParkedDeliveries<'_>>, now: Timestamp) -> OrderStatus {
        OrderStatus::of(Some(&self.state), self.topic.as_deref(), parked, now)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedDelivery {
    pub entity: EntityKey,
    pub sequence: Sequence,
    pub source: SourceName,
    pub topic: String,
    pub delivery_id: DeliveryId,
    pub redrive: u32,
    pub received_at: Timestamp,
    pub event_time: Option<Timestamp>,
    pub since: Option<Timestamp>,
    pub kept_until: Option<Timestamp>,
    pub error: String,
}

impl From<&Parked> for ParkedDelivery {
    fn from(parked: &Parked) -> Self {
        let delivery = parked.delivery();
        Self {
            entity: delivery.entity().clone(),
            sequence: parked.sequence,
            source: delivery.source().clone(),
            topic: delivery.topic().to_owned(),
            delivery_id: delivery.delivery_id().clone(),
            redrive: delivery.redrive(),
            received_at: delivery.received_at(),
            event_time: delivery.event_time(),
            since: parked.parked_at,
            kept_until: parked.kept_until,
            error: parked.error.clone(),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct OrderFilter {
    pub source: Option<SourceName>,
    /// A part of the error's text. The filter compares texts after [`alike`] has removed their ids.
    pub error: Option<String>,
    /// The filter takes orders and deliveries that stopped or began to wait at this time or later.
    pub since: Option<Timestamp>,
}

impl OrderFilter {
    pub fn takes(&self, source: Option<&SourceName>, error: Option<&str>, since: Option<Timestamp>) -> bool {
        self.source.as_ref().is_none_or(|wanted| source == Some(wanted)) && self.takes_but_source(error, since)
    }

    /// Returns whether the filter matches, apart from its condition on the source, because the source may not be known
    /// yet.
    pub fn takes_but_source(&self, error: Option<&str>, since: Option<Timestamp>) -> bool {
        let has_error = |wanted: &String| error.is_some_and(|error| alike(error).contains(&alike(wanted)));
        self.error.as_ref().is_none_or(has_error)
            && self.since.is_none_or(|wanted| since.is_some_and(|since| since >= wanted))
    }
}

#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// The number of orders that have a row, settled orders included.
    pub orders: u64,
    pub lanes: Vec<OrderSummary>,
    pub parked: Vec<ParkedDelivery>,
    /// The keys of the rows that cannot be read, each with the reason.
    pub unreadable: Vec<(String, String)>,
    /// The number of rows of each format version.
    pub formats: BTreeMap<u64, u64>,
    pub pace: Throughput,
    /// The number of settled orders that get a lane too: the newest.
    pub keeps_settled: usize,
    /// True once the parked deliveries are known from their index, so that their rows are not counted again.
    pub knows_parked: bool,
    places: BTreeMap<String, usize>,
    /// The number of settled orders that have a lane.
    settled: usize,
}

/// The number of settled orders beyond [`Overview::keeps_settled`] that may have a lane until their lanes are dropped
/// together.
const SPARE_LANES: usize = 1_000;

/// Returns whether nothing of the order waits. A valid lease on an empty order is normal; an expired one is not.
fn is_settled(kind: Kind, state: &EntityState) -> bool {
    kind == Kind::Idle || (state.is_empty() && !matches!(kind, Kind::Abandoned | Kind::OnHold))
}

#[derive(Debug, Clone)]
pub struct StatusGroup {
    pub kind: Kind,
    pub source: Option<SourceName>,
    pub error: Option<String>,
    pub orders: u64,
    /// The number of the deliveries that are parked or wait in these orders, whatever their source.
    pub deliveries: u64,
    /// The waiting deliveries among them that were read and come from other sources.
    pub others: BTreeMap<SourceName, u64>,
    pub oldest: Option<Timestamp>,
    /// The order whose deliveries wait longest, with the next of them or the oldest parked one. An order may be on hold, or
    /// have a dead holder's lease, without a delivery.
    pub example: (EntityKey, Option<Sequence>),
}

impl StatusGroup {
    /// Returns the numbers of the other sources' deliveries in brackets, or an empty text.
    pub fn of_others(&self) -> String {
        let others: Vec<String> = self.others.iter().map(|(source, count)| format!("{count} of {source}")).collect();
        if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) }
    }
}

/// Returns the time of the order's newest event: an arrival, a settlement, or a hold.
pub fn active_at(state: &EntityState) -> Option<Timestamp> {
    let settled_at = state.recent.iter().map(|receipt| receipt.settled_at).max();
    let arrived_at = state.last_claim.as_ref().and_then(Nonce::drawn_at);
    [settled_at, arrived_at, state.pending_since, state.hold.since()].into_iter().flatten().max()
}

impl Overview {
    /// Adds a row of the orders' table that a scan has met.
    pub fn order(&mut self, row: &Row, now: Timestamp) {
        self.format(row);
        let Some(state) = self.state(row) else { return };
        self.orders += 1;
        self.pace.order(&state);
        self.add_lane(state, now);
    }

    /// Adds an order's row that was found without a scan. The scan that meets the order later counts it, and adds no
    /// second lane.
    pub fn found(&mut self, row: &Row, now: Timestamp) {
        if let Some(state) = self.state(row) {
            self.add_lane(state, now);
        }
    }

    fn state(&mut self, row: &Row) -> Option<EntityState> {
        match EntityState::parse(row) {
            // Jobs have rows of the same form, without deliveries.
            Ok(state) => Some(state).filter(|state| !state.entity.is_kept_forever()),
            Err(error) => {
                self.cannot_read(row, &error);
                None
            }
        }
    }

    fn add_lane(&mut self, state: EntityState, now: Timestamp) {
        let kind = Kind::of(&state, now);
        let is_settled = is_settled(kind, &state);
        if (is_settled && self.keeps_settled == 0) || self.places.contains_key(state.entity.as_str()) {
            return;
        }
        let active_at = active_at(&state);
        self.places.insert(state.entity.to_string(), self.lanes.len());
        let state = EntityState { recent: Recent::default(), ..state };
        self.lanes.push(OrderSummary { state, kind, source: None, topic: None, waiting: BTreeMap::new(), active_at });
        if is_settled {
            self.settled += 1;
            // Dropping takes time in proportion to all lanes.
            let spare = SPARE_LANES.max(self.lanes.len() - self.settled);
            if self.settled > self.keeps_settled.saturating_add(spare) {
                self.drop_older_settled();
            }
        }
    }

    /// Drops the lanes of settled orders, except the newest and those with known parked deliveries.
    fn drop_older_settled(&mut self) {
        let parked: BTreeSet<&EntityKey> = self.parked.iter().map(|one| &one.entity).collect();
        let (mut settled, mut lanes): (Vec<_>, Vec<_>) = self
            .lanes
            .drain(..)
            .partition(|lane| is_settled(lane.kind, &lane.state) && !parked.contains(&lane.state.entity));
        settled.sort_by_key(|lane| Reverse(lane.active_at));
        settled.truncate(self.keeps_settled);
        self.settled = settled.len();
        lanes.append(&mut settled);
        self.places = lanes.iter().map(|lane| lane.state.entity.to_string()).zip(0..).collect();
        self.lanes = lanes;
    }

    /// Adds a parked delivery's row, or what the index holds of it.
    pub fn parked(&mut self, row: &Row) {
        match Parked::of(row) {
            Ok(Some(parked)) => self.parked.push(ParkedDelivery::from(&parked)),
            Ok(None) => {}
            Err(error) => self.cannot_read(row, &error),
        }
    }

    /// Forgets the parked deliveries, which a reading of all deliveries finds again.
    pub fn forget_parked(&mut self) {
        self.parked.clear();
        self.knows_parked = false;
    }

    /// Forgets the waiting deliveries by source. Without all rows of the deliveries' table, their numbers are wrong.
    pub fn forget_waiting(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.waiting.clear());
    }

    /// Adds a row of the deliveries' table. All rows of the orders' table must be added first.
    pub fn delivery(&mut self, row: &Row) {
        self.format(row);
        self.pace.delivery(row);
        if is_parked(row) {
            if !self.knows_parked {
                self.parked(row);
            }
            return;
        }
        let (Some(entity), Some(sequence)) = (row.text(a::ENTITY), sequence_of(row)) else { return };
        let source = row.text(a::SOURCE).and_then(|source| SourceName::parse(source).ok());
        let Some(source) = source else { return };
        self.is_next(entity, sequence, source.clone(), row.text(a::TOPIC).unwrap_or_default());
        if let Some(lane) = self.lane(entity).filter(|lane| lane.state.head < sequence && sequence <= lane.state.tail) {
            let waiting = lane.waiting.entry(source).or_default();
            let at = row.number(a::RECEIVED_AT).map(Timestamp::from_millis);
            waiting.deliveries += 1;
            waiting.oldest = waiting.oldest.into_iter().chain(at).min();
        }
    }

    fn lane(&mut self, entity: &str) -> Option<&mut OrderSummary> {
        self.lanes.get_mut(*self.places.get(entity)?)
    }

    /// Counts the row's format version. Rows for parts of bodies and for the scheduler have no version.
    fn format(&mut self, row: &Row) {
        if let Some(format) = row.number(a::VERSION) {
            *self.formats.entry(format).or_default() += 1;
        }
    }

    pub fn is_next(&mut self, entity: &str, sequence: Sequence, source: SourceName, topic: &str) {
        if let Some(lane) = self.lane(entity).filter(|lane| lane.state.next() == sequence) {
            lane.source = Some(source);
            lane.topic = Some(topic.to_owned());
        }
    }

    fn cannot_read(&mut self, row: &Row, error: &impl ToString) {
        let unreadable = (row.text(a::ENTITY).unwrap_or_default().to_owned(), error.to_string());
        // A row that was found without a scan is met again.
        if !self.unreadable.contains(&unreadable) {
            self.unreadable.push(unreadable);
        }
    }

    pub fn unknown(&self, lane: impl Fn(&OrderSummary) -> bool) -> Vec<(EntityKey, Sequence)> {
        let unknown = self.lanes.iter().filter(|one| one.source.is_none() && !one.state.is_empty() && lane(one));
        unknown.map(|lane| (lane.state.entity.clone(), lane.state.next())).collect()
    }

    pub fn count(&self, kind: Kind) -> usize {
        self.lanes.iter().filter(|lane| lane.kind == kind).count()
    }

    /// Returns the orders and parked deliveries, grouped by kind, source and error. The most urgent kind comes first,
    /// and within a kind the group with the most deliveries.
    pub fn groups(&self) -> Vec<StatusGroup> {
        let mut groups = OrderGroups::default();
        for lane in &self.lanes {
            let entity = &lane.state.entity;
            let next = lane.next();
            let group = groups.of(lane.kind, lane.source.as_ref(), lane.error(), (entity, next));
            group.add(entity, next, lane.state.waiting(), lane.since());
            for (source, waiting) in lane.waiting.iter().filter(|(source, _)| Some(*source) != lane.source.as_ref()) {
                *group.group.others.entry(source.clone()).or_default() += waiting.deliveries;
            }
        }
        for one in &self.parked {
            let at = (&one.entity, Some(one.sequence));
            let group = groups.of(Kind::Parked, Some(&one.source), Some(&one.error), at);
            group.add(&one.entity, Some(one.sequence), 1, one.since);
        }
        let mut groups: Vec<StatusGroup> = groups.0.into_values().map(|gathered| gathered.group).collect();
        groups.sort_by_key(|group| (group.kind, std::cmp::Reverse(group.deliveries)));
        groups
    }
}

type Alike = (Kind, Option<SourceName>, Option<String>);

struct OrderGroup<'a> {
    group: StatusGroup,
    orders: BTreeSet<&'a EntityKey>,
}

#[derive(Default)]
struct OrderGroups<'a>(BTreeMap<Alike, OrderGroup<'a>>);

impl<'a> OrderGroups<'a> {
    fn of(
        &mut self,
        kind: Kind,
        source: Option<&SourceName>,
        error: Option<&str>,
        at: (&EntityKey, Option<Sequence>),
    ) -> &mut OrderGroup<'a> {
        let alike = (kind, source.cloned(), error.map(alike));
        self.0.entry(alike).or_insert_with_key(|(_, source, error)| OrderGroup {
            group: StatusGroup {
                kind,
                source: source.clone(),
                error: error.clone(),
                orders: 0,
                deliveries: 0,
                others: BTreeMap::new(),
                oldest: None,
                example: (at.0.clone(), at.1),
            },
            orders: BTreeSet::new(),
        })
    }
}

impl<'a> OrderGroup<'a> {
    fn add(&mut self, entity: &'a EntityKey, sequence: Option<Sequence>, deliveries: u64, since: Option<Timestamp>) {
        self.orders.insert(entity);
        let group = &mut self.group;
        group.orders = self.orders.len() as u64;
        group.deliveries += deliveries;
        if since.is_some_and(|since| group.oldest.is_none_or(|oldest| since < oldest)) {
            group.oldest = since;
            group.example = (entity.clone(), sequence);
        }
    }
}

#[cfg(test)]
mod tests;
