//! The trace for people, and the history for the auditor.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use webhook_serializer::protocol::entity::{EntityKey, IdentityHash};

use super::{attempt_audit::AttemptAudit, exclusion::ExclusiveWork, jobs, random::DecisionId, world::label};

/// An order's number and a sequence of its inbox.
pub type InboxPlace = (usize, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryName {
    pub number: u32,
    pub redrive: u32,
}

impl fmt::Display for DeliveryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "D{}{}", self.number, "'".repeat(self.redrive as usize))
    }
}

/// An event in the trace of a run. Its sequences and tokens are relative to the start of the run.
#[derive(Debug, Clone, Hash)]
pub enum TraceEvent {
    Booted { node: u32, offset: i64, rate_percent: u32 },
    Froze { node: u32 },
    Thawed { node: u32 },
    Crashed { node: u32 },
    DeadlineHit { node: u32 },
    Fault { node: u32, decision: DecisionId, how: &'static str, call: &'static str },
    Called { name: DeliveryName, entity: usize, node: u32 },
    Acked { name: DeliveryName, sequence: i64, woken: bool },
    NotAcked { name: DeliveryName },
    Deferred { name: DeliveryName },
    RowChanged { entity: usize, node: u32, how: &'static str, head: i64, tail: i64, token: i64 },
    AttemptCounted { entity: usize, node: u32, attempts: u64, token: i64, made: bool },
    Filled { entity: usize, sequence: i64, node: u32, void: bool },
    Received { node: u32, entity: usize, message: u64, times: u32 },
    Processed { node: u32, message: u64, kept: bool },
    WakeUp { node: u32, entity: usize, message: u64, delay: u64 },
    Started { name: DeliveryName, entity: usize, node: u32, token: i64, newest: i64 },
    Answered { name: DeliveryName, how: &'static str },
    Effect { entity: usize, token: i64, accepted: bool },
    Purged { entity: String, item: String },
    Operator { entity: usize, how: &'static str },
    Tick { node: u32, job: String, tick: u64, how: &'static str, token: i64 },
    Note { node: u32, text: &'static str },
    Outage { decision: DecisionId, what: &'static str, how: &'static str },
    Phase { text: &'static str },
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entity = |number: &usize| label(*number);
        match self {
            TraceEvent::Booted { node, offset, rate_percent } => {
                write!(f, "node {node}: clock off by {offset} ms, running at {rate_percent} %")
            }
            TraceEvent::Froze { node } => write!(f, "node {node}: FREEZES"),
            TraceEvent::Thawed { node } => write!(f, "node {node}: thaws"),
            TraceEvent::Crashed { node } => write!(f, "node {node}: CRASHES"),
            TraceEvent::DeadlineHit { node } => write!(f, "node {node}: KILLED at its function's deadline"),
            TraceEvent::Fault { node, decision, how, call } => {
                write!(f, "node {node}: {call}: FAULT {how} ({decision})")
            }
            TraceEvent::Called { name, entity: e, node } => {
                write!(f, "node {node}: append of {name} to {} begins", entity(e))
            }
            TraceEvent::Acked { name, sequence, woken } => {
                write!(f, "{name}: answered 2xx, sequence {sequence}{}", if *woken { "" } else { ", no wake-up" })
            }
            TraceEvent::Deferred { name } => write!(f, "{name}: answered 202"),
            TraceEvent::NotAcked { name } => write!(f, "{name}: answered 503"),
            TraceEvent::RowChanged { entity: e, node, how, head, tail, token } => {
                write!(f, "node {node}: {}: {how}: head {head} tail {tail} token {token}", entity(e))
            }
            TraceEvent::AttemptCounted { entity: e, node, attempts, token, made } => {
                let of = if *made { "" } else { ", WHERE NOTHING STARTED" };
                write!(f, "node {node}: {}: attempt {attempts} counts, under {token}{of}", entity(e))
            }
            TraceEvent::Filled { entity: e, sequence, node, void } => {
                write!(f, "node {node}: {}/{sequence} {}", entity(e), if *void { "voided" } else { "filled" })
            }
            TraceEvent::Received { node, entity: e, message, times } => {
                write!(f, "node {node}: receives wake-up #{message} of {}, time {times}", entity(e))
            }
            TraceEvent::Processed { node, message, kept } => {
                write!(f, "node {node}: wake-up #{message} {}", if *kept { "kept" } else { "deleted" })
            }
            TraceEvent::WakeUp { node, entity: e, message, delay } => {
                write!(f, "node {node}: wake-up #{message} of {} sent, to come in {delay} ms", entity(e))
            }
            TraceEvent::Started { name, entity: e, node, token, newest } => {
                write!(f, "node {node}: {}: handler of {name} starts under {token} (newest {newest})", entity(e))
            }
            TraceEvent::Answered { name, how } => write!(f, "handler of {name}: {how}"),
            TraceEvent::Effect { entity: e, token, accepted } => {
                let verdict = if *accepted { "accepted" } else { "refused" };
                write!(f, "{}: effect of token {token} {verdict} by the receiver", entity(e))
            }
            TraceEvent::Purged { entity, item } => write!(f, "TTL deletes {entity} {item}"),
            TraceEvent::Operator { entity: e, how } => write!(f, "operator: {}: {how}", entity(e)),
            TraceEvent::Tick { node, job, tick, how, token } => {
                write!(f, "node {node}: {job} {tick} {how}")?;
                if *token == 0 { Ok(()) } else { write!(f, ", token {token}") }
            }
            TraceEvent::Note { node, text } => write!(f, "node {node}: {text}"),
            TraceEvent::Outage { decision, what, how } => write!(f, "OUTAGE: {what} {how} ({decision})"),
            TraceEvent::Phase { text } => write!(f, "---- {text}"),
        }
    }
}

#[derive(Debug, Clone, Hash)]
pub struct TraceLine {
    pub at: Duration,
    pub what: TraceEvent,
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.3}  {}", self.at.as_secs_f64(), self.what)
    }
}

/// An order's row as it was observed last. The greatest numbers are kept even after the row is deleted.
#[derive(Debug, Clone, Default)]
pub struct ObservedRow {
    pub present: bool,
    pub head: u64,
    pub tail: u64,
    pub token: u64,
    pub holder: Option<String>,
    pub granted: u64,
    pub node: u32,
}

#[derive(Debug, Clone)]
pub struct AppendCall {
    pub name: DeliveryName,
    pub entity: usize,
    /// The position in the history at which the call began.
    pub called: usize,
    /// The positions of the answers, each with its sequence.
    pub acked: Vec<(usize, u64)>,
    /// The answers whose sequences were lost with the tables.
    pub lost: Vec<(usize, u64)>,
    /// True if the wake-up that each answer owed was sent.
    pub woken: bool,
    pub broken: bool,
    pub deferred: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct RecordedStart {
    pub name: DeliveryName,
    pub entity: usize,
    pub sequence: u64,
    /// The first sequence of the start's group.
    pub first: u64,
    pub token: u64,
    pub newest: u64,
    pub at: usize,
    pub time: Duration,
    pub done: bool,
    /// The tables with the start's lease were lost.
    pub is_lost: bool,
}

#[derive(Debug, Clone)]
pub struct SettledRecord {
    pub at: usize,
    pub time: Duration,
    pub settlement: String,
    pub name: Option<DeliveryName>,
    /// The last sequence that the same settle decided.
    pub by: u64,
    /// The delivery was rewound, and it kept its settlement.
    pub is_kept: bool,
}

/// An effect that is on its way to the receiver.
#[derive(Debug, Clone, Copy)]
pub struct PendingEffect {
    pub entity: usize,
    /// The token that the effect carries.
    pub claimed: u64,
    /// The token of the handler start.
    pub token: u64,
    pub sequence: Option<u64>,
    /// The receiver remembers the newest token.
    pub remembers: bool,
}

/// An effect that the receiver accepted. `sequence` is `None` for an exclusive holder.
#[derive(Debug, Clone, Copy)]
pub struct AcceptedEffect {
    pub entity: usize,
    pub token: u64,
    pub sequence: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub struct RecordedRewind {
    pub entity: usize,
    pub from: u64,
    pub through: u64,
    pub token: u64,
    pub at: usize,
}

#[derive(Debug, Clone, Copy)]
pub struct RecordedErasure {
    pub entity: usize,
    pub through: u64,
    pub time: Duration,
}

#[derive(Debug, Default)]
pub struct SimulationHistory {
    pub calls: BTreeMap<DeliveryName, AppendCall>,
    pub starts: Vec<RecordedStart>,
    pub decided: BTreeMap<InboxPlace, SettledRecord>,
    /// Settlements that a rewind replaced.
    pub decided_before: Vec<(InboxPlace, SettledRecord)>,
    /// Settlements in the lost tables that the copy does not have.
    pub lost: Vec<(InboxPlace, SettledRecord)>,
    pub lost_at: Option<usize>,
    pub at_places: BTreeMap<InboxPlace, DeliveryName>,
    pub rewound: Vec<RecordedRewind>,
    /// The numbers of requested and of completed rewinds, by order.
    pub rewinds: BTreeMap<usize, (u32, u32)>,
    pub landed: Vec<AcceptedEffect>,
    pub mistakes: Vec<String>,
    /// Orders whose waiting deliveries only the sweep is sure to find.
    pub excused: BTreeSet<usize>,
    pub is_late: bool,
    pub died: bool,
    /// Orders with a claim whose wake-up may not have been sent.
    pub unwoken: BTreeSet<usize>,
    /// For each order, the token of the newest drain lease on an empty inbox.
    pub idle: BTreeMap<usize, u64>,
    /// Orders with a redelivered message that showed a receive count of 1.
    pub lied: BTreeSet<usize>,
    pub processing: BTreeMap<usize, u32>,
    /// For each order, the number of operators that have not yet sent the wake-up that they owe.
    pub unblocking: BTreeMap<usize, u32>,
    pub erased: Vec<RecordedErasure>,
    pub attempts: AttemptAudit,
    pub names: BTreeMap<IdentityHash, DeliveryName>,
    pub tick_starts: Vec<jobs::TickStart>,
    /// Ticks of jobs that are missing in the copy of the tables.
    pub ticks_forgotten: BTreeSet<(String, u64)>,
    pub ticks_recorded: Vec<jobs::TickRecord>,
    /// Sequences of redriven or deferred deliveries.
    pub late: BTreeSet<InboxPlace>,
    pub works: Vec<ExclusiveWork>,
    /// The nodes that froze, and when.
    pub freezes: Vec<(u32, Duration)>,
    /// The entities whose lease an operator ended by force, each with its next token.
    pub forced: Vec<(EntityKey, u64)>,
    pub reached: BTreeMap<&'static str, u32>,
}

impl SimulationHistory {
    /// Returns whether only the sweep is sure to find the order's waiting deliveries: a wrong receive count
    /// together with a dead worker can lose a wake-up. See "What is left to the sweep" in docs/decisions.md.
    pub fn leaves_to_sweep(&self, entity: usize) -> bool {
        let lied = self.died && self.lied.contains(&entity) && self.unwoken.contains(&entity);
        self.excused.contains(&entity) || lied
    }

    /// Reopens the settlements of a rewind. Returns an error if no operator asked for that rewind.
    pub fn record_rewind(&mut self, rewound: RecordedRewind) -> Option<String> {
        let RecordedRewind { entity, from, through, .. } = rewound;
        let places = (entity, from)..=(entity, through);
        let again: Vec<_> = self.decided.extract_if(places, |_, _| true).collect();
        self.decided_before.extend(again);
        self.rewound.push(rewound);
        let (wanted, done) = self.rewinds.entry(entity).or_default();
        *done += 1;
        (*done > *wanted).then(|| "head went back without a rewind".to_owned())
    }

    pub fn decided_last(&self, place: InboxPlace) -> Option<&SettledRecord> {
        self.decided_before.iter().rev().find(|(at, _)| *at == place).map(|(_, decided)| decided)
    }

    pub fn decided_ever(&self) -> impl Iterator<Item = (&InboxPlace, &SettledRecord)> {
        self.decided.iter().chain(self.decided_before.iter().map(|(place, decided)| (place, decided)))
    }

    pub fn decided_at_all(&self) -> impl Iterator<Item = (&InboxPlace, &SettledRecord)> {
        self.decided_ever().chain(self.lost.iter().map(|(place, decided)| (place, decided)))
    }

    pub fn has_erased(&self, entity: usize, sequence: u64, by: Duration) -> bool {
        let erases =
            |erased: &&RecordedErasure| erased.entity == entity && erased.through >= sequence && erased.time <= by;
        self.erased.iter().any(|erased| erases(&erased))
    }
}
