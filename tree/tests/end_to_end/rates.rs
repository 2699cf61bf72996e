//! A source with a rate: its handlers start no more often than that for one
//! entity, whoever starts them, and nobody waits busily. In memory under a
//! paused clock.

use std::time::Duration;

use futures_util::future::join_all;
use shared::handler::Outcome;
use tests::{
    handlers::{Done, answering},
    world::World,
};

/// The least time between two starts of one entity.
fn least_interval(world: &World) -> Duration {
    let mut starts: Vec<Duration> = world.journal.runs().iter().map(|run| run.started).collect();
    starts.sort_unstable();
    starts.windows(2).map(|pair| pair[1] - pair[0]).min().expect("several starts")
}

async fn append(world: &World, source: &str, ids: std::ops::Range<usize>) {
    for id in ids {
        world.inbox().append(&world.incoming_from(source, "chat/notifications", &id.to_string())).await.unwrap();
    }
}

fn ids(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|id| id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_backlog_runs_at_its_rate_under_one_lease_and_in_order() {
    let world = World::new();
    append(&world, "rated", 0..50).await;
    let began = world.surroundings.monotonic();
    world.work(&[world.drainer(Done), world.drainer(Done), world.drainer(Done)]).await;
    assert_eq!(world.applied(), ids(0..50));
    assert_eq!(least_interval(&world), Duration::from_millis(200));
    let last = world.journal.runs().iter().map(|run| run.started).max().unwrap() - began;
    assert_eq!(last, Duration::from_millis(200) * 49, "no slower than that either");
}

#[tokio::test(start_paused = true)]
async fn a_rate_slower_than_a_second_is_kept_by_wake_ups_across_workers() {
    let world = World::new();
    append(&world, "rarely", 0..8).await;
    let sent = world.messages.sent();
    world.work(&[world.drainer(Done), world.drainer(Done)]).await;
    assert_eq!(world.applied(), ids(0..8));
    assert!(least_interval(&world) >= Duration::from_secs(3));
    // Each of the eight wake-ups is put off until the next start, and each hand-over sends one.
    let sends = world.messages.sent() - sent;
    assert!(sends <= 8 * 8 + 8, "{sends} wake-ups");
}

#[tokio::test(start_paused = true)]
async fn the_next_delivery_waits_for_the_rate_though_the_inbox_was_empty_meanwhile() {
    let world = World::new();
    let drainers = [world.drainer(Done)];
    for id in 0..5 {
        append(&world, "rated", id..id + 1).await;
        world.work(&drainers).await;
    }
    assert_eq!(world.applied(), ids(0..5));
    assert_eq!(least_interval(&world), Duration::from_millis(200));
    let state = world.state("chat/notifications").await;
    assert!(state.is_empty() && state.held.is_none());
    assert_eq!(world.messages.len(), 0);
}

/// A delivery that comes while an empty inbox waits for its rate is nobody's
/// unless it is woken for.
#[tokio::test(start_paused = true)]
async fn a_claim_during_the_wait_owes_a_wake_up() {
    let world = World::new();
    append(&world, "rarely", 0..1).await;
    world.work(&[world.drainer(Done)]).await;
    let before = world.messages.sent();
    append(&world, "rarely", 1..2).await;
    assert_eq!(world.messages.sent() - before, 1);
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ids(0..2));
    assert!(least_interval(&world) >= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_counts_as_a_start() {
    let world = World::new();
    append(&world, "rated", 0..3).await;
    world
        .work(&[world.drainer(answering(|delivery, _| match delivery.attempt() {
            1 => Outcome::retry("not yet"),
            _ => Outcome::Done,
        }))])
        .await;
    assert_eq!(world.applied(), ids(0..3));
    assert!(least_interval(&world) >= Duration::from_millis(200), "{:?}", least_interval(&world));
}

#[tokio::test(start_paused = true)]
async fn other_entities_of_the_source_have_rates_of_their_own() {
    let world = World::new();
    for number in 0..20 {
        let entity = format!("chat/{}", number % 10);
        world.inbox().append(&world.incoming_from("rated", &entity, &number.to_string())).await.unwrap();
    }
    let workers: Vec<_> = (0..10).map(|_| world.drainer(Done)).collect();
    let began = world.surroundings.monotonic();
    join_all([world.work(&workers)]).await;
    let last = world.journal.runs().iter().map(|run| run.started).max().unwrap() - began;
    assert_eq!(last, Duration::from_millis(200));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_set_aside_counts_as_a_start() {
    let world = World::new();
    append(&world, "rated", 0..6).await;
    world.work(&[world.drainer(answering(|_, _| Outcome::Reject("it is refused".into())))]).await;
    assert_eq!(world.started(), ids(0..6));
    assert_eq!(least_interval(&world), Duration::from_millis(200));
}
