//! OpenTelemetry traces, one for each delivery, with the feature `otel` and a collector in
//! the environment ([docs/traces.md](../../docs/traces.md)).
//!
//! ```text
//! POST /webhooks/shopify          its parent: the request's traceparent, or none
//! ├ verify
//! ├ append
//! └ process shopify               in the worker; linked to `drain`, a separate trace
//!   ├ run log                     the handler; `forward` and `invoke` pass this span on
//!   └ settle
//! ```
//!
//! The first span's ids are stored with the delivery, in its row or deferred message
//! ([`Trace`](crate::protocol::trace::Trace)). Within a process, spans are passed on as
//! OpenTelemetry's current context ([`current`]), so a handler's own spans become children of
//! its run.
//!
//! Tracing never fails and changes no answer or decision. Like the log, spans hold no body, secret or
//! signature, and no error text, which may quote a body. Requests that fail verification make no span:
//! otherwise anybody could fill a trace store.
//!
//! Without the feature, the types are empty and the functions do nothing.

#[cfg(feature = "otel")]
mod drain;
#[cfg(feature = "otel")]
mod export;
#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod span;

#[cfg(feature = "otel")]
pub use drain::DrainSpans;
#[cfg(feature = "otel")]
pub use export::{begin, flush, invoked};
#[cfg(not(feature = "otel"))]
pub use off::*;
#[cfg(feature = "otel")]
pub use span::{ReceivedRequest, append_deferred, append_message, current, in_current_context};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    Stands,
    /// The store refused the write, or the write was not sent.
    Refused,
    /// Another holder has the lease, so the decision was not written.
    Lost,
    /// The store's reply was lost, so the write may have happened.
    InDoubt,
}
