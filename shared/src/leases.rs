//! Leases for everything that touches an entity and is no worker: a user's
//! request, a job, an invoice run, a script.
//!
//! ```no_run
//! # use webhook_serializer::{EntityKey, Leases, Terms};
//! # async fn example(leases: Leases) -> Result<(), Box<dyn std::error::Error>> {
//! let subscription = EntityKey::parse("invoice_gen/SUB-1234")?;
//! let invoice = leases
//!     .run(&subscription, Terms::default(), |lease| async move {
//!         // Nobody else is here. Send the token along with every effect.
//!         Ok::<_, std::convert::Infallible>(format!("drawn up under token {}", lease.token()))
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Leases::run`] acquires, renews while the work goes on, and releases. The
//! work is dropped when the lease is lost, and the caller is told
//! [`LeaseError::Lost`], never success. What fails, fails closed: without an
//! answer from the store nothing is started.
//!
//! An uncontended lease costs two requests, one to acquire and one to release.
//! `leases/acquire.rs` waits, `leases/guard.rs` holds, `leases/look.rs` looks.

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

/// Time kept free at the end of the caller's own: to release, with a retry.
const RESERVE: Duration = Duration::from_secs(1);

/// How long to try to reach the store for one write.
const PATIENCE: Duration = Duration::from_secs(5);

/// On what terms a lease is wanted.
///
/// By default it runs for 15 s and is renewed at a third of that: short enough
/// that a dead holder is replaced within seconds, long enough that two renewals
/// may fail before it is lost, and that work under five seconds needs none. It
/// is waited for at most 30 s, about as long as a person waits for a page and a
/// front door for a function.
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
    /// The default terms, but asked for once: contended, it is not waited for.
    pub fn at_once() -> Self {
        Self { wait: Duration::ZERO, ..Self::default() }
    }

    /// With a lease of another length, 1 s to 15 minutes; it is renewed at a
    /// third of it.
    #[must_use]
    pub fn lease(mut self, length: Duration) -> Self {
        self.length = length.clamp(Duration::from_secs(1), crate::protocol::state::LONGEST_LEASE);
        self
    }

    /// With another longest wait.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// For a caller that has only `time_left`, such as a function with a
    /// deadline: waiting, the lease and its renewals all end before that, and
    /// the work is dropped in time to release.
    #[must_use]
    pub fn within(mut self, time_left: Duration) -> Self {
        self.within = Some(time_left);
        self
    }
}

/// Why there is no lease, or not any more. One variant for each reaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Somebody else has it, and still had it when the wait was over. Nothing
    /// was started; try later.
    #[error("held by {by} until {until}")]
    Contended {
        /// Who, for people.
        by: String,
        /// Until when, unless renewed, by that holder's clock.
        until: Timestamp,
    },
    /// It was ours and is not any more. Whatever was at work under it was
    /// dropped; what it has done may be followed by others' work already.
    #[error("the lease was lost")]
    Lost,
    /// The caller's time was up before the work was done. The work was dropped
    /// and the lease released.
    #[error("the time was up before the work was done")]
    OutOfTime,
    /// The store has too much to do. Nothing was started; try later, and less
    /// often.
    #[error("the store throttles")]
    Throttled,
    /// The store gave no answer. Nothing was started; an unseen grant may keep
    /// others out for the length of a lease.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The last write, a release or a commit, had no answer. The work was done;
    /// whether that write landed is not known.
    #[error("the work was done, and the store did not say whether it stands: {0}")]
    Unknown(String),
    /// The store will never accept it, or holds a row that cannot be read:
    /// missing tables or permissions, or a newer version of this software.
    #[error("{0}")]
    Refused(String),
}

/// Why [`Leases::run`] has no value to give.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The lease.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The work's own failure. The lease was released.
    #[error("{0}")]
    Work(E),
    /// The commit was refused: a condition of the work's own writes did not
    /// hold. None of them landed; the lease was released.
    #[error("a condition of the work's own writes did not hold")]
    NotCommitted,
}

/// Gives leases.
#[derive(Clone)]
pub struct Leases {
    store: Store,
    waker: Option<Waker>,
    info: HolderInfo,
    kept: Duration,
    observer: Arc<dyn Observer>,
}

impl Leases {
    /// Leases in `store`; `holder` tells people who has one, in at most 60
    /// bytes.
    #[doc(hidden)]
    pub fn new(store: Store, holder: &str) -> Self {
        let kept = Duration::from_secs(30 * 86_400);
        Self { store, waker: None, info: HolderInfo::new(holder), kept, observer: Arc::new(Log) }
    }

    /// The same, of a holder with another name, which tells people who has a
    /// lease, in at most 60 bytes.
    #[must_use]
    pub fn held_by(mut self, holder: &str) -> Self {
        self.info = HolderInfo::new(holder);
        self
    }

    /// The same, waking a worker after a release where deliveries wait. Without
    /// it they are found all the same, by the wake-ups that were put off
    /// meanwhile, but later.
    #[must_use]
    #[doc(hidden)]
    pub fn waking(mut self, waker: Waker) -> Self {
        self.waker = Some(waker);
        self
    }

    /// The same, keeping an idle entity's row for `retention`, which should be
    /// that of the deployment whose entities these are; 30 days by default.
    #[must_use]
    pub fn kept_for(mut self, retention: Duration) -> Self {
        self.kept = retention;
        self
    }

    /// The same, watched by `observer` instead of the log.
    #[must_use]
    #[doc(hidden)]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Acquires the lease of `key`, does `work`, releases.
    ///
    /// `work` gets the lease for its fencing token. It runs where it is
    /// awaited: work that blocks its thread keeps the lease from being renewed,
    /// and belongs on `tokio::task::spawn_blocking`. Should it panic, the lease
    /// is left to run out.
    ///
    /// # Errors
    ///
    /// [`RunError::Work`] as `work` returns it; [`RunError::Lease`] where the
    /// lease was not granted, or was lost before it was released.
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
                // The work has failed; that the release did too changes nothing for its caller.
                let _ = guard.release().await;
                Err(RunError::Work(error))
            }
        }
    }

    /// As [`Leases::run`], for work that is to be done by nobody else and need
    /// not be done twice: `None` where somebody is at it already.
    ///
    /// # Errors
    ///
    /// As for [`Leases::run`], but never [`LeaseError::Contended`].
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

    /// As [`Leases::run`], but what `work` wants written lands with the release,
    /// in one transaction that demands that the lease is still ours: all of it,
    /// or nothing. At most 99 writes.
    ///
    /// # Errors
    ///
    /// As for [`Leases::run`]; [`RunError::NotCommitted`] where a condition of
    /// the work's own writes did not hold.
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
    /// Why a lease was not granted.
    fn before(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(TableError::Throttled | TableError::Conflict) => Self::Throttled,
            StoreError::Unavailable(error) => Self::Unreachable(error.to_string()),
            StoreError::Invalid(reason) => Self::Refused(reason),
            StoreError::Corrupt(error) => Self::Refused(error.to_string()),
        }
    }

    /// Why a holder does not know how its last write ended.
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
