//! The rows of the world: every write lands here and is audited.

use std::{sync::Mutex, time::Duration};

use futures_util::FutureExt;
use webhook_serializer::protocol::{
    format::attribute as a,
    keys::entity_row,
    receipt::Settlement,
    state::{EntityState, LeaseKind},
    table::{Action, Row, Table, TableError, TableName, Transacted, Write, Written},
};

use super::{
    super::{
        attempt_audit::Change,
        history::{Call, Erased, ObservedRow, Rewound, SettledRecord, TraceEvent, TraceLine},
        jobs,
        loss::RESTORER,
        outage::Service,
        random::RandomStream,
        workload::RETENTION,
    },
    World, is_job, key, label, number_of, relative,
};

impl World {
    pub fn write(&self, node: u32, write: &Write) -> Result<Written, TableError> {
        let before = (write.key.table == TableName::Entities).then(|| self.read(&write.key));
        let written = self.rows.write(write).now_or_never().expect("ready")?;
        if matches!(written, Written::Landed(_)) {
            self.landed(node, write, before.flatten());
        }
        Ok(written)
    }

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

    pub fn set_erasing(&self, node: u32, begins: bool) {
        let mut inner = self.inner();
        if begins {
            inner.erasing.insert(node);
        } else {
            inner.erasing.remove(&node);
        }
    }

    /// A row that an erase reads as idle may be forgotten up to its head.
    pub fn record_read(&self, node: u32, key: &webhook_serializer::protocol::table::Key) {
        if key.table != TableName::Entities || !self.inner().erasing.contains(&node) {
            return;
        }
        let Some(row) = self.read(key) else { return };
        let number = |name| row.number(name).unwrap_or(0);
        if row.get(a::HOLDER).is_none() && number(a::HEAD) == number(a::TAIL) {
            self.record_erase(number_of(&text_of(&key.partition.1)), number(a::HEAD));
        }
    }

    pub fn record_erase(&self, entity: usize, through: u64) {
        self.trace(TraceEvent::Operator { entity, how: "erases" });
        self.mark("an entity is erased");
        let time = self.elapsed();
        self.inner().history.erased.push(Erased { entity, through, time });
    }

    pub fn forget_settled(&self, entity: usize) {
        let key = key(entity);
        self.rows.purge(&TableName::Inbox, |row| {
            let settled = row.text(a::ITEM).is_some_and(|item| item.starts_with("p#") || item.starts_with("r#"));
            settled && row.text(a::ENTITY) == Some(key.as_str())
        });
    }

    pub fn read(&self, key: &webhook_serializer::protocol::table::Key) -> Option<Row> {
        self.rows.get(key).now_or_never().expect("ready").expect("memory answers")
    }

    fn landed(&self, node: u32, write: &Write, before: Option<Row>) {
        match write.key.table {
            TableName::Entities if is_job(&text_of(&write.key.partition.1)) => {
                // A repeated transaction lands once.
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
                if let (Some(sequence), Action::Put(row)) = (item.strip_prefix("d#"), &write.action) {
                    let entity = number_of(&text_of(&write.key.partition.1));
                    let sequence = sequence.parse().unwrap_or(0);
                    if row.get(a::APPENDED_AT).is_some() || row.get(a::REDRIVE).is_some() {
                        self.with_history(|history| history.late.insert((entity, sequence)));
                    }
                    let sequence = relative(sequence);
                    let void = row.get(a::VOID).is_some();
                    if void {
                        self.mark("a place is voided");
                    }
                    self.trace(TraceEvent::Filled { entity, sequence, node, void });
                }
            }
            TableName::Named(_) => {}
        }
        if let Action::Put(row) = &write.action
            && row.get(a::OUTCOME).is_some()
        {
            self.mark("a receipt leaves its row");
        }
    }

    /// Audits one change of an entity's row.
    fn changed(&self, node: u32, entity: usize, before: Option<Row>, row: &Row) {
        let number = |name| row.number(name).unwrap_or(0);
        let (head, tail, token) = (number(a::HEAD), number(a::TAIL), number(a::TOKEN));
        let holder = row.text(a::HOLDER).map(str::to_owned);
        let last = EntityState::parse(row).ok().and_then(|state| state.recent.last().cloned());
        let settlement = last.as_ref().map_or("", |receipt| receipt.settlement.as_str());
        let old = self.observed(entity);
        let recent = EntityState::parse(row).map(|state| state.recent).unwrap_or_default();
        let newly: Vec<_> = recent.iter().filter(|receipt| receipt.sequence.0 > old.head).cloned().collect();
        let was = before.as_ref();
        let is_exclusive = |row: &Row| row.text(a::KIND) == Some(LeaseKind::Exclusive.as_str());
        let by_hand = was.is_some_and(is_exclusive);
        let is_restored = self.is_raised(was, row);
        let how = match () {
            () if is_restored => "raised",
            () if was.is_some() && head < old.head && is_exclusive(row) => "set back",
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
        let at = self.trace(TraceEvent::RowChanged {
            entity,
            node,
            how,
            head: relative(head),
            tail: relative(tail),
            token: relative(token),
        });
        let mut mistakes = Vec::new();
        if old.tail > 0 {
            let which = if old.present { "" } else { " in the new row" };
            if token < old.token {
                mistakes.push(format!("the token went back{which}: {} to {}", relative(old.token), relative(token)));
            }
            if tail < old.tail || head < old.head && how != "set back" {
                mistakes.push(format!("head or tail went back{which}"));
            }
            if ["acquired", "taken over", "settled"].contains(&how) && token <= old.token {
                mistakes.push(format!("{how} without a greater token: {}", relative(token)));
            }
            let most = self.profile.deliver.most() as u64;
            let places = head.saturating_sub(old.head);
            // Ending a rewind settles the rest at once.
            if old.present && (places > most || places != newly.len() as u64) && !by_hand && !is_restored {
                mistakes.push(format!("head went from {} to {}", relative(old.head), relative(head)));
            }
        }
        mistakes.extend(self.given_out_again(node, entity, &old, (tail, token), is_restored));
        let on_hold = |row: &Row| row.number(a::HOLD).is_some();
        let was_on_hold = was.is_some_and(on_hold);
        if on_hold(row) != was_on_hold {
            self.inner().held_at.insert(entity, token);
            self.mark(if was_on_hold { "resumed" } else { "put on hold" });
        }
        if how == "claimed" && old.present && row.get(a::BLOCKED).is_none() && !on_hold(row) {
            mistakes.extend(self.waits_unseen(entity, old.head));
        }
        let drained = holder.is_some() && row.text(a::KIND) == Some(LeaseKind::Drain.as_str());
        self.with_history(|history| match how {
            // An orphaned lease: see "What is left to the sweep" in docs/decisions.md.
            "acquired" | "taken over" if history.is_late => {
                history.excused.insert(entity);
            }
            // Taken over from an exclusive holder: a drain does not acquire an empty inbox otherwise.
            "taken over" if drained && head == tail => {
                history.idle.insert(entity, token);
            }
            // The wake-up of the retry is spent, or the lease was acquired for a duplicate.
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
        if how == "set back" {
            let rewound = Rewound { entity, from: head + 1, through: old.head, token, at };
            mistakes.extend(inner.history.record_rewind(rewound));
        }
        let name = last.and_then(|receipt| inner.history.names.get(&receipt.identity?).copied());
        let is_of_another_period =
            name.is_some_and(|name| inner.history.names.values().filter(|other| **other == name).count() > 2);
        let again = inner.history.decided_last((entity, head)).map(|before| before.settlement.clone());
        let change = Change {
            again: again.filter(|_| how == "settled"),
            entity,
            node,
            before: before.as_ref(),
            after: row,
            settled: name.map(|name| (name, settlement)),
            granted: old.granted,
            is_late: inner.history.is_late,
            is_restoring: node == RESTORER,
            clocks_lie: self.profile.skew.takes_over_live_leases(),
            is_mute: inner.outages.iter().any(|outage| outage.service == Service::EntityWrites),
            time: at_time,
            seed: self.plan.seed,
        };
        let (charged, wrong) = inner.history.attempts.follow(&change);
        inner.trace.extend(charged.map(|what| TraceLine { at: at_time, what }));
        mistakes.extend(wrong);
        inner.before.insert(entity, (at_time, before));
        let settled = how == "settled";
        if settled {
            // Ending a rewind may settle more than the row remembers.
            let first = newly.first().map_or(head + 1, |receipt| receipt.sequence.0);
            for place in (old.head + 1..first).filter(|_| by_hand) {
                match inner.history.decided_last((entity, place)).cloned() {
                    Some(before) => {
                        let kept = SettledRecord { at, time: at_time, is_kept: true, ..before };
                        inner.history.decided.insert((entity, place), kept);
                    }
                    None => mistakes.push(format!("{} was left out by hand", relative(place))),
                }
            }
            for receipt in &newly {
                let name = receipt.identity.and_then(|identity| inner.history.names.get(&identity).copied());
                let settlement = receipt.settlement.as_str().into();
                let mut decided = SettledRecord { at, time: at_time, settlement, name, by: head, is_kept: by_hand };
                if let Some(before) = inner.history.decided_last((entity, receipt.sequence.0)).cloned() {
                    let erased = inner.history.has_erased(entity, receipt.sequence.0, at_time);
                    mistakes.extend(runs_again(&before, &decided, erased));
                    decided.is_kept &= before.settlement == decided.settlement;
                    decided.by = if before.settlement == decided.settlement { before.by } else { decided.by };
                } else if node == RESTORER {
                    let same = |(place, before): &&((usize, u64), SettledRecord)| {
                        *place == (entity, receipt.sequence.0) && before.settlement == decided.settlement
                    };
                    let before = inner.history.lost.iter().rev().find(same);
                    decided.by = before.map_or(decided.by, |(_, before)| before.by);
                }
                if inner.history.decided.insert((entity, receipt.sequence.0), decided).is_some() {
                    mistakes.push(format!("sequence {} was decided twice", relative(receipt.sequence.0)));
                }
            }
        }
        let granted = if how == "acquired" || how == "taken over" { (token, node) } else { (old.granted, old.node) };
        let (granted, by) = granted;
        inner.observed_rows.insert(entity, ObservedRow { present: true, head, tail, token, holder, granted, node: by });
        let reached = match how {
            "taken over" | "force released" | "blocked" | "unblocked" | "set back" | "raised" => Some(how),
            "settled" if settlement == "repeat" && is_of_another_period => {
                Some("a repeat of another period is settled")
            }
            "settled" if settlement == "repeat" => Some("a repeat is settled"),
            "settled" if settlement == "parked" => Some("a delivery is parked"),
            "settled" if newly.len() > 1 && newly[0].settlement == Settlement::Superseded => {
                Some("a latest is settled")
            }
            "settled" if newly.len() > 1 => Some("a group is settled"),
            "settled" if row.get(a::HOLDER).is_some() => Some("settled and held on"),
            "released" if row.get(a::ONE_BY_ONE).is_some() => Some("a group fails"),
            _ => None,
        };
        let name = label(entity);
        inner.history.mistakes.extend(mistakes.into_iter().map(|mistake| format!("{name}: {mistake} (node {node})")));
        drop(inner);
        if let Some(reached) = reached {
            self.mark(reached);
        }
    }

    /// Finds a delivery that waits without a wake-up or a worker; the next claim's wake-up would hide it.
    fn waits_unseen(&self, entity: usize, head: u64) -> Option<String> {
        let under_way = self.queue.holds(&key(entity));
        self.with_history(|history| {
            let processing = history.processing.get(&entity).is_some_and(|workers| *workers > 0);
            if under_way
                || processing
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

    /// Returns a row as a stale read may see it.
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

    pub fn purge(&self, stream: &RandomStream, permille: u64) {
        let now = self.true_millis() / 1000;
        for table in [TableName::Entities, TableName::Inbox] {
            let gone = Mutex::new(Vec::new());
            self.rows.purge(&table, |row| {
                let due = row.number(a::PURGE_AT).is_some_and(|at| at <= now);
                if !due {
                    return false;
                }
                let mut draw = stream.draw();
                let goes = draw.happens(permille) && self.allows(draw.id);
                if goes {
                    let text = |name| row.text(name).unwrap_or_default().to_owned();
                    gone.lock().expect("one thread").push((text(a::ENTITY), text(a::ITEM)));
                }
                goes
            });
            for (entity, item) in gone.into_inner().expect("one thread") {
                self.mark(if item.is_empty() { "an entity's row is purged" } else { "an inbox row is purged" });
                if item.is_empty() {
                    let mut inner = self.inner();
                    let observed = inner.observed_rows.entry(number_of(&entity)).or_default();
                    observed.present = false;
                    observed.holder = None;
                }
                self.trace(TraceEvent::Purged { entity, item });
            }
        }
    }
}

/// Only applied deliveries run again; others keep their settlement while it is remembered.
fn runs_again(before: &SettledRecord, now: &SettledRecord, erased: bool) -> Option<String> {
    let as_it_was = before.settlement == now.settlement && before.name == now.name;
    let fails_now = before.settlement == "applied" && now.settlement == "parked";
    let is_old = now.time.saturating_sub(before.time) > RETENTION / 3;
    let name = before.name.map_or_else(|| "a void".to_owned(), |name| name.to_string());
    (!as_it_was && !fails_now && !is_old && !erased)
        .then(|| format!("{name} was {}, and is {} when it is run again", before.settlement, now.settlement))
}

fn text_of(value: &webhook_serializer::protocol::table::Value) -> String {
    match value {
        webhook_serializer::protocol::table::Value::S(text) => text.clone(),
        other => format!("{other:?}"),
    }
}
