//! Stores messages in SQLite. No other file contains SQL.
//!
//! The database is in WAL mode without a sync for each commit: answered requests survive the end of the process, but
//! not a power cut. The database is locked exclusively, because a send from another process would not wake the receives
//! of this process.

use std::{collections::BTreeSet, path::Path, time::Duration};

use rusqlite::{Connection, OptionalExtension, Row, Transaction, named_params};
use serde_json::json;

use super::message::{NewMessage, QueuedMessage, ReceiptHandle};

/// The table of messages.
///
/// A message is *in flight* while a receive hides it, *delayed* until it is first visible, and otherwise *visible*. All
/// three states follow from `visible_at` and `receives`. With `AUTOINCREMENT` a row's number, and so a receipt handle,
/// is never used again.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS messages (
        row INTEGER PRIMARY KEY AUTOINCREMENT,
        queue TEXT NOT NULL,
        message_id TEXT NOT NULL,
        body TEXT NOT NULL,
        sent_at INTEGER NOT NULL,
        visible_at INTEGER NOT NULL,
        receives INTEGER NOT NULL DEFAULT 0,
        receives_elsewhere INTEGER NOT NULL DEFAULT 0,
        message_group TEXT,
        deduplication_id TEXT,
        attributes TEXT
    );
    CREATE INDEX IF NOT EXISTS messages_by_visibility ON messages (queue, visible_at, receives);
    CREATE TABLE IF NOT EXISTS deduplications (
        queue TEXT NOT NULL,
        deduplication_id TEXT NOT NULL,
        message_id TEXT NOT NULL,
        sent_at INTEGER NOT NULL,
        PRIMARY KEY (queue, deduplication_id)
    );
";

/// The columns that files of earlier releases lack.
const NEWER_COLUMNS: [&str; 3] = ["message_group", "deduplication_id", "attributes"];

/// The time during which a FIFO queue drops a message with the deduplication id of an earlier one, in
/// [SQS](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html)
/// (read on 2026-11-29).
const DEDUPLICATION: Duration = Duration::from_secs(300);

const MESSAGE_ID: &str =
    "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)
    || '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))";

/// Selects visible messages whose group is not in the JSON array `:groups`.
const OF_OTHER_GROUPS: &str = "
    SELECT * FROM messages WHERE queue = :queue AND visible_at <= :now
        AND (message_group IS NULL OR message_group NOT IN (SELECT value FROM json_each(:groups)))
    ORDER BY visible_at, receives, row LIMIT :limit";

const OF_GROUPS: &str = "
    SELECT * FROM messages WHERE queue = :queue AND visible_at <= :now
        AND message_group IN (SELECT value FROM json_each(:groups))
    ORDER BY visible_at, receives, row LIMIT :limit";

/// Selects visible messages of a FIFO queue in their order, without those of groups that have a message in flight.
const IN_ORDER: &str = "
    SELECT * FROM messages WHERE queue = :queue AND visible_at <= :now AND message_group NOT IN
        (SELECT message_group FROM messages WHERE queue = :queue AND visible_at > :now)
    ORDER BY row LIMIT :limit";

pub(super) struct Visible {
    pub(super) row: i64,
    /// The number of earlier receives of the message from this queue. The next receive is not included.
    pub(super) receives_here: u32,
    pub(super) message: QueuedMessage,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub visible: u64,
    pub in_flight: u64,
    pub delayed: u64,
}

impl Counts {
    pub fn total(&self) -> u64 {
        self.visible + self.in_flight + self.delayed
    }
}

pub(super) struct MessageStore {
    connection: Connection,
}

impl MessageStore {
    pub(super) fn memory() -> rusqlite::Result<Self> {
        Self::prepare(Connection::open_in_memory()?)
    }

    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        // Waiting would be useless: another process keeps the file locked as long as it lives.
        connection.busy_timeout(Duration::ZERO)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        Self::prepare(connection)
    }

    fn prepare(connection: Connection) -> rusqlite::Result<Self> {
        connection.execute_batch(SCHEMA)?;
        for column in NEWER_COLUMNS {
            if !connection.column_exists(None, "messages", column)? {
                connection.execute_batch(&format!("ALTER TABLE messages ADD COLUMN {column} TEXT"))?;
            }
        }
        connection.set_prepared_statement_cache_capacity(32);
        Ok(Self { connection })
    }

    pub(super) fn begin(&self) -> rusqlite::Result<Transaction<'_>> {
        self.connection.unchecked_transaction()
    }

    pub(super) fn insert(&self, queue: &str, message: &NewMessage, now: Duration) -> rusqlite::Result<String> {
        let sql = format!(
            "INSERT INTO messages
                 (queue, message_id, body, sent_at, visible_at, message_group, deduplication_id, attributes)
             VALUES (:queue, {MESSAGE_ID}, :body, :sent_at, :visible_at, :group, :deduplication_id, :attributes)
             RETURNING message_id"
        );
        // Unlike `query_row`, this runs the statement to its end and so returns the error of its commit.
        self.connection.prepare_cached(&sql)?.query_one(
            named_params! {
                ":queue": queue,
                ":body": message.body,
                ":sent_at": millis(now),
                ":visible_at": millis(now + message.delay),
                ":group": message.group,
                ":deduplication_id": message.deduplication_id,
                ":attributes": json!(message.attributes).to_string(),
            },
            |row| row.get(0),
        )
    }

    /// Inserts a message into a FIFO queue, unless another with its deduplication id was sent shortly before. Returns
    /// the id of the message that is in the queue, or was.
    pub(super) fn insert_once(&self, queue: &str, message: &NewMessage, now: Duration) -> rusqlite::Result<String> {
        let transaction = self.begin()?;
        let forget = "DELETE FROM deduplications WHERE sent_at <= :until";
        let until = millis(now.saturating_sub(DEDUPLICATION));
        self.connection.prepare_cached(forget)?.execute(named_params! { ":until": until })?;
        let find = "SELECT message_id FROM deduplications WHERE queue = :queue AND deduplication_id = :id";
        let sent = named_params! { ":queue": queue, ":id": message.deduplication_id };
        if let Some(earlier) = self.connection.prepare_cached(find)?.query_one(sent, |row| row.get(0)).optional()? {
            return Ok(earlier);
        }
        let message_id = self.insert(queue, message, now)?;
        let remember = "INSERT INTO deduplications VALUES (:queue, :id, :message_id, :sent_at)";
        self.connection.prepare_cached(remember)?.execute(named_params! {
            ":queue": queue, ":id": message.deduplication_id, ":message_id": message_id, ":sent_at": millis(now),
        })?;
        transaction.commit()?;
        Ok(message_id)
    }

    /// Returns up to `limit` visible messages; those that became visible first come first. Messages of the groups
    /// `last` come behind all others.
    pub(super) fn visible(
        &self,
        queue: &str,
        now: Duration,
        limit: usize,
        last: &BTreeSet<String>,
    ) -> rusqlite::Result<Vec<Visible>> {
        let groups = json!(last).to_string();
        let mut messages = Vec::new();
        for sql in [OF_OTHER_GROUPS, OF_GROUPS] {
            let left = (limit - messages.len()) as i64;
            let values = named_params! { ":queue": queue, ":now": millis(now), ":groups": groups, ":limit": left };
            let mut select = self.connection.prepare_cached(sql)?;
            for message in select.query_map(values, |row| visible(row, queue))? {
                messages.push(message?);
            }
        }
        Ok(messages)
    }

    /// Returns up to `limit` visible messages of a FIFO queue, in their order.
    pub(super) fn visible_in_order(&self, queue: &str, now: Duration, limit: usize) -> rusqlite::Result<Vec<Visible>> {
        let values = named_params! { ":queue": queue, ":now": millis(now), ":limit": limit as i64 };
        let mut select = self.connection.prepare_cached(IN_ORDER)?;
        select.query_map(values, |row| visible(row, queue))?.collect()
    }

    /// Counts the messages in flight of each group. Those without a group are counted together.
    pub(super) fn in_flight_by_group(
        &self,
        queue: &str,
        now: Duration,
    ) -> rusqlite::Result<Vec<(Option<String>, u64)>> {
        let sql = "SELECT message_group, count(*) FROM messages
                   WHERE queue = :queue AND visible_at > :now AND receives > 0 GROUP BY message_group";
        let mut select = self.connection.prepare_cached(sql)?;
        let count = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64));
        select.query_map(named_params! { ":queue": queue, ":now": millis(now) }, count)?.collect()
    }

    /// Returns whether a visible message has this group.
    pub(super) fn has_visible_of(&self, queue: &str, now: Duration, group: &str) -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM messages WHERE queue = :queue AND visible_at <= :now AND message_group = :group";
        let values = named_params! { ":queue": queue, ":now": millis(now), ":group": group };
        self.connection.prepare_cached(sql)?.exists(values)
    }

    pub(super) fn deliver(&self, row: i64, visible_at: Duration) -> rusqlite::Result<()> {
        let sql = "UPDATE messages SET visible_at = :visible_at, receives = receives + 1 WHERE row = :row";
        let values = named_params! { ":row": row, ":visible_at": millis(visible_at) };
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    pub(super) fn give_up(&self, row: i64, to: &str, now: Duration) -> rusqlite::Result<()> {
        let sql = "UPDATE messages SET queue = :to, visible_at = :now, receives_elsewhere = receives WHERE row = :row";
        let values = named_params! { ":row": row, ":to": to, ":now": millis(now) };
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    /// Deletes the message, unless the message was received again after the receive that `receipt` names.
    pub(super) fn delete(&self, queue: &str, receipt: ReceiptHandle) -> rusqlite::Result<()> {
        let sql = "DELETE FROM messages WHERE row = :row AND queue = :queue AND receives = :receive";
        let values = named_params! { ":row": receipt.row, ":queue": queue, ":receive": receipt.receive };
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    pub(super) fn visible_at(&self, queue: &str, receipt: ReceiptHandle) -> rusqlite::Result<Option<Duration>> {
        let sql = "SELECT visible_at FROM messages WHERE row = :row AND queue = :queue";
        let mut select = self.connection.prepare_cached(sql)?;
        let mut rows = select.query(named_params! { ":row": receipt.row, ":queue": queue })?;
        rows.next()?.map(|row| time(row, "visible_at")).transpose()
    }

    pub(super) fn set_visible_at(&self, row: i64, visible_at: Duration) -> rusqlite::Result<()> {
        let sql = "UPDATE messages SET visible_at = :visible_at WHERE row = :row";
        let values = named_params! { ":row": row, ":visible_at": millis(visible_at) };
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    pub(super) fn counts(&self, queue: &str, now: Duration) -> rusqlite::Result<Counts> {
        let sql = "SELECT count(*) FILTER (WHERE visible_at <= :now),
                          count(*) FILTER (WHERE visible_at > :now AND receives > 0),
                          count(*) FILTER (WHERE visible_at > :now AND receives = 0)
                   FROM messages WHERE queue = :queue";
        let values = named_params! { ":queue": queue, ":now": millis(now) };
        self.connection.prepare_cached(sql)?.query_one(values, |row| {
            let count = |column| row.get::<_, i64>(column).map(|count| count as u64);
            Ok(Counts { visible: count(0)?, in_flight: count(1)?, delayed: count(2)? })
        })
    }

    pub(super) fn next_visible_at(&self, queue: &str, now: Duration) -> rusqlite::Result<Option<Duration>> {
        let sql = "SELECT min(visible_at) FROM messages WHERE queue = :queue AND visible_at > :now";
        let values = named_params! { ":queue": queue, ":now": millis(now) };
        let next: Option<i64> = self.connection.prepare_cached(sql)?.query_one(values, |row| row.get(0))?;
        Ok(next.map(|millis| Duration::from_millis(millis as u64)))
    }
}

fn visible(row: &Row<'_>, queue: &str) -> rusqlite::Result<Visible> {
    let number: i64 = row.get("row")?;
    let receives: u32 = row.get("receives")?;
    let attributes: Option<String> = row.get("attributes")?;
    let message = QueuedMessage {
        message_id: row.get("message_id")?,
        receipt_handle: ReceiptHandle { row: number, receive: receives + 1 }.handle(queue),
        body: row.get("body")?,
        sent_at: time(row, "sent_at")?,
        receive_count: receives + 1,
        sequence_number: number,
        group: row.get("message_group")?,
        deduplication_id: row.get("deduplication_id")?,
        attributes: attributes.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
    };
    Ok(Visible { row: number, receives_here: receives - row.get::<_, u32>("receives_elsewhere")?, message })
}

fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Duration> {
    row.get::<_, i64>(column).map(|millis| Duration::from_millis(millis as u64))
}

fn millis(time: Duration) -> i64 {
    time.as_millis() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_file_of_an_earlier_release_are_kept() {
        let store = MessageStore::memory().unwrap();
        store.insert("q", &NewMessage::with_body("kept"), Duration::ZERO).unwrap();
        for column in NEWER_COLUMNS {
            store.connection.execute_batch(&format!("ALTER TABLE messages DROP COLUMN {column}")).unwrap();
        }
        let store = MessageStore::prepare(store.connection).unwrap();
        let grouped = NewMessage { group: Some("shop".to_owned()), ..NewMessage::with_body("new") };
        store.insert("q", &grouped, Duration::ZERO).unwrap();
        let visible = store.visible("q", Duration::ZERO, 10, &BTreeSet::new()).unwrap();
        assert_eq!(visible.iter().map(|it| &*it.message.body).collect::<Vec<_>>(), ["kept", "new"]);
    }
}
