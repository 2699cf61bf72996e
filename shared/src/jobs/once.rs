//! Runs the due ticks of one job for a program that any number of hosts call.

use std::{sync::Arc, time::Duration};

use super::{InvalidJob, InvalidJobs, Job, Jobs, TickReport, Ticker, ticker::PATIENCE};
use crate::{
    engine::store::{Store, StoreError},
    handler::Isolation,
    jobs::switch::Switch,
    protocol::{keys::entity_row, state::HolderInfo, tick::JobState},
    telemetry::Quiet,
};

/// The scheduler's own jobs, whose names no other job may have.
pub const SWEEP: &str = "sweep";
pub const ALERTS: &str = "alerts";

/// The longest time that a run may take.
pub const LONGEST_RUN: Duration = Duration::from_secs(86_400);

/// A job whose due ticks run once each, however many hosts call [`Once::run`].
#[derive(Debug, Clone)]
pub struct Once(Ticker);

/// The reason why a call ran no tick, or does not know whether its run was recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OnceError {
    /// No function was running when the store failed.
    #[error(transparent)]
    Store(StoreError),
    /// The function has ended, and the store did not confirm that the tick was recorded.
    #[error(transparent)]
    Unrecorded(StoreError),
    /// Another program has used the job's name with another schedule lately.
    #[error(
        "the job `{job}` was used with the definition `{definition}` a few minutes ago: use the same schedule on all \
         hosts, or another name (a changed schedule counts once the former one has had no tick for {} minutes)",
        super::due::IN_USE.as_secs() / 60
    )]
    InUse { job: Arc<str>, definition: String },
}

impl Once {
    /// # Errors
    ///
    /// The job's name, schedule, time zone or lease is invalid.
    pub fn new(store: Store, job: Job, holder: &str) -> Result<Self, InvalidJobs> {
        if let Some(own) = [SWEEP, ALERTS].into_iter().find(|own| *own == job.name) {
            return Err(InvalidJobs { job: job.name, reason: InvalidJob::Reserved(own) });
        }
        let jobs = Jobs::new().add(job);
        let holder = HolderInfo::new(holder);
        let ticker = Ticker::observed(store, &jobs, LONGEST_RUN, &Switch::On, holder, Arc::new(Quiet))?;
        Ok(Self(ticker.isolated(Isolation::Inline)))
    }

    /// Runs the ticks that are due now, by the store's time. A clock that is wrong runs no tick early.
    ///
    /// If this future is dropped while the job's function runs, the tick counts as crashed.
    pub async fn run(&self) -> Result<TickReport, OnceError> {
        let Self(ticker) = self;
        let store = &ticker.store;
        let [job] = &*ticker.jobs else { return Ok(TickReport::default()) };
        let deadline = store.env().monotonic() + LONGEST_RUN;
        let row = store.get(&entity_row(&job.entity), PATIENCE).await.map_err(OnceError::Store)?;
        if let Some(row) = &row {
            let state = JobState::parse(row).map_err(|error| OnceError::Store(error.into()))?;
            if let Some(definition) = job.policy.definition_in_use(&state, store.env().now()) {
                return Err(OnceError::InUse { job: job.name.clone(), definition: definition.to_owned() });
            }
        }
        // The reply has shown the store's time.
        let report = ticker.tick_rows(row.as_slice(), store.env().reached(), deadline).await;
        match report.errors.into_iter().next() {
            None => Ok(TickReport { ran: report.ran, errors: Vec::new() }),
            Some(stopped) if stopped.is_unrecorded => Err(OnceError::Unrecorded(stopped.error)),
            Some(stopped) => Err(OnceError::Store(stopped.error)),
        }
    }
}
