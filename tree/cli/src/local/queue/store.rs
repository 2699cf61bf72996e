//! Messages and queues in SQLite; the only file with SQL. Rules are [`super::queues`]'s.
//!
//! One connection, used under a lock. A file is in WAL mode without a sync for each commit: what was answered survives
//! the end of the process however it comes, not a power cut. The file is held exclusively, as wake-ups do not reach
//! pollers of another process.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::Type;
use rusqlite::{Connection, Row, Transaction, named_params};

use super::message::{Message, NewMessage, Receipt};

/// A message is *delayed* until first visible, *in flight* while hidden by a receive, else *visible*; all three follow
/// from `visible_at` and `receives`. `AUTOINCREMENT` keeps a row's number, and so a receipt handle, from coming back.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS queue (
        name TEXT PRIMARY KEY,
        attributes TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        modified_at INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS message (
        row INTEGER PRIMARY KEY AUTOINCREMENT,
        queue TEXT NOT NULL,
        message_id TEXT NOT NULL,
        body TEXT NOT NULL,
        attributes TEXT NOT NULL,
        trace_header TEXT,
        group_id TEXT,
        sent_at INTEGER NOT NULL,
        visible_at INTEGER NOT NULL,
        first_received_at INTEGER,
        receives INTEGER NOT NULL DEFAULT 0,
        receives_elsewhere INTEGER NOT NULL DEFAULT 0,
        dead_letter_source TEXT
    );
    CREATE INDEX IF NOT EXISTS message_by_visibility ON message (queue, visible_at, receives);
    CREATE INDEX IF NOT EXISTS message_by_age ON message (queue, sent_at);
";

/// A random UUID (version 4) out of SQLite's own random bytes.
const MESSAGE_ID: &str =
    "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)
    || '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))";

/// A queue as it was saved.
pub(super) struct SavedQueue {
    pub(super) name: String,
    /// The attributes in JSON.
    pub(super) attributes: String,
    pub(super) created_at: Duration,
    pub(super) modified_at: Duration,
}

/// A visible message, as it would be received.
pub(super) struct Visible {
    pub(super) row: i64,
    /// Receives in this queue, this one not counted.
    pub(super) receives_here: u32,
    pub(super) message: Message,
}

/// How many messages of a queue are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ready to be received.
    pub visible: u64,
    /// Received and hidden, neither deleted nor visible again.
    pub in_flight: u64,
    /// Not yet visible for the first time.
    pub delayed: u64,
}

impl Counts {
    /// All messages of the queue.
    pub fn total(&self) -> u64 {
        self.visible + self.in_flight + self.delayed
    }

    /// Whether nobody has anything to do until a delay ends or something is sent.
    pub fn is_idle(&self) -> bool {
        self.visible == 0 && self.in_flight == 0
    }
}

pub(super) struct Store {
    connection: Connection,
}

impl Store {
    pub(super) fn memory() -> rusqlite::Result<Self> {
        Self::prepare(Connection::open_in_memory()?)
    }

    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        // Another owner will not let go while we wait.
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

    /// What follows until the commit happens together or not at all.
    pub(super) fn begin(&self) -> rusqlite::Result<Transaction<'_>> {
        self.connection.unchecked_transaction()
    }

    pub(super) fn queues(&self) -> rusqlite::Result<Vec<SavedQueue>> {
        let mut select = self.connection.prepare("SELECT name, attributes, created_at, modified_at FROM queue")?;
        let queues = select.query_map([], |row| {
            Ok(SavedQueue {
                name: row.get(0)?,
                attributes: row.get(1)?,
                created_at: time(row, "created_at")?,
                modified_at: time(row, "modified_at")?,
            })
        })?;
        queues.collect()
    }

    pub(super) fn save_queue(&self, queue: &SavedQueue) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO queue VALUES (:name, :attributes, :created_at, :modified_at)";
        self.connection.prepare_cached(sql)?.execute(named_params! {
            ":name": queue.name,
            ":attributes": queue.attributes,
            ":created_at": millis(queue.created_at),
            ":modified_at": millis(queue.modified_at),
        })?;
        Ok(())
    }

    /// Puts a message into the queue and returns its id.
    pub(super) fn insert(
        &self,
        queue: &str,
        message: &NewMessage,
        now: Duration,
        visible_at: Duration,
    ) -> rusqlite::Result<String> {
        let sql = format!(
            "INSERT INTO message (queue, message_id, body, attributes, trace_header, group_id, sent_at, visible_at)
             VALUES (:queue, {MESSAGE_ID}, :body, :attributes, :trace_header, :group_id, :sent_at, :visible_at)
             RETURNING message_id"
        );
        let attributes = serde_json::to_string(&message.attributes).expect("texts have a JSON form");
        self.connection.prepare_cached(&sql)?.query_row(
            named_params! {
                ":queue": queue,
                ":body": message.body,
                ":attributes": attributes,
                ":trace_header": message.trace_header,
                ":group_id": message.group_id,
                ":sent_at": millis(now),
                ":visible_at": millis(visible_at),
            },
            |row| row.get(0),
        )
    }

    /// Up to `limit` visible messages, longest visible first.
    pub(super) fn visible(&self, queue: &str, now: Duration, limit: usize) -> rusqlite::Result<Vec<Visible>> {
        let sql = "SELECT * FROM message WHERE queue = :queue AND visible_at <= :now
                   ORDER BY visible_at, receives, row LIMIT :limit";
        let mut select = self.connection.prepare_cached(sql)?;
        let rows = select
            .query_map(named_params! { ":queue": queue, ":now": millis(now), ":limit": limit as i64 }, |row| {
                read_visible(row, queue, now)
            })?;
        rows.collect()
    }

    /// Counts a receive and hides the message until `visible_at`.
    pub(super) fn deliver(&self, row: i64, now: Duration, visible_at: Duration) -> rusqlite::Result<()> {
        let sql = "UPDATE message SET visible_at = :visible_at, receives = receives + 1,
                   first_received_at = coalesce(first_received_at, :now) WHERE row = :row";
        let values = named_params! { ":row": row, ":now": millis(now), ":visible_at": millis(visible_at) };
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    /// Moves a message to its dead-letter queue, visible there at once.
    pub(super) fn give_up(&self, row: i64, to: &str, source: &str, now: Duration) -> rusqlite::Result<()> {
        let sql = "UPDATE message SET queue = :to, dead_letter_source = :source, visible_at = :now,
                   receives_elsewhere = receives WHERE row = :row";
        let values = named_params! { ":row": row, ":to": to, ":source": source, ":now": millis(now) };
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    /// Deletes the message if this is its latest receipt; whether it was there.
    pub(super) fn delete(&self, queue: &str, receipt: Receipt) -> rusqlite::Result<bool> {
        let sql = "DELETE FROM message WHERE row = :row AND queue = :queue AND receives = :receive";
        let values = named_params! { ":row": receipt.row, ":queue": queue, ":receive": receipt.receive };
        self.connection.prepare_cached(sql)?.execute(values).map(|deleted| deleted > 0)
    }

    /// When the message of this receipt is visible (again); `None` if it is not in the queue.
    pub(super) fn visible_at(&self, queue: &str, receipt: Receipt) -> rusqlite::Result<Option<Duration>> {
        let sql = "SELECT visible_at FROM message WHERE row = :row AND queue = :queue";
        let mut select = self.connection.prepare_cached(sql)?;
        let mut rows = select.query(named_params! { ":row": receipt.row, ":queue": queue })?;
        rows.next()?.map(|row| time(row, "visible_at")).transpose()
    }

    pub(super) fn set_visible_at(&self, row: i64, visible_at: Duration) -> rusqlite::Result<()> {
        let sql = "UPDATE message SET visible_at = :visible_at WHERE row = :row";
        let values = named_params! { ":row": row, ":visible_at": millis(visible_at) };
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    pub(super) fn purge(&self, queue: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached("DELETE FROM message WHERE queue = ?1")?.execute([queue]).map(drop)
    }

    /// Deletes what was sent at `sent_by` or earlier.
    pub(super) fn drop_expired(&self, queue: &str, sent_by: Duration) -> rusqlite::Result<()> {
        let sql = "DELETE FROM message WHERE queue = :queue AND sent_at <= :sent_by";
        let values = named_params! { ":queue": queue, ":sent_by": millis(sent_by) };
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    pub(super) fn counts(&self, queue: &str, now: Duration) -> rusqlite::Result<Counts> {
        let sql = "SELECT count(*) FILTER (WHERE visible_at <= :now),
                          count(*) FILTER (WHERE visible_at > :now AND receives > 0),
                          count(*) FILTER (WHERE visible_at > :now AND receives = 0)
                   FROM message WHERE queue = :queue";
        let values = named_params! { ":queue": queue, ":now": millis(now) };
        self.connection.prepare_cached(sql)?.query_row(values, |row| {
            let count = |column| row.get::<_, i64>(column).map(|count| count as u64);
            Ok(Counts { visible: count(0)?, in_flight: count(1)?, delayed: count(2)? })
        })
    }

    /// When the next hidden message becomes visible.
    pub(super) fn next_visible_at(&self, queue: &str, now: Duration) -> rusqlite::Result<Option<Duration>> {
        let sql = "SELECT min(visible_at) FROM message WHERE queue = :queue AND visible_at > :now";
        let values = named_params! { ":queue": queue, ":now": millis(now) };
        let next: Option<i64> = self.connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
        Ok(next.map(|millis| Duration::from_millis(millis as u64)))
    }
}

fn read_visible(row: &Row<'_>, queue: &str, now: Duration) -> rusqlite::Result<Visible> {
    let number: i64 = row.get("row")?;
    let receives: u32 = row.get("receives")?;
    let first_received_at: Option<i64> = row.get("first_received_at")?;
    let attributes: String = row.get("attributes")?;
    let message = Message {
        message_id: row.get("message_id")?,
        receipt_handle: Receipt { row: number, receive: receives + 1 }.handle(queue),
        body: row.get("body")?,
        attributes: serde_json::from_str(&attributes)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.into()))?,
        sent_at: time(row, "sent_at")?,
        first_received_at: first_received_at.map_or(now, |millis| Duration::from_millis(millis as u64)),
        receive_count: receives + 1,
        trace_header: row.get("trace_header")?,
        group_id: row.get("group_id")?,
        dead_letter_source: row.get("dead_letter_source")?,
    };
    Ok(Visible { row: number, receives_here: receives - row.get::<_, u32>("receives_elsewhere")?, message })
}

fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Duration> {
    row.get::<_, i64>(column).map(|millis| Duration::from_millis(millis as u64))
}

/// Times are stored as SQS reports them: whole milliseconds since the Unix epoch.
fn millis(time: Duration) -> i64 {
    time.as_millis() as i64
}
