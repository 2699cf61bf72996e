//! Grants exclusive leases on entities to code that is not a worker.
//!
//! Such code is, for example, a user's request, an invoice run or a script. While it has the lease
//! of an entity, workers and other holders wait.
//!
//! ```no_run
//! # use webhook_serializer::{EntityKey, Leases, Terms};
//! # async fn example(leases: Leases) -> Result<(), Box<dyn std::error::Error>> {
//! let subscription = EntityKey::parse("invoice_gen/SUB-1234")?;
//! let invoice = leases
//!     .run(&subscription, Terms::default(), |lease| async move {
//!         // No other holder works on the entity now. Send the token along with every effect.
//!         Ok::<_, std::convert::Infallible>(format!("drawn up under token {}", lease.token()))
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Leases::run`] acquires the lease, renews the lease while the work runs, and releases it. If
//! the lease is lost, the work is dropped and the caller gets [`LeaseError::Lost`], never success.
//! If the store does not answer, the work does not start.
//!
//! Without contention, a lease costs two requests: one to acquire and one to release. The module
//! `acquire` waits for leases, `guard` renews and ends them, and `look` shows them.

mod acquire;
mod guard;
mod look;
pub mod wait;

use std::{sync::Arc, time::Duration};

pub use acquire::UnansweredRequest;
pub use guard::{CommitOutcome, Guard, NotCommitted};
pub use look::{KeyDisplay, LeaseView, ListedLeases};

use crate::{
    config::DEFAULT_RETENTION,
    engine::{
        store::{Store, StoreError},
        wake::Waker,
    },
    protocol::{
        entity::EntityKey,
        lease::Lease,
        state::HolderInfo,
        table::{InvalidKind, InvalidRequest, TableError, Write},
    },
    telemetry::{Observer, TracingLog},
    time::Timestamp,
};

/// The part of the caller's time that is reserved for releasing the lease, with one retry.
const RESERVE: Duration = Duration::from_secs(1);

const PATIENCE: Duration = Duration::from_secs(5);

/// The length of a lease, the time to wait for it, and the caller's time limit.
///
/// By default a lease lasts 15 s, and is renewed each time a third of its length has passed. So a
/// dead holder is replaced within seconds, and work of less than five seconds needs no renewal.
/// The default wait is 30 s, about as long as a person waits for a page.
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
    /// Returns the default terms without a wait. If another holder has the lease, the request
    /// fails at once.
    pub fn at_once() -> Self {
        Self { wait: Duration::ZERO, ..Self::default() }
    }

    /// Sets the length of the lease, clamped to between 1 s and 15 minutes.
    ///
    /// The lease is renewed each time a third of its length has passed.
    #[must_use]
    pub fn lease(mut self, length: Duration) -> Self {
        self.length = length.clamp(Duration::from_secs(1), crate::protocol::state::LONGEST_LEASE);
        self
    }

    /// Sets how long to wait for a lease that another holder has.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Limits the wait and the lease to the caller's remaining time.
    ///
    /// Set this limit if the process is stopped at a deadline, as a Lambda function is. The work is
    /// then dropped early enough to release the lease.
    #[must_use]
    pub fn within(mut self, time_left: Duration) -> Self {
        self.within = Some(time_left);
        self
    }
}

/// The reason why a lease was not granted, was lost, or may not have been released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Another holder still had the lease when the wait ended. The work was not started. Try again
    /// later.
    #[error("held by {by} until {until}")]
    Contended {
        /// The description of the holder, as operators see it, or a note that waiting deliveries go first.
        by: String,
        /// The time at which the other holder's lease expires unless it is renewed. If waiting
        /// deliveries go first, the end of their turn.
        until: Timestamp,
    },
    /// The lease was lost. The work was dropped, and another holder may already work on the
    /// entity.
    #[error("the lease was lost")]
    Lost,
    /// The caller's time ended before the work was done. Any work was dropped.
    #[error("the caller's time ended before the work was done")]
    OutOfTime,
    /// The store throttles requests. The work was not started. Try again later and less often.
    #[error("the store throttles")]
    Throttled,
    /// The store did not answer. The work was not started. If the lease was granted all the same,
    /// [`Leases::acquire`] releases it as soon as it is seen.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The store did not answer the last write, which was a release or a commit. The work is done,
    /// but the write may or may not have taken effect.
    #[error("the work was done, but the store did not confirm its last write: {0}")]
    Unknown(String),
    /// The store refuses the request, or a row cannot be read. A retry does not help: a table or a
    /// permission is missing, the work's own writes are invalid, or a newer version of the program
    /// wrote the row.
    #[error("{0}")]
    Refused(InvalidRequest),
}

/// The reason why work under a lease did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The lease was not granted, was lost, or may not have been released.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The work returned this error. The lease was released, or expires if the store did not
    /// answer.
    #[error("{0}")]
    Work(E),
    /// A condition of the work's own writes did not hold. None of the writes took effect. The lease
    /// was released, or expires if the store did not answer.
    #[error("a condition of the work's own writes did not hold")]
    NotCommitted,
}

/// Grants exclusive leases on entities.
#[derive(Clone)]
pub struct Leases {
    store: Store,
    waker: Option<Waker>,
    info: HolderInfo,
    kept: Duration,
    observer: Arc<dyn Observer>,
}

impl Leases {
    #[doc(hidden)]
    pub fn new(store: Store, holder: &str) -> Self {
        Self::observed(store, holder, Arc::new(TracingLog))
    }

    #[doc(hidden)]
    pub fn observed(store: Store, holder: &str, observer: Arc<dyn Observer>) -> Self {
        Self { store, waker: None, info: HolderInfo::new(holder), kept: DEFAULT_RETENTION, observer }
    }

    /// Sets the description of the holder that operators see, cut to 60 bytes.
    #[must_use]
    pub fn held_by(mut self, holder: &str) -> Self {
        self.info = HolderInfo::new(holder);
        self
    }

    /// Sets the waker. After a release, it wakes a worker if deliveries wait.
    ///
    /// Without a waker, waiting deliveries start only when the wake-ups that were requeued during the lease arrive.
    #[must_use]
    #[doc(hidden)]
    pub fn waking(mut self, waker: Waker) -> Self {
        self.waker = Some(waker);
        self
    }

    /// Sets how long the row of an idle entity is kept, which is 30 days by default.
    ///
    /// The time must equal the deployment's retention.
    #[must_use]
    pub fn kept_for(mut self, retention: Duration) -> Self {
        self.kept = retention;
        self
    }

    #[must_use]
    #[doc(hidden)]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Acquires the lease of `key`, runs `work`, and releases the lease.
    ///
    /// `work` receives the lease, which has the fencing token. It runs on the caller's task. Code that
    /// blocks the thread prevents renewals, so call it with `tokio::task::spawn_blocking`. If `work`
    /// panics, the lease lasts until it expires.
    ///
    /// # Errors
    ///
    /// Returns [`RunError::Work`] with the error of `work`. Returns [`RunError::Lease`] if the lease
    /// was not granted, was lost, or may not have been released.
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
                // The caller gets the work's error, which matters more than an error of the release.
                let _ = guard.release().await;
                Err(RunError::Work(error))
            }
        }
    }

    /// Runs `work` under the lease of `key`. Returns `None` at once if another holder has the lease,
    /// or if waiting deliveries go first.
    ///
    /// This suits work that need not be done again if another holder is already doing it. In all
    /// other respects the function works as [`Leases::run`] does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Leases::run`] except [`LeaseError::Contended`].
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

    /// Runs `work` under the lease of `key`, then makes the writes that `work` returns.
    ///
    /// At most 99 writes and the release are one transaction, which fails if the lease was lost. In
    /// all other respects the function works as [`Leases::run`] does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Leases::run`]. Also returns [`RunError::NotCommitted`] if a
    /// condition of the work's own writes did not hold.
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
                CommitOutcome::Committed => return Ok(value),
                CommitOutcome::Refused(NotCommitted { guard, .. }) => (guard, RunError::NotCommitted),
            },
            Err(error) => (guard, RunError::Work(error)),
        };
        let (guard, error) = refused;
        let _ = guard.release().await;
        Err(error)
    }
}

impl LeaseError {
    /// Returns what has to change before the store accepts the request. `None` for any other error.
    pub fn invalid_kind(&self) -> Option<InvalidKind> {
        match self {
            Self::Refused(request) => Some(request.kind),
            _ => None,
        }
    }

    /// Converts an error of the store that occurred before the work was started.
    fn before(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(TableError::Throttled | TableError::Conflict) => Self::Throttled,
            StoreError::Unavailable(error) => Self::Unreachable(error.to_string()),
            StoreError::Invalid(reason) => Self::Refused(reason),
            StoreError::Corrupt(error) => {
                Self::Refused(InvalidRequest { kind: InvalidKind::UnreadableRow, message: error.to_string() })
            }
        }
    }

    /// Converts an error of the store that occurred at the holder's last write, after the work.
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
