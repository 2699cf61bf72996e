//! What follows a failed attempt: when to try again, and when to give up.

use std::time::Duration;

/// How often a delivery is tried, and how long between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts, at least 1.
    pub attempts: u32,
    /// The wait behind the first failure; each further one doubles it.
    pub first: Duration,
    /// No wait is longer.
    pub longest: Duration,
}

/// The longest wait that a handler may ask for, unless its source's own waits
/// are longer: the entity's later deliveries wait behind this one, and so that
/// somebody hears of it the day after.
pub const LONGEST_ASKED: Duration = Duration::from_secs(86_400);

impl Default for RetryPolicy {
    /// Eight attempts over about two minutes: long enough for a deployment or a
    /// fail-over behind the handler, short enough that a person hears of the
    /// rest the same hour.
    fn default() -> Self {
        Self { attempts: 8, first: Duration::from_secs(1), longest: Duration::from_secs(300) }
    }
}

/// What is done with a delivery that used up its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Set it aside and go on with the next.
    #[default]
    Park,
    /// Stop the entity until an operator looks.
    Block,
}

/// What is to be done after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Try again after this wait.
    Retry(Duration),
    /// Give up, as the source says.
    GiveUp(OnFailure),
}

impl RetryPolicy {
    /// After failure number `attempts`. The wait is what the handler asked for,
    /// where it did, cut to [`LONGEST_ASKED`]; else it doubles from failure to failure. `fraction`
    /// (0.0 to 1.0) spreads the waits over the upper half of their length.
    pub fn after(&self, attempts: u32, asked: Option<Duration>, on_failure: OnFailure, fraction: f64) -> Next {
        if attempts >= self.attempts {
            return Next::GiveUp(on_failure);
        }
        if let Some(asked) = asked {
            return Next::Retry(asked.min(LONGEST_ASKED.max(self.longest)));
        }
        let doublings = attempts.saturating_sub(1).min(30);
        let full = self.first.saturating_mul(1 << doublings).min(self.longest);
        Next::Retry(full.mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let policy = RetryPolicy { attempts: 20, first: Duration::from_secs(1), longest: Duration::from_secs(10) };
        let waits: Vec<Next> = (1..=5).map(|n| policy.after(n, None, OnFailure::Park, 1.0)).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10].map(|seconds| Next::Retry(Duration::from_secs(seconds))));
    }

    #[test]
    fn the_last_attempt_gives_up_as_the_source_says() {
        let policy = RetryPolicy { attempts: 2, ..RetryPolicy::default() };
        assert!(matches!(policy.after(1, None, OnFailure::Block, 0.0), Next::Retry(_)));
        assert_eq!(policy.after(2, None, OnFailure::Block, 0.0), Next::GiveUp(OnFailure::Block));
    }

    #[test]
    fn a_wait_that_the_handler_asks_for_is_kept() {
        let asked = Some(Duration::from_secs(77));
        assert_eq!(RetryPolicy::default().after(1, asked, OnFailure::Park, 0.3), Next::Retry(Duration::from_secs(77)));
    }

    #[test]
    fn a_handler_cannot_hold_an_entity_up_for_longer_than_a_day_or_its_source_s_longest_wait() {
        let after = |policy: RetryPolicy, asked| policy.after(1, Some(asked), OnFailure::Park, 0.3);
        let policy = RetryPolicy::default();
        assert_eq!(after(policy, LONGEST_ASKED), Next::Retry(LONGEST_ASKED));
        assert_eq!(after(policy, LONGEST_ASKED + Duration::from_secs(1)), Next::Retry(LONGEST_ASKED));
        assert_eq!(after(policy, Duration::MAX), Next::Retry(LONGEST_ASKED));
        let slow = RetryPolicy { longest: 2 * LONGEST_ASKED, ..policy };
        assert_eq!(after(slow, Duration::MAX), Next::Retry(2 * LONGEST_ASKED));
    }

    #[test]
    fn huge_attempt_numbers_do_not_overflow() {
        let policy = RetryPolicy { attempts: u32::MAX, ..RetryPolicy::default() };
        assert_eq!(policy.after(u32::MAX - 1, None, OnFailure::Park, 1.0), Next::Retry(policy.longest));
    }
}
