//! Messages of the queue: wake-ups, which say "look at this entity" and may be repeated,
//! and deferred deliveries while the store is out.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{
    engine::deferred::Deferred,
    protocol::entity::{EntityKey, FencingToken},
};

/// The body of a wake-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUp {
    /// The entity to look at.
    pub entity: EntityKey,
    /// The token of the lease that was handed over, or of the row that a claim found.
    /// `None`: claims may rely on this wake-up, so it is never dropped for another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
}

impl WakeUp {
    /// Creates a wake-up without a token.
    pub fn of(entity: &EntityKey) -> Self {
        Self { entity: entity.clone(), token: None }
    }

    /// Creates a wake-up that carries `token`.
    pub fn under(entity: &EntityKey, token: FencingToken) -> Self {
        Self { entity: entity.clone(), token: Some(token.0) }
    }
}

/// The body of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// An entity to look at.
    WakeUp(WakeUp),
    /// A delivery to append.
    Deferred(Box<Deferred>),
}

/// The reason for rejecting a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The message is neither a wake-up nor a delivery, and may be deleted.
    #[error("neither a wake-up nor a delivery")]
    Nothing,
    /// The message is a delivery, and must be kept.
    #[error("a delivery that cannot be read: {0}")]
    Delivery(String),
}

impl Message {
    /// Parses a message's body.
    ///
    /// # Errors
    ///
    /// It has another format, or another version of this one.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        if text.starts_with(Deferred::MARK) {
            return Deferred::parse(text)
                .map(|deferred| Self::Deferred(Box::new(deferred)))
                .map_err(Unreadable::Delivery);
        }
        serde_json::from_str(text).map(Self::WakeUp).map_err(|_| Unreadable::Nothing)
    }

    /// Returns the message's body.
    pub fn text(&self) -> String {
        match self {
            Self::WakeUp(wake_up) => serde_json::to_string(wake_up).expect("a wake-up is a plain object"),
            Self::Deferred(deferred) => deferred.text(),
        }
    }

    /// Returns the entity it concerns.
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

/// The longest delay SQS supports (`DelaySeconds`).
pub const LONGEST_DELAY: Duration = Duration::from_secs(900);

/// The error of a message that was not sent, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The request failed or its reply was lost. It may be repeated.
    #[error("the queue did not accept the message: {0}")]
    Unavailable(String),
    /// The queue refuses the message's body.
    #[error("the queue refuses the message: {0}")]
    Refused(String),
}

/// Sends messages, which a function's event source receives.
pub trait Queue: Send + Sync + 'static {
    /// Sends a message with `delay` (whole seconds, rounded up; at most [`LONGEST_DELAY`]).
    /// Tries once.
    fn send<'a>(&'a self, message: &'a Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>>;
}

/// Extends the visibility timeout of received messages.
pub trait Visibility: Send + Sync + 'static {
    /// Sets the visibility timeout of at most ten messages, given by their receipt handles, to
    /// `time` from now (whole seconds, rounded up). Tries once; on an error some of them
    /// may keep the old timeout.
    fn hide<'a>(&'a self, receipts: &'a [String], time: Duration) -> BoxFuture<'a, Result<(), QueueError>>;
}

/// Reports how many messages a queue holds.
pub trait Depth: Send + Sync + 'static {
    /// Returns about how many messages wait to be received.
    fn waiting(&self) -> BoxFuture<'_, Result<u64, QueueError>>;
}
