//! Built-in handlers, and a registry of handlers by name.
//!
//! A source chooses its handler by name (`handler = "printer"` in the sources document):
//!
#![cfg_attr(feature = "worker", doc = "```no_run")]
#![cfg_attr(not(feature = "worker"), doc = "```ignore")]
//! use webhook_serializer::{Handler, worker};
//!
//! fn start(printer: impl Handler) -> Result<(), worker::Error> {
//!     // The built-in handlers and one more.
//!     worker::run_with(|setup| Ok(setup.handlers()?.with("printer", printer)))
//! }
//! ```

#[cfg(any(feature = "forward", feature = "invoke"))]
#[doc(hidden)]
pub mod commit;
#[cfg(any(feature = "forward", feature = "invoke"))]
mod document;
pub mod event;
#[cfg(any(feature = "forward", feature = "invoke"))]
mod excerpt;
#[cfg(feature = "worker")]
pub mod fan_out;
#[cfg(feature = "forward")]
pub mod forward;
#[cfg(feature = "invoke")]
pub mod invoke;
pub mod log;
#[cfg(test)]
pub(crate) mod sample;

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    handler::{AnyHandler, Context, Deliveries, Handler, HandlerError, Outcome},
    nearest,
    protocol::delivery::Delivery,
};

/// A registry of handlers by name. A source chooses a handler with `handler = "…"`.
#[derive(Clone, Default)]
pub struct Handlers(BTreeMap<String, Arc<dyn AnyHandler>>);

impl Handlers {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler under a name, and replaces the handler that had this name before.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, handler: impl Handler) -> Self {
        self.0.insert(name.into(), Arc::new(handler));
        self
    }
}

impl Handler for Handlers {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        match self.0.get(context.handler()) {
            Some(handler) => handler.handle(delivery, context).await,
            None => Ok(Outcome::retry(unknown(context.handler(), &Handler::names(self)))),
        }
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        match self.0.get(context.handler()) {
            Some(handler) => handler.handle_all(deliveries, context).await,
            None => Ok(Outcome::retry(unknown(context.handler(), &Handler::names(self)))),
        }
    }

    fn answers_to(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    fn handles_all(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|handler| handler.handles_all(name))
    }

    fn runs_elsewhere(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|handler| handler.runs_elsewhere(name))
    }
}

/// Returns the timeout of a call to a destination. This timeout ends shortly before the handler's own, so
/// that the error can name the destination.
#[cfg(any(feature = "forward", feature = "invoke"))]
fn call_timeout(context: &Context) -> std::time::Duration {
    let time = context.time_left();
    time.saturating_sub(std::time::Duration::from_millis(100).min(time / 10))
}

pub(crate) fn unknown(name: &str, names: &[&str]) -> String {
    let hint = nearest::hint(name, names.iter().copied());
    let list = if names.is_empty() { String::new() } else { format!("; its handlers are {}", names.join(", ")) };
    format!("this worker has no handler `{name}`{hint}{list}")
}

impl std::fmt::Debug for Handlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}
