//! Tests of how a drain begins, and of what happens to its wake-up.

use super::*;
use crate::{
    engine::outages::OutageWait,
    protocol::{
        entity::EntityKey,
        format::{FORMAT, attribute as a},
        outage::DestinationId,
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

fn answered(answer: Acquired, left: Duration, look: Option<Duration>) -> AcquireStep {
    acquire_step(answer, NOW, left, look, SECOND)
}

#[test]
fn entity_empty_or_blocked_or_on_hold_or_released_needs_no_drain() {
    assert_eq!(answered(Acquired::Empty, AMPLE, None), AcquireStep::NothingToDo);
    assert_eq!(answered(Acquired::Stopped, AMPLE, None), AcquireStep::NothingToDo);
    let free = EntityState { held: None, ..held(LeaseKind::Drain, NOW) };
    assert_eq!(answered(Acquired::Held(free), AMPLE, None), AcquireStep::NothingToDo);
}

#[test]
fn worker_sleeps_through_short_waits_if_time_is_left() {
    let waits = |wait, awaited, left| answered(Acquired::Waiting { until: NOW + wait, awaited }, left, None);
    let moment = Duration::from_millis(1);
    assert_eq!(waits(SECOND, None, AMPLE), AcquireStep::AskAfter(SECOND));
    assert_eq!(waits(SECOND, None, SECOND + MARGIN), AcquireStep::AskAfter(SECOND));
    assert_eq!(waits(SECOND, None, SECOND + MARGIN - moment), AcquireStep::Requeue(SECOND, RequeueReason::Retry));
    assert_eq!(waits(SECOND + moment, None, AMPLE), AcquireStep::Requeue(SECOND + moment, RequeueReason::Retry));
    let token = FencingToken(70);
    assert_eq!(waits(2 * SECOND, Some(token), AMPLE), AcquireStep::Awaits(token, 2 * SECOND));
}

#[test]
fn expired_drain_lease_makes_waiting_delivery_suspect() {
    let attempts = |state: EntityState| match answered(Acquired::Held(state.clone()), AMPLE, None) {
        AcquireStep::TakeOver { seen, attempts } => {
            assert_eq!(seen, state);
            attempts
        }
        other => panic!("{other:?}"),
    };
    let drained = EntityState { attempts: 2, suspect: 1, ..held(LeaseKind::Drain, NOW) };
    assert_eq!(attempts(drained.clone()), Some(3));
    let tail = drained.head;
    assert_eq!(attempts(EntityState { tail, ..drained }), None);
    assert_eq!(attempts(held(LeaseKind::Exclusive, NOW)), None);
}

#[test]
fn wake_up_during_unexpired_lease_is_requeued_until_expiry() {
    let runs = |left: Duration| answered(Acquired::Held(held(LeaseKind::Drain, NOW + left)), AMPLE, None);
    assert_eq!(runs(9 * SECOND), AcquireStep::Requeue(9 * SECOND, RequeueReason::Drained));
    // The delay is at least `SHORT_WAIT`.
    assert_eq!(runs(Duration::from_millis(1)), AcquireStep::Requeue(SHORT_WAIT, RequeueReason::Drained));
}

#[test]
fn wake_up_follows_exclusive_lease_after_its_age() {
    let look = Some(Duration::from_millis(50));
    for (age, left, delay) in [(0, 15, 1), (1, 15, 1), (4, 13, 4), (60, 11, 11), (3600, 1, 1)] {
        let now = NOW + age * SECOND;
        let seen = held(LeaseKind::Exclusive, now + left * SECOND);
        let token = seen.token;
        let step = |seen| acquire_step(Acquired::Held(seen), now, AMPLE, look, SECOND);
        let follow = |is_followed| AcquireStep::Follow { token, delay: delay * SECOND, is_followed, retry_at: None };
        assert_eq!(step(seen.clone()), follow(false), "{age} {left}");
        let followed = EntityState { handover: Some(now), ..seen.clone() };
        assert_eq!(step(followed), follow(true), "{age} {left}");
        let overdue = EntityState { handover: Some(Timestamp::from_millis(1)), ..seen };
        assert_eq!(step(overdue), follow(false), "{age} {left}");
    }
}

#[test]
fn row_is_polled_only_while_drain_hands_over() {
    let look = Duration::from_millis(50);
    let marked = |left| EntityState { handover: Some(NOW), ..held(LeaseKind::Drain, NOW + left) };
    let looks = |state, left| answered(Acquired::Held(state), left, Some(look));
    assert_eq!(looks(marked(LEASE), AMPLE), AcquireStep::LookWithin(look));
    let unmarked = looks(held(LeaseKind::Drain, NOW + LEASE), AMPLE);
    assert_eq!(unmarked, AcquireStep::Requeue(LEASE, RequeueReason::Drained));
    let requeue = AcquireStep::Requeue(SHORT_WAIT, RequeueReason::Drained);
    assert_eq!(looks(marked(LEASE), MARGIN + look), AcquireStep::LookWithin(look));
    assert_eq!(looks(marked(LEASE), MARGIN + look - Duration::from_millis(1)), requeue);
    assert_eq!(answered(Acquired::Held(marked(LEASE)), AMPLE, None), requeue);
    // The wait ends when the lease expires.
    let short = Duration::from_millis(20);
    assert_eq!(looks(marked(short), AMPLE), AcquireStep::LookWithin(short));
}

#[test]
fn acquire_is_refused_if_row_missing_or_leased() {
    assert_eq!(refusal(None), Some(Acquired::Empty));
    let state = held(LeaseKind::Drain, NOW);
    assert_eq!(refusal(Some(state.clone())), Some(Acquired::Held(state.clone())));
    assert_eq!(refusal(Some(EntityState { held: None, ..state })), None);
}

#[test]
fn drain_result_deletes_replaces_or_keeps_wake_up() {
    let wake_up = |token| WakeUp { token, gap: Some(8), ..WakeUp::of(&entity()) };
    let of = |token, is_replaced, drained| disposition(&wake_up(token), is_replaced, drained, LEASE);
    let reason = RequeueReason::Held;
    let not_now = Drained::Requeue(SECOND, reason);
    let awaits = Drained::Awaits(FencingToken(70), SECOND);
    assert_eq!(of(None, false, Drained::Ended), Disposition::Delete);
    assert_eq!(of(None, true, Drained::Ended), Disposition::Delete);
    for token in [None, Some(3)] {
        assert_eq!(of(token, false, not_now), Disposition::Replace(wake_up(token), SECOND, reason));
        assert_eq!(of(token, false, Drained::Lost), Disposition::Replace(wake_up(token), LEASE, RequeueReason::Lost));
        assert_eq!(of(token, false, Drained::Failed), Disposition::Keep);
        let follows =
            |is_followed| Drained::Follows { token: FencingToken(70), delay: SECOND, is_followed, retry_at: None };
        let followed = follows(true);
        let follows = follows(false);
        let follower = WakeUp::under(&entity(), FencingToken(70));
        assert_eq!(of(token, false, follows), Disposition::Replace(follower, SECOND, reason));
        let expected = match token {
            None => Disposition::Replace(WakeUp::under(&entity(), FencingToken(70)), SECOND, reason),
            Some(_) => Disposition::Delete,
        };
        assert_eq!(of(token, false, followed), expected);
        for drained in [not_now, awaits, follows, Drained::Lost, Drained::Failed] {
            assert_eq!(of(token, true, drained), Disposition::Delete);
        }
        let delay = Duration::ZERO;
        let reason = RequeueReason::Suspect;
        let soon = Disposition::Replace(wake_up(token), delay, reason);
        assert_eq!(of(token, true, Drained::Requeue(delay, reason)), soon);
    }
}

#[test]
fn wake_up_with_outdated_token_is_deleted() {
    let of = |token| {
        let wake_up = WakeUp { token, ..WakeUp::of(&entity()) };
        disposition(&wake_up, false, Drained::Awaits(FencingToken(70), SECOND), LEASE)
    };
    let awaited = Disposition::Replace(WakeUp::under(&entity(), FencingToken(70)), SECOND, RequeueReason::Retry);
    assert_eq!(of(Some(69)), Disposition::Delete);
    assert_eq!(of(Some(70)), awaited);
    assert_eq!(of(None), awaited);
}

#[test]
fn wake_up_that_follows_a_lease_names_the_outage_of_the_wait() {
    let until = NOW + 60 * SECOND;
    let outage = OutageWait { destination: DestinationId::of("handler", "shop"), until, is_counted: true };
    let received = WakeUp { outage: Some(outage), ..WakeUp::under(&entity(), FencingToken(3)) };
    let of = |is_followed, retry_at| {
        let follows = Drained::Follows { token: FencingToken(70), delay: SECOND, is_followed, retry_at };
        disposition(&received, false, follows, LEASE)
    };
    for is_followed in [false, true] {
        let follower = WakeUp { token: Some(70), ..received.clone() };
        assert_eq!(of(is_followed, Some(until)), Disposition::Replace(follower, SECOND, RequeueReason::Held));
    }
    for retry_at in [None, Some(NOW)] {
        let follower = WakeUp::under(&entity(), FencingToken(70));
        assert_eq!(of(false, retry_at), Disposition::Replace(follower, SECOND, RequeueReason::Held));
        assert_eq!(of(true, retry_at), Disposition::Delete);
    }
}
