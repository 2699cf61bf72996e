//! The events that the functions report.

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

/// A decision that the functions report to observers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A delivery was appended, and is durable in its inbox.
    Accepted {
        incoming: &'a Incoming,
        sequence: Sequence,
        /// A wake-up was owed and could not be sent.
        is_wake_up_lost: bool,
    },
    /// A delivery was deferred to the queue, because the store did not accept it.
    Deferred { incoming: &'a Incoming, reason: &'a str },
    /// A deferred delivery was appended, and is durable in its inbox.
    TakenUp {
        incoming: &'a Incoming,
        sequence: Sequence,
        /// The time from the delivery's arrival until it was appended.
        after: Duration,
        /// A wake-up was owed and could not be sent.
        is_wake_up_lost: bool,
    },
    /// A deferred delivery cannot be read. Its message is kept, so it ends in the dead-letter
    /// queue.
    UnreadableDelivery {
        message_id: &'a str,
        /// The reason, as a sentence that does not quote the message.
        reason: &'a str,
    },
    /// A verified delivery was not stored, because its source ignores its topic.
    Ignored { incoming: &'a Incoming },
    /// A request was refused and not stored.
    Refused {
        /// The source that the request's URL names. `None` if it is not configured.
        source: Option<&'a SourceName>,
        refusal: Refusal,
        /// The reason, as a sentence that quotes neither body nor signature.
        reason: &'a str,
        /// The number of consecutive failures at which the provider disables the endpoint, if
        /// known.
        limit: Option<u32>,
    },
    /// A handler starts. Each delivery of a group has its own event with the same token.
    Started { delivery: &'a Delivery, token: FencingToken },
    /// A sequence was settled.
    Settled {
        entity: &'a EntityKey,
        sequence: Sequence,
        settlement: Settlement,
        /// The settled delivery. `None` for a tombstone.
        delivery: Option<&'a Delivery>,
        /// The handler's run time, if the handler ran. For a group, only the last delivery's
        /// event has it.
        took: Option<Duration>,
    },
    /// An attempt failed, and the delivery will be retried.
    Failed { delivery: &'a Delivery, retry_in: Duration, error: &'a str },
    /// An order was blocked.
    Blocked {
        entity: &'a EntityKey,
        reason: BlockReason,
        /// The delivery at which the order is blocked, if it is known.
        delivery: Option<&'a Delivery>,
    },
    /// A wake-up was replaced by a new one with a delay.
    Requeued { entity: &'a EntityKey, delay: Duration, reason: RequeueReason },
    /// A drain waited until an exclusive lease was released.
    Waited {
        entity: &'a EntityKey,
        waited: Duration,
        /// The number of times that the lease was read during the wait.
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
        /// The number of times that the lease was read during the wait.
        polls: u32,
    },
    /// An exclusive lease was released.
    LeaseEnded { entity: &'a EntityKey, token: FencingToken, held: Duration },
    /// An exclusive lease was dropped without a release. It will expire.
    LeaseDropped { entity: &'a EntityKey, token: FencingToken },
    /// A lease was released without a reply, so the release may have landed.
    LeaseInDoubt { entity: &'a EntityKey, token: FencingToken },
    /// A wake-up that was owed could not be sent. SQS's redelivery or the sweep finds the
    /// order.
    WakeUpFailed { entity: &'a EntityKey },
    /// A source's breaker opened, because handlers failed for several orders in a row. This
    /// process starts none of the source's deliveries for a while.
    BreakerOpened { source: &'a SourceName, wait: Duration },
    /// A source's breaker closed, because a handler start succeeded.
    BreakerClosed { source: &'a SourceName },
    /// A source's destination is unavailable. Its breaker opened, or an order has waited for
    /// it for a minute. Each process reports this once.
    DestinationUnavailable { source: &'a SourceName, error: &'a str },
    /// A source's destination is available again, because a handler start succeeded.
    DestinationAvailable {
        source: &'a SourceName,
        /// The time since the destination was reported unavailable.
        after: Duration,
    },
    /// A message of an unknown form was deleted.
    NoWakeUp { message_id: &'a str },
    /// A delivery's event is older than an event that was applied before.
    Inversion { delivery: &'a Delivery },
    /// The sweep has visited rows.
    Swept { swept: &'a Swept },
    /// The result of a job's tick was recorded.
    JobEnded {
        job: &'a str,
        tick: Timestamp,
        ending: TickOutcome,
        /// The tick's run time. `None` if the tick crashed.
        took: Option<Duration>,
    },
    /// Handlers that were abandoned still block threads at the end of a batch.
    ThreadsLost {
        lost: usize,
        /// The process ends because of the blocked threads.
        is_end: bool,
    },
    /// A changed sources document was read.
    SourcesChanged { count: usize },
    /// The sources document is invalid or could not be read. The last valid one stays in use.
    SourcesKept {
        /// The reason, as a sentence that quotes no value of the document.
        reason: &'a str,
        /// Whether the reason differs from the last one reported.
        is_news: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Refusal {
    /// No configured secret or key made the signature, or the signature is too old.
    NotVerified,
    /// The source has no secret yet.
    NoSecret,
    /// The key that the sender publishes cannot be fetched or used.
    NoKey,
    /// The last valid sources document refuses the webhook, and a newer document cannot be
    /// read.
    SourcesUnread,
    /// The URL names no configured source.
    UnknownSource,
    /// The request's method is not `POST`.
    NotPosted,
    /// The body is invalid base64.
    Damaged,
    TooLarge,
    Compressed,
    /// The request bypassed the proxy in front of the function.
    PastOrigin,
}

impl Refusal {
    /// Returns the message of the log line, which is also the outcome in metrics.
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

    /// Returns whether the sender counts this refusal as a failed delivery. A refused `GET`
    /// does not count.
    pub(super) fn is_failure(self) -> bool {
        self != Self::NotPosted
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueReason {
    /// Another worker drains the order.
    Drained,
    /// Another holder has an exclusive lease on the order.
    Held,
    /// The order's next delivery waits for its retry.
    Retry,
    /// An exclusive lease was requested, and the request has precedence.
    Yielding,
    /// The function has too little time left.
    OutOfTime,
    /// The drain's time slice is over, and other orders wait for their turn.
    Slice,
    /// The message may have become visible again, and another worker may have deleted it.
    MayBeBack,
    /// The store does not answer, or not in time.
    StoreOut,
    /// The lease was lost. Its new holder may not know that deliveries wait.
    Lost,
    /// The order's next row is damaged, or a newer version wrote it.
    Unreadable,
    /// The delivery's source is unknown. A newer sources document may contain it, but cannot
    /// be read now.
    UnknownSource,
    /// No thread is free for the handler, because abandoned handlers block too many threads.
    NoThread,
    /// The breaker of the delivery's source is open. No attempt is counted.
    BreakerOpen,
    Paused,
}

/// The result of one tick of the sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// The number of segments that were swept to their end.
    pub segments: u64,
    /// The number of rows that were read.
    pub seen: u64,
    /// The number of wake-ups that were sent.
    pub woken: u64,
    /// The number of waiting deliveries' rows whose retention was extended.
    pub kept: u64,
    /// The number of rows that could not be read and were left unchanged.
    pub unreadable: u64,
    /// The number of readable rows whose wake-up could not be sent or whose retention could
    /// not be extended.
    pub unserved: u64,
    /// Whether wake-ups were withheld because too many wait in the queue.
    pub lagging: bool,
    /// The age of the oldest delivery that waits for a worker. Deliveries that wait for an
    /// operator do not count.
    pub oldest: Duration,
}
