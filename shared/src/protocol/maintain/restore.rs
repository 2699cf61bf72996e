//! Tables restored from a backup are made ready for use: whatever was decided
//! after the moment of the backup is unknown to them, and receivers remember
//! it.
//!
//! Each entity's row is raised above every sequence and token that can have been
//! given out since. What waited is set aside first, under a lease that is
//! granted above them as well. A row that has been raised says so by
//! `last_claim`, so that a restore that was killed goes on where it stopped.

use std::time::Duration;

use crate::{
    protocol::{
        entity::{FencingToken, Sequence},
        format::{CorruptRow, FORMAT, attribute as a, check_format, readable},
        keys::{entity_row, restore_row},
        lease::{Lease, idle_purge_at, lease_removed, purge_change},
        operation::{Operation, state_of, updated_state},
        state::{EntityState, HolderInfo, LONGEST_LEASE, LeaseKind},
        table::{Action, Change, Comparison, Condition, Row, Write, Written},
        tick::{JobState, TickResult},
    },
    time::{Nonce, Timestamp},
};

/// So much further than what can have been given out numbers are raised: further
/// than clocks are apart that are kept right.
const MARGIN: Duration = Duration::from_secs(3_600);

/// A claim that is dated so much later than the backup is none that was in it.
const CLOCKS_APART: Duration = Duration::from_secs(5 * 60);

/// How much longer than its own numbers say a raised row stays, as one that was
/// erased.
const NUMBERS_STAY: Duration = Duration::from_secs(86_400);

/// What stands as the last result of a job of whose runs since the backup
/// nothing is known.
const NOT_KNOWN: &str = "restored; later runs are not known";

/// A restore of both tables, as its row in them says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restoring {
    /// Drawn afresh when it was begun; each row that it raised has it.
    pub nonce: Nonce,
    /// The moment of the backup.
    pub as_of: Timestamp,
    /// When it was begun.
    pub begun: Timestamp,
    /// When every row was raised; `None`: not yet.
    pub ended: Option<Timestamp>,
    /// What its runs found so far and no row tells any more, for its report.
    pub found: Option<String>,
}

/// What there is to do about a restore that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextRestore {
    /// Begin it: none was, or the backup holds the row of one before it.
    Begin,
    /// It was begun before: go on under the same nonce.
    GoOn(Restoring),
    /// It has ended. There is nothing to do.
    Done(Restoring),
    /// These tables are of another moment.
    Another(Restoring),
}

impl Restoring {
    /// Reads the row.
    ///
    /// # Errors
    ///
    /// It is none that this version can read.
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

    /// What to do about a restore to `as_of`, where the tables say `seen`.
    pub fn next(seen: Option<Self>, as_of: Timestamp) -> NextRestore {
        match seen {
            None => NextRestore::Begin,
            Some(seen) if seen.as_of == as_of && seen.ended.is_some() => NextRestore::Done(seen),
            Some(seen) if seen.as_of == as_of => NextRestore::GoOn(seen),
            // Begun before the moment of the backup: it is part of that.
            Some(seen) if seen.begun < as_of => NextRestore::Begin,
            Some(seen) => NextRestore::Another(seen),
        }
    }

    /// Who holds what is seized; which restore did is told by that.
    fn holder_info(&self) -> HolderInfo {
        HolderInfo::new(&format!("restore {}", self.nonce))
    }

    /// Whether it has raised this row, and nothing was claimed since.
    fn has_raised(&self, state: &EntityState) -> bool {
        state.last_claim.as_ref() == Some(&self.nonce)
    }

    /// Whether there is nothing to do about this row: it was raised, or made since the
    /// restore began, and so begins at a time of its own. What is dated ahead of
    /// `now` was not made since, but by a clock that is ahead.
    pub fn is_done(&self, state: &EntityState, now: Timestamp) -> bool {
        let claimed = claimed_at(state).filter(|claimed| *claimed <= now);
        let is_since = claimed.is_some_and(|claimed| claimed > self.begun) && state.head.0 >= self.begun.as_millis();
        self.has_raised(state) || is_since
    }

    /// Whether something was claimed on this row after the backup, and before it was
    /// raised: somebody uses these tables, or they are no restored ones.
    pub fn is_in_use(&self, state: &EntityState, now: Timestamp) -> bool {
        !self.is_done(state, now) && is_claimed_after(state, self.as_of)
    }

    /// What a row's numbers become: more than any that can have been given out.
    ///
    /// Each of them grows by one at most with each write of the row, and DynamoDB
    /// takes a thousand of those a second: so much as a time in milliseconds
    /// grows. A row that was made since began at its time. One that was seized has
    /// a token above them all; were that raised as far again, the row could be
    /// purged while its numbers are still ahead of the time.
    fn numbers(&self, state: &EntityState) -> u64 {
        if state.held.is_some() && state.holder_info == Some(self.holder_info()) {
            return state.token.next().0;
        }
        let then = state.tail.0.max(state.token.0);
        let since = self.begun.since(self.as_of);
        (Timestamp::from_millis(then) + since).max(self.begun).as_millis() + MARGIN.as_millis() as u64
    }
}

/// Whether the newest claim of a row was made after a moment, by whatever clock.
pub fn is_claimed_after(state: &EntityState, moment: Timestamp) -> bool {
    claimed_at(state).is_some_and(|claimed| claimed > moment + CLOCKS_APART)
}

fn claimed_at(state: &EntityState) -> Option<Timestamp> {
    state.last_claim.as_ref().and_then(Nonce::drawn_at)
}

/// Writes down that a restore is begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginRestore<'a> {
    /// What the tables said before.
    pub seen: Option<&'a Restoring>,
    /// The restore.
    pub restoring: &'a Restoring,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BegunRestore {
    /// It is there.
    Begun,
    /// Somebody else began one; look again.
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
        Write::put(key, row).when(match self.seen {
            Some(seen) => Condition::equal(a::NONCE, seen.nonce.as_str()),
            None => Condition::absent(a::NONCE),
        })
    }

    /// A first try that landed left its nonce there.
    fn judge(&self, reply: Written) -> Result<BegunRestore, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => BegunRestore::Begun,
            Written::Refused(row) => {
                let mine = row.is_some_and(|row| row.text(a::NONCE) == Some(self.restoring.nonce.as_str()));
                if mine { BegunRestore::Begun } else { BegunRestore::Elsewhere }
            }
        })
    }
}

/// Writes down what a restore found, before it changes the rows that say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteFound<'a> {
    /// Which restore.
    pub restoring: &'a Restoring,
    /// What all of its runs found.
    pub found: &'a str,
}

impl Operation for NoteFound<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        Write {
            key: restore_row(),
            condition: Condition::equal(a::NONCE, self.restoring.nonce.as_str()),
            action: Action::Update(vec![Change::set(a::FOUND, self.found)]),
        }
    }

    /// Twice is harmless; refused, another restore was begun since.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Writes down that a restore has raised every row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndRestore<'a> {
    /// Which.
    pub restoring: &'a Restoring,
    /// The time.
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

    /// Twice is harmless; refused, another restore was begun since.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Takes an entity of the backup, whoever had its lease then, so that what
/// waited can be settled. The token is above all that were given out, and the
/// tail is at the last place that was found filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seize<'a> {
    /// Which restore does.
    pub restoring: &'a Restoring,
    /// The row as it was seen.
    pub seen: &'a EntityState,
    /// The last place at which a delivery stands: the other table may have been
    /// copied a moment later.
    pub last: Sequence,
    /// Drawn afresh for this call.
    pub holder: &'a Nonce,
    /// The time.
    pub now: Timestamp,
    /// For how long.
    pub length: Duration,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seized {
    /// It is held, exclusively; the row as it is.
    Seized(Lease, EntityState),
    /// The row is not as it was seen; look again.
    Changed,
}

impl Seize<'_> {
    fn lease(&self, token: FencingToken) -> Lease {
        let (entity, holder) = (self.seen.entity.clone(), self.holder.clone());
        Lease { entity, holder, kind: LeaseKind::Exclusive, token }
    }
}

impl Operation for Seize<'_> {
    type Outcome = Seized;

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

    /// A first try that landed is recognised by its holder.
    fn judge(&self, reply: Written) -> Result<Seized, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => {
                let state = updated_state(row)?;
                Seized::Seized(self.lease(state.token), state)
            }
            Written::Refused(row) => match state_of(row)? {
                Some(state) if state.held.as_ref().is_some_and(|held| held.holder == *self.holder) => {
                    Seized::Seized(self.lease(state.token), state)
                }
                _ => Seized::Changed,
            },
        })
    }
}

/// That a row's numbers are as they were seen: nothing was claimed, settled or
/// granted since.
fn as_seen(seen: &EntityState) -> Condition {
    Condition::All(vec![
        readable(),
        Condition::equal(a::TAIL, seen.tail.0),
        Condition::equal(a::HEAD, seen.head.0),
        Condition::equal(a::TOKEN, seen.token.0),
    ])
}

/// Raises the numbers of an entity of which nothing waits, and ends whatever
/// lease the row shows. Its memory stands in rows of its own by then: `recent`
/// names the place at `head`, which is another one now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raise<'a> {
    /// Which restore does.
    pub restoring: &'a Restoring,
    /// The row as it was seen, empty.
    pub seen: &'a EntityState,
    /// What it says besides, where it is a job's.
    pub job: Option<&'a JobState>,
    /// The time.
    pub now: Timestamp,
    /// How long deliveries and receipts are kept.
    pub retention: Duration,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raised {
    /// The row as it is now.
    Raised(EntityState),
    /// It is not as it was seen; look again.
    Changed,
}

impl Raise<'_> {
    /// What stops it goes on stopping it; a block was about a delivery, which is
    /// set aside.
    fn hold(&self) -> Option<Change> {
        let begins = self.seen.blocked.is_some() && self.seen.hold.since().is_none();
        begins.then(|| self.seen.hold.begun(self.now).change())
    }

    /// No tick up to now is due any more: whether it was run, nobody knows.
    fn job(&self) -> Vec<Change> {
        let Some(last_tick) = self.job.and_then(|job| job.last_tick) else { return Vec::new() };
        let result =
            TickResult { error: NOT_KNOWN.to_owned(), ..TickResult::not_heard_of(self.restoring.begun) }.to_stored();
        vec![
            Change::set(a::LAST_TICK, last_tick.max(self.restoring.begun).as_millis()),
            Change::set(a::LAST_RESULT, result),
            Change::remove(a::TICK),
            Change::remove(a::STARTS),
            Change::remove(a::RUN_REQUESTED),
        ]
    }
}

impl Operation for Raise<'_> {
    type Outcome = Raised;

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
        changes.extend(lease_removed());
        let of_the_next = [
            a::RECENT,
            a::ONE_BY_ONE,
            a::ATTEMPTS,
            a::RETRIES,
            a::RETRY_AT,
            a::SUSPECT,
            a::STARTED,
            a::LAST_ERROR,
            a::PENDING_SINCE,
            a::BLOCKED,
            a::YIELD_UNTIL,
            a::TURN_UNTIL,
        ];
        changes.extend(of_the_next.map(Change::remove));
        if seen.recent.iter().any(|receipt| receipt.spills().is_some()) {
            changes.push(Change::set(a::SPILLED, 1_u32));
        }
        let hold = self.hold();
        let stays = hold.is_some() || seen.hold.since().is_some();
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

    /// A first try that landed left this restore's nonce, unless something was
    /// claimed since: then the second one looks again, and finds that.
    fn judge(&self, reply: Written) -> Result<Raised, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => Raised::Raised(updated_state(row)?),
            Written::Refused(row) => match state_of(row)? {
                Some(state) if self.restoring.has_raised(&state) => Raised::Raised(state),
                _ => Raised::Changed,
            },
        })
    }
}

#[cfg(test)]
mod tests;
