//! Changes how long rows are kept. Waiting deliveries are kept for longer, parked ones for longer
//! or forever. If a delivery has a parked copy but was settled otherwise than as parked, the parts
//! of its body expire again.

use crate::{
    format::{CorruptRow, attribute as a},
    operation::Operation,
    table::{Action, Change, Comparison, Condition, Key, Write, Written},
    time::Timestamp,
};

/// Extends a row's retention, but never shortens it and never creates a row. A row that is kept
/// forever stays so, because its delivery may have been parked in the meantime.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtendRetention {
    /// The row of a waiting or parked delivery, of a part of its body, or of its receipt.
    pub row: Key,
    pub until: Timestamp,
}

impl Operation for ExtendRetention {
    type Outcome = ();

    fn write(&self) -> Write {
        let end = self.until.as_secs_rounded_up();
        Write {
            key: self.row.clone(),
            condition: Condition::compare(a::PURGE_AT, Comparison::Less, end),
            action: Action::Update(vec![Change::set(a::PURGE_AT, end)]),
        }
    }

    /// Treats every reply as success: a refusal means that the row expires no sooner, never
    /// expires, or is gone.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Keeps a part of a body until an operator decides about the parked delivery that names the part.
/// Never creates a row.
#[derive(Debug, Clone, PartialEq)]
pub struct KeepForever {
    pub part: Key,
}

impl Operation for KeepForever {
    type Outcome = ();

    fn write(&self) -> Write {
        Write {
            key: self.part.clone(),
            condition: Condition::exists(a::BODY),
            action: Action::Update(vec![Change::remove(a::PURGE_AT)]),
        }
    }

    /// Treats every reply as success: a second write changes nothing, and a refusal means that the
    /// part is gone. A redrive reports a missing part.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Sets the end of retention of a part that was kept forever for a parked delivery. Never creates a
/// row, and never changes an end that is already set.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpireAgain {
    pub part: Key,
    pub until: Timestamp,
}

impl Operation for ExpireAgain {
    type Outcome = ();

    fn write(&self) -> Write {
        Write {
            key: self.part.clone(),
            condition: Condition::All(vec![Condition::exists(a::BODY), Condition::absent(a::PURGE_AT)]),
            action: Action::Update(vec![Change::set(a::PURGE_AT, self.until.as_secs_rounded_up())]),
        }
    }

    /// Treats every reply as success: afterwards the part is gone, or its retention has an end.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
