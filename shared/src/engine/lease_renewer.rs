//! Renews a lease each time a third of its length has passed.
//!
//! The holder gives the lease up if a renewal fails. The holder also gives it up once the whole
//! length has passed since it sent the last write that extended the lease, because the process may
//! have been frozen.

use std::time::Duration;

use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        lease::{Acquired, Lease, Renew, Renewed},
        state::{EntityState, LONGEST_LEASE},
    },
    time::{Env, Timestamp},
};

/// The most by which a lease's end may be too late although the clock was right. The store's time is known to within a
/// second and the duration of a request.
const AHEAD: Duration = Duration::from_secs(2);

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
    /// Creates a renewer for the lease that was granted in the row `state`, and that lasts until `end` at the latest.
    /// `sent` is when the request for the lease was sent. Both are by the monotonic clock.
    ///
    /// The reply to a process's first request is the first that shows the store's time. If the process's clock was
    /// wrong, the lease's end is wrong in the row, so it is corrected here, before any work begins.
    pub(crate) async fn start(
        store: &Store,
        lease: Lease,
        state: &EntityState,
        length: Duration,
        sent: Duration,
        end: Duration,
    ) -> Result<Self, LeaseLost> {
        let length = length.min(LONGEST_LEASE);
        let mut renewer = Self { store: store.clone(), lease, length, expires: end, due: end, end };
        renewer.extend(sent);
        let written = state.held.as_ref().map(|held| held.expires_at);
        let Some((written, latest)) = written.zip(store.env().latest_at(sent)) else { return Ok(renewer) };
        let asked = renewer.expires.saturating_sub(sent);
        let lasts = written.since(latest);
        if lasts < asked * 2 / 3 || lasts > asked + AHEAD {
            let sent = renewer.send_renewal(Some(written)).await?;
            renewer.extend(sent);
        } else {
            renewer.expires = sent + lasts.min(asked);
        }
        Ok(renewer)
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the time from `now` until the end of the lease, for a write that extends it.
    pub(crate) fn length_from(&self, now: Timestamp) -> Duration {
        self.store.env().lease_from(now, self.length)
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
            let renewal = self.send_renewal(None);
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
        let sent = self.send_renewal(None).await?;
        self.extend(sent);
        Ok(())
    }

    /// Renews the lease once. Returns the time at which the request was sent, by the monotonic
    /// clock. `wrong` is an end of the lease that the renewal replaces even by an earlier one.
    async fn send_renewal(&self, wrong: Option<Timestamp>) -> Result<Duration, LeaseLost> {
        let left = self.left();
        if left.is_zero() {
            return Err(LeaseLost);
        }
        let env = self.store.env();
        let sent = env.monotonic();
        let now = env.now();
        let length = self.length.min(self.end.saturating_sub(sent));
        let renew = Renew { lease: &self.lease, now, length: env.lease_from(now, length), wrong };
        match env.within(left, self.store.run(&renew, left)).await {
            Some(Ok(Renewed::Renewed(_))) => Ok(sent),
            Some(Ok(Renewed::Lost)) | None | Some(Err(StoreError::Unavailable(_))) => Err(LeaseLost),
            Some(Err(StoreError::Invalid(_) | StoreError::Corrupt(_))) => Err(LeaseLost),
        }
    }
}

/// Returns the current time for decisions about `answer`. For a held lease, the store's clock has surely reached this
/// time, so that no lease is taken over too early.
pub(crate) fn judged_at(answer: &Acquired, env: &Env) -> Timestamp {
    if matches!(answer, Acquired::Held(_)) { env.reached() } else { env.now() }
}
