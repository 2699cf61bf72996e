//! The trait of the protocol's operations.

use crate::{
    format::{CorruptRow, attribute as a},
    state::EntityState,
    table::{Condition, Row, Write, Written},
    time::Nonce,
};

/// One operation of the protocol: one conditional write of one item.
///
/// The reply to a write that landed may be lost, and the write is then sent again. That second try
/// can be refused because of the first. So `judge` must recognise a refusal that the operation's
/// own first try has caused. Each implementation documents how it does so, or why it need not.
pub trait Operation {
    /// The outcome of the write. Expected refusals are outcomes and not errors.
    type Outcome;

    /// Returns the write. Every call returns the same write.
    fn write(&self) -> Write;

    /// Interprets the store's reply to the write. Fails if the row in the reply cannot be parsed.
    fn judge(&self, reply: Written) -> Result<Self::Outcome, CorruptRow>;
}

/// Returns whether the row that refused a write has this nonce. Each operation has its own nonce,
/// so only its own first try can have written such a row.
pub(crate) fn has_nonce(row: &Option<Row>, nonce: &Nonce) -> bool {
    row.as_ref().is_some_and(|row| row.text(a::NONCE) == Some(nonce.as_str()))
}

/// Returns the condition that the row's nonce has not changed since it was read.
pub(crate) fn nonce_as_seen(seen: Option<&Nonce>) -> Condition {
    match seen {
        Some(nonce) => Condition::equal(a::NONCE, nonce.as_str()),
        None => Condition::absent(a::NONCE),
    }
}

pub(crate) fn state_of(row: Option<Row>) -> Result<Option<EntityState>, CorruptRow> {
    row.as_ref().map(EntityState::parse).transpose()
}

pub(crate) fn updated_state(row: Option<Row>) -> Result<EntityState, CorruptRow> {
    state_of(row)?.ok_or(CorruptRow::Attribute(a::ENTITY))
}
