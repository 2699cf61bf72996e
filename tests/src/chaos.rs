//! Chaos with real processes: the Lambda functions' own `main`, driven over the Lambda runtime API. Store and
//! queue are on disk, in a separate process. A seeded schedule kills the processes and freezes them for
//! longer than the lease of one second, while senders repeat webhooks. At the end everything must be drained,
//! and `report.rs` audits the handlers' own journal.

mod engines;
mod proxy;
mod report;
pub mod roles;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    path::Path,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value as Json;
use serializer::{
    local::{EventSource, LocalFunction, function_pool::FunctionPool, function_process::ProcessIds},
    view::audit::Sent,
};
use tokio::{process::Command, sync::watch, task::JoinSet};
use webhook_serializer::{
    aws::Parts,
    engine::append::Inbox,
    functions::ingest::HttpRequest,
    operator::Operator,
    protocol::{entity::EntityKey, receipt::Receipt},
    sources::Sources,
    telemetry::Quiet,
    time::Env,
};

use crate::webhooks::{request, signed, update};
use engines::EnginesProcess;
use proxy::ChaosProxy;
pub use report::{ChaosReport, CommittedEffect, ReceiverKind};
use report::{late_effects, read_lines};
use roles::effect_row;

/// Deliveries are retried for longer than any run takes, so nothing is parked.
const SOURCES: &str = source!(
    "test",
    "handler_timeout = '2s'",
    "retry = { attempts = 1000, first = '10ms', longest = '100ms' }",
    "on_outage = 'ON_OUTAGE'"
);

/// A lease is short, so that frozen workers outlive it.
const LEASE: Duration = Duration::from_secs(1);
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(8);
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(9);

/// A drain that makes no progress for this long is stuck.
const STUCK: Duration = Duration::from_secs(30);

/// The same limit if deliveries were deferred, because the time between the retries of a deferred delivery
/// grows to five minutes.
const STUCK_DEFERRED: Duration = Duration::from_secs(330);

/// The time at which an outage begins.
const OUT_AFTER: Duration = Duration::from_secs(3);

const PATIENCE: Duration = Duration::from_secs(5);

/// The largest number of times that a run without a late effect is prolonged.
const PROLONGED: u32 = 6;

#[derive(Debug, Clone)]
pub struct ChaosPlan {
    pub seed: u64,
    pub time: Duration,
    pub orders: usize,
    pub workers: usize,
    /// How long the store is unavailable; meanwhile deliveries are deferred to the queue.
    pub outage: Option<Duration>,
    pub shows_progress: bool,
}

#[derive(Debug, Default)]
pub struct ChaosFaults {
    pub workers_killed: AtomicU64,
    pub workers_frozen: AtomicU64,
    pub ingests_killed: AtomicU64,
    pub ingests_frozen: AtomicU64,
    pub restarts: AtomicU64,
    pub repeats: AtomicU64,
}

struct ChaosRun {
    env: Env,
    faults: ChaosFaults,
    workers: ProcessIds,
    ingests: ProcessIds,
    sent: Mutex<Vec<Sent>>,
    /// The ids of webhooks that were answered 202.
    deferred: Mutex<BTreeSet<String>>,
}

impl ChaosRun {
    fn now(&self) -> Duration {
        Duration::from_millis(self.env.now().as_millis())
    }

    async fn pause(&self, from: u64, to: u64, random: &mut fastrand::Rng) {
        self.env.sleep(Duration::from_millis(random.u64(from..to))).await;
    }
}

async fn signal(signal: &str, process: u32) {
    // The process may have ended.
    let _ = Command::new("kill").args([signal, &process.to_string()]).stderr(Stdio::null()).status().await;
}

fn one_of(ids: &ProcessIds, random: &mut fastrand::Rng) -> Option<u32> {
    let ids: Vec<u32> = ids.borrow().iter().copied().collect();
    random.choice(ids)
}

/// Sends an order's webhooks one after the other, each until it is answered 2xx. Sometimes sends an earlier
/// webhook again.
async fn send(
    run: Arc<ChaosRun>,
    ingests: Arc<FunctionPool>,
    sources: Arc<Sources>,
    name: String,
    seed: u64,
    stop: watch::Receiver<bool>,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut number = 0_u64;
    while !*stop.borrow() {
        number += 1;
        let id = format!("{name}-{number}");
        let first = run.now();
        let entity = loop {
            let webhook = signed(&sources, "test", &id, update(&name), run.env.now());
            let status = post(&ingests, &request(&webhook)).await;
            if status == Some(202) {
                run.deferred.lock().expect("no one panics while holding this").insert(id.clone());
            }
            if status.is_some_and(|status| (200..300).contains(&status)) {
                break webhook.incoming.entity;
            }
            run.pause(20, 200, &mut random).await;
        };
        let sent = Sent { entity, delivery_id: id, sent: first, answered: Some(run.now()) };
        run.sent.lock().expect("no one panics while holding this").push(sent);
        if random.u8(..10) == 0 {
            let old = format!("{name}-{}", random.u64(1..=number));
            let webhook = signed(&sources, "test", &old, update(&name), run.env.now());
            post(&ingests, &request(&webhook)).await;
            run.faults.repeats.fetch_add(1, Relaxed);
        }
        run.pause(10, 150, &mut random).await;
    }
}

async fn post(ingests: &FunctionPool, request: &HttpRequest) -> Option<u64> {
    let payload = serde_json::to_vec(request).ok()?;
    let answer = ingests.invoke(payload).await.ok()?;
    serde_json::from_slice::<Json>(&answer).unwrap_or_default()["statusCode"].as_u64()
}

/// Freezes a process for `time`. The process continues even if the run ends earlier.
fn freeze(run: &Arc<ChaosRun>, tasks: &mut JoinSet<()>, process: u32, time: Duration) {
    let run = run.clone();
    tasks.spawn(async move {
        signal("-STOP", process).await;
        run.env.sleep(time).await;
        signal("-CONT", process).await;
    });
}

async fn break_things(
    run: &Arc<ChaosRun>,
    engines: &mut EnginesProcess,
    random: &mut fastrand::Rng,
    end: Duration,
) -> Result<()> {
    let mut frozen = JoinSet::new();
    let mut since_restart = run.env.monotonic();
    while run.env.monotonic() < end {
        run.pause(100, 600, random).await;
        let faults = &run.faults;
        let count = match random.u8(..100) {
            ..30 => {
                let Some(process) = one_of(&run.workers, random) else { continue };
                signal("-KILL", process).await;
                &faults.workers_killed
            }
            30..70 => {
                let Some(process) = one_of(&run.workers, random) else { continue };
                let time = LEASE + Duration::from_millis(random.u64(200..2500));
                freeze(run, &mut frozen, process, time);
                &faults.workers_frozen
            }
            70..80 => {
                let Some(process) = one_of(&run.ingests, random) else { continue };
                signal("-KILL", process).await;
                &faults.ingests_killed
            }
            80..90 => {
                let Some(process) = one_of(&run.ingests, random) else { continue };
                freeze(run, &mut frozen, process, Duration::from_millis(random.u64(100..3000)));
                &faults.ingests_frozen
            }
            _ => {
                if run.env.monotonic() < since_restart + Duration::from_secs(4) {
                    continue;
                }
                engines.restart().await?;
                since_restart = run.env.monotonic();
                &faults.restarts
            }
        };
        count.fetch_add(1, Relaxed);
    }
    while frozen.join_next().await.is_some() {}
    Ok(())
}

/// Waits until every answered delivery is committed and every entity is free and empty.
async fn drain(
    run: &ChaosRun,
    operator: &Operator,
    parts: &Parts,
    orders: &[EntityKey],
) -> Result<BTreeMap<String, CommittedEffect>> {
    let ids: Vec<String> = run.sent.lock().expect("no panic").iter().map(|sent| sent.delivery_id.clone()).collect();
    let mut committed = BTreeMap::new();
    let mut busy = orders.to_vec();
    let mut progress = (0, orders.len(), run.env.monotonic());
    while committed.len() < ids.len() || !busy.is_empty() {
        let mut still_busy = Vec::new();
        for order in &busy {
            let state = parts.store.entity(order, PATIENCE).await?;
            if let Some(state) = state.filter(|state| !state.is_empty() || state.held.is_some()) {
                // Replaces the sweep, which wakes an order only after five minutes.
                if state.held.as_ref().is_none_or(|held| !held.runs(run.env.now())) {
                    operator.unblock(order).await?;
                }
                still_busy.push(order.clone());
            }
        }
        busy = still_busy;
        let missing = ids.iter().filter(|id| !committed.contains_key(*id));
        committed.extend(committed_effects(parts, missing).await?);
        let now = run.env.monotonic();
        if (committed.len(), busy.len()) != (progress.0, progress.1) {
            progress = (committed.len(), busy.len(), now);
        }
        let is_deferring = !run.deferred.lock().expect("no panic").is_empty();
        if now > progress.2 + if is_deferring { STUCK_DEFERRED } else { STUCK } {
            for order in &busy {
                eprintln!("stuck: {:?}", parts.store.entity(order, PATIENCE).await?);
            }
            break;
        }
        run.env.sleep(Duration::from_millis(300)).await;
    }
    // Reads again, because a second commit may land at the very end.
    committed_effects(parts, ids.iter()).await
}

async fn committed_effects(
    parts: &Parts,
    ids: impl Iterator<Item = &String>,
) -> Result<BTreeMap<String, CommittedEffect>> {
    let keys: Vec<_> = ids.map(|id| effect_row(id)).collect();
    let mut committed = BTreeMap::new();
    for keys in keys.chunks(100) {
        for row in parts.store.get_many(keys, PATIENCE).await? {
            let number = |name| row.number(name).unwrap_or_default();
            let id = row.text("order").unwrap_or_default().to_owned();
            committed.insert(id, CommittedEffect { times: number("times"), token: number("token") });
        }
    }
    Ok(committed)
}

/// Injects faults for the plan's time. While no effect was late, prolongs the run up to [`PROLONGED`] times,
/// because a run without a late effect shows nothing.
async fn break_until_late(
    run: &Arc<ChaosRun>,
    engines: &mut EnginesProcess,
    random: &mut fastrand::Rng,
    plan: &ChaosPlan,
    journal: &Path,
) -> Result<()> {
    let mut end = run.env.monotonic() + plan.time.max(plan.outage.unwrap_or_default() + 2 * OUT_AFTER);
    for prolonged in 0..=PROLONGED {
        while run.env.monotonic() < end {
            let next = end.min(run.env.monotonic() + Duration::from_secs(10));
            break_things(run, engines, random, next).await?;
            if plan.shows_progress {
                let sent = run.sent.lock().expect("no panic").len();
                let left = end.saturating_sub(run.env.monotonic());
                eprintln!("{} s left, {sent} deliveries answered, {:?}", left.as_secs(), run.faults);
            }
        }
        if late_effects(&read_lines(journal)?) > 0 || prolonged == PROLONGED {
            break;
        }
        end = run.env.monotonic() + plan.time / 3;
    }
    Ok(())
}

type Results = (BTreeMap<String, CommittedEffect>, BTreeMap<EntityKey, Vec<Receipt>>);

/// Reads effects and receipts once all orders are drained.
async fn read_results(run: &ChaosRun, parts: &Parts, retention: Duration) -> Result<Results> {
    let inbox = Inbox::new(parts.store.clone(), parts.waker.clone(), retention, Arc::new(Quiet));
    let operator = Operator::new(parts.store.clone(), parts.waker.clone(), inbox, retention);
    let orders: BTreeSet<EntityKey> =
        run.sent.lock().expect("no panic").iter().map(|sent| sent.entity.clone()).collect();
    let orders = Vec::from_iter(orders);
    let committed = drain(run, &operator, parts, &orders).await?;
    let mut receipts = BTreeMap::new();
    for order in orders {
        receipts.insert(order.clone(), operator.receipts(&order).await?);
    }
    Ok((committed, receipts))
}

/// Runs `program` in all of its roles.
pub async fn run_plan(program: &Path, plan: &ChaosPlan) -> Result<ChaosReport> {
    let directory = tempfile::tempdir()?;
    let sources_file = directory.path().join("sources.toml");
    let journal = directory.path().join("journal");
    let document = SOURCES.replace("ON_OUTAGE", if plan.outage.is_some() { "queue" } else { "refuse" });
    std::fs::write(&sources_file, &document)?;
    std::fs::write(&journal, "")?;
    let sources = Arc::new(Sources::parse(&document)?);
    let mut engines = EnginesProcess::new(program, directory.path().join("data"))?;
    engines.restart().await?;
    let proxy = Arc::new(ChaosProxy::start(engines.ports[0]).await?);
    let env = Env::system();
    let pool = |role, most| {
        let most = NonZeroUsize::new(most).context("at least one")?;
        let function = engines.function(role, proxy.url(), &sources_file, &journal);
        anyhow::Ok(Arc::new(FunctionPool::new(function, most)))
    };
    let workers = pool("worker", plan.workers)?;
    let ingests = pool("ingest", 4)?;
    let run = Arc::new(ChaosRun {
        env: env.clone(),
        faults: ChaosFaults::default(),
        workers: workers.process_ids(),
        ingests: ingests.process_ids(),
        sent: Mutex::default(),
        deferred: Mutex::default(),
    });
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let stop_working = watch::Sender::new(false);
    let mut working = JoinSet::new();
    for _ in 0..plan.workers {
        let function = LocalFunction::Processes(workers.clone());
        let account = engines.account();
        let sqs = account.sqs(&account.http_client());
        let source = EventSource::of(sqs, engines.config().queue_url, function, FUNCTION_TIMEOUT);
        working.spawn(source.run(stop_working.subscribe()));
    }
    let stop_sending = watch::Sender::new(false);
    let mut sending = JoinSet::new();
    for order in 0..plan.orders {
        let run = run.clone();
        let ingests = ingests.clone();
        let sources = sources.clone();
        sending.spawn(send(run, ingests, sources, format!("o{order}"), random.u64(..), stop_sending.subscribe()));
    }

    let clock = env.clone();
    let outage = plan.outage;
    let cut = proxy.clone();
    let outage = tokio::spawn(async move {
        if let Some(duration) = outage {
            clock.sleep(OUT_AFTER).await;
            cut.cut_off(true);
            clock.sleep(duration).await;
            cut.cut_off(false);
        }
    });
    break_until_late(&run, &mut engines, &mut random, plan, &journal).await?;
    outage.await?;
    stop_sending.send_replace(true);
    while let Some(ended) = sending.join_next().await {
        ended?;
    }

    let parts = engines.parts(&env);
    let (committed, receipts) = read_results(&run, &parts, engines.config().retention).await?;
    stop_working.send_replace(true);
    while let Some(ended) = working.join_next().await {
        ended??;
    }
    drop((workers, ingests, parts, proxy));
    let sent = std::mem::take(&mut *run.sent.lock().expect("no panic"));
    let deferred = std::mem::take(&mut *run.deferred.lock().expect("no panic"));
    let faults = format!("{:?}", run.faults);
    Ok(ChaosReport { seed: plan.seed, sent, deferred, lines: read_lines(&journal)?, committed, receipts, faults })
}
