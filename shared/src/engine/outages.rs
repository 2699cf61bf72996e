//! Outages of destinations, as this process has seen them, and the probes with which it helps to end them.
//!
//! While a destination is down, all processes share one row. The process that claims the next probe
//! starts one handler; everybody else's orders wait, and look at the row now and then. Without an outage,
//! the row is neither read nor written.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        entity::EntityKey,
        format::one_line,
        keys::outage_row,
        outage::{ClaimProbe, DestinationId, LONGEST_PROBE, Outage, ProbeClaimed, ReportDown, ReportProbe, ReportUp},
        time::Nonce,
    },
    sources::{Source, destination::DestinationName},
    time::Timestamp,
};

/// The shortest time from a failed start to the next probe, without jitter.
const PROBE_AFTER: Duration = Duration::from_secs(5);

/// The longest such time. A probe that takes long is followed by a wait as long.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The time in which the store is not asked again about the same row.
const FRESH: Duration = Duration::from_secs(1);

/// The shortest time between two orders of this process that go on because a probe is due. Usually the first one
/// claims it.
const CANDIDATE_EVERY: Duration = Duration::from_secs(2);

/// The shortest and the longest time between two looks of a waiting order at the row, without jitter.
const LOOK: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(120));

/// The number of looks of a waiting order while an outage doubles its length.
const LOOKS: u32 = 100;

/// The shortest and the longest wait of an order whose start is refused. It ends early with the outage.
const REFUSED: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(240));

/// The shortest time between a failed start and an operator's probe.
const EARLY: Duration = Duration::from_secs(1);

/// The time after a handler's timeout in which its probe is reported.
const REPORTED_WITHIN: Duration = Duration::from_secs(5);

const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
struct KnownOutage {
    outage: Option<Outage>,
    /// The time of the store's answer, by the monotonic clock.
    at: Duration,
    candidate_at: Option<Duration>,
    /// The beginning of the newest outage that is known to be over.
    ended: Option<Timestamp>,
    /// Set by an outage's end, until this process has closed its breaker.
    closes: bool,
}

/// A start that tries, for all processes, whether a destination is up again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe(Nonce);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeRequest {
    Granted(Probe),
    /// The destination is down, and the start may not try it.
    Refused(Outage),
    Up,
}

#[derive(Debug, Clone)]
pub(crate) struct Outages {
    store: Store,
    seen: Arc<Mutex<BTreeMap<DestinationId, KnownOutage>>>,
}

impl Outages {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, seen: Arc::default() }
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<DestinationId, KnownOutage>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the store answered, and returns the outage that lasts.
    fn note(&self, destination: &DestinationId, outage: Option<Outage>) -> Option<Outage> {
        let at = self.store.env().monotonic();
        let mut seen = self.seen();
        let before = seen.get(destination);
        let ended = before.and_then(|seen| seen.ended);
        // A read that was answered late shows an outage that is known to be over.
        let outage = outage.filter(|outage| Some(outage.since) != ended);
        let known = before.and_then(|seen| seen.outage.as_ref());
        let over = known.map(|known| known.since).filter(|_| outage.is_none());
        let candidate_at = before.and_then(|seen| seen.candidate_at);
        let closes = over.is_some() || outage.is_none() && before.is_some_and(|seen| seen.closes);
        seen.insert(
            destination.clone(),
            KnownOutage { outage: outage.clone(), at, candidate_at, ended: over.or(ended), closes },
        );
        outage
    }

    /// Returns the outage that this process last saw, if it has not seen its end.
    pub(crate) fn known(&self, destination: &DestinationId) -> Option<Outage> {
        self.seen().get(destination)?.outage.clone()
    }

    /// Returns whether an outage has ended since this was last asked.
    pub(crate) fn take_end(&self, destination: &DestinationId) -> bool {
        self.seen().get_mut(destination).is_some_and(|seen| std::mem::take(&mut seen.closes))
    }

    /// Reads the destination's row, unless this process did so within the time `fresh`.
    async fn read(&self, destination: &DestinationId, fresh: Duration) -> Result<Option<Outage>, StoreError> {
        let now = self.store.env().monotonic();
        if let Some(seen) = self.seen().get(destination).filter(|seen| now.saturating_sub(seen.at) < fresh) {
            return Ok(seen.outage.clone());
        }
        let row = self.store.get(&outage_row(destination), PATIENCE).await?;
        let outage = row.as_ref().map(Outage::parse).transpose()?.flatten();
        Ok(self.note(destination, outage))
    }

    /// Looks at the row for a waiting order. Returns the time until its next look, or `None` if the order goes on
    /// because the outage is over or a probe is due.
    pub(crate) async fn look(&self, destination: &DestinationId, entity: &EntityKey) -> Option<Duration> {
        let env = self.store.env();
        let mut outage = self.read(destination, FRESH).await;
        let is_due = |outage: &Result<Option<Outage>, StoreError>| matches!(outage, Ok(Some(outage)) if outage.is_probe_due(entity, env.now()));
        if is_due(&outage) && self.is_candidate(destination) {
            outage = self.read(destination, Duration::ZERO).await;
            if is_due(&outage) {
                return None;
            }
        }
        match outage {
            Ok(None) => None,
            Ok(Some(outage)) => Some(self.look_after(&outage)),
            Err(_) => Some(self.look_soon()),
        }
    }

    /// Returns the time until a waiting order's next look if the store has not answered the last one.
    pub(crate) fn look_soon(&self) -> Duration {
        LOOK.0.mul_f64(1.0 + self.store.env().fraction() / 10.0)
    }

    /// Returns the time until a waiting order's next look at the row. Looks become rarer as the outage lasts.
    pub(crate) fn look_after(&self, outage: &Outage) -> Duration {
        let env = self.store.env();
        let between = env.now().since(outage.since) / LOOKS;
        between.clamp(LOOK.0, LOOK.1).mul_f64(1.0 + env.fraction() / 10.0)
    }

    fn is_candidate(&self, destination: &DestinationId) -> bool {
        let now = self.store.env().monotonic();
        let mut seen = self.seen();
        let Some(seen) = seen.get_mut(destination) else { return true };
        let is_free = seen.candidate_at.is_none_or(|at| now.saturating_sub(at) >= CANDIDATE_EVERY);
        if is_free {
            seen.candidate_at = Some(now);
        }
        is_free
    }

    /// Asks for a start of a destination that this process knows as down. `is_early` allows a probe
    /// before the next one is due, but not while another one runs.
    pub(crate) async fn request_probe(
        &self,
        source: &Source,
        entity: &EntityKey,
        is_early: bool,
    ) -> Result<ProbeRequest, StoreError> {
        let destination = &source.destination().id;
        let env = self.store.env();
        let Some(seen) = self.read(destination, FRESH).await? else { return Ok(ProbeRequest::Up) };
        let now = env.now();
        let may_be_early = is_early && seen.failed.as_ref().is_some_and(|failed| failed.at + EARLY <= now);
        if !seen.is_probe_due(entity, now) && !may_be_early {
            return Ok(ProbeRequest::Refused(seen));
        }
        let nonce = env.nonce();
        let due = now + (source.handler_timeout + REPORTED_WITHIN).min(LONGEST_PROBE);
        let claim = ClaimProbe { destination, seen: &seen, nonce: &nonce, now, due };
        let (granted, outage) = match self.store.run(&claim, PATIENCE).await? {
            ProbeClaimed::Claimed(outage) => (Some(Probe(nonce)), Some(outage)),
            ProbeClaimed::Refused(outage) => (None, outage),
        };
        let outage = self.note(destination, outage);
        Ok(match (granted, outage) {
            (Some(probe), _) => ProbeRequest::Granted(probe),
            (None, Some(outage)) => ProbeRequest::Refused(outage),
            (None, None) => ProbeRequest::Up,
        })
    }

    /// Reports a failed start: the one that opened this process's breaker, or a probe. `took` is its duration.
    ///
    /// If the report is lost, the breakers of each process still limit the starts.
    pub(crate) async fn report_failure(
        &self,
        destination: &DestinationName,
        probe: Option<&Probe>,
        entity: &EntityKey,
        error: &str,
        took: Duration,
    ) {
        let env = self.store.env();
        let now = env.now();
        let error = &one_line(error);
        let pause = PROBE_AFTER.max(took).min(LONGEST_PAUSE).mul_f64(1.0 + env.fraction() / 2.0);
        let due = now + pause;
        let DestinationName { id, name } = destination;
        let reported = match probe {
            Some(Probe(nonce)) => {
                let report = ReportProbe { destination: id, nonce, error, entity, now, due };
                self.store.run(&report, PATIENCE).await
            }
            None => {
                let nonce = &env.nonce();
                let report = ReportDown { destination: id, name, error, nonce, entity, now, due };
                self.store.run(&report, PATIENCE).await
            }
        };
        match reported {
            Ok(outage) => _ = self.note(id, outage),
            Err(error) => tracing::warn!(destination = name, %error, "an outage could not be recorded"),
        }
    }

    /// Ends the outage that this process knows of, after a start that the destination answered.
    ///
    /// If the report is lost, the next probe ends the outage.
    pub(crate) async fn report_up(&self, destination: &DestinationName) {
        let DestinationName { id, name } = destination;
        let Some(seen) = self.known(id) else { return };
        let report = ReportUp { destination: id, seen: &seen, now: self.store.env().now() };
        match self.store.run(&report, PATIENCE).await {
            Ok(outage) => _ = self.note(id, outage),
            Err(error) => tracing::warn!(destination = name, %error, "the end of an outage could not be recorded"),
        }
    }

    /// Returns the wait of an order whose start `outage` refuses.
    pub(crate) fn refused_wait(&self, outage: &Outage) -> Duration {
        let env = self.store.env();
        let down_for = env.now().since(outage.since);
        down_for.clamp(REFUSED.0, REFUSED.1).mul_f64(1.0 + env.fraction() / 4.0)
    }
}

/// A wait of the delivery in front that ends early with the outage of its destination.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OutageWait {
    pub destination: DestinationId,
    /// The end of the wait, in milliseconds since 1970.
    pub until: Timestamp,
    /// True if the delivery's total wait includes this wait. A refused start's wait is included only if the latest
    /// start found the destination unavailable.
    pub is_counted: bool,
}
