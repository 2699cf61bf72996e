//! Unblocking an order, alone and beside other operators.

use tests::prelude::*;

use super::{DAY, every_meeting, stopping};

#[tokio::test(start_paused = true)]
async fn concurrent_unblocks_leave_no_order_stuck() {
    let fails_again = async |world: &TestWorld| world.work(&[world.drainer(failing())]).await;
    let unblock = async |operator: &Operator| operator.unblock(&entity()).await;
    every_meeting(TestWorld::blocked, unblock, unblock, fails_again, async |world, first, second, at| {
        assert!(first.is_ok() && second.is_ok(), "{at:?}: {first:?} {second:?}");
        world.work(&[world.drainer(Done)]).await;
        let state = world.state("test/a").await;
        assert!(state.is_empty() || state.blocked.is_some(), "{at:?}: no worker comes: {state:?}");
        world.operator().unblock(&entity()).await.expect("it is unblocked");
        world.work(&[world.drainer(Done)]).await;
        assert_eq!(world.applied(), ["1", "2"], "{at:?}");
    })
    .await;
}

/// Promise: `resume` resets attempts and wakes; `retry` tries at once, attempts kept, and prolongs no wait.
#[tokio::test(start_paused = true)]
async fn unblock_resets_the_attempt_count() {
    let world = TestWorld::blocked().await;
    let Ok(Unblocked::Ended(state)) = world.operator().unblock(&entity()).await else { panic!("it was blocked") };
    assert_eq!((state.blocked, state.attempts, state.retry_at, state.last_error), (None, 0, None, None));
    world.work(&[world.drainer(failing())]).await;
    assert_eq!(world.started(), ["1", "1", "1", "1"]);
}

#[tokio::test(start_paused = true)]
async fn unblock_of_unblocked_order_sends_a_wake_up() {
    let world = TestWorld::with("test/a", ["1"]).await;
    world.messages.clear();
    assert!(matches!(world.operator().unblock(&entity()).await, Ok(Unblocked::NotBlocked(Some(_)))));
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1"]);
    let nobody = key("test/nobody");
    assert_eq!(world.operator().unblock(&nobody).await, Ok(Unblocked::NotBlocked(None)));
    assert!(world.messages.is_empty(), "there is nothing to wake");
}

#[tokio::test(start_paused = true)]
async fn unblock_rereads_a_row_changed_meanwhile() {
    let mut world = TestWorld::blocked().await;
    // Before its write, another operator unblocks the order, or somebody acquires and releases an exclusive
    // lease.
    for unblocked in [true, false] {
        let (operator, _) = stopping(&mut world, 2, Duration::from_millis(500));
        let meanwhile = async {
            world.env.sleep(Duration::from_millis(100)).await;
            if unblocked {
                world.operator().unblock(&entity()).await.expect("it is unblocked");
            } else {
                let guard = world.leases("somebody").acquire(&entity(), Terms::at_once()).await.expect("it is free");
                guard.release().await.expect("it is released");
            }
        };
        let key = entity();
        let (late, ()) = tokio::join!(operator.unblock(&key), meanwhile);
        assert_eq!(matches!(late, Ok(Unblocked::NotBlocked(Some(_)))), unblocked, "{late:?}");
        assert_eq!(world.state("test/a").await.blocked, None);
        world.work(&[world.drainer(failing())]).await;
        assert!(world.state("test/a").await.blocked.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn unblock_puts_one_tombstone_at_an_expired_sequence() {
    let world = TestWorld::new();
    world.claim("test/a").await;
    tokio::time::advance(20 * DAY).await;
    world.append_all("test/a", ["2", "3"]).await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.state("test/a").await.blocked, Some(BlockReason::Expired));
    world.operator().unblock(&entity()).await.expect("it is unblocked");
    let voids: Vec<Row> =
        world.memory.rows(&TableName::Inbox).into_iter().filter(|row| row.get(a::VOID).is_some()).collect();
    assert_eq!(voids.len(), 1);
    assert!(voids[0].get(a::PURGE_AT).is_some());
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn unblock_of_order_blocked_as_expired_keeps_existing_delivery() {
    let world = TestWorld::blocked().await;
    let key = entity_row(&entity());
    let expired = Change::set(a::BLOCKED, BlockReason::Expired.as_str());
    world.memory.write(&Write::update(key, vec![expired])).await.expect("memory answers");
    world.operator().unblock(&entity()).await.expect("it is unblocked");
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1", "2"]);
}
