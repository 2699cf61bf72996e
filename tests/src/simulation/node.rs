//! Nodes: processes with their own clocks, which crash or freeze at any await.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use futures_util::future::{BoxFuture, poll_fn};
use webhook_serializer::time::{Clock, Env, SeededRandom, Timestamp};

use super::{
    destination::BreakerAudit,
    history::TraceEvent,
    profile::Skew,
    random::{Draw, RandomStream, actor},
    world::{EPOCH, SimulatedWorld},
};

#[expect(clippy::disallowed_methods, reason = "the simulation's own time, which tokio keeps")]
pub async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// A clock that is off by `offset` and runs at `rate`.
#[derive(Debug, Clone, Copy)]
struct NodeClock {
    start: tokio::time::Instant,
    born: Duration,
    offset: i64,
    rate: f64,
}

impl NodeClock {
    fn lived(&self) -> Duration {
        (self.start.elapsed().saturating_sub(self.born)).mul_f64(self.rate)
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let millis = EPOCH + (self.born + self.lived()).as_millis() as u64;
        Timestamp::from_millis(millis.saturating_add_signed(self.offset))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(1000) + self.lived()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(pause(duration.div_f64(self.rate)))
    }
}

const FIRST_INGEST: u32 = 50;

pub fn is_worker(number: u32) -> bool {
    number < FIRST_INGEST
}

#[derive(Debug, Clone)]
pub struct Node {
    pub world: Arc<SimulatedWorld>,
    pub number: u32,
    pub stream: RandomStream,
    pub env: Env,
    /// The generation of tables that the node knows. Lost tables do not answer.
    pub generation: u32,
    pub breakers: BreakerAudit,
    /// The visibility requests that are not answered yet.
    pub hiding: Arc<AtomicU32>,
    killed: Arc<AtomicBool>,
}

/// A slot in which one process runs at a time. After a crash, a new process runs in the slot.
#[derive(Debug)]
pub struct NodeSlot {
    world: Arc<SimulatedWorld>,
    number: u32,
    births: RandomStream,
    calls: RandomStream,
    failures: RandomStream,
}

impl NodeSlot {
    pub fn new(world: &Arc<SimulatedWorld>, number: u32) -> Self {
        let of = |what| RandomStream::new(world.plan.seed, actor::NODE + number * 10 + what);
        Self { world: world.clone(), number, births: of(0), calls: of(1), failures: of(2) }
    }

    pub fn boot(&self) -> Node {
        let mut draw = self.births.draw();
        let random = draw.between(0, u64::MAX);
        let wild = self.world.is_active();
        let mut offset = |limit: i64| draw.between(0, 2 * limit as u64) as i64 - limit;
        let skew = self.world.profile.skew;
        let dated = self.world.profile.dated;
        let (offset, rate) = match skew {
            _ if !wild => (0, 1.0),
            Skew::None => (0, 1.0),
            Skew::Seconds => (offset(3000), 1.0),
            Skew::Rates => (offset(3000), [0.5, 0.8, 1.0, 1.0, 1.25, 2.0][draw.between(0, 5) as usize]),
            Skew::Minutes if dated => (offset(900_000), 1.0),
            Skew::Days if dated => (offset(86_400_000), 1.0),
            Skew::Minutes => (offset(900_000), [0.5, 1.0, 2.0][draw.between(0, 2) as usize]),
            Skew::Days => (offset(86_400_000), [0.5, 1.0, 2.0][draw.between(0, 2) as usize]),
            Skew::SlowIngests => (0, if self.number < FIRST_INGEST { 2.0 } else { 0.5 }),
        };
        let twisted = (offset, rate) == (0, 1.0) || self.world.allows(draw.id);
        let (offset, rate) = if twisted { (offset, rate) } else { (0, 1.0) };
        if (offset, rate) != (0, 1.0) {
            self.world.trace(TraceEvent::Booted { node: self.number, offset, rate_percent: (rate * 100.0) as u32 });
        }
        let clock = NodeClock { start: self.world.start, born: self.world.elapsed(), offset, rate };
        Node {
            world: self.world.clone(),
            number: self.number,
            stream: self.calls.clone(),
            env: Env::new(clock, SeededRandom::new(random)),
            generation: self.world.generation(),
            breakers: BreakerAudit::default(),
            hiding: Arc::default(),
            killed: Arc::default(),
        }
    }

    pub fn worker_failure(&self) -> PlannedFailure {
        self.draw_failure(self.world.profile.crash, &self.world.profile.lives)
    }

    pub fn append_failure(&self) -> PlannedFailure {
        self.draw_failure(self.world.profile.ingest_crash, &[30, 30, 30, 1000])
    }

    fn draw_failure(&self, crash: u64, within: &[u64]) -> PlannedFailure {
        let mut draw = self.failures.draw();
        let mut failure = PlannedFailure::default();
        let profile = &self.world.profile;
        if !self.world.is_active() {
            return failure;
        }
        if draw.happens(crash) && self.world.allows(draw.id) {
            failure.crash = Some(after(&mut draw, within));
        } else if draw.happens(profile.freeze) && self.world.allows(draw.id) {
            let longest = draw.one_of(&[1_000, 3_500, 6_000, 12_000, 40_000]);
            failure.freeze = Some((after(&mut draw, within), draw.millis(300, longest)));
            failure.outlives_deadline = draw.happens(500);
        }
        failure
    }
}

fn after(draw: &mut Draw, within: &[u64]) -> Duration {
    let longest = draw.one_of(within);
    draw.millis(0, longest)
}

#[derive(Debug, Default)]
pub struct PlannedFailure {
    crash: Option<Duration>,
    freeze: Option<(Duration, Duration)>,
    /// The process outlives its function's deadline while it is frozen.
    pub outlives_deadline: bool,
}

enum NodeFault {
    Crash,
    Freeze(Duration),
    Thaw,
    Nothing,
}

impl Node {
    pub fn kill(&self) {
        self.killed.store(true, Relaxed);
    }

    /// Runs `work`; returns `None` if the process crashes before it is done.
    pub async fn run<F: Future>(&self, failure: &PlannedFailure, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let far = Duration::from_secs(86_400 * 365);
        let (first, mut next) = match (failure.crash, failure.freeze) {
            (Some(at), _) => (at, NodeFault::Crash),
            (None, Some((at, length))) => (at, NodeFault::Freeze(length)),
            (None, None) => (far, NodeFault::Nothing),
        };
        let mut frozen = false;
        let mut alarm = Box::pin(pause(first));
        let ended = poll_fn(|cx| {
            if matches!(next, NodeFault::Nothing) {
                return work.as_mut().poll(cx).map(Some);
            }
            while !matches!(next, NodeFault::Nothing) && alarm.as_mut().poll(cx).is_ready() {
                next = match next {
                    NodeFault::Crash => return Poll::Ready(None),
                    NodeFault::Freeze(length) => {
                        frozen = true;
                        self.world.trace(TraceEvent::Froze { node: self.number });
                        self.world.record_death(self.number);
                        let at = self.world.elapsed();
                        self.world.with_history(|history| history.freezes.push((self.number, at)));
                        alarm = Box::pin(pause(length));
                        NodeFault::Thaw
                    }
                    NodeFault::Thaw | NodeFault::Nothing => {
                        frozen = false;
                        self.world.trace(TraceEvent::Thawed { node: self.number });
                        NodeFault::Nothing
                    }
                };
            }
            if frozen { Poll::Pending } else { work.as_mut().poll(cx).map(Some) }
        });
        let mut ended = pin!(ended);
        let ended = poll_fn(|cx| {
            let polled = ended.as_mut().poll(cx);
            // The handler may have killed the process.
            if self.killed.load(Relaxed) { Poll::Ready(None) } else { polled }
        })
        .await;
        if ended.is_none() {
            self.world.trace(TraceEvent::Crashed { node: self.number });
            self.world.record_death(self.number);
        }
        ended
    }
}
