//! Tests that an operation tells its own first try, whose reply was lost, from similar rows that
//! another writer left.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    attempt::{FailureClass, Retries},
    entity::Sequence,
    fixtures::{
        LENGTH, NOW, after, applied, claimed, entity, freed, further, granted, held, landed, nonce, refused, request,
        state,
    },
    format::attribute as a,
    keys::delivery_row,
    lease::{HandOver, Lease, RequestYield},
    memory::evaluate,
    operation::Operation,
    receipt::{Receipt, Recent, Spilled},
    state::{BlockReason, CARRIED_OVER, EntityState, EventTimes, LeaseKind, OVERDUE},
    table::{ConditionResult, Row, Transacted, Written},
    time::Timestamp,
    waits::SourceTag,
};

fn decision(state: &EntityState, lease: &Lease) -> Decision {
    Decision {
        first: state.next(),
        recent: state.recent.with(applied(state, lease), LENGTH),
        spilled: state.spilled,
        dropped: Vec::new(),
        newest_event_time: EventTimes::default(),
        pending_since: None,
        not_before: None,
        ends_one_by_one: false,
        carried: Retries::default(),
    }
}

fn fail<'a>(lease: &'a Lease, seen: &EntityState, attempts: u32, retries: Retries) -> Fail<'a> {
    let sequence = seen.next();
    let then = AfterFailure::RetryAt(NOW + LENGTH);
    let suspected = false;
    let one_by_one = None;
    let error = "out of order";
    let source = SourceTag::default();
    Fail { lease, sequence, attempts, retries, suspected, one_by_one, then, error, source }
}

#[test]
fn claim_before_retry_is_due_needs_no_wake_up() {
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
fn claim_after_overdue_hand_over_needs_wake_up() {
    let (lease, _, row) = held(LeaseKind::Drain, 1);
    let due = NOW + LENGTH;
    let handed_over = state(&after(&HandOver { lease: &lease, suspected: false, due, is_pause: false }, &row));
    let owes = |now| owes_wake_up(&handed_over, now);
    let moment = Duration::from_millis(1);
    assert!(!owes(NOW) && !owes(due) && !owes(NOW + (LENGTH + OVERDUE - moment)));
    assert!(owes(due + OVERDUE), "its wake-up may be lost");
}

#[test]
fn claim_after_failed_attempt_needs_no_wake_up() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let fail = fail(&lease, &seen, 0, Retries::default().after(FailureClass::Unavailable, LENGTH));
    let failed = state(&after(&fail, &row));
    assert_eq!((failed.handover, failed.retry_at, failed.attempts), (Some(NOW + LENGTH), Some(NOW + LENGTH), 0));
    assert_eq!(failed.retries.waited(FailureClass::Unavailable), LENGTH);
    assert!(!owes_wake_up(&failed, NOW) && !owes_wake_up(&failed, NOW + LENGTH), "a claim relies on it");
    let blocked = state(&after(&Fail { then: AfterFailure::Block, ..fail }, &row));
    assert_eq!((blocked.handover, blocked.blocked), (None, Some(BlockReason::Attempts)));
}

#[test]
fn failed_start_of_suspect_resets_vanished_holder_count_to_one() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let suspect = row.with(a::SUSPECT, 7_u32);
    let fail = fail(&lease, &seen, 0, Retries::default());
    assert_eq!(state(&after(&fail, &suspect)).suspect, 7);
    assert_eq!(state(&after(&Fail { suspected: true, ..fail }, &suspect)).suspect, 1);
}

/// Retries are carried over if a delivery is parked because its destination was unavailable.
#[test]
fn settle_clears_retries_except_inherited_waiting_time() {
    let (lease, seen, row) = held(LeaseKind::Drain, 2);
    let retries = Retries::default().after(FailureClass::Failed, LENGTH).after(FailureClass::Unavailable, LENGTH);
    let row = row.with(a::RETRIES, retries.to_stored().unwrap()).with(a::LAST_ERROR, "out of order");
    let settled = |carried| {
        let decision = Decision { carried, ..decision(&seen, &lease) };
        let settle = Settle { lease: &lease, decision: &decision, now: NOW, length: LENGTH, hands_over: false };
        let after = state(&after(&settle, &row));
        assert_eq!(settle.applied(&state(&row)), after);
        (after.retries, after.last_error)
    };
    assert_eq!(settled(Retries::default()), (Retries::default(), None));
    assert_eq!(settled(retries.carried()), (retries.carried(), Some(CARRIED_OVER.to_owned())));
    let seen = state(&row.clone().with(a::TAIL, seen.next().0));
    let decision = Decision { carried: retries.carried(), ..decision(&seen, &lease) };
    let last = SettleAndRelease { lease: &lease, decision: &decision, purge_at: None };
    let left = state(&after(&last, &row.with(a::TAIL, seen.next().0)));
    assert_eq!((left.retries, left.last_error), (Retries::default(), None));
}

#[test]
fn retry_counts_without_last_error_are_ignored() {
    let retries = Retries::default().after(FailureClass::Failed, LENGTH);
    let row = claimed(1).with(a::RETRIES, retries.to_stored().unwrap());
    assert_eq!(state(&row).retries, Retries::default());
    assert_eq!(state(&row.with(a::LAST_ERROR, "out of order")).retries, retries);
}

#[test]
fn refused_tombstone_write_finds_tombstone_or_delivery() {
    let entity = entity();
    let void = Void { entity: &entity, sequence: Sequence(7), purge_at: NOW };
    let marker = evaluate(&void.write(), None).expect("it lands").expect("a row");
    assert_eq!(refused(&void, &marker), Voided::Void);
    let filled = delivery_row(&entity, Sequence(7)).to_row().with(a::NONCE, nonce(1).as_str());
    assert_eq!(refused(&void, &filled), Voided::Filled(filled));
}

#[test]
fn head_shows_whether_unanswered_settle_and_release_landed() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let decision = decision(&seen, &lease);
    let last = SettleAndRelease { lease: &lease, decision: &decision, purge_at: None };
    let own = after(&last, &row);
    assert_eq!(refused(&last, &own), SettledAndReleased::Released);
    let forced = further(&freed(&row), a::TOKEN, 1);
    assert_eq!(refused(&last, &forced), SettledAndReleased::Lost, "the same token, and nothing settled");
    let mut next = Some(own);
    landed(&Claim { entity: &entity(), nonce: &nonce(2), now: NOW }, &mut next);
    landed(&request(LeaseKind::Drain, 11, NOW), &mut next);
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
fn refused_commit_is_repeated_only_if_a_hold_began_meanwhile() {
    let (lease, seen, row) = held(LeaseKind::Drain, 3);
    let decision = decision(&seen, &lease);
    let settle = Settle { lease: &lease, decision: &decision, now: NOW, length: LENGTH, hands_over: false };
    let own = after(&settle, &row);
    let commit = Commit { settling: Settling::GoesOn(settle), writes: &[], is_on_hold: false };
    let met = |row: &Row| {
        commit.judge(Transacted::Refused(vec![ConditionResult::Failed(Some(row.clone()))])).expect("it can be read")
    };
    let on_hold = row.clone().with(a::HOLD, 7_u32);
    assert_eq!(met(&on_hold), Committed::Grown(state(&on_hold)));
    assert_eq!(met(&own), Committed::Landed(lease.settled()), "a first try landed");
    assert_eq!(met(&further(&on_hold, a::TOKEN, 1)), Committed::Lost, "another has the lease");
    assert_eq!(met(&further(&on_hold, a::HEAD, 2)), Committed::Lost, "it is decided");
    assert_eq!(met(&freed(&on_hold)), Committed::Lost, "the lease has ended");
    assert_eq!(met(&row), Committed::Lost, "it would be refused for the same reason again");
    assert_eq!(commit.judge(Transacted::Refused(vec![ConditionResult::Held])), Ok(Committed::Refused));
}

#[test]
fn token_and_attempts_show_whether_unanswered_fail_landed() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let retries = Retries::default().after(FailureClass::Failed, LENGTH);
    let fail = fail(&lease, &seen, 2, retries);
    let own = after(&fail, &row);
    assert_eq!(refused(&fail, &own), Failed::Counted);
    assert_eq!(refused(&fail, &own.clone().with(a::ATTEMPTS, 1_u32)), Failed::Lost, "they are not counted");
    let waited = retries.after(FailureClass::Failed, LENGTH).to_stored().unwrap();
    assert_eq!(refused(&fail, &own.clone().with(a::RETRIES, waited)), Failed::Lost, "nor its wait");
    let hand_over = HandOver { lease: &lease, suspected: false, due: NOW, is_pause: false };
    assert_eq!(refused(&fail, &after(&hand_over, &row)), Failed::Lost);
    assert_eq!(refused(&fail, &further(&own, a::TOKEN, 1)), Failed::Lost, "as many, of another holder");
    assert_eq!(refused(&fail, &row.with(a::ATTEMPTS, 2_u32)), Failed::Lost, "the lease goes on");
}

#[test]
fn token_and_reason_show_whether_unanswered_block_landed() {
    let (lease, seen, row) = held(LeaseKind::Drain, 1);
    let block =
        Block { lease: &lease, sequence: seen.next(), reason: BlockReason::Expired, source: SourceTag::default() };
    let own = after(&block, &row);
    assert_eq!(refused(&block, &own), Failed::Counted);
    let otherwise = own.clone().with(a::BLOCKED, BlockReason::Vanished.as_str());
    assert_eq!(refused(&block, &otherwise), Failed::Lost);
    assert_eq!(refused(&block, &freed(&row)), Failed::Lost, "it is not blocked");
    assert_eq!(refused(&block, &further(&own, a::TOKEN, 1)), Failed::Lost, "by another holder");
}

#[test]
fn ended_wait_shows_whether_unanswered_retry_command_landed() {
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
fn holder_and_head_show_whether_unanswered_rewind_landed() {
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
fn receipt_token_shows_whether_unanswered_skip_landed() {
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

proptest! {
    /// A commit relies on the prediction, because its reply does not return the row.
    #[test]
    fn predicted_row_equals_row_after_settle(
        claims in 1_u64..4,
        fails in any::<bool>(),
        asked in any::<bool>(),
        hands_over in any::<bool>(),
        since in any::<Option<u32>>(),
        not_before in any::<Option<u32>>(),
        event in any::<Option<u32>>(),
        spills in any::<bool>(),
        ends_one_by_one in any::<bool>(),
    ) {
        let entity = entity();
        let now = NOW;
        let (mut lease, mut state, row) = held(LeaseKind::Drain, claims);
        let mut row = Some(row);
        if fails {
            let error = "out of order";
            let then = AfterFailure::RetryAt(now);
            let one_by_one = Some(state.tail);
            let sequence = state.next();
            let retries = Retries::default();
            let fail = Fail {
                lease: &lease, sequence, attempts: 1, retries, suspected: false, one_by_one, then, error,
                source: SourceTag::default(),
            };
            landed(&fail, &mut row);
            (lease, state) = granted(landed(&request(LeaseKind::Drain, 11, NOW), &mut row));
            landed(&MarkStart { lease: &lease, sequence: state.next() }, &mut row);
        }
        if asked {
            landed(&RequestYield { entity: &entity, now, until: now + LENGTH }, &mut row);
        }
        if fails || asked {
            state = EntityState::parse(row.as_ref().unwrap()).unwrap();
        }
        let times = EventTimes::default();
        let receipt = applied(&state, &lease);
        let decision = Decision {
            first: state.next(),
            recent: state.recent.with(receipt.clone(), LENGTH),
            dropped: if spills { vec![receipt] } else { Vec::new() },
            spilled: if spills { state.spilled.and(Spilled::PAGES) } else { state.spilled },
            newest_event_time: event.map_or(times.clone(), |at| times.applied("orders", Timestamp::from_millis(at.into()))),
            pending_since: since.map(|at| Timestamp::from_millis(at.into())),
            not_before: not_before.map(|at| Timestamp::from_millis(at.into())),
            ends_one_by_one,
            carried: Retries::default(),
        };
        let settle = Settle { lease: &lease, decision: &decision, now: now + LENGTH / 2, length: LENGTH, hands_over };
        let predicted = settle.applied(&state);
        let Settled::Settled(_, seen) = landed(&settle, &mut row) else { panic!("not settled") };
        prop_assert_eq!(predicted, seen);
    }
}
