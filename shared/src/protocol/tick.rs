//! Ticks: runs of a job, as operations on the job's row.
//!
//! A job's row is the entity row `cron/<job>`, which is never purged. A tick is
//! named by the time at which it was due. It is run under an exclusive lease
//! that is granted only while the tick is not recorded, and it is recorded by
//! the write that ends that lease: so a tick whose run crashed is run again,
//! and one that was run never is. A job that says so has its ticks recorded by
//! the grant instead: a crash then costs the tick.
//!
//! Pure. Which tick is due is decided in `jobs/due.rs`; `jobs/ticker.rs` does it.

use std::{fmt, time::Duration};

use crate::{
    protocol::{
        entity::{EntityKey, FencingToken, JOBS},
        format::{CorruptRow, attribute as a, readable, shortened},
        keys::entity_row,
        lease::{Acquire, Acquired, Lease, TakeOver, lease_removed, numbers_if_absent},
        operation::Operation,
        state::{EntityState, HolderInfo},
        table::{Action, Change, Comparison, Condition, Row, Write, Written},
    },
    time::Timestamp,
};

/// How far two schedulers' clocks may be apart before one takes a running job
/// for dead: so much later than it says does a job's lease count as run out.
pub const CLOCKS_APART: Duration = Duration::from_secs(60);

/// The most bytes of a result that are kept.
pub const LAST_RESULT_BYTES: usize = 60;

/// The longest name of a job.
pub const LONGEST_NAME: usize = 64;

/// The most bytes of a job's definition, as it is stored.
pub const LONGEST_DEFINITION: usize = 160;

/// How a tick ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Its function returned.
    Done,
    /// Its function returned an error, panicked, or did not end in time.
    Failed,
    /// Whoever ran it never said how it ended.
    Crashed,
}

impl Ending {
    /// As it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Done => "done",
            Ending::Failed => "failed",
            Ending::Crashed => "crashed",
        }
    }

    fn from_stored(text: &str) -> Option<Self> {
        [Ending::Done, Ending::Failed, Ending::Crashed].into_iter().find(|ending| ending.as_str() == text)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is remembered of the newest recorded tick.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TickResult {
    /// How it ended.
    pub ending: Ending,
    /// When that was written.
    pub at: Timestamp,
    /// How long its function ran.
    pub took: Duration,
    /// What it failed of, cut.
    pub error: String,
}

impl TickResult {
    /// What stands on the row of a tick that is recorded before it is run,
    /// until its run says otherwise.
    pub fn not_heard_of(at: Timestamp) -> Self {
        Self { ending: Ending::Crashed, at, took: Duration::ZERO, error: String::new() }
    }

    /// As it is stored, at most [`LAST_RESULT_BYTES`] bytes.
    pub fn to_stored(&self) -> String {
        let text = format!("{} {} {} {}", self.ending, self.at.as_millis(), self.took.as_millis(), self.error);
        shortened(text.trim_end(), LAST_RESULT_BYTES)
    }

    fn from_stored(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        Some(Self {
            ending: Ending::from_stored(parts.next()?)?,
            at: Timestamp::from_millis(parts.next()?.parse().ok()?),
            took: Duration::from_millis(parts.next()?.parse().ok()?),
            error: parts.next().unwrap_or_default().to_owned(),
        })
    }
}

/// A job's row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobState {
    /// The entity's part: lease and token.
    pub entity: EntityState,
    /// Schedule and switch, as the newest scheduler has them.
    pub definition: Option<String>,
    /// The newest tick recorded.
    pub last_tick: Option<Timestamp>,
    /// How it ended.
    pub last_result: Option<TickResult>,
    /// The tick that the newest grant was for; absent once it is recorded by
    /// its own run.
    pub tick: Option<Timestamp>,
    /// How often that was started.
    pub starts: u32,
    /// When an operator asked for a run that no start has served yet.
    pub run_requested: Option<Timestamp>,
}

impl JobState {
    /// Reads a job's row.
    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        let time = |name| row.number(name).map(Timestamp::from_millis);
        Ok(Self {
            entity: EntityState::parse(row)?,
            definition: row.text(a::DEFINITION).map(str::to_owned),
            last_tick: time(a::LAST_TICK),
            last_result: row.text(a::LAST_RESULT).and_then(TickResult::from_stored),
            tick: time(a::TICK),
            starts: row.number(a::STARTS).unwrap_or(0).try_into().unwrap_or(u32::MAX),
            run_requested: time(a::RUN_REQUESTED),
        })
    }

    /// Whether `tick`, or a later one, is recorded.
    pub fn is_recorded(&self, tick: Timestamp) -> bool {
        self.last_tick.is_some_and(|last| last >= tick)
    }

    /// A tick that was started, is not recorded, and nobody runs for all that
    /// the lease says.
    pub fn unfinished(&self) -> Option<Timestamp> {
        self.tick.filter(|tick| !self.is_recorded(*tick))
    }

    /// Whether the lease, where there is one, has run out by any clock that is
    /// not further off than [`CLOCKS_APART`].
    pub fn has_run_out(&self, now: Timestamp) -> bool {
        let running = |held: &crate::protocol::state::Held| held.runs(now) || held.runs(earlier(now));
        self.entity.held.as_ref().is_some_and(|held| !running(held))
    }
}

fn earlier(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_sub(CLOCKS_APART.as_millis() as u64))
}

/// The row of the job `name`, which must be at most [`LONGEST_NAME`] bytes.
pub fn job_entity(name: &str) -> Result<EntityKey, crate::protocol::entity::InvalidEntityKey> {
    EntityKey::parse(&format!("{JOBS}{name}"))
}

fn job_of(row: Option<Row>) -> Result<Option<JobState>, CorruptRow> {
    row.as_ref().map(JobState::parse).transpose()
}

fn not_recorded(tick: Timestamp) -> Condition {
    Condition::Any(vec![
        Condition::absent(a::LAST_TICK),
        Condition::compare(a::LAST_TICK, Comparison::Less, tick.as_millis()),
    ])
}

/// When a tick is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recorded {
    /// When its run ends: one that crashes is run again.
    AtCompletion,
    /// When it is started: one that crashes is not.
    AtStart,
}

/// Starts a tick on a job that nobody holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartTick {
    /// The request for the lease; of the exclusive kind.
    pub request: Acquire,
    /// Which tick.
    pub tick: Timestamp,
    /// Which start of it this is, from 1.
    pub start: u32,
    /// When it is recorded.
    pub recorded: Recorded,
}

/// What became of starting a tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// Run it.
    Granted(Lease, JobState),
    /// Somebody else is at it, or at another one.
    Held(JobState),
    /// It is recorded already: somebody has run it.
    Recorded(JobState),
    /// Neither: whoever was at it has gone in between. Decide anew.
    Free(Option<JobState>),
}

impl StartTick {
    fn changes(&self) -> Vec<Change> {
        let mut changes = vec![
            Change::set(a::TICK, self.tick.as_millis()),
            Change::set(a::STARTS, self.start),
            Change::remove(a::RUN_REQUESTED),
        ];
        if self.recorded == Recorded::AtStart {
            changes.push(Change::set(a::LAST_TICK, self.tick.as_millis()));
            changes.push(Change::set(a::LAST_RESULT, TickResult::not_heard_of(self.request.now).to_stored()));
        }
        changes
    }

    /// `write` under the further condition, with the further changes.
    fn extended(&self, write: Write, conditions: Vec<Condition>) -> Write {
        let mut all = vec![write.condition];
        all.extend(conditions);
        let mut changes = match write.action {
            Action::Update(changes) => changes,
            Action::Put(_) | Action::Delete | Action::Check => Vec::new(),
        };
        changes.extend(self.changes());
        Write { key: write.key, condition: Condition::All(all), action: Action::Update(changes) }
    }
}

impl Operation for StartTick {
    type Outcome = Started;

    fn write(&self) -> Write {
        self.extended(self.request.write(), vec![not_recorded(self.tick)])
    }

    /// A first try that landed is recognised by its holder, which no other call
    /// has, as long as the lease is there. It is there until this very caller
    /// ends it, or somebody takes it over.
    fn judge(&self, reply: Written) -> Result<Started, CorruptRow> {
        let row = match &reply {
            Written::Landed(row) | Written::Refused(row) => row.clone(),
        };
        let job = job_of(row)?;
        Ok(match (self.request.judge(reply)?, job) {
            (Acquired::Granted(lease, _), Some(job)) => Started::Granted(lease, job),
            (Acquired::Held(_), Some(job)) => Started::Held(job),
            (_, Some(job)) if job.is_recorded(self.tick) => Started::Recorded(job),
            (_, job) => Started::Free(job),
        })
    }
}

/// Starts a tick on a job whose holder let its lease run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeOverTick {
    /// The start.
    pub start: StartTick,
    /// The row in which the lease was seen run out.
    pub seen: JobState,
}

impl Operation for TakeOverTick {
    type Outcome = Started;

    fn write(&self) -> Write {
        let request = self.start.request.clone();
        let now = request.now;
        let run_out = Condition::Any(vec![
            Condition::compare(a::EXPIRES_AT, Comparison::AtMost, earlier(now).as_millis()),
            Condition::compare(
                a::EXPIRES_AT,
                Comparison::Greater,
                (now + crate::protocol::state::LONGEST_LEASE).as_millis(),
            ),
        ]);
        let take_over = TakeOver { request, seen: self.seen.entity.clone() };
        self.start.extended(take_over.write(), vec![run_out, not_recorded(self.start.tick)])
    }

    /// As for [`StartTick`].
    fn judge(&self, reply: Written) -> Result<Started, CorruptRow> {
        self.start.judge(reply)
    }
}

/// Records a tick and ends its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteTick<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// Which tick.
    pub tick: Timestamp,
    /// How it ended.
    pub result: TickResult,
}

/// What became of recording a tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completed {
    /// It is recorded; the row as it was left.
    Recorded(JobState),
    /// The lease was not this holder's any more. Nothing is recorded.
    Lost,
}

impl Operation for CompleteTick<'_> {
    type Outcome = Completed;

    fn write(&self) -> Write {
        let mut changes = lease_removed();
        changes.extend([
            Change::set(a::LAST_TICK, self.tick.as_millis()),
            Change::set(a::LAST_RESULT, self.result.to_stored()),
            Change::remove(a::TICK),
            Change::remove(a::STARTS),
        ]);
        self.lease.update(self.lease.mine(), changes)
    }

    /// A first try that landed left the job free, under this token, with this
    /// tick recorded. Nothing else does: a forced release, and giving up, come
    /// with a greater token.
    fn judge(&self, reply: Written) -> Result<Completed, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => Completed::Recorded(job_of(row)?.ok_or(CorruptRow::Attribute(a::ENTITY))?),
            Written::Refused(row) => match job_of(row)? {
                Some(job) if self.lease.was_released(&job.entity) && job.last_tick == Some(self.tick) => {
                    Completed::Recorded(job)
                }
                _ => Completed::Lost,
            },
        })
    }
}

/// Records as crashed a tick that took its runs with it as often as it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GiveUpTick<'a> {
    /// The row in which it was seen unfinished, and its lease run out or gone.
    pub seen: &'a JobState,
    /// Which tick.
    pub tick: Timestamp,
    /// The time.
    pub now: Timestamp,
}

/// What became of giving a tick up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenUp {
    /// It is recorded as crashed.
    GivenUp(JobState),
    /// The row is not as it was seen any more. Decide anew.
    Changed(Option<JobState>),
}

impl Operation for GiveUpTick<'_> {
    type Outcome = GivenUp;

    fn write(&self) -> Write {
        let token = self.seen.entity.token;
        let gone = Condition::Any(vec![
            Condition::absent(a::HOLDER),
            Condition::compare(a::EXPIRES_AT, Comparison::AtMost, earlier(self.now).as_millis()),
            Condition::compare(
                a::EXPIRES_AT,
                Comparison::Greater,
                (self.now + crate::protocol::state::LONGEST_LEASE).as_millis(),
            ),
        ]);
        let mut changes = lease_removed();
        changes.extend([
            Change::set(a::LAST_TICK, self.tick.as_millis()),
            Change::set(a::LAST_RESULT, TickResult::not_heard_of(self.now).to_stored()),
            Change::remove(a::TICK),
            Change::remove(a::STARTS),
            Change::set(a::TOKEN, token.next().0),
        ]);
        Write {
            key: entity_row(&self.seen.entity.entity),
            condition: Condition::All(vec![
                readable(),
                Condition::equal(a::TOKEN, token.0),
                gone,
                not_recorded(self.tick),
            ]),
            action: Action::Update(changes),
        }
    }

    /// A first try that landed left the job free, one token on, with this tick
    /// recorded. Should it be another scheduler's that did the same, so be it.
    fn judge(&self, reply: Written) -> Result<GivenUp, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => GivenUp::GivenUp(job_of(row)?.ok_or(CorruptRow::Attribute(a::ENTITY))?),
            Written::Refused(row) => match job_of(row)? {
                Some(job)
                    if job.entity.held.is_none()
                        && job.entity.token == self.seen.entity.token.next()
                        && job.last_tick == Some(self.tick) =>
                {
                    GivenUp::GivenUp(job)
                }
                job => GivenUp::Changed(job),
            },
        })
    }
}

/// Writes a job's definition on its row, which it makes where there is none.
/// What was due before is not missed: it was not due by this definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefineJob<'a> {
    /// The job's row.
    pub entity: &'a EntityKey,
    /// Schedule and switch.
    pub definition: &'a str,
    /// The row as it was seen; `None`: there was none.
    pub seen: Option<&'a JobState>,
    /// The tick from which on it counts.
    pub from: Timestamp,
    /// The time.
    pub now: Timestamp,
}

impl Operation for DefineJob<'_> {
    /// The row as it is now; `None`: somebody deletes it.
    type Outcome = Option<JobState>;

    fn write(&self) -> Write {
        let seen = self.seen.and_then(|seen| seen.last_tick);
        let last_tick = seen.map_or(self.from, |seen| seen.max(self.from));
        let unchanged = match seen {
            Some(seen) => Condition::equal(a::LAST_TICK, seen.as_millis()),
            None => Condition::absent(a::LAST_TICK),
        };
        let mut changes = numbers_if_absent(self.now, &[a::TAIL, a::HEAD, a::TOKEN]);
        changes.extend([
            Change::set(a::DEFINITION, self.definition),
            Change::set(a::LAST_TICK, last_tick.as_millis()),
            Change::remove(a::PURGE_AT),
        ]);
        Write {
            key: entity_row(self.entity),
            // Under a run, the tick recorded at its end would be the older one.
            condition: Condition::All(vec![readable(), Condition::absent(a::HOLDER), unchanged]),
            action: Action::Update(changes),
        }
    }

    /// Landed or not, the row says what to do next; to define twice is
    /// harmless.
    fn judge(&self, reply: Written) -> Result<Option<JobState>, CorruptRow> {
        match reply {
            Written::Landed(row) | Written::Refused(row) => job_of(row),
        }
    }
}

/// Asks for a run with the next minute's tick, whatever the schedule says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRun<'a> {
    /// The job's row.
    pub entity: &'a EntityKey,
    /// The time.
    pub now: Timestamp,
}

impl Operation for RequestRun<'_> {
    /// The row with the request; `None`: there is no such job.
    type Outcome = Option<JobState>;

    fn write(&self) -> Write {
        Write {
            key: entity_row(self.entity),
            condition: Condition::All(vec![readable(), Condition::exists(a::DEFINITION)]),
            action: Action::Update(vec![Change::set(a::RUN_REQUESTED, self.now.as_millis())]),
        }
    }

    /// To ask twice is harmless: one start serves all requests before it.
    fn judge(&self, reply: Written) -> Result<Option<JobState>, CorruptRow> {
        match reply {
            Written::Landed(row) => job_of(row),
            Written::Refused(row) => job_of(row).map(|_| None),
        }
    }
}

/// For people, about the holder of a job: who, and under which token.
pub fn holder_of(state: &JobState) -> Option<(&HolderInfo, FencingToken)> {
    state.entity.held.as_ref()?;
    state.entity.holder_info.as_ref().map(|info| (info, state.entity.token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{format::FORMAT, state::LeaseKind};

    const TIME: u64 = 1_799_999_999_999;

    fn fullest() -> Row {
        let nonce = crate::time::Nonce::from_parts(Timestamp::from_millis(TIME), u128::MAX);
        let error = "x".repeat(200);
        let took = Duration::from_secs(900);
        let result = TickResult { ending: Ending::Crashed, at: Timestamp::from_millis(TIME), took, error };
        let row = Row::new()
            .with(a::ENTITY, job_entity(&"x".repeat(LONGEST_NAME)).unwrap().as_str())
            .with(a::VERSION, FORMAT)
            .with(a::HOLDER, nonce.as_str())
            .with(a::KIND, LeaseKind::Exclusive.as_str())
            .with(a::HOLDER_INFO, "x".repeat(HolderInfo::MAX_BYTES))
            .with(a::DEFINITION, "x".repeat(LONGEST_DEFINITION))
            .with(a::LAST_RESULT, result.to_stored())
            .with(a::STARTS, 999_u32);
        [a::TAIL, a::HEAD, a::TOKEN, a::EXPIRES_AT, a::YIELD_UNTIL, a::LAST_TICK, a::TICK, a::RUN_REQUESTED]
            .into_iter()
            .fold(row, |row, name| row.with(name, TIME))
    }

    #[test]
    fn the_fullest_job_s_row_costs_one_write_unit() {
        assert!(fullest().size() <= 1024, "{} bytes", fullest().size());
    }

    #[test]
    fn a_result_is_cut_to_its_length_and_read_again() {
        let state = JobState::parse(&fullest()).unwrap();
        let result = state.last_result.unwrap();
        assert_eq!(result.to_stored().len(), LAST_RESULT_BYTES);
        assert_eq!((result.ending, result.took), (Ending::Crashed, Duration::from_secs(900)));
        assert_eq!(TickResult::from_stored(&result.to_stored()), Some(result));
    }

    #[test]
    fn a_lease_has_run_out_a_minute_after_it_says_so() {
        let expires = Timestamp::from_millis(TIME);
        let state = JobState::parse(&fullest()).unwrap();
        assert!(!state.has_run_out(expires + (CLOCKS_APART - Duration::from_millis(1))));
        assert!(state.has_run_out(expires + CLOCKS_APART));
        let long_before = Timestamp::from_millis(TIME - 3_600_000);
        assert!(state.has_run_out(long_before), "no lease runs that far ahead");
    }

    fn time(ahead: i64) -> Timestamp {
        Timestamp::from_millis(TIME.checked_add_signed(ahead).unwrap())
    }

    /// The job's row, free; its last tick is [`TIME`].
    fn free() -> Row {
        let gone = [a::HOLDER, a::KIND, a::EXPIRES_AT, a::HOLDER_INFO, a::TICK, a::STARTS, a::RUN_REQUESTED];
        gone.into_iter().fold(fullest(), |mut row, name| {
            row.remove(name);
            row
        })
    }

    fn start(tick: Timestamp, now: Timestamp) -> StartTick {
        let request = Acquire {
            entity: job_entity(&"x".repeat(LONGEST_NAME)).unwrap(),
            kind: LeaseKind::Exclusive,
            holder: crate::time::Nonce::from_parts(now, 7),
            info: HolderInfo::new("another"),
            now,
            length: Duration::from_secs(30),
        };
        StartTick { request, tick, start: 2, recorded: Recorded::AtCompletion }
    }

    fn lands(write: &Write, row: &Row) -> bool {
        crate::protocol::memory::evaluate(write, Some(row)).is_ok()
    }

    #[test]
    fn a_tick_is_taken_over_a_minute_after_its_lease_ran_out_and_not_once_it_is_recorded() {
        let take_over = |tick, now| {
            let seen = JobState::parse(&fullest()).unwrap();
            lands(&TakeOverTick { start: start(tick, now), seen }.write(), &fullest())
        };
        // The lease ends at TIME, and the tick recorded last is that of TIME.
        assert!(take_over(time(1), time(60_000)));
        assert!(!take_over(time(1), time(59_999)), "its holder's clock may be a minute behind");
        assert!(!take_over(time(0), time(60_000)), "it is recorded");
        assert!(take_over(time(1), time(-901_000)), "no lease runs that far ahead");
    }

    #[test]
    fn a_recorded_tick_is_its_own_only_under_its_token_and_of_its_time() {
        let held = fullest().with(a::EXPIRES_AT, TIME + 30_000);
        let Ok(Started::Granted(lease, _)) = start(time(1), time(1))
            .judge(Written::Landed(Some(held.with(a::HOLDER, start(time(1), time(1)).request.holder.as_str()))))
        else {
            panic!("it is granted")
        };
        let judged = |tick, row: Row| {
            let result = TickResult::not_heard_of(time(5));
            CompleteTick { lease: &lease, tick, result }.judge(Written::Refused(Some(row))).unwrap()
        };
        let recorded = free();
        assert!(matches!(judged(time(0), recorded.clone()), Completed::Recorded(_)), "a reply was lost");
        assert_eq!(judged(time(1), recorded.clone()), Completed::Lost, "released, and this tick is not recorded");
        let later = recorded.with(a::TOKEN, TIME + 1);
        assert_eq!(judged(time(0), later), Completed::Lost, "somebody else's");
    }

    #[test]
    fn a_tick_that_was_given_up_is_recognised_by_the_token_behind_the_one_that_was_seen() {
        let seen = JobState::parse(&fullest()).unwrap();
        let give_up = GiveUpTick { seen: &seen, tick: time(1), now: time(60_000) };
        let after = crate::protocol::memory::evaluate(&give_up.write(), Some(&fullest())).unwrap().unwrap();
        assert_eq!(after.number(a::TOKEN), Some(TIME + 1), "a late write of its holder is refused");
        assert!(matches!(give_up.judge(Written::Refused(Some(after.clone()))).unwrap(), GivenUp::GivenUp(_)));
        let further = after.with(a::TOKEN, TIME + 2);
        assert!(matches!(give_up.judge(Written::Refused(Some(further))).unwrap(), GivenUp::Changed(_)));
    }

    #[test]
    fn a_job_is_defined_on_a_free_row_that_is_as_it_was_seen_and_its_last_tick_never_goes_back() {
        let entity = job_entity(&"x".repeat(LONGEST_NAME)).unwrap();
        let seen = JobState::parse(&free()).unwrap();
        let define =
            |from| DefineJob { entity: &entity, definition: "on", seen: Some(&seen), from, now: time(9) }.write();
        assert!(lands(&define(time(5)), &free()));
        assert!(!lands(&define(time(5)), &fullest()), "somebody runs it");
        assert!(!lands(&define(time(5)), &free().with(a::LAST_TICK, TIME + 1)), "another tick was recorded");
        let last_tick = |from| {
            let row = crate::protocol::memory::evaluate(&define(from), Some(&free())).unwrap().unwrap();
            row.number(a::LAST_TICK)
        };
        assert_eq!([last_tick(time(5)), last_tick(time(-5))], [Some(TIME + 5), Some(TIME)]);
    }
}
