//! SQS events, and the partial batch response: the few fields that are needed.

use super::batch::Message;
use serde::{Deserialize, Serialize};

/// A batch of messages.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct SqsEvent {
    /// The messages.
    #[serde(rename = "Records", default)]
    pub records: Vec<Record>,
}

/// One message.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The queue's id for it.
    pub message_id: String,
    /// Of this receipt of it: by it the message is hidden.
    #[serde(default)]
    pub receipt_handle: String,
    /// Its body.
    #[serde(default)]
    pub body: String,
    /// What the queue knows about it.
    #[serde(default)]
    pub attributes: Attributes,
}

/// See [`Record`].
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Attributes {
    /// How often it was received, this time included. A number, as text.
    pub approximate_receive_count: String,
}

impl From<Record> for Message {
    fn from(record: Record) -> Self {
        // Not a number: as if received again, the careful reading.
        let times = record.attributes.approximate_receive_count.parse().unwrap_or(2);
        Self { id: record.message_id, body: record.body, times }
    }
}

/// Which messages are to be delivered again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchResponse {
    /// These.
    pub batch_item_failures: Vec<Failure>,
}

/// See [`BatchResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The message's id.
    pub item_identifier: String,
}
