//! The cost of each path through the protocol, in DynamoDB's request units. Tests assert that the
//! formulas are exact. In all formulas, `b` is the number of write units of a delivery's row.

/// Returns the write units of appending one delivery: one for the claim, and `b` for the delivery's
/// row.
pub const fn append_writes(b: u64) -> u64 {
    b + 1
}

/// Returns the write units of draining `k` deliveries of one entity: one acquire, and one settle
/// for each delivery. The last settle also releases the lease.
pub const fn drain_writes(k: u64) -> u64 {
    k + 1
}

/// Returns the write units of draining `k` deliveries in groups of `m`: one acquire, and one settle
/// for each group.
pub const fn group_drain_writes(k: u64, m: u64) -> u64 {
    drain_writes(k.div_ceil(m))
}

/// Returns the additional write units of `k` receipts that leave their entity's row one at a time: one
/// for each page of receipts. In a backlog, a page has one receipt less than a full row, because it is
/// written beside the settle that fills the row. The row holds `capacity` receipts, at least two.
pub const fn spill_writes(k: u64, capacity: u64) -> u64 {
    k.div_ceil(capacity - 1)
}

/// Returns the read units of a drain. Reading the deliveries costs `page_units`. If receipts have left
/// the entity's row, reading their pages costs `receipt_units`.
pub const fn drain_reads(page_units: u64, receipt_units: u64) -> u64 {
    page_units + receipt_units
}

/// The write units of draining a delivery that arrives during the drain's last handler run: the
/// drain's refused settle-and-release, and the new delivery's own settle.
pub const TRICKLE_WRITES: u64 = 2;

/// Returns the write units of settling one delivery by `commit`. The handler's own writes cost `w`
/// units outside a transaction. A transaction costs twice as much.
pub const fn commit_writes(w: u64) -> u64 {
    2 * (1 + w)
}

/// Returns the write units of draining `k` deliveries of one entity by `commit`: one acquire, and
/// `k` transactions. Each transaction contains `w` units of the handler's writes. The last
/// transaction also releases the lease.
pub const fn commit_drain_writes(k: u64, w: u64) -> u64 {
    1 + k * commit_writes(w)
}

/// Write units of a failed attempt: an acquire and a fail. The first failure of a delivery also takes [`INDEX_WRITES`],
/// and so does the settle of a failed delivery.
pub const FAILED_WRITES: u64 = 2;

/// Returns the write units of a drain that parks one delivery. Parking writes a copy of the
/// delivery's row, which costs `b` units, and the copy's entry in the index of parked deliveries.
pub const fn park_writes(b: u64) -> u64 {
    drain_writes(1) + b + INDEX_WRITES
}

/// Write units of an entry of at most 1 KB that comes into an index or leaves it.
pub const INDEX_WRITES: u64 = 1;

/// Write units of a wake-up for an empty or leased entity: a refused acquire.
pub const FUTILE_WRITES: u64 = 1;

/// Additional write units of a hand-over: the release, and the acquire of the next drain.
pub const SLICE_WRITES: u64 = 2;

/// Additional write units of draining a suspect: a refused acquire before the take-over, and the
/// record of the handler start.
pub const SUSPECT_WRITES: u64 = 2;

/// Write units of postponing a delivery because its source's circuit breaker is open: an acquire
/// and a fail.
pub const BREAKER_WRITES: u64 = 2;

/// Write units of one tick of a job: its start and its completion.
pub const TICK_WRITES: u64 = 2;

/// Additional write units of a tick of the sweep that takes less than ten seconds: the sweep's
/// position is stored once.
pub const SWEEP_WRITES: u64 = 1;

/// Additional read units of a tick of the sweep: the sweep's position and the watched orders are each read once.
pub const SWEEP_READS: u64 = 2;

/// Additional read units of a tick of the job of alerts while nothing is in trouble: the job's record is read once, and
/// a page of each of the three indexes, which costs half a unit.
pub const ALERTS_READS: f64 = 2.5;

/// Read units per job and minute: the scheduler reads the job's row.
pub const JOB_MINUTE_READS: u64 = 1;
