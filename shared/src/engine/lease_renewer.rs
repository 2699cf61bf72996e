//! Renews a lease while something is awaited.
//!
//! The lease is renewed at a third of its length. A holder gives up by itself once its
//! renewals fail. It also gives up when a whole length has passed since it sent the
//! last renewal that landed, whatever the row says, because the process may have been
//! frozen.

use std::time::Duration;

use crate::{
    engine::store::{Store, StoreError},
    protocol::lease::{Lease, Renew, Renewed},
};

/// The lease expired or another holder took it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseLost;

/// A held lease, and how long it certainly runs.
pub(crate) struct LeaseRenewer {
    store: Store,
    lease: Lease,
    length: Duration,
    /// The time of expiry by the monotonic clock, counted from when the last write that
    /// extended it was sent.
    expires: Duration,
    /// The time of the next renewal.
    due: Duration,
    /// The time beyond which no renewal extends the lease.
    end: Duration,
}

impl LeaseRenewer {
    /// Renews `lease`, granted for `length` by a write sent at `sent`.
    pub(crate) fn new(store: &Store, lease: Lease, length: Duration, sent: Duration) -> Self {
        let (expires, due) = (sent + length, sent + length / 3);
        Self { store: store.clone(), lease, length, expires, due, end: Duration::MAX }
    }

    /// Limits the lease to `end`.
    pub(crate) fn ending(mut self, end: Duration) -> Self {
        self.end = end;
        self.extend(self.due.saturating_sub(self.length / 3));
        self
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Notes that a write sent at `sent` extended the lease.
    pub(crate) fn extended(&mut self, lease: Lease, sent: Duration) {
        self.lease = lease;
        self.extend(sent);
    }

    fn extend(&mut self, sent: Duration) {
        self.expires = (sent + self.length).min(self.end);
        // A renewal that cannot extend the lease is not due.
        self.due = if self.expires < self.end { sent + self.length / 3 } else { self.end };
    }

    /// Returns how long the lease certainly runs.
    pub(crate) fn left(&self) -> Duration {
        self.expires.saturating_sub(self.store.env().monotonic())
    }

    /// Awaits `work` while renewing the lease; drops `work` when the lease is lost.
    pub(crate) async fn hold<F: Future>(&mut self, work: F) -> Result<F::Output, LeaseLost> {
        // Nothing begins under an expired lease, for example after a freeze.
        if self.left().is_zero() {
            return Err(LeaseLost);
        }
        let mut work = std::pin::pin!(work);
        let env = self.store.env().clone();
        loop {
            let due = self.due.saturating_sub(env.monotonic());
            tokio::select! {
                biased;
                output = &mut work => return Ok(output),
                () = env.sleep(due) => {}
            }
            let renewal = self.send_renewal();
            let sent = tokio::select! {
                biased;
                // A dropped renewal may or may not extend the lease; both are safe.
                output = &mut work => return Ok(output),
                renewed = renewal => renewed?,
            };
            self.extend(sent);
        }
    }

    pub(crate) async fn renew(&mut self) -> Result<(), LeaseLost> {
        let sent = self.send_renewal().await?;
        self.extend(sent);
        Ok(())
    }

    /// Renews once, and returns when the request was sent.
    async fn send_renewal(&self) -> Result<Duration, LeaseLost> {
        let left = self.left();
        if left.is_zero() {
            return Err(LeaseLost);
        }
        let env = self.store.env();
        let sent = env.monotonic();
        let length = self.length.min(self.end.saturating_sub(sent));
        let renew = Renew { lease: &self.lease, now: env.now(), length };
        match env.within(left, self.store.run(&renew, left)).await {
            Some(Ok(Renewed::Renewed(_))) => Ok(sent),
            Some(Ok(Renewed::Lost)) | None | Some(Err(StoreError::Unavailable(_))) => Err(LeaseLost),
            Some(Err(StoreError::Invalid(_) | StoreError::Corrupt(_))) => Err(LeaseLost),
        }
    }
}
