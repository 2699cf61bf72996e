//! Wraps the handler under test, to observe it and to let its worker crash or freeze.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard},
    task::{self, Poll},
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tokio::{sync::watch, task::JoinHandle};

use super::{external::frozen, worker_table::WorkerTable};
use crate::{
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    protocol::{delivery::Delivery, receipt::Settlement},
    telemetry::{Event, Observer},
    time::Env,
};

/// The longest time that one poll of the handler may take, by the machine's clock. A machine rarely
/// suspends a process for longer, so a longer poll is taken as a handler that blocks its thread.
const LONGEST_POLL: Duration = Duration::from_secs(1);

#[derive(Debug, Default, Clone)]
pub(super) struct Observations {
    pub(super) panics: Option<String>,
    pub(super) blocks: Option<String>,
    /// The id of a delivery that was parked, or whose retries did not end.
    pub(super) not_applied: Option<String>,
    pub(super) failed: Option<String>,
    pub(super) error: String,
    pub(super) frozen_handler_hangs: bool,
}

#[derive(Debug)]
pub(super) struct Recorder(pub(super) Arc<Mutex<Observations>>);

impl Observer for Recorder {
    fn observe(&self, event: &Event<'_>) {
        let mut seen = lock(&self.0);
        match event {
            Event::Failed { delivery, error, .. } => {
                seen.failed = Some(delivery.delivery_id().to_string());
                seen.error = (*error).to_owned();
            }
            Event::Settled { settlement: Settlement::Parked, delivery: Some(delivery), .. } => {
                seen.not_applied.get_or_insert_with(|| delivery.delivery_id().to_string());
            }
            _ => {}
        }
    }
}

pub(super) struct HandlerUnderTest<H> {
    handler: Arc<H>,
    seen: Arc<Mutex<Observations>>,
    crash: Option<InjectedCrash>,
}

pub(super) struct InjectedCrash {
    pub(super) at: String,
    pub(super) table: Arc<WorkerTable>,
    /// The signal to continue, and the variable that receives the handler's task. `None` for a worker that
    /// crashes without freezing.
    pub(super) freeze: Option<(watch::Receiver<bool>, FrozenTask)>,
    pub(super) env: Env,
}

pub(super) type FrozenTask = Arc<Mutex<Option<JoinHandle<()>>>>;

impl<H: Handler> HandlerUnderTest<H> {
    pub(super) fn new(handler: &Arc<H>, seen: &Arc<Mutex<Observations>>, crash: Option<InjectedCrash>) -> Self {
        Self { handler: handler.clone(), seen: seen.clone(), crash }
    }

    async fn observed(
        &self,
        id: &str,
        work: impl Future<Output = Result<Outcome, HandlerError>>,
    ) -> Result<Outcome, HandlerError> {
        let mut longest = Duration::ZERO;
        let ended = PollTimer { work: pin!(AssertUnwindSafe(work).catch_unwind()), longest: &mut longest }.await;
        let mut seen = lock(&self.seen);
        match ended {
            // A poll that panicked does not count as blocking, because unwinding takes time.
            Err(_) => {
                seen.panics.get_or_insert_with(|| id.to_owned());
                Ok(Outcome::retry("the handler panicked"))
            }
            Ok(answer) => {
                if longest > LONGEST_POLL {
                    seen.blocks.get_or_insert_with(|| id.to_owned());
                }
                if let Ok(Outcome::Reject(why)) = &answer {
                    seen.error.clone_from(why);
                }
                answer
            }
        }
    }

    async fn run(
        &self,
        deliveries: &Deliveries,
        context: &Context,
        work: impl Future<Output = Result<Outcome, HandlerError>>,
    ) -> Result<Outcome, HandlerError> {
        let last = deliveries.last().delivery_id().to_string();
        let is_here =
            |crash: &&InjectedCrash| deliveries.iter().any(|delivery| delivery.delivery_id().as_str() == crash.at);
        // A group that the handler does not take is retried one by one. The crash waits for
        // such a single delivery.
        let accepts = deliveries.len() == 1 || Handler::handles_all(&*self.handler, context.handler());
        let Some(crash) = self.crash.as_ref().filter(is_here).filter(|_| accepts) else {
            return self.observed(&last, work).await;
        };
        if let Some((thawed, task)) = &crash.freeze {
            let handler = self.handler.clone();
            let deliveries = deliveries.clone();
            // The clock of a frozen process is frozen too, so nothing cancels its handler.
            let context = Context::detached(context.token(), context.time_left(), crash.env.clone());
            let work = async move {
                let work = async {
                    match &deliveries.0[..] {
                        [delivery] => handler.handle(delivery, &context).await,
                        _ => handler.handle_all(deliveries.clone(), &context).await,
                    }
                };
                let _ = AssertUnwindSafe(work).catch_unwind().await;
            };
            *lock(task) = Some(tokio::spawn(frozen(thawed.clone(), work)));
        } else {
            let answer = self.observed(&last, work).await;
            if !matches!(answer, Ok(Outcome::Done | Outcome::Commit(_))) {
                return answer;
            }
        }
        crash.table.crash();
        std::future::pending().await
    }
}

impl<H: Handler> Handler for HandlerUnderTest<H> {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let deliveries = Deliveries::detached([delivery.clone()]);
        self.run(&deliveries, context, Handler::handle(&*self.handler, delivery, context)).await
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        let work = Handler::handle_all(&*self.handler, deliveries.clone(), context);
        self.run(&deliveries, context, work).await
    }

    fn handles_all(&self, name: &str) -> bool {
        Handler::handles_all(&*self.handler, name)
    }

    fn runs_elsewhere(&self, name: &str) -> bool {
        Handler::runs_elsewhere(&*self.handler, name)
    }
}

struct PollTimer<'a, F> {
    work: Pin<&'a mut F>,
    longest: &'a mut Duration,
}

impl<F: Future> Future for PollTimer<'_, F> {
    type Output = F::Output;

    #[expect(clippy::disallowed_methods, reason = "a handler that blocks takes the machine's own time")]
    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        let began = Instant::now();
        let polled = self.work.as_mut().poll(context);
        *self.longest = (*self.longest).max(began.elapsed());
        polled
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no one panics while holding this")
}
