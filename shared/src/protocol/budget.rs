//! The cost of each path in DynamoDB's request units. Tests assert that the formulas
//! are exact. `b` is the write units of a delivery row.

/// Returns the write units of appending one delivery: claim and put.
pub const fn append_writes(b: u64) -> u64 {
    b + 1
}

/// Returns the write units of draining `k` deliveries of one entity: acquire, then one settle
/// each; the last one releases.
pub const fn drain_writes(k: u64) -> u64 {
    k + 1
}

/// Returns the write units of draining `k` deliveries in groups of `m`: one settle per group.
pub const fn group_drain_writes(k: u64, m: u64) -> u64 {
    drain_writes(k.div_ceil(m))
}

/// Additional write units of each receipt that leaves its entity's row.
pub const SPILL_WRITES: u64 = 1;

/// Returns the read units of draining `k` deliveries whose pages cost `page_units`. If receipts
/// have left the entity's row, each delivery needs a look-up.
pub const fn drain_reads(k: u64, page_units: u64, has_spilled: bool) -> u64 {
    page_units + if has_spilled { k } else { 0 }
}

/// Write units of a delivery that arrives during the last start of a drain: its
/// settle, and the refused settle-and-release before it.
pub const TRICKLE_WRITES: u64 = 2;

/// Returns the write units of settling by `commit` with `w` units of the handler's
/// writes. A transaction costs twice its writes.
pub const fn commit_writes(w: u64) -> u64 {
    2 * (1 + w)
}

/// Returns the write units of draining `k` deliveries of one entity: one acquire and `k`
/// commits, each with `w` units of the handler's writes. The last commit releases.
pub const fn commit_drain_writes(k: u64, w: u64) -> u64 {
    1 + k * commit_writes(w)
}

/// Write units of a failed attempt: acquire, then fail.
pub const FAILED_WRITES: u64 = 2;

/// Returns the write units of draining a delivery that is parked, which writes a copy.
pub const fn park_writes(b: u64) -> u64 {
    drain_writes(1) + b
}

/// Write units of a wake-up of an empty or held entity: a refused acquire.
pub const FUTILE_WRITES: u64 = 1;

/// Additional write units of a hand-over: the release, and the next drain's acquire.
pub const SLICE_WRITES: u64 = 2;

/// Additional write units of draining a suspect: a refused acquire before the
/// take-over, and the record of the start.
pub const SUSPECT_WRITES: u64 = 2;

/// Write units of delaying a delivery because its source's breaker is open: acquire,
/// then hand over.
pub const BREAKER_WRITES: u64 = 2;

/// Write units of a tick: start and record.
pub const TICK_WRITES: u64 = 2;

/// Additional write units of the sweep's tick, for its position, if it takes less
/// than ten seconds.
pub const SWEEP_WRITES: u64 = 1;

/// Additional read units of the sweep's tick, for its position.
pub const SWEEP_READS: u64 = 1;

/// Read units per job and minute: its row.
pub const JOB_MINUTE_READS: u64 = 1;
