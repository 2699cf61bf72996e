//! Begins and ends holds. While an entity is on hold, a running drain ends, deliveries wait, and
//! exclusive leases are still granted.

use crate::{
    entity::EntityKey,
    format::{CorruptRow, attribute as a, readable},
    hold::Hold,
    keys::entity_row,
    lease::{numbers_if_absent, purge_change},
    operation::{Operation, state_of, updated_state},
    state::EntityState,
    table::{Action, Change, Comparison, Condition, Write, Written},
    time::Timestamp,
};

/// Begins a hold, and creates the entity's row if it is absent. The row of an entity on hold is not
/// deleted when idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeginHold<'a> {
    pub entity: &'a EntityKey,
    /// The entity's latest hold, as last read. That hold has ended, or there was none.
    pub seen: Hold,
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldChanged {
    Done(EntityState),
    /// The hold has changed since it was read. `None` if the entity has no row.
    Changed(Option<EntityState>),
}

fn judge(hold: Hold, reply: Written) -> Result<HoldChanged, CorruptRow> {
    Ok(match reply {
        Written::Landed(row) => HoldChanged::Done(updated_state(row)?),
        Written::Refused(row) => match state_of(row)? {
            Some(state) if state.hold == hold => HoldChanged::Done(state),
            state => HoldChanged::Changed(state),
        },
    })
}

impl Operation for BeginHold<'_> {
    type Outcome = HoldChanged;

    fn write(&self) -> Write {
        let mut changes = numbers_if_absent(self.now, &[a::TAIL, a::HEAD, a::TOKEN]);
        changes.extend([self.seen.begun(self.now).change(), Change::remove(a::PURGE_AT)]);
        Write {
            key: entity_row(self.entity),
            condition: Condition::All(vec![readable(), self.seen.is_unchanged()]),
            action: Action::Update(changes),
        }
    }

    /// Treats a refusal as success if the row has this hold's number, because then an earlier try
    /// of this write landed. Another operator's hold of the same millisecond looks the same, and
    /// counts as success too.
    fn judge(&self, reply: Written) -> Result<HoldChanged, CorruptRow> {
        judge(self.seen.begun(self.now), reply)
    }
}

/// Ends a hold. The caller must send a wake-up afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndHold<'a> {
    pub seen: &'a EntityState,
    /// The earliest time to delete the row, if the entity is idle. `None` means never.
    pub purge_at: Option<Timestamp>,
}

impl Operation for EndHold<'_> {
    type Outcome = HoldChanged;

    fn write(&self) -> Write {
        let mut conditions = vec![readable(), self.seen.hold.is_unchanged()];
        let mut changes = vec![self.seen.hold.ended().change()];
        if self.seen.is_empty() && self.seen.held.is_none() {
            conditions.push(Condition::absent(a::HOLDER));
            conditions.push(Condition::compare_with(a::HEAD, Comparison::Equal, a::TAIL));
            changes.extend(purge_change(self.purge_at));
        }
        Write {
            key: entity_row(&self.seen.entity),
            condition: Condition::All(conditions),
            action: Action::Update(changes),
        }
    }

    /// Treats a refusal as success if the row shows that this hold has ended, because then an
    /// earlier try of this write landed.
    fn judge(&self, reply: Written) -> Result<HoldChanged, CorruptRow> {
        judge(self.seen.hold.ended(), reply)
    }
}
