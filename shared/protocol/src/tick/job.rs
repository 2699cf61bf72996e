//! The row of a job, parsed into [`JobState`].

use std::{fmt, time::Duration};

use crate::{
    entity::{EntityKey, InvalidEntityKey, JOBS},
    format::{CorruptRow, attribute as a, shortened},
    state::{EntityState, Held},
    table::Row,
    time::{CLOCKS_APART, Timestamp},
};

pub const LAST_RESULT_BYTES: usize = 60;

/// The longest name of a job in bytes.
pub const LONGEST_NAME: usize = 64;

/// The longest stored definition of a job in bytes.
pub const LONGEST_DEFINITION: usize = 160;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TickOutcome {
    Done,
    /// The function returned an error, panicked, or exceeded its time.
    Failed,
    /// The run never reported an outcome.
    Crashed,
}

impl TickOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            TickOutcome::Done => "done",
            TickOutcome::Failed => "failed",
            TickOutcome::Crashed => "crashed",
        }
    }

    fn from_stored(text: &str) -> Option<Self> {
        [TickOutcome::Done, TickOutcome::Failed, TickOutcome::Crashed]
            .into_iter()
            .find(|ending| ending.as_str() == text)
    }
}

impl fmt::Display for TickOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TickResult {
    pub ending: TickOutcome,
    /// The time at which the tick was recorded.
    pub at: Timestamp,
    pub took: Duration,
    /// The error's text. The stored form is cut to [`LAST_RESULT_BYTES`] bytes in total.
    pub error: String,
}

impl TickResult {
    pub fn crashed(at: Timestamp) -> Self {
        Self { ending: TickOutcome::Crashed, at, took: Duration::ZERO, error: String::new() }
    }

    pub fn to_stored(&self) -> String {
        let text = format!("{} {} {} {}", self.ending, self.at.as_millis(), self.took.as_millis(), self.error);
        shortened(text.trim_end(), LAST_RESULT_BYTES)
    }

    /// Returns whether the stored form may lack the end of the error.
    pub fn may_be_cut(&self) -> bool {
        self.to_stored().len() + char::MAX_LEN_UTF8 > LAST_RESULT_BYTES
    }

    fn from_stored(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        Some(Self {
            ending: TickOutcome::from_stored(parts.next()?)?,
            at: Timestamp::from_millis(parts.next()?.parse().ok()?),
            took: Duration::from_millis(parts.next()?.parse().ok()?),
            error: parts.next().unwrap_or_default().to_owned(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobState {
    pub entity: EntityState,
    /// The stored definition: the schedule, and whether the job is on.
    pub definition: Option<String>,
    /// The due time of the newest recorded tick.
    pub last_tick: Option<Timestamp>,
    pub last_result: Option<TickResult>,
    /// The due time of the tick that was started last; absent once that tick has completed or was
    /// given up.
    pub tick: Option<Timestamp>,
    pub starts: u32,
    /// The time at which an operator requested a run that no start has served yet.
    pub run_requested: Option<Timestamp>,
}

impl JobState {
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

    pub fn is_recorded(&self, tick: Timestamp) -> bool {
        self.last_tick.is_some_and(|last| last >= tick)
    }

    pub fn unfinished(&self) -> Option<Timestamp> {
        self.tick.filter(|tick| !self.is_recorded(*tick))
    }

    /// Returns the first time at which the job's lease has expired by all clocks. `None` if nobody holds the job.
    pub fn expires_everywhere(&self) -> Option<Timestamp> {
        self.entity.held.as_ref().map(|held| held.expires_at + CLOCKS_APART)
    }

    /// Returns whether the job's lease has expired, even by a clock that is [`CLOCKS_APART`] behind
    /// `now`.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        let running = |held: &Held| held.runs(now) || held.runs(earlier(now));
        self.entity.held.as_ref().is_some_and(|held| !running(held))
    }
}

/// Returns the time by a clock that is [`CLOCKS_APART`] behind `now`.
pub(super) fn earlier(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_sub(CLOCKS_APART.as_millis() as u64))
}

/// Returns the entity key of the job `name`. The name must have at most [`LONGEST_NAME`] bytes.
pub fn job_entity(name: &str) -> Result<EntityKey, InvalidEntityKey> {
    EntityKey::parse(&format!("{JOBS}{name}"))
}

pub(super) fn job_of(row: Option<Row>) -> Result<Option<JobState>, CorruptRow> {
    row.as_ref().map(JobState::parse).transpose()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        format::FORMAT,
        state::{HolderInfo, LeaseKind},
    };

    pub const TIME: u64 = 1_799_999_999_999;

    pub fn fullest() -> Row {
        let nonce = crate::time::Nonce::from_parts(Timestamp::from_millis(TIME), u128::MAX);
        let error = "x".repeat(200);
        let took = Duration::from_secs(900);
        let result = TickResult { ending: TickOutcome::Crashed, at: Timestamp::from_millis(TIME), took, error };
        let row = Row::new()
            .with(a::ENTITY, job_entity(&"x".repeat(LONGEST_NAME)).unwrap().as_str())
            .with(a::VERSION, FORMAT)
            .with(a::HOLDER, nonce.as_str())
            .with(a::KIND, LeaseKind::Exclusive.as_str())
            .with(a::HOLDER_INFO, "x".repeat(HolderInfo::MAX_BYTES))
            .with(a::DEFINITION, "x".repeat(LONGEST_DEFINITION))
            .with(a::LAST_RESULT, result.to_stored())
            // Set by a restore.
            .with(a::LAST_CLAIM, nonce.as_str())
            .with(a::STARTS, 999_u32);
        [a::TAIL, a::HEAD, a::TOKEN, a::EXPIRES_AT, a::YIELD_UNTIL, a::LAST_TICK, a::TICK, a::RUN_REQUESTED]
            .into_iter()
            .fold(row, |row, name| row.with(name, TIME))
    }

    #[test]
    fn largest_job_row_costs_one_write_unit() {
        assert!(fullest().size() <= 1024, "{} bytes", fullest().size());
    }

    #[test]
    fn long_job_result_is_truncated_to_the_limit() {
        let state = JobState::parse(&fullest()).unwrap();
        let result = state.last_result.unwrap();
        assert_eq!((result.to_stored().len(), result.may_be_cut()), (LAST_RESULT_BYTES, true));
        assert!(!TickResult::crashed(result.at).may_be_cut());
        assert_eq!((result.ending, result.took), (TickOutcome::Crashed, Duration::from_secs(900)));
        assert_eq!(TickResult::from_stored(&result.to_stored()), Some(result));
    }

    #[test]
    fn job_lease_counts_as_expired_after_extra_minute() {
        let expires = Timestamp::from_millis(TIME);
        let state = JobState::parse(&fullest()).unwrap();
        assert!(!state.has_expired(expires + (CLOCKS_APART - Duration::from_millis(1))));
        assert!(state.has_expired(expires + CLOCKS_APART));
        let long_before = Timestamp::from_millis(TIME - 3_600_000);
        assert!(state.has_expired(long_before), "no lease is that long");
    }

    pub fn free() -> Row {
        let gone = [a::HOLDER, a::KIND, a::EXPIRES_AT, a::HOLDER_INFO, a::TICK, a::STARTS, a::RUN_REQUESTED];
        gone.into_iter().fold(fullest(), |mut row, name| {
            row.remove(name);
            row
        })
    }

    pub fn time(ahead: i64) -> Timestamp {
        Timestamp::from_millis(TIME.checked_add_signed(ahead).unwrap())
    }
}
