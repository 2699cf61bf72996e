//! Renews a lease each time a third of its length has passed.
//!
//! The holder gives the lease up if a renewal fails. The holder also gives it up once the whole
//! length has passed since it sent the last write that extended the lease, because the process may
//! have been frozen.

use std::time::Duration;

use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        lease::{Acquired, Lease, Renew, Renewed, Term},
        state::EntityState,
    },
    time::{Env, Timestamp},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseLost;

pub(crate) struct LeaseRenewer {
    store: Store,
    lease: Lease,
    term: Term,
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
        let mut renewer = Self { store: store.clone(), lease, term: Term::new(length, sent, end) };
        renewer.correct(state, sent).await?;
        Ok(renewer)
    }

    async fn correct(&mut self, state: &EntityState, sent: Duration) -> Result<(), LeaseLost> {
        let written = state.held.as_ref().map(|held| held.expires_at);
        let Some((written, latest)) = written.zip(self.store.env().latest_at(sent)) else { return Ok(()) };
        if self.term.is_wrong(written, sent, latest) {
            let sent = self.send_renewal(Some(written)).await?;
            self.term.extend(sent);
        }
        Ok(())
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the time from `now` until the end of the lease, for a write that extends it.
    pub(crate) fn length_from(&self, now: Timestamp) -> Duration {
        self.store.env().lease_from(now, self.term.length())
    }

    /// Notes that a write sent at `sent` settled deliveries and extended the lease.
    pub(crate) fn extended(&mut self, lease: Lease, sent: Duration) {
        self.lease = lease;
        self.term.extend(sent);
    }

    pub(crate) fn left(&self) -> Duration {
        self.term.left(self.store.env().monotonic())
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
            let due = self.term.due_in(env.monotonic());
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
            self.term.extend(sent);
        }
    }

    pub(crate) async fn renew(&mut self) -> Result<(), LeaseLost> {
        let sent = self.send_renewal(None).await?;
        self.term.extend(sent);
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
        let length = env.lease_from(now, self.term.renewed_from(sent));
        let renew = Renew { lease: &self.lease, now, length, wrong };
        match env.within(left, self.store.run(&renew, left)).await {
            Some(Ok(Renewed::Renewed(_))) => Ok(sent),
            Some(Ok(Renewed::Lost)) | None | Some(Err(StoreError::Unavailable(_))) => Err(LeaseLost),
            Some(Err(StoreError::Invalid(_) | StoreError::Corrupt(_))) => Err(LeaseLost),
        }
    }
}

/// Returns the current time for decisions about `answer`. For a held lease, the store's clock has surely reached this
/// time, so that no lease is taken over too early.
pub fn judged_at(answer: &Acquired, env: &Env) -> Timestamp {
    if matches!(answer, Acquired::Held(_)) { env.reached() } else { env.now() }
}
