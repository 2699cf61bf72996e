//! The queue's messages: wake-ups and deferred deliveries.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{
    engine::{deferred::Deferred, outages::OutageWait},
    protocol::{
        entity::{EntityKey, FencingToken, Sequence},
        table::InvalidKind,
    },
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUp {
    pub entity: EntityKey,
    /// The fencing token of the entity's row when the wake-up was first sent. `None` if the sender
    /// did not know the token. A wake-up that replaces a received one keeps the received one's
    /// token, if there is one.
    ///
    /// While an entity waits for its next handler start, a worker deletes wake-ups with an outdated
    /// token. The worker replaces a wake-up without a token by one with the row's token, because
    /// claims may rely on such a wake-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// A drain that waited at a gap learned of this claimed sequence so long ago that the gap may be
    /// filled with a tombstone once this wake-up arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<u64>,
    /// The delay with which the wake-up was sent, in seconds. The worker subtracts it from the time
    /// that the wake-up spent in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<u16>,
    /// The wait of the delivery in front that an operator has ended. See
    /// [`Drain::after_wait`](crate::engine::drain::plan::Drain::after_wait).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_wait: Option<EndedWait>,
    /// Set while the delivery in front waits for a destination that is down. Until the wait's end, the worker that
    /// receives the wake-up only looks whether the outage is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<OutageWait>,
}

/// A wait for a delivery's next attempt that an operator has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EndedWait {
    pub sequence: Sequence,
    /// The time until which the delivery would have waited, in milliseconds since 1970.
    pub until: Timestamp,
}

impl WakeUp {
    pub fn of(entity: &EntityKey) -> Self {
        Self { entity: entity.clone(), token: None, gap: None, delay: None, ended_wait: None, outage: None }
    }

    pub fn under(entity: &EntityKey, token: FencingToken) -> Self {
        Self { token: Some(token.0), ..Self::of(entity) }
    }

    /// Returns this wake-up as it is sent with `delay`.
    #[must_use]
    pub fn delayed(self, delay: Duration) -> Self {
        let seconds = u16::try_from(delay_seconds(delay)).ok().filter(|seconds| *seconds > 0);
        Self { delay: seconds, ..self }
    }
}

/// Checks that `url` has the form of a queue's URL.
///
/// # Errors
///
/// Returns a sentence that says what to set.
pub fn check_url(url: &str) -> Result<(), String> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match rest.and_then(|rest| rest.split_once('/')) {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => Ok(()),
        _ => Err(format!(
            "\"{url}\" is not the URL of a queue: set QUEUE_URL to the deployment's output QueueUrl, such as \
             https://sqs.eu-central-1.amazonaws.com/123456789012/wake-ups"
        )),
    }
}

/// Returns `delay` as SQS takes it: in whole seconds, rounded up, at most [`LONGEST_DELAY`].
pub fn delay_seconds(delay: Duration) -> u64 {
    let delay = delay.min(LONGEST_DELAY);
    delay.as_secs() + u64::from(delay.subsec_nanos() > 0)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    WakeUp(WakeUp),
    Deferred(Box<Deferred>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The message is neither a wake-up nor a delivery. It may be deleted.
    #[error("the message is neither a wake-up nor a delivery")]
    Nothing,
    /// The message is a delivery that is damaged or in an unknown format. The worker must not
    /// delete it.
    #[error("the message is a delivery that cannot be read: {0}")]
    Delivery(String),
}

impl Message {
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        if text.starts_with(Deferred::MARK) {
            return Deferred::parse(text)
                .map(|deferred| Self::Deferred(Box::new(deferred)))
                .map_err(Unreadable::Delivery);
        }
        serde_json::from_str(text).map(Self::WakeUp).map_err(|_| Unreadable::Nothing)
    }

    pub fn text(&self) -> String {
        match self {
            Self::WakeUp(wake_up) => serde_json::to_string(wake_up).expect("a wake-up is a plain object"),
            Self::Deferred(deferred) => deferred.text(),
        }
    }

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

/// The error of a request to the queue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The request failed or its reply was lost. The caller may repeat the request.
    #[error("the queue did not accept the message: {0}")]
    Unavailable(String),
    /// The caller lacks the permission.
    #[error("the queue did not accept the message: {0}")]
    Denied(String),
    /// The queue refuses the message's body.
    #[error("the queue refuses the message: {0}")]
    Refused(String),
}

impl QueueError {
    /// Classifies the queue's error by its code.
    pub fn from_code(code: &str) -> Self {
        match code {
            "InvalidMessageContents" => Self::Refused(code.to_owned()),
            "AccessDenied" | "AccessDeniedException" => Self::Denied(code.to_owned()),
            _ => Self::Unavailable(code.to_owned()),
        }
    }

    /// Returns what has to change before the queue accepts the request. `None` for any other error.
    pub fn invalid_kind(&self) -> Option<InvalidKind> {
        match self {
            Self::Denied(_) => Some(InvalidKind::Permission),
            Self::Refused(_) => Some(InvalidKind::Request),
            Self::Unavailable(_) => None,
        }
    }
}

pub trait Queue: Send + Sync + 'static {
    /// Sends `message` once, without retries.
    ///
    /// `delay` is rounded up to whole seconds. The caller passes at most [`LONGEST_DELAY`].
    fn send<'a>(&'a self, message: &'a Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>>;
}

pub trait Visibility: Send + Sync + 'static {
    /// Sets the visibility timeout of at most ten messages, given by their receipt handles, to
    /// `time`.
    ///
    /// `time` is rounded up to whole seconds. The request is sent once. After an error, some of the
    /// messages may keep their old visibility timeout.
    fn hide<'a>(&'a self, receipts: &'a [String], time: Duration) -> BoxFuture<'a, Result<(), QueueError>>;
}

pub trait Depth: Send + Sync + 'static {
    /// Returns the approximate number of messages that wait to be received.
    fn waiting(&self) -> BoxFuture<'_, Result<u64, QueueError>>;
}
