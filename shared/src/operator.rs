//! What an operator does: look at an entity, put back what was parked, unblock,
//! erase.

mod acts;
mod erase;
mod hold;
mod pass;
mod past;
mod put_back;
mod restore;
mod rewind;
mod single;
mod skip;
mod waiting;

use std::{collections::BTreeMap, time::Duration};

pub use erase::Erased;
pub use hold::Turned;
pub use pass::{Estimate, Pass, Read};
pub use past::{Past, Settled};
pub use put_back::PutBack;
pub use restore::{Found as FoundByRestore, Newest, RESTORED, Restored, Told as ToldOfRestored, ToldOfJob};
pub use rewind::{Rewinding, Rewound, as_before};
pub use single::{Content, Single};
pub use skip::Skipped;

use crate::{
    engine::{
        append::{AppendError, Appended, Inbox},
        drain::aside::PARTS_LONGER,
        queue::QueueError,
        store::{Store, StoreError},
        wake::Waker,
    },
    leases::LeaseError,
    protocol::{
        delivery::{Delivery, Item},
        entity::{EntityKey, Sequence},
        format::{CorruptRow, attribute as a},
        inbox::{Unblock, Unblocked, Void},
        keys::{delivery_range, is_parked, parked_range, parked_row, receipt_range, receipt_row},
        maintain::{ExpireAgain, Reason, Remove, Verb},
        receipt::{Receipt, Settlement},
        state::{BlockReason, EntityState},
        table::{Key, Row, TableName},
    },
    time::Timestamp,
};

const PATIENCE: Duration = Duration::from_secs(10);
const PAGE: u32 = 100;

/// Longer than an operator's write takes.
const A_WHILE: Duration = Duration::from_secs(30);

/// How often an unblock looks again whose token has been passed meanwhile.
const LOOKS: u32 = 5;

/// An operator's view of the store.
#[derive(Debug, Clone)]
pub struct Operator {
    store: Store,
    waker: Waker,
    inbox: Inbox,
    retention: Duration,
    parked_retention: Option<Duration>,
    reason: Option<Reason>,
    /// In how many parts a table is read as a whole.
    parts: u32,
}

/// Why an operation was not done, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The store could not be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The delivery could not be put back. It is still parked.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A worker has set the delivery aside and not yet settled it, or died in
    /// between. Nothing was put back; ask again a little later.
    #[error("it is still being decided; nothing was put back")]
    Undecided,
    /// The worker that set the delivery aside lost its lease or died, and
    /// another has decided it otherwise since. It is not parked any more.
    #[error("it was {0} after all, not parked; nothing was put back")]
    DecidedOtherwise(Settlement),
    /// It was put back, found to be decided otherwise or erased since it was
    /// looked at.
    #[error("it is not parked any more; nothing was put back")]
    NotParked,
    /// Deliveries wait, somebody has the lease, or it is on hold.
    #[error("deliveries wait there or are at work, or it is on hold; nothing was erased")]
    InUse,
    /// There is no such entity.
    #[error("nothing is known of it; is that its key?")]
    Unknown,
    /// A job is no order.
    #[error("that is a job, which `jobs` runs and switches off; that is done to orders only")]
    IsAJob,
    /// Its lease was not to be had, or was lost on the way.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// No wake-up could be sent. Nothing was changed: what goes on without one may
    /// be found by nobody.
    #[error("{0}; nothing was changed, try again")]
    NobodyToWake(QueueError),
    /// All is written, but no wake-up could be sent: send it again, or leave it
    /// to the sweep.
    #[error("done, but {0}; the sweep will find it within the hour")]
    Queue(#[from] QueueError),
}

impl From<CorruptRow> for OperatorError {
    fn from(error: CorruptRow) -> Self {
        Self::Store(error.into())
    }
}

/// One parked delivery.
#[derive(Debug, Clone)]
pub struct Parked {
    /// Where it stood, and what `redrive` takes.
    pub sequence: Sequence,
    /// When it was set aside.
    pub parked_at: Option<Timestamp>,
    /// When it may be forgotten; `None`: not before a person decides.
    pub kept_until: Option<Timestamp>,
    /// Why.
    pub error: String,
    row: Row,
    delivery: Delivery,
}

impl Parked {
    /// What an inbox row says is parked; `None`: it is another kind of row.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn of(row: &Row) -> Result<Option<Self>, CorruptRow> {
        match row.text(a::ENTITY).filter(|_| is_parked(row)) {
            Some(entity) => Self::parse(&EntityKey::parse(entity)?, row),
            None => Ok(None),
        }
    }

    fn parse(entity: &EntityKey, row: &Row) -> Result<Option<Self>, CorruptRow> {
        let Item::Delivery(unpacked) = Item::parse(entity, row)? else { return Ok(None) };
        Ok(Some(Self {
            sequence: unpacked.head().sequence(),
            parked_at: row.number(a::PARKED_AT).map(Timestamp::from_millis),
            kept_until: row.number(a::PURGE_AT).map(Timestamp::from_secs),
            error: row.text(a::ERROR).unwrap_or_default().to_owned(),
            row: row.clone(),
            delivery: unpacked.head().clone(),
        }))
    }

    /// The delivery, without its body where that stands in parts.
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }
}

/// An entity, as far as an operator asks.
#[derive(Debug, Clone)]
pub struct Inspected {
    /// Its row; `None`: it has none.
    pub state: Option<EntityState>,
    /// The next deliveries waiting, at most 100.
    pub waiting: Vec<Item>,
    /// Those among them that a person has run again, and how each was settled
    /// before: what was not applied stays as it was.
    pub again: BTreeMap<Sequence, Settlement>,
    /// What is parked.
    pub parked: Vec<Parked>,
}

/// What an entity's row tells of a delivery that is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Its place is not decided: whoever set it aside has not settled it so.
    Undecided,
    /// It was settled so.
    Settled(Settlement),
    /// Nothing any more: a receipt of its own may.
    InItsReceipt,
    /// There is no row any more.
    Forgotten,
}

/// What `state` tells of the delivery at `sequence`.
pub fn told(state: Option<&EntityState>, sequence: Sequence) -> Told {
    match state {
        None => Told::Forgotten,
        Some(state) if state.head < sequence => Told::Undecided,
        Some(state) => match state.recent.at(sequence) {
            Some(receipt) => Told::Settled(receipt.settlement),
            None => Told::InItsReceipt,
        },
    }
}

/// Whether a parked delivery is put back that was settled so; `None`: longer ago
/// than anybody remembers.
pub fn is_put_back(settlement: Option<Settlement>) -> bool {
    settlement.is_none_or(|settlement| settlement == Settlement::Parked)
}

impl Operator {
    /// An operator on `store`.
    pub fn new(store: Store, waker: Waker, inbox: Inbox, retention: Duration) -> Self {
        Self { store, waker, inbox, retention, parked_retention: None, reason: None, parts: pass::PARTS }
    }

    /// What it sets aside is kept for so long; `None`, as otherwise: until a person
    /// decides.
    #[must_use]
    pub fn parked_for(self, parked_retention: Option<Duration>) -> Self {
        Self { parked_retention, ..self }
    }

    /// How an entity stands: its row, what waits, what is parked. The rows are read one after the other
    /// while workers go on: a diagnosis, not a moment's truth.
    pub async fn inspect(&self, entity: &EntityKey) -> Result<Inspected, OperatorError> {
        let state = self.store.entity(entity, PATIENCE).await?;
        let waiting = match &state {
            Some(state) if !state.is_empty() => {
                let range = delivery_range(entity, state.next(), state.tail, PAGE);
                let rows = self.store.query(&range, PATIENCE).await?.rows;
                rows.iter().map(|row| Item::parse(entity, row)).collect::<Result<_, _>>()?
            }
            _ => Vec::new(),
        };
        let again = match &state {
            Some(state) if state.spilled => self.again(entity, &waiting).await?,
            _ => BTreeMap::new(),
        };
        Ok(Inspected { state, waiting, again, parked: self.parked(entity).await? })
    }

    /// All that is remembered of an entity's places, in their order: of each once.
    /// What is to be run again is not settled.
    pub async fn receipts(&self, entity: &EntityKey) -> Result<Vec<Receipt>, OperatorError> {
        // The row first: what leaves it meanwhile has a receipt of its own by then.
        let state = self.store.entity(entity, PATIENCE).await?;
        let mut receipts: BTreeMap<Sequence, Receipt> = BTreeMap::new();
        let mut after = None;
        // Whether any have left the row is not asked: this is to show what is there.
        loop {
            let page = self.store.query(&receipt_range(entity, after, PAGE), PATIENCE).await?;
            for row in &page.rows {
                let receipt = Receipt::parse(row)?;
                after = receipt.identity;
                receipts.insert(receipt.sequence, receipt);
            }
            if !page.more || page.rows.is_empty() {
                break;
            }
        }
        let recent = state.iter().flat_map(|state| state.recent.iter());
        receipts.extend(recent.map(|receipt| (receipt.sequence, receipt.clone())));
        let is_settled = |sequence: Sequence| state.as_ref().is_none_or(|state| sequence <= state.head);
        Ok(receipts.into_values().filter(|receipt| is_settled(receipt.sequence)).collect())
    }

    /// What is parked of an entity, in the order of arrival.
    pub async fn parked(&self, entity: &EntityKey) -> Result<Vec<Parked>, OperatorError> {
        let mut parked: Vec<Parked> = Vec::new();
        loop {
            let from = parked.last().map_or(Sequence(0), |last: &Parked| last.sequence.next());
            let page = self.store.query(&parked_range(entity, from, PAGE), PATIENCE).await?;
            for row in page.rows.iter() {
                parked.extend(Parked::parse(entity, row)?);
            }
            if !page.more || page.rows.is_empty() {
                return Ok(parked);
            }
        }
    }

    /// Every entity that has a row, by key; what else its row says is not looked
    /// at. Reads the whole table.
    pub async fn entities(&self) -> Result<Vec<EntityKey>, OperatorError> {
        let mut entities = Vec::new();
        let mut pass = self.pass(TableName::Entities);
        while let Some(rows) = pass.page().await? {
            for key in rows.iter().filter_map(|row| row.text(a::ENTITY)) {
                entities.push(EntityKey::parse(key).map_err(CorruptRow::from)?);
            }
        }
        entities.sort_unstable();
        Ok(entities)
    }

    /// What is parked anywhere, by entity. Reads the whole inbox table, and
    /// takes as long.
    pub async fn all_parked(&self) -> Result<Vec<Parked>, OperatorError> {
        let mut parked = Vec::new();
        let mut pass = self.pass(TableName::Inbox);
        while let Some(rows) = pass.page().await? {
            for row in rows.iter().filter(|row| is_parked(row)) {
                parked.extend(Parked::of(row)?);
            }
        }
        parked.sort_by(|left, right| {
            (left.delivery.entity(), left.sequence).cmp(&(right.delivery.entity(), right.sequence))
        });
        Ok(parked)
    }

    /// Puts a parked delivery back at its inbox's tail, under the next redrive
    /// number, and only then removes it from where it was parked. Asked twice,
    /// the second finds nothing parked, or is recognised as a repeat of the
    /// first.
    ///
    /// `to` is the inbox it goes to instead of the one it is parked in: for
    /// deliveries whose entity could not be found.
    ///
    /// # Errors
    ///
    /// [`OperatorError::IsAJob`] where `to` is in the namespace `cron`.
    pub async fn redrive(&self, parked: &Parked, to: Option<&EntityKey>) -> Result<Appended, OperatorError> {
        let told = |appended: &Appended| match to {
            Some(to) => format!("put into the inbox of {to}, as {}", appended.sequence),
            None => format!("put back as {}", appended.sequence),
        };
        if to.is_some_and(EntityKey::is_kept_forever) {
            return Err(OperatorError::IsAJob);
        }
        let entity = parked.delivery.entity();
        self.act(entity, Verb::Redrive, Some(parked.sequence), self.append_again(parked, to), told).await
    }

    async fn append_again(&self, parked: &Parked, to: Option<&EntityKey>) -> Result<Appended, OperatorError> {
        let Item::Delivery(unpacked) = Item::parse(parked.delivery.entity(), &parked.row)? else {
            return Err(CorruptRow::Attribute(a::VOID).into());
        };
        let keys = unpacked.head().part_keys();
        let settled = self.settled_as(unpacked.head()).await?;
        if let Some(settlement) = settled.filter(|_| !is_put_back(settled)) {
            self.forget_left_over(parked).await?;
            return Err(OperatorError::DecidedOtherwise(settlement));
        }
        let parts = if keys.is_empty() { Vec::new() } else { self.store.get_many(&keys, PATIENCE).await? };
        // Behind the receipt: where that was erased, or forgotten by retention, the list may be as old.
        if !self.is_parked(parked).await? {
            return Err(OperatorError::NotParked);
        }
        let delivery = unpacked.complete(&parts)?;
        let mut incoming = delivery.redriven(self.store.env().now());
        if let Some(to) = to {
            incoming.entity = to.clone();
        }
        let appended = self.inbox.append_again(&incoming, parked.delivery.run_before()).await?;
        self.forget(parked, &keys).await?;
        match appended.wake_up_failed.clone() {
            Some(error) => Err(error.into()),
            None => Ok(appended),
        }
    }

    /// How the delivery of a parked row was settled; `None`: longer ago than
    /// anybody remembers. The row is written before the settle, by a holder
    /// that may have lost its lease, so that it alone proves nothing.
    async fn settled_as(&self, delivery: &Delivery) -> Result<Option<Settlement>, OperatorError> {
        // The entity's row first: what lies behind its head is decided for good.
        let state = self.store.entity(delivery.entity(), PATIENCE).await?;
        Ok(match told(state.as_ref(), delivery.sequence()) {
            Told::Undecided => return Err(OperatorError::Undecided),
            Told::Forgotten => None,
            Told::Settled(settlement) => Some(settlement),
            Told::InItsReceipt => {
                let key = receipt_row(delivery.entity(), delivery.identity_hash());
                let row = self.store.get(&key, PATIENCE).await?;
                row.as_ref().map(Receipt::parse).transpose()?.map(|receipt| receipt.settlement)
            }
        })
    }

    /// Whether what was looked at is parked still.
    async fn is_parked(&self, parked: &Parked) -> Result<bool, OperatorError> {
        let row = self.store.get(&parked_row(parked.delivery.entity(), parked.sequence), PATIENCE).await?;
        Ok(row.is_some_and(|row| row.get(a::NONCE) == parked.row.get(a::NONCE)))
    }

    /// The row goes first: without it nobody looks for the parts.
    async fn forget(&self, parked: &Parked, parts: &[Key]) -> Result<(), OperatorError> {
        self.store.run(&Remove::of(&parked.row)?, PATIENCE).await?;
        self.remove_parts(parts).await
    }

    /// Removes a parked row whose delivery was settled otherwise. The parts of its
    /// body stay: the delivery's own row names them, and can be run again.
    async fn forget_left_over(&self, parked: &Parked) -> Result<(), OperatorError> {
        // No row names them for longer than the retention from now on.
        let until = self.store.env().now() + self.retention + PARTS_LONGER;
        for part in parked.delivery.part_keys() {
            self.store.run(&ExpireAgain { part, until }, PATIENCE).await?;
        }
        self.store.run(&Remove::of(&parked.row)?, PATIENCE).await?;
        Ok(())
    }

    /// Sends a wake-up that comes a while later, in front of a write that lets an
    /// entity go on: should this process end between that and the wake-up that
    /// follows it.
    async fn wakes_later(&self, entity: &EntityKey) -> Result<(), OperatorError> {
        self.waker.wake(entity, A_WHILE, PATIENCE).await.map_err(OperatorError::NobodyToWake)
    }

    /// Lets drains at an entity again, and wakes one. Where it was blocked for
    /// a delivery that retention may have deleted, its place is given up first,
    /// if it is still empty: that is what the operator decides by unblocking.
    pub async fn unblock(&self, entity: &EntityKey) -> Result<Unblocked, OperatorError> {
        let told = |unblocked: &Unblocked| match unblocked {
            Unblocked::Unblocked(state) => format!("goes on at {}", state.next()),
            Unblocked::NotBlocked(_) => "nothing to do".into(),
        };
        self.act(entity, Verb::Unblock, None, self.end_block(entity), told).await
    }

    async fn end_block(&self, entity: &EntityKey) -> Result<Unblocked, OperatorError> {
        let Some(state) = self.store.entity(entity, PATIENCE).await? else {
            return Ok(Unblocked::NotBlocked(None));
        };
        if state.blocked == Some(BlockReason::Expired) {
            let purge_at = self.store.env().now() + self.retention;
            self.store.run(&Void { entity, sequence: state.next(), purge_at }, PATIENCE).await?;
        }
        let mut unblocked = Unblocked::NotBlocked(Some(state));
        for _ in 0..LOOKS {
            match &unblocked {
                // An exclusive holder came in between, or it is blocked once more.
                Unblocked::NotBlocked(Some(state)) if state.blocked.is_some() => {
                    self.wakes_later(entity).await?;
                    let unblock = Unblock { entity, seen: state.token };
                    unblocked = self.store.run(&unblock, PATIENCE).await?;
                }
                _ => break,
            }
        }
        self.waker.wake(entity, Duration::ZERO, PATIENCE).await?;
        Ok(unblocked)
    }
}
