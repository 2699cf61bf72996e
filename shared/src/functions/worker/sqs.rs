//! The event that SQS sends to the worker. Only the fields that the worker uses are declared.

use super::batch::ReceivedMessage;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct SqsEvent {
    #[serde(rename = "Records", default)]
    pub records: Vec<SqsRecord>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SqsRecord {
    pub message_id: String,
    #[serde(default)]
    pub receipt_handle: String,
    #[serde(default)]
    pub body: String,
    #[serde(default)]
    pub attributes: Attributes,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Attributes {
    /// How many times SQS has delivered the message, including this time, as decimal digits.
    pub approximate_receive_count: String,
    /// The time at which the message was sent, in milliseconds since 1970, as decimal digits.
    pub sent_timestamp: String,
}

impl From<SqsRecord> for ReceivedMessage {
    fn from(record: SqsRecord) -> Self {
        // An unreadable count is taken for a repeated receive, to be on the safe side.
        let times = record.attributes.approximate_receive_count.parse().unwrap_or(2);
        let sent_at = record.attributes.sent_timestamp.parse().ok().map(Timestamp::from_millis);
        Self { id: record.message_id, body: record.body, times, sent_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_with_unreadable_receive_count_counts_as_redelivered() {
        for (count, times) in [("1", 1), ("3", 3), ("", 2), ("many", 2)] {
            let attributes = Attributes { approximate_receive_count: count.into(), ..Attributes::default() };
            let record = SqsRecord { attributes, message_id: "m".into(), receipt_handle: "r".into(), body: "b".into() };
            assert_eq!(ReceivedMessage::from(record).times, times, "{count}");
        }
    }
}
