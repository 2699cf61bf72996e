//! Runs a handler until it answers or its time is up.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;

use crate::{
    engine::threads::{Threads, Worked},
    handler::{AnyHandler, Context, Deliveries, Isolation, Outcome},
    traces,
};

/// Runs the handler until it answers, panics or times out. Returns `None` if the handler never
/// began.
pub(crate) async fn run(
    threads: &Threads,
    handler: Arc<dyn AnyHandler>,
    isolation: Isolation,
    deliveries: Deliveries,
    context: Context,
) -> Option<Outcome> {
    let time = context.time_left();
    let env = context.env().clone();
    let attempt = async move {
        let work = match &deliveries.0[..] {
            [delivery] => handler.handle(delivery, &context),
            _ => handler.handle_all(deliveries.clone(), &context),
        };
        let work = AssertUnwindSafe(work).catch_unwind();
        tokio::select! {
            biased;
            // Cancellation is polled first, so that a handler without time left does not begin.
            () = context.cancelled() => Outcome::retry("the handler was cancelled"),
            answer = work => match answer {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(error)) => Outcome::retry(error.to_string()),
                Err(_) => Outcome::retry("the handler panicked"),
            },
        }
    };
    match threads.begin(isolation, traces::in_current_context(attempt))?.within(time, &env).await {
        Worked::Answered(outcome) => Some(outcome),
        Worked::Died => Some(Outcome::retry("the handler's thread ended")),
        Worked::Late => Some(Outcome::unanswered("the handler's time was up")),
        Worked::NotBegun => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        time::Duration,
    };

    use super::*;
    use crate::{
        handler::{Canceller, Handler, HandlerError},
        handlers::sample,
        protocol::{
            delivery::Delivery,
            entity::{FencingToken, Sequence},
        },
        time::Env,
    };

    struct SetsFlag(Arc<AtomicBool>);

    impl Handler for SetsFlag {
        async fn handle(&self, _: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
            self.0.store(true, Relaxed);
            Ok(Outcome::Done)
        }
    }

    fn delivery() -> Deliveries {
        let incoming = sample::incoming("1");
        Deliveries(vec![Arc::new(Delivery::detached(incoming, Sequence(7)))])
    }

    async fn is_begun(isolation: Isolation, in_time: bool) -> bool {
        let begun = Arc::new(AtomicBool::new(false));
        let (canceller, context) = Canceller::start("test", FencingToken(1), Duration::MAX, Env::system());
        let canceller = in_time.then_some(canceller);
        run(&Threads::default(), Arc::new(SetsFlag(begun.clone())), isolation, delivery(), context).await;
        drop(canceller);
        begun.load(Relaxed)
    }

    #[tokio::test]
    async fn handler_is_not_begun_after_cancellation() {
        for isolation in [Isolation::Thread, Isolation::Inline] {
            assert!(is_begun(isolation, true).await, "{isolation:?}");
            assert!(!is_begun(isolation, false).await, "{isolation:?}");
        }
    }

    #[tokio::test]
    async fn handler_without_free_thread_has_no_outcome() {
        let begun = Arc::new(AtomicBool::new(false));
        let (_canceller, context) = Canceller::start("test", FencingToken(1), Duration::MAX, Env::system());
        let handler = Arc::new(SetsFlag(begun.clone()));
        let spent = Threads::spent();
        assert_eq!(run(&spent, handler, Isolation::Thread, delivery(), context).await, None);
        assert!(!begun.load(Relaxed));
    }
}
