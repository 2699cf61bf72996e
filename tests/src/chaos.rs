//! Chaos with real processes: the functions' own `main`, driven over the Lambda
//! runtime API; store and queue on disk, in a process of their own. A seeded
//! schedule kills and freezes any of them, beyond the lease of one second,
//! while senders repeat what they send. At the end, with the faults stopped,
//! everything must be drained, and `report.rs` judges by what the handlers
//! wrote down themselves.

mod careless;
mod gate;
mod loss;
mod report;
pub mod roles;
mod unwell;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    num::NonZeroUsize,
    ops::Range,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;
use serializer::{
    local::{
        EventSource, Function, QUEUE, TOTALS_TABLE,
        function_pool::FunctionPool,
        function_process::{FunctionSettings, Logs, ProcessIds},
        queue::queue_url,
    },
    view::audit::Sent,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
};
use webhook_serializer::{
    aws::{Account, Parts},
    config::StoreConfig,
    engine::append::Inbox,
    functions::ingest::Request,
    operator::Operator,
    protocol::entity::EntityKey,
    sources::Sources,
    telemetry::Quiet,
    time::Env,
};

use crate::webhooks::{request, signed, update};
use gate::Gate;
use loss::{COPIED_AFTER, LOST_AFTER};
pub use loss::{Loss, PutBack};
use report::{Committed, read_lines};
pub use report::{Receiver, Report};
use roles::{Line, ROLE, effect_row};
pub use unwell::{Breakers, FAILING, UNWELL};
use unwell::{Log, Window};

/// One sender whose deliveries are tried for ever: nothing is to be parked.
const SOURCES: &str = r#"
[sources.test]
provider = "standard-webhooks"
secrets = ["whsec_c2VjcmV0"]
handler = "test"
handler_timeout = "2s"
retry = { attempts = 1000000, first = "10ms", longest = "100ms" }
on_outage = "ON_OUTAGE"
"#;

/// That source.
pub const TEST: &str = "test";

/// The lease that frozen workers outlive.
const LEASE: Duration = Duration::from_secs(1);
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(8);
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(9);

/// How long nothing may happen in the end before it counts as stuck.
const STUCK: Duration = Duration::from_secs(30);

/// The same where deliveries were deferred, which are tried each five minutes at last.
const STUCK_DEFERRED: Duration = Duration::from_secs(330);

/// When the store cannot be reached any more, in a run with an outage.
const OUT_AFTER: Duration = Duration::from_secs(3);

/// How often a run is prolonged in which nothing came late.
const PROLONGED: u32 = 6;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides the faults.
    pub seed: u64,
    /// For how long there are faults.
    pub time: Duration,
    /// How many orders.
    pub orders: usize,
    /// How many workers at most.
    pub workers: usize,
    /// What kind they are.
    pub kind: WorkerKind,
    /// For how long the store cannot be reached, and the queue can; `None`: what the
    /// store does not take is refused, as it is when neither can.
    pub outage: Option<Duration>,
    /// Whether the tables are lost meanwhile, and what becomes of their copy.
    pub loss: Option<Loss>,
    /// For how long what the handlers of [`UNWELL`] need is out of reach, while those of
    /// [`FAILING`] fail; `None`: the run is without these two.
    pub unwell: Option<Duration>,
    /// Whether to show how it goes.
    pub tells: bool,
}

/// Which workers a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerKind {
    /// The project's own.
    Own,
    /// Such as ignore their token: the negative control.
    Careless,
}

impl WorkerKind {
    fn role(self) -> &'static str {
        match self {
            WorkerKind::Own => "worker",
            WorkerKind::Careless => "careless worker",
        }
    }

    /// Whether what these workers are to be judged by has happened: a run in
    /// which nothing came late has shown nothing.
    fn was_tried(self, lines: &[Line]) -> bool {
        match self {
            WorkerKind::Own => report::late_effects(lines) > 0,
            // More than one: it may have been killed before it could commit.
            WorkerKind::Careless => report::late_ends(lines) > 2,
        }
    }
}

/// How often each fault happened.
#[derive(Debug, Default)]
pub struct Faults {
    /// Workers killed.
    pub workers_killed: AtomicU64,
    /// Workers frozen beyond their lease.
    pub workers_frozen: AtomicU64,
    /// Ingests killed.
    pub ingests_killed: AtomicU64,
    /// Ingests frozen.
    pub ingests_frozen: AtomicU64,
    /// Store and queue killed and restarted.
    pub restarts: AtomicU64,
    /// Deliveries sent again though they had been answered.
    pub repeats: AtomicU64,
}

/// Store and queue in a process of their own, always at the same ports.
struct EnginesProcess {
    program: PathBuf,
    data: PathBuf,
    ports: [u16; 2],
    child: Option<Child>,
}

impl EnginesProcess {
    fn new(program: &Path, data: PathBuf) -> Result<Self> {
        // Both at once, so that they differ.
        let free = [TcpListener::bind(("127.0.0.1", 0))?, TcpListener::bind(("127.0.0.1", 0))?];
        let ports = [free[0].local_addr()?.port(), free[1].local_addr()?.port()];
        Ok(Self { program: program.to_owned(), data, ports, child: None })
    }

    fn url(&self, which: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[which])
    }

    fn config(&self) -> StoreConfig {
        StoreConfig {
            entities_table: "entities".into(),
            inbox_table: "inbox".into(),
            queue_url: queue_url(([127, 0, 0, 1], self.ports[1]).into(), QUEUE),
            retention: Duration::from_secs(30 * 86_400),
            parked_retention: None,
        }
    }

    fn account(&self) -> Account {
        Account::local(self.url(0), self.url(1))
    }

    fn parts(&self, env: &Env) -> Parts {
        Parts::connect(&self.account(), &self.config(), env, None)
    }

    async fn kill(&mut self) -> Result<()> {
        match self.child.take() {
            Some(mut child) => Ok(child.kill().await?),
            None => Ok(()),
        }
    }

    /// Starts it, or kills it and starts it again; serves when this returns.
    async fn restart(&mut self) -> Result<()> {
        self.kill().await?;
        let mut child = Command::new(&self.program)
            .env(ROLE, "engines")
            .env("DATA", &self.data)
            .env("DYNAMODB_PORT", self.ports[0].to_string())
            .env("QUEUE_PORT", self.ports[1].to_string())
            .env("VISIBILITY_TIMEOUT_SECONDS", VISIBILITY_TIMEOUT.as_secs().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let ready = lines.next_line().await?;
        ensure!(ready.as_deref() == Some("ready"), "store and queue do not start: {ready:?}");
        self.child = Some(child);
        Ok(())
    }

    fn function(&self, role: &str, store: &str, sources: &Path, journal: &Path) -> FunctionSettings {
        let config = self.config();
        let text = |path: &Path| path.display().to_string();
        let environment = [
            (ROLE, role.to_owned()),
            ("JOURNAL", text(journal)),
            ("SOURCES_FILE", text(sources)),
            ("AWS_ACCESS_KEY_ID", "local".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "local".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", store.to_owned()),
            ("AWS_ENDPOINT_URL_SQS", self.url(1)),
            ("ENTITIES_TABLE", config.entities_table),
            ("INBOX_TABLE", config.inbox_table),
            ("TOTALS_TABLE", TOTALS_TABLE.to_owned()),
            ("QUEUE_URL", config.queue_url),
            ("LEASE_SECONDS", LEASE.as_secs().to_string()),
            ("FUNCTION_TIMEOUT_SECONDS", FUNCTION_TIMEOUT.as_secs().to_string()),
            ("VISIBILITY_TIMEOUT_SECONDS", VISIBILITY_TIMEOUT.as_secs().to_string()),
            ("AWS_LAMBDA_LOG_LEVEL", "ERROR".to_owned()),
        ];
        FunctionSettings {
            name: role.to_owned(),
            program: self.program.clone(),
            timeout: FUNCTION_TIMEOUT,
            memory_mb: 128,
            environment: environment.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            logs: Logs::Discarded,
        }
    }
}

/// What the tasks of a run share.
struct Stage {
    env: Env,
    faults: Faults,
    workers: ProcessIds,
    ingests: ProcessIds,
    sent: Mutex<Vec<Sent>>,
    /// The ids of those that were answered 202.
    deferred: Mutex<BTreeSet<String>>,
    /// The ids of those that were sent again, or put back, after the tables were lost.
    again: Mutex<BTreeSet<String>>,
}

impl Stage {
    fn now(&self) -> Duration {
        Duration::from_millis(self.env.now().as_millis())
    }

    async fn pause(&self, from: u64, to: u64, chance: &mut fastrand::Rng) {
        self.env.sleep(Duration::from_millis(chance.u64(from..to))).await;
    }
}

async fn signal(signal: &str, process: u32) {
    // It may have ended meanwhile.
    let _ = Command::new("kill").args([signal, &process.to_string()]).stderr(Stdio::null()).status().await;
}

fn one_of(ids: &ProcessIds, chance: &mut fastrand::Rng) -> Option<u32> {
    let ids: Vec<u32> = ids.borrow().iter().copied().collect();
    chance.choice(ids)
}

/// An order, and who sends its webhooks.
struct Order {
    source: &'static str,
    name: String,
    /// How long its sender pauses between two, in milliseconds.
    pause: Range<u64>,
}

/// Those of the one source, and in a run with [`Plan::unwell`] those of the two besides,
/// whose webhooks are fewer.
fn orders_of(plan: &Plan) -> Vec<Order> {
    let order = |source: &'static str, number: usize, pause: Range<u64>| Order {
        source,
        name: format!("{}{number}", &source[..1]),
        pause,
    };
    let often = if plan.unwell.is_some() { 300..1000 } else { 10..150 };
    let mut orders: Vec<Order> = (0..plan.orders).map(|number| order(TEST, number, often.clone())).collect();
    for (source, count) in unwell::ORDERS.into_iter().filter(|_| plan.unwell.is_some()) {
        orders.extend((0..count).map(|number| order(source, number, 300..1000)));
    }
    orders
}

/// Sends an order's webhooks one after the other, each until it is answered
/// 2xx, and now and then an old one again.
async fn send(
    stage: Arc<Stage>,
    ingests: Arc<FunctionPool>,
    sources: Arc<Sources>,
    order: Order,
    seed: u64,
    stop: watch::Receiver<bool>,
) {
    let mut chance = fastrand::Rng::with_seed(seed);
    let Order { source, name, pause } = order;
    let mut number = 0_u64;
    while !*stop.borrow() {
        number += 1;
        let id = format!("{name}-{number}");
        let first = stage.now();
        let entity = loop {
            let webhook = signed(&sources, source, &id, update(&name), stage.env.now());
            let status = post(&ingests, &request(&webhook)).await;
            if status == Some(202) {
                stage.deferred.lock().expect("no one panics while holding this").insert(id.clone());
            }
            if status.is_some_and(|status| (200..300).contains(&status)) {
                break webhook.incoming.entity;
            }
            stage.pause(20, 200, &mut chance).await;
        };
        let sent = Sent { entity, delivery_id: id, sent: first, answered: Some(stage.now()) };
        stage.sent.lock().expect("no one panics while holding this").push(sent);
        if chance.u8(..10) == 0 {
            let old = format!("{name}-{}", chance.u64(1..=number));
            let webhook = signed(&sources, source, &old, update(&name), stage.env.now());
            post(&ingests, &request(&webhook)).await;
            stage.faults.repeats.fetch_add(1, Relaxed);
        }
        stage.pause(pause.start, pause.end, &mut chance).await;
    }
}

/// What it was answered, if it was.
async fn post(ingests: &FunctionPool, request: &Request) -> Option<u64> {
    let payload = serde_json::to_vec(request).ok()?;
    let answer = ingests.invoke(payload).await.ok()?;
    serde_json::from_slice::<Json>(&answer).unwrap_or_default()["statusCode"].as_u64()
}

/// Freezes a process for a while. It goes on even if the run ends meanwhile.
fn freeze(stage: &Arc<Stage>, tasks: &mut JoinSet<()>, process: u32, time: Duration) {
    let stage = stage.clone();
    tasks.spawn(async move {
        signal("-STOP", process).await;
        stage.env.sleep(time).await;
        signal("-CONT", process).await;
    });
}

/// Breaks things until `end`, by the process's clock.
async fn break_things(
    stage: &Arc<Stage>,
    engines: &mut EnginesProcess,
    chance: &mut fastrand::Rng,
    end: Duration,
    window: &Window,
) -> Result<()> {
    let mut frozen = JoinSet::new();
    let mut since_restart = stage.env.monotonic();
    while stage.env.monotonic() < end {
        stage.pause(100, 600, chance).await;
        let faults = &stage.faults;
        let dice = chance.u8(..100);
        let count = match dice {
            // Killed, it would forget its breakers, and its wake-ups would stay hidden for long.
            ..30 if window.has_begun(stage.env.now()) => continue,
            ..30 => {
                let Some(process) = one_of(&stage.workers, chance) else { continue };
                signal("-KILL", process).await;
                &faults.workers_killed
            }
            30..70 => {
                let Some(process) = one_of(&stage.workers, chance) else { continue };
                let time = LEASE + Duration::from_millis(chance.u64(200..2500));
                freeze(stage, &mut frozen, process, time);
                &faults.workers_frozen
            }
            70..80 => {
                let Some(process) = one_of(&stage.ingests, chance) else { continue };
                signal("-KILL", process).await;
                &faults.ingests_killed
            }
            80..90 => {
                let Some(process) = one_of(&stage.ingests, chance) else { continue };
                freeze(stage, &mut frozen, process, Duration::from_millis(chance.u64(100..3000)));
                &faults.ingests_frozen
            }
            _ => {
                if stage.env.monotonic() < since_restart + Duration::from_secs(4) {
                    continue;
                }
                engines.restart().await?;
                since_restart = stage.env.monotonic();
                &faults.restarts
            }
        };
        count.fetch_add(1, Relaxed);
    }
    while frozen.join_next().await.is_some() {}
    Ok(())
}

fn operator_of(parts: &Parts, retention: Duration) -> Operator {
    let inbox = Inbox::new(parts.store.clone(), parts.waker.clone(), retention, Arc::new(Quiet));
    Operator::new(parts.store.clone(), parts.waker.clone(), inbox, retention)
}

/// Waits until everything that was answered is committed or set aside, and every
/// entity is free and empty; what was committed, and what set aside.
async fn drain(
    stage: &Stage,
    operator: &Operator,
    parts: &Parts,
    orders: &[EntityKey],
) -> Result<(BTreeMap<String, Committed>, BTreeSet<String>)> {
    let ids: Vec<String> = stage.sent.lock().expect("no panic").iter().map(|sent| sent.delivery_id.clone()).collect();
    let patience = Duration::from_secs(5);
    let mut committed = BTreeMap::new();
    let mut busy = orders.to_vec();
    let mut set_aside = BTreeSet::new();
    let mut progress = (0, orders.len(), stage.env.monotonic());
    while committed.len() + set_aside.len() < ids.len() || !busy.is_empty() {
        let mut still = Vec::new();
        for order in &busy {
            let state = parts.store.entity(order, patience).await?;
            if let Some(state) = state.filter(|state| !state.is_empty() || state.held.is_some()) {
                // In place of the sweep, which would find it after five minutes.
                if state.held.as_ref().is_none_or(|held| !held.runs(stage.env.now())) {
                    operator.unblock(order).await?;
                }
                still.push(order.clone());
            }
        }
        busy = still;
        let missing: Vec<_> = ids.iter().filter(|id| !committed.contains_key(*id)).map(|id| effect_row(id)).collect();
        for keys in missing.chunks(100) {
            for row in parts.store.get_many(keys, patience).await? {
                let number = |name| row.number(name).unwrap_or_default();
                let id = row.text("order").unwrap_or_default().to_owned();
                committed.insert(id, Committed { times: 0, token: number("token") });
            }
        }
        // Nothing is put back by now, so that this grows only.
        for order in orders.iter().filter(|_| busy.is_empty()) {
            let parked = operator.parked(order).await?;
            set_aside.extend(parked.iter().map(|parked| parked.delivery().delivery_id().to_string()));
        }
        let now = stage.env.monotonic();
        if (committed.len(), busy.len()) != (progress.0, progress.1) {
            progress = (committed.len(), busy.len(), now);
        }
        let is_deferring = !stage.deferred.lock().expect("no panic").is_empty();
        if now > progress.2 + if is_deferring { STUCK_DEFERRED } else { STUCK } {
            for order in &busy {
                eprintln!("stuck: {:?}", parts.store.entity(order, patience).await?);
            }
            break;
        }
        stage.env.sleep(Duration::from_millis(300)).await;
    }
    // Counted only now: what is committed twice may be so at the very end.
    let keys: Vec<_> = ids.iter().map(|id| effect_row(id)).collect();
    for keys in keys.chunks(100) {
        for row in parts.store.get_many(keys, patience).await? {
            let number = |name| row.number(name).unwrap_or_default();
            let id = row.text("order").unwrap_or_default().to_owned();
            committed.insert(id, Committed { times: number("times"), token: number("token") });
        }
    }
    Ok((committed, set_aside))
}

/// Runs `program`, which is the ring's own, in all of its roles.
///
/// # Errors
///
/// A process cannot be started, or the store cannot be reached in the end.
pub async fn run(program: &Path, plan: &Plan) -> Result<Report> {
    let directory = tempfile::tempdir()?;
    let (sources_file, journal) = (directory.path().join("sources.toml"), directory.path().join("journal"));
    let on_outage = if plan.outage.is_some() { "queue" } else { "refuse" };
    let document = SOURCES.replace("ON_OUTAGE", on_outage) + unwell::SOURCES;
    std::fs::write(&sources_file, &document)?;
    std::fs::write(&journal, "")?;
    let sources = Arc::new(Sources::parse(&document)?);
    let mut engines = EnginesProcess::new(program, directory.path().join("data"))?;
    engines.restart().await?;
    let gate = Arc::new(Gate::before(engines.ports[0]).await?);
    let env = Env::system();
    let function = |role| engines.function(role, gate.url(), &sources_file, &journal);
    let mut worker = function(plan.kind.role());
    let unwell = Window::of(plan.unwell.unwrap_or_default(), env.now());
    let log = plan.unwell.map(|_| Log::of(&mut worker, &unwell));
    let pool = |function, most| {
        let most = NonZeroUsize::new(most).context("at least one")?;
        anyhow::Ok(Arc::new(FunctionPool::new(function, most)))
    };
    let (workers, ingests) = (pool(worker, plan.workers)?, pool(function("ingest"), 4)?);
    let stage = Arc::new(Stage {
        env: env.clone(),
        faults: Faults::default(),
        workers: workers.process_ids(),
        ingests: ingests.process_ids(),
        sent: Mutex::default(),
        deferred: Mutex::default(),
        again: Mutex::default(),
    });
    let mut chance = fastrand::Rng::with_seed(plan.seed);
    let stop_working = watch::Sender::new(false);
    let mut working = JoinSet::new();
    for _ in 0..plan.workers {
        let function = Function::Processes(workers.clone());
        let source = EventSource::of(&engines.account(), engines.config().queue_url, function, FUNCTION_TIMEOUT);
        working.spawn(source.run(stop_working.subscribe()));
    }
    let stop_sending = watch::Sender::new(false);
    let mut sending = JoinSet::new();
    for order in orders_of(plan) {
        let (stage, ingests, sources) = (stage.clone(), ingests.clone(), sources.clone());
        sending.spawn(send(stage, ingests, sources, order, chance.u64(..), stop_sending.subscribe()));
    }

    let shuts = env.clone();
    let (lasts, shut) = (plan.outage, gate.clone());
    let outage = tokio::spawn(async move {
        if let Some(lasts) = lasts {
            shuts.sleep(OUT_AFTER).await;
            shut.shut(true);
            shuts.sleep(lasts).await;
            shut.shut(false);
        }
    });
    let longest = plan.outage.max(plan.unwell).unwrap_or_default();
    let mut end = env.monotonic() + plan.time.max(longest + 2 * OUT_AFTER);
    let mut put_back = None;
    if let Some(loss) = plan.loss {
        let begun = env.monotonic();
        break_things(&stage, &mut engines, &mut chance, begun + COPIED_AFTER, &unwell).await?;
        let copied = loss::copied(&stage, &mut engines, orders_of(plan).len()).await?;
        break_things(&stage, &mut engines, &mut chance, begun + LOST_AFTER, &unwell).await?;
        let again;
        (again, put_back) = loss::lost(&stage, &mut engines, &gate, &copied, loss).await?;
        sending.spawn(loss::sent_again(stage.clone(), ingests.clone(), sources.clone(), again));
    }
    for prolonged in 0..=PROLONGED {
        while env.monotonic() < end {
            let next = end.min(env.monotonic() + Duration::from_secs(10));
            break_things(&stage, &mut engines, &mut chance, next, &unwell).await?;
            if plan.tells {
                let sent = stage.sent.lock().expect("no panic").len();
                let left = end.saturating_sub(env.monotonic());
                eprintln!("{} s left, {sent} deliveries answered, {:?}", left.as_secs(), stage.faults);
            }
        }
        let was_tried = plan.loss.is_some() || plan.unwell.is_some() || plan.kind.was_tried(&read_lines(&journal)?);
        if was_tried || prolonged == PROLONGED {
            break;
        }
        end = env.monotonic() + plan.time / 3;
    }
    // Open by now, and it stays so until everybody is done.
    outage.await?;
    stop_sending.send_replace(true);
    while let Some(ended) = sending.join_next().await {
        ended?;
    }

    let parts = engines.parts(&env);
    let retention = engines.config().retention;
    let operator = operator_of(&parts, retention);
    let mut orders: Vec<EntityKey> =
        stage.sent.lock().expect("no panic").iter().map(|sent| sent.entity.clone()).collect();
    orders.sort_unstable();
    orders.dedup();
    let (committed, set_aside) = drain(&stage, &operator, &parts, &orders).await?;
    let mut receipts = BTreeMap::new();
    for order in &orders {
        receipts.insert(order.clone(), operator.receipts(order).await?);
    }
    stop_working.send_replace(true);
    while let Some(ended) = working.join_next().await {
        ended??;
    }
    drop((workers, ingests, parts));
    drop(gate);
    let told = match log {
        Some(log) => Some(log.end().await?),
        None => None,
    };
    let sent = std::mem::take(&mut *stage.sent.lock().expect("no panic"));
    let deferred = std::mem::take(&mut *stage.deferred.lock().expect("no panic"));
    let again = std::mem::take(&mut *stage.again.lock().expect("no panic"));
    let faults = format!("{:?}", stage.faults);
    Ok(Report {
        seed: plan.seed,
        sent,
        deferred,
        again,
        lines: read_lines(&journal)?,
        committed,
        set_aside,
        receipts,
        put_back,
        unwell,
        told,
        faults,
    })
}
