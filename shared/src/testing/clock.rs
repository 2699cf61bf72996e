//! A clock based on tokio's. While tokio's clock is paused, a sleep of hours returns at
//! once, and each run of a test sees the same times.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

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

/// A clock that a test shifts against another one.
#[derive(Clone)]
pub struct ShiftedClock {
    clock: Arc<dyn Clock>,
    ahead: i64,
    passed: Arc<Mutex<Duration>>,
}

impl ShiftedClock {
    pub fn new(clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ahead: 0, passed: Arc::default() }
    }

    /// Creates a clock whose time is this many milliseconds ahead, or behind if the number is negative.
    pub fn ahead(clock: impl Clock, ahead: i64) -> Self {
        Self { ahead, ..Self::new(clock) }
    }

    /// Lets time pass that ends no sleep, as while a process is frozen.
    pub fn pass(&self, time: Duration) {
        *self.passed.lock().expect("no one panics while holding this") += time;
    }

    pub fn env(self, seed: u64) -> Env {
        Env::new(self, SeededRandom::new(seed))
    }

    fn passed(&self) -> Duration {
        *self.passed.lock().expect("no one panics while holding this")
    }
}

impl Clock for ShiftedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis((self.clock.now() + self.passed()).as_millis().saturating_add_signed(self.ahead))
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic() + self.passed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }
}

pub fn env(seed: u64) -> Env {
    Env::new(TokioClock::start(), SeededRandom::new(seed))
}
