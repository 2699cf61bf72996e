//! What a process knows about the store's time.

use std::time::Duration;

use super::Timestamp;

/// The newest reply of the store that had a `Date`.
///
/// A `Date` counts whole seconds. So the store's clock showed `date`, or up to a second more, at some moment between
/// `sent` and `received`, which are by the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreDate {
    pub(super) date: Timestamp,
    pub(super) sent: Duration,
    pub(super) received: Duration,
}

const PRECISION: Duration = Duration::from_secs(1);

impl StoreDate {
    /// Returns a lower bound of the store's time at `at`, by the monotonic clock.
    pub(super) fn earliest(self, at: Duration) -> Timestamp {
        self.date + at.saturating_sub(self.received)
    }

    /// Returns an upper bound of the store's time at `at`, by the monotonic clock.
    pub(super) fn latest(self, at: Duration) -> Timestamp {
        let latest = (self.date + PRECISION + at).as_millis();
        Timestamp::from_millis(latest.saturating_sub(self.sent.as_millis() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Env, SeededRandom, tests::ShownClocks};
    use super::*;

    const DATE: Timestamp = Timestamp::from_secs(1_767_225_600);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns an environment whose newest reply took 100 ms, and is `age` old. The machine's clock shows `now`.
    fn env(age: Duration, now: Timestamp) -> Env {
        let shown = ShownClocks::new(DATE, millis(5100));
        let env = Env::new(shown.clone(), SeededRandom::new(1));
        env.note_reply(DATE, millis(5000));
        *shown.0.lock().unwrap() = (now, millis(5100) + age);
        env
    }

    #[test]
    fn clock_outside_the_reply_bounds_is_corrected() {
        let at = |millis: u64| DATE + Duration::from_millis(millis);
        for (age, earliest, latest) in [(0, 0, 1100), (60_000, 60_000, 61_100)] {
            let now = |now| env(millis(age), now).now();
            assert_eq!(now(Timestamp::from_millis(0)), at(earliest));
            assert_eq!(now(at(86_400_000)), at(latest));
            for right in [earliest, earliest + 500, latest] {
                assert_eq!(now(at(right)), at(right));
            }
        }
    }

    #[test]
    fn lease_covers_the_latest_store_time() {
        let length = Duration::from_secs(15);
        for now in [DATE, DATE + millis(1100)] {
            let env = env(Duration::ZERO, now);
            assert_eq!(now + env.lease_from(now, length), DATE + millis(1100) + length);
            assert_eq!(env.reached(), DATE);
        }
    }

    #[test]
    fn clock_is_trusted_before_the_first_reply() {
        let env = Env::new(ShownClocks::new(DATE, millis(0)), SeededRandom::new(1));
        assert_eq!((env.now(), env.reached(), env.lease_from(DATE, millis(7))), (DATE, DATE, millis(7)));
    }
}
