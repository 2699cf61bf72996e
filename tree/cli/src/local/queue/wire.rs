//! Requests and answers of SQS's AWS JSON 1.0 protocol, as they travel.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::message::MessageAttribute;

/// An attribute as it travels: binary values exist there and are refused here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AttributeValue {
    pub(super) data_type: String,
    pub(super) string_value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SendMessage {
    pub(super) queue_url: String,
    #[serde(flatten)]
    pub(super) message: SentMessage,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SentMessage {
    pub(super) message_body: Option<String>,
    pub(super) delay_seconds: Option<i64>,
    #[serde(default)]
    pub(super) message_attributes: BTreeMap<String, AttributeValue>,
    #[serde(default)]
    pub(super) message_system_attributes: BTreeMap<String, AttributeValue>,
    pub(super) message_group_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct BatchRequest<E> {
    pub(super) queue_url: String,
    #[serde(default = "Vec::new")]
    pub(super) entries: Vec<BatchEntry<E>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct BatchEntry<E> {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) entry: E,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ReceiveMessage {
    pub(super) queue_url: String,
    pub(super) max_number_of_messages: Option<i64>,
    pub(super) visibility_timeout: Option<i64>,
    pub(super) wait_time_seconds: Option<i64>,
    /// The older name of `message_system_attribute_names`, still sent by SDKs and by Lambda's users.
    #[serde(default)]
    pub(super) attribute_names: Vec<String>,
    #[serde(default)]
    pub(super) message_system_attribute_names: Vec<String>,
    #[serde(default)]
    pub(super) message_attribute_names: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DeleteMessage {
    pub(super) queue_url: String,
    #[serde(flatten)]
    pub(super) deleted: Deleted,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Deleted {
    pub(super) receipt_handle: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ChangeMessageVisibility {
    pub(super) queue_url: String,
    #[serde(flatten)]
    pub(super) changed: ChangedVisibility,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ChangedVisibility {
    pub(super) receipt_handle: String,
    pub(super) visibility_timeout: Option<i64>,
}

/// `PurgeQueue`, and what else names only a queue.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct OfQueue {
    pub(super) queue_url: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GetQueueUrl {
    pub(super) queue_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CreateQueue {
    pub(super) queue_name: String,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListQueues {
    #[serde(default)]
    pub(super) queue_name_prefix: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GetQueueAttributes {
    pub(super) queue_url: String,
    #[serde(default)]
    pub(super) attribute_names: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SetQueueAttributes {
    pub(super) queue_url: String,
    pub(super) attributes: BTreeMap<String, String>,
}

/// The answer to what has nothing to say.
#[derive(Debug, Serialize)]
pub(super) struct Nothing {}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SentReceipt {
    pub(super) message_id: String,
    #[serde(rename = "MD5OfMessageBody")]
    pub(super) md5_of_message_body: String,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub(super) md5_of_message_attributes: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct BatchAnswer<S> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) successful: Vec<Succeeded<S>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failed: Vec<Failed>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Succeeded<S> {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) outcome: S,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Failed {
    pub(super) id: String,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) sender_fault: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Received {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<ReceivedMessage>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ReceivedMessage {
    pub(super) message_id: String,
    pub(super) receipt_handle: String,
    #[serde(rename = "MD5OfBody")]
    pub(super) md5_of_body: String,
    pub(super) body: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) attributes: BTreeMap<&'static str, String>,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub(super) md5_of_message_attributes: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) message_attributes: BTreeMap<String, MessageAttribute>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Url {
    pub(super) queue_url: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Urls {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) queue_urls: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Attributes {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) attributes: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Refusal<'a> {
    #[serde(rename = "__type")]
    pub(super) shape: &'static str,
    pub(super) message: &'a str,
}
