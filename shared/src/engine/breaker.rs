//! A circuit breaker for each source, in each worker process.
//!
//! An invocation ends with its slowest drain, so each start of a hanging handler
//! occupies a slot that other orders need. A source's breaker opens when three orders in
//! a row fail for reasons that are not their own. This process then starts none of the
//! source's handlers for a while. Afterwards a single start serves as the probe, and the
//! first success closes the breaker.
//!
//! [`Breaker`] is pure; a worker's drains share `Breakers`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::protocol::entity::{EntityKey, SourceName};

/// The number of different orders whose failures, without a success between, open a breaker. A
/// single poison order never does.
pub const ORDERS: usize = 3;

/// The first time that a breaker stays open; each failed probe doubles it.
pub const SHORTEST: Duration = Duration::from_secs(5);

/// The longest time that a breaker stays open, without jitter.
pub const LONGEST: Duration = Duration::from_secs(60);

/// A start seems to hang once it has run for this time and for twice as long as the
/// last success took.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The wait of a start that is refused because others seem to hang. The hanging starts serve
/// as probes.
const HANG_PAUSE: Duration = Duration::from_secs(2);

/// The longest wait of a refused start, as a multiple of the time that the breaker is
/// open.
const OPENINGS: u32 = 5;

/// A timeout that fires this much too late was delayed by a frozen process, and says
/// nothing about the handler.
const FROZEN: Duration = Duration::from_secs(1);

/// The result of a start, regarding the health of the source's handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartResult {
    /// The delivery was applied.
    Success,
    /// The handler timed out or its destination is unavailable: any delivery would have
    /// failed.
    Unwell,
    /// The handler answered with a failure that may be the delivery's own.
    Answered,
    /// The start was dropped before it ended.
    Unknown,
}

/// The answer to a request for a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Start, under this number.
    Start(u64),
    /// Wait at least `wait`, at most `longest`.
    NotNow {
        /// The time until the next start.
        wait: Duration,
        /// The longest wait that does not delay the source's recovery much.
        longest: Duration,
    },
}

/// The change of a breaker's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// No change.
    None,
    /// The breaker opened for this time.
    Opened(Duration),
    /// The breaker closed.
    Closed,
}

/// The breaker of a source. Times are by the monotonic clock; `fraction` (0.0 to 1.0) is
/// jitter.
#[derive(Debug, Default)]
pub struct Breaker {
    running: Vec<Running>,
    /// The orders that failed since the last success, in order.
    failing: Vec<EntityKey>,
    open: Option<Open>,
    last_success: Duration,
    /// The duration of the last success.
    usual: Duration,
    next: u64,
}

#[derive(Debug)]
struct Running {
    number: u64,
    entity: EntityKey,
    since: Duration,
    limit: Duration,
}

#[derive(Debug)]
struct Open {
    until: Duration,
    length: Duration,
    probe: Option<u64>,
}

impl Breaker {
    /// Requests a start of `entity` at `now`, which may take `limit`.
    pub fn admit(&mut self, entity: &EntityKey, now: Duration, limit: Duration, fraction: f64) -> Admission {
        let number = self.next;
        if self.open.is_none() && self.seems_to_hang(now) {
            let wait = spread(HANG_PAUSE / 2, fraction * 2.0);
            return Admission::NotNow { wait, longest: wait };
        }
        if let Some(open) = &mut self.open {
            let refused = |wait| Admission::NotNow { wait, longest: open.length * OPENINGS };
            if now < open.until {
                // Spread out: all but one would be refused again.
                return refused(open.until - now + open.length.mul_f64(fraction / 2.0));
            }
            if open.probe.is_some() {
                return refused(spread(open.length / 2, fraction * 2.0));
            }
            // The order that failed last may be at fault. It becomes the probe only if no other order asks
            // for a start.
            if self.failing.last() == Some(entity) && now < open.until + open.length {
                return refused(open.until + open.length - now);
            }
            open.probe = Some(number);
        }
        self.next += 1;
        self.running.push(Running { number, entity: entity.clone(), since: now, limit });
        Admission::Start(number)
    }

    /// Notes the result of a start.
    pub fn ended(&mut self, number: u64, now: Duration, result: StartResult, fraction: f64) -> Change {
        let Some(place) = self.running.iter().position(|running| running.number == number) else {
            return Change::None;
        };
        let Running { entity, since, limit, .. } = self.running.swap_remove(place);
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
                let length = match &self.open {
                    Some(open) if is_probe => open.length * 2,
                    None if self.failing.len() >= ORDERS => SHORTEST,
                    _ => return Change::None,
                };
                // Stay open at least as long as the probe took, so that an unwell source uses at most half of
                // the slots.
                self.open(now, length.max(took).min(LONGEST), fraction)
            }
            StartResult::Answered | StartResult::Unwell | StartResult::Unknown => Change::None,
        }
    }

    fn close(&mut self) -> Change {
        self.failing.clear();
        if self.open.take().is_some() { Change::Closed } else { Change::None }
    }

    fn open(&mut self, now: Duration, length: Duration, fraction: f64) -> Change {
        // From now on only the order that failed last counts.
        self.failing.drain(..self.failing.len() - 1);
        let lasts = spread(length, fraction);
        self.open = Some(Open { until: now + lasts, length, probe: None });
        Change::Opened(lasts)
    }

    /// Returns whether enough orders to open the breaker have failed or seem to hang.
    fn seems_to_hang(&self, now: Duration) -> bool {
        let patience = PATIENCE.max(self.usual * 2);
        let hangs = |running: &&Running| {
            let silent_for = now.saturating_sub(running.since.max(self.last_success));
            // A start beyond its limit was frozen together with this process.
            silent_for > patience && now.saturating_sub(running.since) <= running.limit + FROZEN
        };
        let is_new = |running: &&Running| !self.failing.contains(&running.entity);
        self.failing.len() + self.running.iter().filter(hangs).filter(is_new).count() >= ORDERS
    }
}

/// Adds up to half of `length`.
fn spread(length: Duration, fraction: f64) -> Duration {
    length.mul_f64(1.0 + fraction / 2.0)
}

#[derive(Debug, Default)]
struct Destination {
    breaker: Breaker,
    /// The time at which it was reported as unavailable.
    unavailable_since: Option<Duration>,
    /// The last failure.
    error: String,
}

/// The breakers of a worker's sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct Breakers(Arc<Mutex<BTreeMap<SourceName, Destination>>>);

impl Breakers {
    fn destinations(&self) -> MutexGuard<'_, BTreeMap<SourceName, Destination>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn admit(
        &self,
        source: &SourceName,
        entity: &EntityKey,
        now: Duration,
        limit: Duration,
        fraction: f64,
    ) -> Result<Ticket, Refused> {
        let mut destinations = self.destinations();
        let Destination { breaker, error, .. } = destinations.entry(source.clone()).or_default();
        match breaker.admit(entity, now, limit, fraction) {
            Admission::Start(number) => Ok(Ticket { breakers: self.clone(), source: source.clone(), number }),
            Admission::NotNow { wait, longest } => Err(Refused { wait, longest, error: error.clone() }),
        }
    }

    /// Stores the error of a failed start.
    pub(crate) fn failed(&self, source: &SourceName, error: &str) {
        error.clone_into(&mut self.destinations().entry(source.clone()).or_default().error);
    }

    /// Marks the destination unavailable, and returns whether it was available before.
    pub(crate) fn mark_unavailable(&self, source: &SourceName, now: Duration) -> bool {
        let mut destinations = self.destinations();
        let since = &mut destinations.entry(source.clone()).or_default().unavailable_since;
        since.replace(since.unwrap_or(now)).is_none()
    }

    /// Marks the destination available, and returns how long it was unavailable, if it was.
    pub(crate) fn mark_available(&self, source: &SourceName, now: Duration) -> Option<Duration> {
        let since = self.destinations().get_mut(source)?.unavailable_since.take()?;
        Some(now.saturating_sub(since))
    }
}

#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) wait: Duration,
    pub(crate) longest: Duration,
    /// The error of the source's last failure; empty if none of its starts has ended
    /// yet.
    pub(crate) error: String,
}

/// An admitted start. If it is dropped without a result, its result is unknown.
#[derive(Debug)]
pub(crate) struct Ticket {
    breakers: Breakers,
    source: SourceName,
    number: u64,
}

impl Ticket {
    pub(crate) fn ended(self, now: Duration, result: StartResult, fraction: f64) -> Change {
        self.end(now, result, fraction)
    }

    fn end(&self, now: Duration, result: StartResult, fraction: f64) -> Change {
        let mut destinations = self.breakers.destinations();
        let destination = destinations.get_mut(&self.source);
        destination.map_or(Change::None, |one| one.breaker.ended(self.number, now, result, fraction))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end(Duration::ZERO, StartResult::Unknown, 0.0);
    }
}

#[cfg(test)]
mod tests;
