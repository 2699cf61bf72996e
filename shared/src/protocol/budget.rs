//! What each path costs, as formulas: the tests assert that they are exact,
//! `serializer cost` multiplies them. `b` is the write units of a delivery row.

/// Write units of appending one delivery: claim and put.
pub const fn append_writes(b: u64) -> u64 {
    b + 1
}

/// Write units of draining `k` deliveries of one entity: acquire, then a settle
/// of each; the last one releases.
pub const fn drain_writes(k: u64) -> u64 {
    k + 1
}

/// The same where each start is about `m` of them, and the last about the rest:
/// one settle for each start.
pub const fn group_drain_writes(k: u64, m: u64) -> u64 {
    drain_writes(k.div_ceil(m))
}

/// Write units, besides, of each receipt that has no room in its entity's row
/// any more.
pub const SPILL_WRITES: u64 = 1;

/// Read units of draining `k` deliveries whose pages are `page_units` long: a
/// look-up for each receipt, where some have left the entity's row.
pub const fn drain_reads(k: u64, page_units: u64, has_spilled: bool) -> u64 {
    page_units + if has_spilled { k } else { 0 }
}

/// Write units of a delivery that trickles in during a drain, behind what was
/// its last: its settle, and the refused settle-and-release in front of it.
pub const TRICKLE_WRITES: u64 = 2;

/// Write units of settling by `commit` with `w` units of the handler's own:
/// settle and writes count twice in a transaction.
pub const fn commit_writes(w: u64) -> u64 {
    2 * (1 + w)
}

/// Write units of draining `k` deliveries of one entity, each by a `commit` with
/// `w` units of the handler's own: acquire, then the commits; the last one
/// releases.
pub const fn commit_drain_writes(k: u64, w: u64) -> u64 {
    1 + k * commit_writes(w)
}

/// Write units of a failed attempt: acquire, then fail.
pub const FAILED_WRITES: u64 = 2;

/// Write units of draining a delivery that is parked: it is written once more.
pub const fn park_writes(b: u64) -> u64 {
    drain_writes(1) + b
}

/// Write units of a wake-up for nothing: of an empty entity, or of one that
/// another drains. A refused acquire.
pub const FUTILE_WRITES: u64 = 1;

/// Write units, besides, of a slice's end: the hand-over, and the next drain's
/// acquire.
pub const SLICE_WRITES: u64 = 2;

/// Write units of a suspect's drain, besides: a refused acquire before the lease
/// is taken over, and the start that is written down.
pub const SUSPECT_WRITES: u64 = 2;

/// Write units of putting a delivery off because its source is held back:
/// acquire, then hand over.
pub const HELD_BACK_WRITES: u64 = 2;

/// Write units of a tick that is run: started, and recorded.
pub const TICK_WRITES: u64 = 2;

/// Of the sweep's tick, besides: how far it came, where it takes less than ten
/// seconds.
pub const SWEEP_WRITES: u64 = 1;

/// Reads of the sweep's tick, besides, for where it goes on.
pub const SWEEP_READS: u64 = 1;

/// Read units of each job each minute: its row.
pub const JOB_MINUTE_READS: u64 = 1;
