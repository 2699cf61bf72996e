//! A source with a rate limit: over all workers, the handlers of one order start no more often than the rate
//! allows, and nobody waits busily.

use tests::{prelude::*, source};
use webhook_serializer::engine::drain::InFlight;

fn least_interval(world: &TestWorld) -> Duration {
    let mut starts: Vec<Duration> = world.journal.runs().iter().map(|run| run.started).collect();
    starts.sort_unstable();
    starts.windows(2).map(|pair| pair[1] - pair[0]).min().expect("several starts")
}

async fn append(world: &TestWorld, source: &str, ids: std::ops::Range<usize>) {
    world.append_all_from(source, "chat/notifications", ids).await;
}

fn ids(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|id| id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn backlog_runs_in_order_at_configured_rate() {
    let world = TestWorld::new();
    append(&world, "rated", 0..50).await;
    let began = world.env.monotonic();
    world.work(&[world.drainer(Done), world.drainer(Done), world.drainer(Done)]).await;
    assert_eq!(world.applied(), ids(0..50));
    assert_eq!(least_interval(&world), Duration::from_millis(200));
    let last = world.journal.runs().iter().map(|run| run.started).max().unwrap() - began;
    assert_eq!(last, Duration::from_millis(200) * 49, "no slower than that either");
}

#[tokio::test(start_paused = true)]
async fn constant_entity_limits_source_to_rate_of_one_order() {
    let world = TestWorld::new().with_sources(source!("orders", "entity = 'chat/notifications'", "rate = '5/s'"));
    let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
    for id in ids(1..7) {
        let webhook = signed(&world.sources(), "orders", &id, update(&id), world.env.now());
        assert_eq!(ingest.answer(&request(&webhook)).await.status_code, 200);
    }
    assert_eq!(world.state("chat/notifications").await.waiting(), 6);
    world.work(&[world.drainer(Done), world.drainer(Done)]).await;
    assert_eq!(world.applied(), ids(1..7));
    assert_eq!(least_interval(&world), Duration::from_millis(200));
}

/// Promise: a rate is kept across instances, also by a constant template.
#[tokio::test(start_paused = true)]
async fn slow_rate_is_kept_across_workers() {
    let world = TestWorld::new();
    append(&world, "rarely", 0..8).await;
    world.work(&[world.drainer(Done), world.drainer(Done)]).await;
    assert_eq!(world.applied(), ids(0..8));
    assert!(least_interval(&world) >= Duration::from_secs(3));
}

/// There is a wake-up for each claim and each hand-over, and a requeue for each wake-up that met the running
/// lease.
#[tokio::test(start_paused = true)]
async fn slow_rate_needs_under_five_wake_ups_per_delivery() {
    for (many, workers) in [(100, 1), (400, 1), (400, 4)] {
        let world = TestWorld::new();
        append(&world, "rarely", 0..many).await;
        let workers: Vec<_> = (0..workers).map(|_| world.drainer(Done)).collect();
        world.work(&workers).await;
        assert_eq!(world.applied(), ids(0..many));
        let sent = world.messages.sent();
        assert!(sent <= 4 * many as u64, "{sent} wake-ups for {many} deliveries");
    }
}

/// A wake-up that arrives while the order waits for its rate is deleted without a replacement only if another
/// one is known to be under way. Otherwise it may be the only one, and is requeued.
#[tokio::test(start_paused = true)]
async fn wake_up_during_rate_wait_is_deleted_only_if_another_exists() {
    let world = TestWorld::new();
    append(&world, "rarely", 0..3).await;
    let drainer = world.drainer(Done);
    let received = |times| ReceivedWakeUp::new(key("chat/notifications"), times);
    let process = async |times, token| {
        let deadline = world.env.monotonic() + world.function_time;
        let sent = world.messages.sent();
        let alone = SuspectGate::new(1);
        let in_flight = InFlight::new(&world.env, false);
        let acknowledgement =
            drainer.process_among(&ReceivedWakeUp { token, ..received(times) }, deadline, &alone, &in_flight).await;
        assert_eq!(acknowledgement, Acknowledgement::Delete);
        world.messages.sent() - sent
    };
    assert_eq!(process(1, None).await, 1, "it is handed over");
    let state = world.state("chat/notifications").await;
    assert!(state.handover.is_some() && state.held.is_none());
    assert_eq!(process(1, Some(state.token.next())).await, 0, "another is under way");
    assert_eq!(process(1, Some(state.token)).await, 1, "it is that one");
    assert_eq!(process(1, None).await, 1, "it may be that one");
    assert_eq!(process(2, Some(state.token)).await, 1, "replaced before, and not again");
    let replaced = std::iter::from_fn(|| world.messages.take()).collect::<Vec<_>>();
    let counts = replaced.iter().filter(|wake_up| wake_up.token == Some(state.token.0)).count();
    assert_eq!(counts, 4, "the first, and what replaced it: {replaced:?}");
    // After another holder's lease, the row does not say which wake-up counts.
    world.leases("a caller").acquire(&received(1).entity, Terms::default()).await.unwrap().release().await.unwrap();
    assert!(world.state("chat/notifications").await.handover.is_none());
    assert_eq!(process(1, Some(state.token)).await, 1, "no other is known to be under way");
}

/// A requeued wake-up keeps its token, because the hand-over may be written after the requeue.
#[tokio::test(start_paused = true)]
async fn early_wake_up_is_requeued_with_same_token() {
    let world = TestWorld::new();
    append(&world, "rarely", 0..2).await;
    let lease = world.acquire("chat/notifications", LeaseKind::Drain, Duration::from_secs(15)).await;
    world.messages.clear();
    let deadline = world.env.monotonic() + world.function_time;
    let token = Some(lease.token());
    let early = ReceivedWakeUp { token, ..ReceivedWakeUp::new(key("chat/notifications"), 1) };
    let drainer = world.drainer(Done);
    let alone = SuspectGate::new(1);
    let in_flight = InFlight::new(&world.env, false);
    let acknowledgement = drainer.process_among(&early, deadline, &alone, &in_flight).await;
    assert_eq!(acknowledgement, Acknowledgement::Delete);
    assert_eq!(world.messages.take().map(|wake_up| wake_up.token), Some(token.map(|token| token.0)));
}

#[tokio::test(start_paused = true)]
async fn rate_applies_after_the_inbox_was_empty() {
    let world = TestWorld::new();
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

/// While an empty inbox waits for its rate, it has no wake-up.
#[tokio::test(start_paused = true)]
async fn claim_sends_wake_up_although_empty_inbox_waits_for_rate() {
    let world = TestWorld::new();
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
async fn failed_attempt_counts_for_the_rate() {
    let world = TestWorld::new();
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
async fn each_order_has_a_separate_rate() {
    let world = TestWorld::new();
    for number in 0..20 {
        let entity = format!("chat/{}", number % 10);
        world.append_from("rated", &entity, &number.to_string()).await;
    }
    let workers: Vec<_> = (0..10).map(|_| world.drainer(Done)).collect();
    let began = world.env.monotonic();
    join_all([world.work(&workers)]).await;
    let last = world.journal.runs().iter().map(|run| run.started).max().unwrap() - began;
    assert_eq!(last, Duration::from_millis(200));
}

#[tokio::test(start_paused = true)]
async fn parked_delivery_counts_for_the_rate() {
    let world = TestWorld::new();
    append(&world, "rated", 0..6).await;
    world.work(&[world.drainer(answering(|_, _| Outcome::Reject("it is refused".into())))]).await;
    assert_eq!(world.started(), ids(0..6));
    assert_eq!(least_interval(&world), Duration::from_millis(200));
}
