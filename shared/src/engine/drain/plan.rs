//! What a drain that has the lease does next, decided from what it knows: no
//! I/O, no clock of its own. `driver.rs` does it and tells what came of it.

use std::{sync::Arc, time::Duration};

use super::{
    MARGIN, UNREADABLE,
    page::{Page, Place, Waiting},
};
use crate::{
    handler::Outcome,
    protocol::{
        attempt::{Next, OnFailure},
        delivery::{Age, Delivery},
        entity::{EntityKey, IdentityHash, Sequence},
        format::one_line,
        inbox::{Committed, Decision, Receipt},
        state::{BlockReason, EntityState, LastSettled, Settlement, VANISHED_BEFORE_START},
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
    /// Whether the receipt of what stood at `head` is known to be there.
    receipt_is_sure: bool,
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
    /// Read on; and whether this identity has a receipt.
    ReadPage(Option<IdentityHash>),
    /// Write the receipt that a holder before this one may not have written.
    MakeSure(Receipt),
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
    /// When its handler started.
    pub started_at: Option<Timestamp>,
    /// How long that took.
    pub took: Option<Duration>,
}

impl Drain {
    /// One that was granted the lease on `state`.
    pub fn granted(state: EntityState) -> Self {
        Self { state, page: Page::default(), is_at_gap: false, receipt_is_sure: false }
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
            return Step::ReadPage(self.owed(moment.now).map(|owed| owed.identity));
        }
        if let Some(owed) = self.owed(moment.now) {
            return Step::MakeSure(owed);
        }
        match front {
            None => Step::AwaitGap,
            Some(Place::Void(_)) => Step::Settle(Settlement::Void),
            Some(Place::Delivery(waiting)) => self.deliver(waiting.unpacked.head(), moment, source),
        }
    }

    /// The receipt of what stands at `head`, where it is not known to be there:
    /// its holder may have died between settle and receipt.
    fn owed(&self, now: Timestamp) -> Option<Receipt> {
        if self.receipt_is_sure { None } else { Receipt::owed(&self.state, now) }
    }

    fn deliver(&self, head: &Delivery, moment: &Moment, source: Option<&Found>) -> Step {
        let state = &self.state;
        let identity = head.identity_hash();
        match self.page.receipts.get(identity) {
            // A holder died between this delivery's receipt and its settle.
            Some(receipt) if receipt.sequence == head.sequence() => return Step::Settle(receipt.settlement),
            Some(_) => return Step::Settle(Settlement::Repeat),
            None if state.last_settled.as_ref().and_then(|last| last.identity.as_ref()) == Some(identity) => {
                return Step::Settle(Settlement::Repeat);
            }
            None => {}
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

    /// What to do about a commit that did not land; `None`: it did, or the lease
    /// is lost.
    pub fn not_committed(&self, committed: &Committed, source: &Source, fraction: f64) -> Option<Step> {
        match committed {
            Committed::Landed(_) | Committed::Lost => None,
            // At another place, and not seen when the page was read.
            Committed::SettledBefore => Some(Step::Settle(Settlement::Repeat)),
            Committed::Refused => {
                let error = "a condition of the handler's own writes did not hold";
                Some(self.failed(None, error.into(), source, fraction))
            }
        }
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

    /// What settling the place in front as `settlement` decides. `seen_at` is
    /// when the row was last seen; `not_before` when the next handler may start.
    /// Where no delivery is in front, the next place is given up.
    pub fn decision(&self, settlement: Settlement, seen_at: Timestamp, not_before: Option<Timestamp>) -> Decision {
        let times = &self.state.newest_event_time;
        let Some(head) = self.front().map(|waiting| waiting.unpacked.head()) else {
            return Decision {
                sequence: self.state.next(),
                settled: LastSettled { identity: None, settlement },
                newest_event_time: times.clone(),
                pending_since: None,
                not_before,
            };
        };
        Decision {
            sequence: head.sequence(),
            settled: LastSettled { identity: Some(head.identity_hash().clone()), settlement },
            newest_event_time: match head.event_time() {
                Some(time) if settlement == Settlement::Applied => times.applied(head.family(), time),
                _ => times.clone(),
            },
            pending_since: Some(match self.page.places.get(1) {
                Some(Place::Delivery(next)) => next.unpacked.head().received_at(),
                // What comes was claimed since.
                _ if self.state.tail == head.sequence() => seen_at,
                _ => head.received_at(),
            }),
            not_before,
        }
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

    /// A page was read, and the receipts that were asked for.
    pub fn read(&mut self, page: Page) {
        self.is_at_gap = page.places.is_empty();
        self.page = page;
        // One that says otherwise is of a holder that had lost its lease.
        let stands = |owed: &Receipt| {
            let known = self.page.receipts.get(&owed.identity);
            known.is_some_and(|known| known.sequence != owed.sequence || known.settlement == owed.settlement)
        };
        self.receipt_is_sure |= Receipt::owed(&self.state, Timestamp::from_millis(0)).is_none_or(|owed| stands(&owed));
    }

    /// A page was read ahead.
    pub fn read_ahead(&mut self, page: Page) {
        self.page.extend(page);
    }

    /// A receipt was written that a holder before this one owed.
    pub fn made_sure(&mut self, receipt: Receipt) {
        self.receipt_is_sure = true;
        self.page.receipts.insert(receipt.identity.clone(), receipt);
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

    /// The place in front was settled, and `receipt` was written. `state` is the
    /// row afterwards.
    pub fn settled(&mut self, state: EntityState, receipt: Option<Receipt>) {
        self.state = state;
        self.page.places.pop_front();
        if let Some(receipt) = receipt {
            self.receipt_is_sure = true;
            // A repeat of it may stand on this very page.
            self.page.receipts.insert(receipt.identity.clone(), receipt);
        }
    }
}

/// Whether the receipt of what is settled so is written behind its settle,
/// rather than beside it: a holder that has lost its lease must not leave word of
/// having set aside what another applies. Having applied it, it may: whoever
/// applies it again does so by the same right.
pub fn receipt_follows(settlement: Settlement) -> bool {
    settlement == Settlement::Parked
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
