//! Copies, loses and restores the tables, and records what the auditor has to know about the loss.

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
        history::{InboxPlace, ObservedRow, SettledRecord, SimulationHistory, TraceEvent},
        loss::RESTORER,
        node::pause,
    },
    EPOCH, SimulatedWorld, entity_number, is_job, label, number_of, relative,
};

#[derive(Debug)]
pub struct TableCopy {
    entities: Vec<Row>,
    inbox: Vec<Row>,
    at: usize,
    as_of: Duration,
    decided: BTreeMap<InboxPlace, SettledRecord>,
    decided_before: Vec<(InboxPlace, SettledRecord)>,
}

/// The newest numbers that an order's row has given out.
#[derive(Debug, Clone, Copy, Default)]
pub struct GivenOut {
    pub tail: u64,
    pub token: u64,
}

#[derive(Debug, Default)]
pub struct TableLoss {
    given_out: BTreeMap<usize, GivenOut>,
    heads: BTreeMap<usize, u64>,
    filled: BTreeSet<InboxPlace>,
    /// Orders that were held or blocked in the copy.
    stopped: BTreeSet<usize>,
    restore: Option<Nonce>,
}

impl TableLoss {
    fn holds(&self, entity: usize, sequence: u64) -> bool {
        self.heads.get(&entity).is_some_and(|head| sequence <= *head || self.filled.contains(&(entity, sequence)))
    }
}

#[derive(Debug, Default)]
pub struct StoppedTime {
    since: Option<Duration>,
    lasted: Duration,
    /// The number of losses so far. It tells the present tables from those that were lost.
    generation: u32,
}

impl SimulatedWorld {
    pub fn generation(&self) -> u32 {
        self.inner().stop.generation
    }

    pub fn is_stopped(&self) -> bool {
        self.inner().stop.since.is_some()
    }

    /// Returns the true time for which functions have run.
    pub fn running_time(&self) -> Duration {
        let now = self.elapsed();
        let inner = self.inner();
        now - inner.stop.lasted - inner.stop.since.map_or(Duration::ZERO, |since| now - since)
    }

    pub async fn until_running(&self) {
        loop {
            let goes_on = self.goes_on.notified();
            if !self.is_stopped() {
                return;
            }
            goes_on.await;
        }
    }

    pub async fn pause_until(&self, running_time: Duration) {
        loop {
            pause(running_time.saturating_sub(self.running_time())).await;
            self.until_running().await;
            if self.running_time() >= running_time {
                return;
            }
        }
    }

    pub fn copy_entities(&self) {
        let at = self.trace(TraceEvent::Phase { text: "the entities are copied" });
        let entities = self.rows.rows(&TableName::Entities);
        let as_of = self.elapsed();
        let mut inner = self.inner();
        let decided = inner.history.decided.clone();
        let decided_before = inner.history.decided_before.clone();
        inner.copied = Some(TableCopy { entities, inbox: Vec::new(), at, as_of, decided, decided_before });
    }

    pub fn copy_inbox(&self) {
        self.trace(TraceEvent::Phase { text: "the inbox is copied" });
        let inbox = self.rows.rows(&TableName::Inbox);
        self.inner().copied.as_mut().expect("the entities are copied first").inbox = inbox;
    }

    /// Replaces the tables by their copies and stops all functions.
    pub fn lose_tables(&self) -> Timestamp {
        let at = self.trace(TraceEvent::Phase { text: "THE TABLES ARE LOST" });
        self.mark("the tables are lost");
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
        inner.stop.generation += 1;
        inner.stop.since = Some(now);
        inner.before.clear();
        let mut lost = TableLoss::default();
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
        for (entity, observed) in &mut inner.observed_rows {
            lost.given_out.insert(*entity, GivenOut { tail: observed.tail, token: observed.token });
            (observed.present, observed.holder) = (false, None);
        }
        for row in copied.entities.iter().filter(|row| !is_job(row.text(a::ENTITY).unwrap_or_default())) {
            let number = |name| row.number(name).unwrap_or(0);
            let head = number(a::HEAD);
            let tail = number(a::TAIL);
            let token = number(a::TOKEN);
            let holder = row.text(a::HOLDER).map(str::to_owned);
            let entity = number_of(row.text(a::ENTITY).unwrap_or_default());
            let observed = ObservedRow { present: true, head, tail, token, holder, granted: token, node: 0 };
            inner.observed_rows.insert(entity, observed);
        }
        inner.history.record_loss(&lost, &copied, at);
        inner.lost = Some(lost);
        Timestamp::from_millis(EPOCH + copied.as_of.as_millis() as u64)
    }

    pub fn set_restore(&self, nonce: &Nonce) {
        if let Some(lost) = &mut self.inner().lost {
            lost.restore = Some(nonce.clone());
        }
    }

    /// Checks that after a restore each row is free, empty and unblocked. An order must be on hold if it was
    /// held or blocked in the copy, and only then.
    pub fn check_restored(&self) {
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
                (true, false) => mistakes.push(format!("{who} was stopped before the restore and continues")),
                _ => {}
            }
        }
        // The restore settled every waiting delivery.
        inner.history.excused.clear();
        inner.history.unwoken.clear();
        inner.history.mistakes.extend(mistakes);
    }

    pub fn resume(&self) {
        let now = self.elapsed();
        let mut inner = self.inner();
        let since = inner.stop.since.take().expect("they do not run");
        inner.stop.lasted += now - since;
        drop(inner);
        self.trace(TraceEvent::Phase { text: "functions run again" });
        self.goes_on.notify_waiters();
    }

    pub(super) fn is_raised(&self, before: Option<&Row>, after: &Row) -> bool {
        let inner = self.inner();
        let Some(nonce) = inner.lost.as_ref().and_then(|lost| lost.restore.as_ref()) else { return false };
        let has = |row: &Row| row.text(a::LAST_CLAIM) == Some(nonce.as_str());
        has(after) && !before.is_some_and(has)
    }

    /// Returns a mistake for each token or sequence that is given out although the lost tables had given it
    /// out before.
    pub(super) fn given_out_again(
        &self,
        node: u32,
        entity: usize,
        old: &ObservedRow,
        GivenOut { tail, token }: GivenOut,
        is_restored: bool,
    ) -> Vec<String> {
        let inner = self.inner();
        let given_out = inner.lost.as_ref().and_then(|lost| lost.given_out.get(&entity));
        let Some(last) = given_out else { return Vec::new() };
        let mut mistakes = Vec::new();
        if (token != old.token || is_restored) && token <= last.token {
            mistakes.push(format!("token {} was given out before the tables were lost", relative(token)));
        }
        if (is_restored || tail != old.tail && node != RESTORER) && tail <= last.tail {
            mistakes.push(format!("sequence {} was given out before the tables were lost", relative(tail)));
        }
        mistakes
    }

    pub fn given_out(&self, entity: usize) -> GivenOut {
        let inner = self.inner();
        inner.lost.as_ref().and_then(|lost| lost.given_out.get(&entity)).copied().unwrap_or_default()
    }

    pub fn is_lost(&self, generation: u32, entity: usize, sequence: u64) -> bool {
        let inner = self.inner();
        generation != inner.stop.generation && inner.lost.as_ref().is_some_and(|lost| !lost.holds(entity, sequence))
    }
}

impl SimulationHistory {
    /// Forgets settlements and answers that the copy does not have.
    fn record_loss(&mut self, lost: &TableLoss, copied: &TableCopy, at: usize) {
        let decided = copied.decided.clone();
        let before = copied.decided_before.clone();
        let since = |(_, decided): &(InboxPlace, SettledRecord)| decided.at > copied.at;
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
            // An answer from before the copy must be in the copy.
            let early = call.lost.iter().find(|(acked, _)| *acked < copied.at);
            if let Some((_, sequence)) = early {
                let place = relative(*sequence);
                self.mistakes.push(format!("{} was answered before the copy, which lacks it at {place}", call.name));
            }
        }
    }
}
