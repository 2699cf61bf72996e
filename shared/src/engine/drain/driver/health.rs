//! Whether a source's handler is well, as its breaker is asked and told.

use std::time::Duration;

use super::Driver;
use crate::{
    engine::breaker::{Change, Ending, Ticket},
    handler::Outcome,
    sources::Source,
    telemetry::Event,
};

impl Driver<'_> {
    /// Asks for a start; refused, how long to put it off.
    pub(super) fn admitted(&self, source: &Source) -> Result<Ticket, Duration> {
        let fraction = self.drainer.store.surroundings().fraction();
        let limit = source.handler_timeout;
        self.drainer.breakers.admit(&source.name, &self.drain.state().entity, self.monotonic(), limit, fraction)
    }

    /// Tells how the start ended.
    pub(super) fn report(&self, ticket: Ticket, source: &Source, outcome: &Outcome) {
        let ending = match outcome {
            Outcome::Done | Outcome::Commit(_) => Ending::Success,
            Outcome::Retry { .. } | Outcome::Reject(_) => Ending::Answered,
            Outcome::Unavailable { .. } | Outcome::NotNow { .. } => Ending::Unwell,
        };
        let fraction = self.drainer.store.surroundings().fraction();
        let source = &source.name;
        let event = match ticket.ended(self.monotonic(), ending, fraction) {
            Change::None => return,
            Change::Opened(wait) => Event::BreakerOpened { source, wait },
            Change::Closed => Event::BreakerClosed { source },
        };
        self.drainer.observer.observe(&event);
    }
}
