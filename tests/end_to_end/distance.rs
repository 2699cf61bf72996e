//! The round trips that a webhook waits for, in simulated time: each request takes as long as its way to the store or
//! the queue and back, and nothing else takes time.

use std::sync::OnceLock;

use futures_util::StreamExt;
use tests::{
    forwarding::{Forwarding, Layer, TableReply, TableRequest},
    prelude::*,
};
use webhook_serializer::engine::queue::{Queue, Visibility};

/// Milliseconds to the store and back, and to the queue and back.
type Distance = (u64, u64);

/// An AWS region, and ten times as far.
const NEAR: Distance = (4, 12);
const FAR: Distance = (40, 120);

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
        self.env.sleep(self.round_trip / 2).await;
        let reply = request.await;
        self.env.sleep(self.round_trip / 2).await;
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
}

impl Queue for FarQueue {
    fn send<'a>(&'a self, message: &'a Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        let Self { network, worker } = self.clone();
        let event = SqsEvent { records: vec![SqsRecord { body: message.text(), ..record("1", "", "1") }] };
        let accept = async move {
            let Network { env, round_trip, .. } = network;
            tokio::spawn(async move {
                env.sleep(delay + round_trip / 2).await;
                let deadline = env.now() + Duration::from_secs(60);
                worker.get().expect("there is a worker").process(event, deadline).await;
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
struct Elsewhere(Duration);

impl Handler for Elsewhere {
    async fn handle(&self, _: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        context.env().sleep(self.0).await;
        Ok(Outcome::Done)
    }

    fn runs_elsewhere(&self, _: &str) -> bool {
        true
    }
}

/// A run of a benchmark's scenario; see `figures/src/bench.rs`.
struct FarRun {
    /// The times at which handlers started and ended, in milliseconds from the first webhook on.
    handlers: Vec<(u64, u64)>,
    /// The time at which the last webhook was answered.
    answered: u64,
    store: Network,
}

impl FarRun {
    async fn of(distance: Distance, deliveries: u64, orders: u64, senders: usize, handler: u64) -> Self {
        let mut world = TestWorld::new();
        let store = Network::new(&world.env, distance.0);
        let queue = FarQueue { network: Network::new(&world.env, distance.1), worker: Arc::default() };
        world.table = Arc::new(Forwarding::through(store.clone(), world.memory.clone()));
        world.queue = Arc::new(queue.clone());
        world.visibility = Arc::new(queue.clone());
        let worker = world.worker(Elsewhere(Duration::from_millis(handler)));
        assert!(queue.worker.set(worker).is_ok());
        let began = world.env.monotonic();
        let ms = |time: Duration| (time - began).as_millis() as u64;
        let append = async |number: u64| world.append(&format!("test/{}", number % orders), &number.to_string()).await;
        futures_util::stream::iter((0..deliveries).map(append)).buffer_unordered(senders).collect::<Vec<_>>().await;
        let answered = ms(world.env.monotonic());
        world.journal.until_applied(deliveries as usize).await;
        let runs = world.journal.runs();
        Self { handlers: runs.iter().map(|run| (ms(run.started), ms(run.ended))).collect(), answered, store }
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
    for (store, queue) in [NEAR, FAR] {
        let run = FarRun::of((store, queue), 1, 1, 1, 20).await;
        assert_eq!(run.answered, store + queue);
        assert_eq!(run.handlers, [(queue + 3 * store, queue + 3 * store + 20)]);
    }
}

/// A request that is dropped costs its connection, and a page of deliveries would be read twice.
#[tokio::test(start_paused = true)]
async fn read_of_the_next_page_outlasts_a_quick_handler() {
    let run = FarRun::of(NEAR, 60, 1, 60, 1).await;
    assert_eq!(run.store.sent.load(Relaxed), run.store.answered.load(Relaxed) + 1, "only the last settle is under way");
}

/// The times in docs/figures.md, at a network's distance.
#[tokio::test(start_paused = true)]
async fn benchmarks_take_their_round_trips() {
    for (distance, five, mixed) in [((0, 0), 150, 200), (NEAR, 182, 260), (FAR, 510, 1000)] {
        assert_eq!(FarRun::of(distance, 5, 2, 2, 50).await.end(), five, "{distance:?}");
        assert_eq!(FarRun::of(distance, 200, 20, 20, 20).await.end(), mixed, "{distance:?}");
    }
}
