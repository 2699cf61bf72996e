//! Renews an exclusive lease while work runs, and ends it with a release or a commit.

use std::time::Duration;

use super::{LeaseError, Leases, PATIENCE, RESERVE};
use crate::{
    engine::{lease_renewer::LeaseRenewer, store::StoreError},
    protocol::{
        entity::Sequence,
        inbox::{Decision, Rewind, Rewound, Skip, Skipped},
        lease::{Ended, Lease, Release, ReleaseEmpty, Released, YieldToDeliveries, idle_purge_at},
        operation::Operation,
        receipt::Recent,
        state::EntityState,
        table::{ConditionResult, Transacted, Write, Written},
    },
    telemetry::Event,
    time::Timestamp,
};

/// A granted lease, which its holder must release.
///
/// Only [`Guard::hold`] and [`Guard::extend`] renew the lease. If the guard is dropped, the lease
/// keeps other holders waiting until it expires, and a warning is logged.
#[must_use = "a lease that is dropped is left to run out"]
pub struct Guard {
    leases: Leases,
    renewer: LeaseRenewer,
    /// The receipts in the entity's row, which determine when the idle row may be purged. No other
    /// process changes them during this lease.
    recent: Recent,
    /// Set if the inbox was empty when the row was last read.
    is_idle: bool,
    /// Set if, after the release, waiting deliveries go before other exclusive holders. The guard needs
    /// a waker for this, and the row must show no block, hold or wait for a retry.
    grants_turn: bool,
    end: Duration,
    granted: Duration,
    is_open: bool,
}

/// The outcome of [`Guard::commit`].
#[derive(Debug)]
#[must_use]
pub enum CommitOutcome {
    /// All writes took effect, and the lease was released.
    Committed,
    Refused(NotCommitted),
}

/// A commit that failed because a condition did not hold.
///
/// None of the writes took effect, and the lease was not released.
#[derive(Debug)]
pub struct NotCommitted {
    /// The guard of the lease, which must still be released.
    pub guard: Guard,
    /// The result of each write, in order.
    pub results: Vec<ConditionResult>,
}

impl Guard {
    pub(super) fn new(
        leases: Leases,
        renewer: LeaseRenewer,
        state: &EntityState,
        end: Duration,
        granted: Duration,
    ) -> Self {
        let recent = state.recent.clone();
        let is_idle = state.is_empty();
        let grants_turn = false;
        let mut guard = Self { leases, renewer, recent, is_idle, grants_turn, end, granted, is_open: true };
        guard.saw(state);
        guard
    }

    fn saw(&mut self, state: &EntityState) {
        let now = self.leases.store.env().now();
        let waits = state.is_stopped() || state.retry_at.is_some_and(|at| at > now);
        self.is_idle = state.is_empty();
        self.grants_turn = self.leases.waker.is_some() && !waits;
        self.recent = state.recent.clone();
    }

    /// Returns the lease, which has the fencing token, the lease's id, and the condition to add to
    /// your own transactions.
    pub fn lease(&self) -> &Lease {
        self.renewer.lease()
    }

    /// Returns how long the lease lasts if it is not renewed.
    pub fn time_left(&self) -> Duration {
        self.renewer.left()
    }

    /// Awaits `work` and renews the lease meanwhile.
    ///
    /// # Errors
    ///
    /// Returns [`LeaseError::Lost`] if the lease was lost, and [`LeaseError::OutOfTime`] if the
    /// caller's time ended. In both cases `work` was dropped. After [`LeaseError::OutOfTime`] the
    /// lease must still be released.
    pub async fn hold<W: Future>(&mut self, work: W) -> Result<W::Output, LeaseError> {
        let env = self.leases.store.env().clone();
        let left = self.end.saturating_sub(env.monotonic());
        let held = if self.end == Duration::MAX {
            Some(self.renewer.hold(work).await)
        } else {
            env.within(left, self.renewer.hold(work)).await
        };
        match held {
            Some(Ok(output)) => Ok(output),
            Some(Err(_)) if env.monotonic() >= self.end => Err(LeaseError::OutOfTime),
            Some(Err(_)) => Err(self.lost()),
            None => Err(LeaseError::OutOfTime),
        }
    }

    /// Renews the lease for its full length, or for the caller's remaining time if that is less.
    ///
    /// # Errors
    ///
    /// Returns [`LeaseError::Lost`] if another holder has the lease, or if the renewal was not
    /// confirmed before the lease expired.
    pub async fn extend(&mut self) -> Result<(), LeaseError> {
        self.renewer.renew().await.map_err(|_| self.lost())
    }

    /// Runs `work` under the lease. If the caller's time ends first, drops the work and releases the lease.
    pub(super) async fn work<W: Future>(&mut self, work: impl FnOnce(Lease) -> W) -> Result<W::Output, LeaseError> {
        let lease = self.lease().clone();
        let done = self.hold(work(lease)).await;
        if let Err(LeaseError::OutOfTime) = done {
            self.end_lease().await?;
        }
        done
    }

    /// Releases the lease.
    ///
    /// Success proves that no other holder had the lease since it was granted.
    ///
    /// # Errors
    ///
    /// Returns [`LeaseError::Lost`] if the lease had already ended, and [`LeaseError::Unknown`] if
    /// the store did not answer.
    pub async fn release(mut self) -> Result<(), LeaseError> {
        self.end_lease().await
    }

    /// Makes at most 99 `writes` and releases the lease, all in one transaction.
    ///
    /// The transaction fails if the lease was lost. If a condition of the writes does not hold, the
    /// function returns [`CommitOutcome::Refused`]: none of the writes took effect, and the lease was
    /// not released.
    ///
    /// # Errors
    ///
    /// Returns [`LeaseError::Lost`] if the lease was lost, so that no write took effect. Returns
    /// [`LeaseError::Unknown`] if the store did not say whether the transaction took effect. Returns
    /// [`LeaseError::Refused`] if DynamoDB can never accept one of the writes: then none took effect,
    /// and the lease was released, or expires if the store did not answer.
    pub async fn commit(mut self, writes: Vec<Write>) -> Result<CommitOutcome, LeaseError> {
        let store = self.leases.store.clone();
        // The loop repeats only if new deliveries have arrived.
        loop {
            let lease = self.lease().clone();
            let release = if self.is_idle {
                ReleaseEmpty { lease: &lease, purge_at: self.purge_at() }.write()
            } else {
                self.release_before_deliveries(&lease)
            };
            let all: Vec<Write> = std::iter::once(release).chain(writes.iter().cloned()).collect();
            let token = store.env().nonce();
            match store.transact(&all, token.as_str(), self.patience()).await {
                Ok(Transacted::Landed) => break,
                Ok(Transacted::Refused(results)) => {
                    let mut results = results.into_iter();
                    // Judge the lease's own write first: an earlier request may have landed, or the lease may be
                    // lost.
                    let Some(ConditionResult::Failed(seen)) = results.next() else {
                        let results = results.collect();
                        return Ok(CommitOutcome::Refused(NotCommitted { guard: self, results }));
                    };
                    let judge = ReleaseEmpty { lease: &lease, purge_at: None };
                    match judge.judge(Written::Refused(seen)).map_err(|error| LeaseError::after(error.into()))? {
                        Released::Released => break,
                        Released::Grown(_) => self.is_idle = false,
                        Released::Lost => return Err(self.lost()),
                    }
                }
                // The writes can never succeed, so release the lease for other holders.
                Err(error @ StoreError::Invalid(_)) => {
                    let _ = self.end_lease().await;
                    return Err(LeaseError::before(error));
                }
                Err(error) => return Err(self.in_doubt(LeaseError::after(error))),
            }
        }
        self.ended(!self.is_idle).await;
        Ok(CommitOutcome::Committed)
    }

    /// Settles the delivery in front as an operator decided, and ends the lease with the same
    /// write. `seen` is the entity's row as read under this lease.
    pub(crate) async fn skip(mut self, mut seen: EntityState, decision: &Decision) -> Result<(), LeaseError> {
        let store = self.leases.store.clone();
        let lease = self.lease().clone();
        loop {
            let now = store.env().now();
            let may_go = seen.hold.since().is_none();
            let purge_at = idle_purge_at(lease.entity(), &decision.recent, now, self.leases.kept);
            let skip = Skip { lease: &lease, decision, seen: &seen, now, purge_at: purge_at.filter(|_| may_go) };
            match store.run(&skip, self.patience()).await {
                Ok(Skipped::Skipped) => break,
                // New deliveries have arrived, or the entity was put on hold.
                Ok(Skipped::Changed(state)) => seen = state,
                Ok(Skipped::Lost) => return Err(self.lost()),
                Err(error) => return Err(self.in_doubt(LeaseError::after(error))),
            }
        }
        self.ended(seen.tail > decision.last()).await;
        Ok(())
    }

    /// Moves `head` back to just before the parameter `from`, then ends the lease. The parameter
    /// `seen` is the entity's row as read under this lease.
    pub(crate) async fn rewind(
        mut self,
        seen: &EntityState,
        from: Sequence,
        since: Timestamp,
    ) -> Result<EntityState, LeaseError> {
        let lease = self.lease().clone();
        let rewind = Rewind { lease: &lease, seen, from, since };
        match self.leases.store.run(&rewind, self.patience()).await {
            Ok(Rewound::Rewound(state)) => {
                self.saw(&state);
                self.end_lease().await?;
                Ok(state)
            }
            Ok(Rewound::Lost) => Err(self.lost()),
            Err(error) => Err(self.in_doubt(LeaseError::after(error))),
        }
    }

    fn release_before_deliveries(&self, lease: &Lease) -> Write {
        let now = self.leases.store.env().now();
        if self.grants_turn { YieldToDeliveries { lease, now }.write() } else { Release { lease }.write() }
    }

    async fn end_lease(&mut self) -> Result<(), LeaseError> {
        let store = self.leases.store.clone();
        let lease = self.lease().clone();
        if self.is_idle {
            // This write also sets when DynamoDB may delete the idle row.
            let release = ReleaseEmpty { lease: &lease, purge_at: self.purge_at() };
            match store.run(&release, self.patience()).await {
                Ok(Released::Released) => {
                    self.ended(false).await;
                    return Ok(());
                }
                Ok(Released::Grown(_)) => {}
                Ok(Released::Lost) => return Err(self.lost()),
                Err(error) => return Err(self.in_doubt(LeaseError::after(error))),
            }
        }
        let ended = if self.grants_turn {
            let release = YieldToDeliveries { lease: &lease, now: store.env().now() };
            store.run(&release, self.patience()).await
        } else {
            store.run(&Release { lease: &lease }, self.patience()).await
        };
        match ended {
            Ok(Ended::Ended(state)) => {
                self.ended(!state.is_empty()).await;
                Ok(())
            }
            Ok(Ended::Lost) => Err(self.lost()),
            Err(error) => Err(self.in_doubt(LeaseError::after(error))),
        }
    }

    fn patience(&self) -> Duration {
        let now = self.leases.store.env().monotonic();
        if self.end == Duration::MAX { PATIENCE } else { (self.end + RESERVE).saturating_sub(now).min(PATIENCE) }
    }

    fn purge_at(&self) -> Option<Timestamp> {
        idle_purge_at(self.lease().entity(), &self.recent, self.leases.store.env().now(), self.leases.kept)
    }

    /// Reports the end of the lease, and wakes a worker if deliveries may wait.
    ///
    /// The wake-up only saves time, since wake-ups that arrived during the lease were requeued.
    async fn ended(&mut self, may_wait: bool) {
        self.is_open = false;
        let leases = &self.leases;
        let lease = self.renewer.lease();
        let held = leases.store.env().monotonic().saturating_sub(self.granted);
        leases.observer.observe(&Event::LeaseEnded { entity: lease.entity(), token: lease.token(), held });
        if may_wait
            && let Some(waker) = &leases.waker
            && waker.wake(lease.entity(), Duration::ZERO, RESERVE).await.is_err()
        {
            leases.observer.observe(&Event::WakeUpFailed { entity: lease.entity() });
        }
    }

    fn lost(&mut self) -> LeaseError {
        self.is_open = false;
        let lease = self.renewer.lease();
        self.leases.observer.observe(&Event::Lost { entity: lease.entity(), token: lease.token() });
        LeaseError::Lost
    }

    fn in_doubt(&mut self, error: LeaseError) -> LeaseError {
        self.is_open = false;
        let lease = self.renewer.lease();
        self.leases.observer.observe(&Event::LeaseInDoubt { entity: lease.entity(), token: lease.token() });
        error
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.is_open {
            let lease = self.renewer.lease();
            self.leases.observer.observe(&Event::LeaseDropped { entity: lease.entity(), token: lease.token() });
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("lease", self.renewer.lease()).field("is_open", &self.is_open).finish()
    }
}
