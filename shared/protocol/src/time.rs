//! Provides the clock and the source of randomness, which code gets as arguments.
//!
//! No decision of the engine depends on another clock or another random number, so simulations
//! control both.

mod store;
#[cfg(feature = "system")]
mod system;

use std::{
    fmt,
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::future::{BoxFuture, Either, select};
use serde::{Deserialize, Serialize};

#[cfg(feature = "system")]
pub use system::{SystemClock, SystemRandom};

/// A wall-clock time, in milliseconds since the Unix epoch.
///
/// Wall-clock times decide how soon a dead holder is replaced, but never who may write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The end of the year 9999. A later time cannot be written as a date in RFC 3339.
    pub const LATEST: Timestamp = Timestamp(253_402_300_799_999);

    /// Creates a timestamp from milliseconds since the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Creates a timestamp from whole seconds since the Unix epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Returns the milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the seconds since the Unix epoch, rounded up. DynamoDB's TTL uses this unit.
    pub const fn as_secs_rounded_up(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is after `self`.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time; write it in UTC, such as 2026-11-22T12:00:00Z")]
pub struct InvalidTimestamp(String);

impl std::str::FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// Parses a time in UTC in the format of RFC 3339. A space may replace the `T`.
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
    /// Writes the time in the format of RFC 3339. A time after [`Timestamp::LATEST`] is written in
    /// milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self > Self::LATEST {
            return write!(f, "{} ms", self.0);
        }
        humantime::format_rfc3339_millis(SystemTime::from(*self)).fmt(f)
    }
}

/// The largest clock skew between two machines that the program allows for.
pub const CLOCKS_APART: Duration = Duration::from_secs(60);

/// Provides the wall-clock time, a monotonic clock and a timer.
pub trait Clock: Send + Sync + 'static {
    /// Returns the wall-clock time.
    fn now(&self) -> Timestamp;

    /// Returns the time since a fixed moment of this process. The time never decreases.
    fn monotonic(&self) -> Duration;

    /// Waits for at least `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// A source of random numbers.
pub trait Random: Send + Sync + 'static {
    /// Returns 64 random bits.
    fn next(&self) -> u64;
}

#[derive(Debug)]
pub struct SeededRandom(Mutex<fastrand::Rng>);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl Random for SeededRandom {
    fn next(&self) -> u64 {
        self.0.lock().expect("no one panics while holding this").u64(..)
    }
}

/// The clock and the source of randomness of a process.
///
/// Times in the store are compared by many machines. Therefore the store's clock decides them: the `Date` of each
/// reply bounds the store's time to within a second and the duration of the request. If the machine's clock is
/// outside these bounds, it is wrong, and [`now`](Self::now) returns the nearest time inside.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    reply: Arc<Mutex<Option<store::StoreDate>>>,
}

impl Env {
    /// Creates an environment with this clock and this random generator.
    pub fn new(clock: impl Clock, random: impl Random) -> Self {
        Self { clock: Arc::new(clock), random: Arc::new(random), reply: Arc::default() }
    }

    /// Returns the time by the store's clock, or by the machine's clock if that agrees or no reply is known.
    pub fn now(&self) -> Timestamp {
        let by_machine = self.machine_now();
        self.bounds().map_or(by_machine, |(earliest, latest)| by_machine.clamp(earliest, latest))
    }

    /// Returns the time that the machine's clock shows. Only times of the same machine are comparable, such as the
    /// deadline of an invocation.
    pub fn machine_now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns a time that the store's clock has surely reached: the `Date` of its newest reply.
    ///
    /// A lease has expired only if it ends at or before this time.
    pub fn reached(&self) -> Timestamp {
        self.reply().map_or_else(|| self.machine_now(), |reply| reply.date)
    }

    /// Returns the time from `now` until the end of a lease that must last for `length`, even if the store's clock is
    /// as far ahead as its newest reply allows.
    #[doc(hidden)]
    pub fn lease_from(&self, now: Timestamp, length: Duration) -> Duration {
        length + self.latest_at(self.monotonic()).map_or(Duration::ZERO, |latest| latest.since(now))
    }

    /// Returns a time that the store's clock had not yet reached at `at`, by the monotonic clock. Returns `None` if no
    /// reply is known.
    #[doc(hidden)]
    pub fn latest_at(&self, at: Duration) -> Option<Timestamp> {
        self.reply().map(|reply| reply.latest(at))
    }

    /// Notes that the store's reply to a request had this `Date`. `sent` is the time at which the request was sent, by
    /// the monotonic clock.
    #[doc(hidden)]
    pub fn note_reply(&self, date: Timestamp, sent: Duration) {
        let received = self.monotonic();
        *self.reply.lock().expect("no one panics while holding this") = Some(store::StoreDate { date, sent, received });
    }

    fn reply(&self) -> Option<store::StoreDate> {
        *self.reply.lock().expect("no one panics while holding this")
    }

    fn bounds(&self) -> Option<(Timestamp, Timestamp)> {
        let reply = self.reply()?;
        let at = self.monotonic();
        Some((reply.earliest(at), reply.latest(at)))
    }

    /// Returns the time since a fixed moment of this process. The time never decreases.
    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Waits for at least `duration`.
    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }

    #[doc(hidden)]
    pub fn nonce(&self) -> Nonce {
        let random = (u128::from(self.random.next()) << 64) | u128::from(self.random.next());
        Nonce::from_parts(self.now(), random)
    }

    /// Draws a random number from 0.0 up to, but not including, 1.0.
    pub fn fraction(&self) -> f64 {
        // 53 bits fill a double's mantissa exactly.
        (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a random part of `duration`, between half of it and all of it.
    ///
    /// Processes that begin to wait together therefore end their waits at different times. The lower
    /// bound prevents waits of almost zero.
    pub fn jittered(&self, duration: Duration) -> Duration {
        duration.mul_f64(0.5 + self.fraction() / 2.0)
    }

    /// Awaits `future` for at most `limit`. Returns `None` if `future` did not end in that time.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        // The future is polled before the alarm.
        match select(pin!(future), self.sleep(limit)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// The unique id of a write. After a lost reply, the author of the write recognises the write by
/// this id.
///
/// A nonce is a ULID, so it also contains the time at which it was drawn.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Nonce(String);

impl Nonce {
    pub(crate) fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Creates a nonce from a time and the lowest 80 bits of `random`.
    pub fn from_parts(now: Timestamp, random: u128) -> Self {
        Self(ulid::Ulid::from_parts(now.as_millis(), random).to_string())
    }

    /// Returns the time at which the nonce was drawn, by its author's clock. Returns `None` if the
    /// nonce is not a ULID.
    pub fn drawn_at(&self) -> Option<Timestamp> {
        let ulid = ulid::Ulid::from_string(&self.0).ok()?;
        Some(Timestamp::from_millis(ulid.timestamp_ms()))
    }

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

    /// The machine's clocks: the time, and the monotonic time.
    #[derive(Clone)]
    pub(super) struct ShownClocks(pub(super) Arc<Mutex<(Timestamp, Duration)>>);

    impl ShownClocks {
        pub(super) fn new(now: Timestamp, monotonic: Duration) -> Self {
            Self(Arc::new(Mutex::new((now, monotonic))))
        }
    }

    impl Clock for ShownClocks {
        fn now(&self) -> Timestamp {
            self.0.lock().unwrap().0
        }

        fn monotonic(&self) -> Duration {
            self.0.lock().unwrap().1
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            unreachable!("no test sleeps")
        }
    }

    #[test]
    fn jittered_wait_is_half_to_all_of_given_wait() {
        let env = Env::new(ShownClocks::new(Timestamp::from_secs(0), Duration::ZERO), SeededRandom::new(7));
        for _ in 0..1000 {
            let drawn = env.jittered(Duration::from_millis(100));
            assert!((50..=100).contains(&drawn.as_millis()), "{drawn:?}");
        }
    }

    #[test]
    fn nonce_contains_the_time_of_its_creation() {
        let at = Timestamp::from_millis(1_700_000_000_123);
        assert_eq!(Nonce::from_parts(at, 5).drawn_at(), Some(at));
    }

    #[test]
    fn utc_timestamp_is_parsed_and_other_text_is_refused() {
        for text in ["2026-11-22T12:00:00.000Z", "2026-11-22T12:00:00Z", " 2026-11-22 12:00:00 "] {
            assert_eq!(text.parse(), Ok(Timestamp::from_millis(1_795_348_800_000)), "{text}");
        }
        for text in ["", "yesterday", "2026-11-22T12:00:00+01:00", "1969-12-31T23:59:59Z"] {
            assert_eq!(text.parse::<Timestamp>(), Err(InvalidTimestamp(text.to_owned())));
        }
    }

    #[test]
    fn time_after_year_9999_is_shown_in_milliseconds() {
        assert_eq!(Timestamp::LATEST.to_string(), "9999-12-31T23:59:59.999Z");
        let behind = Timestamp::LATEST + Duration::from_millis(1);
        assert_eq!(behind.to_string(), "253402300800000 ms");
        assert_eq!(Timestamp::from_millis(u64::MAX).to_string(), "18446744073709551615 ms");
    }
}
