//! Runs the operations of an operator.

mod acts;
mod erase;
mod hold;
mod outages;
mod pass;
mod past;
mod redrive;
mod restore;
mod rewind;
mod single;
mod skip;
mod stored;
mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub use erase::Erased;
pub use hold::StateChange;
pub use pass::{Estimate, Pass, ReadCost, held_entity, indexed_entity};
pub use past::{Past, SettledPage};
pub use redrive::Redriven;
pub use restore::{JobReport, Newest, RESTORED, RestoreFindings, RestoreReport, Restored};
pub use rewind::{RewindOutcome, Rewinding, as_before};
pub use single::{Content, LOOKS_BACK, Single};
pub use skip::SkipOutcome;
pub use stored::StoredDelivery;

use crate::{
    engine::{
        append::{AppendError, Appended, Inbox},
        drain::{page::read_paged, park::PARTS_OUTLIVE},
        queue::{QueueError, WakeUp},
        store::{Store, StoreError},
        wake::Waker,
    },
    leases::LeaseError,
    protocol::{
        delivery::{Delivery, InboxItem},
        entity::{EntityKey, Sequence},
        format::{CorruptRow, attribute as a},
        inbox::{Unblock, Unblocked, Void},
        keys::{delivery_range, inbox_range, is_parked, parked_range, parked_row, receipt_range},
        maintain::{ExpireAgain, MarkRedrive, Reason, RedriveMarked, Remove},
        receipt::{Receipt, Settlement, Spilled, keep_latest},
        state::{BlockReason, EntityState},
        table::{InvalidKind, Key, Row, TableName},
    },
    time::Timestamp,
};

const PATIENCE: Duration = Duration::from_secs(10);
const PAGE: u32 = 100;

/// The delay of the wake-up that is sent before an operation's write. The delay is longer than the write takes.
const SAFETY_DELAY: Duration = Duration::from_secs(30);

/// The number of times that an operation tries to write a row that other processes keep changing.
const TRIES: u32 = 5;

#[derive(Debug, Clone)]
pub struct Operator {
    store: Store,
    waker: Waker,
    inbox: Inbox,
    retention: Duration,
    parked_retention: Option<Duration>,
    reason: Option<Reason>,
    parts: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The redriven delivery could not be appended. It is still parked.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A worker has stored the parked copy but not settled the delivery yet. Nothing was changed.
    /// Try again a little later.
    #[error("the delivery is not settled yet; nothing was changed")]
    Undecided,
    /// The worker that stored the parked copy lost its lease, and another worker settled the
    /// delivery with this outcome. The delivery is not parked any more.
    #[error("the delivery was settled as {0}, not parked")]
    DecidedOtherwise(Settlement),
    /// The delivery was not redriven, because an earlier one of its entity is undecided.
    #[error("an earlier delivery of its order is not settled yet")]
    Behind,
    /// The delivery was redriven, discarded or erased after it was read.
    #[error("the delivery is no longer parked")]
    NotParked,
    /// A redrive of the delivery has begun, and may have appended it. Nothing was discarded.
    #[error("a redrive of the delivery has begun; nothing was discarded")]
    Redriven,
    /// The entity is in use: deliveries wait, a lease is granted, the entity is on hold, or its row
    /// keeps changing.
    #[error("the order is on hold, leased, or has waiting deliveries; nothing was erased")]
    InUse,
    #[error("no order with this key is stored: check the key")]
    Unknown,
    #[error("this key is a job's, and the operation is for orders only. `serializer jobs run NAME` runs a job")]
    IsAJob,
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The wake-up that must precede the change could not be sent. Nothing was changed.
    #[error("{0}; nothing was changed, try again")]
    NobodyToWake(QueueError),
    /// The change was made, but the wake-up could not be sent. The sweep finds the entity later.
    #[error("the operation is done, but {0}; the sweep finds the order within three hours")]
    Queue(#[from] QueueError),
}

impl OperatorError {
    /// Returns what has to change before the store or the queue accepts such a request. `None` for any other error.
    pub fn invalid_kind(&self) -> Option<InvalidKind> {
        match self {
            Self::Store(error) | Self::Append(AppendError::Store(error)) => error.invalid_kind(),
            Self::Lease(error) => error.invalid_kind(),
            Self::NobodyToWake(error) | Self::Queue(error) => error.invalid_kind(),
            _ => None,
        }
    }
}

impl From<CorruptRow> for OperatorError {
    fn from(error: CorruptRow) -> Self {
        Self::Store(error.into())
    }
}

#[derive(Debug, Clone)]
pub struct Parked {
    pub sequence: Sequence,
    pub parked_at: Option<Timestamp>,
    /// The expiry of the parked delivery. `None` if it is kept until an operator redrives or discards
    /// it.
    pub kept_until: Option<Timestamp>,
    pub error: String,
    row: Row,
    delivery: Delivery,
}

impl Parked {
    pub fn of(row: &Row) -> Result<Option<Self>, CorruptRow> {
        match row.text(a::ENTITY).filter(|_| is_parked(row)) {
            Some(entity) => Self::parse(&EntityKey::parse(entity)?, row),
            None => Ok(None),
        }
    }

    fn parse(entity: &EntityKey, row: &Row) -> Result<Option<Self>, CorruptRow> {
        let InboxItem::Delivery(unpacked) = InboxItem::parse(entity, row)? else { return Ok(None) };
        Ok(Some(Self {
            sequence: unpacked.head().sequence(),
            parked_at: row.number(a::PARKED_AT).map(Timestamp::from_millis),
            kept_until: row.number(a::PURGE_AT).map(Timestamp::from_secs),
            error: row.text(a::ERROR).unwrap_or_default().to_owned(),
            row: row.clone(),
            delivery: unpacked.head().clone(),
        }))
    }

    /// Returns the delivery. A body that is stored in parts is missing.
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }
}

#[derive(Debug, Clone)]
pub struct Inspected {
    pub state: Option<EntityState>,
    /// The first waiting items, at most 100 of them.
    pub waiting: Vec<InboxItem>,
    /// The outcomes before the rewind, for those items in `waiting` that were rewound.
    pub again: BTreeMap<Sequence, Settlement>,
    pub parked: Vec<Parked>,
}

/// The outcome of a parked delivery, as far as the entity's row shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkedOutcome {
    /// The worker that stored the parked copy has not settled the delivery yet.
    Undecided,
    Settled(Settlement),
    /// The entity's row no longer holds the receipt. A page or a receipt row may hold it.
    Elsewhere,
    /// The entity has no row, so the outcome is unknown.
    Forgotten,
}

pub fn parked_outcome(state: Option<&EntityState>, sequence: Sequence) -> ParkedOutcome {
    match state {
        None => ParkedOutcome::Forgotten,
        Some(state) if state.head < sequence => ParkedOutcome::Undecided,
        Some(state) => match state.recent.at(sequence) {
            Some(receipt) => ParkedOutcome::Settled(receipt.settlement),
            None => ParkedOutcome::Elsewhere,
        },
    }
}

/// Returns whether a delivery with a parked copy may be redriven. `settlement` is its outcome, or
/// `None` if the receipt has expired.
pub fn is_redrivable(settlement: Option<Settlement>) -> bool {
    settlement.is_none_or(|settlement| settlement == Settlement::Parked)
}

impl Operator {
    pub fn new(store: Store, waker: Waker, inbox: Inbox, retention: Duration) -> Self {
        Self { store, waker, inbox, retention, parked_retention: None, reason: None, parts: pass::PARTS }
    }

    /// Sets the retention of deliveries that this operator parks. `None`, the default, keeps them
    /// until an operator redrives or discards them.
    #[must_use]
    pub fn parked_for(self, parked_retention: Option<Duration>) -> Self {
        Self { parked_retention, ..self }
    }

    /// Reads an entity's row, waiting items and parked deliveries.
    ///
    /// The parts are read one after the other while workers go on, so they may contradict each
    /// other.
    pub async fn inspect(&self, entity: &EntityKey) -> Result<Inspected, OperatorError> {
        let state = self.store.entity(entity, PATIENCE).await?;
        let waiting = match &state {
            Some(state) if !state.is_empty() => {
                let range = delivery_range(entity, state.next(), state.tail, PAGE);
                let rows = self.store.query(&range, PATIENCE).await?.rows;
                rows.iter().map(|row| InboxItem::parse(entity, row)).collect::<Result<_, _>>()?
            }
            _ => Vec::new(),
        };
        let again = match &state {
            Some(state) if state.spilled.is_anywhere() => self.again(entity, state.spilled, &waiting).await?,
            _ => BTreeMap::new(),
        };
        Ok(Inspected { state, waiting, again, parked: self.parked(entity).await? })
    }

    pub async fn receipts(&self, entity: &EntityKey) -> Result<Vec<Receipt>, OperatorError> {
        // Read the entity's row first. A receipt that leaves the row later was copied elsewhere before.
        let state = self.store.entity(entity, PATIENCE).await?;
        let mut receipts: BTreeMap<Sequence, Receipt> = BTreeMap::new();
        let spilled = state.as_ref().map_or(Spilled::ANYWHERE, |state| state.spilled);
        if spilled.rows {
            let mut pages = self.store.pages(receipt_range(entity, PAGE), PATIENCE);
            while let Some(rows) = pages.next().await? {
                for row in &rows {
                    let receipt = Receipt::parse(row)?;
                    receipts.insert(receipt.sequence, receipt);
                }
            }
        }
        if spilled.pages {
            for receipt in read_paged(&self.store, entity).await?.iter() {
                keep_latest(&mut receipts, receipt.sequence, receipt);
            }
        }
        let recent = state.iter().flat_map(|state| state.recent.iter());
        receipts.extend(recent.map(|receipt| (receipt.sequence, receipt.clone())));
        let is_settled = |sequence: Sequence| state.as_ref().is_none_or(|state| sequence <= state.head);
        Ok(receipts.into_values().filter(|receipt| is_settled(receipt.sequence)).collect())
    }

    /// Returns whether anything is stored about an entity.
    pub async fn is_known(&self, entity: &EntityKey) -> Result<bool, OperatorError> {
        if self.store.entity(entity, PATIENCE).await?.is_some() {
            return Ok(true);
        }
        let inbox = self.store.query(&inbox_range(entity, 1), PATIENCE).await?;
        Ok(!inbox.rows.is_empty())
    }

    /// Reads an entity's parked deliveries, in order of their sequences.
    pub async fn parked(&self, entity: &EntityKey) -> Result<Vec<Parked>, OperatorError> {
        let mut parked: Vec<Parked> = Vec::new();
        let mut pages = self.store.pages(parked_range(entity, PAGE), PATIENCE);
        while let Some(rows) = pages.next().await? {
            for row in &rows {
                parked.extend(Parked::parse(entity, row)?);
            }
        }
        Ok(parked)
    }

    /// Returns the keys of all entities with a row, sorted. Reads the whole table.
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

    /// Reads the parked deliveries of all entities, sorted by entity. Reads the whole inbox table.
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

    /// Appends a parked delivery under the next redrive number, then removes its parked row.
    ///
    /// A second call does no harm: it either finds nothing parked, or appends a repeat. If `to` is
    /// given, the delivery moves to that entity.
    pub async fn redrive(&self, parked: &Parked, to: Option<&EntityKey>) -> Result<Appended, OperatorError> {
        let outcome = |appended: &Appended| match to {
            Some(to) => format!("appended to the inbox of {to}, as {}", appended.sequence),
            None => format!("appended again, as {}", appended.sequence),
        };
        if to.is_some_and(EntityKey::is_kept_forever) {
            return Err(OperatorError::IsAJob);
        }
        let entity = parked.delivery.entity();
        self.act(entity, "redrive", Some(parked.sequence), self.append_redriven(parked, to), outcome).await
    }

    async fn append_redriven(&self, parked: &Parked, to: Option<&EntityKey>) -> Result<Appended, OperatorError> {
        let InboxItem::Delivery(unpacked) = InboxItem::parse(parked.delivery.entity(), &parked.row)? else {
            return Err(CorruptRow::Attribute(a::VOID).into());
        };
        let keys = unpacked.head().part_keys();
        let settled = self.settled_as(unpacked.head()).await?;
        if let Some(settlement) = settled.filter(|_| !is_redrivable(settled)) {
            self.forget_left_over(parked).await?;
            return Err(OperatorError::DecidedOtherwise(settlement));
        }
        let parts = if keys.is_empty() { Vec::new() } else { self.store.get_many(&keys, PATIENCE).await? };
        // If a part is missing, the delivery may have been redriven, discarded or erased since the caller read it.
        let delivery = unpacked.complete(&parts);
        if delivery.is_err() && !self.is_parked(parked).await? {
            return Err(OperatorError::NotParked);
        }
        let delivery = delivery?;
        // Mark the parked row after the receipt was read. If the receipt is missing, the delivery may have been
        // erased since the caller read it.
        let mark = MarkRedrive::of(&parked.row, self.store.env().now())?;
        match self.store.run(&mark, PATIENCE).await? {
            RedriveMarked::Marked => {}
            RedriveMarked::Gone => return Err(OperatorError::NotParked),
        }
        let mut incoming = delivery.redriven(self.store.env().now());
        if let Some(to) = to {
            incoming.entity = to.clone();
        }
        let appended = self.inbox.append_redriven(&incoming, parked.delivery.run_before()).await?;
        self.forget(parked, &keys).await?;
        match appended.wake_up_failed.clone() {
            Some(error) => Err(error.into()),
            None => Ok(appended),
        }
    }

    /// Returns how a delivery with a parked copy was settled. Returns `None` if its receipt has
    /// expired.
    ///
    /// The parked copy alone proves nothing, because a holder that lost its lease before the settle
    /// may have written it.
    async fn settled_as(&self, delivery: &Delivery) -> Result<Option<Settlement>, OperatorError> {
        // Read the entity's row first. The sequences up to its `head` are settled for good.
        let state = self.store.entity(delivery.entity(), PATIENCE).await?;
        Ok(match parked_outcome(state.as_ref(), delivery.sequence()) {
            ParkedOutcome::Undecided => return Err(OperatorError::Undecided),
            ParkedOutcome::Forgotten => None,
            ParkedOutcome::Settled(settlement) => Some(settlement),
            ParkedOutcome::Elsewhere => {
                let spilled = state.map_or(Spilled::ANYWHERE, |state| state.spilled);
                let own = BTreeSet::from([delivery.identity_hash()]);
                let receipts = self.receipts_of(delivery.entity(), spilled, own).await?;
                receipts.into_values().next().map(|receipt| receipt.settlement)
            }
        })
    }

    async fn is_parked(&self, parked: &Parked) -> Result<bool, OperatorError> {
        let row = self.store.get(&parked_row(parked.delivery.entity(), parked.sequence), PATIENCE).await?;
        Ok(row.is_some_and(|row| row.get(a::NONCE) == parked.row.get(a::NONCE)))
    }

    /// Removes a parked delivery's row, then the parts of its body, which no handler start needs
    /// any more.
    async fn forget(&self, parked: &Parked, parts: &[Key]) -> Result<(), OperatorError> {
        self.store.run(&Remove::of(&parked.row)?, PATIENCE).await?;
        self.remove_parts(parts).await
    }

    /// Removes the parked row of a delivery that was not settled as parked.
    ///
    /// The parts of the body stay, because the delivery's own row refers to them, and the delivery
    /// can be rewound.
    async fn forget_left_over(&self, parked: &Parked) -> Result<(), OperatorError> {
        // Once the parked row is gone, every row that refers to the parts expires within the
        // retention.
        let until = self.store.env().now() + self.retention + PARTS_OUTLIVE;
        for part in parked.delivery.part_keys() {
            self.store.run(&ExpireAgain { part, until }, PATIENCE).await?;
        }
        self.store.run(&Remove::of(&parked.row)?, PATIENCE).await?;
        Ok(())
    }

    /// Sends a delayed wake-up before a write that lets an entity continue.
    ///
    /// After the write, the caller sends an undelayed wake-up. If this process dies in between, the delayed wake-up
    /// takes its place.
    async fn wake_later(&self, entity: &EntityKey) -> Result<(), OperatorError> {
        self.wake_up_later(&WakeUp::of(entity)).await
    }

    async fn wake_up_later(&self, wake_up: &WakeUp) -> Result<(), OperatorError> {
        self.waker.send(wake_up, SAFETY_DELAY, PATIENCE).await.map_err(OperatorError::NobodyToWake)
    }

    /// Unblocks an entity, and wakes a worker.
    ///
    /// If the entity is blocked as `expired`, because TTL may have deleted the delivery in front, first puts a
    /// tombstone at that delivery's sequence, unless the sequence still has an item.
    pub async fn unblock(&self, entity: &EntityKey) -> Result<Unblocked, OperatorError> {
        let outcome = |unblocked: &Unblocked| match unblocked {
            Unblocked::Ended(state) if state.hold.since().is_some() => "no longer blocked, stays on hold".into(),
            Unblocked::Ended(state) => format!("continues at {}", state.next()),
            Unblocked::NotBlocked(_) => "nothing to do".into(),
        };
        self.act(entity, "resume", None, self.end_block(entity), outcome).await
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
        for _ in 0..TRIES {
            match &unblocked {
                // Another holder has changed the token, or the entity was blocked again.
                Unblocked::NotBlocked(Some(state)) if state.blocked.is_some() => {
                    self.wake_later(entity).await?;
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
