//! What a drain that has the lease does next, decided from what it knows: no
//! I/O, no clock of its own. `driver.rs` does it and tells what came of it.

mod retry;

pub use retry::Answered;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    MARGIN, UNREADABLE,
    page::{Page, Place, Waiting},
};
use crate::{
    protocol::{
        attempt::{OnFailure, Retries},
        delivery::{Age, Delivery},
        entity::{EntityKey, FencingToken, IdentityHash, Sequence},
        inbox::Decision,
        lease::yields_until,
        receipt::{Receipt, Settlement},
        state::{BlockReason, EntityState, EventTimes, VANISHED_BEFORE_START},
        table::Write,
    },
    sources::{
        Found, Source,
        deliver::{Deliver, Stale},
    },
    telemetry::RequeueReason,
    time::Timestamp,
};

/// A wait this short is waited out, rather than by a message's round trip.
pub(super) const SHORT: Duration = Duration::from_secs(1);

/// A wake-up that comes before its lease has ended would be put off by what is
/// left of that.
pub(super) const HANDED_OVER: Duration = Duration::from_secs(1);

/// How long the deliveries of a source that is paused are left alone, unless
/// somebody wakes a worker: the longest that a queue delays a message.
const PAUSED: Duration = Duration::from_secs(900);

/// The most bytes of bodies in a group of several: a function that they are handed
/// on to takes 6 MB, and in JSON a text grows by its quotes, base64 by a third.
/// Small beside a worker's memory.
const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// A start is written down within this time, or goes ahead without.
pub(crate) const MARKING: Duration = Duration::from_secs(2);

/// What a drain knows of its entity.
#[derive(Debug, Clone)]
pub struct Drain {
    state: EntityState,
    page: Page,
    memory: Memory,
    /// The next place was read, and nothing stood there.
    is_at_gap: bool,
    /// Whether receipts had left the row when the lease was granted: only then are
    /// any to be read. What leaves it later, leaves it by this drain.
    has_spilled: bool,
    /// What has left the row since.
    dropped: BTreeSet<IdentityHash>,
    /// Places whose receipt has a row of its own already, written by this drain.
    spilled: BTreeSet<Sequence>,
}

/// How much an entity's row remembers, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Memory {
    /// How many receipts the row holds.
    pub capacity: usize,
    /// How long a delivery is remembered once it is settled.
    pub retention: Duration,
}

/// How the place in front ended, and those of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ending {
    /// How it is settled.
    pub settlement: Settlement,
    /// Of which places.
    pub group: Group,
    /// Under which token.
    pub token: FencingToken,
    /// After how many attempts.
    pub attempts: u32,
    /// How long the handler ran, where it did.
    pub took: Option<Duration>,
    /// When.
    pub at: Timestamp,
    /// What the next delivery begins with.
    pub carried: Retries,
}

/// The places that one start of a handler is about: that in front, and some
/// behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    /// How many.
    pub places: usize,
    /// Whether the handler gets only the last of them, which stands for all.
    pub is_latest: bool,
}

impl Group {
    /// The place in front, by itself.
    pub const ONE: Self = Self { places: 1, is_latest: false };

    /// Whether there is more than one place.
    pub fn is_several(self) -> bool {
        self.places > 1
    }

    /// How each of its places is settled, if the last is settled so.
    fn settlements(self, last: Settlement) -> impl Iterator<Item = Settlement> {
        let others = if self.is_latest { Settlement::Superseded } else { last };
        std::iter::repeat_n(others, self.places - 1).chain([last])
    }
}

/// What stands at a place.
#[derive(Debug)]
pub enum InFront<'a> {
    /// A delivery that is to be run.
    Delivery(&'a Waiting),
    /// One that was: it is settled so again, and nobody runs it.
    Settled(Settlement),
    /// A marker: claimed, and never filled.
    Void,
    /// Nothing, as far as was read.
    Nothing,
}

/// What the process knows besides: its clocks, and how it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// How much is left of the function's own time.
    pub left: Duration,
    /// Whether no other drain of the batch is at work, and none begins.
    pub is_alone: bool,
    /// Whether there are no more threads for handlers.
    pub is_spent: bool,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// End the lease: nothing waits.
    ReleaseEmpty,
    /// End the lease: nothing may be done here.
    Release,
    /// Stop the entity at the next place.
    Block(BlockReason),
    /// Send a wake-up, then end the lease.
    HandOver(Duration, RequeueReason),
    /// Wait, then ask again.
    Wait(Duration),
    /// Read on.
    ReadPage,
    /// Wait for the next place to be filled.
    AwaitGap,
    /// Give the next place up.
    Void(Sequence),
    /// Find out what is configured for the delivery's source.
    FindSource,
    /// Wait until no other drain of the batch is at work; so often it was
    /// charged.
    BeAlone(u32),
    /// Start the handler.
    Start {
        /// Whether that is written down first: a holder vanished with this
        /// delivery.
        is_written: bool,
        /// What it is about.
        group: Group,
    },
    /// Settle what was decided before, or needs no decision.
    Settle(Settlement),
    /// Settle as applied.
    Apply,
    /// Settle as applied, these writes along with it.
    Commit(Vec<Write>),
    /// Set the delivery aside, and settle it so.
    SetAside {
        /// After how many attempts.
        attempts: u32,
        /// Why.
        error: String,
        /// What the next delivery begins with.
        carried: Retries,
    },
    /// Send a wake-up for then, record the wait, and end the lease.
    Retry {
        /// Whether the handler was started; else a breaker refused that.
        is_started: bool,
        /// How many attempts have failed.
        attempts: u32,
        /// How long it will have waited for its retries.
        retries: Retries,
        /// Up to which place each is handled by itself from now on; `head`: the
        /// attempts are those of the latest.
        one_by_one: Option<Sequence>,
        /// When to try again.
        wait: Duration,
        /// What went wrong.
        error: String,
    },
    /// Count the attempt, and stop the entity.
    GiveUp(u32, Retries, String),
}

impl Step {
    /// What becomes of what ran, where that is what is done next.
    pub fn outcome(&self) -> Option<&'static str> {
        match self {
            Self::Settle(settlement) => Some(settlement.as_str()),
            Self::Apply | Self::Commit(_) => Some(Settlement::Applied.as_str()),
            Self::SetAside { .. } => Some(Settlement::Parked.as_str()),
            Self::Retry { is_started, .. } => is_started.then_some("retry"),
            Self::GiveUp(..) => Some("blocked"),
            _ => None,
        }
    }
}

/// Deliveries that were decided, with what their run added.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Those that the handler got, the oldest first.
    pub deliveries: Vec<Arc<Delivery>>,
    /// The places that it was about.
    pub group: Group,
    /// How long the handler ran, where it did.
    pub took: Option<Duration>,
}

impl Drain {
    /// One that was granted the lease on `state`.
    pub fn granted(state: EntityState, memory: Memory) -> Self {
        let has_spilled = state.spilled;
        let (dropped, spilled) = (BTreeSet::new(), BTreeSet::new());
        Self { state, page: Page::default(), memory, is_at_gap: false, has_spilled, dropped, spilled }
    }

    /// The entity's row, as it was last seen.
    pub fn state(&self) -> &EntityState {
        &self.state
    }

    /// The delivery to be decided next, where it has been read.
    pub fn front(&self) -> Option<&Waiting> {
        match self.page.places.front()? {
            Place::Delivery(waiting) => Some(waiting),
            Place::Void(_) => None,
        }
    }

    /// What stands at the place to be decided next, as far as that was read.
    pub fn in_front(&self) -> InFront<'_> {
        match self.page.places.front() {
            None => InFront::Nothing,
            Some(Place::Void(_)) => InFront::Void,
            Some(Place::Delivery(one)) => match self.settled_before(one.unpacked.head()) {
                Some(settlement) => InFront::Settled(settlement),
                None => InFront::Delivery(one),
            },
        }
    }

    /// What to do next. `source` is what is known of the source of the delivery
    /// in front.
    pub fn next(&self, moment: &Moment, source: Option<&Found>) -> Step {
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
        let (yielding, waiting) = (left(yields_until(state, moment.now)), left(state.retry_at));
        if !yielding.is_zero() {
            return Step::HandOver(yielding, RequeueReason::Yielding);
        }
        if waiting > SHORT || !waiting.is_zero() && moment.left < waiting + MARGIN {
            return Step::HandOver(waiting, RequeueReason::Retry);
        }
        if state.handover.is_some() {
            return Step::HandOver(Duration::ZERO, RequeueReason::Slice);
        }
        if !waiting.is_zero() {
            return Step::Wait(waiting);
        }
        if moment.left < MARGIN {
            return Step::HandOver(HANDED_OVER, RequeueReason::OutOfTime);
        }
        let front = self.page.places.front();
        if front.is_none() && !self.is_at_gap {
            return Step::ReadPage;
        }
        match front {
            None => Step::AwaitGap,
            Some(Place::Void(_)) => Step::Settle(Settlement::Void),
            Some(Place::Delivery(waiting)) => self.deliver(waiting.unpacked.head(), moment, source),
        }
    }

    /// Whether this delivery was settled at another place: the row remembers it, or
    /// has forgotten it since the grant, or it has a receipt.
    fn is_repeat(&self, head: &Delivery) -> bool {
        let elsewhere = |receipt: &Receipt| receipt.sequence != head.sequence();
        head.repeated_hashes().any(|identity| {
            self.state.recent.holds(identity)
                || self.dropped.contains(&identity)
                || self.page.receipts.get(&identity).is_some_and(elsewhere)
        })
    }

    /// How it is settled without being run: as a repeat; or as it was before, where
    /// that was not applied.
    fn settled_before(&self, head: &Delivery) -> Option<Settlement> {
        if self.is_repeat(head) {
            return Some(Settlement::Repeat);
        }
        let before = self.before(head)?.settlement;
        (before != Settlement::Applied).then_some(before)
    }

    /// What became of this delivery at this very place, before a person had the
    /// entity run again from there or further back.
    pub fn before(&self, head: &Delivery) -> Option<&Receipt> {
        self.page.receipts.get(&head.identity_hash()).filter(|receipt| receipt.sequence == head.sequence())
    }

    /// The token under which it was applied before a person had it run again: here,
    /// or where it was parked then.
    pub fn run_before(&self, head: &Delivery) -> Option<FencingToken> {
        self.before(head).map(|before| before.token).or_else(|| head.run_before())
    }

    fn deliver(&self, head: &Delivery, moment: &Moment, source: Option<&Found>) -> Step {
        let state = &self.state;
        if let Some(settlement) = self.settled_before(head) {
            return Step::Settle(settlement);
        }
        let before = self.before(head);
        let source = match source {
            None => return Step::FindSource,
            // Ingest may have learned of it before this instance did.
            Some(Found::Unknown) => return Step::HandOver(UNREADABLE, RequeueReason::UnknownSource),
            Some(Found::Gone) => None,
            Some(Found::Source(source)) if source.is_paused => return Step::HandOver(PAUSED, RequeueReason::Paused),
            Some(Found::Source(source)) => Some(source),
        };
        let is_given_up = match source {
            // Its holders vanished: running it once more could take this worker too.
            Some(source) => state.retries.crashes >= source.retry.most_crashes() && !state.has_attempts_of_latest(),
            None => state.attempts > 0,
        };
        if is_given_up {
            let on_failure = source.map_or(OnFailure::Park, |source| source.on_failure);
            return self.give_up(on_failure, state.attempts, state.last_error.clone().unwrap_or_default());
        }
        if head.entity() == &EntityKey::unrouted(head.source()) {
            return set_aside(state.attempts, "its entity could not be found".into());
        }
        let Some(source) = source else {
            return set_aside(state.attempts, "its source is not configured any more".into());
        };
        if before.is_none() && is_stale(head, &state.newest_event_time, source) {
            return Step::Settle(Settlement::Superseded);
        }
        if moment.left < source.handler_timeout + MARGIN {
            return Step::HandOver(HANDED_OVER, RequeueReason::OutOfTime);
        }
        if state.is_suspect() {
            if !moment.is_alone {
                return Step::BeAlone(state.attempts + state.suspect);
            }
            if moment.left < source.handler_timeout + MARKING + MARGIN {
                return Step::HandOver(HANDED_OVER, RequeueReason::OutOfTime);
            }
        }
        if moment.is_spent {
            return Step::HandOver(HANDED_OVER, RequeueReason::NoThread);
        }
        Step::Start { is_written: state.is_suspect(), group: self.group(head, source) }
    }

    /// What a start of the delivery in front is about: it, and what follows it
    /// without a hole and can be settled with it.
    fn group(&self, front: &Delivery, source: &Source) -> Group {
        let is_latest = source.deliver == Deliver::Latest;
        // An attempt at a group is no attempt at each of it, unless one stands for all.
        let is_alone =
            self.state.is_one_by_one() || self.before(front).is_some() || self.state.attempts > 0 && !is_latest;
        let most = if is_alone { 1 } else { source.deliver.most().min(self.memory.capacity) };
        let mut identities = BTreeSet::new();
        let mut times = self.state.newest_event_time.clone();
        let mut newest = None;
        let mut bytes = 0_usize;
        let fits = |place: &&Place| {
            let Place::Delivery(waiting) = place else { return false };
            let head = waiting.unpacked.head();
            bytes = bytes.saturating_add(waiting.unpacked.body_bytes());
            let is_due = head.source() == front.source()
                && (!is_latest
                    || identities.is_empty()
                    || head.family() == front.family() && may_stand_for(head, newest))
                && !self.is_repeat(head)
                && self.before(head).is_none()
                && !is_stale(head, &times, source)
                && !head.repeated_hashes().any(|identity| identities.contains(&identity));
            identities.insert(head.identity_hash());
            newest = newest.max(head.event_time());
            if let Some(time) = head.event_time() {
                times = times.applied(head.family(), time);
            }
            is_due && bytes <= GROUP_BYTES
        };
        let places = self.page.places.iter().take(most).take_while(fits).count();
        // That in front is due, however large.
        Group { places: places.max(1), is_latest }
    }

    /// Those of a group that its handler gets, the oldest first, as they were
    /// read.
    pub fn members(&self, group: Group) -> impl Iterator<Item = &Waiting> {
        let skipped = if group.is_latest { group.places - 1 } else { 0 };
        let places = self.page.places.iter().take(group.places).skip(skipped);
        places.filter_map(|place| match place {
            Place::Delivery(waiting) => Some(&**waiting),
            Place::Void(_) => None,
        })
    }

    /// How often what `group` is about has failed. Attempts at the latest are none
    /// at the one in front, should that be handled by itself after all.
    pub fn tried(&self, group: Group) -> u32 {
        if self.state.has_attempts_of_latest() && !group.is_several() { 0 } else { self.state.attempts }
    }

    /// Which attempt a start of `group` is, where a holder that vanished with it
    /// counts as one that may have started it.
    pub fn attempt(&self, group: Group) -> u32 {
        self.tried(group) + u32::from(self.state.is_suspect()) + 1
    }

    /// What to do about a place that was not filled in time. Retention may have
    /// deleted what stood there: then that is for a person to say.
    pub fn gap_stays(&self, now: Timestamp, retention: Duration) -> Step {
        if self.state.pending_since.is_some_and(|since| now.since(since) > retention / 2) {
            return Step::Block(BlockReason::Expired);
        }
        Step::Void(self.state.next())
    }

    /// What settling the place in front decides, with its group. `seen_at` is when
    /// the row was last seen; `not_before` when the next handler may start. Where
    /// no delivery is in front, the next place is given up.
    pub fn decision(&self, ending: Ending, seen_at: Timestamp, not_before: Option<Timestamp>) -> Decision {
        let first = self.front().map_or(self.state.next(), |waiting| waiting.unpacked.head().sequence());
        let mut recent = self.state.recent.clone();
        let mut times = self.state.newest_event_time.clone();
        let mut newest = None;
        for (at, settlement) in ending.group.settlements(ending.settlement).enumerate() {
            let head = self.page.places.get(at).and_then(Place::delivery);
            let is_applied = settlement == Settlement::Applied;
            if let Some((family, time)) = head.and_then(|head| Some((head.family(), head.event_time()?)))
                && is_applied
            {
                times = times.applied(family, time);
            }
            // One that the handler did not get has had no start.
            let is_started = settlement == ending.settlement;
            let receipt = Receipt {
                sequence: Sequence(first.0 + at as u64),
                identity: head.map(Delivery::identity_hash),
                settlement,
                token: ending.token,
                attempts: if is_started { ending.attempts } else { 0 },
                settled_at: ending.at,
                took: ending.took.filter(|_| is_started),
            };
            recent = recent.with(receipt, self.memory.retention);
            newest = head;
        }
        let last = Sequence(first.0 + ending.group.places as u64 - 1);
        Decision {
            first,
            dropped: recent.drop_beyond(self.memory.capacity),
            recent,
            newest_event_time: times,
            pending_since: newest.map(|newest| match self.page.places.get(ending.group.places) {
                Some(Place::Delivery(next)) => next.unpacked.head().appended_at(),
                // What comes was claimed since.
                _ if self.state.tail == last => seen_at,
                _ => newest.appended_at(),
            }),
            not_before,
            ends_one_by_one: self.state.one_by_one.is_some_and(|until| until <= last),
            carried: ending.carried,
        }
    }

    /// What is to be written elsewhere before `decision` is made: what leaves the
    /// row with it, and has no row of its own yet.
    pub fn to_spill(&self, decision: &Decision) -> Vec<Receipt> {
        self.without_row(decision.dropped.iter())
    }

    /// What may be written elsewhere beside `decision`: what will leave the row
    /// with the next one, where one is sure to follow, and stands there now.
    pub fn to_spill_ahead(&self, decision: &Decision) -> Vec<Receipt> {
        let waiting = self.state.tail.0.saturating_sub(decision.last().0);
        // The next group is likely to be as large as this one.
        let more = decision.places().min(usize::try_from(waiting).unwrap_or(usize::MAX));
        if more == 0 {
            return Vec::new();
        }
        let next = decision.recent.next_beyond(self.memory.capacity, more);
        self.without_row(next.filter(|receipt| receipt.sequence <= self.state.head))
    }

    fn without_row<'a>(&self, receipts: impl Iterator<Item = &'a Receipt>) -> Vec<Receipt> {
        let has_none = |receipt: &&Receipt| receipt.spills().is_some() && !self.spilled.contains(&receipt.sequence);
        receipts.filter(has_none).cloned().collect()
    }

    /// Whether a settle of `sequence` says that this drain is about to let go.
    pub fn hands_over(&self, sequence: Sequence, slice_is_over: bool) -> bool {
        slice_is_over && !self.is_last(sequence)
    }

    /// Whether nothing was claimed behind `sequence`.
    pub fn is_last(&self, sequence: Sequence) -> bool {
        self.state.tail == sequence
    }

    /// What may be read ahead while so many places in front are decided: from where
    /// to where. `source` is what is known of theirs: the next group is to be
    /// full.
    pub fn ahead(&self, in_front: usize, source: Option<&Found>) -> Option<(Sequence, Sequence)> {
        let most = match source {
            Some(Found::Source(source)) => source.deliver.most(),
            _ => 1,
        };
        let read = self.page.places.len();
        let (from, to) = (Sequence(self.state.next().0 + read as u64), self.state.tail);
        (read < in_front + most && from <= to).then_some((from, to))
    }

    /// When the first delivery behind the hole arrived at which the page ends.
    pub(super) fn behind(&self) -> Option<Timestamp> {
        self.page.behind
    }

    /// The row was seen.
    pub fn seen(&mut self, state: EntityState) {
        self.state = state;
    }

    /// The delivery at this place, if it was read and is not settled.
    pub fn read_at(&self, sequence: Sequence) -> Option<&Delivery> {
        self.page.places.iter().filter_map(Place::delivery).find(|delivery| delivery.sequence() == sequence)
    }

    /// Whether receipts are to be read with a page.
    pub fn has_spilled(&self) -> bool {
        self.has_spilled
    }

    /// A page was read, and the receipts that were asked for.
    pub fn read(&mut self, page: Page) {
        self.is_at_gap = page.places.is_empty();
        self.page = page;
    }

    /// A page was read ahead.
    pub fn read_ahead(&mut self, page: Page) {
        self.page.extend(page);
    }

    /// The receipts of these places have rows of their own.
    pub fn spilled(&mut self, receipts: Vec<Receipt>) {
        self.spilled.extend(receipts.into_iter().map(|receipt| receipt.sequence));
    }

    /// The next place was filled after all.
    pub fn filled(&mut self) {
        self.page = Page::default();
        self.is_at_gap = false;
    }

    /// The next place was given up.
    pub fn voided(&mut self) {
        self.page.places.push_front(Place::Void(self.state.next()));
        self.is_at_gap = false;
    }

    /// The places in front were settled as decided. `state` is the row afterwards.
    pub fn settled(&mut self, state: EntityState, decision: &Decision) {
        self.state = state;
        self.page.places.drain(..decision.places().min(self.page.places.len()));
        for receipt in &decision.dropped {
            self.spilled.remove(&receipt.sequence);
            self.dropped.extend(receipt.spills());
        }
    }
}

/// How a drain stops that cannot go on for the store's sake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// End the lease. A fresh wake-up is under way already, which does not say
    /// this lease's token: nobody is to count on it as on one that does.
    Release,
    /// Say that the lease is about to end, send a wake-up under its token, hand
    /// over.
    HandOver,
}

/// How it stops; `is_replaced`: the wake-up it came for was replaced by a fresh
/// one before.
pub fn stop(is_replaced: bool) -> Stop {
    if is_replaced { Stop::Release } else { Stop::HandOver }
}

/// Whether a newer one was applied, and its source wants it left out for that.
/// What a person put back is handled all the same.
fn is_stale(delivery: &Delivery, applied: &EventTimes, source: &Source) -> bool {
    source.stale == Stale::Skip && delivery.redrive() == 0 && delivery.age_beside(applied) == Age::Older
}

/// Returns whether a delivery may supersede those in front of it, whose newest event
/// time is `newest`. A redriven or deferred delivery may not: it was appended after
/// deliveries that may have been received later.
fn may_stand_for(delivery: &Delivery, newest: Option<Timestamp>) -> bool {
    let is_in_order = delivery.redrive() == 0 && delivery.deferred_until().is_none();
    is_in_order && delivery.event_time().is_none_or(|time| Some(time) >= newest)
}

/// Sets the delivery in front aside for its own sake.
pub(super) fn set_aside(attempts: u32, error: String) -> Step {
    Step::SetAside { attempts, error, carried: Retries::default() }
}

#[cfg(test)]
mod tests;
