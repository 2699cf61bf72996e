//! Wraps the handler under test in a worker that is observed, and that may crash
//! or freeze.

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

use super::{mortal::Mortal, outside::frozen};
use crate::{
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    protocol::{delivery::Delivery, receipt::Settlement},
    telemetry::{Event, Observer},
    time::Env,
};

/// The longest time between two awaits, by the machine's clock: more than a busy
/// machine suspends a process for.
const AT_A_STRETCH: Duration = Duration::from_secs(1);

/// Observations of a run.
#[derive(Debug, Default, Clone)]
pub(super) struct Seen {
    pub(super) panics: Option<String>,
    pub(super) blocks: Option<String>,
    /// The delivery that was parked or never finished.
    pub(super) not_applied: Option<String>,
    /// The delivery that failed last, and its error.
    pub(super) failed: Option<String>,
    pub(super) error: String,
    /// Whether a replaced handler did not finish.
    pub(super) goes_on_late: bool,
}

/// Observes how deliveries are settled.
#[derive(Debug)]
pub(super) struct Watching(pub(super) Arc<Mutex<Seen>>);

impl Observer for Watching {
    fn observe(&self, event: &Event<'_>) {
        let mut seen = locked(&self.0);
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

/// The handler under test, in a worker that may die.
pub(super) struct Guest<H> {
    handler: Arc<H>,
    seen: Arc<Mutex<Seen>>,
    dies: Option<Dies>,
}

/// How the worker dies.
pub(super) struct Dies {
    /// The delivery at which it dies.
    pub(super) at: String,
    pub(super) table: Arc<Mortal>,
    /// For a worker that freezes and continues later: the signal to continue, and
    /// a place for its task.
    pub(super) frozen: Option<(watch::Receiver<bool>, Late)>,
    pub(super) env: Env,
}

/// The task of the frozen handler, if there is one.
pub(super) type Late = Arc<Mutex<Option<JoinHandle<()>>>>;

impl<H: Handler> Guest<H> {
    pub(super) fn of(handler: &Arc<H>, seen: &Arc<Mutex<Seen>>) -> Self {
        Self { handler: handler.clone(), seen: seen.clone(), dies: None }
    }

    /// Makes the worker die.
    pub(super) fn who(self, dies: Dies) -> Self {
        Self { dies: Some(dies), ..self }
    }

    async fn watched(
        &self,
        id: &str,
        work: impl Future<Output = Result<Outcome, HandlerError>>,
    ) -> Result<Outcome, HandlerError> {
        let mut longest = Duration::ZERO;
        let ended = Stretch { work: pin!(AssertUnwindSafe(work).catch_unwind()), longest: &mut longest }.await;
        let mut seen = locked(&self.seen);
        match ended {
            // Unwinding takes time that does not count as blocking.
            Err(_) => {
                seen.panics.get_or_insert_with(|| id.to_owned());
                Ok(Outcome::retry("the handler panicked"))
            }
            Ok(answer) => {
                if longest > AT_A_STRETCH {
                    seen.blocks.get_or_insert_with(|| id.to_owned());
                }
                answer
            }
        }
    }

    /// Runs `work` in a worker that may die during it.
    async fn in_its_worker(
        &self,
        deliveries: &Deliveries,
        context: &Context,
        work: impl Future<Output = Result<Outcome, HandlerError>>,
    ) -> Result<Outcome, HandlerError> {
        let last = deliveries.last().delivery_id().to_string();
        let is_there = |dies: &&Dies| deliveries.iter().any(|one| one.delivery_id().as_str() == dies.at);
        // A group that the handler does not accept is tried one delivery at a time.
        let takes = deliveries.len() == 1 || Handler::handles_all(&*self.handler, context.handler());
        let Some(dies) = self.dies.as_ref().filter(is_there).filter(|_| takes) else {
            return self.watched(&last, work).await;
        };
        if let Some((thawed, late)) = &dies.frozen {
            let (handler, deliveries) = (self.handler.clone(), deliveries.clone());
            // A frozen process has a frozen clock, so nothing cancels its handler.
            let context = Context::detached(context.token(), context.time_left(), dies.env.clone());
            let work = async move {
                let work = async {
                    match &deliveries.0[..] {
                        [delivery] => handler.handle(delivery, &context).await,
                        _ => handler.handle_all(deliveries.clone(), &context).await,
                    }
                };
                let _ = AssertUnwindSafe(work).catch_unwind().await;
            };
            *locked(late) = Some(tokio::spawn(frozen(thawed.clone(), work)));
        } else {
            let answer = self.watched(&last, work).await;
            if !matches!(answer, Ok(Outcome::Done | Outcome::Commit(_))) {
                return answer;
            }
        }
        dies.table.die();
        std::future::pending().await
    }
}

impl<H: Handler> Handler for Guest<H> {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let deliveries = Deliveries::detached([delivery.clone()]);
        self.in_its_worker(&deliveries, context, Handler::handle(&*self.handler, delivery, context)).await
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        let work = Handler::handle_all(&*self.handler, deliveries.clone(), context);
        self.in_its_worker(&deliveries, context, work).await
    }

    fn handles_all(&self, name: &str) -> bool {
        Handler::handles_all(&*self.handler, name)
    }
}

/// Measures the longest poll of a future.
struct Stretch<'a, F> {
    work: Pin<&'a mut F>,
    longest: &'a mut Duration,
}

impl<F: Future> Future for Stretch<'_, F> {
    type Output = F::Output;

    #[expect(clippy::disallowed_methods, reason = "a handler that blocks takes the machine's own time")]
    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        let began = Instant::now();
        let polled = self.work.as_mut().poll(context);
        *self.longest = (*self.longest).max(began.elapsed());
        polled
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no one panics while holding this")
}
