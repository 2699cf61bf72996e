//! A message's attributes, which its sender gives, and their digest.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{error::SqsError, message::MessageAttributes};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct MessageAttribute {
    /// `String`, `Number` or `Binary`, and perhaps a dot and a type of the sender's.
    pub data_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string_value: Option<String>,
    /// The value of type `Binary`, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_value: Option<String>,
}

impl MessageAttribute {
    pub(super) fn check(&self, name: &str) -> Result<(), SqsError> {
        let is_complete = match self.data_type.split('.').next().unwrap_or_default() {
            "String" | "Number" => self.string_value.as_ref().is_some_and(|value| !value.is_empty()),
            "Binary" => self.bytes().is_some_and(|value| !value.is_empty()),
            _ => false,
        };
        let reason = "Must have the type String, Number or Binary, and a value of that type.";
        if is_complete { Ok(()) } else { Err(SqsError::invalid_parameter("MessageAttributes", name, reason)) }
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        STANDARD.decode(self.binary_value.as_ref()?).ok()
    }
}

/// Returns the MD5 digest of a message's attributes, or `None` if it has none. SDKs compare it with
/// [their own](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html#sqs-attributes-md5-message-digest-calculation)
/// (read on 2026-11-29).
pub(super) fn md5_of(attributes: &MessageAttributes) -> Option<String> {
    let mut bytes = Vec::new();
    let mut add = |kind: Option<u8>, value: &[u8]| {
        bytes.extend(kind);
        bytes.extend((value.len() as u32).to_be_bytes());
        bytes.extend(value);
    };
    for (name, attribute) in attributes {
        add(None, name.as_bytes());
        add(None, attribute.data_type.as_bytes());
        match attribute.bytes() {
            Some(value) => add(Some(2), &value),
            None => add(Some(1), attribute.string_value.as_deref().unwrap_or_default().as_bytes()),
        }
    }
    (!attributes.is_empty()).then(|| format!("{:x}", md5::compute(bytes)))
}
