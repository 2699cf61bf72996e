//! What holds for every provider, and for every sample in `events/`.

mod cases;
mod described;
mod properties;
mod rows;
mod samples;
mod senders;
mod vectors;
