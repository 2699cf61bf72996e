//! What a drain that has the lease does next, decided from what it knows: no
//! I/O, no clock of its own. `driver.rs` does it and tells what came of it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    MARGIN, UNREADABLE,
    page::{Page, Place, Waiting},
};
use crate::{
    handler::Outcome,
    protocol::{
        attempt::{Next, OnFailure},
        delivery::{Age, Delivery},
        entity::{EntityKey, FencingToken, IdentityHash, Sequence},
        format::one_line,
        inbox::Decision,
        receipt::{Receipt, Settlement},
        state::{BlockReason, EntityState, VANISHED_BEFORE_START},
        table::Write,
    },
    sources::{Found, Source},
    telemetry::PutOffReason,
    time::Timestamp,
};

/// A wait this short is waited out, rather than by a message's round trip.
pub(super) const SHORT: Duration = Duration::from_secs(1);

/// A wake-up that comes before its lease has ended would be put off by what is
/// left of that.
pub(super) const HANDED_OVER: Duration = Duration::from_secs(1);

/// A start is written down within this time, or goes ahead without.
pub(crate) const MARKING: Duration = Duration::from_secs(2);

/// What a drain knows of its entity.
#[derive(Debug, Clone)]
pub struct Drain {
    state: EntityState,
    page: Page,
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

/// How the place in front ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ended {
    /// How it is settled.
    pub settlement: Settlement,
    /// Under which token.
    pub token: FencingToken,
    /// After how many attempts.
    pub attempts: u32,
    /// How long its handler ran, where it did.
    pub took: Option<Duration>,
    /// When.
    pub at: Timestamp,
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
    HandOver(Duration, PutOffReason),
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
    },
    /// Settle what was decided before, or needs no decision.
    Settle(Settlement),
    /// Settle as applied.
    Apply,
    /// Settle as applied, these writes along with it.
    Commit(Vec<Write>),
    /// Set the delivery aside, and settle it so; after so many attempts.
    SetAside(u32, String),
    /// Count the attempt, send a wake-up for then, and end the lease.
    Retry {
        /// How many attempts have failed.
        attempts: u32,
        /// When to try again.
        wait: Duration,
        /// What went wrong.
        error: String,
    },
    /// Count the attempt, and stop the entity.
    GiveUp(u32, String),
}

/// A delivery that was decided, with what its run added.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The delivery.
    pub delivery: Arc<Delivery>,
    /// How long its handler ran, where it did.
    pub took: Option<Duration>,
}

impl Drain {
    /// One that was granted the lease on `state`.
    pub fn granted(state: EntityState) -> Self {
        let has_spilled = state.spilled;
        let (dropped, spilled) = (BTreeSet::new(), BTreeSet::new());
        Self { state, page: Page::default(), is_at_gap: false, has_spilled, dropped, spilled }
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

    /// What to do next. `source` is what is known of the source of the delivery
    /// in front.
    pub fn next(&self, moment: &Moment, source: Option<&Found>) -> Step {
        let state = &self.state;
        if state.is_empty() {
            return Step::ReleaseEmpty;
        }
        if state.blocked.is_some() {
            return Step::Release;
        }
        if state.suspect >= VANISHED_BEFORE_START {
            return Step::Block(BlockReason::Vanished);
        }
        let left = |until: Option<Timestamp>| until.map_or(Duration::ZERO, |until| until.since(moment.now));
        let (yielding, waiting) = (left(state.yield_until), left(state.retry_at));
        if !yielding.is_zero() {
            return Step::HandOver(yielding, PutOffReason::Yielding);
        }
        if waiting > SHORT || !waiting.is_zero() && moment.left < waiting + MARGIN {
            return Step::HandOver(waiting, PutOffReason::Retry);
        }
        if state.handover {
            return Step::HandOver(Duration::ZERO, PutOffReason::Slice);
        }
        if !waiting.is_zero() {
            return Step::Wait(waiting);
        }
        if moment.left < MARGIN {
            return Step::HandOver(HANDED_OVER, PutOffReason::OutOfTime);
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

    /// Whether this delivery was settled before: the row remembers it, or has
    /// forgotten it since the grant, or it has a receipt.
    fn is_repeat(&self, identity: IdentityHash) -> bool {
        self.state.recent.holds(identity) || self.dropped.contains(&identity) || self.page.receipts.contains(&identity)
    }

    fn deliver(&self, head: &Delivery, moment: &Moment, source: Option<&Found>) -> Step {
        let state = &self.state;
        if self.is_repeat(head.identity_hash()) {
            return Step::Settle(Settlement::Repeat);
        }
        let source = match source {
            None => return Step::FindSource,
            // Ingest may have learned of it before this instance did.
            Some(Found::Unknown) => return Step::HandOver(UNREADABLE, PutOffReason::UnknownSource),
            Some(Found::Gone) => None,
            Some(Found::Source(source)) => Some(source),
        };
        if state.attempts >= source.map_or(1, |source| source.retry.attempts) {
            // Counted by a take-over: running it once more could take this worker too.
            let on_failure = source.map_or(OnFailure::Park, |source| source.on_failure);
            return give_up(on_failure, state.attempts, state.last_error.clone().unwrap_or_default());
        }
        if head.entity() == &EntityKey::unrouted(head.source()) {
            return Step::SetAside(state.attempts, "its entity could not be found".into());
        }
        let Some(source) = source else {
            return Step::SetAside(state.attempts, "its source is not configured any more".into());
        };
        if moment.left < source.handler_timeout + MARGIN {
            return Step::HandOver(HANDED_OVER, PutOffReason::OutOfTime);
        }
        if state.is_suspect() {
            if !moment.is_alone {
                return Step::BeAlone(state.attempts + state.suspect);
            }
            if moment.left < source.handler_timeout + MARKING + MARGIN {
                return Step::HandOver(HANDED_OVER, PutOffReason::OutOfTime);
            }
        }
        if moment.is_spent {
            return Step::HandOver(HANDED_OVER, PutOffReason::NoThread);
        }
        Step::Start { is_written: state.is_suspect() }
    }

    /// What to do once the handler has answered. `fraction` (0.0 to 1.0) spreads
    /// the waits for the next attempt.
    pub fn answered(&self, outcome: Outcome, source: &Source, fraction: f64) -> Step {
        match outcome {
            Outcome::Done => Step::Apply,
            Outcome::Commit(writes) => Step::Commit(writes),
            Outcome::Reject(error) => Step::SetAside(self.state.attempts + 1, one_line(&error)),
            Outcome::Retry { after, error } | Outcome::Unavailable { after, error } => {
                self.failed(after, error, source, fraction)
            }
        }
    }

    /// What to do about a start that failed; `asked`: the wait that its handler
    /// asks for.
    pub fn failed(&self, asked: Option<Duration>, error: String, source: &Source, fraction: f64) -> Step {
        let (attempts, error) = (self.state.attempts + 1, one_line(&error));
        match source.retry.after(attempts, asked, source.on_failure, fraction) {
            Next::GiveUp(on_failure) => give_up(on_failure, attempts, error),
            Next::Retry(wait) => {
                // Tried again no sooner than its source's rate allows.
                let wait = source.rate.map_or(wait, |rate| wait.max(rate.interval()));
                Step::Retry { attempts, wait, error }
            }
        }
    }

    /// What to do about a commit of which a condition did not hold.
    pub fn refused(&self, source: &Source, fraction: f64) -> Step {
        self.failed(None, "a condition of the handler's own writes did not hold".into(), source, fraction)
    }

    /// What to do about a place that was not filled in time. Retention may have
    /// deleted what stood there: then that is for a person to say.
    pub fn gap_stays(&self, now: Timestamp, retention: Duration) -> Step {
        if self.state.pending_since.is_some_and(|since| now.since(since) > retention / 2) {
            return Step::Block(BlockReason::Expired);
        }
        Step::Void(self.state.next())
    }

    /// Whether the delivery in front is older than what was applied.
    pub fn age_of(&self, delivery: &Delivery) -> Age {
        let Some(time) = delivery.event_time() else { return Age::Unknown };
        match self.state.newest_event_time.of(delivery.family()).map(|newest| time.cmp(&newest)) {
            None | Some(std::cmp::Ordering::Greater) => Age::Newer,
            Some(std::cmp::Ordering::Equal) => Age::SameTime,
            Some(std::cmp::Ordering::Less) => Age::Older,
        }
    }

    /// What settling the place in front decides. `seen_at` is when the row was last
    /// seen; `not_before` when the next handler may start. Where no delivery is in
    /// front, the next place is given up.
    pub fn decision(
        &self,
        ended: Ended,
        memory: Memory,
        seen_at: Timestamp,
        not_before: Option<Timestamp>,
    ) -> Decision {
        let times = &self.state.newest_event_time;
        let head = self.front().map(|waiting| waiting.unpacked.head());
        let receipt = Receipt {
            sequence: head.map_or(self.state.next(), Delivery::sequence),
            identity: head.map(Delivery::identity_hash),
            settlement: ended.settlement,
            token: ended.token,
            attempts: ended.attempts,
            settled_at: ended.at,
            took: ended.took,
        };
        let mut recent = self.state.recent.with(receipt, memory.retention);
        Decision {
            dropped: recent.drop_beyond(memory.capacity),
            recent,
            newest_event_time: match head.and_then(|head| Some((head.family(), head.event_time()?))) {
                Some((family, time)) if ended.settlement == Settlement::Applied => times.applied(family, time),
                _ => times.clone(),
            },
            pending_since: head.map(|head| match self.page.places.get(1) {
                Some(Place::Delivery(next)) => next.unpacked.head().received_at(),
                // What comes was claimed since.
                _ if self.state.tail == head.sequence() => seen_at,
                _ => head.received_at(),
            }),
            not_before,
        }
    }

    /// What is to be written elsewhere before `decision` is made: what leaves the
    /// row with it, and has no row of its own yet.
    pub fn to_spill(&self, decision: &Decision) -> Vec<Receipt> {
        self.without_row(decision.dropped.iter())
    }

    /// What may be written elsewhere beside `decision`: what will leave the row
    /// with the next one, where one is sure to follow, and stands there now.
    pub fn to_spill_ahead(&self, decision: &Decision, memory: Memory) -> Vec<Receipt> {
        if self.is_last(decision.sequence()) {
            return Vec::new();
        }
        let next = decision.recent.next_beyond(memory.capacity);
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

    /// What may be read ahead while the place in front is decided: from where to
    /// where.
    pub fn ahead(&self) -> Option<(Sequence, Sequence)> {
        let from = self.state.next().next();
        (self.page.places.len() <= 1 && from <= self.state.tail).then_some((from, self.state.tail))
    }

    /// When the first delivery behind the hole arrived at which the page ends.
    pub(super) fn behind(&self) -> Option<Timestamp> {
        self.page.behind
    }

    /// The row was seen.
    pub fn seen(&mut self, state: EntityState) {
        self.state = state;
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

    /// The place in front was settled as decided. `state` is the row afterwards.
    pub fn settled(&mut self, state: EntityState, decision: &Decision) {
        self.state = state;
        self.page.places.pop_front();
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

fn give_up(on_failure: OnFailure, attempts: u32, error: String) -> Step {
    match on_failure {
        OnFailure::Park => Step::SetAside(attempts, error),
        OnFailure::Block => Step::GiveUp(attempts, error),
    }
}

#[cfg(test)]
mod tests;
