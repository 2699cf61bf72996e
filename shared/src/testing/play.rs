//! One run of a lane: appended, drained by workers that may die or freeze, until
//! nothing waits.

use std::{
    collections::BTreeMap,
    future::Future,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{self, Poll},
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, ready},
};
use tokio::{sync::watch, task::JoinHandle, time::Instant as VirtualInstant};

use super::{Event, Finding, Lane, Outside, outside::frozen};
use crate::{
    engine::{
        append::Inbox,
        drain::{DrainSettings, Drainer, Quarantine, Received},
        queue::{Message, Queue, QueueError},
        store::Store,
        wake::Waker,
    },
    handler::{Context, Deliveries, Handler, HandlerError, Isolation, Outcome},
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{DeliveryId, Identity, SourceName},
        memory::MemoryTable,
        receipt::Settlement,
        state::HolderInfo,
        table::{Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName, Transacted, Write, Written},
    },
    sources::Sources,
    telemetry::{self, Observer},
    time::{Clock, SeededRandom, Surroundings, Timestamp},
};

/// When every run begins.
const BEGINS: Timestamp = Timestamp::from_secs(1_767_225_600);

/// How long a handler may keep its thread at a stretch, by the machine's clock.
const AT_A_STRETCH: Duration = Duration::from_millis(200);

/// More looks than any retry policy of the kit takes.
const LOOKS: u32 = 500;

/// What goes wrong in a run.
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

/// How a run ended.
#[derive(Debug)]
pub(super) struct Played {
    /// Everything that a handler changed, in words.
    effects: BTreeMap<String, String>,
    seen: Seen,
    arrived: Vec<usize>,
}

/// What was seen on the way.
#[derive(Debug, Default, Clone)]
struct Seen {
    panics: Option<String>,
    blocks: Option<String>,
    /// What was set aside, and the last error of it.
    parked: Option<String>,
    error: String,
}

impl Played {
    /// What is wrong without any mishap.
    pub(super) fn alone(&self, lane: &Lane) -> Vec<Finding> {
        let at = |id: &String| name(lane, id);
        let mut findings = Vec::new();
        findings.extend(self.seen.panics.as_ref().map(|id| Finding::Panics { at: at(id) }));
        findings.extend(self.seen.blocks.as_ref().map(|id| Finding::Blocks { at: at(id) }));
        if self.seen.panics.is_none() {
            let error = || self.seen.error.clone();
            findings.extend(self.seen.parked.as_ref().map(|id| Finding::NotApplied { at: at(id), error: error() }));
        }
        findings
    }

    /// What is wrong with a mishap that `first` had not.
    pub(super) fn beside(&self, first: &Self, lane: &Lane, mishap: Mishap) -> Vec<Finding> {
        let alone = self.alone(lane);
        if !alone.is_empty() {
            return alone;
        }
        let Some(differs) = self.differs(first) else { return Vec::new() };
        let at = mishap.place().map(|place| name(lane, &place.to_string())).unwrap_or_default();
        vec![match mishap {
            Mishap::Twice(_) | Mishap::CrashAfter(_) => Finding::AppliedTwice { at, differs },
            Mishap::StaleToken(_) => Finding::NotFenced { at, differs },
            Mishap::OutOfOrder => {
                let arrived = self.arrived.iter().map(|place| lane.events[*place].topic.clone()).collect();
                Finding::DependsOnOrder { arrived, differs }
            }
        }]
    }

    /// The first effect that is not as in `first`.
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

/// Plays the lane, its events in the order of `arrive`.
pub(super) fn play<H: Handler>(
    lane: &Lane,
    arrive: &[usize],
    mishap: Option<Mishap>,
    handler: &impl Fn(&Outside) -> H,
) -> Played {
    let outside = Outside::default();
    let handler = handler(&outside);
    // A thread of its own: whoever asks may be in a runtime already.
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
    surroundings: Surroundings,
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
            surroundings: Surroundings::new(Virtual(VirtualInstant::now()), SeededRandom::new(lane.seed)),
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
            // What it would commit is refused: its lease is over.
            let _ = late.await;
        }
        let mut effects: BTreeMap<String, String> = self.outside.told();
        for (table, row) in self.memory.named() {
            let text = row.into_iter().map(|(name, value)| format!("{name} {value:?}")).collect::<Vec<_>>().join(", ");
            let key = effects.len();
            effects.insert(format!("row {key} of table {table}"), text);
        }
        let seen = locked(&self.seen).clone();
        Played { effects, seen, arrived: self.arrive.to_vec() }
    }

    /// The worker that dies, or freezes, where one does: what thaws its handler, and
    /// that.
    async fn first_worker(&self) -> Option<(watch::Sender<bool>, JoinHandle<()>)> {
        let (place, freezes) = match self.mishap? {
            Mishap::CrashAfter(place) => (place, false),
            Mishap::StaleToken(place) => (place, true),
            Mishap::Twice(_) | Mishap::OutOfOrder => return None,
        };
        let table = Arc::new(Mortal { inner: self.memory.clone(), died: AtomicBool::new(false) });
        let (thaws, thawed) = watch::channel(false);
        let late = Arc::new(Mutex::new(None));
        let dies = Dies {
            at: place.to_string(),
            table: table.clone(),
            frozen: freezes.then(|| (thawed, late.clone())),
            surroundings: self.surroundings.clone(),
        };
        let guest = Arc::new(Guest { dies: Some(dies), ..Guest::of(&self.handler, &self.seen) });
        let drainer = self.drainer(table.clone(), &guest);
        for _ in 0..LOOKS {
            let _ = self.surroundings.within(Duration::from_secs(60), self.attend(&drainer)).await;
            // Or it had nothing of the kind to do.
            if table.died.load(Relaxed) || self.nothing_waits().await {
                break;
            }
            self.surroundings.sleep(Duration::from_secs(20)).await;
        }
        let late = locked(&late).take();
        late.map(|late| (thaws, late))
    }

    async fn drain(&self, guest: &Arc<Guest<H>>) {
        let drainer = self.drainer(self.memory.clone(), guest);
        for _ in 0..LOOKS {
            self.attend(&drainer).await;
            if self.nothing_waits().await {
                return;
            }
            self.surroundings.sleep(Duration::from_secs(20)).await;
        }
    }

    async fn nothing_waits(&self) -> bool {
        let store = self.store(self.memory.clone());
        let state = store.entity(&self.lane.entity, Duration::from_secs(1)).await.expect("memory answers");
        state.is_none_or(|state| state.is_empty() && state.held.is_none())
    }

    async fn attend(&self, drainer: &Drainer) {
        let received = Received { entity: self.lane.entity.clone(), times: 1 };
        let deadline = self.surroundings.monotonic() + Duration::from_secs(60);
        drainer.attend(&received, deadline, &Quarantine::of(1)).await;
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
        Store::new(table, self.surroundings.clone())
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::new(Nowhere), self.surroundings.clone())
    }

    fn incoming(&self, place: usize) -> Incoming {
        let Event { topic, body, at } = &self.lane.events[place];
        let source = SourceName::parse("kit").expect("a name");
        Incoming {
            entity: self.lane.entity.clone(),
            identity: Identity { source, delivery_id: DeliveryId::new(place.to_string()), redrive: 0 },
            provider: None,
            topic: topic.clone(),
            family: topic.split('/').next().unwrap_or_default().to_owned(),
            event_time: Some(at.unwrap_or(BEGINS + Duration::from_secs(60 * place as u64))),
            received_at: self.surroundings.now(),
            content_type: Some("application/json".into()),
            body: body.clone(),
        }
    }
}

const RETENTION: Duration = Duration::from_secs(30 * 86_400);

/// The handler, watched; in a worker that dies, or not.
struct Guest<H> {
    handler: Arc<H>,
    seen: Arc<Mutex<Seen>>,
    dies: Option<Dies>,
}

struct Dies {
    /// At which delivery.
    at: String,
    table: Arc<Mortal>,
    /// In the middle, and goes on later: when, and where that is put.
    frozen: Option<(watch::Receiver<bool>, Late)>,
    surroundings: Surroundings,
}

type Late = Arc<Mutex<Option<JoinHandle<()>>>>;

impl<H: Handler> Guest<H> {
    fn of(handler: &Arc<H>, seen: &Arc<Mutex<Seen>>) -> Self {
        Self { handler: handler.clone(), seen: seen.clone(), dies: None }
    }

    async fn watched(
        &self,
        id: &str,
        work: impl Future<Output = Result<Outcome, HandlerError>>,
    ) -> Result<Outcome, HandlerError> {
        let mut longest = Duration::ZERO;
        let ended = Stretch { work: pin!(AssertUnwindSafe(work).catch_unwind()), longest: &mut longest }.await;
        let mut seen = locked(&self.seen);
        match ended {
            // To tell of a panic takes its time.
            Err(_) => {
                seen.panics.get_or_insert_with(|| id.to_owned());
                Ok(Outcome::retry("the handler panicked"))
            }
            Ok(answer) => {
                if longest > AT_A_STRETCH {
                    seen.blocks.get_or_insert_with(|| id.to_owned());
                }
                answer
            }
        }
    }

    /// Runs `work`, in a worker that may die of it.
    async fn in_its_worker(
        &self,
        deliveries: &Deliveries,
        context: &Context,
        work: impl Future<Output = Result<Outcome, HandlerError>>,
    ) -> Result<Outcome, HandlerError> {
        let last = deliveries.last().delivery_id().to_string();
        let is_there = |dies: &&Dies| deliveries.iter().any(|one| one.delivery_id().as_str() == dies.at);
        // A group that the handler does not take is tried one by one.
        let takes = deliveries.len() == 1 || Handler::handles_all(&*self.handler, context.handler());
        let Some(dies) = self.dies.as_ref().filter(is_there).filter(|_| takes) else {
            return self.watched(&last, work).await;
        };
        if let Some((thawed, late)) = &dies.frozen {
            let (handler, deliveries) = (self.handler.clone(), deliveries.clone());
            // Its process stands still, and so does its clock: nobody cancels it.
            let context = Context::detached(context.token(), context.time_left(), dies.surroundings.clone());
            let work = async move {
                let work = async {
                    match &deliveries.0[..] {
                        [delivery] => handler.handle(delivery, &context).await,
                        _ => handler.handle_all(deliveries.clone(), &context).await,
                    }
                };
                let _ = AssertUnwindSafe(work).catch_unwind().await;
            };
            *locked(late) = Some(tokio::spawn(frozen(thawed.clone(), work)));
        } else {
            let answer = self.watched(&last, work).await;
            if !matches!(answer, Ok(Outcome::Done | Outcome::Commit(_))) {
                return answer;
            }
        }
        dies.table.died.store(true, Relaxed);
        std::future::pending().await
    }
}

impl<H: Handler> Handler for Guest<H> {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let deliveries = Deliveries::detached([delivery.clone()]);
        self.in_its_worker(&deliveries, context, Handler::handle(&*self.handler, delivery, context)).await
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        let work = Handler::handle_all(&*self.handler, deliveries.clone(), context);
        self.in_its_worker(&deliveries, context, work).await
    }

    fn handles_all(&self, name: &str) -> bool {
        Handler::handles_all(&*self.handler, name)
    }
}

/// How long the longest poll took.
struct Stretch<'a, F> {
    work: Pin<&'a mut F>,
    longest: &'a mut Duration,
}

impl<F: Future> Future for Stretch<'_, F> {
    type Output = F::Output;

    #[expect(clippy::disallowed_methods, reason = "a handler that blocks takes the machine's own time")]
    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        let began = Instant::now();
        let polled = self.work.as_mut().poll(context);
        *self.longest = (*self.longest).max(began.elapsed());
        polled
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no one panics while holding this")
}

/// Sees what became of the deliveries.
#[derive(Debug)]
struct Watching(Arc<Mutex<Seen>>);

impl Observer for Watching {
    fn observe(&self, event: &telemetry::Event<'_>) {
        let mut seen = locked(&self.0);
        match event {
            telemetry::Event::Failed { error, .. } => seen.error = (*error).to_owned(),
            telemetry::Event::Settled { settlement: Settlement::Parked, delivery: Some(delivery), .. } => {
                seen.parked.get_or_insert_with(|| delivery.delivery_id().to_string());
            }
            _ => {}
        }
    }
}

/// A table that answers until its worker has died.
struct Mortal {
    inner: Arc<MemoryTable>,
    died: AtomicBool,
}

impl Mortal {
    fn answer<'a, T: Send + 'a>(&self, answer: impl FnOnce() -> BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        if self.died.load(Relaxed) { std::future::pending().boxed() } else { answer() }
    }
}

impl Table for Mortal {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        self.answer(|| self.inner.write(write))
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        self.answer(|| self.inner.transact(writes, token))
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        self.answer(|| self.inner.get(key))
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        self.answer(|| self.inner.get_many(keys))
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        self.answer(|| self.inner.query(range))
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        self.answer(|| self.inner.scan(table, segment))
    }
}

/// A queue that forgets: the kit looks by itself.
struct Nowhere;

impl Queue for Nowhere {
    fn send<'a>(&'a self, _: &'a Message, _: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        ready(Ok(())).boxed()
    }
}

/// The runtime's paused clock.
struct Virtual(VirtualInstant);

impl Clock for Virtual {
    fn now(&self) -> Timestamp {
        BEGINS + Duration::from_secs(86_400) + self.0.elapsed()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep_until(VirtualInstant::now() + duration).boxed()
    }
}
