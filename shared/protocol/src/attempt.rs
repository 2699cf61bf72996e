//! Decides how long a delivery waits after a handler start that did not settle it, and when its
//! retries end.
//!
//! After its retries, the delivery is parked or its entity is blocked. Each [`FailureClass`] has
//! its own waits and its own limit, because the causes differ. An unreachable destination may be
//! out for days, while a delivery that failed is likely to fail again.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

/// The reason why a handler start did not settle its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailureClass {
    /// The handler reported a failure, panicked or was cancelled, or a condition of its writes did
    /// not hold.
    #[default]
    Failed,
    /// The handler may have begun, but gave no answer.
    Unanswered,
    /// The handler or its destination could not be reached or had no capacity, so nothing was
    /// begun.
    Unavailable,
}

impl FailureClass {
    /// All classes. The index of a class in this list is its number in stored rows.
    const ALL: [Self; 3] = [Self::Failed, Self::Unanswered, Self::Unavailable];
}

/// The retries of the delivery at `head + 1`: its waits between handler starts, and the crashes of
/// its lease holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Retries {
    /// The total wait scheduled so far for each [`FailureClass`], in milliseconds.
    waited: [u32; 3],
    /// The number of starts of the class [`FailureClass::Failed`], up to [`MOST_FAILURES`].
    pub failures: u16,
    /// The number of consecutive lease holders that vanished after they recorded a handler start.
    pub crashes: u8,
    pub class: FailureClass,
}

/// The number of consecutive crashes after which a delivery is not retried. A crash is a lease
/// holder that vanished after it recorded a handler start.
pub const MOST_CRASHES: u8 = 8;

/// The largest number of failed starts that a row counts, in 10 bits.
pub const MOST_FAILURES: u16 = 1_000;

impl Retries {
    pub fn waited(&self, class: FailureClass) -> Duration {
        Duration::from_millis(self.waited[class as usize].into())
    }

    pub fn total(&self) -> Duration {
        FailureClass::ALL.iter().map(|class| self.waited(*class)).sum()
    }

    /// Returns whether the delivery waits because its latest start found the destination unavailable.
    pub fn waits_for_destination(&self) -> bool {
        self.class == FailureClass::Unavailable && !self.waited(self.class).is_zero()
    }

    /// Counts a start that ended with a failure of `class`, and the `wait` that follows. `crashes`
    /// becomes 0, because the lease holder did not vanish.
    #[must_use]
    pub fn after(self, class: FailureClass, wait: Duration) -> Self {
        let failures = match class {
            FailureClass::Failed => (self.failures + 1).min(MOST_FAILURES),
            FailureClass::Unanswered | FailureClass::Unavailable => self.failures,
        };
        Self { failures, crashes: 0, class, ..self.waiting(class, wait) }
    }

    /// Adds `wait` to the total wait of `class`.
    #[must_use]
    pub fn waiting(mut self, class: FailureClass, wait: Duration) -> Self {
        let waited = &mut self.waited[class as usize];
        *waited = waited.saturating_add(wait.as_millis().try_into().unwrap_or(u32::MAX));
        self
    }

    /// Takes `unspent`, the rest of a wait that ended early, off the total wait of the latest failure's class.
    #[must_use]
    pub fn without(mut self, unspent: Duration) -> Self {
        let waited = &mut self.waited[self.class as usize];
        *waited = waited.saturating_sub(unspent.as_millis().try_into().unwrap_or(u32::MAX));
        self
    }

    #[must_use]
    pub fn crashed(self) -> Self {
        Self { crashes: self.crashes.saturating_add(1), ..self }
    }

    /// Returns these retries reduced to the total wait for an unavailable destination. Once that
    /// wait has reached its limit, the deliveries of a split group inherit it. If a single delivery
    /// is parked instead, the next delivery inherits it.
    #[must_use]
    pub fn carried(self) -> Self {
        let class = FailureClass::Unavailable;
        Self::default().after(class, self.waited(class))
    }

    /// Limits the total wait of each [`FailureClass`] to `age`, the age of the delivery. Only a wait
    /// that was inherited from an earlier delivery can exceed it.
    #[must_use]
    pub fn at_most(mut self, age: Duration) -> Self {
        let age = age.as_millis().try_into().unwrap_or(u32::MAX);
        self.waited = self.waited.map(|waited| waited.min(age));
        self
    }

    pub fn to_stored(&self) -> Option<Bytes> {
        if *self == Self::default() {
            return None;
        }
        let mut bytes = BytesMut::with_capacity(14);
        self.waited.iter().for_each(|waited| bytes.put_u32(*waited));
        // Four bits of crashes and two of the class. The other ten bits, zeros in older rows, hold the failures.
        bytes.put_u8(self.crashes.min(15) | (self.failures >> 6 << 4) as u8);
        bytes.put_u8(self.class as u8 | (self.failures << 2) as u8);
        Some(bytes.freeze())
    }

    pub fn from_stored(bytes: &[u8]) -> Option<Self> {
        let (waited, rest) = bytes.split_first_chunk::<12>()?;
        let &[crashes, class] = rest else { return None };
        let (waited, _) = waited.as_chunks::<4>();
        let waited = [waited[0], waited[1], waited[2]].map(u32::from_be_bytes);
        let failures = u16::from(crashes >> 4) << 6 | u16::from(class >> 2);
        let class = *FailureClass::ALL.get(usize::from(class & 3))?;
        Some(Self { waited, failures, crashes: crashes & 15, class })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The number of starts of the class [`FailureClass::Failed`] at which a delivery's retries end:
    /// from 1 to [`MOST_FAILURES`]. With `None`, only `failed_for` limits the failures.
    pub attempts: Option<u16>,
    /// The wait after the first failure of each class. Each further wait of that class is about
    /// twice the previous one, up to the longest wait of the class.
    pub first: Duration,
    /// The longest wait after [`FailureClass::Failed`], unless the handler asks for a longer one.
    pub longest: Duration,
    /// The total wait after [`FailureClass::Failed`] at which a delivery's retries end.
    /// `unanswered_for` and `unavailable_for` limit the waits after the other classes.
    pub failed_for: Duration,
    pub unanswered_for: Duration,
    pub unavailable_for: Duration,
}

/// The longest wait that a handler may ask for, unless its source's `longest` wait is longer. A day
/// lets operators notice the failure. Meanwhile, the entity's later deliveries wait as well.
pub const LONGEST_ASKED: Duration = Duration::from_secs(86_400);

/// The longest wait after a handler start without an answer, unless the handler asks for a longer
/// one: the longest message delay of SQS.
pub const LONGEST_UNANSWERED: Duration = Duration::from_secs(900);

/// The longest wait for an unavailable destination, unless the handler asks for a longer one. A
/// retry is cheap, and a short wait drains the backlog soon after the destination is back.
pub const LONGEST_UNAVAILABLE: Duration = Duration::from_secs(300);

impl Default for RetryPolicy {
    /// Limits the total wait to an hour after failures, a day after starts without an answer, and
    /// three days for an unavailable destination.
    ///
    /// An hour is enough to fix or roll back a release. Webhook senders themselves retry for one to
    /// three days.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    #[default]
    Park,
    Block,
}

impl RetryPolicy {
    pub fn limit(&self, class: FailureClass) -> Duration {
        match class {
            FailureClass::Failed => self.failed_for,
            FailureClass::Unanswered => self.unanswered_for,
            FailureClass::Unavailable => self.unavailable_for,
        }
    }

    pub fn is_once(&self) -> bool {
        self.attempts == Some(1) || self.failed_for.is_zero()
    }

    pub fn most_crashes(&self) -> u8 {
        self.attempts.map_or(MOST_CRASHES, |attempts| attempts.min(MOST_CRASHES.into()) as u8)
    }

    /// Returns whether a start that ends with a failure of `class` ends the delivery's retries. The
    /// parameter `before` counts the delivery's earlier starts and waits.
    pub fn gives_up(&self, class: FailureClass, before: &Retries) -> bool {
        let is_last = class == FailureClass::Failed && self.attempts.is_some_and(|most| before.failures + 1 >= most);
        is_last || before.waited(class) >= self.limit(class)
    }

    /// Returns the wait before the next handler start.
    ///
    /// - After a reported failure: `asked`, the wait that the handler requests, or else `doubled`.
    /// - After other failures: the longer of `doubled` and `asked`.
    /// - After a start without an answer, the wait is also at least `took`, the start's duration.
    ///
    /// `asked` is limited to [`LONGEST_ASKED`], or to the policy's `longest` wait if that is
    /// longer.
    pub fn wait(&self, class: FailureClass, doubled: Duration, asked: Option<Duration>, took: Duration) -> Duration {
        let asked = asked.map(|asked| asked.min(LONGEST_ASKED.max(self.longest)));
        match class {
            FailureClass::Failed => asked.unwrap_or(doubled),
            FailureClass::Unanswered => doubled.max(took).max(asked.unwrap_or_default()),
            FailureClass::Unavailable => doubled.max(asked.unwrap_or_default()),
        }
    }

    /// Returns the policy's own wait, which is on average twice the previous one, up to the longest
    /// wait of the class. The parameter `waited` is the total wait after earlier failures of
    /// `class`. `fraction` is the jitter, from 0 to 1.
    pub fn doubled(&self, class: FailureClass, waited: Duration, fraction: f64) -> Duration {
        let longest = match class {
            FailureClass::Failed => self.longest,
            FailureClass::Unanswered => LONGEST_UNANSWERED,
            FailureClass::Unavailable => LONGEST_UNAVAILABLE,
        };
        // Jitter shortens a wait by a quarter on average.
        let full = self.first.saturating_add(waited.saturating_mul(4) / 3).min(longest);
        jittered(full, fraction)
    }
}

/// Returns a wait between half of `wait` and all of it. `fraction` is the jitter, from 0 to 1.
pub fn jittered(wait: Duration, fraction: f64) -> Duration {
    wait.mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3_600);
    const DAY: Duration = Duration::from_secs(86_400);

    fn given_up(policy: &RetryPolicy, class: FailureClass, fraction: f64) -> (u32, Duration) {
        let mut starts = 1;
        let mut retries = Retries::default();
        while !policy.gives_up(class, &retries) {
            starts += 1;
            retries = retries.after(class, policy.doubled(class, retries.waited(class), fraction));
        }
        (starts, retries.waited(class))
    }

    /// Promise: `Outcome::retry` doubles waits, `retry_after` takes yours, up to a day; only this order waits.
    #[test]
    fn retry_wait_doubles_until_longest_wait_of_failure_class() {
        let policy = RetryPolicy::default();
        for (class, longest) in
            [(FailureClass::Failed, 600), (FailureClass::Unanswered, 900), (FailureClass::Unavailable, 300)]
        {
            let waits = [0, 750, 2_250, 5_250].map(|waited| policy.doubled(class, Duration::from_millis(waited), 0.5));
            assert_eq!(waits.map(|wait| wait.as_millis()), [750, 1_500, 3_000, 6_000], "{class:?}");
            assert_eq!(policy.doubled(class, HOUR, 1.0), longest * SECOND, "{class:?}");
            assert_eq!(policy.doubled(class, HOUR, 0.0), longest * SECOND / 2, "{class:?}");
        }
    }

    #[test]
    fn each_failure_class_is_retried_until_own_limit() {
        let policy = RetryPolicy::default();
        for (class, limit, starts) in [
            (FailureClass::Failed, HOUR, 13..=25),
            (FailureClass::Unanswered, DAY, 100..=220),
            (FailureClass::Unavailable, 3 * DAY, 870..=1800),
        ] {
            for fraction in [0.0, 0.5, 1.0] {
                let (started, waited) = given_up(&policy, class, fraction);
                assert!(waited >= limit && waited < limit + LONGEST_UNANSWERED, "{class:?}: {waited:?}");
                assert!(starts.contains(&started), "{class:?}: {started} starts");
            }
        }
    }

    #[test]
    fn attempts_limit_ignores_unanswered_unavailable_and_crashed_starts() {
        let policy = RetryPolicy { attempts: Some(3), failed_for: Duration::MAX, ..RetryPolicy::default() };
        let others = [FailureClass::Unanswered, FailureClass::Unavailable];
        let many = (0..30).fold(Retries::default().crashed(), |retries, at| retries.after(others[at % 2], SECOND));
        let failed = |times| (0..times).fold(many, |retries, _| retries.after(FailureClass::Failed, SECOND).crashed());
        let gives_up = |times| policy.gives_up(FailureClass::Failed, &failed(times));
        assert_eq!([1, 2, 3].map(gives_up), [false, true, true]);
        assert!(others.iter().all(|class| !policy.gives_up(*class, &failed(9))));
    }

    #[test]
    fn retry_limit_zero_allows_no_retry() {
        let none = Duration::ZERO;
        let limits =
            RetryPolicy { failed_for: none, unanswered_for: none, unavailable_for: none, ..RetryPolicy::default() };
        assert!(FailureClass::ALL.iter().all(|class| limits.gives_up(*class, &Retries::default())));
        assert!(limits.is_once() && !RetryPolicy::default().is_once());
    }

    #[test]
    fn retry_after_failure_waits_the_requested_time() {
        let wait = |policy: RetryPolicy, asked| policy.wait(FailureClass::Failed, 40 * SECOND, asked, HOUR);
        let policy = RetryPolicy::default();
        assert_eq!([None, Some(SECOND)].map(|asked| wait(policy, asked)), [40 * SECOND, SECOND]);
        assert_eq!(wait(policy, Some(Duration::MAX)), LONGEST_ASKED);
        let slow = RetryPolicy { longest: 2 * LONGEST_ASKED, ..policy };
        assert_eq!(wait(slow, Some(Duration::MAX)), 2 * LONGEST_ASKED);
    }

    #[test]
    fn requested_wait_never_shortens_unavailable_or_unanswered_backoff() {
        for class in [FailureClass::Unanswered, FailureClass::Unavailable] {
            let wait = |asked| RetryPolicy::default().wait(class, 40 * SECOND, asked, SECOND);
            let waits = [None, Some(SECOND), Some(HOUR)].map(wait);
            assert_eq!(waits, [40 * SECOND, 40 * SECOND, HOUR], "{class:?}");
        }
    }

    #[test]
    fn retry_waits_as_long_as_unanswered_start_took() {
        let wait = |class| RetryPolicy::default().wait(class, SECOND, None, 30 * SECOND);
        assert_eq!((wait(FailureClass::Unanswered), wait(FailureClass::Unavailable)), (30 * SECOND, SECOND));
    }

    #[test]
    fn huge_retry_waits_do_not_overflow() {
        let policy = RetryPolicy { failed_for: Duration::MAX, ..RetryPolicy::default() };
        assert_eq!(policy.doubled(FailureClass::Failed, Duration::MAX / 8, 1.0), policy.longest);
        let waited =
            Retries::default().after(FailureClass::Unavailable, Duration::MAX).after(FailureClass::Unavailable, SECOND);
        assert_eq!(waited.waited(FailureClass::Unavailable), Duration::from_millis(u32::MAX.into()));
    }

    #[test]
    fn retry_counts_round_trip_through_stored_bytes() {
        let failed = Retries::default().after(FailureClass::Failed, SECOND);
        let retries = failed.after(FailureClass::Unavailable, 3 * DAY).crashed();
        for (failures, crashes) in [(0, 0), (1, 1), (63, 8), (64, 15), (MOST_FAILURES, MOST_CRASHES)] {
            let retries = Retries { failures, crashes, ..retries };
            let stored = retries.to_stored().unwrap();
            assert_eq!((stored.len(), Retries::from_stored(&stored)), (14, Some(retries)));
        }
        let full = Retries { failures: MOST_FAILURES, ..failed };
        assert_eq!(full.after(FailureClass::Failed, SECOND).failures, MOST_FAILURES);
        let mut stored = retries.to_stored().unwrap().to_vec();
        stored[12..].copy_from_slice(&[3, 2]);
        let older = Retries::from_stored(&stored).unwrap();
        assert_eq!((older.failures, older.crashes, older.class), (0, 3, FailureClass::Unavailable));
        assert_eq!((retries.waited(FailureClass::Failed), retries.total()), (SECOND, 3 * DAY + SECOND));
        assert_eq!(Retries::default().to_stored(), None);
        for wrong in [&stored[..13], &[3; 14], &[0; 15]] {
            assert_eq!(Retries::from_stored(wrong), None);
        }
    }

    #[test]
    fn handler_answer_resets_the_crash_count() {
        let crashed = Retries::default().crashed().crashed();
        assert_eq!(crashed.crashes, 2);
        assert_eq!(crashed.after(FailureClass::Unavailable, SECOND).crashes, 0);
    }

    #[test]
    fn only_unavailable_waiting_time_is_inherited_and_can_be_capped() {
        let carried =
            Retries::default().after(FailureClass::Failed, SECOND).after(FailureClass::Unavailable, 3 * DAY).carried();
        assert_eq!(carried, Retries::default().after(FailureClass::Unavailable, 3 * DAY));
        assert_eq!(carried.at_most(DAY).waited(FailureClass::Unavailable), DAY);
    }
}
