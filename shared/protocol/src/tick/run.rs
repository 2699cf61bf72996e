//! Operations on one tick of a job: start, take over, complete, give up.

use super::job::{JobState, TickResult, earlier, job_of};
use crate::{
    format::{CorruptRow, attribute as a, readable},
    keys::entity_row,
    lease::{Acquire, Acquired, Lease, TakeOver, remove_lease_and_handover},
    operation::Operation,
    state::FARTHEST_EXPIRY,
    table::{Action, Change, Comparison, Condition, Write, Written},
    time::Timestamp,
};

fn not_recorded(tick: Timestamp) -> Condition {
    Condition::Any(vec![
        Condition::absent(a::LAST_TICK),
        Condition::compare(a::LAST_TICK, Comparison::Less, tick.as_millis()),
    ])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordPolicy {
    /// The end of the run records the tick, so a tick that crashes runs again.
    AtCompletion,
    /// The grant of the lease records the tick, so a tick that crashes does not run again.
    AtStart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartTick {
    /// The request for an exclusive lease.
    pub request: Acquire,
    pub tick: Timestamp,
    /// The number of this start of the tick, from 1.
    pub start: u32,
    pub recorded: RecordPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    Granted(Lease, JobState),
    Held(JobState),
    Recorded(JobState),
    /// The tick was not started, although the job is free or has no row, because the row has
    /// changed since it was read. The caller must decide again, based on the contained row; `None`
    /// if the job has no row.
    Free(Option<JobState>),
}

impl StartTick {
    fn changes(&self) -> Vec<Change> {
        let mut changes = vec![
            Change::set(a::TICK, self.tick.as_millis()),
            Change::set(a::STARTS, self.start),
            Change::remove(a::RUN_REQUESTED),
        ];
        if self.recorded == RecordPolicy::AtStart {
            changes.push(Change::set(a::LAST_TICK, self.tick.as_millis()));
            changes.push(Change::set(a::LAST_RESULT, TickResult::crashed(self.request.now).to_stored()));
        }
        changes
    }

    fn extended(&self, write: Write, conditions: Vec<Condition>) -> Write {
        let mut all = vec![write.condition];
        all.extend(conditions);
        let mut changes = match write.action {
            Action::Update(changes) => changes,
            Action::Put(_) | Action::Delete | Action::Check | Action::Native(_) => Vec::new(),
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

    /// Treats a refusal as success if the row's holder is this call's nonce, because then an
    /// earlier try of this write landed.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeOverTick {
    pub start: StartTick,
    pub seen: JobState,
}

impl Operation for TakeOverTick {
    type Outcome = Started;

    fn write(&self) -> Write {
        let request = self.start.request.clone();
        let now = request.now;
        let run_out = Condition::Any(vec![
            Condition::compare(a::EXPIRES_AT, Comparison::AtMost, earlier(now).as_millis()),
            Condition::compare(a::EXPIRES_AT, Comparison::Greater, (now + FARTHEST_EXPIRY).as_millis()),
        ]);
        let take_over = TakeOver { request, seen: self.seen.entity.clone() };
        self.start.extended(take_over.write(), vec![run_out, not_recorded(self.start.tick)])
    }

    fn judge(&self, reply: Written) -> Result<Started, CorruptRow> {
        self.start.judge(reply)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteTick<'a> {
    pub lease: &'a Lease,
    pub tick: Timestamp,
    pub result: TickResult,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completed {
    Recorded(JobState),
    Lost,
}

impl Operation for CompleteTick<'_> {
    type Outcome = Completed;

    fn write(&self) -> Write {
        let mut changes = remove_lease_and_handover();
        changes.extend([
            Change::set(a::LAST_TICK, self.tick.as_millis()),
            Change::set(a::LAST_RESULT, self.result.to_stored()),
            Change::remove(a::TICK),
            Change::remove(a::STARTS),
        ]);
        self.lease.update(self.lease.mine(), changes)
    }

    /// Treats a refusal as success if the job is free, its row has the lease's token and this tick
    /// is recorded, because then an earlier try of this write landed. A release by force and a
    /// give-up leave a greater token.
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

/// Records a tick as crashed, after too many of its runs have crashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GiveUpTick<'a> {
    /// The job's row, which shows that the tick is unfinished and that the lease has expired or is
    /// absent.
    pub seen: &'a JobState,
    pub tick: Timestamp,
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenUp {
    GivenUp(JobState),
    /// The row has changed since it was read. The caller must decide again, based on this row;
    /// `None` if the job has no row.
    Changed(Option<JobState>),
}

impl Operation for GiveUpTick<'_> {
    type Outcome = GivenUp;

    fn write(&self) -> Write {
        let token = self.seen.entity.token;
        let gone = Condition::Any(vec![
            Condition::absent(a::HOLDER),
            Condition::compare(a::EXPIRES_AT, Comparison::AtMost, earlier(self.now).as_millis()),
            Condition::compare(a::EXPIRES_AT, Comparison::Greater, (self.now + FARTHEST_EXPIRY).as_millis()),
        ]);
        let mut changes = remove_lease_and_handover();
        changes.extend([
            Change::set(a::LAST_TICK, self.tick.as_millis()),
            Change::set(a::LAST_RESULT, TickResult::crashed(self.now).to_stored()),
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

    /// Treats a refusal as success if the job is free, with the next token and this tick recorded,
    /// because then an earlier try of this write landed. If another scheduler gave the tick up, the
    /// row is the same, and that counts as success too.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        memory::evaluate,
        state::{HolderInfo, LeaseKind},
        table::Row,
        tick::{
            LONGEST_NAME,
            job::tests::{TIME, free, fullest, time},
            job_entity,
        },
        time::Nonce,
    };

    fn start(tick: Timestamp, now: Timestamp) -> StartTick {
        let request = Acquire {
            entity: job_entity(&"x".repeat(LONGEST_NAME)).unwrap(),
            kind: LeaseKind::Exclusive,
            holder: Nonce::from_parts(now, 7),
            info: HolderInfo::new("another"),
            now,
            length: Duration::from_secs(30),
        };
        StartTick { request, tick, start: 2, recorded: RecordPolicy::AtCompletion }
    }

    fn lands(write: &Write, row: &Row) -> bool {
        evaluate(write, Some(row)).is_ok()
    }

    #[test]
    fn job_lease_is_taken_over_a_minute_after_its_expiry() {
        let take_over = |tick, now| {
            let seen = JobState::parse(&fullest()).unwrap();
            lands(&TakeOverTick { start: start(tick, now), seen }.write(), &fullest())
        };
        // The lease ends at TIME, and the tick recorded last is that of TIME.
        assert!(take_over(time(1), time(60_000)));
        assert!(!take_over(time(1), time(59_999)), "its holder's clock may be a minute behind");
        assert!(!take_over(time(0), time(60_000)), "it is recorded");
        assert!(!take_over(time(1), time(-960_000)), "its holder's clock may be a minute ahead");
        assert!(take_over(time(1), time(-960_001)), "no lease is that long");
    }

    #[test]
    fn token_and_tick_show_whether_unanswered_job_completion_landed() {
        let held = fullest().with(a::EXPIRES_AT, TIME + 30_000);
        let Ok(Started::Granted(lease, _)) = start(time(1), time(1))
            .judge(Written::Landed(Some(held.with(a::HOLDER, start(time(1), time(1)).request.holder.as_str()))))
        else {
            panic!("it is granted")
        };
        let judged = |tick, row: Row| {
            let result = TickResult::crashed(time(5));
            CompleteTick { lease: &lease, tick, result }.judge(Written::Refused(Some(row))).unwrap()
        };
        let recorded = free();
        assert!(matches!(judged(time(0), recorded.clone()), Completed::Recorded(_)), "a reply was lost");
        assert_eq!(judged(time(1), recorded.clone()), Completed::Lost, "released without recording this tick");
        let later = recorded.with(a::TOKEN, TIME + 1);
        assert_eq!(judged(time(0), later), Completed::Lost, "another holder's");
    }

    #[test]
    fn token_shows_whether_unanswered_write_giving_up_tick_landed() {
        let seen = JobState::parse(&fullest()).unwrap();
        let give_up = GiveUpTick { seen: &seen, tick: time(1), now: time(60_000) };
        let after = evaluate(&give_up.write(), Some(&fullest())).unwrap().unwrap();
        assert_eq!(after.number(a::TOKEN), Some(TIME + 1), "a late write of its holder is refused");
        assert!(matches!(give_up.judge(Written::Refused(Some(after.clone()))).unwrap(), GivenUp::GivenUp(_)));
        let further = after.with(a::TOKEN, TIME + 2);
        assert!(matches!(give_up.judge(Written::Refused(Some(further))).unwrap(), GivenUp::Changed(_)));
    }

    #[test]
    fn row_tells_why_tick_start_was_refused() {
        // The tick recorded last is that of TIME.
        let judged = |tick, row: Option<Row>| start(tick, time(1)).judge(Written::Refused(row)).unwrap();
        let job = |row: Row| JobState::parse(&row).unwrap();
        assert_eq!(judged(time(0), Some(free())), Started::Recorded(job(free())));
        assert_eq!(judged(time(1), Some(free())), Started::Free(Some(job(free()))));
        assert_eq!(judged(time(1), Some(fullest())), Started::Held(job(fullest())));
        assert_eq!(judged(time(1), None), Started::Free(None));
    }
}
