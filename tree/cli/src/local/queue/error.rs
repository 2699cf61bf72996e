//! What SQS says when it refuses: the code an SDK turns into a type, and the words it uses.

use std::fmt::{self, Display, Formatter};

/// Which refusal, in SQS's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Two entries of a batch have one id.
    BatchEntryIdsNotDistinct,
    /// The bodies of a batch are too long together.
    BatchRequestTooLong,
    /// A batch without entries.
    EmptyBatchRequest,
    /// Not the caller's fault: the store failed.
    InternalFailure,
    /// A queue attribute that SQS does not have.
    InvalidAttributeName,
    /// A queue attribute with an impossible value.
    InvalidAttributeValue,
    /// An entry id with other than letters, digits, hyphens and underscores, or too long.
    InvalidBatchEntryId,
    /// A body with characters that XML 1.0 cannot carry.
    InvalidMessageContents,
    /// Any other value out of its range.
    InvalidParameterValue,
    /// The request lacks a parameter.
    MissingParameter,
    /// A purge within a minute of the last one.
    PurgeQueueInProgress,
    /// No queue of that name.
    QueueDoesNotExist,
    /// A queue of that name exists with other attributes.
    QueueNameExists,
    /// Not a receipt handle of this queue.
    ReceiptHandleIsInvalid,
    /// The body of the request is not the JSON expected.
    SerializationException,
    /// More than ten entries in a batch.
    TooManyEntriesInBatchRequest,
    /// Not an operation of SQS, or not one served here.
    UnknownOperation,
    /// Something SQS can do and this stand-in cannot.
    UnsupportedOperation,
}

impl Code {
    /// The `__type` of the JSON protocol, with its namespace.
    pub fn shape(self) -> &'static str {
        match self {
            Self::BatchEntryIdsNotDistinct => "com.amazonaws.sqs#BatchEntryIdsNotDistinct",
            Self::BatchRequestTooLong => "com.amazonaws.sqs#BatchRequestTooLong",
            Self::EmptyBatchRequest => "com.amazonaws.sqs#EmptyBatchRequest",
            Self::InternalFailure => "com.amazon.coral.service#InternalFailure",
            Self::InvalidAttributeName => "com.amazonaws.sqs#InvalidAttributeName",
            Self::InvalidAttributeValue => "com.amazonaws.sqs#InvalidAttributeValue",
            Self::InvalidBatchEntryId => "com.amazonaws.sqs#InvalidBatchEntryId",
            Self::InvalidMessageContents => "com.amazonaws.sqs#InvalidMessageContents",
            Self::InvalidParameterValue => "com.amazon.coral.service#InvalidParameterValueException",
            Self::MissingParameter => "com.amazon.coral.service#MissingRequiredParameterException",
            Self::PurgeQueueInProgress => "com.amazonaws.sqs#PurgeQueueInProgress",
            Self::QueueDoesNotExist => "com.amazonaws.sqs#QueueDoesNotExist",
            Self::QueueNameExists => "com.amazonaws.sqs#QueueNameExists",
            Self::ReceiptHandleIsInvalid => "com.amazonaws.sqs#ReceiptHandleIsInvalid",
            Self::SerializationException => "com.amazon.coral.service#SerializationException",
            Self::TooManyEntriesInBatchRequest => "com.amazonaws.sqs#TooManyEntriesInBatchRequest",
            Self::UnknownOperation => "com.amazon.coral.service#UnknownOperationException",
            Self::UnsupportedOperation => "com.amazonaws.sqs#UnsupportedOperation",
        }
    }

    /// The code of SQS's older query protocol. SDKs match on it: it travels in `x-amzn-query-error` beside the shape.
    pub fn query_code(self) -> &'static str {
        match self {
            Self::BatchEntryIdsNotDistinct => "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
            Self::BatchRequestTooLong => "AWS.SimpleQueueService.BatchRequestTooLong",
            Self::EmptyBatchRequest => "AWS.SimpleQueueService.EmptyBatchRequest",
            Self::InternalFailure => "InternalFailure",
            Self::InvalidAttributeName => "InvalidAttributeName",
            Self::InvalidAttributeValue => "InvalidAttributeValue",
            Self::InvalidBatchEntryId => "AWS.SimpleQueueService.InvalidBatchEntryId",
            Self::InvalidMessageContents => "InvalidMessageContents",
            Self::InvalidParameterValue => "InvalidParameterValue",
            Self::MissingParameter => "MissingParameter",
            Self::PurgeQueueInProgress => "AWS.SimpleQueueService.PurgeQueueInProgress",
            Self::QueueDoesNotExist => "AWS.SimpleQueueService.NonExistentQueue",
            Self::QueueNameExists => "QueueAlreadyExists",
            Self::ReceiptHandleIsInvalid => "ReceiptHandleIsInvalid",
            Self::SerializationException => "SerializationException",
            Self::TooManyEntriesInBatchRequest => "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            Self::UnknownOperation => "UnknownOperationException",
            Self::UnsupportedOperation => "AWS.SimpleQueueService.UnsupportedOperation",
        }
    }

    /// The HTTP status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            Self::InternalFailure => 500,
            Self::PurgeQueueInProgress => 403,
            Self::ReceiptHandleIsInvalid => 404,
            _ => 400,
        }
    }

    /// Whether the caller can do better; else trying again may help.
    pub fn is_senders_fault(self) -> bool {
        self.status() < 500
    }
}

/// A refusal: nothing was changed, unless its code is [`Code::InternalFailure`], which leaves that open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueError {
    /// What a caller decides on.
    pub code: Code,
    /// What a person reads; SQS's words where they are known.
    pub message: String,
}

impl QueueError {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn no_such_queue() -> Self {
        Self::new(Code::QueueDoesNotExist, "The specified queue does not exist.")
    }

    pub(super) fn missing(parameter: &str) -> Self {
        Self::new(Code::MissingParameter, format!("The request must contain the parameter {parameter}."))
    }

    pub(super) fn invalid_parameter(parameter: &str, value: impl Display, reason: impl Display) -> Self {
        let message = format!("Value {value} for parameter {parameter} is invalid. Reason: {reason}");
        Self::new(Code::InvalidParameterValue, message)
    }
}

impl Display for QueueError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.query_code(), self.message)
    }
}

impl std::error::Error for QueueError {}

impl From<rusqlite::Error> for QueueError {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(Code::InternalFailure, format!("the queue's store failed: {error}"))
    }
}
