//! Decides what a waiter for an exclusive lease does next. Uses neither I/O nor a clock.

use crate::{
    protocol::{
        lease::{Acquired, Lease, deliveries_turn, yields_until},
        state::{EntityState, Held, LeaseKind},
    },
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitStep {
    Granted(Lease, EntityState),
    TakeOver(EntityState),
    Await {
        seen: EntityState,
        held: Held,
        /// Set if the waiter must first send a request to yield to the worker that has the lease.
        asks: bool,
    },
    /// Wait until this time, then read the row. The entity is free, but until then its waiting
    /// deliveries go first.
    AwaitTurn(Timestamp),
    Request,
}

/// Returns the waiter's next step after `answer`, which was received at `now`.
///
/// `asked` is the time at which the waiter's last request to yield expires, if it sent one.
pub fn wait_step(answer: Acquired, now: Timestamp, asked: Option<Timestamp>) -> WaitStep {
    match answer {
        Acquired::Granted(lease, state) => WaitStep::Granted(lease, state),
        Acquired::Held(seen) => match seen.held.clone() {
            Some(held) if held.runs(now) => {
                let is_asked = asked.is_some_and(|until| until > now) || yields_until(&seen, now).is_some();
                let asks = held.kind == LeaseKind::Drain && !is_asked;
                WaitStep::Await { seen, held, asks }
            }
            _ => WaitStep::TakeOver(seen),
        },
        Acquired::Waiting { until, .. } if until > now => WaitStep::AwaitTurn(until),
        // The entity was free when its row was read.
        Acquired::Empty | Acquired::Stopped | Acquired::Waiting { .. } => WaitStep::Request,
    }
}

/// Returns the answer that a request for the lease would get, judging by the row.
///
/// If the lease looks free, the answer is [`Acquired::Empty`].
pub fn seen_row(row: Option<EntityState>, now: Timestamp) -> Acquired {
    match row {
        Some(state) if state.held.is_some() => Acquired::Held(state),
        row => match row.and_then(|state| deliveries_turn(&state, now)) {
            Some(until) => Acquired::Waiting { until, awaited: None },
            None => Acquired::Empty,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        protocol::{
            entity::EntityKey,
            format::{FORMAT, attribute as a},
            table::Row,
        },
        time::Nonce,
    };

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn held(kind: LeaseKind, expires: Timestamp) -> EntityState {
        let key = EntityKey::parse("invoice_gen/SUB-1").unwrap();
        let row = Row::new()
            .with(a::ENTITY, key.as_str())
            .with(a::VERSION, FORMAT)
            .with(a::HEAD, 7_u64)
            .with(a::TAIL, 7_u64)
            .with(a::TOKEN, 70_u64)
            .with(a::HOLDER, Nonce::from_parts(NOW, 1).as_str())
            .with(a::KIND, kind.as_str())
            .with(a::EXPIRES_AT, expires.as_millis());
        EntityState::parse(&row).unwrap()
    }

    fn asks(state: EntityState, asked: Option<Timestamp>) -> bool {
        match wait_step(Acquired::Held(state), NOW, asked) {
            WaitStep::Await { asks, .. } => asks,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn drain_is_asked_to_yield_unless_already_asked() {
        let drained = || held(LeaseKind::Drain, NOW + SECOND);
        assert!(asks(drained(), None));
        assert!(asks(drained(), Some(NOW)));
        assert!(!asks(drained(), Some(NOW + SECOND)));
        assert!(!asks(EntityState { yield_until: Some(NOW + SECOND), ..drained() }, None));
        assert!(asks(EntityState { yield_until: Some(NOW), ..drained() }, None));
        assert!(asks(EntityState { yield_until: Some(NOW + 3600 * SECOND), ..drained() }, None));
        assert!(!asks(held(LeaseKind::Exclusive, NOW + SECOND), None));
    }

    #[test]
    fn expired_lease_of_any_kind_is_taken_over() {
        for kind in [LeaseKind::Drain, LeaseKind::Exclusive] {
            let seen = held(kind, NOW);
            assert_eq!(wait_step(Acquired::Held(seen.clone()), NOW, None), WaitStep::TakeOver(seen));
        }
    }

    #[test]
    fn caller_requests_lease_after_time_reserved_for_deliveries() {
        let waiting = |until| Acquired::Waiting { until, awaited: None };
        assert_eq!(wait_step(waiting(NOW + SECOND), NOW, None), WaitStep::AwaitTurn(NOW + SECOND));
        for free in [waiting(NOW), Acquired::Empty, Acquired::Stopped] {
            assert_eq!(wait_step(free, NOW, None), WaitStep::Request);
        }
    }

    #[test]
    fn lease_waiter_reads_lease_and_time_reserved_for_deliveries() {
        let seen = held(LeaseKind::Drain, NOW);
        assert_eq!(seen_row(Some(seen.clone()), NOW), Acquired::Held(seen.clone()));
        let free = EntityState { held: None, ..seen };
        assert_eq!(seen_row(Some(free.clone()), NOW), Acquired::Empty);
        assert_eq!(seen_row(None, NOW), Acquired::Empty);
        let turn = EntityState { turn_until: Some(NOW + SECOND), ..free };
        assert_eq!(seen_row(Some(turn), NOW), Acquired::Waiting { until: NOW + SECOND, awaited: None });
    }
}
