//! Decides how a drain begins and what happens to its wake-up, without I/O or a clock.

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

/// The step after an answer to a request for the lease.
#[derive(Debug, Clone, PartialEq)]
pub enum AcquireStep {
    /// Drain the inbox.
    Granted(Lease, EntityState),
    /// End without a drain.
    NothingToDo,
    /// Requeue the wake-up with this delay.
    Requeue(Duration, RequeueReason),
    /// Delete the wake-up if it carries another token than this one; otherwise requeue
    /// it with this delay.
    Awaits(FencingToken, Duration),
    /// Wait, then send a new request.
    AskAfter(Duration),
    /// Wait at most this long, then read the row.
    LookWithin(Duration),
    /// The lease has expired: take it over. If deliveries wait, first let every other drain
    /// of the batch finish.
    TakeOver {
        /// The row with the expired lease.
        seen: EntityState,
        /// The attempts at the suspected delivery; `None` if no delivery is suspected.
        attempts: Option<u32>,
    },
}

/// Returns the step after `answer` at `now`, with `left` of the function's time. `look` is
/// the next wait for an exclusive holder; `None` if the time for waiting is over.
pub fn acquire_step(answer: Acquired, now: Timestamp, left: Duration, look: Option<Duration>) -> AcquireStep {
    match answer {
        Acquired::Granted(lease, state) => AcquireStep::Granted(lease, state),
        Acquired::Empty | Acquired::Stopped => AcquireStep::NothingToDo,
        Acquired::Waiting { until, awaited } => {
            let wait = until.since(now);
            if wait <= SHORT_WAIT && left >= wait + MARGIN {
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
                // The delivery in front may have killed its holder.
                let is_suspect = held.kind == LeaseKind::Drain && !seen.is_empty();
                let attempts = is_suspect.then(|| seen.attempts + seen.suspect);
                AcquireStep::TakeOver { seen, attempts }
            }
            Some(held) => match look {
                Some(look) if left >= MARGIN + look && !is_at_work(&seen, held) => {
                    AcquireStep::LookWithin(look.min(held.expires_at.since(now)))
                }
                _ => requeue_until_expiry(held, now),
            },
        },
    }
}

/// Returns the answer that the row implies; `None`: the entity looks free.
pub fn refusal(row: Option<EntityState>) -> Option<Acquired> {
    match row {
        None => Some(Acquired::Empty),
        Some(state) if state.held.is_some() => Some(Acquired::Held(state)),
        Some(_) => None,
    }
}

/// Returns whether a worker drains the entity and has not announced a hand-over.
fn is_at_work(state: &EntityState, held: &Held) -> bool {
    held.kind == LeaseKind::Drain && state.handover.is_none()
}

/// Returns the step that requeues the wake-up until the lease would expire.
fn requeue_until_expiry(held: &Held, now: Timestamp) -> AcquireStep {
    let reason = match held.kind {
        LeaseKind::Drain => RequeueReason::Drained,
        LeaseKind::Exclusive => RequeueReason::Held,
    };
    AcquireStep::Requeue(held.expires_at.since(now).max(SHORT_WAIT), reason)
}

/// The result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Nothing is left to do for the wake-up.
    Ended,
    /// Requeue the wake-up with this delay.
    Requeue(Duration, RequeueReason),
    /// Delete the wake-up if it carries another token than this one; otherwise requeue
    /// it with this delay.
    Awaits(FencingToken, Duration),
    /// The lease was lost.
    Lost,
    /// The store cannot be reached, a row is corrupt, or a wake-up could not be sent. The
    /// lease, if there is one, is left to expire.
    Failed,
}

/// The next action for a wake-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Delete it.
    Delete,
    /// Keep it, so that the queue delivers it again.
    Keep,
    /// Send this wake-up with this delay, then delete the received one. Keep that one if
    /// sending fails.
    Replace(WakeUp, Duration, RequeueReason),
}

/// Returns what to do with `wake_up` after its drain. `is_replaced`: a fresh one was sent
/// before the drain began. `lease` is the length of a lease.
pub fn disposition(wake_up: &WakeUp, is_replaced: bool, drained: Drained, lease: Duration) -> Disposition {
    let fresh = || wake_up.clone();
    match drained {
        Drained::Ended => Disposition::Delete,
        // The awaited wake-up is another one.
        Drained::Awaits(awaited, _) if wake_up.token.is_some_and(|token| token != awaited.0) => Disposition::Delete,
        // One fresh wake-up was sent already; a second one would multiply them.
        _ if is_replaced => Disposition::Delete,
        Drained::Awaits(awaited, delay) => {
            Disposition::Replace(WakeUp::under(&wake_up.entity, awaited), delay, RequeueReason::Retry)
        }
        Drained::Requeue(delay, reason) => Disposition::Replace(fresh(), delay, reason),
        // The new holder may have acted on a copy of this wake-up that is already deleted, so send a fresh
        // one.
        Drained::Lost => Disposition::Replace(fresh(), lease, RequeueReason::Lost),
        Drained::Failed => Disposition::Keep,
    }
}

#[cfg(test)]
mod tests;
