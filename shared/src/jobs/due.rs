//! What is to be done about a job now: pure.
//!
//! Ticks are counted from the time at which the invocation was due, never from
//! the clock of whoever was invoked. The clock only says whether a lease has run
//! out.

use std::time::Duration;

use super::{Missed, OnCrash, schedule::Schedule};
use crate::{protocol::tick::JobState, time::Timestamp};

/// How long after a tick an invocation is still its own: the next is due then.
pub const MINUTE: Duration = Duration::from_secs(60);

/// The most ticks of one job that are caught up with; older ones are left out.
pub const MOST_MISSED: usize = 100;

/// How often one tick is started at most before it is recorded as crashed.
pub const MOST_STARTS: u32 = 3;

/// How far ahead of the clock an invocation may be dated: further than any two
/// clocks that are kept right are apart.
pub const MOST_AHEAD: Duration = Duration::from_secs(15 * 60);

/// What a job is to do when.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// When it is due.
    pub schedule: Schedule,
    /// Whether its schedule counts.
    pub is_on: bool,
    /// What becomes of ticks that nobody was there for.
    pub missed: Missed,
    /// What becomes of a tick whose run crashed.
    pub on_crash: OnCrash,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Nothing,
    /// This tick is due, and somebody holds the job.
    Held {
        /// Which tick.
        tick: Timestamp,
    },
    /// Start this tick.
    Start {
        /// Which tick.
        tick: Timestamp,
        /// Which start of it this is.
        start: u32,
        /// How many ticks before it are left out.
        left_out: usize,
    },
    /// Record this tick as crashed.
    GiveUp {
        /// Which tick.
        tick: Timestamp,
    },
}

impl Policy {
    /// As it is stored, for the command line, which knows no jobs of its own.
    pub fn definition(&self) -> String {
        format!("{} {}", if self.is_on { "on" } else { "off" }, self.schedule)
    }

    /// What to do at an invocation that was due at `scheduled`.
    pub fn next(&self, state: &JobState, scheduled: Timestamp, now: Timestamp) -> Next {
        let held = state.entity.held.is_some();
        let runs = held && !state.has_run_out(now);
        let due = self.due(state, scheduled);
        if runs {
            return due.map_or(Next::Nothing, |(tick, _)| Next::Held { tick });
        }
        match state.unfinished() {
            // Switched off since: it is not run again, now or when it is switched on.
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

    /// The tick to run next, and how many before it are left out.
    fn due(&self, state: &JobState, scheduled: Timestamp) -> Option<(Timestamp, usize)> {
        let asked = state.run_requested.is_some() && !state.is_recorded(scheduled);
        let by_schedule = if self.is_on { self.by_schedule(state, scheduled) } else { None };
        by_schedule.or(asked.then_some((scheduled, 0)))
    }

    fn by_schedule(&self, state: &JobState, scheduled: Timestamp) -> Option<(Timestamp, usize)> {
        let of_this_minute = first_of_its_minute(scheduled);
        let last = state.last_tick.unwrap_or(of_this_minute);
        // By another definition nothing of this one was missed.
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

/// Behind this begins what an invocation that was due at `scheduled` has for
/// itself.
pub fn first_of_its_minute(scheduled: Timestamp) -> Timestamp {
    Timestamp::from_millis(scheduled.as_millis().saturating_sub(MINUTE.as_millis() as u64))
}

/// Whether an invocation that says it was due at `scheduled` is dated so far
/// ahead that it is none. What it would record is in the future, and until then
/// no tick would be due.
pub fn is_far_ahead(scheduled: Timestamp, now: Timestamp) -> bool {
    scheduled.since(now) > MOST_AHEAD
}
