//! The worker function: a batch of wake-ups in, inboxes drained, the wake-ups
//! to keep out.
//!
//! The entities of a batch are drained side by side; several wake-ups of one
//! entity are one job. A user's own worker is this function around a handler
//! of their own:
//!
//! ```no_run
//! # use shared::{delivery::Delivery, handler::{Context, Handler, HandlerError, Outcome}};
//! struct MyHandler;
//!
//! impl Handler for MyHandler {
//!     async fn handle(&self, delivery: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
//!         println!("{} {}", delivery.entity(), delivery.topic());
//!         Ok(Outcome::Done)
//!     }
//! }
//!
//! fn main() -> Result<(), worker::Error> {
//!     worker::run(MyHandler)
//! }
//! ```

mod sqs;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use shared::{
    aws::{Account, Parts},
    batch::Batch,
    config::{Environment, InvalidConfig, SourcesOrigin, StoreConfig, WorkerConfig, deadline, instance_name},
    drain::{Attended, DrainSettings, Drainer, Quarantine},
    entity::EntityKey,
    handler::Handler,
    rows::HolderInfo,
    sources::{LiveSources, Sources},
    telemetry::{self, Event, JsonLog},
    time::{Surroundings, Timestamp},
};

pub use lambda_runtime::Error;
pub use sqs::{Attributes, BatchResponse, Failure, Record, SqsEvent};

/// The function, ready for batches.
#[derive(Debug, Clone)]
pub struct Worker {
    drainer: Drainer,
    surroundings: Surroundings,
}

impl Worker {
    /// A worker that drains with `drainer`.
    pub fn new(drainer: Drainer, surroundings: Surroundings) -> Self {
        Self { drainer, surroundings }
    }

    /// Attends to a batch until `deadline`; says which messages are to be
    /// delivered again.
    pub async fn attend(&self, event: SqsEvent, deadline: Timestamp) -> BatchResponse {
        self.drainer.sources().beside(self.drain(event, deadline)).await
    }

    async fn drain(&self, event: SqsEvent, deadline: Timestamp) -> BatchResponse {
        let time = deadline.since(self.surroundings.now());
        let deadline = self.surroundings.monotonic() + time;
        let batch = Batch::sort(event.records.into_iter().map(Into::into));
        for id in batch.unreadable() {
            self.drainer.observer().observe(&Event::NoWakeUp { message_id: id });
        }
        let jobs = batch.jobs();
        let quarantine = Quarantine::of(jobs.len());
        // One that does not come back is kept, and does not keep the others from being told.
        let limit = time.saturating_sub(LAST_WORD);
        let attended = jobs.iter().map(async |job| {
            let attended = self.surroundings.within(limit, self.drainer.attend(job, deadline, &quarantine)).await;
            (job.entity.clone(), attended.unwrap_or(Attended::Keep))
        });
        let attended: BTreeMap<EntityKey, _> = join_all(attended).await.into_iter().collect();
        let failures = batch.failures(&attended);
        BatchResponse { batch_item_failures: failures.into_iter().map(|id| Failure { item_identifier: id }).collect() }
    }
}

/// Time to answer before the function is stopped and its whole batch comes
/// again.
const LAST_WORD: Duration = Duration::from_millis(500);

/// Checks that every source's handler is one that `handler` answers to.
///
/// # Errors
///
/// Names the first source and handler that do not fit.
pub fn check_handlers(sources: &Sources, handler: &impl Handler) -> Result<(), String> {
    match sources.iter().find(|source| !handler.answers_to(&source.handler)) {
        None => Ok(()),
        Some(source) => Err(format!("source `{}`: there is no handler `{}`", source.name, source.handler)),
    }
}

/// Runs the function in Lambda around `handler`, configured by its environment.
///
/// # Errors
///
/// The configuration is wrong, or Lambda's runtime API is not to be had.
pub fn run(handler: impl Handler) -> Result<(), Error> {
    run_with(|_, _| Ok(handler))
}

/// As [`run`], for a handler that is made from the connected store and the
/// configured sources.
///
/// # Errors
///
/// As [`run`]; and what `make` says.
pub fn run_with<H: Handler>(make: impl FnOnce(&Parts, &LiveSources) -> Result<H, Error>) -> Result<(), Error> {
    telemetry::init_log();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    telemetry::ended(runtime.block_on(async {
        let config = StoreConfig::read(&Environment)?;
        let origin = SourcesOrigin::read(&Environment)?;
        let account = Account::from_env()?;
        let surroundings = Surroundings::system();
        let http = account.http_client();
        let log = Arc::new(JsonLog::new(surroundings.clone()));
        let variable = origin.variable();
        let document = account.document(&http, origin, &surroundings);
        let sources = LiveSources::open(document, surroundings.clone(), log.clone());
        let (sources, ()) = tokio::join!(sources, account.warm(&http, &surroundings));
        let sources = sources.map_err(|reason| InvalidConfig::new(variable, reason))?;
        let worker_config = WorkerConfig::read(&Environment, &sources.current())?;
        let parts = Parts::connect_over(&http, &account, &config, &surroundings, None);
        let handler = Arc::new(make(&parts, &sources)?);
        let handlers = handler.clone();
        // What is read later must fit this worker as well.
        sources.demand(move |sources| {
            WorkerConfig::read(&Environment, sources).map_err(|error| error.to_string())?;
            check_handlers(sources, &handlers)
        })?;
        let settings = DrainSettings {
            lease: worker_config.lease,
            wait: worker_config.wait,
            retention: config.retention,
            ..DrainSettings::default()
        };
        let info = HolderInfo::new(&instance_name(&Environment));
        let drainer = Drainer::new(parts.store, parts.waker, sources, handler, settings, info, log.clone());
        let worker = Worker::new(drainer, surroundings.clone());
        lambda_runtime::run(lambda_runtime::service_fn(|event: lambda_runtime::LambdaEvent<SqsEvent>| {
            let (worker, log) = (&worker, &log);
            let told = Timestamp::from_millis(event.context.deadline);
            let deadline = deadline(told, surroundings.now(), worker_config.function_timeout);
            async move {
                log.begin(&event.context.request_id);
                let response = worker.attend(event.payload, deadline).await;
                log.end();
                Ok::<_, Error>(response)
            }
        }))
        .await
    }))
}
