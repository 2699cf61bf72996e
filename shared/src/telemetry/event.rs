//! The events that Lambda functions and other programs report.

use std::time::Duration;

use super::message::IngestRefusal;
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

#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A delivery was appended to its inbox.
    Accepted {
        incoming: &'a Incoming,
        sequence: Sequence,
        /// Whether a wake-up was needed and could not be sent.
        is_wake_up_lost: bool,
    },
    /// A delivery was deferred to the queue, because the store did not accept it.
    Deferred { incoming: &'a Incoming, reason: &'a str },
    /// A worker appended a deferred delivery to its inbox.
    TakenUp {
        incoming: &'a Incoming,
        sequence: Sequence,
        /// The time from the arrival of the delivery until it was appended.
        after: Duration,
        /// Whether a wake-up was needed and could not be sent.
        is_wake_up_lost: bool,
    },
    /// A deferred delivery cannot be read. Its message is kept, so that SQS moves the message to the
    /// dead-letter queue.
    UnreadableDelivery {
        message_id: &'a str,
        /// A sentence that does not quote the message.
        reason: &'a str,
    },
    /// A verified delivery was not stored, because its source ignores it.
    Ignored {
        incoming: &'a Incoming,
        /// The JSON pointer to the value that the source's filter does not take. `None` if the source does not take
        /// the topic.
        filter: Option<&'a str>,
    },
    /// A request was refused and not stored.
    Refused {
        /// The source that the request's URL names. `None` if no such source is configured.
        source: Option<&'a SourceName>,
        refusal: IngestRefusal,
        /// A sentence that quotes neither body nor signature.
        reason: &'a str,
        /// The number of consecutive failures after which the provider disables the endpoint, if it is known.
        limit: Option<u32>,
    },
    /// A handler was started. Each delivery of a group has its own event, with the same token.
    Started { delivery: &'a Delivery, token: FencingToken },
    /// A sequence was settled.
    Settled {
        entity: &'a EntityKey,
        sequence: Sequence,
        settlement: Settlement,
        /// `None` for a tombstone.
        delivery: Option<&'a Delivery>,
        /// The run time of the handler, if a handler ran. In a group, only the event of the last delivery has it.
        took: Option<Duration>,
    },
    /// A handler start did not settle its delivery, which will be tried again.
    Failed { delivery: &'a Delivery, retry_in: Duration, error: &'a str },
    /// An order was blocked at the delivery in front.
    Blocked {
        entity: &'a EntityKey,
        reason: BlockReason,
        /// The delivery that the order is blocked at, if it is known.
        delivery: Option<&'a Delivery>,
    },
    /// A wake-up or a deferred delivery was replaced by a fresh message, which SQS delivers after `delay`.
    Requeued { entity: &'a EntityKey, delay: Duration, reason: RequeueReason },
    /// A drain waited for an exclusive lease to end. Another holder may still have the lease.
    Waited { entity: &'a EntityKey, waited: Duration, polls: u32 },
    /// An expired lease was taken over.
    TakenOver { entity: &'a EntityKey, token: FencingToken },
    /// A lease was lost: it expired or was taken away.
    Lost { entity: &'a EntityKey, token: FencingToken },
    /// An exclusive lease was granted.
    LeaseGranted { entity: &'a EntityKey, token: FencingToken, waited: Duration, polls: u32 },
    /// An exclusive lease was released.
    LeaseEnded { entity: &'a EntityKey, token: FencingToken, held: Duration },
    /// An exclusive lease was dropped without a release, so other holders must wait until it expires.
    LeaseDropped { entity: &'a EntityKey, token: FencingToken },
    /// The write that ends an exclusive lease failed or got no reply, so the lease may have ended.
    LeaseInDoubt { entity: &'a EntityKey, token: FencingToken },
    /// A wake-up could not be sent. The sweep or a redelivery of SQS will find the order.
    WakeUpFailed { entity: &'a EntityKey },
    /// A source's breaker opened, because handlers hung or did not reach their destination in three orders in a
    /// row, or in the probe. For the time `wait`, this process starts no delivery of the source.
    BreakerOpened { source: &'a SourceName, wait: Duration },
    /// A source's breaker closed, because a handler start succeeded or a probe got an answer.
    BreakerClosed { source: &'a SourceName },
    /// A source's destination has become unavailable: its breaker opened, or an order has waited for the destination
    /// for a minute. Each process reports this once, and again only after a handler start has succeeded.
    DestinationUnavailable {
        source: &'a SourceName,
        /// Set if the handler started, but gave no answer.
        is_hung: bool,
        error: &'a str,
    },
    /// A source's destination is available again, because a handler start succeeded.
    DestinationAvailable {
        source: &'a SourceName,
        /// The time since the destination was reported unavailable.
        after: Duration,
    },
    /// A queue message of an unknown form was deleted.
    NoWakeUp { message_id: &'a str },
    /// The time of a delivery's event is earlier than that of an event that was already applied.
    Inversion { delivery: &'a Delivery },
    /// A run of the sweep has ended.
    Swept { swept: &'a Swept },
    /// The result of a job's tick was recorded.
    JobEnded {
        job: &'a str,
        tick: Timestamp,
        ending: TickOutcome,
        /// The run time of the tick. `None` if the tick crashed.
        took: Option<Duration>,
    },
    /// At the end of a batch, handlers that were abandoned still block threads.
    ThreadsLost {
        lost: usize,
        /// Whether the process ends because too many threads are blocked.
        is_end: bool,
    },
    /// A changed sources document was read.
    SourcesChanged { count: usize },
    /// The sources document is invalid or could not be read. The last valid document stays in use.
    SourcesKept {
        /// A sentence that quotes no value of the document.
        reason: &'a str,
        /// Whether the reason differs from the one that was reported before.
        is_news: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueReason {
    Drained,
    /// Another holder has an exclusive lease on the order.
    Held,
    Retry,
    /// Another caller has requested an exclusive lease on the order, and the request has precedence.
    Yielding,
    OutOfTime,
    /// The drain's time slice is over, so that other orders get their turn.
    Slice,
    /// The received message may have become visible again, so another worker may have deleted it.
    MayBeBack,
    /// The store does not answer, or answers too late.
    StoreOut,
    /// The lease was lost. The new holder may not know that deliveries wait.
    Lost,
    /// A row of the order is damaged, or a newer version of this project wrote it. Or the store refused a request,
    /// because of a mistake in this project, a missing table or a missing permission.
    Unreadable,
    /// The delivery's source is unknown. A newer sources document may contain the source, but cannot be read
    /// at the moment.
    UnknownSource,
    /// No thread is free for the handler, because abandoned handlers block too many threads.
    NoThread,
    /// The breaker of the delivery's source is open, or its destination is down. No attempt is counted.
    BreakerOpen,
    /// The order waits for a destination that is still down.
    DestinationDown,
    /// A claimed sequence is still empty.
    Gap,
    /// Another suspect of the batch runs first.
    Suspect,
    /// The store throttles the order's row.
    Throttled,
    Paused,
}

impl RequeueReason {
    /// Returns the name that logs show.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "Drained",
            Self::Held => "Held",
            Self::Retry => "Retry",
            Self::Yielding => "Yielding",
            Self::OutOfTime => "OutOfTime",
            Self::Slice => "Slice",
            Self::MayBeBack => "MayBeBack",
            Self::StoreOut => "StoreOut",
            Self::Lost => "Lost",
            Self::Unreadable => "Unreadable",
            Self::UnknownSource => "UnknownSource",
            Self::NoThread => "NoThread",
            Self::BreakerOpen => "BreakerOpen",
            Self::DestinationDown => "DestinationDown",
            Self::Gap => "Gap",
            Self::Suspect => "Suspect",
            Self::Throttled => "Throttled",
            Self::Paused => "Paused",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// The number of segments of the table that were read to their end.
    pub segments: u64,
    pub seen: u64,
    pub woken: u64,
    /// The number of wake-ups that could not be sent when they were owed, and were sent now.
    pub owed: u64,
    /// The number of rows of waiting deliveries whose retention was extended.
    pub kept: u64,
    /// The number of rows of orders, or of watched orders, that could not be read, and were left unchanged.
    pub unreadable: u64,
    /// The number of readable rows for which no wake-up could be sent, or whose retention could not be
    /// extended.
    pub unserved: u64,
    /// Whether wake-ups were left out because too many already wait in the queue.
    pub lagging: bool,
    /// The age of the oldest delivery that waits for a worker. Deliveries that wait for an operator do not
    /// count.
    pub oldest: Duration,
}
