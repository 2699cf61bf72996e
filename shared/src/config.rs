//! The configuration of a function, which is read from the environment and validated once.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use futures_util::future::{BoxFuture, ready};

use crate::{
    engine::drain::{DrainSettings, MARGIN, MARK_TIMEOUT},
    sources::{self, PATIENCE, Sources, SourcesDocument},
    time::Timestamp,
};

/// The error for an environment variable that is missing or invalid.
#[derive(thiserror::Error, PartialEq, Eq)]
#[error("{variable}: {reason}")]
pub struct InvalidConfig {
    variable: String,
    reason: String,
}

/// Prints the message, because `main` prints a returned error with `Debug`.
impl fmt::Debug for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl InvalidConfig {
    /// Creates an error that says why the environment variable `variable` is invalid.
    pub fn new(variable: &str, reason: impl Into<String>) -> Self {
        Self { variable: variable.to_owned(), reason: reason.into() }
    }
}

pub trait Variables {
    /// Returns the value of the variable `name`, or `None` if the variable is unset or empty.
    fn value(&self, name: &str) -> Option<String>;
}

#[derive(Debug, Clone, Copy)]
pub struct Environment;

impl Variables for Environment {
    fn value(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }
}

impl Variables for BTreeMap<String, String> {
    fn value(&self, name: &str) -> Option<String> {
        self.get(name).filter(|value| !value.is_empty()).cloned()
    }
}

impl Variables for &[(&str, &str)] {
    fn value(&self, name: &str) -> Option<String> {
        self.iter().find(|(held, _)| *held == name).map(|(_, value)| (*value).to_owned())
    }
}

pub fn instance_name(variables: &impl Variables) -> String {
    let part = |name| variables.value(name).unwrap_or_default();
    format!("{} {}", part("AWS_LAMBDA_FUNCTION_NAME"), part("AWS_LAMBDA_LOG_STREAM_NAME"))
}

pub(crate) fn needed(variables: &impl Variables, name: &str) -> Result<String, InvalidConfig> {
    variables.value(name).ok_or_else(|| InvalidConfig::new(name, "is not set"))
}

fn number(
    variables: &impl Variables,
    name: &str,
    default: u64,
    allowed: std::ops::RangeInclusive<u64>,
) -> Result<u64, InvalidConfig> {
    let Some(text) = variables.value(name) else { return Ok(default) };
    text.parse().ok().filter(|number| allowed.contains(number)).ok_or_else(|| {
        let (from, to) = (allowed.start(), allowed.end());
        InvalidConfig::new(name, format!("{text:?} is not a whole number from {from} to {to}"))
    })
}

fn seconds(
    variables: &impl Variables,
    name: &str,
    default: u64,
    allowed: std::ops::RangeInclusive<u64>,
) -> Result<Duration, InvalidConfig> {
    number(variables, name, default, allowed).map(Duration::from_secs)
}

/// Reads the variable `FAIR_QUEUE`, which is `false` by default.
pub fn fair_queue(variables: &impl Variables) -> Result<bool, InvalidConfig> {
    match variables.value("FAIR_QUEUE").as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(InvalidConfig::new("FAIR_QUEUE", format!("{other:?} is neither true nor false"))),
    }
}

/// The retention of deliveries and receipts, in days, unless `RETENTION_DAYS` sets another.
pub const DEFAULT_RETENTION_DAYS: u64 = 30;

/// The longest retention, in days, of deliveries, receipts and parked deliveries.
pub const MAX_RETENTION_DAYS: u64 = 3650;

pub const DEFAULT_RETENTION: Duration = Duration::from_secs(86_400 * DEFAULT_RETENTION_DAYS);

pub(crate) fn retention(variables: &impl Variables) -> Result<Duration, InvalidConfig> {
    Ok(Duration::from_secs(
        86_400 * number(variables, "RETENTION_DAYS", DEFAULT_RETENTION_DAYS, 1..=MAX_RETENTION_DAYS)?,
    ))
}

/// Converts a number of days to the retention of parked deliveries. Returns `None`, which means no limit,
/// for 0 days.
pub fn parked_retention(days: u64) -> Option<Duration> {
    (days > 0).then(|| Duration::from_secs(86_400 * days))
}

pub fn detailed_metrics(variables: &impl Variables) -> bool {
    variables.value("DETAILED_METRICS").as_deref() == Some("on")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    pub entities_table: String,
    pub inbox_table: String,
    pub queue_url: String,
    /// The variable `FAIR_QUEUE`, `true` or by default `false`. If true, messages are sent as
    /// [`fair`](crate::aws::sqs::SqsQueue::fair) describes.
    pub fair_queue: bool,
    /// The variable `RETENTION_DAYS`, by default 30. A delivery is kept this long after it was appended,
    /// and longer while it waits. A receipt is kept this long after its delivery was settled.
    pub retention: Duration,
    /// The variable `PARKED_RETENTION_DAYS`. The default 0 becomes `None`: a parked delivery is kept
    /// until an operator redrives or discards it.
    pub parked_retention: Option<Duration>,
}

impl StoreConfig {
    pub fn read(variables: &impl Variables) -> Result<Self, InvalidConfig> {
        Ok(Self {
            entities_table: needed(variables, "ENTITIES_TABLE")?,
            inbox_table: needed(variables, "INBOX_TABLE")?,
            queue_url: needed(variables, "QUEUE_URL")?,
            fair_queue: fair_queue(variables)?,
            retention: retention(variables)?,
            parked_retention: parked_retention(number(variables, "PARKED_RETENTION_DAYS", 0, 0..=MAX_RETENTION_DAYS)?),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcesOrigin {
    /// The path of a file, for local runs. The variable `SOURCES` holds `file:PATH`.
    File(PathBuf),
    /// The name of a parameter in SSM Parameter Store.
    Parameter(String),
    /// The ARN of a secret in Secrets Manager.
    Secret(String),
}

impl SourcesOrigin {
    pub const VARIABLE: &str = "SOURCES";

    pub fn read(variables: &impl Variables) -> Result<Self, InvalidConfig> {
        needed(variables, Self::VARIABLE).map(Self::from)
    }
}

impl From<String> for SourcesOrigin {
    fn from(text: String) -> Self {
        match text.strip_prefix("file:") {
            Some(path) => Self::File(path.into()),
            None if text.starts_with("arn:") => Self::Secret(text),
            None => Self::Parameter(text),
        }
    }
}

impl fmt::Display for SourcesOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Parameter(name) | Self::Secret(name) => f.write_str(name),
        }
    }
}

#[derive(Debug, Clone)]
pub struct FileDocument(pub PathBuf);

impl SourcesDocument for FileDocument {
    fn read(&self) -> BoxFuture<'_, Result<String, String>> {
        let read = std::fs::read(&self.0).map_err(|error| error.to_string()).and_then(sources::text);
        Box::pin(ready(read.map_err(|error| format!("{} cannot be read: {error}", self.0.display()))))
    }

    /// Returns how long reads of the file are retried. An editor may remove the file for a moment while it
    /// saves, so the retries take longer than that moment.
    fn patience(&self) -> Duration {
        3 * PATIENCE
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// The variable `LEASE_SECONDS`, by default 15. With this default, another worker replaces a dead one
    /// within seconds, and a slow handler costs one renewal every five seconds.
    pub lease: Duration,
    pub function_timeout: Duration,
    pub visibility_timeout: Duration,
}

pub fn scheduler_time(variables: &impl Variables) -> Result<Duration, InvalidConfig> {
    seconds(variables, "FUNCTION_TIMEOUT_SECONDS", 60, 10..=900)
}

/// The maximum number of orders' rows that the sweep reads in one minute, to bound its cost. The sweep of
/// a table with more than 180 times as many rows takes longer than three hours.
pub const SWEEP_ROWS: u64 = 100_000;

/// Returns the shortest function timeout in which a drain can put a tombstone at a sequence that was claimed and never
/// written. The timeout is the sum of the wait for the missing delivery, two seconds for the last read and the
/// tombstone, and [`MARGIN`].
fn least_function_time() -> Duration {
    DrainSettings::default().gap + MARGIN + Duration::from_secs(2)
}

impl WorkerConfig {
    pub fn read(variables: &impl Variables, sources: &Sources) -> Result<Self, InvalidConfig> {
        let config = Self {
            lease: seconds(variables, "LEASE_SECONDS", 15, 1..=900)?,
            function_timeout: seconds(variables, "FUNCTION_TIMEOUT_SECONDS", 60, 1..=900)?,
            visibility_timeout: seconds(variables, "VISIBILITY_TIMEOUT_SECONDS", 90, 1..=43_200)?,
        };
        if config.lease >= config.function_timeout {
            return Err(InvalidConfig::new("LEASE_SECONDS", "must be less than FUNCTION_TIMEOUT_SECONDS"));
        }
        if config.function_timeout >= config.visibility_timeout {
            let reason = "must be less than VISIBILITY_TIMEOUT_SECONDS";
            return Err(InvalidConfig::new("FUNCTION_TIMEOUT_SECONDS", reason));
        }
        let least = least_function_time();
        if config.function_timeout < least {
            let reason = format!(
                "must be at least {} s: otherwise no worker could fill an empty sequence with a tombstone",
                least.as_secs()
            );
            return Err(InvalidConfig::new("FUNCTION_TIMEOUT_SECONDS", reason));
        }
        for source in sources.iter() {
            // Recording a start takes time as well. If that time were not subtracted, a
            // delivery could be handed over for ever.
            let besides = MARK_TIMEOUT + MARGIN;
            if source.handler_timeout + besides >= config.function_timeout {
                let name = &source.name;
                let most = config.function_timeout.saturating_sub(besides);
                let reason = format!(
                    "leaves source `{name}` no time for its handler: handler_timeout must be less than {} s",
                    most.as_secs()
                );
                return Err(InvalidConfig::new("FUNCTION_TIMEOUT_SECONDS", reason));
            }
        }
        Ok(config)
    }

    pub fn drain_settings(&self, store: &StoreConfig) -> DrainSettings {
        DrainSettings {
            lease: self.lease,
            retention: store.retention,
            parked_retention: store.parked_retention,
            ..DrainSettings::default()
        }
    }
}

/// Returns the time at which an invocation that begins at `now` must end: the runtime's deadline or, if that is in the
/// past, `now` plus `function_timeout`. `cargo lambda watch` sends a deadline in 1970.
pub fn deadline(from_runtime: Timestamp, now: Timestamp, function_timeout: Duration) -> Timestamp {
    if from_runtime > now { from_runtime } else { now + function_timeout }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Sources {
        Sources::parse(
            "[sources.shop]\nprovider='shopify'\nsecrets=['q7mZ4kT1']\nhandler='orders'\nhandler_timeout='20s'",
        )
        .unwrap()
    }

    fn refused<const N: usize>(variables: [(&str, &str); N]) -> String {
        WorkerConfig::read(&variables.as_slice(), &sources()).unwrap_err().to_string()
    }

    #[test]
    fn config_error_from_main_names_variable_and_reason() {
        let refused = InvalidConfig::new("INBOX_TABLE", "is not set");
        assert_eq!(format!("Error: {refused:?}"), "Error: INBOX_TABLE: is not set");
    }

    #[test]
    fn timeouts_must_ascend_from_lease_to_function_to_visibility() {
        assert_eq!(refused([("LEASE_SECONDS", "60")]), "LEASE_SECONDS: must be less than FUNCTION_TIMEOUT_SECONDS");
        assert_eq!(
            refused([("FUNCTION_TIMEOUT_SECONDS", "90")]),
            "FUNCTION_TIMEOUT_SECONDS: must be less than VISIBILITY_TIMEOUT_SECONDS"
        );
    }

    #[test]
    fn function_timeout_too_short_for_tombstones_is_refused() {
        let sources = Sources::default();
        let read = |time| {
            WorkerConfig::read(&[("FUNCTION_TIMEOUT_SECONDS", time), ("LEASE_SECONDS", "1")].as_slice(), &sources)
        };
        read("7").unwrap();
        let refused = read("6").unwrap_err().to_string();
        assert!(refused.starts_with("FUNCTION_TIMEOUT_SECONDS: must be at least 7 s"), "{refused}");
    }

    /// Promise: handler times fit into the worker's.
    #[test]
    fn function_timeout_too_short_for_handler_is_refused() {
        assert_eq!(
            refused([("FUNCTION_TIMEOUT_SECONDS", "24")]),
            "FUNCTION_TIMEOUT_SECONDS: leaves source `shop` no time for its handler: handler_timeout must be less than 20 s"
        );
    }

    #[test]
    fn sources_variable_selects_file_or_parameter_or_secret() {
        let read = |text: &str| SourcesOrigin::read(&[("SOURCES", text)].as_slice()).unwrap();
        let arn = "arn:aws:secretsmanager:eu-central-1:1:secret:s";
        assert_eq!(read("file:a.toml"), SourcesOrigin::File("a.toml".into()));
        assert_eq!(read("/shop/sources"), SourcesOrigin::Parameter("/shop/sources".into()));
        assert_eq!(read(arn), SourcesOrigin::Secret(arn.into()));
        for text in ["file:/tmp/a.toml", "/shop/sources", arn] {
            assert_eq!(read(text).to_string(), text);
        }
        let missing = SourcesOrigin::read(&[].as_slice()).unwrap_err().to_string();
        assert_eq!(missing, "SOURCES: is not set");
    }

    #[test]
    fn deadline_in_the_past_is_replaced_by_function_timeout() {
        let config = WorkerConfig::read(&[].as_slice(), &sources()).unwrap();
        let now = Timestamp::from_millis(1_767_621_602_614);
        let told = now + Duration::from_secs(7);
        assert_eq!(deadline(told, now, config.function_timeout), told);
        let of_1970 = Timestamp::from_millis(600_000);
        assert_eq!(deadline(of_1970, now, config.function_timeout), now + Duration::from_secs(60));
    }

    #[test]
    fn variables_set_lease_length_poll_time_and_retentions_of_drains() {
        let variables = [
            ("ENTITIES_TABLE", "entities"),
            ("INBOX_TABLE", "inbox"),
            ("QUEUE_URL", "queue"),
            ("LEASE_SECONDS", "7"),
            ("RETENTION_DAYS", "40"),
            ("PARKED_RETENTION_DAYS", "50"),
        ];
        let store = StoreConfig::read(&variables.as_slice()).unwrap();
        let worker = WorkerConfig::read(&variables.as_slice(), &sources()).unwrap();
        let expected = DrainSettings {
            lease: Duration::from_secs(7),
            retention: Duration::from_secs(40 * 86_400),
            parked_retention: Some(Duration::from_secs(50 * 86_400)),
            ..DrainSettings::default()
        };
        assert_eq!(worker.drain_settings(&store), expected);
    }

    #[test]
    fn fair_queue_is_off_unless_true() {
        let read = |value: &str| {
            let variables = [("ENTITIES_TABLE", "e"), ("INBOX_TABLE", "i"), ("QUEUE_URL", "q"), ("FAIR_QUEUE", value)];
            StoreConfig::read(&variables.as_slice()).map(|config| config.fair_queue).map_err(|error| error.to_string())
        };
        assert_eq!((read("true"), read("false")), (Ok(true), Ok(false)));
        assert_eq!(read("on"), Err("FAIR_QUEUE: \"on\" is neither true nor false".to_owned()));
        let unset = [("ENTITIES_TABLE", "e"), ("INBOX_TABLE", "i"), ("QUEUE_URL", "q")];
        assert!(!StoreConfig::read(&unset.as_slice()).unwrap().fair_queue);
    }

    #[test]
    fn error_on_invalid_number_names_the_variable() {
        assert_eq!(refused([("LEASE_SECONDS", "soon")]), "LEASE_SECONDS: \"soon\" is not a whole number from 1 to 900");
        let missing = StoreConfig::read(&[("ENTITIES_TABLE", "e")].as_slice()).unwrap_err();
        assert_eq!(missing.to_string(), "INBOX_TABLE: is not set");
    }
}
