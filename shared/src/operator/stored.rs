//! Reads stored deliveries with their bodies, whether they wait, are settled or are parked.

use std::collections::BTreeMap;

use super::{Content, Operator, OperatorError, PAGE, PATIENCE};
use crate::protocol::{
    delivery::{Delivery, InboxItem},
    entity::{EntityKey, Sequence},
    format::{CorruptRow, attribute as a},
    keys::{inbox_range, is_parked, sequence_of},
    table::Row,
};

#[derive(Debug, Clone)]
pub struct StoredDelivery {
    pub delivery: Delivery,
    /// False if the body was removed together with the parked copy. The delivery's body is empty then.
    pub has_body: bool,
    pub is_parked: bool,
}

impl Operator {
    /// Reads all stored deliveries of an entity, oldest first.
    ///
    /// Deliveries that arrive or expire during the read may or may not be included.
    pub async fn stored(&self, entity: &EntityKey) -> Result<Vec<StoredDelivery>, OperatorError> {
        let mut found: BTreeMap<Sequence, StoredDelivery> = BTreeMap::new();
        let mut pages = self.store.pages(inbox_range(entity, PAGE), PATIENCE);
        while let Some(rows) = pages.next().await? {
            for row in &rows {
                let Some(stored) = self.stored_in(row).await? else { continue };
                let sequence = stored.delivery.sequence();
                // A parked delivery may have two rows. The parked copy keeps the body for longer.
                match found.get(&sequence) {
                    Some(held) if held.has_body && !stored.is_parked => {}
                    _ => _ = found.insert(sequence, stored),
                }
            }
        }
        Ok(found.into_values().collect())
    }

    /// Reads the delivery in a row of the inbox table. Returns `None` for a row without a delivery.
    pub async fn stored_in(&self, row: &Row) -> Result<Option<StoredDelivery>, OperatorError> {
        let (Some(_), Some(key)) = (sequence_of(row), row.text(a::ENTITY)) else { return Ok(None) };
        let entity = EntityKey::parse(key).map_err(CorruptRow::from)?;
        let InboxItem::Delivery(unpacked) = InboxItem::parse(&entity, row)? else { return Ok(None) };
        let is_parked = is_parked(row);
        Ok(match self.completed(*unpacked).await? {
            Content::Delivery(delivery) => Some(StoredDelivery { delivery: *delivery, has_body: true, is_parked }),
            Content::Bodiless(delivery) => Some(StoredDelivery { delivery: *delivery, has_body: false, is_parked }),
            Content::Void | Content::Nothing => None,
        })
    }
}
