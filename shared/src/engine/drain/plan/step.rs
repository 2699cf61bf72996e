//! The steps of a drain, and how it ends its lease.

use std::time::Duration;

use super::DeliveryGroup;
use crate::{
    protocol::{attempt::Retries, entity::Sequence, receipt::Settlement, state::BlockReason, table::Write},
    telemetry::RequeueReason,
};

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    ReleaseEmpty,
    /// End the lease, because the entity is blocked or on hold.
    Release,
    Block(BlockReason),
    /// Send a wake-up with this delay, then end the lease.
    HandOver(Duration, RequeueReason),
    Wait(Duration),
    ReadPage,
    AwaitGap,
    WriteTombstone(Sequence),
    FindSource,
    /// Wait until no other drain of the batch runs.
    AwaitIsolation {
        /// The suspect's attempts and vanished holders together.
        attempts: u32,
    },
    Start {
        /// Set if the start must be recorded before the handler runs, because an earlier lease
        /// holder vanished with this delivery.
        must_record: bool,
        group: DeliveryGroup,
    },
    /// Settle the item in front with this outcome, without starting a handler.
    Settle(Settlement),
    Apply,
    /// Settle the started group as applied, in one transaction with the handler's writes.
    Commit(Vec<Write>),
    /// Store a parked copy of the delivery in front, then settle the delivery as parked.
    Park {
        attempts: u32,
        error: String,
        /// The waits that the next delivery of the inbox inherits.
        carried: Retries,
    },
    /// Send a delayed wake-up for the next attempt, record the wait, and end the lease.
    Retry {
        /// Set if the handler was started. Otherwise a breaker refused the start.
        is_started: bool,
        attempts: u32,
        /// The delivery's waits so far, including the wait that now begins.
        retries: Retries,
        /// Deliveries up to this sequence start one by one, not in groups. If it equals `head`, the
        /// attempts are those of a whole `latest` group. `None` leaves the row's value unchanged.
        one_by_one: Option<Sequence>,
        wait: Duration,
        error: String,
    },
    /// Block the entity, and record the delivery's attempts, waits and error in its row.
    GiveUp {
        attempts: u32,
        retries: Retries,
        error: String,
    },
}

/// A step's decision about the delivery in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOutcome {
    Settled(Settlement),
    Retry,
    Blocked,
}

impl StepOutcome {
    /// Returns the name that traces show.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settled(settlement) => settlement.as_str(),
            Self::Retry => "retry",
            Self::Blocked => "blocked",
        }
    }
}

impl Step {
    /// Returns the outcome that this step writes for the delivery in front. Returns `None` if the step writes none.
    pub fn outcome(&self) -> Option<StepOutcome> {
        match self {
            Self::Settle(settlement) => Some(StepOutcome::Settled(*settlement)),
            Self::Apply | Self::Commit(_) => Some(StepOutcome::Settled(Settlement::Applied)),
            Self::Park { .. } => Some(StepOutcome::Settled(Settlement::Parked)),
            Self::Retry { is_started, .. } => is_started.then_some(StepOutcome::Retry),
            Self::GiveUp { .. } => Some(StepOutcome::Blocked),
            _ => None,
        }
    }
}

/// The way in which a drain ends its lease if the store fails or the invocation's time ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyEnd {
    /// End the lease, since a fresh wake-up was already sent.
    ///
    /// The row gets no hand-over mark. Claims must not rely on the fresh wake-up, because it does
    /// not carry this lease's token.
    Release,
    /// Mark the hand-over, send a wake-up with the lease's token, and hand over.
    HandOver,
}

impl EarlyEnd {
    /// `is_replaced` says that a fresh wake-up was sent before the drain began.
    pub fn of(is_replaced: bool) -> Self {
        if is_replaced { Self::Release } else { Self::HandOver }
    }
}

pub(in crate::engine::drain) fn park(attempts: u32, error: String) -> Step {
    Step::Park { attempts, error, carried: Retries::default() }
}
