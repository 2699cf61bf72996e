//! What holds for every provider, and for every sample in `events/`.

mod properties;
mod samples;
#[cfg(feature = "ingest")]
mod vectors;
