//! Benchmarks on the embedded parts: how a run's time compares with the ideal
//! and with a control that has no store, and what each delivery costs.
//!
//! Counts (units, requests, sends) are exact and repeat; times are this
//! machine's at this moment, which is why each run has its own control.

mod control;
mod cpu;
pub mod isolation;
pub mod lease;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Result;
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::sync::watch;
use webhook_serializer::{
    aws::meter::{Meter, Reading},
    engine::{
        append::Inbox,
        drain::{DrainSettings, Drainer},
    },
    functions::worker::Worker,
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{DeliveryId, EntityKey, Identity, SourceName},
        state::HolderInfo,
    },
    sources::Sources,
    telemetry::Quiet,
    time::Env,
};

use crate::{
    local::{
        Engines, EventSource, FUNCTION_TIMEOUT, Function,
        handler_log::{Journal, Journaled, Run},
    },
    view::audit::{Sent, Verdict},
};

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// How many deliveries come.
    pub deliveries: usize,
    /// Of so many entities, round-robin.
    pub entities: usize,
    /// How many workers drain, each with clients of its own.
    pub workers: usize,
    /// How many deliveries are appended side by side.
    pub at_once: usize,
    /// How long each takes.
    pub task: Duration,
    /// Whether all are in before the first worker starts.
    pub all_in_first: bool,
    /// How many one start of the handler may be about.
    pub up_to: u8,
}

const HOT: Scenario = Scenario {
    name: "hot",
    about: "one order, all in before the first worker starts, 0 ms each",
    deliveries: 1000,
    entities: 1,
    workers: 1,
    at_once: 32,
    task: Duration::ZERO,
    all_in_first: true,
    up_to: 1,
};

/// The scenarios.
pub const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "five",
        about: "RA1 RA2 RB1 RB2 RB3, 50 ms each",
        deliveries: 5,
        entities: 2,
        workers: 4,
        at_once: 2,
        task: Duration::from_millis(50),
        all_in_first: false,
        up_to: 1,
    },
    Scenario {
        name: "mixed",
        about: "200 over 20 orders, 20 ms each, 32 workers",
        deliveries: 200,
        entities: 20,
        workers: 32,
        at_once: 20,
        task: Duration::from_millis(20),
        all_in_first: false,
        up_to: 1,
    },
    Scenario {
        name: "wide",
        about: "2,000 over 200 orders, 200 at a time, 5 ms each",
        deliveries: 2000,
        entities: 200,
        workers: 32,
        at_once: 200,
        task: Duration::from_millis(5),
        all_in_first: false,
        up_to: 1,
    },
    HOT,
    Scenario { name: "group", about: "hot, up to ten in one start", up_to: 10, ..HOT },
    Scenario {
        name: "control",
        about: "mixed in one process: a queue per key and no store",
        deliveries: 200,
        entities: 20,
        workers: 0,
        at_once: 20,
        task: Duration::from_millis(20),
        all_in_first: false,
        up_to: 1,
    },
];

/// What came out. Units, sends and failed conditions are per delivery; `None`
/// where it says nothing or cannot be told.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The scenario.
    pub scenario: &'static str,
    /// How many deliveries.
    pub deliveries: usize,
    /// Of how many entities.
    pub entities: usize,
    /// How many workers.
    pub workers: usize,
    /// From the first append to the end of the last handler; for `hot`, from
    /// the start of the worker.
    pub wall_ms: f64,
    /// The longest entity's handlers, one after the other.
    pub ideal_ms: f64,
    /// The same jobs in one process without a store, in this run.
    pub control_ms: f64,
    /// `ideal_ms` over `wall_ms`.
    pub efficiency: Option<f64>,
    /// Write units of the delivery row itself.
    pub body_units: u64,
    /// Write units, those of refused conditions included.
    pub write_units: f64,
    /// Read units.
    pub read_units: f64,
    /// Requests to store and queue. Not those that the event source makes in the
    /// worker's place: messages received, and deleted.
    pub requests: f64,
    /// Queue messages sent.
    pub queue_sends: f64,
    /// Requests that kept a batch's messages hidden.
    pub queue_hides: f64,
    /// Writes whose condition did not hold.
    pub failed_conditions: f64,
    /// From the end of a handler to the start of the next of that entity, where
    /// it was already waiting.
    pub handoff_ms_p50: Option<f64>,
    /// The same, 95th percentile.
    pub handoff_ms_p95: Option<f64>,
    /// Processor time of our side, the emulators' left out.
    pub cpu_ms: Option<f64>,
    /// Processor time of the emulators.
    pub emulator_cpu_ms: Option<f64>,
    /// Started too early.
    pub ran_ahead: usize,
    /// Started beside another of their entity.
    pub overlaps: usize,
    /// Accepted and never applied.
    pub lost: usize,
    /// Applied more than once.
    pub repeated: usize,
}

impl Measured {
    /// Whether nothing went wrong.
    pub fn is_clean(&self) -> bool {
        self.ran_ahead + self.overlaps + self.lost + self.repeated == 0
    }
}

/// Takes its time and is done.
#[derive(Debug, Clone, Copy)]
struct Task(Duration);

impl Handler for Task {
    async fn handle(&self, _: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        if !self.0.is_zero() {
            context.env().sleep(self.0).await;
        }
        Ok(Outcome::Done)
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        self.handle(deliveries.last(), context).await
    }

    fn handles_all(&self, _: &str) -> bool {
        true
    }
}

fn sources(up_to: u8) -> Result<Arc<Sources>> {
    let deliver = if up_to > 1 { format!("deliver = {{ up_to = {up_to} }}") } else { String::new() };
    let document = format!(
        "[sources.bench]\nprovider = 'standard-webhooks'\nsecrets = 'whsec_YmVuY2g='\nhandler = 'bench'\n{deliver}\n"
    );
    Ok(Arc::new(Sources::parse(&document)?))
}

/// Runs a scenario; `progress` is told how many deliveries are applied.
///
/// # Errors
///
/// The engines do not start, or do not take a delivery.
pub async fn run(scenario: Scenario, progress: impl Fn(usize)) -> Result<Measured> {
    let control = control::run(&scenario).await;
    if scenario.workers == 0 {
        return Ok(measured(&scenario, control, control, &Counts::default(), &[], &Verdict::default(), None));
    }
    // The emulators have threads of their own, so that their time can be told from ours.
    let engine_name = cpu::engine_name();
    let engine_room =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name(&engine_name).enable_all().build()?;
    let engines = Arc::new(engine_room.spawn(Engines::start(None)).await??);
    // Ours share one thread, as a function's own are: threads that wake each other would be measured with them.
    let ours = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome =
        tokio::task::block_in_place(|| ours.block_on(on(&scenario, control, engines, &engine_name, progress)));
    // Dropped outside of any runtime's own context, as tokio asks.
    ours.shutdown_background();
    engine_room.shutdown_background();
    outcome
}

async fn on(
    scenario: &Scenario,
    control: Duration,
    engines: Arc<Engines>,
    engine_name: &str,
    progress: impl Fn(usize),
) -> Result<Measured> {
    let env = Env::system();
    let meter: Arc<Meter> = Arc::default();
    let journal = Journal::new(env.clone());
    let stop = watch::Sender::new(false);
    let mut workers = tokio::task::JoinSet::new();
    let mut sources = Vec::new();
    for number in 0..scenario.workers {
        sources.push(event_source(&engines, &meter, scenario, &journal, number).await?);
    }
    let mut start_workers = |workers: &mut tokio::task::JoinSet<Result<()>>| {
        for source in sources.drain(..) {
            workers.spawn(source.run(stop.subscribe()));
        }
    };
    if !scenario.all_in_first {
        start_workers(&mut workers);
    }
    let parts = engines.connect(&env, Some(meter.clone()));
    parts.store.entity(&EntityKey::parse("bench/nothing")?, Duration::from_secs(5)).await?;
    let retention = engines.config().retention;
    let counted_before = meter.reading();
    let inbox = Inbox::new(parts.store, parts.waker, retention, Arc::new(Quiet));
    let cpu_before = cpu::spent(engine_name);
    let mut began = journal.now();
    let sent = append_all(scenario, &inbox, &journal).await?;
    if scenario.all_in_first {
        began = journal.now();
        start_workers(&mut workers);
    }
    let mut applied = journal.applied();
    loop {
        let count = *applied.borrow_and_update();
        progress(count);
        if count >= scenario.deliveries {
            break;
        }
        applied.changed().await?;
    }
    let cpu = cpu_before.zip(cpu::spent(engine_name)).map(|(before, after)| after - before);
    stop.send_replace(true);
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    let runs = journal.runs();
    let wall = runs.iter().map(|run| run.ended).max().unwrap_or(began).saturating_sub(began);
    let verdict = Verdict::of(&sent, &runs, &BTreeSet::new());
    let counts = Counts { reading: meter.reading() - counted_before, body_units: body_units(&sent, &env) };
    Ok(measured(scenario, wall, control, &counts, &runs, &verdict, cpu))
}

/// A worker with its event source, connected as a function is by the end of its
/// initialisation.
async fn event_source(
    engines: &Engines,
    meter: &Arc<Meter>,
    scenario: &Scenario,
    journal: &Journal,
    number: usize,
) -> Result<EventSource> {
    let env = Env::system();
    let parts = engines.connect(&env, Some(meter.clone()));
    parts.store.entity(&EntityKey::parse("bench/nothing")?, Duration::from_secs(5)).await?;
    let drainer = Drainer::new(
        parts.store,
        parts.waker,
        sources(scenario.up_to)?,
        Journaled::new(Task(scenario.task), journal.clone()),
        DrainSettings::default(),
        HolderInfo::new(&format!("bench worker {number}")),
        Arc::new(Quiet),
    );
    let worker = Worker::new(drainer, parts.queue, env);
    let source = EventSource::new(engines, Function::Here(Box::new(worker)), FUNCTION_TIMEOUT);
    source.connect().await?;
    Ok(source)
}

/// Appends round by round: an entity's deliveries one after the other, as many
/// entities side by side as the scenario says.
async fn append_all(scenario: &Scenario, inbox: &Inbox, journal: &Journal) -> Result<Vec<Sent>> {
    let append = |number: usize| async move {
        let incoming = incoming(scenario, number, &Env::system());
        let at = journal.now();
        inbox.append(&incoming).await?;
        anyhow::Ok(Sent {
            entity: incoming.entity,
            delivery_id: incoming.identity.delivery_id.to_string(),
            sent: at,
            answered: Some(journal.now()),
        })
    };
    stream::iter((0..scenario.deliveries).map(append))
        .buffered(scenario.at_once)
        .collect::<Vec<Result<Sent>>>()
        .await
        .into_iter()
        .collect()
}

fn incoming(scenario: &Scenario, number: usize, env: &Env) -> Incoming {
    let key = format!("bench/order/{}", number % scenario.entities);
    Incoming {
        entity: EntityKey::parse(&key).expect("a key"),
        identity: Identity {
            source: SourceName::parse("bench").expect("a name"),
            delivery_id: DeliveryId::new(format!("msg_{number}")),
            redrive: 0,
        },
        provider: Some("standard-webhooks".into()),
        topic: "order.updated".into(),
        family: "order".into(),
        event_time: None,
        received_at: env.now(),
        content_type: Some("application/json".into()),
        body: format!("{{\"type\":\"order.updated\",\"data\":{{\"order_id\":\"{number}\"}}}}").into_bytes().into(),
    }
}

/// What one delivery's row costs to write.
fn body_units(sent: &[Sent], env: &Env) -> u64 {
    let Some(one) = sent.first() else { return 0 };
    let scenario = SCENARIOS[0];
    let incoming = Incoming { entity: one.entity.clone(), ..incoming(&scenario, 0, env) };
    let envelope = webhook_serializer::protocol::delivery::Envelope::pack(&incoming, &env.nonce(), env.now());
    let key = webhook_serializer::protocol::keys::delivery_row(
        &one.entity,
        webhook_serializer::protocol::entity::Sequence(1),
    )
    .to_row();
    key.into_iter().chain(envelope.row().clone()).collect::<webhook_serializer::protocol::table::Row>().write_units()
}

#[derive(Default)]
struct Counts {
    reading: Reading,
    body_units: u64,
}

fn measured(
    scenario: &Scenario,
    wall: Duration,
    control: Duration,
    counts: &Counts,
    runs: &[Run],
    verdict: &Verdict,
    cpu: Option<cpu::Spent>,
) -> Measured {
    let ms = |duration: Duration| (duration.as_secs_f64() * 1e5).round() / 1e2;
    let per_delivery = |count: f64| (count / scenario.deliveries as f64 * 1e3).round() / 1e3;
    let each = |time: Duration| ms(time / u32::try_from(scenario.deliveries).unwrap_or(1));
    let ideal = scenario.task * u32::try_from(scenario.deliveries.div_ceil(scenario.entities)).unwrap_or(u32::MAX);
    let handoffs = handoffs(runs);
    let share = |percent: usize| {
        let place = (handoffs.len() * percent).div_ceil(100).saturating_sub(1);
        handoffs.get(place).copied().map(ms)
    };
    Measured {
        scenario: scenario.name,
        deliveries: scenario.deliveries,
        entities: scenario.entities,
        workers: scenario.workers,
        wall_ms: ms(wall),
        ideal_ms: ms(ideal),
        control_ms: ms(control),
        efficiency: (!ideal.is_zero()).then(|| (ideal.as_secs_f64() / wall.as_secs_f64() * 1e3).round() / 1e3),
        body_units: counts.body_units,
        write_units: per_delivery(counts.reading.write_units),
        read_units: per_delivery(counts.reading.read_units),
        requests: per_delivery(requests(&counts.reading) as f64),
        queue_sends: per_delivery(counts.reading.sends as f64),
        queue_hides: per_delivery(counts.reading.hidden as f64),
        failed_conditions: per_delivery(counts.reading.refusals as f64),
        handoff_ms_p50: share(50),
        handoff_ms_p95: share(95),
        cpu_ms: cpu.map(|cpu| each(cpu.ours)),
        emulator_cpu_ms: cpu.map(|cpu| each(cpu.emulators)),
        ran_ahead: verdict.ran_ahead.len(),
        overlaps: verdict.overlaps.len(),
        lost: verdict.lost.len(),
        repeated: verdict.repeated.len(),
    }
}

fn requests(reading: &Reading) -> u64 {
    let Reading { writes, reads, refusals, failures, sends, hidden, .. } = reading;
    writes + reads + refusals + failures + sends + hidden
}

/// Sorted times between a handler's end and the start of the next of its
/// entity, where that was accepted before.
fn handoffs(runs: &[Run]) -> Vec<Duration> {
    let mut by_entity: std::collections::BTreeMap<&EntityKey, Vec<&Run>> = std::collections::BTreeMap::new();
    for run in runs {
        by_entity.entry(&run.entity).or_default().push(run);
    }
    let mut handoffs = Vec::new();
    for runs in by_entity.values_mut() {
        runs.sort_by_key(|run| (run.started, run.sequence));
        for pair in runs.windows(2) {
            let [before, after] = pair else { continue };
            let ended_at = before.started_at + before.ended.saturating_sub(before.started);
            // Those of a group start together.
            if after.received_at <= ended_at && after.token != before.token {
                handoffs.push(after.started.saturating_sub(before.ended));
            }
        }
    }
    handoffs.sort_unstable();
    handoffs
}
