//! A batch's messages, kept hidden for little more than a lease at a time while
//! its drains go on: those of a worker that dies come back when its leases have
//! run out, whatever the queue's own visibility timeout.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    engine::{drain::InFlight, queue::Visibility, store::ATTEMPT},
    time::Env,
};

/// Hides one batch's messages.
pub(super) struct Hiding<'a> {
    pub(super) queue: &'a Arc<dyn Visibility>,
    pub(super) env: &'a Env,
    /// How long a lease of this worker runs.
    pub(super) lease: Duration,
    /// Those that are kept hidden.
    pub(super) receipts: Mutex<Vec<String>>,
}

impl Hiding<'_> {
    fn receipts(&self) -> MutexGuard<'_, Vec<String>> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets these come back after a lease, while the others are kept: what kept a
    /// drain from its work may be over by then. Where that fails they come back
    /// all the same, only later.
    pub(super) async fn give_back(&self, receipts: &[String]) {
        self.receipts().retain(|receipt| !receipts.contains(receipt));
        if !receipts.is_empty() {
            self.hide(receipts, self.lease).await;
        }
    }

    /// Keeps them hidden from the first grant on, by one request for all,
    /// again at a fifth of a lease, until dropped. So what a worker leaves behind
    /// that dies comes back about a lease and a second after its death at the soonest,
    /// when its leases have run out, and a fifth of a lease later at the latest.
    pub(super) async fn keep(&self, in_flight: &InFlight) -> Infallible {
        in_flight.wanted().await;
        let pause = (self.lease / 5).max(Duration::from_secs(1));
        let time = self.lease + pause + Duration::from_secs(1);
        loop {
            let receipts = self.receipts().clone();
            if receipts.is_empty() {
                in_flight.hidden_until(None);
                return pending().await;
            }
            let until = in_flight.asking(time);
            let hidden = self.hide(&receipts, time).await;
            in_flight.hidden_until(hidden.then_some(until));
            self.env.sleep(pause).await;
        }
    }

    /// Hides messages for `time`; whether the queue says so. Tries once: whoever
    /// needs it asks again soon.
    async fn hide(&self, receipts: &[String], time: Duration) -> bool {
        match self.env.within(ATTEMPT, self.queue.hide(receipts, time)).await {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                tracing::warn!(%error, "wake-ups could not be kept hidden; should this worker die, they may come back late");
                false
            }
            None => false,
        }
    }
}
