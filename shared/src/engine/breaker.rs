//! A circuit breaker for each destination, in each worker process.
//!
//! An invocation lasts as long as its slowest drain, so a handler that hangs keeps the worker from
//! other entities. A source's breaker opens when three entities fail, without a success in between,
//! because the handler gives no answer, or its destination is unavailable or has no capacity. This
//! process then starts none of the source's handlers for a while. Afterwards it starts one handler
//! at a time, as a probe. Any answer to a probe closes the breaker, and so does the success of an
//! earlier start. After a failed probe, the breaker opens again, for longer.
//!
//! [`Breaker`] decides without side effects. All drains of a worker share one `Breakers`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::outages::Probe;
use crate::protocol::{entity::EntityKey, outage::DestinationId};

/// The number of different entities that must fail, without a success of the source in between, to
/// open its breaker.
///
/// So a single entity that always fails opens no breaker.
pub const ORDERS: usize = 3;

/// The time that a breaker stays open at first, without jitter. Each failed probe doubles it.
pub const SHORTEST: Duration = Duration::from_secs(5);

/// The longest time that a breaker stays open, without jitter.
pub const LONGEST: Duration = Duration::from_secs(60);

/// The shortest time after which a running handler seems to hang, if its source has had no success
/// in that time.
///
/// The time counts from the handler's start or the source's last success, whichever is later. If
/// twice the duration of the source's last successful run is longer, this longer time applies.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The longest wait of a start that is refused because running handlers seem to hang.
///
/// The wait is short, because one success shows that the source's handlers do not hang.
const HANG_PAUSE: Duration = Duration::from_secs(2);

/// The longest wait that a refused start gets in addition, as a multiple of the breaker's open time.
///
/// A longer wait would delay the delivery after the source has recovered.
const OPENINGS: u32 = 4;

/// The shortest time between a failed probe and an operator's probe.
const EARLY: Duration = Duration::from_secs(1);

/// The most that a start may exceed its handler's timeout and still count as a failure.
///
/// A start that takes even longer shows that the process was frozen, not that the handler hangs.
const FROZEN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartResult {
    Success,
    /// The handler gave no answer, or its destination was unavailable or had no capacity. Other
    /// deliveries would probably have failed too.
    Unwell,
    /// The handler answered with a failure, which the delivery itself may have caused.
    Answered,
    /// The start was dropped before the handler ended.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission<S> {
    /// The handler may start. Contains the identity of the start, with which its end is reported.
    Start(S),
    /// The drain may ask for this start again after this time.
    NotNow(Duration),
}

impl<S> Admission<S> {
    pub(crate) fn map<T>(self, identify: impl FnOnce(S) -> T) -> Admission<T> {
        match self {
            Self::Start(start) => Admission::Start(identify(start)),
            Self::NotNow(wait) => Admission::NotNow(wait),
        }
    }
}

/// The origin of a request for a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    Schedule,
    /// An operator has ended the delivery's wait. The start may be a probe before the breaker's open time is over.
    Operator,
    /// The start is the probe that this process has claimed for all processes.
    Probe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerChange {
    None,
    Opened(Duration),
    Closed,
}

/// The circuit breaker of one source.
///
/// All times are by the monotonic clock. The parameter `fraction` is a random number from 0.0 to
/// 1.0, for jitter.
#[derive(Debug, Default)]
pub struct Breaker {
    running: Vec<RunningStart>,
    /// The entities that failed since the source's last success, oldest failure first. When the
    /// breaker opens, only the newest stays.
    failing: Vec<EntityKey>,
    open: Option<Open>,
    last_success: Duration,
    /// The time that the source's handler took when it last succeeded.
    usual: Duration,
    next: u64,
}

#[derive(Debug)]
struct RunningStart {
    number: u64,
    entity: EntityKey,
    since: Duration,
    limit: Duration,
}

#[derive(Debug)]
struct Open {
    /// The time at which the breaker opened, after a time in which it was closed.
    since: Duration,
    until: Duration,
    length: Duration,
    probe: Option<u64>,
    /// The time of the latest failure of a probe, or of the failure that opened the breaker.
    failed: Duration,
}

impl Open {
    /// Returns the wait of a start that is refused at `now` and cannot be admitted before `least` has
    /// passed.
    ///
    /// The longer the source has been unwell, the longer most starts wait: only a few are needed as
    /// probes. If all came at once, all but one would be refused again.
    fn refused(&self, least: Duration, now: Duration, fraction: f64) -> Admission<u64> {
        let unwell_for = now.saturating_sub(self.since).min(self.length * OPENINGS);
        Admission::NotNow(least + (self.length / 2).max(unwell_for).mul_f64(fraction))
    }
}

impl Breaker {
    /// Decides whether a handler may start for `entity` at `now`. `limit` is the handler's timeout.
    pub fn admit(
        &mut self,
        entity: &EntityKey,
        asks: Asks,
        now: Duration,
        limit: Duration,
        fraction: f64,
    ) -> Admission<u64> {
        let number = self.next;
        if self.open.is_none() && asks != Asks::Probe && self.seems_to_hang(now) {
            return Admission::NotNow(spread(HANG_PAUSE / 2, fraction * 2.0));
        }
        if let Some(open) = &mut self.open {
            let is_early = match asks {
                Asks::Schedule => false,
                Asks::Operator => now >= open.failed + EARLY,
                Asks::Probe => true,
            };
            if now < open.until && !is_early {
                return open.refused(open.until - now, now, fraction);
            }
            if open.probe.is_some() {
                return open.refused(open.length / 2, now, fraction);
            }
            // The entity that failed last may itself be the cause. It becomes the probe only if no other
            // entity asks for a start.
            if self.failing.last() == Some(entity) && now < open.until + open.length && !is_early {
                return Admission::NotNow(open.until + open.length - now);
            }
            open.probe = Some(number);
        }
        self.next += 1;
        self.running.push(RunningStart { number, entity: entity.clone(), since: now, limit });
        Admission::Start(number)
    }

    pub fn ended(&mut self, number: u64, now: Duration, result: StartResult, fraction: f64) -> BreakerChange {
        let Some(place) = self.running.iter().position(|running| running.number == number) else {
            return BreakerChange::None;
        };
        let RunningStart { entity, since, limit, .. } = self.running.swap_remove(place);
        let took = now.saturating_sub(since);
        let is_probe = self.open.as_mut().is_some_and(|open| open.probe.take_if(|probe| *probe == number).is_some());
        match result {
            StartResult::Success => {
                (self.last_success, self.usual) = (now, took);
                self.close()
            }
            StartResult::Answered if is_probe => self.close(),
            StartResult::Unwell if took <= limit + FROZEN => {
                self.failing.retain(|failing| *failing != entity);
                self.failing.push(entity);
                let length = match &mut self.open {
                    Some(open) if is_probe && since < open.until => {
                        open.failed = now;
                        self.failing.drain(..self.failing.len() - 1);
                        return BreakerChange::None;
                    }
                    Some(open) if is_probe => open.length * 2,
                    None if self.failing.len() >= ORDERS => SHORTEST,
                    _ => return BreakerChange::None,
                };
                // Stay open at least as long as the failed start took. So the probes of an unwell source occupy
                // a slot for at most half of the time.
                self.open(now, length.max(took).min(LONGEST), fraction)
            }
            StartResult::Answered | StartResult::Unwell | StartResult::Unknown => BreakerChange::None,
        }
    }

    /// Closes the breaker, because the destination is up again.
    pub fn close(&mut self) -> BreakerChange {
        self.failing.clear();
        if self.open.take().is_some() { BreakerChange::Closed } else { BreakerChange::None }
    }

    fn open(&mut self, now: Duration, length: Duration, fraction: f64) -> BreakerChange {
        // `admit` needs only the entity that failed last, to choose the probe.
        self.failing.drain(..self.failing.len() - 1);
        let lasts = spread(length, fraction);
        let since = self.open.take().map_or(now, |open| open.since);
        self.open = Some(Open { since, until: now + lasts, length, probe: None, failed: now });
        BreakerChange::Opened(lasts)
    }

    fn seems_to_hang(&self, now: Duration) -> bool {
        let patience = PATIENCE.max(self.usual * 2);
        let hangs = |running: &&RunningStart| {
            let silent_for = now.saturating_sub(running.since.max(self.last_success));
            // A start that outlasts its limit was frozen together with this process.
            silent_for > patience && now.saturating_sub(running.since) <= running.limit + FROZEN
        };
        let is_new = |running: &&RunningStart| !self.failing.contains(&running.entity);
        self.failing.len() + self.running.iter().filter(hangs).filter(is_new).count() >= ORDERS
    }
}

fn spread(length: Duration, fraction: f64) -> Duration {
    length.mul_f64(1.0 + fraction / 2.0)
}

#[derive(Debug, Default)]
struct DestinationHealth {
    breaker: Breaker,
    unavailable_since: Option<Duration>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Breakers(Arc<Mutex<BTreeMap<DestinationId, DestinationHealth>>>);

impl Breakers {
    fn destinations(&self) -> MutexGuard<'_, BTreeMap<DestinationId, DestinationHealth>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn admit(
        &self,
        destination: &DestinationId,
        entity: &EntityKey,
        asks: Asks,
        now: Duration,
        limit: Duration,
        fraction: f64,
    ) -> Admission<Ticket> {
        let mut destinations = self.destinations();
        let DestinationHealth { breaker, .. } = destinations.entry(destination.clone()).or_default();
        let admission = breaker.admit(entity, asks, now, limit, fraction);
        admission.map(|number| Ticket { breakers: self.clone(), destination: destination.clone(), number, probe: None })
    }

    /// Closes the destination's breaker, because another process has found the destination up.
    pub(crate) fn close(&self, destination: &DestinationId) -> BreakerChange {
        let mut destinations = self.destinations();
        destinations.get_mut(destination).map_or(BreakerChange::None, |one| one.breaker.close())
    }

    /// Marks the destination unavailable. Returns whether it was available before.
    pub(crate) fn mark_unavailable(&self, destination: &DestinationId, now: Duration) -> bool {
        let mut destinations = self.destinations();
        let since = &mut destinations.entry(destination.clone()).or_default().unavailable_since;
        since.replace(since.unwrap_or(now)).is_none()
    }

    /// Marks the destination available. Returns how long it was unavailable,
    /// or `None` if it was available.
    pub(crate) fn mark_available(&self, destination: &DestinationId, now: Duration) -> Option<Duration> {
        let since = self.destinations().get_mut(destination)?.unavailable_since.take()?;
        Some(now.saturating_sub(since))
    }
}

/// An admitted start of a handler. Dropping the ticket records the start's result as unknown.
#[derive(Debug)]
pub(crate) struct Ticket {
    breakers: Breakers,
    destination: DestinationId,
    number: u64,
    /// Set if the start tries for all processes whether the destination is up again.
    probe: Option<Probe>,
}

impl Ticket {
    #[must_use]
    pub(crate) fn probing(self, probe: Probe) -> Self {
        let mut ticket = self;
        ticket.probe = Some(probe);
        ticket
    }

    pub(crate) fn probe(&self) -> Option<&Probe> {
        self.probe.as_ref()
    }

    pub(crate) fn ended(self, now: Duration, result: StartResult, fraction: f64) -> BreakerChange {
        self.end(now, result, fraction)
    }

    fn end(&self, now: Duration, result: StartResult, fraction: f64) -> BreakerChange {
        let mut destinations = self.breakers.destinations();
        let destination = destinations.get_mut(&self.destination);
        destination.map_or(BreakerChange::None, |one| one.breaker.ended(self.number, now, result, fraction))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end(Duration::ZERO, StartResult::Unknown, 0.0);
    }
}

#[cfg(test)]
mod tests;
