//! Jobs: functions on a schedule, each tick of which runs once however many
//! schedulers there are and however often they are invoked for it.
//!
//! One invocation a minute finds the ticks that are due and runs them side by
//! side, each under the lease of its job's row (`tick.rs`).
//!
//! `schedule.rs` knows when a job is due, `due.rs` decides what to do about it,
//! `ticker.rs` does it.

pub mod due;
pub mod roster;
pub mod schedule;
pub mod switch;
mod ticker;

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

pub use crate::handler::HandlerError as JobError;
use crate::{
    engine::drain::MARGIN,
    handler,
    protocol::{
        entity::{EntityKey, FencingToken},
        table::Write,
        tick::{LONGEST_DEFINITION, LONGEST_NAME, job_entity},
    },
    time::{Surroundings, Timestamp},
};
use due::Policy;
use schedule::{InvalidSchedule, Schedule};
use switch::Switch;
pub use ticker::{Ran, Report, TickError, Ticker};

/// How a job's function ended well.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The tick is done.
    Done,
    /// Apply these writes and record the tick, all together or not at all. At
    /// most 99 writes, of different items; anything but the job's own row.
    Commit(Vec<Write>),
}

impl Outcome {
    /// Apply these writes and record the tick, all together or not at all.
    pub fn commit(writes: impl IntoIterator<Item = Write>) -> Self {
        Self::Commit(writes.into_iter().collect())
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// What becomes of a tick whose run crashed: its process died, or lost its
/// lease. A function that returns an error, panics or takes too long has failed;
/// that is recorded, and is no crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnCrash {
    /// It is run again once its lease has run out, so that its effects happen
    /// at least once; three times in all.
    Again,
    /// It is not: for effects that must not happen twice.
    Skip,
}

/// What becomes of ticks that nobody was there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Missed {
    /// One run makes up for all of them.
    Once,
    /// Each is run, the oldest first, a hundred at most.
    Each,
    /// They are left out.
    Skip,
}

/// What a job's function is told.
#[derive(Debug, Clone)]
pub struct Context {
    job: Arc<str>,
    tick: Timestamp,
    start: handler::Context,
}

impl Context {
    /// A context that nothing cancels, for calling a job's function directly in
    /// its own tests.
    pub fn detached(
        job: &str,
        tick: Timestamp,
        token: FencingToken,
        time: Duration,
        surroundings: Surroundings,
    ) -> Self {
        Self { job: job.into(), tick, start: handler::Context::detached(token, time, surroundings) }
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// When this tick was due. A tick that is run again, or late, says the same.
    pub fn tick(&self) -> Timestamp {
        self.tick
    }

    /// The fencing token of this start: greater than that of any start of this
    /// job before it.
    pub fn token(&self) -> FencingToken {
        self.start.token()
    }

    /// How long until this start counts as failed.
    pub fn time_left(&self) -> Duration {
        self.start.time_left()
    }

    /// Whether the lease was lost or the time is up.
    pub fn is_cancelled(&self) -> bool {
        self.start.is_cancelled()
    }

    /// Waits until the lease is lost or the time is up. A function that awaits
    /// anything is dropped then in any case; one that blocks its thread can ask
    /// [`Context::is_cancelled`].
    pub async fn cancelled(&self) {
        self.start.cancelled().await;
    }

    /// The clock and the source of randomness to use.
    pub fn surroundings(&self) -> &Surroundings {
        self.start.surroundings()
    }
}

type Function = dyn Fn(Context) -> BoxFuture<'static, Result<Outcome, JobError>> + Send + Sync;

/// How long a job's lease runs unless it says otherwise: half a minute, so that
/// a job that ends within ten seconds never renews it, and that the tick of one
/// that crashed is run again two minutes later at the latest.
pub const LEASE: Duration = Duration::from_secs(30);

/// The longest lease of a job: with clocks apart as far as they may be it still
/// is no lease that seems to come from nowhere.
pub const LONGEST_LEASE: Duration = Duration::from_secs(600);

/// A function on a schedule.
#[derive(Clone)]
pub struct Job {
    name: String,
    schedule: String,
    zone: Option<String>,
    lease: Duration,
    time: Option<Duration>,
    missed: Missed,
    on_crash: OnCrash,
    always: bool,
    function: Arc<Function>,
}

impl Job {
    /// A job of this name, which is its own for good: it names the row by which
    /// the job is remembered. `schedule` is a cron expression of five fields, in
    /// UTC unless [`Job::in_zone`] says otherwise, or a rate: `every 5 minutes`,
    /// `every hour`, `every 2 days`. Both are checked at start.
    pub fn new<F, Fut, T, E>(name: &str, schedule: &str, function: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Outcome>,
        E: Into<JobError>,
    {
        let function = Arc::new(move |context| -> BoxFuture<'static, Result<Outcome, JobError>> {
            let run = function(context);
            Box::pin(async move { run.await.map(Into::into).map_err(Into::into) })
        });
        Self {
            name: name.to_owned(),
            schedule: schedule.to_owned(),
            zone: None,
            lease: LEASE,
            time: None,
            missed: Missed::Once,
            on_crash: OnCrash::Again,
            always: false,
            function,
        }
    }

    /// The expression is in this time zone's time of day.
    #[must_use]
    pub fn in_zone(mut self, zone: &str) -> Self {
        self.zone = Some(zone.to_owned());
        self
    }

    /// How long its lease runs without being renewed; 30 s by default.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long one run may take; as long as the scheduler's own time allows,
    /// by default.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// What becomes of ticks that nobody was there for; [`Missed::Once`] by
    /// default.
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// What becomes of a tick whose run crashed; [`OnCrash::Again`] by default.
    #[must_use]
    pub fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.on_crash = on_crash;
        self
    }

    /// It cannot be switched off: what the deployment itself lives by.
    #[must_use]
    pub fn always_on(mut self) -> Self {
        self.always = true;
        self
    }

    fn planned(&self, function_time: Duration, switch: &Switch) -> Result<Planned, InvalidJob> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if self.name.is_empty() || self.name.len() > LONGEST_NAME || !self.name.chars().all(is_name) {
            return Err(InvalidJob::Name);
        }
        let mut schedule = Schedule::parse(&self.schedule)?;
        if let Some(zone) = &self.zone {
            schedule = schedule.in_zone(zone)?;
        }
        let policy = Policy {
            schedule,
            is_on: self.always || switch.is_on(&self.name),
            missed: self.missed,
            on_crash: self.on_crash,
        };
        if policy.definition().len() > LONGEST_DEFINITION {
            return Err(InvalidJob::Schedule(InvalidSchedule::Form(self.schedule.clone())));
        }
        if !(Duration::from_secs(1)..=LONGEST_LEASE).contains(&self.lease) {
            return Err(InvalidJob::Lease);
        }
        let most = function_time.saturating_sub(MARGIN);
        if self.time.is_some_and(|time| time.is_zero() || time > most) {
            return Err(InvalidJob::Time(most));
        }
        Ok(Planned {
            name: self.name.as_str().into(),
            entity: job_entity(&self.name).map_err(|_| InvalidJob::Name)?,
            policy,
            lease: self.lease,
            time: self.time,
            function: self.function.clone(),
        })
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("name", &self.name).field("schedule", &self.schedule).finish_non_exhaustive()
    }
}

/// A job that was checked.
#[derive(Clone)]
struct Planned {
    name: Arc<str>,
    entity: EntityKey,
    policy: Policy,
    lease: Duration,
    time: Option<Duration>,
    function: Arc<Function>,
}

/// What is wrong with a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJob {
    /// It is part of a row's key and shown to people.
    #[error("a job's name is 1 to {LONGEST_NAME} of a-z, 0-9, '-' and '_'")]
    Name,
    /// Another job is called so.
    #[error("there are two jobs of this name; a name is one job's own")]
    Twice,
    /// See there.
    #[error("schedule: {0}")]
    Schedule(#[from] InvalidSchedule),
    /// It would be taken for dead at once, or run for longer than any may.
    #[error("lease: must be from 1 to {} s", LONGEST_LEASE.as_secs())]
    Lease,
    /// The function would be stopped before the job.
    #[error("time: must be more than 0 and at most {} s, which is FUNCTION_TIMEOUT_SECONDS less {} s to record the tick", .0.as_secs(), MARGIN.as_secs())]
    Time(Duration),
    /// The switch names it, and it is none.
    #[error("JOBS names it, and there is no such job")]
    Unknown,
}

/// What is wrong with a scheduler's jobs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("job `{job}`: {reason}")]
pub struct InvalidJobs {
    /// Which.
    pub job: String,
    /// Why.
    #[source]
    pub reason: InvalidJob,
}

/// All jobs of a scheduler.
#[derive(Debug, Clone, Default)]
pub struct Jobs(Vec<Job>);

impl Jobs {
    /// No jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more. (Not `+`: it is a list.)
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "a list is added to, it is no sum")]
    pub fn add(mut self, job: Job) -> Self {
        self.0.push(job);
        self
    }

    /// Checks them, for a scheduler whose runs last `function_time` at most.
    fn planned(&self, function_time: Duration, switch: &Switch) -> Result<Vec<Planned>, InvalidJobs> {
        let invalid = |job: &str, reason| InvalidJobs { job: job.to_owned(), reason };
        let mut planned: Vec<Planned> = Vec::with_capacity(self.0.len());
        for job in &self.0 {
            if planned.iter().any(|other| *other.name == *job.name) {
                return Err(invalid(&job.name, InvalidJob::Twice));
            }
            planned.push(job.planned(function_time, switch).map_err(|reason| invalid(&job.name, reason))?);
        }
        match switch.named().find(|name| !planned.iter().any(|job| *job.name == **name)) {
            Some(name) => Err(invalid(name, InvalidJob::Unknown)),
            None => Ok(planned),
        }
    }
}

// A lease that a clock ahead wrote must not seem to run for longer than any may.
const _: () = assert!(
    LONGEST_LEASE.as_secs() + crate::time::CLOCKS_APART.as_secs() < crate::protocol::state::LONGEST_LEASE.as_secs()
);
