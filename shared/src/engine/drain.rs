//! Drains an entity's inbox: the worker's side of the protocol.
//!
//! A wake-up says "look at this entity". The worker acquires the lease, runs the handler
//! of `head + 1`, settles, and continues until the inbox is empty, the entity is blocked,
//! or a fresh wake-up has been sent. Only then may the received wake-up be deleted.
//!
//! `begin.rs` and `plan.rs` decide without side effects; `acquire.rs` and `driver.rs` act.
//! The model in `tests/model` calls the same decisions.

mod acquire;
pub mod begin;
mod driver;
mod in_flight;
pub mod page;
pub(crate) mod park;
pub mod plan;
mod suspects;

use std::{sync::Arc, time::Duration};

use acquire::Acquisition;
use begin::{Disposition, Drained, disposition};
use driver::Driver;
pub use in_flight::InFlight;
pub(crate) use plan::MARK_TIMEOUT;
use suspects::DrainSlot;
pub use suspects::SuspectGate;

use crate::{
    engine::{
        append::Inbox,
        breaker::Breakers,
        queue::WakeUp,
        store::{Store, StoreError},
        threads::Threads,
        wake::Waker,
    },
    handler::{AnyHandler, Handler, Isolation},
    protocol::{
        entity::{EntityKey, FencingToken},
        state::HolderInfo,
    },
    sources::LiveSources,
    telemetry::{Event, Observer, RequeueReason},
    time::Env,
};

/// The timing of drains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSettings {
    /// The length of a lease. A longer one replaces a dead worker later, a shorter one needs
    /// more renewals.
    pub lease: Duration,
    /// The longest wait for an exclusive holder; then the wake-up is requeued.
    pub wait: Duration,
    /// The retention of deliveries and receipts.
    pub retention: Duration,
    /// The retention of parked deliveries; `None`: until an operator decides.
    pub parked_retention: Option<Duration>,
    /// The time that a claimed sequence may stay empty before it gets a tombstone: longer than
    /// an append's whole deadline.
    pub gap: Duration,
    /// The time after which a drain hands over; until then its invocation takes no
    /// other order.
    pub slice: Duration,
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            wait: Duration::from_secs(5),
            retention: Duration::from_secs(30 * 86_400),
            parked_retention: None,
            gap: crate::engine::append::DEADLINE + Duration::from_millis(800),
            slice: Duration::from_secs(5),
        }
    }
}

/// Time kept free at the end of an invocation to spill receipts, settle and hand over,
/// with a retry each.
pub const MARGIN: Duration = Duration::from_secs(2);

/// Drains inboxes in a worker.
#[derive(Clone)]
pub struct Drainer {
    store: Store,
    waker: Waker,
    sources: LiveSources,
    handler: Arc<dyn AnyHandler>,
    isolation: Isolation,
    threads: Threads,
    settings: DrainSettings,
    info: HolderInfo,
    observer: Arc<dyn Observer>,
    breakers: Breakers,
}

/// A wake-up that a worker received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The entity to look at.
    pub entity: EntityKey,
    /// The message's receive count, this time included.
    pub times: u32,
}

impl Received {
    /// Returns whether a fresh wake-up is sent before the drain, because this one may be a
    /// copy of a message that is already deleted.
    fn is_replaced(&self) -> bool {
        self.times > 1
    }
}

/// A worker's answer to the queue for a wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledgement {
    /// Delete it: nothing is left to do, or a fresh one was sent.
    Delete,
    /// Report it as failed, so that the queue delivers it again.
    Keep,
}

/// The reason for a drain's failure. Its lease, if any, is left to expire, and the wake-up is
/// kept.
#[derive(Debug)]
enum DrainError {
    Lost,
    Store(StoreError),
    /// A wake-up could not be sent.
    WakeUp,
}

impl From<StoreError> for DrainError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<crate::protocol::format::CorruptRow> for DrainError {
    fn from(error: crate::protocol::format::CorruptRow) -> Self {
        Self::Store(error.into())
    }
}

impl From<crate::engine::lease_renewer::LeaseLost> for DrainError {
    fn from(_: crate::engine::lease_renewer::LeaseLost) -> Self {
        Self::Lost
    }
}

impl Drainer {
    /// Creates a drainer.
    pub fn new(
        store: Store,
        waker: Waker,
        sources: impl Into<LiveSources>,
        handler: impl Handler,
        settings: DrainSettings,
        info: HolderInfo,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let handler = Arc::new(handler);
        let sources = sources.into();
        let (isolation, threads, breakers) = (Isolation::default(), Threads::default(), Breakers::default());
        Self { store, waker, sources, handler, isolation, threads, settings, info, observer, breakers }
    }

    /// Sets how handlers are isolated from each other.
    #[must_use]
    pub fn isolated(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Processes a wake-up without a token, as [`Drainer::process_under`] does.
    pub async fn process(&self, wake_up: &Received, deadline: Duration, gate: &SuspectGate) -> Acknowledgement {
        self.process_under(wake_up, None, deadline, gate, &InFlight::new(self.store.env(), false)).await
    }

    /// Processes one wake-up until `deadline`, by the monotonic clock. `token` is the
    /// token in the wake-up. All wake-ups of a batch share `gate` and `in_flight`.
    pub async fn process_under(
        &self,
        wake_up: &Received,
        token: Option<FencingToken>,
        deadline: Duration,
        gate: &SuspectGate,
        in_flight: &InFlight,
    ) -> Acknowledgement {
        // The replacement carries the same token: claims may rely on this wake-up.
        let fresh = WakeUp { entity: wake_up.entity.clone(), token: token.map(|token| token.0) };
        let slot = gate.slot();
        // When the fresh wake-up arrives, a lease acquired now has expired or, more likely, been released.
        let is_replaced = wake_up.is_replaced();
        if is_replaced && self.wake(&fresh, self.settings.lease).await.is_err() {
            return Acknowledgement::Keep;
        }
        let drained = match self.drain(wake_up, deadline, &slot, in_flight).await {
            Ok(drained) => drained,
            Err(DrainError::Lost) => Drained::Lost,
            Err(DrainError::WakeUp) => Drained::Failed,
            Err(DrainError::Store(error)) => {
                tracing::error!(entity = %fresh.entity, %error, "stopped");
                Drained::Failed
            }
        };
        match disposition(&fresh, is_replaced, drained, self.settings.lease) {
            Disposition::Delete => Acknowledgement::Delete,
            Disposition::Keep => Acknowledgement::Keep,
            Disposition::Replace(fresh, delay, reason) => match self.requeue(&fresh, delay, reason).await {
                Ok(()) => Acknowledgement::Delete,
                Err(_) => Acknowledgement::Keep,
            },
        }
    }

    async fn drain(
        &self,
        wake_up: &Received,
        deadline: Duration,
        slot: &DrainSlot<'_>,
        in_flight: &InFlight,
    ) -> Result<Drained, DrainError> {
        Ok(match self.acquire(&wake_up.entity, deadline, slot, in_flight).await? {
            Acquisition::Granted(renewer, state) => {
                in_flight.granted();
                let driver = Driver::new(self, renewer, state, deadline, slot, in_flight);
                driver.run(wake_up.is_replaced()).await?;
                Drained::Ended
            }
            Acquisition::NothingToDo => Drained::Ended,
            Acquisition::Requeue(delay, reason) => Drained::Requeue(delay, reason),
            Acquisition::Awaits(awaited, delay) => Drained::Awaits(awaited, delay),
        })
    }

    /// Returns the length of a lease.
    pub fn lease(&self) -> Duration {
        self.settings.lease
    }

    /// Returns an inbox in the same store, for deferred deliveries.
    pub(crate) fn inbox(&self) -> Inbox {
        let (store, waker) = (self.store.clone(), self.waker.clone());
        Inbox::new(store, waker, self.settings.retention, self.observer.clone())
    }

    pub(crate) fn env(&self) -> &Env {
        self.store.env()
    }

    /// Returns the configured sources.
    pub fn sources(&self) -> &LiveSources {
        &self.sources
    }

    /// Returns the threads for handlers. Once they are spent no handler starts, deliveries
    /// are handed over without an attempt, and the process should be replaced.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Returns the observer.
    pub fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    fn now_left(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.store.env().monotonic())
    }

    /// Sends a fresh wake-up. If that fails, the lease must not be released.
    async fn wake(&self, wake_up: &WakeUp, delay: Duration) -> Result<(), DrainError> {
        self.waker.send(wake_up, delay, PATIENCE).await.map_err(|_| {
            self.observer.observe(&Event::WakeUpFailed { entity: &wake_up.entity });
            DrainError::WakeUp
        })
    }

    async fn requeue(&self, wake_up: &WakeUp, delay: Duration, reason: RequeueReason) -> Result<(), DrainError> {
        self.wake(wake_up, delay).await?;
        self.observer.observe(&Event::Requeued { entity: &wake_up.entity, delay, reason });
        Ok(())
    }
}

/// The delay of an unreadable entity's wake-up: a newer version is being
/// deployed, or the row needs a repair.
const UNREADABLE: Duration = Duration::from_secs(60);

/// How long a worker tries to reach store or queue.
const PATIENCE: Duration = Duration::from_secs(5);

impl std::fmt::Debug for Drainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drainer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
