//! The queues' messages, the checks of their bodies, and receipt handles.

use std::time::Duration;

use super::error::{Code, SqsError};

/// The longest message body that SQS accepts, in bytes.
const LONGEST_BODY: usize = 1_048_576;

#[derive(Debug, Clone, Default)]
pub struct NewMessage {
    pub body: String,
    pub delay: Duration,
    /// The `MessageGroupId`, which names a tenant of a fair queue. Each message without it is a separate tenant.
    pub group: Option<String>,
}

impl NewMessage {
    pub fn with_body(body: impl Into<String>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    pub(super) fn check(&self) -> Result<(), SqsError> {
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
        if let Some(group) = self.group.as_ref().filter(|group| !is_group(group)) {
            let reason = "Must be 1 to 128 letters, digits and punctuation.";
            return Err(SqsError::invalid_parameter("MessageGroupId", group, reason));
        }
        Ok(())
    }
}

/// Returns whether SQS accepts a text as `MessageGroupId`.
fn is_group(text: &str) -> bool {
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
