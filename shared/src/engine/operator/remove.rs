//! Removing a row of an inbox, as it was read.

use super::{Operator, OperatorError, PATIENCE};
use crate::protocol::{
    format::{CorruptRow, attribute as a},
    keys::{key_of, sequence_of},
    operation::Operation,
    table::{Action, Condition, Key, Row, TableName, Write, Written},
};

/// Deletes a delivery, a parked delivery or a receipt, and nothing that stands
/// in its place by now.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Remove {
    key: Key,
    condition: Condition,
}

/// What became of a row that was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    /// It is not there any more.
    Gone,
    /// Another has come into its place, and stays.
    Another,
}

impl Remove {
    /// A delivery is known by the claim it was packed for, a receipt by the
    /// place it speaks of: its key is that of any other of the same delivery.
    pub(super) fn of(row: &Row) -> Result<Self, CorruptRow> {
        let known_by = if sequence_of(row).is_some() { a::NONCE } else { a::SEQUENCE };
        let value = row.get(known_by).ok_or(CorruptRow::Attribute(known_by))?;
        let key = key_of(&TableName::Inbox, row).ok_or(CorruptRow::Attribute(a::ENTITY))?;
        Ok(Self { key, condition: Condition::equal(known_by, value.clone()) })
    }
}

impl Operation for Remove {
    type Outcome = Removed;

    fn write(&self) -> Write {
        Write { key: self.key.clone(), condition: self.condition.clone(), action: Action::Delete }
    }

    /// A first try that landed left nothing.
    fn judge(&self, reply: Written) -> Result<Removed, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) | Written::Refused(None) => Removed::Gone,
            Written::Refused(Some(_)) => Removed::Another,
        })
    }
}

impl Operator {
    /// Deletes the parts of a body. Their keys hold the nonce of one append:
    /// nobody else's can stand there, and what is gone already may be deleted
    /// again.
    pub(super) async fn remove_parts(&self, parts: &[Key]) -> Result<(), OperatorError> {
        for key in parts {
            self.store.write(&Write::delete(key.clone()), PATIENCE).await?;
        }
        Ok(())
    }
}
