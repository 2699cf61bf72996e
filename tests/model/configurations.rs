//! Configurations in which the protocol holds, each with its number of states.

use webhook_serializer::sources::deliver::Deliver::{Latest, UpTo};

use crate::protocol::Protocol;

/// One exploration of the unchanged protocol.
pub struct Configuration {
    pub name: &'static str,
    /// The number of unique states.
    pub states: usize,
    pub model: Protocol,
}

/// `model!(two { workers: 2 } may { take_overs: 1 })` is two deliveries, two workers, and at most one
/// take-over.
macro_rules! model {
    ($base:ident { $($field:ident: $value:expr),* } may { $($event:ident: $times:expr),* }) => {
        $crate::protocol::Protocol {
            $($field: $value,)*
            budget: $crate::state::EventBudget { $($event: $times,)* ..Default::default() },
            ..$base()
        }
    };
}
pub(crate) use model;

macro_rules! configurations {
    ($($name:literal $states:literal $base:ident $fields:tt may $budget:tt;)*) => {
        vec![$(Configuration { name: $name, states: $states, model: model!($base $fields may $budget) }),*]
    };
}

/// Returns a protocol with one delivery.
pub fn one() -> Protocol {
    Protocol::default()
}

/// Returns a protocol with two deliveries.
pub fn two() -> Protocol {
    Protocol { arrivals: &[0, 1], ..one() }
}

/// Returns a protocol with three deliveries.
fn three() -> Protocol {
    Protocol { arrivals: &[0, 1, 2], ..one() }
}

/// Returns a protocol with a delivery and its repeat.
pub fn repeated() -> Protocol {
    Protocol { arrivals: &[0, 0], ..one() }
}

/// Returns a protocol with two deliveries and a repeat of the first.
pub fn with_repeat() -> Protocol {
    Protocol { arrivals: &[0, 1, 0], ..one() }
}

/// Returns a protocol with three deliveries and a repeat of the first.
fn three_with_repeat() -> Protocol {
    Protocol { arrivals: &[0, 1, 2, 0], ..one() }
}

/// Returns the configurations of fewer than 100,000 states. `cargo test` explores those below `QUICK`.
#[rustfmt::skip]
pub fn small() -> Vec<Configuration> {
    configurations! {
        "slow and fast clocks" 2_457 two { workers: 2 } may { take_overs: 1 };
        "crashes and copies" 10_451 one { workers: 2 }
            may { ingest_crashes: 1, worker_crashes: 1, copies: 1, take_overs: 1 };
        "a stray copy and crashes" 39_449 two { stray: true }
            may { ingest_crashes: 1, worker_crashes: 1, take_overs: 1 };
        "a message that may be visible again, and crashes" 35_480 two { stray: true, may_be_back: true }
            may { ingest_crashes: 1, worker_crashes: 1, take_overs: 1 };
        "lost replies" 26_355 two {} may { lost_replies: 1, voids: 1, take_overs: 1 };
        "failures and late effects" 3_686 two {} may { failures: 1, timeouts: 1, take_overs: 1 };
        "parked and redriven twice" 7_904 one {}
            may { rejections: 1, redrives: 2, worker_crashes: 1, ingest_crashes: 1, take_overs: 1 };
        "blocked and unblocked while others drain" 2_273 one { workers: 2, attempts: 1, block: true }
            may { failures: 1, expiries: 1, unblocks: 2, take_overs: 1 };
        "a repeat and a crashing worker" 19_730 repeated {}
            may { worker_crashes: 1, take_overs: 1, lost_replies: 1 };
        "commits" 7_950 one { workers: 2, commit: true }
            may { lost_replies: 1, take_overs: 1, rejections: 1, failures: 1, forced_releases: 1 };
        "an exclusive holder" 31_751 two {} may { exclusive_leases: 1, exclusive_crashes: 1, take_overs: 1 };
        "ends of time and of leases" 1_198 one { workers: 2 }
            may { overruns: 1, forced_releases: 1, renewals: 1, take_overs: 1 };
        "purged and created again" 2_396 repeated { workers: 2 } may { purges: 1, take_overs: 1 };
        "slices and an outage" 93_465 two { workers: 2 } may { slices: 1, outages: 1, worker_crashes: 1 };
        "slices, copies and ingest crashes" 19_991 two { workers: 2 }
            may { slices: 1, copies: 1, ingest_crashes: 1 };
        "a poison delivery and its recorded starts" 19_407 one {}
            may { worker_crashes: 3, take_overs: 3, lost_replies: 1 };
        "room for one receipt, a repeat and an outage" 72_814 with_repeat { capacity: 1 } may { outages: 1 };
        "room for one receipt, one page, and a repeat" 134_706 with_repeat { capacity: 1, receipt_pages: 1 } may { rewinds: 1 };
        "room for two receipts, and three deliveries" 4_400 three { capacity: 2 } may {};
        "room for one receipt, commits and lost replies" 1_903 two { capacity: 1, commit: true }
            may { lost_replies: 1, take_overs: 1 };
        "an exclusive holder and a purged row" 8_689 repeated {} may { exclusive_leases: 1, purges: 1 };
        "failing groups of two and a crashing worker" 17_516 two { deliver: UpTo(2) }
            may { failures: 1, worker_crashes: 1, take_overs: 1 };
        "groups rejected, parked and redriven" 10_729 two { deliver: UpTo(2) }
            may { rejections: 2, redrives: 1, ingest_crashes: 1 };
        "groups of three with a repeat" 11_044 with_repeat { deliver: UpTo(3) } may {};
        "groups as large as the room for receipts, and an outage" 29_371 three { deliver: UpTo(3), capacity: 2 }
            may { outages: 1 };
        "committed groups and lost replies" 5_130 two { deliver: UpTo(2), commit: true }
            may { lost_replies: 1, take_overs: 1, failures: 1 };
        "groups before a tombstone" 60_853 three { deliver: UpTo(3) } may { voids: 1 };
        "groups with late effects" 1_577 two { deliver: UpTo(2) } may { timeouts: 1, take_overs: 1 };
        "a failing latest delivery and a crashing worker" 33_373 two { deliver: Latest }
            may { failures: 2, worker_crashes: 1, take_overs: 1 };
        "the latest of three, committed or rejected" 13_739 three { deliver: Latest, commit: true }
            may { rejections: 1 };
        "held and resumed, late writes and a purged row" 7_645 one {} may { holds: 2, late_writes: 1, purges: 1 };
        "held during a drain, crashes and lost replies" 39_810 one {}
            may { holds: 1, lost_replies: 1, worker_crashes: 1, ingest_crashes: 1, take_overs: 1 };
        "held between two commits" 29_977 two { commit: true } may { holds: 1, lost_replies: 1 };
        "held, and a crashing exclusive holder" 13_500 one {}
            may { holds: 1, exclusive_leases: 1, exclusive_crashes: 1, take_overs: 1 };
        "blocked and skipped by a crashing operator" 144_208 two { attempts: 1, block: true }
            may { failures: 1, skips: 1, lost_replies: 1, ingest_crashes: 1, take_overs: 1 };
        "skipped during a retry, redriven, and late writes" 4_351 one {}
            may { failures: 1, skips: 1, redrives: 1, late_writes: 1, take_overs: 1 };
        "skipped on hold while others arrive" 39_787 two {} may { holds: 1, skips: 1 };
        "rewound by a crashing operator" 91_862 two {}
            may { rewinds: 1, lost_replies: 1, ingest_crashes: 1, take_overs: 1 };
        "rewound twice, a crashing worker and late writes" 8_814 one {}
            may { rewinds: 2, worker_crashes: 1, late_writes: 1, take_overs: 1 };
        "rewound again during a rewind" 26_646 two {} may { rewinds: 2, failures: 1 };
        "rewound past a parked delivery and redriven" 929 one { attempts: 1 }
            may { rewinds: 2, failures: 1, redrives: 1 };
        "rewound with a repeat and room for one receipt" 134_706 with_repeat { capacity: 1 } may { rewinds: 1 };
        "rewound twice, with room for one receipt" 3_984 two { capacity: 1 } may { rewinds: 2 };
        "rewound and ended early" 168_625 two {}
            may { rewinds: 1, rewind_ends: 1, ingest_crashes: 1, lost_replies: 1 };
        "rewound groups and an exclusive holder" 96_214 two { deliver: UpTo(2) }
            may { rewinds: 1, exclusive_leases: 1 };
        "a rewound latest delivery that fails" 6_454 two { deliver: Latest } may { rewinds: 1, failures: 1 };
        "commits rewound on hold, and a purged row" 1_001 one { commit: true } may { rewinds: 1, holds: 1, purges: 1 };
        "a rate limit" 16_147 two { rated: true } may { ingest_crashes: 1, worker_crashes: 1, take_overs: 1 };
    }
}

/// Returns the configurations that take minutes to explore.
#[rustfmt::skip]
pub fn large() -> Vec<Configuration> {
    configurations! {
        "crashes, copies and clocks, two deliveries" 1_284_423 two { workers: 2 }
            may { ingest_crashes: 1, worker_crashes: 1, copies: 1, take_overs: 1 };
        "lost replies, two deliveries" 86_128 two { workers: 2 } may { lost_replies: 2, take_overs: 1 };
        "failures and late effects, two deliveries" 107_945 two { workers: 2 }
            may { failures: 1, timeouts: 1, take_overs: 1 };
        "commits, repeats and a crashing worker" 7_991_580 with_repeat { workers: 2, commit: true }
            may { worker_crashes: 1, take_overs: 1 };
        "an exclusive holder between two workers" 412_759 two { workers: 2 }
            may { exclusive_leases: 1, exclusive_crashes: 1, take_overs: 1 };
        "three deliveries and tombstones" 170_521 three { workers: 2 } may { voids: 1 };
        "three deliveries and fast clocks" 176_173 three { workers: 2 } may { take_overs: 1 };
        "slices, outages, crashes and clocks" 945_680 two { workers: 2 }
            may { slices: 1, outages: 1, worker_crashes: 1, take_overs: 1 };
        "room for one receipt, repeats, outages and a crashing worker" 591_066 with_repeat { capacity: 1 }
            may { worker_crashes: 1, outages: 1 };
        "room for two receipts, three deliveries and a repeat" 689_424 three_with_repeat { capacity: 2 } may {};
        "room for one receipt, and slow clocks" 616_809 with_repeat { workers: 2, capacity: 1 }
            may { take_overs: 1 };
        "groups before a tombstone, and late effects" 480_554 three { deliver: UpTo(3) }
            may { voids: 1, timeouts: 1 };
        "groups, crashes, failures and clocks" 440_022 two { workers: 2, deliver: UpTo(2) }
            may { failures: 1, worker_crashes: 1, take_overs: 1 };
        "groups of three, repeats and a crashing worker" 77_296 with_repeat { deliver: UpTo(3) }
            may { worker_crashes: 1 };
        "the latest of three, failures and clocks" 60_596 three { deliver: Latest }
            may { failures: 2, take_overs: 1 };
        "two lost leases" 10_038 two { workers: 2 } may { take_overs: 2, renewals: 1 };
    }
}
