//! Decides how a drain begins and what happens to its wake-up. Uses neither I/O nor a clock.

use std::time::Duration;

use super::{MARGIN, plan::SHORT_WAIT};
use crate::{
    engine::queue::WakeUp,
    protocol::{
        entity::FencingToken,
        lease::{Acquired, Lease},
        state::{EntityState, Held, LeaseKind},
    },
    telemetry::RequeueReason,
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq)]
pub enum AcquireStep {
    Granted(Lease, EntityState),
    NothingToDo,
    Requeue(Duration, RequeueReason),
    /// Leave the work to the wake-up that carries this token.
    ///
    /// Requeue the received wake-up with this delay if it carries this token or none. Otherwise
    /// delete it.
    Awaits(FencingToken, Duration),
    /// Follow the exclusive lease with this token: requeue the received wake-up under this token,
    /// with this delay, and record that in the row. If another wake-up already follows the lease, and the
    /// received one carries another token and names no outage that the order waits for, delete it.
    Follow {
        token: FencingToken,
        delay: Duration,
        is_followed: bool,
        /// The end of the wait of the delivery in front.
        retry_at: Option<Timestamp>,
    },
    AskAfter(Duration),
    LookWithin(Duration),
    /// Take the lease over, because it has expired. If the delivery in front may have crashed the
    /// holder, first let every other drain of the batch finish.
    TakeOver {
        seen: EntityState,
        /// The attempts and the vanished holders of the delivery in front, counted together. `None`
        /// if no delivery waits or the lease was exclusive, because then no delivery can have
        /// crashed the holder.
        attempts: Option<u32>,
    },
}

/// Returns the worker's next step after `answer`, which was received at `now`.
///
/// `left` is the time that the function's invocation has left. `look` is the wait before the next
/// read of the row, or `None` if the worker has waited long enough. `patience` is the longest wait
/// for a retry or a request to yield during which the worker keeps the wake-up.
pub fn acquire_step(
    answer: Acquired,
    now: Timestamp,
    left: Duration,
    look: Option<Duration>,
    patience: Duration,
) -> AcquireStep {
    match answer {
        Acquired::Granted(lease, state) => AcquireStep::Granted(lease, state),
        Acquired::Empty | Acquired::Stopped => AcquireStep::NothingToDo,
        Acquired::Waiting { until, awaited } => {
            let wait = until.since(now);
            if wait <= patience && left >= wait + MARGIN {
                return AcquireStep::AskAfter(wait);
            }
            match awaited {
                Some(awaited) => AcquireStep::Awaits(awaited, wait),
                None => AcquireStep::Requeue(wait, RequeueReason::Retry),
            }
        }
        Acquired::Held(seen) => match &seen.held {
            None => AcquireStep::NothingToDo,
            Some(held) if !held.runs(now) => {
                // The delivery in front may have crashed the holder.
                let is_suspect = held.kind == LeaseKind::Drain && !seen.is_empty();
                let attempts = is_suspect.then(|| seen.attempts + seen.suspect);
                AcquireStep::TakeOver { seen, attempts }
            }
            Some(held) if held.kind == LeaseKind::Exclusive => {
                let delay = follow(held, now);
                let is_followed = seen.is_followed(now);
                AcquireStep::Follow { token: seen.token, delay, is_followed, retry_at: seen.retry_at }
            }
            // The drain hands over within moments.
            Some(held) if seen.handover.is_some() => match look {
                Some(look) if left >= MARGIN + look => AcquireStep::LookWithin(look.min(held.expires_at.since(now))),
                _ => AcquireStep::Requeue(SHORT_WAIT, RequeueReason::Drained),
            },
            Some(held) => AcquireStep::Requeue(held.expires_at.since(now).max(SHORT_WAIT), RequeueReason::Drained),
        },
    }
}

/// Returns the refusal that a request for the lease would get, judging by `row`. Returns `None` if
/// the entity looks free.
pub fn refusal(row: Option<EntityState>) -> Option<Acquired> {
    match row {
        None => Some(Acquired::Empty),
        Some(state) if state.held.is_some() => Some(Acquired::Held(state)),
        Some(_) => None,
    }
}

/// Returns the delay of the wake-up that follows an exclusive lease: as long as the lease has lasted
/// so far, at most until it expires.
///
/// A holder may be unable to send a wake-up at its release. Then deliveries wait at most twice as
/// long as the lease lasted. A long lease costs few requests.
fn follow(held: &Held, now: Timestamp) -> Duration {
    let age = held.holder.drawn_at().map_or(Duration::MAX, |acquired| now.since(acquired));
    age.min(held.expires_at.since(now)).max(SHORT_WAIT)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    Ended,
    Requeue(Duration, RequeueReason),
    Awaits(FencingToken, Duration),
    /// See [`AcquireStep::Follow`].
    Follows {
        token: FencingToken,
        delay: Duration,
        is_followed: bool,
        retry_at: Option<Timestamp>,
    },
    Lost,
    /// The store did not answer the request for the lease, or a wake-up could not be sent. If the
    /// drain has the lease, the lease is left to expire.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    Delete,
    Keep,
    /// Send this wake-up with this delay, then delete the received wake-up. If sending fails, keep
    /// the received wake-up.
    Replace(WakeUp, Duration, RequeueReason),
}

/// Returns what to do with `wake_up` after its drain.
///
/// `is_replaced` says that a fresh wake-up was sent before the drain began. `lease` is the length
/// of a lease.
pub fn disposition(wake_up: &WakeUp, is_replaced: bool, drained: Drained, lease: Duration) -> Disposition {
    let fresh = || wake_up.clone();
    match drained {
        Drained::Ended => Disposition::Delete,
        // Another wake-up continues the work.
        Drained::Awaits(awaited, _) if wake_up.token.is_some_and(|token| token != awaited.0) => Disposition::Delete,
        // The fresh wake-up that replaced this one arrives only after a lease's length.
        Drained::Requeue(delay, RequeueReason::Suspect) => Disposition::Replace(fresh(), delay, RequeueReason::Suspect),
        // A fresh wake-up was already sent. A second one would multiply the wake-ups.
        _ if is_replaced => Disposition::Delete,
        Drained::Awaits(awaited, delay) => {
            Disposition::Replace(WakeUp::under(&wake_up.entity, awaited), delay, RequeueReason::Retry)
        }
        Drained::Follows { token, delay, is_followed, retry_at } => {
            // The lease leaves a wait as it is, so the outage's end still ends it.
            let outage = wake_up.outage.clone().filter(|outage| Some(outage.until) == retry_at);
            if is_followed && outage.is_none() && wake_up.token.is_some_and(|own| own != token.0) {
                return Disposition::Delete;
            }
            let ended_wait = wake_up.ended_wait.filter(|_| wake_up.outage.is_none());
            let wake_up = WakeUp { ended_wait, outage, ..WakeUp::under(&wake_up.entity, token) };
            Disposition::Replace(wake_up, delay, RequeueReason::Held)
        }
        Drained::Requeue(delay, reason) => Disposition::Replace(fresh(), delay, reason),
        // The new holder may already have received and deleted this message. So send a fresh
        // wake-up.
        Drained::Lost => Disposition::Replace(fresh(), lease, RequeueReason::Lost),
        Drained::Failed => Disposition::Keep,
    }
}

#[cfg(test)]
mod tests;
