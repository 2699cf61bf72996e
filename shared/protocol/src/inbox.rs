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

pub use claim::{Claim, Claimed, Put, PutOutcome, Void, Voided, owes_wake_up};
pub use commit::{Commit, Committed, Settling};
pub use fail::{Block, Fail, Failed, MarkStart, Marked, RetryNow, Retrying, Unblock, Unblocked};
pub use park::Park;
pub use receipt::Spill;
pub use rewind::{Rewind, Rewound};
pub use settle::{Decision, Settle, SettleAndRelease, Settled, SettledAndReleased};
pub use skip::{Skip, Skipped};

#[cfg(test)]
mod tests;
