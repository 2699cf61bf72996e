//! A world in memory: one thread, tokio's clock, a store and a queue whose
//! calls a test can interrupt. Under a paused clock every run takes no time and
//! is always the same.

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
    handler::{Handler, Isolation},
    leases::Leases,
    operator::Operator,
    protocol::{
        delivery::Incoming,
        entity::{EntityKey, FencingToken},
        keys::entity_row,
        memory::MemoryTable,
        state::{EntityState, HolderInfo},
        table::{Row, Table, TableName},
    },
    sources::Sources,
    telemetry::{Event, Observer, RequeueReason},
    time::Env,
};

use crate::{
    clock,
    faults::{Call, Fault, FaultyTable},
    handlers::EFFECTS,
    stage,
};

/// How long a received wake-up stays hidden.
pub const VISIBILITY: Duration = Duration::from_secs(90);

/// The same for one in a worker's hand: longer than any function runs.
const LONGEST_VISIBILITY: Duration = Duration::from_secs(1350);

/// More wake-ups than any test of ours needs: a run that goes round in circles
/// ends here.
const MOST_WAKE_UPS: u64 = 100_000;

/// Store, queue, clock, and what happened.
pub struct World {
    /// The clock and the chance.
    pub env: Env,
    /// The rows.
    pub memory: Arc<MemoryTable>,
    /// The store as the parts see it.
    pub table: Arc<dyn Table>,
    /// The messages.
    pub messages: Arc<MemoryQueue>,
    /// The queue as the parts see it.
    pub queue: Arc<dyn Queue>,
    /// The queue as workers see it that receive from it.
    pub visibility: Arc<dyn Visibility>,
    /// The queue as the sweep sees it.
    pub depth: Arc<dyn Depth>,
    /// How drains go.
    pub settings: DrainSettings,
    /// How long one run of a worker may take.
    pub function_time: Duration,
    /// What the handlers did.
    pub journal: Journal,
    /// What was told.
    pub told: Arc<Told>,
    /// Where handlers run.
    pub isolation: Isolation,
    sources: Arc<Sources>,
}

impl World {
    /// A world by tokio's clock, all of it on one thread.
    pub fn new() -> Self {
        Self::by(clock::env(1))
    }

    /// A world by any clock.
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
            told: Arc::default(),
            isolation: Isolation::Inline,
            sources: Arc::new(Sources::parse(stage::SOURCES).expect("the sources are right")),
            env,
        }
    }

    /// The same, for other sources.
    ///
    /// # Panics
    ///
    /// They are wrong.
    #[must_use]
    pub fn with_sources(mut self, sources: &str) -> Self {
        self.sources = Arc::new(Sources::parse(sources).expect("the sources are right"));
        self
    }

    /// The configured senders.
    pub fn sources(&self) -> Arc<Sources> {
        self.sources.clone()
    }

    /// Operations on the store.
    pub fn store(&self) -> Store {
        Store::new(self.table.clone(), self.env.clone())
    }

    /// Wake-ups through the queue.
    pub fn waker(&self) -> Waker {
        Waker::new(self.queue.clone(), self.env.clone())
    }

    /// Inboxes to append to.
    pub fn inbox(&self) -> Inbox {
        Inbox::new(self.store(), self.waker(), self.settings.retention, self.told.clone())
    }

    /// An operator.
    pub fn operator(&self) -> Operator {
        let operator = Operator::new(self.store(), self.waker(), self.inbox(), self.settings.retention);
        operator.parked_for(self.settings.parked_retention)
    }

    /// Leases for somebody who is no worker.
    pub fn leases(&self, holder: &str) -> Leases {
        Leases::new(self.store(), holder).waking(self.waker()).observed_by(self.told.clone())
    }

    /// A sweeper.
    pub fn sweeper(&self) -> Sweeper {
        Sweeper::new(self.store(), self.waker(), self.depth.clone(), self.settings.retention)
    }

    /// A drainer around `handler`, journaled.
    pub fn drainer(&self, handler: impl Handler) -> Drainer {
        let handler = Journaled::new(handler, self.journal.clone());
        let info = HolderInfo::new("a worker in memory");
        let (store, waker) = (self.store(), self.waker());
        let settings = self.settings.clone();
        Drainer::new(store, waker, self.sources(), handler, settings, info, self.told.clone()).isolated(self.isolation)
    }

    /// A delivery of the source `test`.
    pub fn incoming(&self, entity: &str, id: &str) -> Incoming {
        self.incoming_from("test", entity, id)
    }

    /// A delivery of any of the sources.
    pub fn incoming_from(&self, source: &str, entity: &str, id: &str) -> Incoming {
        stage::incoming(source, entity, id, self.env.now())
    }

    /// Appends a delivery of the source `test`.
    ///
    /// # Panics
    ///
    /// It cannot be appended.
    pub async fn append(&self, entity: &str, id: &str) {
        self.inbox().append(&self.incoming(entity, id)).await.expect("it is appended");
    }

    /// Feeds the drainers, each with one wake-up at a time, side by side, until
    /// there is no wake-up left.
    pub async fn work(&self, drainers: &[Drainer]) {
        join_all(drainers.iter().map(async |drainer| {
            while let Some(message) = self.messages.receive().await {
                let attended = match &message.says {
                    queue::Message::WakeUp(wake_up) => self.drain_by(drainer, wake_up, message.times).await,
                    queue::Message::Deferred(_) => self.attend_as_a_function(drainer, &message).await,
                };
                self.messages.attended(message, attended);
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

    /// Has a worker function process one message.
    pub async fn attend_as_a_function(&self, drainer: &Drainer, message: &Message) -> Acknowledgement {
        let worker = Worker::new(drainer.clone(), self.visibility.clone(), self.env.clone());
        let event = SqsEvent { records: vec![message.record()] };
        let failed = worker.process(event, self.env.now() + self.function_time).await;
        if failed.batch_item_failures.is_empty() { Acknowledgement::Delete } else { Acknowledgement::Keep }
    }

    /// How often each delivery was committed by [`Counting`](crate::handlers::Counting),
    /// by its id.
    ///
    /// # Panics
    ///
    /// The table holds anything else.
    pub fn committed(&self) -> Vec<(String, u64)> {
        let rows = self.memory.rows(&TableName::Named(EFFECTS.into()));
        let one = |row: &Row| Some((row.text("id")?.to_owned(), row.number("count")?));
        let mut committed: Vec<_> = rows.iter().map(|row| one(row).expect("a count")).collect();
        committed.sort();
        committed
    }

    /// Has one worker process the wake-up of `entity`, which dies after so many calls to the
    /// store; then, once its lease has run out, another one drains what is left.
    /// Whether the first one lived to its end.
    pub async fn work_after_a_death(&mut self, entity: &EntityKey, calls: u64, handler: impl Handler + Clone) -> bool {
        let whole = self.table.clone();
        let plan = move |call: &Call<'_>| if call.request > calls { Fault::Silent } else { Fault::None };
        self.table = Arc::new(FaultyTable::new(whole.clone(), &self.env, plan));
        let drainer = self.drainer(handler.clone());
        let deadline = self.env.monotonic() + self.function_time;
        let received = Received { entity: entity.clone(), times: 1 };
        let attended = async { drainer.process(&received, deadline, &SuspectGate::new(1)).await };
        let lives = self.env.within(Duration::from_millis(500), attended).await.is_some();
        self.table = whole;
        self.env.sleep(self.function_time).await;
        self.work(&[self.drainer(handler)]).await;
        lives
    }

    /// An entity's row.
    ///
    /// # Panics
    ///
    /// There is none.
    pub async fn state(&self, entity: &str) -> EntityState {
        let key = EntityKey::parse(entity).expect("a key");
        let row = self.memory.get(&entity_row(&key)).await.expect("memory answers").expect("there is such an entity");
        EntityState::parse(&row).expect("its row is readable")
    }

    /// The ids of the deliveries that were applied, in their order.
    pub fn applied(&self) -> Vec<String> {
        let runs = self.journal.runs().into_iter();
        runs.filter(|run| run.ending == serializer::local::handler_log::Ending::Applied)
            .map(|run| run.delivery_id)
            .collect()
    }

    /// The ids of the deliveries that a handler was started with, in the order
    /// in which it ended.
    pub fn started(&self) -> Vec<String> {
        self.journal.runs().into_iter().map(|run| run.delivery_id).collect()
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// One message in the queue.
#[derive(Debug, Clone)]
pub struct Message {
    /// What it says.
    pub says: queue::Message,
    /// How often it was received, once it is.
    pub times: u32,
    due: Duration,
    number: u64,
}

impl Message {
    /// Its receipt handle.
    pub fn receipt(&self) -> String {
        self.number.to_string()
    }

    /// As a worker function gets it.
    pub fn record(&self) -> Record {
        Record {
            message_id: self.receipt(),
            receipt_handle: self.receipt(),
            body: self.says.text(),
            attributes: Attributes { approximate_receive_count: self.times.to_string() },
        }
    }
}

/// A queue in memory that loses nothing. A message comes when it is due, and
/// again if it was kept, or is in flight for too long.
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
    /// How many are in somebody's hand.
    at_work: usize,
}

impl Messages {
    /// When the next one can be received.
    fn next_due(&self) -> Option<Duration> {
        self.waiting.iter().chain(&self.in_flight).map(|message| message.due).min()
    }

    /// Receives the next one, if it is due.
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

    /// How often messages were hidden, a batch at a time.
    pub fn hidden(&self) -> u64 {
        self.hidden.load(Relaxed)
    }

    /// How many wake-ups were sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, Messages> {
        self.state.lock().expect("no one panics while holding this")
    }

    /// How many wake-ups are there that are not in flight.
    pub fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// How long until those are due, the first that was sent first.
    pub fn delays(&self) -> Vec<Duration> {
        let now = self.env.monotonic();
        let mut waiting = self.state().waiting.clone();
        waiting.sort_by_key(|message| message.number);
        waiting.into_iter().map(|message| message.due.saturating_sub(now)).collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes any wake-up out that is not in flight, due or not.
    ///
    /// # Panics
    ///
    /// It is a delivery.
    pub fn take(&self) -> Option<WakeUp> {
        self.take_any().map(|says| match says {
            queue::Message::WakeUp(wake_up) => wake_up,
            queue::Message::Deferred(deferred) => panic!("a delivery of {}", deferred.entity()),
        })
    }

    /// Takes any message out that is not in flight, due or not.
    pub fn take_any(&self) -> Option<queue::Message> {
        self.state().waiting.pop().map(|message| message.says)
    }

    /// Throws all wake-ups away.
    pub fn clear(&self) {
        let mut state = self.state();
        state.waiting.clear();
        state.in_flight.clear();
    }

    /// The next wake-up when it is due; `None` when there is none and none is
    /// at work any more.
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

    /// The next wake-up, if it is due already.
    pub fn receive_due(&self) -> Option<Message> {
        self.state().receive(self.env.monotonic())
    }

    /// Deletes a received wake-up, or leaves it in flight: hidden for a while,
    /// unless it was told for how long.
    pub fn attended(&self, message: Message, attended: Acknowledgement) {
        let mut state = self.state();
        state.at_work -= 1;
        let received = |other: &Message| other.number == message.number;
        match attended {
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
        let message = Message { says: message.clone(), times: 0, due, number };
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

/// Counts what observers are told.
#[derive(Debug, Default)]
pub struct Told {
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

impl Told {
    /// What was settled, by its id, and whether it was told how long it took.
    ///
    /// # Panics
    ///
    /// Another panicked while it was told.
    pub fn settled(&self) -> Vec<(String, bool)> {
        self.settled.lock().expect("nothing panics under it").clone()
    }

    /// How many deliveries were deferred, and how many taken up later.
    pub fn deferred(&self) -> (u64, u64) {
        (self.deferred.load(Relaxed), self.taken_up.load(Relaxed))
    }

    /// How often a message was met that must be a delivery and cannot be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Relaxed)
    }

    /// How many threads a worker that goes on said to have lost.
    pub fn threads_lost(&self) -> u64 {
        self.threads_lost.load(Relaxed)
    }

    /// How often a delivery was put off because its source is held back.
    pub fn held_back(&self) -> u64 {
        self.held_back.load(Relaxed)
    }

    /// How often breakers were opened, and closed.
    pub fn breakers(&self) -> (u64, u64) {
        (self.breakers_opened.load(Relaxed), self.breakers_closed.load(Relaxed))
    }

    /// How many leases were taken over.
    pub fn taken_over(&self) -> u64 {
        self.taken_over.load(Relaxed)
    }

    /// How many leases were lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// How many leases were dropped without being released.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// How many drains waited for a lease.
    pub fn drains_waited(&self) -> u64 {
        self.drains_waited.load(Relaxed)
    }

    /// How often those who waited for a lease looked at it.
    pub fn polls(&self) -> u64 {
        self.polls.load(Relaxed)
    }
}

impl Observer for Told {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Settled { delivery: Some(delivery), took, .. } = event {
            let told = (delivery.delivery_id().to_string(), took.is_some());
            self.settled.lock().expect("nothing panics under it").push(told);
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
