//! Two operators who hold or resume an order at once.

use tests::prelude::*;
use webhook_serializer::operator::{Inspected, StateChange};

use super::{Meeting, entity, every_meeting};

fn with_a_reason(operator: &Operator) -> Operator {
    operator.clone().because(Reason::new("ada", "to see it"))
}

async fn skip(operator: &Operator) -> Result<SkipOutcome, OperatorError> {
    let state = operator.inspect(&entity()).await?.state.expect("it has a row");
    operator.skip(&entity(), state.next()).await
}

async fn succeeds(world: &TestWorld) {
    world.work(&[world.drainer(Done)]).await;
}

async fn each_stands_once(world: TestWorld, at: Meeting) {
    world.operator().unblock(&entity()).await.expect("memory answers");
    succeeds(&world).await;
    let parked = world.operator().parked(&entity()).await.expect("memory answers");
    let parked = parked.iter().map(|parked| parked.delivery().delivery_id().as_str().to_owned());
    let mut all: Vec<String> = world.applied();
    assert!(all.is_sorted(), "{at:?}: {all:?}");
    all.extend(parked);
    all.sort();
    assert_eq!(all, ["1", "2"], "{at:?}");
    assert!(world.messages.is_empty());
}

#[tokio::test(start_paused = true)]
async fn concurrent_skips_settle_each_delivery_once() {
    let check = async |world, first: Result<SkipOutcome, _>, second: Result<SkipOutcome, _>, at| {
        assert!(first.is_ok() && second.is_ok(), "{at:?}: {first:?} {second:?}");
        each_stands_once(world, at).await;
    };
    every_meeting(TestWorld::blocked, skip, skip, succeeds, check).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_skip_and_unblock_settle_each_delivery_once() {
    let unblock = async |operator: &Operator| operator.unblock(&entity()).await;
    let check = async |world, skipped: Result<SkipOutcome, _>, unblocked: Result<Unblocked, _>, at| {
        assert!(skipped.is_ok() && unblocked.is_ok(), "{at:?}: {skipped:?} {unblocked:?}");
        each_stands_once(world, at).await;
    };
    every_meeting(TestWorld::blocked, skip, unblock, succeeds, check).await;
    let check = async |world, unblocked: Result<Unblocked, _>, skipped: Result<SkipOutcome, _>, at| {
        assert!(skipped.is_ok() && unblocked.is_ok(), "{at:?}: {skipped:?} {unblocked:?}");
        each_stands_once(world, at).await;
    };
    every_meeting(TestWorld::blocked, unblock, skip, succeeds, check).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_hold_and_resume_leave_no_order_stuck() {
    let waiting = async || {
        let world = TestWorld::new();
        world.operator().hold(&entity()).await.expect("memory answers");
        world.append("test/a", "1").await;
        world
    };
    let hold = async |operator: &Operator| with_a_reason(operator).hold(&entity()).await;
    let resume = async |operator: &Operator| with_a_reason(operator).resume(&entity()).await;
    let check = async |world: TestWorld, first: Result<StateChange, _>, second: Result<StateChange, _>, at: Meeting| {
        assert!(first.is_ok() && second.is_ok(), "{at:?}: {first:?} {second:?}");
        succeeds(&world).await;
        let on_hold = world.state("test/a").await.hold.since().is_some();
        assert!(on_hold || world.applied() == ["1"], "{at:?}: no worker comes");
        world.operator().resume(&entity()).await.expect("memory answers");
        succeeds(&world).await;
        assert_eq!(world.applied(), ["1"], "{at:?}");
    };
    every_meeting(waiting, hold, resume, succeeds, check).await;
    every_meeting(waiting, resume, hold, succeeds, check).await;
    every_meeting(waiting, resume, resume, succeeds, check).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_erase_and_hold_keep_the_row_on_hold() {
    let applied = async || {
        let world = TestWorld::with("test/a", ["1"]).await;
        succeeds(&world).await;
        world
    };
    let hold = async |operator: &Operator| with_a_reason(operator).hold(&entity()).await;
    let erase = async |operator: &Operator| operator.erase(&entity()).await;
    let check = async |world: TestWorld, at: Meeting| {
        let row = world.memory.rows(&TableName::Entities).remove(0);
        assert!(row.number(a::HOLD).is_some(), "{at:?}");
        assert!(row.get(a::PURGE_AT).is_none(), "{at:?}: the hold would be deleted");
    };
    let first = async |world, held: Result<StateChange, _>, erased: Result<Erased, OperatorError>, at: Meeting| {
        assert!(held.is_ok() && matches!(erased, Ok(_) | Err(OperatorError::InUse)), "{at:?}: {held:?} {erased:?}");
        check(world, at).await;
    };
    every_meeting(applied, hold, erase, succeeds, first).await;
    let second = async |world, erased: Result<Erased, OperatorError>, held: Result<StateChange, _>, at: Meeting| {
        assert!(held.is_ok() && matches!(erased, Ok(_) | Err(OperatorError::InUse)), "{at:?}: {held:?} {erased:?}");
        check(world, at).await;
    };
    every_meeting(applied, erase, hold, succeeds, second).await;
}

#[tokio::test(start_paused = true)]
async fn claim_during_resume_keeps_row_from_expiring() {
    let on_hold = async || {
        let world = TestWorld::new();
        world.operator().hold(&entity()).await.expect("memory answers");
        world
    };
    let resume = async |operator: &Operator| with_a_reason(operator).resume(&entity()).await;
    let look = async |operator: &Operator| operator.inspect(&entity()).await;
    let claim = async |world: &TestWorld| {
        world.append("test/a", "1").await;
    };
    let check =
        async |world: TestWorld, resumed: Result<StateChange, OperatorError>, _: Result<Inspected, _>, at: Meeting| {
            assert!(resumed.is_ok(), "{at:?}: {resumed:?}");
            let row = world.memory.rows(&TableName::Entities).remove(0);
            assert!(row.get(a::PURGE_AT).is_none(), "{at:?}: something waits there");
            succeeds(&world).await;
            assert_eq!(world.applied(), ["1"], "{at:?}");
        };
    every_meeting(on_hold, resume, look, claim, check).await;
}
