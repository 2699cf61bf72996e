//! Senders, worker functions, exclusive holders, operators and sweeps, around the real code.

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
    functions::worker::{Attributes, Record, SqsEvent, Worker},
    handler::Isolation,
    leases::{LeaseError, Leases, Terms},
    operator::{Operator, OperatorError, Rewound, Skipped},
    protocol::{
        delivery::Incoming,
        entity::{Identity, Sequence},
        lease::{ForceRelease, Forced},
        maintain::Reason,
        receipt::Settlement,
        state::HolderInfo,
    },
    sources::{OnOutage, Sources, deliver::Deliver},
    telemetry::{Event, Observer, RequeueReason},
    time::Timestamp,
};

use crate::rules::Rule;

use super::{
    handler::{DeliveryTraits, SimulatedHandler, seconds},
    history::{Call, DeliveryName, TraceEvent},
    loss::RESTORER,
    mutation::{Mutator, is_of_a_restore},
    node::{Node, NodeSlot, pause},
    outage::Outage,
    queue::{NodeQueue, Receipt, is_deferred},
    random::{Draw, RandomStream, actor},
    table::NodeTable,
    world::{RETRIED_FOR, World, entity_number, identity, key, name_of, relative},
};

const SOURCES: &str = r#"
[sources.park]
provider = "standard-webhooks"
secrets = ["whsec_c2VjcmV0"]
handler = "simulated"
handler_timeout = "2s"
retry = { attempts = 4, first = "200ms", longest = "3s" }

[sources.block]
provider = "standard-webhooks"
secrets = ["whsec_c2VjcmV0"]
handler = "simulated"
handler_timeout = "2s"
retry = { attempts = 3, first = "200ms", longest = "3s" }
on_failure = "block"
rate = "5/s"
"#;

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
        let each = SOURCES.replace("handler = ", &format!("{options}handler = "));
        Arc::new(Sources::parse(&each).expect("the sources are right"))
    };
    read.entry(options.clone()).or_insert_with(parsed).clone()
}

pub fn attempts(traits: DeliveryTraits) -> usize {
    let attempts = sources(Deliver::Each, false).get(traits.source()).and_then(|source| source.retry.attempts);
    attempts.expect("its source limits them") as usize
}

fn settings() -> DrainSettings {
    DrainSettings { lease: LEASE, wait: Duration::from_millis(1500), retention: RETENTION, ..DrainSettings::default() }
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
            record_answer(&self.node.world, self.node.tables, name, sequence.0, !is_wake_up_lost);
        }
        let (breakers, now) = (&self.node.breakers, self.node.env.monotonic());
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

pub struct Parts {
    store: Store,
    waker: Waker,
    queue: Arc<NodeQueue>,
    inbox: Inbox,
    mutator: Arc<Mutator>,
    node: u32,
    tables: u32,
}

impl Parts {
    pub fn on(node: &Node) -> Self {
        let mutation = node.world.plan.mutation.filter(|rule| node.number == RESTORER || !is_of_a_restore(*rule));
        let mutator = Mutator::new(mutation);
        let store = Store::new(NodeTable::new(node, &mutator), node.env.clone());
        let queue = NodeQueue::new(node, &mutator);
        let waker = Waker::new(queue.clone(), node.env.clone());
        let inbox = Inbox::new(store.clone(), waker.clone(), RETENTION, TracingObserver::on(node, &mutator));
        Self { store, waker, queue, inbox, mutator, node: node.number, tables: node.tables }
    }

    pub fn operator(&self) -> Operator {
        Operator::new(self.store.clone(), self.waker.clone(), self.inbox.clone(), RETENTION)
    }

    fn worker(&self, node: &Node) -> Worker {
        let handler = SimulatedHandler { node: node.clone(), mutator: self.mutator.clone() };
        let info = HolderInfo::new(&format!("node {}", node.number));
        let drainer = Drainer::new(
            self.store.clone(),
            self.waker.clone(),
            sources(node.world.profile.deliver, node.world.profile.skips),
            handler,
            settings(),
            info,
            TracingObserver::on(node, &self.mutator),
        );
        Worker::new(drainer.isolated(Isolation::Inline), self.queue.clone(), node.env.clone())
    }
}

pub async fn run_worker(world: Arc<World>, number: u32, until: Duration) {
    let slot = NodeSlot::new(&world, number);
    'booting: loop {
        let node = slot.boot();
        let parts = Parts::on(&node);
        let mut worker = parts.worker(&node);
        loop {
            if world.running_time() >= until {
                return;
            }
            if world.is_stopped() || node.tables != world.tables() {
                world.until_running().await;
                continue 'booting;
            }
            let mut draw = RandomStream::new(world.plan.seed, actor::QUEUE).draw_for(number, world.elapsed());
            let function = world.profile.function;
            let visibility = function + seconds(3);
            let most = draw.between(1, 4);
            let changed = world.queue.changed();
            let received = world.queue.receive(&world, &mut draw, most, visibility);
            if received.is_empty() {
                let wait = match world.queue.next_at() {
                    Some(at) if at > world.elapsed() => at - world.elapsed(),
                    Some(_) => Duration::from_millis(1),
                    None => seconds(3600),
                };
                let wait = wait.min(until.saturating_sub(world.running_time()));
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = pause(wait) => {}
                }
                pause(draw.millis(0, 20)).await;
                continue;
            }
            if parts.mutator.forgets_breakers() {
                worker = parts.worker(&node);
            }
            let busy = world.begin();
            let received_wake_ups = ReceivedWakeUps::of(&world, &received);
            for receipt in &received {
                let (entity, message, times) = (entity_number(&receipt.entity), receipt.id, receipt.times);
                world.trace(TraceEvent::Received { node: number, entity, message, times });
            }
            let records = received.iter().map(|receipt| Record {
                message_id: receipt.id.to_string(),
                receipt_handle: receipt.id.to_string(),
                body: receipt.body.clone(),
                attributes: Attributes { approximate_receive_count: parts.mutator.times(receipt.times).to_string() },
            });
            let event = SqsEvent { records: records.collect() };
            let deadline = node.env.now() + function;
            let failure = slot.worker_failure();
            let processing = {
                let alive = node.run(&failure, worker.process(event, deadline));
                let mut alive = std::pin::pin!(alive);
                let ended = tokio::select! {
                    biased;
                    ended = &mut alive => Some(ended),
                    () = pause(function) => None,
                };
                match ended {
                    Some(ended) => ended,
                    None if failure.outlives_deadline => alive.await,
                    None => {
                        world.trace(TraceEvent::DeadlineHit { node: number });
                        world.record_death(number);
                        world.mark("a function is killed at its deadline");
                        None
                    }
                }
            };
            let lost = world.is_active() && draw.happens(world.profile.copies / 3) && world.allows(draw.id);
            if let Some(response) = processing.filter(|_| !lost) {
                for receipt in &received {
                    let id = receipt.id.to_string();
                    let failed = response.batch_item_failures.iter().any(|failure| failure.item_identifier == id);
                    let kept = failed || parts.mutator.keeps(&receipt.entity);
                    world.trace(TraceEvent::Processed { node: number, message: receipt.id, kept });
                    if !kept {
                        world.queue.delete(&world, &mut draw, receipt.id);
                    } else if draw.happens(500) {
                        world.queue.show(receipt.id, world.elapsed() + Duration::from_millis(10));
                    }
                }
                drop((busy, received_wake_ups));
            } else {
                world.with_history(|history| history.died = true);
                drop((busy, received_wake_ups));
                pause(draw.millis(1, 300)).await;
                continue 'booting;
            }
        }
    }
}

struct ReceivedWakeUps(Arc<World>, Vec<usize>);

impl ReceivedWakeUps {
    fn of(world: &Arc<World>, received: &[Receipt]) -> Self {
        let wake_ups = received.iter().filter(|receipt| !is_deferred(&receipt.body));
        let entities: Vec<usize> = wake_ups.map(|receipt| entity_number(&receipt.entity)).collect();
        world.with_history(|history| {
            for entity in &entities {
                *history.processing.entry(*entity).or_default() += 1;
            }
        });
        Self(world.clone(), entities)
    }
}

impl Drop for ReceivedWakeUps {
    fn drop(&mut self) {
        self.0.with_history(|history| {
            for entity in &self.1 {
                *history.processing.entry(*entity).or_default() -= 1;
            }
        });
    }
}

pub async fn run_sender(world: Arc<World>, name: DeliveryName, entity: usize, at: Duration) {
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
        // Clocks differ by a few seconds.
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

fn record_call(world: &World, name: DeliveryName, entity: usize, node: u32) {
    let at = world.trace(TraceEvent::Called { name, entity, node });
    world.with_history(|history| {
        let (acked, lost) = (Vec::new(), Vec::new());
        let call = Call { name, entity, called: at, acked, lost, woken: true, broken: false, deferred: false };
        history.calls.entry(name).or_insert(call).broken = true;
    });
}

fn record_answer(world: &World, tables: u32, name: DeliveryName, sequence: u64, woken: bool) {
    let at = world.trace(TraceEvent::Acked { name, sequence: relative(sequence), woken });
    let entity = world.with_history(|history| history.calls.get(&name).map(|call| call.entity));
    let is_lost = entity.is_some_and(|entity| world.is_lost(tables, entity, sequence));
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

/// Seconds; includes ties and older events.
pub fn event_time(name: DeliveryName) -> u64 {
    u64::from(name.number) % 7
}

const ANSWERED_WITHIN: Duration = Duration::from_millis(2450);

pub async fn append(world: &Arc<World>, name: DeliveryName, entity: usize, number: u32) -> bool {
    if world.is_stopped() {
        // No function runs.
        return false;
    }
    let slot = NodeSlot::new(world, number * 1000 + name.number);
    let traits = DeliveryTraits::of(world.plan.seed, name.number);
    let node = slot.boot();
    let parts = Parts::on(&node);
    let received_at = node.env.now();
    let unnamed = traits.is_unnamed(&world.profile).then_some(received_at);
    let identity = identity(name.number, traits.source(), unnamed);
    world.register_identity(&identity);
    let incoming = Incoming {
        entity: key(entity),
        identity,
        provider: None,
        topic: "order.updated".into(),
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
    match node.run(&failure, parts.inbox.accept(&incoming, linger, on_outage, ANSWERED_WITHIN)).await {
        Some(Ok(Accepted::Deferred)) => {
            world.trace(TraceEvent::Deferred { name });
            world.mark("a delivery is deferred");
            world.with_history(|history| {
                history.calls.entry(name).and_modify(|call| call.deferred = true);
            });
            true
        }
        Some(Ok(Accepted::Appended(appended))) => {
            record_answer(world, node.tables, name, appended.sequence.0, appended.wake_up_failed.is_none());
            true
        }
        ended => {
            world.trace(TraceEvent::NotAcked { name });
            // After a crash or a 503 the claim may have no wake-up.
            world.mark(if ended.is_none() { "ingest crashes" } else { "ingest answers 503" });
            world.with_history(|history| history.unwoken.insert(entity));
            false
        }
    }
}

pub async fn run_exclusive_holder(world: Arc<World>, number: u32, entity: usize, at: Duration) {
    world.pause_until(at).await;
    let slot = NodeSlot::new(&world, 60 + number);
    let mut draw = RandomStream::new(world.plan.seed, actor::EXCLUSIVE).at(1000 + number);
    let holds = draw.millis(0, 3000);
    let forgets = draw.happens(300);
    let node = slot.boot();
    let parts = Parts::on(&node);
    let busy = world.begin();
    let failure = slot.worker_failure();
    let visit = hold(&node, &parts, entity, holds, forgets);
    if let Some(Err(_)) | None = node.run(&failure, visit).await {
        world.mark("an exclusive holder fails");
    }
    drop(busy);
}

async fn hold(node: &Node, parts: &Parts, entity: usize, holds: Duration, forgets: bool) -> Result<(), LeaseError> {
    let world = &node.world;
    let leases = Leases::new(parts.store.clone(), "exclusive").kept_for(RETENTION);
    let leases = leases.observed_by(TracingObserver::on(node, &parts.mutator));
    let leases = if forgets { leases } else { leases.waking(parts.waker.clone()) };
    let terms = Terms::default().lease(LEASE).wait(seconds(20));
    let mut guard = leases.acquire(&key(entity), terms).await?;
    let token = guard.lease().token().0;
    world.mark("an exclusive lease is granted");
    let checked = world.plan.mutation != Some(Rule::ReceiversIgnoreTokens);
    world.apply_effect(node, entity, token, token, None, checked);
    guard.hold(node.env.sleep(holds)).await?;
    world.apply_effect(node, entity, token, token, None, checked);
    if holds.as_millis().is_multiple_of(2) {
        return guard.release().await;
    }
    if guard.commit(Vec::new()).await?.is_ok() {
        world.mark("an exclusive holder commits");
    }
    Ok(())
}

pub async fn run_operator(world: Arc<World>, number: u32, entity: usize, at: Duration) {
    world.pause_until(at).await;
    let busy = world.begin();
    let stream = RandomStream::new(world.plan.seed, actor::OPERATOR);
    let mut company = stream.at(5000 + number);
    if company.happens(world.profile.erases) && world.allows(company.id) {
        world.mark("two operators at once");
        let second = operator_visit(&world, 500 + number, entity, company.id.number, true);
        let first = operator_visit(&world, 80 + number, entity, 1000 + number, true);
        futures_util::join!(first, second);
    } else {
        operator_visit(&world, 80 + number, entity, 1000 + number, false).await;
    }
    drop(busy);
}

pub async fn run_eraser(world: Arc<World>, number: u32, entity: usize, at: Duration) {
    world.pause_until(at).await;
    if !world.profile.may_erase() {
        return;
    }
    let busy = world.begin();
    let node = NodeSlot::new(&world, 700 + number).boot();
    let parts = Parts::on(&node);
    erase(&world, &parts, &parts.operator(), entity).await;
    drop(busy);
}

async fn operator_visit(world: &Arc<World>, place: u32, entity: usize, decision: u32, may_erase: bool) {
    let node = NodeSlot::new(world, place).boot();
    let parts = Parts::on(&node);
    let operator = parts.operator();
    let mut draw = RandomStream::new(world.plan.seed, actor::OPERATOR).at(decision);
    let wanted = key(entity);
    let state = parts.store.entity(&wanted, PATIENCE).await.ok().flatten();
    if draw.happens(300)
        && let Some(seen) = state.filter(|state| state.held.is_some())
    {
        let force = ForceRelease { seen: &seen, record: HolderInfo::new(&format!("operator {place}")) };
        if let Ok(Forced::Released(state)) = parts.store.run(&force, PATIENCE).await {
            world.trace(TraceEvent::Operator { entity, how: "took a lease away" });
            if !state.is_empty() {
                let _ = parts.waker.wake(&wanted, Duration::ZERO, PATIENCE).await;
            }
        }
    }
    let erases = may_erase && world.profile.may_erase();
    if erases && draw.happens(500) {
        erase(world, &parts, &operator, entity).await;
    }
    hold_and_skip(world, &parts, entity, 9000 + decision).await;
    unblock_and_redrive(world, &parts, entity, place).await;
    if erases && draw.happens(500) {
        erase(world, &parts, &operator, entity).await;
    }
}

async fn erase(world: &Arc<World>, parts: &Parts, operator: &Operator, entity: usize) {
    let observed = world.observed(entity);
    if !observed.present {
        // The row was erased or purged before; this erase removes the rest.
        world.record_erase(entity, observed.tail);
    }
    let node = parts.node;
    world.set_erasing(node, true);
    let erased = operator.erase(&key(entity)).await;
    world.set_erasing(node, false);
    if erased.is_ok() && parts.mutator.erases_all() {
        world.forget_settled(entity);
    }
}

async fn hold_and_skip(world: &Arc<World>, parts: &Parts, entity: usize, decision: u32) {
    let mut draw = RandomStream::new(world.plan.seed, actor::OPERATOR).at(decision);
    let (operator, wanted) = (parts.operator().because(Reason::new("ada", "to see it")), key(entity));
    let (holds, skips) = (draw.happens(400), draw.happens(400));
    if holds && world.allows(draw.id) {
        let _ = operator.hold(&wanted).await;
        pause(draw.millis(0, 20_000)).await;
    }
    if skips
        && world.allows(draw.id)
        && let Ok(Some(state)) = parts.store.entity(&wanted, PATIENCE).await
        && !state.is_empty()
    {
        let sequence = state.next();
        world.with_history(|history| history.attempts.expect_skip(entity, sequence.0));
        let skipped = with_pending_wake_up(world, entity, operator.skip(&wanted, sequence)).await;
        if let Some(Skipped::As(Settlement::Parked)) = skipped {
            world.mark("a delivery is skipped");
        }
    }
    // The known seeds of the other mutations were found without rewinds.
    if world.profile.rewinds > 0 && world.plan.mutation.is_none_or(|rule| rule == Rule::RepeatsItself) {
        runs_again(
            world,
            parts,
            &operator,
            entity,
            RandomStream::new(world.plan.seed, actor::OPERATOR).at(decision + 50_000),
        )
        .await;
    }
    if holds {
        with_pending_wake_up(world, entity, operator.resume(&wanted)).await;
    }
}

async fn runs_again(world: &Arc<World>, parts: &Parts, operator: &Operator, entity: usize, mut draw: Draw) {
    if !draw.happens(world.profile.rewinds) || !world.allows(draw.id) {
        return;
    }
    let (wanted, back, ends) = (key(entity), draw.between(0, 6), draw.happens(300));
    let Ok(Some(state)) = parts.store.entity(&wanted, PATIENCE).await else { return };
    let from = Sequence(state.head.0.saturating_sub(back).max(1));
    world.with_history(|history| history.rewinds.entry(entity).or_default().0 += 1);
    if let Some(Rewound::Done(_)) = with_pending_wake_up(world, entity, operator.rewind(&wanted, from)).await {
        world.mark("what was applied is run again");
    }
    if ends {
        pause(draw.millis(0, 2000)).await;
        if let Some(Rewound::Done(_)) = with_pending_wake_up(world, entity, operator.end_rewind(&wanted)).await {
            world.mark("what is run again is ended early");
        }
    }
}

/// Runs an operation that sends its wake-up last; if it fails, the sweep has to find what waits.
pub async fn with_pending_wake_up<T>(
    world: &Arc<World>,
    entity: usize,
    work: impl Future<Output = Result<T, OperatorError>>,
) -> Option<T> {
    world.with_history(|history| *history.unblocking.entry(entity).or_default() += 1);
    let done = work.await;
    world.with_history(|history| *history.unblocking.entry(entity).or_default() -= 1);
    if done.is_err() {
        world.trace(TraceEvent::Operator { entity, how: "lets it go on without certainty" });
        world.with_history(|history| history.excused.insert(entity));
    }
    done.ok()
}

pub async fn unblock_and_redrive(world: &Arc<World>, parts: &Parts, entity: usize, node: u32) {
    let (wanted, operator) = (key(entity), &parts.operator());
    with_pending_wake_up(world, entity, operator.unblock(&wanted)).await;
    for parked in operator.parked(&wanted).await.unwrap_or_default() {
        let identity = Identity { redrive: parked.delivery().redrive() + 1, ..parked.delivery().identity().clone() };
        let name = name_of(&identity);
        world.register_identity(&identity);
        record_call(world, name, entity, node);
        match operator.redrive(&parked, None).await {
            Ok(appended) => {
                world.mark("a parked delivery is redriven");
                record_answer(world, parts.tables, name, appended.sequence.0, true);
            }
            Err(OperatorError::Queue(_)) => {
                world.with_history(|history| history.excused.insert(entity));
            }
            Err(_) => {
                world.with_history(|history| history.unwoken.insert(entity));
            }
        }
    }
}

pub async fn run_outage(world: Arc<World>, outage: Outage, begin: Duration) {
    world.pause_until(begin + outage.from).await;
    world.set_out(&outage, true);
    pause(outage.lasts).await;
    world.set_out(&outage, false);
    world.mark("something was out for long");
}

pub async fn run_sweep(world: &Arc<World>, number: u32) {
    let node = NodeSlot::new(world, number).boot();
    let parts = Parts::on(&node);
    let busy = world.begin();
    let limit = seconds(120);
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

pub fn healthy_operator(world: &Arc<World>) -> Operator {
    let node = NodeSlot::new(world, 99).boot();
    let parts = Parts::on(&node);
    parts.operator()
}
