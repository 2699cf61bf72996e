//! The table `retry` of a source, with its policy for retries.

use std::time::Duration;

use super::reference::{
    DURATION,
    FieldForm::{Count, Text},
    document_table,
};
use crate::{
    protocol::attempt::{MOST_FAILURES, RetryPolicy},
    time::duration::duration,
};

document_table! {
    /// The [limits of retries](sources.md#attempts). Each class of failures has its own limit for the sum of its waits.
    /// At the limit, the delivery is parked or blocks its order (`on_failure`). `"0s"` gives up at the first failure.
    /// No limit exceeds 30 days or half of the retention.
    #[table("[sources.NAME.retry]")]
    #[derive(Default)]
    pub(super) struct RetryEntry {
        /// The largest number of failed starts, at most 1,000. Starts without an answer, crashes and an unavailable
        /// destination do not count.
        #[field(Count, means("limited by `for`"), example(3))]
        attempts: Option<u32>,
        /// The wait after the first failure of a class. It doubles with each further failure, with jitter over its
        /// upper half.
        #[field(Text(DURATION), default("1s"), example("500ms"))]
        #[serde(default, deserialize_with = "duration")]
        first: Option<Duration>,
        /// The longest wait after a failure. After no answer, it is 15 minutes; for an unavailable destination, five
        /// minutes.
        #[field(Text(DURATION), default("10m"), example("1m 30s"))]
        #[serde(default, deserialize_with = "duration")]
        longest: Option<Duration>,
        /// The limit for failures: the handler returns `retry`, panics, or answers with a status not named below.
        #[field(Text(DURATION), means("`\"1h\"`; with `attempts`, no limit"), example("2h"))]
        #[serde(default, deserialize_with = "duration")]
        r#for: Option<Duration>,
        /// The limit for starts without an answer: a timeout, a broken connection, 502 or 504.
        #[field(Text(DURATION), default("1d"), example("6h"))]
        #[serde(default, deserialize_with = "duration")]
        unanswered_for: Option<Duration>,
        /// The limit for a destination that cannot be reached or has no capacity: no connection, 429 or 503; with
        /// `invoke`, throttling or another error of Lambda.
        #[field(Text(DURATION), default("3d"), example("1d"))]
        #[serde(default, deserialize_with = "duration")]
        unavailable_for: Option<Duration>,
    }
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
        let limits =
            [("for", self.r#for), ("unanswered_for", self.unanswered_for), ("unavailable_for", self.unavailable_for)];
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
            failed_for: self.r#for.unwrap_or(failed_for),
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
