//! The state of a drain: the production value, advanced by the production functions. Values are interned and
//! every step is memoized.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{LazyLock, Mutex},
    thread::LocalKey,
    time::Duration,
};

use webhook_serializer::{
    engine::drain::{
        begin::{AcquireStep, Drained, acquire_step},
        page::InboxPage,
        plan::{AnswerTiming, DeliveryGroup, Drain, Memory, Moment, SettleRequest, Step},
    },
    handler::Outcome,
    protocol::{
        attempt::Retries,
        entity::{FencingToken, Sequence},
        receipt::{PagedReceipts, Settlement},
    },
    sources::{SourceLookup, Sources, deliver::Deliver},
    time::Timestamp,
};

use crate::store::{
    AcquiredRef, ClockReading, CopiedReceipts, DecisionRef, Interned, LeaseRef, ModelId, Pool, RowRef, View, arrival,
    delivery_at, entity, id_of, intern, intern_decision, intern_lease, intern_view, retry_at, time,
};

pub type DrainRef = Interned<Drain>;

static DRAINS: Pool<Drain> = LazyLock::new(Mutex::default);

impl fmt::Debug for DrainRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.state().head)
    }
}

/// What a drain learns from the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Observation {
    Seen(View),
    /// A page from this sequence on, and the receipts that were found: in rows of their own, and in pages, if these
    /// were read.
    Read(u64, Vec<RowRef>, Vec<(ModelId, RowRef)>, Option<Vec<RowRef>>),
    Spilled(CopiedReceipts),
    Filled,
    Voided,
    Settled(View, DecisionRef),
}

pub type PlanStep = Interned<Step>;

static TODOS: Pool<Step> = LazyLock::new(Mutex::default);

impl fmt::Debug for PlanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", **self)
    }
}

/// The time at which the plan is consulted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlanTime {
    At(ClockReading),
    OutOfTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandlerOutcome {
    Done,
    Commit,
    Retry,
    Reject,
}

#[derive(Debug, Clone, Copy)]
pub enum DrainBegin {
    Granted(LeaseRef, DrainRef),
    Drained(Drained),
    AskAgain,
    TakeOver(View),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SettleArgs {
    pub settlement: Settlement,
    pub group: DeliveryGroup,
    pub token: u64,
    /// A handler has run, and its source has a rate limit.
    pub rated: bool,
}

pub const RETENTION: Duration = Duration::from_secs(1000);

/// A time later than every limit.
const LONG_AGO: AnswerTiming =
    AnswerTiming { at: Timestamp::from_millis(u64::MAX / 2), took: Duration::ZERO, fraction: 0.0 };

/// A kind of source: its number of attempts, whether it blocks, whether it has a rate limit, and how it
/// delivers.
pub type SourceKind = (u32, bool, bool, Deliver);

thread_local! {
    static SOURCES: RefCell<HashMap<SourceKind, &'static SourceLookup>> = RefCell::default();
    static BEGUN: RefCell<HashMap<(AcquiredRef, u8, ClockReading, Memory), DrainBegin>> = RefCell::default();
    static NEXT: RefCell<HashMap<(DrainRef, u8, PlanTime, SourceKind), PlanStep>> = RefCell::default();
    static ANSWERED: RefCell<HashMap<(DrainRef, HandlerOutcome, DeliveryGroup, SourceKind), PlanStep>> = RefCell::default();
    static LEARNED: RefCell<HashMap<(DrainRef, u8, Observation), DrainRef>> = RefCell::default();
    static DECISIONS: RefCell<HashMap<(DrainRef, u8, SettleArgs), DecisionRef>> = RefCell::default();
}

/// Returns `make(key)`, computed once.
pub fn memoized<K: Clone + Eq + Hash, V: Copy>(
    memory: &'static LocalKey<RefCell<HashMap<K, V>>>,
    key: K,
    make: impl FnOnce(&K) -> V,
) -> V {
    if let Some(known) = memory.with_borrow(|memory| memory.get(&key).copied()) {
        return known;
    }
    let value = make(&key);
    memory.with_borrow_mut(|memory| memory.insert(key, value));
    value
}

/// More time than any step takes.
const AMPLE: Duration = Duration::from_secs(600);

fn moment(epoch: u8, when: PlanTime) -> Moment {
    let (clock, left) = match when {
        PlanTime::At(clock) => (clock, AMPLE),
        PlanTime::OutOfTime => (ClockReading::Late, Duration::ZERO),
    };
    let patience = Duration::from_secs(1);
    let pause = Duration::ZERO;
    Moment { now: time(epoch, clock), left, is_alone: true, is_spent: false, patience, pause }
}

/// Interprets the reply to an acquire. A drain does not wait here for another holder; it looks again in a
/// later step.
pub fn drain_begin(answer: AcquiredRef, epoch: u8, clock: ClockReading, memory: Memory) -> DrainBegin {
    let begins = || acquire_step((*answer).clone(), time(epoch, clock), AMPLE, None, Duration::from_secs(1));
    memoized(&BEGUN, (answer, epoch, clock, memory), |_| match begins() {
        AcquireStep::Granted(lease, state) => {
            DrainBegin::Granted(intern_lease(lease), intern(&DRAINS, Drain::granted(state, memory)))
        }
        AcquireStep::NothingToDo => DrainBegin::Drained(Drained::Ended),
        AcquireStep::Requeue(delay, reason) => DrainBegin::Drained(Drained::Requeue(delay, reason)),
        AcquireStep::Awaits(token, delay) => DrainBegin::Drained(Drained::Awaits(token, delay)),
        AcquireStep::Follow { token, delay, is_followed, retry_at } => {
            DrainBegin::Drained(Drained::Follows { token, delay, is_followed, retry_at })
        }
        AcquireStep::AskAfter(_) => DrainBegin::AskAgain,
        AcquireStep::TakeOver { seen, .. } => DrainBegin::TakeOver(intern_view(&seen)),
        AcquireStep::LookWithin(_) => unreachable!("it does not wait"),
    })
}

impl DrainRef {
    /// Returns the sequence to be settled next, and its delivery if the drain has read it.
    pub fn place(&self) -> (u64, Option<ModelId>) {
        let front = self.front();
        let sequence = front.map_or(self.state().next(), |waiting| waiting.unpacked.head().sequence());
        (sequence.0, front.and_then(|waiting| delivery_at(&waiting.row)))
    }

    pub fn is_on_hold(&self) -> bool {
        self.state().is_on_hold()
    }

    /// Returns the deliveries that the handler of a group gets.
    pub fn handled(&self, group: DeliveryGroup) -> Vec<(u64, ModelId)> {
        let one = |row| delivery_at(row).expect("a delivery");
        self.members(group).map(|waiting| (waiting.unpacked.head().sequence().0, one(&waiting.row))).collect()
    }

    pub fn next_step(self, epoch: u8, when: PlanTime, kind: SourceKind) -> PlanStep {
        memoized(&NEXT, (self, epoch, when, kind), |_| {
            intern(&TODOS, self.next(&moment(epoch, when), Some(source(kind))))
        })
    }

    pub fn answer(self, answer: HandlerOutcome, group: DeliveryGroup, kind: SourceKind) -> PlanStep {
        memoized(&ANSWERED, (self, answer, group, kind), |_| {
            let SourceLookup::Source(source) = source(kind) else { unreachable!() };
            let outcome = match answer {
                HandlerOutcome::Done => Outcome::Done,
                HandlerOutcome::Commit => Outcome::Commit(Vec::new()),
                HandlerOutcome::Retry => Outcome::retry(""),
                HandlerOutcome::Reject => Outcome::Reject(String::new()),
            };
            intern(&TODOS, self.answered(outcome, group, source, LONG_AGO))
        })
    }

    pub fn commit_refused(self, group: DeliveryGroup, kind: SourceKind) -> PlanStep {
        let SourceLookup::Source(source) = source(kind) else { unreachable!() };
        intern(&TODOS, self.refused(group, source, LONG_AGO))
    }

    /// Returns the next step after the wait at a gap. `expired` means that the gap is older than half the
    /// retention.
    pub fn gap_is_over(self, epoch: u8, expired: bool) -> PlanStep {
        let retention = if expired { Duration::ZERO } else { Duration::MAX };
        intern(&TODOS, self.after_gap(time(epoch, ClockReading::Late), retention))
    }

    pub fn decides(self, epoch: u8, ended: SettleArgs) -> DecisionRef {
        memoized(&DECISIONS, (self, epoch, ended), |_| {
            let SettleArgs { settlement, group, token, rated } = ended;
            let at = time(epoch, ClockReading::Early);
            let ending = SettleRequest {
                settlement,
                group,
                token: FencingToken(token),
                attempts: 0,
                took: None,
                at,
                carried: Retries::default(),
            };
            let seen_at = arrival(self.state().tail.0 + 1);
            intern_decision(self.decision(ending, seen_at, rated.then(|| retry_at(epoch))))
        })
    }

    /// Returns the receipts that must be spilled before the decision is written.
    pub fn spills(&self, decision: DecisionRef) -> Option<CopiedReceipts> {
        self.to_spill(&decision).map(CopiedReceipts::first_of)
    }

    /// Returns the receipts that may be spilled concurrently with the decision.
    pub fn spills_ahead(&self, decision: DecisionRef) -> Option<CopiedReceipts> {
        self.to_spill_ahead(&decision).map(CopiedReceipts::first_of)
    }

    /// Returns the decision as it must be written after the receipts that it drops.
    pub fn marks(&self, decision: DecisionRef) -> DecisionRef {
        let mut marked = (*decision).clone();
        self.mark(&mut marked);
        intern_decision(marked)
    }

    #[must_use]
    pub fn observes(self, epoch: u8, observation: Observation) -> DrainRef {
        memoized(&LEARNED, (self, epoch, observation), |(_, _, observation)| {
            let mut drain = (*self).clone();
            match observation {
                Observation::Seen(view) => drain.seen((**view).clone()),
                Observation::Read(from, rows, receipts, pages) => {
                    let page =
                        InboxPage::parse(entity(), Sequence(*from), rows.iter().map(|row| (**row).clone()).collect());
                    let page = page.expect("the model's rows are sound");
                    let wanted: Vec<ModelId> = page.identities().into_iter().map(id_of).collect();
                    let receipts = receipts.iter().filter(|(id, _)| wanted.contains(id));
                    let receipts: Vec<_> = receipts.map(|(_, row)| (**row).clone()).collect();
                    let page = page.with_receipts(&receipts).expect("the model's rows are sound");
                    drain.read(match pages {
                        Some(pages) => page.with_paged(paged(pages.iter().copied())),
                        None => page,
                    });
                }
                Observation::Spilled(copied) => drain.spilled(&copied.spilling()),
                Observation::Filled => drain.filled(),
                Observation::Voided => drain.tombstone_written(),
                Observation::Settled(view, decision) => drain.settled((**view).clone(), decision),
            }
            intern(&DRAINS, drain)
        })
    }
}

pub fn paged(pages: impl Iterator<Item = RowRef>) -> PagedReceipts {
    let mut paged = PagedReceipts::default();
    for row in pages {
        paged.add(&row).expect("the model's rows are sound");
    }
    paged
}

fn source(kind: SourceKind) -> &'static SourceLookup {
    memoized(&SOURCES, kind, |(attempts, block, rated, deliver)| {
        let document = format!(
            "[sources.shop]\nprovider = \"shopify\"\nsecrets = [\"s\"]\nhandler = \"h\"\nhandler_timeout = \"10s\"\n\
             retry = {{ attempts = {attempts}, first = \"60s\", longest = \"60s\" }}\n{}{}{}",
            if *block { "on_failure = \"block\"\n" } else { "" },
            if *rated { "rate = \"1/s\"\n" } else { "" },
            match deliver {
                Deliver::Each => String::new(),
                Deliver::UpTo(most) => format!("deliver = {{ up_to = {most} }}\n"),
                Deliver::Latest => "deliver = \"latest\"\n".into(),
            },
        );
        let sources = Sources::parse(&document).expect("a document");
        let source = sources.iter().next().expect("a source").clone();
        Box::leak(Box::new(SourceLookup::Source(source)))
    })
}
