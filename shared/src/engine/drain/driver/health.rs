//! Whether a source's handler is well, as its breaker is asked and told.

use super::Driver;
use crate::{
    engine::breaker::{Change, Ending, Refused, Ticket},
    handler::Outcome,
    protocol::{entity::SourceName, format::one_line},
    sources::Source,
    telemetry::Event,
};

impl Driver<'_> {
    /// Asks for a start; refused, for how long.
    pub(super) fn admitted(&self, source: &Source) -> Result<Ticket, Refused> {
        let fraction = self.drainer.store.env().fraction();
        let limit = source.handler_timeout;
        self.drainer.breakers.admit(&source.name, &self.drain.state().entity, self.monotonic(), limit, fraction)
    }

    /// Tells how the start ended.
    pub(super) fn report(&self, ticket: Ticket, source: &Source, outcome: &Outcome) {
        let (name, now, breakers) = (&source.name, self.monotonic(), &self.drainer.breakers);
        let ending = match outcome {
            Outcome::Done | Outcome::Commit(_) => Ending::Success,
            Outcome::Retry { .. } | Outcome::Reject(_) => Ending::Answered,
            Outcome::Unanswered { error, .. } | Outcome::Unavailable { error, .. } | Outcome::NotNow { error, .. } => {
                breakers.failed(name, &one_line(error));
                Ending::Unwell
            }
        };
        let fraction = self.drainer.store.env().fraction();
        match ticket.ended(now, ending, fraction) {
            Change::None => {}
            Change::Opened(wait) => {
                self.drainer.observer.observe(&Event::BreakerOpened { source: name, wait });
                if let Outcome::Unanswered { error, .. }
                | Outcome::Unavailable { error, .. }
                | Outcome::NotNow { error, .. } = outcome
                {
                    self.is_unavailable(name, &one_line(error));
                }
            }
            Change::Closed => self.drainer.observer.observe(&Event::BreakerClosed { source: name }),
        }
        if ending == Ending::Success
            && let Some(after) = breakers.available(name, now)
        {
            self.drainer.observer.observe(&Event::DestinationAvailable { source: name, after });
        }
    }

    /// Reports that the source's destination is unavailable, where this process has
    /// not done so.
    pub(super) fn is_unavailable(&self, source: &SourceName, error: &str) {
        if self.drainer.breakers.unavailable(source, self.monotonic()) {
            self.drainer.observer.observe(&Event::DestinationUnavailable { source, error });
        }
    }
}
