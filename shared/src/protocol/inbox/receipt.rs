//! A receipt that has no room in its entity's row any more.

use crate::{
    protocol::{
        entity::EntityKey,
        format::{CorruptRow, FORMAT, attribute as a},
        keys::receipt_row,
        operation::Operation,
        receipt::Receipt,
        table::{Action, Comparison, Condition, Row, Write, Written},
    },
    time::Timestamp,
};

/// Writes a receipt as a row of its own, before it leaves its entity's. What it
/// says stands in that row, so it is true whoever writes it, and however late.
#[derive(Debug, Clone)]
pub struct Spill<'a> {
    entity: &'a EntityKey,
    receipt: &'a Receipt,
    purge_at: Timestamp,
}

impl<'a> Spill<'a> {
    /// Of this entity; it may be forgotten at `purge_at`. `None`: what it tells is
    /// remembered elsewhere, or by nobody.
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
            // What is left of a memory that ended, or of an earlier run, says nothing of this one.
            condition: Condition::Any(vec![
                Condition::absent(a::ITEM),
                Condition::compare(a::TOKEN, Comparison::Less, receipt.token.0),
            ]),
            action: Action::Put(row),
        }
    }

    /// It is there: by this try, or by one before, of whoever had the row. One
    /// under a later token tells more.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
