//! Runs the jobs that are due at an invocation of the scheduler.

use std::{fmt, ops::ControlFlow, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};

use super::{
    Context, InvalidJobs, Jobs, Outcome, Planned,
    due::{NextTick, first_of_its_minute, is_far_ahead},
    report::{StoppedJob, TickError, TickFailure, TickReport, TickRun},
    switch::Switch,
};
use crate::{
    engine::{
        drain::MARGIN,
        lease_renewer::{LeaseLost, LeaseRenewer},
        store::{Store, StoreError},
        threads::{Threads, Worked},
    },
    handler::{Canceller, Isolation},
    protocol::{
        format::{attribute as a, one_line},
        keys::entity_row,
        lease::{Acquire, Lease},
        maintain::ListJob,
        operation::Operation,
        state::{EntityState, HolderInfo, LeaseKind},
        table::{ConditionResult, Row, Transacted, Write, Written},
        tick::{
            CompleteTick, Completed, DefineJob, GiveUpTick, GivenUp, JobState, RecordPolicy, StartTick, Started,
            TakeOverTick, TickOutcome, TickResult,
        },
    },
    telemetry::{Event, Observer, TracingLog},
    time::Timestamp,
};

pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The timeout of recording a job's result. A result that is not recorded lets the tick run again. Once another
/// process has taken the job over, the record is refused.
const RECORDING: Duration = Duration::from_secs(30);

/// The largest number of steps for one job in one invocation.
///
/// A job needs a further step after a tick has ended, or after another process has changed the row.
const MOST_STEPS: usize = super::due::MOST_MISSED + 10;

/// The largest number of rows in one batch read (`BatchGetItem`).
const ROWS_A_READ: usize = 100;

#[derive(Clone)]
pub struct Ticker {
    pub(super) store: Store,
    pub(super) jobs: Arc<[Planned]>,
    info: HolderInfo,
    isolation: Isolation,
    observer: Arc<dyn Observer>,
}

enum JobAnswer {
    Done(Outcome),
    Failed(String),
}

/// The result of a run, and the job's row afterwards. The row is `None` if the lease was lost.
struct EndedRun {
    ending: TickOutcome,
    failure: Option<TickFailure>,
    state: Option<JobState>,
}

impl Ticker {
    pub fn new(
        store: Store,
        jobs: &Jobs,
        function_time: Duration,
        switch: &Switch,
        info: HolderInfo,
    ) -> Result<Self, InvalidJobs> {
        Self::observed(store, jobs, function_time, switch, info, Arc::new(TracingLog))
    }

    pub(super) fn observed(
        store: Store,
        jobs: &Jobs,
        function_time: Duration,
        switch: &Switch,
        info: HolderInfo,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, InvalidJobs> {
        let jobs: Arc<[Planned]> = jobs.planned(function_time, switch)?.into();
        let off: Vec<&str> = jobs.iter().filter(|job| !job.policy.is_on).map(|job| &*job.name).collect();
        if !off.is_empty() {
            tracing::info!(jobs = off.join(","), "these jobs are switched off; JOBS=on switches them on");
        }
        Ok(Self { store, jobs, info, isolation: Isolation::default(), observer })
    }

    /// Returns a ticker that leaves the job `name` alone.
    #[cfg(feature = "scheduler")]
    #[must_use]
    pub(crate) fn without(&self, name: &str) -> Self {
        Self { jobs: self.jobs.iter().filter(|job| &*job.name != name).cloned().collect(), ..self.clone() }
    }

    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    #[must_use]
    pub fn isolated(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Runs the jobs that are due at the invocation scheduled for `scheduled`.
    ///
    /// The jobs run concurrently until `deadline`, by the monotonic clock. An error of one job does
    /// not affect the other jobs. If this method returns an error, no job was started.
    pub async fn tick(&self, scheduled: Timestamp, deadline: Duration) -> Result<TickReport, TickError> {
        let keys: Vec<_> = self.jobs.iter().map(|job| entity_row(&job.entity)).collect();
        let mut rows = Vec::with_capacity(keys.len());
        for keys in keys.chunks(ROWS_A_READ) {
            rows.extend(self.store.get_many(keys, PATIENCE).await?);
        }
        // The replies have shown the store's time.
        let now = self.store.env().now();
        if is_far_ahead(scheduled, now) {
            return Err(TickError::FarAhead { scheduled, now });
        }
        Ok(self.tick_rows(&rows, scheduled, deadline).await)
    }

    /// Runs the due jobs, whose rows were read before.
    pub(super) async fn tick_rows(&self, rows: &[Row], scheduled: Timestamp, deadline: Duration) -> TickReport {
        let row_of = |job: &Planned| rows.iter().find(|row| row.text(a::ENTITY) == Some(job.entity.as_str()));
        let jobs = self.jobs.iter().map(async |job| {
            let mut due = DueJob { ticker: self, job, scheduled, deadline, ran: Vec::new(), is_unrecorded: false };
            let result = due.run_all(row_of(job)).await;
            let DueJob { ran, is_unrecorded, .. } = due;
            (ran, result.err().map(|error| StoppedJob { job: job.name.clone(), error, is_unrecorded }))
        });
        let mut report = TickReport::default();
        for (ran, stopped) in join_all(jobs).await {
            report.ran.extend(ran);
            if let Some(StoppedJob { job, error, .. }) = &stopped {
                tracing::error!(job = &**job, %error, "stopped");
            }
            report.errors.extend(stopped);
        }
        report
    }
}

struct DueJob<'a> {
    ticker: &'a Ticker,
    job: &'a Planned,
    scheduled: Timestamp,
    deadline: Duration,
    ran: Vec<TickRun>,
    is_unrecorded: bool,
}

impl DueJob<'_> {
    async fn run_all(&mut self, row: Option<&Row>) -> Result<(), StoreError> {
        let mut state = row.map(JobState::parse).transpose()?;
        for _ in 0..MOST_STEPS {
            match self.step(state).await? {
                ControlFlow::Continue(next) => state = next,
                ControlFlow::Break(()) => break,
            }
        }
        Ok(())
    }

    /// Carries out the job's next step. Returns the job's row after the step, or breaks if nothing
    /// is left to do.
    async fn step(&mut self, mut state: Option<JobState>) -> Result<ControlFlow<(), Option<JobState>>, StoreError> {
        const DONE: ControlFlow<(), Option<JobState>> = ControlFlow::Break(());
        let Self { ticker: Ticker { store, .. }, job, scheduled, deadline, .. } = *self;
        let definition = job.policy.definition();
        let is_free = state.as_ref().is_none_or(|state| state.entity.held.is_none());
        if is_free && state.as_ref().and_then(|state| state.definition.as_ref()) != Some(&definition) {
            state = self.define(&definition, state.as_ref()).await?;
        }
        let Some(seen) = state else { return Ok(DONE) };
        let now = store.env().reached();
        match job.policy.next(&seen, scheduled, now) {
            NextTick::Nothing => Ok(DONE),
            NextTick::Held { tick } => {
                log_held(job, &seen, tick);
                Ok(DONE)
            }
            NextTick::GiveUp { tick } => match store.run(&GiveUpTick { seen: &seen, tick, now }, PATIENCE).await? {
                GivenUp::GivenUp(state) => {
                    self.ended(tick, TickOutcome::Crashed, None);
                    Ok(ControlFlow::Continue(Some(state)))
                }
                GivenUp::Changed(state) => Ok(ControlFlow::Continue(state)),
            },
            NextTick::Start { .. } if deadline.saturating_sub(store.env().monotonic()) <= 2 * MARGIN => {
                tracing::warn!(job = &*job.name, "no time is left to start the job; it starts within the next minute");
                Ok(DONE)
            }
            NextTick::Start { tick, start, left_out } => {
                if left_out > 0 {
                    tracing::warn!(job = &*job.name, %tick, left_out, "ticks were missed; one run makes up for them");
                }
                let sent = store.env().monotonic();
                match self.start(seen, tick, start).await? {
                    Started::Granted(lease, granted) => {
                        let EndedRun { ending, failure, state } = self.run(lease, &granted.entity, tick, sent).await?;
                        self.ran.push(TickRun { job: job.name.clone(), tick, ending, failure });
                        Ok(state.map_or(DONE, |state| ControlFlow::Continue(Some(state))))
                    }
                    Started::Held(state) => {
                        log_held(job, &state, tick);
                        Ok(DONE)
                    }
                    Started::Recorded(state) => Ok(ControlFlow::Continue(Some(state))),
                    Started::Free(state) => Ok(ControlFlow::Continue(state)),
                }
            }
        }
    }

    async fn define(&self, definition: &str, seen: Option<&JobState>) -> Result<Option<JobState>, StoreError> {
        let store = &self.ticker.store;
        let job = self.job;
        // The job is listed before its row exists, so that no job with a row is missing from the list.
        store.run(&ListJob { job: &job.name }, PATIENCE).await?;
        let now = store.env().now();
        let from = first_of_its_minute(self.scheduled);
        store.run(&DefineJob { entity: &job.entity, definition, seen, from, now }, PATIENCE).await
    }

    async fn start(&self, seen: JobState, tick: Timestamp, start: u32) -> Result<Started, StoreError> {
        let Self { ticker: Ticker { store, info, .. }, job, deadline, .. } = *self;
        let env = store.env();
        let now = env.reached();
        let length = job.lease.min(deadline.saturating_sub(env.monotonic()));
        let request = Acquire {
            entity: job.entity.clone(),
            kind: LeaseKind::Exclusive,
            holder: env.nonce(),
            info: info.clone(),
            now,
            length: env.lease_from(now, length),
        };
        let recorded = match job.policy.on_crash {
            super::OnCrash::Again => RecordPolicy::AtCompletion,
            super::OnCrash::Skip => RecordPolicy::AtStart,
        };
        let start = StartTick { request, tick, start, recorded };
        if seen.entity.held.is_none() {
            return store.run(&start, PATIENCE).await;
        }
        tracing::warn!(job = &*job.name, %tick, holder = holder(&seen), "lease taken over");
        // If the crashed tick was recorded at its start, this take-over is the only sign of its end.
        let crashed = seen.tick.filter(|crashed| seen.is_recorded(*crashed));
        let started = store.run(&TakeOverTick { start, seen }, PATIENCE).await?;
        if let (Started::Granted(..), Some(crashed)) = (&started, crashed) {
            self.ended(crashed, TickOutcome::Crashed, None);
        }
        Ok(started)
    }

    /// Runs a tick and records its result.
    async fn run(
        &mut self,
        lease: Lease,
        granted: &EntityState,
        tick: Timestamp,
        sent: Duration,
    ) -> Result<EndedRun, StoreError> {
        let Self { ticker: Ticker { store, .. }, job, deadline, .. } = *self;
        let started = store.env().monotonic();
        let renewer = LeaseRenewer::start(store, lease.clone(), granted, job.lease, sent, deadline);
        let Ok(mut renewer) = renewer.await else { return Ok(log_lost(job, tick, &lease)) };
        let answer = self.call(&mut renewer, tick, started).await;
        let took = store.env().monotonic().saturating_sub(started);
        match answer {
            Ok(answer) => {
                let recorded = self.record(renewer.lease(), tick, answer, took).await;
                self.is_unrecorded = recorded.is_err();
                recorded
            }
            Err(LeaseLost) => Ok(log_lost(job, tick, renewer.lease())),
        }
    }

    async fn call(
        &self,
        renewer: &mut LeaseRenewer,
        tick: Timestamp,
        started: Duration,
    ) -> Result<JobAnswer, LeaseLost> {
        let Self { ticker, job, deadline, .. } = *self;
        let env = ticker.store.env().clone();
        let left = deadline.saturating_sub(started).saturating_sub(MARGIN);
        let limit = job.time.map_or(left, |time| time.min(left));
        let token = renewer.lease().token();
        let (canceller, start) = Canceller::start(&job.name, token, started + limit, env.clone());
        tracing::debug!(job = &*job.name, %tick, token = token.0, "started");
        let context = Context { job: job.name.clone(), tick, start: start.clone() };
        let function = job.function.clone();
        let work = async move {
            let work = AssertUnwindSafe(async move { function(context).await }).catch_unwind();
            tokio::select! {
                biased;
                () = start.cancelled() => JobAnswer::Failed("cancelled".into()),
                answer = work => match answer {
                    Ok(Ok(outcome)) => JobAnswer::Done(outcome),
                    Ok(Err(error)) => JobAnswer::Failed(error.to_string()),
                    Err(_) => JobAnswer::Failed("panicked".into()),
                },
            }
        };
        let work = async {
            // Each job has its own count of lost threads, so that a job that blocks its threads does not
            // keep the other jobs, such as the sweep, from running.
            match Threads::default().begin(ticker.isolation, work) {
                Some(work) => work.within(limit, &env).await,
                None => Worked::NotBegun,
            }
        };
        let worked = renewer.hold(work).await;
        // This cancels a function that has timed out and still runs.
        drop(canceller);
        Ok(match worked? {
            Worked::Late => JobAnswer::Failed("the job's time was up".into()),
            Worked::NotBegun => JobAnswer::Failed("no thread was free for the job".into()),
            Worked::Died => JobAnswer::Failed("the job's thread ended".into()),
            Worked::Answered(answer) => answer,
        })
    }

    async fn record(
        &self,
        lease: &Lease,
        tick: Timestamp,
        answer: JobAnswer,
        took: Duration,
    ) -> Result<EndedRun, StoreError> {
        let Self { ticker: Ticker { store, .. }, job, deadline, .. } = *self;
        let env = store.env();
        let patience = RECORDING.min(deadline.saturating_sub(env.monotonic()));
        let result = |ending, error: &str| TickResult { ending, at: env.now(), took, error: one_line(error) };
        let failure = match answer {
            JobAnswer::Done(Outcome::Done) => None,
            JobAnswer::Failed(error) => Some(TickFailure::Function(error)),
            JobAnswer::Done(Outcome::Commit(writes)) => {
                let done = CompleteTick { lease, tick, result: result(TickOutcome::Done, "") };
                match self.commit(&done, writes, patience).await? {
                    JobCommitted::Recorded => {
                        self.ended(tick, done.result.ending, Some(took));
                        // A transaction does not return the row, so the row is read.
                        let row = store.get(&entity_row(&job.entity), patience).await?;
                        let state = row.as_ref().map(JobState::parse).transpose()?;
                        return Ok(EndedRun { ending: TickOutcome::Done, failure: None, state });
                    }
                    JobCommitted::Lost => return Ok(log_lost(job, tick, lease)),
                    JobCommitted::Refused(failure) => Some(failure),
                }
            }
        };
        let result = match &failure {
            None => result(TickOutcome::Done, ""),
            Some(failure) => result(TickOutcome::Failed, &failure.to_string()),
        };
        let complete = CompleteTick { lease, tick, result };
        match store.run(&complete, patience).await? {
            Completed::Recorded(state) => {
                self.ended(tick, complete.result.ending, Some(took));
                Ok(EndedRun { ending: complete.result.ending, failure, state: Some(state) })
            }
            Completed::Lost => Ok(log_lost(job, tick, lease)),
        }
    }

    async fn commit(
        &self,
        done: &CompleteTick<'_>,
        writes: Vec<Write>,
        patience: Duration,
    ) -> Result<JobCommitted, StoreError> {
        let store = &self.ticker.store;
        let mut all = vec![done.write()];
        all.extend(writes);
        let token = store.env().nonce();
        match store.transact(&all, token.as_str(), patience).await {
            Ok(Transacted::Landed) => Ok(JobCommitted::Recorded),
            Ok(Transacted::Refused(results)) => {
                let mut results = results.into_iter();
                // Judge the tick's own write first: an earlier request may have landed, or the lease may be
                // lost.
                let Some(ConditionResult::Failed(seen)) = results.next() else {
                    let failed = results.enumerate().filter(|(_, result)| *result != ConditionResult::Held);
                    let refused = failed.map(|(number, _)| number).collect();
                    return Ok(JobCommitted::Refused(TickFailure::Conditions(refused)));
                };
                Ok(match done.judge(Written::Refused(seen))? {
                    Completed::Recorded(_) => JobCommitted::Recorded,
                    Completed::Lost => JobCommitted::Lost,
                })
            }
            // DynamoDB refuses the function's own writes as invalid.
            Err(StoreError::Invalid(reason)) => Ok(JobCommitted::Refused(TickFailure::Writes(reason))),
            Err(error) => Err(error),
        }
    }

    fn ended(&self, tick: Timestamp, ending: TickOutcome, took: Option<Duration>) {
        self.ticker.observer.observe(&Event::JobEnded { job: &self.job.name, tick, ending, took });
    }
}

enum JobCommitted {
    Recorded,
    Lost,
    Refused(TickFailure),
}

fn holder(state: &JobState) -> &str {
    state.entity.holder_info.as_ref().map_or("", HolderInfo::as_str)
}

fn log_held(job: &Planned, state: &JobState, tick: Timestamp) {
    if state.tick == Some(tick) {
        tracing::debug!(job = &*job.name, %tick, holder = holder(state), "under way already");
    } else {
        tracing::warn!(job = &*job.name, %tick, holder = holder(state), "skipped: another holder has the job's lease");
    }
}

fn log_lost(job: &Planned, tick: Timestamp, lease: &Lease) -> EndedRun {
    tracing::warn!(job = &*job.name, %tick, token = lease.token().0, "lease lost");
    EndedRun { ending: TickOutcome::Crashed, failure: None, state: None }
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.jobs.iter().map(|job| &*job.name).collect();
        f.debug_struct("Ticker").field("jobs", &names).finish_non_exhaustive()
    }
}
