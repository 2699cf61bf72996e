//! Draining an entity: the worker's side of the protocol.
//!
//! A wake-up says "look at this entity". The worker takes the lease, runs the
//! handler of `head + 1`, settles, and goes on until the inbox is empty, the
//! entity is blocked, or a fresh wake-up has been sent. Only then may the
//! wake-up it came for be deleted.
//!
//! `begin.rs` and `plan.rs` decide, from what is known, and do nothing;
//! `acquire.rs` and `driver.rs` do what they say. So a model can take the same
//! decisions.

mod acquire;
pub(crate) mod aside;
pub mod begin;
mod driver;
mod in_flight;
pub mod page;
pub mod plan;
mod suspects;

use std::{sync::Arc, time::Duration};

use acquire::Start;
use begin::{Drained, Fate, fate};
use driver::Driver;
pub use in_flight::InFlight;
pub(crate) use plan::MARKING;
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
    /// How long what is parked is kept; `None`: until a person decides.
    pub parked_retention: Option<Duration>,
    /// How long a claimed place may stay empty before it is given up: longer
    /// than an append's whole deadline.
    pub gap: Duration,
    /// How long a drain goes on with deliveries left before it goes behind
    /// everybody else: its invocation takes nothing new meanwhile.
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

/// Time kept free at the end of a function's run: to make room in the row, settle
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
    threads: Threads,
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

impl Received {
    /// Whether a fresh one is sent before anything else is done: this one may
    /// be a copy of one that is deleted already.
    fn is_replaced(&self) -> bool {
        self.times > 1
    }
}

/// What is to become of the wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledgement {
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
    /// The store could not be reached, or holds what we cannot read.
    Store(StoreError),
    /// A wake-up that had to be sent could not be.
    WakeUp,
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<crate::protocol::format::CorruptRow> for Stopped {
    fn from(error: crate::protocol::format::CorruptRow) -> Self {
        Self::Store(error.into())
    }
}

impl From<crate::engine::lease_renewer::LeaseLost> for Stopped {
    fn from(_: crate::engine::lease_renewer::LeaseLost) -> Self {
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
        let (isolation, threads, breakers) = (Isolation::default(), Threads::default(), Breakers::default());
        Self { store, waker, sources, handler, isolation, threads, settings, info, observer, breakers }
    }

    /// The same, running handlers as `isolation` says.
    #[must_use]
    pub fn isolated(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// As [`Drainer::process_under`], for a wake-up that says no token.
    pub async fn process(&self, wake_up: &Received, deadline: Duration, gate: &SuspectGate) -> Acknowledgement {
        self.process_under(wake_up, None, deadline, gate, &InFlight::new(self.store.env(), false)).await
    }

    /// Attends to one wake-up until `deadline`, by the process's own clock.
    /// `token` is what it says; `gate` and `in_flight` are shared by all
    /// wake-ups of one batch.
    pub async fn process_under(
        &self,
        wake_up: &Received,
        token: Option<FencingToken>,
        deadline: Duration,
        gate: &SuspectGate,
        in_flight: &InFlight,
    ) -> Acknowledgement {
        // Whatever replaces it says the same: should it be the one that counts, so is that.
        let fresh = WakeUp { entity: wake_up.entity.clone(), token: token.map(|token| token.0) };
        let slot = gate.slot();
        // One received again may be a copy of one already deleted: it is replaced first. The fresh
        // one arrives when a lease taken now has run out or, more likely, ended.
        let is_replaced = wake_up.is_replaced();
        if is_replaced && self.wake(&fresh, self.settings.lease).await.is_err() {
            return Acknowledgement::Keep;
        }
        let drained = match self.drain(wake_up, deadline, &slot, in_flight).await {
            Ok(drained) => drained,
            Err(Stopped::Lost) => Drained::Lost,
            Err(Stopped::WakeUp) => Drained::Stopped,
            Err(Stopped::Store(error)) => {
                tracing::error!(entity = %fresh.entity, %error, "stopped");
                Drained::Stopped
            }
        };
        match fate(&fresh, is_replaced, drained, self.settings.lease) {
            Fate::Delete => Acknowledgement::Delete,
            Fate::Keep => Acknowledgement::Keep,
            Fate::Replace(fresh, delay, reason) => match self.requeue(&fresh, delay, reason).await {
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
    ) -> Result<Drained, Stopped> {
        Ok(match self.acquire(&wake_up.entity, deadline, slot, in_flight).await? {
            Start::Granted(renewer, state) => {
                in_flight.begin();
                let driver = Driver::new(self, renewer, state, deadline, slot, in_flight);
                driver.run(wake_up.is_replaced()).await?;
                Drained::Ended
            }
            Start::NothingToDo => Drained::Ended,
            Start::NotNow(delay, reason) => Drained::NotNow(delay, reason),
            Start::Awaits(awaited, delay) => Drained::Awaits(awaited, delay),
        })
    }

    /// How long its leases run without being renewed.
    pub fn lease(&self) -> Duration {
        self.settings.lease
    }

    /// Inboxes in the same store, for what comes with the wake-ups.
    pub(crate) fn inbox(&self) -> Inbox {
        let (store, waker) = (self.store.clone(), self.waker.clone());
        Inbox::new(store, waker, self.settings.retention, self.observer.clone())
    }

    /// The clock and chance it lives by.
    pub(crate) fn env(&self) -> &Env {
        self.store.env()
    }

    /// The configured senders.
    pub fn sources(&self) -> &LiveSources {
        &self.sources
    }

    /// On which handlers run. Where they are spent, nothing is begun: what waits
    /// is handed over uncharged, and the process is to be replaced.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Who watches.
    pub fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    fn now_left(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.store.env().monotonic())
    }

    /// Sends a fresh wake-up. One that cannot be sent stops the drain: the
    /// lease must not end without it.
    async fn wake(&self, wake_up: &WakeUp, delay: Duration) -> Result<(), Stopped> {
        self.waker.send(wake_up, delay, PATIENCE).await.map_err(|_| {
            self.observer.observe(&Event::WakeUpFailed { entity: &wake_up.entity });
            Stopped::WakeUp
        })
    }

    async fn requeue(&self, wake_up: &WakeUp, delay: Duration, reason: RequeueReason) -> Result<(), Stopped> {
        self.wake(wake_up, delay).await?;
        self.observer.observe(&Event::Requeued { entity: &wake_up.entity, delay, reason });
        Ok(())
    }
}

/// How long to keep off an inbox whose next row cannot be read: a newer version
/// is being deployed, or somebody has to look.
const UNREADABLE: Duration = Duration::from_secs(60);

/// How long a worker tries to reach store or queue before it stops.
const PATIENCE: Duration = Duration::from_secs(5);

impl std::fmt::Debug for Drainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drainer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
