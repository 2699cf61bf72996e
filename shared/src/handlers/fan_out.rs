//! The handler `fan-out`, which appends each delivery to every source that gets its deliveries from the delivery's own
//! source.
//!
//! A start appends the copies concurrently and succeeds once all are stored. Otherwise it is unavailable, and its retry
//! appends all of them again: a subscriber that has its copy settles the second one as a repeat, because both have the
//! same identity. So one order's copies are in the order of the originals.

use futures_util::future::join_all;

use crate::{
    engine::append::{ANSWERED, Inbox},
    handler::{Context, Handler, HandlerError, Outcome},
    protocol::delivery::Delivery,
    sources::{FAN_OUT, LiveSources, SubscriberCopy},
};

/// The handler `fan-out`. It keeps no state.
#[derive(Debug, Clone)]
pub struct FanOut {
    sources: LiveSources,
    inbox: Inbox,
}

impl FanOut {
    #[doc(hidden)]
    pub fn new(sources: impl Into<LiveSources>, inbox: Inbox) -> Self {
        Self { sources: sources.into(), inbox }
    }

    async fn append(&self, copy: &SubscriberCopy) -> Option<String> {
        let appended = self.inbox.append_copy(copy, ANSWERED).await;
        appended.err().map(|error| format!("{} did not get it: {error}", copy.incoming.identity.source))
    }
}

impl Handler for FanOut {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let sources = self.sources.current();
        let source = sources.get(delivery.source().as_str()).filter(|source| source.handler == FAN_OUT);
        // The worker chose this handler by an earlier document. To settle now would lose the delivery.
        let Some(source) = source else { return Ok(Outcome::not_now("the source's handler has just changed")) };
        let now = context.env().now();
        let copies: Vec<_> =
            sources.subscribers(&source.name).filter_map(|subscriber| subscriber.copy(delivery, now)).collect();
        let failures: Vec<String> =
            join_all(copies.iter().map(|copy| self.append(copy))).await.into_iter().flatten().collect();
        Ok(match failures.as_slice() {
            [] => Outcome::Done,
            failures => Outcome::unavailable(failures.join("; ")),
        })
    }

    fn answers_to(&self, name: &str) -> bool {
        name == FAN_OUT
    }
}
