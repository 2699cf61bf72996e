//! Refusals: an operation's own first try whose reply was lost, compared with
//! similar rows that another writer left.

use super::{
    settle::tests::{LENGTH, NOW, acquire, applied, granted, landed, nonce},
    *,
};
use crate::{
    protocol::{
        attempt::{FailureClass, Retries},
        entity::{EntityKey, Sequence},
        format::attribute as a,
        keys::delivery_row,
        lease::{Acquire, HandOver, Lease, lease_removed},
        memory::evaluate,
        operation::Operation,
        receipt::{Receipt, Recent},
        state::{BlockReason, EntityState, EventTimes, LeaseKind, OVERDUE},
        table::{Change, Row, Transacted, Written},
    },
    time::Timestamp,
};
use std::time::Duration;

fn entity() -> EntityKey {
    EntityKey::parse("shop/order/1").expect("it is a key")
}

fn state(row: &Row) -> EntityState {
    EntityState::parse(row).expect("it can be read")
}

/// A free entity with this many deliveries.
fn claimed(claims: u64) -> Row {
    let (entity, mut row) = (entity(), None);
    for number in 0..claims {
        landed(&Claim { entity: &entity, nonce: &nonce(number), now: NOW }, &mut row);
    }
    row.expect("a row")
}

/// The same with a lease.
fn held(kind: LeaseKind, claims: u64) -> (Lease, EntityState, Row) {
    let mut row = Some(claimed(claims));
    let (lease, state) = granted(landed(&Acquire { kind, ..acquire(&entity(), 10) }, &mut row));
    (lease, state, row.expect("a row"))
}

/// The decision that the delivery in front is applied.
fn decision(state: &EntityState, lease: &Lease) -> Decision {
    Decision {
        first: state.next(),
        recent: state.recent.with(applied(state, lease), LENGTH),
        dropped: Vec::new(),
        newest_event_time: EventTimes::default(),
        pending_since: None,
        not_before: None,
        ends_one_by_one: false,
        carried: Retries::default(),
    }
}

fn fail<'a>(lease: &'a Lease, seen: &EntityState, attempts: u32, retries: Retries) -> Fail<'a> {
    let (sequence, retry_at) = (seen.next(), Some(NOW + LENGTH));
    let (suspected, one_by_one, error) = (false, None, "out of order");
    Fail { lease, sequence, attempts, retries, suspected, one_by_one, retry_at, error }
}

fn after(operation: &impl Operation, row: &Row) -> Row {
    evaluate(&operation.write(), Some(row)).expect("it lands").expect("a row")
}

fn refused<O: Operation>(operation: &O, row: &Row) -> O::Outcome {
    operation.judge(Written::Refused(Some(row.clone()))).expect("it can be read")
}

/// Returns the row with a number increased.
fn further(row: &Row, name: &'static str, by: u64) -> Row {
    let number = row.number(name).expect("a number");
    row.clone().with(name, number + by)
}

/// Returns the row without its lease.
fn freed(row: &Row) -> Row {
    let mut row = row.clone();
    for change in lease_removed() {
        let Change::Remove(name) = change else { panic!("{change:?}") };
        row.remove(&name);
    }
    row
}

#[test]
fn claim_owes_no_wake_up_before_a_retry() {
    let state = state(&claimed(1));
    let owes = |last_error: Option<&str>, retry_at| {
        let last_error = last_error.map(str::to_owned);
        owes_wake_up(&EntityState { last_error, retry_at, ..state.clone() }, NOW)
    };
    let failed = Some("out of order");
    assert!(owes(None, None) && owes(failed, None));
    assert!(!owes(failed, Some(NOW + LENGTH)), "its wake-up comes then");
    assert!(owes(failed, Some(NOW)) && owes(failed, Some(Timestamp::from_millis(1))), "its time has come");
    assert!(owes(None, Some(NOW + LENGTH)), "a rate's wait has no wake-up of its own");
}

#[test]
fn claim_owes_a_wake_up_behind_an_overdue_hand_over() {
    let (lease, _, row) = held(LeaseKind::Drain, 1);
    let due = NOW + LENGTH;
    let handed_over = state(&after(&HandOver { lease: &lease, suspected: false, due }, &row));
    let owes = |now| owes_wake_up(&handed_over, now);
    let moment = Duration::from_millis(1);
    assert!(!owes(NOW) && !owes(due) && !owes(NOW + (LENGTH + OVERDUE - moment)));
    assert!(owes(due + OVERDUE), "its wake-up may be lost");
}

#[test]
fn only_the_retry_wake_up_counts_behind_a_fail() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let fail = fail(&lease, &seen, 0, Retries::default().after(FailureClass::Unavailable, LENGTH));
    let failed = state(&after(&fail, &row));
    assert_eq!((failed.handover, failed.retry_at, failed.attempts), (fail.retry_at, fail.retry_at, 0));
    assert_eq!(failed.retries.waited(FailureClass::Unavailable), LENGTH);
    assert!(!owes_wake_up(&failed, NOW) && !owes_wake_up(&failed, NOW + LENGTH), "a claim relies on it");
    let blocked = state(&after(&Fail { retry_at: None, ..fail }, &row));
    assert_eq!((blocked.handover, blocked.blocked), (None, Some(BlockReason::Attempts)));
}

#[test]
fn fail_restarts_the_count_of_vanished_holders() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let suspect = row.with(a::SUSPECT, 7_u32);
    let fail = fail(&lease, &seen, 0, Retries::default());
    assert_eq!(state(&after(&fail, &suspect)).suspect, 7);
    assert_eq!(state(&after(&Fail { suspected: true, ..fail }, &suspect)).suspect, 1);
}

/// The exception is a settle that parks for an unavailable destination.
#[test]
fn settle_clears_the_retries_unless_they_are_carried() {
    let (lease, seen, row) = held(LeaseKind::Drain, 2);
    let retries = Retries::default().after(FailureClass::Failed, LENGTH).after(FailureClass::Unavailable, LENGTH);
    let row = row.with(a::RETRIES, retries.to_stored().unwrap()).with(a::LAST_ERROR, "out of order");
    let settled = |carried| {
        let decision = Decision { carried, ..decision(&seen, &lease) };
        let settle = Settle { lease: &lease, decision: &decision, now: NOW, length: LENGTH, hands_over: false };
        let after = state(&after(&settle, &row));
        assert_eq!(settle.applied(&state(&row)), after);
        (after.retries, after.last_error.is_some())
    };
    assert_eq!(settled(Retries::default()), (Retries::default(), false));
    assert_eq!(settled(retries.carried()), (retries.carried(), true));
    let seen = state(&row.clone().with(a::TAIL, seen.next().0));
    let decision = Decision { carried: retries.carried(), ..decision(&seen, &lease) };
    let last = SettleAndRelease { lease: &lease, decision: &decision, purge_at: None };
    let left = state(&after(&last, &row.with(a::TAIL, seen.next().0)));
    assert_eq!((left.retries, left.last_error), (Retries::default(), None));
}

#[test]
fn retries_count_only_beside_an_error() {
    let retries = Retries::default().after(FailureClass::Failed, LENGTH);
    let row = claimed(1).with(a::RETRIES, retries.to_stored().unwrap());
    assert_eq!(state(&row).retries, Retries::default());
    assert_eq!(state(&row.with(a::LAST_ERROR, "out of order")).retries, retries);
}

#[test]
fn sequence_with_any_tombstone_is_void() {
    let entity = entity();
    let void = Void { entity: &entity, sequence: Sequence(7), purge_at: NOW };
    let marker = evaluate(&void.write(), None).expect("it lands").expect("a row");
    assert_eq!(refused(&void, &marker), Voided::Void);
    let filled = delivery_row(&entity, Sequence(7)).to_row().with(a::NONCE, nonce(1).as_str());
    assert_eq!(refused(&void, &filled), Voided::Filled(filled));
}

#[test]
fn lost_last_settle_is_recognised_by_the_settled_delivery() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let decision = decision(&seen, &lease);
    let last = SettleAndRelease { lease: &lease, decision: &decision, purge_at: None };
    let own = after(&last, &row);
    assert_eq!(refused(&last, &own), SettledAndReleased::Released);
    let forced = further(&freed(&row), a::TOKEN, 1);
    assert_eq!(refused(&last, &forced), SettledAndReleased::Lost, "the same token, and nothing settled");
    let mut next = Some(own);
    landed(&Claim { entity: &entity(), nonce: &nonce(2), now: NOW }, &mut next);
    landed(&acquire(&entity(), 11), &mut next);
    assert_eq!(refused(&last, &next.expect("a row")), SettledAndReleased::Lost, "settled, and another's");

    let longer = further(&row, a::TAIL, 1);
    let on_hold = row.clone().with(a::HOLD, 7_u32);
    for row in [longer, on_hold] {
        assert_eq!(refused(&last, &row), SettledAndReleased::Grown(state(&row)));
        assert_eq!(refused(&last, &further(&row, a::TOKEN, 1)), SettledAndReleased::Lost);
    }
    assert_eq!(refused(&last, &row), SettledAndReleased::Lost, "there is nothing to go on for");
}

#[test]
fn commit_is_repeated_only_for_a_new_hold() {
    let (lease, seen, row) = held(LeaseKind::Drain, 3);
    let decision = decision(&seen, &lease);
    let settle = Settle { lease: &lease, decision: &decision, now: NOW, length: LENGTH, hands_over: false };
    let own = after(&settle, &row);
    let commit = Commit { settling: Settling::GoesOn(settle), writes: &[], is_on_hold: false };
    let met = |row: &Row| commit.judge(Transacted::Refused(vec![Some(Some(row.clone()))])).expect("it can be read");
    let on_hold = row.clone().with(a::HOLD, 7_u32);
    assert_eq!(met(&on_hold), Committed::Grown(state(&on_hold)));
    assert_eq!(met(&own), Committed::Landed(lease.settled()), "a first try landed");
    assert_eq!(met(&further(&on_hold, a::TOKEN, 1)), Committed::Lost, "another has the lease");
    assert_eq!(met(&further(&on_hold, a::HEAD, 2)), Committed::Lost, "it is decided");
    assert_eq!(met(&freed(&on_hold)), Committed::Lost, "the lease has ended");
    assert_eq!(met(&row), Committed::Lost, "it would be refused for the same reason again");
    assert_eq!(commit.judge(Transacted::Refused(vec![None])), Ok(Committed::Refused));
}

#[test]
fn lost_fail_is_recognised_by_token_and_attempts() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let retries = Retries::default().after(FailureClass::Failed, LENGTH);
    let fail = fail(&lease, &seen, 2, retries);
    let own = after(&fail, &row);
    assert_eq!(refused(&fail, &own), Failed::Counted);
    assert_eq!(refused(&fail, &own.clone().with(a::ATTEMPTS, 1_u32)), Failed::Lost, "they are not counted");
    let waited = retries.after(FailureClass::Failed, LENGTH).to_stored().unwrap();
    assert_eq!(refused(&fail, &own.clone().with(a::RETRIES, waited)), Failed::Lost, "nor its wait");
    let hand_over = HandOver { lease: &lease, suspected: false, due: NOW };
    assert_eq!(refused(&fail, &after(&hand_over, &row)), Failed::Lost);
    assert_eq!(refused(&fail, &further(&own, a::TOKEN, 1)), Failed::Lost, "as many, of another holder");
    assert_eq!(refused(&fail, &row.with(a::ATTEMPTS, 2_u32)), Failed::Lost, "the lease goes on");
}

#[test]
fn lost_block_is_recognised_by_token_and_reason() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let block = Block { lease: &lease, sequence: seen.next(), reason: BlockReason::Expired };
    let own = after(&block, &row);
    assert_eq!(refused(&block, &own), Failed::Counted);
    let otherwise = own.clone().with(a::BLOCKED, BlockReason::Vanished.as_str());
    assert_eq!(refused(&block, &otherwise), Failed::Lost);
    assert_eq!(refused(&block, &freed(&row)), Failed::Lost, "it is not blocked");
    assert_eq!(refused(&block, &further(&own, a::TOKEN, 1)), Failed::Lost, "by another holder");
}

#[test]
fn lost_retry_is_recognised_by_the_ended_wait() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let waiting = after(&fail(&lease, &seen, 1, Retries::default()), &row);
    let seen = state(&waiting);
    let retry = RetryNow { seen: &seen };
    let own = after(&retry, &waiting);
    assert_eq!(refused(&retry, &own), Retrying::Now(state(&own)));
    for other in [further(&own, a::TOKEN, 1), further(&waiting, a::RETRY_AT, 1), further(&waiting, a::TOKEN, 1)] {
        assert_eq!(refused(&retry, &other), Retrying::Changed(Some(state(&other))));
    }
    assert_eq!(retry.judge(Written::Refused(None)), Ok(Retrying::Changed(None)));
}

#[test]
fn lost_rewind_is_recognised_by_holder_and_head() {
    let (lease, _, row) = held(LeaseKind::Exclusive, 3);
    let settled = further(&row, a::HEAD, 3);
    let seen = state(&settled);
    let rewind = Rewind { lease: &lease, seen: &seen, from: seen.head.previous(), since: NOW };
    let own = after(&rewind, &settled);
    assert_eq!(refused(&rewind, &own), Rewound::Rewound(state(&own)));
    assert_eq!(refused(&rewind, &further(&own, a::HEAD, 1)), Rewound::Lost, "in front of another place");
    assert_eq!(refused(&rewind, &further(&own, a::TOKEN, 1)), Rewound::Lost, "somebody goes on from there");
    assert_eq!(refused(&rewind, &freed(&own)), Rewound::Lost, "the lease has ended");
}

#[test]
fn lost_skip_is_recognised_by_its_receipt() {
    let (lease, seen, row) = held(LeaseKind::Exclusive, 3);
    let decision = decision(&seen, &lease);
    let skip = Skip { lease: &lease, decision: &decision, seen: &seen, now: NOW, purge_at: None };
    let own = after(&skip, &row);
    assert_eq!(refused(&skip, &own), Skipped::Skipped);
    assert_eq!(refused(&skip, &further(&own, a::TOKEN, 3)), Skipped::Skipped, "whatever has happened since");
    let receipt = Receipt { token: lease.token.next(), ..applied(&seen, &lease) };
    let of_another = Recent::default().with(receipt, LENGTH).to_stored().expect("there is one");
    assert_eq!(refused(&skip, &own.with(a::RECENT, of_another)), Skipped::Lost, "somebody else decided it");

    let grown = further(&row, a::TAIL, 1);
    assert_eq!(refused(&skip, &grown), Skipped::Changed(state(&grown)));
    for other in [further(&grown, a::TOKEN, 1), further(&grown, a::HEAD, 1), freed(&grown)] {
        assert_eq!(refused(&skip, &other), Skipped::Lost);
    }
}
