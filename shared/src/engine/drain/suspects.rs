//! Suspects: deliveries whose last holder died with them. They run alone, after
//! the rest of their batch, so that they take nobody with them.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::sync::watch;

/// One batch's waiting room.
#[derive(Debug)]
pub struct SuspectGate(watch::Sender<Room>);

#[derive(Debug, Default)]
struct Room {
    /// How many drains of the batch are neither done nor waiting here.
    busy: usize,
    /// Who waits: how often it was charged, and its number.
    waiting: BTreeSet<(u32, usize)>,
    drains: usize,
}

/// A drain that others' suspects wait for, until it is dropped.
#[derive(Debug)]
pub(crate) struct DrainSlot<'a> {
    gate: &'a SuspectGate,
    number: usize,
    is_alone: AtomicBool,
}

impl SuspectGate {
    /// For a batch of `drains`, all of which count as busy from now on.
    pub fn new(drains: usize) -> Self {
        Self(watch::Sender::new(Room { busy: drains, ..Room::default() }))
    }

    /// One of the batch's drains.
    pub(crate) fn slot(&self) -> DrainSlot<'_> {
        let mut number = 0;
        self.0.send_modify(|room| {
            room.drains += 1;
            number = room.drains;
        });
        DrainSlot { gate: self, number, is_alone: AtomicBool::new(false) }
    }
}

impl DrainSlot<'_> {
    /// Whether it runs alone already.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone.load(Relaxed)
    }

    /// Waits until every other drain of the batch is done or waits here too.
    /// From then on the others wait, until this one is dropped. Those charged
    /// least go first: a delivery that kills its process each time is soon
    /// behind all that only happened to be near it.
    pub(crate) async fn alone(&self, charged: u32) {
        if self.is_alone.load(Relaxed) {
            return;
        }
        let mut room = self.gate.0.subscribe();
        let me = (charged, self.number);
        let _waiting = Waiting::enter(&self.gate.0, me);
        let turn = room.wait_for(|room| room.busy == 0 && room.waiting.first() == Some(&me));
        turn.await.expect("the sender is borrowed");
        self.is_alone.store(true, Relaxed);
    }
}

/// A place in the room. Its drain counts as busy again however the wait ends.
struct Waiting<'a>(&'a watch::Sender<Room>, (u32, usize));

impl<'a> Waiting<'a> {
    fn enter(room: &'a watch::Sender<Room>, me: (u32, usize)) -> Self {
        room.send_modify(|room| {
            room.busy -= 1;
            room.waiting.insert(me);
        });
        Self(room, me)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|room| {
            room.busy += 1;
            room.waiting.remove(&self.1);
        });
    }
}

impl Drop for DrainSlot<'_> {
    fn drop(&mut self) {
        self.gate.0.send_modify(|room| room.busy -= 1);
    }
}
