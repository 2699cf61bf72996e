//! Forgetting an entity: all that is stored of it, at a person's request.
//!
//! Nothing here asks a clock what is old. What may go stands at or below
//! `head` as the request found it, so that it was decided before; and the row
//! that says so stays, with its numbers, until the store's own expiry. So a
//! delivery that comes meanwhile stays, whatever becomes of it, and asking again
//! after a failure goes on.

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

/// What is left of an erased entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    /// Its key and its numbers, which expiry deletes after a day; markers of
    /// places that were never filled, as long as they would have stayed.
    Numbers {
        /// How many rows were deleted or lost all but their numbers, parts of
        /// bodies aside.
        rows: u64,
    },
    /// What came after the request stays, and the entity's row as it is: ask
    /// again when that is handled.
    Newer {
        /// How many rows were deleted, parts of bodies aside.
        rows: u64,
    },
}

impl Operator {
    /// Deletes an entity's deliveries, receipts, what is parked of it, what
    /// operators did with it, and
    /// all but the numbers of its row. Asked again after a failure, it goes on.
    /// What comes meanwhile stays, applied or parked or waiting.
    ///
    /// What was applied is forgotten with the receipts: a webhook that is sent
    /// again is a new one. A worker that writes the receipt of what it settled
    /// just before may be later than this; ask again.
    ///
    /// # Errors
    ///
    /// [`OperatorError::InUse`] while deliveries wait or somebody has its
    /// lease; then nothing was deleted.
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
            // What is parked comes before the receipts: a redrive that finds no receipt and looks
            // afterwards finds nothing parked either.
            let page = self.store.query(&range, PATIENCE).await?;
            let through = self.decided_before(entity, seen.as_ref()).await?;
            for row in &page.rows {
                match Standing::of(entity, row)? {
                    // It refuses a put that is late however long: without it that would be answered
                    // 2xx and never be looked at.
                    Standing::Void => {}
                    Standing::Act => rows += self.remove(entity, row).await?,
                    Standing::At(sequence) if sequence > through => newer = true,
                    Standing::At(_) => rows += self.remove(entity, row).await?,
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

    /// The last place that was decided before the request, as far as that can
    /// be told of a page that was just read.
    async fn decided_before(&self, entity: &EntityKey, seen: Option<&EntityState>) -> Result<Sequence, OperatorError> {
        if let Some(state) = seen {
            return Ok(state.head);
        }
        // Without a row behind the page as well, nothing on it came since: it would have made one.
        let row = self.store.entity(entity, PATIENCE).await?;
        Ok(Sequence(if row.is_none() { u64::MAX } else { 0 }))
    }

    /// The row, and before it the parts that only it names.
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

    /// Deletes the parts of a body.
    pub(super) async fn remove_parts(&self, parts: &[Key]) -> Result<(), OperatorError> {
        for part in parts {
            self.store.run(&RemovePart { part }, PATIENCE).await?;
        }
        Ok(())
    }
}

/// What an inbox row speaks of.
enum Standing {
    /// A delivery, a receipt or what is parked, of this place.
    At(Sequence),
    /// A place that was given up.
    Void,
    /// What an operator did, and why.
    Act,
}

impl Standing {
    fn of(entity: &EntityKey, row: &Row) -> Result<Self, CorruptRow> {
        if action_nonce(row).is_some() {
            return Ok(Self::Act);
        }
        if sequence_of(row).is_none() {
            return Ok(Self::At(Receipt::parse(row)?.sequence));
        }
        Ok(match Item::parse(entity, row)? {
            Item::Void(_) => Self::Void,
            item @ Item::Delivery(_) => Self::At(item.sequence()),
        })
    }
}
