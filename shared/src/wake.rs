//! Sending wake-ups, for as long as the sender can wait.

use std::{sync::Arc, time::Duration};

use crate::{
    entity::EntityKey,
    queue::{LONGEST_DELAY, Queue, QueueError, WakeUp},
    store::ATTEMPT,
    time::Surroundings,
};

/// The queue as the protocol sees it.
#[derive(Clone)]
pub struct Waker {
    queue: Arc<dyn Queue>,
    surroundings: Surroundings,
}

impl Waker {
    /// Wake-ups through `queue`.
    pub fn new(queue: Arc<dyn Queue>, surroundings: Surroundings) -> Self {
        Self { queue, surroundings }
    }

    /// Sends a wake-up to arrive after `delay`, cut to what a queue can hold
    /// back; for at most `patience`. A second one, should a reply be lost, does
    /// no harm.
    pub async fn wake(&self, entity: &EntityKey, delay: Duration, patience: Duration) -> Result<(), QueueError> {
        self.send(&WakeUp::of(entity), delay, patience).await
    }

    /// As [`Waker::wake`], for one that says more.
    pub async fn send(&self, wake_up: &WakeUp, delay: Duration, patience: Duration) -> Result<(), QueueError> {
        let delay = delay.min(LONGEST_DELAY);
        let give_up = self.surroundings.monotonic() + patience;
        let mut wait = Duration::from_millis(20);
        loop {
            let left = give_up.saturating_sub(self.surroundings.monotonic());
            let attempt = self.surroundings.within(ATTEMPT.min(left), self.queue.send(wake_up, delay));
            let error = match attempt.await {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => error,
                None => QueueError("no answer in time".into()),
            };
            let pause = self.surroundings.jittered(wait);
            if self.surroundings.monotonic() + pause >= give_up {
                return Err(error);
            }
            self.surroundings.sleep(pause).await;
            wait = (wait * 2).min(Duration::from_millis(500));
        }
    }

    /// About how many wake-ups wait to be received.
    pub async fn waiting(&self) -> Result<u64, QueueError> {
        self.surroundings
            .within(ATTEMPT, self.queue.waiting())
            .await
            .unwrap_or_else(|| Err(QueueError("no answer in time".into())))
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}
