//! The table of leases and the queue, as the library uses them. Each request becomes a call that the host answers.

use std::{sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, FutureExt, ready};
use serde_json::{Value as Json, json};
use webhook_serializer::{
    engine::queue::{Message, Queue, QueueError, delay_seconds},
    protocol::table::{
        InvalidKind, InvalidRequest, Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName, Transacted,
        Value, Write, Written,
    },
    time::Env,
};

use crate::{dynamo, effects::Effects};

/// Stands before the table's name in a write that only the host knows.
const HOST: char = '\u{1f}';

/// Returns a stand-in for the host's own write to `table` with this number. In a request it is `{"write": number}`.
pub(crate) fn host_write(table: &str, number: usize) -> Write {
    Write::delete(Key::named(format!("{HOST}{table}"), "number", number as u64))
}

/// DynamoDB's words about a row without the table's key.
const ANOTHER_KEY: [&str; 3] = ["does not match the schema", "Missing the key", "Type mismatch for key"];

/// Part of the message if a table does not have the key of a row that is read or written.
pub(crate) const HAS_ANOTHER_KEY: &str = "has another key";

pub(crate) struct HostTable {
    pub(crate) effects: Effects,
    pub(crate) env: Env,
    pub(crate) entities: Arc<str>,
    pub(crate) inbox: Option<Arc<str>>,
}

fn unused<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, TableError>> {
    ready(Err(TableError::Invalid("leases send no such request".into()))).boxed()
}

impl HostTable {
    async fn call(&self, operation: &str, input: Json) -> Json {
        self.effects.call("dynamodb", operation, input, Some(&self.env)).await
    }

    fn name<'a>(&'a self, table: &'a TableName) -> Result<&'a str, TableError> {
        match table {
            TableName::Entities => Ok(&self.entities),
            TableName::Inbox => {
                self.inbox.as_deref().ok_or_else(|| TableError::Invalid("no inbox table is given".into()))
            }
            TableName::Named(name) => Ok(name.strip_prefix(HOST).unwrap_or(name)),
        }
    }

    /// Names the tables of `keys` in an error that only a wrong table explains. DynamoDB's own message names none.
    fn naming<'a>(&self, error: TableError, keys: impl IntoIterator<Item = &'a Key>) -> TableError {
        let TableError::Invalid(InvalidRequest { kind, message }) = &error else { return error };
        let wrong = match kind {
            InvalidKind::MissingTable => "does not exist".to_owned(),
            InvalidKind::Request if ANOTHER_KEY.iter().any(|said| message.contains(said)) => {
                format!("{HAS_ANOTHER_KEY} ({})", message.trim_end_matches('.'))
            }
            _ => return error,
        };
        let mut tables: Vec<&str> = keys.into_iter().filter_map(|key| self.name(&key.table).ok()).collect();
        tables.sort_unstable();
        tables.dedup();
        // A lease was granted from the entities table before a transaction writes elsewhere too.
        if tables.len() > 1 {
            tables.retain(|table| **table != *self.entities);
        }
        let message = match tables[..] {
            [table] => format!("the table {table} {wrong}"),
            _ => format!("one of the tables {} {wrong}", tables.join(", ")),
        };
        TableError::Invalid(InvalidRequest { kind: *kind, message })
    }

    fn transaction_item(&self, write: &Write) -> Result<Json, TableError> {
        if let (TableName::Named(name), (_, Value::N(number))) = (&write.key.table, &write.key.partition)
            && name.starts_with(HOST)
        {
            return Ok(json!({ "write": number }));
        }
        let (kind, members) = dynamo::request(write, self.name(&write.key.table)?)?;
        Ok(json!({ kind: members }))
    }
}

impl Table for HostTable {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        Box::pin(async move {
            let (kind, mut input) = dynamo::request(write, self.name(&write.key.table)?)?;
            if kind == "Update" {
                input.insert("ReturnValues".into(), "ALL_NEW".into());
            }
            dynamo::written(&self.call(&format!("{kind}Item"), Json::Object(input)).await)
                .map_err(|error| self.naming(error, [&write.key]))
        })
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        Box::pin(async move {
            let items: Vec<Json> = writes.iter().map(|write| self.transaction_item(write)).collect::<Result<_, _>>()?;
            let input = json!({ "TransactItems": items, "ClientRequestToken": token });
            dynamo::transacted(&self.call("TransactWriteItems", input).await)
                .map_err(|error| self.naming(error, writes.iter().map(|write| &write.key)))
        })
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        Box::pin(async move {
            let table = self.name(&key.table)?;
            let input =
                json!({ "TableName": table, "Key": dynamo::row_json(key.to_row().iter()), "ConsistentRead": true });
            dynamo::read(&self.call("GetItem", input).await).map_err(|error| self.naming(error, [key]))
        })
    }

    fn get_many<'a>(&'a self, _: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        unused()
    }

    fn query<'a>(&'a self, _: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        unused()
    }

    fn scan<'a>(&'a self, _: &'a TableName, _: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        unused()
    }
}

pub(crate) struct HostQueue {
    pub(crate) effects: Effects,
    pub(crate) url: Arc<str>,
}

impl Queue for HostQueue {
    fn send<'a>(&'a self, message: &'a Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(async move {
            let input = json!({
                "QueueUrl": *self.url, "MessageBody": message.text(), "DelaySeconds": delay_seconds(delay),
            });
            match &self.effects.call("sqs", "SendMessage", input, None).await["error"] {
                Json::Null => Ok(()),
                error => Err(QueueError::from_code(error["name"].as_str().unwrap_or("no answer"))),
            }
        })
    }
}
