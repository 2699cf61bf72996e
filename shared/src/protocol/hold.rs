//! Whether an operator keeps drains off an entity.

use crate::{
    protocol::{
        format::{CorruptRow, attribute as a},
        table::{Change, Comparison, Condition, Row, Value},
    },
    time::Timestamp,
};

/// Whether an entity is on hold, and which of its holds it was. Each has a number
/// above the last one's, and takes its row from one number to the next: so a
/// first try that lands late can neither hold again what goes on, nor let go on
/// what is held anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hold(i64);

impl Hold {
    /// What a row says.
    pub(crate) fn parse(row: &Row) -> Result<Self, CorruptRow> {
        match row.get(a::HOLD) {
            None => Ok(Self::default()),
            Some(Value::N(number)) => Ok(Self(*number)),
            Some(_) => Err(CorruptRow::Attribute(a::HOLD)),
        }
    }

    /// Since when it is on hold, by its operator's clock; `None`: it is not.
    pub fn since(self) -> Option<Timestamp> {
        u64::try_from(self.0).ok().filter(|at| *at > 0).map(Timestamp::from_millis)
    }

    /// One that begins at `now`, after this one.
    pub(super) fn begun(self, now: Timestamp) -> Self {
        Self(self.0.saturating_abs().saturating_add(1).max(i64::try_from(now.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The same, ended.
    pub(super) fn ended(self) -> Self {
        Self(-self.0)
    }

    pub(super) fn change(self) -> Change {
        Change::set(a::HOLD, Value::N(self.0))
    }

    /// That a row still says this.
    pub(super) fn stands(self) -> Condition {
        match self.0 {
            0 => Condition::absent(a::HOLD),
            number => Condition::compare(a::HOLD, Comparison::Equal, Value::N(number)),
        }
    }
}

/// That an entity is not on hold.
pub(crate) fn not_on_hold() -> Condition {
    Condition::absent_or_at_most(a::HOLD, 0_u32)
}
