//! The world of one run: true time, the rows, who did what when, and which
//! misfortunes are allowed.

mod loss;
mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::Notify;
use webhook_serializer::{
    protocol::{
        entity::{DeliveryId, EntityKey, Identity, SourceName},
        format::attribute as a,
        keys::entity_row,
        memory::MemoryTable,
        table::Row,
    },
    time::Timestamp,
};

use super::{
    Plan,
    chance::Twist,
    history::{Entry, History, Landed, Ledger, Name, Start, What},
    mutation::without_period,
    node::Node,
    outage::{How, Outage, Service},
    profile::Profile,
    queue::SimulatedQueue,
    unwell::{Reaction, Unwell},
};
use loss::{Copied, Lost, Stop};

/// The true time at which every run begins.
pub const EPOCH: u64 = 1_800_000_000_000;

#[derive(Debug, Default)]
struct Inner {
    trace: Vec<Entry>,
    twists: BTreeSet<Twist>,
    history: History,
    ledgers: BTreeMap<usize, Ledger>,
    /// The newest token when an entity was last put on hold, or resumed.
    held_at: BTreeMap<usize, u64>,
    /// The newest token that the receiver has seen, by entity.
    seen: BTreeMap<usize, u64>,
    /// Rows of entities as they were before their last change.
    before: BTreeMap<usize, (Duration, Option<Row>)>,
    /// What is out now.
    outages: Vec<Outage>,
    /// Nodes that erase at the moment.
    erasing: BTreeSet<u32>,
    /// What handlers need is out of reach now.
    unwell: Option<Unwell>,
    /// The newest copy of the tables.
    copied: Option<Copied>,
    /// The tables were lost.
    lost: Option<Lost>,
    stop: Stop,
}

/// One run's world.
#[derive(Debug)]
pub struct World {
    /// What is run.
    pub plan: Plan,
    /// What kind of misfortune there is.
    pub profile: Profile,
    /// The beginning.
    pub start: tokio::time::Instant,
    /// The rows.
    pub rows: MemoryTable,
    /// The wake-ups.
    pub queue: SimulatedQueue,
    /// Wakes those who wait for the functions to run again.
    goes_on: Notify,
    active: AtomicBool,
    /// Pieces of work under way.
    pub busy: AtomicU32,
    inner: Mutex<Inner>,
}

/// Counts a piece of work as under way until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<World>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

/// Entity number `number`, as it is told: a letter while there are enough.
pub fn label(number: usize) -> String {
    match u8::try_from(number) {
        Ok(letter) if letter < 26 => ((b'a' + letter) as char).to_string(),
        _ => format!("o{number}"),
    }
}

/// The key of entity number `number`. The rows of some have room for two
/// receipts, of some for one, of the others for many.
pub fn key(number: usize) -> EntityKey {
    let key = format!("sim/{}", label(number));
    let bytes = match number {
        0 => 470,
        2 => EntityKey::MAX_BYTES,
        _ => key.len(),
    };
    EntityKey::parse(&format!("{key:/<bytes$}")).expect("a key")
}

/// Whether a row of that key is a job's, and no entity's of ours.
pub fn is_job(key: &str) -> bool {
    key.starts_with("cron/")
}

fn number_of(key: &str) -> usize {
    let label = key.get(4..).unwrap_or("z");
    match label.strip_prefix('o').map(|number| number.trim_end_matches('/').parse()) {
        Some(Ok(number)) => number,
        _ => label.bytes().next().map_or(25, |letter| usize::from(letter.saturating_sub(b'a'))),
    }
}

/// The number of the entity of that key.
pub fn entity_number(key: &EntityKey) -> usize {
    number_of(key.as_str())
}

/// As told in traces.
pub fn told(number: u64) -> i64 {
    number as i64 - EPOCH as i64
}

impl World {
    /// The world of `plan`.
    pub fn new(plan: Plan) -> Arc<Self> {
        let profile = match (&plan.profile, plan.focus) {
            (Some(profile), _) => profile.clone(),
            (None, Some(mutation)) => Profile::focused(plan.seed, mutation),
            (None, None) => Profile::of(plan.seed),
        };
        Arc::new(Self {
            profile,
            start: tokio::time::Instant::now(),
            rows: MemoryTable::new(),
            queue: SimulatedQueue::default(),
            goes_on: Notify::new(),
            active: AtomicBool::new(false),
            busy: AtomicU32::new(0),
            inner: Mutex::default(),
            plan,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no one panics while holding this")
    }

    /// True time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// True wall-clock time, in milliseconds since 1970.
    pub fn true_millis(&self) -> u64 {
        EPOCH + self.elapsed().as_millis() as u64
    }

    /// Whether things go wrong at this time.
    pub fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Lets things go wrong, or not any more.
    pub fn set_active(&self, active: bool) {
        self.active.store(active, Relaxed);
    }

    /// Whether `twist` may happen in this run. It is noted as one that did.
    pub fn may(&self, twist: Twist) -> bool {
        let may = self.plan.allowed.as_ref().is_none_or(|allowed| allowed.contains(&twist));
        if may {
            self.inner().twists.insert(twist);
        }
        may
    }

    /// Something goes out, or comes back.
    pub fn set_out(&self, outage: &Outage, out: bool) {
        let how = if out { outage.how.name() } else { "work again" };
        self.tell(What::Outage { twist: outage.twist(), what: outage.service.name(), how });
        let mut inner = self.inner();
        inner.outages.retain(|other| other.number != outage.number);
        if out {
            inner.outages.push(*outage);
        }
    }

    /// How a call of `node` fails now that needs all of `services`, where one
    /// of them is out.
    pub fn out(&self, services: &[Service], node: u32) -> Option<How> {
        let now = self.elapsed();
        let out = |outage: &&Outage| services.contains(&outage.service) && outage.hits(self.plan.seed, node, now);
        self.inner().outages.iter().find(out).map(|outage| outage.how)
    }

    /// What handlers need goes out of reach, or comes back.
    pub fn set_unwell(&self, unwell: Option<Unwell>) {
        self.inner().unwell = unwell;
    }

    /// How handlers of `source` take it that what they need is out of reach, where
    /// it is.
    pub fn unwell(&self, source: &str) -> Option<Reaction> {
        let unwell = self.inner().unwell?;
        unwell.source.is_none_or(|of| of == source).then_some(unwell.reaction)
    }

    /// A node dies, or freezes, with what it holds.
    pub fn dies(&self, node: u32) {
        let time = self.elapsed();
        let mut inner = self.inner();
        let held = inner.ledgers.iter().filter(|(_, ledger)| ledger.holder.is_some() && ledger.node == node);
        let grants: Vec<_> = held.map(|(entity, ledger)| (*entity, ledger.granted)).collect();
        inner.history.reasons.dies(node, time, grants);
    }

    /// A piece of work begins.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Relaxed);
        Busy(self.clone())
    }

    /// Writes a line of the trace; its position.
    pub fn tell(&self, what: What) -> usize {
        let at = self.elapsed();
        let mut inner = self.inner();
        inner.trace.push(Entry { at, what });
        inner.trace.len() - 1
    }

    /// Looks at or adds to the history.
    pub fn with_history<T>(&self, act: impl FnOnce(&mut History) -> T) -> T {
        act(&mut self.inner().history)
    }

    /// What must not be.
    pub fn mistake(&self, text: String) {
        self.inner().history.mistakes.push(text);
    }

    /// Something interesting happened.
    pub fn reach(&self, what: &'static str) {
        *self.inner().history.reached.entry(what).or_default() += 1;
    }

    /// What was seen of an entity.
    pub fn ledger(&self, entity: usize) -> Ledger {
        self.inner().ledgers.get(&entity).cloned().unwrap_or_default()
    }

    /// The trace so far, the twists that happened, the trace's hash.
    pub fn close(&self) -> (Vec<Entry>, BTreeSet<Twist>, u64) {
        let mut inner = self.inner();
        let mut hasher = DefaultHasher::new();
        inner.trace.hash(&mut hasher);
        (std::mem::take(&mut inner.trace), inner.twists.clone(), hasher.finish())
    }

    /// A handler is started.
    /// `first` is the first place that the start is about.
    pub fn started(&self, by: &Node, name: Name, entity: usize, (first, sequence): (u64, u64), token: u64) -> usize {
        let (node, is_lost) = (by.number, by.tables != self.tables());
        let newest = if is_lost { self.given_out(entity).1 } else { self.ledger(entity).token };
        let on_hold = self.read(&entity_row(&key(entity))).is_some_and(|row| row.number(a::HOLD).is_some());
        let held_at = self.inner().held_at.get(&entity).copied().unwrap_or_default();
        if on_hold && token == newest && token > held_at && !is_lost {
            let mistake = format!("{name} is started on hold, under token {}", told(token));
            self.with_history(|history| history.mistakes.push(mistake));
        }
        let at = self.tell(What::Started { name, entity, node, token: told(token), newest: told(newest) });
        let mut inner = self.inner();
        let there = *inner.history.at_places.entry((entity, sequence)).or_insert(name);
        if there != name {
            let place = format!("{}/{}", label(entity), told(sequence));
            inner.history.mistakes.push(format!("{name} is said to be at {place}, where {there} was before"));
        }
        inner.history.starts.push(Start {
            name,
            entity,
            sequence,
            first,
            token,
            newest,
            at,
            time: self.elapsed(),
            done: false,
            is_lost,
        });
        inner.history.starts.len() - 1
    }

    /// An effect arrives at the receiver that remembers tokens: `claimed` is
    /// the token it carries, `token` that of the start it comes from.
    pub fn effect(
        &self,
        by: &Node,
        entity: usize,
        claimed: u64,
        token: u64,
        sequence: Option<u64>,
        remembers: bool,
    ) -> bool {
        let is_newest = by.tables == self.tables() && token == self.ledger(entity).token;
        let mut inner = self.inner();
        let seen = inner.seen.entry(entity).or_default();
        let accepted = claimed >= *seen || !remembers;
        *seen = claimed.max(*seen);
        if accepted {
            inner.history.landed.push(Landed { entity, token, sequence });
        }
        drop(inner);
        if !accepted && is_newest {
            self.mistake(format!("{}: the effect of the newest token is refused: {}", label(entity), told(token)));
        }
        if !accepted {
            self.reach("a late effect is refused");
        }
        self.tell(What::Effect { entity, token: told(token), accepted });
        accepted
    }

    /// A new identity: whose it is, by its hash.
    pub fn introduce(&self, identity: &Identity) {
        let name = name_of(identity);
        let is_seen_as = |identity: &Identity| Identity {
            delivery_id: DeliveryId::new(without_period(identity.delivery_id.as_str())),
            ..identity.clone()
        };
        let names = &mut self.inner().history.names;
        names.insert(identity.hash(), name);
        names.insert(is_seen_as(identity).hash(), name);
    }
}

/// How long a sender retries that gives no ids.
pub const RETRIED_FOR: Duration = Duration::from_secs(30);

/// The identity of a delivery. `unnamed`: when it was received, if its sender gives
/// it no id.
pub fn identity(number: u32, source: &'static str, unnamed: Option<Timestamp>) -> Identity {
    let own = number.to_string();
    let delivery_id = match unnamed {
        None => DeliveryId::new(own),
        Some(received_at) => {
            let hash = DeliveryId::from_body(own.as_bytes());
            DeliveryId::new(format!("{own}/{hash}")).received(received_at, RETRIED_FOR)
        }
    };
    Identity { source: SourceName::parse(source).expect("a source"), delivery_id, redrive: 0 }
}

/// Whose identity it is.
pub fn name_of(identity: &Identity) -> Name {
    Name { number: number_in(identity.delivery_id.as_str()).expect("a number"), redrive: identity.redrive }
}

/// The number of the delivery with this id.
pub fn number_in(delivery_id: &str) -> Option<u32> {
    delivery_id.split('/').next()?.parse().ok()
}
