//! Wake-ups: queue messages that say "look at this entity". No payload, no
//! order, and a second one does no harm.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::protocol::entity::{EntityKey, FencingToken};

/// One wake-up, as it stands in a message's body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUp {
    /// Look at this one.
    pub entity: EntityKey,
    /// The token under which it was sent: that of the lease that was handed over
    /// behind it, or that of the row which a claim found. `None`: it may be the
    /// one that everybody counts on, and is never let go for another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
}

impl WakeUp {
    /// One that says no more than which entity.
    pub fn of(entity: &EntityKey) -> Self {
        Self { entity: entity.clone(), token: None }
    }

    /// One sent under `token`.
    pub fn under(entity: &EntityKey, token: FencingToken) -> Self {
        Self { entity: entity.clone(), token: Some(token.0) }
    }
}

/// The longest that a queue holds a message back (SQS `DelaySeconds`).
pub const LONGEST_DELAY: Duration = Duration::from_secs(900);

/// Why a wake-up was not sent, or may not have been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The queue did not take it, or its answer was lost. It may be sent again.
    #[error("the queue did not take the wake-up: {0}")]
    Unavailable(String),
    /// The queue will never take it: its body holds what a message cannot.
    #[error("the queue refuses the wake-up: {0}")]
    Refused(String),
}

/// Where wake-ups are sent. They come back through the function's event source.
pub trait Queue: Send + Sync + 'static {
    /// Sends a wake-up, to arrive after `delay` (whole seconds, rounded up; at
    /// most [`LONGEST_DELAY`]). Tries once.
    fn send<'a>(&'a self, wake_up: &'a WakeUp, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>>;
}

/// Who else sees a received message: for a worker.
pub trait Visibility: Send + Sync + 'static {
    /// Keeps received messages, at most ten and named by their receipt handles,
    /// from being received again for `time` from now (whole seconds, rounded up).
    /// Tries once, and an error may leave some of them as they were.
    fn hide<'a>(&'a self, receipts: &'a [String], time: Duration) -> BoxFuture<'a, Result<(), QueueError>>;
}

/// How much a queue holds: for the sweep.
pub trait Depth: Send + Sync + 'static {
    /// About how many wake-ups wait to be received.
    fn waiting(&self) -> BoxFuture<'_, Result<u64, QueueError>>;
}
