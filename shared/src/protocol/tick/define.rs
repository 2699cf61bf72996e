//! What a job's row says besides its ticks: when it is due, and that somebody
//! asked for a run.

use super::job::{JobState, job_of};
use crate::{
    protocol::{
        entity::EntityKey,
        format::{CorruptRow, attribute as a, readable},
        keys::entity_row,
        lease::numbers_if_absent,
        operation::Operation,
        table::{Action, Change, Condition, Write, Written},
    },
    time::Timestamp,
};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        memory::evaluate,
        table::Row,
        tick::{
            LONGEST_NAME,
            job::tests::{TIME, free, fullest, time},
            job_entity,
        },
    };

    fn lands(write: &Write, row: &Row) -> bool {
        evaluate(write, Some(row)).is_ok()
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
            let row = evaluate(&define(from), Some(&free())).unwrap().unwrap();
            row.number(a::LAST_TICK)
        };
        assert_eq!([last_tick(time(5)), last_tick(time(-5))], [Some(TIME + 5), Some(TIME)]);
    }
}
