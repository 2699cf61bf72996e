//! Asks the breaker of a source's destination whether a handler may start, and reports the result of the start.
//!
//! While this process knows that the destination is down, the outage's row decides instead of the breaker.

use std::time::Duration;

use super::Driver;
use crate::{
    engine::{
        breaker::{Admission, Asks, BreakerChange, StartResult, Ticket},
        drain::DrainError,
        outages::{Outages, Probe, ProbeRequest},
        store::StoreError,
    },
    handler::Outcome,
    protocol::format::one_line,
    sources::Source,
    telemetry::Event,
};

impl Driver<'_> {
    /// Asks for a start of the source.
    pub(super) async fn admit(&mut self, source: &Source) -> Result<Admission<Ticket>, DrainError> {
        // An order that goes on after an outage is one of many. Only an operator's retry may try sooner.
        let is_early = self.wake_up.outage.is_none() && self.drain.is_extra_attempt(self.now());
        let asks = if is_early { Asks::Operator } else { Asks::Schedule };
        let outages: &Outages = &self.drainer.outages;
        let Some(known) = outages.known(&source.destination().id) else {
            return Ok(self.ask_breaker(source, asks));
        };
        let entity = &self.drain.state().entity;
        match self.renewer.hold(outages.request_probe(source, entity, is_early)).await? {
            Ok(ProbeRequest::Granted(probe)) => {
                Ok(self.ask_breaker(source, Asks::Probe).map(|ticket| ticket.probing(probe)))
            }
            Ok(ProbeRequest::Refused(outage)) => Ok(Admission::NotNow(outages.refused_wait(&outage))),
            Err(StoreError::Unavailable(_)) => Ok(Admission::NotNow(outages.refused_wait(&known))),
            // If the row cannot be read, this process's own breaker decides.
            Ok(ProbeRequest::Up) | Err(StoreError::Corrupt(_) | StoreError::Invalid(_)) => {
                Ok(self.ask_breaker(source, asks))
            }
        }
    }

    fn ask_breaker(&self, source: &Source, asks: Asks) -> Admission<Ticket> {
        self.close_breaker(source);
        let fraction = self.drainer.store.env().fraction();
        let limit = source.handler_timeout;
        let entity = &self.drain.state().entity;
        let destination = &source.destination().id;
        self.drainer.breakers.admit(destination, entity, asks, self.monotonic(), limit, fraction)
    }

    /// Closes the breaker if the outage during which it opened has ended.
    fn close_breaker(&self, source: &Source) {
        if self.drainer.outages.take_end(&source.destination().id)
            && self.drainer.breakers.close(&source.destination().id) == BreakerChange::Closed
        {
            self.drainer.observer.observe(&Event::BreakerClosed { source: &source.name });
        }
    }

    /// Reports the result of a start to the breaker, and to all processes if an outage has begun or ended.
    pub(super) async fn report(
        &mut self,
        ticket: Ticket,
        source: &Source,
        outcome: &Outcome,
        took: Duration,
    ) -> Result<(), DrainError> {
        let name = &source.name;
        let now = self.monotonic();
        let breakers = &self.drainer.breakers;
        let probe = ticket.probe().cloned();
        let result = match outcome {
            Outcome::Done | Outcome::Commit(_) => StartResult::Success,
            Outcome::Retry { .. } | Outcome::Reject(_) => StartResult::Answered,
            Outcome::Unanswered { .. } | Outcome::Unavailable { .. } | Outcome::NotNow { .. } => StartResult::Unwell,
        };
        let fraction = self.drainer.store.env().fraction();
        let change = ticket.ended(now, result, fraction);
        match change {
            BreakerChange::None => {}
            BreakerChange::Opened(wait) => {
                self.drainer.observer.observe(&Event::BreakerOpened { source: name, wait });
                if let Some(error) = unwell(outcome) {
                    let is_hung = matches!(outcome, Outcome::Unanswered { .. });
                    self.report_unavailable(source, is_hung, &one_line(error));
                }
            }
            BreakerChange::Closed => self.drainer.observer.observe(&Event::BreakerClosed { source: name }),
        }
        if result == StartResult::Success
            && let Some(after) = breakers.mark_available(&source.destination().id, now)
        {
            self.drainer.observer.observe(&Event::DestinationAvailable { source: name, after });
        }
        let is_news = matches!(change, BreakerChange::Opened(_)) && is_down(outcome);
        self.share(source, outcome, probe, is_news, took).await
    }

    /// Reports to all processes that an outage has begun, goes on or has ended. `is_news` says that the start shows
    /// the destination down.
    async fn share(
        &mut self,
        source: &Source,
        outcome: &Outcome,
        probe: Option<Probe>,
        is_news: bool,
        took: Duration,
    ) -> Result<(), DrainError> {
        let destination = source.destination();
        let outages: &Outages = &self.drainer.outages;
        let is_known = outages.known(&destination.id).is_some();
        let is_success = matches!(outcome, Outcome::Done | Outcome::Commit(_));
        match unwell(outcome) {
            None if is_known && (is_success || probe.is_some()) => {
                self.renewer.hold(outages.report_up(destination)).await?;
                self.close_breaker(source);
            }
            Some(error) if probe.is_some() || is_news && !is_known => {
                let entity = &self.drain.state().entity;
                let report = outages.report_failure(destination, probe.as_ref(), entity, error, took);
                self.renewer.hold(report).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reports that the source's destination is unavailable, unless this process has reported so
    /// since the destination's last success.
    pub(super) fn report_unavailable(&self, source: &Source, is_hung: bool, error: &str) {
        if self.drainer.breakers.mark_unavailable(&source.destination().id, self.monotonic()) {
            self.drainer.observer.observe(&Event::DestinationUnavailable { source: &source.name, is_hung, error });
        }
    }
}

/// Returns the error of a start that the destination did not answer, or had no capacity for.
fn unwell(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Unanswered { error, .. } | Outcome::Unavailable { error, .. } | Outcome::NotNow { error, .. } => {
            Some(error)
        }
        Outcome::Done | Outcome::Commit(_) | Outcome::Retry { .. } | Outcome::Reject(_) => None,
    }
}

/// Returns whether the destination is down. A destination that asks for a wait is up, and has no capacity.
fn is_down(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Unanswered { after, .. } | Outcome::Unavailable { after, .. } => after.is_none(),
        _ => false,
    }
}
