//! Extends the visibility timeout of a batch's messages while its drains run, each time by
//! little more than a lease. If the worker dies, its messages become visible soon after its
//! leases expire, whatever the queue's own visibility timeout is.

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

pub(super) struct VisibilityExtension<'a> {
    pub(super) queue: &'a Arc<dyn Visibility>,
    pub(super) env: &'a Env,
    pub(super) lease: Duration,
    pub(super) receipts: Mutex<Vec<String>>,
}

impl VisibilityExtension<'_> {
    fn receipts(&self) -> MutexGuard<'_, Vec<String>> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes messages visible again after the length of a lease. If the request fails, they become visible when their
    /// current visibility timeout ends.
    pub(super) async fn give_back(&self, receipts: &[String]) {
        self.receipts().retain(|receipt| !receipts.contains(receipt));
        if !receipts.is_empty() {
            self.set_timeout(receipts, self.lease).await;
        }
    }

    /// Extends the visibility timeout of all messages in one request, when the batch's first lease is granted and then
    /// after each pause of a fifth of a lease's length, but at least a second. Each request hides the messages for the
    /// length of a lease, the pause and one second. So if the worker dies, its messages become visible at the earliest
    /// one second after its last lease expires.
    pub(super) async fn extend(&self, in_flight: &InFlight) -> Infallible {
        in_flight.first_grant().await;
        let pause = (self.lease / 5).max(Duration::from_secs(1));
        let time = self.lease + pause + Duration::from_secs(1);
        loop {
            let receipts = self.receipts().clone();
            if receipts.is_empty() {
                in_flight.extended(None);
                return pending().await;
            }
            let until = in_flight.extending(time);
            let is_extended = self.set_timeout(&receipts, time).await;
            in_flight.extended(is_extended.then_some(until));
            self.env.sleep(pause).await;
        }
    }

    /// Sets the visibility timeout. Returns whether SQS confirmed the request. A failed request is not
    /// repeated: the next extension follows soon, and messages that are given back become visible anyway.
    async fn set_timeout(&self, receipts: &[String], time: Duration) -> bool {
        match self.env.within(ATTEMPT, self.queue.hide(receipts, time)).await {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot extend the visibility timeout of wake-ups; if this worker dies, they may come back late");
                false
            }
            None => false,
        }
    }
}
