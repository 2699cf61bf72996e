//! Sends messages to the queue, with retries.

use std::{sync::Arc, time::Duration};

use crate::{
    engine::{
        queue::{LONGEST_DELAY, Message, Queue, QueueError, WakeUp},
        store::{ATTEMPT, FIRST_WAIT, LONGEST_WAIT},
    },
    protocol::entity::EntityKey,
    time::{Env, backoff::Backoff},
};

#[derive(Clone)]
pub struct Waker {
    queue: Arc<dyn Queue>,
    env: Env,
}

impl Waker {
    pub fn new(queue: Arc<dyn Queue>, env: Env) -> Self {
        Self { queue, env }
    }

    pub async fn wake(&self, entity: &EntityKey, delay: Duration, patience: Duration) -> Result<(), QueueError> {
        self.send(&WakeUp::of(entity), delay, patience).await
    }

    pub async fn send(&self, wake_up: &WakeUp, delay: Duration, patience: Duration) -> Result<(), QueueError> {
        self.post(&wake_up.clone().delayed(delay).into(), delay, patience).await
    }

    /// Sends a message, with retries until the time `patience` has passed. Caps `delay` at
    /// [`LONGEST_DELAY`].
    ///
    /// A lost reply can cause a second copy of the message, which is harmless: wake-ups may be
    /// repeated, and a second copy of a delivery is settled as a repeat.
    pub async fn post(&self, message: &Message, delay: Duration, patience: Duration) -> Result<(), QueueError> {
        let delay = delay.min(LONGEST_DELAY);
        let mut tries = Backoff::within(patience, &self.env, FIRST_WAIT, LONGEST_WAIT);
        loop {
            let attempt = self.env.within(ATTEMPT.min(tries.left()), self.queue.send(message, delay));
            let error = match attempt.await {
                Some(Ok(())) => return Ok(()),
                Some(Err(refused @ QueueError::Refused(_))) => return Err(refused),
                Some(Err(error)) => error,
                None => QueueError::Unavailable("no answer in time".into()),
            };
            if !tries.pause().await {
                return Err(error);
            }
        }
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::{BoxFuture, pending, ready};

    use super::*;
    use crate::time::{Clock, SeededRandom, Timestamp};

    /// A clock that only sleeping advances.
    #[derive(Clone, Default)]
    struct Slept(Arc<Mutex<Duration>>);

    impl Clock for Slept {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(0)
        }

        fn monotonic(&self) -> Duration {
            *self.0.lock().unwrap()
        }

        fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
            let slept = self.clone();
            Box::pin(async move { *slept.0.lock().unwrap() += duration })
        }
    }

    /// A queue that gives these answers in turn, then repeats the last. `None` gives no answer.
    struct ScriptedQueue {
        answers: Vec<Option<bool>>,
        sent: Arc<Mutex<Vec<Duration>>>,
    }

    impl Queue for ScriptedQueue {
        fn send<'a>(&'a self, _: &'a Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
            let mut sent = self.sent.lock().unwrap();
            let answer = self.answers[sent.len().min(self.answers.len() - 1)];
            sent.push(delay);
            match answer {
                Some(true) => Box::pin(ready(Ok(()))),
                Some(false) => Box::pin(ready(Err(QueueError::Unavailable("refused".into())))),
                None => Box::pin(pending()),
            }
        }
    }

    async fn woken(
        answers: &[Option<bool>],
        delay: Duration,
        patience: Duration,
    ) -> (Result<(), QueueError>, Vec<Duration>, Duration) {
        let clock = Slept::default();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let queue = ScriptedQueue { answers: answers.to_vec(), sent: sent.clone() };
        let env = Env::new(clock.clone(), SeededRandom::new(1));
        let waker = Waker::new(Arc::new(queue), env);
        let woken = waker.wake(&EntityKey::parse("n/a").unwrap(), delay, patience).await;
        let sent = sent.lock().unwrap().clone();
        (woken, sent, clock.monotonic())
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn accepted_wake_up_is_sent_once() {
        let (woken, sent, took) = woken(&[Some(true)], LONGEST_DELAY * 2, SECOND).await;
        assert_eq!((woken, sent, took), (Ok(()), vec![LONGEST_DELAY], Duration::ZERO));
    }

    #[tokio::test]
    async fn refused_wake_up_is_retried_with_backoff() {
        let refused = [vec![Some(false); 4], vec![Some(true)]].concat();
        let (woken, sent, took) = woken(&refused, Duration::ZERO, SECOND).await;
        assert_eq!((woken, sent.len()), (Ok(()), 5));
        // 20, 40, 80 and 160 ms, each shortened by up to half at random.
        assert!((Duration::from_millis(150)..=Duration::from_millis(300)).contains(&took), "{took:?}");
    }

    #[tokio::test]
    async fn refused_wake_up_is_retried_until_time_limit() {
        let (woken, sent, took) = woken(&[Some(false)], Duration::ZERO, SECOND).await;
        assert_eq!(woken, Err(QueueError::Unavailable("refused".into())));
        assert!((5..=9).contains(&sent.len()), "{}", sent.len());
        assert!((SECOND / 2..=SECOND).contains(&took), "{took:?}");
    }

    #[tokio::test]
    async fn send_to_silent_queue_fails_at_time_limit() {
        let (woken, sent, took) = woken(&[None], Duration::ZERO, SECOND / 2).await;
        assert_eq!((woken.is_err(), sent.len(), took), (true, 1, SECOND / 2));
    }
}
