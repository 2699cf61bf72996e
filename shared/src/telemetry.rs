//! What is told about each decision, once: to the log, and to whoever else
//! watches.
//!
//! What an event says is put together in one place (`line.rs`); the functions'
//! log (`log.rs`) and that of other programs (`plain.rs`) write it down.
//!
//! No body, signature or secret is in an event's own words; observers must not
//! take them from a delivery either.

mod event;
mod json;
mod line;
mod log;
mod metric;
mod plain;
#[cfg(feature = "ingest")]
mod refusals;
#[cfg(all(test, feature = "ingest"))]
mod tests;

use tracing::level_filters::LevelFilter;

#[cfg(feature = "ingest")]
pub use event::Refusal;
pub use event::{Event, RequeueReason, Swept};
pub use log::JsonLog;
pub use metric::{Metric, NAMESPACE, Scope};
pub use plain::Log;

/// Somebody who watches.
pub trait Observer: std::fmt::Debug + Send + Sync + 'static {
    /// Takes notice. Called in the middle of the work: be quick.
    fn observe(&self, event: &Event<'_>);
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Observer for Quiet {
    fn observe(&self, _: &Event<'_>) {}
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn observe(&self, event: &Event<'_>) {
        self.0.observe(event);
        self.1.observe(event);
    }
}

impl Observer for std::sync::Arc<dyn Observer> {
    fn observe(&self, event: &Event<'_>) {
        (**self).observe(event);
    }
}

/// Logs, where a function cannot start or go on, why not: what it prints besides
/// is no JSON, which filters of the log pass over.
pub fn ended<T, E: std::fmt::Display>(ended: Result<T, E>) -> Result<T, E> {
    ended.inspect_err(|error| tracing::error!(reason = %error, "cannot start"))
}

/// The level that the text names, `INFO` where it names none; `DEBUG` at most:
/// below it the AWS clients log what they send and receive, bodies of webhooks
/// among it.
pub fn log_level(text: Option<&str>) -> LevelFilter {
    text.and_then(|text| text.parse().ok()).unwrap_or(LevelFilter::INFO).min(LevelFilter::DEBUG)
}

/// Writes the log to standard output as one JSON object a line, from the level
/// that `AWS_LAMBDA_LOG_LEVEL` names on, as [`log_level`] reads it.
pub fn init_log() {
    // The default hook prints the panic's own text, which may quote a body.
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(at, "panicked");
    }));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_target(false)
        .with_max_level(log_level(std::env::var("AWS_LAMBDA_LOG_LEVEL").ok().as_deref()))
        .init();
}
