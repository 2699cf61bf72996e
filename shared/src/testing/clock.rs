//! A clock based on tokio's: with that paused, hours pass at once and every run
//! takes the same time.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::time::{Clock, Env, SeededRandom, Timestamp};

/// The start of every paused run.
pub const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// Tokio's clock.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock(Instant);

impl TokioClock {
    /// Creates a clock that shows [`START`] now.
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        START + self.0.elapsed()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep_until(Instant::now() + duration))
    }
}

/// Returns tokio's clock and a random generator with `seed`.
pub fn env(seed: u64) -> Env {
    Env::new(TokioClock::start(), SeededRandom::new(seed))
}
