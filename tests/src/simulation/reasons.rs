//! Why a delivery is set aside, or an entity stopped: every charge against the
//! starts that were made, every park and every block against its reason.
//!
//! A start is one that the handler saw, or one that was written to the row
//! before: the write comes first, so that what is killed in between counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use webhook_serializer::protocol::{format::attribute as a, state::LeaseKind, table::Row};

use super::{
    handler::Nature,
    history::{Name, What},
    mutation::waits,
    play::{RETENTION, attempts},
    world::told,
};

/// How many holders in a row must have vanished before a person is asked.
const VANISHED: u32 = 10;

/// How far off the age of a claim may seem: by two clocks, and by the time at
/// which its append began.
const CLOCKS: Duration = Duration::from_secs(3 * 86_400);

/// How long a write may be under way whose sender has died.
const UNDER_WAY: Duration = Duration::from_millis(20);

/// How long a delivery has waited for its retries only grows, until something is
/// decided of it.
fn forgets_waits(change: &Change<'_>) -> Option<String> {
    let before = change.before?;
    let is_kept = [a::HEAD, a::ONE_BY_ONE].iter().all(|name| change.is(name) == change.was(name));
    let was_blocked = before.text(a::BLOCKED).is_some();
    if !is_kept || was_blocked || change.clocks_lie {
        return None;
    }
    let (was, is) = (waits(before).total(), waits(change.after).total());
    (is < was).then(|| format!("{} forgot that it had waited {was:?}: {is:?}", told(change.place().1)))
}

/// What was seen, by entity.
#[derive(Debug, Default)]
pub struct Reasons {
    /// The tokens of starts, by place.
    starts: BTreeMap<(usize, u64), BTreeSet<u64>>,
    /// What was started at a place.
    names: BTreeMap<(usize, u64), Name>,
    /// Starts that rejected, and that were done, by token.
    rejected: BTreeSet<(usize, u64)>,
    /// Places that operators want skipped.
    skipped: BTreeSet<(usize, u64)>,
    done: BTreeSet<(usize, u64)>,
    /// Starts whose handlers began nothing, by token.
    not_now: BTreeSet<(usize, u64)>,
    /// Starts up to this token are forgiven: settled since, or unblocked.
    forgiven: BTreeMap<usize, u64>,
    /// Tokens whose starts were charged.
    charged: BTreeSet<(usize, u64)>,
    /// When a place was claimed.
    claimed: BTreeMap<(usize, u64), Duration>,
    /// The first place claimed since the inbox was empty.
    first: BTreeMap<usize, u64>,
    /// The last delivery settled.
    settled: BTreeMap<usize, u64>,
    /// Grants whose holder died or froze, by token.
    dying: BTreeSet<(usize, u64)>,
    /// When a node died last.
    died: BTreeMap<u32, Duration>,
    /// How many holders vanished in a row, without a start written down.
    vanished: BTreeMap<usize, u32>,
}

/// One change of an entity's row.
#[derive(Debug)]
pub struct Change<'a> {
    /// How the place that is settled was settled before it was to be run again.
    pub again: Option<String>,
    /// Whose.
    pub entity: usize,
    /// By which node.
    pub node: u32,
    /// The row before; `None`: there was none.
    pub before: Option<&'a Row>,
    /// The row now.
    pub after: &'a Row,
    /// Who settled last, and how.
    pub settled: Option<(Name, &'a str)>,
    /// The token of the newest grant before.
    pub granted: u64,
    /// Whether whoever sent it had given it up.
    pub is_late: bool,
    /// Whether a restore did it: what waits is parked.
    pub is_restoring: bool,
    /// Whether clocks may be so far apart that a lease that runs looks left.
    pub clocks_lie: bool,
    /// Whether entities' rows cannot be written for long: who lets go cannot say
    /// so, and looks like one that vanished.
    pub is_mute: bool,
    /// When.
    pub time: Duration,
    /// In the run of this seed.
    pub seed: u64,
}

impl Change<'_> {
    fn was(&self, name: &str) -> u64 {
        self.before.and_then(|row| row.number(name)).unwrap_or(0)
    }

    fn is(&self, name: &str) -> u64 {
        self.after.number(name).unwrap_or(0)
    }

    /// Whether its holder lets it go.
    fn is_let_go(&self) -> bool {
        self.before.is_some_and(|row| row.text(a::HOLDER).is_some()) && self.after.text(a::HOLDER).is_none()
    }

    /// Whether one holder follows another, who has not let go.
    fn is_taken_over(&self) -> bool {
        let is_held = |row: &Row| row.text(a::HOLDER).is_some();
        self.before.is_some_and(is_held) && is_held(self.after)
    }

    fn place(&self) -> (usize, u64) {
        (self.entity, self.was(a::HEAD) + 1)
    }
}

impl Reasons {
    /// A handler is started.
    pub fn started(&mut self, name: Option<Name>, entity: usize, sequence: u64, token: u64) {
        self.starts.entry((entity, sequence)).or_default().insert(token);
        self.names.extend(name.map(|name| ((entity, sequence), name)));
    }

    /// A handler rejects its delivery for good.
    pub fn rejects(&mut self, entity: usize, token: u64) {
        self.rejected.insert((entity, token));
    }

    /// A handler has done what it is for.
    pub fn is_done(&mut self, entity: usize, token: u64) {
        self.done.insert((entity, token));
    }

    /// A handler has begun nothing: there is no room.
    pub fn is_not_now(&mut self, entity: usize, token: u64) {
        self.not_now.insert((entity, token));
    }

    /// A node dies, or freezes, with these grants.
    pub fn dies(&mut self, node: u32, time: Duration, grants: impl IntoIterator<Item = (usize, u64)>) {
        self.died.insert(node, time);
        self.dying.extend(grants);
    }

    /// Follows one change of an entity's row; what is to be told of it, and
    /// what must not be.
    pub fn follow(&mut self, change: &Change<'_>) -> (Option<What>, Vec<String>) {
        let mut mistakes = Vec::new();
        let entity = change.entity;
        self.claims(change);
        self.grants(change);
        if change.is(a::STARTED) > 0 && change.is(a::STARTED) != change.was(a::STARTED) {
            self.starts.entry(change.place()).or_default().insert(change.is(a::STARTED));
            self.vanished.remove(&entity);
        }
        let told = self.charges(change, &mut mistakes);
        mistakes.extend(forgets_waits(change));
        let is_at_the_same = change.is(a::HEAD) == change.was(a::HEAD);
        if change.before.is_some() && is_at_the_same && change.is(a::ATTEMPTS) < change.was(a::ATTEMPTS) {
            let goes_apart = change.is(a::ONE_BY_ONE) != change.was(a::ONE_BY_ONE);
            if self.not_now.contains(&(entity, change.was(a::TOKEN))) && change.is_let_go() && !goes_apart {
                mistakes
                    .push(format!("{} lost its attempts, and its handler began nothing", self::told(change.place().1)));
            }
            // Those of a group: each is on its own from now on.
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
        (told, mistakes)
    }

    /// An operator wants this place skipped.
    pub fn wants_skipped(&mut self, entity: usize, sequence: u64) {
        self.skipped.insert((entity, sequence));
    }

    fn forgive(&mut self, entity: usize, through: u64) {
        self.forgiven.insert(entity, through);
        self.vanished.remove(&entity);
    }

    fn claims(&mut self, change: &Change<'_>) {
        let tail = change.is(a::TAIL);
        if tail == change.was(a::TAIL) || tail == change.is(a::HEAD) {
            return;
        }
        self.claimed.insert((change.entity, tail), change.time);
        if change.was(a::HEAD) == change.was(a::TAIL) {
            self.first.insert(change.entity, tail);
        }
    }

    fn grants(&mut self, change: &Change<'_>) {
        let holder = |row: &Row| row.text(a::HOLDER).map(str::to_owned);
        let (was, is) = (change.before.and_then(holder), holder(change.after));
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

    /// A charge is of a start that was made, and of each once.
    fn charges(&mut self, change: &Change<'_>, mistakes: &mut Vec<String>) -> Option<What> {
        let (was, is) = (change.was(a::ATTEMPTS), change.is(a::ATTEMPTS));
        if is <= was || change.before.is_none() {
            return None;
        }
        let (entity, token) = (change.entity, change.was(a::TOKEN));
        let made = self.failed(change, true).any(|start| start == token);
        if !made {
            let head = told(change.place().1);
            mistakes.push(format!("{head} was charged attempt {is}, and was not started under token {}", told(token)));
        } else if self.not_now.contains(&(entity, token)) && !change.is_taken_over() {
            mistakes.push(format!("{} was charged for a start that began nothing", told(change.place().1)));
        } else if is != was + 1 || !self.charged.insert((entity, token)) {
            mistakes.push(format!("{} was charged more than once for one start", told(change.place().1)));
        }
        Some(What::Charged { entity, node: change.node, attempts: is, token: told(token), made })
    }

    /// Starts of what waits at the head, since it was last forgiven. One that
    /// is under way, or done, under the newest token has not failed; nor has one that
    /// began nothing, unless its holder died before it could say so.
    fn failed(&self, change: &Change<'_>, or_runs: bool) -> impl Iterator<Item = u64> {
        let (entity, newest) = (change.entity, change.was(a::TOKEN));
        let forgiven = self.forgiven.get(&entity).copied().unwrap_or(0);
        let starts = self.starts.get(&change.place()).into_iter().flatten().copied();
        let is_done = !or_runs && self.done.contains(&(entity, newest));
        let has_failed = move |start: u64| {
            or_runs || !self.not_now.contains(&(entity, start)) || self.charged.contains(&(entity, start))
        };
        starts.filter(move |start| *start > forgiven && !(is_done && *start == newest) && has_failed(*start))
    }

    fn parks(&self, change: &Change<'_>, name: Name) -> Option<String> {
        if change.is_restoring || self.rejected.contains(&(change.entity, change.was(a::TOKEN))) {
            return None;
        }
        if change.before.is_some_and(|row| row.text(a::KIND) == Some(LeaseKind::Exclusive.as_str())) {
            let wanted = self.skipped.contains(&(change.entity, change.is(a::HEAD)));
            return (!wanted).then(|| format!("{name} was skipped, and nobody wanted that"));
        }
        let nature = Nature::of(change.seed, name.number);
        let (failed, allowed) = (self.failed(change, false).count(), attempts(nature));
        if nature.blocks {
            return Some(format!("{name} was parked without being rejected, and its source says to block"));
        }
        (failed < allowed)
            .then(|| format!("{name} was parked after {failed} starts that failed, and is allowed {allowed}"))
    }

    fn blocks(&self, change: &Change<'_>, reason: &str) -> Option<String> {
        let name = self.names.get(&change.place());
        match reason {
            "attempts" => {
                let Some(name) = name else { return Some("blocked at a delivery that was never started".into()) };
                let nature = Nature::of(change.seed, name.number);
                let (failed, allowed) = (self.failed(change, false).count(), attempts(nature));
                if !nature.blocks {
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

    /// When the oldest of what the row knows the age of was claimed: what waits,
    /// and what was settled last, unless the inbox was empty since.
    fn oldest(&self, entity: usize) -> Option<Duration> {
        let first = self.first.get(&entity)?;
        let settled = self.settled.get(&entity).unwrap_or(first);
        self.claimed.get(&(entity, *first.max(settled))).copied()
    }
}
