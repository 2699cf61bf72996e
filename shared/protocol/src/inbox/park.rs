//! Parks a delivery, so that an operator can decide about it.

use crate::{
    entity::{EntityKey, Sequence},
    format::{CorruptRow, attribute as a},
    keys::parked_row,
    operation::Operation,
    table::{Action, Condition, Row, Write, Written},
};

#[derive(Debug, Clone)]
pub struct Park<'a> {
    pub entity: &'a EntityKey,
    pub sequence: Sequence,
    /// The delivery's row with the error, made by `delivery::parked_copy`.
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

    /// Treats every reply as success: after a refusal, the copy exists already. An earlier try of
    /// this write stored the copy, or an earlier holder stored it and vanished before the settle.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
