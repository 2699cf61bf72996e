//! One run of a scenario, in which workers drain the inbox until it is empty, and may crash or freeze.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, ready},
};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    Event, ExternalSystem, Finding, Scenario,
    clock::{self, START},
    under_test::{HandlerUnderTest, InjectedCrash, Observations, Recorder, lock},
    worker_table::WorkerTable,
};
use crate::{
    config::DEFAULT_RETENTION,
    engine::{
        append::Inbox,
        drain::{DrainSettings, Drainer, ReceivedWakeUp, SuspectGate},
        queue::{Message, Queue, QueueError},
        store::Store,
        wake::Waker,
    },
    handler::{Handler, Isolation},
    protocol::{
        delivery::Incoming,
        entity::{DeliveryId, Identity, SourceName},
        memory::MemoryTable,
        state::HolderInfo,
        table::Table,
    },
    sources::Sources,
    time::{Env, Timestamp},
};

/// The time of the first event, unless one was given: a day before the run. Each later event happens a minute
/// after the one before.
const HAPPENED: Timestamp = Timestamp::from_millis(START.as_millis() - 86_400_000);

/// The time in which a frozen handler must finish after its worker was replaced.
const FROZEN_TIMEOUT: Duration = Duration::from_secs(600);

/// The maximum number of polls of a run. The kit's retry policy needs fewer, so a run that exceeds this
/// number would never end.
const POLLS: u32 = 500;

/// The shortest time between two polls. The lease of a crashed worker expires within this time.
const POLL_INTERVAL: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScenarioFault {
    Twice(usize),
    CrashAfter(usize),
    StaleToken(usize),
    OutOfOrder,
}

impl ScenarioFault {
    pub(super) fn index(self) -> Option<usize> {
        match self {
            Self::Twice(index) | Self::CrashAfter(index) | Self::StaleToken(index) => Some(index),
            Self::OutOfOrder => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct RunResult {
    effects: BTreeMap<String, String>,
    seen: Observations,
    /// The indices of the scenario's events, in the order in which they were delivered.
    arrived: Vec<usize>,
}

impl RunResult {
    pub(super) fn findings(&self, scenario: &Scenario) -> Vec<Finding> {
        let at = |id: &String| name(scenario, id);
        let mut findings = Vec::new();
        findings.extend(self.seen.panics.as_ref().map(|id| Finding::Panics { at: at(id) }));
        findings.extend(self.seen.blocks.as_ref().map(|id| Finding::Blocks { at: at(id) }));
        if self.seen.panics.is_none() {
            let error = || self.seen.error.clone();
            findings
                .extend(self.seen.not_applied.as_ref().map(|id| Finding::NotApplied { at: at(id), error: error() }));
        }
        findings
    }

    pub(super) fn compare(&self, first: &Self, scenario: &Scenario, fault: ScenarioFault) -> Vec<Finding> {
        let findings = self.findings(scenario);
        if !findings.is_empty() {
            return findings;
        }
        let at = fault.index().map(|index| name(scenario, &index.to_string())).unwrap_or_default();
        if self.seen.frozen_handler_hangs {
            return vec![Finding::NotApplied { at, error: "the handler never ends when its token is old".into() }];
        }
        let Some(differs) = self.differs(first) else { return Vec::new() };
        vec![match fault {
            ScenarioFault::Twice(_) | ScenarioFault::CrashAfter(_) => Finding::AppliedTwice { at, differs },
            ScenarioFault::StaleToken(_) => Finding::NotFenced { at, differs },
            ScenarioFault::OutOfOrder => {
                let arrived = self.arrived.iter().map(|index| scenario.events[*index].topic.clone()).collect();
                Finding::DependsOnOrder { arrived, differs }
            }
        }]
    }

    fn differs(&self, first: &Self) -> Option<String> {
        let nothing = || "nothing".to_owned();
        let keys = self.effects.keys().chain(first.effects.keys());
        keys.into_iter().find(|key| self.effects.get(*key) != first.effects.get(*key)).map(|key| {
            let is = self.effects.get(key).cloned();
            let should = first.effects.get(key).cloned();
            format!("{key} is {}, but should be {}", is.unwrap_or_else(nothing), should.unwrap_or_else(nothing))
        })
    }
}

fn name(scenario: &Scenario, id: &str) -> String {
    let index: usize = id.parse().unwrap_or_default();
    format!("delivery {index} ({})", scenario.events[index].topic)
}

pub(super) fn run<H: Handler>(
    scenario: &Scenario,
    arrive: &[usize],
    fault: Option<ScenarioFault>,
    handler: &impl Fn(&ExternalSystem) -> H,
) -> RunResult {
    let external = ExternalSystem::default();
    let handler = handler(&external);
    // A separate thread, because the caller may be inside a runtime.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime
                .expect("a runtime can be made")
                .block_on(ScenarioRun::new(scenario, arrive, fault, handler, &external).run())
        });
        run.join().expect("the kit does not panic")
    })
}

struct ScenarioRun<'a, H> {
    scenario: &'a Scenario,
    arrive: &'a [usize],
    fault: Option<ScenarioFault>,
    external: &'a ExternalSystem,
    memory: Arc<MemoryTable>,
    env: Env,
    seen: Arc<Mutex<Observations>>,
    handler: Arc<H>,
    sources: Arc<Sources>,
}

impl<'a, H: Handler> ScenarioRun<'a, H> {
    fn new(
        scenario: &'a Scenario,
        arrive: &'a [usize],
        fault: Option<ScenarioFault>,
        handler: H,
        external: &'a ExternalSystem,
    ) -> Self {
        let deliver =
            if scenario.up_to > 1 { format!("deliver = {{ up_to = {} }}\n", scenario.up_to) } else { String::new() };
        let sources = format!(
            "[sources.kit]\nprovider = \"standard-webhooks\"\nsecrets = [\"whsec_Zk93bTR6S2dRcTdUaHBY\"]\nhandler = \"kit\"\n\
             handler_timeout = \"10s\"\nretry = {{ attempts = 3, first = \"1s\" }}\n{deliver}"
        );
        Self {
            scenario,
            arrive,
            fault,
            external,
            memory: external.memory.clone(),
            env: clock::env(scenario.seed),
            seen: Arc::default(),
            handler: Arc::new(handler),
            sources: Arc::new(Sources::parse(&sources).expect("the kit's own sources are right")),
        }
    }

    async fn run(self) -> RunResult {
        let inbox = Inbox::new(
            self.store(self.memory.clone()),
            self.waker(),
            DEFAULT_RETENTION,
            Arc::new(Recorder(self.seen.clone())),
        );
        let again = match self.fault {
            Some(ScenarioFault::Twice(index)) => Some(index),
            _ => None,
        };
        for index in self.arrive.iter().copied().chain(again) {
            inbox.append(&self.incoming(index)).await.expect("a table in memory does not fail");
        }
        let frozen = self.crash_first_worker().await;
        self.drain(&Arc::new(HandlerUnderTest::new(&self.handler, &self.seen, None))).await;
        if let Some((thaw, task)) = frozen {
            thaw.send_replace(true);
            // The frozen worker's lease has expired, so its commits would be refused. Only its
            // writes to external systems matter.
            let aborts = task.abort_handle();
            if self.env.within(FROZEN_TIMEOUT, task).await.is_none() {
                aborts.abort();
                lock(&self.seen).frozen_handler_hangs = true;
            }
        }
        let mut effects: BTreeMap<String, String> = self.external.documents();
        for (key, row) in self.memory.named() {
            let text = row.into_iter().map(|(name, value)| format!("{name} {value:?}")).collect::<Vec<_>>().join(", ");
            effects.insert(format!("row {key}"), text);
        }
        let seen = lock(&self.seen).clone();
        RunResult { effects, seen, arrived: self.arrive.to_vec() }
    }

    /// Runs a first worker, if `fault` asks for one, until it crashes or freezes. For a frozen worker, returns
    /// the signal that lets its handler continue, and the handler's task.
    async fn crash_first_worker(&self) -> Option<(watch::Sender<bool>, JoinHandle<()>)> {
        let (index, freezes) = match self.fault? {
            ScenarioFault::CrashAfter(index) => (index, false),
            ScenarioFault::StaleToken(index) => (index, true),
            ScenarioFault::Twice(_) | ScenarioFault::OutOfOrder => return None,
        };
        let table = Arc::new(WorkerTable::new(self.memory.clone()));
        let (thaw, thawed) = watch::channel(false);
        let task = Arc::new(Mutex::new(None));
        let crash = InjectedCrash {
            at: index.to_string(),
            table: table.clone(),
            freeze: freezes.then(|| (thawed, task.clone())),
            env: self.env.clone(),
        };
        let handler = Arc::new(HandlerUnderTest::new(&self.handler, &self.seen, Some(crash)));
        let drainer = self.drainer(table.clone(), &handler);
        for _ in 0..POLLS {
            let _ = self.env.within(Duration::from_secs(60), self.process(&drainer)).await;
            if table.has_crashed() {
                break;
            }
            let Some(wait) = self.next_poll().await else { break };
            self.env.sleep(wait).await;
        }
        let task = lock(&task).take();
        task.map(|task| (thaw, task))
    }

    async fn drain(&self, handler: &Arc<HandlerUnderTest<H>>) {
        let drainer = self.drainer(self.memory.clone(), handler);
        for _ in 0..POLLS {
            self.process(&drainer).await;
            let Some(wait) = self.next_poll().await else { return };
            self.env.sleep(wait).await;
        }
        let mut seen = lock(&self.seen);
        seen.not_applied = seen.not_applied.take().or_else(|| seen.failed.clone());
    }

    async fn next_poll(&self) -> Option<Duration> {
        let store = self.store(self.memory.clone());
        let state = store.entity(&self.scenario.entity, Duration::from_secs(1)).await.expect("memory answers")?;
        let retry = state.retry_at.map_or(Duration::ZERO, |at| at.since(self.env.now()));
        (!state.is_empty() || state.held.is_some()).then_some(retry.max(POLL_INTERVAL))
    }

    async fn process(&self, drainer: &Drainer) {
        let received = ReceivedWakeUp::new(self.scenario.entity.clone(), 1);
        let deadline = self.env.monotonic() + Duration::from_secs(60);
        drainer.process(&received, deadline, &SuspectGate::new(1)).await;
    }

    fn drainer(&self, table: Arc<dyn Table>, handler: &Arc<HandlerUnderTest<H>>) -> Drainer {
        let settings = DrainSettings::default();
        let observer = Arc::new(Recorder(self.seen.clone()));
        let info = HolderInfo::new("the kit");
        let store = self.store(table);
        let waker = self.waker();
        Drainer::new(store, waker, self.sources.clone(), handler.clone(), settings, info, observer)
            .isolated(Isolation::Inline)
    }

    fn store(&self, table: Arc<dyn Table>) -> Store {
        Store::new(table, self.env.clone())
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::new(NoQueue), self.env.clone())
    }

    fn incoming(&self, index: usize) -> Incoming {
        let Event { topic, body, at, provider } = &self.scenario.events[index];
        let source = SourceName::parse("kit").expect("a name");
        Incoming {
            entity: self.scenario.entity.clone(),
            identity: Identity { source, delivery_id: DeliveryId::new(index.to_string()), redrive: 0 },
            provider: provider.clone(),
            topic: topic.clone(),
            family: topic.split('/').next().unwrap_or_default().to_owned(),
            event_time: Some(at.unwrap_or(HAPPENED + Duration::from_secs(60 * index as u64))),
            received_at: self.env.now(),
            content_type: Some("application/json".into()),
            body: body.clone(),
        }
    }
}

/// A queue that drops messages. The kit polls the table, so it needs no wake-ups.
struct NoQueue;

impl Queue for NoQueue {
    fn send<'a>(&'a self, _: &'a Message, _: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        ready(Ok(())).boxed()
    }
}
