//! Tracks for how long a batch's messages stay invisible to other workers.

use std::time::Duration;

use tokio::sync::watch;

use crate::time::Env;

#[derive(Debug)]
pub struct InFlight {
    env: Env,
    visibility: watch::Sender<VisibilityState>,
}

#[derive(Debug, Default)]
struct VisibilityState {
    is_granted: bool,
    /// Set once the first extension of the visibility timeout was answered or has failed, or if no
    /// extension will be sent.
    is_extended: bool,
    /// The time until which the messages are certainly invisible, by the monotonic clock. `None` if
    /// they stay invisible for longer than the function may run.
    until: Option<Duration>,
}

impl InFlight {
    /// Starts to track the messages of a newly received batch.
    ///
    /// If `extends` is set, the worker sets a short visibility timeout at the first grant and keeps
    /// extending it. Otherwise the queue's own timeout applies, which is longer than the function
    /// may run.
    pub fn new(env: &Env, extends: bool) -> Self {
        let visibility = VisibilityState { is_extended: !extends, ..VisibilityState::default() };
        Self { env: env.clone(), visibility: watch::Sender::new(visibility) }
    }

    pub async fn first_grant(&self) {
        self.visibility.subscribe().wait_for(|now| now.is_granted).await.expect("the sender is borrowed");
    }

    /// Records that a request to set the visibility timeout to `time` is being sent. Returns the
    /// end of that timeout, for [`InFlight::extended`].
    ///
    /// From then on, the messages may be visible again even if the request fails, because perhaps
    /// only its reply was lost.
    pub fn extending(&self, time: Duration) -> Duration {
        let until = self.env.monotonic() + time;
        self.visibility.send_modify(|now| now.until = Some(now.until.map_or(until, |was| was.min(until))));
        until
    }

    /// Records the queue's answer to an extension: the messages are invisible until `until`.
    ///
    /// `None` means that the queue did not confirm the extension.
    pub fn extended(&self, until: Option<Duration>) {
        self.visibility.send_modify(|now| {
            now.is_extended = true;
            now.until = until.or(now.until);
        });
    }

    pub(super) fn granted(&self) {
        self.visibility.send_modify(|now| now.is_granted = true);
    }

    /// Waits until no answer to the first extension of the visibility timeout is due any more.
    ///
    /// Without this wait, a batch that ends sooner would break off the request, and with it the connection.
    pub async fn first_answer(&self) {
        let mut visibility = self.visibility.subscribe();
        visibility.wait_for(|now| now.is_extended || !now.is_granted).await.expect("the sender is borrowed");
    }

    /// Waits until the queue has answered the first extension of the visibility timeout, or that
    /// request has failed.
    ///
    /// Without this wait, a handler that kills its process at once would keep its entity waiting
    /// for the queue's own, much longer timeout.
    pub(super) async fn first_extension(&self) {
        self.visibility.subscribe().wait_for(|now| now.is_extended).await.expect("the sender is borrowed");
    }

    /// Returns for how long the messages are certainly invisible to other workers.
    ///
    /// After this time another worker may have received and deleted the messages. A lease acquired
    /// then would have no wake-up.
    pub(super) fn invisible_for(&self) -> Duration {
        let left = |until: Duration| until.saturating_sub(self.env.monotonic());
        self.visibility.borrow().until.map_or(Duration::MAX, left)
    }
}
