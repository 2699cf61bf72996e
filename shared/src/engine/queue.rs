//! Wake-ups: queue messages that say "look at this entity". No payload, no
//! order, and a second one does no harm. Beside them, while the store is out,
//! deferred deliveries.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{
    engine::deferred::Deferred,
    protocol::entity::{EntityKey, FencingToken},
};

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

/// What stands in a message's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Look at an entity.
    WakeUp(WakeUp),
    /// A delivery that the store did not take.
    Deferred(Box<Deferred>),
}

/// Why a message's body cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is neither a wake-up nor a delivery, and stands for nothing.
    #[error("neither a wake-up nor a delivery")]
    Nothing,
    /// It is a delivery, which somebody has to look at.
    #[error("a delivery that cannot be read: {0}")]
    Delivery(String),
}

impl Message {
    /// Reads a message's body.
    ///
    /// # Errors
    ///
    /// It is no message of ours, or not one that this version can read.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        if text.starts_with(Deferred::MARK) {
            return Deferred::parse(text)
                .map(|deferred| Self::Deferred(Box::new(deferred)))
                .map_err(Unreadable::Delivery);
        }
        serde_json::from_str(text).map(Self::WakeUp).map_err(|_| Unreadable::Nothing)
    }

    /// As it stands in a message's body.
    pub fn text(&self) -> String {
        match self {
            Self::WakeUp(wake_up) => serde_json::to_string(wake_up).expect("a wake-up is a plain object"),
            Self::Deferred(deferred) => deferred.text(),
        }
    }

    /// Whose it is.
    pub fn entity(&self) -> &EntityKey {
        match self {
            Self::WakeUp(wake_up) => &wake_up.entity,
            Self::Deferred(deferred) => deferred.entity(),
        }
    }
}

impl From<WakeUp> for Message {
    fn from(wake_up: WakeUp) -> Self {
        Self::WakeUp(wake_up)
    }
}

/// The longest that a queue holds a message back (SQS `DelaySeconds`).
pub const LONGEST_DELAY: Duration = Duration::from_secs(900);

/// Why a message was not sent, or may not have been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The queue did not take it, or its answer was lost. It may be sent again.
    #[error("the queue did not take the message: {0}")]
    Unavailable(String),
    /// The queue will never take it: its body holds what a message cannot.
    #[error("the queue refuses the message: {0}")]
    Refused(String),
}

/// Where messages are sent. They come back through the function's event source.
pub trait Queue: Send + Sync + 'static {
    /// Sends a message, to arrive after `delay` (whole seconds, rounded up; at
    /// most [`LONGEST_DELAY`]). Tries once.
    fn send<'a>(&'a self, message: &'a Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>>;
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
