//! The clock of the machine and the random generator of its operating system.

use std::{
    sync::Mutex,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures_util::future::BoxFuture;

use super::{Clock, Env, Random, Timestamp};

#[derive(Debug)]
pub struct SystemClock(Mutex<Passed>);

/// The state of [`SystemClock`]: the last readings of both clocks, and the time that passed from
/// the clock's start to these readings.
#[derive(Debug)]
struct Passed {
    instant: Instant,
    wall: SystemTime,
    counted: Duration,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clocks")]
    pub fn start() -> Self {
        Self(Mutex::new(Passed { instant: Instant::now(), wall: SystemTime::now(), counted: Duration::ZERO }))
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clocks")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the time since a fixed moment, including time in which the machine was frozen.
    ///
    /// The monotonic clock of a paused virtual machine may stand still. So between two readings,
    /// the monotonic or the wall clock counts, whichever advanced further. If the wall clock is set
    /// forward, a holder gives its lease up before the lease expires, which is safe. Setting the
    /// wall clock back has no effect.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clocks")]
    fn monotonic(&self) -> Duration {
        let mut passed = self.0.lock().expect("no one panics while holding this");
        let instant = Instant::now();
        let wall = SystemTime::now();
        let by_wall = wall.duration_since(passed.wall).unwrap_or_default();
        let by_instant = instant.saturating_duration_since(passed.instant);
        passed.counted += by_instant.max(by_wall);
        (passed.instant, passed.wall) = (instant, wall);
        passed.counted
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that waits")]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// The random generator of the operating system.
///
/// A generator seeded by this program could draw the same nonce in two copies of one process.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next(&self) -> u64 {
        getrandom::u64().expect("the operating system gives random numbers")
    }
}

impl Env {
    /// Returns the machine's clock and the operating system's random generator.
    pub fn system() -> Self {
        Self::new(SystemClock::start(), SystemRandom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_differ() {
        let env = Env::system();
        assert_ne!(env.nonce(), env.nonce());
    }
}
