//! Runs suspects one at a time, after the rest of their batch, so that they take no
//! other drain down with them. A suspect is a delivery whose last holder died with it.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::sync::watch;

/// Lets one suspect of a batch run at a time.
#[derive(Debug)]
pub struct SuspectGate(watch::Sender<Batch>);

#[derive(Debug, Default)]
struct Batch {
    /// Drains that have neither ended nor wait at the gate.
    busy: usize,
    /// The attempts and the numbers of the drains at the gate.
    waiting: BTreeSet<(u32, usize)>,
    drains: usize,
}

/// A drain of the batch. Suspects wait until it is dropped.
#[derive(Debug)]
pub(crate) struct DrainSlot<'a> {
    gate: &'a SuspectGate,
    number: usize,
    is_isolated: AtomicBool,
}

impl SuspectGate {
    /// Creates a gate for a batch of `drains`, all busy at first.
    pub fn new(drains: usize) -> Self {
        Self(watch::Sender::new(Batch { busy: drains, ..Batch::default() }))
    }

    pub(crate) fn slot(&self) -> DrainSlot<'_> {
        let mut number = 0;
        self.0.send_modify(|batch| {
            batch.drains += 1;
            number = batch.drains;
        });
        DrainSlot { gate: self, number, is_isolated: AtomicBool::new(false) }
    }
}

impl DrainSlot<'_> {
    pub(crate) fn is_isolated(&self) -> bool {
        self.is_isolated.load(Relaxed)
    }

    /// Waits until every other drain of the batch has ended or waits here too; those
    /// then wait until this slot is dropped. The fewest `attempts` go first: a delivery
    /// that kills its process each time soon comes after those that were only near it.
    pub(crate) async fn isolate(&self, attempts: u32) {
        if self.is_isolated.load(Relaxed) {
            return;
        }
        let mut batch = self.gate.0.subscribe();
        let ticket = (attempts, self.number);
        let _waiting = Waiting::enter(&self.gate.0, ticket);
        let turn = batch.wait_for(|batch| batch.busy == 0 && batch.waiting.first() == Some(&ticket));
        turn.await.expect("the sender is borrowed");
        self.is_isolated.store(true, Relaxed);
    }
}

/// A drain at the gate; it counts as busy again once dropped.
struct Waiting<'a>(&'a watch::Sender<Batch>, (u32, usize));

impl<'a> Waiting<'a> {
    fn enter(batch: &'a watch::Sender<Batch>, ticket: (u32, usize)) -> Self {
        batch.send_modify(|batch| {
            batch.busy -= 1;
            batch.waiting.insert(ticket);
        });
        Self(batch, ticket)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|batch| {
            batch.busy += 1;
            batch.waiting.remove(&self.1);
        });
    }
}

impl Drop for DrainSlot<'_> {
    fn drop(&mut self) {
        self.gate.0.send_modify(|batch| batch.busy -= 1);
    }
}
