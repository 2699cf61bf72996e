//! Runs senders, worker functions, exclusive holders, operators and sweeps around the real code.

mod operators;
mod workers;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use webhook_serializer::{
    engine::{
        append::{Accepted, Inbox},
        drain::{DrainSettings, Drainer},
        store::Store,
        sweep::Sweeper,
        wake::Waker,
    },
    functions::worker::Worker,
    handler::Isolation,
    handlers::fan_out::FanOut,
    leases::{CommitOutcome, LeaseError, Leases, Terms},
    operator::Operator,
    protocol::{delivery::Incoming, state::HolderInfo},
    sources::{OnOutage, Sources, deliver::Deliver},
    telemetry::{Event, Observer, RequeueReason},
    time::Timestamp,
};

use super::{
    exclusion::WorkUnderWay,
    fan_out,
    handler::{DeliveryTraits, SimulatedHandler, seconds},
    history::{AppendCall, DeliveryName, PendingEffect, TraceEvent},
    loss::RESTORER,
    mutation::{Mutator, is_of_a_restore},
    node::{Node, NodeSlot, pause},
    outage::ServiceOutage,
    profile::Profile,
    queue::NodeQueue,
    random::{RandomStream, actor},
    table::NodeTable,
    world::{RETRIED_FOR, SimulatedWorld, identity, key, name_of, relative},
};
use crate::rules::ViolatedRule;

pub use operators::{healthy_operator, run_eraser, run_operator, unblock_and_redrive, with_pending_wake_up};
pub use workers::run_worker;

const SOURCES: &str = concat!(
    source!("park", "handler_timeout = '2s'", "retry = { attempts = 4, first = '200ms', longest = '3s' }"),
    source!(
        "block",
        "handler_timeout = '2s'",
        "retry = { attempts = 3, first = '200ms', longest = '3s' }",
        "on_failure = 'block'",
        "rate = '5/s'"
    ),
);

/// The source with several handlers. Its subscribers have the options of the other sources, too.
const PARENT: &str = concat!(
    source!("fan", "handler_timeout = '3s'", "retry = { attempts = 4, first = '200ms', longest = '3s' }"),
    "\n[sources.all]\nfrom = 'fan'\nhandler_timeout = '2s'\n",
    "retry = { attempts = 4, first = '200ms', longest = '3s' }\nhandler = 'test'\n",
    "\n[sources.few]\nfrom = 'fan'\nhandler_timeout = '2s'\ntopics = { take = 'order.paid' }\n",
    "retry = { attempts = 3, first = '200ms', longest = '3s' }\non_failure = 'block'\nhandler = 'test'\n"
);

const LINGERS: &str = "linger = \"300ms\"\n";

pub const RETENTION: Duration = Duration::from_secs(30 * 86_400);

const LEASE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);

fn sources(deliver: Deliver, skips: bool) -> Arc<Sources> {
    static SOURCES_READ: Mutex<BTreeMap<String, Arc<Sources>>> = Mutex::new(BTreeMap::new());
    let stale = if skips { "stale = \"skip\"\n" } else { "" };
    let options = match deliver {
        Deliver::Each => String::new(),
        Deliver::UpTo(most) => format!("{LINGERS}deliver = {{ up_to = {most} }}\n"),
        Deliver::Latest => format!("{LINGERS}deliver = \"latest\"\n"),
    };
    let options = format!("{stale}{options}");
    let mut read = SOURCES_READ.lock().expect("no panic under the lock");
    let parsed = || {
        let document = format!("{SOURCES}{}", PARENT.replacen("'test'", "'fan-out'", 1));
        let each = document.replace("handler = 'test'", &format!("{options}handler = 'test'"));
        Arc::new(Sources::parse(&each).expect("the sources are right"))
    };
    read.entry(options.clone()).or_insert_with(parsed).clone()
}

pub fn attempts(traits: DeliveryTraits) -> usize {
    let attempts = sources(Deliver::Each, false).get(traits.source()).and_then(|source| source.retry.attempts);
    attempts.expect("its source limits them") as usize
}

fn settings(profile: &Profile) -> DrainSettings {
    let receipt_pages = profile.receipt_pages;
    DrainSettings { lease: LEASE, retention: RETENTION, receipt_pages, ..DrainSettings::default() }
}

#[derive(Debug)]
struct TracingObserver {
    node: Node,
    mutator: Arc<Mutator>,
}

impl TracingObserver {
    fn on(node: &Node, mutator: &Arc<Mutator>) -> Arc<Self> {
        Arc::new(Self { node: node.clone(), mutator: mutator.clone() })
    }
}

impl Observer for TracingObserver {
    fn observe(&self, event: &Event<'_>) {
        if let Event::TakenUp { incoming, sequence, is_wake_up_lost, .. } = event {
            self.node.world.mark("a deferred delivery is ingested");
            let name = name_of(&incoming.identity);
            record_answer(&self.node.world, self.node.generation, name, sequence.0, !is_wake_up_lost);
        }
        if let Event::Accepted { incoming, sequence, is_wake_up_lost } = event {
            let name = name_of(&incoming.identity);
            // Redriven copies are recorded by their operator.
            if fan_out::is_copy(name) && name.redrive == 0 {
                self.node.world.mark("a copy is appended");
                record_answer(&self.node.world, self.node.generation, name, sequence.0, !is_wake_up_lost);
            }
        }
        let breakers = &self.node.breakers;
        let now = self.node.env.monotonic();
        match event {
            Event::BreakerOpened { source, wait } => breakers.opened(source.as_str(), now, *wait),
            Event::BreakerClosed { source } => breakers.closed(source.as_str()),
            Event::Requeued { entity, reason: RequeueReason::BreakerOpen, .. } => self.mutator.breaker_open(entity),
            _ => {}
        }
        let text = match event {
            Event::Lost { .. } => "finds its lease lost",
            Event::Requeued { reason: RequeueReason::Yielding, .. } => "a drain yields",
            Event::Requeued { reason: RequeueReason::BreakerOpen, .. } => "a breaker puts its wake-up off",
            Event::BreakerOpened { .. } => "a breaker opens",
            Event::BreakerClosed { .. } => "a breaker closes",
            Event::Requeued { .. } => "puts its wake-up off",
            Event::WakeUpFailed { .. } => "could not send a wake-up",
            Event::LeaseDropped { .. } => "leaves its lease to run out",
            _ => return,
        };
        self.node.world.mark(text);
        self.node.world.trace(TraceEvent::Note { node: self.node.number, text });
    }
}

pub struct WorkloadParts {
    store: Store,
    waker: Waker,
    queue: Arc<NodeQueue>,
    inbox: Inbox,
    mutator: Arc<Mutator>,
    node: u32,
    generation: u32,
}

impl WorkloadParts {
    pub fn on(node: &Node) -> Self {
        let mutation = node.world.plan.mutation.filter(|rule| node.number == RESTORER || !is_of_a_restore(*rule));
        let mutator = Mutator::new(mutation);
        let store = Store::new(NodeTable::new(node, &mutator), node.env.clone());
        let queue = NodeQueue::new(node, &mutator);
        let waker = Waker::new(queue.clone(), node.env.clone());
        let inbox = Inbox::new(store.clone(), waker.clone(), RETENTION, TracingObserver::on(node, &mutator));
        Self { store, waker, queue, inbox, mutator, node: node.number, generation: node.generation }
    }

    pub fn operator(&self) -> Operator {
        Operator::new(self.store.clone(), self.waker.clone(), self.inbox.clone(), RETENTION)
    }

    fn worker(&self, node: &Node) -> Worker {
        let sources = sources(node.world.profile.deliver, node.world.profile.skips);
        let fan_out = FanOut::new(sources.clone(), self.inbox.clone());
        let handler = SimulatedHandler { node: node.clone(), mutator: self.mutator.clone(), fan_out };
        let info = HolderInfo::new(&format!("node {}", node.number));
        let drainer = Drainer::new(
            self.store.clone(),
            self.waker.clone(),
            sources,
            handler,
            settings(&node.world.profile),
            info,
            TracingObserver::on(node, &self.mutator),
        );
        Worker::new(drainer.isolated(Isolation::Inline), self.queue.clone(), node.env.clone())
    }
}

pub async fn run_sender(world: Arc<SimulatedWorld>, name: DeliveryName, entity: usize, at: Duration) {
    let stream = RandomStream::new(world.plan.seed, actor::DELIVERIES);
    let mut draw = stream.at(name.number);
    world.pause_until(at).await;
    let busy = world.begin();
    let tries = draw.between(1, 5);
    let repeats = draw.happens(150);
    let mut acked = 0;
    let first = world.elapsed();
    let is_unnamed = DeliveryTraits::of(world.plan.seed, name.number).is_unnamed(&world.profile);
    for _ in 0..tries {
        // The tolerance of 10 s covers clocks that differ by a few seconds.
        if is_unnamed && world.elapsed() - first > RETRIED_FOR - seconds(10) {
            break;
        }
        let place = draw.between(0, 1) as u32;
        if append(&world, name, entity, 50 + place).await {
            acked += 1;
            if !repeats || acked > 1 {
                break;
            }
        }
        pause(draw.millis(1, 5_000)).await;
    }
    drop(busy);
}

pub fn record_call(world: &SimulatedWorld, name: DeliveryName, entity: usize, node: u32) {
    let at = world.trace(TraceEvent::Called { name, entity, node });
    world.with_history(|history| {
        let acked = Vec::new();
        let lost = Vec::new();
        let call = AppendCall { name, entity, called: at, acked, lost, woken: true, broken: false, deferred: false };
        history.calls.entry(name).or_insert(call).broken = true;
    });
}

fn record_answer(world: &SimulatedWorld, generation: u32, name: DeliveryName, sequence: u64, woken: bool) {
    let at = world.trace(TraceEvent::Acked { name, sequence: relative(sequence), woken });
    let entity = world.with_history(|history| history.calls.get(&name).map(|call| call.entity));
    let is_lost = entity.is_some_and(|entity| world.is_lost(generation, entity, sequence));
    world.with_history(|history| {
        if let Some(call) = history.calls.get_mut(&name) {
            if is_lost {
                call.deferred = false;
                call.lost.push((at, sequence));
            } else {
                call.acked.push((at, sequence));
            }
            call.woken &= woken;
        }
        if !woken && let Some(call) = history.calls.get(&name) {
            history.excused.insert(call.entity);
        }
    });
    if !woken {
        world.mark("answered 2xx without a wake-up");
    }
}

/// Returns the event's time in seconds. Some events share a time, and some are older than an earlier
/// delivery's.
pub fn event_time(name: DeliveryName) -> u64 {
    u64::from(fan_out::original(name.number)) % 7
}

const ANSWERED_WITHIN: Duration = Duration::from_millis(2450);

pub async fn append(world: &Arc<SimulatedWorld>, name: DeliveryName, entity: usize, number: u32) -> bool {
    if world.is_stopped() {
        // No function runs at present.
        return false;
    }
    let slot = NodeSlot::new(world, number * 1000 + name.number);
    let traits = DeliveryTraits::of(world.plan.seed, name.number);
    let node = slot.boot();
    let parts = WorkloadParts::on(&node);
    let received_at = node.env.now();
    let unnamed = traits.is_unnamed(&world.profile).then_some(received_at);
    let identity = identity(name.number, traits.source(), unnamed);
    world.register_identity(&identity);
    let incoming = Incoming {
        entity: key(entity),
        identity,
        provider: None,
        topic: fan_out::topic(name.number).into(),
        family: "order".into(),
        event_time: Some(Timestamp::from_secs(1_800_000_000 + event_time(name))),
        received_at,
        content_type: None,
        body: traits.body(name.number),
    };
    record_call(world, name, entity, number);
    let failure = slot.append_failure();
    let source = sources(world.profile.deliver, world.profile.skips).get(traits.source()).cloned();
    let linger = source.and_then(|source| source.linger);
    let on_outage = if world.profile.defers { OnOutage::Queue } else { OnOutage::Refuse };
    match node.run(&failure, parts.inbox.accept(&incoming, None, linger, on_outage, ANSWERED_WITHIN)).await {
        Some(Ok(Accepted::Deferred)) => {
            world.trace(TraceEvent::Deferred { name });
            world.mark("a delivery is deferred");
            world.with_history(|history| {
                history.calls.entry(name).and_modify(|call| call.deferred = true);
            });
            true
        }
        Some(Ok(Accepted::Appended(appended))) => {
            record_answer(world, node.generation, name, appended.sequence.0, appended.wake_up_failed.is_none());
            true
        }
        ended => {
            world.trace(TraceEvent::NotAcked { name });
            // After a crash or a 503, the claim may have sent no wake-up.
            world.mark(if ended.is_none() { "ingest crashes" } else { "ingest answers 503" });
            world.with_history(|history| history.unwoken.insert(entity));
            false
        }
    }
}

pub async fn run_exclusive_holder(world: Arc<SimulatedWorld>, number: u32, entity: usize, at: Duration) {
    world.pause_until(at).await;
    let slot = NodeSlot::new(&world, 60 + number);
    let mut draw = RandomStream::new(world.plan.seed, actor::EXCLUSIVE).at(1000 + number);
    let holds = draw.millis(0, 3000);
    let forgets = draw.happens(300);
    let node = slot.boot();
    let parts = WorkloadParts::on(&node);
    let busy = world.begin();
    let failure = slot.worker_failure();
    let visit = hold(&node, &parts, entity, holds, forgets);
    if let Some(Err(_)) | None = node.run(&failure, visit).await {
        world.mark("an exclusive holder fails");
    }
    drop(busy);
}

async fn hold(
    node: &Node,
    parts: &WorkloadParts,
    entity: usize,
    holds: Duration,
    forgets: bool,
) -> Result<(), LeaseError> {
    let world = &node.world;
    let leases = Leases::new(parts.store.clone(), "exclusive").kept_for(RETENTION);
    let leases = leases.observed_by(TracingObserver::on(node, &parts.mutator));
    let leases = if forgets { leases } else { leases.waking(parts.waker.clone()) };
    let terms = Terms::default().lease(LEASE).wait(seconds(20));
    let mut guard = leases.acquire(&key(entity), terms).await?;
    let token = guard.lease().token().0;
    world.mark("an exclusive lease is granted");
    let remembers = world.plan.mutation != Some(ViolatedRule::ReceiversIgnoreTokens);
    let effect = PendingEffect { entity, claimed: token, token, sequence: None, remembers };
    let work = WorkUnderWay::begin(node, &key(entity), token);
    world.apply_effect(node, effect);
    guard.hold(node.env.sleep(holds)).await?;
    world.apply_effect(node, effect);
    drop(work);
    if holds.as_millis().is_multiple_of(2) {
        return guard.release().await;
    }
    if matches!(guard.commit(Vec::new()).await?, CommitOutcome::Committed) {
        world.mark("an exclusive holder commits");
    }
    Ok(())
}

pub async fn run_outage(world: Arc<SimulatedWorld>, outage: ServiceOutage, begin: Duration) {
    world.pause_until(begin + outage.from).await;
    world.set_out(&outage, true);
    pause(outage.lasts).await;
    world.set_out(&outage, false);
    world.mark("something was out for long");
}

/// Runs the part of a sweep's tick that sends owed wake-ups.
pub async fn send_owed(world: &Arc<SimulatedWorld>, number: u32) {
    let busy = world.begin();
    send_owed_by(&NodeSlot::new(world, number).boot(), world).await;
    drop(busy);
}

async fn send_owed_by(node: &Node, world: &SimulatedWorld) {
    let parts = WorkloadParts::on(node);
    let sweeper = Sweeper::new(parts.store, parts.waker, parts.queue, RETENTION).at_most(0);
    let until = node.env.monotonic() + seconds(50);
    let (swept, _) = sweeper.go_on(node.env.now(), until).await;
    if swept.owed > 0 {
        world.mark("an owed wake-up is sent");
    }
}

pub async fn run_sweep(world: &Arc<SimulatedWorld>, number: u32) {
    let node = NodeSlot::new(world, number).boot();
    let parts = WorkloadParts::on(&node);
    let busy = world.begin();
    let limit = seconds(120);
    node.env.within(limit, send_owed_by(&node, world)).await;
    if let Some(Ok(swept)) =
        node.env.within(limit, Sweeper::new(parts.store, parts.waker, parts.queue, RETENTION).sweep_all()).await
    {
        if swept.woken > 0 {
            world.mark("the sweep wakes somebody");
        }
        if swept.kept > 0 {
            world.mark("the sweep keeps rows");
        }
    }
    drop(busy);
}
