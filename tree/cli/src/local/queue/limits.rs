//! SQS's ranges, each with the words of its refusal.

use std::time::Duration;

use super::error::{Code, QueueError};

/// The most messages one receive returns, and the most entries of a batch.
pub(super) const BATCH: usize = 10;
/// The longest body with its attributes, and the longest batch.
pub(super) const MESSAGE_BYTES: usize = 1_048_576;
/// How long a purge keeps the next one out.
pub(super) const PURGE_INTERVAL: Duration = Duration::from_secs(60);

/// A length of time between nothing and a maximum.
#[derive(Debug)]
pub(super) struct TimeLimit {
    parameter: &'static str,
    most: Duration,
    reason: &'static str,
}

pub(super) const DELAY: TimeLimit = TimeLimit {
    parameter: "DelaySeconds",
    most: Duration::from_secs(900),
    reason: "DelaySeconds must be >= 0 and <= 900.",
};

pub(super) const VISIBILITY: TimeLimit = TimeLimit {
    parameter: "VisibilityTimeout",
    most: Duration::from_secs(43_200),
    reason: "VisibilityTimeout must be an integer between 0 and 43200",
};

pub(super) const WAIT: TimeLimit = TimeLimit {
    parameter: "WaitTimeSeconds",
    most: Duration::from_secs(20),
    reason: "Must be >= 0 and <= 20, if provided.",
};

impl TimeLimit {
    /// A request's seconds as a length of time.
    pub(super) fn parse(&self, seconds: i64) -> Result<Duration, QueueError> {
        let length = u64::try_from(seconds).map(Duration::from_secs).map_err(|_| self.refusal(seconds))?;
        self.check(length).map(|()| length)
    }

    /// Refuses what is longer than SQS takes.
    pub(super) fn check(&self, length: Duration) -> Result<(), QueueError> {
        if length <= self.most { Ok(()) } else { Err(self.refusal(length.as_secs() as i64)) }
    }

    fn refusal(&self, seconds: i64) -> QueueError {
        QueueError::invalid_parameter(self.parameter, seconds, self.reason)
    }
}

/// Refuses a receive of none, or of more than ten.
pub(super) fn check_receive_count(count: i64) -> Result<usize, QueueError> {
    usize::try_from(count).ok().filter(|count| (1..=BATCH).contains(count)).ok_or_else(|| {
        QueueError::invalid_parameter("MaxNumberOfMessages", count, "Must be between 1 and 10, if provided.")
    })
}

/// Refuses a name that SQS does not take.
pub(super) fn check_queue_name(name: &str) -> Result<(), QueueError> {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if letters && (1..=80).contains(&name.len()) {
        return Ok(());
    }
    let message = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
    Err(QueueError::new(Code::InvalidParameterValue, message))
}
