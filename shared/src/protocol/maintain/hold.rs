//! An operator keeps drains off an entity, and lets them at it again. What is at
//! work ends, what arrives waits; exclusive leases are granted as ever.

use crate::{
    protocol::{
        entity::EntityKey,
        format::{CorruptRow, attribute as a, readable},
        hold::Hold,
        keys::entity_row,
        lease::{numbers_if_absent, purge_change},
        operation::{Operation, state_of, updated_state},
        state::EntityState,
        table::{Action, Change, Comparison, Condition, Write, Written},
    },
    time::Timestamp,
};

/// Keeps drains off an entity until it is resumed, and makes its row where there
/// is none. It is not deleted for idleness meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeginHold<'a> {
    /// Of which entity.
    pub entity: &'a EntityKey,
    /// What its row said, or nothing; not on hold.
    pub seen: Hold,
    /// The time.
    pub now: Timestamp,
}

/// What became of the begin or the end of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    /// It is done. The row as it is.
    Done(EntityState),
    /// Another operator was faster; look again. `None`: there is no row.
    Otherwise(Option<EntityState>),
}

fn judge(hold: Hold, reply: Written) -> Result<Turned, CorruptRow> {
    Ok(match reply {
        Written::Landed(row) => Turned::Done(updated_state(row)?),
        Written::Refused(row) => match state_of(row)? {
            Some(state) if state.hold == hold => Turned::Done(state),
            state => Turned::Otherwise(state),
        },
    })
}

impl Operation for BeginHold<'_> {
    type Outcome = Turned;

    fn write(&self) -> Write {
        let mut changes = numbers_if_absent(self.now, &[a::TAIL, a::HEAD, a::TOKEN]);
        changes.extend([self.seen.begun(self.now).change(), Change::remove(a::PURGE_AT)]);
        Write {
            key: entity_row(self.entity),
            condition: Condition::All(vec![readable(), self.seen.is_unchanged()]),
            action: Action::Update(changes),
        }
    }

    /// A first try that landed left this number. So did another operator's of the
    /// same moment: it is on hold all the same.
    fn judge(&self, reply: Written) -> Result<Turned, CorruptRow> {
        judge(self.seen.begun(self.now), reply)
    }
}

/// Ends a hold; send a wake-up afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndHold<'a> {
    /// The row that shows it.
    pub seen: &'a EntityState,
    /// When a row that was seen idle may be deleted for that; `None`: never.
    pub purge_at: Option<Timestamp>,
}

impl Operation for EndHold<'_> {
    type Outcome = Turned;

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

    /// A first try that landed left this number, with the sign turned.
    fn judge(&self, reply: Written) -> Result<Turned, CorruptRow> {
        judge(self.seen.hold.ended(), reply)
    }
}
