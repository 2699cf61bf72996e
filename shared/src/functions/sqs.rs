//! A function's answer to a batch of SQS messages.

use serde::{Deserialize, Serialize};

/// A partial batch response: SQS delivers the messages that it names again, and Lambda deletes the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchResponse {
    pub batch_item_failures: Vec<Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub item_identifier: String,
}

impl BatchResponse {
    pub(super) fn failed(ids: impl IntoIterator<Item = String>) -> Self {
        Self { batch_item_failures: ids.into_iter().map(|id| Failure { item_identifier: id }).collect() }
    }
}
