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
const AMPLE: Duration = Duration::from_secs(100);
const LEASE: Duration = Duration::from_secs(15);

fn entity() -> EntityKey {
    EntityKey::parse("shop/order/1").unwrap()
}

/// A row with two deliveries waiting, held until `expires`.
fn held(kind: LeaseKind, expires: Timestamp) -> EntityState {
    let row = Row::new()
        .with(a::ENTITY, entity().as_str())
        .with(a::VERSION, FORMAT)
        .with(a::HEAD, 7_u64)
        .with(a::TAIL, 9_u64)
        .with(a::TOKEN, 70_u64)
        .with(a::HOLDER, Nonce::from_parts(NOW, 1).as_str())
        .with(a::KIND, kind.as_str())
        .with(a::EXPIRES_AT, expires.as_millis());
    EntityState::parse(&row).unwrap()
}

fn answered(answer: Acquired, left: Duration, look: Option<Duration>) -> Begin {
    begin(answer, NOW, left, look)
}

#[test]
fn an_entity_on_which_no_drain_is_wanted_is_left() {
    assert_eq!(answered(Acquired::Empty, AMPLE, None), Begin::NothingToDo);
    assert_eq!(answered(Acquired::Stopped, AMPLE, None), Begin::NothingToDo);
    let free = EntityState { held: None, ..held(LeaseKind::Drain, NOW) };
    assert_eq!(answered(Acquired::Held(free), AMPLE, None), Begin::NothingToDo);
}

#[test]
fn a_wait_of_a_second_is_waited_out_where_there_is_time() {
    let waits = |wait, awaited, left| answered(Acquired::Waiting { until: NOW + wait, awaited }, left, None);
    let moment = Duration::from_millis(1);
    assert_eq!(waits(SECOND, None, AMPLE), Begin::AskAfter(SECOND));
    assert_eq!(waits(SECOND, None, SECOND + MARGIN), Begin::AskAfter(SECOND));
    assert_eq!(waits(SECOND, None, SECOND + MARGIN - moment), Begin::NotNow(SECOND, RequeueReason::Retry));
    assert_eq!(waits(SECOND + moment, None, AMPLE), Begin::NotNow(SECOND + moment, RequeueReason::Retry));
    let token = FencingToken(70);
    assert_eq!(waits(2 * SECOND, Some(token), AMPLE), Begin::Awaits(token, 2 * SECOND));
}

#[test]
fn a_lease_that_has_run_out_is_taken_over_and_what_a_drain_left_is_suspect() {
    let charged = |state: EntityState| match answered(Acquired::Held(state.clone()), AMPLE, None) {
        Begin::TakeOver { seen, charged } => {
            assert_eq!(seen, state);
            charged
        }
        other => panic!("{other:?}"),
    };
    let drained = EntityState { attempts: 2, suspect: 1, ..held(LeaseKind::Drain, NOW) };
    assert_eq!(charged(drained.clone()), Some(3));
    let tail = drained.head;
    assert_eq!(charged(EntityState { tail, ..drained }), None);
    assert_eq!(charged(held(LeaseKind::Exclusive, NOW)), None);
}

#[test]
fn a_lease_that_runs_puts_the_wake_up_off_until_it_would_have_run_out() {
    let runs = |kind, left: Duration| answered(Acquired::Held(held(kind, NOW + left)), AMPLE, None);
    assert_eq!(runs(LeaseKind::Drain, 9 * SECOND), Begin::NotNow(9 * SECOND, RequeueReason::Drained));
    assert_eq!(runs(LeaseKind::Exclusive, 9 * SECOND), Begin::NotNow(9 * SECOND, RequeueReason::Held));
    // Not so soon that it would only meet the same lease again.
    assert_eq!(runs(LeaseKind::Drain, Duration::from_millis(1)), Begin::NotNow(SHORT, RequeueReason::Drained));
}

#[test]
fn an_exclusive_holder_and_one_that_lets_go_are_waited_for_and_a_drain_at_work_is_not() {
    let look = Some(Duration::from_millis(50));
    let looks = |state: EntityState, left| answered(Acquired::Held(state), left, look);
    let exclusive = || held(LeaseKind::Exclusive, NOW + LEASE);
    let soon = Begin::LookWithin(Duration::from_millis(50));
    assert_eq!(looks(exclusive(), AMPLE), soon);
    assert_eq!(looks(EntityState { handover: Some(NOW), ..held(LeaseKind::Drain, NOW + LEASE) }, AMPLE), soon);
    assert!(matches!(looks(held(LeaseKind::Drain, NOW + LEASE), AMPLE), Begin::NotNow(_, RequeueReason::Drained)));
    let enough = MARGIN + Duration::from_millis(50);
    assert_eq!(looks(exclusive(), enough), soon);
    assert!(matches!(looks(exclusive(), enough - Duration::from_millis(1)), Begin::NotNow(_, RequeueReason::Held)));
    // No longer than its lease runs.
    let short = Duration::from_millis(20);
    assert_eq!(looks(held(LeaseKind::Exclusive, NOW + short), AMPLE), Begin::LookWithin(short));
}

#[test]
fn a_look_that_finds_it_free_asks_for_it() {
    assert_eq!(looked(None), Some(Acquired::Empty));
    let state = held(LeaseKind::Drain, NOW);
    assert_eq!(looked(Some(state.clone())), Some(Acquired::Held(state.clone())));
    assert_eq!(looked(Some(EntityState { held: None, ..state })), None);
}

#[test]
fn a_wake_up_goes_once_its_drain_ended_or_another_is_sure_to_come() {
    let wake_up = |token| WakeUp { entity: entity(), token };
    let of = |token, is_replaced, drained| fate(&wake_up(token), is_replaced, drained, LEASE);
    let reason = RequeueReason::Held;
    let not_now = Drained::NotNow(SECOND, reason);
    let awaits = Drained::Awaits(FencingToken(70), SECOND);
    assert_eq!(of(None, false, Drained::Ended), Fate::Delete);
    assert_eq!(of(None, true, Drained::Ended), Fate::Delete);
    for token in [None, Some(3)] {
        assert_eq!(of(token, false, not_now), Fate::Replace(wake_up(token), SECOND, reason));
        assert_eq!(of(token, false, Drained::Lost), Fate::Replace(wake_up(token), LEASE, RequeueReason::Lost));
        assert_eq!(of(token, false, Drained::Stopped), Fate::Keep);
        // One fresh wake-up was sent for it already.
        for drained in [not_now, awaits, Drained::Lost, Drained::Stopped] {
            assert_eq!(of(token, true, drained), Fate::Delete);
        }
    }
}

#[test]
fn a_wake_up_gives_way_only_to_the_one_that_is_awaited_and_only_where_it_says_that_it_is_another() {
    let of = |token| {
        let wake_up = WakeUp { entity: entity(), token };
        fate(&wake_up, false, Drained::Awaits(FencingToken(70), SECOND), LEASE)
    };
    let awaited = Fate::Replace(WakeUp { entity: entity(), token: Some(70) }, SECOND, RequeueReason::Retry);
    assert_eq!(of(Some(69)), Fate::Delete);
    assert_eq!(of(Some(70)), awaited);
    assert_eq!(of(None), awaited);
}
