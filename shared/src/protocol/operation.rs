//! What an operation of the protocol is: a write, and a judgement of its reply.

use crate::protocol::{
    format::CorruptRow,
    state::EntityState,
    table::{Row, Write, Written},
};

/// One operation of the protocol: one conditional write on one item.
///
/// A reply may be lost after the write landed, and the write then be sent
/// again. So `judge` takes a refusal apart: was it our own first try that made
/// the condition fail? Every implementation says how it tells.
pub trait Operation {
    /// What became of it. Expected refusals are outcomes, not errors.
    type Outcome;

    /// The write; the same each time it is asked for.
    fn write(&self) -> Write;

    /// What the store's reply means.
    fn judge(&self, reply: Written) -> Result<Self::Outcome, CorruptRow>;
}

/// The entity row that a reply brought, where there is one.
pub(crate) fn state_of(row: Option<Row>) -> Result<Option<EntityState>, CorruptRow> {
    row.as_ref().map(EntityState::parse).transpose()
}

/// The entity row that a landed update brings.
pub(crate) fn updated_state(row: Option<Row>) -> Result<EntityState, CorruptRow> {
    state_of(row)?.ok_or(CorruptRow::Attribute("entity"))
}
