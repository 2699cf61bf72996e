//! The clock and the source of randomness, from the protocol; durations in documents; pauses between tries.

pub(crate) mod backoff;
pub(crate) mod duration;

pub use webhook_serializer_protocol::time::*;
