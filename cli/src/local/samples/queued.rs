//! The SQS events of `events/queues/`, and their messages.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;
use webhook_serializer::{
    functions::ingest::{HttpRequest, QueueRecord},
    sources::{QueueArn, Sources},
};

const SOURCES: &str = include_str!("../../../events/queues/sources.toml");

/// The name and text of each SQS event.
const ALL: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/messages.rs"));

/// A message of an SQS event, with all that its sender gave.
#[derive(Debug, Clone)]
pub struct EventMessage {
    pub record: QueueRecord,
    pub attributes: BTreeMap<String, EventAttribute>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventAttribute {
    pub data_type: String,
    pub string_value: Option<String>,
    /// Bytes in base64.
    pub binary_value: Option<String>,
}

/// Returns the messages of an SQS event, or `None` if it is another event.
pub fn messages(event: &str) -> Option<Result<Vec<EventMessage>>> {
    let request: HttpRequest = serde_json::from_str(event).ok()?;
    request.messages()?;
    let read = || {
        let event: Value = serde_json::from_str(event)?;
        let records = event["Records"].as_array().into_iter().flatten();
        let message = |record: &Value| {
            let attributes: Option<_> = Deserialize::deserialize(&record["messageAttributes"])?;
            let record = Deserialize::deserialize(record)?;
            Ok(EventMessage { record, attributes: attributes.unwrap_or_default() })
        };
        records.map(message).collect()
    };
    Some(read())
}

pub fn has_samples(provider: &str) -> bool {
    !of_provider(provider).is_empty()
}

/// Returns the name of each sample of `provider`, and its text with another queue. A FIFO queue gets the messages in one
/// group.
pub fn readdressed(provider: &str, queue: &QueueArn) -> Result<Vec<(&'static str, String)>> {
    let to_queue = |(name, event): (&'static str, &str)| {
        let mut event: Value = serde_json::from_str(event)?;
        for record in event["Records"].as_array_mut().into_iter().flatten() {
            record["eventSourceARN"] = queue.as_str().into();
            if queue.is_fifo() {
                record["attributes"]["MessageGroupId"] = "samples".into();
                record["attributes"]["MessageDeduplicationId"] = record["messageId"].clone();
            }
        }
        Ok((name, event.to_string()))
    };
    of_provider(provider).into_iter().map(to_queue).collect()
}

fn of_provider(provider: &str) -> Vec<(&'static str, &'static str)> {
    let sources = Sources::parse(SOURCES).expect("the samples' own");
    let is_its = |event: &str| {
        let messages = messages(event).and_then(Result::ok).unwrap_or_default();
        let source = messages.first().and_then(|message| sources.of_queue(&message.record.event_source_arn));
        source.is_some_and(|source| source.provider_name == provider)
    };
    ALL.iter().filter(|(_, event)| is_its(event)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_samples_are_of_their_providers() {
        let sources = Sources::parse(SOURCES).unwrap();
        let of_all: usize = sources.iter().map(|source| of_provider(&source.provider_name).len()).sum();
        assert_eq!(of_all, ALL.len());
        assert!(sources.iter().all(|source| has_samples(&source.provider_name)));
    }

    #[test]
    fn attributes_of_a_message_are_read_as_its_sender_gave_them() {
        let event = r#"{"Records":[{"messageId":"m","eventSourceARN":"arn:q","body":"{}","messageAttributes":{
            "X-Id":{"stringValue":"e1","stringListValues":[],"dataType":"String"},
            "Mac":{"binaryValue":"AQI=","dataType":"Binary"}}}]}"#;
        let message = messages(event).unwrap().unwrap().remove(0);
        let of = |name: &str| message.attributes[name].clone();
        assert_eq!((message.record.message_id.as_str(), message.record.body.as_str()), ("m", "{}"));
        assert_eq!((of("X-Id").string_value.as_deref(), of("X-Id").data_type.as_str()), (Some("e1"), "String"));
        assert_eq!((of("Mac").binary_value.as_deref(), of("Mac").data_type.as_str()), (Some("AQI="), "Binary"));
        assert!(messages(r#"{"rawPath":"/webhooks/shopify"}"#).is_none() && messages("no JSON").is_none());
    }
}
