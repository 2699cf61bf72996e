//! Who did what when: the trace for people, the history for the auditor.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use webhook_serializer::protocol::entity::IdentityHash;

use super::{chance::Twist, jobs, reasons::Reasons, world::label};

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

/// What happened. Sequences and tokens are told from the run's beginning on.
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
    Deferred { name: Name },
    RowChanged { entity: usize, node: u32, how: &'static str, head: i64, tail: i64, token: i64 },
    Charged { entity: usize, node: u32, attempts: u64, token: i64, made: bool },
    Filled { entity: usize, sequence: i64, node: u32, void: bool },
    Received { node: u32, entity: usize, message: u64, times: u32 },
    Processed { node: u32, message: u64, kept: bool },
    WakeUp { node: u32, entity: usize, message: u64, delay: u64 },
    Started { name: Name, entity: usize, node: u32, token: i64, newest: i64 },
    Answered { name: Name, how: &'static str },
    Effect { entity: usize, token: i64, accepted: bool },
    Purged { entity: String, item: String },
    Operator { entity: usize, how: &'static str },
    Tick { node: u32, job: String, tick: u64, how: &'static str, token: i64 },
    Note { node: u32, text: &'static str },
    Outage { twist: Twist, what: &'static str, how: &'static str },
    Phase { text: &'static str },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entity = |number: &usize| label(*number);
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
            What::Deferred { name } => write!(f, "{name}: answered 202"),
            What::NotAcked { name } => write!(f, "{name}: answered 503"),
            What::RowChanged { entity: e, node, how, head, tail, token } => {
                write!(f, "node {node}: {}: {how}: head {head} tail {tail} token {token}", entity(e))
            }
            What::Charged { entity: e, node, attempts, token, made } => {
                let of = if *made { "" } else { ", WHERE NOTHING STARTED" };
                write!(f, "node {node}: {}: attempt {attempts} is charged, under {token}{of}", entity(e))
            }
            What::Filled { entity: e, sequence, node, void } => {
                write!(f, "node {node}: {}/{sequence} {}", entity(e), if *void { "voided" } else { "filled" })
            }
            What::Received { node, entity: e, message, times } => {
                write!(f, "node {node}: receives wake-up #{message} of {}, time {times}", entity(e))
            }
            What::Processed { node, message, kept } => {
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
            What::Outage { twist, what, how } => write!(f, "OUTAGE: {what} {how} ({twist})"),
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
    /// Who has its lease.
    pub holder: Option<String>,
    /// The token of the newest grant.
    pub granted: u64,
    /// The node that it was granted to.
    pub node: u32,
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
    /// Those of its answers whose places were lost with the tables.
    pub lost: Vec<(usize, u64)>,
    /// Whether every answer came with a wake-up where one was owed.
    pub woken: bool,
    /// Whether a call of it ended without an answer.
    pub broken: bool,
    /// Whether it was answered 202: it has its place once it is taken up.
    pub deferred: bool,
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
    /// The first place that the start is about: that of its group.
    pub first: u64,
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
    /// Whether the tables that its lease is in were lost by then.
    pub is_lost: bool,
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
    /// The last place that was decided with it.
    pub by: u64,
    /// It was to be run again, and stayed as it was.
    pub is_kept: bool,
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

/// An operator had what was applied of an entity run again.
#[derive(Debug, Clone, Copy)]
pub struct Rewound {
    /// Which entity.
    pub entity: usize,
    /// The first place.
    pub from: u64,
    /// The last one.
    pub through: u64,
    /// The newest token then: runs since have greater ones.
    pub token: u64,
    /// When, as a position in the history.
    pub at: usize,
}

/// An operator had all forgotten that is known of an entity's first places.
#[derive(Debug, Clone, Copy)]
pub struct Erased {
    /// Which entity.
    pub entity: usize,
    /// The last place that may be forgotten.
    pub through: u64,
    /// When, in true time.
    pub time: Duration,
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
    /// How places were decided that were run again since, in their order.
    pub decided_before: Vec<((usize, u64), Decided)>,
    /// What was decided in tables that were lost, and is in no copy of them.
    pub lost: Vec<((usize, u64), Decided)>,
    /// When they were lost, as a position in the history.
    pub lost_at: Option<usize>,
    /// Which delivery a handler was told to be at a place.
    pub at_places: BTreeMap<(usize, u64), Name>,
    /// What was run again, in its order.
    pub rewound: Vec<Rewound>,
    /// By entity, how often an operator wanted that, and how often it was done.
    pub rewinds: BTreeMap<usize, (u32, u32)>,
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
    /// By entity, how many operators are unblocking it: the wake-up follows.
    pub unblocking: BTreeMap<usize, u32>,
    /// What was erased, in its order.
    pub erased: Vec<Erased>,
    /// Why deliveries are set aside.
    pub reasons: Reasons,
    /// What hashes stand for.
    pub names: BTreeMap<IdentityHash, Name>,
    /// Starts of jobs' functions, in their order.
    pub tick_starts: Vec<jobs::TickStart>,
    /// Ticks of jobs that began since the copy of tables that were lost: it has no row
    /// of theirs, and so nothing that says they were run.
    pub ticks_forgotten: BTreeSet<(String, u64)>,
    /// Ticks as they were recorded, in their order.
    pub ticks_recorded: Vec<jobs::TickRecord>,
    /// Places of deliveries that were put back, or deferred.
    pub late: BTreeSet<(usize, u64)>,
    /// How often something interesting was reached.
    pub reached: BTreeMap<&'static str, u32>,
}

impl History {
    /// Whether only the sweep is sure to find what waits at an entity. Rule 7
    /// goes by receive counts: where they lie and a worker dies, claims to which
    /// there is no wake-up are the sweep's, such as saw its lease among them. See
    /// "What is left to the sweep" in docs/decisions.md.
    pub fn leaves_to_sweep(&self, entity: usize) -> bool {
        let lied = self.died && self.lied.contains(&entity) && self.unwoken.contains(&entity);
        self.excused.contains(&entity) || lied
    }

    /// Sets an entity back from this head: what was decided from there on is to be
    /// decided again. `Some`: nobody wanted that.
    pub fn sets_back(&mut self, rewound: Rewound) -> Option<String> {
        let Rewound { entity, from, through, .. } = rewound;
        let places = (entity, from)..=(entity, through);
        let again: Vec<_> = self.decided.extract_if(places, |_, _| true).collect();
        self.decided_before.extend(again);
        self.rewound.push(rewound);
        let (wanted, done) = self.rewinds.entry(entity).or_default();
        *done += 1;
        (*done > *wanted).then(|| "head went back, and nobody wanted that".to_owned())
    }

    /// How a place was decided before it was run again.
    pub fn decided_last(&self, place: (usize, u64)) -> Option<&Decided> {
        self.decided_before.iter().rev().find(|(at, _)| *at == place).map(|(_, decided)| decided)
    }

    /// How a delivery was decided, wherever and whenever.
    pub fn decided_ever(&self) -> impl Iterator<Item = (&(usize, u64), &Decided)> {
        self.decided.iter().chain(self.decided_before.iter().map(|(place, decided)| (place, decided)))
    }

    /// The same, and what tables knew that are lost.
    pub fn decided_at_all(&self) -> impl Iterator<Item = (&(usize, u64), &Decided)> {
        self.decided_ever().chain(self.lost.iter().map(|(place, decided)| (place, decided)))
    }

    /// Whether what was decided at a place was erased, at `by` the latest.
    pub fn has_erased(&self, entity: usize, sequence: u64, by: Duration) -> bool {
        let erases = |erased: &&Erased| erased.entity == entity && erased.through >= sequence && erased.time <= by;
        self.erased.iter().any(|erased| erases(&erased))
    }
}
