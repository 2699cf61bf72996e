//! A queue's settings, and their form on the wire: SQS's map of attribute names to strings.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{Code, QueueError};
use super::limits::{self, MESSAGE_BYTES};

/// The region and account in every ARN here; queues know no others.
pub(super) const REGION: &str = "us-east-1";
pub(super) const ACCOUNT: &str = "000000000000";

/// SQS's attributes that this stand-in does not model: asked for, they are absent as when unset; set, they are refused.
const UNMODELLED: [&str; 9] = [
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "FifoQueue",
    "FifoThroughputLimit",
    "KmsDataKeyReusePeriodSeconds",
    "KmsMasterKeyId",
    "Policy",
    "RedriveAllowPolicy",
    "SqsManagedSseEnabled",
];

/// What is counted or remembered rather than set.
const READ_ONLY: [&str; 6] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
];

/// One queue's settings, with SQS's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// The queue's name, the last part of its URL.
    pub name: String,
    /// How long a received message stays hidden, where the receive does not say. 30 s; at most 12 h.
    pub visibility_timeout: Duration,
    /// How long a sent message stays hidden, where the message does not say. None; at most 15 min.
    pub delay: Duration,
    /// How long a receive waits for a message, where it does not say. Not at all; at most 20 s.
    pub wait: Duration,
    /// How long after it was sent a message is dropped. 4 days; 1 minute to 14 days.
    pub retention: Duration,
    /// The longest body with its attributes. 1 MiB; at least 1 KiB.
    pub max_message_bytes: usize,
    /// Where messages go that nobody deletes. Nowhere.
    pub redrive: Option<Redrive>,
}

/// When a message is given up, and where it goes then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redrive {
    /// The name of the dead-letter queue.
    pub dead_letters: String,
    /// How often a message is received before it moves there instead of being received once more. 1 to 1000.
    pub max_receives: u32,
}

/// `RedrivePolicy` on the wire. SQS takes the count as a number or as a string.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RedrivePolicy {
    dead_letter_target_arn: String,
    max_receive_count: serde_json::Value,
}

impl QueueSettings {
    /// SQS's defaults for a queue of this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            visibility_timeout: Duration::from_secs(30),
            delay: Duration::ZERO,
            wait: Duration::ZERO,
            retention: Duration::from_secs(4 * 24 * 3600),
            max_message_bytes: MESSAGE_BYTES,
            redrive: None,
        }
    }

    /// The queue's ARN.
    pub fn arn(&self) -> String {
        arn_of(&self.name)
    }

    /// Refuses what SQS would not take as a queue; whether the dead-letter queue exists is for the caller to see.
    pub(super) fn check(&self) -> Result<(), QueueError> {
        limits::check_queue_name(&self.name)?;
        self.check_values()
    }

    fn check_values(&self) -> Result<(), QueueError> {
        limits::VISIBILITY.check(self.visibility_timeout)?;
        limits::DELAY.check(self.delay)?;
        limits::WAIT.check(self.wait)?;
        if !(60..=1_209_600).contains(&self.retention.as_secs()) {
            return Err(invalid_value("MessageRetentionPeriod"));
        }
        if !(1024..=MESSAGE_BYTES).contains(&self.max_message_bytes) {
            return Err(invalid_value("MaximumMessageSize"));
        }
        match &self.redrive {
            Some(redrive) if redrive.dead_letters == self.name => {
                Err(invalid_redrive(&redrive.dead_letters, "A queue cannot be its own dead letter target."))
            }
            Some(redrive) if !(1..=1000).contains(&redrive.max_receives) => Err(invalid_redrive(
                redrive.max_receives,
                "Invalid value for maxReceiveCount: must be between 1 and 1000.",
            )),
            _ => Ok(()),
        }
    }

    /// Sets what the map names and leaves the rest.
    pub(super) fn set(&mut self, attributes: &BTreeMap<String, String>) -> Result<(), QueueError> {
        for (name, value) in attributes {
            match name.as_str() {
                "VisibilityTimeout" => self.visibility_timeout = Duration::from_secs(number(name, value)?),
                "DelaySeconds" => self.delay = Duration::from_secs(number(name, value)?),
                "ReceiveMessageWaitTimeSeconds" => self.wait = Duration::from_secs(number(name, value)?),
                "MessageRetentionPeriod" => self.retention = Duration::from_secs(number(name, value)?),
                "MaximumMessageSize" => self.max_message_bytes = number(name, value)? as usize,
                "RedrivePolicy" => self.redrive = parse_redrive(value)?,
                name if UNMODELLED.contains(&name) => {
                    let message = format!("The local stand-in has no attribute {name}.");
                    return Err(QueueError::new(Code::UnsupportedOperation, message));
                }
                name => return Err(unknown_attribute(name)),
            }
        }
        self.check_values().map_err(|error| match error.code {
            // What a request names a parameter out of range is, among a queue's attributes, a value out of range.
            Code::InvalidParameterValue if !error.message.contains("RedrivePolicy") => {
                QueueError::new(Code::InvalidAttributeValue, error.message)
            }
            _ => error,
        })
    }

    /// The settings as SQS's map; what [`QueueSettings::set`] reads back.
    pub(super) fn attributes(&self) -> BTreeMap<String, String> {
        let mut attributes = BTreeMap::from([
            ("VisibilityTimeout".to_owned(), self.visibility_timeout.as_secs().to_string()),
            ("DelaySeconds".to_owned(), self.delay.as_secs().to_string()),
            ("ReceiveMessageWaitTimeSeconds".to_owned(), self.wait.as_secs().to_string()),
            ("MessageRetentionPeriod".to_owned(), self.retention.as_secs().to_string()),
            ("MaximumMessageSize".to_owned(), self.max_message_bytes.to_string()),
        ]);
        if let Some(redrive) = &self.redrive {
            let policy = RedrivePolicy {
                dead_letter_target_arn: arn_of(&redrive.dead_letters),
                max_receive_count: redrive.max_receives.into(),
            };
            let policy = serde_json::to_string(&policy).expect("two plain fields have a JSON form");
            attributes.insert("RedrivePolicy".to_owned(), policy);
        }
        attributes
    }
}

/// Whether SQS has an attribute of this name, modelled here or not.
pub(super) fn check_attribute_name(name: &str) -> Result<(), QueueError> {
    let settable = QueueSettings::named("any").attributes().contains_key(name) || name == "RedrivePolicy";
    if settable || name == "All" || READ_ONLY.contains(&name) || UNMODELLED.contains(&name) {
        return Ok(());
    }
    Err(unknown_attribute(name))
}

pub(super) fn arn_of(queue: &str) -> String {
    format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}")
}

pub(super) fn invalid_redrive(value: impl std::fmt::Display, reason: &str) -> QueueError {
    QueueError::invalid_parameter("RedrivePolicy", value, reason)
}

fn parse_redrive(policy: &str) -> Result<Option<Redrive>, QueueError> {
    if policy.is_empty() {
        return Ok(None);
    }
    let parsed: RedrivePolicy = serde_json::from_str(policy)
        .map_err(|_| invalid_redrive(policy, "Redrive policy needs deadLetterTargetArn and maxReceiveCount."))?;
    let max_receives = match &parsed.max_receive_count {
        serde_json::Value::String(count) => count.parse().ok(),
        count => count.as_u64().and_then(|count| u32::try_from(count).ok()),
    };
    let max_receives = max_receives.ok_or_else(|| invalid_redrive(policy, "Invalid value for maxReceiveCount."))?;
    match parsed.dead_letter_target_arn.rsplit_once(':') {
        Some((_, name)) => Ok(Some(Redrive { dead_letters: name.to_owned(), max_receives })),
        None => Err(invalid_redrive(policy, "Invalid value for deadLetterTargetArn.")),
    }
}

fn number(name: &str, value: &str) -> Result<u64, QueueError> {
    value.parse().map_err(|_| invalid_value(name))
}

fn invalid_value(name: &str) -> QueueError {
    QueueError::new(Code::InvalidAttributeValue, format!("Invalid value for the parameter {name}."))
}

fn unknown_attribute(name: &str) -> QueueError {
    QueueError::new(Code::InvalidAttributeName, format!("Unknown Attribute {name}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_their_wire_form() {
        let settings = QueueSettings {
            visibility_timeout: Duration::from_secs(7),
            delay: Duration::from_secs(3),
            wait: Duration::from_secs(20),
            redrive: Some(Redrive { dead_letters: "dead".to_owned(), max_receives: 5 }),
            ..QueueSettings::named("wake-ups")
        };
        let mut read_back = QueueSettings::named("wake-ups");
        read_back.set(&settings.attributes()).expect("its own attributes");
        assert_eq!(read_back, settings);
    }

    #[test]
    fn an_empty_redrive_policy_takes_the_dead_letter_queue_away() {
        let mut settings = QueueSettings {
            redrive: Some(Redrive { dead_letters: "dead".to_owned(), max_receives: 5 }),
            ..QueueSettings::named("wake-ups")
        };
        settings.set(&BTreeMap::from([("RedrivePolicy".to_owned(), String::new())])).expect("empty is a value");
        assert_eq!(settings.redrive, None);
    }
}
