//! Leases for code other than workers that touches an entity: a user's request, a
//! job, an invoice run, a script.
//!
//! ```no_run
//! # use webhook_serializer::{EntityKey, Leases, Terms};
//! # async fn example(leases: Leases) -> Result<(), Box<dyn std::error::Error>> {
//! let subscription = EntityKey::parse("invoice_gen/SUB-1234")?;
//! let invoice = leases
//!     .run(&subscription, Terms::default(), |lease| async move {
//!         // No other holder works now. Send the token along with every effect.
//!         Ok::<_, std::convert::Infallible>(format!("drawn up under token {}", lease.token()))
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Leases::run`] acquires the lease, renews it while the work runs, and releases
//! it. If the lease is lost, the work is dropped and the caller gets
//! [`LeaseError::Lost`], never success. Leases fail closed: if the store does not
//! answer, the work does not start.
//!
//! An uncontended lease costs two requests, one to acquire and one to release.
//! The module `acquire` waits for leases, `guard` holds them, `look` shows them.

mod acquire;
mod guard;
mod look;
pub mod wait;

use std::{sync::Arc, time::Duration};

pub use guard::{Guard, NotCommitted};
pub use look::{LeaseView, Listed, Show};

use crate::{
    engine::{
        store::{Store, StoreError},
        wake::Waker,
    },
    protocol::{
        entity::EntityKey,
        lease::Lease,
        state::HolderInfo,
        table::{TableError, Write},
    },
    telemetry::{Log, Observer},
    time::Timestamp,
};

/// The part of the caller's time kept for the release and one retry of it.
const RESERVE: Duration = Duration::from_secs(1);

/// The longest time spent on one write.
const PATIENCE: Duration = Duration::from_secs(5);

/// The terms of a lease.
///
/// By default a lease lasts 15 s and is renewed after a third of that: a dead
/// holder is replaced within seconds, two renewals may fail before the lease is
/// lost, and work of less than five seconds needs no renewal. The default wait is
/// 30 s, about as long as a person waits for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    length: Duration,
    wait: Duration,
    within: Option<Duration>,
}

impl Default for Terms {
    fn default() -> Self {
        Self { length: Duration::from_secs(15), wait: Duration::from_secs(30), within: None }
    }
}

impl Terms {
    /// Returns the default terms without a wait: a contended lease fails at once.
    pub fn at_once() -> Self {
        Self { wait: Duration::ZERO, ..Self::default() }
    }

    /// Sets the length of the lease, clamped to between 1 s and 15 minutes. The
    /// lease is renewed after a third of it.
    #[must_use]
    pub fn lease(mut self, length: Duration) -> Self {
        self.length = length.clamp(Duration::from_secs(1), crate::protocol::state::LONGEST_LEASE);
        self
    }

    /// Sets the longest wait.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Limits everything to the caller's remaining time, such as that of a
    /// function with a deadline: the wait, the lease and its renewals end before
    /// it, and the work is dropped in time for the release.
    #[must_use]
    pub fn within(mut self, time_left: Duration) -> Self {
        self.within = Some(time_left);
        self
    }
}

/// The reason why a lease was not granted or was lost. Each variant calls for
/// another reaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Another holder still had the lease when the wait ended. Nothing was
    /// started; try again later.
    #[error("held by {by} until {until}")]
    Contended {
        /// A description of the holder, for people.
        by: String,
        /// The end of its lease by its own clock, unless it renews it.
        until: Timestamp,
    },
    /// The lease was lost. The work under it was dropped; other holders may
    /// already work on the entity.
    #[error("the lease was lost")]
    Lost,
    /// The caller's time ended before the work did. The work was dropped and the
    /// lease released.
    #[error("the caller's time ended before the work was done")]
    OutOfTime,
    /// The store throttles. Nothing was started; try again later and less often.
    #[error("the store throttles")]
    Throttled,
    /// The store did not answer. Nothing was started; if the request was granted
    /// unseen, it keeps others out for the length of the lease.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The final write, a release or a commit, was not answered. The work is
    /// done, and it is unknown whether that write landed.
    #[error("the work was done, but the store did not confirm its last write: {0}")]
    Unknown(String),
    /// The store rejects the request for good, or holds a row that cannot be
    /// read: missing tables or permissions, or data of a newer version.
    #[error("{0}")]
    Refused(String),
}

/// An error of [`Leases::run`].
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The lease was not granted or was lost.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The work failed. The lease was released.
    #[error("{0}")]
    Work(E),
    /// A condition of the work's own writes did not hold. None of them landed,
    /// and the lease was released.
    #[error("a condition of the work's own writes did not hold")]
    NotCommitted,
}

/// Grants leases on entities.
#[derive(Clone)]
pub struct Leases {
    store: Store,
    waker: Option<Waker>,
    info: HolderInfo,
    kept: Duration,
    observer: Arc<dyn Observer>,
}

impl Leases {
    /// Creates leases in `store`. `holder` describes the holder to people, in at
    /// most 60 bytes.
    #[doc(hidden)]
    pub fn new(store: Store, holder: &str) -> Self {
        let kept = Duration::from_secs(30 * 86_400);
        Self { store, waker: None, info: HolderInfo::new(holder), kept, observer: Arc::new(Log) }
    }

    /// Sets the description of the holder that people see, at most 60 bytes.
    #[must_use]
    pub fn held_by(mut self, holder: &str) -> Self {
        self.info = HolderInfo::new(holder);
        self
    }

    /// Wakes a worker after a release if deliveries wait. Without a waker, the wake-ups
    /// that were requeued during the lease find them later.
    #[must_use]
    #[doc(hidden)]
    pub fn waking(mut self, waker: Waker) -> Self {
        self.waker = Some(waker);
        self
    }

    /// Sets how long an idle entity's row is kept: the deployment's retention; 30
    /// days by default.
    #[must_use]
    pub fn kept_for(mut self, retention: Duration) -> Self {
        self.kept = retention;
        self
    }

    /// Sends events to `observer` instead of the log.
    #[must_use]
    #[doc(hidden)]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Acquires the lease of `key`, runs `work`, and releases the lease.
    ///
    /// `work` receives the lease for its fencing token. It runs on the caller's
    /// task: work that blocks the thread prevents renewals and belongs in
    /// `tokio::task::spawn_blocking`. If it panics, the lease expires by itself.
    ///
    /// # Errors
    ///
    /// [`RunError::Work`] with the error of `work`; [`RunError::Lease`] if the
    /// lease was not granted, or was lost before its release.
    pub async fn run<T, E, W>(
        &self,
        key: &EntityKey,
        terms: Terms,
        work: impl FnOnce(Lease) -> W,
    ) -> Result<T, RunError<E>>
    where
        W: Future<Output = Result<T, E>>,
    {
        let mut guard = self.acquire(key, terms).await?;
        match guard.work(work).await? {
            Ok(value) => {
                guard.release().await?;
                Ok(value)
            }
            Err(error) => {
                // The caller learns of the failed work; a failed release would change nothing.
                let _ = guard.release().await;
                Err(RunError::Work(error))
            }
        }
    }

    /// Like [`Leases::run`], for work that is needed only once: returns `None` if another holder
    /// has the lease.
    ///
    /// # Errors
    ///
    /// Those of [`Leases::run`], except [`LeaseError::Contended`].
    pub async fn run_unless_held<T, E, W>(
        &self,
        key: &EntityKey,
        terms: Terms,
        work: impl FnOnce(Lease) -> W,
    ) -> Result<Option<T>, RunError<E>>
    where
        W: Future<Output = Result<T, E>>,
    {
        match self.run(key, terms.wait(Duration::ZERO), work).await {
            Ok(value) => Ok(Some(value)),
            Err(RunError::Lease(LeaseError::Contended { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Like [`Leases::run`], but the writes that `work` returns land together with
    /// the release, in one transaction that fails if the lease was lost. At most
    /// 99 writes.
    ///
    /// # Errors
    ///
    /// Those of [`Leases::run`]; [`RunError::NotCommitted`] if a condition of the
    /// work's own writes did not hold.
    pub async fn commit<T, E, W>(
        &self,
        key: &EntityKey,
        terms: Terms,
        work: impl FnOnce(Lease) -> W,
    ) -> Result<T, RunError<E>>
    where
        W: Future<Output = Result<(T, Vec<Write>), E>>,
    {
        let mut guard = self.acquire(key, terms).await?;
        let refused = match guard.work(work).await? {
            Ok((value, writes)) => match guard.commit(writes).await? {
                Ok(()) => return Ok(value),
                Err(NotCommitted { guard, .. }) => (guard, RunError::NotCommitted),
            },
            Err(error) => (guard, RunError::Work(error)),
        };
        let (guard, error) = refused;
        let _ = guard.release().await;
        Err(error)
    }
}

impl LeaseError {
    /// Converts the error of a request for a lease.
    fn before(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(TableError::Throttled | TableError::Conflict) => Self::Throttled,
            StoreError::Unavailable(error) => Self::Unreachable(error.to_string()),
            StoreError::Invalid(reason) => Self::Refused(reason),
            StoreError::Corrupt(error) => Self::Refused(error.to_string()),
        }
    }

    /// Converts the error of a holder's last write, whose outcome is unknown.
    fn after(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(error) => Self::Unknown(error.to_string()),
            other => Self::before(other),
        }
    }
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").field("info", &self.info).finish_non_exhaustive()
    }
}
