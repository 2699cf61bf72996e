//! Time as tokio tells it: with its clock paused, a run of hours takes no time
//! and always the same one.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::time::{Clock, SeededRandom, Surroundings, Timestamp};

/// When every paused run starts.
pub const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// Tokio's clock.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock(Instant);

impl TokioClock {
    /// Shows [`START`] now.
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

/// Tokio's clock and the chance of `seed`.
pub fn surroundings(seed: u64) -> Surroundings {
    Surroundings::new(TokioClock::start(), SeededRandom::new(seed))
}
