//! The clock of the queues. Visibility and delays depend on this clock alone, so a test with a manual clock need not
//! wait.

use std::{
    fmt::Debug,
    future::Future,
    pin::Pin,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::sync::watch;

pub trait QueueClock: Debug + Send + Sync + 'static {
    /// Returns the time since the Unix epoch.
    fn now(&self) -> Duration;

    fn reached(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

impl QueueClock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the queue reads the machine's clock")]
    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where the queue waits for the machine's clock")]
    fn reached(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            // The timer may fire a moment before the clock shows `at`.
            loop {
                let left = at.saturating_sub(self.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left).await;
            }
        })
    }
}

#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Duration>,
    waiting: watch::Sender<usize>,
}

impl ManualClock {
    pub fn starting_at(start: Duration) -> Self {
        Self { now: watch::Sender::new(start), waiting: watch::Sender::new(0) }
    }

    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now += by);
    }

    /// Waits until at least `count` calls of [`QueueClock::reached`] wait for a later time.
    pub async fn until_waited_for_by(&self, count: usize) {
        let mut waiting = self.waiting.subscribe();
        // `self` owns the sender, so the channel is open.
        let _ = waiting.wait_for(|waiting| *waiting >= count).await;
    }
}

impl QueueClock for ManualClock {
    fn now(&self) -> Duration {
        *self.now.borrow()
    }

    fn reached(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let mut now = self.now.subscribe();
            if *now.borrow() >= at {
                return;
            }
            let _waiting = Waiter::new(&self.waiting);
            // `self` owns the sender, so the channel is open.
            let _ = now.wait_for(|now| *now >= at).await;
        })
    }
}

struct Waiter<'a>(&'a watch::Sender<usize>);

impl<'a> Waiter<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
