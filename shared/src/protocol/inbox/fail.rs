//! What follows a start that did not go well: it is counted, or the entity is
//! blocked; and what precedes one that may go the same way.

use crate::{
    protocol::{
        attempt::Retries,
        entity::{EntityKey, FencingToken, Sequence},
        format::{CorruptRow, attribute as a, readable, shortened},
        keys::entity_row,
        lease::{Lease, lease_ended, lease_removed},
        operation::{Operation, state_of, updated_state},
        state::{BlockReason, EntityState},
        table::{Action, Change, Condition, Write, Written},
    },
    time::Timestamp,
};

/// Writes down that the handler of the delivery at `head + 1` is about to
/// start: for a delivery whose holder vanished before, so that the next one is
/// told apart from a holder that vanished without having started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkStart<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// Which delivery.
    pub sequence: Sequence,
}

/// What became of writing down a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    /// It is written: start.
    Marked,
    /// The lease was not this holder's any more: do not start.
    Lost,
}

impl Operation for MarkStart<'_> {
    type Outcome = Marked;

    fn write(&self) -> Write {
        let condition = Condition::All(vec![self.lease.mine(), Condition::equal(a::HEAD, self.sequence.previous().0)]);
        // Holders that vanished one after the other before they could start it are counted anew.
        let changes = vec![Change::set(a::STARTED, self.lease.token().0), Change::set(a::SUSPECT, 1_u32)];
        self.lease.update(condition, changes)
    }

    /// A first try that landed left the condition true: the second one lands
    /// too, and changes nothing.
    fn judge(&self, reply: Written) -> Result<Marked, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Marked::Marked,
            Written::Refused(_) => Marked::Lost,
        })
    }
}

/// Records that the delivery at `head + 1` is to be tried again, or is given up
/// and blocks the entity, and ends the lease. The wake-up for the next attempt was
/// sent before, under the lease's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fail<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// Which delivery.
    pub sequence: Sequence,
    /// How often it has failed now.
    pub attempts: u32,
    /// How long it will have waited for its retries.
    pub retries: Retries,
    /// Whether a holder vanished with it before: this one did not, so they are
    /// counted anew.
    pub suspected: bool,
    /// Up to which place each is handled by itself from now on: a group failed.
    /// `head`: the attempts are those of the latest, not of the delivery in front.
    pub one_by_one: Option<Sequence>,
    /// When it is to be tried again; `None`: the entity is blocked instead.
    pub retry_at: Option<Timestamp>,
    /// Why, for people.
    pub error: &'a str,
}

/// What became of counting a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// It is counted and the lease has ended.
    Counted,
    /// The lease was not this holder's any more; nothing was counted by it.
    Lost,
}

impl Operation for Fail<'_> {
    type Outcome = Failed;

    fn write(&self) -> Write {
        let condition = Condition::All(vec![self.lease.mine(), Condition::equal(a::HEAD, self.sequence.previous().0)]);
        let mut changes = lease_ended();
        changes.push(match self.attempts {
            0 => Change::remove(a::ATTEMPTS),
            attempts => Change::set(a::ATTEMPTS, attempts),
        });
        changes.push(match self.retries.to_stored() {
            Some(retries) => Change::set(a::RETRIES, retries),
            None => Change::remove(a::RETRIES),
        });
        if self.suspected {
            changes.push(Change::set(a::SUSPECT, 1_u32));
        }
        if let Some(last) = self.one_by_one {
            changes.push(Change::set(a::ONE_BY_ONE, last.0));
        }
        changes.push(Change::set(a::LAST_ERROR, shortened(self.error, crate::protocol::state::LAST_ERROR_BYTES)));
        changes.extend(match self.retry_at {
            // The wake-up for then is the only one that counts.
            Some(at) => [a::RETRY_AT, a::HANDOVER].map(|name| Change::set(name, at.as_millis())),
            None => [Change::set(a::BLOCKED, BlockReason::Attempts.as_str()), Change::remove(a::HANDOVER)],
        });
        self.lease.update(condition, changes)
    }

    /// A first try that landed left the entity free under this token, with
    /// these attempts and waits. What else ends the lease under it was not sent.
    fn judge(&self, reply: Written) -> Result<Failed, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Failed::Counted,
            Written::Refused(row) => match state_of(row)? {
                Some(state)
                    if self.lease.was_released(&state)
                        && (state.attempts, state.retries) == (self.attempts, self.retries) =>
                {
                    Failed::Counted
                }
                _ => Failed::Lost,
            },
        })
    }
}

/// Ends a drain at a place that is not the worker's to decide, and stops the
/// entity there until an operator looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// Which place.
    pub sequence: Sequence,
    /// Why.
    pub reason: BlockReason,
}

impl Operation for Block<'_> {
    type Outcome = Failed;

    fn write(&self) -> Write {
        let condition = Condition::All(vec![self.lease.mine(), Condition::equal(a::HEAD, self.sequence.previous().0)]);
        let mut changes = lease_removed();
        changes.push(Change::set(a::BLOCKED, self.reason.as_str()));
        self.lease.update(condition, changes)
    }

    /// A first try that landed left the entity free under this token, blocked.
    fn judge(&self, reply: Written) -> Result<Failed, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Failed::Counted,
            Written::Refused(row) => match state_of(row)? {
                Some(state) if self.lease.was_released(&state) && state.blocked == Some(self.reason) => Failed::Counted,
                _ => Failed::Lost,
            },
        })
    }
}

/// Lets drains at an entity again; send a wake-up afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unblock<'a> {
    /// Which entity.
    pub entity: &'a EntityKey,
    /// The token under which the block was seen. A try that lands after its
    /// caller has given it up must not lift a later block, which nobody has
    /// looked at and nobody would send a wake-up for.
    pub seen: FencingToken,
}

/// What became of an unblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unblocked {
    /// It is not blocked any more.
    Unblocked(EntityState),
    /// It was not blocked, or not as it was seen; `None`: there is no such
    /// entity.
    NotBlocked(Option<EntityState>),
}

impl Operation for Unblock<'_> {
    type Outcome = Unblocked;

    fn write(&self) -> Write {
        Write {
            key: entity_row(self.entity),
            condition: Condition::All(vec![
                readable(),
                Condition::exists(a::BLOCKED),
                Condition::equal(a::TOKEN, self.seen.0),
            ]),
            action: Action::Update(
                [a::BLOCKED, a::ATTEMPTS, a::SUSPECT, a::STARTED, a::RETRY_AT, a::RETRIES, a::LAST_ERROR]
                    .map(Change::remove)
                    .to_vec(),
            ),
        }
    }

    /// Refused: not blocked, perhaps by a first try, or blocked again since.
    /// Harmless either way; the caller sends the wake-up in both cases.
    fn judge(&self, reply: Written) -> Result<Unblocked, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => Unblocked::Unblocked(updated_state(row)?),
            Written::Refused(row) => Unblocked::NotBlocked(state_of(row)?),
        })
    }
}

/// Lets the delivery at `head + 1` be tried now, which waits for its next attempt;
/// send a wake-up afterwards. Its attempts stay counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryNow<'a> {
    /// The row that shows the wait. A try that lands late must not cut another
    /// one short.
    pub seen: &'a EntityState,
}

/// What became of one that is not to wait any longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retrying {
    /// It does not wait any longer.
    Now(EntityState),
    /// It did not wait so any more; `None`: there is no row.
    Changed(Option<EntityState>),
}

impl Operation for RetryNow<'_> {
    type Outcome = Retrying;

    fn write(&self) -> Write {
        let until = self.seen.retry_at.map_or(0, Timestamp::as_millis);
        let conditions = vec![
            readable(),
            Condition::absent(a::HOLDER),
            Condition::equal(a::TOKEN, self.seen.token.0),
            Condition::equal(a::RETRY_AT, until),
        ];
        Write {
            key: entity_row(&self.seen.entity),
            condition: Condition::All(conditions),
            action: Action::Update(vec![Change::remove(a::RETRY_AT)]),
        }
    }

    /// A first try that landed left the same token and no wait. Whoever else did
    /// that wanted the same.
    fn judge(&self, reply: Written) -> Result<Retrying, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => Retrying::Now(updated_state(row)?),
            Written::Refused(row) => match state_of(row)? {
                Some(state) if state.token == self.seen.token && state.retry_at.is_none() => Retrying::Now(state),
                state => Retrying::Changed(state),
            },
        })
    }
}
