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
            Block, Claim, Commit, Committed, Decision, Fail, Failed, MarkStart, Marked, Park, Put, PutOutcome, Receipt,
            Settle, SettleAndRelease, Settled, SettledAndReleased, Unblock, Unblocked, Void, Voided, WriteReceipt,
        },
        lease::{
            Acquire, Acquired, AnnounceEnd, AskToYield, Ended, ForceRelease, Forced, GiveWay, HandOver, Lease, Release,
            ReleaseEmpty, Released, Renew, Renewed, TakeOver,
        },
        memory,
        operation::Operation,
        state::{BlockReason, EntityState, HolderInfo, LeaseKind, Settlement},
        table::{Action, Change, Condition, Row, Transacted, Write, Written},
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

pub type Pool<T> = LazyLock<Mutex<HashMap<String, Interned<T>>>>;

pub fn intern<T: fmt::Debug + 'static>(pool: &Pool<T>, value: T) -> Interned<T> {
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
pub const LEASE: Duration = Duration::from_secs(15);

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

pub fn retry_at(epoch: u8) -> Timestamp {
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

pub fn id_of(hash: &webhook_serializer::protocol::entity::IdentityHash) -> Id {
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

pub fn intern_view(state: &EntityState) -> View {
    intern(&VIEWS, state.clone())
}

pub fn intern_lease(lease: Lease) -> Held {
    intern(&LEASES, lease)
}

impl Answer {
    /// Somebody holds it.
    pub fn held(seen: View) -> Self {
        intern(&ANSWERS, Acquired::Held((*seen).clone()))
    }
}

pub fn view_of(row: &Row) -> View {
    intern(&VIEWS, EntityState::parse(row).expect("an entity's row"))
}

/// What is decided of a place.
pub type Decided = Interned<Decision>;

static DECISIONS: Pool<Decision> = LazyLock::new(Mutex::default);

pub fn decided(decision: Decision) -> Decided {
    intern(&DECISIONS, decision)
}

impl Decided {
    pub fn place(&self) -> u64 {
        self.sequence.0
    }

    pub fn id(&self) -> Option<Id> {
        self.settled.identity.as_ref().map(id_of)
    }

    pub fn settlement(&self) -> Settlement {
        self.settled.settlement
    }
}

impl fmt::Debug for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", short(self.place()), self.settlement())
    }
}

/// How a request for the lease was answered.
pub type Answer = Interned<Acquired>;

static ANSWERS: Pool<Acquired> = LazyLock::new(Mutex::default);

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", **self)
    }
}

/// A receipt's contents: whose, where, how, under which token.
pub type Told = (Id, u64, Settlement, u64);

/// That receipt.
pub fn receipt(epoch: u8, (id, sequence, settlement, token): Told) -> Receipt {
    Receipt {
        identity: identity(id).hash(),
        sequence: Sequence(sequence),
        settlement,
        token: FencingToken(token),
        attempts: 0,
        received_at: None,
        started_at: None,
        settled_at: time(epoch, Clock::Early),
        source: None,
        delivery_id: None,
        topic: None,
    }
}

/// What a receipt tells.
pub fn told(receipt: &Receipt) -> Told {
    (id_of(&receipt.identity), receipt.sequence.0, receipt.settlement, receipt.token.0)
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
    Receipt(Told),
    Park(Id, u64),
    Fail {
        lease: Held,
        sequence: u64,
        attempts: u32,
        retry: bool,
    },
    Block(Held, u64, BlockReason),
    AnnounceEnd(Held),
    GiveWay(Held),
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
    Answered(Answer),
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
                self.with(&request, |acquired| Reply::Answered(intern(&ANSWERS, acquired)))
            }
            Op::TakeOver(kind, drawn, seen) => {
                let take_over = TakeOver { request: self.request(kind, drawn, Clock::Late), seen: (*seen).clone() };
                self.with(&take_over, |acquired| Reply::Answered(intern(&ANSWERS, acquired)))
            }
            Op::Renew(lease) => self.with(&Renew { lease: &lease, now, length: LEASE }, |renewed| match renewed {
                Renewed::Renewed(state) => Reply::Goes(lease, intern(&VIEWS, state)),
                Renewed::Lost => Reply::Lost,
            }),
            Op::Settle(lease, decided, hands_over) => {
                let settle = Settle { lease: &lease, decision: &decided, now, length: LEASE, hands_over };
                self.with(&settle, |settled| match settled {
                    Settled::Settled(_, state) if self.changes.has(Switch::OneTokenForADrain) => {
                        held((*lease).clone(), state)
                    }
                    Settled::Settled(lease, state) => held(lease, state),
                    Settled::Lost => Reply::Lost,
                })
            }
            Op::SettleAndRelease(lease, decided) => {
                let last = SettleAndRelease { lease: &lease, decision: &decided, purge_at: Some(purge_at) };
                self.with(&last, |settled| match settled {
                    SettledAndReleased::Released => Reply::Ended(None),
                    SettledAndReleased::Grown(state) => Reply::Grown(intern(&VIEWS, state)),
                    SettledAndReleased::Lost => Reply::Lost,
                })
            }
            Op::Receipt(told) => {
                let receipt = receipt(self.epoch, told);
                self.with(&WriteReceipt { entity, receipt: &receipt, purge_at }, |()| Reply::Done)
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
            Op::Block(lease, sequence, reason) => {
                self.with(&Block { lease: &lease, sequence: Sequence(sequence), reason }, failed_reply)
            }
            Op::AnnounceEnd(lease) => self.with(&AnnounceEnd { lease: &lease }, |_| Reply::Done),
            Op::GiveWay(lease) => self.with(&GiveWay { lease: &lease, now }, |ended| match ended {
                Ended::Ended(state) => Reply::Ended(Some(intern(&VIEWS, state))),
                Ended::Lost => Reply::Lost,
            }),
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
            Op::Release(_) | Op::GiveWay(_) if self.changes.has(Switch::EveryReleaseSaysHandedOver) => {
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

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Committing {
    /// The lease goes on as this, and the row is known as this.
    Landed(Held, View),
    SettledBefore,
    Refused,
    Lost,
}

/// A settle with its receipt, in one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transaction {
    pub lease: Held,
    pub decided: Decided,
    pub told: Told,
    pub hands_over: bool,
    /// The row as its author knows it.
    pub known: View,
    /// Whether it landed before: then it is answered as it was.
    pub landed: bool,
}

impl Transaction {
    /// What its author makes of the answer, on these rows.
    pub fn judged(self, changes: Changes, epoch: u8, row: Option<Stored>, item: Option<Stored>) -> (bool, Committing) {
        let now = time(epoch, Clock::Early);
        let receipt = receipt(epoch, self.told);
        let commit = Commit {
            settle: Settle {
                lease: &self.lease,
                decision: &self.decided,
                now,
                length: LEASE,
                hands_over: self.hands_over,
            },
            receipt: WriteReceipt { entity: entity(), receipt: &receipt, purge_at: now + Duration::from_secs(1000) },
            writes: &[],
        };
        let mut writes = commit.all();
        if changes.has(Switch::CommitYieldsToReceipts) {
            writes[1] = commit.receipt.write();
        }
        let rows = [row, item].map(|row| row.map(|row| (*row).clone()));
        let met =
            |(write, row): (&Write, &Option<Row>)| memory::evaluate(write, row.as_ref()).err().map(|()| row.clone());
        let refusals: Vec<_> = writes.iter().zip(&rows).map(met).collect();
        let lands = refusals.iter().all(Option::is_none);
        let answer = if lands || self.landed { Transacted::Landed } else { Transacted::Refused(refusals) };
        let committing = match commit.judge(answer).expect("the model's rows are sound") {
            Committed::Landed(lease) => {
                Committing::Landed(intern(&LEASES, lease), intern(&VIEWS, commit.settle.applied(&self.known)))
            }
            Committed::SettledBefore => Committing::SettledBefore,
            Committed::Refused => Committing::Refused,
            Committed::Lost => Committing::Lost,
        };
        (lands, committing)
    }
}

/// Takes the comparisons of `name` out of a condition.
fn strip(condition: &mut Condition, name: &str) {
    if let Condition::All(parts) = condition {
        parts.retain(|part| !matches!(part, Condition::Compare(attribute, ..) if attribute == name));
        parts.iter_mut().for_each(|part| strip(part, name));
    }
}

fn failed_reply(failed: Failed) -> Reply {
    match failed {
        Failed::Counted => Reply::Ended(None),
        Failed::Lost => Reply::Lost,
    }
}
