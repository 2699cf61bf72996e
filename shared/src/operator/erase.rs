//! Erases what is stored about an entity.
//!
//! The erase first reads `head` and deletes only items up to there, so that deliveries that arrive
//! meanwhile stay. The entity's row keeps its numbers (`head`, `tail` and `token`) until it
//! expires, so that the erase can be repeated after a failure.

use super::{Operator, OperatorError, PAGE, PATIENCE};
use crate::protocol::{
    delivery::InboxItem,
    entity::{EntityKey, Sequence},
    format::{CorruptRow, attribute as a},
    keys::{action_nonce, inbox_range, is_receipt_page, sequence_of},
    maintain::{Forget, Forgotten, Remove, RemovePart, Removed},
    receipt::Receipt,
    state::EntityState,
    table::{Key, Row},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    /// The entity was erased. Its row keeps the key and the numbers for at least a day, and its
    /// inbox keeps tombstones until they expire.
    Numbers {
        /// The number of rows that were deleted, or reduced to the numbers. Parts of bodies do not
        /// count.
        rows: u64,
    },
    /// Deliveries arrived during the erase. These deliveries and the entity's row are left. Erase
    /// again once they are settled.
    Newer {
        /// The number of rows that were deleted. Parts of bodies do not count.
        rows: u64,
    },
}

impl Operator {
    /// Deletes an entity's deliveries, parked deliveries, receipts and operations log.
    ///
    /// The entity's row keeps only its numbers. Deliveries that arrive during the call are kept. A
    /// webhook that is sent again is handled as new, because its receipt is gone. If a worker
    /// writes a receipt after the erase, a second erase removes it. If the call fails with
    /// [`OperatorError::InUse`], nothing was deleted; with [`OperatorError::Unknown`], nothing was stored.
    pub async fn erase(&self, entity: &EntityKey) -> Result<Erased, OperatorError> {
        if entity.is_kept_forever() {
            return Err(OperatorError::IsAJob);
        }
        let seen = self.store.entity(entity, PATIENCE).await?;
        if seen.as_ref().is_some_and(|state| !state.is_empty() || state.held.is_some() || state.hold.since().is_some())
        {
            return Err(OperatorError::InUse);
        }
        let mut rows = 0;
        let mut newer = false;
        let mut is_known = seen.is_some();
        // Parked rows sort before receipts, so they are deleted first. A redrive that finds no
        // receipt therefore finds no parked row either.
        let mut pages = self.store.pages(inbox_range(entity, PAGE), PATIENCE);
        while let Some(page) = pages.next().await? {
            let through = self.decided_before(entity, seen.as_ref()).await?;
            is_known = true;
            for row in &page {
                match RowKind::of(entity, row)? {
                    // A tombstone stays. It refuses a late put, which would otherwise be answered 2xx and
                    // never be handled.
                    RowKind::Tombstone => {}
                    RowKind::Act => rows += self.remove(entity, row).await?,
                    RowKind::At(sequence) if sequence > through => newer = true,
                    RowKind::At(_) => rows += self.remove(entity, row).await?,
                }
            }
        }
        if let Some(state) = &seen {
            let forget = Forget::of(state, self.store.env().now());
            match self.store.run(&forget, PATIENCE).await? {
                Forgotten::Numbers => rows += u64::from(forget.removes_anything()),
                Forgotten::Gone => {}
                Forgotten::Changed => newer = true,
            }
        }
        match (newer, is_known) {
            (true, _) => Ok(Erased::Newer { rows }),
            (false, true) => Ok(Erased::Numbers { rows }),
            (false, false) => Err(OperatorError::Unknown),
        }
    }

    /// Returns the last sequence whose items may be deleted. That is `head`, or the greatest
    /// sequence if the entity still has no row.
    ///
    /// The caller must read the page of items before this call. An append creates the entity's row
    /// before it stores an item. So if the row is still missing, all items of the page are old.
    async fn decided_before(&self, entity: &EntityKey, seen: Option<&EntityState>) -> Result<Sequence, OperatorError> {
        if let Some(state) = seen {
            return Ok(state.head);
        }
        let row = self.store.entity(entity, PATIENCE).await?;
        Ok(Sequence(if row.is_none() { u64::MAX } else { 0 }))
    }

    /// Removes an inbox row. The parts of a body are removed before the row that names them.
    async fn remove(&self, entity: &EntityKey, row: &Row) -> Result<u64, OperatorError> {
        if sequence_of(row).is_some()
            && let InboxItem::Delivery(unpacked) = InboxItem::parse(entity, row)?
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

enum RowKind {
    /// A delivery, a parked delivery, the receipt of one, or a page of receipts with this last one.
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
        if is_receipt_page(row) {
            return Ok(Self::At(row.number(a::SEQUENCE).map(Sequence).ok_or(CorruptRow::Attribute(a::SEQUENCE))?));
        }
        if sequence_of(row).is_none() {
            return Ok(Self::At(Receipt::parse(row)?.sequence));
        }
        Ok(match InboxItem::parse(entity, row)? {
            InboxItem::Void(_) => Self::Tombstone,
            item @ InboxItem::Delivery(_) => Self::At(item.sequence()),
        })
    }
}
