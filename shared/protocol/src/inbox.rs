//! Operations on the inbox of an entity, such as claiming a sequence, putting a delivery there, and
//! settling it.
//!
//! Each sequence is filled once, by a put-if-absent, with a delivery or a tombstone. Sequences are
//! settled strictly in order, under the newest fencing token. The operations are pure;
//! `engine/append.rs` and `engine/drain.rs` run them.

mod claim;
mod commit;
mod fail;
mod park;
mod receipt;
mod rewind;
mod settle;
mod skip;

pub use claim::*;
pub use commit::*;
pub use fail::*;
pub use park::*;
pub use receipt::*;
pub use rewind::*;
pub use settle::*;
pub use skip::*;

#[cfg(test)]
mod tests;
