//! The model's values: rows, states, leases, receipts. All are interned and their operations are memoized, so
//! that a step costs only look-ups.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{LazyLock, Mutex},
    time::Duration,
};

use webhook_serializer::{
    engine::drain::plan::Spilling,
    protocol::{
        entity::{DeliveryId, EntityKey, Identity, IdentityHash, SourceName},
        format::attribute as a,
        inbox::Decision,
        lease::{Acquired, Lease},
        receipt::{Receipt, Recent, Settlement},
        state::EntityState,
        table::Row,
    },
    time::{Nonce, Timestamp},
};

/// A value with a single copy: compared by address, hashed by content.
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

pub type RowRef = Interned<Row>;
/// An entity's row as one of the actors last saw it.
pub type View = Interned<EntityState>;
pub type LeaseRef = Interned<Lease>;

static ROWS: Pool<Row> = LazyLock::new(Mutex::default);
static VIEWS: Pool<EntityState> = LazyLock::new(Mutex::default);
static LEASES: Pool<Lease> = LazyLock::new(Mutex::default);

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", summary(self))
    }
}

impl fmt::Debug for LeaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {}", short(self.token().0))
    }
}

impl fmt::Debug for RowRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match EntityState::parse(self) {
            Ok(state) => write!(f, "{}", summary(&state)),
            Err(_) => write!(f, "{}", self.text(a::OUTCOME).or(self.text(a::DELIVERY_ID)).unwrap_or("void")),
        }
    }
}

/// Formats a number relative to its base.
pub fn short(number: u64) -> String {
    let epoch = number / EPOCH;
    let rest = number % EPOCH;
    if epoch > 1 { format!("{rest}'{}", epoch - 1) } else { rest.to_string() }
}

fn memory(state: &EntityState) -> String {
    let one = |receipt: &Receipt| match receipt.identity {
        Some(identity) => format!("{} {}", id_of(identity), receipt.settlement),
        None => receipt.settlement.to_string(),
    };
    state.recent.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Formats a row in one line.
pub fn summary(state: &EntityState) -> String {
    let mut text = format!("head {} tail {} token {}", short(state.head.0), short(state.tail.0), short(state.token.0));
    match &state.held {
        Some(held) => text += &format!(", {} lease", held.kind.as_str()),
        None => text += ", free",
    }
    if state.suspect > 0 {
        text += ", suspect";
    }
    if let Some(last) = state.one_by_one {
        text += &format!(", one by one to {}", short(last.0));
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
        (state.handover.is_some(), ", handing over"),
    ] {
        if there {
            text += name;
        }
    }
    if state.recent.last().is_some() {
        text += &format!(", remembers {}{}", memory(state), if state.spilled.is_anywhere() { " and more" } else { "" });
    }
    text
}

/// The distance in time between two incarnations of the row.
const EPOCH: u64 = 10_000_000;
pub const LEASE: Duration = Duration::from_secs(15);

/// How a reader sees the times in a row: all in the future, or all in the past. Each reader's clock is
/// independent of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClockReading {
    /// Leases are valid; retries and yields are not over.
    Early,
    /// Leases have expired; retries and yields are over.
    Late,
}

/// Returns the time of `clock` in incarnation `epoch` of the row.
pub fn time(epoch: u8, clock: ClockReading) -> Timestamp {
    let base = EPOCH * (u64::from(epoch) + 1);
    Timestamp::from_millis(match clock {
        ClockReading::Early => base,
        ClockReading::Late => base + 100_000,
    })
}

/// Returns the time at which `sequence` was claimed. An incarnation begins with its first claim.
pub fn arrival(sequence: u64) -> Timestamp {
    Timestamp::from_millis(sequence - 1)
}

pub fn retry_at(epoch: u8) -> Timestamp {
    time(epoch, ClockReading::Early) + Duration::from_secs(30)
}

/// A delivery's number and its redrive number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId {
    pub delivery: u8,
    pub redrive: u8,
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(b'A' + self.delivery))?;
        (0..self.redrive).try_for_each(|_| f.write_str("'"))
    }
}

/// A nonce: its author and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NonceId(pub u8, pub u8);

impl NonceId {
    pub fn nonce(self) -> Nonce {
        Nonce::from_parts(Timestamp::from_millis(1), u128::from(self.0) << 8 | u128::from(self.1))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelItem {
    Delivery(u64),
    Receipt(ModelId),
    /// A page of receipts: its last sequence, its number of receipts, and its last token.
    ReceiptPage(u64, usize, u64),
    Parked(u64),
}

pub fn entity() -> &'static EntityKey {
    static ENTITY: LazyLock<EntityKey> = LazyLock::new(|| EntityKey::parse("shop/order/1").unwrap());
    &ENTITY
}

pub fn identity(id: ModelId) -> Identity {
    Identity {
        source: SourceName::parse("shop").unwrap(),
        delivery_id: DeliveryId::new(char::from(b'A' + id.delivery).to_string()),
        redrive: id.redrive.into(),
    }
}

pub fn id_of(hash: IdentityHash) -> ModelId {
    let all = (0..4).flat_map(|delivery| (0..4).map(move |redrive| ModelId { delivery, redrive }));
    all.into_iter().find(|id| identity(*id).hash() == hash).expect("the model's deliveries only")
}

/// Returns the delivery in a row; `None` for a tombstone.
pub fn delivery_at(row: &Row) -> Option<ModelId> {
    let delivery = row.text(a::DELIVERY_ID)?.bytes().next()? - b'A';
    Some(ModelId { delivery, redrive: row.number(a::REDRIVE).unwrap_or(0) as u8 })
}

pub fn receipt_at(row: &Row) -> (u64, Settlement) {
    let receipt = Receipt::parse(row).expect("a receipt");
    (receipt.sequence.0, receipt.settlement)
}

pub fn intern_view(state: &EntityState) -> View {
    intern(&VIEWS, state.clone())
}

pub fn intern_lease(lease: Lease) -> LeaseRef {
    intern(&LEASES, lease)
}

impl AcquiredRef {
    pub fn of(acquired: Acquired) -> Self {
        intern(&ANSWERS, acquired)
    }
}

impl RowRef {
    pub fn of(row: Row) -> Self {
        intern(&ROWS, row)
    }
}

thread_local! {
    /// The states of rows by address, because a row is read many times.
    static VIEW_OF: RefCell<HashMap<usize, View>> = RefCell::default();
}

pub fn view_of(row: &RowRef) -> View {
    let parse = || intern(&VIEWS, EntityState::parse(row).expect("an entity's row"));
    VIEW_OF.with_borrow_mut(|views| *views.entry(std::ptr::from_ref(row.0).addr()).or_insert_with(parse))
}

pub type DecisionRef = Interned<Decision>;

static DECISIONS: Pool<Decision> = LazyLock::new(Mutex::default);

pub fn intern_decision(decision: Decision) -> DecisionRef {
    intern(&DECISIONS, decision)
}

impl DecisionRef {
    pub fn each(&self) -> Vec<ReceiptRef> {
        self.receipts().cloned().map(intern_receipt).collect()
    }
}

impl fmt::Debug for DecisionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |receipt: ReceiptRef| format!("{} {}", short(receipt.sequence.0), receipt.settlement);
        f.write_str(&self.each().into_iter().map(one).collect::<Vec<_>>().join(", "))
    }
}

pub type AcquiredRef = Interned<Acquired>;

static ANSWERS: Pool<Acquired> = LazyLock::new(Mutex::default);

impl fmt::Debug for AcquiredRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", **self)
    }
}

pub type ReceiptRef = Interned<Receipt>;

static RECEIPTS: Pool<Receipt> = LazyLock::new(Mutex::default);

pub fn intern_receipt(receipt: Receipt) -> ReceiptRef {
    intern(&RECEIPTS, receipt)
}

impl ReceiptRef {
    pub fn id(&self) -> Option<ModelId> {
        self.identity.map(id_of)
    }

    /// Returns the key of the receipt's separate row.
    pub fn item(&self) -> ModelItem {
        ModelItem::Receipt(self.id().expect("it has a row"))
    }
}

/// Receipts that are written to one page.
pub type ReceiptPageRef = Interned<Recent>;

static RECEIPT_PAGES: Pool<Recent> = LazyLock::new(Mutex::default);

impl ReceiptPageRef {
    /// Returns the key of the page's row.
    fn item(&self) -> ModelItem {
        let last = self.last().expect("a page has receipts");
        ModelItem::ReceiptPage(last.sequence.0, self.iter().len(), last.token.0)
    }
}

impl fmt::Debug for ReceiptPageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "receipts up to {}", short(self.last().map_or(0, |last| last.sequence.0)))
    }
}

/// The receipts that a drain copies from the order's row by one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopiedReceipts {
    Page(ReceiptPageRef),
    One(ReceiptRef),
}

impl CopiedReceipts {
    /// Returns the first write of `spilling`.
    pub fn first_of(spilling: Spilling) -> Self {
        match spilling {
            Spilling::Page(receipts) => Self::Page(intern(&RECEIPT_PAGES, receipts)),
            Spilling::Rows(receipts) => {
                Self::One(intern_receipt(receipts.into_iter().next().expect("a receipt leaves the row")))
            }
        }
    }

    pub fn spilling(self) -> Spilling {
        match self {
            Self::Page(receipts) => Spilling::Page((*receipts).clone()),
            Self::One(receipt) => Spilling::Rows(vec![(*receipt).clone()]),
        }
    }

    pub fn item(self) -> ModelItem {
        match self {
            Self::Page(receipts) => receipts.item(),
            Self::One(receipt) => receipt.item(),
        }
    }
}

impl fmt::Debug for ReceiptRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "receipt of {}", short(self.sequence.0))
    }
}
