//! A deployment in memory: one thread, tokio's clock, a store and a queue whose calls a test can
//! interrupt. Under a paused clock each run takes no time and is always the same.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all, ready};
use serializer::local::handler_log::{Journal, Journaled};
use tokio::sync::watch;
use webhook_serializer::{
    engine::{
        append::Inbox,
        drain::{Acknowledgement, DrainSettings, Drainer, InFlight, Received, SuspectGate},
        queue::{self, Depth, Queue, QueueError, Visibility, WakeUp},
        store::Store,
        sweep::Sweeper,
        wake::Waker,
    },
    functions::worker::{Attributes, Record, SqsEvent, Worker},
    handler::{Handler, Isolation, Outcome},
    leases::Leases,
    operator::Operator,
    protocol::{
        delivery::Incoming,
        entity::{EntityKey, FencingToken, Sequence},
        inbox::Claim,
        keys::entity_row,
        lease::{Acquire, Acquired, Lease},
        memory::MemoryTable,
        receipt::Settlement,
        state::{BlockReason, EntityState, HolderInfo, LeaseKind},
        table::{Row, Table, TableName},
    },
    sources::Sources,
    telemetry::{Event, Observer, RequeueReason},
    time::{Env, Nonce},
};

use crate::{
    clock,
    faults::{Call, Fault, FaultyQueue, FaultyTable},
    handlers::{EFFECTS, answering},
    testbed,
};

/// The visibility timeout of a wake-up that was kept.
pub const VISIBILITY: Duration = Duration::from_secs(90);

/// The visibility timeout of a wake-up in a worker's hand: longer than any function runs.
const LONGEST_VISIBILITY: Duration = Duration::from_secs(1350);

const PATIENCE: Duration = Duration::from_secs(5);

/// Ends a run that loops.
const MOST_WAKE_UPS: u64 = 100_000;

pub struct World {
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

impl World {
    pub fn new() -> Self {
        Self::by(clock::env(1))
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
        let (store, waker) = (self.store(), self.waker());
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
        self.inbox().append(&self.incoming(entity, id)).await.expect("it is appended");
    }

    pub async fn append_from(&self, source: &str, entity: &str, id: &str) {
        self.inbox().append(&self.incoming_from(source, entity, id)).await.expect("it is appended");
    }

    /// Puts `plan` in front of the store.
    pub fn break_table(&mut self, plan: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static) -> Arc<FaultyTable> {
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

    /// An operator whose store follows `plan`, while everybody else's works.
    pub fn broken_operator(
        &mut self,
        plan: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
    ) -> (Operator, Arc<FaultyTable>) {
        let table = self.break_table(plan);
        let operator = self.operator();
        self.table = self.memory.clone();
        (operator, table)
    }

    /// Processes a wake-up of `entity` that was received once.
    pub async fn process(&self, drainer: &Drainer, entity: &str) -> Acknowledgement {
        let received = Received { entity: key(entity), times: 1 };
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

    /// Claims a sequence, as an ingest that dies before its put.
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
                    queue::Message::WakeUp(wake_up) => self.drain_by(drainer, wake_up, message.times).await,
                    queue::Message::Deferred(_) => self.process_in_worker(drainer, &message).await,
                };
                self.messages.acknowledge(message, acknowledgement);
            }
        }))
        .await;
    }

    async fn drain_by(&self, drainer: &Drainer, wake_up: &WakeUp, times: u32) -> Acknowledgement {
        let received = Received { entity: wake_up.entity.clone(), times };
        let deadline = self.env.monotonic() + self.function_time;
        let token = wake_up.token.map(FencingToken);
        let (alone, in_flight) = (SuspectGate::new(1), InFlight::new(&self.env, false));
        drainer.process_under(&received, token, deadline, &alone, &in_flight).await
    }

    /// Processes a message in a separate worker function.
    pub async fn process_in_worker(&self, drainer: &Drainer, message: &Message) -> Acknowledgement {
        let worker = Worker::new(drainer.clone(), self.visibility.clone(), self.env.clone());
        let event = SqsEvent { records: vec![message.record()] };
        let failed = worker.process(event, self.env.now() + self.function_time).await;
        if failed.batch_item_failures.is_empty() { Acknowledgement::Delete } else { Acknowledgement::Keep }
    }

    /// Commits of each delivery by [`Counting`](crate::handlers::Counting).
    pub fn committed(&self) -> Vec<(String, u64)> {
        let rows = self.memory.rows(&TableName::Named(EFFECTS.into()));
        let one = |row: &Row| Some((row.text("id")?.to_owned(), row.number("count")?));
        let mut committed: Vec<_> = rows.iter().map(|row| one(row).expect("a count")).collect();
        committed.sort();
        committed
    }

    /// Processes a wake-up in a worker that dies after `calls` requests, then in another once the lease has
    /// expired. Returns whether the first one finished.
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

    /// An order of two deliveries whose source blocks; the first has used up its attempts.
    pub async fn blocked() -> Self {
        let world = Self::new();
        for id in ["1", "2"] {
            world.append_from("block", "test/a", id).await;
        }
        world.work(&[world.drainer(answering(|_, _| Outcome::retry("not now")))]).await;
        assert_eq!(world.state("test/a").await.blocked, Some(BlockReason::Attempts));
        world
    }

    /// The settlements in an entity's row.
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

/// The order of most tests.
pub fn entity() -> EntityKey {
    key("test/a")
}

/// A wake-up of `entity`, received `times`.
pub fn record(id: &str, entity: &str, times: &str) -> Record {
    Record {
        message_id: id.into(),
        receipt_handle: id.into(),
        body: format!("{{\"entity\":\"{entity}\"}}"),
        attributes: Attributes { approximate_receive_count: times.into() },
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug, Clone)]
pub struct Message {
    pub content: queue::Message,
    pub times: u32,
    due: Duration,
    number: u64,
}

impl Message {
    pub fn receipt(&self) -> String {
        self.number.to_string()
    }

    pub fn record(&self) -> Record {
        Record {
            message_id: self.receipt(),
            receipt_handle: self.receipt(),
            body: self.content.text(),
            attributes: Attributes { approximate_receive_count: self.times.to_string() },
        }
    }
}

/// A queue in memory that loses nothing: a message arrives when it is due, and again when it was kept
/// or stays in flight for too long.
#[derive(Debug)]
pub struct MemoryQueue {
    state: Mutex<Messages>,
    hidden: AtomicU64,
    changed: watch::Sender<()>,
    sent: AtomicU64,
    env: Env,
}

#[derive(Debug, Default)]
struct Messages {
    waiting: Vec<Message>,
    in_flight: Vec<Message>,
    /// Messages that a receiver is processing.
    at_work: usize,
}

impl Messages {
    fn next_due(&self) -> Option<Duration> {
        self.waiting.iter().chain(&self.in_flight).map(|message| message.due).min()
    }

    fn receive(&mut self, now: Duration) -> Option<Message> {
        let all = self.waiting.iter().chain(&self.in_flight).enumerate();
        let due = all.filter(|(_, message)| message.due <= now);
        let (index, _) = due.min_by_key(|(_, message)| (message.due, message.number))?;
        let mut message = match index.checked_sub(self.waiting.len()) {
            None => self.waiting.swap_remove(index),
            Some(index) => self.in_flight.swap_remove(index),
        };
        message.times += 1;
        message.due = now + LONGEST_VISIBILITY;
        self.in_flight.push(message.clone());
        self.at_work += 1;
        Some(message)
    }
}

impl MemoryQueue {
    fn new(env: Env) -> Self {
        let (sent, hidden) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { state: Mutex::default(), hidden, changed: watch::Sender::new(()), sent, env }
    }

    /// The number of visibility calls, one for each batch.
    pub fn hidden(&self) -> u64 {
        self.hidden.load(Relaxed)
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, Messages> {
        self.state.lock().expect("no one panics while holding this")
    }

    /// The number of messages that are not in flight.
    pub fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// Delays until these are due, in the order of sending.
    pub fn delays(&self) -> Vec<Duration> {
        let now = self.env.monotonic();
        let mut waiting = self.state().waiting.clone();
        waiting.sort_by_key(|message| message.number);
        waiting.into_iter().map(|message| message.due.saturating_sub(now)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes a wake-up that is not in flight, due or not.
    pub fn take(&self) -> Option<WakeUp> {
        self.take_any().map(|content| match content {
            queue::Message::WakeUp(wake_up) => wake_up,
            queue::Message::Deferred(deferred) => panic!("a delivery of {}", deferred.entity()),
        })
    }

    pub fn take_any(&self) -> Option<queue::Message> {
        self.state().waiting.pop().map(|message| message.content)
    }

    pub fn clear(&self) {
        let mut state = self.state();
        state.waiting.clear();
        state.in_flight.clear();
    }

    /// Waits for the next message; `None` once none is left or in flight.
    pub async fn receive(&self) -> Option<Message> {
        let mut changed = self.changed.subscribe();
        loop {
            let now = self.env.monotonic();
            let next_due = {
                let mut state = self.state();
                if let Some(message) = state.receive(now) {
                    return Some(message);
                }
                if state.next_due().is_none() && state.at_work == 0 {
                    return None;
                }
                state.next_due()
            };
            let due = async {
                match next_due {
                    Some(due) => self.env.sleep(due - now).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = due => {}
            }
        }
    }

    pub fn receive_due(&self) -> Option<Message> {
        self.state().receive(self.env.monotonic())
    }

    /// Deletes a received message, or keeps it in flight until its visibility timeout.
    pub fn acknowledge(&self, message: Message, acknowledgement: Acknowledgement) {
        let mut state = self.state();
        state.at_work -= 1;
        let received = |other: &Message| other.number == message.number;
        match acknowledgement {
            Acknowledgement::Delete => state.in_flight.retain(|other| !received(other)),
            Acknowledgement::Keep => {
                let kept = self.env.monotonic() + VISIBILITY;
                state.in_flight.iter_mut().filter(|other| received(other)).for_each(|it| it.due = it.due.min(kept));
            }
        }
        drop(state);
        self.changed.send_replace(());
    }
}

impl Queue for MemoryQueue {
    fn send<'a>(&'a self, message: &'a queue::Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        let number = self.sent.fetch_add(1, Relaxed);
        assert!(number < MOST_WAKE_UPS, "the run goes round in circles");
        let delay = Duration::from_secs(delay.as_millis().div_ceil(1000).try_into().expect("a short delay"));
        let due = self.env.monotonic() + delay;
        let message = Message { content: message.clone(), times: 0, due, number };
        self.state().waiting.push(message);
        self.changed.send_replace(());
        Box::pin(ready(Ok(())))
    }
}

impl Visibility for MemoryQueue {
    fn hide<'a>(&'a self, receipts: &'a [String], time: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        self.hidden.fetch_add(1, Relaxed);
        let due = self.env.monotonic() + Duration::from_secs(time.as_millis().div_ceil(1000) as u64);
        let mut state = self.state();
        let named = |message: &&mut Message| receipts.contains(&message.receipt());
        let hidden = state.in_flight.iter_mut().filter(named).map(|message| message.due = due).count();
        drop(state);
        self.changed.send_replace(());
        let gone = || QueueError::Unavailable("not in flight".into());
        Box::pin(ready((hidden == receipts.len()).then_some(()).ok_or_else(gone)))
    }
}

impl Depth for MemoryQueue {
    fn waiting(&self) -> BoxFuture<'_, Result<u64, QueueError>> {
        Box::pin(ready(Ok(self.len() as u64)))
    }
}

#[derive(Debug, Default)]
pub struct EventCounts {
    held_back: AtomicU64,
    breakers_opened: AtomicU64,
    breakers_closed: AtomicU64,
    taken_over: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
    polls: AtomicU64,
    drains_waited: AtomicU64,
    deferred: AtomicU64,
    taken_up: AtomicU64,
    unreadable: AtomicU64,
    threads_lost: AtomicU64,
    settled: Mutex<Vec<(String, bool)>>,
}

impl EventCounts {
    /// The settled deliveries, and whether each came with a duration.
    pub fn settled(&self) -> Vec<(String, bool)> {
        self.settled.lock().expect("nothing panics under it").clone()
    }

    /// Deliveries deferred, and ingested from the queue.
    pub fn deferred(&self) -> (u64, u64) {
        (self.deferred.load(Relaxed), self.taken_up.load(Relaxed))
    }

    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Relaxed)
    }

    pub fn threads_lost(&self) -> u64 {
        self.threads_lost.load(Relaxed)
    }

    pub fn held_back(&self) -> u64 {
        self.held_back.load(Relaxed)
    }

    /// Breakers opened, and closed.
    pub fn breakers(&self) -> (u64, u64) {
        (self.breakers_opened.load(Relaxed), self.breakers_closed.load(Relaxed))
    }

    pub fn taken_over(&self) -> u64 {
        self.taken_over.load(Relaxed)
    }

    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    pub fn drains_waited(&self) -> u64 {
        self.drains_waited.load(Relaxed)
    }

    pub fn polls(&self) -> u64 {
        self.polls.load(Relaxed)
    }
}

impl Observer for EventCounts {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Settled { delivery: Some(delivery), took, .. } = event {
            let events = (delivery.delivery_id().to_string(), took.is_some());
            self.settled.lock().expect("nothing panics under it").push(events);
        }
        match event {
            Event::Requeued { reason: RequeueReason::BreakerOpen, .. } => self.held_back.fetch_add(1, Relaxed),
            Event::BreakerOpened { .. } => self.breakers_opened.fetch_add(1, Relaxed),
            Event::BreakerClosed { .. } => self.breakers_closed.fetch_add(1, Relaxed),
            Event::TakenOver { .. } => self.taken_over.fetch_add(1, Relaxed),
            Event::Lost { .. } => self.lost.fetch_add(1, Relaxed),
            Event::LeaseDropped { .. } => self.dropped.fetch_add(1, Relaxed),
            Event::LeaseGranted { polls, .. } => self.polls.fetch_add(u64::from(*polls), Relaxed),
            Event::Waited { .. } => self.drains_waited.fetch_add(1, Relaxed),
            Event::Deferred { .. } => self.deferred.fetch_add(1, Relaxed),
            Event::TakenUp { .. } => self.taken_up.fetch_add(1, Relaxed),
            Event::UnreadableDelivery { .. } => self.unreadable.fetch_add(1, Relaxed),
            Event::ThreadsLost { lost, is_end: false } => self.threads_lost.fetch_max(*lost as u64, Relaxed),
            _ => 0,
        };
    }
}
