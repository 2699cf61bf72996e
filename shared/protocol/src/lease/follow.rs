//! The wake-up that follows an exclusive lease.

use crate::{
    entity::{EntityKey, FencingToken},
    format::{CorruptRow, attribute as a, readable},
    keys::entity_row,
    operation::Operation,
    state::LeaseKind,
    table::{Action, Change, Condition, Write, Written},
    time::Timestamp,
};

/// Records that a wake-up with an exclusive lease's token will be received at `due`. The worker has
/// already sent that wake-up. Until the lease ends, claims rely on it, unless it is five minutes
/// overdue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follow<'a> {
    pub entity: &'a EntityKey,
    pub token: FencingToken,
    pub due: Timestamp,
}

impl Operation for Follow<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        Write {
            key: entity_row(self.entity),
            condition: Condition::All(vec![
                readable(),
                Condition::exists(a::HOLDER),
                Condition::equal(a::KIND, LeaseKind::Exclusive.as_str()),
                Condition::equal(a::TOKEN, self.token.0),
            ]),
            action: Action::Update(vec![Change::set(a::HANDOVER, self.due.as_millis())]),
        }
    }

    /// Treats every reply as success: a second write changes nothing, and a refusal means that the
    /// lease has ended. Every end of an exclusive lease removes the record.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
