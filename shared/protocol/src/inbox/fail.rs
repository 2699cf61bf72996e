//! Operations around failed handler starts: recording a start, counting a failure, and blocking and
//! unblocking the entity.

use crate::{
    attempt::Retries,
    entity::{EntityKey, FencingToken, Sequence},
    format::{CorruptRow, attribute as a, readable},
    keys::entity_row,
    lease::{Lease, remove_lease, remove_lease_and_handover},
    operation::{Operation, state_of, updated_state},
    state::{BlockReason, EntityState, FIRST_HOLDER},
    table::{Action, Change, Condition, Write, Written},
    time::Timestamp,
    waits::{self, SourceTag},
};

/// Records that the handler of the delivery at `head + 1` starts next.
///
/// A worker records the start if an earlier lease holder vanished with this delivery. If this
/// holder vanishes too, the record tells whether it vanished during the handler or before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkStart<'a> {
    pub lease: &'a Lease,
    pub sequence: Sequence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    Recorded,
    Lost,
}

impl Operation for MarkStart<'_> {
    type Outcome = Marked;

    fn write(&self) -> Write {
        // This holder did not vanish before the start, so the count of such holders restarts.
        let changes = vec![Change::set(a::STARTED, self.lease.token().0), Change::set(a::SUSPECT, FIRST_HOLDER)];
        self.lease.update(self.lease.mine_before(self.sequence), changes)
    }

    /// Does not recognise an earlier try of this write, and need not: a second try also meets the
    /// condition, and changes nothing.
    fn judge(&self, reply: Written) -> Result<Marked, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Marked::Recorded,
            Written::Refused(_) => Marked::Lost,
        })
    }
}

/// Records that a handler start did not settle the delivery at `head + 1`, or that a breaker
/// refused the start, and ends the lease. The delivery is retried later, or it blocks the entity.
/// For a retry, the caller has already sent a wake-up that carries the lease's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fail<'a> {
    pub lease: &'a Lease,
    pub sequence: Sequence,
    /// The delivery's attempts after this start. An unavailable destination adds none, and a split
    /// group begins again at 0.
    pub attempts: u32,
    /// The delivery's retries, including the wait that begins now.
    pub retries: Retries,
    /// True if an earlier lease holder vanished with the delivery. This holder did not vanish, so
    /// the count of vanished holders restarts.
    pub suspected: bool,
    /// Deliveries up to this sequence start one at a time. If the value equals `head`, `attempts`
    /// are those of a whole `latest` group. `None` leaves the row's value unchanged.
    pub one_by_one: Option<Sequence>,
    pub then: AfterFailure,
    /// The start's error. It must have at most [`EntityState::error_bytes`] bytes.
    pub error: &'a str,
    /// The source of the delivery.
    pub source: SourceTag,
}

/// The consequence of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    RetryAt(Timestamp),
    /// The entity is blocked, with the reason [`BlockReason::Attempts`].
    Block,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    Counted,
    Lost,
}

impl Operation for Fail<'_> {
    type Outcome = Failed;

    fn write(&self) -> Write {
        let mut changes = remove_lease();
        changes.push(match self.attempts {
            0 => Change::remove(a::ATTEMPTS),
            attempts => Change::set(a::ATTEMPTS, attempts),
        });
        changes.push(match self.retries.to_stored() {
            Some(retries) => Change::set(a::RETRIES, retries),
            None => Change::remove(a::RETRIES),
        });
        if self.suspected {
            changes.push(Change::set(a::SUSPECT, FIRST_HOLDER));
        }
        if let Some(last) = self.one_by_one {
            changes.push(Change::set(a::ONE_BY_ONE, last.0));
        }
        let blocked = (self.then == AfterFailure::Block).then_some(BlockReason::Attempts);
        changes.extend(waits::failed(self.error, &self.retries, blocked, self.source));
        match self.then {
            // Until the next grant, only the retry's own wake-up counts.
            AfterFailure::RetryAt(at) => {
                changes.extend([a::RETRY_AT, a::HANDOVER].map(|name| Change::set(name, at.as_millis())))
            }
            AfterFailure::Block => changes.push(Change::remove(a::HANDOVER)),
        }
        self.lease.update(self.lease.mine_before(self.sequence), changes)
    }

    /// Treats a refusal as success if the entity is free and its row has the lease's token, these
    /// attempts and these retries. No other write with the token ends the lease in this way, so an
    /// earlier try of this write landed.
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

/// Blocks an entity, and ends the drain's lease. A worker does so at a sequence that only an
/// operator can decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block<'a> {
    pub lease: &'a Lease,
    pub sequence: Sequence,
    pub reason: BlockReason,
    /// The source of the delivery; the default if it is not known.
    pub source: SourceTag,
}

impl Operation for Block<'_> {
    type Outcome = Failed;

    fn write(&self) -> Write {
        let mut changes = remove_lease_and_handover();
        changes.extend(waits::blocked(self.reason, self.source));
        self.lease.update(self.lease.mine_before(self.sequence), changes)
    }

    /// Treats a refusal as success if the entity is free, has the lease's token and is blocked for
    /// this reason, because then an earlier try of this write landed.
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

/// Ends a block. The caller must send a wake-up afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unblock<'a> {
    pub entity: &'a EntityKey,
    /// The token of the row that shows the block. The write demands this token. Otherwise a late
    /// write could end a later block, and nobody would then send a wake-up.
    pub seen: FencingToken,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unblocked {
    Ended(EntityState),
    /// The entity is not blocked, or its token is not the one that was seen. `None` if the entity
    /// has no row.
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
                [a::ATTEMPTS, a::SUSPECT, a::STARTED, a::RETRY_AT]
                    .map(Change::remove)
                    .into_iter()
                    .chain(waits::unblocked())
                    .collect(),
            ),
        }
    }

    /// Does not recognise an earlier try of this write. If that try landed, the second try is
    /// refused, and the outcome is [`Unblocked::NotBlocked`] with a row that shows no block. A
    /// refusal can also mean that the token has changed under the same block, or that the entity
    /// was blocked again. The caller tries again if the returned row shows a block, and sends a
    /// wake-up in any case.
    fn judge(&self, reply: Written) -> Result<Unblocked, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => Unblocked::Ended(updated_state(row)?),
            Written::Refused(row) => Unblocked::NotBlocked(state_of(row)?),
        })
    }
}

/// Ends the wait of the delivery at `head + 1` for its retry. The delivery's attempts stay counted.
/// The caller must send a wake-up afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryNow<'a> {
    /// The row that shows the wait. The write demands the row's token and retry time, so a late
    /// write cannot shorten a later wait.
    pub seen: &'a EntityState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retrying {
    Now(EntityState),
    /// The row no longer shows the wait that was seen. `None` if the entity has no row.
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

    /// Treats a refusal as success if the row has the token that was seen and no retry time.
    /// Another operator's retry leaves the same row, and counts as success too.
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
