//! Asks a source's breaker whether a handler may start, and reports the result of the start.

use std::time::Duration;

use super::Driver;
use crate::{
    engine::breaker::{Asks, BreakerChange, StartResult, Ticket},
    handler::Outcome,
    protocol::{entity::SourceName, format::one_line},
    sources::Source,
    telemetry::Event,
};

impl Driver<'_> {
    /// Asks the source's breaker for a start. Returns the wait if the breaker refuses.
    pub(super) fn admit(&self, source: &Source) -> Result<Ticket, Duration> {
        let fraction = self.drainer.store.env().fraction();
        let limit = source.handler_timeout;
        let asks = if self.drain.is_extra_attempt(self.now()) { Asks::Operator } else { Asks::Schedule };
        let entity = &self.drain.state().entity;
        self.drainer.breakers.admit(&source.name, entity, asks, self.monotonic(), limit, fraction)
    }

    pub(super) fn report(&self, ticket: Ticket, source: &Source, outcome: &Outcome) {
        let name = &source.name;
        let now = self.monotonic();
        let breakers = &self.drainer.breakers;
        let result = match outcome {
            Outcome::Done | Outcome::Commit(_) => StartResult::Success,
            Outcome::Retry { .. } | Outcome::Reject(_) => StartResult::Answered,
            Outcome::Unanswered { .. } | Outcome::Unavailable { .. } | Outcome::NotNow { .. } => StartResult::Unwell,
        };
        let fraction = self.drainer.store.env().fraction();
        match ticket.ended(now, result, fraction) {
            BreakerChange::None => {}
            BreakerChange::Opened(wait) => {
                self.drainer.observer.observe(&Event::BreakerOpened { source: name, wait });
                if let Outcome::Unanswered { error, .. }
                | Outcome::Unavailable { error, .. }
                | Outcome::NotNow { error, .. } = outcome
                {
                    let is_hung = matches!(outcome, Outcome::Unanswered { .. });
                    self.report_unavailable(name, is_hung, &one_line(error));
                }
            }
            BreakerChange::Closed => self.drainer.observer.observe(&Event::BreakerClosed { source: name }),
        }
        if result == StartResult::Success
            && let Some(after) = breakers.mark_available(name, now)
        {
            self.drainer.observer.observe(&Event::DestinationAvailable { source: name, after });
        }
    }

    /// Reports that the source's destination is unavailable, unless this process has reported so
    /// since the destination's last success.
    pub(super) fn report_unavailable(&self, source: &SourceName, is_hung: bool, error: &str) {
        if self.drainer.breakers.mark_unavailable(source, self.monotonic()) {
            self.drainer.observer.observe(&Event::DestinationUnavailable { source, is_hung, error });
        }
    }
}
