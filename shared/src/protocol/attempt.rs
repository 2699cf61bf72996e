//! When a delivery is tried again whose start did not settle it, and when it is
//! given up.
//!
//! An answer has a [`Class`]. Each class has waits and a limit of its own: a
//! destination that cannot be reached is not the delivery's fault, and may be
//! out for days; a delivery that fails is likely to fail again.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

/// Why a start did not settle its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// The handler answered that it failed.
    #[default]
    Failed,
    /// The handler may have begun, and gave no answer.
    Unanswered,
    /// The handler, or what it needs, could not be reached: nothing was begun.
    Unavailable,
}

impl Class {
    /// In the order of the numbers that rows have for them.
    const ALL: [Self; 3] = [Self::Failed, Self::Unanswered, Self::Unavailable];
}

/// What the delivery at `head + 1` has been through: how long it has waited for
/// its retries, by class, as the waits were scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Retries {
    waited: [u32; 3],
    /// How many holders in a row vanished with it behind a start that they had
    /// recorded.
    pub crashes: u8,
    /// The class of the newest answer.
    pub class: Class,
}

/// So many holders in a row may vanish behind a recorded start; then the delivery
/// is given up.
pub const MOST_CRASHES: u8 = 8;

impl Retries {
    /// How long it has waited after answers of this class.
    pub fn waited(&self, class: Class) -> Duration {
        Duration::from_millis(self.waited[class as usize].into())
    }

    /// How long it has waited in all.
    pub fn total(&self) -> Duration {
        Class::ALL.iter().map(|class| self.waited(*class)).sum()
    }

    /// The same after one more answer of this class, behind which it waits.
    #[must_use]
    pub fn after(mut self, class: Class, wait: Duration) -> Self {
        let waited = &mut self.waited[class as usize];
        *waited = waited.saturating_add(wait.as_millis().try_into().unwrap_or(u32::MAX));
        (self.crashes, self.class) = (0, class);
        self
    }

    /// The same after one more holder that vanished behind a recorded start.
    #[must_use]
    pub fn crashed(self) -> Self {
        Self { crashes: self.crashes.saturating_add(1), ..self }
    }

    /// What the next delivery begins with, where this one was given up because its
    /// destination was unavailable for too long.
    #[must_use]
    pub fn carried(self) -> Self {
        let mut carried = Self { class: Class::Unavailable, ..Self::default() };
        carried.waited[Class::Unavailable as usize] = self.waited[Class::Unavailable as usize];
        carried
    }

    /// The same for a delivery of this age: it has not waited for longer.
    #[must_use]
    pub fn at_most(mut self, age: Duration) -> Self {
        let age = age.as_millis().try_into().unwrap_or(u32::MAX);
        self.waited = self.waited.map(|waited| waited.min(age));
        self
    }

    /// As it is stored; `None`: there is nothing to store.
    pub fn to_stored(&self) -> Option<Bytes> {
        if *self == Self::default() {
            return None;
        }
        let mut bytes = BytesMut::with_capacity(14);
        self.waited.iter().for_each(|waited| bytes.put_u32(*waited));
        bytes.put_u8(self.crashes);
        bytes.put_u8(self.class as u8);
        Some(bytes.freeze())
    }

    /// Reads what was stored.
    pub fn from_stored(bytes: &[u8]) -> Option<Self> {
        let (waited, rest) = bytes.split_first_chunk::<12>()?;
        let &[crashes, class] = rest else { return None };
        let (waited, _) = waited.as_chunks::<4>();
        let class = *Class::ALL.get(usize::from(class))?;
        Some(Self { waited: [waited[0], waited[1], waited[2]].map(u32::from_be_bytes), crashes, class })
    }
}

/// How long a delivery is retried, and how long it waits in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most failed attempts, at least 1; `None`: as many as `failed_for` has
    /// room for.
    pub attempts: Option<u32>,
    /// The wait after the first answer of a class; it doubles from then on.
    pub first: Duration,
    /// The longest wait after a failure.
    pub longest: Duration,
    /// How long a delivery waits after failures before it is given up.
    pub failed_for: Duration,
    /// The same for starts without an answer.
    pub unanswered_for: Duration,
    /// The same for a destination that cannot be reached.
    pub unavailable_for: Duration,
}

/// The longest wait that a handler may ask for, unless its source's own waits
/// are longer: the entity's later deliveries wait behind this one, and so that
/// somebody hears of it the day after.
pub const LONGEST_ASKED: Duration = Duration::from_secs(86_400);

/// The longest wait after a start without an answer: the longest delay SQS supports.
pub const LONGEST_UNANSWERED: Duration = Duration::from_secs(900);

/// The longest wait for a destination that cannot be reached: what waits is soon
/// through once it is back, and a look at it is cheap.
pub const LONGEST_UNAVAILABLE: Duration = Duration::from_secs(300);

impl Default for RetryPolicy {
    /// An hour of failures: time to mend a release or to roll it back. A day
    /// without an answer, three days without a destination, as senders themselves
    /// retry.
    fn default() -> Self {
        Self {
            attempts: None,
            first: Duration::from_secs(1),
            longest: Duration::from_secs(600),
            failed_for: Duration::from_secs(3_600),
            unanswered_for: Duration::from_secs(86_400),
            unavailable_for: Duration::from_secs(3 * 86_400),
        }
    }
}

/// What is done with a delivery that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Park it and go on with the next.
    #[default]
    Park,
    /// Stop the entity until an operator looks.
    Block,
}

impl RetryPolicy {
    /// How long a delivery waits after answers of this class before it is given up.
    pub fn limit(&self, class: Class) -> Duration {
        match class {
            Class::Failed => self.failed_for,
            Class::Unanswered => self.unanswered_for,
            Class::Unavailable => self.unavailable_for,
        }
    }

    /// Whether a delivery that fails for the first time is given up.
    pub fn is_once(&self) -> bool {
        self.attempts == Some(1) || self.failed_for.is_zero()
    }

    /// How many recorded starts in a row may end with their holder.
    pub fn most_crashes(&self) -> u8 {
        self.attempts.map_or(MOST_CRASHES, |attempts| attempts.min(MOST_CRASHES.into()) as u8)
    }

    /// Whether a delivery is given up after an answer of this class, its attempt
    /// number `attempts`, where it has waited for `waited` after others like it.
    pub fn gives_up(&self, class: Class, attempts: u32, waited: Duration) -> bool {
        let is_last = class == Class::Failed && self.attempts.is_some_and(|most| attempts >= most);
        is_last || waited >= self.limit(class)
    }

    /// How long to wait for the next start, where the policy alone says `doubled`. A
    /// failed start waits as long as its handler asks, at most [`LONGEST_ASKED`].
    /// After the others, a longer wait that is asked for counts.
    pub fn wait(&self, class: Class, doubled: Duration, asked: Option<Duration>, took: Duration) -> Duration {
        let asked = asked.map(|asked| asked.min(LONGEST_ASKED.max(self.longest)));
        match class {
            Class::Failed => asked.unwrap_or(doubled),
            Class::Unanswered => doubled.max(took).max(asked.unwrap_or_default()),
            Class::Unavailable => doubled.max(asked.unwrap_or_default()),
        }
    }

    /// The wait after an answer of this class, where the delivery has waited for
    /// `waited` after others like it: on average, twice the one before.
    pub fn doubled(&self, class: Class, waited: Duration, fraction: f64) -> Duration {
        let longest = match class {
            Class::Failed => self.longest,
            Class::Unanswered => LONGEST_UNANSWERED,
            Class::Unavailable => LONGEST_UNAVAILABLE,
        };
        // Jitter takes a quarter off a wait on average.
        let full = self.first.saturating_add(waited.saturating_mul(4) / 3).min(longest);
        jittered(full, fraction)
    }
}

/// The wait spread over its upper half.
pub fn jittered(wait: Duration, fraction: f64) -> Duration {
    wait.mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3_600);
    const DAY: Duration = Duration::from_secs(86_400);

    /// How often a delivery is started whose answers are all of this class, and how
    /// long it waits in all.
    fn given_up(policy: &RetryPolicy, class: Class, fraction: f64) -> (u32, Duration) {
        let (mut attempts, mut waited) = (1, Duration::ZERO);
        while !policy.gives_up(class, attempts, waited) {
            (attempts, waited) = (attempts + 1, waited + policy.doubled(class, waited, fraction));
        }
        (attempts, waited)
    }

    #[test]
    fn waits_double_up_to_the_class_limit() {
        let policy = RetryPolicy::default();
        for (class, longest) in [(Class::Failed, 600), (Class::Unanswered, 900), (Class::Unavailable, 300)] {
            let waits = [0, 750, 2_250, 5_250].map(|waited| policy.doubled(class, Duration::from_millis(waited), 0.5));
            assert_eq!(waits.map(|wait| wait.as_millis()), [750, 1_500, 3_000, 6_000], "{class:?}");
            assert_eq!(policy.doubled(class, HOUR, 1.0), longest * SECOND, "{class:?}");
            assert_eq!(policy.doubled(class, HOUR, 0.0), longest * SECOND / 2, "{class:?}");
        }
    }

    #[test]
    fn each_class_ends_at_its_own_limit() {
        let policy = RetryPolicy::default();
        for (class, limit, starts) in [
            (Class::Failed, HOUR, 13..=25),
            (Class::Unanswered, DAY, 100..=220),
            (Class::Unavailable, 3 * DAY, 870..=1800),
        ] {
            for fraction in [0.0, 0.5, 1.0] {
                let (started, waited) = given_up(&policy, class, fraction);
                assert!(waited >= limit && waited < limit + LONGEST_UNANSWERED, "{class:?}: {waited:?}");
                assert!(starts.contains(&started), "{class:?}: {started} starts");
            }
        }
    }

    #[test]
    fn attempts_limit_failed_starts_only() {
        let policy = RetryPolicy { attempts: Some(3), failed_for: Duration::MAX, ..RetryPolicy::default() };
        let gives_up = |class, attempts| policy.gives_up(class, attempts, SECOND);
        assert_eq!([2, 3].map(|attempts| gives_up(Class::Failed, attempts)), [false, true]);
        assert!(!gives_up(Class::Unanswered, 30) && !gives_up(Class::Unavailable, 30));
    }

    #[test]
    fn limit_of_zero_gives_up_at_the_first_answer() {
        let none = Duration::ZERO;
        let limits =
            RetryPolicy { failed_for: none, unanswered_for: none, unavailable_for: none, ..RetryPolicy::default() };
        assert!(Class::ALL.iter().all(|class| limits.gives_up(*class, 1, none)));
        assert!(limits.is_once() && !RetryPolicy::default().is_once());
    }

    #[test]
    fn failed_start_waits_as_long_as_asked() {
        let wait = |policy: RetryPolicy, asked| policy.wait(Class::Failed, 40 * SECOND, asked, HOUR);
        let policy = RetryPolicy::default();
        assert_eq!([None, Some(SECOND)].map(|asked| wait(policy, asked)), [40 * SECOND, SECOND]);
        assert_eq!(wait(policy, Some(Duration::MAX)), LONGEST_ASKED);
        let slow = RetryPolicy { longest: 2 * LONGEST_ASKED, ..policy };
        assert_eq!(wait(slow, Some(Duration::MAX)), 2 * LONGEST_ASKED);
    }

    #[test]
    fn asked_wait_only_lengthens_the_others() {
        for class in [Class::Unanswered, Class::Unavailable] {
            let wait = |asked| RetryPolicy::default().wait(class, 40 * SECOND, asked, SECOND);
            let waits = [None, Some(SECOND), Some(HOUR)].map(wait);
            assert_eq!(waits, [40 * SECOND, 40 * SECOND, HOUR], "{class:?}");
        }
    }

    #[test]
    fn unanswered_start_waits_as_long_as_it_took() {
        let wait = |class| RetryPolicy::default().wait(class, SECOND, None, 30 * SECOND);
        assert_eq!((wait(Class::Unanswered), wait(Class::Unavailable)), (30 * SECOND, SECOND));
    }

    #[test]
    fn huge_waits_do_not_overflow() {
        let policy = RetryPolicy { failed_for: Duration::MAX, ..RetryPolicy::default() };
        assert_eq!(policy.doubled(Class::Failed, Duration::MAX / 8, 1.0), policy.longest);
        let waited = Retries::default().after(Class::Unavailable, Duration::MAX).after(Class::Unavailable, SECOND);
        assert_eq!(waited.waited(Class::Unavailable), Duration::from_millis(u32::MAX.into()));
    }

    #[test]
    fn retries_are_read_as_stored() {
        let retries = Retries::default().after(Class::Failed, SECOND).after(Class::Unavailable, 3 * DAY).crashed();
        let stored = retries.to_stored().unwrap();
        assert_eq!((stored.len(), Retries::from_stored(&stored)), (14, Some(retries)));
        assert_eq!((retries.waited(Class::Failed), retries.total()), (SECOND, 3 * DAY + SECOND));
        assert_eq!(Retries::default().to_stored(), None);
        for wrong in [&stored[..13], &[9; 14], &[0; 15]] {
            assert_eq!(Retries::from_stored(wrong), None);
        }
    }

    #[test]
    fn answer_ends_a_row_of_crashes() {
        let crashed = Retries::default().crashed().crashed();
        assert_eq!(crashed.crashes, 2);
        assert_eq!(crashed.after(Class::Unavailable, SECOND).crashes, 0);
    }

    #[test]
    fn carried_wait_is_cut_to_the_age() {
        let carried = Retries::default().after(Class::Failed, SECOND).after(Class::Unavailable, 3 * DAY).carried();
        assert_eq!((carried.waited(Class::Failed), carried.waited(Class::Unavailable)), (Duration::ZERO, 3 * DAY));
        assert_eq!(carried.at_most(DAY).waited(Class::Unavailable), DAY);
    }
}
