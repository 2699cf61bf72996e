//! The round trips that a webhook waits for, in simulated time: each request takes as long as its way to the store or
//! the queue and back, and nothing else takes time.

use std::sync::OnceLock;

use futures_util::StreamExt;
use tests::{
    forwarding::{Forwarding, Layer, TableReply, TableRequest},
    prelude::*,
};
use webhook_serializer::engine::queue::{Queue, Visibility};

/// The round trips to the store and to the queue, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Distance {
    store: u64,
    queue: u64,
}

/// The distances within an AWS region, and ten times these. Each has one millisecond more, because a request also takes
/// time without a distance.
const NEAR: Distance = Distance { store: 5, queue: 13 };
const FAR: Distance = Distance { store: 41, queue: 121 };

/// A scenario of the benchmarks, or a smaller one; see `figures/src/bench.rs`.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    deliveries: u64,
    orders: u64,
    senders: usize,
    /// The time that a handler takes, in milliseconds.
    handler: u64,
    answer: fn() -> Outcome,
}

const LONE: Scenario = Scenario { deliveries: 1, orders: 1, senders: 1, handler: 20, answer: || Outcome::Done };
const FIVE: Scenario = Scenario { deliveries: 5, orders: 2, senders: 2, handler: 50, ..LONE };
const MIXED: Scenario = Scenario { deliveries: 200, orders: 20, senders: 20, ..LONE };

#[derive(Clone)]
struct Network {
    env: Env,
    round_trip: Duration,
    /// The requests that were sent, and those whose reply was awaited.
    sent: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
}

impl Network {
    fn new(env: &Env, round_trip: u64) -> Self {
        let round_trip = Duration::from_millis(round_trip);
        Self { env: env.clone(), round_trip, sent: Arc::default(), answered: Arc::default() }
    }

    async fn carry<T>(&self, request: impl Future<Output = T>) -> T {
        self.sent.fetch_add(1, Relaxed);
        // The runtime rounds each time up to whole milliseconds.
        let there = Duration::from_millis(self.round_trip.as_millis() as u64 / 2);
        self.env.sleep(there).await;
        let reply = request.await;
        self.env.sleep(self.round_trip - there).await;
        self.answered.fetch_add(1, Relaxed);
        reply
    }
}

impl Layer for Network {
    async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
        self.carry(request.of(inner)).await
    }
}

/// A queue whose messages go to idle workers, as far away on its other side.
#[derive(Clone)]
struct FarQueue {
    network: Network,
    worker: Arc<OnceLock<Worker>>,
    wake_ups: Arc<AtomicU64>,
}

impl Queue for FarQueue {
    fn send<'a>(&'a self, message: &'a Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        let Self { network, worker, wake_ups } = self.clone();
        wake_ups.fetch_add(1, Relaxed);
        let event = SqsEvent { records: vec![SqsRecord { body: message.text(), ..record("1", "", "1") }] };
        let accept = async move {
            let Network { env, round_trip, .. } = network;
            tokio::spawn(async move {
                env.sleep(delay + round_trip / 2).await;
                let deadline = env.now() + Duration::from_secs(60);
                let answer = worker.get().expect("there is a worker").process(event, deadline).await;
                assert!(answer.batch_item_failures.is_empty(), "the queue would deliver them again");
            });
            Ok(())
        };
        Box::pin(self.network.carry(accept))
    }
}

impl Visibility for FarQueue {
    fn hide<'a>(&'a self, _: &'a [String], _: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(self.network.carry(ready(Ok(()))))
    }
}

/// A handler that takes some time in another process.
struct RemoteHandler(Scenario);

impl Handler for RemoteHandler {
    async fn handle(&self, _: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        context.env().sleep(Duration::from_millis(self.0.handler)).await;
        Ok((self.0.answer)())
    }

    fn runs_elsewhere(&self, _: &str) -> bool {
        true
    }
}

struct FarRun {
    /// The times at which handlers started and ended, in milliseconds from the first webhook on.
    handlers: Vec<(u64, u64)>,
    /// The time at which the last webhook was answered.
    answered: u64,
    store: Network,
    wake_ups: u64,
}

impl FarRun {
    async fn of(scenario: Scenario, distance: Distance) -> Self {
        let Scenario { deliveries, orders, senders, .. } = scenario;
        let mut world = TestWorld::new();
        let store = Network::new(&world.env, distance.store);
        let network = Network::new(&world.env, distance.queue);
        let queue = FarQueue { network, worker: Arc::default(), wake_ups: Arc::default() };
        world.table = Arc::new(Forwarding::through(store.clone(), world.memory.clone()));
        world.queue = Arc::new(queue.clone());
        world.visibility = Arc::new(queue.clone());
        assert!(queue.worker.set(world.worker(RemoteHandler(scenario))).is_ok());
        let began = world.env.monotonic();
        let ms = |time: Duration| (time - began).as_millis() as u64;
        let append = async |number: u64| world.append(&format!("test/{}", number % orders), &number.to_string()).await;
        futures_util::stream::iter((0..deliveries).map(append)).buffer_unordered(senders).collect::<Vec<_>>().await;
        let answered = ms(world.env.monotonic());
        let applied = world.journal.until_applied(deliveries as usize);
        world.env.within(Duration::from_secs(60), applied).await.expect("all deliveries are applied");
        let runs = world.journal.runs();
        let handlers = runs.iter().map(|run| (ms(run.started), ms(run.ended))).collect();
        Self { handlers, answered, store, wake_ups: queue.wake_ups.load(Relaxed) }
    }

    fn end(&self) -> u64 {
        self.handlers.iter().map(|(_, ended)| *ended).max().expect("handlers ran")
    }
}

/// Put and wake-up are sent at the same time. The handler then waits for acquire and page.
///
/// Promise: two round trips to accept, one write to hand over.
///
/// Promise: the handler of a lone webhook starts after one round trip to the queue and three to the store, if it runs
/// in another process.
#[tokio::test(start_paused = true)]
async fn lone_webhook_waits_for_four_round_trips() {
    for distance in [NEAR, FAR] {
        let Distance { store, queue } = distance;
        let run = FarRun::of(LONE, distance).await;
        assert_eq!(run.answered, store + queue);
        assert_eq!(run.handlers, [(queue + 3 * store, queue + 3 * store + LONE.handler)]);
    }
}

/// A request that is dropped costs its connection, and the page would be read twice.
#[tokio::test(start_paused = true)]
async fn read_of_the_next_page_outlasts_a_quick_handler() {
    for answer in [|| Outcome::Done, || Outcome::commit([])] as [fn() -> Outcome; 2] {
        let burst = Scenario { deliveries: 60, senders: 60, handler: 1, answer, ..LONE };
        let run = FarRun::of(burst, NEAR).await;
        assert_eq!(run.store.sent.load(Relaxed), run.store.answered.load(Relaxed) + 1, "the last settle is under way");
    }
}

/// The times in docs/figures.md, at a network's distance.
#[tokio::test(start_paused = true)]
async fn benchmarks_take_their_round_trips() {
    let exact = Distance { store: 4, queue: 12 };
    for (scenario, distance, end) in
        [(FIVE, exact, 182), (FIVE, NEAR, 188), (MIXED, NEAR, 273), (FIVE, FAR, 517), (MIXED, FAR, 1059)]
    {
        assert_eq!(FarRun::of(scenario, distance).await.end(), end, "{scenario:?} {distance:?}");
    }
}

/// Either most webhooks meet a worker, or most just miss it and send a wake-up.
#[tokio::test(start_paused = true)]
async fn a_millisecond_decides_whether_webhooks_meet_a_worker() {
    let near = FarRun::of(MIXED, Distance { store: 4, queue: 12 }).await;
    let meets = FarRun::of(MIXED, Distance { store: 40, queue: 120 }).await;
    let misses = FarRun::of(MIXED, Distance { store: 40, queue: 121 }).await;
    assert_eq!([near.end(), meets.end(), misses.end()], [260, 1000, 1549]);
    assert_eq!([near.wake_ups, meets.wake_ups, misses.wake_ups], [60, 60, 200]);
}
