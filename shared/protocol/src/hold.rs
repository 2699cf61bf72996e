//! Holds, with which an operator keeps workers from draining an entity.

use crate::{
    format::{CorruptRow, attribute as a},
    table::{Change, Condition, Row, Value},
    time::Timestamp,
};

/// The latest hold of an entity.
///
/// Each hold has a number, which is greater than the number of the entity's previous hold. The row
/// stores the number, negated once the hold has ended. A write that begins or ends a hold demands
/// the number that its caller has read. So a late write can neither begin an ended hold again nor
/// end a later hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Hold {
    #[default]
    Never,
    /// The entity is on hold. The number is the start of the hold in milliseconds, or one more than
    /// the number of the previous hold, whichever is greater.
    On(u64),
    Off(u64),
}

impl Hold {
    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        match row.get(a::HOLD) {
            None | Some(Value::N(0)) => Ok(Self::Never),
            Some(Value::N(number @ 1..)) => Ok(Self::On(number.unsigned_abs())),
            Some(Value::N(number)) => Ok(Self::Off(number.unsigned_abs())),
            Some(_) => Err(CorruptRow::Attribute(a::HOLD)),
        }
    }

    /// Returns the start of the hold by the operator's clock, or `None` if the entity is not on
    /// hold.
    pub fn since(self) -> Option<Timestamp> {
        match self {
            Self::On(number) => Some(Timestamp::from_millis(number)),
            Self::Never | Self::Off(_) => None,
        }
    }

    pub(super) fn begun(self, now: Timestamp) -> Self {
        let (Self::On(last) | Self::Off(last)) = self else { return Self::On(now.as_millis().max(1)) };
        Self::On(now.as_millis().max(last.saturating_add(1)))
    }

    pub(super) fn ended(self) -> Self {
        match self {
            Self::On(number) => Self::Off(number),
            other => other,
        }
    }

    fn value(self) -> Value {
        let stored = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Value::N(match self {
            Self::Never => 0,
            Self::On(number) => stored(number),
            Self::Off(number) => -stored(number),
        })
    }

    pub(super) fn change(self) -> Change {
        Change::set(a::HOLD, self.value())
    }

    pub(super) fn is_unchanged(self) -> Condition {
        match self {
            Self::Never => Condition::absent(a::HOLD),
            hold => Condition::equal(a::HOLD, hold.value()),
        }
    }
}

pub(crate) fn not_on_hold() -> Condition {
    Condition::absent_or_at_most(a::HOLD, 0_u32)
}
