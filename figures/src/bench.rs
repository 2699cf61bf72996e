//! Runs deliveries through the embedded engines. Measures the time of a run, and the cost of each
//! delivery. The time of a run is shown beside its ideal time and the time of a control.
//!
//! Counts (units, requests, sends) are exact and repeat. Times depend on this machine and
//! this moment, so each run has its own control.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use figures::sheet::SheetCell;
use futures_util::{StreamExt, TryStreamExt, stream};
use serializer::{
    local::{
        EventSource, FUNCTION_TIMEOUT, LocalFunction,
        handler_log::{Journal, Journaled, LoggedRun},
    },
    view::audit::{AuditVerdict, Sent},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use webhook_serializer::{
    aws::{
        Parts,
        meter::{Meter, Reading},
    },
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
    cpu::Cpu,
    distance::{Distance, Network},
    engines::SeparateEngines,
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct BenchScenario {
    pub(crate) name: &'static str,
    pub(crate) deliveries: u32,
    /// The number of orders, to which deliveries go round-robin.
    pub(crate) orders: u32,
    /// The number of workers. Each has its own clients.
    workers: u32,
    senders: usize,
    /// The time that a handler takes.
    task: Duration,
    /// Whether all deliveries are appended before the first worker starts.
    is_backlog: bool,
    up_to: u8,
}

const HOT: BenchScenario = BenchScenario {
    name: "hot",
    deliveries: 1000,
    orders: 1,
    workers: 1,
    senders: 32,
    task: Duration::ZERO,
    is_backlog: true,
    up_to: 1,
};

pub(crate) const SCENARIOS: [BenchScenario; 5] = [
    BenchScenario {
        name: "five",
        deliveries: 5,
        orders: 2,
        workers: 4,
        senders: 2,
        task: Duration::from_millis(50),
        is_backlog: false,
        up_to: 1,
    },
    BenchScenario {
        name: "mixed",
        deliveries: 200,
        orders: 20,
        workers: 32,
        senders: 20,
        task: Duration::from_millis(20),
        is_backlog: false,
        up_to: 1,
    },
    BenchScenario {
        name: "wide",
        deliveries: 2000,
        orders: 200,
        workers: 32,
        senders: 200,
        task: Duration::from_millis(5),
        is_backlog: false,
        up_to: 1,
    },
    HOT,
    BenchScenario { name: "group", up_to: 10, ..HOT },
];

/// The columns for [`Measured::times`].
pub(crate) const TIMES: [(&str, &str); 12] = [
    ("scenario", "scenario"),
    ("deliveries", ">deliveries"),
    ("orders", ">orders"),
    ("workers", ">workers"),
    ("wall_ms", ">wall ms"),
    ("ideal_ms", ">ideal ms"),
    ("control_ms", ">control ms"),
    ("wall_per_control", ">wall/control"),
    ("hand_over_p50_ms", ">hand-over p50"),
    ("hand_over_p95_ms", ">p95"),
    ("cpu_ms_each", ">cpu ms each"),
    ("engines_cpu_ms_each", ">engines' cpu"),
];

/// The columns for [`Measured::counts`].
pub(crate) const COUNTS: [(&str, &str); 8] = [
    ("scenario", "per delivery"),
    ("write_units", ">write units"),
    ("read_units", ">read units"),
    ("requests", ">requests"),
    ("sends", ">sends"),
    ("extensions", ">extensions"),
    ("failed_conditions", ">failed conditions"),
    ("verdict", "verdict"),
];

#[derive(Debug)]
pub(crate) struct Measured {
    scenario: BenchScenario,
    /// The time from the first append, or with a backlog from the start of the workers, to the end
    /// of the last handler.
    wall: Duration,
    /// The time of the same handlers in one process, with a queue for each key and no store.
    control: Duration,
    /// The requests and units, without the event source's own receives and deletes.
    reading: Reading,
    /// The sorted times from a handler's end to the next start of its order. Only starts of
    /// deliveries that were already waiting count.
    hand_overs: Vec<Duration>,
    cpu: Option<Cpu>,
    pub(crate) verdict: AuditVerdict,
}

pub(crate) fn ms(time: Duration) -> SheetCell {
    let ms = time.as_secs_f64() * 1e3;
    SheetCell::number(ms, format!("{ms:.1}"))
}

pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> SheetCell {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).map_or_else(|| SheetCell::none("–"), |time| ms(*time))
}

impl Measured {
    pub(crate) fn times(&self) -> Vec<SheetCell> {
        let BenchScenario { name, deliveries, orders, workers, task, .. } = self.scenario;
        let none = || SheetCell::none("–");
        let each = |cpu: Duration| {
            let each = cpu.as_secs_f64() * 1e3 / f64::from(deliveries);
            SheetCell::number(each, format!("{each:.2}"))
        };
        vec![
            SheetCell::text(name),
            SheetCell::count(deliveries),
            SheetCell::count(orders),
            SheetCell::count(workers),
            ms(self.wall),
            // The ideal time is that of the longest order's handlers, one after the other.
            ms(task * deliveries.div_ceil(orders)),
            ms(self.control),
            match task.is_zero() {
                true => none(),
                false => {
                    let ratio = self.wall.as_secs_f64() / self.control.as_secs_f64();
                    SheetCell::number(ratio, format!("{ratio:.2}"))
                }
            },
            percentile(&self.hand_overs, 50),
            percentile(&self.hand_overs, 95),
            self.cpu.map_or_else(none, |cpu| each(cpu.program)),
            self.cpu.map_or_else(none, |cpu| each(cpu.engines)),
        ]
    }

    pub(crate) fn counts(&self) -> Vec<SheetCell> {
        let Reading { writes, reads, refusals, failures, sends, extensions, .. } = self.reading;
        let requests = writes + reads + refusals + failures + sends + extensions;
        let each = |count: f64| {
            let each = count / f64::from(self.scenario.deliveries);
            SheetCell::number(each, format!("{each:.3}"))
        };
        let AuditVerdict { ran_ahead, overlaps, lost, repeated } = &self.verdict;
        vec![
            SheetCell::text(self.scenario.name),
            each(self.reading.write_units),
            each(self.reading.read_units),
            each(requests as f64),
            each(sends as f64),
            each(extensions as f64),
            each(refusals as f64),
            SheetCell::text(match self.verdict.is_clean() {
                true => "in order".to_owned(),
                false => format!(
                    "{} out of order, {} overlaps, {} lost, {} repeated",
                    ran_ahead.len(),
                    overlaps.len(),
                    lost.len(),
                    repeated.len()
                ),
            }),
        ]
    }
}

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

    /// It waits, as for another process.
    fn runs_elsewhere(&self, _: &str) -> bool {
        true
    }
}

/// Runs `scenario` on engines that are started for it.
pub(crate) async fn run(scenario: BenchScenario, distance: Distance) -> Result<Measured> {
    let control = control(&scenario).await;
    let engines = SeparateEngines::start().await?;
    let network = Network::to(&engines, distance).await?;
    let world = BenchWorld { scenario, network, engines, meter: Arc::default() };
    let measured = world.measure(control).await;
    world.engines.stop().await;
    measured
}

struct BenchWorld {
    scenario: BenchScenario,
    network: Network,
    engines: SeparateEngines,
    meter: Arc<Meter>,
}

impl BenchWorld {
    /// Returns new clients. They are already connected, as a function's are after its
    /// initialisation.
    async fn connect(&self) -> Result<Parts> {
        let parts = self.network.parts(&Env::system(), self.meter.clone());
        parts.store.entity(&EntityKey::parse("bench/nothing")?, Duration::from_secs(5)).await?;
        Ok(parts)
    }

    async fn worker(&self, number: u32, journal: &Journal) -> Result<EventSource> {
        let parts = self.connect().await?;
        let deliver = match self.scenario.up_to {
            1 => String::new(),
            up_to => format!("deliver = {{ up_to = {up_to} }}"),
        };
        let sources = format!(
            "[sources.bench]\nprovider = 'standard-webhooks'\nsecrets = 'whsec_YmVuY2g='\nhandler = 'bench'\n{deliver}"
        );
        let drainer = Drainer::new(
            parts.store,
            parts.waker,
            Arc::new(Sources::parse(&sources)?),
            Journaled::new(Task(self.scenario.task), journal.clone()),
            DrainSettings::default(),
            HolderInfo::new(&format!("bench worker {number}")),
            Arc::new(Quiet),
        );
        let worker = Worker::new(drainer, parts.queue, Env::system());
        let function = LocalFunction::Here(Box::new(worker));
        let source = EventSource::of(self.network.sqs(), self.engines.config().queue_url, function, FUNCTION_TIMEOUT);
        source.connect().await?;
        Ok(source)
    }

    async fn measure(&self, control: Duration) -> Result<Measured> {
        let journal = Journal::new(Env::system());
        let stop = watch::Sender::new(false);
        let mut workers = Vec::new();
        for number in 0..self.scenario.workers {
            workers.push(self.worker(number, &journal).await?);
        }
        let mut running = JoinSet::new();
        let start = |running: &mut JoinSet<_>, workers: Vec<EventSource>| {
            for worker in workers {
                running.spawn(worker.run(stop.subscribe()));
            }
        };
        let parts = self.connect().await?;
        let inbox = Inbox::new(parts.store, parts.waker, self.engines.config().retention, Arc::new(Quiet));
        let counted_before = self.meter.reading();
        let cpu_before = self.engines.spent();
        let (began, sent) = if self.scenario.is_backlog {
            let sent = self.append_all(&inbox, &journal).await?;
            let began = journal.now();
            start(&mut running, workers);
            (began, sent)
        } else {
            start(&mut running, workers);
            (journal.now(), self.append_all(&inbox, &journal).await?)
        };
        journal.until_applied(self.scenario.deliveries as usize).await;
        let cpu = cpu_before.zip(self.engines.spent()).map(|(before, after)| after - before);
        stop.send_replace(true);
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        let runs = journal.runs();
        Ok(Measured {
            scenario: self.scenario,
            wall: runs.iter().map(|run| run.ended).max().unwrap_or(began).saturating_sub(began),
            control,
            reading: self.meter.reading() - counted_before,
            hand_overs: hand_overs(&runs),
            cpu,
            verdict: AuditVerdict::of(&sent, &runs, &BTreeSet::new()),
        })
    }

    async fn append_all(&self, inbox: &Inbox, journal: &Journal) -> Result<Vec<Sent>> {
        let append = async |number: u32| {
            let incoming = incoming(number, self.scenario.orders)?;
            let sent = journal.now();
            inbox.append(&incoming).await?;
            anyhow::Ok(Sent {
                entity: incoming.entity,
                delivery_id: incoming.identity.delivery_id.to_string(),
                sent,
                answered: Some(journal.now()),
            })
        };
        stream::iter((0..self.scenario.deliveries).map(append))
            .buffer_unordered(self.scenario.senders)
            .try_collect()
            .await
    }
}

fn incoming(number: u32, orders: u32) -> Result<Incoming> {
    Ok(Incoming {
        entity: EntityKey::parse(&format!("bench/order/{}", number % orders))?,
        identity: Identity {
            source: SourceName::parse("bench")?,
            delivery_id: DeliveryId::new(format!("msg_{number}")),
            redrive: 0,
        },
        provider: Some("standard-webhooks".into()),
        topic: "order.updated".into(),
        family: "order".into(),
        event_time: None,
        received_at: Env::system().now(),
        content_type: Some("application/json".into()),
        body: format!("{{\"type\":\"order.updated\",\"data\":{{\"order_id\":\"{number}\"}}}}").into_bytes().into(),
    })
}

async fn control(scenario: &BenchScenario) -> Duration {
    let env = Env::system();
    let mut orders = JoinSet::new();
    let began = env.monotonic();
    let senders: Vec<mpsc::UnboundedSender<()>> = (0..scenario.orders)
        .map(|_| {
            let (sender, mut jobs) = mpsc::unbounded_channel();
            let env = env.clone();
            let task = scenario.task;
            orders.spawn(async move {
                while jobs.recv().await.is_some() {
                    if !task.is_zero() {
                        env.sleep(task).await;
                    }
                }
            });
            sender
        })
        .collect();
    for sender in senders.iter().cycle().take(scenario.deliveries as usize) {
        // The receiver lives until the sender is dropped.
        let _ = sender.send(());
    }
    drop(senders);
    while orders.join_next().await.is_some() {}
    env.monotonic() - began
}

fn hand_overs(runs: &[LoggedRun]) -> Vec<Duration> {
    let mut by_order: BTreeMap<&EntityKey, Vec<&LoggedRun>> = BTreeMap::new();
    for run in runs {
        by_order.entry(&run.entity).or_default().push(run);
    }
    let mut hand_overs = Vec::new();
    for runs in by_order.values_mut() {
        runs.sort_by_key(|run| (run.started, run.sequence));
        for pair in runs.windows(2) {
            let [before, after] = pair else { continue };
            let ended_at = before.started_at + before.ended.saturating_sub(before.started);
            // Deliveries of one group start together, under one token.
            if after.received_at <= ended_at && after.token != before.token {
                hand_overs.push(after.started.saturating_sub(before.ended));
            }
        }
    }
    hand_overs.sort_unstable();
    hand_overs
}
