//! A deployment in memory: one thread, tokio's clock, and a store and a queue whose calls a test can make
//! fail. Under a paused clock a run takes no time and is the same each time.

mod events;
mod queue;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use serializer::local::handler_log::{Journal, Journaled};
use webhook_serializer::{
    engine::{
        append::Inbox,
        drain::{Acknowledgement, DrainSettings, Drainer, InFlight, ReceivedWakeUp, SuspectGate},
        queue::{Depth, Message, Queue, Visibility, WakeUp},
        store::Store,
        sweep::Sweeper,
        wake::Waker,
    },
    functions::worker::{Attributes, SqsEvent, SqsRecord, Worker},
    handler::{Handler, Isolation},
    leases::Leases,
    operator::Operator,
    protocol::{
        delivery::Incoming,
        entity::{EntityKey, Sequence},
        inbox::Claim,
        keys::entity_row,
        lease::{Acquire, Acquired, Lease},
        memory::MemoryTable,
        receipt::Settlement,
        state::{BlockReason, EntityState, HolderInfo, LeaseKind},
        table::{Row, Table, TableName},
    },
    sources::Sources,
    time::{Env, Nonce, Timestamp},
};

use crate::{
    clock,
    faults::{Fault, FaultyQueue, FaultyTable, TableCall},
    handlers::{EFFECTS, failing},
    testbed,
    webhooks::noise,
};

const PATIENCE: Duration = Duration::from_secs(5);

pub use events::EventCounts;
pub use queue::{MemoryMessage, MemoryQueue, VISIBILITY};

pub struct TestWorld {
    pub env: Env,
    pub memory: Arc<MemoryTable>,
    /// The store as the parts see it; `memory` holds its rows.
    pub table: Arc<dyn Table>,
    pub messages: Arc<MemoryQueue>,
    /// The queue as the parts see it; `messages` holds its messages.
    pub queue: Arc<dyn Queue>,
    pub visibility: Arc<dyn Visibility>,
    pub depth: Arc<dyn Depth>,
    pub settings: DrainSettings,
    pub function_time: Duration,
    pub journal: Journal,
    pub events: Arc<EventCounts>,
    pub isolation: Isolation,
    sources: Arc<Sources>,
}

impl TestWorld {
    pub fn new() -> Self {
        Self::by(clock::env(1))
    }

    /// Returns a world with these deliveries of one order.
    pub async fn with(entity: &str, ids: impl IntoIterator<Item = impl ToString>) -> Self {
        let world = Self::new();
        world.append_all(entity, ids).await;
        world
    }

    pub fn by(env: Env) -> Self {
        let memory = Arc::new(MemoryTable::new());
        let messages = Arc::new(MemoryQueue::new(env.clone()));
        Self {
            table: memory.clone(),
            memory,
            queue: messages.clone(),
            visibility: messages.clone(),
            depth: messages.clone(),
            messages,
            settings: DrainSettings::default(),
            function_time: Duration::from_secs(60),
            journal: Journal::new(env.clone()),
            events: Arc::default(),
            isolation: Isolation::Inline,
            sources: Arc::new(Sources::parse(testbed::SOURCES).expect("the sources are right")),
            env,
        }
    }

    #[must_use]
    pub fn with_sources(mut self, sources: &str) -> Self {
        self.sources = Arc::new(Sources::parse(sources).expect("the sources are right"));
        self
    }

    pub fn sources(&self) -> Arc<Sources> {
        self.sources.clone()
    }

    pub fn store(&self) -> Store {
        Store::new(self.table.clone(), self.env.clone())
    }

    pub fn waker(&self) -> Waker {
        Waker::new(self.queue.clone(), self.env.clone())
    }

    pub fn inbox(&self) -> Inbox {
        Inbox::new(self.store(), self.waker(), self.settings.retention, self.events.clone())
    }

    pub fn operator(&self) -> Operator {
        let operator = Operator::new(self.store(), self.waker(), self.inbox(), self.settings.retention);
        operator.parked_for(self.settings.parked_retention)
    }

    pub fn leases(&self, holder: &str) -> Leases {
        Leases::new(self.store(), holder).waking(self.waker()).observed_by(self.events.clone())
    }

    pub fn sweeper(&self) -> Sweeper {
        Sweeper::new(self.store(), self.waker(), self.depth.clone(), self.settings.retention)
    }

    pub fn drainer(&self, handler: impl Handler) -> Drainer {
        let handler = Journaled::new(handler, self.journal.clone());
        let info = HolderInfo::new("a worker in memory");
        let store = self.store();
        let waker = self.waker();
        let settings = self.settings.clone();
        Drainer::new(store, waker, self.sources(), handler, settings, info, self.events.clone())
            .isolated(self.isolation)
    }

    pub fn incoming(&self, entity: &str, id: &str) -> Incoming {
        self.incoming_from("test", entity, id)
    }

    pub fn incoming_from(&self, source: &str, entity: &str, id: &str) -> Incoming {
        testbed::incoming(source, entity, id, self.env.now())
    }

    pub async fn append(&self, entity: &str, id: &str) {
        self.append_from("test", entity, id).await;
    }

    pub async fn append_from(&self, source: &str, entity: &str, id: &str) {
        self.inbox().append(&self.incoming_from(source, entity, id)).await.expect("it is appended");
    }

    pub async fn append_all(&self, entity: &str, ids: impl IntoIterator<Item = impl ToString>) {
        self.append_all_from("test", entity, ids).await;
    }

    pub async fn append_all_from(&self, source: &str, entity: &str, ids: impl IntoIterator<Item = impl ToString>) {
        for id in ids {
            self.append_from(source, entity, &id.to_string()).await;
        }
    }

    /// Appends a delivery whose event happened at this time.
    pub async fn append_event(&self, entity: &str, id: &str, happened: Timestamp) {
        let incoming = Incoming { event_time: Some(happened), ..self.incoming(entity, id) };
        self.inbox().append(&incoming).await.expect("it is appended");
    }

    /// Appends a delivery with an incompressible body.
    pub async fn append_noise(&self, entity: &str, id: &str, bytes: usize) -> Incoming {
        let body = noise(&self.env, bytes).into();
        let incoming = Incoming { body, ..self.incoming(entity, id) };
        self.inbox().append(&incoming).await.expect("it is appended");
        incoming
    }

    /// Puts `plan` in front of the store.
    pub fn break_table(&mut self, plan: impl Fn(&TableCall<'_>) -> Fault + Send + Sync + 'static) -> Arc<FaultyTable> {
        let table = Arc::new(FaultyTable::new(self.memory.clone(), &self.env, plan));
        self.table = table.clone();
        table
    }

    /// Puts `plan` in front of the queue.
    pub fn break_queue(&mut self, plan: impl Fn(u64) -> Fault + Send + Sync + 'static) -> Arc<FaultyQueue> {
        let queue = Arc::new(FaultyQueue::new(self.messages.clone(), &self.env, plan));
        self.queue = queue.clone();
        queue
    }

    /// Answers those calls of the store that match `hits` with `fault`.
    pub fn fail(
        &mut self,
        fault: Fault,
        hits: impl Fn(&TableCall<'_>) -> bool + Send + Sync + 'static,
    ) -> Arc<FaultyTable> {
        self.break_table(move |call| if hits(call) { fault.clone() } else { Fault::None })
    }

    /// Returns an operator whose calls of the store get `fault` if they match `hits`. For everybody else, the
    /// store works.
    pub fn failing_operator(
        &mut self,
        fault: Fault,
        hits: impl Fn(&TableCall<'_>) -> bool + Send + Sync + 'static,
    ) -> (Operator, Arc<FaultyTable>) {
        let table = self.fail(fault, hits);
        let operator = self.operator();
        self.table = self.memory.clone();
        (operator, table)
    }

    /// Processes a wake-up of `entity` that was received once.
    pub async fn process(&self, drainer: &Drainer, entity: &str) -> Acknowledgement {
        let received = ReceivedWakeUp::new(key(entity), 1);
        drainer.process(&received, self.env.monotonic() + self.function_time, &SuspectGate::new(1)).await
    }

    pub fn lease_request(&self, entity: &str, kind: LeaseKind, length: Duration) -> Acquire {
        Acquire {
            entity: key(entity),
            kind,
            holder: self.env.nonce(),
            info: HolderInfo::new("another holder"),
            now: self.env.now(),
            length,
        }
    }

    /// Acquires a free lease for another holder.
    pub async fn acquire(&self, entity: &str, kind: LeaseKind, length: Duration) -> Lease {
        match self.store().run(&self.lease_request(entity, kind, length), PATIENCE).await.expect("memory answers") {
            Acquired::Granted(lease, _) => lease,
            other => panic!("{other:?}"),
        }
    }

    /// Claims a sequence without a put, like an ingest that dies in between.
    pub async fn claim(&self, entity: &str) -> (Sequence, Nonce) {
        let nonce = self.env.nonce();
        let claim = Claim { entity: &key(entity), nonce: &nonce, now: self.env.now() };
        (self.store().run(&claim, PATIENCE).await.expect("memory answers").sequence, nonce)
    }

    /// Feeds each drainer one message at a time, until the queue is empty.
    pub async fn work(&self, drainers: &[Drainer]) {
        join_all(drainers.iter().map(async |drainer| {
            while let Some(message) = self.messages.receive().await {
                let acknowledgement = match &message.content {
                    Message::WakeUp(wake_up) => self.drain_by(drainer, wake_up, message.times).await,
                    Message::Deferred(_) => self.process_in_worker(drainer, &message).await,
                };
                self.messages.acknowledge(message, acknowledgement);
            }
        }))
        .await;
    }

    async fn drain_by(&self, drainer: &Drainer, wake_up: &WakeUp, times: u32) -> Acknowledgement {
        let received = ReceivedWakeUp::wake_up(wake_up.clone(), times);
        let deadline = self.env.monotonic() + self.function_time;
        let alone = SuspectGate::new(1);
        let in_flight = InFlight::new(&self.env, false);
        drainer.process_among(&received, deadline, &alone, &in_flight).await
    }

    /// Processes a message in a separate worker function.
    pub async fn process_in_worker(&self, drainer: &Drainer, message: &MemoryMessage) -> Acknowledgement {
        let worker = Worker::new(drainer.clone(), self.visibility.clone(), self.env.clone());
        let event = SqsEvent { records: vec![message.record()] };
        let failed = worker.process(event, self.env.now() + self.function_time).await;
        if failed.batch_item_failures.is_empty() { Acknowledgement::Delete } else { Acknowledgement::Keep }
    }

    /// Processes the next message in a separate worker function.
    pub async fn process_next(&self, drainer: &Drainer) -> Acknowledgement {
        let message = self.messages.receive().await.expect("a message");
        let acknowledgement = self.process_in_worker(drainer, &message).await;
        self.messages.acknowledge(message, acknowledgement);
        acknowledgement
    }

    /// Returns how often [`Counting`](crate::handlers::Counting) has committed each delivery.
    pub fn committed(&self) -> Vec<(String, u64)> {
        let rows = self.memory.rows(&TableName::Named(EFFECTS.into()));
        let one = |row: &Row| Some((row.text("id")?.to_owned(), row.number("count")?));
        let mut committed: Vec<_> = rows.iter().map(|row| one(row).expect("a count")).collect();
        committed.sort();
        committed
    }

    /// Processes a wake-up in a worker that dies after `calls` requests, and in another worker once the lease
    /// has expired. Returns whether the first worker finished.
    pub async fn work_after_a_death(&mut self, entity: &EntityKey, calls: u64, handler: impl Handler + Clone) -> bool {
        self.break_table(move |call| if call.request > calls { Fault::Silent } else { Fault::None });
        let drainer = self.drainer(handler.clone());
        let processed = self.process(&drainer, entity.as_str());
        let lives = self.env.within(Duration::from_millis(500), processed).await.is_some();
        self.table = self.memory.clone();
        self.env.sleep(self.function_time).await;
        self.work(&[self.drainer(handler)]).await;
        lives
    }

    /// Returns a world with a blocked order of two deliveries. The first delivery has used up its attempts.
    pub async fn blocked() -> Self {
        let world = Self::new();
        world.append_all_from("block", "test/a", ["1", "2"]).await;
        world.work(&[world.drainer(failing())]).await;
        assert_eq!(world.state("test/a").await.blocked, Some(BlockReason::Attempts));
        world
    }

    /// Returns the settlements in an entity's row.
    pub async fn settlements(&self, entity: &str) -> Vec<Settlement> {
        self.state(entity).await.recent.iter().map(|receipt| receipt.settlement).collect()
    }

    pub async fn state(&self, entity: &str) -> EntityState {
        let key = EntityKey::parse(entity).expect("a key");
        let row = self.memory.get(&entity_row(&key)).await.expect("memory answers").expect("there is such an entity");
        EntityState::parse(&row).expect("its row is readable")
    }

    pub fn applied(&self) -> Vec<String> {
        let runs = self.journal.runs().into_iter();
        runs.filter(|run| run.ending == serializer::local::handler_log::RunEnd::Applied)
            .map(|run| run.delivery_id)
            .collect()
    }

    pub fn started(&self) -> Vec<String> {
        self.journal.runs().into_iter().map(|run| run.delivery_id).collect()
    }
}

pub fn key(text: &str) -> EntityKey {
    EntityKey::parse(text).expect("a key")
}

/// Returns the key of the order that most tests use.
pub fn entity() -> EntityKey {
    key("test/a")
}

/// Returns a queue record with a wake-up of `entity` that was received `times` times.
pub fn record(id: &str, entity: &str, times: &str) -> SqsRecord {
    SqsRecord {
        message_id: id.into(),
        receipt_handle: id.into(),
        body: format!("{{\"entity\":\"{entity}\"}}"),
        attributes: Attributes { approximate_receive_count: times.into(), ..Attributes::default() },
    }
}

impl Default for TestWorld {
    fn default() -> Self {
        Self::new()
    }
}
