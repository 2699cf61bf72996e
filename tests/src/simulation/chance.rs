//! Chance: one seed decides everything, and each decision has a name.
//!
//! A decision is drawn from the seed, the actor that makes it and how many it
//! made before, so that leaving one misfortune out of a run changes no other
//! draw by itself. That is what lets a failing run shrink.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// One thing that a run may leave out: a fault, a delivery, a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Twist {
    /// Whose.
    pub actor: u32,
    /// The actor's how many-eth decision.
    pub number: u32,
}

impl std::fmt::Display for Twist {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.actor, self.number)
    }
}

/// Actors that are no nodes: what happens to whom, by number.
pub mod actor {
    #![expect(missing_docs, reason = "each is the name of an actor")]
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
    /// And the number of the outage.
    pub const OUTAGES: u32 = 900;
    /// And the number of the delivery.
    pub const HANDLER: u32 = 1000;
    /// And the number of the node, times ten.
    pub const NODE: u32 = 100_000;
}

/// One actor's decisions.
#[derive(Debug, Clone)]
pub struct Dice {
    seed: u64,
    actor: u32,
    next: Arc<AtomicU32>,
}

/// One decision's random numbers.
#[derive(Debug, Clone)]
pub struct Roll {
    /// Its name.
    pub twist: Twist,
    random: fastrand::Rng,
}

fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Dice {
    /// The decisions of `actor` in the run of `seed`.
    pub fn new(seed: u64, actor: u32) -> Self {
        Self { seed, actor, next: Arc::default() }
    }

    /// The next one.
    pub fn roll(&self) -> Roll {
        self.at(self.next.fetch_add(1, Relaxed))
    }

    /// A decision of actor `whose` at a time, for what has no number of its own.
    pub fn roll_for(&self, whose: u32, at: std::time::Duration) -> Roll {
        self.at(whose.wrapping_mul(40_000_003).wrapping_add(at.as_millis() as u32))
    }

    /// The decision of that number.
    pub fn at(&self, number: u32) -> Roll {
        let twist = Twist { actor: self.actor, number };
        let seed = mixed(self.seed ^ mixed((u64::from(self.actor) << 32) | u64::from(number)));
        Roll { twist, random: fastrand::Rng::with_seed(seed) }
    }
}

impl Roll {
    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.random.u64(low..=high)
    }

    /// Whether something happens that does so `permille` times in a thousand.
    pub fn happens(&mut self, permille: u64) -> bool {
        self.random.u64(0..1000) < permille
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.random.usize(0..these.len())]
    }

    /// So many milliseconds.
    pub fn millis(&mut self, low: u64, high: u64) -> std::time::Duration {
        std::time::Duration::from_millis(self.between(low, high))
    }
}

/// The twists that a run may have; `None`: all that chance brings.
pub type Allowed = Option<Arc<BTreeSet<Twist>>>;
