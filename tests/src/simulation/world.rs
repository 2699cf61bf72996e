//! The world of one run: true time, rows, history and allowed faults.

mod changes;
mod loss;
mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::Notify;
use webhook_serializer::{
    protocol::{
        entity::{DeliveryId, EntityKey, Identity, SourceName},
        format::attribute as a,
        keys::entity_row,
        memory::MemoryTable,
        table::Row,
    },
    time::Timestamp,
};

use super::{
    SimulationPlan,
    destination::{DestinationOutage, Reaction},
    fan_out,
    history::{
        AcceptedEffect, DeliveryName, ObservedRow, PendingEffect, RecordedStart, SimulationHistory, TraceEvent,
        TraceLine,
    },
    mutation::without_period,
    node::Node,
    outage::{FailureMode, ServiceOutage, SimulatedService},
    profile::Profile,
    queue::SimulatedQueue,
    random::DecisionId,
};
use loss::{StoppedTime, TableCopy, TableLoss};

pub const EPOCH: u64 = 1_800_000_000_000;

#[derive(Debug, Default)]
struct WorldState {
    trace: Vec<TraceLine>,
    decisions: BTreeSet<DecisionId>,
    history: SimulationHistory,
    observed_rows: BTreeMap<usize, ObservedRow>,
    /// For each order, the newest token when it was last held or resumed.
    held_at: BTreeMap<usize, u64>,
    /// For each order, the newest token that the receiver has seen.
    seen: BTreeMap<usize, u64>,
    before: BTreeMap<usize, (Duration, Option<Row>)>,
    outages: Vec<ServiceOutage>,
    erasing: BTreeSet<u32>,
    destination_outage: Option<DestinationOutage>,
    copied: Option<TableCopy>,
    lost: Option<TableLoss>,
    stop: StoppedTime,
}

#[derive(Debug)]
pub struct SimulatedWorld {
    pub plan: SimulationPlan,
    pub profile: Profile,
    pub start: tokio::time::Instant,
    pub rows: MemoryTable,
    pub queue: SimulatedQueue,
    goes_on: Notify,
    active: AtomicBool,
    pub busy: AtomicU32,
    inner: Mutex<WorldState>,
}

#[derive(Debug)]
pub struct Busy(Arc<SimulatedWorld>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

pub fn label(number: usize) -> String {
    let (namespace, number) = fan_out::namespace(number);
    let label = label_in_namespace(number);
    if namespace == fan_out::NAMESPACES[0] { label } else { format!("{namespace} {label}") }
}

fn label_in_namespace(number: usize) -> String {
    match u8::try_from(number) {
        Ok(letter) if letter < 26 => ((b'a' + letter) as char).to_string(),
        _ => format!("o{number}"),
    }
}

/// Returns an order's key. Some keys are so long that their row has room for one or two receipts only.
pub fn key(number: usize) -> EntityKey {
    let (namespace, number) = fan_out::namespace(number);
    let key = format!("{namespace}/{}", label_in_namespace(number));
    let bytes = match number {
        0 => 470,
        2 => EntityKey::MAX_BYTES,
        _ => key.len(),
    };
    EntityKey::parse(&format!("{key:/<bytes$}")).expect("a key")
}

pub fn is_job(key: &str) -> bool {
    key.starts_with("cron/")
}

fn number_of(key: &str) -> usize {
    let label = key.get(4..).unwrap_or("z");
    let number = match label.strip_prefix('o').map(|number| number.trim_end_matches('/').parse()) {
        Some(Ok(number)) => number,
        _ => label.bytes().next().map_or(25, |letter| usize::from(letter.saturating_sub(b'a'))),
    };
    fan_out::in_namespace(key.get(..3).unwrap_or_default(), number)
}

pub fn entity_number(key: &EntityKey) -> usize {
    number_of(key.as_str())
}

pub fn relative(number: u64) -> i64 {
    number as i64 - EPOCH as i64
}

impl SimulatedWorld {
    pub fn new(plan: SimulationPlan) -> Arc<Self> {
        let profile = match (&plan.profile, plan.focus) {
            (Some(profile), _) => profile.clone(),
            (None, Some(mutation)) => Profile::focused(plan.seed, mutation),
            (None, None) => Profile::of(plan.seed),
        };
        Arc::new(Self {
            profile,
            start: tokio::time::Instant::now(),
            rows: MemoryTable::new(),
            queue: SimulatedQueue::default(),
            goes_on: Notify::new(),
            active: AtomicBool::new(false),
            busy: AtomicU32::new(0),
            inner: Mutex::default(),
            plan,
        })
    }

    fn inner(&self) -> MutexGuard<'_, WorldState> {
        self.inner.lock().expect("no panic under the lock")
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn true_millis(&self) -> u64 {
        EPOCH + self.elapsed().as_millis() as u64
    }

    pub fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    pub fn set_active(&self, active: bool) {
        self.active.store(active, Relaxed);
    }

    pub fn allows(&self, decision: DecisionId) -> bool {
        let may = self.plan.allowed.as_ref().is_none_or(|allowed| allowed.contains(&decision));
        if may {
            self.inner().decisions.insert(decision);
        }
        may
    }

    pub fn set_out(&self, outage: &ServiceOutage, out: bool) {
        let how = if out { outage.how.name() } else { "work again" };
        self.trace(TraceEvent::Outage { decision: outage.decision(), what: outage.service.name(), how });
        let mut inner = self.inner();
        inner.outages.retain(|other| other.number != outage.number);
        if out {
            inner.outages.push(*outage);
        }
    }

    pub fn out(&self, services: &[SimulatedService], node: u32) -> Option<FailureMode> {
        let now = self.elapsed();
        let out =
            |outage: &&ServiceOutage| services.contains(&outage.service) && outage.hits(self.plan.seed, node, now);
        self.inner().outages.iter().find(out).map(|outage| outage.how)
    }

    pub fn set_destination_outage(&self, destination_outage: Option<DestinationOutage>) {
        self.inner().destination_outage = destination_outage;
    }

    pub fn destination_reaction(&self, source: &str) -> Option<Reaction> {
        let destination_outage = self.inner().destination_outage?;
        destination_outage.source.is_none_or(|of| of == source).then_some(destination_outage.reaction)
    }

    pub fn record_death(&self, node: u32) {
        let time = self.elapsed();
        let mut inner = self.inner();
        let held =
            inner.observed_rows.iter().filter(|(_, observed)| observed.holder.is_some() && observed.node == node);
        let grants: Vec<_> = held.map(|(entity, observed)| (*entity, observed.granted)).collect();
        inner.history.attempts.record_death(node, time, grants);
    }

    pub fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Relaxed);
        Busy(self.clone())
    }

    pub fn trace(&self, what: TraceEvent) -> usize {
        let at = self.elapsed();
        let mut inner = self.inner();
        inner.trace.push(TraceLine { at, what });
        inner.trace.len() - 1
    }

    pub fn with_history<T>(&self, act: impl FnOnce(&mut SimulationHistory) -> T) -> T {
        act(&mut self.inner().history)
    }

    pub fn mistake(&self, text: String) {
        self.inner().history.mistakes.push(text);
    }

    pub fn mark(&self, what: &'static str) {
        *self.inner().history.reached.entry(what).or_default() += 1;
    }

    pub fn observed(&self, entity: usize) -> ObservedRow {
        self.inner().observed_rows.get(&entity).cloned().unwrap_or_default()
    }

    pub fn close(&self) -> (Vec<TraceLine>, BTreeSet<DecisionId>, u64) {
        let mut inner = self.inner();
        let mut hasher = DefaultHasher::new();
        inner.trace.hash(&mut hasher);
        (std::mem::take(&mut inner.trace), inner.decisions.clone(), hasher.finish())
    }

    /// Records a handler start; `first` is the first sequence of the start.
    pub fn record_start(
        &self,
        by: &Node,
        name: DeliveryName,
        entity: usize,
        (first, sequence): (u64, u64),
        token: u64,
    ) -> usize {
        let node = by.number;
        let is_lost = by.generation != self.generation();
        let newest = if is_lost { self.given_out(entity).token } else { self.observed(entity).token };
        let on_hold = self.read(&entity_row(&key(entity))).is_some_and(|row| row.number(a::HOLD).is_some());
        let held_at = self.inner().held_at.get(&entity).copied().unwrap_or_default();
        if on_hold && token == newest && token > held_at && !is_lost {
            let mistake = format!("{name} is started on hold, under token {}", relative(token));
            self.with_history(|history| history.mistakes.push(mistake));
        }
        let at =
            self.trace(TraceEvent::Started { name, entity, node, token: relative(token), newest: relative(newest) });
        let mut inner = self.inner();
        let there = *inner.history.at_places.entry((entity, sequence)).or_insert(name);
        if there != name {
            let place = format!("{}/{}", label(entity), relative(sequence));
            inner.history.mistakes.push(format!("{name} is said to be at {place}, where {there} was before"));
        }
        inner.history.starts.push(RecordedStart {
            name,
            entity,
            sequence,
            first,
            token,
            newest,
            at,
            time: self.elapsed(),
            done: false,
            is_lost,
        });
        inner.history.starts.len() - 1
    }

    pub fn apply_effect(&self, by: &Node, effect: PendingEffect) -> bool {
        let PendingEffect { entity, claimed, token, sequence, remembers } = effect;
        let is_newest = by.generation == self.generation() && token == self.observed(entity).token;
        let mut inner = self.inner();
        let seen = inner.seen.entry(entity).or_default();
        let accepted = claimed >= *seen || !remembers;
        *seen = claimed.max(*seen);
        if accepted {
            inner.history.landed.push(AcceptedEffect { entity, token, sequence });
        }
        drop(inner);
        if !accepted && is_newest {
            self.mistake(format!("{}: the effect of the newest token is refused: {}", label(entity), relative(token)));
        }
        if !accepted {
            self.mark("a late effect is refused");
        }
        self.trace(TraceEvent::Effect { entity, token: relative(token), accepted });
        accepted
    }

    pub fn register_identity(&self, identity: &Identity) {
        let name = name_of(identity);
        let is_seen_as = |identity: &Identity| Identity {
            delivery_id: DeliveryId::new(without_period(identity.delivery_id.as_str())),
            ..identity.clone()
        };
        let names = &mut self.inner().history.names;
        names.insert(identity.hash(), name);
        names.insert(is_seen_as(identity).hash(), name);
    }
}

pub const RETRIED_FOR: Duration = Duration::from_secs(30);

/// Returns a delivery's identity. `unnamed` is the arrival time of a delivery without an id.
pub fn identity(number: u32, source: &'static str, unnamed: Option<Timestamp>) -> Identity {
    let own = number.to_string();
    let delivery_id = match unnamed {
        None => DeliveryId::new(own),
        Some(received_at) => {
            let hash = DeliveryId::from_body(own.as_bytes());
            DeliveryId::new(format!("{own}/{hash}")).received(received_at, RETRIED_FOR)
        }
    };
    Identity { source: SourceName::parse(source).expect("a source"), delivery_id, redrive: 0 }
}

pub fn name_of(identity: &Identity) -> DeliveryName {
    let id = number_in(identity.delivery_id.as_str()).expect("a number");
    DeliveryName { number: fan_out::number(identity.source.as_str(), id), redrive: identity.redrive }
}

pub fn number_in(delivery_id: &str) -> Option<u32> {
    delivery_id.split('/').next()?.parse().ok()
}
