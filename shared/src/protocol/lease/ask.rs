//! What others do about a lease: a waiter asks for it, an operator takes it away.

use std::time::Duration;

use super::passed;
use crate::{
    protocol::{
        entity::EntityKey,
        format::{CorruptRow, attribute as a, readable},
        keys::entity_row,
        operation::{Operation, state_of, updated_state},
        state::{EntityState, HolderInfo, LeaseKind},
        table::{Action, Change, Condition, Write, Written},
    },
    time::{CLOCKS_APART, Timestamp},
};

/// Asks a draining worker to let an exclusive waiter in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskToYield<'a> {
    /// Whom.
    pub entity: &'a EntityKey,
    /// The time.
    pub now: Timestamp,
    /// Until when drains are to keep off.
    pub until: Timestamp,
}

/// How long drains keep off at most when asked to.
pub const LONGEST_YIELD: Duration = Duration::from_secs(10);

/// A request that reaches further ahead was written by a clock that is far off,
/// and counts as passed.
const FARTHEST_YIELD: Duration = LONGEST_YIELD.saturating_add(CLOCKS_APART);

/// Until when drains keep off for an exclusive waiter, if they do now.
pub fn yields_until(state: &EntityState, now: Timestamp) -> Option<Timestamp> {
    state.yield_until.filter(|until| *until > now && *until <= now + FARTHEST_YIELD)
}

/// No exclusive waiter keeps drains off.
pub(super) fn no_yield(now: Timestamp) -> Condition {
    passed(a::YIELD_UNTIL, now, FARTHEST_YIELD)
}

impl Operation for AskToYield<'_> {
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

    /// Landed or not, there is nothing to tell apart: asking twice is harmless,
    /// and a refusal means that nobody drains or that it was asked already.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Takes a lease away from its holder, for an operator. What its holder still
/// writes is refused by the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForceRelease<'a> {
    /// The row in which the operator saw the lease.
    pub seen: &'a EntityState,
    /// Who, when and why, for people; stays on the row until the next grant.
    pub record: HolderInfo,
}

/// What became of a forced release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forced {
    /// The lease is gone; send a wake-up if the inbox is not empty.
    Released(EntityState),
    /// It is not the lease that was seen any more; nothing was changed.
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

    /// A first try that landed left the entity free, one token on, with this
    /// record.
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
