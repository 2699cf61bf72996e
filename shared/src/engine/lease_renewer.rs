//! Keeping a lease while something is awaited.
//!
//! The lease is renewed at a third of its length. A holder whose renewals fail,
//! or that finds a whole length gone since it sent the last one that landed,
//! gives up by itself, whatever the row says: it may have been frozen.

use std::time::Duration;

use crate::{
    engine::store::{Store, StoreError},
    protocol::lease::{Lease, Renew, Renewed},
};

/// The lease was lost: renewed by nobody in time, or no longer ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseLost;

/// A held lease, and how long it is known to run.
pub(crate) struct LeaseRenewer {
    store: Store,
    lease: Lease,
    length: Duration,
    /// When it runs out unless it is renewed, and when that is due, by our
    /// monotonic clock: counted from the moment at which the last write that
    /// prolonged it was sent.
    runs_out: Duration,
    due: Duration,
    /// No renewal reaches beyond this.
    end: Duration,
}

impl LeaseRenewer {
    /// Keeps `lease`, granted for `length` by a write sent at `sent`.
    pub(crate) fn new(store: &Store, lease: Lease, length: Duration, sent: Duration) -> Self {
        let (runs_out, due) = (sent + length, sent + length / 3);
        Self { store: store.clone(), lease, length, runs_out, due, end: Duration::MAX }
    }

    /// The same, never renewed beyond `end`.
    pub(crate) fn ending(mut self, end: Duration) -> Self {
        self.end = end;
        self.prolong(self.due.saturating_sub(self.length / 3));
        self
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
        self.prolong(sent);
    }

    fn prolong(&mut self, sent: Duration) {
        self.runs_out = (sent + self.length).min(self.end);
        // Where a renewal could not reach further, none is due.
        self.due = if self.runs_out < self.end { sent + self.length / 3 } else { self.end };
    }

    /// How long this holder may still believe in its lease.
    pub(crate) fn left(&self) -> Duration {
        self.runs_out.saturating_sub(self.store.env().monotonic())
    }

    /// Awaits `work` while renewing the lease; drops it when the lease is lost.
    pub(crate) async fn hold<F: Future>(&mut self, work: F) -> Result<F::Output, LeaseLost> {
        // Nothing is begun on the strength of a lease that has run out, by a freeze perhaps.
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
            let renewal = self.renewed();
            let sent = tokio::select! {
                biased;
                // A renewal dropped on its way only prolongs the lease, or does not.
                output = &mut work => return Ok(output),
                renewed = renewal => renewed?,
            };
            self.prolong(sent);
        }
    }

    /// Renews now.
    pub(crate) async fn renew(&mut self) -> Result<(), LeaseLost> {
        let sent = self.renewed().await?;
        self.prolong(sent);
        Ok(())
    }

    /// Renews once; the time at which it was sent.
    async fn renewed(&self) -> Result<Duration, LeaseLost> {
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
