//! Batches: what refuses one as a whole, and how the outcomes of its entries are told apart.

use std::collections::HashSet;

use super::error::{Code, QueueError};
use super::limits;
use super::wire::{BatchAnswer, BatchEntry, Failed, Succeeded};

/// Refuses a batch that SQS would not look into: empty, too many, or with ids it does not take.
pub(super) fn check<E>(entries: &[BatchEntry<E>], entry_type: &str) -> Result<(), QueueError> {
    if entries.is_empty() {
        let message = format!("There should be at least one {entry_type} in the request.");
        return Err(QueueError::new(Code::EmptyBatchRequest, message));
    }
    if entries.len() > limits::BATCH {
        let message =
            format!("Maximum number of entries per request are {}. You have sent {}.", limits::BATCH, entries.len());
        return Err(QueueError::new(Code::TooManyEntriesInBatchRequest, message));
    }
    let mut seen = HashSet::new();
    for BatchEntry { id, .. } in entries {
        if !is_entry_id(id) {
            let message = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. \
                           It can be at most 80 letters long.";
            return Err(QueueError::new(Code::InvalidBatchEntryId, message));
        }
        if !seen.insert(id.as_str()) {
            return Err(QueueError::new(Code::BatchEntryIdsNotDistinct, format!("Id {id} repeated.")));
        }
    }
    Ok(())
}

/// Each entry's outcome, by its id.
pub(super) fn answer<S>(outcomes: impl IntoIterator<Item = (String, Result<S, QueueError>)>) -> BatchAnswer<S> {
    let mut answer = BatchAnswer { successful: Vec::new(), failed: Vec::new() };
    for (id, outcome) in outcomes {
        match outcome {
            Ok(outcome) => answer.successful.push(Succeeded { id, outcome }),
            Err(QueueError { code, message }) => answer.failed.push(Failed {
                id,
                code: code.query_code(),
                message,
                sender_fault: code.is_senders_fault(),
            }),
        }
    }
    answer
}

fn is_entry_id(id: &str) -> bool {
    (1..=80).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}
