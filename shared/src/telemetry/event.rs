//! What there is to be told.

use std::time::Duration;

use crate::{
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{EntityKey, FencingToken, Sequence, SourceName},
        receipt::Settlement,
        state::BlockReason,
        tick::Ending,
    },
    time::Timestamp,
};

/// One decision.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A delivery is durable in its inbox.
    Accepted {
        /// What.
        incoming: &'a Incoming,
        /// Where.
        sequence: Sequence,
        /// Whether a wake-up was owed and could not be sent.
        is_wake_up_lost: bool,
    },
    /// A delivery that the store did not take waits in the queue.
    Deferred {
        /// What.
        incoming: &'a Incoming,
        /// Why the store did not take it.
        reason: &'a str,
    },
    /// A delivery that waited in the queue is durable in its inbox.
    TakenUp {
        /// What.
        incoming: &'a Incoming,
        /// Where.
        sequence: Sequence,
        /// How long after its arrival.
        after: Duration,
        /// Whether a wake-up was owed and could not be sent.
        is_wake_up_lost: bool,
    },
    /// A message that must be a delivery cannot be read: it is kept, and goes to
    /// the dead letters in the end.
    UnreadableDelivery {
        /// The queue's id for it.
        message_id: &'a str,
        /// Why, without anything of what it holds.
        reason: &'a str,
    },
    /// A delivery was verified and is of a topic that its source does not take:
    /// nothing of it is kept.
    Ignored {
        /// What.
        incoming: &'a Incoming,
    },
    /// A request is answered with an error, for its own sake or for want of what
    /// verifies it: nothing of it is kept. Told by ingest alone: the other
    /// functions' programs are without.
    #[cfg(feature = "ingest")]
    Refused {
        /// The configured source that it is for; `None`: it names none.
        source: Option<&'a SourceName>,
        /// Why.
        refusal: Refusal,
        /// The same in a sentence, without anything of the body or its signature.
        reason: &'a str,
        /// So many failures in a row make the source's provider switch it off;
        /// `None`: none is known.
        limit: Option<u32>,
    },
    /// A handler is started. Of a group each is told, under the same token.
    Started {
        /// With what.
        delivery: &'a Delivery,
        /// Under this token.
        token: FencingToken,
    },
    /// A sequence is decided.
    Settled {
        /// Whose.
        entity: &'a EntityKey,
        /// Which.
        sequence: Sequence,
        /// How.
        settlement: Settlement,
        /// The delivery; a void has none.
        delivery: Option<&'a Delivery>,
        /// How long the handler took, where one ran; of a group, the last tells.
        took: Option<Duration>,
    },
    /// An attempt failed and is to be repeated.
    Failed {
        /// With what.
        delivery: &'a Delivery,
        /// When it is tried again.
        retry_in: Duration,
        /// Why.
        error: &'a str,
    },
    /// An entity waits for an operator.
    Blocked {
        /// Which.
        entity: &'a EntityKey,
        /// Why.
        reason: BlockReason,
        /// The delivery it stopped at, where that is known.
        delivery: Option<&'a Delivery>,
    },
    /// A wake-up was replaced by one for later.
    Requeued {
        /// Of which entity.
        entity: &'a EntityKey,
        /// For how long.
        delay: Duration,
        /// Why.
        reason: RequeueReason,
    },
    /// A drain waited for a lease that was held exclusively.
    Waited {
        /// On what.
        entity: &'a EntityKey,
        /// How long.
        waited: Duration,
        /// How often it looked.
        polls: u32,
    },
    /// A lease that its holder let expire was taken over.
    TakenOver {
        /// On what.
        entity: &'a EntityKey,
        /// The new token.
        token: FencingToken,
    },
    /// A lease was lost: its holder was too slow, or it was taken away.
    Lost {
        /// On what.
        entity: &'a EntityKey,
        /// The token it was held under.
        token: FencingToken,
    },
    /// A lease was granted to somebody who is no worker.
    LeaseGranted {
        /// On what.
        entity: &'a EntityKey,
        /// Its token.
        token: FencingToken,
        /// How long that took.
        waited: Duration,
        /// How often the lease was looked at meanwhile.
        polls: u32,
    },
    /// Such a lease was ended by its holder.
    LeaseEnded {
        /// On what.
        entity: &'a EntityKey,
        /// Its token.
        token: FencingToken,
        /// How long it was held.
        held: Duration,
    },
    /// Such a lease was dropped without being released: it is left to run out.
    LeaseDropped {
        /// On what.
        entity: &'a EntityKey,
        /// Its token.
        token: FencingToken,
    },
    /// A holder's last write was not answered: whether it landed is not known.
    LeaseInDoubt {
        /// On what.
        entity: &'a EntityKey,
        /// Its token.
        token: FencingToken,
    },
    /// A wake-up that was owed could not be sent; the queue's own redelivery or
    /// the sweep finds the entity.
    WakeUpFailed {
        /// Of which entity.
        entity: &'a EntityKey,
    },
    /// Several orders of a source failed in a row for its handler's sake:
    /// nothing of it starts in this process for a while.
    BreakerOpened {
        /// Which source.
        source: &'a SourceName,
        /// For how long.
        wait: Duration,
    },
    /// A start of such a source ended well: it goes on.
    BreakerClosed {
        /// Which source.
        source: &'a SourceName,
    },
    /// A source's destination is unavailable: its breaker opened, or an order has
    /// waited for it for a minute. Reported once by each process.
    DestinationUnavailable {
        /// Which source.
        source: &'a SourceName,
        /// Why.
        error: &'a str,
    },
    /// A start of such a source ended well.
    DestinationAvailable {
        /// Which source.
        source: &'a SourceName,
        /// How long after it was reported.
        after: Duration,
    },
    /// A message that is no wake-up was deleted.
    NoWakeUp {
        /// The queue's id for it.
        message_id: &'a str,
    },
    /// A handler's event is older than one applied before it.
    Inversion {
        /// Which delivery.
        delivery: &'a Delivery,
    },
    /// A segment of the entities was swept.
    Swept {
        /// What was found and done.
        swept: &'a Swept,
    },
    /// A job's tick is recorded.
    JobEnded {
        /// Which job.
        job: &'a str,
        /// Which tick.
        tick: Timestamp,
        /// How it ended.
        ending: Ending,
        /// How long it ran; of one that crashed nobody knows.
        took: Option<Duration>,
    },
    /// Handlers that were given up still block their threads at a batch's end.
    ThreadsLost {
        /// How many of this process's.
        lost: usize,
        /// Whether the process ends for it.
        is_end: bool,
    },
    /// Another sources document is in use.
    SourcesChanged {
        /// How many sources it has.
        count: usize,
    },
    /// The sources document could not be read again, or is wrong; the last good
    /// one stays in use.
    SourcesKept {
        /// Why, without a value of the document's.
        reason: &'a str,
        /// Whether it was another reason, or none, the last time.
        is_news: bool,
    },
}

/// Why a request was refused.
#[cfg(feature = "ingest")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Refusal {
    /// No configured secret or key fits its signature, or it is too old.
    NotVerified,
    /// Its source has no secret yet.
    NoSecret,
    /// The key that its sender publishes is not at hand.
    NoKey,
    /// Whether it can be verified is not known: the newest sources document
    /// cannot be read.
    SourcesUnread,
    /// There is no such source.
    UnknownSource,
    /// It is no `POST`.
    NotPosted,
    /// Its body is not the base64 that it is said to be.
    Damaged,
    /// Its body is too large.
    TooLarge,
    /// Its body is compressed.
    Compressed,
    /// It did not come through what stands in front of the door.
    PastOrigin,
}

#[cfg(feature = "ingest")]
impl Refusal {
    /// In a few words: the line's message, and the metrics' outcome.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotVerified => "not verified",
            Self::NoSecret => "no secret",
            Self::NoKey => "it cannot be verified now",
            Self::SourcesUnread => "sources not read",
            Self::UnknownSource => "no such source",
            Self::NotPosted => "not posted",
            Self::Damaged => "damaged",
            Self::TooLarge => "too large",
            Self::Compressed => "compressed",
            Self::PastOrigin => "past the origin",
        }
    }

    /// Whether a sender takes it for a failed delivery: a `GET` is none.
    pub(super) fn is_failure(self) -> bool {
        self != Self::NotPosted
    }
}

/// Why a wake-up was put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueReason {
    /// Another worker drains the entity.
    Drained,
    /// Somebody holds the entity exclusively.
    Held,
    /// The delivery waits for its next attempt.
    Retry,
    /// An exclusive waiter is to be let in.
    Yielding,
    /// The function's time is up.
    OutOfTime,
    /// It has had its slice of time; others wait for a slot.
    Slice,
    /// The wake-up may have come back, and been let go by another worker.
    MayBeBack,
    /// The store does not answer.
    StoreOut,
    /// The lease was lost; whoever has it now may not know of what waits.
    Lost,
    /// The next row was written by a newer version, or is damaged.
    Unreadable,
    /// The delivery's source may have been configured since the sources were
    /// last read, and they cannot be read now.
    UnknownSource,
    /// There was no thread for its handler: too many are blocked for good.
    NoThread,
    /// The delivery's source is held back: its handler is unwell, and the
    /// delivery is not charged for that.
    BreakerOpen,
    /// The delivery's source is paused.
    Paused,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Segments that were swept to their end.
    pub segments: u64,
    /// Entities looked at.
    pub seen: u64,
    /// Wake-ups sent.
    pub woken: u64,
    /// Pending rows kept from being deleted.
    pub kept: u64,
    /// Rows that could not be read. They are left as they are.
    pub unreadable: u64,
    /// Rows that could be read and not be served: the queue does not take their
    /// wake-up, or what waits there could not be kept.
    pub unserved: u64,
    /// Whether wake-ups were held back since the queue lags.
    pub lagging: bool,
    /// How long the oldest delivery has waited that waits for us, and not for
    /// an operator.
    pub oldest: Duration,
}
