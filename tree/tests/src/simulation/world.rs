//! The world of one run: true time, the rows, who did what when, and which
//! misfortunes are allowed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt;
use shared::{
    entity::{DeliveryId, EntityKey, Identity, SourceName},
    rows::{LeaseKind, attribute as a, entity_row},
    table::{Row, Table, TableError, TableName, Transacted, Write, Written, memory::MemoryTable},
};

use super::{
    Plan,
    chance::{Dice, Twist, actor},
    jobs,
    mutation::Mutation,
    queue::SimulatedQueue,
};

/// The true time at which every run begins.
pub const EPOCH: u64 = 1_800_000_000_000;

/// How far nodes' clocks are off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skew {
    /// Not at all.
    None,
    /// By seconds, at the right rate.
    Seconds,
    /// By seconds, and up to twice too fast or too slow.
    Rates,
    /// By up to a quarter of an hour, at any of these rates.
    Minutes,
    /// By up to a day, at any of these rates.
    Days,
    /// Not at all; ingests run at half the rate, workers at twice.
    SlowIngests,
}

/// What kind of misfortune a run has, and how much of it; in thousandths.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Entities.
    pub entities: u64,
    /// Deliveries in each round.
    pub deliveries: u64,
    /// Worker slots.
    pub workers: u64,
    /// How long deliveries keep coming, in each round.
    pub lasts: Duration,
    /// Rounds, with weeks of idleness between two of them.
    pub rounds: u64,
    /// Clocks.
    pub skew: Skew,
    /// Calls of the table that go wrong.
    pub table: u64,
    /// Calls of the queue that go wrong.
    pub queue: u64,
    /// Messages that come twice, or again after they were deleted.
    pub copies: u64,
    /// Copies whose receive count says that they are none.
    pub dishonest: u64,
    /// Pieces of a worker's work that end in a crash.
    pub crash: u64,
    /// Appends that end in a crash.
    pub ingest_crash: u64,
    /// Pieces of work that are frozen for a while.
    pub freeze: u64,
    /// Handler starts that do not go well.
    pub handler: u64,
    /// Visits of exclusive holders in each round.
    pub exclusive: u64,
    /// Visits of the operator in each round.
    pub operator: u64,
    /// Whether there is a sweep while things go wrong.
    pub sweep: bool,
    /// A function's longest run.
    pub function: Duration,
    /// Writes of rows that reach the store long after they were given up.
    pub late: u64,
    /// Claims that land and are not heard of.
    pub claims: u64,
    /// First puts of a delivery that go astray.
    pub puts: u64,
    /// After how long a deleted message comes again, at most.
    pub again: Duration,
    /// How many milliseconds a worker that is to crash or freeze goes on
    /// before, at most; one of these.
    pub lives: [u64; 4],
}

impl Profile {
    /// With what the counterexample to `mutation` needs, and little else:
    /// several misfortunes that must meet.
    fn focused(self, mutation: Mutation) -> Self {
        // Wake-ups that come again after they were deleted, as if for the first time, into the hands
        // of workers that crash.
        let copied = Self {
            entities: 2,
            deliveries: 32,
            rounds: 1,
            copies: 500,
            dishonest: 1000,
            crash: 400,
            ingest_crash: 0,
            freeze: 0,
            exclusive: 0,
            operator: 0,
            lasts: Duration::from_secs(100),
            late: 0,
            ..self
        };
        match mutation {
            Mutation::NoFreshForCopies => Self { dishonest: 0, ingest_crash: 400, ..copied },
            // A copy comes between a claim and its retry.
            Mutation::ClaimRetriedAsClean => Self {
                table: 0,
                queue: 0,
                handler: 0,
                skew: Skew::None,
                function: Duration::from_secs(8),
                claims: 400,
                copies: 1000,
                again: Duration::from_secs(4),
                lives: [300, 1000, 1000, 2000],
                ..copied
            },
            // A copy comes to a place that its ingest is slow to fill, and another delivery behind it.
            Mutation::ForgetAfterVoid => Self {
                table: 0,
                queue: 0,
                handler: 0,
                skew: Skew::SlowIngests,
                function: Duration::from_secs(14),
                deliveries: 60,
                puts: 600,
                copies: 1000,
                again: Duration::from_secs(6),
                lives: [3000, 4000, 5000, 6000],
                ..copied
            },
            // Without a crash, and without freezes that end in one, no lie about a copy is an excuse.
            Mutation::FailKeepsMessage => Self {
                entities: 3,
                copies: 800,
                again: Duration::from_secs(10),
                ingest_crash: 400,
                crash: 0,
                handler: 400,
                function: Duration::from_secs(30),
                ..copied
            },
            Mutation::ReleaseWithoutToken => Self {
                entities: 1,
                deliveries: 20,
                exclusive: 20,
                operator: 0,
                freeze: 500,
                crash: 0,
                handler: 0,
                copies: 0,
                lasts: Duration::from_secs(150),
                function: Duration::from_secs(30),
                sweep: false,
                ..self
            },
            Mutation::VoidUnconditionally => Self {
                entities: 1,
                deliveries: 32,
                freeze: 800,
                crash: 0,
                ingest_crash: 0,
                handler: 0,
                exclusive: 0,
                skew: Skew::Rates,
                lasts: Duration::from_secs(100),
                ..self
            },
            _ => self,
        }
    }

    fn of(seed: u64) -> Self {
        let mut roll = Dice::new(seed, actor::PROFILE).roll();
        let mut of = |these: &[u64]| roll.one_of(these);
        Self {
            entities: of(&[1, 1, 2, 3]),
            deliveries: of(&[6, 12, 20, 32]),
            workers: of(&[2, 3, 4]),
            lasts: Duration::from_secs(of(&[5, 20, 60, 150])),
            rounds: of(&[1, 1, 1, 1, 1, 2]),
            skew: [Skew::None, Skew::Seconds, Skew::Rates, Skew::Minutes, Skew::Days]
                [of(&[0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4]) as usize],
            table: of(&[0, 10, 30, 80, 200]),
            queue: of(&[0, 10, 50, 200]),
            copies: of(&[0, 50, 300]),
            dishonest: of(&[0, 0, 500]),
            crash: of(&[0, 50, 200, 400]),
            ingest_crash: of(&[0, 0, 50, 200]),
            freeze: of(&[0, 50, 200]),
            handler: of(&[0, 100, 300]),
            exclusive: of(&[0, 0, 2, 6]),
            operator: of(&[0, 2, 5]),
            sweep: of(&[0, 0, 1]) == 1,
            function: Duration::from_secs(of(&[8, 14, 30])),
            late: of(&[0, 0, 20, 100]),
            claims: 0,
            puts: 0,
            again: Duration::from_secs(20),
            lives: [30, 200, 1000, 5000],
        }
    }
}

/// One delivery, by its number and how often it was put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// Its number in the run.
    pub number: u32,
    /// Its redrive number.
    pub redrive: u32,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "D{}{}", self.number, "'".repeat(self.redrive as usize))
    }
}

/// What happened. Sequences and tokens are told from [`EPOCH`] on.
#[derive(Debug, Clone, Hash)]
#[expect(missing_docs, reason = "their texts are in Display")]
pub enum What {
    Booted { node: u32, offset: i64, rate_percent: u32 },
    Froze { node: u32 },
    Thawed { node: u32 },
    Crashed { node: u32 },
    DeadlineHit { node: u32 },
    Fault { node: u32, twist: Twist, how: &'static str, call: &'static str },
    Called { name: Name, entity: usize, node: u32 },
    Acked { name: Name, sequence: i64, woken: bool },
    NotAcked { name: Name },
    RowChanged { entity: usize, node: u32, how: &'static str, head: i64, tail: i64, token: i64 },
    Filled { entity: usize, sequence: i64, node: u32, void: bool },
    Received { node: u32, entity: usize, message: u64, times: u32 },
    Attended { node: u32, message: u64, kept: bool },
    WakeUp { node: u32, entity: usize, message: u64, delay: u64 },
    Started { name: Name, entity: usize, node: u32, token: i64, newest: i64 },
    Answered { name: Name, how: &'static str },
    Effect { entity: usize, token: i64, accepted: bool },
    Purged { entity: String, item: String },
    Operator { entity: usize, how: &'static str },
    Tick { node: u32, job: String, tick: u64, how: &'static str, token: i64 },
    Note { node: u32, text: &'static str },
    Phase { text: &'static str },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entity = |number: &usize| (b'a' + *number as u8) as char;
        match self {
            What::Booted { node, offset, rate_percent } => {
                write!(f, "node {node}: clock off by {offset} ms, running at {rate_percent} %")
            }
            What::Froze { node } => write!(f, "node {node}: FREEZES"),
            What::Thawed { node } => write!(f, "node {node}: thaws"),
            What::Crashed { node } => write!(f, "node {node}: CRASHES"),
            What::DeadlineHit { node } => write!(f, "node {node}: KILLED at its function's deadline"),
            What::Fault { node, twist, how, call } => write!(f, "node {node}: {call}: FAULT {how} ({twist})"),
            What::Called { name, entity: e, node } => {
                write!(f, "node {node}: append of {name} to {} begins", entity(e))
            }
            What::Acked { name, sequence, woken } => {
                write!(f, "{name}: answered 2xx, sequence {sequence}{}", if *woken { "" } else { ", no wake-up" })
            }
            What::NotAcked { name } => write!(f, "{name}: answered 503"),
            What::RowChanged { entity: e, node, how, head, tail, token } => {
                write!(f, "node {node}: {}: {how}: head {head} tail {tail} token {token}", entity(e))
            }
            What::Filled { entity: e, sequence, node, void } => {
                write!(f, "node {node}: {}/{sequence} {}", entity(e), if *void { "voided" } else { "filled" })
            }
            What::Received { node, entity: e, message, times } => {
                write!(f, "node {node}: receives wake-up #{message} of {}, time {times}", entity(e))
            }
            What::Attended { node, message, kept } => {
                write!(f, "node {node}: wake-up #{message} {}", if *kept { "kept" } else { "deleted" })
            }
            What::WakeUp { node, entity: e, message, delay } => {
                write!(f, "node {node}: wake-up #{message} of {} sent, to come in {delay} ms", entity(e))
            }
            What::Started { name, entity: e, node, token, newest } => {
                write!(f, "node {node}: {}: handler of {name} starts under {token} (newest {newest})", entity(e))
            }
            What::Answered { name, how } => write!(f, "handler of {name}: {how}"),
            What::Effect { entity: e, token, accepted } => {
                let verdict = if *accepted { "accepted" } else { "refused" };
                write!(f, "{}: effect of token {token} {verdict} by the receiver", entity(e))
            }
            What::Purged { entity, item } => write!(f, "TTL deletes {entity} {item}"),
            What::Operator { entity: e, how } => write!(f, "operator: {}: {how}", entity(e)),
            What::Tick { node, job, tick, how, token } => {
                write!(f, "node {node}: {job} {tick} {how}")?;
                if *token == 0 { Ok(()) } else { write!(f, ", token {token}") }
            }
            What::Note { node, text } => write!(f, "node {node}: {text}"),
            What::Phase { text } => write!(f, "---- {text}"),
        }
    }
}

/// One line of the trace.
#[derive(Debug, Clone, Hash)]
pub struct Entry {
    /// True time since the run began.
    pub at: Duration,
    /// What happened.
    pub what: What,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.3}  {}", self.at.as_secs_f64(), self.what)
    }
}

/// What was seen of one entity's row. The greatest numbers outlive the row.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Whether there is a row.
    pub present: bool,
    /// Its numbers.
    pub head: u64,
    /// The last one claimed.
    pub tail: u64,
    /// The newest token.
    pub token: u64,
    holder: Option<String>,
    /// The token of the newest grant.
    pub granted: u64,
}

/// One append, from its sender's side.
#[derive(Debug, Clone)]
pub struct Call {
    /// Of what.
    pub name: Name,
    /// Whose.
    pub entity: usize,
    /// When it was first called, as a position in the history.
    pub called: usize,
    /// When it was first answered, where it was; its place, and whether
    /// somebody was woken.
    pub acked: Vec<(usize, u64)>,
    /// Whether every answer came with a wake-up where one was owed.
    pub woken: bool,
    /// Whether a call of it ended without an answer.
    pub broken: bool,
}

/// One handler start.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Of what.
    pub name: Name,
    /// Whose.
    pub entity: usize,
    /// Its place.
    pub sequence: u64,
    /// Under which token.
    pub token: u64,
    /// The newest one at that moment.
    pub newest: u64,
    /// When, as a position in the history.
    pub at: usize,
    /// When, in true time.
    pub time: Duration,
    /// Whether it answered that it is done.
    pub done: bool,
}

/// How a sequence was decided.
#[derive(Debug, Clone)]
pub struct Decided {
    /// When, as a position in the history.
    pub at: usize,
    /// When, in true time.
    pub time: Duration,
    /// `applied`, `repeat`, `void` or `parked`.
    pub settlement: String,
    /// Of what.
    pub name: Option<Name>,
}

/// One effect that the receiver accepted: under which start's token, for which
/// place. `None`: an exclusive holder's.
#[derive(Debug, Clone, Copy)]
pub struct Landed {
    /// On which entity.
    pub entity: usize,
    /// The token of the start it comes from.
    pub token: u64,
    /// The place it is for.
    pub sequence: Option<u64>,
}

/// All that the auditor looks at.
#[derive(Debug, Default)]
pub struct History {
    /// By name.
    pub calls: BTreeMap<Name, Call>,
    /// In their order.
    pub starts: Vec<Start>,
    /// By entity and sequence.
    pub decided: BTreeMap<(usize, u64), Decided>,
    /// In their order.
    pub landed: Vec<Landed>,
    /// What was wrong the moment it happened.
    pub mistakes: Vec<String>,
    /// Entities at which only the sweep is sure to find what waits.
    pub excused: BTreeSet<usize>,
    /// Whether the write that lands now was given up by its sender.
    pub is_late: bool,
    /// Whether a worker died, or was killed at its deadline.
    pub died: bool,
    /// Entities with a claim to which there may be no wake-up.
    pub unwoken: BTreeSet<usize>,
    /// The token of the newest drain's lease on an empty inbox, by entity.
    pub idle: BTreeMap<usize, u64>,
    /// Entities of which a message received again was said to be new.
    pub lied: BTreeSet<usize>,
    /// By entity, how many workers have a wake-up of it at hand.
    pub attended: BTreeMap<usize, u32>,
    /// Entities that an operator is unblocking: the wake-up follows.
    pub unblocking: BTreeSet<usize>,
    /// What hashes stand for.
    pub names: BTreeMap<String, Name>,
    /// Starts of jobs' functions, in their order.
    pub tick_starts: Vec<jobs::TickStart>,
    /// Ticks as they were recorded, in their order.
    pub ticks_recorded: Vec<jobs::TickRecord>,
    /// How often something interesting was reached.
    pub reached: BTreeMap<&'static str, u32>,
}

impl History {
    /// Whether only the sweep is sure to find what waits at an entity. Rule 7
    /// goes by receive counts: where they lie and a worker dies, claims to which
    /// there is no wake-up are the sweep's, such as saw its lease among them. See
    /// "What is left to the sweep" in docs/protocol.md.
    pub fn leaves_to_sweep(&self, entity: usize) -> bool {
        let lied = self.died && self.lied.contains(&entity) && self.unwoken.contains(&entity);
        self.excused.contains(&entity) || lied
    }
}

#[derive(Debug, Default)]
struct Inner {
    trace: Vec<Entry>,
    twists: BTreeSet<Twist>,
    history: History,
    ledgers: BTreeMap<usize, Ledger>,
    /// The newest token that the receiver has seen, by entity.
    seen: BTreeMap<usize, u64>,
    /// Rows of entities as they were before their last change.
    before: BTreeMap<usize, (Duration, Option<Row>)>,
}

/// One run's world.
#[derive(Debug)]
pub struct World {
    /// What is run.
    pub plan: Plan,
    /// What kind of misfortune there is.
    pub profile: Profile,
    /// The beginning.
    pub start: tokio::time::Instant,
    /// The rows.
    pub rows: MemoryTable,
    /// The wake-ups.
    pub queue: SimulatedQueue,
    active: AtomicBool,
    /// Pieces of work under way.
    pub busy: AtomicU32,
    inner: Mutex<Inner>,
}

/// Counts a piece of work as under way until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<World>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

/// The key of entity number `number`.
pub fn key(number: usize) -> EntityKey {
    EntityKey::parse(&format!("sim/{}", (b'a' + number as u8) as char)).expect("a key")
}

/// Whether a row of that key is a job's, and no entity's of ours.
pub fn is_job(key: &str) -> bool {
    key.starts_with("cron/")
}

fn number_of(key: &str) -> usize {
    key.as_bytes().get(4).map_or(25, |letter| usize::from(letter.saturating_sub(b'a')))
}

/// The number of the entity of that key.
pub fn entity_number(key: &EntityKey) -> usize {
    number_of(key.as_str())
}

/// As told in traces.
pub fn told(number: u64) -> i64 {
    number as i64 - EPOCH as i64
}

impl World {
    /// The world of `plan`.
    pub fn new(plan: Plan) -> Arc<Self> {
        let profile = Profile::of(plan.seed);
        let profile = match plan.focus {
            Some(mutation) => profile.focused(mutation),
            None => profile,
        };
        Arc::new(Self {
            profile,
            start: tokio::time::Instant::now(),
            rows: MemoryTable::new(),
            queue: SimulatedQueue::default(),
            active: AtomicBool::new(false),
            busy: AtomicU32::new(0),
            inner: Mutex::default(),
            plan,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no one panics while holding this")
    }

    /// True time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// True wall-clock time, in milliseconds since 1970.
    pub fn true_millis(&self) -> u64 {
        EPOCH + self.elapsed().as_millis() as u64
    }

    /// Whether things go wrong at this time.
    pub fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Lets things go wrong, or not any more.
    pub fn set_active(&self, active: bool) {
        self.active.store(active, Relaxed);
    }

    /// Whether `twist` may happen in this run. It is noted as one that did.
    pub fn may(&self, twist: Twist) -> bool {
        let may = self.plan.allowed.as_ref().is_none_or(|allowed| allowed.contains(&twist));
        if may {
            self.inner().twists.insert(twist);
        }
        may
    }

    /// A piece of work begins.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Relaxed);
        Busy(self.clone())
    }

    /// Writes a line of the trace; its position.
    pub fn tell(&self, what: What) -> usize {
        let at = self.elapsed();
        let mut inner = self.inner();
        inner.trace.push(Entry { at, what });
        inner.trace.len() - 1
    }

    /// Looks at or adds to the history.
    pub fn with_history<T>(&self, act: impl FnOnce(&mut History) -> T) -> T {
        act(&mut self.inner().history)
    }

    /// What must not be.
    pub fn mistake(&self, text: String) {
        self.inner().history.mistakes.push(text);
    }

    /// Something interesting happened.
    pub fn reach(&self, what: &'static str) {
        *self.inner().history.reached.entry(what).or_default() += 1;
    }

    /// What was seen of an entity.
    pub fn ledger(&self, entity: usize) -> Ledger {
        self.inner().ledgers.get(&entity).cloned().unwrap_or_default()
    }

    /// The trace so far, the twists that happened, the trace's hash.
    pub fn close(&self) -> (Vec<Entry>, BTreeSet<Twist>, u64) {
        let mut inner = self.inner();
        let mut hasher = DefaultHasher::new();
        inner.trace.hash(&mut hasher);
        (std::mem::take(&mut inner.trace), inner.twists.clone(), hasher.finish())
    }

    /// A handler is started.
    pub fn started(&self, name: Name, entity: usize, node: u32, sequence: u64, token: u64) -> usize {
        let newest = self.ledger(entity).token;
        let at = self.tell(What::Started { name, entity, node, token: told(token), newest: told(newest) });
        let mut inner = self.inner();
        inner.history.starts.push(Start {
            name,
            entity,
            sequence,
            token,
            newest,
            at,
            time: self.elapsed(),
            done: false,
        });
        inner.history.starts.len() - 1
    }

    /// An effect arrives at the receiver that remembers tokens: `claimed` is
    /// the token it carries, `token` that of the start it comes from.
    pub fn effect(&self, entity: usize, claimed: u64, token: u64, sequence: Option<u64>, remembers: bool) -> bool {
        let mut inner = self.inner();
        let seen = inner.seen.entry(entity).or_default();
        let accepted = claimed >= *seen || !remembers;
        *seen = claimed.max(*seen);
        if accepted {
            inner.history.landed.push(Landed { entity, token, sequence });
        }
        drop(inner);
        if !accepted {
            self.reach("a late effect is refused");
        }
        self.tell(What::Effect { entity, token: told(token), accepted });
        accepted
    }

    /// A new name: who it is, by its hash.
    pub fn introduce(&self, name: Name, identity: &Identity) {
        let hash = identity.hash().as_str().to_owned();
        self.inner().history.names.insert(hash, name);
    }

    /// Does a write in the store.
    pub fn write(&self, node: u32, write: &Write) -> Result<Written, TableError> {
        let before = (write.key.table == TableName::Entities).then(|| self.read(&write.key));
        let written = self.rows.write(write).now_or_never().expect("ready")?;
        if matches!(written, Written::Landed(_)) {
            self.landed(node, write, before.flatten());
        }
        Ok(written)
    }

    /// Does several writes together in the store.
    pub fn transact(&self, node: u32, writes: &[Write], token: &str) -> Result<Transacted, TableError> {
        let before: Vec<_> = writes.iter().map(|write| self.read(&write.key)).collect();
        let done = self.rows.transact(writes, token).now_or_never().expect("ready")?;
        if done == Transacted::Landed {
            for (write, before) in writes.iter().zip(before) {
                self.landed(node, write, before);
            }
        }
        Ok(done)
    }

    fn read(&self, key: &shared::table::Key) -> Option<Row> {
        self.rows.get(key).now_or_never().expect("ready").expect("memory answers")
    }

    fn landed(&self, node: u32, write: &Write, before: Option<Row>) {
        match write.key.table {
            TableName::Entities if is_job(&text_of(&write.key.partition.1)) => {
                // A transaction that is asked for again lands once.
                if self.read(&write.key) != before {
                    jobs::landed(self, node, write);
                }
            }
            TableName::Entities => {
                let entity = number_of(&text_of(&write.key.partition.1));
                if let Some(after) = self.read(&entity_row(&key(entity))) {
                    self.changed(node, entity, before, &after);
                }
            }
            TableName::Inbox => {
                let item = write.key.sort.as_ref().map(|(_, value)| text_of(value)).unwrap_or_default();
                if let (Some(sequence), shared::table::Action::Put(row)) = (item.strip_prefix("d#"), &write.action) {
                    let entity = number_of(&text_of(&write.key.partition.1));
                    let sequence = told(sequence.parse().unwrap_or(0));
                    let void = row.get(a::VOID).is_some();
                    if void {
                        self.reach("a place is voided");
                    }
                    self.tell(What::Filled { entity, sequence, node, void });
                }
            }
            TableName::Named(_) => {}
        }
    }

    /// Follows one change of an entity's row, and sees that its numbers only
    /// grow.
    fn changed(&self, node: u32, entity: usize, before: Option<Row>, row: &Row) {
        let number = |name| row.number(name).unwrap_or(0);
        let (head, tail, token) = (number(a::HEAD), number(a::TAIL), number(a::TOKEN));
        let holder = row.text(a::HOLDER).map(str::to_owned);
        let last = row.text(a::LAST_SETTLED).unwrap_or_default().to_owned();
        let old = self.ledger(entity);
        let was = before.as_ref();
        let how = match () {
            () if was.is_some() && old.head != head => "settled",
            () if holder.is_some() && holder != old.holder && old.holder.is_some() => "taken over",
            () if holder.is_some() && holder != old.holder => "acquired",
            () if old.tail != tail => "claimed",
            () if was.is_some_and(|was| was.get(a::BLOCKED).is_none()) && row.get(a::BLOCKED).is_some() => "blocked",
            () if holder.is_none() && old.holder.is_some() && old.token != token => "force released",
            () if holder.is_none() && old.holder.is_some() => "released",
            () if was.is_some_and(|was| was.get(a::EXPIRES_AT) != row.get(a::EXPIRES_AT)) => "renewed",
            () if was.is_some_and(|was| was.get(a::BLOCKED).is_some()) && row.get(a::BLOCKED).is_none() => "unblocked",
            () => "changed",
        };
        let at =
            self.tell(What::RowChanged { entity, node, how, head: told(head), tail: told(tail), token: told(token) });
        let mut mistakes = Vec::new();
        if old.tail > 0 {
            let newly = if old.present { "" } else { " in the new row" };
            if token < old.token {
                mistakes.push(format!("the token went back{newly}: {} to {}", told(old.token), told(token)));
            }
            if tail < old.tail || head < old.head {
                mistakes.push(format!("head or tail went back{newly}"));
            }
            if ["acquired", "taken over", "settled"].contains(&how) && token <= old.token {
                mistakes.push(format!("{how} without a greater token: {}", told(token)));
            }
            if old.present && head > old.head + 1 {
                mistakes.push(format!("head went from {} to {}", told(old.head), told(head)));
            }
        }
        if how == "claimed" && old.present && row.get(a::BLOCKED).is_none() {
            mistakes.extend(self.unseen(entity, old.head));
        }
        let drained = holder.is_some() && row.text(a::KIND) == Some(LeaseKind::Drain.as_str());
        self.with_history(|history| match how {
            // A lease that nobody has: see "What is left to the sweep" in docs/protocol.md.
            "acquired" | "taken over" if history.is_late => {
                history.excused.insert(entity);
            }
            // From a holder that vanished: a drain acquires no empty inbox.
            "taken over" if drained && head == tail => {
                history.idle.insert(entity, token);
            }
            // The wake-up of its second try is spent, or the one for which that lease was taken was a copy.
            "claimed" if history.is_late || (drained && history.idle.get(&entity) == Some(&token)) => {
                history.unwoken.insert(entity);
            }
            _ => {}
        });
        if head > tail {
            mistakes.push("head is beyond tail".into());
        }
        let mut inner = self.inner();
        let at_time = self.start.elapsed();
        inner.before.insert(entity, (at_time, before));
        let settled = how == "settled";
        if settled {
            let (settlement, hash) = last.split_once(' ').unwrap_or((&last, ""));
            let name = inner.history.names.get(hash).copied();
            let decided = Decided { at, time: at_time, settlement: settlement.into(), name };
            if inner.history.decided.insert((entity, head), decided).is_some() {
                mistakes.push(format!("sequence {} was decided twice", told(head)));
            }
        }
        let granted = if how == "acquired" || how == "taken over" { token } else { old.granted };
        inner.ledgers.insert(entity, Ledger { present: true, head, tail, token, holder, granted });
        let reached = match how {
            "taken over" | "force released" | "blocked" | "unblocked" => Some(how),
            "settled" if last.starts_with("repeat") => Some("a repeat is settled"),
            "settled" if last.starts_with("parked") => Some("a delivery is parked"),
            "settled" if row.get(a::HOLDER).is_some() => Some("settled and held on"),
            _ => None,
        };
        let name = (b'a' + entity as u8) as char;
        inner.history.mistakes.extend(mistakes.into_iter().map(|mistake| format!("{name}: {mistake} (node {node})")));
        drop(inner);
        if let Some(reached) = reached {
            self.reach(reached);
        }
    }

    /// A delivery that waits while no wake-up is left and nobody is at work: the
    /// next claim's own wake-up would hide it.
    fn unseen(&self, entity: usize, head: u64) -> Option<String> {
        let under_way = self.queue.holds(&key(entity));
        self.with_history(|history| {
            let attended = history.attended.get(&entity).is_some_and(|workers| *workers > 0);
            if under_way || attended || history.unblocking.contains(&entity) || history.leaves_to_sweep(entity) {
                return None;
            }
            let waits = |call: &&Call| call.entity == entity && call.acked.iter().any(|(_, sequence)| *sequence > head);
            let call = history.calls.values().find(waits)?;
            Some(format!("stuck: {} was answered 2xx and waits, and no wake-up is left to find it", call.name))
        })
    }

    /// An entity's row as a stale read may see it.
    pub fn stale(&self, row: Row) -> Option<Row> {
        let key = row.text(a::ENTITY).unwrap_or_default();
        if is_job(key) {
            return Some(row);
        }
        let entity = number_of(key);
        match self.inner().before.get(&entity) {
            Some((at, before)) if self.elapsed().saturating_sub(*at) < Duration::from_secs(3) => before.clone(),
            _ => Some(row),
        }
    }

    /// Deletes rows whose time has come, as DynamoDB TTL does: each with this
    /// chance.
    pub fn purge(&self, dice: &Dice, permille: u64) {
        let now = self.true_millis() / 1000;
        for table in [TableName::Entities, TableName::Inbox] {
            let gone = Mutex::new(Vec::new());
            self.rows.purge(&table, |row| {
                let due = row.number(a::PURGE_AT).is_some_and(|at| at <= now);
                if !due {
                    return false;
                }
                let mut roll = dice.roll();
                let goes = roll.happens(permille) && self.may(roll.twist);
                if goes {
                    let text = |name| row.text(name).unwrap_or_default().to_owned();
                    gone.lock().expect("one thread").push((text(a::ENTITY), text(a::ITEM)));
                }
                goes
            });
            for (entity, item) in gone.into_inner().expect("one thread") {
                self.reach(if item.is_empty() { "an entity's row is purged" } else { "an inbox row is purged" });
                if item.is_empty() {
                    let mut inner = self.inner();
                    let ledger = inner.ledgers.entry(number_of(&entity)).or_default();
                    ledger.present = false;
                    ledger.holder = None;
                }
                self.tell(What::Purged { entity, item });
            }
        }
    }
}

fn text_of(value: &shared::table::Value) -> String {
    match value {
        shared::table::Value::S(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// The identity of a delivery.
pub fn identity(name: Name, source: &'static str) -> Identity {
    Identity {
        source: SourceName::parse(source).expect("a source"),
        delivery_id: DeliveryId::new(name.number.to_string()),
        redrive: name.redrive,
    }
}
