//! The messages of one batch while its drains go on: in flight for little more
//! than a lease at a time, so that those of a worker that dies come back when
//! its leases have run out, whatever the queue's own visibility timeout.

use std::{convert::Infallible, future::pending, time::Duration};

use tokio::sync::watch;

use crate::{engine::wake::Waker, time::Surroundings};

/// One batch's messages.
#[derive(Debug)]
pub struct InFlight {
    waker: Waker,
    surroundings: Surroundings,
    receipts: Vec<String>,
    lease: Duration,
    known: watch::Sender<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// A drain of the batch was granted its lease.
    is_wanted: bool,
    /// The queue was asked to hide them, and has answered or failed to.
    is_asked: bool,
    /// Until when they are hidden for sure, by our monotonic clock; `None`: for
    /// longer than the function may run.
    until: Option<Duration>,
}

impl InFlight {
    /// Messages with these receipt handles, received by a worker whose leases
    /// run for `lease`.
    pub(super) fn of(waker: &Waker, surroundings: &Surroundings, receipts: Vec<String>, lease: Duration) -> Self {
        let known = watch::Sender::new(Known { is_asked: receipts.is_empty(), ..Known::default() });
        Self { waker: waker.clone(), surroundings: surroundings.clone(), receipts, lease, known }
    }

    /// Keeps them hidden from the first grant on, by one request for all, again
    /// at a fifth of a lease, until dropped. So what a worker leaves behind that
    /// dies comes back a second after its leases have run out at the soonest, and
    /// a second and a fifth of a lease after it died and they were to, at the latest.
    pub async fn keep(&self) -> Infallible {
        if self.receipts.is_empty() {
            return pending().await;
        }
        let mut known = self.known.subscribe();
        known.wait_for(|known| known.is_wanted).await.expect("the sender is borrowed");
        let pause = (self.lease / 5).max(Duration::from_secs(1));
        loop {
            self.hide(self.lease + pause + Duration::from_secs(1)).await;
            self.surroundings.sleep(pause).await;
        }
    }

    async fn hide(&self, time: Duration) {
        let until = self.surroundings.monotonic() + time;
        // It may land and its answer be lost; then they come back no sooner than this.
        self.known.send_modify(|known| known.until = Some(known.until.map_or(until, |was| was.min(until))));
        let hidden = self.waker.hide(&self.receipts, time).await;
        self.known.send_modify(|known| {
            known.is_asked = true;
            if hidden.is_ok() {
                known.until = Some(until);
            }
        });
    }

    /// Lets these of them come back after a lease: what kept a drain from its
    /// work may be over by then.
    pub async fn give_back(&self, receipts: &[String]) {
        let _ = self.waker.hide(receipts, self.lease).await;
    }

    /// A drain of the batch was granted its lease.
    pub(super) fn begin(&self) {
        self.known.send_modify(|known| known.is_wanted = true);
    }

    /// Waits until the queue was asked to hide them: a handler that takes its
    /// process down at once must not keep its order waiting for the queue's own
    /// timeout.
    pub(super) async fn hidden(&self) {
        self.known.subscribe().wait_for(|known| known.is_asked).await.expect("the sender is borrowed");
    }

    /// Whether they may have come back already, and been deleted by another
    /// worker: a lease taken now would stand without a wake-up.
    pub(super) fn may_be_back(&self) -> bool {
        self.known.borrow().until.is_some_and(|until| self.surroundings.monotonic() >= until)
    }
}
