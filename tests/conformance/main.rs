//! The in-memory table of model and simulation agrees with DynamoDB: on every write
//! that the project makes, on replies to refused writes, on reads, and on invalid requests.
//!
//! The default is the embedded DynamoDB; see `endpoint` for others. `CONFORMANCE_SKIP` names the rules that
//! an endpoint is known to break, such as `client-tokens` and `size-limits`.

mod endpoint;
mod generate;
mod pair;
mod random;
mod rules;
