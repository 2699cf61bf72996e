//! Handlers that block their threads until the test lets them go, by the machine's clock.

use std::sync::Condvar;

use tests::prelude::*;
use webhook_serializer::engine::threads::MOST_LOST;

/// A handler that blocks its thread for orders below `stuck/`, until the gate is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

impl Handler for Gate {
    async fn handle(&self, delivery: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
        if delivery.entity().as_str().starts_with("stuck/") {
            let shut = self.0.0.lock().map_err(|_| "poisoned")?;
            drop(self.0.1.wait_while(shut, |open| !*open).map_err(|_| "poisoned")?);
        }
        Ok(Outcome::Done)
    }
}

struct StuckWorker {
    world: TestWorld,
    worker: Worker,
    gate: Gate,
}

impl StuckWorker {
    /// Returns a worker that has lost more than [`MOST_LOST`] threads, so that it starts no handler.
    async fn spent() -> Self {
        let mut world = TestWorld::by(Env::system());
        world.isolation = Isolation::Thread;
        let gate = Gate::default();
        let worker = world.worker(gate.clone());
        let stuck = Self { world, worker, gate };
        let names: Vec<String> = (0..=MOST_LOST).map(|number| format!("stuck/{number}")).collect();
        // Handlers of the source `brief` have 200 ms.
        for name in &names {
            stuck.append("brief", name).await;
        }
        stuck.process(&names).await;
        assert_eq!(stuck.world.journal.runs().len(), 0, "no handler has ended");
        assert_eq!(stuck.world.events.threads_lost(), names.len() as u64, "the log tells how many");
        assert!(stuck.worker.is_spent().await);
        stuck
    }

    /// Appends a delivery whose id equals its order's key.
    async fn append(&self, source: &str, entity: &str) {
        let incoming = self.world.incoming_from(source, entity, entity);
        self.world.inbox().append(&incoming).await.expect("it is appended");
    }

    async fn process(&self, entities: &[String]) {
        self.world.messages.clear();
        let records = entities.iter().map(|entity| record(entity, entity, "1"));
        let deadline = self.world.env.now() + Duration::from_secs(60);
        let response = self.worker.process(SqsEvent { records: records.collect() }, deadline).await;
        assert!(response.batch_item_failures.is_empty(), "{response:?}");
    }
}

#[tokio::test]
async fn delivery_without_free_thread_counts_no_attempt() {
    let stuck = StuckWorker::spent().await;
    let good: Vec<String> = (0..20).map(|number| format!("good/{number}")).collect();
    for entity in &good {
        stuck.append("test", entity).await;
    }
    // The source `test` allows three attempts.
    for _ in 0..4 {
        stuck.process(&good).await;
        assert_eq!(stuck.world.messages.len(), good.len(), "each order has a fresh wake-up");
    }
    for entity in &good {
        let state = stuck.world.state(entity).await;
        assert_eq!((state.attempts, state.waiting(), state.held), (0, 1, None), "{entity}");
        assert!(stuck.world.operator().parked(&key(entity)).await.unwrap().is_empty());
    }
    assert!(stuck.world.applied().is_empty());
    stuck.gate.open();
}

#[tokio::test]
async fn worker_resumes_when_lost_threads_return() {
    let stuck = StuckWorker::spent().await;
    stuck.gate.open();
    // Each look waits for the threads for a while.
    while stuck.worker.is_spent().await {}
    let good = ["good/1".to_owned()];
    stuck.append("test", &good[0]).await;
    stuck.process(&good).await;
    assert_eq!(stuck.world.state(&good[0]).await.waiting(), 0);
    assert!(stuck.world.applied().contains(&good[0]));
}
