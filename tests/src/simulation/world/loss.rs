//! The tables are copied, lost, and taken into use as they were when they were
//! copied; and what an auditor knows of that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::FutureExt;
use webhook_serializer::{
    protocol::{
        format::attribute as a,
        keys::key_of,
        state::EntityState,
        table::{Row, Table, TableName, Write},
    },
    time::{Nonce, Timestamp},
};

use super::{
    super::{
        history::{Decided, History, Ledger, What},
        loss::RESTORER,
        node::pause,
    },
    EPOCH, World, entity_number, is_job, label, number_of, told,
};

/// A copy of the tables, each of its own moment, and what was decided by then.
#[derive(Debug)]
pub struct Copied {
    entities: Vec<Row>,
    inbox: Vec<Row>,
    at: usize,
    as_of: Duration,
    decided: BTreeMap<(usize, u64), Decided>,
    decided_before: Vec<((usize, u64), Decided)>,
}

/// What is known of tables that were lost, and of the copy in their place.
#[derive(Debug, Default)]
pub struct Lost {
    /// The greatest tail and token of each entity.
    given_out: BTreeMap<usize, (u64, u64)>,
    /// The heads of the copy, and the places that hold something in it.
    heads: BTreeMap<usize, u64>,
    filled: BTreeSet<(usize, u64)>,
    /// Entities that were on hold in it, or blocked.
    stopped: BTreeSet<usize>,
    /// The restore that raises its rows.
    restore: Option<Nonce>,
}

impl Lost {
    fn holds(&self, entity: usize, sequence: u64) -> bool {
        self.heads.get(&entity).is_some_and(|head| sequence <= *head || self.filled.contains(&(entity, sequence)))
    }
}

/// Whether functions run, and for how long they did not.
#[derive(Debug, Default)]
pub struct Stop {
    since: Option<Duration>,
    lasted: Duration,
    tables: u32,
}

impl World {
    /// Which tables there are: each loss brings others.
    pub fn tables(&self) -> u32 {
        self.inner().stop.tables
    }

    /// Whether no function runs.
    pub fn is_stopped(&self) -> bool {
        self.inner().stop.since.is_some()
    }

    /// True time since the beginning, in which functions ran.
    pub fn played(&self) -> Duration {
        let now = self.elapsed();
        let inner = self.inner();
        now - inner.stop.lasted - inner.stop.since.map_or(Duration::ZERO, |since| now - since)
    }

    /// Completes when functions run.
    pub async fn runs(&self) {
        loop {
            let goes_on = self.goes_on.notified();
            if !self.is_stopped() {
                return;
            }
            goes_on.await;
        }
    }

    /// Completes when functions have run for so long.
    pub async fn pause_until(&self, played: Duration) {
        loop {
            pause(played.saturating_sub(self.played())).await;
            self.runs().await;
            if self.played() >= played {
                return;
            }
        }
    }

    /// Copies the entities' table.
    pub fn copies_entities(&self) {
        let at = self.tell(What::Phase { text: "the entities are copied" });
        let (entities, as_of) = (self.rows.rows(&TableName::Entities), self.elapsed());
        let mut inner = self.inner();
        let (decided, decided_before) = (inner.history.decided.clone(), inner.history.decided_before.clone());
        inner.copied = Some(Copied { entities, inbox: Vec::new(), at, as_of, decided, decided_before });
    }

    /// Copies the inbox, at the same moment or a later one.
    pub fn copies_inbox(&self) {
        self.tell(What::Phase { text: "the inbox is copied" });
        let inbox = self.rows.rows(&TableName::Inbox);
        self.inner().copied.as_mut().expect("the entities are copied first").inbox = inbox;
    }

    /// The tables are lost, no function is started any more, and the copies stand in
    /// their place; of which moment they are. Whoever lived through it knows only
    /// the tables that are gone.
    pub fn loses_its_tables(&self) -> Timestamp {
        let at = self.tell(What::Phase { text: "THE TABLES ARE LOST" });
        self.reach("the tables are lost");
        let now = self.elapsed();
        let mut inner = self.inner();
        let copied = inner.copied.take().expect("they were copied");
        for (table, rows) in [(TableName::Entities, &copied.entities), (TableName::Inbox, &copied.inbox)] {
            self.rows.purge(&table, |_| true);
            for row in rows {
                let write = Write::put(key_of(&table, row).expect("one of ours"), row.clone());
                self.rows.write(&write).now_or_never().expect("ready").expect("it is written");
            }
        }
        inner.stop.tables += 1;
        inner.stop.since = Some(now);
        inner.before.clear();
        let mut lost = Lost::default();
        for row in copied.entities.iter().filter(|row| !is_job(row.text(a::ENTITY).unwrap_or_default())) {
            let state = EntityState::parse(row).expect("our own rows can be read");
            let entity = entity_number(&state.entity);
            lost.heads.insert(entity, state.head.0);
            if state.is_stopped() {
                lost.stopped.insert(entity);
            }
        }
        for row in &copied.inbox {
            let place = row.text(a::ITEM).and_then(|item| item.strip_prefix("d#")?.parse().ok());
            let entity = number_of(row.text(a::ENTITY).unwrap_or_default());
            lost.filled.extend(place.map(|place| (entity, place)));
        }
        for (entity, ledger) in &mut inner.ledgers {
            lost.given_out.insert(*entity, (ledger.tail, ledger.token));
            (ledger.present, ledger.holder) = (false, None);
        }
        for row in copied.entities.iter().filter(|row| !is_job(row.text(a::ENTITY).unwrap_or_default())) {
            let number = |name| row.number(name).unwrap_or(0);
            let (head, tail, token) = (number(a::HEAD), number(a::TAIL), number(a::TOKEN));
            let holder = row.text(a::HOLDER).map(str::to_owned);
            let entity = number_of(row.text(a::ENTITY).unwrap_or_default());
            let ledger = Ledger { present: true, head, tail, token, holder, granted: token, node: 0 };
            inner.ledgers.insert(entity, ledger);
        }
        inner.history.loses(&lost, &copied, at);
        inner.lost = Some(lost);
        Timestamp::from_millis(EPOCH + copied.as_of.as_millis() as u64)
    }

    /// Rows are raised by this restore.
    pub fn restores(&self, nonce: &Nonce) {
        if let Some(lost) = &mut self.inner().lost {
            lost.restore = Some(nonce.clone());
        }
    }

    /// The tables are ready: no row waits for anything but for a person, and only
    /// where one had to look before.
    pub fn is_restored(&self) {
        let mut mistakes = Vec::new();
        let mut inner = self.inner();
        let lost = inner.lost.as_ref().expect("they were lost");
        for row in self.rows.rows(&TableName::Entities) {
            let state = EntityState::parse(&row).expect("our own rows can be read");
            let key = &state.entity;
            let who = if is_job(key.as_str()) { key.to_string() } else { label(entity_number(key)) };
            if state.held.is_some() || state.blocked.is_some() || !state.is_empty() || state.turn_until.is_some() {
                mistakes.push(format!("{who} is restored, and not free, empty and unblocked"));
            }
            if is_job(key.as_str()) {
                continue;
            }
            match (lost.stopped.contains(&entity_number(key)), state.is_stopped()) {
                (false, true) => {
                    mistakes.push(format!("{who} is on hold since the restore, and was not stopped before"));
                }
                (true, false) => mistakes.push(format!("{who} was stopped before the restore, and goes on")),
                _ => {}
            }
        }
        // What nobody was sure to find waits no longer.
        inner.history.excused.clear();
        inner.history.unwoken.clear();
        inner.history.mistakes.extend(mistakes);
    }

    /// Functions run again.
    pub fn goes_on(&self) {
        let now = self.elapsed();
        let mut inner = self.inner();
        let since = inner.stop.since.take().expect("they do not run");
        inner.stop.lasted += now - since;
        drop(inner);
        self.tell(What::Phase { text: "functions run again" });
        self.goes_on.notify_waiters();
    }

    /// Whether a restore's last write of a row has just come.
    pub(super) fn is_raised(&self, before: Option<&Row>, after: &Row) -> bool {
        let inner = self.inner();
        let Some(nonce) = inner.lost.as_ref().and_then(|lost| lost.restore.as_ref()) else { return false };
        let has = |row: &Row| row.text(a::LAST_CLAIM) == Some(nonce.as_str());
        has(after) && !before.is_some_and(has)
    }

    /// What a row's change gives out that tables gave out which were lost: tail and
    /// token. While a restore settles what waited, its tail is the copy's.
    pub(super) fn given_out_again(
        &self,
        node: u32,
        entity: usize,
        old: &Ledger,
        (tail, token): (u64, u64),
        is_restored: bool,
    ) -> Vec<String> {
        let inner = self.inner();
        let given_out = inner.lost.as_ref().and_then(|lost| lost.given_out.get(&entity));
        let Some((last_tail, last_token)) = given_out else { return Vec::new() };
        let mut mistakes = Vec::new();
        if (token != old.token || is_restored) && token <= *last_token {
            mistakes.push(format!("token {} was given out before the tables were lost", told(token)));
        }
        if (is_restored || tail != old.tail && node != RESTORER) && tail <= *last_tail {
            mistakes.push(format!("sequence {} was given out before the tables were lost", told(tail)));
        }
        mistakes
    }

    /// The greatest tail and token of an entity in tables that were lost.
    pub fn given_out(&self, entity: usize) -> (u64, u64) {
        let inner = self.inner();
        inner.lost.as_ref().and_then(|lost| lost.given_out.get(&entity)).copied().unwrap_or_default()
    }

    /// Whether a place that was claimed in these tables is lost with them.
    pub fn is_lost(&self, tables: u32, entity: usize, sequence: u64) -> bool {
        let inner = self.inner();
        tables != inner.stop.tables && inner.lost.as_ref().is_some_and(|lost| !lost.holds(entity, sequence))
    }
}

impl History {
    /// What was decided since the copy is lost; so are answers whose places are in none.
    fn loses(&mut self, lost: &Lost, copied: &Copied, at: usize) {
        let (decided, before) = (copied.decided.clone(), copied.decided_before.clone());
        let since = |(_, decided): &((usize, u64), Decided)| decided.at > copied.at;
        let decided = std::mem::replace(&mut self.decided, decided);
        let before = std::mem::replace(&mut self.decided_before, before);
        self.lost.extend(decided.into_iter().chain(before).filter(since));
        self.lost_at = Some(at);
        let jobs: BTreeSet<&str> = copied.entities.iter().filter_map(|row| row.text(a::ENTITY)).collect();
        let unknown = self.tick_starts.iter().filter(|start| !jobs.contains(&*format!("cron/{}", start.job)));
        self.ticks_forgotten = unknown.map(|start| (start.job.clone(), start.tick)).collect();
        for call in self.calls.values_mut() {
            let entity = call.entity;
            let (kept, gone): (Vec<_>, _) =
                call.acked.drain(..).partition(|(_, sequence)| lost.holds(entity, *sequence));
            call.deferred &= gone.is_empty();
            (call.acked, call.lost) = (kept, gone);
            // What was answered by then is in the copy.
            let early = call.lost.iter().find(|(acked, _)| *acked < copied.at);
            if let Some((_, sequence)) = early {
                let place = told(*sequence);
                self.mistakes.push(format!("{} was answered before the copy, which lacks it at {place}", call.name));
            }
        }
    }
}
