//! Runs suspects one at a time, after all other drains of their batch.
//!
//! A suspect is a delivery that was in front when a worker died with the entity's lease. If the
//! suspect crashes this process too, no other drain is affected.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::sync::watch;

#[derive(Debug)]
pub struct SuspectGate(watch::Sender<Batch>);

#[derive(Debug, Default)]
struct Batch {
    /// The number of drains that run: they have not ended and do not wait at the gate.
    busy: usize,
    /// The drains that wait at the gate. Each has a pair: the attempts of its suspect, and the
    /// drain's number. The drain with the fewest attempts goes first.
    waiting: BTreeSet<(u32, usize)>,
    drains: usize,
}

/// A drain's registration at the gate. Dropping the slot tells the gate that the drain has ended.
#[derive(Debug)]
pub(crate) struct DrainSlot<'a> {
    gate: &'a SuspectGate,
    number: usize,
    is_isolated: AtomicBool,
}

impl SuspectGate {
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

    /// Waits until no other drain of the batch runs. Other suspects then wait until this slot is
    /// dropped.
    ///
    /// The suspect with the fewest `attempts` goes first. A delivery that crashes its process gains
    /// an attempt each time. So it soon comes after the deliveries that were suspected by accident.
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

/// A drain that waits at the gate. Dropping this value marks the drain as busy again.
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
