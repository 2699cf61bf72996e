//! Records a function's AWS requests as IAM actions and resources.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tests::{
    forwarding::{Forwarding, Layer, TableReply, TableRequest},
    world::MemoryQueue,
};
use webhook_serializer::{
    engine::queue::{Depth, Message, Queue, QueueError, Visibility},
    protocol::{
        keys::WATCHED,
        table::{Action, Table, TableError, TableName, Write},
    },
};

/// Actions, each with the resource that it is for.
pub type Grants = BTreeSet<(String, String)>;

/// The permissions that the three functions use.
#[derive(Debug)]
pub struct AskedByFunctions {
    pub ingest: Grants,
    pub worker: Grants,
    pub scheduler: Grants,
}

/// The record of the permissions used so far.
#[derive(Debug, Clone, Default)]
pub struct RequestedGrants(Arc<Mutex<Grants>>);

impl RequestedGrants {
    /// Returns the permissions recorded so far.
    pub fn so_far(&self) -> Grants {
        self.0.lock().unwrap().clone()
    }

    /// Wraps a store and records its requests.
    pub fn of_table(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(Forwarding::through(self.clone(), inner))
    }

    /// Wraps a queue and records its requests.
    pub fn of_queue(&self, inner: Arc<MemoryQueue>) -> Arc<AskedQueue> {
        Arc::new(AskedQueue { inner, asked: self.clone() })
    }

    fn note(&self, action: &str, resource: &str) {
        self.0.lock().unwrap().insert((action.to_owned(), resource.to_owned()));
    }

    /// Records a request for a table, or for the part of it that `part` names.
    fn note_table(&self, action: &str, table: &TableName, part: &str) {
        let resource = match table {
            TableName::Entities => "EntitiesTable",
            TableName::Inbox => "InboxTable",
            TableName::Named(_) => return,
        };
        self.note(&format!("dynamodb:{action}"), &format!("{resource}{part}"));
    }

    /// Records a write. A transaction needs the permissions of its parts.
    fn note_write(&self, write: &Write) {
        let action = match &write.action {
            Action::Put(_) => "PutItem",
            Action::Update(_) => "UpdateItem",
            Action::Delete => "DeleteItem",
            Action::Check => "ConditionCheckItem",
            // Handlers in other languages write only tables of their own.
            Action::Native(_) => return,
        };
        let is_watch = write.key.partition.1 == WATCHED.into();
        let part = if is_watch && write.action == Action::Delete { format!("={WATCHED}") } else { String::new() };
        self.note_table(action, &write.key.table, &part);
    }
}

impl Layer for RequestedGrants {
    async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
        match request {
            TableRequest::Write(_) | TableRequest::Transact(..) => {
                request.writes().iter().for_each(|write| self.note_write(write));
            }
            TableRequest::Get(key) => self.note_table("GetItem", &key.table, ""),
            TableRequest::GetMany(keys) => keys.iter().for_each(|key| self.note_table("BatchGetItem", &key.table, "")),
            TableRequest::Query(range) => self.note_table("Query", &range.table, ""),
            TableRequest::Scan(table, _) => self.note_table("Scan", table, ""),
            TableRequest::ScanIndex(scan) => self.note_table("Scan", &scan.index.table(), "/index/*"),
        }
        request.of(inner).await
    }
}

/// A queue that records its requests.
pub struct AskedQueue {
    inner: Arc<MemoryQueue>,
    asked: RequestedGrants,
}

impl Queue for AskedQueue {
    fn send<'a>(&'a self, message: &'a Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        self.asked.note("sqs:SendMessage", "WakeUps");
        self.inner.send(message, delay)
    }
}

impl Visibility for AskedQueue {
    fn hide<'a>(&'a self, receipts: &'a [String], time: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        self.asked.note("sqs:ChangeMessageVisibility", "WakeUps");
        self.inner.hide(receipts, time)
    }
}

impl Depth for AskedQueue {
    fn waiting(&self) -> BoxFuture<'_, Result<u64, QueueError>> {
        self.asked.note("sqs:GetQueueAttributes", "WakeUps");
        self.inner.waiting()
    }
}
