//! The scheduler function, which is invoked once a minute and runs the ticks that are due. The sweep is
//! one of its jobs.

use std::{sync::Arc, time::Duration};

use crate::{
    alerts::{Alerting, AlertsDocument, DeploymentNaming},
    aws::{
        Parts,
        boot::{Deployment, StartConfig},
    },
    config::{
        Environment, InvalidConfig, SWEEP_ROWS, SourcesOrigin, Variables, deadline, instance_name, scheduler_time,
    },
    engine::{append::Inbox, store::Store, sweep::Sweeper, wake::Waker},
    jobs::{Context, InvalidJobs, Job, Jobs, Missed, TickError, TickReport, Ticker, switch::Switch},
    operator::Operator,
    protocol::state::HolderInfo,
    telemetry::{Event, Observer},
    time::{Env, Timestamp},
};
use lambda_runtime::Error;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct ScheduledEvent {
    /// The scheduled time, in RFC 3339.
    #[serde(default)]
    pub time: String,
}

impl ScheduledEvent {
    pub fn scheduled(&self) -> Option<Timestamp> {
        let time = humantime::parse_rfc3339(&self.time).ok()?;
        let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Timestamp::from_millis(u64::try_from(since.as_millis()).ok()?))
    }
}

pub use crate::jobs::once::{ALERTS, SWEEP};

/// The longest run of the sweep in one tick. The run must end before the next tick, even if its last request to the
/// store gets no answer.
pub const SWEEP_TIME: Duration = Duration::from_secs(50);

/// The part of the scheduler function's time that is kept for storing the sweep's position.
const TIME_TO_END: Duration = Duration::from_secs(5);

/// Creates the job that sweeps each minute. A tick continues where the previous one stopped, so later ticks make up for
/// a missed one.
pub fn sweep(sweeper: Sweeper, observer: Arc<dyn Observer>) -> Job {
    let sweep = move |context: Context| {
        let sweeper = sweeper.clone();
        let observer = observer.clone();
        async move {
            let time = SWEEP_TIME.min(context.time_left().saturating_sub(TIME_TO_END));
            let until = context.env().monotonic() + time;
            let (swept, ended) = sweeper.go_on(context.tick(), until).await;
            observer.observe(&Event::Swept { swept: &swept });
            ended
        }
    };
    // The sweep stores its own position, so it needs no missed ticks.
    Job::new(SWEEP, "every minute", sweep).missed(Missed::Skip).always_on()
}

#[derive(Clone)]
pub struct Scheduler {
    ticker: Ticker,
    /// The jobs and the job of alerts, which runs while the document wants alerts.
    alerting: Option<(Arc<Alerting>, Ticker)>,
    env: Env,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub struct SchedulerSettings {
    pub function_time: Duration,
    pub sweep_rows: u64,
    pub switch: Switch,
    pub info: HolderInfo,
    pub deployment: DeploymentNaming,
}

impl SchedulerSettings {
    pub fn read(variables: &impl Variables) -> Result<Self, InvalidConfig> {
        Ok(Self {
            function_time: scheduler_time(variables)?,
            sweep_rows: SWEEP_ROWS,
            switch: Switch::read(variables)?,
            info: HolderInfo::new(&instance_name(variables)),
            deployment: naming(variables),
        })
    }

    /// Connects the job of alerts.
    pub fn alerting(
        &self,
        store: Store,
        waker: Waker,
        retention: Duration,
        document: AlertsDocument,
        observer: Arc<dyn Observer>,
    ) -> Alerting {
        let inbox = Inbox::new(store.clone(), waker.clone(), retention, observer);
        let operator = Operator::new(store.clone(), waker, inbox, retention);
        Alerting::new(operator, store, document, self.deployment.clone())
    }
}

/// Names the deployment by its stack or, without one, by the function.
fn naming(variables: &impl Variables) -> DeploymentNaming {
    match variables.value("STACK_NAME") {
        Some(stack) => DeploymentNaming { option: format!(" --stack {stack}"), name: stack },
        None => {
            let name = variables.value("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_default();
            DeploymentNaming { name, option: String::new() }
        }
    }
}

impl Scheduler {
    pub fn new(
        store: Store,
        sweeper: Sweeper,
        jobs: Jobs,
        settings: SchedulerSettings,
        observer: Arc<dyn Observer>,
        alerting: Option<Alerting>,
    ) -> Result<Self, InvalidJobs> {
        let env = store.env().clone();
        let SchedulerSettings { function_time, sweep_rows, switch, info, .. } = settings;
        let mut jobs = jobs.add(sweep(sweeper.at_most(sweep_rows), observer.clone()));
        let alerting = alerting.map(Arc::new);
        if let Some(alerting) = &alerting {
            jobs = jobs.add(alerting.clone().job());
        }
        let all = Ticker::new(store, &jobs, function_time, &switch, info)?.observed_by(observer);
        let ticker = all.without(ALERTS);
        Ok(Self { ticker, alerting: alerting.map(|alerting| (alerting, all)), env })
    }

    /// Runs the ticks that are due at the event's time, until `deadline`.
    ///
    /// # Errors
    ///
    /// The event's time is more than 15 minutes ahead of the clock, or the store failed for at least one
    /// job. In the second case, calling this function with the same event again runs the remaining
    /// ticks.
    pub async fn tick(&self, event: &ScheduledEvent, deadline: Timestamp) -> Result<TickReport, TickError> {
        let scheduled = event.scheduled().unwrap_or_else(|| self.env.now());
        let until = self.env.monotonic() + deadline.since(self.env.machine_now());
        let ticker = match &self.alerting {
            Some((alerting, all)) if alerting.are_wanted().await => all,
            _ => &self.ticker,
        };
        let report = ticker.tick(scheduled, until).await?;
        match report.errors.first() {
            Some(stopped) => Err(stopped.error.clone().into()),
            None => Ok(report),
        }
    }
}

/// Returns the job of alerts. `None` if no variable names the sources document.
fn alerting(
    start: &StartConfig,
    deployment: &Deployment,
    settings: &SchedulerSettings,
    observer: Arc<dyn Observer>,
) -> Option<Alerting> {
    let origin = SourcesOrigin::read(&Environment).ok()?;
    let (account, http) = start.account_and_http();
    let env = start.env.clone();
    let open = move || account.document(&http, origin.clone(), &env);
    let document = AlertsDocument::new(open, start.env.clone(), observer.clone());
    let Parts { store, waker, .. } = deployment.parts.clone();
    Some(settings.alerting(store, waker, start.config.retention, document, observer))
}

/// Runs the scheduler function in Lambda with `jobs`.
///
/// # Errors
///
/// The configuration or a job is invalid, or Lambda's runtime API cannot be reached.
pub fn run(jobs: Jobs) -> Result<(), Error> {
    run_with(|_| Ok(jobs))
}

/// Runs the scheduler function in Lambda with the jobs that `make` creates from the connected
/// deployment. See [`run`].
///
/// # Errors
///
/// Those of [`run`] and of `make`.
pub fn run_with(make: impl FnOnce(&Deployment) -> Result<Jobs, Error>) -> Result<(), Error> {
    super::start(Box::pin(async {
        let start = StartConfig::read(&Environment)?;
        let settings = SchedulerSettings::read(&Environment)?;
        let log = super::log(&start.env);
        start.warm().await;
        let deployment = start.connect(log.clone());
        let jobs = make(&deployment)?;
        let alerting = alerting(&start, &deployment, &settings, log.clone());
        let Parts { store, waker, queue } = deployment.parts;
        let sweeper = Sweeper::new(store.clone(), waker, queue, start.config.retention);
        let function_time = settings.function_time;
        let scheduler = Scheduler::new(store, sweeper, jobs, settings, log.clone(), alerting)?;
        lambda_runtime::run(lambda_runtime::service_fn(|event: lambda_runtime::LambdaEvent<ScheduledEvent>| {
            let scheduler = &scheduler;
            let log = &log;
            let given = Timestamp::from_millis(event.context.deadline);
            let deadline = deadline(given, start.env.machine_now(), function_time);
            async move {
                let report = super::logged(log, &event.context, scheduler.tick(&event.payload, deadline)).await;
                report.map(|_| ()).map_err(Error::from)
            }
        }))
        .await
    }))
}
