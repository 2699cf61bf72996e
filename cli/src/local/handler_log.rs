//! A log of handler starts, kept by the handler itself and independent of the rows.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::watch;
use webhook_serializer::{
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, FencingToken, Sequence},
    },
    time::Env,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    Applied,
    Retry,
    Rejected,
    /// The handler's future was dropped before the handler returned.
    Dropped,
}

#[derive(Debug, Clone)]
pub struct LoggedRun {
    pub entity: EntityKey,
    pub delivery_id: String,
    pub sequence: Sequence,
    pub token: FencingToken,
    pub attempt: u32,
    pub received_at: webhook_serializer::time::Timestamp,
    pub started_at: webhook_serializer::time::Timestamp,
    /// The start of the handler, by the monotonic clock.
    pub started: Duration,
    /// The end of the handler, by the monotonic clock.
    pub ended: Duration,
    pub ending: RunEnd,
}

#[derive(Debug, Clone)]
pub struct Journal {
    starts: watch::Sender<Vec<EntityKey>>,
    runs: Arc<Mutex<Vec<LoggedRun>>>,
    applied: watch::Sender<usize>,
    env: Env,
}

impl Journal {
    pub fn new(env: Env) -> Self {
        Self { starts: watch::Sender::default(), runs: Arc::default(), applied: watch::Sender::new(0), env }
    }

    pub fn starts(&self) -> Vec<EntityKey> {
        self.starts.borrow().clone()
    }

    pub async fn until_started(&self, count: usize) {
        let mut starts = self.starts.subscribe();
        // `self` owns the sender, so the channel is open.
        let _ = starts.wait_for(|starts| starts.len() >= count).await;
    }

    pub fn runs(&self) -> Vec<LoggedRun> {
        self.runs.lock().expect("no one panics while holding this").clone()
    }

    pub fn now(&self) -> Duration {
        self.env.monotonic()
    }

    pub fn applied(&self) -> watch::Receiver<usize> {
        self.applied.subscribe()
    }

    pub async fn until_applied(&self, count: usize) {
        let mut applied = self.applied.subscribe();
        // `self` owns the sender, so the channel is open.
        let _ = applied.wait_for(|applied| *applied >= count).await;
    }

    fn end(&self, run: LoggedRun) {
        let applied = run.ending == RunEnd::Applied;
        self.runs.lock().expect("no one panics while holding this").push(run);
        if applied {
            self.applied.send_modify(|applied| *applied += 1);
        }
    }
}

#[derive(Debug, Clone)]
pub struct Journaled<H> {
    handler: H,
    journal: Journal,
}

impl<H> Journaled<H> {
    pub fn new(handler: H, journal: Journal) -> Self {
        Self { handler, journal }
    }
}

impl<H> Journaled<H> {
    fn starts(&self, delivery: &Delivery) {
        self.journal.starts.send_modify(|starts| starts.push(delivery.entity().clone()));
    }

    fn begin(&self, delivery: &Delivery, context: &Context) -> JournalEntry<'_> {
        let journal = &self.journal;
        let started = journal.now();
        let run = LoggedRun {
            entity: delivery.entity().clone(),
            delivery_id: delivery.delivery_id().to_string(),
            sequence: delivery.sequence(),
            token: context.token(),
            attempt: delivery.attempt(),
            received_at: delivery.received_at(),
            started_at: journal.env.now(),
            started,
            ended: started,
            ending: RunEnd::Dropped,
        };
        JournalEntry { journal, run: Some(run) }
    }
}

struct JournalEntry<'a> {
    journal: &'a Journal,
    run: Option<LoggedRun>,
}

impl JournalEntry<'_> {
    fn ends(&mut self, answer: &Result<Outcome, HandlerError>) {
        if let Some(run) = &mut self.run {
            run.ending = match answer {
                Ok(Outcome::Done | Outcome::Commit(_)) => RunEnd::Applied,
                Ok(
                    Outcome::Retry { .. }
                    | Outcome::Unanswered { .. }
                    | Outcome::Unavailable { .. }
                    | Outcome::NotNow { .. },
                )
                | Err(_) => RunEnd::Retry,
                Ok(Outcome::Reject(_)) => RunEnd::Rejected,
            };
        }
    }
}

impl Drop for JournalEntry<'_> {
    fn drop(&mut self) {
        if let Some(mut run) = self.run.take() {
            run.ended = self.journal.now();
            self.journal.end(run);
        }
    }
}

impl<H: Handler> Handler for Journaled<H> {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        self.starts(delivery);
        let mut line = self.begin(delivery, context);
        let answer = self.handler.handle(delivery, context).await;
        line.ends(&answer);
        answer
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        self.starts(deliveries.first());
        let mut lines: Vec<JournalEntry<'_>> =
            deliveries.iter().map(|delivery| self.begin(delivery, context)).collect();
        let answer = self.handler.handle_all(deliveries, context).await;
        lines.iter_mut().for_each(|line| line.ends(&answer));
        answer
    }

    fn answers_to(&self, name: &str) -> bool {
        self.handler.answers_to(name)
    }

    fn names(&self) -> Vec<&str> {
        self.handler.names()
    }

    fn handles_all(&self, name: &str) -> bool {
        self.handler.handles_all(name)
    }

    fn runs_elsewhere(&self, name: &str) -> bool {
        self.handler.runs_elsewhere(name)
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::sources::Sources;

    use super::*;
    use crate::local::samples::{SHOPIFY, SOURCES};

    struct StuckHandler;

    impl Handler for StuckHandler {
        async fn handle(&self, _: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
            std::future::pending().await
        }
    }

    #[test]
    fn handler_start_is_counted_before_the_handler_ends() {
        let env = Env::system();
        let sources = Sources::parse(SOURCES).expect("the samples' own");
        let webhook = SHOPIFY[0].of_order("1", &sources, env.now());
        let delivery = Delivery::detached(webhook.incoming, Sequence(1));
        let context = Context::detached(FencingToken(1), Duration::from_secs(1), env.clone());
        let journal = Journal::new(env);
        let handler = Journaled::new(StuckHandler, journal.clone());
        let mut handling = std::pin::pin!(handler.handle(&delivery, &context));
        let mut waking = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(handling.as_mut().poll(&mut waking).is_pending());
        assert_eq!((journal.starts().len(), journal.runs().len()), (1, 0));
    }
}
