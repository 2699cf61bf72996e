//! The queues' errors, with the codes that SQS uses.

use std::fmt::{self, Display, Formatter};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "SQS's own names")]
pub enum Code {
    BatchEntryIdsNotDistinct,
    EmptyBatchRequest,
    InternalFailure,
    InvalidAttributeName,
    InvalidMessageContents,
    InvalidParameterValue,
    MissingParameter,
    QueueDoesNotExist,
    ReceiptHandleIsInvalid,
    SerializationException,
    TooManyEntriesInBatchRequest,
    UnknownOperation,
}

impl Code {
    /// Returns the HTTP status, the `__type` of the JSON protocol, and the code of the older query protocol. SDKs match
    /// on the older code.
    pub(super) fn on_the_wire(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::BatchEntryIdsNotDistinct => {
                (400, "com.amazonaws.sqs#BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct")
            }
            Self::EmptyBatchRequest => {
                (400, "com.amazonaws.sqs#EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest")
            }
            Self::InternalFailure => (500, "com.amazon.coral.service#InternalFailure", "InternalFailure"),
            Self::InvalidAttributeName => (400, "com.amazonaws.sqs#InvalidAttributeName", "InvalidAttributeName"),
            Self::InvalidMessageContents => (400, "com.amazonaws.sqs#InvalidMessageContents", "InvalidMessageContents"),
            Self::InvalidParameterValue => {
                (400, "com.amazon.coral.service#InvalidParameterValueException", "InvalidParameterValue")
            }
            Self::MissingParameter => {
                (400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter")
            }
            Self::QueueDoesNotExist => {
                (400, "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
            }
            Self::ReceiptHandleIsInvalid => (404, "com.amazonaws.sqs#ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
            Self::SerializationException => {
                (400, "com.amazon.coral.service#SerializationException", "SerializationException")
            }
            Self::TooManyEntriesInBatchRequest => (
                400,
                "com.amazonaws.sqs#TooManyEntriesInBatchRequest",
                "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            ),
            Self::UnknownOperation => {
                (400, "com.amazon.coral.service#UnknownOperationException", "UnknownOperationException")
            }
        }
    }
}

/// The error of a refused request. The request changed nothing, unless the code is [`Code::InternalFailure`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqsError {
    pub code: Code,
    pub message: String,
}

impl SqsError {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn no_such_queue() -> Self {
        Self::new(Code::QueueDoesNotExist, "The specified queue does not exist.")
    }

    pub(super) fn invalid_parameter(parameter: &str, value: impl Display, reason: impl Display) -> Self {
        let message = format!("Value {value} for parameter {parameter} is invalid. Reason: {reason}");
        Self::new(Code::InvalidParameterValue, message)
    }
}

impl Display for SqsError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl std::error::Error for SqsError {}

impl From<rusqlite::Error> for SqsError {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(Code::InternalFailure, format!("the queue's store failed: {error}"))
    }
}
