//! Runs jobs, which are async Rust functions on a schedule.
//!
//! Each tick of a job runs once, however many schedulers there are and however often they are
//! invoked. Only a tick that crashes may run again ([`OnCrash`]). The scheduler is invoked once a
//! minute. It runs the jobs that are due concurrently, each under the lease of the job's row
//! (`protocol/tick.rs`).
//!
//! `schedule.rs` computes when a job is due, `due.rs` decides which tick to run, and `ticker.rs`
//! runs it. `once.rs` does so for a program that many hosts call.

pub mod due;
pub mod once;
mod report;
pub mod roster;
pub mod schedule;
pub mod switch;
mod ticker;

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

pub use crate::handler::HandlerError as JobError;
use crate::{
    engine::drain::MARGIN,
    handler, nearest,
    protocol::{
        entity::{EntityKey, FencingToken},
        table::Write,
        tick::{LONGEST_DEFINITION, LONGEST_NAME, job_entity},
    },
    time::{Env, Timestamp},
};
use due::Policy;
pub use report::{StoppedJob, TickError, TickFailure, TickReport, TickRun};
use schedule::{InvalidSchedule, Schedule, Zone};
use switch::Switch;
pub use ticker::Ticker;

/// The successful result of a job's function.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The tick is done.
    Done,
    /// The tick is done once these writes have taken effect.
    ///
    /// The writes and the tick's record are one transaction. There may be at most 99 writes, all of
    /// different items, and none of the job's own row.
    Commit(Vec<Write>),
}

impl Outcome {
    /// Creates an outcome that makes these writes and records the tick in one transaction.
    pub fn commit(writes: impl IntoIterator<Item = Write>) -> Self {
        Self::Commit(writes.into_iter().collect())
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// The reaction to a crashed tick: the process died during the tick, or lost the job's lease.
///
/// A function that returns an error, panics or times out has not crashed but failed. A failed tick
/// is recorded and not run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnCrash {
    /// Run the tick again once the job's lease has expired, for effects that must happen at least
    /// once. A tick is started three times at most.
    Again,
    /// Do not run the tick again, for effects that must not happen twice.
    Skip,
}

/// The reaction to missed ticks: ticks at which no scheduler ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Missed {
    /// Run the newest missed tick only.
    Once,
    /// Run each missed tick, oldest first, but at most a hundred.
    Each,
    /// Run no missed tick.
    Skip,
}

/// The tick that a job's function runs, with the tick's token and time limit.
#[derive(Debug, Clone)]
pub struct Context {
    job: Arc<str>,
    tick: Timestamp,
    start: handler::Context,
}

impl Context {
    /// Creates a context that is never cancelled, for tests that call a job's function directly.
    pub fn detached(job: &str, tick: Timestamp, token: FencingToken, time: Duration, env: Env) -> Self {
        Self { job: job.into(), tick, start: handler::Context::detached(token, time, env) }
    }

    /// Returns the job's name.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Returns the time at which this tick was due. All starts of the tick get the same time,
    /// however late they are.
    pub fn tick(&self) -> Timestamp {
        self.tick
    }

    /// Returns the fencing token of this run, which is greater than the token of every earlier run of
    /// the job.
    pub fn token(&self) -> FencingToken {
        self.start.token()
    }

    /// Returns how much time is left until this run is cancelled and counts as failed.
    pub fn time_left(&self) -> Duration {
        self.start.time_left()
    }

    /// Returns whether this run was cancelled, because its time is up or the job's lease was lost.
    pub fn is_cancelled(&self) -> bool {
        self.start.is_cancelled()
    }

    /// Waits until this run is cancelled, because its time is up or the job's lease was lost.
    ///
    /// A cancelled async function is dropped. A function that blocks its thread goes on running, so it should call
    /// [`Context::is_cancelled`] from time to time.
    pub async fn cancelled(&self) {
        self.start.cancelled().await;
    }

    /// Returns the clock and the source of randomness that the function should use.
    pub fn env(&self) -> &Env {
        self.start.env()
    }
}

type JobFunction = dyn Fn(Context) -> BoxFuture<'static, Result<Outcome, JobError>> + Send + Sync;

/// The default length of a job's lease.
///
/// A run of less than ten seconds needs no renewal, and a crashed tick runs again after two to
/// three minutes.
pub const LEASE: Duration = Duration::from_secs(30);

/// The longest lease that a job may have.
///
/// The limit is shorter than the longest lease of any row, to allow for a holder's clock that is
/// ahead.
pub const LONGEST_LEASE: Duration = Duration::from_secs(600);

/// An async Rust function that the scheduler runs on a schedule.
#[derive(Clone)]
pub struct Job {
    name: String,
    schedule: String,
    zone: Option<JobZone>,
    lease: Duration,
    time: Option<Duration>,
    missed: Missed,
    on_crash: OnCrash,
    always: bool,
    function: Arc<JobFunction>,
}

#[derive(Clone)]
enum JobZone {
    Named(String),
    Given(Zone),
}

impl Job {
    /// Creates a job.
    ///
    /// `name` identifies the job's row and must never be used for another job. `schedule` is a cron
    /// expression of five fields or a rate, such as `every 5 minutes`, `every hour` or
    /// `every 2 days`. A cron expression is in UTC unless [`Job::in_zone`] sets another time zone.
    /// The scheduler checks name and schedule when it starts.
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

    /// Sets the time zone of the job's cron expression, such as `Europe/Berlin`.
    #[must_use]
    pub fn in_zone(mut self, zone: &str) -> Self {
        self.zone = Some(JobZone::Named(zone.to_owned()));
        self
    }

    /// Sets the time zone, for a program without the feature `zones`.
    #[must_use]
    #[doc(hidden)]
    pub fn by_zone(mut self, zone: Zone) -> Self {
        self.zone = Some(JobZone::Given(zone));
        self
    }

    /// Sets the length of the job's lease, which is 30 s by default.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the time limit of one run. By default a run may last until shortly before the end of
    /// the scheduler's invocation.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Sets the reaction to missed ticks, which is [`Missed::Once`] by default.
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Sets the reaction to a crashed tick, which is [`OnCrash::Again`] by default.
    #[must_use]
    pub fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.on_crash = on_crash;
        self
    }

    /// Keeps the job on, even if `JOBS` switches it off. This is for jobs that the deployment
    /// itself needs.
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
        match &self.zone {
            None => {}
            Some(JobZone::Named(name)) => schedule = schedule.in_zone(name)?,
            Some(JobZone::Given(zone)) => schedule = schedule.by(zone.clone())?,
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

#[derive(Clone)]
struct Planned {
    name: Arc<str>,
    entity: EntityKey,
    policy: Policy,
    lease: Duration,
    time: Option<Duration>,
    function: Arc<JobFunction>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJob {
    #[error("a job's name is 1 to {LONGEST_NAME} of a-z, 0-9, '-' and '_'")]
    Name,
    #[error("two jobs have this name; rename one")]
    Twice,
    #[error("`{0}` is the scheduler's own job: choose another name")]
    Reserved(&'static str),
    #[error("schedule: {0}")]
    Schedule(#[from] InvalidSchedule),
    #[error("lease: must be from 1 to {} s", LONGEST_LEASE.as_secs())]
    Lease,
    /// The job's time limit is zero, or longer than this time: the scheduler function's timeout less the time to record
    /// the tick.
    #[error("time: must be more than 0 and at most {} s, which is FUNCTION_TIMEOUT_SECONDS less {} s to record the tick", .0.as_secs(), MARGIN.as_secs())]
    Time(Duration),
    /// `JOBS` names a job that does not exist. The text suggests the nearest name and lists all
    /// jobs.
    #[error("JOBS names it, but no job has this name{0}")]
    Unknown(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("job `{job}`: {reason}")]
pub struct InvalidJobs {
    pub job: String,
    #[source]
    pub reason: InvalidJob,
}

/// The list of a scheduler's jobs.
#[derive(Debug, Clone, Default)]
pub struct Jobs(Vec<Job>);

impl Jobs {
    /// Creates an empty list of jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `job` to the list.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "a list is added to, it is no sum")]
    pub fn add(mut self, job: Job) -> Self {
        self.0.push(job);
        self
    }

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
            Some(name) => {
                let names: Vec<&str> = planned.iter().map(|job| &*job.name).collect();
                let hint = nearest::hint(name, names.iter().copied());
                Err(invalid(name, InvalidJob::Unknown(format!("{hint}; the jobs are {}", names.join(", ")))))
            }
            None => Ok(planned),
        }
    }
}

// Even if its holder's clock is ahead, a job's lease must not exceed a row's longest lease.
const _: () = assert!(
    LONGEST_LEASE.as_secs() + crate::time::CLOCKS_APART.as_secs() < crate::protocol::state::LONGEST_LEASE.as_secs()
);
