//! Erasure: deletes rows of an inbox as they were read, and reduces an entity's row to
//! its numbers.

use std::time::Duration;

use crate::{
    protocol::{
        format::{CorruptRow, attribute as a, readable},
        hold::not_on_hold,
        keys::{action_nonce, entity_row, key_of, sequence_of},
        lease::purge_change,
        operation::Operation,
        state::EntityState,
        table::{Action, Change, Condition, Key, Row, TableName, Write, Written},
    },
    time::Timestamp,
};

/// The time from an erased row's greatest number to its deletion. A row created after
/// that starts at the current time, which is greater than the old numbers unless
/// its author's clock is behind by as much.
const NUMBERS_STAY: Duration = Duration::from_secs(86_400);

/// Removes everything but the numbers from the row of a free, empty entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forget<'a> {
    /// The row as seen.
    pub seen: &'a EntityState,
    /// The earliest deletion of the rest; `None` for never.
    pub purge_at: Option<Timestamp>,
}

/// The outcome of erasing an entity's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// Only the numbers are left.
    Numbers,
    /// The row is gone.
    Gone,
    /// A delivery arrived, or the entity was leased, held or rewound; nothing was changed.
    Changed,
}

impl<'a> Forget<'a> {
    /// Creates the write. The row's numbers are also times, of clocks that may be
    /// ahead.
    pub fn of(seen: &'a EntityState, now: Timestamp) -> Self {
        let newest = Timestamp::from_millis(now.as_millis().max(seen.tail.0).max(seen.token.0));
        Self { seen, purge_at: (!seen.entity.is_kept_forever()).then_some(newest + NUMBERS_STAY) }
    }
}

impl Operation for Forget<'_> {
    type Outcome = Forgotten;

    fn write(&self) -> Write {
        // All other attributes belong to a waiting delivery or a holder.
        let kept_for_repeats = [a::RECENT, a::SPILLED, a::NEWEST_EVENT_TIME, a::HOLDER_INFO];
        let mut changes = kept_for_repeats.map(Change::remove).to_vec();
        changes.extend(purge_change(self.purge_at));
        Write {
            key: entity_row(&self.seen.entity),
            condition: Condition::All(vec![
                Condition::equal(a::TAIL, self.seen.tail.0),
                Condition::equal(a::HEAD, self.seen.head.0),
                Condition::absent(a::HOLDER),
                not_on_hold(),
                readable(),
            ]),
            action: Action::Update(changes),
        }
    }

    /// Needs not recognise a first try: the condition still holds, so a second one lands and
    /// changes nothing.
    fn judge(&self, reply: Written) -> Result<Forgotten, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Forgotten::Numbers,
            Written::Refused(None) => Forgotten::Gone,
            Written::Refused(Some(_)) => Forgotten::Changed,
        })
    }
}

/// Deletes a delivery, a parked delivery, a receipt or an entry of the operations log,
/// but no other row that has replaced it.
#[derive(Debug, Clone, PartialEq)]
pub struct Remove {
    key: Key,
    condition: Condition,
}

/// The outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// The row is deleted.
    Gone,
    /// Another row has replaced it and stays.
    Another,
}

impl Remove {
    /// Creates the deletion of a row. A receipt is identified by its sequence, because
    /// all receipts of a delivery have the same key; other rows by their nonce.
    pub fn of(row: &Row) -> Result<Self, CorruptRow> {
        let known_by = if sequence_of(row).is_some() || action_nonce(row).is_some() { a::NONCE } else { a::SEQUENCE };
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

    /// Recognises a landed first try: the row is gone.
    fn judge(&self, reply: Written) -> Result<Removed, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) | Written::Refused(None) => Removed::Gone,
            Written::Refused(Some(_)) => Removed::Another,
        })
    }
}

/// Deletes one part of a body. Its key contains the append's nonce, so no other part can
/// replace it.
#[derive(Debug, Clone, PartialEq)]
pub struct RemovePart<'a> {
    pub part: &'a Key,
}

impl Operation for RemovePart<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        Write::delete(self.part.clone())
    }

    /// Accepts every reply: deleting twice is harmless.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
