//! The trait of the protocol's operations.

use crate::{
    protocol::{
        format::{CorruptRow, attribute as a},
        state::EntityState,
        table::{Row, Write, Written},
    },
    time::Nonce,
};

/// One operation of the protocol: one conditional write of one item.
///
/// The reply to a write that landed may be lost, and the write is then sent again. That second try
/// can be refused because of the first. So `judge` must recognise a refusal that the operation's
/// own first try has caused. Every implementation documents how.
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

/// Returns whether the row that refused a write has this nonce. Every write has a new nonce, so the
/// row with it was written by the operation's own first try.
pub(crate) fn has_nonce(row: &Option<Row>, nonce: &Nonce) -> bool {
    row.as_ref().is_some_and(|row| row.text(a::NONCE) == Some(nonce.as_str()))
}

/// Parses the entity row of a reply, if the reply contains a row.
pub(crate) fn state_of(row: Option<Row>) -> Result<Option<EntityState>, CorruptRow> {
    row.as_ref().map(EntityState::parse).transpose()
}

/// Parses the entity row of a reply that must contain a row.
pub(crate) fn updated_state(row: Option<Row>) -> Result<EntityState, CorruptRow> {
    state_of(row)?.ok_or(CorruptRow::Attribute(a::ENTITY))
}
