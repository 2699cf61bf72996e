//! Holding a lease: renewed while work goes on, ended by a release or a commit.

use std::time::Duration;

use super::{LeaseError, Leases, PATIENCE, RESERVE};
use crate::{
    engine::{keeper::Keeper, store::StoreError},
    protocol::{
        entity::Sequence,
        inbox::{Decision, Rewind, Rewound, Skip, Skipped},
        lease::{Ended, GiveWay, Lease, Release, ReleaseEmpty, Released, idle_purge_at},
        operation::Operation,
        receipt::Recent,
        state::EntityState,
        table::{Row, Transacted, Write, Written},
    },
    telemetry::Event,
    time::Timestamp,
};

/// A lease that is held. It is renewed only while it is asked to be, by
/// [`Guard::hold`] or [`Guard::extend`]. Release it: dropped, it is left to run
/// out, which keeps others waiting and is logged.
#[must_use = "a lease that is dropped is left to run out"]
pub struct Guard {
    leases: Leases,
    keeper: Keeper,
    /// What the entity's row remembers: only drains change that.
    recent: Recent,
    /// Whether nothing waited in the entity's inbox when it was last seen.
    is_idle: bool,
    /// Whether what waits there, or comes meanwhile, could be handled at once
    /// by a worker that is woken.
    gives_way: bool,
    end: Duration,
    granted: Duration,
    is_open: bool,
}

/// A commit of which a condition did not hold. Nothing of it landed, and the
/// lease goes on.
#[derive(Debug)]
pub struct NotCommitted {
    /// The lease.
    pub guard: Guard,
    /// For each write in turn: whether it was refused, and the row that refused
    /// it.
    pub refusals: Vec<Option<Option<Row>>>,
}

impl Guard {
    pub(super) fn new(leases: Leases, keeper: Keeper, state: &EntityState, end: Duration, granted: Duration) -> Self {
        let (recent, is_idle, gives_way) = (state.recent.clone(), state.is_empty(), false);
        let mut guard = Self { leases, keeper, recent, is_idle, gives_way, end, granted, is_open: true };
        guard.saw(state);
        guard
    }

    fn saw(&mut self, state: &EntityState) {
        let now = self.leases.store.surroundings().now();
        let waits = state.is_stopped() || state.retry_at.is_some_and(|at| at > now);
        self.is_idle = state.is_empty();
        self.gives_way = self.leases.waker.is_some() && !waits;
        self.recent = state.recent.clone();
    }

    /// What was granted: its fencing token, its id, and the condition for
    /// callers who build transactions of their own.
    pub fn lease(&self) -> &Lease {
        self.keeper.lease()
    }

    /// How long we may believe in it without renewing it.
    pub fn time_left(&self) -> Duration {
        self.keeper.left()
    }

    /// Awaits `work` while renewing the lease.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`]: the lease was lost and the work dropped;
    /// [`LeaseError::OutOfTime`]: the caller's own time is up, the work was
    /// dropped, and the lease is still to be released.
    pub async fn hold<W: Future>(&mut self, work: W) -> Result<W::Output, LeaseError> {
        let surroundings = self.leases.store.surroundings().clone();
        let left = self.end.saturating_sub(surroundings.monotonic());
        let held = if self.end == Duration::MAX {
            Some(self.keeper.hold(work).await)
        } else {
            surroundings.within(left, self.keeper.hold(work)).await
        };
        match held {
            Some(Ok(output)) => Ok(output),
            Some(Err(_)) if surroundings.monotonic() >= self.end => Err(LeaseError::OutOfTime),
            Some(Err(_)) => Err(self.lost()),
            None => Err(LeaseError::OutOfTime),
        }
    }

    /// Renews the lease for its full length, or what is left of the caller's
    /// time.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`]: it is not ours any more, or was not to be renewed
    /// before it ran out.
    pub async fn extend(&mut self) -> Result<(), LeaseError> {
        self.keeper.renew().await.map_err(|_| self.lost())
    }

    /// Does `work` under the lease; out of time, releases it.
    pub(super) async fn work<W: Future>(&mut self, work: impl FnOnce(Lease) -> W) -> Result<W::Output, LeaseError> {
        let lease = self.lease().clone();
        let done = self.hold(work(lease)).await;
        if let Err(LeaseError::OutOfTime) = done {
            self.end_lease().await?;
        }
        done
    }

    /// Ends the lease. That it lands shows that nobody else had it meanwhile,
    /// however long it took.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`]: it had ended before; [`LeaseError::Unknown`]: the
    /// store did not answer.
    pub async fn release(mut self) -> Result<(), LeaseError> {
        self.end_lease().await
    }

    /// Ends the lease together with `writes`, at most 99 of them, in one
    /// transaction that demands that the lease is still ours. `Ok(Err(_))`: one
    /// of their conditions did not hold; nothing landed, and the lease goes on:
    /// release it before anything else is done on the strength of that.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`]: nothing landed; [`LeaseError::Unknown`]: the store
    /// did not say whether all of it landed or nothing.
    pub async fn commit(mut self, writes: Vec<Write>) -> Result<Result<(), NotCommitted>, LeaseError> {
        let store = self.leases.store.clone();
        // A second time only where deliveries have come meanwhile.
        loop {
            let lease = self.lease().clone();
            let release = if self.is_idle {
                ReleaseEmpty { lease: &lease, purge_at: self.purge_at() }.write()
            } else {
                self.release_before_deliveries(&lease)
            };
            let all: Vec<Write> = std::iter::once(release).chain(writes.iter().cloned()).collect();
            let token = store.surroundings().nonce();
            match store.transact(&all, token.as_str(), self.patience()).await {
                Ok(Transacted::Landed) => break,
                Ok(Transacted::Refused(mut refusals)) => {
                    // The release's own judgement comes first: was it we, or is the lease lost?
                    let Some(Some(seen)) = refusals.first_mut().map(Option::take) else {
                        refusals.remove(0);
                        return Ok(Err(NotCommitted { guard: self, refusals }));
                    };
                    let judge = ReleaseEmpty { lease: &lease, purge_at: None };
                    match judge.judge(Written::Refused(seen)).map_err(|error| LeaseError::after(error.into()))? {
                        Released::Released => break,
                        Released::Grown(_) => self.is_idle = false,
                        Released::Lost => return Err(self.lost()),
                    }
                }
                // It can never land: nobody is to wait for it.
                Err(error @ StoreError::Invalid(_)) => {
                    let _ = self.end_lease().await;
                    return Err(LeaseError::before(error));
                }
                Err(error) => return Err(self.in_doubt(LeaseError::after(error))),
            }
        }
        self.ended(!self.is_idle).await;
        Ok(Ok(()))
    }

    /// Ends the lease with a person's decision about what stands in front. `seen`:
    /// the row, read under this lease.
    pub(crate) async fn skip(mut self, mut seen: EntityState, decision: &Decision) -> Result<(), LeaseError> {
        let store = self.leases.store.clone();
        let lease = self.lease().clone();
        loop {
            let now = store.surroundings().now();
            let may_go = seen.hold.since().is_none();
            let purge_at = idle_purge_at(lease.entity(), &decision.recent, now, self.leases.kept);
            let skip = Skip { lease: &lease, decision, seen: &seen, now, purge_at: purge_at.filter(|_| may_go) };
            match store.run(&skip, self.patience()).await {
                Ok(Skipped::Skipped) => break,
                // Deliveries have come meanwhile, or it was put on hold.
                Ok(Skipped::Changed(state)) => seen = state,
                Ok(Skipped::Lost) => return Err(self.lost()),
                Err(error) => return Err(self.in_doubt(LeaseError::after(error))),
            }
        }
        self.ended(seen.tail > decision.last()).await;
        Ok(())
    }

    /// Sets the entity back to just in front of `from`, and ends the lease. `seen`:
    /// the row, read under this lease.
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

    /// The write that ends the lease where deliveries wait.
    fn release_before_deliveries(&self, lease: &Lease) -> Write {
        let now = self.leases.store.surroundings().now();
        if self.gives_way { GiveWay { lease, now }.write() } else { Release { lease }.write() }
    }

    async fn end_lease(&mut self) -> Result<(), LeaseError> {
        let store = self.leases.store.clone();
        let lease = self.lease().clone();
        if self.is_idle {
            // The usual case, which also lets the idle row be deleted in time.
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
        let ended = if self.gives_way {
            let give_way = GiveWay { lease: &lease, now: store.surroundings().now() };
            store.run(&give_way, self.patience()).await
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
        let now = self.leases.store.surroundings().monotonic();
        if self.end == Duration::MAX { PATIENCE } else { (self.end + RESERVE).saturating_sub(now).min(PATIENCE) }
    }

    fn purge_at(&self) -> Option<Timestamp> {
        idle_purge_at(self.lease().entity(), &self.recent, self.leases.store.surroundings().now(), self.leases.kept)
    }

    /// It ended as it should. Where deliveries may wait, a worker is woken: only
    /// to be there sooner, for the wake-ups that met this lease were put off.
    async fn ended(&mut self, may_wait: bool) {
        self.is_open = false;
        let (leases, lease) = (&self.leases, self.keeper.lease());
        let held = leases.store.surroundings().monotonic().saturating_sub(self.granted);
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
        let lease = self.keeper.lease();
        self.leases.observer.observe(&Event::Lost { entity: lease.entity(), token: lease.token() });
        LeaseError::Lost
    }

    fn in_doubt(&mut self, error: LeaseError) -> LeaseError {
        self.is_open = false;
        let lease = self.keeper.lease();
        self.leases.observer.observe(&Event::LeaseInDoubt { entity: lease.entity(), token: lease.token() });
        error
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.is_open {
            let lease = self.keeper.lease();
            self.leases.observer.observe(&Event::LeaseDropped { entity: lease.entity(), token: lease.token() });
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("lease", self.keeper.lease()).field("is_open", &self.is_open).finish()
    }
}
