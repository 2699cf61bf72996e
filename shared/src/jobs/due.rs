//! Decides what to do about a job, without I/O.
//!
//! Ticks count from the time at which the invocation was due, never from the
//! invoked process's clock. That clock only tells whether a lease has expired.

use std::time::Duration;

use super::{Missed, OnCrash, schedule::Schedule};
use crate::{protocol::tick::JobState, time::Timestamp};

/// The time between two invocations. A tick's own invocation comes within it.
pub const MINUTE: Duration = Duration::from_secs(60);

/// The most missed ticks of one job that are run later; older ones are skipped.
pub const MOST_MISSED: usize = 100;

/// The most starts of one tick; after that it is recorded as crashed.
pub const MOST_STARTS: u32 = 3;

/// The furthest ahead of the clock that an invocation may be dated. Synchronised
/// clocks differ by less.
pub const MOST_AHEAD: Duration = Duration::from_secs(15 * 60);

/// A job's schedule and its reactions.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The schedule.
    pub schedule: Schedule,
    /// The job is switched on.
    pub is_on: bool,
    /// The reaction to missed ticks.
    pub missed: Missed,
    /// The reaction to a crash.
    pub on_crash: OnCrash,
}

/// The next step for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Nothing,
    /// A tick is due, but another holder has the job.
    Held {
        /// The tick.
        tick: Timestamp,
    },
    /// Start this tick.
    Start {
        /// The tick.
        tick: Timestamp,
        /// The number of this start, counted from 1.
        start: u32,
        /// The number of earlier ticks that are skipped.
        left_out: usize,
    },
    /// Record this tick as crashed.
    GiveUp {
        /// The tick.
        tick: Timestamp,
    },
}

impl Policy {
    /// Returns the definition as stored, for the command line, which has no job list.
    pub fn definition(&self) -> String {
        format!("{} {}", if self.is_on { "on" } else { "off" }, self.schedule)
    }

    /// Returns the next step for an invocation that was due at `scheduled`.
    pub fn next(&self, state: &JobState, scheduled: Timestamp, now: Timestamp) -> Next {
        let held = state.entity.held.is_some();
        let runs = held && !state.has_expired(now);
        let due = self.due(state, scheduled);
        if runs {
            return due.map_or(Next::Nothing, |(tick, _)| Next::Held { tick });
        }
        match state.unfinished() {
            // A job that was switched off in between is not run again, now or later.
            Some(tick) if !self.is_on || state.starts >= self.most_starts() => Next::GiveUp { tick },
            Some(tick) => Next::Start { tick, start: state.starts + 1, left_out: 0 },
            None => due.map_or(Next::Nothing, |(tick, left_out)| Next::Start { tick, start: 1, left_out }),
        }
    }

    fn most_starts(&self) -> u32 {
        match self.on_crash {
            OnCrash::Again => MOST_STARTS,
            OnCrash::Skip => 1,
        }
    }

    /// Returns the tick to run next, and the number of earlier ticks that are skipped.
    fn due(&self, state: &JobState, scheduled: Timestamp) -> Option<(Timestamp, usize)> {
        let asked = state.run_requested.is_some() && !state.is_recorded(scheduled);
        let by_schedule = if self.is_on { self.by_schedule(state, scheduled) } else { None };
        by_schedule.or(asked.then_some((scheduled, 0)))
    }

    fn by_schedule(&self, state: &JobState, scheduled: Timestamp) -> Option<(Timestamp, usize)> {
        let of_this_minute = first_of_its_minute(scheduled);
        let last = state.last_tick.unwrap_or(of_this_minute);
        // A job with a new definition has not missed any of its ticks.
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

/// Returns the start (exclusive) of the minute that ends at `scheduled`. The invocation
/// scheduled for that time is responsible for the ticks of this minute.
pub fn first_of_its_minute(scheduled: Timestamp) -> Timestamp {
    Timestamp::from_millis(scheduled.as_millis().saturating_sub(MINUTE.as_millis() as u64))
}

/// Returns whether an invocation is dated so far ahead that it must be ignored.
/// Recording its tick would silence the job until then.
pub fn is_far_ahead(scheduled: Timestamp, now: Timestamp) -> bool {
    scheduled.since(now) > MOST_AHEAD
}
