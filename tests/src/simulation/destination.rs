//! Outages of destinations, and the handler starts that breakers may allow during one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::{
    history::TraceEvent,
    node::pause,
    random::{DecisionId, RandomStream, actor},
    world::SimulatedWorld,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    Unavailable,
    NotNow,
    Hang,
}

#[derive(Debug, Clone, Copy)]
pub struct DestinationOutage {
    /// The affected source; `None` means all sources.
    pub source: Option<&'static str>,
    pub reaction: Reaction,
    pub from: Duration,
    pub lasts: Duration,
}

impl DestinationOutage {
    pub fn decision() -> DecisionId {
        DecisionId { actor: actor::UNWELL, number: 0 }
    }

    pub fn until(&self) -> Duration {
        self.from + self.lasts
    }

    pub fn drawn(seed: u64) -> Option<Self> {
        let mut draw = RandomStream::new(seed, actor::UNWELL).at(0);
        let longest = draw.one_of(&[10_000, 20_000, 60_000]);
        let drawn = Self {
            source: draw.one_of(&[None, Some("park"), Some("block")]),
            reaction: draw.one_of(&[Reaction::Unavailable, Reaction::NotNow, Reaction::Hang]),
            from: draw.millis(0, 10_000),
            lasts: draw.millis(8_000, longest),
        };
        draw.happens(80).then_some(drawn)
    }

    pub async fn simulate(self, world: Arc<SimulatedWorld>, begin: Duration) {
        world.pause_until(begin + self.from).await;
        world.set_destination_outage(Some(self));
        world.trace(TraceEvent::Phase { text: "what handlers need is out of reach" });
        pause(self.lasts).await;
        world.set_destination_outage(None);
        world.trace(TraceEvent::Phase { text: "what handlers need is there again" });
    }
}

#[derive(Debug)]
struct Period {
    since: Duration,
    until: Duration,
    is_probed: bool,
}

#[derive(Debug, Default)]
struct DestinationState {
    periods: BTreeMap<String, Period>,
    /// The time of each recorded start, by order and token. The breaker allowed the start before it was
    /// recorded.
    written: BTreeMap<(usize, u64), Duration>,
}

/// Audits the breakers of one process, as its events report them.
#[derive(Debug, Clone, Default)]
pub struct BreakerAudit(Arc<Mutex<DestinationState>>);

impl BreakerAudit {
    fn inner(&self) -> MutexGuard<'_, DestinationState> {
        self.0.lock().expect("no panic under the lock")
    }

    pub fn opened(&self, source: &str, now: Duration, wait: Duration) {
        let period = Period { since: now, until: now + wait, is_probed: false };
        self.inner().periods.insert(source.to_owned(), period);
    }

    pub fn closed(&self, source: &str) {
        self.inner().periods.remove(source);
    }

    pub fn writes(&self, entity: usize, token: u64, now: Duration) {
        self.inner().written.entry((entity, token)).or_insert(now);
    }

    /// Starts a handler, which runs until the result is dropped. Returns an error if the source's breaker
    /// forbids the start.
    pub fn started(
        &self,
        source: &'static str,
        entity: usize,
        token: u64,
        now: Duration,
    ) -> Result<DestinationStart, String> {
        let mut inner = self.inner();
        let let_through = inner.written.remove(&(entity, token)).unwrap_or(now);
        match inner.periods.get_mut(source) {
            Some(period) if let_through > period.since => {
                if let_through < period.until {
                    return Err(format!("starts {:?} before its breaker lets it", period.until - let_through));
                }
                if period.is_probed {
                    return Err("starts while another start tries whether its source is well".into());
                }
                period.is_probed = true;
                Ok(DestinationStart(Some(Probe { account: self.clone(), source, since: period.since })))
            }
            _ => Ok(DestinationStart(None)),
        }
    }
}

#[derive(Debug)]
pub struct DestinationStart(Option<Probe>);

impl DestinationStart {
    pub fn is_probe(&self) -> bool {
        self.0.is_some()
    }
}

#[derive(Debug)]
struct Probe {
    account: BreakerAudit,
    source: &'static str,
    since: Duration,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let mut inner = self.account.inner();
        if let Some(period) = inner.periods.get_mut(self.source).filter(|period| period.since == self.since) {
            period.is_probed = false;
        }
    }
}
