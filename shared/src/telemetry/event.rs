//! The events.

use std::time::Duration;

use crate::{
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{EntityKey, FencingToken, Sequence, SourceName},
        receipt::Settlement,
        state::BlockReason,
        tick::TickOutcome,
    },
    time::Timestamp,
};

/// A decision to report.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A delivery is durable in its inbox.
    Accepted {
        incoming: &'a Incoming,
        sequence: Sequence,
        /// A wake-up was due and could not be sent.
        is_wake_up_lost: bool,
    },
    /// A delivery was deferred to the queue, because the store did not take it.
    Deferred { incoming: &'a Incoming, reason: &'a str },
    /// A deferred delivery is durable in its inbox.
    TakenUp {
        incoming: &'a Incoming,
        sequence: Sequence,
        /// The time since the delivery's arrival.
        after: Duration,
        /// A wake-up was due and could not be sent.
        is_wake_up_lost: bool,
    },
    /// A deferred delivery cannot be read. Its message is kept and ends among the dead letters.
    UnreadableDelivery {
        message_id: &'a str,
        /// The reason, without quoting the message.
        reason: &'a str,
    },
    /// A verified delivery has an ignored topic and was not stored.
    Ignored { incoming: &'a Incoming },
    /// A request was refused and not stored.
    Refused {
        /// `None`: its URL names no configured source.
        source: Option<&'a SourceName>,
        refusal: Refusal,
        /// A sentence that quotes neither body nor signature.
        reason: &'a str,
        /// The number of consecutive failures at which the provider disables the source, if
        /// known.
        limit: Option<u32>,
    },
    /// A handler starts. Each delivery of a group has its own event, under the same token.
    Started { delivery: &'a Delivery, token: FencingToken },
    /// A sequence was settled.
    Settled {
        entity: &'a EntityKey,
        sequence: Sequence,
        settlement: Settlement,
        /// `None` for a tombstone.
        delivery: Option<&'a Delivery>,
        /// The handler's run time, if it ran; of a group, in the last delivery's event.
        took: Option<Duration>,
    },
    /// An attempt failed and will be retried.
    Failed { delivery: &'a Delivery, retry_in: Duration, error: &'a str },
    /// An order was blocked.
    Blocked {
        entity: &'a EntityKey,
        reason: BlockReason,
        /// The delivery in front, if it is known.
        delivery: Option<&'a Delivery>,
    },
    /// A wake-up was replaced by a later one.
    Requeued { entity: &'a EntityKey, delay: Duration, reason: RequeueReason },
    /// A drain waited for an exclusive lease.
    Waited {
        entity: &'a EntityKey,
        waited: Duration,
        /// Reads of the lease during the wait.
        polls: u32,
    },
    /// An expired lease was taken over.
    TakenOver { entity: &'a EntityKey, token: FencingToken },
    /// A lease was lost: it expired or was taken away.
    Lost { entity: &'a EntityKey, token: FencingToken },
    /// An exclusive lease was granted.
    LeaseGranted {
        entity: &'a EntityKey,
        token: FencingToken,
        waited: Duration,
        /// Reads of the lease during the wait.
        polls: u32,
    },
    /// An exclusive lease was released.
    LeaseEnded { entity: &'a EntityKey, token: FencingToken, held: Duration },
    /// An exclusive lease was dropped without a release. It will expire.
    LeaseDropped { entity: &'a EntityKey, token: FencingToken },
    /// The release of a lease had no reply: it may have landed.
    LeaseInDoubt { entity: &'a EntityKey, token: FencingToken },
    /// A wake-up that was due could not be sent. SQS's redelivery or the sweep finds the order.
    WakeUpFailed { entity: &'a EntityKey },
    /// A breaker opened: several orders of its source failed in a row because of their handler.
    /// This process starts none of the source's deliveries for a while.
    BreakerOpened { source: &'a SourceName, wait: Duration },
    /// A start of a source with an open breaker succeeded, and the breaker closed.
    BreakerClosed { source: &'a SourceName },
    /// A source's destination is unavailable: its breaker opened, or an order has waited for it
    /// for a minute. Reported once by each process.
    DestinationUnavailable { source: &'a SourceName, error: &'a str },
    /// A start of a source whose destination was unavailable succeeded.
    DestinationAvailable {
        source: &'a SourceName,
        /// The time since the destination was reported unavailable.
        after: Duration,
    },
    /// A foreign message was deleted.
    NoWakeUp { message_id: &'a str },
    /// A delivery's event is older than one applied before it.
    Inversion { delivery: &'a Delivery },
    /// A segment of the entities was swept.
    Swept { swept: &'a Swept },
    /// A job's tick was recorded.
    JobEnded {
        job: &'a str,
        tick: Timestamp,
        ending: TickOutcome,
        /// `None` for a crashed tick.
        took: Option<Duration>,
    },
    /// Abandoned handlers block threads at a batch's end.
    ThreadsLost {
        lost: usize,
        /// The process ends because of them.
        is_end: bool,
    },
    /// The sources document has changed.
    SourcesChanged { count: usize },
    /// The sources document could not be read, or is invalid. The last valid one stays in use.
    SourcesKept {
        /// The reason, without quoting a value of the document.
        reason: &'a str,
        /// The reason differs from the last one reported.
        is_news: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Refusal {
    /// No configured secret or key fits its signature, or it is too old.
    NotVerified,
    /// Its source has no secret yet.
    NoSecret,
    /// The key that its sender publishes is not available.
    NoKey,
    /// The last good sources document refuses the webhook, and a newer one cannot be read.
    SourcesUnread,
    /// There is no such source.
    UnknownSource,
    /// Its method is not `POST`.
    NotPosted,
    /// Its body is invalid base64.
    Damaged,
    /// Its body is too large.
    TooLarge,
    /// Its body is compressed.
    Compressed,
    /// It bypassed the proxy in front of the function.
    PastOrigin,
}

impl Refusal {
    /// Returns the text used as the line's message and the metrics' outcome.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotVerified => "not verified",
            Self::NoSecret => "no secret",
            Self::NoKey => "key unavailable",
            Self::SourcesUnread => "sources not read",
            Self::UnknownSource => "no such source",
            Self::NotPosted => "not a POST",
            Self::Damaged => "damaged",
            Self::TooLarge => "too large",
            Self::Compressed => "compressed",
            Self::PastOrigin => "bypassed the proxy",
        }
    }

    /// Returns whether the sender counts it as a failed delivery; a `GET` does not count.
    pub(super) fn is_failure(self) -> bool {
        self != Self::NotPosted
    }
}

/// The reason for requeueing a wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueReason {
    /// Another worker drains the order.
    Drained,
    /// Another holder has an exclusive lease.
    Held,
    /// The delivery waits for its next attempt.
    Retry,
    /// A lease request has precedence.
    Yielding,
    /// The function's time is up.
    OutOfTime,
    /// The drain's time slice is over; other orders wait for a slot.
    Slice,
    /// The message may have become visible before, and another worker may have deleted it.
    MayBeBack,
    /// The store does not answer.
    StoreOut,
    /// The lease was lost, and its new holder may not know of waiting deliveries.
    Lost,
    /// The next row is damaged, or was written by a newer version.
    Unreadable,
    /// The delivery's source may be in a newer sources document, which cannot be read now.
    UnknownSource,
    /// No thread was free for its handler: too many are blocked for good.
    NoThread,
    /// The breaker of the delivery's source is open. No attempt is counted.
    BreakerOpen,
    /// The delivery's source is paused.
    Paused,
}

/// The result of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Segments swept to their end.
    pub segments: u64,
    /// Rows read.
    pub seen: u64,
    /// Wake-ups sent.
    pub woken: u64,
    /// Waiting rows whose retention was extended.
    pub kept: u64,
    /// Unreadable rows, left unchanged.
    pub unreadable: u64,
    /// Readable rows whose wake-up could not be sent or whose retention not extended.
    pub unserved: u64,
    /// Wake-ups were withheld because the queue lags.
    pub lagging: bool,
    /// The age of the oldest delivery that waits for a worker, not for an operator.
    pub oldest: Duration,
}
