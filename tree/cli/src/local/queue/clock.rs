//! The queue's time: read, and waited for, in one place.
//!
//! Visibility, delay and retention are points in time, so a test that owns the clock shows them without waiting.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

/// Where the queue takes its time from.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time since the Unix epoch.
    fn now(&self) -> Duration;

    /// Completes when [`Clock::now`] has reached `at`; at once if it already has.
    fn reached(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the queue reads the machine's clock")]
    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where the queue waits for the machine's clock")]
    fn reached(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            // The timer and the clock are two sources: it may ring a moment before the clock shows `at`.
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

/// A clock that stands still until it is advanced.
#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Duration>,
    waiting: watch::Sender<usize>,
}

impl ManualClock {
    /// A clock that shows `start` since the Unix epoch.
    pub fn starting_at(start: Duration) -> Self {
        Self { now: watch::Sender::new(start), waiting: watch::Sender::new(0) }
    }

    /// Moves the time forward and wakes who waited for what is now past.
    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now += by);
    }

    /// Completes when at least `count` calls wait for a time to come, so that a test can advance the clock under them.
    pub async fn until_waited_for_by(&self, count: usize) {
        let mut waiting = self.waiting.subscribe();
        // The sender lives in `self`, so the channel cannot be closed.
        let _ = waiting.wait_for(|waiting| *waiting >= count).await;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.now.borrow()
    }

    fn reached(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let mut now = self.now.subscribe();
            if *now.borrow() >= at {
                return;
            }
            let _counted = Counted::one_more(&self.waiting);
            // The sender lives in `self`, so the channel cannot be closed.
            let _ = now.wait_for(|now| *now >= at).await;
        })
    }
}

/// Counts one waiter for as long as it lives; a dropped wait is no longer counted.
struct Counted<'a>(&'a watch::Sender<usize>);

impl<'a> Counted<'a> {
    fn one_more(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
