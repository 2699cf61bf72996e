//! Who acts: senders and ingest, worker functions, exclusive holders, an
//! operator, the sweep, TTL. All around the project's own code.

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
    chance::{Dice, Roll, actor},
    handler::{Nature, Simulated, seconds},
    history::{Call, Name, What},
    loss::RESTORER,
    mutation::{Meddler, is_of_a_restore},
    node::{Node, Place, pause},
    outage::Outage,
    queue::{NodeQueue, Receipt, is_deferred},
    table::NodeTable,
    world::{RETRIED_FOR, World, entity_number, identity, key, name_of, told},
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

/// For more to come, where they are delivered several at once.
const LINGERS: &str = "linger = \"300ms\"\n";

/// How long rows are kept.
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
    let mut read = SOURCES_READ.lock().expect("no one panics while holding this");
    let parsed = || {
        let each = SOURCES.replace("handler = ", &format!("{options}handler = "));
        Arc::new(Sources::parse(&each).expect("the sources are right"))
    };
    read.entry(options.clone()).or_insert_with(parsed).clone()
}

/// How often a delivery of this nature may be started.
pub fn attempts(nature: Nature) -> usize {
    let attempts = sources(Deliver::Each, false).get(nature.source()).and_then(|source| source.retry.attempts);
    attempts.expect("its source limits them") as usize
}

fn settings() -> DrainSettings {
    DrainSettings { lease: LEASE, wait: Duration::from_millis(1500), retention: RETENTION, ..DrainSettings::default() }
}

/// Puts into the trace what only the code knows.
#[derive(Debug)]
struct Watch {
    node: Node,
    meddler: Arc<Meddler>,
}

impl Watch {
    fn on(node: &Node, meddler: &Arc<Meddler>) -> Arc<Self> {
        Arc::new(Self { node: node.clone(), meddler: meddler.clone() })
    }
}

impl Observer for Watch {
    fn observe(&self, event: &Event<'_>) {
        if let Event::TakenUp { incoming, sequence, is_wake_up_lost, .. } = event {
            self.node.world.reach("a deferred delivery is taken up");
            let name = name_of(&incoming.identity);
            answered(&self.node.world, self.node.tables, name, sequence.0, !is_wake_up_lost);
        }
        let (held_back, now) = (&self.node.held_back, self.node.env.monotonic());
        match event {
            Event::BreakerOpened { source, wait } => held_back.opened(source.as_str(), now, *wait),
            Event::BreakerClosed { source } => held_back.closed(source.as_str()),
            Event::Requeued { entity, reason: RequeueReason::BreakerOpen, .. } => self.meddler.is_held_back(entity),
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
        self.node.world.reach(text);
        self.node.world.tell(What::Note { node: self.node.number, text });
    }
}

/// The project's parts on one node.
pub struct Parts {
    store: Store,
    waker: Waker,
    queue: Arc<NodeQueue>,
    inbox: Inbox,
    meddler: Arc<Meddler>,
    node: u32,
    tables: u32,
}

impl Parts {
    /// Those of `node`.
    pub fn on(node: &Node) -> Self {
        let mutation = node.world.plan.mutation.filter(|rule| node.number == RESTORER || !is_of_a_restore(*rule));
        let meddler = Meddler::new(mutation);
        let store = Store::new(NodeTable::new(node, &meddler), node.env.clone());
        let queue = NodeQueue::new(node, &meddler);
        let waker = Waker::new(queue.clone(), node.env.clone());
        let inbox = Inbox::new(store.clone(), waker.clone(), RETENTION, Watch::on(node, &meddler));
        Self { store, waker, queue, inbox, meddler, node: node.number, tables: node.tables }
    }

    /// A person at work there.
    pub fn operator(&self) -> Operator {
        Operator::new(self.store.clone(), self.waker.clone(), self.inbox.clone(), RETENTION)
    }

    fn worker(&self, node: &Node) -> Worker {
        let handler = Simulated { node: node.clone(), meddler: self.meddler.clone() };
        let info = HolderInfo::new(&format!("node {}", node.number));
        let drainer = Drainer::new(
            self.store.clone(),
            self.waker.clone(),
            sources(node.world.profile.deliver, node.world.profile.skips),
            handler,
            settings(),
            info,
            Watch::on(node, &self.meddler),
        );
        Worker::new(drainer.isolated(Isolation::Inline), self.queue.clone(), node.env.clone())
    }
}

/// A worker function's place: receives, works, deletes, until `world` is at
/// `until`.
pub async fn work(world: Arc<World>, number: u32, until: Duration) {
    let place = Place::new(&world, number);
    'booting: loop {
        let node = place.boot();
        let parts = Parts::on(&node);
        let mut worker = parts.worker(&node);
        loop {
            if world.played() >= until {
                return;
            }
            if world.is_stopped() || node.tables != world.tables() {
                world.runs().await;
                continue 'booting;
            }
            let mut roll = Dice::new(world.plan.seed, actor::QUEUE).roll_for(number, world.elapsed());
            let function = world.profile.function;
            let visibility = function + seconds(3);
            let most = roll.between(1, 4);
            let changed = world.queue.changed();
            let received = world.queue.receive(&world, &mut roll, most, visibility);
            if received.is_empty() {
                let wait = match world.queue.next_at() {
                    Some(at) if at > world.elapsed() => at - world.elapsed(),
                    Some(_) => Duration::from_millis(1),
                    None => seconds(3600),
                };
                let wait = wait.min(until.saturating_sub(world.played()));
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = pause(wait) => {}
                }
                // Pollers do not look at the same moment.
                pause(roll.millis(0, 20)).await;
                continue;
            }
            if parts.meddler.forgets_breakers() {
                worker = parts.worker(&node);
            }
            let busy = world.begin();
            let at_hand = AtHand::of(&world, &received);
            for receipt in &received {
                let (entity, message, times) = (entity_number(&receipt.entity), receipt.id, receipt.times);
                world.tell(What::Received { node: number, entity, message, times });
            }
            let records = received.iter().map(|receipt| Record {
                message_id: receipt.id.to_string(),
                receipt_handle: receipt.id.to_string(),
                body: receipt.body.clone(),
                attributes: Attributes { approximate_receive_count: parts.meddler.times(receipt.times).to_string() },
            });
            let event = SqsEvent { records: records.collect() };
            let deadline = node.env.now() + function;
            let fate = place.fate();
            let attended = {
                let alive = node.live(&fate, worker.process(event, deadline));
                let mut alive = std::pin::pin!(alive);
                let ended = tokio::select! {
                    biased;
                    ended = &mut alive => Some(ended),
                    () = pause(function) => None,
                };
                match ended {
                    Some(ended) => ended,
                    None if fate.outlives_deadline => alive.await,
                    None => {
                        world.tell(What::DeadlineHit { node: number });
                        world.dies(number);
                        world.reach("a function is killed at its deadline");
                        None
                    }
                }
            };
            let lost = world.is_active() && roll.happens(world.profile.copies / 3) && world.may(roll.twist);
            if let Some(response) = attended.filter(|_| !lost) {
                for receipt in &received {
                    let id = receipt.id.to_string();
                    let failed = response.batch_item_failures.iter().any(|failure| failure.item_identifier == id);
                    let kept = failed || parts.meddler.keeps(&receipt.entity);
                    world.tell(What::Processed { node: number, message: receipt.id, kept });
                    if !kept {
                        world.queue.delete(&world, &mut roll, receipt.id);
                    } else if roll.happens(500) {
                        world.queue.show(receipt.id, world.elapsed() + Duration::from_millis(10));
                    }
                }
                drop((busy, at_hand));
            } else {
                world.with_history(|history| history.died = true);
                drop((busy, at_hand));
                // A new process, after a moment.
                pause(roll.millis(1, 300)).await;
                continue 'booting;
            }
        }
    }
}

/// The wake-ups that a worker has at hand, until it is done with them or dies.
struct AtHand(Arc<World>, Vec<usize>);

impl AtHand {
    fn of(world: &Arc<World>, received: &[Receipt]) -> Self {
        let wake_ups = received.iter().filter(|receipt| !is_deferred(&receipt.body));
        let entities: Vec<usize> = wake_ups.map(|receipt| entity_number(&receipt.entity)).collect();
        world.with_history(|history| {
            for entity in &entities {
                *history.attended.entry(*entity).or_default() += 1;
            }
        });
        Self(world.clone(), entities)
    }
}

impl Drop for AtHand {
    fn drop(&mut self) {
        self.0.with_history(|history| {
            for entity in &self.1 {
                *history.attended.entry(*entity).or_default() -= 1;
            }
        });
    }
}

/// One delivery's sender: calls ingest, calls again where it was refused, and
/// now and then once more for nothing.
pub async fn send(world: Arc<World>, name: Name, entity: usize, at: Duration) {
    let dice = Dice::new(world.plan.seed, actor::DELIVERIES);
    let mut roll = dice.at(name.number);
    world.pause_until(at).await;
    let busy = world.begin();
    let tries = roll.between(1, 5);
    let repeats = roll.happens(150);
    let mut acked = 0;
    let first = world.elapsed();
    let is_unnamed = Nature::of(world.plan.seed, name.number).is_unnamed(&world.profile);
    for _ in 0..tries {
        // Clocks are a few seconds apart.
        if is_unnamed && world.elapsed() - first > RETRIED_FOR - seconds(10) {
            break;
        }
        let place = roll.between(0, 1) as u32;
        if append(&world, name, entity, 50 + place).await {
            acked += 1;
            if !repeats || acked > 1 {
                break;
            }
        }
        pause(roll.millis(1, 5_000)).await;
    }
    drop(busy);
}

fn called(world: &World, name: Name, entity: usize, node: u32) {
    let at = world.tell(What::Called { name, entity, node });
    world.with_history(|history| {
        let (acked, lost) = (Vec::new(), Vec::new());
        let call = Call { name, entity, called: at, acked, lost, woken: true, broken: false, deferred: false };
        history.calls.entry(name).or_insert(call).broken = true;
    });
}

fn answered(world: &World, tables: u32, name: Name, sequence: u64, woken: bool) {
    let at = world.tell(What::Acked { name, sequence: told(sequence), woken });
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
        world.reach("answered 2xx without a wake-up");
    }
}

/// When what a delivery tells of happened, in seconds: ties and older ones among
/// them.
pub fn event_time(name: Name) -> u64 {
    u64::from(name.number) % 7
}

/// How long an append may take.
const ANSWERED_WITHIN: Duration = Duration::from_millis(2450);

/// One call of ingest; whether it was answered 2xx.
pub async fn append(world: &Arc<World>, name: Name, entity: usize, number: u32) -> bool {
    if world.is_stopped() {
        // By Lambda, which runs nothing.
        return false;
    }
    let place = Place::new(world, number * 1000 + name.number);
    let nature = Nature::of(world.plan.seed, name.number);
    let node = place.boot();
    let parts = Parts::on(&node);
    let received_at = node.env.now();
    let unnamed = nature.is_unnamed(&world.profile).then_some(received_at);
    let identity = identity(name.number, nature.source(), unnamed);
    world.introduce(&identity);
    let incoming = Incoming {
        entity: key(entity),
        identity,
        provider: None,
        topic: "order.updated".into(),
        family: "order".into(),
        event_time: Some(Timestamp::from_secs(1_800_000_000 + event_time(name))),
        received_at,
        content_type: None,
        body: nature.body(name.number),
    };
    called(world, name, entity, number);
    let fate = place.fate_of_append();
    let source = sources(world.profile.deliver, world.profile.skips).get(nature.source()).cloned();
    let linger = source.and_then(|source| source.linger);
    let on_outage = if world.profile.defers { OnOutage::Queue } else { OnOutage::Refuse };
    match node.live(&fate, parts.inbox.accept(&incoming, linger, on_outage, ANSWERED_WITHIN)).await {
        Some(Ok(Accepted::Deferred)) => {
            world.tell(What::Deferred { name });
            world.reach("a delivery is deferred");
            world.with_history(|history| {
                history.calls.entry(name).and_modify(|call| call.deferred = true);
            });
            true
        }
        Some(Ok(Accepted::Appended(appended))) => {
            answered(world, node.tables, name, appended.sequence.0, appended.wake_up_failed.is_none());
            true
        }
        ended => {
            world.tell(What::NotAcked { name });
            // Neither a crash nor a 503 has a wake-up to its claim for sure.
            world.reach(if ended.is_none() { "ingest crashes" } else { "ingest answers 503" });
            world.with_history(|history| history.unwoken.insert(entity));
            false
        }
    }
}

/// Somebody who wants an entity for themselves for a while.
pub async fn exclusive(world: Arc<World>, number: u32, entity: usize, at: Duration) {
    world.pause_until(at).await;
    let place = Place::new(&world, 60 + number);
    let mut roll = Dice::new(world.plan.seed, actor::EXCLUSIVE).at(1000 + number);
    let holds = roll.millis(0, 3000);
    let forgets = roll.happens(300);
    let node = place.boot();
    let parts = Parts::on(&node);
    let busy = world.begin();
    let fate = place.fate();
    let visit = hold(&node, &parts, entity, holds, forgets);
    if let Some(Err(_)) | None = node.live(&fate, visit).await {
        world.reach("an exclusive holder gives up");
    }
    drop(busy);
}

async fn hold(node: &Node, parts: &Parts, entity: usize, holds: Duration, forgets: bool) -> Result<(), LeaseError> {
    let world = &node.world;
    let leases = Leases::new(parts.store.clone(), "exclusive").kept_for(RETENTION);
    let leases = leases.observed_by(Watch::on(node, &parts.meddler));
    let leases = if forgets { leases } else { leases.waking(parts.waker.clone()) };
    let terms = Terms::default().lease(LEASE).wait(seconds(20));
    let mut guard = leases.acquire(&key(entity), terms).await?;
    let token = guard.lease().token().0;
    world.reach("an exclusive lease is granted");
    let checked = world.plan.mutation != Some(Rule::ReceiversIgnoreTokens);
    world.effect(node, entity, token, token, None, checked);
    guard.hold(node.env.sleep(holds)).await?;
    world.effect(node, entity, token, token, None, checked);
    if holds.as_millis().is_multiple_of(2) {
        return guard.release().await;
    }
    if guard.commit(Vec::new()).await?.is_ok() {
        world.reach("an exclusive holder commits");
    }
    Ok(())
}

/// One visit of the operator: takes a lease away, unblocks, puts back what is
/// parked, erases; now and then while another does the same.
pub async fn operate(world: Arc<World>, number: u32, entity: usize, at: Duration) {
    world.pause_until(at).await;
    let busy = world.begin();
    let dice = Dice::new(world.plan.seed, actor::OPERATOR);
    let mut company = dice.at(5000 + number);
    if company.happens(world.profile.erases) && world.may(company.twist) {
        world.reach("two operators at once");
        let second = visit(&world, 500 + number, entity, company.twist.number, true);
        let first = visit(&world, 80 + number, entity, 1000 + number, true);
        futures_util::join!(first, second);
    } else {
        visit(&world, 80 + number, entity, 1000 + number, false).await;
    }
    drop(busy);
}

/// A visit of an operator who only erases.
pub async fn forget(world: Arc<World>, number: u32, entity: usize, at: Duration) {
    world.pause_until(at).await;
    if !world.profile.may_erase() {
        return;
    }
    let busy = world.begin();
    let node = Place::new(&world, 700 + number).boot();
    let parts = Parts::on(&node);
    erase(&world, &parts, &parts.operator(), entity).await;
    drop(busy);
}

async fn visit(world: &Arc<World>, place: u32, entity: usize, decision: u32, may_erase: bool) {
    let node = Place::new(world, place).boot();
    let parts = Parts::on(&node);
    let operator = parts.operator();
    let mut roll = Dice::new(world.plan.seed, actor::OPERATOR).at(decision);
    let wanted = key(entity);
    let state = parts.store.entity(&wanted, PATIENCE).await.ok().flatten();
    if roll.happens(300)
        && let Some(seen) = state.filter(|state| state.held.is_some())
    {
        let force = ForceRelease { seen: &seen, record: HolderInfo::new(&format!("operator {place}")) };
        if let Ok(Forced::Released(state)) = parts.store.run(&force, PATIENCE).await {
            world.tell(What::Operator { entity, how: "took a lease away" });
            if !state.is_empty() {
                let _ = parts.waker.wake(&wanted, Duration::ZERO, PATIENCE).await;
            }
        }
    }
    let erases = may_erase && world.profile.may_erase();
    if erases && roll.happens(500) {
        erase(world, &parts, &operator, entity).await;
    }
    stop_and_go(world, &parts, entity, 9000 + decision).await;
    settle_by_hand(world, &parts, entity, place).await;
    if erases && roll.happens(500) {
        erase(world, &parts, &operator, entity).await;
    }
}

/// Has all forgotten that was settled of an entity before.
async fn erase(world: &Arc<World>, parts: &Parts, operator: &Operator, entity: usize) {
    let ledger = world.ledger(entity);
    if !ledger.present {
        // One that was erased or purged before: what is left of it goes.
        world.erased(entity, ledger.tail);
    }
    let node = parts.node;
    world.erases(node, true);
    let erased = operator.erase(&key(entity)).await;
    world.erases(node, false);
    if erased.is_ok() && parts.meddler.erases_all() {
        world.forget_settled(entity);
    }
}

/// Puts an entity on hold for a while, and skips what is in front of it; either,
/// both or neither.
async fn stop_and_go(world: &Arc<World>, parts: &Parts, entity: usize, decision: u32) {
    let mut roll = Dice::new(world.plan.seed, actor::OPERATOR).at(decision);
    let (operator, wanted) = (parts.operator().because(Reason::new("ada", "to see it")), key(entity));
    let (holds, skips) = (roll.happens(400), roll.happens(400));
    if holds && world.may(roll.twist) {
        let _ = operator.hold(&wanted).await;
        pause(roll.millis(0, 20_000)).await;
    }
    if skips
        && world.may(roll.twist)
        && let Ok(Some(state)) = parts.store.entity(&wanted, PATIENCE).await
        && !state.is_empty()
    {
        let sequence = state.next();
        world.with_history(|history| history.reasons.wants_skipped(entity, sequence.0));
        let skipped = lets_go_on(world, entity, operator.skip(&wanted, sequence)).await;
        if let Some(Skipped::As(Settlement::Parked)) = skipped {
            world.reach("a delivery is skipped");
        }
    }
    // A rule left out is looked for without: the seeds that show it are known.
    if world.profile.rewinds > 0 && world.plan.mutation.is_none_or(|rule| rule == Rule::RepeatsItself) {
        runs_again(world, parts, &operator, entity, Dice::new(world.plan.seed, actor::OPERATOR).at(decision + 50_000))
            .await;
    }
    if holds {
        lets_go_on(world, entity, operator.resume(&wanted)).await;
    }
}

/// Has some of what was applied run again, and sometimes thinks better of it.
async fn runs_again(world: &Arc<World>, parts: &Parts, operator: &Operator, entity: usize, mut roll: Roll) {
    if !roll.happens(world.profile.rewinds) || !world.may(roll.twist) {
        return;
    }
    let (wanted, back, ends) = (key(entity), roll.between(0, 6), roll.happens(300));
    let Ok(Some(state)) = parts.store.entity(&wanted, PATIENCE).await else { return };
    let from = Sequence(state.head.0.saturating_sub(back).max(1));
    world.with_history(|history| history.rewinds.entry(entity).or_default().0 += 1);
    if let Some(Rewound::Done(_)) = lets_go_on(world, entity, operator.rewind(&wanted, from)).await {
        world.reach("what was applied is run again");
    }
    if ends {
        pause(roll.millis(0, 2000)).await;
        if let Some(Rewound::Done(_)) = lets_go_on(world, entity, operator.end_rewind(&wanted)).await {
            world.reach("what is run again is ended early");
        }
    }
}

/// Does what lets an entity go on: until it is done, the wake-up is yet to be
/// sent; and where that is not sure, what waits is the sweep's.
pub async fn lets_go_on<T>(
    world: &Arc<World>,
    entity: usize,
    work: impl Future<Output = Result<T, OperatorError>>,
) -> Option<T> {
    world.with_history(|history| *history.unblocking.entry(entity).or_default() += 1);
    let done = work.await;
    world.with_history(|history| *history.unblocking.entry(entity).or_default() -= 1);
    if done.is_err() {
        world.tell(What::Operator { entity, how: "lets it go on without certainty" });
        world.with_history(|history| history.excused.insert(entity));
    }
    done.ok()
}

/// Unblocks an entity and puts back what is parked there.
pub async fn settle_by_hand(world: &Arc<World>, parts: &Parts, entity: usize, node: u32) {
    let (wanted, operator) = (key(entity), &parts.operator());
    lets_go_on(world, entity, operator.unblock(&wanted)).await;
    for parked in operator.parked(&wanted).await.unwrap_or_default() {
        let identity = Identity { redrive: parked.delivery().redrive() + 1, ..parked.delivery().identity().clone() };
        let name = name_of(&identity);
        world.introduce(&identity);
        called(world, name, entity, node);
        match operator.redrive(&parked, None).await {
            Ok(appended) => {
                world.reach("a parked delivery is put back");
                answered(world, parts.tables, name, appended.sequence.0, true);
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

/// Something is out for a while.
pub async fn outage(world: Arc<World>, outage: Outage, begin: Duration) {
    world.pause_until(begin + outage.from).await;
    world.set_out(&outage, true);
    pause(outage.lasts).await;
    world.set_out(&outage, false);
    world.reach("something was out for long");
}

/// A sweep of everything.
pub async fn sweep(world: &Arc<World>, number: u32) {
    let node = Place::new(world, number).boot();
    let parts = Parts::on(&node);
    let busy = world.begin();
    let limit = seconds(120);
    if let Some(Ok(swept)) =
        node.env.within(limit, Sweeper::new(parts.store, parts.waker, parts.queue, RETENTION).sweep_all()).await
    {
        if swept.woken > 0 {
            world.reach("the sweep wakes somebody");
        }
        if swept.kept > 0 {
            world.reach("the sweep keeps rows");
        }
    }
    drop(busy);
}

/// A healthy operator, for the end.
pub fn healthy_operator(world: &Arc<World>) -> Operator {
    let node = Place::new(world, 99).boot();
    let parts = Parts::on(&node);
    parts.operator()
}
