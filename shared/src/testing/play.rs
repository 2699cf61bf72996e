//! Runs a lane once: events are appended, and workers that may die or freeze drain
//! the inbox until it is empty.

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
    Event, Finding, Lane, Outside,
    clock::{self, START},
    guest::{Dies, Guest, Seen, Watching, locked},
    mortal::Mortal,
};
use crate::{
    engine::{
        append::Inbox,
        drain::{DrainSettings, Drainer, Received, SuspectGate},
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

const RETENTION: Duration = Duration::from_secs(30 * 86_400);

/// The default time of the first event: a day before it arrives.
const HAPPENED: Timestamp = Timestamp::from_millis(START.as_millis() - 86_400_000);

/// How long a replaced handler may take to finish.
const LATEST: Duration = Duration::from_secs(600);

/// The most polls of a run, more than any retry policy of the kit needs: a handler
/// that has not finished by then never does.
const LOOKS: u32 = 500;

/// The shortest time between two polls. A dead worker's lease expires within it.
const BETWEEN: Duration = Duration::from_secs(20);

/// A fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mishap {
    Twice(usize),
    CrashAfter(usize),
    StaleToken(usize),
    OutOfOrder,
}

impl Mishap {
    pub(super) fn place(self) -> Option<usize> {
        match self {
            Self::Twice(place) | Self::CrashAfter(place) | Self::StaleToken(place) => Some(place),
            Self::OutOfOrder => None,
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct Played {
    /// Everything that the handler changed, as text.
    effects: BTreeMap<String, String>,
    seen: Seen,
    arrived: Vec<usize>,
}

impl Played {
    /// Returns the findings of a run without faults.
    pub(super) fn alone(&self, lane: &Lane) -> Vec<Finding> {
        let at = |id: &String| name(lane, id);
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

    /// Returns the findings of a run with `mishap`, compared with `first`.
    pub(super) fn beside(&self, first: &Self, lane: &Lane, mishap: Mishap) -> Vec<Finding> {
        let alone = self.alone(lane);
        if !alone.is_empty() {
            return alone;
        }
        let at = mishap.place().map(|place| name(lane, &place.to_string())).unwrap_or_default();
        if self.seen.goes_on_late {
            return vec![Finding::NotApplied { at, error: "under an old token it goes on for ever".into() }];
        }
        let Some(differs) = self.differs(first) else { return Vec::new() };
        vec![match mishap {
            Mishap::Twice(_) | Mishap::CrashAfter(_) => Finding::AppliedTwice { at, differs },
            Mishap::StaleToken(_) => Finding::NotFenced { at, differs },
            Mishap::OutOfOrder => {
                let arrived = self.arrived.iter().map(|place| lane.events[*place].topic.clone()).collect();
                Finding::DependsOnOrder { arrived, differs }
            }
        }]
    }

    /// Describes the first effect that differs from `first`.
    fn differs(&self, first: &Self) -> Option<String> {
        let nothing = || "nothing".to_owned();
        let keys = self.effects.keys().chain(first.effects.keys());
        keys.into_iter().find(|key| self.effects.get(*key) != first.effects.get(*key)).map(|key| {
            let (is, should) = (self.effects.get(key).cloned(), first.effects.get(key).cloned());
            format!("{key} is {}, and should be {}", is.unwrap_or_else(nothing), should.unwrap_or_else(nothing))
        })
    }
}

fn name(lane: &Lane, id: &str) -> String {
    let place: usize = id.parse().unwrap_or_default();
    format!("delivery {place} ({})", lane.events[place].topic)
}

/// Runs the lane with its events in the order of `arrive`.
pub(super) fn play<H: Handler>(
    lane: &Lane,
    arrive: &[usize],
    mishap: Option<Mishap>,
    handler: &impl Fn(&Outside) -> H,
) -> Played {
    let outside = Outside::default();
    let handler = handler(&outside);
    // On a thread of its own, because the caller may be inside a runtime.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.expect("a runtime can be made").block_on(Play::new(lane, arrive, mishap, handler, &outside).run())
        });
        run.join().expect("the kit does not panic")
    })
}

struct Play<'a, H> {
    lane: &'a Lane,
    arrive: &'a [usize],
    mishap: Option<Mishap>,
    outside: &'a Outside,
    memory: Arc<MemoryTable>,
    env: Env,
    seen: Arc<Mutex<Seen>>,
    handler: Arc<H>,
    sources: Arc<Sources>,
}

impl<'a, H: Handler> Play<'a, H> {
    fn new(lane: &'a Lane, arrive: &'a [usize], mishap: Option<Mishap>, handler: H, outside: &'a Outside) -> Self {
        let deliver = if lane.up_to > 1 { format!("deliver = {{ up_to = {} }}\n", lane.up_to) } else { String::new() };
        let sources = format!(
            "[sources.kit]\nprovider = \"standard-webhooks\"\nsecrets = [\"whsec_c2VjcmV0\"]\nhandler = \"kit\"\n\
             handler_timeout = \"10s\"\nretry = {{ attempts = 3, first = \"1s\" }}\n{deliver}"
        );
        Self {
            lane,
            arrive,
            mishap,
            outside,
            memory: outside.memory.clone(),
            env: clock::env(lane.seed),
            seen: Arc::default(),
            handler: Arc::new(handler),
            sources: Arc::new(Sources::parse(&sources).expect("the kit's own sources are right")),
        }
    }

    async fn run(self) -> Played {
        let inbox =
            Inbox::new(self.store(self.memory.clone()), self.waker(), RETENTION, Arc::new(Watching(self.seen.clone())));
        let again = match self.mishap {
            Some(Mishap::Twice(place)) => Some(place),
            _ => None,
        };
        for place in self.arrive.iter().copied().chain(again) {
            inbox.append(&self.incoming(place)).await.expect("memory takes it");
        }
        let late = self.first_worker().await;
        self.drain(&Arc::new(Guest::of(&self.handler, &self.seen))).await;
        if let Some((thaws, late)) = late {
            thaws.send_replace(true);
            // Its lease has ended, so its commit is refused.
            let aborts = late.abort_handle();
            if self.env.within(LATEST, late).await.is_none() {
                aborts.abort();
                locked(&self.seen).goes_on_late = true;
            }
        }
        let mut effects: BTreeMap<String, String> = self.outside.told();
        for (key, row) in self.memory.named() {
            let text = row.into_iter().map(|(name, value)| format!("{name} {value:?}")).collect::<Vec<_>>().join(", ");
            effects.insert(format!("row {key}"), text);
        }
        let seen = locked(&self.seen).clone();
        Played { effects, seen, arrived: self.arrive.to_vec() }
    }

    /// Runs the first worker if the fault kills or freezes one. Returns the signal that
    /// unfreezes its handler, and its task.
    async fn first_worker(&self) -> Option<(watch::Sender<bool>, JoinHandle<()>)> {
        let (place, freezes) = match self.mishap? {
            Mishap::CrashAfter(place) => (place, false),
            Mishap::StaleToken(place) => (place, true),
            Mishap::Twice(_) | Mishap::OutOfOrder => return None,
        };
        let table = Arc::new(Mortal::new(self.memory.clone()));
        let (thaws, thawed) = watch::channel(false);
        let late = Arc::new(Mutex::new(None));
        let dies = Dies {
            at: place.to_string(),
            table: table.clone(),
            frozen: freezes.then(|| (thawed, late.clone())),
            env: self.env.clone(),
        };
        let guest = Arc::new(Guest::of(&self.handler, &self.seen).who(dies));
        let drainer = self.drainer(table.clone(), &guest);
        for _ in 0..LOOKS {
            let _ = self.env.within(Duration::from_secs(60), self.process(&drainer)).await;
            if table.is_dead() {
                break;
            }
            // Another worker may have left nothing to do.
            let Some(wait) = self.next_look().await else { break };
            self.env.sleep(wait).await;
        }
        let late = locked(&late).take();
        late.map(|late| (thaws, late))
    }

    async fn drain(&self, guest: &Arc<Guest<H>>) {
        let drainer = self.drainer(self.memory.clone(), guest);
        for _ in 0..LOOKS {
            self.process(&drainer).await;
            let Some(wait) = self.next_look().await else { return };
            self.env.sleep(wait).await;
        }
        let mut seen = locked(&self.seen);
        seen.not_applied = seen.not_applied.take().or_else(|| seen.failed.clone());
    }

    /// Returns the time until the next poll; `None` if nothing waits.
    async fn next_look(&self) -> Option<Duration> {
        let store = self.store(self.memory.clone());
        let state = store.entity(&self.lane.entity, Duration::from_secs(1)).await.expect("memory answers")?;
        let retry = state.retry_at.map_or(Duration::ZERO, |at| at.since(self.env.now()));
        (!state.is_empty() || state.held.is_some()).then_some(retry.max(BETWEEN))
    }

    async fn process(&self, drainer: &Drainer) {
        let received = Received { entity: self.lane.entity.clone(), times: 1 };
        let deadline = self.env.monotonic() + Duration::from_secs(60);
        drainer.process(&received, deadline, &SuspectGate::new(1)).await;
    }

    fn drainer(&self, table: Arc<dyn Table>, guest: &Arc<Guest<H>>) -> Drainer {
        let settings = DrainSettings { retention: RETENTION, ..DrainSettings::default() };
        let observer = Arc::new(Watching(self.seen.clone()));
        let info = HolderInfo::new("the kit");
        let (store, waker) = (self.store(table), self.waker());
        Drainer::new(store, waker, self.sources.clone(), guest.clone(), settings, info, observer)
            .isolated(Isolation::Inline)
    }

    fn store(&self, table: Arc<dyn Table>) -> Store {
        Store::new(table, self.env.clone())
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::new(Nowhere), self.env.clone())
    }

    fn incoming(&self, place: usize) -> Incoming {
        let Event { topic, body, at, provider } = &self.lane.events[place];
        let source = SourceName::parse("kit").expect("a name");
        Incoming {
            entity: self.lane.entity.clone(),
            identity: Identity { source, delivery_id: DeliveryId::new(place.to_string()), redrive: 0 },
            provider: provider.clone(),
            topic: topic.clone(),
            family: topic.split('/').next().unwrap_or_default().to_owned(),
            event_time: Some(at.unwrap_or(HAPPENED + Duration::from_secs(60 * place as u64))),
            received_at: self.env.now(),
            content_type: Some("application/json".into()),
            body: body.clone(),
        }
    }
}

/// A queue that drops messages: the kit polls instead.
struct Nowhere;

impl Queue for Nowhere {
    fn send<'a>(&'a self, _: &'a Message, _: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        ready(Ok(())).boxed()
    }
}
