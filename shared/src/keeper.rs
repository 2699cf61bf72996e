//! Keeping a lease while something is awaited.
//!
//! The lease is renewed at a third of its length. A holder whose renewals fail,
//! or that finds a whole length gone since it sent the last one that landed,
//! gives up by itself, whatever the row says: it may have been frozen.

use std::time::Duration;

use crate::{
    lease::{Lease, Renew, Renewed},
    store::{Store, StoreError},
};

/// The lease was lost: renewed by nobody in time, or no longer ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseLost;

/// A held lease, and when it was last known to be.
pub(crate) struct Keeper<'a> {
    store: &'a Store,
    lease: Lease,
    length: Duration,
    /// When the last write that prolonged it was sent, by our monotonic clock.
    renewed: Duration,
}

impl<'a> Keeper<'a> {
    /// Keeps `lease`, granted for `length` by a write sent at `sent`.
    pub(crate) fn new(store: &'a Store, lease: Lease, length: Duration, sent: Duration) -> Self {
        Self { store, lease, length, renewed: sent }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// The lease goes on as `lease`, prolonged by a write sent at `sent`.
    pub(crate) fn prolonged(&mut self, lease: Lease, sent: Duration) {
        self.lease = lease;
        self.renewed = sent;
    }

    /// How long this holder may still believe in its lease.
    pub(crate) fn left(&self) -> Duration {
        (self.renewed + self.length).saturating_sub(self.store.surroundings().monotonic())
    }

    /// Awaits `work` while renewing the lease; drops it when the lease is lost.
    pub(crate) async fn hold<F: Future>(&mut self, work: F) -> Result<F::Output, LeaseLost> {
        // Nothing is begun on the strength of a lease that has run out, by a freeze perhaps.
        if self.left().is_zero() {
            return Err(LeaseLost);
        }
        let mut work = std::pin::pin!(work);
        let surroundings = self.store.surroundings().clone();
        loop {
            let due = (self.renewed + self.length / 3).saturating_sub(surroundings.monotonic());
            tokio::select! {
                biased;
                output = &mut work => return Ok(output),
                () = surroundings.sleep(due) => {}
            }
            let renewal = self.renew();
            tokio::select! {
                biased;
                // A renewal dropped on its way only prolongs the lease, or does not.
                output = &mut work => return Ok(output),
                renewed = renewal => self.renewed = renewed?,
            }
        }
    }

    /// Renews once; the time at which it was sent.
    async fn renew(&self) -> Result<Duration, LeaseLost> {
        let left = self.left();
        if left.is_zero() {
            return Err(LeaseLost);
        }
        let surroundings = self.store.surroundings();
        let sent = surroundings.monotonic();
        let renew = Renew { lease: &self.lease, now: surroundings.now(), length: self.length };
        match surroundings.within(left, self.store.run(&renew, left)).await {
            Some(Ok(Renewed::Renewed(_))) => Ok(sent),
            Some(Ok(Renewed::Lost)) | None | Some(Err(StoreError::Unavailable(_))) => Err(LeaseLost),
            Some(Err(StoreError::Invalid(_) | StoreError::Corrupt(_))) => Err(LeaseLost),
        }
    }
}
