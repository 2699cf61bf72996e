//! Events, which report each decision to the log and to other observers.
//!
//! `line.rs` renders an event, and `message.rs` has the messages that programs look for. `log.rs` writes the functions'
//! JSON log. `plain.rs` passes events to `tracing` in other programs.
//!
//! An event's own text holds no body, signature or secret, except that a handler's `error` may quote
//! anything. A log must contain neither an event's `error` nor the body of its delivery.

mod event;
mod json;
mod line;
mod log;
mod message;
mod metric;
mod plain;
mod refusals;
#[cfg(all(test, feature = "ingest"))]
mod tests;

use tracing::level_filters::LevelFilter;

pub use event::{Event, RequeueReason, Swept};
pub use log::JsonLog;
pub use message::{IngestRefusal, LogMessage};
pub use metric::{Metric, NAMESPACE, Scope};
pub use plain::TracingLog;

pub trait Observer: std::fmt::Debug + Send + Sync + 'static {
    /// Receives an event. An implementation must return quickly, because its caller waits for it.
    fn observe(&self, event: &Event<'_>);
}

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

/// Logs the error of a Lambda function that cannot start or continue. The runtime prints the error too, but not as
/// JSON, so filters of the log would not match it.
pub fn ended<T, E: std::fmt::Display>(ended: Result<T, E>) -> Result<T, E> {
    ended.inspect_err(|error| tracing::error!(reason = %error, "cannot start"))
}

/// Parses a log level. An invalid text means `INFO`. A level below `DEBUG` is raised to `DEBUG`, because
/// at `TRACE` the AWS clients log requests and replies, which hold webhooks' bodies.
pub fn log_level(text: Option<&str>) -> LevelFilter {
    text.and_then(|text| text.parse().ok()).unwrap_or(LevelFilter::INFO).min(LevelFilter::DEBUG)
}

/// Starts to write `tracing`'s events to standard output as JSON lines. The variable
/// `AWS_LAMBDA_LOG_LEVEL` gives the lowest level that is written.
pub fn init_log() {
    // The default panic hook prints the panic's text, which may quote a body.
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
