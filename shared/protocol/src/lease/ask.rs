//! Operations on another holder's lease: a waiter asks a drain to yield, and an operator ends a
//! lease by force.

use std::time::Duration;

use super::passed;
use crate::{
    entity::EntityKey,
    format::{CorruptRow, attribute as a, readable},
    keys::entity_row,
    operation::{Operation, state_of, updated_state},
    state::{EntityState, HolderInfo, LeaseKind},
    table::{Action, Change, Condition, Write, Written},
    time::{CLOCKS_APART, Timestamp},
};

/// Asks a draining worker to yield to an exclusive waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestYield<'a> {
    pub entity: &'a EntityKey,
    pub now: Timestamp,
    /// The time until which no drain is granted the lease.
    pub until: Timestamp,
}

/// The longest time for which drains yield to an exclusive waiter.
pub const LONGEST_YIELD: Duration = Duration::from_secs(10);

/// The longest time by which a valid `yield_until` may lie in the future. A later time comes from a
/// wrong clock, and counts as passed.
const FARTHEST_YIELD: Duration = LONGEST_YIELD.saturating_add(CLOCKS_APART);

pub fn yields_until(state: &EntityState, now: Timestamp) -> Option<Timestamp> {
    state.yield_until.filter(|until| *until > now && *until <= now + FARTHEST_YIELD)
}

pub(super) fn no_yield(now: Timestamp) -> Condition {
    passed(a::YIELD_UNTIL, now, FARTHEST_YIELD)
}

impl Operation for RequestYield<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let until = self.until.min(self.now + LONGEST_YIELD);
        Write {
            key: entity_row(self.entity),
            condition: Condition::All(vec![
                readable(),
                Condition::equal(a::KIND, LeaseKind::Drain.as_str()),
                no_yield(self.now),
            ]),
            action: Action::Update(vec![Change::set(a::YIELD_UNTIL, until.as_millis())]),
        }
    }

    /// Treats every reply as success: asking twice is harmless. A refusal means that no drain has
    /// the lease, or that a request is already in force.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Ends a holder's lease by force, for an operator. The write increases the fencing token, so the
/// holder's later writes are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForceRelease<'a> {
    pub seen: &'a EntityState,
    /// The operator, the time and the reason. The row keeps them until the next grant.
    pub record: HolderInfo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forced {
    /// The lease has ended. The caller must send a wake-up if the inbox is not empty.
    Released(EntityState),
    /// The lease is no longer the one that the operator saw, and nothing was changed. `None` if the
    /// entity has no row.
    Changed(Option<EntityState>),
}

impl Operation for ForceRelease<'_> {
    type Outcome = Forced;

    fn write(&self) -> Write {
        let conditions = vec![readable(), Condition::exists(a::HOLDER), Condition::equal(a::TOKEN, self.seen.token.0)];
        let changes = vec![
            Change::remove(a::HOLDER),
            Change::remove(a::KIND),
            Change::remove(a::EXPIRES_AT),
            Change::remove(a::HANDOVER),
            Change::set(a::HOLDER_INFO, self.record.as_str()),
            Change::set(a::TOKEN, self.seen.token.next().0),
        ];
        Write {
            key: entity_row(&self.seen.entity),
            condition: Condition::All(conditions),
            action: Action::Update(changes),
        }
    }

    /// Treats a refusal as success if the entity is free, with the next token and this record,
    /// because then an earlier try of this write landed.
    fn judge(&self, reply: Written) -> Result<Forced, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => Forced::Released(updated_state(row)?),
            Written::Refused(row) => match state_of(row)? {
                Some(state)
                    if state.held.is_none()
                        && state.token == self.seen.token.next()
                        && state.holder_info.as_ref() == Some(&self.record) =>
                {
                    Forced::Released(state)
                }
                state => Forced::Changed(state),
            },
        })
    }
}
