//! The table `retry` of a source, with its policy for retries.

use std::time::Duration;

use serde::Deserialize;

use crate::{
    protocol::attempt::{MOST_FAILURES, RetryPolicy},
    time::duration::duration,
};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryEntry {
    attempts: Option<u32>,
    #[serde(default, deserialize_with = "duration")]
    first: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    longest: Option<Duration>,
    #[serde(default, rename = "for", deserialize_with = "duration")]
    failed_for: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    unanswered_for: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    unavailable_for: Option<Duration>,
}

/// The greatest value of `for`, `unanswered_for` and `unavailable_for`. It equals the default
/// retention of rows.
pub const LONGEST_RETRIED: Duration = Duration::from_secs(30 * 86_400);

impl RetryEntry {
    pub(super) fn check(&self) -> Result<RetryPolicy, String> {
        let allowed = |attempts| u16::try_from(attempts).ok().filter(|attempts| (1..=MOST_FAILURES).contains(attempts));
        let attempts = match self.attempts {
            Some(attempts) => Some(allowed(attempts).ok_or("`retry.attempts` must be from 1 to 1000")?),
            None => None,
        };
        let limits = [
            ("for", self.failed_for),
            ("unanswered_for", self.unanswered_for),
            ("unavailable_for", self.unavailable_for),
        ];
        if let Some((name, _)) = limits.iter().find(|(_, limit)| *limit > Some(LONGEST_RETRIED)) {
            return Err(format!("`retry.{name}` must be at most 30d"));
        }
        let default = RetryPolicy::default();
        // If the number of attempts is given, the default time limit does not apply.
        let failed_for = if self.attempts.is_some() { Duration::MAX } else { default.failed_for };
        Ok(RetryPolicy {
            attempts,
            first: self.first.unwrap_or(default.first),
            longest: self.longest.unwrap_or(default.longest),
            failed_for: self.failed_for.unwrap_or(failed_for),
            unanswered_for: self.unanswered_for.unwrap_or(default.unanswered_for),
            unavailable_for: self.unavailable_for.unwrap_or(default.unavailable_for),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::shop;

    fn policy(retry: &str) -> Result<RetryPolicy, String> {
        shop(&format!("retry = {{ {retry} }}")).map(|shop| shop.retry)
    }

    #[test]
    fn attempts_limit_replaces_the_default_time_limit() {
        let hour = Duration::from_secs(3_600);
        let failed = |retry| policy(retry).map(|policy| (policy.attempts, policy.failed_for)).unwrap();
        assert_eq!(policy(""), Ok(RetryPolicy::default()));
        assert_eq!(failed("attempts = 3"), (Some(3), Duration::MAX));
        assert_eq!(failed("attempts = 3, for = '2h'"), (Some(3), 2 * hour));
        assert_eq!(failed("for = '0s'"), (None, Duration::ZERO));
    }

    #[test]
    fn retry_limit_above_thirty_days_is_refused() {
        for name in ["for", "unanswered_for", "unavailable_for"] {
            assert!(policy(&format!("{name} = '30d'")).is_ok());
            let refused = policy(&format!("{name} = '31d'")).unwrap_err();
            assert_eq!(refused, format!("source `shop`: `retry.{name}` must be at most 30d"));
        }
    }

    #[test]
    fn attempts_outside_one_to_thousand_are_refused() {
        for (attempts, is_allowed) in [(0, false), (1, true), (1000, true), (1001, false), (70_000, false)] {
            let policy = policy(&format!("attempts = {attempts}"));
            assert_eq!(
                policy.map(|policy| policy.attempts),
                match is_allowed {
                    true => Ok(Some(attempts as u16)),
                    false => Err("source `shop`: `retry.attempts` must be from 1 to 1000".into()),
                }
            );
        }
    }
}
