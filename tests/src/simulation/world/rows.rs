//! The rows of the world. Every write lands here and is audited.

use std::{sync::Mutex, time::Duration};

use futures_util::FutureExt;
use webhook_serializer::protocol::{
    format::attribute as a,
    keys::entity_row,
    table::{Action, Row, Table, TableError, TableName, Transacted, Write, Written},
};

use super::{
    super::{
        history::{RecordedErasure, TraceEvent},
        jobs,
        random::RandomStream,
    },
    SimulatedWorld, is_job, key, number_of, relative,
};

impl SimulatedWorld {
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

    /// Records that an erase has read a row. If the row looks idle, the erase may forget its deliveries up to
    /// `head`.
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
        self.inner().history.erased.push(RecordedErasure { entity, through, time });
    }

    pub fn forget_settled(&self, entity: usize) {
        let key = key(entity);
        self.rows.purge(&TableName::Inbox, |row| {
            let settled =
                row.text(a::ITEM).is_some_and(|item| ["p#", "r#", "s#"].iter().any(|kind| item.starts_with(kind)));
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
            && (row.get(a::OUTCOME).is_some() || row.get(a::RECENT).is_some())
        {
            self.mark("a receipt leaves its row");
        }
    }

    /// Returns an order's row as a stale read may see it: as it was before its last write, if this write is
    /// less than three seconds old. `None` if the row did not exist then.
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

fn text_of(value: &webhook_serializer::protocol::table::Value) -> String {
    match value {
        webhook_serializer::protocol::table::Value::S(text) => text.clone(),
        other => format!("{other:?}"),
    }
}
