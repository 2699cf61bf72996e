//! Runs one suspect of a batch, after all other drains of the batch.
//!
//! A suspect is a delivery that was in front when a worker died with the entity's lease. If the
//! suspect crashes this process too, no other drain is affected. The batch's other suspects are
//! requeued: they would only occupy the worker while they wait.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::sync::watch;

#[derive(Debug)]
pub struct SuspectGate(watch::Sender<GateState>);

#[derive(Debug, Default)]
struct GateState {
    /// The number of drains that run: they have not ended and do not wait at the gate.
    busy: usize,
    /// The drains that wait at the gate. Each has a pair: the attempts of its suspect, and the
    /// drain's number. The drain with the fewest attempts goes first.
    waiting: BTreeSet<(u32, usize)>,
    /// The suspect that runs in isolation.
    isolated: Option<(u32, usize)>,
    drains: usize,
}

/// A drain's registration at the gate. Dropping the slot tells the gate that the drain has ended.
#[derive(Debug)]
pub(crate) struct DrainSlot<'a> {
    gate: &'a SuspectGate,
    number: usize,
    is_isolated: AtomicBool,
}

/// The answer to a suspect that asks to run in isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Now,
    /// Another suspect of the batch goes first. Requeue this one.
    Later,
}

impl SuspectGate {
    pub fn new(drains: usize) -> Self {
        Self(watch::Sender::new(GateState { busy: drains, ..GateState::default() }))
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

    /// Waits until no other drain of the batch runs. Then the suspect with the fewest `attempts`
    /// gets its turn.
    ///
    /// A delivery that crashes its process gains an attempt each time. So it soon comes after the
    /// deliveries that were suspected by accident.
    pub(crate) async fn isolate(&self, attempts: u32) -> Turn {
        if self.is_isolated.load(Relaxed) {
            return Turn::Now;
        }
        let mut batch = self.gate.0.subscribe();
        let ticket = (attempts, self.number);
        let waiting = GateWait::enter(&self.gate.0, ticket);
        let is_decided = batch.wait_for(|batch| batch.isolated.is_some() || batch.busy == 0);
        drop(is_decided.await.expect("the sender is borrowed"));
        self.gate.0.send_modify(|batch| {
            let first = batch.waiting.first().copied();
            batch.isolated = batch.isolated.or(first);
        });
        let is_first = batch.borrow().isolated == Some(ticket);
        drop(waiting);
        self.is_isolated.store(is_first, Relaxed);
        if is_first { Turn::Now } else { Turn::Later }
    }
}

/// A drain that waits at the gate. Dropping this value marks the drain as busy again.
struct GateWait<'a>(&'a watch::Sender<GateState>, (u32, usize));

impl<'a> GateWait<'a> {
    fn enter(batch: &'a watch::Sender<GateState>, ticket: (u32, usize)) -> Self {
        batch.send_modify(|batch| {
            batch.busy -= 1;
            batch.waiting.insert(ticket);
        });
        Self(batch, ticket)
    }
}

impl Drop for GateWait<'_> {
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
