//! The embedded DynamoDB and queue, one ingest, and as many workers as a test needs, each with its own
//! clients.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serializer::{
    local::{
        Engines, EventSource, LocalFunction, QUEUE,
        handler_log::{Journal, Journaled},
        queue::QueueFaults,
    },
    view::audit::{AuditVerdict, Sent},
};
use tokio::{sync::watch, task::JoinSet};
use webhook_serializer::{
    aws::{Parts, meter::Meter, sqs::SqsQueue},
    engine::{
        append::Inbox,
        drain::{DrainSettings, Drainer},
        queue::Queue,
        store::Store,
        wake::Waker,
    },
    functions::worker::Worker,
    handler::Handler,
    operator::Operator,
    protocol::{
        delivery::Incoming,
        entity::{DeliveryId, EntityKey, Identity, SourceName},
        state::HolderInfo,
        table::Table,
    },
    sources::Sources,
    telemetry::{Observer, TracingLog},
    time::{Env, Timestamp},
};

/// `test` retries often and quickly. `block` retries twice and then blocks.
pub const SOURCES: &str = concat!(
    source!("test", "handler_timeout = '5s'", "retry = { attempts = 3, first = '10ms', longest = '50ms' }"),
    source!("block", "retry = { attempts = 2, first = '10ms' }", "on_failure = 'block'"),
    source!("rated", "rate = '5/s'"),
    source!("rarely", "rate = '20/min'"),
    source!("slow", "handler_timeout = '50s'", "retry = { attempts = 2, first = '10ms' }"),
    source!(
        "brief",
        "handler_timeout = '200ms'",
        "retry = { attempts = 2, first = '10ms', longest = '10ms', unanswered_for = '5ms' }"
    ),
);

#[derive(Debug)]
pub struct TestBed {
    pub engines: Engines,
    pub journal: Journal,
    pub meter: Arc<Meter>,
    pub settings: DrainSettings,
    sources: Arc<Sources>,
    env: Env,
    stop: watch::Sender<bool>,
    tasks: JoinSet<anyhow::Result<()>>,
    sequence: AtomicU64,
}

impl TestBed {
    pub async fn start() -> Self {
        Self::start_as(SOURCES, QueueFaults::default()).await
    }

    pub async fn start_with(faults: QueueFaults) -> Self {
        Self::start_as(SOURCES, faults).await
    }

    pub async fn start_for(sources: &str) -> Self {
        Self::start_as(sources, QueueFaults::default()).await
    }

    async fn start_as(sources: &str, faults: QueueFaults) -> Self {
        let engines = Engines::start_with(None, faults).await.expect("the engines start");
        let env = Env::system();
        Self {
            engines,
            journal: Journal::new(env.clone()),
            meter: Arc::default(),
            settings: DrainSettings::default(),
            sources: Arc::new(Sources::parse(sources).expect("the sources are right")),
            env,
            stop: watch::Sender::new(false),
            tasks: JoinSet::new(),
            sequence: AtomicU64::new(1),
        }
    }

    pub fn sources(&self) -> &Arc<Sources> {
        &self.sources
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    pub fn parts(&self) -> Parts {
        self.engines.connect(&self.env, Some(self.meter.clone()))
    }

    pub fn inbox(&self) -> Inbox {
        let Parts { store, waker, .. } = self.parts();
        self.inbox_on(store, waker)
    }

    pub fn inbox_on(&self, store: Store, waker: Waker) -> Inbox {
        Inbox::new(store, waker, self.settings.retention, Arc::new(TracingLog))
    }

    pub fn operator(&self) -> Operator {
        let Parts { store, waker, .. } = self.parts();
        Operator::new(store, waker, self.inbox(), self.settings.retention)
    }

    pub fn incoming(&self, entity: &str, id: &str) -> Incoming {
        incoming("test", entity, id, self.env.now())
    }

    pub fn drainer(&self, handler: impl Handler) -> Drainer {
        let Parts { store, waker, .. } = self.parts();
        self.drainer_on(store, waker, handler, Arc::new(TracingLog))
    }

    pub fn drainer_on(
        &self,
        store: Store,
        waker: Waker,
        handler: impl Handler,
        observer: Arc<dyn Observer>,
    ) -> Drainer {
        let handler = Journaled::new(handler, self.journal.clone());
        let number = self.sequence.fetch_add(1, Ordering::Relaxed);
        let info = HolderInfo::new(&format!("test worker {number}"));
        Drainer::new(store, waker, self.sources.clone(), handler, self.settings.clone(), info, observer)
    }

    pub fn work<H: Handler + Clone>(&mut self, count: usize, handler: &H) {
        for _ in 0..count {
            let drainer = self.drainer(handler.clone());
            self.feed(drainer);
        }
    }

    pub fn feed(&mut self, drainer: Drainer) {
        let worker = Worker::new(drainer, self.parts().queue, self.env.clone());
        let source = EventSource::new(&self.engines, LocalFunction::Here(Box::new(worker)), Duration::from_secs(60));
        self.tasks.spawn(source.run(self.stop.subscribe()));
    }

    /// Appends `rounds` deliveries to each entity, round by round, and each delivery `copies` times.
    pub async fn burst(&self, entities: &[String], rounds: usize, copies: usize) -> Vec<Sent> {
        self.burst_into(&self.inbox(), entities, rounds, copies).await
    }

    pub async fn burst_into(&self, inbox: &Inbox, entities: &[String], rounds: usize, copies: usize) -> Vec<Sent> {
        let mut sent = Vec::new();
        for round in 1..=rounds {
            let of_round = entities.iter().map(async |entity| {
                let incoming = self.incoming(&format!("test/{entity}"), &format!("{entity}{round}"));
                let at = self.journal.now();
                let mut answered = None;
                for _ in 0..copies {
                    let appended = inbox.append(&incoming).await;
                    if appended.is_ok() {
                        answered.get_or_insert(self.journal.now());
                    }
                }
                Sent {
                    entity: incoming.entity.clone(),
                    delivery_id: incoming.identity.delivery_id.to_string(),
                    sent: at,
                    answered,
                }
            });
            sent.extend(futures_util::future::join_all(of_round).await);
        }
        sent
    }

    pub fn verdict(&self, sent: &[Sent]) -> AuditVerdict {
        AuditVerdict::of(sent, &self.journal.runs(), &BTreeSet::new())
    }

    /// Stops the workers; each finishes its batch first.
    pub async fn rest(&mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no worker panics").expect("no worker fails");
        }
        self.stop.send_replace(false);
    }

    pub fn table(&self) -> Arc<dyn Table> {
        self.parts().store.table().clone()
    }

    pub fn store_on(&self, table: impl Table) -> Store {
        Store::new(Arc::new(table), self.env.clone())
    }

    pub fn queue(&self) -> Arc<dyn Queue> {
        let account = self.engines.account();
        let client = account.sqs(&account.http_client());
        Arc::new(SqsQueue::new(client, self.engines.config().queue_url).metered(self.meter.clone()))
    }

    pub fn waker_on(&self, queue: impl Queue) -> Waker {
        Waker::new(Arc::new(queue), self.env.clone())
    }

    /// Waits until the queue has no wake-up, not even one in flight or delayed.
    pub async fn until_no_wake_ups(&self) {
        let counts = self.engines.queues().until(QUEUE, |counts| counts.total() == 0).await;
        counts.expect("there is that queue");
    }
}

pub fn incoming(source: &str, entity: &str, id: &str, now: Timestamp) -> Incoming {
    Incoming {
        entity: EntityKey::parse(entity).expect("a key"),
        identity: Identity {
            source: SourceName::parse(source).expect("a source"),
            delivery_id: DeliveryId::new(id),
            redrive: 0,
        },
        provider: Some("standard-webhooks".into()),
        topic: "order.updated".into(),
        family: "order".into(),
        event_time: None,
        received_at: now,
        content_type: Some("application/json".into()),
        body: format!("{{\"id\":\"{id}\"}}").into_bytes().into(),
    }
}
