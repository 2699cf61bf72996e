//! Stores messages in SQLite. No other file contains SQL.
//!
//! The database is in WAL mode without a sync for each commit: answered requests survive the end of the process, but
//! not a power cut. The database is locked exclusively, because a send from another process would not wake the receives
//! of this process.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, Row, Transaction, named_params};

use super::message::{QueuedMessage, ReceiptHandle};

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
        receives_elsewhere INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX IF NOT EXISTS messages_by_visibility ON messages (queue, visible_at, receives);
";

const MESSAGE_ID: &str =
    "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)
    || '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))";

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
        connection.set_prepared_statement_cache_capacity(32);
        Ok(Self { connection })
    }

    pub(super) fn begin(&self) -> rusqlite::Result<Transaction<'_>> {
        self.connection.unchecked_transaction()
    }

    pub(super) fn insert(
        &self,
        queue: &str,
        body: &str,
        now: Duration,
        visible_at: Duration,
    ) -> rusqlite::Result<String> {
        let sql = format!(
            "INSERT INTO messages (queue, message_id, body, sent_at, visible_at)
             VALUES (:queue, {MESSAGE_ID}, :body, :sent_at, :visible_at) RETURNING message_id"
        );
        // Unlike `query_row`, this runs the statement to its end and so returns the error of its commit.
        self.connection.prepare_cached(&sql)?.query_one(
            named_params! {
                ":queue": queue,
                ":body": body,
                ":sent_at": millis(now),
                ":visible_at": millis(visible_at),
            },
            |row| row.get(0),
        )
    }

    /// Returns up to `limit` visible messages; those that became visible first come first.
    pub(super) fn visible(&self, queue: &str, now: Duration, limit: usize) -> rusqlite::Result<Vec<Visible>> {
        let sql = "SELECT * FROM messages WHERE queue = :queue AND visible_at <= :now
                   ORDER BY visible_at, receives, row LIMIT :limit";
        let mut select = self.connection.prepare_cached(sql)?;
        let values = named_params! { ":queue": queue, ":now": millis(now), ":limit": limit as i64 };
        select.query_map(values, |row| visible(row, queue))?.collect()
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
    let message = QueuedMessage {
        message_id: row.get("message_id")?,
        receipt_handle: ReceiptHandle { row: number, receive: receives + 1 }.handle(queue),
        body: row.get("body")?,
        sent_at: time(row, "sent_at")?,
        receive_count: receives + 1,
    };
    Ok(Visible { row: number, receives_here: receives - row.get::<_, u32>("receives_elsewhere")?, message })
}

fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Duration> {
    row.get::<_, i64>(column).map(|millis| Duration::from_millis(millis as u64))
}

fn millis(time: Duration) -> i64 {
    time.as_millis() as i64
}
