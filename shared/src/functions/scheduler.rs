//! The scheduler function: invoked once a minute, it runs the ticks that are due
//! of the registered jobs. One of them is its own: the sweep of the entities, a
//! minute's worth of it.
//!
//! A user's own scheduler is this function around jobs of their own.

use std::{sync::Arc, time::Duration};

use crate::{
    aws::{
        Parts,
        boot::{Deployment, Start},
    },
    config::{Environment, InvalidConfig, Variables, deadline, instance_name, scheduler_time, sweep_rows},
    engine::{store::Store, sweep::Sweeper},
    jobs::{Context, InvalidJobs, Job, Jobs, Missed, Report, TickError, Ticker, switch::Switch},
    protocol::state::HolderInfo,
    telemetry::{Event, Observer},
    time::{Env, Timestamp},
};
use lambda_runtime::Error;
use serde::{Deserialize, Serialize};

/// What EventBridge sends.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct ScheduledEvent {
    /// When it was due, as RFC 3339.
    #[serde(default)]
    pub time: String,
}

impl ScheduledEvent {
    /// When it was due; `None`: the event does not say.
    pub fn scheduled(&self) -> Option<Timestamp> {
        let time = humantime::parse_rfc3339(&self.time).ok()?;
        let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Timestamp::from_millis(u64::try_from(since.as_millis()).ok()?))
    }
}

/// The name of the job that every scheduler has.
pub const SWEEP: &str = "sweep";

/// How long a tick sweeps at most: so much less than a minute that it ends
/// before the next one comes, whatever it was waiting for last.
pub const SWEEP_TIME: Duration = Duration::from_secs(50);

/// What is left of the function's time, at least, to remember how far it came.
const TIME_TO_END: Duration = Duration::from_secs(5);

/// The job that sweeps on each minute. What a minute without a scheduler left
/// out, and what one was too short for, is made up for by those that follow.
pub fn sweep(sweeper: Sweeper, observer: Arc<dyn Observer>) -> Job {
    let sweep = move |context: Context| {
        let (sweeper, observer) = (sweeper.clone(), observer.clone());
        async move {
            let time = SWEEP_TIME.min(context.time_left().saturating_sub(TIME_TO_END));
            let until = context.env().monotonic() + time;
            let (swept, ended) = sweeper.go_on(context.tick(), until).await;
            observer.observe(&Event::Swept { swept: &swept });
            ended
        }
    };
    // Where it goes on is its own to remember: of ticks that were missed it needs none.
    Job::new(SWEEP, "every minute", sweep).missed(Missed::Skip).always_on()
}

/// The function, ready for its schedule.
#[derive(Debug, Clone)]
pub struct Scheduler {
    ticker: Ticker,
    env: Env,
}

/// How a scheduler is set up, besides its jobs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long one invocation lasts at most.
    pub function_time: Duration,
    /// How many rows a tick sweeps at most.
    pub sweep_rows: u64,
    /// Which jobs are on.
    pub switch: Switch,
    /// Who it is, for people.
    pub info: HolderInfo,
}

impl Settings {
    /// Reads `FUNCTION_TIMEOUT_SECONDS`, `SWEEP_ROWS`, `JOBS` and `STAGE`.
    ///
    /// # Errors
    ///
    /// Names the variable that is wrong.
    pub fn read(variables: &impl Variables) -> Result<Self, InvalidConfig> {
        Ok(Self {
            function_time: scheduler_time(variables)?,
            sweep_rows: sweep_rows(variables)?,
            switch: Switch::read(variables)?,
            info: HolderInfo::new(&instance_name(variables)),
        })
    }
}

impl Scheduler {
    /// A scheduler of `jobs` and of the sweep that `sweeper` does.
    ///
    /// # Errors
    ///
    /// Names the first job that is not right.
    pub fn new(
        store: Store,
        sweeper: Sweeper,
        jobs: Jobs,
        settings: Settings,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, InvalidJobs> {
        let env = store.env().clone();
        let Settings { function_time, sweep_rows, switch, info } = settings;
        let jobs = jobs.add(sweep(sweeper.at_most(sweep_rows), observer.clone()));
        let ticker = Ticker::new(store, &jobs, function_time, &switch, info)?.observed_by(observer);
        Ok(Self { ticker, env })
    }

    /// Does what is due at the event's time, until `deadline`.
    ///
    /// # Errors
    ///
    /// The store could not be reached, for all jobs or for one: called again, it
    /// does what is left. Or the event is dated far ahead.
    pub async fn tick(&self, event: &ScheduledEvent, deadline: Timestamp) -> Result<Report, TickError> {
        let scheduled = event.scheduled().unwrap_or_else(|| self.env.now());
        let time = deadline.since(self.env.now());
        let report = self.ticker.tick(scheduled, self.env.monotonic() + time).await?;
        match report.errors.first() {
            Some((_, error)) => Err(error.clone().into()),
            None => Ok(report),
        }
    }
}

/// Runs the function in Lambda with `jobs`, configured by its environment.
///
/// # Errors
///
/// The configuration or a job is wrong, or Lambda's runtime API cannot be
/// reached.
pub fn run(jobs: Jobs) -> Result<(), Error> {
    run_with(|_| Ok(jobs))
}

/// As [`run`], for jobs that are made from the connected deployment.
///
/// # Errors
///
/// As [`run`]; and what `make` says.
pub fn run_with(make: impl FnOnce(&Deployment) -> Result<Jobs, Error>) -> Result<(), Error> {
    super::start(async {
        let start = Start::read(&Environment)?;
        let settings = Settings::read(&Environment)?;
        let log = super::log(&start.env);
        start.warm().await;
        let deployment = start.connect(log.clone());
        let jobs = make(&deployment)?;
        let Parts { store, waker, queue } = deployment.parts;
        let sweeper = Sweeper::new(store.clone(), waker, queue, start.config.retention);
        let function_time = settings.function_time;
        let scheduler = Scheduler::new(store, sweeper, jobs, settings, log.clone())?;
        lambda_runtime::run(lambda_runtime::service_fn(|event: lambda_runtime::LambdaEvent<ScheduledEvent>| {
            let (scheduler, log) = (&scheduler, &log);
            let told = Timestamp::from_millis(event.context.deadline);
            let deadline = deadline(told, start.env.now(), function_time);
            async move {
                let report = super::logged(log, &event.context, scheduler.tick(&event.payload, deadline)).await;
                report.map(|_| ()).map_err(Error::from)
            }
        }))
        .await
    })
}
