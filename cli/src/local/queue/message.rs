//! The queues' messages, the checks of their parts, and receipt handles.

use std::{collections::BTreeMap, time::Duration};

use super::{
    attribute::MessageAttribute,
    error::{Code, SqsError},
};

/// The longest message body that SQS accepts, in bytes.
const LONGEST_BODY: usize = 1_048_576;

#[derive(Debug, Clone, Default)]
pub struct NewMessage {
    pub body: String,
    pub delay: Duration,
    /// The `MessageGroupId`. In a FIFO queue, a group's messages keep their order. In a standard queue, a group names a
    /// tenant; each message without a group is a separate tenant.
    pub group: Option<String>,
    pub deduplication_id: Option<String>,
    pub attributes: MessageAttributes,
}

pub type MessageAttributes = BTreeMap<String, MessageAttribute>;

impl NewMessage {
    pub fn with_body(body: impl Into<String>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// Checks the message, as a FIFO queue does if `is_fifo`, and else as a standard queue.
    pub(super) fn check(&self, is_fifo: bool) -> Result<(), SqsError> {
        if self.body.is_empty() {
            let message = "The request must contain the parameter MessageBody.";
            return Err(SqsError::new(Code::MissingParameter, message));
        }
        if self.body.len() > LONGEST_BODY {
            let reason = format!("Message must be shorter than {LONGEST_BODY} bytes.");
            return Err(SqsError::invalid_parameter("MessageBody", "(body)", reason));
        }
        if !self.body.chars().all(is_xml_character) {
            let message = "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | \
                           #xE000 to #xFFFD | #x10000 to #x10FFFF";
            return Err(SqsError::new(Code::InvalidMessageContents, message));
        }
        for (parameter, id) in [("MessageGroupId", &self.group), ("MessageDeduplicationId", &self.deduplication_id)] {
            if let Some(id) = id.as_ref().filter(|id| !is_id(id)) {
                let reason = "Must be 1 to 128 letters, digits and punctuation.";
                return Err(SqsError::invalid_parameter(parameter, id, reason));
            }
        }
        self.check_for_queue_type(is_fifo)?;
        self.attributes.iter().try_for_each(|(name, attribute)| attribute.check(name))
    }

    fn check_for_queue_type(&self, is_fifo: bool) -> Result<(), SqsError> {
        let unfit = "The request includes a parameter that is not valid for this queue type.";
        match (is_fifo, &self.group, &self.deduplication_id) {
            (true, None, _) => {
                let message = "The request must contain the parameter MessageGroupId.";
                Err(SqsError::new(Code::MissingParameter, message))
            }
            (true, _, None) => {
                let message = "The queue should either have ContentBasedDeduplication enabled or \
                               MessageDeduplicationId provided explicitly";
                Err(SqsError::new(Code::InvalidParameterValue, message))
            }
            (true, ..) if !self.delay.is_zero() => {
                Err(SqsError::invalid_parameter("DelaySeconds", self.delay.as_secs(), unfit))
            }
            (false, _, Some(id)) => Err(SqsError::invalid_parameter("MessageDeduplicationId", id, unfit)),
            _ => Ok(()),
        }
    }
}

/// Returns whether SQS accepts a text as `MessageGroupId` or `MessageDeduplicationId`.
fn is_id(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_xml_character(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// The message's id. Receives and moves to another queue do not change the id.
    pub message_id: String,
    /// The receipt handle, which is new for each receive.
    pub receipt_handle: String,
    pub body: String,
    /// The time at which the message was sent, since the Unix epoch. A move does not change this time.
    pub sent_at: Duration,
    /// The number of receives of this message so far, in all queues. The number includes the receive that returned this
    /// value.
    pub receive_count: u32,
    /// The message's position in its queue. It is larger than that of each earlier message.
    pub sequence_number: i64,
    pub group: Option<String>,
    pub deduplication_id: Option<String>,
    pub attributes: MessageAttributes,
}

/// Returns the MD5 digest of a body. SQS answers with this digest, and SDKs compare it.
pub(super) fn md5(body: &str) -> String {
    format!("{:x}", md5::compute(body))
}

/// One receive of one message. The text form of this value is the receipt handle. A handle is current if its `receive`
/// equals the receive count in the message's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceiptHandle {
    pub(super) row: i64,
    pub(super) receive: u32,
}

impl ReceiptHandle {
    pub(super) fn handle(self, queue: &str) -> String {
        format!("{:016x}{:08x}{queue}", self.row, self.receive)
    }

    pub(super) fn parse(handle: &str, queue: &str) -> Result<Self, SqsError> {
        let digits = handle.strip_suffix(queue).filter(|digits| digits.len() == 24 && digits.is_ascii());
        let parsed = digits.and_then(|digits| {
            let (row, receive) = digits.split_at(16);
            Some(Self { row: i64::from_str_radix(row, 16).ok()?, receive: u32::from_str_radix(receive, 16).ok()? })
        });
        parsed.ok_or_else(|| {
            let message = format!("The input receipt handle \"{handle}\" is not a valid receipt handle.");
            SqsError::new(Code::ReceiptHandleIsInvalid, message)
        })
    }
}
