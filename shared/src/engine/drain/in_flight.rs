//! The visibility of a batch's messages, shared by its drains.

use std::time::Duration;

use tokio::sync::watch;

use crate::time::Env;

/// The state of a batch's messages, which stay invisible to other workers for a time.
#[derive(Debug)]
pub struct InFlight {
    env: Env,
    visibility: watch::Sender<Visibility>,
}

#[derive(Debug, Default)]
struct Visibility {
    /// At least one drain of the batch was granted its lease.
    is_granted: bool,
    /// The first extension was answered or failed, or there will be none.
    is_extended: bool,
    /// The monotonic time until which the messages are certainly invisible; `None` if
    /// that is longer than the function may run.
    until: Option<Duration>,
}

impl InFlight {
    /// Creates the state of a new batch. `extends`: from the first grant on, its visibility
    /// timeout is short and extended again and again. Otherwise the queue's own timeout
    /// applies, which is longer than the function may run.
    pub fn new(env: &Env, extends: bool) -> Self {
        let visibility = Visibility { is_extended: !extends, ..Visibility::default() };
        Self { env: env.clone(), visibility: watch::Sender::new(visibility) }
    }

    /// Waits until a drain of the batch is granted its lease.
    pub async fn first_grant(&self) {
        self.visibility.subscribe().wait_for(|now| now.is_granted).await.expect("the sender is borrowed");
    }

    /// Notes a request to the queue to extend the timeout to `time` from now. Returns
    /// the end of that time, for [`InFlight::extended`]. The messages may reappear then,
    /// because the request may land although its reply is lost.
    pub fn extending(&self, time: Duration) -> Duration {
        let until = self.env.monotonic() + time;
        self.visibility.send_modify(|now| now.until = Some(now.until.map_or(until, |was| was.min(until))));
        until
    }

    /// Notes the queue's answer. The messages are invisible until `until`; `None` means
    /// that the queue did not confirm the extension.
    pub fn extended(&self, until: Option<Duration>) {
        self.visibility.send_modify(|now| {
            now.is_extended = true;
            now.until = until.or(now.until);
        });
    }

    pub(super) fn granted(&self) {
        self.visibility.send_modify(|now| now.is_granted = true);
    }

    /// Waits for the first extension. Without it, a handler that kills its process at
    /// once would keep its order waiting for the queue's own timeout.
    pub(super) async fn first_extension(&self) {
        self.visibility.subscribe().wait_for(|now| now.is_extended).await.expect("the sender is borrowed");
    }

    /// Returns how long the messages are certainly invisible. After that another worker
    /// may have received and deleted them: a lease acquired then would have no wake-up.
    pub(super) fn invisible_for(&self) -> Duration {
        let left = |until: Duration| until.saturating_sub(self.env.monotonic());
        self.visibility.borrow().until.map_or(Duration::MAX, left)
    }
}
