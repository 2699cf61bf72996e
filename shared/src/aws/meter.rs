//! Counts requests to DynamoDB and SQS and their consumed capacity, for benchmarks and tests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub struct Meter {
    // Units are counted in halves, because an eventually consistent read costs half a unit.
    write_halves: AtomicU64,
    read_halves: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
    refusals: AtomicU64,
    failures: AtomicU64,
    sends: AtomicU64,
    extensions: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    /// The consumed write units, including those of refused writes.
    pub write_units: f64,
    pub read_units: f64,
    pub writes: u64,
    pub reads: u64,
    pub refusals: u64,
    /// The number of requests that failed for another reason than a failed condition: for example,
    /// they were throttled or got no answer.
    pub failures: u64,
    pub sends: u64,
    /// The number of requests that set the visibility timeout of a batch's messages.
    pub extensions: u64,
}

impl Meter {
    pub(crate) fn wrote(&self, units: f64) {
        self.writes.fetch_add(1, Relaxed);
        self.write_halves.fetch_add((units * 2.0) as u64, Relaxed);
    }

    pub(crate) fn refused(&self, units: u64) {
        self.refusals.fetch_add(1, Relaxed);
        self.write_halves.fetch_add(units * 2, Relaxed);
    }

    pub(crate) fn read(&self, units: f64) {
        self.reads.fetch_add(1, Relaxed);
        self.read_halves.fetch_add((units * 2.0) as u64, Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    pub(crate) fn sent(&self) {
        self.sends.fetch_add(1, Relaxed);
    }

    pub(crate) fn extended(&self) {
        self.extensions.fetch_add(1, Relaxed);
    }

    pub fn reading(&self) -> Reading {
        Reading {
            write_units: self.write_halves.load(Relaxed) as f64 / 2.0,
            read_units: self.read_halves.load(Relaxed) as f64 / 2.0,
            writes: self.writes.load(Relaxed),
            reads: self.reads.load(Relaxed),
            refusals: self.refusals.load(Relaxed),
            failures: self.failures.load(Relaxed),
            sends: self.sends.load(Relaxed),
            extensions: self.extensions.load(Relaxed),
        }
    }
}

impl Reading {
    pub fn requests(&self) -> u64 {
        self.writes + self.reads + self.refusals + self.failures
    }
}

impl std::ops::Sub for Reading {
    type Output = Reading;
    fn sub(self, earlier: Reading) -> Reading {
        Reading {
            write_units: self.write_units - earlier.write_units,
            read_units: self.read_units - earlier.read_units,
            writes: self.writes - earlier.writes,
            reads: self.reads - earlier.reads,
            refusals: self.refusals - earlier.refusals,
            failures: self.failures - earlier.failures,
            sends: self.sends - earlier.sends,
            extensions: self.extensions - earlier.extensions,
        }
    }
}
