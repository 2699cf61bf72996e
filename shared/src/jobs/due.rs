//! Decides which tick of a job the scheduler runs in an invocation. Uses no I/O.
//!
//! The scheduled time of the invocation determines the ticks that are due. The store's time only
//! decides whether a lease has expired, and whether the invocation must be refused
//! ([`is_far_ahead`]).

use std::time::Duration;

use super::{Missed, OnCrash, roster::JobPlan, schedule::Schedule};
use crate::{protocol::tick::JobState, time::Timestamp};

/// The time between two invocations of the scheduler.
pub const MINUTE: Duration = Duration::from_secs(60);

/// The largest number of a job's missed ticks that are run later. Older missed ticks are skipped.
pub const MOST_MISSED: usize = 100;

/// The largest number of starts of one tick. Afterwards the tick is recorded as crashed.
pub const MOST_STARTS: u32 = 3;

/// The longest time by which an invocation's scheduled time may be ahead of the process's clock.
/// Synchronised clocks differ by less.
pub const MOST_AHEAD: Duration = Duration::from_secs(15 * 60);

/// The time after a job's newest tick in which another program cannot redefine the job. Without it, two programs with
/// the same name and different schedules would redefine the job in turn, and neither would find a tick due.
pub const IN_USE: Duration = Duration::from_secs(10 * 60);

#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub schedule: Schedule,
    pub is_on: bool,
    pub missed: Missed,
    pub on_crash: OnCrash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextTick {
    Nothing,
    Held {
        tick: Timestamp,
    },
    Start {
        tick: Timestamp,
        /// The number of this start of the tick, counted from 1.
        start: u32,
        /// The number of earlier missed ticks that are skipped, counted up to 99.
        left_out: usize,
    },
    GiveUp {
        tick: Timestamp,
    },
}

impl Policy {
    pub fn definition(&self) -> String {
        JobPlan { schedule: self.schedule.clone(), is_on: self.is_on }.to_string()
    }

    pub fn next(&self, state: &JobState, scheduled: Timestamp, now: Timestamp) -> NextTick {
        let held = state.entity.held.is_some();
        let runs = held && !state.has_expired(now);
        let due = self.due(state, scheduled);
        if runs {
            return due.map_or(NextTick::Nothing, |(tick, _)| NextTick::Held { tick });
        }
        match state.unfinished() {
            // A crashed tick of a job that has been switched off since is never run again.
            Some(tick) if !self.is_on || state.starts >= self.most_starts() => NextTick::GiveUp { tick },
            Some(tick) => NextTick::Start { tick, start: state.starts + 1, left_out: 0 },
            None => due.map_or(NextTick::Nothing, |(tick, left_out)| NextTick::Start { tick, start: 1, left_out }),
        }
    }

    /// Returns the stored definition if it differs from this one and was used lately.
    pub fn definition_in_use<'a>(&self, state: &'a JobState, now: Timestamp) -> Option<&'a str> {
        let stored = state.definition.as_deref()?;
        let is_used = state.last_tick.is_some_and(|last| now.since(last) < IN_USE);
        (is_used && stored != self.definition()).then_some(stored)
    }

    fn most_starts(&self) -> u32 {
        match self.on_crash {
            OnCrash::Again => MOST_STARTS,
            OnCrash::Skip => 1,
        }
    }

    fn due(&self, state: &JobState, scheduled: Timestamp) -> Option<(Timestamp, usize)> {
        let asked = state.run_requested.is_some() && !state.is_recorded(scheduled);
        let by_schedule = if self.is_on { self.by_schedule(state, scheduled) } else { None };
        by_schedule.or(asked.then_some((scheduled, 0)))
    }

    fn by_schedule(&self, state: &JobState, scheduled: Timestamp) -> Option<(Timestamp, usize)> {
        let of_this_minute = first_of_its_minute(scheduled);
        let last = state.last_tick.unwrap_or(of_this_minute);
        // A new definition has no missed ticks yet.
        let is_new = state.definition.as_deref() != Some(self.definition().as_str());
        let (missed, from) = match self.missed {
            _ if is_new => (Missed::Skip, last.max(of_this_minute)),
            Missed::Skip => (Missed::Skip, last.max(of_this_minute)),
            missed => (missed, last),
        };
        let newest = self.schedule.last_until(scheduled).filter(|tick| *tick > from)?;
        match missed {
            Missed::Skip => Some((newest, 0)),
            Missed::Once => {
                let all = self.schedule.back_from(scheduled, from).take(MOST_MISSED).count();
                Some((newest, all.saturating_sub(1)))
            }
            Missed::Each => {
                let oldest = self.schedule.back_from(scheduled, from).take(MOST_MISSED).last()?;
                Some((oldest, 0))
            }
        }
    }
}

/// Returns the start of the minute that ends at `scheduled`.
///
/// An invocation scheduled for `scheduled` runs the ticks after that start, up to `scheduled`.
pub fn first_of_its_minute(scheduled: Timestamp) -> Timestamp {
    Timestamp::from_millis(scheduled.as_millis().saturating_sub(MINUTE.as_millis() as u64))
}

/// Returns whether an invocation is dated so far in the future that it must be refused.
///
/// Otherwise its ticks would be recorded, and the jobs would not run until that date.
pub fn is_far_ahead(scheduled: Timestamp, now: Timestamp) -> bool {
    scheduled.since(now) > MOST_AHEAD
}
