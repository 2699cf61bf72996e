//! The table in memory, on which the model and the simulation run, and
//! DynamoDB agree: on every write that the project can make, on what a refusal
//! brings, on reads, and on what is refused as no request at all.
//!
//! By default on the embedded DynamoDB; see `endpoint` for others. What an
//! endpoint is known not to do is left out by name only, in
//! `CONFORMANCE_SKIP`: `client-tokens`, `size-limits`.

mod endpoint;
mod generate;
mod pair;
mod random;
mod rules;
