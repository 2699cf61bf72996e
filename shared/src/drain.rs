//! Draining an entity: the worker's side of the protocol.
//!
//! A wake-up says "look at this entity". The worker takes the lease, runs the
//! handler of `head + 1`, settles, and goes on until the inbox is empty, the
//! entity is blocked, or a fresh wake-up has been sent. Only then may the
//! wake-up it came for be deleted.
//!
//! `acquire.rs` gets the lease, `page.rs` reads ahead, `turn.rs` decides one
//! delivery after the other.

mod acquire;
mod page;
mod suspects;
mod turn;

use std::{sync::Arc, time::Duration};

use suspects::Guest;
pub use suspects::Quarantine;

use crate::{
    breaker::Breakers,
    entity::EntityKey,
    handler::{AnyHandler, Handler, Isolation},
    keeper::Keeper,
    rows::{EntityState, HolderInfo},
    sources::LiveSources,
    store::{Store, StoreError},
    telemetry::{Event, Observer, PutOffReason},
    wake::Waker,
};

/// How long drains hold, wait and keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSettings {
    /// How long a lease runs without being renewed. The longer, the later a
    /// dead worker is replaced; the shorter, the more renewals.
    pub lease: Duration,
    /// How long to poll where an entity is held exclusively, before the wake-up
    /// is put off.
    pub wait: Duration,
    /// How long inbox rows are kept.
    pub retention: Duration,
    /// How long a claimed place may stay empty before it is given up: longer
    /// than an append's whole deadline.
    pub gap: Duration,
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            wait: Duration::from_secs(5),
            retention: Duration::from_secs(30 * 86_400),
            gap: crate::append::DEADLINE + Duration::from_millis(800),
        }
    }
}

/// Time kept free at the end of a function's run: to settle, write the receipt
/// and hand over, with a retry each.
pub const MARGIN: Duration = Duration::from_secs(2);

/// What a worker drains with.
#[derive(Clone)]
pub struct Drainer {
    store: Store,
    waker: Waker,
    sources: LiveSources,
    handler: Arc<dyn AnyHandler>,
    isolation: Isolation,
    settings: DrainSettings,
    info: HolderInfo,
    observer: Arc<dyn Observer>,
    breakers: Breakers,
}

/// One wake-up, as a worker received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Of which entity.
    pub entity: EntityKey,
    /// How often it has been received, this time included.
    pub times: u32,
}

/// What is to become of the wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attended {
    /// Delete it: there is nothing to do, or a fresh one was sent.
    Delete,
    /// Report it as failed, so that the queue delivers it again.
    Keep,
}

/// Why a drain stopped without having ended as it should. The lease, if there
/// is one, is left to expire, and the wake-up is kept.
#[derive(Debug)]
enum Stopped {
    /// The lease was lost.
    Lost,
    /// The store was not to be had, or holds what we cannot read.
    Store(StoreError),
    /// A wake-up that had to be sent could not be.
    WakeUp,
}

/// How a drain went that was not stopped.
enum Drained {
    /// The wake-up has served its purpose.
    Ended,
    /// It is to be replaced by one for later.
    NotNow(Duration, PutOffReason),
}

/// How a drain begins.
enum Start {
    /// With the lease, and the row.
    Granted(Keeper, EntityState),
    /// Not at all: there is nothing to do.
    NothingToDo,
    /// Later.
    NotNow(Duration, PutOffReason),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<crate::rows::CorruptRow> for Stopped {
    fn from(error: crate::rows::CorruptRow) -> Self {
        Self::Store(error.into())
    }
}

impl From<crate::keeper::LeaseLost> for Stopped {
    fn from(_: crate::keeper::LeaseLost) -> Self {
        Self::Lost
    }
}

impl Drainer {
    /// A drainer of inboxes in `store`.
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
        let (isolation, breakers) = (Isolation::default(), Breakers::default());
        Self { store, waker, sources, handler, isolation, settings, info, observer, breakers }
    }

    /// The same, running handlers as `isolation` says.
    #[must_use]
    pub fn isolated(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Attends to one wake-up until `deadline`, by the process's own clock.
    /// `quarantine` is shared by all wake-ups of one batch.
    pub async fn attend(&self, wake_up: &Received, deadline: Duration, quarantine: &Quarantine) -> Attended {
        let entity = &wake_up.entity;
        let guest = quarantine.guest();
        // One received again may be a copy of one already deleted: it is replaced first. The fresh
        // one arrives when a lease taken now has run out or, more likely, ended.
        let is_replaced = wake_up.times > 1;
        if is_replaced && self.wake(entity, self.settings.lease).await.is_err() {
            return Attended::Keep;
        }
        let unreplaced = match self.drain(entity, deadline, &guest).await {
            Ok(Drained::Ended) => return Attended::Delete,
            Ok(Drained::NotNow(delay, reason)) => Some((delay, reason)),
            // Whoever has the lease now may have come by a copy of this wake-up that is deleted by
            // now: only a fresh one is sure.
            Err(Stopped::Lost) => Some((self.settings.lease, PutOffReason::Lost)),
            Err(Stopped::WakeUp) => None,
            Err(Stopped::Store(error)) => {
                tracing::error!(%entity, %error, "stopped");
                None
            }
        };
        match unreplaced {
            // Never a second fresh one for the same wake-up, or they would multiply.
            _ if is_replaced => Attended::Delete,
            Some((delay, reason)) if self.put_off(entity, delay, reason).await.is_ok() => Attended::Delete,
            _ => Attended::Keep,
        }
    }

    async fn drain(&self, entity: &EntityKey, deadline: Duration, guest: &Guest<'_>) -> Result<Drained, Stopped> {
        match self.acquire(entity, deadline, guest).await? {
            Start::Granted(keeper, state) => {
                turn::Turns::new(self, keeper, state, deadline, guest).run().await.map(|()| Drained::Ended)
            }
            Start::NothingToDo => Ok(Drained::Ended),
            Start::NotNow(delay, reason) => Ok(Drained::NotNow(delay, reason)),
        }
    }

    /// The configured senders.
    pub fn sources(&self) -> &LiveSources {
        &self.sources
    }

    /// Who watches.
    pub fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    fn now_left(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.store.surroundings().monotonic())
    }

    /// Sends a fresh wake-up. One that cannot be sent stops the drain: the
    /// lease must not end without it.
    async fn wake(&self, entity: &EntityKey, delay: Duration) -> Result<(), Stopped> {
        self.waker.wake(entity, delay, PATIENCE).await.map_err(|_| {
            self.observer.observe(&Event::WakeUpFailed { entity });
            Stopped::WakeUp
        })
    }

    async fn put_off(&self, entity: &EntityKey, delay: Duration, reason: PutOffReason) -> Result<(), Stopped> {
        self.wake(entity, delay).await?;
        self.observer.observe(&Event::PutOff { entity, delay, reason });
        Ok(())
    }
}

/// How long a worker tries to reach store or queue before it stops.
const PATIENCE: Duration = Duration::from_secs(5);

impl std::fmt::Debug for Drainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drainer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
