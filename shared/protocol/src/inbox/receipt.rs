//! Spills receipts: writes them to pages, or to rows of their own, before they leave the entity's row.

use crate::{
    entity::EntityKey,
    format::{CorruptRow, FORMAT, attribute as a},
    keys::{receipt_page_row, receipt_row},
    operation::Operation,
    receipt::{Receipt, Recent},
    table::{Action, Comparison, Condition, Row, Write, Written},
    time::Timestamp,
};

/// Writes a receipt to a row of its own before the receipt leaves the entity's row. The copy is
/// correct no matter when and by which process it is written.
#[derive(Debug, Clone)]
pub struct Spill<'a> {
    entity: &'a EntityKey,
    receipt: &'a Receipt,
    purge_at: Timestamp,
}

impl<'a> Spill<'a> {
    /// Creates the write for a receipt of `entity`. Returns `None` for the receipt of a repeat or a
    /// tombstone, which needs no row of its own.
    pub fn of(entity: &'a EntityKey, receipt: &'a Receipt, purge_at: Timestamp) -> Option<Self> {
        receipt.spills().map(|_| Self { entity, receipt, purge_at })
    }
}

impl Operation for Spill<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let receipt = self.receipt;
        let mut row = Row::new()
            .with(a::VERSION, FORMAT)
            .with(a::SEQUENCE, receipt.sequence.0)
            .with(a::OUTCOME, receipt.settlement.as_str())
            .with(a::TOKEN, receipt.token.0)
            .with(a::ATTEMPTS, receipt.attempts)
            .with(a::SETTLED_AT, receipt.settled_at.as_millis())
            .with(a::PURGE_AT, self.purge_at.as_secs_rounded_up());
        if let Some(took) = receipt.took {
            row.set(a::TOOK, took.as_millis() as u64);
        }
        Write {
            key: receipt_row(self.entity, receipt.spills().expect("checked when this was made")),
            // The row may hold an older receipt: of an earlier run, or from before the entity's row
            // was deleted.
            condition: Condition::Any(vec![
                Condition::absent(a::ITEM),
                Condition::compare(a::TOKEN, Comparison::Less, receipt.token.0),
            ]),
            action: Action::Put(row),
        }
    }

    /// Treats every reply as success. After a refusal, the row has this receipt or one under a
    /// later token, which takes precedence.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Writes receipts to a page before they leave the entity's row. As with [`Spill`], a late
/// copy, or one by another process, is correct too.
#[derive(Debug, Clone)]
pub struct SpillPage<'a> {
    entity: &'a EntityKey,
    receipts: &'a Recent,
    last: &'a Receipt,
    purge_at: Timestamp,
}

impl<'a> SpillPage<'a> {
    /// Creates the write for receipts of `entity`. Returns `None` without receipts.
    pub fn of(entity: &'a EntityKey, receipts: &'a Recent, purge_at: Timestamp) -> Option<Self> {
        receipts.last().map(|last| Self { entity, receipts, last, purge_at })
    }
}

impl Operation for SpillPage<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let stored = self.receipts.to_stored().expect("there is a last receipt");
        Write {
            key: receipt_page_row(self.entity, self.last, self.receipts.iter().len()),
            condition: Condition::absent(a::ITEM),
            action: Action::Put(
                Row::new()
                    .with(a::VERSION, FORMAT)
                    .with(a::SEQUENCE, self.last.sequence.0)
                    .with(a::RECENT, stored)
                    .with(a::PURGE_AT, self.purge_at.as_secs_rounded_up()),
            ),
        }
    }

    /// Treats every reply as success. After a refusal, the same receipts are there.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
