//! The end of a row's retention: put off while it waits; taken away once it is
//! parked, or put off again where a deployment says how long that is kept; given
//! back where another worker settled the delivery otherwise.

use crate::{
    protocol::{
        format::{CorruptRow, attribute as a},
        operation::Operation,
        table::{Action, Change, Comparison, Condition, Key, Write, Written},
    },
    time::Timestamp,
};

/// Puts the end of a row's retention off.
#[derive(Debug, Clone, PartialEq)]
pub struct PutOff {
    /// Which row, of a delivery or of a part of its body.
    pub row: Key,
    /// Its new end.
    pub until: Timestamp,
}

impl Operation for PutOff {
    type Outcome = ();

    /// Never makes a row that is gone, never brings an end nearer, and gives
    /// none to a row that has none: it may be what an operator parked in the
    /// meantime.
    fn write(&self) -> Write {
        let end = self.until.as_secs_rounded_up();
        Write {
            key: self.row.clone(),
            condition: Condition::compare(a::PURGE_AT, Comparison::Less, end),
            action: Action::Update(vec![Change::set(a::PURGE_AT, end)]),
        }
    }

    /// Landed or not, it ends no sooner than this, or is not for us: twice is
    /// harmless.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Keeps a part of a body until a person decides about the parked delivery that
/// names it.
#[derive(Debug, Clone, PartialEq)]
pub struct KeepForever {
    /// Where it stands.
    pub part: Key,
}

impl Operation for KeepForever {
    type Outcome = ();

    /// Never makes a row that is gone.
    fn write(&self) -> Write {
        Write {
            key: self.part.clone(),
            condition: Condition::exists(a::BODY),
            action: Action::Update(vec![Change::remove(a::PURGE_AT)]),
        }
    }

    /// A landed first try left the condition true: a second one changes nothing.
    /// Refused, the part is gone, which whoever puts the delivery back is told.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Gives a part of a body an end again that was kept for a parked delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpireAgain {
    /// The part's row.
    pub part: Key,
    /// When it may go.
    pub until: Timestamp,
}

impl Operation for ExpireAgain {
    type Outcome = ();

    /// Never makes a row that is gone, and changes no end.
    fn write(&self) -> Write {
        Write {
            key: self.part.clone(),
            condition: Condition::All(vec![Condition::exists(a::BODY), Condition::absent(a::PURGE_AT)]),
            action: Action::Update(vec![Change::set(a::PURGE_AT, self.until.as_secs_rounded_up())]),
        }
    }

    /// Landed or not, the part is gone or has an end: twice is harmless.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
