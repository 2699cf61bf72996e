//! Batches with several deferred deliveries.

use tests::{prelude::*, world::MemoryMessage};

use super::{ANSWER, HOUR, answered, out_until, status, webhook};

fn of_one_event(messages: &[MemoryMessage]) -> SqsEvent {
    SqsEvent { records: messages.iter().map(MemoryMessage::record).collect() }
}

#[tokio::test(start_paused = true)]
async fn deferred_batch_is_appended_in_arrival_order() {
    let world = out_until(HOUR, |_| Fault::Silent);
    for number in 1..=5 {
        assert_eq!(status(&world, "queued", &format!("{number}")).await, 202);
    }
    let worker = world.worker(Done);
    let mut received: Vec<_> = std::iter::from_fn(|| world.messages.receive_due()).collect();
    received.reverse();
    assert_eq!(received.len(), 5);
    let before = world.env.monotonic();
    let deadline = world.env.now() + world.function_time;
    assert!(worker.process(of_one_event(&received), deadline).await.batch_item_failures.is_empty());
    let took = world.env.monotonic() - before;
    assert!(took < ANSWER, "one append's time, not five: {took:?}");
    assert_eq!(world.messages.len(), 5);

    tokio::time::advance(HOUR).await;
    let deadline = world.env.now() + world.function_time;
    assert!(worker.process(of_one_event(&received), deadline).await.batch_item_failures.is_empty());
    received.into_iter().for_each(|message| world.messages.acknowledge(message, Acknowledgement::Delete));
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1", "2", "3", "4", "5"]);
}

/// Returns the messages in the queue, each with its order and its number of tries.
fn tries(world: &TestWorld) -> Vec<(String, u64)> {
    let mut tries = Vec::new();
    while let Some(says) = world.messages.take_any() {
        let message: serde_json::Value = serde_json::from_str(&says.text()).expect("it is JSON");
        if message["delivery"].is_number() {
            tries.push((says.entity().to_string(), message["tries"].as_u64().unwrap_or(0)));
        }
    }
    tries.sort();
    tries
}

/// Ingests all due messages as one batch, and returns how long that took.
async fn taken_up_together(world: &TestWorld) -> Duration {
    let received: Vec<_> = std::iter::from_fn(|| world.messages.receive_due()).collect();
    let before = world.env.monotonic();
    let deadline = world.env.now() + world.function_time;
    let answer = world.worker(Done).process(of_one_event(&received), deadline).await;
    assert!(answer.batch_item_failures.is_empty());
    received.into_iter().for_each(|message| world.messages.acknowledge(message, Acknowledgement::Delete));
    world.env.monotonic() - before
}

#[tokio::test(start_paused = true)]
async fn throttled_order_delays_only_its_own_deferred_deliveries() {
    let is_of = |write: &Write, order: &str| format!("{:?}", write.key).contains(&format!("queued/order/{order}"));
    let mut world = out_until(HOUR, |_| Fault::Silent);
    for (id, order) in [("1", "hot"), ("2", "hot"), ("3", "a"), ("4", "b"), ("5", "c")] {
        let webhook = webhook(&world, "queued", id, update(order));
        assert_eq!(answered(&world, &webhook).await.status_code, 202);
    }
    world.fail(Fault::Before(TableError::Throttled), move |call| call.writes.iter().any(|write| is_of(write, "hot")));
    let took = taken_up_together(&world).await;
    assert!(took < ANSWER, "the throttled order is tried once: {took:?}");
    for order in ["a", "b", "c"] {
        assert_eq!(world.state(&format!("queued/order/{order}")).await.waiting(), 1, "{order}");
    }
    let hot = "queued/order/hot".to_owned();
    assert_eq!(tries(&world), [(hot.clone(), 0), (hot, 1)]);
}

/// Four orders are tried at once. The store's silence is then known.
#[tokio::test(start_paused = true)]
async fn requeued_deferred_delivery_counts_only_tried_appends() {
    let world = out_until(HOUR, |_| Fault::Silent);
    for id in ["1", "2", "3", "4", "5", "6"] {
        let webhook = webhook(&world, "queued", id, update(id));
        assert_eq!(answered(&world, &webhook).await.status_code, 202);
    }
    taken_up_together(&world).await;
    let pauses = world.messages.delays();
    assert!(pauses.iter().all(|pause| (7..=15).contains(&pause.as_secs())), "{pauses:?}");
    let of = |order: &str| format!("queued/order/{order}");
    let tried = [("1", 1), ("2", 1), ("3", 1), ("4", 1), ("5", 0), ("6", 0)];
    assert_eq!(tries(&world), tried.map(|(order, tries)| (of(order), tries)));
}

fn is_of(call: &TableCall<'_>, order: &str) -> bool {
    call.writes.iter().any(|write| format!("{:?}", write.key).contains(&format!("queued/order/{order}\"")))
}

/// Defers one delivery of each of these orders, in sequence.
async fn deferred(orders: impl IntoIterator<Item = String>) -> TestWorld {
    let world = out_until(HOUR, |_| Fault::Silent);
    for (number, order) in orders.into_iter().enumerate() {
        let webhook = webhook(&world, "queued", &number.to_string(), update(&order));
        assert_eq!(answered(&world, &webhook).await.status_code, 202);
    }
    world
}

#[tokio::test(start_paused = true)]
async fn batch_is_appended_while_throttled_order_is_tried() {
    let orders = ["hot", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let mut world = deferred(orders.map(str::to_owned)).await;
    world.fail(Fault::Before(TableError::Throttled), |call| is_of(call, "hot"));
    let (together, appended) = tokio::join!(taken_up_together(&world), async {
        world.env.sleep(Duration::from_secs(1)).await;
        world.events.deferred().1
    });
    assert_eq!(appended, 9, "before the throttled order's {together:?} were over");
}

/// A worker gets the deliveries in batches of ten, each with two of the throttled order.
#[tokio::test(start_paused = true)]
async fn throttled_order_is_tried_in_one_of_many_batches() {
    let order = |number: u32| if number.is_multiple_of(5) { "hot".to_owned() } else { number.to_string() };
    let mut world = deferred((0..75).map(order)).await;
    let table = world.fail(Fault::Before(TableError::Throttled), |call| is_of(call, "hot"));
    let worker = world.worker(Done);
    let before = world.env.monotonic();
    while world.events.deferred().1 < 60 {
        let batch: Vec<_> = std::iter::from_fn(|| world.messages.receive_due()).take(10).collect();
        let deadline = world.env.now() + world.function_time;
        assert!(worker.process(of_one_event(&batch), deadline).await.batch_item_failures.is_empty());
        batch.into_iter().for_each(|message| world.messages.acknowledge(message, Acknowledgement::Delete));
    }
    let took = world.env.monotonic() - before;
    assert!(took < ANSWER, "one append's patience: {took:?}, {} requests", table.requests());
}

/// The end of an append's patience may cut its last try short. Such a try says nothing about the store.
#[tokio::test(start_paused = true)]
async fn slow_throttling_store_is_not_taken_for_silent() {
    for latency in [5, 50, 300, 700].map(Duration::from_millis) {
        let mut world = deferred(["hot-1", "hot-2", "hot-3", "hot-4", "1", "2", "3"].map(str::to_owned)).await;
        world.fail(Fault::SlowBefore(latency, TableError::Throttled), |call| {
            ["hot-1", "hot-2", "hot-3", "hot-4"].iter().any(|order| is_of(call, order))
        });
        taken_up_together(&world).await;
        assert_eq!(world.events.deferred().1, 3, "{latency:?}");
    }
}
