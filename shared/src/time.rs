//! The clock and the source of randomness, from the protocol; durations in documents.

pub(crate) mod duration;

pub use webhook_serializer_protocol::time::*;
