//! Records the observed events of orders in memory, under the names of their deliveries.

mod log_line;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

pub use log_line::ParsedLine;
use tokio::sync::watch;
use webhook_serializer::{
    protocol::{
        delivery::Delivery,
        entity::{DeliveryId, EntityKey, FencingToken, Sequence, SourceName},
        receipt::Settlement,
        state::BlockReason,
    },
    telemetry::{Event, Observer, RequeueReason},
    time::Env,
};

#[derive(Debug, Clone)]
pub struct RecordedEvent {
    /// The monotonic time at which the event was recorded.
    pub at: Duration,
    pub entity: EntityKey,
    pub sequence: Option<Sequence>,
    pub name: String,
    pub what: EventKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    Accepted,
    Ignored,
    /// The number of the attempt, and the fencing token of the handler start.
    Started(u32, FencingToken),
    Failed {
        attempt: u32,
        wait: Duration,
        /// The error's text, which is empty if only the order's row has it.
        error: String,
    },
    Settled(Settlement),
    Blocked(BlockReason),
    Requeued(RequeueReason, Duration),
    TakenOver(FencingToken),
    Lost,
    WakeUpFailed,
}

#[derive(Debug, Clone)]
pub struct EventRecorder {
    recorded: Arc<Mutex<RecordingState>>,
    length: watch::Sender<usize>,
    env: Env,
    began: Duration,
}

#[derive(Debug, Default)]
struct RecordingState {
    happenings: Vec<RecordedEvent>,
    names: HashMap<String, String>,
    accepted: HashMap<(EntityKey, Sequence), String>,
    sources: HashMap<EntityKey, SourceName>,
}

impl EventRecorder {
    pub fn new(env: Env) -> Self {
        let began = env.monotonic();
        Self { recorded: Arc::default(), length: watch::Sender::new(0), env, began }
    }

    pub fn call(&self, delivery_id: &str, name: &str) {
        self.recorded().names.insert(DeliveryId::new(delivery_id).as_sent().to_owned(), name.to_owned());
    }

    pub fn name(&self, delivery_id: &str, topic: &str) -> String {
        let name = self.recorded().names.get(DeliveryId::new(delivery_id).as_sent()).cloned();
        name.unwrap_or_else(|| topic.to_owned())
    }

    fn name_at(&self, entity: &EntityKey, sequence: Sequence, otherwise: &str) -> String {
        let name = self.recorded().accepted.get(&(entity.clone(), sequence)).cloned();
        name.unwrap_or_else(|| otherwise.to_owned())
    }

    pub fn source(&self, entity: &EntityKey) -> Option<SourceName> {
        self.recorded().sources.get(entity).cloned()
    }

    /// Returns the monotonic time at which the recorder was created.
    pub fn began(&self) -> Duration {
        self.began
    }

    pub fn now(&self) -> Duration {
        self.env.monotonic()
    }

    pub fn since(&self, from: usize) -> Vec<RecordedEvent> {
        self.recorded().happenings.get(from..).unwrap_or_default().to_vec()
    }

    pub fn length(&self) -> watch::Receiver<usize> {
        self.length.subscribe()
    }

    /// Waits until `is_met` returns true for the recorded events from the index `from` on.
    pub async fn until(&self, from: usize, is_met: impl Fn(&[RecordedEvent]) -> bool) {
        let mut length = self.length();
        // `self` owns the sender, so the channel is open.
        let _ = length.wait_for(|_| is_met(self.recorded().happenings.get(from..).unwrap_or_default())).await;
    }

    fn recorded(&self) -> std::sync::MutexGuard<'_, RecordingState> {
        self.recorded.lock().expect("no one panics while holding this")
    }

    fn record(&self, entity: &EntityKey, sequence: Option<Sequence>, name: String, what: EventKind) {
        let at = self.now();
        let length = {
            let mut recorded = self.recorded();
            recorded.happenings.push(RecordedEvent { at, entity: entity.clone(), sequence, name, what });
            recorded.happenings.len()
        };
        self.length.send_replace(length);
    }

    fn record_delivery(&self, delivery: &Delivery, what: EventKind) {
        let name = self.name(delivery.delivery_id().as_str(), delivery.topic());
        self.record(delivery.entity(), Some(delivery.sequence()), name, what);
    }
}

impl Observer for EventRecorder {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Accepted { incoming, sequence, is_wake_up_lost } => {
                let name = self.name(incoming.identity.delivery_id.as_str(), &incoming.topic);
                let source = incoming.identity.source.clone();
                self.recorded().sources.insert(incoming.entity.clone(), source);
                self.recorded().accepted.insert((incoming.entity.clone(), *sequence), name.clone());
                self.record(&incoming.entity, Some(*sequence), name, EventKind::Accepted);
                if *is_wake_up_lost {
                    self.record(&incoming.entity, Some(*sequence), String::new(), EventKind::WakeUpFailed);
                }
            }
            Event::Ignored { incoming, .. } => {
                let name = self.name(incoming.identity.delivery_id.as_str(), &incoming.topic);
                self.record(&incoming.entity, None, name, EventKind::Ignored);
            }
            Event::Started { delivery, token } => {
                self.record_delivery(delivery, EventKind::Started(delivery.attempt(), *token));
            }
            Event::Settled { entity, sequence, settlement, delivery, .. } => {
                let name = delivery.map(|one| self.name(one.delivery_id().as_str(), one.topic())).unwrap_or_default();
                self.record(entity, Some(*sequence), name, EventKind::Settled(*settlement));
            }
            Event::Failed { delivery, retry_in, error } => {
                let error = (*error).to_owned();
                self.record_delivery(
                    delivery,
                    EventKind::Failed { attempt: delivery.attempt(), wait: *retry_in, error },
                );
            }
            Event::Blocked { entity, reason, .. } => {
                self.record(entity, None, String::new(), EventKind::Blocked(*reason))
            }
            Event::Requeued { entity, delay, reason } => {
                self.record(entity, None, String::new(), EventKind::Requeued(*reason, *delay));
            }
            Event::TakenOver { entity, token } => {
                self.record(entity, None, String::new(), EventKind::TakenOver(*token))
            }
            Event::Lost { entity, .. } => self.record(entity, None, String::new(), EventKind::Lost),
            Event::WakeUpFailed { entity } => self.record(entity, None, String::new(), EventKind::WakeUpFailed),
            _ => {}
        }
    }
}
