//! What a function asks of AWS, written down as IAM knows it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use webhook_serializer::{
    engine::queue::{Queue, QueueError, WakeUp},
    protocol::table::{
        Action, Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName, Transacted, Write, Written,
    },
};

/// Actions with the resources that they are for.
pub type Grants = BTreeSet<(String, String)>;

/// What the three functions ask for.
#[derive(Debug)]
pub struct AskedByFunctions {
    pub ingest: Grants,
    pub worker: Grants,
    pub scheduler: Grants,
}

/// What was asked, written down as it is asked.
#[derive(Debug, Clone, Default)]
pub struct Asked(Arc<Mutex<Grants>>);

impl Asked {
    /// All of it so far.
    pub fn so_far(&self) -> Grants {
        self.0.lock().unwrap().clone()
    }

    /// A store that writes down what it is asked.
    pub fn of_table(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(AskedTable { inner, asked: self.clone() })
    }

    /// A queue that writes down what it is asked.
    pub fn of_queue(&self, inner: Arc<dyn Queue>) -> Arc<dyn Queue> {
        Arc::new(AskedQueue { inner, asked: self.clone() })
    }

    fn note(&self, action: &str, resource: &str) {
        self.0.lock().unwrap().insert((action.to_owned(), resource.to_owned()));
    }

    fn note_table(&self, action: &str, table: &TableName) {
        let resource = match table {
            TableName::Entities => "EntitiesTable",
            TableName::Inbox => "InboxTable",
            TableName::Named(_) => "OrdersTable",
        };
        self.note(&format!("dynamodb:{action}"), resource);
    }

    /// A transaction asks for what its parts ask for.
    fn note_write(&self, write: &Write) {
        let action = match &write.action {
            Action::Put(_) => "PutItem",
            Action::Update(_) => "UpdateItem",
            Action::Delete => "DeleteItem",
            Action::Check => "ConditionCheckItem",
        };
        self.note_table(action, &write.key.table);
    }
}

struct AskedTable {
    inner: Arc<dyn Table>,
    asked: Asked,
}

impl Table for AskedTable {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        self.asked.note_write(write);
        self.inner.write(write)
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        writes.iter().for_each(|write| self.asked.note_write(write));
        self.inner.transact(writes, token)
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        self.asked.note_table("GetItem", &key.table);
        self.inner.get(key)
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        keys.iter().for_each(|key| self.asked.note_table("BatchGetItem", &key.table));
        self.inner.get_many(keys)
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        self.asked.note_table("Query", &range.table);
        self.inner.query(range)
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        self.asked.note_table("Scan", table);
        self.inner.scan(table, segment)
    }
}

struct AskedQueue {
    inner: Arc<dyn Queue>,
    asked: Asked,
}

impl Queue for AskedQueue {
    fn send<'a>(&'a self, wake_up: &'a WakeUp, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        self.asked.note("sqs:SendMessage", "WakeUps");
        self.inner.send(wake_up, delay)
    }

    fn waiting(&self) -> BoxFuture<'_, Result<u64, QueueError>> {
        self.asked.note("sqs:GetQueueAttributes", "WakeUps");
        self.inner.waiting()
    }
}
