//! Makes tables that were restored from a backup ready for use. The tables do not know which
//! deliveries were settled after the backup, but the receivers of those deliveries do.
//!
//! The restore advances `head`, `tail` and `token` of each entity's row beyond every sequence and
//! token that can have been issued since the backup. Before that, it parks waiting deliveries,
//! under a lease whose token also exceeds every such token. In a finished row, `last_claim` is the
//! restore's nonce. So a restore that was killed can continue where it stopped.

use std::time::Duration;

use crate::{
    entity::{FencingToken, Sequence},
    format::{CorruptRow, FORMAT, attribute as a, check_format, readable},
    keys::{entity_row, restore_row},
    lease::{Lease, idle_purge_at, purge_change, remove_lease_and_handover},
    operation::{Operation, has_nonce, nonce_as_seen, state_of, updated_state},
    receipt::Spilled,
    state::{EntityState, HolderInfo, LONGEST_LEASE, LeaseKind},
    table::{Action, Change, Comparison, Condition, Row, Write, Written},
    tick::{JobState, TickResult},
    time::{Nonce, Timestamp},
    waits,
};

/// The least amount by which a row's new `head`, `tail` and `token` exceed all sequences and tokens
/// issued before. It is longer than the skew of synchronised clocks.
const MARGIN: Duration = Duration::from_secs(3_600);

/// The clock skew that is allowed for. A claim dated later than the backup by more than this was
/// not part of the backup.
const ALLOWED_SKEW: Duration = Duration::from_secs(5 * 60);

/// The shortest time for which an advanced row is kept. It counts from the row's numbers, which are
/// also times in milliseconds. An erased row is kept for the same time.
const NUMBERS_STAY: Duration = Duration::from_secs(86_400);

/// The last result that a restored job shows, because its runs since the backup are unknown.
const NOT_KNOWN: &str = "restored; later runs are unknown";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreRecord {
    /// A new nonce, which this restore writes into each row that it has finished.
    pub nonce: Nonce,
    /// The time of the backup.
    pub as_of: Timestamp,
    pub begun: Timestamp,
    /// The time at which the restore finished its last row; `None` before that time.
    pub ended: Option<Timestamp>,
    /// The findings so far, for the operator's report. A restore that is killed and continued adds
    /// to them.
    pub found: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextRestore {
    /// Begin the restore, because the tables record no restore since the backup.
    Begin,
    /// Continue the recorded restore under its nonce.
    GoOn(RestoreRecord),
    Done(RestoreRecord),
    /// Refuse, because the tables record a restore to another time.
    Another(RestoreRecord),
}

impl RestoreRecord {
    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        check_format(row)?;
        let time = |name| row.number(name).map(Timestamp::from_millis);
        Ok(Self {
            nonce: Nonce::from_stored(row.text(a::NONCE).ok_or(CorruptRow::Attribute(a::NONCE))?),
            as_of: time(a::AS_OF).ok_or(CorruptRow::Attribute(a::AS_OF))?,
            begun: time(a::BEGUN).ok_or(CorruptRow::Attribute(a::BEGUN))?,
            ended: time(a::ENDED),
            found: row.text(a::FOUND).map(str::to_owned),
        })
    }

    pub fn next(seen: Option<Self>, as_of: Timestamp) -> NextRestore {
        match seen {
            None => NextRestore::Begin,
            Some(seen) if seen.as_of == as_of && seen.ended.is_some() => NextRestore::Done(seen),
            Some(seen) if seen.as_of == as_of => NextRestore::GoOn(seen),
            // The recorded restore began before the backup, and so is part of it.
            Some(seen) if seen.begun < as_of => NextRestore::Begin,
            Some(seen) => NextRestore::Another(seen),
        }
    }

    fn holder_info(&self) -> HolderInfo {
        HolderInfo::new(&format!("restore {}", self.nonce))
    }

    /// Returns whether this restore has advanced the row's numbers, and no sequence was claimed
    /// afterwards.
    fn has_advanced(&self, state: &EntityState) -> bool {
        state.last_claim.as_ref() == Some(&self.nonce)
    }

    /// Returns whether the restore has nothing left to do for this row. Either the restore has
    /// advanced the row, or the row was created after the restore began, and so started with
    /// greater numbers. A claim after `now` comes from a clock that is ahead, and proves nothing.
    pub fn is_done(&self, state: &EntityState, now: Timestamp) -> bool {
        let claimed = claimed_at(state).filter(|claimed| *claimed <= now);
        let is_since = claimed.is_some_and(|claimed| claimed > self.begun) && state.head.0 >= self.begun.as_millis();
        self.has_advanced(state) || is_since
    }

    /// Returns whether a sequence was claimed after the backup and before the restore finished the
    /// row. If so, the tables are in use, or were not restored.
    pub fn is_in_use(&self, state: &EntityState, now: Timestamp) -> bool {
        !self.is_done(state, now) && is_claimed_after(state, self.as_of)
    }

    /// Returns the new value of a row's `head`, `tail` and `token`, which is greater than any that
    /// can have been issued.
    ///
    /// Each write of the row increases `tail` and `token` by at most one, `head` is at most `tail`,
    /// and DynamoDB takes at most a thousand writes a second. So these numbers grow no faster than
    /// a time in milliseconds. In a row created since the backup, they started at the time of its
    /// creation.
    ///
    /// If this restore has taken the lease by force, the token already exceeds all issued numbers.
    /// Advancing it again could put the numbers so far into the future that the idle row is purged
    /// before that time. A new row would then start with smaller numbers.
    fn numbers(&self, state: &EntityState) -> u64 {
        if state.held.is_some() && state.holder_info == Some(self.holder_info()) {
            return state.token.next().0;
        }
        let then = state.tail.0.max(state.token.0);
        let since = self.begun.since(self.as_of);
        (Timestamp::from_millis(then) + since).max(self.begun).as_millis() + MARGIN.as_millis() as u64
    }
}

/// Returns whether the newest claim was made after `moment`, with five minutes allowed for clock
/// skew.
pub fn is_claimed_after(state: &EntityState, moment: Timestamp) -> bool {
    claimed_at(state).is_some_and(|claimed| claimed > moment + ALLOWED_SKEW)
}

fn claimed_at(state: &EntityState) -> Option<Timestamp> {
    state.last_claim.as_ref().and_then(Nonce::drawn_at)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginRestore<'a> {
    pub seen: Option<&'a RestoreRecord>,
    pub restoring: &'a RestoreRecord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BegunRestore {
    Begun,
    /// Another restore has begun.
    Elsewhere,
}

impl Operation for BeginRestore<'_> {
    type Outcome = BegunRestore;

    fn write(&self) -> Write {
        let key = restore_row();
        let row = key
            .to_row()
            .with(a::VERSION, FORMAT)
            .with(a::NONCE, self.restoring.nonce.as_str())
            .with(a::AS_OF, self.restoring.as_of.as_millis())
            .with(a::BEGUN, self.restoring.begun.as_millis());
        Write::put(key, row).when(nonce_as_seen(self.seen.map(|seen| &seen.nonce)))
    }

    /// Treats a refusal as success if the row has this restore's nonce, because then an earlier try
    /// of this write landed.
    fn judge(&self, reply: Written) -> Result<BegunRestore, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => BegunRestore::Begun,
            Written::Refused(row) if has_nonce(&row, &self.restoring.nonce) => BegunRestore::Begun,
            Written::Refused(_) => BegunRestore::Elsewhere,
        })
    }
}

/// Records a restore's findings, before the restore changes the rows that show them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFindings<'a> {
    pub restoring: &'a RestoreRecord,
    pub found: &'a str,
}

impl Operation for RecordFindings<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        Write {
            key: restore_row(),
            condition: Condition::equal(a::NONCE, self.restoring.nonce.as_str()),
            action: Action::Update(vec![Change::set(a::FOUND, self.found)]),
        }
    }

    /// Treats every reply as success: a refusal means that another restore has begun.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Records that a restore has finished every row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndRestore<'a> {
    pub restoring: &'a RestoreRecord,
    pub now: Timestamp,
}

impl Operation for EndRestore<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        Write {
            key: restore_row(),
            condition: Condition::equal(a::NONCE, self.restoring.nonce.as_str()),
            action: Action::Update(vec![Change::set_if_absent(a::ENDED, self.now.as_millis())]),
        }
    }

    /// Treats every reply as success: a refusal means that another restore has begun.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Takes the lease of an entity by force, to park the entity's waiting deliveries. The lease's
/// token exceeds all issued tokens. The tail moves to the last filled sequence, if that is later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForceAcquire<'a> {
    pub restoring: &'a RestoreRecord,
    pub seen: &'a EntityState,
    /// The last sequence that has a delivery. It may exceed the row's tail, because the backup of
    /// the inbox table may be a moment later than the backup of the row.
    pub last: Sequence,
    pub holder: &'a Nonce,
    pub now: Timestamp,
    pub length: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForceAcquired {
    Granted(Lease, EntityState),
    Changed,
}

impl ForceAcquire<'_> {
    fn lease(&self, token: FencingToken) -> Lease {
        let entity = self.seen.entity.clone();
        let holder = self.holder.clone();
        Lease { entity, holder, kind: LeaseKind::Exclusive, token }
    }
}

impl Operation for ForceAcquire<'_> {
    type Outcome = ForceAcquired;

    fn write(&self) -> Write {
        Write {
            key: entity_row(&self.seen.entity),
            condition: as_seen(self.seen),
            action: Action::Update(vec![
                Change::set(a::HOLDER, self.holder.as_str()),
                Change::set(a::KIND, LeaseKind::Exclusive.as_str()),
                Change::set(a::EXPIRES_AT, (self.now + self.length.min(LONGEST_LEASE)).as_millis()),
                Change::set(a::HOLDER_INFO, self.restoring.holder_info().as_str()),
                Change::set(a::TOKEN, self.restoring.numbers(self.seen)),
                Change::set(a::TAIL, self.seen.tail.max(self.last).0),
                Change::set_if_absent(a::PENDING_SINCE, self.now.as_millis()),
                Change::remove(a::PURGE_AT),
                Change::remove(a::TURN_UNTIL),
                Change::remove(a::YIELD_UNTIL),
                Change::remove(a::HANDOVER),
            ]),
        }
    }

    /// Treats a refusal as success if the row's holder is this call's nonce, because then an
    /// earlier try of this write landed.
    fn judge(&self, reply: Written) -> Result<ForceAcquired, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => {
                let state = updated_state(row)?;
                ForceAcquired::Granted(self.lease(state.token), state)
            }
            Written::Refused(row) => match state_of(row)? {
                Some(state) if state.held.as_ref().is_some_and(|held| held.holder == *self.holder) => {
                    ForceAcquired::Granted(self.lease(state.token), state)
                }
                _ => ForceAcquired::Changed,
            },
        })
    }
}

/// Returns the condition that nothing was claimed, settled or granted since the row was read.
fn as_seen(seen: &EntityState) -> Condition {
    Condition::All(vec![
        readable(),
        Condition::equal(a::TAIL, seen.tail.0),
        Condition::equal(a::HEAD, seen.head.0),
        Condition::equal(a::TOKEN, seen.token.0),
    ])
}

/// Advances `head`, `tail` and `token` of an entity whose inbox is empty, and ends any lease. The
/// caller must first copy the entity's receipts to rows of their own, because this write removes
/// them from the entity's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvanceNumbers<'a> {
    pub restoring: &'a RestoreRecord,
    pub seen: &'a EntityState,
    pub job: Option<&'a JobState>,
    pub now: Timestamp,
    pub retention: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumbersAdvanced {
    Advanced(EntityState),
    Changed,
}

impl AdvanceNumbers<'_> {
    /// Returns the change that puts a blocked entity on hold. `None` if the entity is not blocked,
    /// or is on hold already. The delivery that blocks the entity is parked, but the entity must
    /// stay stopped.
    fn hold(&self) -> Option<Change> {
        let begins = self.seen.blocked.is_some() && !self.seen.is_on_hold();
        begins.then(|| self.seen.hold.begun(self.now).change())
    }

    /// Returns the changes that record all ticks of a job up to the start of the restore, because
    /// they may have run since the backup.
    fn job(&self) -> Vec<Change> {
        let Some(last_tick) = self.job.and_then(|job| job.last_tick) else { return Vec::new() };
        let result =
            TickResult { error: NOT_KNOWN.to_owned(), ..TickResult::crashed(self.restoring.begun) }.to_stored();
        vec![
            Change::set(a::LAST_TICK, last_tick.max(self.restoring.begun).as_millis()),
            Change::set(a::LAST_RESULT, result),
            Change::remove(a::TICK),
            Change::remove(a::STARTS),
            Change::remove(a::RUN_REQUESTED),
        ]
    }
}

impl Operation for AdvanceNumbers<'_> {
    type Outcome = NumbersAdvanced;

    fn write(&self) -> Write {
        let Self { restoring, seen, now, retention, .. } = self;
        let recent = match seen.recent.to_stored() {
            Some(recent) => Condition::equal(a::RECENT, recent),
            None => Condition::absent(a::RECENT),
        };
        let last_tick = match self.job.and_then(|job| job.last_tick) {
            Some(tick) => Condition::equal(a::LAST_TICK, tick.as_millis()),
            None => Condition::absent(a::LAST_TICK),
        };
        let is_empty = Condition::compare_with(a::HEAD, Comparison::Equal, a::TAIL);
        let numbers = restoring.numbers(seen);
        let mut changes = [a::TAIL, a::HEAD, a::TOKEN].map(|name| Change::set(name, numbers)).to_vec();
        changes.push(Change::set(a::LAST_CLAIM, restoring.nonce.as_str()));
        changes.extend(remove_lease_and_handover());
        let of_the_front = [
            a::RECENT,
            a::ONE_BY_ONE,
            a::ATTEMPTS,
            a::RETRY_AT,
            a::SUSPECT,
            a::STARTED,
            a::PENDING_SINCE,
            a::YIELD_UNTIL,
            a::TURN_UNTIL,
        ];
        changes.extend(of_the_front.map(Change::remove));
        changes.extend(waits::unblocked());
        if seen.recent.last().is_some() {
            // The inbox table may have been copied a moment later, and hold pages that the row does not know.
            changes.push(Change::set(a::SPILLED, Spilled::ANYWHERE.to_stored()));
        }
        let hold = self.hold();
        let stays = hold.is_some() || seen.is_on_hold();
        changes.extend(hold);
        let idle = idle_purge_at(&seen.entity, &seen.recent, *now, *retention).filter(|_| !stays);
        let purge_at = idle.map(|idle| idle.max(Timestamp::from_millis(numbers) + NUMBERS_STAY));
        changes.push(purge_change(purge_at).unwrap_or_else(|| Change::remove(a::PURGE_AT)));
        changes.extend(self.job());
        Write {
            key: entity_row(&seen.entity),
            condition: Condition::All(vec![as_seen(seen), is_empty, seen.hold.is_unchanged(), recent, last_tick]),
            action: Action::Update(changes),
        }
    }

    /// Treats a refusal as success if the row has this restore's nonce, because then an earlier try
    /// of this write landed. If a claim followed the earlier try, this method does not recognise
    /// the try. The caller does so when it reads the row again.
    fn judge(&self, reply: Written) -> Result<NumbersAdvanced, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => NumbersAdvanced::Advanced(updated_state(row)?),
            Written::Refused(row) => match state_of(row)? {
                Some(state) if self.restoring.has_advanced(&state) => NumbersAdvanced::Advanced(state),
                _ => NumbersAdvanced::Changed,
            },
        })
    }
}

#[cfg(test)]
mod tests;
