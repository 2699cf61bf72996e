//! Reads or discards a single delivery.

use super::{Operator, OperatorError, PATIENCE, Parked, ParkedOutcome, parked_outcome};
use crate::protocol::{
    delivery::{Delivery, InboxItem, Unpacked},
    entity::{EntityKey, Sequence},
    format::{CorruptRow, attribute as a},
    keys::{delivery_row, parked_row},
    maintain::{Discard, Discarded},
    receipt::{Receipt, Spilled},
    state::EntityState,
    table::Row,
};

/// The number of sequences before a delivery that [`Operator::before`] searches.
pub const LOOKS_BACK: u64 = 25;

#[derive(Debug, Clone)]
pub struct Single {
    pub state: Option<EntityState>,
    pub content: Content,
    /// The delivery's receipt. A rewound delivery has the receipt of its earlier run.
    pub receipt: Option<Receipt>,
    pub parked: Option<Parked>,
}

#[derive(Debug, Clone)]
pub enum Content {
    Delivery(Box<Delivery>),
    /// A delivery whose body was removed together with its parked copy.
    Bodiless(Box<Delivery>),
    Void,
    /// The sequence has no row: nothing was ever stored there, or it has expired.
    Nothing,
}

impl Content {
    pub fn delivery(&self) -> Option<&Delivery> {
        match self {
            Content::Delivery(delivery) | Content::Bodiless(delivery) => Some(delivery),
            Content::Void | Content::Nothing => None,
        }
    }
}

impl Operator {
    /// Reads the delivery at `sequence` with its body, whether it waits, is settled or is parked.
    ///
    /// The rows are read one after the other while workers go on, so they may contradict each other.
    pub async fn single(&self, entity: &EntityKey, sequence: Sequence) -> Result<Single, OperatorError> {
        let state = self.store.entity(entity, PATIENCE).await?;
        let parked_row = self.store.get(&parked_row(entity, sequence), PATIENCE).await?;
        let row = self.store.item(entity, sequence, PATIENCE).await?;
        let parked = parked_row.as_ref().map(|row| Parked::parse(entity, row)).transpose()?.flatten();
        // The parked copy outlives the delivery's row.
        let content = self.content(entity, row.as_ref().or(parked_row.as_ref())).await?;
        let spilled = state.as_ref().map_or(Spilled::ANYWHERE, |state| state.spilled);
        let receipt = match parked_outcome(state.as_ref(), sequence) {
            ParkedOutcome::Undecided => match content.delivery() {
                None => None,
                Some(delivery) => {
                    self.receipt_of(delivery, spilled).await?.filter(|receipt| receipt.sequence == sequence)
                }
            },
            ParkedOutcome::Settled(_) => state.as_ref().and_then(|state| state.recent.at(sequence)).cloned(),
            ParkedOutcome::Elsewhere | ParkedOutcome::Forgotten => match content.delivery() {
                None => None,
                Some(delivery) => self.receipt_of(delivery, spilled).await?,
            },
        };
        Ok(Single { state, content, receipt, parked })
    }

    /// Reads the newest delivery before `delivery` that has the same source and topic, with its
    /// body.
    ///
    /// Searches at most [`LOOKS_BACK`] sequences of the same inbox.
    pub async fn before(&self, delivery: &Delivery) -> Result<Option<Delivery>, OperatorError> {
        let entity = delivery.entity();
        let is_alike = |one: &Delivery| one.source() == delivery.source() && one.topic() == delivery.topic();
        for back in 1..=LOOKS_BACK {
            let Some(place) = delivery.sequence().0.checked_sub(back).map(Sequence) else { break };
            let mut row = self.store.item(entity, place, PATIENCE).await?;
            if row.is_none() {
                row = self.store.get(&parked_row(entity, place), PATIENCE).await?;
            }
            let Some(InboxItem::Delivery(unpacked)) = row.map(|row| InboxItem::parse(entity, &row)).transpose()? else {
                continue;
            };
            if is_alike(unpacked.head())
                && let Content::Delivery(found) = self.completed(*unpacked).await?
            {
                return Ok(Some(*found));
            }
        }
        Ok(None)
    }

    /// Reads the deliveries at `places`, at most 100, in no particular order and without their
    /// bodies. Leaves out missing deliveries.
    pub async fn deliveries(&self, places: &[(EntityKey, Sequence)]) -> Result<Vec<Delivery>, OperatorError> {
        let keys: Vec<_> = places.iter().map(|(entity, sequence)| delivery_row(entity, *sequence)).collect();
        let mut found = Vec::new();
        for row in self.store.get_many(&keys, PATIENCE).await? {
            let entity = EntityKey::parse(row.text(a::ENTITY).unwrap_or_default()).map_err(CorruptRow::from)?;
            if let InboxItem::Delivery(unpacked) = InboxItem::parse(&entity, &row)? {
                found.push(unpacked.head().clone());
            }
        }
        Ok(found)
    }

    pub async fn parked_at(&self, entity: &EntityKey, sequence: Sequence) -> Result<Option<Parked>, OperatorError> {
        let row = self.store.get(&parked_row(entity, sequence), PATIENCE).await?;
        Ok(row.map(|row| Parked::parse(entity, &row)).transpose()?.flatten())
    }

    /// Removes a parked delivery and its body for good.
    ///
    /// The delivery's receipt stays. So if the sender sends the same webhook again, it is a repeat.
    /// If the call fails with [`OperatorError::Undecided`], [`OperatorError::NotParked`] or
    /// [`OperatorError::Redriven`], nothing was removed. If it fails with
    /// [`OperatorError::DecidedOtherwise`], only the parked row was removed.
    pub async fn discard(&self, parked: &Parked) -> Result<(), OperatorError> {
        let entity = parked.delivery.entity();
        let sequence = Some(parked.sequence);
        self.act(entity, "discard", sequence, self.remove_parked(parked), |()| "removed for good".into()).await
    }

    async fn remove_parked(&self, parked: &Parked) -> Result<(), OperatorError> {
        let settled = self.settled_as(&parked.delivery).await?;
        match settled.filter(|_| !super::is_redrivable(settled)) {
            Some(settlement) => {
                self.forget_left_over(parked).await?;
                Err(OperatorError::DecidedOtherwise(settlement))
            }
            None => self.discard_row(parked).await,
        }
    }

    async fn discard_row(&self, parked: &Parked) -> Result<(), OperatorError> {
        let answer = self.store.run_noting_doubt(&Discard::of(&parked.row)?, PATIENCE).await?;
        match answer.outcome {
            Discarded::Redriven => return Err(OperatorError::Redriven),
            Discarded::Gone if !answer.doubtful => return Err(OperatorError::NotParked),
            Discarded::Discarded | Discarded::Gone => {}
        }
        self.remove_parts(&parked.delivery.part_keys()).await
    }

    async fn content(&self, entity: &EntityKey, row: Option<&Row>) -> Result<Content, OperatorError> {
        let Some(row) = row else { return Ok(Content::Nothing) };
        match InboxItem::parse(entity, row)? {
            InboxItem::Void(_) => Ok(Content::Void),
            InboxItem::Delivery(unpacked) => self.completed(*unpacked).await,
        }
    }

    pub(super) async fn completed(&self, unpacked: Unpacked) -> Result<Content, OperatorError> {
        let keys = unpacked.head().part_keys();
        let parts = if keys.is_empty() { Vec::new() } else { self.store.get_many(&keys, PATIENCE).await? };
        if parts.len() < keys.len() {
            return Ok(Content::Bodiless(Box::new(unpacked.head().clone())));
        }
        Ok(Content::Delivery(Box::new(unpacked.complete(&parts)?)))
    }

    async fn receipt_of(&self, delivery: &Delivery, spilled: Spilled) -> Result<Option<Receipt>, OperatorError> {
        let identities = delivery.repeated_hashes().collect();
        let mut receipts = self.receipts_of(delivery.entity(), spilled, identities).await?;
        Ok(delivery.repeated_hashes().find_map(|identity| receipts.remove(&identity)))
    }
}
