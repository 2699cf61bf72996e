//! Acquires a free lease, or takes over an expired one.

use std::time::Duration;

use super::{
    Lease,
    ask::{no_yield, yields_until},
    numbers_if_absent, passed,
};
use crate::{
    attempt::Retries,
    entity::{EntityKey, FencingToken, Sequence},
    format::{CorruptRow, attribute as a, readable},
    hold::not_on_hold,
    keys::entity_row,
    operation::{Operation, state_of, updated_state},
    state::{EntityState, FARTHEST_EXPIRY, HOLDER_VANISHED, HolderInfo, LARGEST_GROUP, LONGEST_LEASE, LeaseKind},
    table::{Action, Change, Comparison, Condition, Write, Written},
    time::{Nonce, Timestamp},
    waits::{self, SourceTag},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    pub entity: EntityKey,
    pub kind: LeaseKind,
    /// A new nonce for this acquire call, which identifies the holder. The id of the caller's
    /// request would not be enough, because the same request may arrive twice.
    pub holder: Nonce,
    pub info: HolderInfo,
    pub now: Timestamp,
    /// The length of the lease, at most [`LONGEST_LEASE`].
    pub length: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    Granted(Lease, EntityState),
    /// The row shows another holder, whose lease may have expired. The caller can wait, or take
    /// over an expired lease with [`TakeOver`].
    Held(EntityState),
    Empty,
    /// The lease is free, but is not granted yet. The caller can acquire the lease at `until`. If a
    /// take-over found the lease released, `until` is the current time.
    Waiting {
        /// The end of the wait, by the clock of the process that set it.
        until: Timestamp,
        /// The token in the wake-up that the last holder sent for `until`. `None` if the holder
        /// sent no wake-up, or if the request was for an exclusive lease.
        awaited: Option<FencingToken>,
    },
    /// The entity is blocked or on hold. No drain is granted the lease until an operator lets the
    /// entity continue.
    Stopped,
}

impl Acquire {
    fn lease(&self, token: FencingToken) -> Lease {
        Lease { entity: self.entity.clone(), holder: self.holder.clone(), kind: self.kind, token }
    }

    fn grant(&self) -> Vec<Change> {
        let length = self.length.min(LONGEST_LEASE);
        let mut changes = vec![
            Change::set(a::HOLDER, self.holder.as_str()),
            Change::set(a::KIND, self.kind.as_str()),
            Change::set(a::EXPIRES_AT, (self.now + length).as_millis()),
            Change::set(a::HOLDER_INFO, self.info.as_str()),
            Change::Add { attribute: a::TOKEN.into(), base: self.now.as_millis(), by: 1 },
            Change::remove(a::PURGE_AT),
            Change::remove(a::TURN_UNTIL),
            Change::remove(a::HANDOVER),
        ];
        if self.kind == LeaseKind::Exclusive {
            changes.push(Change::remove(a::YIELD_UNTIL));
        }
        changes.extend(numbers_if_absent(self.now, &[a::TAIL, a::HEAD]));
        changes
    }

    /// Returns the outcome of this request, given the row that refused it. If the row's holder is
    /// this call's nonce, an earlier try of this write landed and the lease is granted.
    fn explain(&self, state: Option<EntityState>) -> Acquired {
        let Some(state) = state else { return Acquired::Empty };
        match &state.held {
            Some(held) if held.holder == self.holder => Acquired::Granted(self.lease(state.token), state),
            Some(_) => Acquired::Held(state),
            None if self.kind == LeaseKind::Exclusive => {
                Acquired::Waiting { until: deliveries_turn(&state, self.now).unwrap_or(self.now), awaited: None }
            }
            None => refusal(&state, self.now).unwrap_or(Acquired::Waiting { until: self.now, awaited: None }),
        }
    }
}

fn refusal(state: &EntityState, now: Timestamp) -> Option<Acquired> {
    if state.is_empty() {
        return Some(Acquired::Empty);
    }
    if state.is_stopped() {
        return Some(Acquired::Stopped);
    }
    let until = state.retry_at.max(yields_until(state, now))?;
    let awaited = state.handover.map(|_| state.token);
    (until > now).then_some(Acquired::Waiting { until, awaited })
}

/// Returns the time until which only drains are granted the lease, because deliveries have their
/// turn after an exclusive holder. Returns `None` if no such time is set or it has passed. A time
/// too far ahead comes from a wrong clock, and counts as passed.
pub fn deliveries_turn(state: &EntityState, now: Timestamp) -> Option<Timestamp> {
    state.turn_until.filter(|until| *until > now && *until <= now + LONGEST_LEASE)
}

impl Operation for Acquire {
    type Outcome = Acquired;

    fn write(&self) -> Write {
        let free = Condition::absent(a::HOLDER);
        let condition = match self.kind {
            LeaseKind::Exclusive => {
                Condition::All(vec![readable(), free, passed(a::TURN_UNTIL, self.now, LONGEST_LEASE)])
            }
            LeaseKind::Drain => Condition::All(vec![
                readable(),
                free,
                Condition::compare_with(a::HEAD, Comparison::Less, a::TAIL),
                Condition::absent(a::BLOCKED),
                not_on_hold(),
                Condition::absent_or_at_most(a::RETRY_AT, self.now.as_millis()),
                no_yield(self.now),
            ]),
        };
        Write { key: entity_row(&self.entity), condition, action: Action::Update(self.grant()) }
    }

    fn judge(&self, reply: Written) -> Result<Acquired, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => {
                let state = updated_state(row)?;
                Acquired::Granted(self.lease(state.token), state)
            }
            Written::Refused(row) => self.explain(state_of(row)?),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeOver {
    pub request: Acquire,
    pub seen: EntityState,
}

impl TakeOver {
    /// Returns the changes that count a vanished drain against the delivery at `head + 1`. If the
    /// drain had recorded a handler start, the changes count an attempt. Otherwise the delivery
    /// becomes a suspect: it may have crashed the drain, but nothing shows that its handler had
    /// started.
    ///
    /// Nothing is counted if the inbox is empty, the lease was exclusive, or the drain had marked
    /// the hand-over.
    fn charge(&self) -> Vec<Change> {
        let drained = self.seen.held.as_ref().is_some_and(|held| held.kind == LeaseKind::Drain);
        // A holder that marked the hand-over did not vanish: it could not send its wake-up.
        if !drained || self.seen.is_empty() || self.seen.handover.is_some() {
            return Vec::new();
        }
        let one_more = |name: &'static str| Change::Add { attribute: name.into(), base: 0, by: 1 };
        let counted = if self.seen.is_started() { one_more(a::ATTEMPTS) } else { one_more(a::SUSPECT) };
        // No other write changes the retries while the lease and its token remain.
        let mut retries = self.seen.retries;
        let mut changes = vec![counted];
        if self.seen.is_started() {
            retries = retries.crashed();
            changes.extend(retries.to_stored().map(|retries| Change::set(a::RETRIES, retries)));
        }
        // The drain may have vanished with a group, and any delivery of the group may be the cause.
        let group = Sequence(self.seen.head.0 + u64::from(LARGEST_GROUP)).min(self.seen.tail);
        if group > self.seen.next() {
            changes.push(Change::set(a::ONE_BY_ONE, group.0));
            // The attempts belong to the latest delivery, which was run in place of the next one.
            if self.seen.has_attempts_of_latest() && !self.seen.is_started() {
                changes.extend([a::ATTEMPTS, a::RETRIES].map(Change::remove));
                retries = Retries::default();
            }
        }
        let source = self.seen.waits.map_or_else(SourceTag::default, |waits| waits.source);
        changes.extend(waits::failed(HOLDER_VANISHED, &retries, None, source));
        changes
    }
}

impl Operation for TakeOver {
    type Outcome = Acquired;

    fn write(&self) -> Write {
        let now = self.request.now;
        let condition = Condition::All(vec![
            readable(),
            Condition::exists(a::HOLDER),
            Condition::equal(a::TOKEN, self.seen.token.0),
            match self.seen.started {
                Some(token) => Condition::equal(a::STARTED, token.0),
                None => Condition::absent(a::STARTED),
            },
            Condition::Any(vec![
                Condition::compare(a::EXPIRES_AT, Comparison::AtMost, now.as_millis()),
                Condition::compare(a::EXPIRES_AT, Comparison::Greater, (now + FARTHEST_EXPIRY).as_millis()),
            ]),
        ]);
        let mut changes = self.request.grant();
        changes.extend(self.charge());
        Write { key: entity_row(&self.request.entity), condition, action: Action::Update(changes) }
    }

    /// Judges the reply as [`Acquire`] does. If the lease was released in the meantime and can be
    /// acquired, the outcome is [`Acquired::Waiting`] with the current time as `until`.
    fn judge(&self, reply: Written) -> Result<Acquired, CorruptRow> {
        self.request.judge(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{LENGTH, NOW, after, claimed, entity, request, state},
        lease::{LONGEST_YIELD, RequestYield},
        memory::evaluate,
        table::Row,
    };

    fn held(kind: LeaseKind, claims: u64) -> Row {
        crate::fixtures::held(kind, claims).2
    }

    fn taken_over(row: &Row, kind: LeaseKind) -> Row {
        after(&TakeOver { request: request(kind, 11, NOW + LENGTH), seen: state(row) }, row)
    }

    #[test]
    fn time_reserved_for_deliveries_is_ignored_if_past_or_far_ahead() {
        let state = state(&claimed(1));
        let now = NOW;
        let turn = |turn_until| deliveries_turn(&EntityState { turn_until, ..state.clone() }, now);
        let moment = Duration::from_millis(1);
        let last = now + LONGEST_LEASE;
        assert_eq!([None, Some(now), Some(last + moment)].map(turn), [None; 3]);
        assert_eq!([now + moment, last].map(Some).map(turn), [now + moment, last].map(Some));
    }

    #[test]
    fn take_over_counts_attempt_only_for_recorded_start() {
        let head = NOW.as_millis();
        let charged = |row: &Row| {
            let after = taken_over(row, LeaseKind::Drain);
            [a::ATTEMPTS, a::SUSPECT, a::ONE_BY_ONE].map(|name| after.number(name))
        };
        let drained = held(LeaseKind::Drain, 3);
        let started = |row: Row| {
            let token = row.number(a::TOKEN).expect("a token");
            row.with(a::STARTED, token)
        };
        assert_eq!(charged(&drained), [None, Some(1), Some(head + 3)]);
        assert_eq!(charged(&started(drained.clone())), [Some(1), None, Some(head + 3)]);
        let many = held(LeaseKind::Drain, 100);
        assert_eq!(charged(&many)[2], Some(head + u64::from(LARGEST_GROUP)), "as many as one start may be about");
        assert_eq!(charged(&held(LeaseKind::Drain, 1)), [None, Some(1), None], "one is no group");

        let failed = drained.with(a::ATTEMPTS, 2_u32);
        assert_eq!(charged(&failed), [Some(2), Some(1), Some(head + 3)], "they are the delivery's own");
        let stood_for = |row: Row| row.with(a::ONE_BY_ONE, head);
        assert_eq!(charged(&stood_for(failed.clone())), [None, Some(1), Some(head + 3)], "they are not its own");
        assert_eq!(charged(&started(stood_for(failed))), [Some(3), None, Some(head + 3)]);
        let alone = held(LeaseKind::Drain, 1).with(a::ATTEMPTS, 2_u32);
        assert_eq!(charged(&stood_for(alone)), [Some(2), Some(1), Some(head)], "nobody else can have had them");
    }

    #[test]
    fn take_over_of_idle_or_exclusive_lease_counts_no_attempt() {
        let drained = held(LeaseKind::Drain, 3);
        let tail = drained.number(a::TAIL).expect("a tail");
        let rows = [
            held(LeaseKind::Exclusive, 3),
            drained.clone().with(a::HEAD, tail),
            drained.clone().with(a::HANDOVER, 1_u32),
            held(LeaseKind::Exclusive, 3).with(a::HEAD, tail),
        ];
        for row in rows {
            let after = taken_over(&row, LeaseKind::Drain);
            for name in [a::ATTEMPTS, a::SUSPECT, a::ONE_BY_ONE, a::LAST_ERROR, a::WAITS] {
                assert_eq!(after.get(name), None, "{name} of {row:?}");
            }
        }
    }

    #[test]
    fn yield_request_lasts_until_an_exclusive_grant() {
        let row = held(LeaseKind::Drain, 3);
        let entity = entity();
        let until = NOW + LONGEST_YIELD;
        let asked = after(&RequestYield { entity: &entity, now: NOW, until }, &row);
        let after = |kind| taken_over(&asked, kind).number(a::YIELD_UNTIL);
        assert_eq!(after(LeaseKind::Drain), Some(until.as_millis()), "a worker did not ask");
        assert_eq!(after(LeaseKind::Exclusive), None);
    }

    #[test]
    fn lease_from_clock_a_minute_ahead_is_respected() {
        let minute = Duration::from_secs(60);
        let taken_over = |ahead: Duration| {
            let row = held(LeaseKind::Drain, 3).with(a::EXPIRES_AT, (NOW + LONGEST_LEASE + ahead).as_millis());
            let seen = state(&row);
            let runs = seen.held.as_ref().is_some_and(|held| held.runs(NOW));
            let take_over = TakeOver { request: request(LeaseKind::Drain, 11, NOW), seen };
            let landed = evaluate(&take_over.write(), Some(&row)).is_ok();
            assert_ne!(landed, runs, "{ahead:?}");
            landed
        };
        assert!(!taken_over(Duration::from_secs(1)));
        assert!(!taken_over(minute));
        assert!(taken_over(minute + Duration::from_millis(1)));
    }

    #[test]
    fn yield_request_dated_far_ahead_is_ignored() {
        let request = request(LeaseKind::Drain, 11, NOW);
        let farthest = LONGEST_YIELD + Duration::from_secs(60);
        let asked = |until: Timestamp| claimed(1).with(a::YIELD_UNTIL, until.as_millis());
        let drains = |until| evaluate(&request.write(), Some(&asked(until))).is_ok();
        assert!(!drains(NOW + LONGEST_YIELD));
        assert!(!drains(NOW + farthest));
        assert!(drains(NOW + farthest + Duration::from_millis(1)));
        // Another waiter's request replaces it.
        let far = held(LeaseKind::Drain, 3).with(a::YIELD_UNTIL, (NOW + Duration::from_secs(3600)).as_millis());
        let ask = RequestYield { entity: &request.entity, now: NOW, until: NOW + LONGEST_YIELD };
        assert!(evaluate(&ask.write(), Some(&far)).is_ok());
    }

    #[test]
    fn drain_lease_is_refused_during_retry_wait_or_yield() {
        let row = held(LeaseKind::Drain, 1).with(a::HANDOVER, 1_u32);
        let state = EntityState { held: None, ..state(&row) };
        let until = NOW + LENGTH;
        let awaited = Some(state.token);
        let asked = |retry_at, yield_until, now| refusal(&EntityState { retry_at, yield_until, ..state.clone() }, now);
        assert_eq!(asked(None, None, NOW), None);
        for (retry_at, yield_until) in [(Some(until), None), (None, Some(until)), (Some(NOW), Some(until))] {
            assert_eq!(asked(retry_at, yield_until, NOW), Some(Acquired::Waiting { until, awaited }));
            assert_eq!(asked(retry_at, yield_until, until), None);
        }
    }
}
