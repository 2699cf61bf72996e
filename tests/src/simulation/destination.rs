//! Outages of destinations, and the handler starts that breakers may allow during one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock, Mutex, MutexGuard},
    time::Duration,
};

use webhook_serializer::protocol::{
    format::attribute as a,
    outage::DestinationId,
    table::{Action, Change, Key, Row, Value, Write, Written},
};

use super::{
    fan_out,
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

/// A destination's outage, as the store's answers have shown it to a process.
#[derive(Debug, Default)]
struct LearnedOutage {
    /// The beginning of the outage, and when the process learned of it.
    down: Option<(u64, Duration)>,
    /// The beginnings of outages that the process knows to be over.
    ended: BTreeSet<u64>,
    /// The process has claimed a probe, and not started it yet.
    is_claimed: bool,
}

impl LearnedOutage {
    fn is_down(&self, at: Duration) -> bool {
        self.down.is_some_and(|(since, learned)| learned < at && !self.ended.contains(&since))
    }
}

/// Returns the source whose destination's outage is in the row with this key.
fn source_of(key: &Key) -> Option<&'static str> {
    // Each write of the simulation looks here.
    static DESTINATIONS: LazyLock<[(DestinationId, &str); 5]> = LazyLock::new(|| {
        ["park", "block", fan_out::PARENT, fan_out::ALL, fan_out::FEW]
            .map(|source| (DestinationId::of("handler", source), source))
    });
    let Some((_, Value::S(item))) = &key.sort else { return None };
    DESTINATIONS.iter().find(|(destination, _)| destination.as_str() == item).map(|(_, source)| *source)
}

fn removes(write: &Write, attribute: &str) -> bool {
    matches!(&write.action, Action::Update(changes)
        if changes.iter().any(|change| matches!(change, Change::Remove(name) if name == attribute)))
}

/// Returns whether the write claims the next probe of a destination that is down.
pub fn claims_probe(write: &Write) -> bool {
    source_of(&write.key).is_some() && removes(write, a::FAILED_AT) && !ends_outage(write)
}

/// Returns whether the write ends a destination's outage.
pub fn ends_outage(write: &Write) -> bool {
    source_of(&write.key).is_some() && removes(write, a::DOWN_SINCE)
}

pub fn is_outage(key: &Key) -> bool {
    source_of(key).is_some()
}

fn nonce_of(write: &Write) -> Option<&str> {
    let Action::Update(changes) = &write.action else { return None };
    changes.iter().find_map(|change| match change {
        Change::Set(name, Value::S(nonce)) if name == a::NONCE => Some(nonce.as_str()),
        _ => None,
    })
}

#[derive(Debug, Default)]
struct DestinationState {
    outages: BTreeMap<&'static str, LearnedOutage>,
    /// The orders and tokens of probes that succeeded, whose process has yet to end the outage.
    ending: BTreeMap<(usize, u64), &'static str>,
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

    /// Notes what the store says about a destination's outage.
    pub fn learns(&self, key: &Key, row: Option<&Row>, now: Duration) {
        let Some(source) = source_of(key) else { return };
        let mut inner = self.inner();
        let known = inner.outages.entry(source).or_default();
        match row.and_then(|row| row.number(a::DOWN_SINCE)) {
            Some(since) if known.down.is_some_and(|(known, _)| known == since) => {}
            Some(since) => known.down = Some((since, now)),
            None => {
                known.ended.extend(known.down.map(|(since, _)| since));
                known.down = None;
            }
        }
    }

    /// Notes the store's reply to a write about a destination's outage.
    pub fn replied(&self, write: &Write, reply: &Written, now: Duration) {
        let (Written::Landed(row) | Written::Refused(row)) = reply;
        let is_mine = matches!(reply, Written::Landed(_))
            || row.as_ref().is_some_and(|row| row.text(a::NONCE) == nonce_of(write));
        if claims_probe(write)
            && let Some(source) = source_of(&write.key)
        {
            self.inner().outages.entry(source).or_default().is_claimed = is_mine;
        }
        self.learns(&write.key, row.as_ref(), now);
    }

    /// Notes that the process sends a write. Returns an error if a probe's success settles its delivery before it
    /// ends the outage.
    pub fn sends(&self, write: &Write, settles: Option<usize>) -> Result<(), String> {
        let mut inner = self.inner();
        if ends_outage(write)
            && let Some(source) = source_of(&write.key)
        {
            inner.ending.retain(|_, of| *of != source);
        }
        let is_settled = settles.is_some_and(|entity| inner.ending.keys().any(|(of, _)| *of == entity));
        if is_settled { Err("settles a probe's delivery, and its outage goes on".into()) } else { Ok(()) }
    }

    pub fn succeeded(&self, source: &'static str, entity: usize, token: u64, start: &DestinationStart, now: Duration) {
        let mut inner = self.inner();
        if start.is_claimed && inner.outages.get(source).is_some_and(|known| known.is_down(now)) {
            inner.ending.insert((entity, token), source);
        }
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
        let known = inner.outages.entry(source).or_default();
        let is_claimed = std::mem::take(&mut known.is_claimed);
        if !is_claimed && known.is_down(let_through) {
            return Err("starts although its process knows that the destination is down".into());
        }
        match inner.periods.get_mut(source) {
            Some(period) if let_through > period.since => {
                if let_through < period.until && !is_claimed {
                    return Err(format!("starts {:?} before its breaker lets it", period.until - let_through));
                }
                if period.is_probed {
                    return Err("starts while another start tries whether its source is well".into());
                }
                period.is_probed = true;
                let probe = Some(RunningProbe { account: self.clone(), source, since: period.since });
                Ok(DestinationStart { probe, is_claimed })
            }
            _ => Ok(DestinationStart { probe: None, is_claimed }),
        }
    }
}

#[derive(Debug)]
pub struct DestinationStart {
    probe: Option<RunningProbe>,
    /// The process has claimed this start for all processes.
    is_claimed: bool,
}

impl DestinationStart {
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }

    pub fn is_claimed(&self) -> bool {
        self.is_claimed
    }
}

#[derive(Debug)]
struct RunningProbe {
    account: BreakerAudit,
    source: &'static str,
    since: Duration,
}

impl Drop for RunningProbe {
    fn drop(&mut self) {
        let mut inner = self.account.inner();
        if let Some(period) = inner.periods.get_mut(self.source).filter(|period| period.since == self.since) {
            period.is_probed = false;
        }
    }
}
