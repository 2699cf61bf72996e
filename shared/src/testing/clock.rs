//! A clock based on tokio's. While tokio's clock is paused, a sleep of hours returns at
//! once, and each run of a test sees the same times.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::time::{Clock, Env, SeededRandom, Timestamp};

/// The time at which every run with a paused clock starts: 2026-01-01T00:00:00Z.
pub const START: Timestamp = Timestamp::from_secs(1_767_225_600);

#[derive(Debug, Clone, Copy)]
pub struct TokioClock(Instant);

impl TokioClock {
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

pub fn env(seed: u64) -> Env {
    Env::new(TokioClock::start(), SeededRandom::new(seed))
}
