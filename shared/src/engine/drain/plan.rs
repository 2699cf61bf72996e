//! Decides what a drain that holds the lease does next. Uses neither I/O nor a clock.
//!
//! `driver.rs` carries out the steps, and reports their results to this module.

mod group;
mod retry;
mod spilling;
mod step;

pub use group::DeliveryGroup;
pub(crate) use group::GROUP_BYTES;
pub use retry::AnswerTiming;
pub use spilling::Spilling;
pub(super) use step::park;
pub use step::{EarlyEnd, Step, StepOutcome};

use std::{collections::BTreeSet, time::Duration};

use super::{
    MARGIN, UNREADABLE,
    page::{InboxPage, PageItem, WaitingDelivery},
};
use crate::{
    engine::queue::EndedWait,
    protocol::{
        attempt::{OnFailure, Retries},
        delivery::{Age, Delivery, NO_ENTITY},
        entity::{EntityKey, FencingToken, IdentityHash, Sequence},
        inbox::Decision,
        lease::yields_until,
        receipt::{PAGES, PagedReceipts, Receipt, Recent, Settlement, Spilled},
        state::{BlockReason, EntityState, EventTimes, VANISHED_BEFORE_START},
    },
    sources::{Source, SourceLookup, deliver::Stale},
    telemetry::RequeueReason,
    time::Timestamp,
};

/// The longest wait during which a drain keeps its place in the batch. Before a longer wait, it
/// hands over with a delayed wake-up, whose delay SQS takes in whole seconds.
pub(super) const SHORT_WAIT: Duration = Duration::from_secs(1);

/// The delay of a hand-over's wake-up if no wait sets it, and the row does not show the hand-over
/// yet. An undelayed wake-up would arrive before the lease has ended, and would only be requeued.
pub(super) const HANDOVER_DELAY: Duration = Duration::from_secs(1);

/// The delay of a hand-over's wake-up if an operator has paused the source of the delivery in
/// front: the longest delay that SQS supports.
const PAUSED: Duration = Duration::from_secs(900);

/// The time limit for recording a suspect's start.
pub(crate) const MARK_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct Drain {
    state: EntityState,
    page: InboxPage,
    memory: Memory,
    is_at_gap: bool,
    /// The places outside the entity's row where receipts were when the lease was granted. The drain
    /// reads the entity's pages of receipts once, and for each page of items the receipt rows with
    /// the deliveries' identities.
    granted: Spilled,
    /// The receipts in the entity's pages. `None` if they were not read.
    receipt_pages: Option<PagedReceipts>,
    /// The identities whose receipts this drain has dropped from the entity's row.
    dropped: BTreeSet<IdentityHash>,
    /// The sequences whose receipts are in the entity's row and elsewhere.
    copied: BTreeSet<Sequence>,
    /// The places outside the entity's row where this drain has found or written receipts.
    places: Spilled,
    /// The number of pages of receipts that this drain has written.
    pages_written: usize,
    ended_wait: Option<EndedWait>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Memory {
    /// The number of receipts that the entity's row can hold.
    pub capacity: usize,
    /// The most pages of receipts that the entity gets. Further receipts get separate rows.
    pub receipt_pages: usize,
    pub retention: Duration,
}

impl Memory {
    pub fn of(entity: &EntityKey, retention: Duration) -> Self {
        Self { capacity: Recent::capacity(entity), receipt_pages: PAGES, retention }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SettleRequest {
    /// The outcome. In a `latest` group only the last delivery gets this outcome, and the other
    /// deliveries are superseded.
    pub settlement: Settlement,
    pub group: DeliveryGroup,
    pub token: FencingToken,
    pub attempts: u32,
    pub took: Option<Duration>,
    pub at: Timestamp,
    /// The waits that the next delivery of the inbox inherits.
    pub carried: Retries,
}

/// The inbox's first item that is not settled yet.
#[derive(Debug)]
pub enum Front<'a> {
    Delivery(&'a WaitingDelivery),
    /// A delivery that gets this outcome without a handler start: a repeat, or a rewound delivery
    /// that was not applied before the rewind.
    Settled(Settlement),
    Tombstone,
    Unread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub now: Timestamp,
    /// The time that the function's invocation has left.
    pub left: Duration,
    /// Set if this drain is isolated: no other drain of its batch runs or will begin meanwhile.
    pub is_alone: bool,
    /// Set if the process may start no further handler.
    pub is_spent: bool,
    /// The longest wait for a retry or a rate limit during which the drain keeps the lease.
    pub patience: Duration,
    /// The delay of the wake-up after a slice: longer while other orders wait for a worker.
    pub pause: Duration,
}

impl Drain {
    pub fn granted(state: EntityState, memory: Memory) -> Self {
        Self {
            granted: state.spilled,
            state,
            page: InboxPage::default(),
            memory,
            is_at_gap: false,
            receipt_pages: None,
            dropped: BTreeSet::new(),
            copied: BTreeSet::new(),
            places: Spilled::default(),
            pages_written: 0,
            ended_wait: None,
        }
    }

    /// Sets the wait of the delivery in front that an operator has ended.
    ///
    /// The operator's attempt is an extra one: if it fails or a breaker refuses it, the delivery waits until its end,
    /// and its total wait does not grow.
    #[must_use]
    pub fn after_wait(self, ended_wait: Option<EndedWait>) -> Self {
        let is_ended = self.state.last_error.is_some() && self.state.retry_at.is_none();
        let ended_wait = ended_wait.filter(|ended| is_ended && ended.sequence == self.state.next());
        Self { ended_wait, ..self }
    }

    pub(super) fn ended_wait(&self) -> Option<EndedWait> {
        self.ended_wait
    }

    /// Returns whether an operator ended a wait of the delivery in front that would last longer than `now`.
    pub fn is_extra_attempt(&self, now: Timestamp) -> bool {
        !self.unspent_wait(now).is_zero()
    }

    pub fn state(&self) -> &EntityState {
        &self.state
    }

    /// Returns the delivery in front. Returns `None` if the item in front is a tombstone or was not
    /// read yet.
    pub fn front(&self) -> Option<&WaitingDelivery> {
        match self.page.items.front()? {
            PageItem::Delivery(waiting) => Some(waiting),
            PageItem::Tombstone(_) => None,
        }
    }

    pub fn front_item(&self) -> Front<'_> {
        match self.page.items.front() {
            None => Front::Unread,
            Some(PageItem::Tombstone(_)) => Front::Tombstone,
            Some(PageItem::Delivery(waiting)) => match self.settled_before(waiting.unpacked.head()) {
                Some(settlement) => Front::Settled(settlement),
                None => Front::Delivery(waiting),
            },
        }
    }

    /// Returns the drain's next step. `source` is the source of the delivery in front, or `None` if
    /// the drain has not looked it up yet.
    pub fn next(&self, moment: &Moment, source: Option<&SourceLookup>) -> Step {
        let state = &self.state;
        if state.is_empty() {
            return Step::ReleaseEmpty;
        }
        if state.is_stopped() {
            return Step::Release;
        }
        if state.suspect >= VANISHED_BEFORE_START {
            return Step::Block(BlockReason::Vanished);
        }
        let left = |until: Option<Timestamp>| until.map_or(Duration::ZERO, |until| until.since(moment.now));
        let yielding = left(yields_until(state, moment.now));
        let waiting = left(state.retry_at);
        if !yielding.is_zero() {
            return Step::HandOver(yielding, RequeueReason::Yielding);
        }
        if waiting > moment.patience || !waiting.is_zero() && moment.left < waiting + MARGIN {
            return Step::HandOver(waiting, RequeueReason::Retry);
        }
        if state.handover.is_some() {
            // The pause replaces `retry_at`, and must not end before the source's rate allows the next start.
            let pause = if moment.pause.is_zero() { Duration::ZERO } else { moment.pause.max(waiting) };
            return Step::HandOver(pause, RequeueReason::Slice);
        }
        if !waiting.is_zero() {
            return Step::Wait(waiting);
        }
        if moment.left < MARGIN {
            return Step::HandOver(HANDOVER_DELAY, RequeueReason::OutOfTime);
        }
        let front = self.page.items.front();
        if front.is_none() && !self.is_at_gap {
            return Step::ReadPage;
        }
        match front {
            None => Step::AwaitGap,
            Some(PageItem::Tombstone(_)) => Step::Settle(Settlement::Void),
            Some(PageItem::Delivery(waiting)) => self.deliver(waiting.unpacked.head(), moment, source),
        }
    }

    /// Returns whether the delivery is a repeat: its identity was settled at another sequence.
    ///
    /// The receipt of that other sequence is in the entity's row, was dropped from the row since
    /// the grant, or is elsewhere.
    fn is_repeat(&self, head: &Delivery) -> bool {
        let elsewhere = |receipt: &Receipt| receipt.sequence != head.sequence();
        head.repeated_hashes().any(|identity| {
            self.state.recent.holds(identity)
                || self.dropped.contains(&identity)
                || self.page.receipts.get(&identity).is_some_and(elsewhere)
        })
    }

    /// Returns the outcome of a delivery that must not start: a repeat, or a rewound delivery that
    /// was not applied before the rewind.
    fn settled_before(&self, head: &Delivery) -> Option<Settlement> {
        if self.is_repeat(head) {
            return Some(Settlement::Repeat);
        }
        let before = self.before(head)?.settlement;
        (before != Settlement::Applied).then_some(before)
    }

    /// Returns the receipt that the delivery got before a rewind, if the delivery was rewound.
    pub fn before(&self, head: &Delivery) -> Option<&Receipt> {
        self.page.receipts.get(&head.identity_hash()).filter(|receipt| receipt.sequence == head.sequence())
    }

    /// Returns the token that the delivery's handler gets as [`Delivery::run_before`]: the token in
    /// the receipt that the delivery had before a rewind. Returns `None` if the delivery was not
    /// rewound.
    ///
    /// A delivery that was rewound, parked and then redriven keeps the token.
    pub fn run_before(&self, head: &Delivery) -> Option<FencingToken> {
        self.before(head).map(|before| before.token).or_else(|| head.run_before())
    }

    fn deliver(&self, head: &Delivery, moment: &Moment, source: Option<&SourceLookup>) -> Step {
        let state = &self.state;
        if let Some(settlement) = self.settled_before(head) {
            return Step::Settle(settlement);
        }
        let before = self.before(head);
        let source = match source {
            None => return Step::FindSource,
            // Ingest may have read a newer version of the sources document, which this worker lacks.
            Some(SourceLookup::Unknown) => return Step::HandOver(UNREADABLE, RequeueReason::UnknownSource),
            Some(SourceLookup::Gone) => None,
            Some(SourceLookup::Source(source)) if source.is_paused => {
                return Step::HandOver(PAUSED, RequeueReason::Paused);
            }
            Some(SourceLookup::Source(source)) => Some(source),
        };
        let is_given_up = match source {
            // Too many holders have crashed with this delivery. Another start could crash this worker too.
            Some(source) => state.retries.crashes >= source.retry.most_crashes() && !state.has_attempts_of_latest(),
            None => state.attempts > 0,
        };
        if is_given_up {
            let on_failure = source.map_or(OnFailure::Park, |source| source.on_failure);
            return self.give_up(on_failure, state.attempts, state.last_error.clone().unwrap_or_default());
        }
        if head.entity() == &EntityKey::unrouted(head.source()) {
            return park(state.attempts, head.unrouted.as_deref().unwrap_or(NO_ENTITY).into());
        }
        let Some(source) = source else {
            return park(state.attempts, "the source is no longer in the sources document".into());
        };
        if before.is_none() && is_stale(head, &state.newest_event_time, source) {
            return Step::Settle(Settlement::Superseded);
        }
        if moment.left < source.handler_timeout + MARGIN {
            return Step::HandOver(HANDOVER_DELAY, RequeueReason::OutOfTime);
        }
        if state.is_suspect() {
            if !moment.is_alone {
                return Step::AwaitIsolation { attempts: state.attempts + state.suspect };
            }
            if moment.left < source.handler_timeout + MARK_TIMEOUT + MARGIN {
                return Step::HandOver(HANDOVER_DELAY, RequeueReason::OutOfTime);
            }
        }
        if moment.is_spent {
            return Step::HandOver(HANDOVER_DELAY, RequeueReason::NoThread);
        }
        Step::Start { must_record: state.is_suspect(), group: self.group(head, source) }
    }

    /// Returns the step for the next sequence, which was not filled in time.
    ///
    /// If TTL may have deleted a delivery there, the entity is blocked, so that an operator
    /// decides. Otherwise the sequence gets a tombstone.
    pub fn after_gap(&self, now: Timestamp, retention: Duration) -> Step {
        if self.state.pending_since.is_some_and(|since| now.since(since) > retention / 2) {
            return Step::Block(BlockReason::Expired);
        }
        Step::WriteTombstone(self.state.next())
    }

    /// Returns the decision that settles the group in front. If no delivery is in front, the
    /// decision settles the next sequence.
    ///
    /// `seen_at` is the time of the last read of the row. `not_before` is the earliest time at
    /// which the entity's next handler may start.
    pub fn decision(&self, request: SettleRequest, seen_at: Timestamp, not_before: Option<Timestamp>) -> Decision {
        let first = self.front().map_or(self.state.next(), |waiting| waiting.unpacked.head().sequence());
        let mut recent = self.state.recent.clone();
        let mut times = self.state.newest_event_time.clone();
        let mut newest = None;
        for (at, settlement) in request.group.settlements(request.settlement).enumerate() {
            let head = self.page.items.get(at).and_then(PageItem::delivery);
            let is_applied = settlement == Settlement::Applied;
            if let Some((family, time)) = head.and_then(|head| Some((head.family(), head.event_time()?)))
                && is_applied
            {
                times = times.applied(family, time);
            }
            // The handler did not get the superseded deliveries of a group.
            let is_started = settlement == request.settlement;
            let attempts = if is_started { request.attempts } else { 0 };
            // A rewound delivery that is settled again without a start keeps its attempts.
            let before = head.and_then(|head| self.before(head)).filter(|before| before.settlement == settlement);
            let attempts = before.filter(|_| attempts == 0).map_or(attempts, |before| before.attempts);
            let receipt = Receipt {
                sequence: Sequence(first.0 + at as u64),
                identity: head.map(Delivery::identity_hash),
                settlement,
                token: request.token,
                attempts,
                settled_at: request.at,
                took: request.took.filter(|_| is_started),
            };
            recent = recent.with(receipt, self.memory.retention);
            newest = head;
        }
        let last = Sequence(first.0 + request.group.size as u64 - 1);
        Decision {
            first,
            dropped: recent.drop_beyond(self.memory.capacity),
            spilled: self.everywhere(),
            recent,
            newest_event_time: times,
            pending_since: newest.map(|newest| match self.page.items.get(request.group.size) {
                Some(PageItem::Delivery(next)) => next.unpacked.head().appended_at(),
                // No delivery was claimed when the row was read, so the next claim is later.
                _ if self.state.tail == last => seen_at,
                _ => newest.appended_at(),
            }),
            not_before,
            ends_one_by_one: self.state.one_by_one.is_some_and(|until| until <= last),
            carried: request.carried,
        }
    }

    pub fn hands_over(&self, sequence: Sequence, slice_is_over: bool) -> bool {
        slice_is_over && !self.is_last(sequence)
    }

    pub fn is_last(&self, sequence: Sequence) -> bool {
        self.state.tail == sequence
    }

    /// Returns the range of sequences to read ahead, so that the next group can be full. Returns
    /// `None` if enough deliveries are read already, or none is left to read.
    ///
    /// The first `in_front` deliveries do not count, because they are being handled or settled.
    pub fn ahead(&self, in_front: usize, source: Option<&SourceLookup>) -> Option<(Sequence, Sequence)> {
        let most = match source {
            Some(SourceLookup::Source(source)) => source.deliver.most(),
            _ => 1,
        };
        let read = self.page.items.len();
        let from = Sequence(self.state.next().0 + read as u64);
        let to = self.state.tail;
        (read < in_front + most && from <= to).then_some((from, to))
    }

    pub(super) fn behind(&self) -> Option<Timestamp> {
        self.page.behind
    }

    pub fn seen(&mut self, state: EntityState) {
        self.state = state;
    }

    pub fn read_at(&self, sequence: Sequence) -> Option<&Delivery> {
        self.page.items.iter().filter_map(PageItem::delivery).find(|delivery| delivery.sequence() == sequence)
    }

    /// Replaces the items read so far by a page that begins at the next sequence.
    pub fn read(&mut self, page: InboxPage) {
        self.is_at_gap = page.items.is_empty();
        self.page = self.known(page);
    }

    pub fn read_ahead(&mut self, page: InboxPage) {
        let page = self.known(page);
        self.page.extend(page);
    }

    pub fn filled(&mut self) {
        self.page = InboxPage::default();
        self.is_at_gap = false;
    }

    pub fn tombstone_written(&mut self) {
        self.page.items.push_front(PageItem::Tombstone(self.state.next()));
        self.is_at_gap = false;
    }

    pub fn settled(&mut self, state: EntityState, decision: &Decision) {
        self.state = state;
        self.ended_wait = None;
        self.page.items.drain(..decision.places().min(self.page.items.len()));
        for receipt in &decision.dropped {
            self.copied.remove(&receipt.sequence);
            self.dropped.extend(receipt.spills());
        }
    }
}

/// Returns whether the source's configuration leaves `delivery` out, because a delivery of the same
/// topic family with a later event time was applied. Redriven deliveries are never left out.
fn is_stale(delivery: &Delivery, applied: &EventTimes, source: &Source) -> bool {
    source.stale == Stale::Skip && delivery.redrive() == 0 && delivery.age_beside(applied) == Age::Older
}

#[cfg(test)]
mod tests;
