//! Places that were settled: what is remembered of them, and what stands there.

use std::collections::BTreeMap;

use super::{Operator, OperatorError, PAGE, PATIENCE};
use crate::protocol::{
    delivery::{Delivery, Item},
    entity::{EntityKey, Sequence},
    keys::delivery_range,
    receipt::{Receipt, Settlement},
};

/// A place that was settled.
#[derive(Debug, Clone, Default)]
pub struct Past {
    /// What is remembered of it: nothing of a repeat or a void of long ago.
    pub receipt: Option<Receipt>,
    /// What stands there, without its body where that stands in parts; `None`: it
    /// was never filled, or has expired.
    pub delivery: Option<Delivery>,
    /// Where this delivery was settled, if not here: it is a repeat of that.
    pub first: Option<Sequence>,
}

impl Past {
    /// How it ended, as far as anything tells.
    pub fn settlement(&self) -> Option<Settlement> {
        match &self.receipt {
            Some(receipt) => Some(receipt.settlement),
            None if self.first.is_some() => Some(Settlement::Repeat),
            None if self.delivery.is_none() => Some(Settlement::Void),
            None => None,
        }
    }
}

impl Operator {
    /// The settled places of `from` to `through`, in their order, as far as
    /// `receipts`, all of the entity's, or a row tells of them. Reads the
    /// deliveries of all of these places.
    ///
    /// # Errors
    ///
    /// The store could not be reached.
    pub async fn past(
        &self,
        entity: &EntityKey,
        receipts: &[Receipt],
        mut from: Sequence,
        through: Sequence,
    ) -> Result<BTreeMap<Sequence, Past>, OperatorError> {
        let settled = |identity| receipts.iter().find(|receipt| receipt.spills() == Some(identity));
        let first = |receipt: &Receipt| {
            let first = settled(receipt.identity?)?.sequence;
            (first != receipt.sequence).then_some(first)
        };
        let asked = receipts.iter().filter(|receipt| (from..=through).contains(&receipt.sequence));
        let told = |receipt: &Receipt| Past { receipt: Some(receipt.clone()), first: first(receipt), delivery: None };
        let mut past: BTreeMap<_, _> = asked.map(|receipt| (receipt.sequence, told(receipt))).collect();
        while from <= through {
            let page = self.store.query(&delivery_range(entity, from, through, PAGE), PATIENCE).await?;
            for row in &page.rows {
                let item = Item::parse(entity, row)?;
                from = item.sequence().next();
                let place = past.entry(item.sequence()).or_default();
                if let Item::Delivery(unpacked) = item {
                    let delivery = unpacked.head().clone();
                    let first = settled(delivery.identity_hash()).map(|receipt| receipt.sequence);
                    place.first = place.first.or(first.filter(|first| *first != delivery.sequence()));
                    place.delivery = Some(delivery);
                }
            }
            if !page.more || page.rows.is_empty() {
                break;
            }
        }
        Ok(past)
    }
}
