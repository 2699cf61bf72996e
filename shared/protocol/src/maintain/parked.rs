//! Decides between a redrive and a discard of the same parked delivery.

use crate::{
    format::{CorruptRow, attribute as a},
    keys::key_of,
    operation::Operation,
    table::{Action, Change, Condition, Key, Row, TableName, Value, Write, Written},
    time::Timestamp,
};

/// A parked delivery's row, identified by its key and the nonce of its append.
#[derive(Debug, Clone, PartialEq)]
struct ParkedRow {
    key: Key,
    nonce: Value,
}

impl ParkedRow {
    fn of(row: &Row) -> Result<Self, CorruptRow> {
        let key = key_of(&TableName::Inbox, row).ok_or(CorruptRow::Attribute(a::ENTITY))?;
        let nonce = row.get(a::NONCE).ok_or(CorruptRow::Attribute(a::NONCE))?.clone();
        Ok(Self { key, nonce })
    }

    fn is_there(&self) -> Condition {
        Condition::equal(a::NONCE, self.nonce.clone())
    }
}

/// Records in a parked delivery's row that a redrive is about to append the delivery again. From then on, nobody
/// can discard it.
#[derive(Debug, Clone, PartialEq)]
pub struct MarkRedrive {
    row: ParkedRow,
    at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedriveMarked {
    Marked,
    /// The delivery was redriven, discarded or erased, or its retention has ended.
    Gone,
}

impl MarkRedrive {
    pub fn of(row: &Row, at: Timestamp) -> Result<Self, CorruptRow> {
        Ok(Self { row: ParkedRow::of(row)?, at })
    }
}

impl Operation for MarkRedrive {
    type Outcome = RedriveMarked;

    fn write(&self) -> Write {
        Write {
            key: self.row.key.clone(),
            condition: self.row.is_there(),
            action: Action::Update(vec![Change::set(a::REDRIVEN_AT, self.at.as_millis())]),
        }
    }

    /// Does not recognise an earlier try of this write, and need not: a second try also meets the condition.
    fn judge(&self, reply: Written) -> Result<RedriveMarked, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => RedriveMarked::Marked,
            Written::Refused(_) => RedriveMarked::Gone,
        })
    }
}

/// Deletes a parked delivery's row, unless a redrive of the delivery has begun.
#[derive(Debug, Clone, PartialEq)]
pub struct Discard {
    row: ParkedRow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discarded {
    Discarded,
    /// A redrive has begun, and may have appended the delivery. The row stays.
    Redriven,
    Gone,
}

impl Discard {
    pub fn of(row: &Row) -> Result<Self, CorruptRow> {
        Ok(Self { row: ParkedRow::of(row)? })
    }
}

impl Operation for Discard {
    type Outcome = Discarded;

    fn write(&self) -> Write {
        Write {
            key: self.row.key.clone(),
            condition: Condition::All(vec![self.row.is_there(), Condition::absent(a::REDRIVEN_AT)]),
            action: Action::Delete,
        }
    }

    /// Does not recognise an earlier try of this write: the row is gone either way. After a request without a reply,
    /// the caller takes [`Discarded::Gone`] for its own.
    fn judge(&self, reply: Written) -> Result<Discarded, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Discarded::Discarded,
            Written::Refused(Some(row)) if row.get(a::NONCE) == Some(&self.row.nonce) => Discarded::Redriven,
            Written::Refused(_) => Discarded::Gone,
        })
    }
}
