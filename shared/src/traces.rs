//! One trace for each delivery, by OpenTelemetry, where the feature `otel` is on and
//! the environment names a collector ([docs/traces.md](../../docs/traces.md)).
//!
//! ```text
//! POST /webhooks/shopify          its parent: the request's traceparent, or none
//! ├ verify
//! ├ append
//! └ process shopify               in the worker; linked to `drain`, a trace of its own
//!   ├ run orders                  what the handler sees, `forward` and `invoke` pass on
//!   └ settle
//! ```
//!
//! The door's span goes with the delivery, in its row or its deferred message
//! ([`Trace`](crate::protocol::trace::Trace)). What is under way is OpenTelemetry's current context: whoever
//! appends or sends asks for it ([`current`]), and a handler's own spans come beneath its
//! run.
//!
//! Nothing here can fail, nor change what is answered or decided. Spans tell what the
//! log tells: no body, no secret, no signature, and no error's text, which may quote one. A
//! request that is not believed makes no span: whoever can reach the door could fill a
//! trace store with them.
//!
//! Without the feature each of these types is empty and each function does nothing.

#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
mod lane;
#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod span;

#[cfg(feature = "otel")]
pub use export::{begin, flush, invoked};
#[cfg(feature = "otel")]
pub use lane::Lane;
#[cfg(not(feature = "otel"))]
pub use off::*;
#[cfg(feature = "otel")]
pub use span::{Door, current, kept, taken_up};

/// How the write of a decision ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It stands.
    Stands,
    /// It does not: the store has refused it, or it was not written at all.
    Refused,
    /// Whoever has the lease now decides.
    Lost,
    /// Nobody knows.
    InDoubt,
}
