//! Backlogs hand over after a slice, and old gaps are filled immediately.

use std::time::Duration;

use tests::{
    faults::{Call, Fault},
    handlers::{Done, Slow},
    world::{World, key},
};
use webhook_serializer::{
    engine::drain::{Acknowledgement, MARGIN, Received, SuspectGate},
    protocol::{entity::EntityKey, inbox::Claim, receipt::Settlement, table::TableName},
};

const SECOND: Duration = Duration::from_secs(1);

async fn backlog(count: usize) -> World {
    let world = World::new();
    for number in 0..count {
        world.append("test/a", &number.to_string()).await;
    }
    world
}

async fn process(world: &World, handler: impl webhook_serializer::handler::Handler) -> EntityKey {
    let message = world.messages.receive().await.expect("a wake-up");
    let entity = message.content.entity().clone();
    let received = Received { entity: entity.clone(), times: message.times };
    let deadline = world.env.monotonic() + world.function_time;
    let acknowledgement = world.drainer(handler).process(&received, deadline, &SuspectGate::new(1)).await;
    assert_eq!(acknowledgement, Acknowledgement::Delete);
    world.messages.acknowledge(message, acknowledgement);
    entity
}

/// Each would meet the lease and be requeued until the inbox is empty.
#[tokio::test(start_paused = true)]
async fn claim_behind_hand_over_sends_no_wake_up() {
    let world = backlog(1).await;
    for number in 1..10 {
        world.append("test/a", &number.to_string()).await;
    }
    world.messages.clear();
    world.waker().wake(&key("test/a"), Duration::ZERO, SECOND).await.unwrap();
    process(&world, Slow(SECOND)).await;
    assert!(world.state("test/a").await.was_handed_over(world.env.now()));
    let sent = world.messages.sent();
    for number in 10..15 {
        world.append("test/a", &number.to_string()).await;
    }
    assert_eq!(world.messages.sent(), sent);
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied().len(), 15);
    world.append("test/a", "15").await;
    assert_eq!(world.messages.sent(), sent + 1, "an emptied inbox owes one again");
}

/// A worker meets the lease between the last settle of a slice and its release.
#[tokio::test(start_paused = true)]
async fn worker_beside_a_hand_over_looks_again_soon() {
    let world = backlog(9).await;
    world.messages.clear();
    world.waker().wake(&key("test/a"), Duration::ZERO, SECOND).await.unwrap();
    let began = world.env.monotonic();
    world.work(&[world.drainer(Slow(SECOND)), world.drainer(Slow(SECOND))]).await;
    assert_eq!(world.applied().len(), 9);
    let took = world.env.monotonic() - began;
    assert!(took < Duration::from_millis(9_500), "{took:?} for nine seconds of work, and no lease's length");
}

#[tokio::test(start_paused = true)]
async fn thousand_old_gaps_are_filled_in_seconds() {
    let world = World::new();
    let entity = key("test/a");
    for _ in 0..1000 {
        let env = &world.env;
        let claim = Claim { entity: &entity, nonce: &env.nonce(), now: env.now() };
        world.store().run(&claim, SECOND).await.unwrap();
    }
    world.env.sleep(Duration::from_secs(3600)).await;
    // A fresh claim hides the age of earlier gaps in the row; its delivery shows it.
    world.append("test/a", "1").await;
    let began = world.env.monotonic();
    world.work(&[world.drainer(Done)]).await;
    let took = world.env.monotonic() - began;
    assert_eq!(world.applied(), ["1"]);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let last = world.state("test/a").await.recent.last().map(|last| last.settlement);
    assert_eq!(last, Some(Settlement::Applied));
}

/// The delivery behind the gap is old, whatever was claimed since.
#[tokio::test(start_paused = true)]
async fn gap_before_an_old_delivery_is_filled_immediately() {
    let world = World::new();
    let claim = async || {
        world.claim("test/a").await;
    };
    claim().await;
    world.append("test/a", "1").await;
    world.env.sleep(Duration::from_secs(3600)).await;
    claim().await;
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
    // Ingest may still fill the other gap.
    assert!(world.env.monotonic() - began >= world.settings.gap);
}

/// However long the drain runs, and has waited for another gap.
#[tokio::test(start_paused = true)]
async fn late_claim_gets_its_whole_gap_time() {
    let mut world = World::new();
    world.settings.gap = SECOND;
    world.claim("test/a").await;
    world.append("test/a", "1").await;
    let drainer = world.drainer(Slow(3 * SECOND));
    let slow = |call: &Call<'_>| match call.writes {
        [write] if write.key.table == TableName::Inbox => Fault::Slow(SECOND / 2),
        _ => Fault::None,
    };
    world.break_table(slow);
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
async fn gap_with_an_old_claim_is_filled_immediately() {
    let world = World::new();
    let entity = key("test/a");
    world.claim("test/a").await;
    world.env.sleep(Duration::from_secs(3600)).await;
    world.waker().wake(&entity, Duration::ZERO, SECOND).await.unwrap();
    let began = world.env.monotonic();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.env.monotonic(), began);
    assert!(world.state("test/a").await.is_empty());
}

/// A worker without time to wait must not fill a fresh gap.
#[tokio::test(start_paused = true)]
async fn fresh_gap_is_left_to_another_worker() {
    let mut world = World::new();
    world.function_time = world.settings.gap;
    let entity = key("test/a");
    world.claim("test/a").await;
    world.waker().wake(&entity, Duration::ZERO, SECOND).await.unwrap();
    let began = world.env.monotonic();
    process(&world, Done).await;
    let took = world.env.monotonic() - began;
    assert!(took <= world.function_time - MARGIN, "{took:?}");
    let state = world.state("test/a").await;
    assert_eq!((state.is_empty(), state.held.is_none()), (false, true));
    assert_eq!(world.messages.len(), 1, "somebody else is woken");
    world.function_time = Duration::from_secs(60);
    world.work(&[world.drainer(Done)]).await;
    assert!(world.state("test/a").await.is_empty());
}
