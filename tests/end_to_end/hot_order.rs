//! A hot order: the cost of a delivery does not grow with the backlog.
//!
//! 1,000 and 10,000 deliveries run in memory, with computed capacity units. A smaller backlog also runs on
//! the embedded DynamoDB, which reports the units.

use tests::{
    metered::{MeteredTable, RequestCounts},
    prelude::*,
};
use webhook_serializer::protocol::{budget::spill_writes, receipt::PAGES};

const TIME: Duration = Duration::from_secs(100_000);

/// Returns an id. All ids have one length, so that all rows have one size.
fn id(number: u32) -> String {
    format!("{number:06}")
}

/// Makes deliveries equal for both stores, and pages far from a multiple of 4 KB.
fn like_all_others(incoming: Incoming) -> Incoming {
    Incoming { received_at: tests::clock::START, body: vec![b' '; 80].into(), ..incoming }
}

async fn in_memory(count: u32) -> RequestCounts {
    let (_, table) = drained(count).await;
    table.counted()
}

async fn drained(count: u32) -> (TestWorld, Arc<MeteredTable>) {
    let mut world = TestWorld::new();
    let table = Arc::new(MeteredTable::new(world.memory.clone()));
    world.table = table.clone();
    let inbox = world.inbox();
    for number in 0..count {
        inbox.append(&like_all_others(world.incoming("test/hot", &id(number)))).await.expect("it is appended");
    }
    let drainer = world.drainer(Done);
    world.function_time = TIME;
    assert_eq!(world.process(&drainer, "test/hot").await, Acknowledgement::Delete);
    assert!(world.applied().into_iter().eq((0..count).map(id)), "all of them, in order");
    assert_eq!(world.messages.sent(), u64::from(count));
    (world, table)
}

#[tokio::test(start_paused = true)]
async fn order_inspection_cost_is_independent_of_history_length() {
    let mut costs = Vec::new();
    for count in [2000, 5000] {
        let (world, table) = drained(count).await;
        let hot = key("test/hot");
        let before = table.counted();
        let inspected = world.operator().inspect(&hot).await.expect("memory answers");
        let settled = world.operator().settled(&hot, inspected.state.as_ref(), 20).await.expect("memory answers");
        assert_eq!((settled.places.len(), settled.has_older), (20, true));
        let after = table.counted();
        costs.push((after.requests - before.requests, after.read_units - before.read_units));
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0].0 <= 7, "{costs:?}");
    assert!(costs[0].1 <= 20, "{costs:?}");
}

#[tokio::test(start_paused = true)]
async fn order_inspection_needs_at_most_three_reads() {
    let mut world = TestWorld::new();
    let operator = world.operator().because(Reason::new("ada", "to see it"));
    let small = key("test/small");
    let hot = key("test/hot");
    for number in 0..30 {
        world.append("test/hot", &id(number)).await;
    }
    world.append_all("test/small", ["applied", "parked"]).await;
    world.work(&[world.drainer(rejecting("parked"))]).await;
    operator.hold(&small).await.unwrap();
    world.append("test/small", "waits").await;

    let state = world.state("test/small").await;
    let table = Arc::new(MeteredTable::new(world.memory.clone()));
    world.table = table.clone();
    let operator = world.operator();
    let mut before = 0;
    let mut since = || table.counted().requests - std::mem::replace(&mut before, table.counted().requests);
    let inspected = operator.inspect(&small).await.unwrap();
    assert_eq!((inspected.waiting.len(), inspected.parked.len()), (1, 1));
    assert!(since() <= 3, "its row, what waits, what is parked");
    assert_eq!(operator.settled(&small, Some(&state), 10).await.unwrap().places.len(), 2);
    assert!(since() <= 2, "one read of this row and one before");
    assert_eq!(operator.acts(&small).await.unwrap().len(), 1);
    assert!(since() <= 1, "what was done to it");
    assert_eq!(operator.receipts(&hot).await.unwrap().len(), 30);
    assert!(since() <= 2, "its row, and what that has forgotten");
}

#[tokio::test(start_paused = true)]
async fn delivery_cost_is_independent_of_the_backlog() {
    let five_thousand = in_memory(5000).await;
    let ten_thousand = in_memory(10_000).await;
    for (what, small, large) in [
        ("requests", five_thousand.requests, ten_thousand.requests),
        ("write units", five_thousand.write_units, ten_thousand.write_units),
        ("read units", five_thousand.read_units, ten_thousand.read_units),
    ] {
        let small = small as f64 / 5000.0;
        let large = large as f64 / 10_000.0;
        assert!(large <= 1.06 * small, "{what} for each delivery: {small} of 5,000 and {large} of 10,000");
    }
    // A claim, a put and a settle for each delivery, and one acquire. Once the entity has its most pages, further
    // receipts get separate rows.
    let capacity = Recent::capacity(&key("test/hot")) as u64;
    let in_pages = PAGES as u64 * (capacity - 1);
    let rows = 10_000 - capacity - in_pages;
    assert_eq!(ten_thousand.write_units, 3 * 10_000 + spill_writes(in_pages, capacity) + rows + 1);
    let few = in_memory(500).await;
    assert_eq!(few.write_units, 3 * 500 + spill_writes(500 - capacity, capacity) + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn computed_drain_cost_equals_measured_dynamodb_cost() {
    const COUNT: u32 = 60;
    let mut testbed = TestBed::start().await;
    // No renewal happens, however slow the machine is.
    testbed.settings.lease = TIME;
    let inbox = testbed.inbox();
    for number in 0..COUNT {
        inbox.append(&like_all_others(testbed.incoming("test/hot", &id(number)))).await.expect("it is appended");
    }
    let received = ReceivedWakeUp::new(key("test/hot"), 1);
    let deadline = testbed.env().monotonic() + TIME;
    assert_eq!(testbed.drainer(Done).process(&received, deadline, &SuspectGate::new(1)).await, Acknowledgement::Delete);
    assert_eq!(testbed.journal.runs().len(), COUNT as usize);
    let reading = testbed.meter.reading();
    let computed = in_memory(COUNT).await;
    assert_eq!(reading.requests(), computed.requests);
    assert_eq!(reading.write_units, computed.write_units as f64);
    assert_eq!(reading.read_units, computed.read_units as f64);
}
