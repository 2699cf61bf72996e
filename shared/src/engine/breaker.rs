//! A circuit breaker for each source, in each worker process.
//!
//! An invocation returns when its slowest drain does, so that every start of a
//! handler that hangs keeps a slot from everybody else. Three orders in a row
//! that fail for the handler's sake and not for their own open the source's
//! breaker: nothing of that source starts in this process for a while, then one
//! start tries whether it is well again, and the first success closes it.
//!
//! [`Breaker`] is pure. `Breakers` is the one that a worker's drains share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::protocol::entity::{EntityKey, SourceName};

/// So many different orders, with no success between, open a breaker: one
/// poison order never does.
pub const ORDERS: usize = 3;

/// How long a breaker stays open at first; each probe that fails doubles it.
pub const SHORTEST: Duration = Duration::from_secs(5);

/// No breaker stays open for longer, but for what chance adds.
pub const LONGEST: Duration = Duration::from_secs(60);

/// A start that runs for longer than this, and for more than twice as long as
/// the last success took, seems to hang.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// For how long starts are put off that meet others that seem to hang. Those
/// are the probes: the first that ends shows what is the matter.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Nothing of a source that is held back waits for more than so many times as long
/// as its breaker is open.
const OPENINGS: u32 = 5;

/// A time-out that comes this much too late has been through a freeze, and
/// says nothing of the handler.
const FROZEN: Duration = Duration::from_secs(1);

/// How a start ended, as far as the health of its source's handler goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The delivery was applied.
    Success,
    /// The handler gave no answer in time, or said that what it needs is out of
    /// reach: any delivery would have failed in the same way.
    Unwell,
    /// It answered, if with a failure: that may be the delivery's own.
    Answered,
    /// Nobody knows: it was dropped before it ended.
    Unknown,
}

/// Whether a start may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is made, and has this number.
    Start(u64),
    /// Not before `wait`. Who waits longer than that is to come within `longest`.
    NotNow {
        /// Until the next start may be made.
        wait: Duration,
        /// The longest wait that loses little once the source is well.
        longest: Duration,
    },
}

/// What an ending changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing that anybody need know.
    None,
    /// It is open for so long.
    Opened(Duration),
    /// It is closed again.
    Closed,
}

/// One source's breaker. Times are by the process's own clock; `fraction` (0.0
/// to 1.0) is chance.
#[derive(Debug, Default)]
pub struct Breaker {
    running: Vec<Running>,
    /// Orders that failed since the last success, the last one last.
    failing: Vec<EntityKey>,
    open: Option<Open>,
    last_success: Duration,
    /// How long that took.
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
    /// Asks for a start of `entity` at `now`, which may take `limit`.
    pub fn admit(&mut self, entity: &EntityKey, now: Duration, limit: Duration, fraction: f64) -> Admission {
        let number = self.next;
        if self.open.is_none() && self.seems_to_hang(now) {
            let wait = spread(LOOK_AGAIN / 2, fraction * 2.0);
            return Admission::NotNow { wait, longest: wait };
        }
        if let Some(open) = &mut self.open {
            let refused = |wait| Admission::NotNow { wait, longest: open.length * OPENINGS };
            if now < open.until {
                // Not all at the same moment: but one they would only be put off again.
                return refused(open.until - now + open.length.mul_f64(fraction / 2.0));
            }
            if open.probe.is_some() {
                return refused(spread(open.length / 2, fraction * 2.0));
            }
            // Whoever failed last may be what is wrong. It gets its turn where nobody else comes.
            if self.failing.last() == Some(entity) && now < open.until + open.length {
                return refused(open.until + open.length - now);
            }
            open.probe = Some(number);
        }
        self.next += 1;
        self.running.push(Running { number, entity: entity.clone(), since: now, limit });
        Admission::Start(number)
    }

    /// A start ended.
    pub fn ended(&mut self, number: u64, now: Duration, ending: Ending, fraction: f64) -> Change {
        let Some(place) = self.running.iter().position(|running| running.number == number) else {
            return Change::None;
        };
        let Running { entity, since, limit, .. } = self.running.swap_remove(place);
        let took = now.saturating_sub(since);
        let is_probe = self.open.as_mut().is_some_and(|open| open.probe.take_if(|probe| *probe == number).is_some());
        match ending {
            Ending::Success => {
                (self.last_success, self.usual) = (now, took);
                self.close()
            }
            Ending::Answered if is_probe => self.close(),
            Ending::Unwell if took <= limit + FROZEN => {
                self.failing.retain(|failing| *failing != entity);
                self.failing.push(entity);
                let length = match &self.open {
                    Some(open) if is_probe => open.length * 2,
                    None if self.failing.len() >= ORDERS => SHORTEST,
                    _ => return Change::None,
                };
                // Never shorter than what it costs to try: a source that is unwell has half of the slots at most.
                self.open(now, length.max(took).min(LONGEST), fraction)
            }
            Ending::Answered | Ending::Unwell | Ending::Unknown => Change::None,
        }
    }

    fn close(&mut self) -> Change {
        self.failing.clear();
        if self.open.take().is_some() { Change::Closed } else { Change::None }
    }

    fn open(&mut self, now: Duration, length: Duration, fraction: f64) -> Change {
        // Only the last one matters from here on.
        self.failing.drain(..self.failing.len() - 1);
        let lasts = spread(length, fraction);
        self.open = Some(Open { until: now + lasts, length, probe: None });
        Change::Opened(lasts)
    }

    /// Whether as many orders as open a breaker have failed or seem to hang.
    fn seems_to_hang(&self, now: Duration) -> bool {
        let patience = PATIENCE.max(self.usual * 2);
        let hangs = |running: &&Running| {
            let silent_for = now.saturating_sub(running.since.max(self.last_success));
            // Those beyond their limit were frozen with us.
            silent_for > patience && now.saturating_sub(running.since) <= running.limit + FROZEN
        };
        let is_new = |running: &&Running| !self.failing.contains(&running.entity);
        self.failing.len() + self.running.iter().filter(hangs).filter(is_new).count() >= ORDERS
    }
}

/// `length`, and up to half as much again.
fn spread(length: Duration, fraction: f64) -> Duration {
    length.mul_f64(1.0 + fraction / 2.0)
}

/// What one worker knows of a source's destination.
#[derive(Debug, Default)]
struct Destination {
    breaker: Breaker,
    /// Since when it is reported as unavailable.
    unavailable_since: Option<Duration>,
    /// Why its last order failed.
    error: String,
}

/// The breakers of all sources that one worker has met.
#[derive(Debug, Clone, Default)]
pub(crate) struct Breakers(Arc<Mutex<BTreeMap<SourceName, Destination>>>);

impl Breakers {
    fn destinations(&self) -> MutexGuard<'_, BTreeMap<SourceName, Destination>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a start; refused, for how long.
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

    /// Remembers why a start of this source failed.
    pub(crate) fn failed(&self, source: &SourceName, error: &str) {
        error.clone_into(&mut self.destinations().entry(source.clone()).or_default().error);
    }

    /// The source's destination is unavailable; whether that is news.
    pub(crate) fn unavailable(&self, source: &SourceName, now: Duration) -> bool {
        let mut destinations = self.destinations();
        let since = &mut destinations.entry(source.clone()).or_default().unavailable_since;
        since.replace(since.unwrap_or(now)).is_none()
    }

    /// The source's destination is available; after how long, if it was not.
    pub(crate) fn available(&self, source: &SourceName, now: Duration) -> Option<Duration> {
        let since = self.destinations().get_mut(source)?.unavailable_since.take()?;
        Some(now.saturating_sub(since))
    }
}

/// A start that a breaker refuses.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Until the next one may be made.
    pub(crate) wait: Duration,
    /// The longest that who waits longer is to wait.
    pub(crate) longest: Duration,
    /// Why others of its source failed; empty: they have yet to answer.
    pub(crate) error: String,
}

/// A start that was admitted. Dropped, nobody knows how it ended.
#[derive(Debug)]
pub(crate) struct Ticket {
    breakers: Breakers,
    source: SourceName,
    number: u64,
}

impl Ticket {
    /// It ended.
    pub(crate) fn ended(self, now: Duration, ending: Ending, fraction: f64) -> Change {
        self.end(now, ending, fraction)
    }

    fn end(&self, now: Duration, ending: Ending, fraction: f64) -> Change {
        let mut destinations = self.breakers.destinations();
        let destination = destinations.get_mut(&self.source);
        destination.map_or(Change::None, |one| one.breaker.ended(self.number, now, ending, fraction))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end(Duration::ZERO, Ending::Unknown, 0.0);
    }
}

#[cfg(test)]
mod tests;
