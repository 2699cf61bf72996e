//! What is set aside for a person to decide.

use crate::protocol::{
    entity::{EntityKey, Sequence},
    format::{CorruptRow, attribute as a},
    keys::parked_row,
    operation::Operation,
    table::{Action, Condition, Row, Write, Written},
};

/// Sets a delivery aside for a person to decide about.
#[derive(Debug, Clone)]
pub struct Park<'a> {
    /// Of which entity.
    pub entity: &'a EntityKey,
    /// Where it stood.
    pub sequence: Sequence,
    /// Its row's payload, with the error, as `delivery::parked_copy` makes it.
    pub row: &'a Row,
}

impl Operation for Park<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        Write {
            key: parked_row(self.entity, self.sequence),
            condition: Condition::absent(a::ITEM),
            action: Action::Put(self.row.clone()),
        }
    }

    /// It is there, by this try or one before, of this holder or of one that
    /// died between parking and settling.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
