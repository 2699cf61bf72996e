//! What is told about each decision, once: to the log, and to whoever else
//! watches.
//!
//! No body, signature or secret is in an event's own words; observers must not
//! take them from a delivery either.

mod line;
mod log;

use std::time::Duration;

use tracing::level_filters::LevelFilter;

use crate::{
    engine::{append::Appended, sweep::Swept},
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{EntityKey, FencingToken, Sequence, SourceName},
        state::{BlockReason, Settlement},
        tick::Ending,
    },
    time::Timestamp,
};

pub use line::{Metric, NAMESPACE};
pub use log::JsonLog;

/// One decision.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A delivery is durable in its inbox.
    Accepted {
        /// What.
        incoming: &'a Incoming,
        /// Where.
        appended: &'a Appended,
    },
    /// A handler is started.
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
        /// How long the handler took, where one ran.
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
    PutOff {
        /// Of which entity.
        entity: &'a EntityKey,
        /// For how long.
        delay: Duration,
        /// Why.
        reason: PutOffReason,
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

/// Why a wake-up was put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOffReason {
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
}

/// Somebody who watches.
pub trait Observer: std::fmt::Debug + Send + Sync + 'static {
    /// Takes notice. Called in the middle of the work: be quick.
    fn observe(&self, event: &Event<'_>);
}

/// Writes one line for each decision to whatever subscriber of `tracing` the
/// program has. The functions have [`JsonLog`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Log;

impl Observer for Log {
    fn observe(&self, event: &Event<'_>) {
        use tracing::{debug, error, info, warn};
        match event {
            Event::Accepted { incoming, appended } => {
                let woken = if appended.wake_up_failed.is_some() { "failed" } else { "" };
                info!(entity = %incoming.entity, source = %incoming.identity.source, delivery = %incoming.identity.delivery_id, topic = incoming.topic, sequence = appended.sequence.0, wake_up = woken, "accepted");
            }
            Event::Started { delivery, token } => {
                debug!(entity = %delivery.entity(), sequence = delivery.sequence().0, attempt = delivery.attempt(), token = token.0, "started");
            }
            Event::Settled { entity, sequence, settlement, delivery, took } => {
                let took = took.map(|took| took.as_millis() as u64);
                let id = delivery.map(|delivery| delivery.delivery_id().as_str());
                info!(%entity, sequence = sequence.0, delivery = id, outcome = settlement.as_str(), handler_ms = took, "settled");
            }
            Event::Failed { delivery, retry_in, error: _ } => {
                // Not the error: its text is the handler's, and may quote the body. It stands on the row.

                warn!(entity = %delivery.entity(), sequence = delivery.sequence().0, delivery = %delivery.delivery_id(), attempt = delivery.attempt(), retry_in_ms = retry_in.as_millis() as u64, "attempt failed");
            }
            Event::Blocked { entity, reason, .. } => warn!(%entity, reason = reason.as_str(), "blocked"),
            Event::PutOff { entity, delay, reason } => {
                debug!(%entity, delay_ms = delay.as_millis() as u64, ?reason, "put off");
            }
            Event::Waited { entity, waited, polls } => {
                debug!(%entity, waited_ms = waited.as_millis() as u64, polls, "waited");
            }
            Event::Swept { swept } => debug!(?swept, "swept"),
            Event::TakenOver { entity, token } => {
                warn!(%entity, token = token.0, "taken over from a holder that vanished")
            }
            Event::Lost { entity, token } => warn!(%entity, token = token.0, "lease lost"),
            Event::LeaseGranted { entity, token, waited, polls } => {
                debug!(%entity, token = token.0, waited_ms = waited.as_millis() as u64, polls, "lease granted");
            }
            Event::LeaseEnded { entity, token, held } => {
                debug!(%entity, token = token.0, held_ms = held.as_millis() as u64, "lease ended");
            }
            Event::LeaseDropped { entity, token } => {
                warn!(%entity, token = token.0, "lease dropped without release; it is left to run out");
            }
            Event::LeaseInDoubt { entity, token } => {
                warn!(%entity, token = token.0, "the end of a lease was not answered");
            }
            Event::BreakerOpened { source, wait } => {
                warn!(%source, wait_ms = wait.as_millis() as u64, "source held back: its handler is unwell");
            }
            Event::BreakerClosed { source } => info!(%source, "source goes on"),
            Event::NoWakeUp { message_id } => warn!(message_id, "not a wake-up; deleted"),
            Event::WakeUpFailed { entity } => warn!(%entity, "wake-up not sent"),
            Event::Inversion { delivery } => {
                info!(entity = %delivery.entity(), sequence = delivery.sequence().0, "older than what was applied");
            }
            Event::JobEnded { job, tick, ending, took } => {
                let took_ms = took.map(|took| took.as_millis() as u64);
                match ending {
                    Ending::Done => info!(job, %tick, took_ms, "job done"),
                    // Not the error: its text is the function's, and may quote anything. It stands on the row.
                    Ending::Failed => error!(job, %tick, took_ms, "job failed"),
                    Ending::Crashed => error!(job, %tick, "job crashed"),
                }
            }
            Event::ThreadsLost { lost, is_end: true } => error!(lost, "ends: handlers block its threads"),
            Event::ThreadsLost { lost, .. } => warn!(lost, "handlers still block their threads"),
            Event::SourcesChanged { count } => info!(count, "sources changed"),
            Event::SourcesKept { reason, is_news: true } => warn!(reason, "sources kept"),
            Event::SourcesKept { .. } => {}
        }
    }
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Observer for Quiet {
    fn observe(&self, _: &Event<'_>) {}
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn observe(&self, event: &Event<'_>) {
        self.0.observe(event);
        self.1.observe(event);
    }
}

impl Observer for std::sync::Arc<dyn Observer> {
    fn observe(&self, event: &Event<'_>) {
        (**self).observe(event);
    }
}

/// Logs, where a function cannot start or go on, why not: what it prints besides
/// is no JSON, which filters of the log pass over.
pub fn ended<T, E: std::fmt::Display>(ended: Result<T, E>) -> Result<T, E> {
    ended.inspect_err(|error| tracing::error!(reason = %error, "cannot start"))
}

/// The level that the text names, `INFO` where it names none; `DEBUG` at most:
/// below it the AWS clients log what they send and receive, bodies of webhooks
/// among it.
pub fn log_level(text: Option<&str>) -> LevelFilter {
    text.and_then(|text| text.parse().ok()).unwrap_or(LevelFilter::INFO).min(LevelFilter::DEBUG)
}

/// Writes the log to standard output as one JSON object a line, from the level
/// that `AWS_LAMBDA_LOG_LEVEL` names on, as [`log_level`] reads it.
pub fn init_log() {
    // The default hook prints the panic's own text, which may quote a body.
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(at, "panicked");
    }));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_target(false)
        .with_max_level(log_level(std::env::var("AWS_LAMBDA_LOG_LEVEL").ok().as_deref()))
        .init();
}
