//! The world of one run: true time, the rows, who did what when, and which
//! misfortunes are allowed.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt;
use webhook_serializer::protocol::{
    entity::{DeliveryId, EntityKey, Identity, SourceName},
    format::attribute as a,
    keys::entity_row,
    memory::MemoryTable,
    state::LeaseKind,
    table::{Row, Table, TableError, TableName, Transacted, Write, Written},
};

use super::{
    Plan,
    chance::{Dice, Twist},
    history::{Call, Decided, Entry, Erased, History, Landed, Ledger, Name, Start, What},
    jobs,
    outage::{How, Outage, Service},
    profile::Profile,
    queue::SimulatedQueue,
    reasons::Change,
};

/// The true time at which every run begins.
pub const EPOCH: u64 = 1_800_000_000_000;

#[derive(Debug, Default)]
struct Inner {
    trace: Vec<Entry>,
    twists: BTreeSet<Twist>,
    history: History,
    ledgers: BTreeMap<usize, Ledger>,
    /// The newest token that the receiver has seen, by entity.
    seen: BTreeMap<usize, u64>,
    /// Rows of entities as they were before their last change.
    before: BTreeMap<usize, (Duration, Option<Row>)>,
    /// What is out now.
    outages: Vec<Outage>,
    /// Nodes that erase at the moment.
    erasing: BTreeSet<u32>,
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

/// The key of entity number `number`.
pub fn key(number: usize) -> EntityKey {
    EntityKey::parse(&format!("sim/{}", label(number))).expect("a key")
}

/// Whether a row of that key is a job's, and no entity's of ours.
pub fn is_job(key: &str) -> bool {
    key.starts_with("cron/")
}

fn number_of(key: &str) -> usize {
    let label = key.get(4..).unwrap_or("z");
    match label.strip_prefix('o').map(str::parse) {
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
            (None, Some(mutation)) => Profile::of(plan.seed).focused(mutation),
            (None, None) => Profile::of(plan.seed),
        };
        Arc::new(Self {
            profile,
            start: tokio::time::Instant::now(),
            rows: MemoryTable::new(),
            queue: SimulatedQueue::default(),
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
    pub fn started(&self, name: Name, entity: usize, node: u32, sequence: u64, token: u64) -> usize {
        let newest = self.ledger(entity).token;
        let at = self.tell(What::Started { name, entity, node, token: told(token), newest: told(newest) });
        let mut inner = self.inner();
        inner.history.starts.push(Start {
            name,
            entity,
            sequence,
            token,
            newest,
            at,
            time: self.elapsed(),
            done: false,
        });
        inner.history.reasons.started(name, entity, sequence, token);
        inner.history.starts.len() - 1
    }

    /// An effect arrives at the receiver that remembers tokens: `claimed` is
    /// the token it carries, `token` that of the start it comes from.
    pub fn effect(&self, entity: usize, claimed: u64, token: u64, sequence: Option<u64>, remembers: bool) -> bool {
        let mut inner = self.inner();
        let seen = inner.seen.entry(entity).or_default();
        let accepted = claimed >= *seen || !remembers;
        *seen = claimed.max(*seen);
        if accepted {
            inner.history.landed.push(Landed { entity, token, sequence });
        }
        drop(inner);
        if !accepted {
            self.reach("a late effect is refused");
        }
        self.tell(What::Effect { entity, token: told(token), accepted });
        accepted
    }

    /// A new name: who it is, by its hash.
    pub fn introduce(&self, name: Name, identity: &Identity) {
        let hash = identity.hash().as_str().to_owned();
        self.inner().history.names.insert(hash, name);
    }

    /// Does a write in the store.
    pub fn write(&self, node: u32, write: &Write) -> Result<Written, TableError> {
        let before = (write.key.table == TableName::Entities).then(|| self.read(&write.key));
        let written = self.rows.write(write).now_or_never().expect("ready")?;
        if matches!(written, Written::Landed(_)) {
            self.landed(node, write, before.flatten());
        }
        Ok(written)
    }

    /// Does several writes together in the store.
    pub fn transact(&self, node: u32, writes: &[Write], token: &str) -> Result<Transacted, TableError> {
        let before: Vec<_> = writes.iter().map(|write| self.read(&write.key)).collect();
        let done = self.rows.transact(writes, token).now_or_never().expect("ready")?;
        if done == Transacted::Landed {
            for (write, before) in writes.iter().zip(before) {
                self.landed(node, write, before);
            }
        }
        Ok(done)
    }

    /// A node begins to erase an entity, or has ended.
    pub fn erases(&self, node: u32, begins: bool) {
        let mut inner = self.inner();
        if begins {
            inner.erasing.insert(node);
        } else {
            inner.erasing.remove(&node);
        }
    }

    /// A node reads a row: where it erases, what that shows to be settled may be
    /// forgotten.
    pub fn is_read(&self, node: u32, key: &webhook_serializer::protocol::table::Key) {
        if key.table != TableName::Entities || !self.inner().erasing.contains(&node) {
            return;
        }
        let Some(row) = self.read(key) else { return };
        let number = |name| row.number(name).unwrap_or(0);
        if row.get(a::HOLDER).is_none() && number(a::HEAD) == number(a::TAIL) {
            self.erased(number_of(&text_of(&key.partition.1)), number(a::HEAD));
        }
    }

    /// What stands up to place `through` of an entity may be forgotten from now
    /// on.
    pub fn erased(&self, entity: usize, through: u64) {
        self.tell(What::Operator { entity, how: "erases" });
        self.reach("an entity is erased");
        let time = self.elapsed();
        self.inner().history.erased.push(Erased { entity, through, time });
    }

    /// Deletes receipts and what is parked of an entity, whatever they are of.
    pub fn forget_settled(&self, entity: usize) {
        let key = key(entity);
        self.rows.purge(&TableName::Inbox, |row| {
            let settled = row.text(a::ITEM).is_some_and(|item| item.starts_with("p#") || item.starts_with("r#"));
            settled && row.text(a::ENTITY) == Some(key.as_str())
        });
    }

    /// A row as it is.
    pub fn read(&self, key: &webhook_serializer::protocol::table::Key) -> Option<Row> {
        self.rows.get(key).now_or_never().expect("ready").expect("memory answers")
    }

    fn landed(&self, node: u32, write: &Write, before: Option<Row>) {
        match write.key.table {
            TableName::Entities if is_job(&text_of(&write.key.partition.1)) => {
                // A transaction that is asked for again lands once.
                if self.read(&write.key) != before {
                    jobs::landed(self, node, write);
                }
            }
            TableName::Entities => {
                let entity = number_of(&text_of(&write.key.partition.1));
                if let Some(after) = self.read(&entity_row(&key(entity))) {
                    self.changed(node, entity, before, &after);
                }
            }
            TableName::Inbox => {
                let item = write.key.sort.as_ref().map(|(_, value)| text_of(value)).unwrap_or_default();
                if let (Some(sequence), webhook_serializer::protocol::table::Action::Put(row)) =
                    (item.strip_prefix("d#"), &write.action)
                {
                    let entity = number_of(&text_of(&write.key.partition.1));
                    let sequence = told(sequence.parse().unwrap_or(0));
                    let void = row.get(a::VOID).is_some();
                    if void {
                        self.reach("a place is voided");
                    }
                    self.tell(What::Filled { entity, sequence, node, void });
                }
            }
            TableName::Named(_) => {}
        }
    }

    /// Follows one change of an entity's row, and sees that its numbers only
    /// grow.
    fn changed(&self, node: u32, entity: usize, before: Option<Row>, row: &Row) {
        let number = |name| row.number(name).unwrap_or(0);
        let (head, tail, token) = (number(a::HEAD), number(a::TAIL), number(a::TOKEN));
        let holder = row.text(a::HOLDER).map(str::to_owned);
        let last = row.text(a::LAST_SETTLED).unwrap_or_default().to_owned();
        let old = self.ledger(entity);
        let was = before.as_ref();
        let how = match () {
            () if was.is_some() && old.head != head => "settled",
            () if holder.is_some() && holder != old.holder && old.holder.is_some() => "taken over",
            () if holder.is_some() && holder != old.holder => "acquired",
            () if old.tail != tail => "claimed",
            () if was.is_some_and(|was| was.get(a::BLOCKED).is_none()) && row.get(a::BLOCKED).is_some() => "blocked",
            () if holder.is_none() && old.holder.is_some() && old.token != token => "force released",
            () if holder.is_none() && old.holder.is_some() => "released",
            () if was.is_some_and(|was| was.get(a::EXPIRES_AT) != row.get(a::EXPIRES_AT)) => "renewed",
            () if was.is_some_and(|was| was.get(a::BLOCKED).is_some()) && row.get(a::BLOCKED).is_none() => "unblocked",
            () => "changed",
        };
        let at =
            self.tell(What::RowChanged { entity, node, how, head: told(head), tail: told(tail), token: told(token) });
        let mut mistakes = Vec::new();
        if old.tail > 0 {
            let newly = if old.present { "" } else { " in the new row" };
            if token < old.token {
                mistakes.push(format!("the token went back{newly}: {} to {}", told(old.token), told(token)));
            }
            if tail < old.tail || head < old.head {
                mistakes.push(format!("head or tail went back{newly}"));
            }
            if ["acquired", "taken over", "settled"].contains(&how) && token <= old.token {
                mistakes.push(format!("{how} without a greater token: {}", told(token)));
            }
            if old.present && head > old.head + 1 {
                mistakes.push(format!("head went from {} to {}", told(old.head), told(head)));
            }
        }
        if how == "claimed" && old.present && row.get(a::BLOCKED).is_none() {
            mistakes.extend(self.unseen(entity, old.head));
        }
        let drained = holder.is_some() && row.text(a::KIND) == Some(LeaseKind::Drain.as_str());
        self.with_history(|history| match how {
            // A lease that nobody has: see "What is left to the sweep" in docs/protocol.md.
            "acquired" | "taken over" if history.is_late => {
                history.excused.insert(entity);
            }
            // From a holder that vanished: a drain acquires no empty inbox.
            "taken over" if drained && head == tail => {
                history.idle.insert(entity, token);
            }
            // The wake-up of its second try is spent, or the one for which that lease was taken was a copy.
            "claimed" if history.is_late || (drained && history.idle.get(&entity) == Some(&token)) => {
                history.unwoken.insert(entity);
            }
            _ => {}
        });
        if head > tail {
            mistakes.push("head is beyond tail".into());
        }
        let mut inner = self.inner();
        let at_time = self.start.elapsed();
        let (settlement, hash) = last.split_once(' ').unwrap_or((&last, ""));
        let name = inner.history.names.get(hash).copied();
        let change = Change {
            entity,
            node,
            before: before.as_ref(),
            after: row,
            settled: name.map(|name| (name, settlement)),
            granted: old.granted,
            is_late: inner.history.is_late,
            clocks_lie: self.profile.skew.takes_the_living_for_dead(),
            time: at_time,
            seed: self.plan.seed,
        };
        let (charged, wrong) = inner.history.reasons.follow(&change);
        inner.trace.extend(charged.map(|what| Entry { at: at_time, what }));
        mistakes.extend(wrong);
        inner.before.insert(entity, (at_time, before));
        let settled = how == "settled";
        if settled {
            let decided = Decided { at, time: at_time, settlement: settlement.into(), name };
            if inner.history.decided.insert((entity, head), decided).is_some() {
                mistakes.push(format!("sequence {} was decided twice", told(head)));
            }
        }
        let granted = if how == "acquired" || how == "taken over" { (token, node) } else { (old.granted, old.node) };
        let (granted, by) = granted;
        inner.ledgers.insert(entity, Ledger { present: true, head, tail, token, holder, granted, node: by });
        let reached = match how {
            "taken over" | "force released" | "blocked" | "unblocked" => Some(how),
            "settled" if last.starts_with("repeat") => Some("a repeat is settled"),
            "settled" if last.starts_with("parked") => Some("a delivery is parked"),
            "settled" if row.get(a::HOLDER).is_some() => Some("settled and held on"),
            _ => None,
        };
        let name = label(entity);
        inner.history.mistakes.extend(mistakes.into_iter().map(|mistake| format!("{name}: {mistake} (node {node})")));
        drop(inner);
        if let Some(reached) = reached {
            self.reach(reached);
        }
    }

    /// A delivery that waits while no wake-up is left and nobody is at work: the
    /// next claim's own wake-up would hide it.
    fn unseen(&self, entity: usize, head: u64) -> Option<String> {
        let under_way = self.queue.holds(&key(entity));
        self.with_history(|history| {
            let attended = history.attended.get(&entity).is_some_and(|workers| *workers > 0);
            if under_way
                || attended
                || history.unblocking.get(&entity).is_some_and(|operators| *operators > 0)
                || history.leaves_to_sweep(entity)
            {
                return None;
            }
            let waits = |call: &&Call| call.entity == entity && call.acked.iter().any(|(_, sequence)| *sequence > head);
            let call = history.calls.values().find(waits)?;
            Some(format!("stuck: {} was answered 2xx and waits, and no wake-up is left to find it", call.name))
        })
    }

    /// An entity's row as a stale read may see it.
    pub fn stale(&self, row: Row) -> Option<Row> {
        let key = row.text(a::ENTITY).unwrap_or_default();
        if is_job(key) {
            return Some(row);
        }
        let entity = number_of(key);
        match self.inner().before.get(&entity) {
            Some((at, before)) if self.elapsed().saturating_sub(*at) < Duration::from_secs(3) => before.clone(),
            _ => Some(row),
        }
    }

    /// Deletes rows whose time has come, as DynamoDB TTL does: each with this
    /// chance.
    pub fn purge(&self, dice: &Dice, permille: u64) {
        let now = self.true_millis() / 1000;
        for table in [TableName::Entities, TableName::Inbox] {
            let gone = Mutex::new(Vec::new());
            self.rows.purge(&table, |row| {
                let due = row.number(a::PURGE_AT).is_some_and(|at| at <= now);
                if !due {
                    return false;
                }
                let mut roll = dice.roll();
                let goes = roll.happens(permille) && self.may(roll.twist);
                if goes {
                    let text = |name| row.text(name).unwrap_or_default().to_owned();
                    gone.lock().expect("one thread").push((text(a::ENTITY), text(a::ITEM)));
                }
                goes
            });
            for (entity, item) in gone.into_inner().expect("one thread") {
                self.reach(if item.is_empty() { "an entity's row is purged" } else { "an inbox row is purged" });
                if item.is_empty() {
                    let mut inner = self.inner();
                    let ledger = inner.ledgers.entry(number_of(&entity)).or_default();
                    ledger.present = false;
                    ledger.holder = None;
                }
                self.tell(What::Purged { entity, item });
            }
        }
    }
}

fn text_of(value: &webhook_serializer::protocol::table::Value) -> String {
    match value {
        webhook_serializer::protocol::table::Value::S(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// The identity of a delivery.
pub fn identity(name: Name, source: &'static str) -> Identity {
    Identity {
        source: SourceName::parse(source).expect("a source"),
        delivery_id: DeliveryId::new(name.number.to_string()),
        redrive: name.redrive,
    }
}
