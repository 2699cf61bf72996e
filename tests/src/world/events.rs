//! Counts the events of a world.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use webhook_serializer::telemetry::{Event, Observer, RequeueReason};

macro_rules! counts {
    ($($name:ident),*) => {
        #[derive(Debug, Default)]
        pub struct EventCounts {
            $($name: AtomicU64,)*
            breakers_opened: AtomicU64,
            breakers_closed: AtomicU64,
            deferrals: AtomicU64,
            taken_up: AtomicU64,
            settled: Mutex<Vec<(String, bool)>>,
        }

        impl EventCounts {
            $(pub fn $name(&self) -> u64 {
                self.$name.load(Relaxed)
            })*
        }
    };
}

counts!(
    held_back,
    taken_over,
    lost,
    dropped,
    polls,
    drains_waited,
    unreadable,
    threads_lost,
    hung,
    unavailable,
    available
);

impl EventCounts {
    /// Returns the settled deliveries, each with whether its event had a duration.
    pub fn settled(&self) -> Vec<(String, bool)> {
        self.settled.lock().expect("nothing panics under it").clone()
    }

    /// Returns how many deliveries were deferred, and how many were ingested from the queue.
    pub fn deferred(&self) -> (u64, u64) {
        (self.deferrals.load(Relaxed), self.taken_up.load(Relaxed))
    }

    /// Returns how many breakers opened, and how many closed.
    pub fn breakers(&self) -> (u64, u64) {
        (self.breakers_opened.load(Relaxed), self.breakers_closed.load(Relaxed))
    }
}

impl Observer for EventCounts {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Settled { delivery: Some(delivery), took, .. } = event {
            let events = (delivery.delivery_id().to_string(), took.is_some());
            self.settled.lock().expect("nothing panics under it").push(events);
        }
        match event {
            Event::Requeued { reason: RequeueReason::BreakerOpen, .. } => self.held_back.fetch_add(1, Relaxed),
            Event::BreakerOpened { .. } => self.breakers_opened.fetch_add(1, Relaxed),
            Event::BreakerClosed { .. } => self.breakers_closed.fetch_add(1, Relaxed),
            Event::DestinationUnavailable { is_hung: true, .. } => self.hung.fetch_add(1, Relaxed),
            Event::DestinationUnavailable { is_hung: false, .. } => self.unavailable.fetch_add(1, Relaxed),
            Event::DestinationAvailable { .. } => self.available.fetch_add(1, Relaxed),
            Event::TakenOver { .. } => self.taken_over.fetch_add(1, Relaxed),
            Event::Lost { .. } => self.lost.fetch_add(1, Relaxed),
            Event::LeaseDropped { .. } => self.dropped.fetch_add(1, Relaxed),
            Event::LeaseGranted { polls, .. } => self.polls.fetch_add(u64::from(*polls), Relaxed),
            Event::Waited { .. } => self.drains_waited.fetch_add(1, Relaxed),
            Event::Deferred { .. } => self.deferrals.fetch_add(1, Relaxed),
            Event::TakenUp { .. } => self.taken_up.fetch_add(1, Relaxed),
            Event::UnreadableDelivery { .. } => self.unreadable.fetch_add(1, Relaxed),
            Event::ThreadsLost { lost, is_end: false } => self.threads_lost.fetch_max(*lost as u64, Relaxed),
            _ => 0,
        };
    }
}
