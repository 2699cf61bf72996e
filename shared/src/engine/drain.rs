//! Drains an entity's inbox: the worker's part of the protocol.
//!
//! A wake-up tells a worker to look at an entity. The worker acquires the entity's lease, runs the
//! handler for the delivery at `head + 1` or for a group that begins there, settles these
//! deliveries, and goes on to the next. The drain ends when the inbox is empty, the entity is
//! blocked or on hold, or a fresh wake-up has been sent. Only then may the worker delete the
//! wake-up that it received.
//!
//! `begin.rs` and `plan.rs` decide without side effects. `acquire.rs` and `driver.rs` carry the
//! decisions out. The model in `tests/model` calls the same deciding functions.

mod acquire;
pub mod begin;
mod driver;
mod in_flight;
mod outage;
mod pace;
pub mod page;
pub(crate) mod park;
pub mod plan;
pub(crate) mod spill;
mod suspects;

use std::{sync::Arc, time::Duration};

use acquire::Acquisition;
use begin::{Disposition, Drained, disposition};
use driver::Driver;
pub use in_flight::InFlight;
#[cfg(test)]
pub(crate) use plan::GROUP_BYTES;
pub(crate) use plan::MARK_TIMEOUT;
use plan::SHORT_WAIT;
use suspects::DrainSlot;
pub use suspects::SuspectGate;

use crate::{
    config::DEFAULT_RETENTION,
    engine::{
        append::Inbox,
        breaker::Breakers,
        outages::{OutageWait, Outages},
        queue::{EndedWait, WakeUp},
        store::{Store, StoreError},
        threads::Threads,
        wake::Waker,
    },
    handler::{AnyHandler, Handler, Isolation},
    protocol::{
        entity::{EntityKey, FencingToken, Sequence},
        lease::Follow,
        receipt::PAGES,
        state::HolderInfo,
    },
    sources::LiveSources,
    telemetry::{Event, Observer, RequeueReason},
    time::Env,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSettings {
    /// The length of a lease. A longer lease delays the replacement of a dead worker. A shorter
    /// lease needs more renewals.
    pub lease: Duration,
    pub retention: Duration,
    /// The retention of parked deliveries. `None` keeps them until an operator redrives or
    /// discards them.
    pub parked_retention: Option<Duration>,
    /// The time that a claimed sequence may stay empty before a worker writes a tombstone there.
    ///
    /// This time must exceed the append's [`DEADLINE`](crate::engine::append::DEADLINE).
    pub gap: Duration,
    /// The time after which a drain hands over, so that other entities get their turn. It is shorter
    /// while other entities' wake-ups wait.
    pub slice: Duration,
    /// The most pages of receipts that an entity gets. Further receipts get separate rows.
    pub receipt_pages: usize,
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            retention: DEFAULT_RETENTION,
            parked_retention: None,
            gap: crate::engine::append::DEADLINE + Duration::from_millis(800),
            slice: Duration::from_secs(2),
            receipt_pages: PAGES,
        }
    }
}

/// The time reserved at an invocation's end to write receipts to a page, settle and hand over, with one
/// retry each.
pub const MARGIN: Duration = Duration::from_secs(2);

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
    outages: Outages,
}

/// The wake-ups of one entity in a batch, merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedWakeUp {
    pub entity: EntityKey,
    /// The number of times that workers have received the message, this time included.
    pub times: u32,
    /// The fencing token that all of the entity's wake-ups carry.
    pub token: Option<FencingToken>,
    /// The last sequence whose gap has lasted long enough for a tombstone.
    pub gap: Option<Sequence>,
    /// See [`WakeUp::ended_wait`].
    pub ended_wait: Option<EndedWait>,
    /// See [`WakeUp::outage`].
    pub outage: Option<OutageWait>,
    /// The outage that another wake-up of the batch names. This one counts only if the order no longer waits for it.
    pub outage_besides: Option<OutageWait>,
    /// The longest time that a wake-up of the batch waited in the queue for a worker.
    pub lag: Duration,
}

impl ReceivedWakeUp {
    /// Returns a wake-up of `entity`, without a token, that was received `times` times.
    pub fn new(entity: EntityKey, times: u32) -> Self {
        Self {
            entity,
            times,
            token: None,
            gap: None,
            ended_wait: None,
            outage: None,
            outage_besides: None,
            lag: Duration::ZERO,
        }
    }

    pub fn wake_up(wake_up: WakeUp, times: u32) -> Self {
        let token = wake_up.token.map(FencingToken);
        let gap = wake_up.gap.map(Sequence);
        let WakeUp { entity, ended_wait, outage, .. } = wake_up;
        Self { token, gap, ended_wait, outage, ..Self::new(entity, times) }
    }

    /// Returns whether the drain must first send a fresh wake-up, because the message may be a copy
    /// of a deleted one.
    fn is_replaced(&self) -> bool {
        self.times > 1
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledgement {
    Delete,
    /// Report the message as failed, so that the queue delivers it again.
    Keep,
}

#[derive(Debug)]
enum DrainError {
    Lost,
    Store(StoreError),
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
        let isolation = Isolation::default();
        let threads = Threads::default();
        let breakers = Breakers::default();
        let outages = Outages::new(store.clone());
        Self { store, waker, sources, handler, isolation, threads, settings, info, observer, breakers, outages }
    }

    #[must_use]
    pub fn isolated(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    pub async fn process(&self, wake_up: &ReceivedWakeUp, deadline: Duration, gate: &SuspectGate) -> Acknowledgement {
        self.process_among(wake_up, deadline, gate, &InFlight::new(self.store.env(), false)).await
    }

    /// Drains the wake-up's entity until `deadline`, by the monotonic clock. Returns whether the
    /// worker deletes or keeps the message that contained the wake-up.
    ///
    /// The calls for all wake-ups of a batch share `gate` and `in_flight`.
    pub async fn process_among(
        &self,
        wake_up: &ReceivedWakeUp,
        deadline: Duration,
        gate: &SuspectGate,
        in_flight: &InFlight,
    ) -> Acknowledgement {
        let chosen = match self.chosen(wake_up).await {
            Ok(chosen) => chosen,
            Err(error) => {
                tracing::error!(entity = %wake_up.entity, %error, "stopped");
                return Acknowledgement::Keep;
            }
        };
        let wake_up = chosen.as_ref().unwrap_or(wake_up);
        // The replacement carries the same token, because claims may rely on the received wake-up.
        let fresh = WakeUp {
            token: wake_up.token.map(|token| token.0),
            gap: wake_up.gap.map(|gap| gap.0),
            ended_wait: wake_up.ended_wait,
            outage: wake_up.outage.clone(),
            ..WakeUp::of(&wake_up.entity)
        };
        let slot = gate.slot();
        // The delay is a lease's length: a lease acquired now has ended when the fresh wake-up arrives.
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
            Disposition::Replace(fresh, delay, reason) => {
                if self.requeue(&fresh, delay, reason).await.is_err() {
                    return Acknowledgement::Keep;
                }
                if let Drained::Follows { token, .. } = drained {
                    let follow = Follow { entity: &fresh.entity, token, due: self.store.env().now() + delay };
                    // Without this record, claims send further wake-ups.
                    let _ = self.store.run(&follow, SHORT_WAIT).await;
                }
                Acknowledgement::Delete
            }
        }
    }

    async fn drain(
        &self,
        wake_up: &ReceivedWakeUp,
        deadline: Duration,
        slot: &DrainSlot<'_>,
        in_flight: &InFlight,
    ) -> Result<Drained, DrainError> {
        let received = match self.after_outage(wake_up).await {
            Ok(received) => received,
            Err(delay) => return Ok(Drained::Requeue(delay, RequeueReason::DestinationDown)),
        };
        let wake_up = received.as_ref().unwrap_or(wake_up);
        Ok(match self.acquire(wake_up, deadline, slot, in_flight).await? {
            Acquisition::Granted(renewer, state) => {
                in_flight.granted();
                let driver = Driver::new(self, renewer, state, wake_up, deadline, slot, in_flight);
                driver.run().await?;
                Drained::Ended
            }
            Acquisition::NothingToDo => Drained::Ended,
            Acquisition::Requeue(delay, reason) => Drained::Requeue(delay, reason),
            Acquisition::Awaits(awaited, delay) => Drained::Awaits(awaited, delay),
            Acquisition::Follows { token, delay, is_followed, retry_at } => {
                Drained::Follows { token, delay, is_followed, retry_at }
            }
        })
    }

    pub fn lease(&self) -> Duration {
        self.settings.lease
    }

    pub(crate) fn inbox(&self) -> Inbox {
        let store = self.store.clone();
        let waker = self.waker.clone();
        Inbox::new(store, waker, self.settings.retention, self.observer.clone())
    }

    pub(crate) fn env(&self) -> &Env {
        self.store.env()
    }

    pub fn sources(&self) -> &LiveSources {
        &self.sources
    }

    /// Returns the threads that run the handlers. Once they are spent, drains only hand over, and
    /// the process should be replaced.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    pub fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    fn now_left(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.store.env().monotonic())
    }

    /// Sends a fresh wake-up. If sending fails, the caller must not release the lease.
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

/// The delay of a wake-up whose entity's row cannot be read.
///
/// Either a newer version of the program is being deployed, or the row needs a repair.
const UNREADABLE: Duration = Duration::from_secs(60);

const PATIENCE: Duration = Duration::from_secs(5);

impl std::fmt::Debug for Drainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drainer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
