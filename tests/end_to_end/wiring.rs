//! The functions' own wiring: owed wake-ups, which messages of a batch are deleted, and the order within a
//! batch.

use tests::prelude::*;
use webhook_serializer::{
    engine::append::AppendError,
    protocol::{inbox::Void, lease::TakeOver},
};

const LEASE: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(5);

async fn drained(world: &TestWorld, entity: &str) -> Lease {
    world.append(entity, "first").await;
    world.acquire(entity, LeaseKind::Drain, LEASE).await
}

/// Returns the ids of the messages that return to the queue.
async fn failed_items(worker: &Worker, world: &TestWorld, records: Vec<SqsRecord>) -> Vec<String> {
    let deadline = world.env.now() + world.function_time;
    let response = worker.process(SqsEvent { records }, deadline).await;
    response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect()
}

fn without_queue(world: &mut TestWorld) {
    let refuses = |_| Fault::Before(TableError::Throttled);
    world.break_queue(refuses);
}

fn is_claim(call: &TableCall<'_>) -> bool {
    call.writes.iter().any(|write| format!("{write:?}").contains("last_claim"))
}

/// If the reply to a claim is lost, the row may already show another claim, and the first try's sequence may
/// stay empty.
#[tokio::test(start_paused = true)]
async fn unanswered_claim_sends_a_wake_up() {
    for (reply_lost, owed) in [(false, 0), (true, 1)] {
        let mut world = TestWorld::new();
        drained(&world, "test/a").await;
        let sent = world.messages.sent();
        world.fail(Fault::ReplyLost, move |call| reply_lost && call.write == 1 && is_claim(call));
        world.append("test/a", "second").await;
        assert_eq!(world.messages.sent() - sent, owed, "the reply was lost: {reply_lost}");
    }
}

/// The worker that wrote the tombstone may have settled it and ended its drain.
#[tokio::test(start_paused = true)]
async fn append_repeated_after_tombstone_sends_one_wake_up_during_drain() {
    let world = TestWorld::new();
    drained(&world, "test/a").await;
    let sequence = world.state("test/a").await.tail.next();
    let purge_at = world.env.now() + Duration::from_secs(86_400);
    world.store().run(&Void { entity: &key("test/a"), sequence, purge_at }, PATIENCE).await.unwrap();
    let sent = world.messages.sent();
    world.append("test/a", "second").await;
    assert_eq!(world.state("test/a").await.tail, sequence.next(), "it took the next place");
    assert_eq!(world.messages.sent() - sent, 1);
}

/// A worker that now holds the order may not have seen the first claim.
#[tokio::test(start_paused = true)]
async fn append_repeated_after_tombstone_sends_two_wake_ups_without_drain() {
    let world = TestWorld::with("test/a", ["first"]).await;
    let sequence = world.state("test/a").await.tail.next();
    let purge_at = world.env.now() + Duration::from_secs(86_400);
    world.store().run(&Void { entity: &key("test/a"), sequence, purge_at }, PATIENCE).await.unwrap();
    let sent = world.messages.sent();
    world.append("test/a", "second").await;
    assert_eq!(world.messages.sent() - sent, 2, "one for each place");
}

#[tokio::test(start_paused = true)]
async fn append_fails_after_three_tombstones() {
    let world = TestWorld::new();
    drained(&world, "test/a").await;
    let mut sequence = world.state("test/a").await.tail;
    let purge_at = world.env.now() + Duration::from_secs(86_400);
    for _ in 0..3 {
        sequence = sequence.next();
        world.store().run(&Void { entity: &key("test/a"), sequence, purge_at }, PATIENCE).await.unwrap();
    }
    let sent = world.messages.sent();
    let refused = world.inbox().append(&world.incoming("test/a", "second")).await;
    assert!(matches!(refused, Err(AppendError::Overtaken)), "{refused:?}");
    assert_eq!(world.state("test/a").await.tail, sequence, "three places, and no fourth");
    assert_eq!(world.messages.sent() - sent, 2, "one for each place behind one that was given up");
    world.append("test/a", "second").await;
    assert_eq!(world.state("test/a").await.tail, sequence.next());
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn message_that_cannot_be_requeued_is_kept() {
    let mut world = TestWorld::new();
    drained(&world, "test/a").await;
    let reachable = world.worker(Done);
    assert!(
        failed_items(&reachable, &world, vec![record("1", "test/a", "1")]).await.is_empty(),
        "a fresh one was sent"
    );
    without_queue(&mut world);
    let worker = world.worker(Done);
    assert_eq!(failed_items(&worker, &world, vec![record("1", "test/a", "1")]).await, ["1"]);
}

/// The message is replaced before the acquire: a lease without a wake-up would be orphaned.
#[tokio::test(start_paused = true)]
async fn redelivered_message_is_replaced_before_lease_is_acquired() {
    let mut world = TestWorld::with("test/a", ["1"]).await;
    without_queue(&mut world);
    let worker = world.worker(Done);
    for times in ["2", "not a number"] {
        assert_eq!(failed_items(&worker, &world, vec![record("1", "test/a", times)]).await, ["1"], "received {times}");
    }
    assert!(world.applied().is_empty());
    assert_eq!(failed_items(&worker, &world, vec![record("1", "test/a", "1")]).await, [""; 0], "nothing is owed");
    assert_eq!(world.applied(), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn failed_attempt_keeps_lease_if_wake_up_fails() {
    let mut world = TestWorld::with("test/a", ["1"]).await;
    without_queue(&mut world);
    let worker = world.worker(failing());
    assert_eq!(failed_items(&worker, &world, vec![record("1", "test/a", "1")]).await, ["1"]);
    let state = world.state("test/a").await;
    assert!(state.held.is_some(), "it is left to run out");
    assert_eq!(state.attempts, 0);
}

/// The worker hands over, because the source's rate limit delays the next start.
#[tokio::test(start_paused = true)]
async fn hand_over_keeps_lease_if_wake_up_fails() {
    let mut world = TestWorld::new();
    world.append_all_from("rarely", "test/a", ["1", "2"]).await;
    without_queue(&mut world);
    let worker = world.worker(Done);
    assert_eq!(failed_items(&worker, &world, vec![record("1", "test/a", "1")]).await, ["1"]);
    assert!(world.state("test/a").await.held.is_some());
    assert_eq!(world.applied(), ["1"]);
}

/// The store stops answering, and the batch still responds within the function's time.
#[tokio::test(start_paused = true)]
async fn message_of_an_unfinished_drain_is_kept() {
    let mut world = TestWorld::new();
    world.function_time = Duration::from_secs(4);
    world.append("test/a", "1").await;
    world.append_from("brief", "test/b", "2").await;
    let of_a = |call: &TableCall<'_>| call.writes.iter().any(|write| format!("{:?}", write.key).contains("test/a"));
    world.fail(Fault::Silent, move |call| of_a(call));
    let began = world.env.monotonic();
    let worker = world.worker(Done);
    let records = vec![record("1", "test/a", "1"), record("2", "test/b", "1")];
    assert_eq!(failed_items(&worker, &world, records).await, ["1"]);
    assert!(world.env.monotonic() - began < world.function_time, "it answered in time");
    assert_eq!(world.applied(), ["2"]);
}

/// One of several messages was received before, so all of them may be copies.
#[tokio::test(start_paused = true)]
async fn messages_of_one_order_cause_one_drain() {
    let world = TestWorld::with("test/a", ["1"]).await;
    let sent = world.messages.sent();
    let worker = world.worker(Done);
    let records = vec![record("1", "test/a", "1"), record("2", "test/a", "3"), record("3", "test/a", "1")];
    assert!(failed_items(&worker, &world, records).await.is_empty());
    assert_eq!(world.messages.sent() - sent, 1);
    assert_eq!(world.started(), ["1"]);
}

/// The suspect's lease is orphaned, or was taken over and released.
#[tokio::test(start_paused = true)]
async fn suspect_runs_after_other_orders_of_batch() {
    for is_free in [false, true] {
        let world = TestWorld::new();
        drained(&world, "test/suspect").await;
        tokio::time::advance(Duration::from_secs(30)).await;
        if is_free {
            let seen = world.state("test/suspect").await;
            let take_over = TakeOver { request: world.lease_request("test/suspect", LeaseKind::Drain, LEASE), seen };
            let Acquired::Granted(lease, _) = world.store().run(&take_over, PATIENCE).await.unwrap() else {
                panic!("its time had passed");
            };
            world.store().run(&Release { lease: &lease }, PATIENCE).await.unwrap();
        }
        world.append_all("test/long", ["a", "b", "c"]).await;
        let worker = world.worker(Slow(Duration::from_millis(500)));
        let records = vec![record("1", "test/suspect", "1"), record("2", "test/long", "1")];
        assert!(failed_items(&worker, &world, records).await.is_empty());
        assert_eq!(world.applied(), ["a", "b", "c", "first"], "free: {is_free}");
        let runs = world.journal.runs();
        assert!(runs[3].started >= runs[2].ended);
    }
}

/// If the process dies again while the suspect waits, that must count no attempt.
#[tokio::test(start_paused = true)]
async fn suspects_lease_is_taken_over_after_other_orders_finish() {
    let world = TestWorld::new();
    drained(&world, "test/suspect").await;
    tokio::time::advance(Duration::from_secs(30)).await;
    world.append("test/other", "other").await;
    let told = world.events.clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = seen.clone();
    let handler = Scripted(move |delivery: &Delivery, context: &Context| {
        let told = told.clone();
        let sees = sees.clone();
        let id = delivery.delivery_id().to_string();
        let wait = context.env().sleep(Duration::from_secs(1));
        async move {
            wait.await;
            sees.lock().unwrap().push((id, told.taken_over()));
            Ok(Outcome::Done)
        }
    });
    let worker = world.worker(handler);
    let records = vec![record("1", "test/suspect", "1"), record("2", "test/other", "1")];
    assert!(failed_items(&worker, &world, records).await.is_empty());
    assert_eq!(*seen.lock().unwrap(), [("other".to_owned(), 0), ("first".to_owned(), 1)]);
}

/// A delivery that soon kills its process runs after those that only ran beside it.
#[tokio::test(start_paused = true)]
async fn suspect_with_fewest_vanished_holders_runs_first() {
    let world = TestWorld::new();
    for (entity, vanished) in [("test/a", 1), ("test/b", 0)] {
        drained(&world, entity).await;
        for _ in 0..vanished {
            tokio::time::advance(Duration::from_secs(30)).await;
            let seen = world.state(entity).await;
            let take_over = TakeOver { request: world.lease_request(entity, LeaseKind::Drain, LEASE), seen };
            world.store().run(&take_over, PATIENCE).await.unwrap();
        }
    }
    tokio::time::advance(Duration::from_secs(30)).await;
    let worker = world.worker(Slow(Duration::from_secs(1)));
    let records = vec![record("1", "test/a", "1"), record("2", "test/b", "1")];
    let sent = world.messages.sent();
    assert!(failed_items(&worker, &world, records).await.is_empty());
    let started = || world.journal.runs().into_iter().map(|run| run.entity.to_string()).collect::<Vec<_>>();
    assert_eq!(started(), ["test/b"], "one suspect of a batch runs");
    assert_eq!(world.messages.sent() - sent, 1, "the other is requeued");
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(started(), ["test/b", "test/a"]);
}

/// Promise: `Err`, panics and exceeding `handler_timeout` are retried.
#[tokio::test(start_paused = true)]
async fn failing_handler_is_retried_then_parked() {
    let world = TestWorld::with("test/a", ["1", "2"]).await;
    let fails = Scripted(|delivery: &Delivery, _: &Context| {
        let fails = delivery.delivery_id().as_str() == "1";
        ready(if fails { Err("no such order".into()) } else { Ok(Outcome::Done) })
    });
    world.work(&[world.drainer(fails)]).await;
    let parked = world.operator().parked(&key("test/a")).await.unwrap();
    assert_eq!(parked.iter().map(|parked| parked.error.as_str()).collect::<Vec<_>>(), ["no such order"]);
    assert_eq!(world.started(), ["1", "1", "1", "2"], "as often as its source says");
}

#[tokio::test(start_paused = true)]
async fn panicking_handler_is_retried_then_parked() {
    let world = TestWorld::with("test/a", ["1", "2"]).await;
    world
        .work(&[world.drainer(answering(|delivery, _| match delivery.delivery_id().as_str() {
            "1" => panic!("as it is meant to"),
            _ => Outcome::Done,
        }))])
        .await;
    let attempts: Vec<_> =
        world.operator().parked(&key("test/a")).await.unwrap().iter().map(|p| p.error.clone()).collect();
    assert_eq!(attempts, ["the handler panicked"]);
    assert_eq!(world.started(), ["1", "1", "1", "2"], "as often as its source says");
}
