//! Writes a job's definition, and requests a run.

use super::job::{JobState, job_of};
use crate::{
    entity::EntityKey,
    format::{CorruptRow, attribute as a, readable},
    keys::entity_row,
    lease::numbers_if_absent,
    operation::Operation,
    table::{Action, Change, Condition, Write, Written},
    time::Timestamp,
};

/// Writes a job's definition, and creates the job's row if it is absent. Ticks up to `from` count
/// neither as due nor as missed, because they were not due under this definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefineJob<'a> {
    pub entity: &'a EntityKey,
    pub definition: &'a str,
    pub seen: Option<&'a JobState>,
    pub from: Timestamp,
    pub now: Timestamp,
}

impl Operation for DefineJob<'_> {
    /// The job's current row; `None` if the row was deleted.
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
            // A running tick would be recorded at its end, and would then set `last_tick` back.
            condition: Condition::All(vec![readable(), Condition::absent(a::HOLDER), unchanged]),
            action: Action::Update(changes),
        }
    }

    /// Treats every reply as success: the row tells the caller what to do next, and defining a job
    /// twice is harmless.
    fn judge(&self, reply: Written) -> Result<Option<JobState>, CorruptRow> {
        match reply {
            Written::Landed(row) | Written::Refused(row) => job_of(row),
        }
    }
}

/// Requests a run at the next minute, independently of the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRun<'a> {
    pub entity: &'a EntityKey,
    pub now: Timestamp,
}

impl Operation for RequestRun<'_> {
    /// The job's row with the request; `None` if there is no such job.
    type Outcome = Option<JobState>;

    fn write(&self) -> Write {
        Write {
            key: entity_row(self.entity),
            condition: Condition::All(vec![readable(), Condition::exists(a::DEFINITION)]),
            action: Action::Update(vec![Change::set(a::RUN_REQUESTED, self.now.as_millis())]),
        }
    }

    /// Does not recognise an earlier try of this write. One start serves all earlier requests, so a
    /// second try causes a second run only if a start came between the two.
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
    use crate::{
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
    fn job_definition_is_written_only_if_job_is_idle_and_unchanged() {
        let entity = job_entity(&"x".repeat(LONGEST_NAME)).unwrap();
        let seen = JobState::parse(&free()).unwrap();
        let define =
            |from| DefineJob { entity: &entity, definition: "on", seen: Some(&seen), from, now: time(9) }.write();
        assert!(lands(&define(time(5)), &free()));
        assert!(!lands(&define(time(5)), &fullest()), "a run is under way");
        assert!(!lands(&define(time(5)), &free().with(a::LAST_TICK, TIME + 1)), "another tick was recorded");
        let last_tick = |from| {
            let row = evaluate(&define(from), Some(&free())).unwrap().unwrap();
            row.number(a::LAST_TICK)
        };
        assert_eq!([last_tick(time(5)), last_tick(time(-5))], [Some(TIME + 5), Some(TIME)]);
    }
}
