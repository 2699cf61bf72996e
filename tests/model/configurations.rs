//! Where the protocol holds: what happens in each configuration, and how many
//! states that comes to.

use webhook_serializer::sources::deliver::Deliver;

use crate::{protocol::Protocol, state::Budget};

/// One exploration of the protocol as it is.
pub struct Configuration {
    pub name: &'static str,
    /// Unique states, from end to end.
    pub states: usize,
    pub model: Protocol,
}

/// The configurations of less than 100,000 states; `cargo test` explores those below `QUICK`.
pub fn small() -> Vec<Configuration> {
    let b = Budget::default();
    let one = || Protocol { arrivals: &[0], ..Protocol::default() };
    let two = || Protocol { arrivals: &[0, 1], ..Protocol::default() };
    let of = |name, states, model| Configuration { name, states, model };
    vec![
        of("slow and early clocks", 2_457, Protocol { workers: 2, budget: Budget { take_overs: 1, ..b }, ..two() }),
        of(
            "crashes and copies",
            10_451,
            Protocol {
                workers: 2,
                budget: Budget { ingest_crashes: 1, worker_crashes: 1, copies: 1, take_overs: 1, ..b },
                ..one()
            },
        ),
        of(
            "a stray copy and crashes",
            39449,
            Protocol {
                stray: true,
                budget: Budget { ingest_crashes: 1, worker_crashes: 1, take_overs: 1, ..b },
                ..two()
            },
        ),
        of(
            "a message that may have come back, and crashes",
            35480,
            Protocol {
                stray: true,
                may_be_back: true,
                budget: Budget { ingest_crashes: 1, worker_crashes: 1, take_overs: 1, ..b },
                ..two()
            },
        ),
        of(
            "lost replies",
            26355,
            Protocol { budget: Budget { lost_replies: 1, voids: 1, take_overs: 1, ..b }, ..two() },
        ),
        of(
            "handlers that fail and come late",
            3_686,
            Protocol { budget: Budget { failures: 1, timeouts: 1, take_overs: 1, ..b }, ..two() },
        ),
        of(
            "parked and put back twice",
            7904,
            Protocol {
                budget: Budget { rejections: 1, redrives: 2, worker_crashes: 1, ingest_crashes: 1, take_overs: 1, ..b },
                ..one()
            },
        ),
        of(
            "blocked and unblocked while others drain",
            2273,
            Protocol {
                workers: 2,
                attempts: 1,
                block: true,
                budget: Budget { failures: 1, expiries: 1, unblocks: 2, take_overs: 1, ..b },
                ..one()
            },
        ),
        of(
            "a repeat and a dying worker",
            18087,
            Protocol {
                arrivals: &[0, 0],
                budget: Budget { worker_crashes: 1, take_overs: 1, lost_replies: 1, ..b },
                ..one()
            },
        ),
        of(
            "commits",
            6_172,
            Protocol {
                workers: 2,
                commit: true,
                budget: Budget { lost_replies: 1, take_overs: 1, rejections: 1, failures: 1, forced: 1, ..b },
                ..one()
            },
        ),
        of(
            "an exclusive holder",
            22946,
            Protocol { budget: Budget { visits: 1, visitor_crashes: 1, take_overs: 1, ..b }, ..two() },
        ),
        of(
            "ends of time and of leases",
            1_198,
            Protocol {
                workers: 2,
                budget: Budget { overruns: 1, forced: 1, renewals: 1, take_overs: 1, ..b },
                ..one()
            },
        ),
        of(
            "purged and made anew",
            2_396,
            Protocol { arrivals: &[0, 0], workers: 2, budget: Budget { purges: 1, take_overs: 1, ..b }, ..one() },
        ),
        of(
            "slices, and a store that is out",
            93465,
            Protocol { workers: 2, budget: Budget { slices: 1, outages: 1, worker_crashes: 1, ..b }, ..two() },
        ),
        of(
            "slices, copies and ingests that die",
            19991,
            Protocol { workers: 2, budget: Budget { slices: 1, copies: 1, ingest_crashes: 1, ..b }, ..two() },
        ),
        of(
            "a killer, and what is written of its starts",
            11052,
            Protocol { workers: 1, budget: Budget { worker_crashes: 3, take_overs: 3, lost_replies: 1, ..b }, ..one() },
        ),
        of(
            "a row that remembers one place, a repeat, and a store that is out",
            71776,
            Protocol { arrivals: &[0, 1, 0], capacity: 1, budget: Budget { outages: 1, ..b }, ..one() },
        ),
        of(
            "a row that remembers two places, and three deliveries",
            4151,
            Protocol { arrivals: &[0, 1, 2], capacity: 2, ..one() },
        ),
        of(
            "a row that remembers one place, commits and lost replies",
            1900,
            Protocol {
                arrivals: &[0, 1],
                capacity: 1,
                commit: true,
                budget: Budget { lost_replies: 1, take_overs: 1, ..b },
                ..one()
            },
        ),
        of(
            "an exclusive holder, and a row that is purged",
            6842,
            Protocol { arrivals: &[0, 0], budget: Budget { visits: 1, purges: 1, ..b }, ..one() },
        ),
        of(
            "groups of two that fail, and a dying worker",
            17_516,
            Protocol {
                deliver: Deliver::UpTo(2),
                budget: Budget { failures: 1, worker_crashes: 1, take_overs: 1, ..b },
                ..two()
            },
        ),
        of(
            "groups that are rejected, parked and put back",
            10_729,
            Protocol {
                deliver: Deliver::UpTo(2),
                budget: Budget { rejections: 2, redrives: 1, ingest_crashes: 1, ..b },
                ..two()
            },
        ),
        of(
            "groups of three, and a repeat among them",
            11044,
            Protocol { arrivals: &[0, 1, 0], deliver: Deliver::UpTo(3), ..one() },
        ),
        of(
            "groups as large as what the row remembers, and a store that is out",
            28417,
            Protocol {
                arrivals: &[0, 1, 2],
                deliver: Deliver::UpTo(3),
                capacity: 2,
                budget: Budget { outages: 1, ..b },
                ..one()
            },
        ),
        of(
            "groups that are committed, and lost replies",
            5_130,
            Protocol {
                deliver: Deliver::UpTo(2),
                commit: true,
                budget: Budget { lost_replies: 1, take_overs: 1, failures: 1, ..b },
                ..two()
            },
        ),
        of(
            "groups that end at a place given up",
            60853,
            Protocol { arrivals: &[0, 1, 2], deliver: Deliver::UpTo(3), budget: Budget { voids: 1, ..b }, ..one() },
        ),
        of(
            "groups whose effects come late",
            1_577,
            Protocol { deliver: Deliver::UpTo(2), budget: Budget { timeouts: 1, take_overs: 1, ..b }, ..two() },
        ),
        of(
            "the latest, which fails, and a dying worker",
            33_373,
            Protocol {
                deliver: Deliver::Latest,
                budget: Budget { failures: 2, worker_crashes: 1, take_overs: 1, ..b },
                ..two()
            },
        ),
        of(
            "the latest of three, committed or rejected",
            13_739,
            Protocol {
                arrivals: &[0, 1, 2],
                deliver: Deliver::Latest,
                commit: true,
                budget: Budget { rejections: 1, ..b },
                ..one()
            },
        ),
        of(
            "put on hold and resumed, writes that come late, and a row that is purged",
            7645,
            Protocol { budget: Budget { holds: 2, late_writes: 1, purges: 1, ..b }, ..one() },
        ),
        of(
            "put on hold while a worker drains, crashes and lost replies",
            36482,
            Protocol {
                budget: Budget { holds: 1, lost_replies: 1, worker_crashes: 1, ingest_crashes: 1, take_overs: 1, ..b },
                ..one()
            },
        ),
        of(
            "put on hold between two commits",
            29977,
            Protocol { commit: true, budget: Budget { holds: 1, lost_replies: 1, ..b }, ..two() },
        ),
        of(
            "put on hold, and a visitor who dies",
            9131,
            Protocol { budget: Budget { holds: 1, visits: 1, visitor_crashes: 1, take_overs: 1, ..b }, ..one() },
        ),
        of(
            "blocked and skipped, the operator dying",
            92518,
            Protocol {
                attempts: 1,
                block: true,
                budget: Budget { failures: 1, skips: 1, lost_replies: 1, ingest_crashes: 1, take_overs: 1, ..b },
                ..two()
            },
        ),
        of(
            "skipped while it is tried again, put back, and writes that come late",
            3_276,
            Protocol {
                budget: Budget { failures: 1, skips: 1, redrives: 1, late_writes: 1, take_overs: 1, ..b },
                ..one()
            },
        ),
        of(
            "skipped on hold, while others arrive",
            24968,
            Protocol { budget: Budget { holds: 1, skips: 1, ..b }, ..two() },
        ),
        of(
            "run again, the operator dying",
            57630,
            Protocol { budget: Budget { rewinds: 1, lost_replies: 1, ingest_crashes: 1, take_overs: 1, ..b }, ..two() },
        ),
        of(
            "run again twice, a dying worker, and writes that come late",
            4081,
            Protocol { budget: Budget { rewinds: 2, worker_crashes: 1, late_writes: 1, take_overs: 1, ..b }, ..one() },
        ),
        of(
            "set back further while it is run again",
            16_189,
            Protocol { budget: Budget { rewinds: 2, failures: 1, ..b }, ..two() },
        ),
        of(
            "run again where one was parked, and put back",
            665,
            Protocol { attempts: 1, budget: Budget { rewinds: 2, failures: 1, redrives: 1, ..b }, ..one() },
        ),
        of(
            "run again beside a repeat, by a row that remembers one place",
            84442,
            Protocol { arrivals: &[0, 1, 0], capacity: 1, budget: Budget { rewinds: 1, ..b }, ..one() },
        ),
        of(
            "run again, and ended early",
            85218,
            Protocol {
                budget: Budget { rewinds: 1, rewind_ends: 1, ingest_crashes: 1, lost_replies: 1, ..b },
                ..two()
            },
        ),
        of(
            "groups that are run again, and a visitor",
            56173,
            Protocol { deliver: Deliver::UpTo(2), budget: Budget { rewinds: 1, visits: 1, ..b }, ..two() },
        ),
        of(
            "the latest that is run again, and fails",
            4_360,
            Protocol { deliver: Deliver::Latest, budget: Budget { rewinds: 1, failures: 1, ..b }, ..two() },
        ),
        of(
            "commits that are run again on hold, a row purged",
            708,
            Protocol { commit: true, budget: Budget { rewinds: 1, holds: 1, purges: 1, ..b }, ..one() },
        ),
        of(
            "a rate",
            16147,
            Protocol {
                rated: true,
                budget: Budget { ingest_crashes: 1, worker_crashes: 1, take_overs: 1, ..b },
                ..two()
            },
        ),
    ]
}

/// Those that take minutes.
pub fn large() -> Vec<Configuration> {
    let b = Budget::default();
    let two = || Protocol { arrivals: &[0, 1], workers: 2, ..Protocol::default() };
    let of = |name, states, model| Configuration { name, states, model };
    vec![
        of(
            "crashes, copies and clocks, two deliveries",
            1284423,
            Protocol {
                budget: Budget { ingest_crashes: 1, worker_crashes: 1, copies: 1, take_overs: 1, ..b },
                ..two()
            },
        ),
        of(
            "lost replies, two deliveries",
            67844,
            Protocol { budget: Budget { lost_replies: 2, take_overs: 1, ..b }, ..two() },
        ),
        of(
            "failures and late effects, two deliveries",
            107945,
            Protocol { budget: Budget { failures: 1, timeouts: 1, take_overs: 1, ..b }, ..two() },
        ),
        of(
            "commits, repeats and a dying worker",
            7991580,
            Protocol {
                arrivals: &[0, 1, 0],
                commit: true,
                budget: Budget { worker_crashes: 1, take_overs: 1, ..b },
                ..two()
            },
        ),
        of(
            "an exclusive holder between two workers",
            251495,
            Protocol { budget: Budget { visits: 1, visitor_crashes: 1, take_overs: 1, ..b }, ..two() },
        ),
        of(
            "three deliveries, places given up",
            170521,
            Protocol { arrivals: &[0, 1, 2], budget: Budget { voids: 1, ..b }, ..two() },
        ),
        of(
            "three deliveries, early clocks",
            176173,
            Protocol { arrivals: &[0, 1, 2], budget: Budget { take_overs: 1, ..b }, ..two() },
        ),
        of(
            "slices, outages, crashes and clocks",
            945680,
            Protocol { budget: Budget { slices: 1, outages: 1, worker_crashes: 1, take_overs: 1, ..b }, ..two() },
        ),
        of(
            "a row that remembers one place, repeats, outages and a dying worker",
            583497,
            Protocol {
                arrivals: &[0, 1, 0],
                capacity: 1,
                workers: 1,
                budget: Budget { worker_crashes: 1, outages: 1, ..b },
                ..two()
            },
        ),
        of(
            "a row that remembers two places, three deliveries and a repeat",
            602719,
            Protocol { arrivals: &[0, 1, 2, 0], capacity: 2, workers: 1, ..two() },
        ),
        of(
            "a row that remembers one place, and late clocks",
            616432,
            Protocol { arrivals: &[0, 1, 0], capacity: 1, budget: Budget { take_overs: 1, ..b }, ..two() },
        ),
        of(
            "groups that end at a place given up, and late effects",
            480554,
            Protocol {
                arrivals: &[0, 1, 2],
                deliver: Deliver::UpTo(3),
                workers: 1,
                budget: Budget { voids: 1, timeouts: 1, ..b },
                ..two()
            },
        ),
        of(
            "groups, crashes, failures and clocks",
            440022,
            Protocol {
                deliver: Deliver::UpTo(2),
                budget: Budget { failures: 1, worker_crashes: 1, take_overs: 1, ..b },
                ..two()
            },
        ),
        of(
            "groups of three, repeats and a dying worker",
            77296,
            Protocol {
                arrivals: &[0, 1, 0],
                deliver: Deliver::UpTo(3),
                workers: 1,
                budget: Budget { worker_crashes: 1, ..b },
                ..two()
            },
        ),
        of(
            "the latest of three, failures and clocks",
            60596,
            Protocol {
                arrivals: &[0, 1, 2],
                deliver: Deliver::Latest,
                workers: 1,
                budget: Budget { failures: 2, take_overs: 1, ..b },
                ..two()
            },
        ),
        of("two lost leases", 10038, Protocol { budget: Budget { take_overs: 2, renewals: 1, ..b }, ..two() }),
    ]
}
