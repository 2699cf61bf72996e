//! Erases all that is stored of an entity.
//!
//! Only items at or below the `head` that was read first are deleted, so that newer
//! deliveries stay. The row keeps its numbers until it expires, so that the call can be
//! repeated after a failure.

use super::{Operator, OperatorError, PAGE, PATIENCE};
use crate::protocol::{
    delivery::Item,
    entity::{EntityKey, Sequence},
    format::{CorruptRow, attribute as a},
    keys::{action_nonce, inbox_range, sequence_of},
    maintain::{Forget, Forgotten, Remove, RemovePart, Removed},
    receipt::Receipt,
    state::EntityState,
    table::{Key, Row},
};

/// The remains of an erased entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    /// The key and the numbers of the row for a day, and tombstones until they expire.
    Numbers {
        /// The rows that were deleted or reduced to numbers, without the parts of bodies.
        rows: u64,
    },
    /// Newer deliveries and the entity's row remain: repeat the call once they are handled.
    Newer {
        /// The rows that were deleted, without the parts of bodies.
        rows: u64,
    },
}

impl Operator {
    /// Deletes an entity's deliveries, parked deliveries, receipts and operations log, and all but
    /// the numbers of its row. Deliveries that arrive during the call stay.
    ///
    /// Without receipts, a webhook that is sent again is a new one. A worker may write the
    /// receipt of its last settle after this call; repeat it then.
    ///
    /// # Errors
    ///
    /// [`OperatorError::InUse`] while deliveries wait or the lease is held; nothing was deleted.
    pub async fn erase(&self, entity: &EntityKey) -> Result<Erased, OperatorError> {
        let seen = self.store.entity(entity, PATIENCE).await?;
        if seen.as_ref().is_some_and(|state| !state.is_empty() || state.held.is_some() || state.hold.since().is_some())
        {
            return Err(OperatorError::InUse);
        }
        let (mut rows, mut newer) = (0, false);
        let mut after: Option<String> = None;
        loop {
            let range = inbox_range(entity, after.as_deref(), PAGE);
            // Parked rows sort before receipts: a redrive that finds no receipt then finds no parked
            // row either.
            let page = self.store.query(&range, PATIENCE).await?;
            let through = self.decided_before(entity, seen.as_ref()).await?;
            for row in &page.rows {
                match RowKind::of(entity, row)? {
                    // A tombstone stays. It refuses a late put, which would otherwise be answered 2xx and
                    // never be handled.
                    RowKind::Tombstone => {}
                    RowKind::Act => rows += self.remove(entity, row).await?,
                    RowKind::At(sequence) if sequence > through => newer = true,
                    RowKind::At(_) => rows += self.remove(entity, row).await?,
                }
            }
            match page.rows.last().and_then(|row| row.text(a::ITEM)) {
                Some(last) if page.more => after = Some(last.to_owned()),
                _ => break,
            }
        }
        if let Some(state) = &seen {
            match self.store.run(&Forget::of(state, self.store.env().now()), PATIENCE).await? {
                Forgotten::Numbers => rows += 1,
                Forgotten::Gone => {}
                Forgotten::Changed => newer = true,
            }
        }
        Ok(if newer { Erased::Newer { rows } } else { Erased::Numbers { rows } })
    }

    /// Returns the last sequence that was settled before the call, for a page just read.
    async fn decided_before(&self, entity: &EntityKey, seen: Option<&EntityState>) -> Result<Sequence, OperatorError> {
        if let Some(state) = seen {
            return Ok(state.head);
        }
        // If there is still no row after the page was read, none of its items is new.
        let row = self.store.entity(entity, PATIENCE).await?;
        Ok(Sequence(if row.is_none() { u64::MAX } else { 0 }))
    }

    /// Removes the row, after the parts that only it refers to.
    async fn remove(&self, entity: &EntityKey, row: &Row) -> Result<u64, OperatorError> {
        if sequence_of(row).is_some()
            && let Item::Delivery(unpacked) = Item::parse(entity, row)?
        {
            self.remove_parts(&unpacked.head().part_keys()).await?;
        }
        match self.store.run(&Remove::of(row)?, PATIENCE).await? {
            Removed::Gone => Ok(1),
            Removed::Another => Ok(0),
        }
    }

    pub(super) async fn remove_parts(&self, parts: &[Key]) -> Result<(), OperatorError> {
        for part in parts {
            self.store.run(&RemovePart { part }, PATIENCE).await?;
        }
        Ok(())
    }
}

/// The kind of an inbox row.
enum RowKind {
    /// A delivery, a receipt or a parked delivery.
    At(Sequence),
    Tombstone,
    /// An entry of the operations log.
    Act,
}

impl RowKind {
    fn of(entity: &EntityKey, row: &Row) -> Result<Self, CorruptRow> {
        if action_nonce(row).is_some() {
            return Ok(Self::Act);
        }
        if sequence_of(row).is_none() {
            return Ok(Self::At(Receipt::parse(row)?.sequence));
        }
        Ok(match Item::parse(entity, row)? {
            Item::Void(_) => Self::Tombstone,
            item @ Item::Delivery(_) => Self::At(item.sequence()),
        })
    }
}
