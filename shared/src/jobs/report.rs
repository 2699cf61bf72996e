//! The results of an invocation of the scheduler.

use std::sync::Arc;

use super::due::MOST_AHEAD;
use crate::{
    engine::store::StoreError,
    protocol::{
        table::{InvalidKind, InvalidRequest},
        tick::TickOutcome,
    },
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickRun {
    pub job: Arc<str>,
    pub tick: Timestamp,
    /// The result of the tick. If the lease was lost, the result is [`TickOutcome::Crashed`] and
    /// is not recorded in the job's row.
    pub ending: TickOutcome,
    /// The reason of [`TickOutcome::Failed`].
    pub failure: Option<TickFailure>,
}

/// The reason why a tick failed. Its text is recorded in the job's row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TickFailure {
    /// The job's function returned this error, panicked or was cancelled.
    #[error("{0}")]
    Function(String),
    /// The conditions of the writes with these numbers did not hold, so nothing was written.
    #[error("a condition of its writes did not hold")]
    Conditions(Vec<usize>),
    /// DynamoDB can never accept the function's writes.
    #[error("{0}")]
    Writes(InvalidRequest),
}

#[derive(Debug, Default)]
pub struct TickReport {
    /// The ticks that the invocation ran, oldest first for each job.
    pub ran: Vec<TickRun>,
    pub errors: Vec<StoppedJob>,
}

/// A job that an error of the store stopped.
#[derive(Debug)]
pub struct StoppedJob {
    pub job: Arc<str>,
    pub error: StoreError,
    /// Set if the function has ended, and the store did not confirm that the tick was recorded.
    pub is_unrecorded: bool,
}

/// The reason why an invocation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TickError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The invocation is dated further in the future than clock skew explains.
    ///
    /// No tick was run or recorded. Otherwise the jobs would not run again until that date.
    #[error("it is dated {scheduled}, more than {} minutes ahead of the clock, which shows {now}", MOST_AHEAD.as_secs() / 60)]
    FarAhead { scheduled: Timestamp, now: Timestamp },
}

impl TickError {
    /// Returns what has to change before the store accepts the request. `None` for any other error.
    pub fn invalid_kind(&self) -> Option<InvalidKind> {
        match self {
            Self::Store(error) => error.invalid_kind(),
            Self::FarAhead { .. } => None,
        }
    }
}
