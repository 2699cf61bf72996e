//! Doing what is due: one invocation of a scheduler.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};

use super::{
    Context, InvalidJobs, Jobs, Outcome, Planned,
    due::{MOST_AHEAD, Next, first_of_its_minute, is_far_ahead},
    switch::Switch,
};
use crate::{
    engine::{
        drain::MARGIN,
        lease_renewer::LeaseRenewer,
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
        state::{HolderInfo, LeaseKind},
        table::{Row, Transacted, Write, Written},
        tick::{
            CompleteTick, Completed, DefineJob, GiveUpTick, GivenUp, JobState, RecordPolicy, StartTick, Started,
            TakeOverTick, TickOutcome, TickResult,
        },
    },
    telemetry::{Event, Log, Observer},
    time::Timestamp,
};

/// How long a scheduler tries to reach the store before it stops.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a job is looked at anew in one invocation. Each look behind the
/// first has run a tick, or has seen somebody else change the row.
const MOST_LOOKS: usize = super::due::MOST_MISSED + 10;

/// The most rows that are read in one call.
const ROWS_A_READ: usize = 100;

/// Runs what is due.
#[derive(Clone)]
pub struct Ticker {
    store: Store,
    jobs: Arc<[Planned]>,
    info: HolderInfo,
    isolation: Isolation,
    observer: Arc<dyn Observer>,
}

/// A tick that an invocation ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Of which job.
    pub job: Arc<str>,
    /// Which.
    pub tick: Timestamp,
    /// How it ended; [`TickOutcome::Crashed`]: its lease was lost, and nothing is
    /// recorded.
    pub ending: TickOutcome,
}

/// What an invocation did.
#[derive(Debug, Default)]
pub struct Report {
    /// The ticks that it ran, of each job in their order.
    pub ran: Vec<Ran>,
    /// The jobs for which the store could not be reached.
    pub errors: Vec<(Arc<str>, StoreError)>,
}

/// Why an invocation started nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TickError {
    /// The jobs' rows could not be read, or one of them not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is dated further ahead than clocks are apart. Recorded, its ticks
    /// would silence their jobs until then.
    #[error("it is dated {scheduled}, more than {} minutes ahead of the clock, which shows {now}", MOST_AHEAD.as_secs() / 60)]
    FarAhead {
        /// When it says it was due.
        scheduled: Timestamp,
        /// The clock.
        now: Timestamp,
    },
}

/// How a function came to its end.
enum Answer {
    Done(Outcome),
    Failed(String),
}

impl Ticker {
    /// A scheduler of `jobs`, whose invocations last `function_time` at most.
    ///
    /// # Errors
    ///
    /// Names the first job that is not right.
    pub fn new(
        store: Store,
        jobs: &Jobs,
        function_time: Duration,
        switch: &Switch,
        info: HolderInfo,
    ) -> Result<Self, InvalidJobs> {
        let jobs: Arc<[Planned]> = jobs.planned(function_time, switch)?.into();
        let off: Vec<&str> = jobs.iter().filter(|job| !job.policy.is_on).map(|job| &*job.name).collect();
        if !off.is_empty() {
            tracing::info!(jobs = off.join(","), "switched off; JOBS=on switches them on");
        }
        Ok(Self { store, jobs, info, isolation: Isolation::default(), observer: Arc::new(Log) })
    }

    /// The same, telling `observer` instead of the log.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// The same, running functions as `isolation` says.
    #[must_use]
    pub fn isolated(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Does what is due at an invocation that was due at `scheduled`, until
    /// `deadline`, by the process's own clock. Jobs run side by side; none waits
    /// for another, and what goes wrong with one is its own.
    ///
    /// # Errors
    ///
    /// The rows could not be read, or the invocation is dated far ahead; nothing
    /// was started.
    pub async fn tick(&self, scheduled: Timestamp, deadline: Duration) -> Result<Report, TickError> {
        let now = self.store.env().now();
        if is_far_ahead(scheduled, now) {
            return Err(TickError::FarAhead { scheduled, now });
        }
        let keys: Vec<_> = self.jobs.iter().map(|job| entity_row(&job.entity)).collect();
        let mut rows = Vec::with_capacity(keys.len());
        for keys in keys.chunks(ROWS_A_READ) {
            rows.extend(self.store.get_many(keys, PATIENCE).await?);
        }
        let row_of = |job: &Planned| rows.iter().find(|row| row.text(a::ENTITY) == Some(job.entity.as_str()));
        let attended = self.jobs.iter().map(async |job| {
            let mut ran = Vec::new();
            let attended = self.process(job, row_of(job), scheduled, deadline, &mut ran).await;
            (job.name.clone(), ran, attended.err())
        });
        let mut report = Report::default();
        for (job, ran, error) in join_all(attended).await {
            report.ran.extend(ran);
            if let Some(error) = error {
                tracing::error!(job = &*job, %error, "stopped");
                report.errors.push((job, error));
            }
        }
        Ok(report)
    }

    async fn process(
        &self,
        job: &Planned,
        row: Option<&Row>,
        scheduled: Timestamp,
        deadline: Duration,
        ran: &mut Vec<Ran>,
    ) -> Result<(), StoreError> {
        let mut state = row.map(JobState::parse).transpose()?;
        let definition = job.policy.definition();
        for _ in 0..MOST_LOOKS {
            let is_free = state.as_ref().is_none_or(|state| state.entity.held.is_none());
            if is_free && state.as_ref().and_then(|state| state.definition.as_ref()) != Some(&definition) {
                state = self.define(job, &definition, state.as_ref(), scheduled).await?;
            }
            let Some(seen) = state else { return Ok(()) };
            let env = self.store.env();
            let now = env.now();
            state = match job.policy.next(&seen, scheduled, now) {
                Next::Nothing => return Ok(()),
                Next::Held { tick } => {
                    held(job, &seen, tick);
                    return Ok(());
                }
                Next::GiveUp { tick } => {
                    match self.store.run(&GiveUpTick { seen: &seen, tick, now }, PATIENCE).await? {
                        GivenUp::GivenUp(state) => {
                            self.ended(job, tick, TickOutcome::Crashed, None);
                            Some(state)
                        }
                        GivenUp::Changed(state) => state,
                    }
                }
                Next::Start { .. } if deadline.saturating_sub(env.monotonic()) <= 2 * MARGIN => {
                    tracing::warn!(job = &*job.name, "no time left to start it; with the next minute's tick");
                    return Ok(());
                }
                Next::Start { tick, start, left_out } => {
                    if left_out > 0 {
                        tracing::warn!(job = &*job.name, %tick, left_out, "ticks were missed; one run makes up for them");
                    }
                    let sent = env.monotonic();
                    match self.start(job, seen, tick, start, deadline).await? {
                        Started::Granted(lease, _) => {
                            let (ending, state) = self.run(job, lease, tick, sent, deadline).await?;
                            ran.push(Ran { job: job.name.clone(), tick, ending });
                            match state {
                                Some(state) => Some(state),
                                None => return Ok(()),
                            }
                        }
                        Started::Held(state) => {
                            held(job, &state, tick);
                            return Ok(());
                        }
                        Started::Recorded(state) => Some(state),
                        Started::Free(state) => state,
                    }
                }
            };
        }
        Ok(())
    }

    async fn define(
        &self,
        job: &Planned,
        definition: &str,
        seen: Option<&JobState>,
        scheduled: Timestamp,
    ) -> Result<Option<JobState>, StoreError> {
        // First, so that no job with a row is missing from the list.
        self.store.run(&ListJob { job: &job.name }, PATIENCE).await?;
        let now = self.store.env().now();
        let from = first_of_its_minute(scheduled);
        self.store.run(&DefineJob { entity: &job.entity, definition, seen, from, now }, PATIENCE).await
    }

    async fn start(
        &self,
        job: &Planned,
        seen: JobState,
        tick: Timestamp,
        start: u32,
        deadline: Duration,
    ) -> Result<Started, StoreError> {
        let env = self.store.env();
        let request = Acquire {
            entity: job.entity.clone(),
            kind: LeaseKind::Exclusive,
            holder: env.nonce(),
            info: self.info.clone(),
            now: env.now(),
            length: job.lease.min(deadline.saturating_sub(env.monotonic())),
        };
        let recorded = match job.policy.on_crash {
            super::OnCrash::Again => RecordPolicy::AtCompletion,
            super::OnCrash::Skip => RecordPolicy::AtStart,
        };
        let start = StartTick { request, tick, start, recorded };
        if seen.entity.held.is_none() {
            return self.store.run(&start, PATIENCE).await;
        }
        tracing::warn!(job = &*job.name, %tick, holder = holder(&seen), "lease taken over");
        // Recorded when it was started: nobody else tells how it ended.
        let crashed = seen.tick.filter(|crashed| seen.is_recorded(*crashed));
        let started = self.store.run(&TakeOverTick { start, seen }, PATIENCE).await?;
        if let (Started::Granted(..), Some(crashed)) = (&started, crashed) {
            self.ended(job, crashed, TickOutcome::Crashed, None);
        }
        Ok(started)
    }

    /// Runs a tick and records it. Without a state the lease was lost.
    async fn run(
        &self,
        job: &Planned,
        lease: Lease,
        tick: Timestamp,
        sent: Duration,
        deadline: Duration,
    ) -> Result<(TickOutcome, Option<JobState>), StoreError> {
        let env = self.store.env().clone();
        let started = env.monotonic();
        let left = deadline.saturating_sub(started).saturating_sub(MARGIN);
        let limit = job.time.map_or(left, |time| time.min(left));
        let (canceller, start) = Canceller::start(&job.name, lease.token(), started + limit, env.clone());
        tracing::debug!(job = &*job.name, %tick, token = lease.token().0, "started");
        let context = Context { job: job.name.clone(), tick, start: start.clone() };
        let function = job.function.clone();
        let work = async move {
            let work = AssertUnwindSafe(async move { function(context).await }).catch_unwind();
            tokio::select! {
                biased;
                () = start.cancelled() => Answer::Failed("cancelled".into()),
                answer = work => match answer {
                    Ok(Ok(outcome)) => Answer::Done(outcome),
                    Ok(Err(error)) => Answer::Failed(error.to_string()),
                    Err(_) => Answer::Failed("panicked".into()),
                },
            }
        };
        let mut renewer = LeaseRenewer::new(&self.store, lease, job.lease, sent).ending(deadline);
        let work = async {
            // Not counted together: a job that is stuck keeps no other, the sweep among them, from its run.
            match Threads::default().begin(self.isolation, work) {
                Some(work) => work.within(limit, &env).await,
                None => Worked::NotBegun,
            }
        };
        let answer = renewer.hold(work).await;
        // Tells one that blocks its thread and is late; what it still does is refused by its token.
        drop(canceller);
        let took = env.monotonic().saturating_sub(started);
        let answer = match answer {
            Err(crate::engine::lease_renewer::LeaseLost) => return Ok((lost(job, tick, renewer.lease()), None)),
            Ok(Worked::Late) => Answer::Failed("its time was up".into()),
            Ok(Worked::NotBegun) => Answer::Failed("there was no thread for it".into()),
            Ok(Worked::Died) => Answer::Failed("its thread ended".into()),
            Ok(Worked::Answered(answer)) => answer,
        };
        let patience = PATIENCE.min(deadline.saturating_sub(env.monotonic()));
        let result = |ending, error: &str| TickResult { ending, at: env.now(), took, error: one_line(error) };
        let result = match answer {
            Answer::Done(Outcome::Done) => result(TickOutcome::Done, ""),
            Answer::Done(Outcome::Commit(writes)) => {
                let done = CompleteTick { lease: renewer.lease(), tick, result: result(TickOutcome::Done, "") };
                match self.commit(&done, writes, patience).await? {
                    Committed::Recorded => {
                        self.ended(job, tick, done.result.ending, Some(took));
                        return Ok((TickOutcome::Done, self.look(job, patience).await?));
                    }
                    Committed::Lost => return Ok((lost(job, tick, renewer.lease()), None)),
                    Committed::Refused(error) => result(TickOutcome::Failed, &error),
                }
            }
            Answer::Failed(error) => result(TickOutcome::Failed, &error),
        };
        let complete = CompleteTick { lease: renewer.lease(), tick, result };
        match self.store.run(&complete, patience).await? {
            Completed::Recorded(state) => {
                self.ended(job, tick, complete.result.ending, Some(took));
                Ok((complete.result.ending, Some(state)))
            }
            Completed::Lost => Ok((lost(job, tick, renewer.lease()), None)),
        }
    }

    /// Records the tick with the function's own writes, together or not at all.
    async fn commit(
        &self,
        done: &CompleteTick<'_>,
        writes: Vec<Write>,
        patience: Duration,
    ) -> Result<Committed, StoreError> {
        let mut all = vec![done.write()];
        all.extend(writes);
        let token = self.store.env().nonce();
        match self.store.transact(&all, token.as_str(), patience).await {
            Ok(Transacted::Landed) => Ok(Committed::Recorded),
            Ok(Transacted::Refused(mut refusals)) => match refusals.first_mut().and_then(Option::take) {
                // The tick's own judgement comes first: was it we, or is the lease lost?
                Some(seen) => Ok(match done.judge(Written::Refused(seen))? {
                    Completed::Recorded(_) => Committed::Recorded,
                    Completed::Lost => Committed::Lost,
                }),
                None => Ok(Committed::Refused("a condition of its writes did not hold".into())),
            },
            // What the function wants to write can never be written: its own failure.
            Err(StoreError::Invalid(reason)) => Ok(Committed::Refused(reason)),
            Err(error) => Err(error),
        }
    }

    fn ended(&self, job: &Planned, tick: Timestamp, ending: TickOutcome, took: Option<Duration>) {
        self.observer.observe(&Event::JobEnded { job: &job.name, tick, ending, took });
    }

    /// Reads the row, which a commit does not bring.
    async fn look(&self, job: &Planned, patience: Duration) -> Result<Option<JobState>, StoreError> {
        let row = self.store.get(&entity_row(&job.entity), patience).await?;
        Ok(row.as_ref().map(JobState::parse).transpose()?)
    }
}

enum Committed {
    Recorded,
    Lost,
    Refused(String),
}

fn holder(state: &JobState) -> &str {
    state.entity.holder_info.as_ref().map_or("", HolderInfo::as_str)
}

fn held(job: &Planned, state: &JobState, tick: Timestamp) {
    if state.tick == Some(tick) {
        tracing::debug!(job = &*job.name, %tick, holder = holder(state), "under way already");
    } else {
        tracing::warn!(job = &*job.name, %tick, holder = holder(state), "skipped: it is held");
    }
}

fn lost(job: &Planned, tick: Timestamp, lease: &Lease) -> TickOutcome {
    tracing::warn!(job = &*job.name, %tick, token = lease.token().0, "lease lost");
    TickOutcome::Crashed
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.jobs.iter().map(|job| &*job.name).collect();
        f.debug_struct("Ticker").field("jobs", &names).finish_non_exhaustive()
    }
}
