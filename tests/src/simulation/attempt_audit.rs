//! Audits every counted attempt, every park and every block against the starts that caused them.
//!
//! A start counts as soon as its handler runs or the row records it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use webhook_serializer::protocol::{format::attribute as a, state::LeaseKind, table::Row};

use super::{
    handler::DeliveryTraits,
    history::{DeliveryName, TraceEvent},
    mutation::waits,
    workload::{RETENTION, attempts},
    world::relative,
};

/// The number of holders that must vanish in a row before an order blocks.
const VANISHED: u32 = 10;

/// The tolerance for a claim's age. It covers the difference of two clocks, and the duration of the append.
const CLOCKS: Duration = Duration::from_secs(3 * 86_400);

/// The longest time for which a dead sender's write may be under way.
const UNDER_WAY: Duration = Duration::from_millis(20);

/// Checks that the time for which a delivery has waited for retries only grows until the delivery is settled.
fn lost_waiting_time(change: &AuditedChange<'_>) -> Option<String> {
    let before = change.before?;
    let is_kept = [a::HEAD, a::ONE_BY_ONE].iter().all(|name| change.is(name) == change.was(name));
    let was_blocked = before.text(a::BLOCKED).is_some();
    if !is_kept || was_blocked || change.clocks_lie {
        return None;
    }
    let was = waits(before).total();
    let is = waits(change.after).total();
    (is < was).then(|| format!("{} forgot that it had waited {was:?}: {is:?}", relative(change.place().1)))
}

#[derive(Debug, Default)]
pub struct AttemptAudit {
    starts: BTreeMap<(usize, u64), BTreeSet<u64>>,
    names: BTreeMap<(usize, u64), DeliveryName>,
    rejected: BTreeSet<(usize, u64)>,
    skipped: BTreeSet<(usize, u64)>,
    done: BTreeSet<(usize, u64)>,
    not_now: BTreeSet<(usize, u64)>,
    /// For each order, the newest token whose start no longer counts, because the delivery was settled or the
    /// order was unblocked since then.
    forgiven: BTreeMap<usize, u64>,
    counted: BTreeSet<(usize, u64)>,
    claimed: BTreeMap<(usize, u64), Duration>,
    /// For each order, the first sequence claimed since the inbox was empty.
    first: BTreeMap<usize, u64>,
    settled: BTreeMap<usize, u64>,
    dying: BTreeSet<(usize, u64)>,
    died: BTreeMap<u32, Duration>,
    /// For each order, how many holders in a row vanished without a recorded start.
    vanished: BTreeMap<usize, u32>,
}

#[derive(Debug)]
pub struct AuditedChange<'a> {
    /// If the delivery is settled again after a rewind, its settlement before the rewind.
    pub again: Option<String>,
    pub entity: usize,
    pub node: u32,
    pub before: Option<&'a Row>,
    pub after: &'a Row,
    pub settled: Option<(DeliveryName, &'a str)>,
    pub granted: u64,
    pub is_late: bool,
    pub is_restoring: bool,
    /// The clocks differ so much that a live lease may look orphaned.
    pub clocks_lie: bool,
    /// Entity rows cannot be written for a long time. A holder that fails to release then looks dead.
    pub is_mute: bool,
    pub time: Duration,
    pub seed: u64,
}

impl AuditedChange<'_> {
    fn was(&self, name: &str) -> u64 {
        self.before.and_then(|row| row.number(name)).unwrap_or(0)
    }

    fn is(&self, name: &str) -> u64 {
        self.after.number(name).unwrap_or(0)
    }

    fn is_let_go(&self) -> bool {
        self.before.is_some_and(|row| row.text(a::HOLDER).is_some()) && self.after.text(a::HOLDER).is_none()
    }

    fn is_taken_over(&self) -> bool {
        let is_held = |row: &Row| row.text(a::HOLDER).is_some();
        self.before.is_some_and(is_held) && is_held(self.after)
    }

    fn place(&self) -> (usize, u64) {
        (self.entity, self.was(a::HEAD) + 1)
    }
}

impl AttemptAudit {
    pub fn started(&mut self, name: Option<DeliveryName>, entity: usize, sequence: u64, token: u64) {
        self.starts.entry((entity, sequence)).or_default().insert(token);
        self.names.extend(name.map(|name| ((entity, sequence), name)));
    }

    pub fn record_reject(&mut self, entity: usize, token: u64) {
        self.rejected.insert((entity, token));
    }

    pub fn record_done(&mut self, entity: usize, token: u64) {
        self.done.insert((entity, token));
    }

    pub fn record_not_now(&mut self, entity: usize, token: u64) {
        self.not_now.insert((entity, token));
    }

    pub fn record_death(&mut self, node: u32, time: Duration, grants: impl IntoIterator<Item = (usize, u64)>) {
        self.died.insert(node, time);
        self.dying.extend(grants);
    }

    pub fn follow(&mut self, change: &AuditedChange<'_>) -> (Option<TraceEvent>, Vec<String>) {
        let mut mistakes = Vec::new();
        let entity = change.entity;
        self.claims(change);
        self.grants(change);
        if change.is(a::STARTED) > 0 && change.is(a::STARTED) != change.was(a::STARTED) {
            self.starts.entry(change.place()).or_default().insert(change.is(a::STARTED));
            self.vanished.remove(&entity);
        }
        let counted = self.count_attempts(change, &mut mistakes);
        mistakes.extend(lost_waiting_time(change));
        let is_at_the_same = change.is(a::HEAD) == change.was(a::HEAD);
        if change.before.is_some() && is_at_the_same && change.is(a::ATTEMPTS) < change.was(a::ATTEMPTS) {
            let goes_apart = change.is(a::ONE_BY_ONE) != change.was(a::ONE_BY_ONE);
            if self.not_now.contains(&(entity, change.was(a::TOKEN))) && change.is_let_go() && !goes_apart {
                mistakes
                    .push(format!("{} lost its attempts, and its handler began nothing", relative(change.place().1)));
            }
            // From here on, each delivery of the group runs alone.
            self.forgive(entity, change.was(a::TOKEN));
        }
        if change.before.is_some() && change.is(a::HEAD) < change.was(a::HEAD) {
            self.first.insert(entity, change.is(a::HEAD) + 1);
            self.settled.insert(entity, change.is(a::HEAD));
            self.forgive(entity, change.was(a::TOKEN));
        } else if change.before.is_some() && change.is(a::HEAD) != change.was(a::HEAD) {
            if let Some((name, settlement)) = change.settled {
                if settlement == "parked" && change.again.as_deref() != Some("parked") {
                    mistakes.extend(self.parks(change, name));
                }
                self.settled.insert(entity, change.is(a::HEAD));
            }
            self.forgive(entity, change.was(a::TOKEN));
        }
        let blocked = |row: &Row| row.text(a::BLOCKED).map(str::to_owned);
        match (change.before.and_then(blocked), blocked(change.after)) {
            (None, Some(reason)) => mistakes.extend(self.blocks(change, &reason)),
            (Some(_), None) => self.forgive(entity, change.is(a::TOKEN)),
            _ => {}
        }
        (counted, mistakes)
    }

    pub fn expect_skip(&mut self, entity: usize, sequence: u64) {
        self.skipped.insert((entity, sequence));
    }

    fn forgive(&mut self, entity: usize, through: u64) {
        self.forgiven.insert(entity, through);
        self.vanished.remove(&entity);
    }

    fn claims(&mut self, change: &AuditedChange<'_>) {
        let tail = change.is(a::TAIL);
        if tail == change.was(a::TAIL) || tail == change.is(a::HEAD) {
            return;
        }
        self.claimed.insert((change.entity, tail), change.time);
        if change.was(a::HEAD) == change.was(a::TAIL) {
            self.first.insert(change.entity, tail);
        }
    }

    fn grants(&mut self, change: &AuditedChange<'_>) {
        let holder = |row: &Row| row.text(a::HOLDER).map(str::to_owned);
        let was = change.before.and_then(holder);
        let is = holder(change.after);
        if is.is_none() || is == was {
            return;
        }
        let died = self.died.get(&change.node);
        if change.is_late || died.is_some_and(|died| change.time.saturating_sub(*died) < UNDER_WAY) {
            self.dying.insert((change.entity, change.is(a::TOKEN)));
        }
        let drained = change.before.is_some_and(|row| row.text(a::KIND) == Some(LeaseKind::Drain.as_str()));
        let pending = change.was(a::HEAD) < change.was(a::TAIL);
        let vanished = change.clocks_lie || change.is_mute || self.dying.contains(&(change.entity, change.granted));
        if was.is_some() && drained && pending && vanished {
            *self.vanished.entry(change.entity).or_default() += 1;
        }
    }

    /// Checks that an attempt counts a start that was made, and that each start counts once.
    fn count_attempts(&mut self, change: &AuditedChange<'_>, mistakes: &mut Vec<String>) -> Option<TraceEvent> {
        let was = change.was(a::ATTEMPTS);
        let is = change.is(a::ATTEMPTS);
        if is <= was || change.before.is_none() {
            return None;
        }
        let entity = change.entity;
        let token = change.was(a::TOKEN);
        let made = self.failed(change, true).any(|start| start == token);
        if !made {
            let head = relative(change.place().1);
            mistakes.push(format!("{head} counts attempt {is}, and was not started under token {}", relative(token)));
        } else if self.not_now.contains(&(entity, token)) && !change.is_taken_over() {
            mistakes.push(format!("{} counts an attempt for a start that began nothing", relative(change.place().1)));
        } else if is != was + 1 || !self.counted.insert((entity, token)) {
            mistakes.push(format!("{} counts more than one attempt for one start", relative(change.place().1)));
        }
        Some(TraceEvent::AttemptCounted { entity, node: change.node, attempts: is, token: relative(token), made })
    }

    /// Returns the tokens of the starts of the delivery in front, except forgiven ones. Without `or_runs`,
    /// returns only failed starts: leaves out the start under the newest token if that start is done, and
    /// each start that began nothing. A start that began nothing stays if it was counted as an attempt,
    /// because its holder died before the holder could report it.
    fn failed(&self, change: &AuditedChange<'_>, or_runs: bool) -> impl Iterator<Item = u64> {
        let entity = change.entity;
        let newest = change.was(a::TOKEN);
        let forgiven = self.forgiven.get(&entity).copied().unwrap_or(0);
        let starts = self.starts.get(&change.place()).into_iter().flatten().copied();
        let is_done = !or_runs && self.done.contains(&(entity, newest));
        let has_failed = move |start: u64| {
            or_runs || !self.not_now.contains(&(entity, start)) || self.counted.contains(&(entity, start))
        };
        starts.filter(move |start| *start > forgiven && !(is_done && *start == newest) && has_failed(*start))
    }

    fn parks(&self, change: &AuditedChange<'_>, name: DeliveryName) -> Option<String> {
        if change.is_restoring || self.rejected.contains(&(change.entity, change.was(a::TOKEN))) {
            return None;
        }
        if change.before.is_some_and(|row| row.text(a::KIND) == Some(LeaseKind::Exclusive.as_str())) {
            let wanted = self.skipped.contains(&(change.entity, change.is(a::HEAD)));
            return (!wanted).then(|| format!("{name} was skipped without a request"));
        }
        let traits = DeliveryTraits::of(change.seed, name.number);
        let failed = self.failed(change, false).count();
        let allowed = attempts(traits);
        if traits.blocks {
            return Some(format!("{name} was parked without being rejected, and its source says to block"));
        }
        (failed < allowed)
            .then(|| format!("{name} was parked after {failed} starts that failed, and is allowed {allowed}"))
    }

    fn blocks(&self, change: &AuditedChange<'_>, reason: &str) -> Option<String> {
        let name = self.names.get(&change.place());
        match reason {
            "attempts" => {
                let Some(name) = name else { return Some("blocked at a delivery that was never started".into()) };
                let traits = DeliveryTraits::of(change.seed, name.number);
                let failed = self.failed(change, false).count();
                let allowed = attempts(traits);
                if !traits.blocks {
                    return Some(format!("blocked at {name}, whose source says to park"));
                }
                (failed < allowed)
                    .then(|| format!("blocked at {name} after {failed} starts that failed, and is allowed {allowed}"))
            }
            "expired" => {
                let age = self.oldest(change.entity).map(|claimed| change.time.saturating_sub(claimed));
                (age.is_none_or(|age| age + CLOCKS < RETENTION / 2))
                    .then(|| format!("blocked as expired, and nothing waits for longer than {age:?}"))
            }
            "vanished" => {
                let deaths = self.vanished.get(&change.entity).copied().unwrap_or(0);
                (deaths < VANISHED).then(|| format!("blocked as vanished after {deaths} holders that died or froze"))
            }
            other => Some(format!("blocked for no reason that there is: {other}")),
        }
    }

    /// Returns the time of the oldest claim whose age the row shows.
    fn oldest(&self, entity: usize) -> Option<Duration> {
        let first = self.first.get(&entity)?;
        let settled = self.settled.get(&entity).unwrap_or(first);
        self.claimed.get(&(entity, *first.max(settled))).copied()
    }
}
