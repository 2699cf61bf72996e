//! Single failures of a worker: an outage, a freeze, an unreadable page or row, a commit that cannot land.

use tests::{
    forwarding::{Forwarding, Layer, TableReply, TableRequest},
    prelude::*,
};
use webhook_serializer::{engine::store::ATTEMPT, protocol::lease::RequestYield};

const PATIENCE: Duration = Duration::from_secs(5);

fn received() -> ReceivedWakeUp {
    ReceivedWakeUp::new(entity(), 1)
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// If wake-ups were replaced more than once, their number would double with each visibility timeout.
#[tokio::test(start_paused = true)]
async fn outage_does_not_multiply_wake_ups() {
    const ENTITIES: u64 = 5;
    const OUTAGE: Duration = Duration::from_secs(1200);
    let mut world = TestWorld::new();
    for number in 0..ENTITIES {
        world.append(&format!("test/{number}"), &number.to_string()).await;
    }
    let clock = world.env.clone();
    world.fail(Fault::Before(TableError::Unknown("out".into())), move |_| clock.monotonic() < OUTAGE);
    let drainers: Vec<_> = (0..20).map(|_| world.drainer(Done)).collect();
    world.work(&drainers).await;
    assert!(world.env.monotonic() >= OUTAGE);
    assert_eq!(world.applied().len() as u64, ENTITIES);
    // One wake-up is for the append; then one for each visibility timeout of a kept message.
    let rounds = OUTAGE.as_secs() / tests::world::VISIBILITY.as_secs() + 1;
    assert!(world.messages.sent() <= ENTITIES * (1 + rounds), "{} wake-ups", world.messages.sent());
}

/// Returns a world with more than a page of deliveries, in which the read-ahead of the second page has
/// failed.
async fn with_a_bad_read_ahead(fault: Fault, bad: std::ops::Range<u64>) -> TestWorld {
    let mut world = TestWorld::with("test/a", numbers(30)).await;
    world.fail(fault, move |call| bad.contains(&call.read));
    world.work(&[world.drainer(Slow(Duration::from_millis(10)))]).await;
    world
}

#[tokio::test(start_paused = true)]
async fn failed_read_ahead_does_not_discard_handlers_answer() {
    // Read 1 is the first page. The other reads are as many as five seconds allow.
    let world = with_a_bad_read_ahead(Fault::Before(TableError::Throttled), 2..24).await;
    assert_eq!(world.started(), numbers(30), "each once");
    assert_eq!((world.events.taken_over(), world.events.lost()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn settle_does_not_wait_for_read_ahead() {
    let world = with_a_bad_read_ahead(Fault::Silent, 2..3).await;
    assert_eq!(world.started(), numbers(30));
    let runs = world.journal.runs();
    let between = runs[25].started - runs[24].ended;
    assert!(between <= ATTEMPT / 3, "{between:?}");
}

/// For example, a newer version wrote the row during a deployment.
#[tokio::test(start_paused = true)]
async fn unreadable_row_counts_no_attempt() {
    let world = TestWorld::with("test/a", numbers(3)).await;
    let last = delivery_row(&entity(), world.state("test/a").await.tail);
    let version = async |version: u64| {
        world.memory.write(&Write::update(last.clone(), vec![Change::set(a::VERSION, version)])).await.unwrap();
    };
    version(1000).await;
    let repaired = async {
        world.env.sleep(Duration::from_secs(600)).await;
        let state = world.state("test/a").await;
        assert_eq!(world.started(), ["0", "1"], "the deliveries before it");
        assert_eq!((state.waiting(), state.attempts, state.blocked), (1, 0, None));
        version(webhook_serializer::protocol::format::FORMAT.into()).await;
    };
    let drainers = [world.drainer(Done), world.drainer(Done)];
    tokio::join!(world.work(&drainers), repaired);
    assert_eq!(world.started(), ["0", "1", "2"]);
    assert_eq!((world.events.taken_over(), world.events.lost()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn commit_refused_as_invalid_counts_as_failed_attempt() {
    let mut world = TestWorld::with("test/a", numbers(2)).await;
    let plan = |call: &TableCall<'_>| match call.writes.len() {
        0 | 1 => Fault::None,
        _ => Fault::Before(TableError::Invalid("one item twice".into())),
    };
    world.break_table(plan);
    let twice = answering(|delivery, _| {
        let key = Key::named("totals", "order", delivery.entity().as_str());
        let count = Write::update(key, vec![Change::add("n", 1)]);
        Outcome::Commit(vec![count.clone(), count])
    });
    world.work(&[world.drainer(twice)]).await;
    assert_eq!(world.started(), ["0", "0", "0", "1", "1", "1"], "as often as the source says");
    let parked = world.operator().parked(&entity()).await.unwrap();
    assert_eq!(parked.iter().map(|parked| &*parked.error).collect::<Vec<_>>(), ["one item twice"; 2]);
    assert_eq!((world.events.taken_over(), world.events.lost()), (0, 0), "no worker was held for dead");
}

/// A client that freezes beyond its lease while its socket holds the first page. Another worker processes the
/// order meanwhile.
struct Freezing {
    clock: ShiftedClock,
    thawed: AtomicBool,
    other: Drainer,
}

impl Layer for Freezing {
    async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
        let reply = request.of(inner).await;
        if matches!(request, TableRequest::Query(_)) && !self.thawed.swap(true, Relaxed) {
            self.clock.pass(Duration::from_secs(20));
            let deadline = self.clock.monotonic() + Duration::from_secs(60);
            let acknowledgement = self.other.process(&received(), deadline, &SuspectGate::new(1)).await;
            assert_eq!(acknowledgement, Acknowledgement::Delete);
        }
        reply
    }
}

#[tokio::test(start_paused = true)]
async fn frozen_worker_starts_no_handler_after_take_over() {
    let clock = ShiftedClock::new(TokioClock::start());
    let mut world = TestWorld::by(Env::new(clock.clone(), SeededRandom::new(1)));
    world.append("test/a", "0").await;
    let other = world.drainer(Done);
    let freezing = Freezing { clock, thawed: AtomicBool::new(false), other };
    world.table = Arc::new(Forwarding::through(freezing, world.table.clone()));
    let deadline = world.env.monotonic() + Duration::from_secs(600);
    world.drainer(Done).process(&received(), deadline, &SuspectGate::new(1)).await;
    assert_eq!(world.started(), ["0"], "by the other");
    assert_eq!((world.events.taken_over(), world.events.lost()), (1, 1));
}

/// A commit does not return the order's row, and so shows no request to yield.
#[tokio::test(start_paused = true)]
async fn drain_that_only_commits_honours_yield_request() {
    const HANDLER: Duration = Duration::from_millis(400);
    const YIELD: Duration = Duration::from_secs(6);
    let world = TestWorld::with("test/a", numbers(20)).await;
    let store = world.store();
    let asking = Scripted(move |delivery: &Delivery, context: &Context| {
        let store = store.clone();
        let env = context.env().clone();
        let first = delivery.delivery_id().as_str() == "0";
        let key = Key::named("totals", "order", delivery.delivery_id().as_str());
        async move {
            env.sleep(HANDLER).await;
            if first {
                let now = env.now();
                store.run(&RequestYield { entity: &entity(), now, until: now + YIELD }, PATIENCE).await?;
            }
            Ok(Outcome::Commit(vec![Write::update(key, vec![Change::set("applied", "yes")])]))
        }
    });
    world.work(&[world.drainer(asking)]).await;
    assert_eq!((world.applied(), world.events.lost()), (numbers(20), 0));
    let runs = world.journal.runs();
    let yielding = runs.iter().filter(|run| run.started < HANDLER + YIELD).count();
    // The worker reads the row once a second.
    assert!((2..=4).contains(&yielding), "{yielding} were started before it had yielded");
}
