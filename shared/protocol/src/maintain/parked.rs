//! Decides between a redrive and a discard of the same parked delivery.

use super::Remove;
use crate::{
    format::{CorruptRow, attribute as a},
    operation::Operation,
    table::{Action, Change, Condition, Row, Write, Written},
    time::Timestamp,
};

/// Marks a parked delivery's row before a redrive appends the delivery again. A marked delivery cannot be discarded.
#[derive(Debug, Clone, PartialEq)]
pub struct MarkRedrive {
    row: Remove,
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
        Ok(Self { row: Remove::of(row)?, at })
    }
}

impl Operation for MarkRedrive {
    type Outcome = RedriveMarked;

    fn write(&self) -> Write {
        let change = Change::set(a::REDRIVEN_AT, self.at.as_millis());
        Write { action: Action::Update(vec![change]), ..self.row.write() }
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
    row: Remove,
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
        Ok(Self { row: Remove::of(row)? })
    }
}

impl Operation for Discard {
    type Outcome = Discarded;

    fn write(&self) -> Write {
        let write = self.row.write();
        Write { condition: Condition::All(vec![write.condition, Condition::absent(a::REDRIVEN_AT)]), ..write }
    }

    /// Does not recognise an earlier try of this write: the row is gone either way. After a request without a reply,
    /// the caller takes [`Discarded::Gone`] for its own.
    fn judge(&self, reply: Written) -> Result<Discarded, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Discarded::Discarded,
            Written::Refused(Some(row)) if row.get(a::REDRIVEN_AT).is_some() => Discarded::Redriven,
            Written::Refused(_) => Discarded::Gone,
        })
    }
}
