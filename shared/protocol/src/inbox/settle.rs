//! Settles the delivery at `head + 1`, or a group that begins there. One operation keeps the lease,
//! another one releases it.

use std::time::Duration;

use crate::{
    attempt::Retries,
    entity::{FencingToken, Sequence},
    format::{CorruptRow, attribute as a},
    lease::{Lease, purged_if_idle, remove_lease_and_handover},
    operation::{Operation, state_of, updated_state},
    receipt::{Receipt, Recent, Spilled},
    state::{ABOUT_TO, CARRIED_OVER, EntityState, EventTimes, Held, LONGEST_LEASE},
    table::{Change, Condition, Write, Written},
    time::Timestamp,
    waits::{self, SourceTag, Waits},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The first decided sequence.
    pub first: Sequence,
    /// The receipts that the row has after the settle. The last ones are those of the decided
    /// sequences.
    pub recent: Recent,
    /// The receipts that leave the row. Each one that must be kept has a copy elsewhere before the
    /// settle.
    pub dropped: Vec<Receipt>,
    /// The places outside the row where receipts may be after the settle.
    pub spilled: Spilled,
    /// The newest applied event times after the settle.
    pub newest_event_time: EventTimes,
    /// A lower bound for the claim times of all sequences after the decided ones. `None` leaves the
    /// row's value unchanged.
    pub pending_since: Option<Timestamp>,
    /// The earliest time of the next handler start, if the source has a rate limit.
    pub not_before: Option<Timestamp>,
    /// Set if later deliveries need no longer start one at a time.
    pub ends_one_by_one: bool,
    /// The waits that the next delivery inherits: none, unless this delivery is parked because its
    /// destination was unavailable. Then the next delivery inherits the total wait for this
    /// destination, limited to its own age and an allowance for clock skew.
    pub carried: Retries,
}

/// Settles the delivery at `head + 1`, together with its group, and keeps the lease under the next
/// token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle<'a> {
    pub lease: &'a Lease,
    pub decision: &'a Decision,
    pub now: Timestamp,
    pub length: Duration,
    /// Set if the holder will next send a wake-up and release the lease. A worker that finds the
    /// lease held then polls the row, instead of requeueing its wake-up until the lease ends.
    pub hands_over: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    Settled(Lease, EntityState),
    Lost,
}

impl Decision {
    pub fn receipts(&self) -> impl DoubleEndedIterator<Item = &Receipt> {
        self.recent.iter().filter(|receipt| receipt.sequence >= self.first)
    }

    pub fn last(&self) -> Sequence {
        self.recent.last().expect("a decision is about a place").sequence
    }

    /// Returns the number of sequences that this decision settles.
    pub fn places(&self) -> usize {
        self.receipts().count()
    }

    /// Returns the decision with all receipts kept in the entity's row. It is used if a dropped
    /// receipt could not be written elsewhere. Until such a write succeeds again, each write
    /// of the entity's row may cost another write unit.
    #[must_use]
    pub fn dropping_nothing(self) -> Self {
        Self { recent: self.recent.behind(self.dropped), dropped: Vec::new(), ..self }
    }

    /// Returns the changes that settle the decided sequences, and let the next delivery inherit no
    /// waits.
    pub(super) fn changes(&self, token: FencingToken) -> Vec<Change> {
        let mut changes = self.changes_but_retries(token);
        changes.extend(waits::settled());
        changes
    }

    fn changes_but_retries(&self, token: FencingToken) -> Vec<Change> {
        let recent = self.recent.to_stored().expect("a decision is about a place");
        let mut changes = vec![
            Change::set(a::HEAD, self.last().0),
            Change::set(a::TOKEN, token.next().0),
            Change::set(a::RECENT, recent),
            Change::remove(a::ATTEMPTS),
            Change::remove(a::SUSPECT),
            Change::remove(a::STARTED),
            match self.not_before {
                Some(at) => Change::set(a::RETRY_AT, at.as_millis()),
                None => Change::remove(a::RETRY_AT),
            },
        ];
        if let Some(times) = self.newest_event_time.to_stored() {
            changes.push(Change::set(a::NEWEST_EVENT_TIME, times));
        }
        if self.spilled.is_anywhere() {
            changes.push(Change::set(a::SPILLED, self.spilled.to_stored()));
        }
        if self.ends_one_by_one {
            changes.push(Change::remove(a::ONE_BY_ONE));
        }
        changes
    }
}

impl Settle<'_> {
    pub(super) fn is_due(&self, state: &EntityState) -> bool {
        self.lease.is_mine(state) && state.head == self.decision.first.previous()
    }

    fn expires_at(&self) -> Timestamp {
        self.now + self.length.min(LONGEST_LEASE)
    }

    /// Returns the row after this write, given the row before it. A commit needs this prediction,
    /// because the reply to a transaction does not return the row.
    #[must_use]
    pub fn applied(&self, before: &EntityState) -> EntityState {
        let decision = self.decision;
        let times = &decision.newest_event_time;
        let mut after = before.clone();
        after.head = decision.last();
        after.token = self.lease.token.next();
        after.held = after.held.map(|held| Held { expires_at: self.expires_at(), ..held });
        after.recent = decision.recent.clone();
        after.spilled = decision.spilled;
        after.attempts = 0;
        after.suspect = 0;
        after.started = None;
        after.retry_at = decision.not_before;
        after.one_by_one = after.one_by_one.filter(|_| !decision.ends_one_by_one);
        after.last_error = (decision.carried != Retries::default()).then(|| CARRIED_OVER.to_owned());
        after.retries = decision.carried;
        after.waits = Waits::of(after.last_error.as_deref(), &after.retries, None, SourceTag::default());
        after.pending_since = decision.pending_since.or(before.pending_since);
        after.newest_event_time = if times.to_stored().is_some() { times.clone() } else { after.newest_event_time };
        after.handover = after.handover.or(self.hands_over.then_some(ABOUT_TO));
        after
    }
}

impl Operation for Settle<'_> {
    type Outcome = Settled;

    fn write(&self) -> Write {
        let mut changes = match self.decision.carried.to_stored() {
            None => self.decision.changes(self.lease.token),
            Some(carried) => {
                let mut changes = self.decision.changes_but_retries(self.lease.token);
                // The previous delivery's own error may be too long beside the new receipts.
                changes.push(Change::set(a::RETRIES, carried));
                changes.extend(waits::failed(CARRIED_OVER, &self.decision.carried, None, SourceTag::default()));
                changes
            }
        };
        changes.push(Change::set(a::EXPIRES_AT, self.expires_at().as_millis()));
        if let Some(since) = self.decision.pending_since {
            changes.push(Change::set(a::PENDING_SINCE, since.as_millis()));
        }
        if self.hands_over {
            changes.push(Change::set(a::HANDOVER, ABOUT_TO.as_millis()));
        }
        self.lease.update(self.lease.mine_before(self.decision.first), changes)
    }

    /// Treats a refusal as success if the row has this holder and `head` is the last decided
    /// sequence, because then an earlier try of this write landed.
    fn judge(&self, reply: Written) -> Result<Settled, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => Settled::Settled(self.lease.settled(), updated_state(row)?),
            Written::Refused(row) => match state_of(row)? {
                Some(state)
                    if state.head == self.decision.last()
                        && state.held.as_ref().is_some_and(|held| held.holder == self.lease.holder) =>
                {
                    Settled::Settled(self.lease.settled(), state)
                }
                _ => Settled::Lost,
            },
        })
    }
}

/// Settles the delivery at `head + 1`, together with its group, and releases the lease. The write's
/// condition fails if a later delivery waits, or if the entity is on hold although `purge_at` is
/// set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleAndRelease<'a> {
    pub lease: &'a Lease,
    pub decision: &'a Decision,
    /// The earliest time to delete the idle row. `None` means never, for example while the entity
    /// is on hold.
    pub purge_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettledAndReleased {
    Released,
    /// Nothing was written, because later deliveries wait, or because the entity was put on hold
    /// and its row must stay. The caller must settle without a release.
    Grown(EntityState),
    Lost,
}

impl Operation for SettleAndRelease<'_> {
    type Outcome = SettledAndReleased;

    fn write(&self) -> Write {
        let is_last = Condition::equal(a::TAIL, self.decision.last().0);
        let mut changes = self.decision.changes(self.lease.token);
        changes.extend(remove_lease_and_handover());
        changes.push(Change::remove(a::PENDING_SINCE));
        let (may_go, purge) = purged_if_idle(self.purge_at);
        changes.extend(purge);
        let conditions = [self.lease.mine_before(self.decision.first), is_last].into_iter().chain(may_go);
        self.lease.update(Condition::All(conditions.collect()), changes)
    }

    /// Treats a refusal as success if the entity is free under the next token and this delivery is
    /// settled, because then an earlier try of this write landed.
    ///
    /// The token alone does not prove that the try landed. A release by force, or a take-over that
    /// was released, leaves the same token with the delivery unsettled. If the lease was acquired
    /// again after the earlier try, the token is greater still. The outcome is then `Lost`,
    /// although the delivery is settled.
    fn judge(&self, reply: Written) -> Result<SettledAndReleased, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => SettledAndReleased::Released,
            Written::Refused(row) => match state_of(row)? {
                Some(state) if self.lease.settled().was_released(&state) && state.head == self.decision.last() => {
                    SettledAndReleased::Released
                }
                Some(state)
                    if self.lease.is_mine(&state) && (state.tail > self.decision.last() || state.is_on_hold()) =>
                {
                    SettledAndReleased::Grown(state)
                }
                _ => SettledAndReleased::Lost,
            },
        })
    }
}
