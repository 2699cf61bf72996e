//! Time and chance, as arguments. Nothing else in the workspace reads a clock
//! or draws a random number, so that a simulation can decide both.

pub(crate) mod duration;

use std::{
    fmt,
    sync::Mutex,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// A wall-clock time in milliseconds since the Unix epoch. It decides how soon
/// a dead holder is replaced, never who may write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last moment of the year 9999: what comes behind it has no date, and
    /// whatever a sender writes there is no time.
    pub const LATEST: Timestamp = Timestamp(253_402_300_799_999);

    /// From milliseconds since the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// From whole seconds since the epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded up: what DynamoDB TTL wants.
    pub const fn as_secs_rounded_up(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// How far `self` is behind `earlier`; zero if it is not.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The text is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time: say it in UTC, such as 2026-11-22T12:00:00Z")]
pub struct InvalidTimestamp(String);

impl std::str::FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// From RFC 3339, in UTC; the `T` may be a space.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidTimestamp(text.to_owned());
        let time = humantime::parse_rfc3339_weak(text.trim()).map_err(|_| invalid())?;
        let since = time.duration_since(UNIX_EPOCH).map_err(|_| invalid())?;
        Ok(Self(u64::try_from(since.as_millis()).map_err(|_| invalid())?))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(timestamp: Timestamp) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(timestamp.0)
    }
}

impl fmt::Display for Timestamp {
    /// As RFC 3339; what has no date there, as a row may hold it, in
    /// milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self > Self::LATEST {
            return write!(f, "{} ms", self.0);
        }
        humantime::format_rfc3339_millis(SystemTime::from(*self)).fmt(f)
    }
}

/// How far two machines' clocks may differ before one of them counts as far off.
pub(crate) const CLOCKS_APART: Duration = Duration::from_secs(60);

/// A clock and a way to wait for it.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Time passed since some fixed moment of this process; never goes back.
    fn monotonic(&self) -> Duration;

    /// Waits. May be late, never early.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock(Mutex<Passed>);

/// What both clocks showed last, and the time counted until then.
#[derive(Debug)]
struct Passed {
    instant: Instant,
    wall: SystemTime,
    counted: Duration,
}

impl SystemClock {
    /// Starts counting.
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

    /// Counts the time in which the machine was frozen, which the monotonic
    /// clock of a paused virtual machine may not: from one look to the next,
    /// whichever of the two clocks went further is believed. A wall clock set
    /// forward makes a holder give up early, which is safe; one set back counts
    /// for nothing.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clocks")]
    fn monotonic(&self) -> Duration {
        let mut passed = self.0.lock().expect("no one panics while holding this");
        let (instant, wall) = (Instant::now(), SystemTime::now());
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

/// A source of random numbers.
pub trait Random: Send + Sync + 'static {
    /// 64 random bits.
    fn next(&self) -> u64;
}

/// The operating system's generator: two instances started alike must not draw
/// the same nonce.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next(&self) -> u64 {
        getrandom::u64().expect("the operating system gives random numbers")
    }
}

/// A generator that one seed decides, for tests and simulations.
#[derive(Debug)]
pub struct SeededRandom(Mutex<fastrand::Rng>);

impl SeededRandom {
    /// Starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl Random for SeededRandom {
    fn next(&self) -> u64 {
        self.0.lock().expect("no one panics while holding this").u64(..)
    }
}

/// The clock and the chance that one instance lives by.
#[derive(Clone)]
pub struct Surroundings {
    clock: std::sync::Arc<dyn Clock>,
    random: std::sync::Arc<dyn Random>,
}

impl Surroundings {
    /// The machine's own.
    pub fn system() -> Self {
        Self::new(SystemClock::start(), SystemRandom)
    }

    /// Any others.
    pub fn new(clock: impl Clock, random: impl Random) -> Self {
        Self { clock: std::sync::Arc::new(clock), random: std::sync::Arc::new(random) }
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Time passed in this process.
    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Waits.
    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }

    /// A fresh nonce.
    #[doc(hidden)]
    pub fn nonce(&self) -> Nonce {
        let random = (u128::from(self.random.next()) << 64) | u128::from(self.random.next());
        Nonce::from_parts(self.now(), random)
    }

    /// A number in `0.0..1.0`.
    pub fn fraction(&self) -> f64 {
        // 53 bits fill a double's mantissa exactly.
        (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Between half of `duration` and all of it, so that instances that
    /// started together drift apart and none waits next to nothing.
    pub fn jittered(&self, duration: Duration) -> Duration {
        duration.mul_f64(0.5 + self.fraction() / 2.0)
    }

    /// Runs `future` for at most `limit`; `None` when it took longer.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        let mut alarm = self.sleep(limit);
        tokio::select! {
            biased;
            output = &mut future => Some(output),
            () = &mut alarm => None,
        }
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// A name drawn afresh for one claim or one acquire call, so that its author
/// recognises its own write when the reply was lost. A ULID: it carries the
/// time it was drawn, which the sweep reads and nothing is decided by.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Nonce(String);

impl Nonce {
    /// Takes a nonce back from a stored row.
    pub(crate) fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// From a time and 80 random bits.
    pub fn from_parts(now: Timestamp, random: u128) -> Self {
        Self(ulid::Ulid::from_parts(now.as_millis(), random).to_string())
    }

    /// When it was drawn, by its author's clock.
    pub fn drawn_at(&self) -> Option<Timestamp> {
        let ulid = ulid::Ulid::from_string(&self.0).ok()?;
        Some(Timestamp::from_millis(ulid.timestamp_ms()))
    }

    /// The nonce as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_keeps_at_least_half() {
        let surroundings = Surroundings::new(SystemClock::start(), SeededRandom::new(7));
        for _ in 0..1000 {
            let drawn = surroundings.jittered(Duration::from_millis(100));
            assert!((50..=100).contains(&drawn.as_millis()), "{drawn:?}");
        }
    }

    #[test]
    fn a_nonce_tells_when_it_was_drawn() {
        let at = Timestamp::from_millis(1_700_000_000_123);
        assert_eq!(Nonce::from_parts(at, 5).drawn_at(), Some(at));
    }

    #[test]
    fn a_time_that_is_shown_is_read_again() {
        for text in ["2026-11-22T12:00:00.000Z", "2026-11-22T12:00:00Z", " 2026-11-22 12:00:00 "] {
            assert_eq!(text.parse(), Ok(Timestamp::from_millis(1_795_348_800_000)), "{text}");
        }
        for text in ["", "yesterday", "2026-11-22T12:00:00+01:00", "1969-12-31T23:59:59Z"] {
            assert_eq!(text.parse::<Timestamp>(), Err(InvalidTimestamp(text.to_owned())));
        }
    }

    #[test]
    fn a_time_without_a_date_is_shown_all_the_same() {
        assert_eq!(Timestamp::LATEST.to_string(), "9999-12-31T23:59:59.999Z");
        let behind = Timestamp::LATEST + Duration::from_millis(1);
        assert_eq!(behind.to_string(), "253402300800000 ms");
        assert_eq!(Timestamp::from_millis(u64::MAX).to_string(), "18446744073709551615 ms");
    }

    #[test]
    fn nonces_differ() {
        let surroundings = Surroundings::system();
        assert_ne!(surroundings.nonce(), surroundings.nonce());
    }
}
