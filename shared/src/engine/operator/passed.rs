//! Places that were settled and left no receipt: repeats and voids.

use super::{Operator, OperatorError, PAGE, PATIENCE};
use crate::protocol::{
    delivery::{Delivery, Item},
    entity::{EntityKey, Sequence},
    inbox::Receipt,
    keys::delivery_range,
};

/// Why a settled place has no receipt of its own.
#[derive(Debug, Clone)]
pub enum Passed {
    /// What stands there was settled before; no handler ran.
    Repeat {
        /// What came again.
        delivery: Box<Delivery>,
        /// The place where it was settled.
        of: Sequence,
    },
    /// It was claimed, and given up since nothing was put there in time.
    Void(Sequence),
    /// A delivery stands there, and no receipt of it anywhere: it may not have
    /// been written yet.
    NoReceipt(Box<Delivery>),
}

impl Passed {
    /// The place.
    pub fn sequence(&self) -> Sequence {
        match self {
            Self::Repeat { delivery, .. } | Self::NoReceipt(delivery) => delivery.sequence(),
            Self::Void(sequence) => *sequence,
        }
    }

    fn of(item: &Item, receipts: &[Receipt]) -> Option<Self> {
        let Item::Delivery(unpacked) = item else { return Some(Self::Void(item.sequence())) };
        let delivery = Box::new(unpacked.head().clone());
        let receipt = receipts.iter().find(|receipt| receipt.identity == *delivery.identity_hash());
        match receipt {
            Some(receipt) if receipt.sequence == delivery.sequence() => None,
            Some(receipt) => Some(Self::Repeat { of: receipt.sequence, delivery }),
            None => Some(Self::NoReceipt(delivery)),
        }
    }
}

impl Operator {
    /// The settled places of `from` to `through` that `receipts`, all of the
    /// entity's, say nothing of; none of those whose rows have expired. Reads
    /// the deliveries of all of these places.
    ///
    /// # Errors
    ///
    /// The store could not be reached.
    pub async fn passed(
        &self,
        entity: &EntityKey,
        receipts: &[Receipt],
        mut from: Sequence,
        through: Sequence,
    ) -> Result<Vec<Passed>, OperatorError> {
        let mut passed = Vec::new();
        while from <= through {
            let page = self.store.query(&delivery_range(entity, from, through, PAGE), PATIENCE).await?;
            for row in &page.rows {
                let item = Item::parse(entity, row)?;
                from = item.sequence().next();
                passed.extend(Passed::of(&item, receipts));
            }
            if !page.more || page.rows.is_empty() {
                break;
            }
        }
        Ok(passed)
    }
}
