//! Renews a lease each time a third of its length has passed.
//!
//! The holder gives the lease up if a renewal fails. The holder also gives it up once the whole
//! length has passed since it sent the last write that extended the lease, because the process may
//! have been frozen.

use std::time::Duration;

use crate::{
    engine::store::{Store, StoreError},
    protocol::lease::{Lease, Renew, Renewed},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseLost;

pub(crate) struct LeaseRenewer {
    store: Store,
    lease: Lease,
    length: Duration,
    /// The earliest expiry of the lease, by the monotonic clock. The lease's length counts from the
    /// moment when the last write that extended the lease was sent.
    expires: Duration,
    due: Duration,
    /// The time beyond which no renewal extends the lease, by the monotonic clock.
    end: Duration,
}

impl LeaseRenewer {
    /// Creates a renewer for a granted lease. `sent` is when the request for the lease was sent, by
    /// the monotonic clock.
    pub(crate) fn new(store: &Store, lease: Lease, length: Duration, sent: Duration) -> Self {
        let (expires, due) = (sent + length, sent + length / 3);
        Self { store: store.clone(), lease, length, expires, due, end: Duration::MAX }
    }

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

    pub(crate) fn extended(&mut self, lease: Lease, sent: Duration) {
        self.lease = lease;
        self.extend(sent);
    }

    fn extend(&mut self, sent: Duration) {
        self.expires = (sent + self.length).min(self.end);
        // A renewal that cannot extend the lease is not due.
        self.due = if self.expires < self.end { sent + self.length / 3 } else { self.end };
    }

    pub(crate) fn left(&self) -> Duration {
        self.expires.saturating_sub(self.store.env().monotonic())
    }

    /// Awaits `work` and renews the lease meanwhile. Drops `work` if the lease is lost.
    pub(crate) async fn hold<F: Future>(&mut self, work: F) -> Result<F::Output, LeaseLost> {
        // No work begins under an expired lease, for example after a freeze of the process.
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
                // The renewal is dropped. Whether it extends the lease does not matter.
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

    /// Renews the lease once. Returns the time at which the request was sent, by the monotonic
    /// clock.
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
