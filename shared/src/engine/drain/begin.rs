//! How a drain begins and what becomes of its wake-up, decided from what the
//! store answered: no I/O, no clock of its own.

use std::time::Duration;

use super::{MARGIN, plan::SHORT};
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

/// What follows an answer to a request for the lease.
#[derive(Debug, Clone, PartialEq)]
pub enum Begin {
    /// Drain.
    Granted(Lease, EntityState),
    /// Nothing is to be done: the wake-up has served its purpose.
    NothingToDo,
    /// Not now: the wake-up is to come again after that.
    NotNow(Duration, RequeueReason),
    /// Not now either; and a wake-up that was sent under this token will see to
    /// it.
    Awaits(FencingToken, Duration),
    /// Wait that long, then ask anew.
    AskAfter(Duration),
    /// Look at the row, after a wait no longer than this.
    LookWithin(Duration),
    /// Take the lease over: it has run out. Where something waits, as soon as no
    /// other drain of the batch is at work; so often it was charged.
    TakeOver {
        /// The row that shows it.
        seen: EntityState,
        /// How often what waits was charged; `None`: nothing waits, or its holder
        /// was no drain.
        charged: Option<u32>,
    },
}

/// What follows `answer` at `now`, with `left` of the function's time. `look` is
/// how long the next wait for an exclusive holder would be; `None`: there was
/// enough of that.
pub fn begin(answer: Acquired, now: Timestamp, left: Duration, look: Option<Duration>) -> Begin {
    match answer {
        Acquired::Granted(lease, state) => Begin::Granted(lease, state),
        Acquired::Empty | Acquired::Stopped => Begin::NothingToDo,
        Acquired::Waiting { until, awaited } => {
            let wait = until.since(now);
            if wait <= SHORT && left >= wait + MARGIN {
                return Begin::AskAfter(wait);
            }
            match awaited {
                Some(awaited) => Begin::Awaits(awaited, wait),
                None => Begin::NotNow(wait, RequeueReason::Retry),
            }
        }
        Acquired::Held(seen) => match &seen.held {
            None => Begin::NothingToDo,
            Some(held) if !held.runs(now) => {
                // What waits there may have killed its holder.
                let is_suspect = held.kind == LeaseKind::Drain && !seen.is_empty();
                let charged = is_suspect.then(|| seen.attempts + seen.suspect);
                Begin::TakeOver { seen, charged }
            }
            Some(held) => match look {
                Some(look) if left >= MARGIN + look && !is_at_work(&seen, held) => {
                    Begin::LookWithin(look.min(held.expires_at.since(now)))
                }
                _ => after(held, now),
            },
        },
    }
}

/// What a look at the row says; `None`: it seems free, ask for it.
pub fn looked(row: Option<EntityState>) -> Option<Acquired> {
    match row {
        None => Some(Acquired::Empty),
        Some(state) if state.held.is_some() => Some(Acquired::Held(state)),
        Some(_) => None,
    }
}

/// Whether a worker drains the entity and is not about to hand it over.
fn is_at_work(state: &EntityState, held: &Held) -> bool {
    held.kind == LeaseKind::Drain && state.handover.is_none()
}

/// Somebody else has it: look again when its lease would have run out.
fn after(held: &Held, now: Timestamp) -> Begin {
    let reason = match held.kind {
        LeaseKind::Drain => RequeueReason::Drained,
        LeaseKind::Exclusive => RequeueReason::Held,
    };
    Begin::NotNow(held.expires_at.since(now).max(SHORT), reason)
}

/// How a drain went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// The wake-up has served its purpose.
    Ended,
    /// It is to come again after that.
    NotNow(Duration, RequeueReason),
    /// The same; and one sent under this token is under way.
    Awaits(FencingToken, Duration),
    /// The lease was lost.
    Lost,
    /// The store cannot be reached or holds what we cannot read, or a wake-up
    /// could not be sent. A lease, if there is one, is left to run out.
    Stopped,
}

/// What is to become of a wake-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Delete it.
    Delete,
    /// Let the queue deliver it again.
    Keep,
    /// Send this one, to come after that, then delete it; keep it where that
    /// fails.
    Replace(WakeUp, Duration, RequeueReason),
}

/// What is to become of `wake_up`, whose drain went like that. `is_replaced`:
/// a fresh one was sent in its place before it began. `lease` is how long a
/// lease runs.
pub fn fate(wake_up: &WakeUp, is_replaced: bool, drained: Drained, lease: Duration) -> Fate {
    let fresh = || wake_up.clone();
    match drained {
        Drained::Ended => Fate::Delete,
        // Another one is under way, and this one says that it is not that.
        Drained::Awaits(awaited, _) if wake_up.token.is_some_and(|token| token != awaited.0) => Fate::Delete,
        // Never a second fresh one for the same wake-up, or they would multiply.
        _ if is_replaced => Fate::Delete,
        Drained::Awaits(awaited, delay) => {
            Fate::Replace(WakeUp::under(&wake_up.entity, awaited), delay, RequeueReason::Retry)
        }
        Drained::NotNow(delay, reason) => Fate::Replace(fresh(), delay, reason),
        // Whoever has the lease now may have come by a copy of this wake-up that is deleted by
        // now: only a fresh one is sure.
        Drained::Lost => Fate::Replace(fresh(), lease, RequeueReason::Lost),
        Drained::Stopped => Fate::Keep,
    }
}

#[cfg(test)]
mod tests;
