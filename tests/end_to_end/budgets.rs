//! Exact costs: capacity units as the store reports them, requests, and queue sends.
//!
//! The units are those of `webhook_serializer::protocol::budget` and `docs/budgets.md`. B is the write
//! units of the delivery row, Q the read units of its page (one for each started 4 KB).
//!
//! | case | write requests | read requests | sends |
//! |---|---|---|---|
//! | append | 2 | 0 | 1 |
//! | append while a worker drains | 2 | 0 | 0 |
//! | drain of k | k + 1, and 1 for each receipt that leaves the row | ⌈k / 25⌉, twice where receipts have left the row | 0 |
//! | trickling: each that arrives during the drain | 2 (one refused) | 1 | 0 |
//! | a repeat already settled | 2 | 1 | 0 |
//! | drain of k in groups of m | ⌈k / m⌉ + 1 | ⌈k / 25⌉ | 0 |
//! | a failed attempt, a group's too | 2 | 1 | 1 |
//! | parked | 3 | 1 | 0 |
//! | `commit`s of k | k + 1 | ⌈k / 25⌉ | 0 |
//! | a wake-up of an empty entity | 1 (refused) | 0 | 0 |
//! | a wake-up of an entity that another drains | 1 (refused) | 0 | 1 |
//! | one look at a lease held exclusively | 0 | 1 | 0 |
//! | a slice's end | 2 more | 1 more | 1 |
//! | a suspect | 2 more, one of them refused | 0 | 0 |
//! | requeued because its source is held back | 2 | 1 | 1 |
//! | a renewal | 1 | 0 | 0 |
//! | each subscriber of a delivery | as an append and a drain | as a drain | as an append |

use tests::{
    prelude::*,
    testbed::{self, SOURCES},
};
use webhook_serializer::handlers::fan_out::FanOut;
use webhook_serializer::protocol::{
    budget::{
        BREAKER_WRITES, FAILED_WRITES, FUTILE_WRITES, INDEX_WRITES, SLICE_WRITES, SUSPECT_WRITES, TRICKLE_WRITES,
        append_writes, commit_drain_writes, drain_reads, drain_writes, group_drain_writes, park_writes, spill_writes,
    },
    state::LONGEST_LEASE,
};

/// A test bed without workers: the test processes wake-ups itself.
struct Scale {
    testbed: TestBed,
    inbox: Inbox,
    entity: EntityKey,
}

const PATIENCE: Duration = Duration::from_secs(5);

/// The write and read units of a small delivery.
const B: u64 = 1;
const Q: u64 = 1;

impl Scale {
    async fn start() -> Self {
        Self::of(TestBed::start().await)
    }

    fn of(mut testbed: TestBed) -> Self {
        // Even on a busy machine, the end of a slice or a renewal must not add to the counts.
        testbed.settings.slice = Duration::from_secs(3600);
        testbed.settings.lease = LONGEST_LEASE;
        let inbox = testbed.inbox();
        Self { testbed, inbox, entity: key("test/a") }
    }

    async fn delivering(up_to: u64) -> Self {
        let grouped = format!("[sources.test]\ndeliver = {{ up_to = {up_to} }}");
        Self::of(TestBed::start_for(&SOURCES.replace("[sources.test]", &grouped)).await)
    }

    async fn with_history() -> Self {
        let scale = Self::start().await;
        scale.append("before").await;
        assert_eq!(scale.process(&scale.drainer(Done)).await, Acknowledgement::Delete);
        scale
    }

    fn drainer(&self, handler: impl Handler) -> Drainer {
        let Parts { store, waker, .. } = self.testbed.parts();
        // A handler on a separate thread may finish during the read-ahead, and the page would be read again.
        self.testbed.drainer_on(store, waker, handler, Arc::new(TracingLog)).isolated(Isolation::Inline)
    }

    async fn append(&self, id: &str) {
        self.inbox.append(&self.testbed.incoming("test/a", id)).await.expect("it is appended");
    }

    async fn append_all(&self, ids: std::ops::Range<u64>) {
        for id in ids {
            self.append(&id.to_string()).await;
        }
    }

    async fn process(&self, drainer: &Drainer) -> Acknowledgement {
        let deadline = self.testbed.env().monotonic() + Duration::from_secs(600);
        let received = ReceivedWakeUp::new(self.entity.clone(), 1);
        drainer.process(&received, deadline, &SuspectGate::new(1)).await
    }

    async fn weigh(&self, act: impl Future) -> Reading {
        let before = self.testbed.meter.reading();
        act.await;
        self.testbed.meter.reading() - before
    }

    async fn weigh_drain(&self, handler: impl Handler) -> Reading {
        let drainer = self.drainer(handler);
        self.weigh(self.process(&drainer)).await
    }
}

fn costs(write_units: u64, writes: u64, read_units: u64, reads: u64) -> Reading {
    let write_units = write_units as f64;
    let read_units = read_units as f64;
    Reading { write_units, writes, read_units, reads, ..Reading::default() }
}

/// Promise: a delivery costs B + 3 write units and one send, in a backlog B + 2.
#[tokio::test]
async fn one_delivery_costs_five_table_requests() {
    let scale = Scale::start().await;
    assert_eq!(scale.weigh(scale.append("1")).await, Reading { sends: 1, ..costs(append_writes(B), 2, 0, 0) });
    let drain = scale.weigh_drain(Done).await;
    assert_eq!(drain, costs(drain_writes(1), 2, drain_reads(Q, 0), 1));
    scale.append("2").await;
    assert_eq!(scale.weigh_drain(Done).await, drain, "with a history");
    assert_eq!(append_writes(B) + drain_writes(1), B + 3);
}

/// Promise: a subscriber costs what an inbox costs: B + 3 write units and one send, with the body as compressed as the
/// original.
#[tokio::test]
async fn subscriber_costs_one_append_and_one_drain() {
    const SOURCES: &str = concat!(
        "[sources.shop]\nprovider = 'stripe'\nhandler = 'fan-out'\n",
        "[sources.mails]\nfrom = 'shop'\nhandler = 'test'\n"
    );
    let scale = Scale { entity: key("shop/a"), ..Scale::of(TestBed::start_for(SOURCES).await) };
    let body = "{\"text\":\"compressible\"}".repeat(500).into();
    let incoming = testbed::incoming("shop", "shop/a", "1", scale.testbed.env().now());
    let append = scale.weigh(async { scale.inbox.append(&Incoming { body, ..incoming }).await.unwrap() }).await;
    assert_eq!(append, Reading { sends: 1, ..costs(append_writes(B), 2, 0, 0) }, "it was compressed");
    let fan_out = scale.weigh_drain(FanOut::new(scale.testbed.sources().clone(), scale.inbox.clone())).await;
    let drain = costs(drain_writes(1), 2, drain_reads(Q, 0), 1);
    assert_eq!(fan_out - drain, append);
    let scale = Scale { entity: key("mails/a"), ..scale };
    assert_eq!(scale.weigh_drain(Done).await, drain);
}

#[tokio::test]
async fn large_delivery_body_is_written_once() {
    let scale = Scale::start().await;
    let (append, b, q) = append_large(&scale).await;
    assert_eq!(append, Reading { sends: 1, ..costs(append_writes(b), 2, 0, 0) });
    assert_eq!(scale.weigh_drain(Done).await, costs(drain_writes(1), 2, drain_reads(q, 0), 1));
}

async fn append_large(scale: &Scale) -> (Reading, u64, u64) {
    let mut incoming = scale.testbed.incoming("test/a", "large");
    let body: Vec<u8> = (0..1200_u64).flat_map(|_| scale.testbed.env().nonce().to_string().into_bytes()).collect();
    incoming.body = body.into();
    let append = scale.weigh(async { scale.inbox.append(&incoming).await.expect("it is appended") }).await;
    let state = scale.testbed.parts().store.entity(&scale.entity, PATIENCE).await.unwrap().unwrap();
    let row = scale.testbed.table().get(&delivery_row(&scale.entity, state.tail)).await.unwrap().unwrap();
    let b = row.write_units();
    let q = row.read_units();
    assert!(b > 10, "it is large: {b}");
    (append, b, q)
}

#[tokio::test]
async fn drain_of_backlog_acquires_once_and_settles_each_delivery() {
    const K: u64 = 70;
    let scale = Scale::with_history().await;
    let appends = scale.weigh(scale.append_all(0..K)).await;
    assert_eq!(appends, Reading { sends: K, ..costs(K * append_writes(B), 2 * K, 0, 0) });
    let drain = scale.weigh_drain(Done).await;
    // There are three pages; the first has 25 deliveries.
    let pages = drain.read_units as u64;
    let capacity = Recent::capacity(&scale.entity) as u64;
    let spilled = spill_writes(1 + K - capacity, capacity);
    assert_eq!(drain, costs(drain_writes(K) + spilled, K + 1 + spilled, drain_reads(pages, 0), 3));
    assert!((3..=6).contains(&pages), "a page of 25 small deliveries is at most 8 KB: {pages}");
    assert_eq!(K * append_writes(B) + drain_writes(K), K * (B + 2) + 1);
    // From here on, drains read the pages of receipts too, beside the deliveries. The receipts that leave the row next
    // are in a page already.
    scale.append("more").await;
    assert_eq!(scale.weigh_drain(Done).await, costs(drain_writes(1), 2, drain_reads(Q, 1), 2));
}

#[tokio::test]
async fn group_of_deliveries_costs_one_settle() {
    const K: u64 = 12;
    const M: u64 = 5;
    let scale = Scale::delivering(M).await;
    let appends = scale.weigh(scale.append_all(0..K)).await;
    assert_eq!(appends, Reading { sends: K, ..costs(K * append_writes(B), 2 * K, 0, 0) });
    let drain = scale.weigh_drain(Done).await;
    let settles = K.div_ceil(M);
    assert_eq!(drain, costs(group_drain_writes(K, M), 1 + settles, drain_reads(drain.read_units as u64, 0), 1));
    assert_eq!(K * append_writes(B) + group_drain_writes(K, M), K * (B + 1) + settles + 1);
}

/// Promise: with keys of up to 41 bytes, a backlog in groups of ten costs B + 1.15 write units a delivery, because two
/// groups share a page of receipts.
#[tokio::test]
async fn two_groups_of_ten_share_a_page_of_receipts() {
    const K: u64 = 100;
    let scale = Scale::delivering(10).await;
    scale.append_all(0..K).await;
    let drain = scale.weigh_drain(Done).await;
    // The receipts of the last two groups stay in the order's row.
    let pages = K / 20 - 1;
    let units = group_drain_writes(K, 10) + pages;
    assert_eq!((drain.write_units, drain.writes), (units as f64, units));
}

/// `figures bill` assumes this: each delivery of a burst sends a wake-up, and one batch drains them all.
#[tokio::test]
async fn wake_ups_of_a_burst_lead_to_one_drain() {
    for k in [1, 5, 10] {
        let mut scale = Scale::start().await;
        assert_eq!(scale.weigh(scale.append_all(0..k)).await.sends, k);
        let before = scale.testbed.meter.reading();
        scale.testbed.feed(scale.drainer(Done));
        scale.testbed.until_no_wake_ups().await;
        scale.testbed.rest().await;
        let drained = costs(drain_writes(k), k + 1, drain_reads(Q, 0), 1);
        assert_eq!(scale.testbed.meter.reading() - before, Reading { extensions: 1, ..drained }, "{k} deliveries");
    }
}

#[tokio::test]
async fn failed_group_costs_as_much_as_one_failed_attempt() {
    let scale = Scale::delivering(5).await;
    scale.append_all(0..3).await;
    let fails = Slow(Duration::ZERO);
    let failed = scale.weigh_drain(fails).await;
    assert_eq!(failed, Reading { sends: 1, ..costs(FAILED_WRITES + INDEX_WRITES, 2, drain_reads(Q, 0), 1) });
}

fn trickling(scale: &Scale, more: u64, appends: Arc<Mutex<Vec<Reading>>>) -> impl Handler + use<> {
    let inbox = scale.inbox.clone();
    let meter = scale.testbed.meter.clone();
    let env = scale.testbed.env().clone();
    let appended = AtomicU64::new(0);
    Scripted(move |_: &Delivery, _: &Context| {
        let number = appended.fetch_add(1, Relaxed);
        let inbox = inbox.clone();
        let meter = meter.clone();
        let appends = appends.clone();
        let incoming = tests::testbed::incoming("test", "test/a", &format!("more-{number}"), env.now());
        async move {
            if number < more {
                let before = meter.reading();
                inbox.append(&incoming).await?;
                appends.lock().expect("no panic under the lock").push(meter.reading() - before);
            }
            Ok(Outcome::Done)
        }
    })
}

#[tokio::test]
async fn delivery_arriving_during_drain_costs_one_refused_write() {
    const MORE: u64 = 5;
    let scale = Scale::start().await;
    scale.append("1").await;
    let appends = Arc::default();
    let drain = scale.weigh_drain(trickling(&scale, MORE, Arc::clone(&appends))).await;
    let appends = appends.lock().unwrap().clone();
    assert_eq!(appends.len(), MORE as usize);
    for append in &appends {
        assert_eq!(*append, costs(append_writes(B), 2, 0, 0), "no wake-up");
    }
    let writes = drain_writes(1) + MORE * TRICKLE_WRITES;
    let reads = (1 + MORE) * drain_reads(Q, 0);
    let expected = Reading { refusals: MORE, ..costs(writes, 2 + MORE, reads, 1 + MORE) };
    let drain = appends.into_iter().fold(drain, |drain, append| drain - append);
    assert_eq!(drain, expected);
}

#[tokio::test]
async fn repeat_costs_one_settle_and_no_handler_start() {
    let scale = Scale::with_history().await;
    scale.append("1").await;
    scale.process(&scale.drainer(Done)).await;
    scale.append("before").await;
    let starts = scale.testbed.journal.runs().len();
    assert_eq!(scale.weigh_drain(Done).await, costs(drain_writes(1), 2, drain_reads(Q, 0), 1));
    assert_eq!(scale.testbed.journal.runs().len(), starts);
}

#[tokio::test]
async fn failed_attempt_costs_two_writes_an_index_entry_and_a_send() {
    let scale = Scale::start().await;
    scale.append("1").await;
    let failed = scale.weigh_drain(failing()).await;
    assert_eq!(failed, Reading { sends: 1, ..costs(FAILED_WRITES + INDEX_WRITES, 2, drain_reads(Q, 0), 1) });
}

#[tokio::test]
async fn parking_costs_another_write_of_the_body() {
    let scale = Scale::start().await;
    let (_, b, q) = append_large(&scale).await;
    let parked = scale.weigh_drain(answering(|_, _| Outcome::Reject("never".into()))).await;
    assert_eq!(parked, costs(park_writes(b), 3, drain_reads(q, 0), 1));
}

fn counting(context: &Delivery) -> Outcome {
    let key = Key::named("totals", "order", context.entity().as_str());
    Outcome::Commit(vec![Write::update(key, vec![Change::add("n", 1)])])
}

#[tokio::test]
async fn commit_doubles_write_units_and_includes_the_release() {
    let scale = Scale::start().await;
    scale.append("1").await;
    let one = scale.weigh_drain(answering(|delivery, _| counting(delivery))).await;
    assert_eq!(one, costs(commit_drain_writes(1, 1), 2, drain_reads(Q, 0), 1));
    scale.append_all(2..5).await;
    let three = scale.weigh_drain(answering(|delivery, _| counting(delivery))).await;
    assert_eq!(three, costs(commit_drain_writes(3, 1), 4, drain_reads(Q, 0), 1));
}

#[tokio::test]
async fn drain_of_empty_entity_costs_one_refused_write() {
    let scale = Scale::with_history().await;
    assert_eq!(scale.weigh_drain(Done).await, Reading { refusals: 1, ..costs(FUTILE_WRITES, 0, 0, 0) });
}

#[tokio::test]
async fn wake_up_during_drain_costs_one_refused_write_and_a_send() {
    let scale = Scale::start().await;
    scale.append("1").await;
    let drain = acquired(&scale, LeaseKind::Drain).await;
    let refused = Reading { refusals: 1, sends: 1, ..costs(FUTILE_WRITES, 0, 0, 0) };
    assert_eq!(scale.weigh_drain(Done).await, refused);
    drop(drain);
}

async fn acquired(scale: &Scale, kind: LeaseKind) -> Lease {
    acquired_until(scale, kind, scale.testbed.env().now() + Duration::from_secs(600)).await
}

async fn acquired_until(scale: &Scale, kind: LeaseKind, end: Timestamp) -> Lease {
    let env = scale.testbed.env();
    let request = Acquire {
        entity: scale.entity.clone(),
        kind,
        holder: env.nonce(),
        info: HolderInfo::new("a test"),
        now: end,
        length: Duration::ZERO,
    };
    match scale.testbed.parts().store.run(&request, PATIENCE).await.expect("the store answers") {
        Acquired::Granted(lease, _) => lease,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn hand_over_costs_two_writes_and_a_send() {
    let mut scale = Scale::start().await;
    scale.append_all(1..3).await;
    scale.testbed.settings.slice = Duration::ZERO;
    let first = scale.weigh_drain(Done).await;
    let second = scale.weigh_drain(Done).await;
    let writes = drain_writes(2) + SLICE_WRITES;
    let reads = drain_reads(Q, 0) + Q;
    assert_eq!(
        (first.write_units + second.write_units, first.read_units + second.read_units, first.sends, second.sends),
        (writes as f64, reads as f64, 1, 0)
    );
}

#[tokio::test]
async fn suspect_costs_two_extra_writes_and_an_index_entry() {
    let scale = Scale::start().await;
    scale.append("1").await;
    let past = scale.testbed.env().now().as_millis() - 2000;
    acquired_until(&scale, LeaseKind::Drain, Timestamp::from_millis(past)).await;
    let suspect = scale.weigh_drain(Done).await;
    let as_usual = costs(drain_writes(1) + SUSPECT_WRITES + 2 * INDEX_WRITES, 3, drain_reads(Q, 0), 1);
    assert_eq!(suspect, Reading { refusals: 1, ..as_usual });
}

#[tokio::test]
async fn breaker_refusal_costs_two_writes_an_index_entry_and_a_send() {
    let mut scale = Scale::start().await;
    let drainer = scale.drainer(answering(|_, _| Outcome::unavailable("out")));
    for entity in ["test/b", "test/c", "test/d", "test/a"] {
        scale.entity = key(entity);
        scale.inbox.append(&scale.testbed.incoming(entity, entity)).await.expect("it is appended");
        if entity != "test/a" {
            scale.process(&drainer).await;
        }
    }
    let held_back = scale.weigh(scale.process(&drainer)).await;
    assert_eq!(held_back, Reading { sends: 1, ..costs(BREAKER_WRITES + INDEX_WRITES, 2, drain_reads(Q, 0), 1) });
    assert_eq!(scale.testbed.journal.runs().len(), 3, "it was not started");
}

/// The wake-up follows the lease after 1, 2, 4, 8, … seconds, at most until the lease expires. Claims rely on it.
#[tokio::test(start_paused = true)]
async fn following_an_exclusive_lease_costs_few_requests() {
    let mut world = TestWorld::new();
    let table = world.break_table(|_| Fault::None);
    world.append("test/a", "1").await;
    let lease = world.acquire("test/a", LeaseKind::Exclusive, Duration::from_secs(600)).await;
    let drainer = world.drainer(Done);
    let sends = world.messages.sent();
    let writes = table.writes();
    assert_eq!(world.process_next(&drainer).await, Acknowledgement::Delete);
    assert_eq!((world.messages.sent() - sends, table.writes() - writes), (1, 2), "a refused acquire, and a record");
    let sends = world.messages.sent();
    for number in 2..100 {
        world.append("test/a", &number.to_string()).await;
    }
    assert_eq!(world.messages.sent(), sends, "the follower stands for all");
    let requests = table.requests();
    let writes = table.writes();
    let work = world.work(std::slice::from_ref(&drainer));
    assert!(world.env.within(Duration::from_secs(511), work).await.is_none());
    let requeues = world.messages.sent() - sends;
    assert_eq!(requeues, 9);
    let both = (table.requests() - requests, table.writes() - writes);
    assert_eq!(both, (2 * requeues, 2 * requeues), "a refused acquire and a record each");
    world.store().run(&Release { lease: &lease }, PATIENCE).await.unwrap();
    world.work(&[drainer]).await;
    assert_eq!(world.applied().len(), 99);
}

/// A lease of 15 s is renewed every 5 s.
#[tokio::test(start_paused = true)]
async fn lease_is_renewed_every_third_of_its_length() {
    let mut world = TestWorld::new();
    world.append_from("slow", "slow/a", "1").await;
    let table = world.break_table(|_| Fault::None);
    world.work(&[world.drainer(Slow(Duration::from_secs(41)))]).await;
    assert_eq!(world.applied(), ["1"]);
    assert_eq!(table.writes(), 2 + 41 / 5);
}

/// The settle, the spilled receipt and the next page are requested concurrently.
#[tokio::test(start_paused = true)]
async fn backlog_takes_one_round_trip_per_delivery() {
    const LATENCY: Duration = Duration::from_millis(100);
    const HANDLER: Duration = Duration::from_millis(700);
    const K: u32 = 60;
    let mut world = TestWorld::with("test/a", 0..K).await;
    world.break_table(|_| Fault::Slow(LATENCY));
    world.function_time = Duration::from_secs(600);
    world.settings.slice = world.function_time;
    let before = world.env.monotonic();
    let drainer = world.drainer(Slow(HANDLER));
    world.process(&drainer, "test/a").await;
    // The acquire and the first page; then for each delivery a handler start and a settle.
    assert_eq!(world.env.monotonic() - before, 2 * LATENCY + K * (HANDLER + LATENCY));
    assert_eq!(world.applied().len(), K as usize);
}

#[tokio::test(start_paused = true)]
async fn row_of_settled_order_has_the_billed_size() {
    let order = "shopify/order/450789469";
    for deliveries in [1, 5, 20] {
        let world = TestWorld::with(order, 0..deliveries).await;
        world.work(&[world.drainer(Done)]).await;
        assert!(world.state(order).await.is_empty());
        let row = world.table.get(&entity_row(&key(order))).await.expect("memory answers").expect("a row");
        let billed = figures::bill::entity_kb(deliveries.into()) * 1000.0;
        let size = row.size();
        assert!((size as f64 - billed).abs() <= 40.0, "{size} bytes with {deliveries} receipts, {billed} in the bill");
    }
}
