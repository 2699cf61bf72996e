//! A backlog is handed over after a slice, and old gaps are filled immediately.

use tests::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

/// Each wake-up of such a claim would meet the lease, and would be requeued until the inbox is empty.
#[tokio::test(start_paused = true)]
async fn claim_after_hand_over_sends_no_wake_up() {
    let world = TestWorld::with("test/a", 0..1).await;
    world.append_all("test/a", 1..10).await;
    world.messages.clear();
    world.waker().wake(&key("test/a"), Duration::ZERO, SECOND).await.unwrap();
    assert_eq!(world.process_next(&world.drainer(Slow(SECOND))).await, Acknowledgement::Delete);
    assert!(world.state("test/a").await.was_handed_over(world.env.now()));
    let sent = world.messages.sent();
    world.append_all("test/a", 10..15).await;
    assert_eq!(world.messages.sent(), sent);
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied().len(), 15);
    world.append("test/a", "15").await;
    assert_eq!(world.messages.sent(), sent + 1, "an emptied inbox owes one again");
}

/// A worker meets the lease after a slice's last settle and before its release.
#[tokio::test(start_paused = true)]
async fn wake_up_during_hand_over_delays_order_under_half_a_second() {
    let world = TestWorld::with("test/a", 0..9).await;
    world.messages.clear();
    world.waker().wake(&key("test/a"), Duration::ZERO, SECOND).await.unwrap();
    let began = world.env.monotonic();
    world.work(&[world.drainer(Slow(SECOND)), world.drainer(Slow(SECOND))]).await;
    assert_eq!(world.applied().len(), 9);
    let took = world.env.monotonic() - began;
    assert!(took < Duration::from_millis(9_500), "{took:?} for nine seconds of work, and no lease's length");
}

#[tokio::test(start_paused = true)]
async fn thousand_old_gaps_are_filled_within_seconds() {
    let world = TestWorld::new();
    for _ in 0..1000 {
        world.claim("test/a").await;
    }
    world.env.sleep(Duration::from_secs(3600)).await;
    // In the row, a fresh claim hides the age of earlier gaps. Its delivery shows their age.
    world.append("test/a", "1").await;
    let began = world.env.monotonic();
    world.work(&[world.drainer(Done)]).await;
    let took = world.env.monotonic() - began;
    assert_eq!(world.applied(), ["1"]);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let last = world.state("test/a").await.recent.last().map(|last| last.settlement);
    assert_eq!(last, Some(Settlement::Applied));
}

/// The delivery behind the gap is old; later claims do not change that.
#[tokio::test(start_paused = true)]
async fn gap_before_an_old_delivery_is_filled_immediately() {
    let world = TestWorld::new();
    world.claim("test/a").await;
    world.append("test/a", "1").await;
    world.env.sleep(Duration::from_secs(3600)).await;
    world.claim("test/a").await;
    let began = world.env.monotonic();
    let mut applied = None;
    let work = async { world.work(&[world.drainer(Done)]).await };
    let look = async {
        while world.applied().is_empty() {
            world.env.sleep(Duration::from_millis(10)).await;
        }
        applied = Some(world.env.monotonic() - began);
    };
    tokio::join!(work, look);
    assert!(applied.expect("it looked") < Duration::from_millis(100), "{applied:?}");
    // Ingest may still fill the other gap, so the worker waits for it.
    assert!(world.env.monotonic() - began >= world.settings.gap);
}

/// A worker waits the full time for the claimed sequence's delivery, however long its drain has run and
/// waited for another gap.
#[tokio::test(start_paused = true)]
async fn sequence_claimed_late_in_drain_gets_full_wait_before_tombstone() {
    let mut world = TestWorld::new();
    world.settings.gap = SECOND;
    world.claim("test/a").await;
    world.append("test/a", "1").await;
    let drainer = world.drainer(Slow(3 * SECOND));
    world.fail(Fault::Slow(SECOND / 2), |call| matches!(call.writes, [write] if write.key.table == TableName::Inbox));
    let late = async {
        world.env.sleep(4 * SECOND - SECOND / 5).await;
        world.append("test/a", "2").await;
    };
    tokio::join!(world.work(std::slice::from_ref(&drainer)), late);
    assert_eq!(world.applied(), ["1", "2"]);
    let places = world.state("test/a").await.recent.iter().map(|receipt| receipt.settlement).collect::<Vec<_>>();
    use Settlement::{Applied, Void};
    assert_eq!(places, [Void, Applied, Applied], "it was not given up, and its delivery has one place");
}

#[tokio::test(start_paused = true)]
async fn gap_of_old_claim_is_filled_immediately() {
    let world = TestWorld::new();
    let entity = key("test/a");
    world.claim("test/a").await;
    world.env.sleep(Duration::from_secs(3600)).await;
    world.waker().wake(&entity, Duration::ZERO, SECOND).await.unwrap();
    let began = world.env.monotonic();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.env.monotonic(), began);
    assert!(world.state("test/a").await.is_empty());
}

/// A worker that has no time to wait must not fill a fresh gap.
#[tokio::test(start_paused = true)]
async fn worker_without_time_to_wait_fills_no_fresh_gap() {
    let mut world = TestWorld::new();
    world.function_time = world.settings.gap;
    let entity = key("test/a");
    world.claim("test/a").await;
    world.waker().wake(&entity, Duration::ZERO, SECOND).await.unwrap();
    let began = world.env.monotonic();
    assert_eq!(world.process_next(&world.drainer(Done)).await, Acknowledgement::Delete);
    let took = world.env.monotonic() - began;
    assert!(took <= world.function_time - MARGIN, "{took:?}");
    let state = world.state("test/a").await;
    assert_eq!((state.is_empty(), state.held.is_none()), (false, true));
    assert_eq!(world.messages.len(), 1, "somebody else is woken");
    world.function_time = Duration::from_secs(60);
    world.work(&[world.drainer(Done)]).await;
    assert!(world.state("test/a").await.is_empty());
}
