//! Isolation: how long deliveries of orders that are not concerned wait for
//! their handler's start while others make trouble.
//!
//! The event source is as deployed: so many workers with clients of their own,
//! so many slots in each (in Lambda one), batches of ten held until the slowest
//! of their drains is done. Times are this machine's; the counts beside them say
//! how much was done.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
};
use webhook_serializer::{
    aws::meter::Meter,
    engine::{
        append::Inbox,
        drain::{DrainSettings, Drainer},
    },
    functions::worker::Worker,
    handler::{Context, Handler, HandlerError, Outcome},
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{DeliveryId, EntityKey, Identity, SourceName},
        state::HolderInfo,
    },
    sources::Sources,
    telemetry::Quiet,
    time::Env,
};

use crate::local::{BATCH, Engines, EventSource, FUNCTION_TIMEOUT, Function};

/// What makes trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The source that makes trouble.
    source: &'static str,
    /// Of so many orders.
    pub orders: usize,
    /// So many deliveries of each.
    each: usize,
}

/// The cases.
pub const CASES: [Case; 5] = [
    Case {
        name: "backlogs-10",
        about: "ten orders with 15 s of work each, 500 ms a delivery",
        source: "busy",
        orders: 10,
        each: 30,
    },
    Case { name: "backlogs-100", about: "a hundred such orders", source: "busy", orders: 100, each: 30 },
    Case {
        name: "hang",
        about: "500 orders of a source whose endpoint hangs until its 10 s are up",
        source: "hung",
        orders: 500,
        each: 1,
    },
    Case {
        name: "crash",
        about: "an order that takes its worker's process along at every attempt",
        source: "crashing",
        orders: 1,
        each: 1,
    },
    Case {
        name: "flood",
        about: "2,000 deliveries of 500 orders at once, 50 ms each",
        source: "flood",
        orders: 500,
        each: 4,
    },
];

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// How many workers.
    pub workers: NonZeroUsize,
    /// How many batches each has at work at most.
    pub slots: NonZeroUsize,
    /// So many orders that make trouble, instead of the case's own number.
    pub orders: Option<usize>,
    /// For how long the others come, ten a second.
    pub seconds: u32,
}

/// What came out. Waiting is from the answer to the append until the handler's
/// first start.
#[derive(Debug, Clone, Serialize)]
pub struct MeasuredIsolation {
    /// `isolation`.
    pub scenario: &'static str,
    /// The case.
    pub case: &'static str,
    /// How many workers.
    pub workers: usize,
    /// How many batches each has at work at most.
    pub slots: usize,
    /// How many orders make trouble.
    pub orders: usize,
    /// How many deliveries of others came.
    pub others: usize,
    /// How long they waited.
    pub wait_ms_p50: f64,
    /// The same, 95th percentile.
    pub wait_ms_p95: f64,
    /// The same, the longest.
    pub wait_ms_longest: f64,
    /// How many of them were not started by the end, waiting until then.
    pub unstarted: usize,
    /// Handler starts of those that make trouble.
    pub troubled_starts: usize,
    /// How many of their deliveries were applied by the end.
    pub troubled_applied: usize,
    /// Queue messages sent, those for appends among them.
    pub queue_sends: u64,
    /// How long it took.
    pub wall_ms: f64,
}

impl MeasuredIsolation {
    /// Whether the others were all started, half of them within a second and
    /// 95 of a hundred within three.
    pub fn is_isolated(&self) -> bool {
        self.unstarted == 0 && self.wait_ms_p50 < 1000.0 && self.wait_ms_p95 < 3000.0
    }
}

const SOURCES: &str = r#"
[sources.other]
provider = "standard-webhooks"
secrets = ["whsec_YmVuY2g="]
handler = "bench"

[sources.busy]
provider = "standard-webhooks"
secrets = ["whsec_YmVuY2g="]
handler = "bench"

[sources.hung]
provider = "standard-webhooks"
secrets = ["whsec_YmVuY2g="]
handler = "bench"
handler_timeout = "10s"

[sources.crashing]
provider = "standard-webhooks"
secrets = ["whsec_YmVuY2g="]
handler = "bench"

[sources.flood]
provider = "standard-webhooks"
secrets = ["whsec_YmVuY2g="]
handler = "bench"
"#;

/// Whose deliveries are measured.
const OTHER: &str = "other";

/// How often one of them comes.
const EVERY: Duration = Duration::from_millis(100);

/// How long they are waited for, behind the last of them.
const GRACE: Duration = Duration::from_secs(30);

/// How many deliveries are appended side by side.
const AT_ONCE: usize = 8;

/// The starts that were made.
#[derive(Debug, Default)]
struct Starts {
    /// When those that are measured were first started.
    others: BTreeMap<String, Duration>,
    troubled: usize,
    troubled_applied: usize,
}

/// What handlers of all workers have in common.
#[derive(Debug, Clone)]
struct Stage {
    starts: Arc<Mutex<Starts>>,
    started: watch::Sender<usize>,
    env: Env,
    crashes: mpsc::UnboundedSender<usize>,
}

impl Stage {
    fn count(&self, change: impl FnOnce(&mut Starts)) {
        change(&mut self.starts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Does as the delivery's source has it.
#[derive(Debug, Clone)]
struct Behaviour {
    number: usize,
    stage: Stage,
}

impl Handler for Behaviour {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let stage = &self.stage;
        let env = context.env();
        if delivery.source().as_str() == OTHER {
            let now = stage.env.monotonic();
            stage.count(|starts| {
                starts.others.entry(delivery.delivery_id().to_string()).or_insert(now);
            });
            stage.started.send_modify(|started| *started += 1);
            env.sleep(Duration::from_millis(10)).await;
            return Ok(Outcome::Done);
        }
        stage.count(|starts| starts.troubled += 1);
        let takes = match delivery.source().as_str() {
            "busy" => Duration::from_millis(500),
            "flood" => Duration::from_millis(50),
            "crashing" => {
                // The supervisor ends this worker, and everything in it.
                let _ = stage.crashes.send(self.number);
                Duration::MAX
            }
            _ => Duration::MAX,
        };
        match takes {
            Duration::MAX => std::future::pending().await,
            takes => env.sleep(takes).await,
        }
        stage.count(|starts| starts.troubled_applied += 1);
        Ok(Outcome::Done)
    }
}

/// Runs a case; `progress` is told how many of the others have been started.
///
/// # Errors
///
/// The engines do not start, or do not take a delivery.
pub async fn run(case: Case, size: Size, progress: impl Fn(usize)) -> Result<MeasuredIsolation> {
    let engine_room = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let engines = Arc::new(engine_room.spawn(Engines::start(None)).await??);
    // A handler that hangs keeps its thread.
    let threads = size.workers.get() * size.slots.get() * BATCH as usize + 64;
    let ours = tokio::runtime::Builder::new_multi_thread().max_blocking_threads(threads).enable_all().build()?;
    let measured = tokio::task::block_in_place(|| ours.block_on(on(case, size, engines, progress)));
    ours.shutdown_background();
    engine_room.shutdown_background();
    measured
}

/// The workers. One that crashes is replaced.
struct Workers {
    slots: usize,
    engines: Arc<Engines>,
    meter: Arc<Meter>,
    stage: Stage,
    stop: watch::Sender<bool>,
    tasks: JoinSet<Result<()>>,
    running: Vec<AbortHandle>,
}

impl Workers {
    fn source(&self, number: usize) -> Result<EventSource> {
        let env = Env::system();
        let parts = self.engines.connect(&env, Some(self.meter.clone()));
        let drainer = Drainer::new(
            parts.store,
            parts.waker,
            Arc::new(Sources::parse(SOURCES)?),
            Behaviour { number, stage: self.stage.clone() },
            DrainSettings::default(),
            HolderInfo::new(&format!("bench worker {number}")),
            Arc::new(Quiet),
        );
        let function = Function::Here(Box::new(Worker::new(drainer, parts.queue, env)));
        Ok(EventSource::new(&self.engines, function, FUNCTION_TIMEOUT).side_by_side(self.slots))
    }

    fn start(&mut self, number: usize) -> Result<()> {
        let source = self.source(number)?;
        let running = self.tasks.spawn(source.run(self.stop.subscribe()));
        match self.running.get_mut(number) {
            Some(place) => *place = running,
            None => self.running.push(running),
        }
        Ok(())
    }

    /// Ends workers as their handlers ask for it, and starts others.
    async fn supervise(&mut self, crashes: &mut mpsc::UnboundedReceiver<usize>) -> Result<()> {
        while let Some(number) = crashes.recv().await {
            self.running[number].abort();
            self.start(number)?;
        }
        Ok(())
    }
}

async fn on(case: Case, size: Size, engines: Arc<Engines>, progress: impl Fn(usize)) -> Result<MeasuredIsolation> {
    let env = Env::system();
    let orders = size.orders.unwrap_or(case.orders);
    let (crash, mut crashes) = mpsc::unbounded_channel();
    let stage = Stage { starts: Arc::default(), started: watch::Sender::new(0), env: env.clone(), crashes: crash };
    let meter: Arc<Meter> = Arc::default();
    let mut workers = Workers {
        slots: size.slots.get(),
        engines: engines.clone(),
        meter: meter.clone(),
        stage: stage.clone(),
        stop: watch::Sender::new(false),
        tasks: JoinSet::new(),
        running: Vec::new(),
    };
    let parts = engines.connect(&env, Some(meter.clone()));
    let inbox = Inbox::new(parts.store, parts.waker, engines.config().retention, Arc::new(Quiet));
    let began = env.monotonic();
    for number in 0..size.workers.get() {
        workers.start(number)?;
    }
    let work = async {
        append_trouble(&case, orders, &inbox, &env).await?;
        others(&stage, size.seconds, &inbox, progress).await
    };
    let accepted = tokio::select! {
        accepted = work => accepted?,
        ended = workers.supervise(&mut crashes) => {
            ended?;
            anyhow::bail!("no worker is left");
        }
    };
    let end = env.monotonic();
    workers.stop.send_replace(true);
    // What hangs is not waited for.
    workers.tasks.abort_all();
    let starts = stage.starts.lock().unwrap_or_else(PoisonError::into_inner);
    let mut waits: Vec<Duration> =
        accepted.iter().map(|(id, at)| starts.others.get(id).unwrap_or(&end).saturating_sub(*at)).collect();
    waits.sort_unstable();
    let ms = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    let share = |percent: usize| {
        let place = (waits.len() * percent).div_ceil(100).saturating_sub(1);
        waits.get(place).copied().map_or(0.0, ms)
    };
    Ok(MeasuredIsolation {
        scenario: "isolation",
        case: case.name,
        workers: size.workers.get(),
        slots: size.slots.get(),
        orders,
        others: accepted.len(),
        wait_ms_p50: share(50),
        wait_ms_p95: share(95),
        wait_ms_longest: share(100),
        unstarted: accepted.iter().filter(|(id, _)| !starts.others.contains_key(id)).count(),
        troubled_starts: starts.troubled,
        troubled_applied: starts.troubled_applied,
        queue_sends: meter.reading().sends,
        wall_ms: ms(end.saturating_sub(began)),
    })
}

/// Ten deliveries a second, each of an order of its own, until all are started
/// or have waited long enough; when each was accepted.
async fn others(
    stage: &Stage,
    seconds: u32,
    inbox: &Inbox,
    progress: impl Fn(usize),
) -> Result<Vec<(String, Duration)>> {
    let env = &stage.env;
    let began = env.monotonic();
    let mut accepted = Vec::new();
    for number in 0..seconds * 10 {
        let due = (began + EVERY * number).saturating_sub(env.monotonic());
        env.sleep(due).await;
        let id = format!("other-{number}");
        append(inbox, &incoming(OTHER, &format!("bench/other/{number}"), &id, env)?, env).await?;
        accepted.push((id, env.monotonic()));
        progress(*stage.started.borrow());
    }
    let mut started = stage.started.subscribe();
    let all = async {
        while *started.borrow_and_update() < accepted.len() && started.changed().await.is_ok() {
            progress(*stage.started.borrow());
        }
    };
    // Those that are not started by then are counted.
    let _ = env.within(GRACE, all).await;
    Ok(accepted)
}

/// As a sender does that is answered 503: it tries again.
async fn append(inbox: &Inbox, incoming: &Incoming, env: &Env) -> Result<()> {
    for _ in 0..10 {
        if inbox.append(incoming).await.is_ok() {
            return Ok(());
        }
        env.sleep(Duration::from_secs(1)).await;
    }
    anyhow::bail!("the embedded store takes no more")
}

/// Round by round, orders side by side.
async fn append_trouble(case: &Case, orders: usize, inbox: &Inbox, env: &Env) -> Result<()> {
    for round in 0..case.each {
        let one = async |order: usize| {
            let id = format!("{}-{order}-{round}", case.source);
            let key = format!("bench/{}/{order}", case.source);
            append(inbox, &incoming(case.source, &key, &id, env)?, env).await
        };
        stream::iter((0..orders).map(one)).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    }
    Ok(())
}

fn incoming(source: &str, entity: &str, id: &str, env: &Env) -> Result<Incoming> {
    Ok(Incoming {
        entity: EntityKey::parse(entity)?,
        identity: Identity { source: SourceName::parse(source)?, delivery_id: DeliveryId::new(id), redrive: 0 },
        provider: Some("standard-webhooks".into()),
        topic: "order.updated".into(),
        family: "order".into(),
        event_time: None,
        received_at: env.now(),
        content_type: Some("application/json".into()),
        body: r#"{"type":"order.updated"}"#.into(),
    })
}
