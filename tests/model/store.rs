//! The store of the model: rows as values, written by the production
//! operations and by nothing else.
//!
//! Every write is an [`Operation`]: its `write()` is evaluated against a row of
//! the state by the in-memory interpreter, its `judge()` says what its author
//! learns. Rows, views and leases are interned, and what an operation does to
//! a row is remembered, so that a step costs a look-up.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{LazyLock, Mutex},
    time::Duration,
};

use webhook_serializer::{
    protocol::{
        delivery::{Envelope, Incoming},
        entity::{DeliveryId, EntityKey, FencingToken, Identity, Sequence, SourceName},
        format::attribute as a,
        inbox::{
            Block, Claim, Decision, Fail, Failed, MarkStart, Marked, Park, Put, PutOutcome, Receipt, Settle,
            SettleAndRelease, Settled, SettledAndReleased, Unblock, Unblocked, Void, Voided, WriteReceipt,
        },
        lease::{
            Acquire, Acquired, AskToYield, Ended, ForceRelease, Forced, HandOver, Lease, Release, ReleaseEmpty,
            Released, Renew, Renewed, TakeOver,
        },
        memory,
        operation::Operation,
        state::{BlockReason, EntityState, EventTimes, HolderInfo, LastSettled, LeaseKind, Settlement},
        table::{Action, Change, Condition, Row, Write, Written},
    },
    time::{Nonce, Timestamp},
};

use crate::changes::{Change as Switch, Changes};

/// A value of which there is one copy: compared by place, hashed by content.
pub struct Interned<T: 'static>(&'static (u64, T));

impl<T> Clone for Interned<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Interned<T> {}
impl<T> PartialEq for Interned<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}
impl<T> Eq for Interned<T> {}
impl<T> Hash for Interned<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.0);
    }
}
impl<T> std::ops::Deref for Interned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.1
    }
}

type Pool<T> = LazyLock<Mutex<HashMap<String, Interned<T>>>>;

fn intern<T: fmt::Debug + 'static>(pool: &Pool<T>, value: T) -> Interned<T> {
    let text = format!("{value:?}");
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let mut pool = pool.lock().unwrap();
    *pool.entry(text).or_insert_with(|| Interned(Box::leak(Box::new((hasher.finish(), value)))))
}

/// A row, as it is stored.
pub type Stored = Interned<Row>;
/// An entity's row, as somebody last saw it.
pub type View = Interned<EntityState>;
/// A lease, as its holder knows it.
pub type Held = Interned<Lease>;

static ROWS: Pool<Row> = LazyLock::new(Mutex::default);
static VIEWS: Pool<EntityState> = LazyLock::new(Mutex::default);
static LEASES: Pool<Lease> = LazyLock::new(Mutex::default);

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", summary(self))
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {}", short(self.token().0))
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match EntityState::parse(self) {
            Ok(state) => write!(f, "{}", summary(&state)),
            Err(_) => write!(f, "{}", self.text(a::OUTCOME).or(self.text(a::DELIVERY_ID)).unwrap_or("void")),
        }
    }
}

/// A number without its base.
pub fn short(number: u64) -> String {
    let (epoch, rest) = (number / EPOCH, number % EPOCH);
    if epoch > 1 { format!("{rest}'{}", epoch - 1) } else { rest.to_string() }
}

/// A row in a line.
pub fn summary(state: &EntityState) -> String {
    let mut text = format!("head {} tail {} token {}", short(state.head.0), short(state.tail.0), short(state.token.0));
    match &state.held {
        Some(held) => text += &format!(", {} lease", held.kind.as_str()),
        None => text += ", free",
    }
    if state.suspect > 0 {
        text += ", suspect";
    }
    if state.is_started() {
        text += ", start written";
    }
    if state.attempts > 0 {
        text += &format!(", {} attempts", state.attempts);
    }
    for (there, name) in [
        (state.retry_at.is_some(), ", waits for a retry"),
        (state.blocked.is_some(), ", blocked"),
        (state.yield_until.is_some(), ", asked to yield"),
        (state.handover, ", handing over"),
    ] {
        if there {
            text += name;
        }
    }
    text
}

/// Times are far apart from one life of a row to the next.
const EPOCH: u64 = 10_000_000;
const LEASE: Duration = Duration::from_secs(15);

/// What a reader's clock makes of the times in a row: all that are set lie
/// ahead, or all lie behind. Nobody's clock is bound to anybody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Leases run, retries and requests to yield are not yet due.
    Early,
    /// They are over.
    Late,
}

/// The time that `clock` shows in the `epoch`th life of the entity's row.
pub fn time(epoch: u8, clock: Clock) -> Timestamp {
    let base = EPOCH * (u64::from(epoch) + 1);
    Timestamp::from_millis(match clock {
        Clock::Early => base,
        Clock::Late => base + 100_000,
    })
}

/// When what stands at `sequence` was claimed: one after the other. The first of
/// a row's life, whose numbers are its time, at its very beginning.
pub fn arrival(sequence: u64) -> Timestamp {
    Timestamp::from_millis(sequence - 1)
}

fn retry_at(epoch: u8) -> Timestamp {
    time(epoch, Clock::Early) + Duration::from_secs(30)
}

/// Which delivery: the sender's id, and how often it was put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    pub delivery: u8,
    pub redrive: u8,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(b'A' + self.delivery))?;
        (0..self.redrive).try_for_each(|_| f.write_str("'"))
    }
}

/// A nonce: whose, and which of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Drawn(pub u8, pub u8);

impl Drawn {
    pub fn nonce(self) -> Nonce {
        Nonce::from_parts(Timestamp::from_millis(1), u128::from(self.0) << 8 | u128::from(self.1))
    }
}

/// An inbox row's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Item {
    Delivery(u64),
    Receipt(Id),
    Parked(u64),
}

pub fn entity() -> &'static EntityKey {
    static ENTITY: LazyLock<EntityKey> = LazyLock::new(|| EntityKey::parse("shop/order/1").unwrap());
    &ENTITY
}

fn identity(id: Id) -> Identity {
    Identity {
        source: SourceName::parse("shop").unwrap(),
        delivery_id: DeliveryId::new(char::from(b'A' + id.delivery).to_string()),
        redrive: id.redrive.into(),
    }
}

fn id_of(hash: &webhook_serializer::protocol::entity::IdentityHash) -> Id {
    let all = (0..4).flat_map(|delivery| (0..4).map(move |redrive| Id { delivery, redrive }));
    all.into_iter().find(|id| identity(*id).hash() == *hash).expect("the model's deliveries only")
}

/// What stands at a delivery row: `None` is a void.
pub fn delivery_at(row: &Row) -> Option<Id> {
    let delivery = row.text(a::DELIVERY_ID)?.bytes().next()? - b'A';
    Some(Id { delivery, redrive: row.number(a::REDRIVE).unwrap_or(0) as u8 })
}

/// What a receipt says: where it stood and how it ended.
pub fn receipt_at(row: &Row) -> (u64, Settlement) {
    let receipt = Receipt::parse(row).expect("a receipt");
    (receipt.sequence.0, receipt.settlement)
}

/// Who stands at `head`, for a new holder that makes sure of its receipt.
pub fn owed_receipt(view: &EntityState) -> Option<(Id, Settlement)> {
    let receipt = Receipt::owed(view, Timestamp::from_millis(0))?;
    Some((id_of(&receipt.identity), receipt.settlement))
}

pub fn view_of(row: &Row) -> View {
    intern(&VIEWS, EntityState::parse(row).expect("an entity's row"))
}

pub fn changed(view: View, change: impl FnOnce(&mut EntityState)) -> View {
    let mut state = (*view).clone();
    change(&mut state);
    intern(&VIEWS, state)
}

/// Whether `id` is what stands at `head`.
pub fn is_at_head(view: &EntityState, id: Id) -> bool {
    view.last_settled.as_ref().and_then(|last| last.identity.as_ref()) == Some(&identity(id).hash())
}

/// A decision, and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decided {
    pub sequence: u64,
    pub id: Option<Id>,
    pub settlement: Settlement,
    pub rated: bool,
    /// Whose arrival `pending_since` moves up to; `None`: it stays.
    pub since: Option<u64>,
}

/// One of the protocol's operations with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    Claim(Drawn),
    Put(Id, Drawn, u64),
    Void(u64),
    Acquire(LeaseKind, Drawn, Clock),
    TakeOver(LeaseKind, Drawn, View),
    Renew(Held),
    /// `true`: it is about to hand over.
    Settle(Held, Decided, bool),
    SettleAndRelease(Held, Decided),
    Receipt {
        id: Id,
        sequence: u64,
        settlement: Settlement,
        token: u64,
        deciding: bool,
    },
    Park(Id, u64),
    Fail {
        lease: Held,
        sequence: u64,
        attempts: u32,
        retry: bool,
    },
    BlockExpired(Held, u64),
    MarkStart(Held, u64),
    HandOver(Held, bool),
    Unblock,
    ReleaseEmpty(Held),
    Release(Held),
    AskToYield,
    ForceRelease(View),
}

/// What the author of an operation learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reply {
    Claimed(u64, View),
    Stored,
    /// A put found its place given up; a void that it is one.
    Voided,
    Filled,
    Granted(Held, View),
    Seen(View),
    Empty,
    Waiting,
    Free,
    Blocked,
    /// It is done and the lease goes on, as this.
    Goes(Held, View),
    /// It is done and the lease has ended, with this left.
    Ended(Option<View>),
    Grown(View),
    Lost,
    Done,
    Refused,
}

/// What became of an operation: the row afterwards, whether it landed, and what
/// its author learns if the reply arrives.
#[derive(Clone, Copy)]
pub struct Executed {
    pub row: Option<Stored>,
    pub landed: bool,
    pub reply: Reply,
}

type Remembered = HashMap<(Changes, u8, Op, Option<Stored>), Executed>;

thread_local! {
    static MEMORY: RefCell<Remembered> = RefCell::default();
}

/// Does `op` to `row`, the item it is about.
pub fn execute(changes: Changes, epoch: u8, op: Op, row: Option<Stored>) -> Executed {
    MEMORY.with(|memory| {
        let key = (changes, epoch, op, row);
        if let Some(known) = memory.borrow().get(&key) {
            return *known;
        }
        let executed = Execution { changes, epoch, op, row }.run();
        memory.borrow_mut().insert(key, executed);
        executed
    })
}

struct Execution {
    changes: Changes,
    epoch: u8,
    op: Op,
    row: Option<Stored>,
}

impl Execution {
    fn run(&self) -> Executed {
        let entity = entity();
        let now = time(self.epoch, Clock::Early);
        let purge_at = now + Duration::from_secs(1000);
        let held = |lease, state| Reply::Goes(intern(&LEASES, lease), intern(&VIEWS, state));
        match self.op {
            Op::Claim(drawn) => {
                let nonce = drawn.nonce();
                let tail = self.row.and_then(|row| row.number(a::TAIL));
                let now = if self.changes.has(Switch::PurgedRowsStartAtTheSame) {
                    time(0, Clock::Early)
                } else {
                    tail.map_or(now, |tail| arrival(tail + 1))
                };
                self.with(&Claim { entity, nonce: &nonce, now }, |claimed| {
                    Reply::Claimed(claimed.sequence.0, intern(&VIEWS, claimed.state))
                })
            }
            Op::Put(id, drawn, sequence) => {
                let envelope = Envelope::pack(
                    &Incoming {
                        entity: entity.clone(),
                        identity: identity(id),
                        provider: None,
                        topic: "t".into(),
                        family: "t".into(),
                        event_time: None,
                        received_at: arrival(sequence),
                        content_type: None,
                        body: Default::default(),
                    },
                    &drawn.nonce(),
                    purge_at,
                );
                self.with(&Put { envelope: &envelope, sequence: Sequence(sequence) }, |outcome| match outcome {
                    PutOutcome::Stored => Reply::Stored,
                    PutOutcome::Voided => Reply::Voided,
                })
            }
            Op::Void(sequence) => {
                self.with(&Void { entity, sequence: Sequence(sequence), purge_at }, |voided| match voided {
                    Voided::Void => Reply::Voided,
                    Voided::Filled(_) => Reply::Filled,
                })
            }
            Op::Acquire(kind, drawn, clock) => {
                let request = self.request(kind, drawn, clock);
                self.with(&request, |acquired| acquired_reply(&request, acquired))
            }
            Op::TakeOver(kind, drawn, seen) => {
                let take_over = TakeOver { request: self.request(kind, drawn, Clock::Late), seen: (*seen).clone() };
                self.with(&take_over, |acquired| acquired_reply(&take_over.request, acquired))
            }
            Op::Renew(lease) => self.with(&Renew { lease: &lease, now, length: LEASE }, |renewed| match renewed {
                Renewed::Renewed(state) => Reply::Goes(lease, intern(&VIEWS, state)),
                Renewed::Lost => Reply::Lost,
            }),
            Op::Settle(lease, decided, hands_over) => {
                let decision = decision(self.epoch, decided);
                let settle = Settle { lease: &lease, decision: &decision, now, length: LEASE, hands_over };
                self.with(&settle, |settled| match settled {
                    Settled::Settled(_, state) if self.changes.has(Switch::OneTokenForADrain) => {
                        held((*lease).clone(), state)
                    }
                    Settled::Settled(lease, state) => held(lease, state),
                    Settled::Lost => Reply::Lost,
                })
            }
            Op::SettleAndRelease(lease, decided) => {
                let decision = decision(self.epoch, decided);
                let last = SettleAndRelease { lease: &lease, decision: &decision, purge_at: Some(purge_at) };
                self.with(&last, |settled| match settled {
                    SettledAndReleased::Released => Reply::Ended(None),
                    SettledAndReleased::Grown(state) => Reply::Grown(intern(&VIEWS, state)),
                    SettledAndReleased::Lost => Reply::Lost,
                })
            }
            Op::Receipt { id, sequence, settlement, token, deciding } => {
                let receipt = Receipt {
                    identity: identity(id).hash(),
                    sequence: Sequence(sequence),
                    settlement,
                    token: FencingToken(token),
                    attempts: 0,
                    received_at: None,
                    started_at: None,
                    settled_at: now,
                    source: None,
                    delivery_id: None,
                    topic: None,
                };
                let operation = WriteReceipt { entity, receipt: &receipt, purge_at };
                if deciding && !self.changes.has(Switch::CommitYieldsToReceipts) {
                    self.evaluated(&operation, operation.deciding(), |()| Reply::Done)
                } else {
                    self.with(&operation, |()| Reply::Done)
                }
            }
            Op::Park(id, sequence) => {
                // As `delivery::parked_copy`: the payload, without an end of retention.
                let row = Row::new()
                    .with(a::VERSION, webhook_serializer::protocol::format::FORMAT)
                    .with(a::DELIVERY_ID, identity(id).delivery_id.as_str())
                    .with(a::REDRIVE, u32::from(id.redrive));
                self.with(&Park { entity, sequence: Sequence(sequence), row: &row }, |()| Reply::Done)
            }
            Op::Fail { lease, sequence, attempts, retry } => {
                let retry_at = retry.then(|| retry_at(self.epoch));
                let fail = Fail { lease: &lease, sequence: Sequence(sequence), attempts, retry_at, error: "" };
                self.with(&fail, failed_reply)
            }
            Op::BlockExpired(lease, sequence) => {
                let reason = BlockReason::Expired;
                self.with(&Block { lease: &lease, sequence: Sequence(sequence), reason }, failed_reply)
            }
            Op::MarkStart(lease, sequence) => {
                self.with(&MarkStart { lease: &lease, sequence: Sequence(sequence) }, |marked| match marked {
                    Marked::Marked => Reply::Done,
                    Marked::Lost => Reply::Lost,
                })
            }
            Op::HandOver(lease, suspected) => self.with(&HandOver { lease: &lease, suspected }, |ended| match ended {
                Ended::Ended(state) => Reply::Ended(Some(intern(&VIEWS, state))),
                Ended::Lost => Reply::Lost,
            }),
            Op::Unblock => {
                // The operator's look and its write are one step here: a late landing is the simulation's.
                let seen = self.row.as_ref().map_or(FencingToken(0), |row| view_of(row).token);
                self.with(&Unblock { entity, seen }, |unblocked| match unblocked {
                    Unblocked::Unblocked(_) => Reply::Done,
                    Unblocked::NotBlocked(_) => Reply::Refused,
                })
            }
            Op::ReleaseEmpty(lease) => {
                self.with(&ReleaseEmpty { lease: &lease, purge_at: Some(purge_at) }, |released| match released {
                    Released::Released => Reply::Ended(None),
                    Released::Grown(state) => Reply::Grown(intern(&VIEWS, state)),
                    Released::Lost => Reply::Lost,
                })
            }
            Op::Release(lease) => self.with(&Release { lease: &lease }, |ended| match ended {
                Ended::Ended(state) => Reply::Ended(Some(intern(&VIEWS, state))),
                Ended::Lost => Reply::Lost,
            }),
            Op::AskToYield => {
                self.with(&AskToYield { entity, now, until: now + Duration::from_secs(10) }, |()| Reply::Done)
            }
            Op::ForceRelease(seen) => {
                self.with(&ForceRelease { seen: &seen, record: HolderInfo::new("operator") }, |forced| match forced {
                    Forced::Released(_) => Reply::Done,
                    Forced::Changed(_) => Reply::Refused,
                })
            }
        }
    }

    fn request(&self, kind: LeaseKind, drawn: Drawn, clock: Clock) -> Acquire {
        Acquire {
            entity: entity().clone(),
            kind,
            holder: drawn.nonce(),
            info: HolderInfo::new(""),
            now: time(self.epoch, clock),
            length: LEASE,
        }
    }

    /// The production operation, the interpreter, the production judgement;
    /// and what a control changes about either.
    fn with<O: Operation>(&self, operation: &O, reply: impl FnOnce(O::Outcome) -> Reply) -> Executed {
        self.evaluated(operation, operation.write(), reply)
    }

    fn evaluated<O: Operation>(
        &self,
        operation: &O,
        mut write: Write,
        reply: impl FnOnce(O::Outcome) -> Reply,
    ) -> Executed {
        self.change_write(&mut write);
        let before = self.row.map(|row| (*row).clone());
        match memory::evaluate(&write, before.as_ref()) {
            Ok(mut after) => {
                self.forget_whose_clock(&mut after);
                let shown = matches!(write.action, Action::Update(_)).then(|| after.clone()).flatten();
                let outcome = operation.judge(Written::Landed(shown)).expect("the model's rows are sound");
                let row = after.map(|row| intern(&ROWS, row));
                Executed { row, landed: true, reply: reply(outcome) }
            }
            Err(()) => {
                let free = before.as_ref().is_some_and(|row| row.get(a::HOLDER).is_none());
                let token = before.as_ref().and_then(|row| row.number(a::TOKEN));
                let outcome = operation.judge(Written::Refused(before)).expect("the model's rows are sound");
                let reply = match (self.op, reply(outcome)) {
                    (Op::SettleAndRelease(..) | Op::ReleaseEmpty(_) | Op::Release(_), Reply::Lost)
                        if free && self.changes.has(Switch::ReleaseRecognisedWithoutToken) =>
                    {
                        Reply::Ended(None)
                    }
                    (Op::SettleAndRelease(lease, _), Reply::Lost)
                        if free
                            && token == Some(lease.token().next().0)
                            && self.changes.has(Switch::ReleaseRecognisedWithoutHead) =>
                    {
                        Reply::Ended(None)
                    }
                    (_, reply) => reply,
                };
                Executed { row: self.row, landed: false, reply }
            }
        }
    }

    /// A grant made by a late clock ends no later than one by an early clock:
    /// how long a lease seems to run is each reader's choice anyway.
    fn forget_whose_clock(&self, after: &mut Option<Row>) {
        if let (Op::Acquire(..) | Op::TakeOver(..), Some(row)) = (self.op, after) {
            row.set(a::EXPIRES_AT, (time(self.epoch, Clock::Early) + LEASE).as_millis());
        }
    }

    fn change_write(&self, write: &mut Write) {
        let drop_condition = |write: &mut Write, name: &str| strip(&mut write.condition, name);
        match self.op {
            Op::Settle(..) | Op::SettleAndRelease(..) => {
                if self.changes.has(Switch::OneTokenForADrain)
                    && let Action::Update(changes) = &mut write.action
                {
                    changes.retain(|change| !matches!(change, Change::Set(name, _) if name == a::TOKEN));
                }
                if self.changes.has(Switch::StepOverGaps) {
                    drop_condition(write, a::HEAD);
                }
                if self.changes.has(Switch::ReleaseWithoutTail) && matches!(self.op, Op::SettleAndRelease(..)) {
                    drop_condition(write, a::TAIL);
                }
            }
            Op::Claim(_) if self.changes.has(Switch::ClaimKeepsPurgeAt) => {
                if let Action::Update(changes) = &mut write.action {
                    changes.retain(|change| !matches!(change, Change::Remove(name) if name == a::PURGE_AT));
                }
            }
            Op::TakeOver(_, _, seen) if self.changes.has(Switch::ChargeWithoutAStart) => {
                if let Action::Update(changes) = &mut write.action
                    && !seen.is_started()
                {
                    for change in changes {
                        if let Change::Add { attribute, .. } = change
                            && attribute == a::SUSPECT
                        {
                            *attribute = a::ATTEMPTS.into();
                        }
                    }
                }
            }
            Op::Release(_) if self.changes.has(Switch::EveryReleaseSaysHandedOver) => {
                if let Action::Update(changes) = &mut write.action {
                    changes.retain(|change| !matches!(change, Change::Remove(name) if name == a::HANDOVER));
                    changes.push(Change::set(a::HANDOVER, 1_u32));
                }
            }
            Op::ReleaseEmpty(_) if self.changes.has(Switch::PendingOutlivesTheDrain) => {
                if let Action::Update(changes) = &mut write.action {
                    changes.retain(|change| !matches!(change, Change::Remove(name) if name == a::PENDING_SINCE));
                }
            }
            Op::ReleaseEmpty(_) if self.changes.has(Switch::ReleaseWithoutTail) => drop_condition(write, a::HEAD),
            Op::Void(_) if self.changes.has(Switch::VoidUnconditionally) => write.condition = Condition::Always,
            Op::Fail { .. } if self.changes.has(Switch::FailWithoutHead) => drop_condition(write, a::HEAD),
            _ => {}
        }
    }
}

fn decision(epoch: u8, decided: Decided) -> Decision {
    Decision {
        sequence: Sequence(decided.sequence),
        settled: LastSettled { identity: decided.id.map(|id| identity(id).hash()), settlement: decided.settlement },
        newest_event_time: EventTimes::default(),
        pending_since: decided.since.map(arrival),
        not_before: decided.rated.then(|| retry_at(epoch)),
    }
}

/// The row as a holder knows it once its commit has landed.
pub fn committed(epoch: u8, lease: Held, decided: Decided, hands_over: bool, view: View) -> View {
    let decision = decision(epoch, decided);
    let now = time(epoch, Clock::Early);
    let settle = Settle { lease: &lease, decision: &decision, now, length: LEASE, hands_over };
    intern(&VIEWS, settle.applied(&view))
}

/// Takes the comparisons of `name` out of a condition.
fn strip(condition: &mut Condition, name: &str) {
    if let Condition::All(parts) = condition {
        parts.retain(|part| !matches!(part, Condition::Compare(attribute, ..) if attribute == name));
        parts.iter_mut().for_each(|part| strip(part, name));
    }
}

fn acquired_reply(request: &Acquire, acquired: Acquired) -> Reply {
    match acquired {
        Acquired::Granted(lease, state) => Reply::Granted(intern(&LEASES, lease), intern(&VIEWS, state)),
        Acquired::Held(state) => Reply::Seen(intern(&VIEWS, state)),
        Acquired::Empty => Reply::Empty,
        Acquired::Waiting { until, .. } if until > request.now => Reply::Waiting,
        Acquired::Waiting { .. } => Reply::Free,
        Acquired::Blocked => Reply::Blocked,
    }
}

fn failed_reply(failed: Failed) -> Reply {
    match failed {
        Failed::Counted => Reply::Ended(None),
        Failed::Lost => Reply::Lost,
    }
}
