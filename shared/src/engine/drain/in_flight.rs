//! What the drains of one batch know of its messages: whether somebody keeps
//! them hidden from other workers, and until when they surely are.

use std::time::Duration;

use tokio::sync::watch;

use crate::time::Env;

/// One batch's messages.
#[derive(Debug)]
pub struct InFlight {
    env: Env,
    known: watch::Sender<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// A drain of the batch was granted its lease.
    is_wanted: bool,
    /// The queue was asked to hide them, and has answered or failed to; or
    /// nobody will ask it.
    is_asked: bool,
    /// Until when they are hidden for sure, by our monotonic clock; `None`: for
    /// longer than the function may run.
    until: Option<Duration>,
}

impl InFlight {
    /// `is_kept`: somebody keeps them hidden for a short time, over and over, once
    /// one of the drains was granted its lease. Otherwise they come back at the
    /// queue's own visibility timeout, which is longer than the function may run.
    pub fn new(env: &Env, is_kept: bool) -> Self {
        let known = Known { is_asked: !is_kept, ..Known::default() };
        Self { env: env.clone(), known: watch::Sender::new(known) }
    }

    /// Waits for the first grant.
    pub async fn wanted(&self) {
        self.known.subscribe().wait_for(|known| known.is_wanted).await.expect("the sender is borrowed");
    }

    /// The queue is about to be asked to hide them for `time` from now on. That
    /// may land and its answer be lost: from now on they are not sure to be hidden
    /// for longer. Returns the moment to tell [`InFlight::hidden_until`].
    pub fn asking(&self, time: Duration) -> Duration {
        let until = self.env.monotonic() + time;
        self.known.send_modify(|known| known.until = Some(known.until.map_or(until, |was| was.min(until))));
        until
    }

    /// The queue has hidden them until then; `None`: it did not say so.
    pub fn hidden_until(&self, until: Option<Duration>) {
        self.known.send_modify(|known| {
            known.is_asked = true;
            known.until = until.or(known.until);
        });
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

    /// For how long they are hidden for sure. After that they may have come back,
    /// and been deleted by another worker: a lease taken then would stand without
    /// a wake-up.
    pub(super) fn hidden_for(&self) -> Duration {
        let left = |until: Duration| until.saturating_sub(self.env.monotonic());
        self.known.borrow().until.map_or(Duration::MAX, left)
    }
}
