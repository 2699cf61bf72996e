//! Invokes the scheduler of a local run once a minute.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tokio::{sync::watch, task::JoinSet};
use webhook_serializer::{
    alerts::{AlertsDocument, DeploymentNaming},
    engine::{queue::Depth, store::Store, sweep::Sweeper, wake::Waker},
    functions::scheduler::{ScheduledEvent, Scheduler, SchedulerSettings},
    jobs::Jobs,
    sources::LiveSources,
    telemetry::Observer,
    time::Env,
};

use super::{
    FUNCTION_TIMEOUT,
    function_pool::FunctionPool,
    function_process::{FunctionSettings, ProcessLogs},
    invoker::Invoker,
    stopped,
};

#[derive(Debug, Clone)]
pub struct OwnScheduler {
    pub program: PathBuf,
    pub jobs: Option<String>,
    pub logs: ProcessLogs,
}

pub(super) enum ScheduledFunction {
    Here(Box<Scheduler>),
    Processes(Arc<FunctionPool>),
    Invoked(Invoker),
}

/// The largest number of overlapping invocations of a user's scheduler. Invocations overlap if one takes longer than a
/// minute.
const AT_ONCE: usize = 4;

impl ScheduledFunction {
    pub(super) fn here(
        store: Store,
        waker: Waker,
        depth: Arc<dyn Depth>,
        retention: Duration,
        sources: LiveSources,
        observer: Arc<dyn Observer>,
        deployment: DeploymentNaming,
    ) -> Result<Self> {
        let none: &[(&str, &str)] = &[("AWS_LAMBDA_FUNCTION_NAME", "local scheduler")];
        let settings = SchedulerSettings { deployment, ..SchedulerSettings::read(&none)? };
        let document = AlertsDocument::opened(sources, store.env().clone(), observer.clone());
        let alerting = settings.alerting(store.clone(), waker.clone(), retention, document, observer.clone());
        let sweeper = Sweeper::new(store.clone(), waker, depth, retention).in_one_part();
        let scheduler = Scheduler::new(store, sweeper, Jobs::new(), settings, observer, Some(alerting))?;
        Ok(Self::Here(Box::new(scheduler)))
    }

    /// Starts the user's scheduler before its first event, so that a wrong binary fails here.
    pub(super) async fn own(own: &OwnScheduler, mut environment: Vec<(String, String)>) -> Result<Self> {
        environment.extend(own.jobs.clone().map(|jobs| ("JOBS".to_owned(), jobs)));
        let settings = FunctionSettings {
            name: "scheduler".into(),
            program: own
                .program
                .canonicalize()
                .with_context(|| format!("{} does not exist; build it first", own.program.display()))?,
            timeout: FUNCTION_TIMEOUT,
            memory_mb: 256,
            environment,
            logs: own.logs.clone(),
        };
        let most = std::num::NonZeroUsize::new(AT_ONCE).expect("it is more than none");
        let pool = FunctionPool::new(settings, most);
        let started = pool.start().await;
        started.with_context(|| format!("{} is not a scheduler, or cannot start", own.program.display()))?;
        Ok(Self::Processes(Arc::new(pool)))
    }

    async fn invoke(&self, event: &ScheduledEvent, env: &Env) -> Result<()> {
        match self {
            ScheduledFunction::Here(scheduler) => {
                scheduler.tick(event, env.now() + FUNCTION_TIMEOUT).await?;
            }
            ScheduledFunction::Processes(pool) => {
                pool.invoke(serde_json::to_vec(event)?).await?;
            }
            ScheduledFunction::Invoked(invoker) => {
                invoker.invoke("scheduler", event, FUNCTION_TIMEOUT).await?;
            }
        }
        Ok(())
    }
}

pub(super) async fn run(function: ScheduledFunction, env: Env, stopping: watch::Receiver<bool>) -> Result<()> {
    let function = Arc::new(function);
    let stopped = stopped(stopping);
    tokio::pin!(stopped);
    let mut invocations = JoinSet::new();
    loop {
        let to_the_minute = 60_000 - env.now().as_millis() % 60_000;
        tokio::select! {
            biased;
            () = &mut stopped => break,
            () = env.sleep(Duration::from_millis(to_the_minute)) => {}
        }
        while invocations.try_join_next().is_some() {}
        // The minute's due time, as EventBridge gives it: an invocation may be late, never early.
        let due = env.now().as_millis() / 60_000 * 60;
        let event = ScheduledEvent { time: webhook_serializer::time::Timestamp::from_secs(due).to_string() };
        let function = function.clone();
        let env = env.clone();
        invocations.spawn(async move {
            if let Err(error) = function.invoke(&event, &env).await {
                tracing::warn!(%error, "the scheduler ended early");
            }
        });
    }
    // Running jobs are aborted and their leases expire, as at a function's shutdown.
    invocations.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use webhook_serializer::{
        aws::Parts,
        protocol::{keys::sweep_position_row, maintain::Position},
        telemetry::Quiet,
        time::Timestamp,
    };

    use super::*;
    use crate::local::Engines;

    /// The embedded table visits all rows for each page of a segment.
    #[tokio::test]
    async fn local_run_sweeps_in_one_part() {
        let engines = Engines::start(None).await.expect("it starts");
        let env = Env::system();
        let Parts { store, waker, queue } = engines.connect(&env, None);
        let naming = DeploymentNaming { name: "a test".into(), option: String::new() };
        let retention = Duration::from_secs(86_400);
        let quiet = Arc::new(Quiet);
        let scheduler = ScheduledFunction::here(
            store.clone(),
            waker,
            queue,
            retention,
            LiveSources::fixed(Arc::default()),
            quiet,
            naming,
        );
        let minute = Timestamp::from_secs(env.now().as_millis() / 60_000 * 60);
        let event = ScheduledEvent { time: minute.to_string() };
        scheduler.expect("it has no wrong job").invoke(&event, &env).await.expect("the sweep ends");
        let row = store.get(&sweep_position_row(), FUNCTION_TIMEOUT).await.expect("it answers");
        assert!(Position::parse(&row.expect("it is stored")).expect("it can be read").in_one_part);
    }
}
