//! The inbox of an entity, as operations on its rows: claim a sequence, put the
//! delivery there, void it, settle it, write a receipt that leaves its row, park
//! it.
//!
//! A sequence is decided once: ingest fills it or a worker voids it, by the
//! same put-if-absent; and settled once, under the newest token, strictly one
//! after the other. Pure; `engine/append.rs` and `engine/drain.rs` do it.

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
