//! Settles the next delivery by an operator's decision.

use super::Decision;
use crate::{
    entity::Sequence,
    format::{CorruptRow, attribute as a},
    lease::{LONGEST_TURN, Lease, purged_if_idle, remove_lease_and_handover},
    operation::{Operation, state_of},
    state::EntityState,
    table::{Change, Condition, Write, Written},
    time::Timestamp,
};

/// Settles the delivery at `head + 1` under an exclusive lease, and ends the lease and any block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip<'a> {
    pub lease: &'a Lease,
    pub decision: &'a Decision,
    /// The entity's row, as read under the lease.
    pub seen: &'a EntityState,
    pub now: Timestamp,
    /// The earliest time to delete the row, if the entity becomes idle. `None` means never, for
    /// example while the entity is on hold.
    pub purge_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skipped {
    Skipped,
    /// The row has changed and nothing was written. The caller must skip again, based on this row.
    Changed(EntityState),
    Lost,
}

impl Skip<'_> {
    fn place(&self) -> Sequence {
        self.decision.last()
    }
}

impl Operation for Skip<'_> {
    type Outcome = Skipped;

    fn write(&self) -> Write {
        let mut conditions = vec![self.lease.mine_before(self.decision.first)];
        let mut changes = self.decision.changes(self.lease.token);
        changes.extend(remove_lease_and_handover());
        changes.push(Change::remove(a::BLOCKED));
        if self.seen.tail == self.place() {
            conditions.push(Condition::equal(a::TAIL, self.place().0));
            changes.push(Change::remove(a::PENDING_SINCE));
            let (may_go, purge) = purged_if_idle(self.purge_at);
            conditions.extend(may_go);
            changes.extend(purge);
        } else {
            // A tail never decreases, so deliveries still wait and take their turn.
            if !self.seen.is_on_hold() {
                changes.push(Change::set(a::TURN_UNTIL, (self.now + LONGEST_TURN).as_millis()));
            }
            if let Some(since) = self.decision.pending_since {
                changes.push(Change::set(a::PENDING_SINCE, since.as_millis()));
            }
        }
        self.lease.update(Condition::All(conditions), changes)
    }

    /// Treats a refusal as success if the row has a receipt for the skipped sequence with the
    /// lease's token. The receipt proves that an earlier try of this write landed, whatever has
    /// happened since.
    fn judge(&self, reply: Written) -> Result<Skipped, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Skipped::Skipped,
            Written::Refused(row) => match state_of(row)? {
                Some(state)
                    if state.recent.at(self.place()).is_some_and(|receipt| receipt.token == self.lease.token) =>
                {
                    Skipped::Skipped
                }
                Some(state) if self.lease.is_mine(&state) && state.head == self.seen.head => Skipped::Changed(state),
                _ => Skipped::Lost,
            },
        })
    }
}
