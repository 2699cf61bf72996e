//! Random decisions. Each is drawn from the seed, its actor and its number.
//!
//! Leaving out one decision of a run changes no other decision, so that a failing run can shrink.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DecisionId {
    pub actor: u32,
    pub number: u32,
}

impl std::fmt::Display for DecisionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.actor, self.number)
    }
}

pub mod actor {
    pub const PROFILE: u32 = 1;
    pub const DELIVERIES: u32 = 2;
    pub const EXCLUSIVE: u32 = 3;
    pub const OPERATOR: u32 = 4;
    pub const SWEEP: u32 = 5;
    pub const PURGE: u32 = 6;
    pub const QUEUE: u32 = 7;
    pub const JOBS: u32 = 8;
    pub const ERASER: u32 = 9;
    pub const HIDING: u32 = 10;
    pub const LOSS: u32 = 11;
    pub const UNWELL: u32 = 12;
    /// The actor of an outage is this number plus the outage's number.
    pub const OUTAGES: u32 = 900;
    /// The actor of a delivery's handler is this number plus the delivery's number.
    pub const HANDLER: u32 = 1000;
    /// The first actor of a node is this number plus ten times the node's number.
    pub const NODE: u32 = 100_000;
}

#[derive(Debug, Clone)]
pub struct RandomStream {
    seed: u64,
    actor: u32,
    next: Arc<AtomicU32>,
}

#[derive(Debug, Clone)]
pub struct Draw {
    pub id: DecisionId,
    random: fastrand::Rng,
}

fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl RandomStream {
    pub fn new(seed: u64, actor: u32) -> Self {
        Self { seed, actor, next: Arc::default() }
    }

    pub fn draw(&self) -> Draw {
        self.at(self.next.fetch_add(1, Relaxed))
    }

    /// Draws a decision about `whose` at the time `at`. The decision's number is computed from both, instead
    /// of counted.
    pub fn draw_for(&self, whose: u32, at: std::time::Duration) -> Draw {
        self.at(whose.wrapping_mul(40_000_003).wrapping_add(at.as_millis() as u32))
    }

    pub fn at(&self, number: u32) -> Draw {
        let decision = DecisionId { actor: self.actor, number };
        let seed = mixed(self.seed ^ mixed((u64::from(self.actor) << 32) | u64::from(number)));
        Draw { id: decision, random: fastrand::Rng::with_seed(seed) }
    }
}

impl Draw {
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.random.u64(low..=high)
    }

    pub fn happens(&mut self, permille: u64) -> bool {
        self.random.u64(0..1000) < permille
    }

    pub fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.random.usize(0..these.len())]
    }

    pub fn millis(&mut self, low: u64, high: u64) -> std::time::Duration {
        std::time::Duration::from_millis(self.between(low, high))
    }
}

pub type Allowed = Option<Arc<BTreeSet<DecisionId>>>;
