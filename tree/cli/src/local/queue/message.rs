//! Messages on their way in and out, their digests and their receipt handles.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{Code, QueueError};
use super::settings::{ACCOUNT, QueueSettings};

/// A message to be sent.
#[derive(Debug, Clone, Default)]
pub struct NewMessage {
    /// The body; not empty, and without characters that XML 1.0 cannot carry.
    pub body: String,
    /// How long it stays hidden; the queue's own delay where absent.
    pub delay: Option<Duration>,
    /// The sender's attributes.
    pub attributes: BTreeMap<String, MessageAttribute>,
    /// X-Ray's trace header, which Lambda follows to detect loops.
    pub trace_header: Option<String>,
    /// The message group, which on a standard queue only asks for a fair share; kept, without effect here.
    pub group_id: Option<String>,
}

impl NewMessage {
    /// A message of nothing but a body.
    pub fn with_body(body: impl Into<String>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// Refuses what SQS would not take into this queue.
    pub(super) fn check(&self, settings: &QueueSettings) -> Result<(), QueueError> {
        if self.body.is_empty() {
            return Err(QueueError::missing("MessageBody"));
        }
        if let Some(delay) = self.delay {
            super::limits::DELAY.check(delay)?;
        }
        if !self.body.chars().all(is_xml_character) {
            let message = "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | \
                           #xE000 to #xFFFD | #x10000 to #x10FFFF";
            return Err(QueueError::new(Code::InvalidMessageContents, message));
        }
        if let Some(group) = self.group_id.as_ref().filter(|group| !is_group_id(group)) {
            let reason = "MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length.";
            return Err(QueueError::invalid_parameter("MessageGroupId", group, reason));
        }
        if self.size() > settings.max_message_bytes {
            let message = format!(
                "One or more parameters are invalid. Reason: Message must be shorter than {} bytes.",
                settings.max_message_bytes
            );
            return Err(QueueError::new(Code::InvalidParameterValue, message));
        }
        Ok(())
    }

    /// What counts towards SQS's size limits: the body, and each attribute's name, type and value.
    pub(super) fn size(&self) -> usize {
        let attributes = self.attributes.iter();
        let attributes = attributes.map(|(name, it)| name.len() + it.data_type.len() + it.string_value.len());
        self.body.len() + attributes.sum::<usize>()
    }
}

/// A sender's attribute. Only text: binary values are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MessageAttribute {
    /// `String` or `Number`, with any suffix after a dot.
    pub data_type: String,
    /// The value, numbers too.
    pub string_value: String,
}

/// What the sender is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The message's id, kept through every receive and into the dead-letter queue.
    pub message_id: String,
    /// The digest of the body.
    pub md5_of_body: String,
    /// The digest of the attributes, where there are any.
    pub md5_of_attributes: Option<String>,
}

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The id it was sent under.
    pub message_id: String,
    /// What names this receive of it: new each time.
    pub receipt_handle: String,
    /// The body.
    pub body: String,
    /// The sender's attributes.
    pub attributes: BTreeMap<String, MessageAttribute>,
    /// When it was sent; a move to the dead-letter queue does not change it.
    pub sent_at: Duration,
    /// When it was first received, in whichever queue.
    pub first_received_at: Duration,
    /// How often it was received, this time included, in all queues.
    pub receive_count: u32,
    /// X-Ray's trace header.
    pub trace_header: Option<String>,
    /// The message group.
    pub group_id: Option<String>,
    /// The ARN of the queue that gave it up, in a dead-letter queue.
    pub dead_letter_source: Option<String>,
}

impl Message {
    /// The digest of the body.
    pub fn md5_of_body(&self) -> String {
        md5_of(&self.body)
    }

    /// SQS's own attributes of the message by their names, as a receive or a Lambda event shows them.
    pub fn system_attributes(&self) -> BTreeMap<&'static str, String> {
        let millis = |time: Duration| time.as_millis().to_string();
        let mut attributes = BTreeMap::from([
            ("ApproximateFirstReceiveTimestamp", millis(self.first_received_at)),
            ("ApproximateReceiveCount", self.receive_count.to_string()),
            ("SenderId", ACCOUNT.to_owned()),
            ("SentTimestamp", millis(self.sent_at)),
        ]);
        attributes.extend(self.trace_header.clone().map(|it| ("AWSTraceHeader", it)));
        attributes.extend(self.group_id.clone().map(|it| ("MessageGroupId", it)));
        attributes.extend(self.dead_letter_source.clone().map(|it| ("DeadLetterQueueSourceArn", it)));
        attributes
    }
}

/// The MD5 of a text, in the hexadecimal form that SDKs compare.
pub(super) fn md5_of(text: &str) -> String {
    format!("{:x}", md5::compute(text))
}

/// SQS's digest of attributes: sorted by name, each part preceded by its length; `None` where there are none.
pub(super) fn md5_of_attributes(attributes: &BTreeMap<String, MessageAttribute>) -> Option<String> {
    const STRING_VALUE: u8 = 1;
    let mut encoded = Vec::new();
    let mut part = |text: &str, marker: &[u8]| {
        encoded.extend_from_slice(marker);
        encoded.extend_from_slice(&(text.len() as u32).to_be_bytes());
        encoded.extend_from_slice(text.as_bytes());
    };
    for (name, attribute) in attributes {
        part(name, &[]);
        part(&attribute.data_type, &[]);
        part(&attribute.string_value, &[STRING_VALUE]);
    }
    (!attributes.is_empty()).then(|| format!("{:x}", md5::compute(encoded)))
}

/// Names one receive of one message: the row, and the receive's number.
///
/// The number grows with each receive, so the latest handle is the one that bears the row's own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) row: i64,
    pub(super) receive: u32,
}

impl Receipt {
    /// The handle a consumer sees, good for this queue only.
    pub(super) fn handle(self, queue: &str) -> String {
        format!("{:016x}{:08x}{queue}", self.row, self.receive)
    }

    /// Reads a handle that this queue gave out.
    pub(super) fn parse(handle: &str, queue: &str) -> Result<Self, QueueError> {
        let digits = handle.strip_suffix(queue).filter(|digits| digits.len() == 24 && digits.is_ascii());
        let parsed = digits.and_then(|digits| {
            let (row, receive) = digits.split_at(16);
            Some(Self { row: i64::from_str_radix(row, 16).ok()?, receive: u32::from_str_radix(receive, 16).ok()? })
        });
        parsed.ok_or_else(|| {
            let message = format!("The input receipt handle \"{handle}\" is not a valid receipt handle.");
            QueueError::new(Code::ReceiptHandleIsInvalid, message)
        })
    }
}

fn is_xml_character(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn is_group_id(group: &str) -> bool {
    (1..=128).contains(&group.len()) && group.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_back_from_its_handle_in_its_own_queue_only() {
        let receipt = Receipt { row: 7, receive: 3 };
        let handle = receipt.handle("wake-ups");
        assert_eq!(Receipt::parse(&handle, "wake-ups"), Ok(receipt));
        for (handle, queue) in [(handle.as_str(), "dead-letters"), ("garbage", "wake-ups"), ("", "wake-ups")] {
            let refusal = Receipt::parse(handle, queue).expect_err("not its handle");
            assert_eq!(refusal.code, Code::ReceiptHandleIsInvalid);
        }
    }

    #[test]
    fn digests_are_those_that_sqs_answers() {
        assert_eq!(md5_of("message-1"), "3d6b824fd8c1520e9a047d21fee6fb1f");
        let attribute = MessageAttribute { data_type: "String".to_owned(), string_value: "foobar".to_owned() };
        let attributes = BTreeMap::from([("MyAttribute".to_owned(), attribute)]);
        assert_eq!(md5_of_attributes(&attributes).as_deref(), Some("adb59cd4678ea5a855436b949cd07ab6"));
        assert_eq!(md5_of_attributes(&BTreeMap::new()), None);
    }
}
