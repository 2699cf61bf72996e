//! Properties of every provider, and of every sample in `events/`.

mod cases;
mod described;
mod properties;
mod rows;
mod samples;
mod senders;
mod vectors;
