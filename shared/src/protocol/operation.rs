//! The trait of the protocol's operations.

use crate::{
    protocol::{
        format::{CorruptRow, attribute as a},
        state::EntityState,
        table::{Row, Write, Written},
    },
    time::Nonce,
};

/// One operation of the protocol: one conditional write on one item.
///
/// A reply may be lost after its write landed, and the write is then sent again. So
/// `judge` must recognise a refusal that was caused by the operation's own first try;
/// every implementation documents how.
pub trait Operation {
    /// The outcome, which includes expected refusals.
    type Outcome;

    /// Returns the write, the same at every call.
    fn write(&self) -> Write;

    /// Interprets the store's reply.
    ///
    /// # Errors
    ///
    /// The row in the reply cannot be parsed.
    fn judge(&self, reply: Written) -> Result<Self::Outcome, CorruptRow>;
}

/// Returns whether the refusing row has this nonce, which is new for each operation.
pub(crate) fn has_nonce(row: &Option<Row>, nonce: &Nonce) -> bool {
    row.as_ref().is_some_and(|row| row.text(a::NONCE) == Some(nonce.as_str()))
}

/// Parses the entity row of a reply, if there is one.
pub(crate) fn state_of(row: Option<Row>) -> Result<Option<EntityState>, CorruptRow> {
    row.as_ref().map(EntityState::parse).transpose()
}

/// Parses the entity row of a reply that must have one.
pub(crate) fn updated_state(row: Option<Row>) -> Result<EntityState, CorruptRow> {
    state_of(row)?.ok_or(CorruptRow::Attribute(a::ENTITY))
}
