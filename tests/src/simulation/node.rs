//! Nodes: a clock of their own, and a life that may be cut or frozen at any
//! await.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use futures_util::future::{BoxFuture, poll_fn};
use webhook_serializer::time::{Clock, Env, SeededRandom, Timestamp};

use super::{
    chance::{Dice, Roll, actor},
    history::What,
    profile::Skew,
    unwell::HeldBack,
    world::{EPOCH, World},
};

/// Waits by the world's clock.
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

/// Nodes below are workers.
const FIRST_INGEST: u32 = 50;

/// Whether the node of that number is a worker.
pub fn is_worker(number: u32) -> bool {
    number < FIRST_INGEST
}

/// One process: born with a clock and a chance of its own.
#[derive(Debug, Clone)]
pub struct Node {
    /// The world.
    pub world: Arc<World>,
    /// Its number, for the trace.
    pub number: u32,
    /// What befalls its calls.
    pub dice: Dice,
    /// Its clock and chance.
    pub env: Env,
    /// Which tables it knows: those that are lost do not answer any more.
    pub tables: u32,
    /// Which sources it holds back.
    pub held_back: HeldBack,
    killed: Arc<AtomicBool>,
}

/// The life of a place where nodes run: each crash is followed by a new node.
#[derive(Debug)]
pub struct Place {
    world: Arc<World>,
    number: u32,
    births: Dice,
    calls: Dice,
    fates: Dice,
}

impl Place {
    /// The place of that number.
    pub fn new(world: &Arc<World>, number: u32) -> Self {
        let of = |what| Dice::new(world.plan.seed, actor::NODE + number * 10 + what);
        Self { world: world.clone(), number, births: of(0), calls: of(1), fates: of(2) }
    }

    /// A new process.
    pub fn boot(&self) -> Node {
        let mut roll = self.births.roll();
        let random = roll.between(0, u64::MAX);
        let wild = self.world.is_active();
        let mut offset = |limit: i64| roll.between(0, 2 * limit as u64) as i64 - limit;
        let skew = self.world.profile.skew;
        let (offset, rate) = match skew {
            _ if !wild => (0, 1.0),
            Skew::None => (0, 1.0),
            Skew::Seconds => (offset(3000), 1.0),
            Skew::Rates => (offset(3000), [0.5, 0.8, 1.0, 1.0, 1.25, 2.0][roll.between(0, 5) as usize]),
            Skew::Minutes => (offset(900_000), [0.5, 1.0, 2.0][roll.between(0, 2) as usize]),
            Skew::Days => (offset(86_400_000), [0.5, 1.0, 2.0][roll.between(0, 2) as usize]),
            Skew::SlowIngests => (0, if self.number < FIRST_INGEST { 2.0 } else { 0.5 }),
        };
        let twisted = (offset, rate) == (0, 1.0) || self.world.may(roll.twist);
        let (offset, rate) = if twisted { (offset, rate) } else { (0, 1.0) };
        if (offset, rate) != (0, 1.0) {
            self.world.tell(What::Booted { node: self.number, offset, rate_percent: (rate * 100.0) as u32 });
        }
        let clock = NodeClock { start: self.world.start, born: self.world.elapsed(), offset, rate };
        Node {
            world: self.world.clone(),
            number: self.number,
            dice: self.calls.clone(),
            env: Env::new(clock, SeededRandom::new(random)),
            tables: self.world.tables(),
            held_back: HeldBack::default(),
            killed: Arc::default(),
        }
    }

    /// What is in store for the next piece of work here.
    pub fn fate(&self) -> Fate {
        self.fate_with(self.world.profile.crash, &self.world.profile.lives)
    }

    /// What is in store for one append.
    pub fn fate_of_append(&self) -> Fate {
        self.fate_with(self.world.profile.ingest_crash, &[30, 30, 30, 1000])
    }

    fn fate_with(&self, crash: u64, within: &[u64]) -> Fate {
        let mut roll = self.fates.roll();
        let mut fate = Fate::default();
        let profile = &self.world.profile;
        if !self.world.is_active() {
            return fate;
        }
        if roll.happens(crash) && self.world.may(roll.twist) {
            fate.crash = Some(after(&mut roll, within));
        } else if roll.happens(profile.freeze) && self.world.may(roll.twist) {
            let longest = roll.one_of(&[1_000, 3_500, 6_000, 12_000, 40_000]);
            fate.freeze = Some((after(&mut roll, within), roll.millis(300, longest)));
            fate.outlives_deadline = roll.happens(500);
        }
        fate
    }
}

/// Most lives are short.
fn after(roll: &mut Roll, within: &[u64]) -> Duration {
    let longest = roll.one_of(within);
    roll.millis(0, longest)
}

/// What happens to a node during one piece of work.
#[derive(Debug, Default)]
pub struct Fate {
    crash: Option<Duration>,
    freeze: Option<(Duration, Duration)>,
    /// Whether a frozen node is left alone at its function's deadline.
    pub outlives_deadline: bool,
}

enum Next {
    Crash,
    Freeze(Duration),
    Thaw,
    Nothing,
}

impl Node {
    /// Ends this process at its current await.
    pub fn kill(&self) {
        self.killed.store(true, Relaxed);
    }

    /// Does `work` under `fate`; `None`: the node did not live to its end.
    pub async fn live<F: Future>(&self, fate: &Fate, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let far = Duration::from_secs(86_400 * 365);
        let (first, mut next) = match (fate.crash, fate.freeze) {
            (Some(at), _) => (at, Next::Crash),
            (None, Some((at, length))) => (at, Next::Freeze(length)),
            (None, None) => (far, Next::Nothing),
        };
        let mut frozen = false;
        let mut alarm = Box::pin(pause(first));
        let ended = poll_fn(|cx| {
            if matches!(next, Next::Nothing) {
                return work.as_mut().poll(cx).map(Some);
            }
            while !matches!(next, Next::Nothing) && alarm.as_mut().poll(cx).is_ready() {
                next = match next {
                    Next::Crash => return Poll::Ready(None),
                    Next::Freeze(length) => {
                        frozen = true;
                        self.world.tell(What::Froze { node: self.number });
                        self.world.dies(self.number);
                        alarm = Box::pin(pause(length));
                        Next::Thaw
                    }
                    Next::Thaw | Next::Nothing => {
                        frozen = false;
                        self.world.tell(What::Thawed { node: self.number });
                        Next::Nothing
                    }
                };
            }
            if frozen { Poll::Pending } else { work.as_mut().poll(cx).map(Some) }
        });
        let mut ended = pin!(ended);
        let ended = poll_fn(|cx| {
            let polled = ended.as_mut().poll(cx);
            // A handler may have taken its process with it.
            if self.killed.load(Relaxed) { Poll::Ready(None) } else { polled }
        })
        .await;
        if ended.is_none() {
            self.world.tell(What::Crashed { node: self.number });
            self.world.dies(self.number);
        }
        ended
    }
}
