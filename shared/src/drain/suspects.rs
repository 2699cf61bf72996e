//! Suspects: deliveries whose last holder died with them. They run alone, after
//! the rest of their batch, so that they take nobody with them.

use tokio::sync::{Mutex, MutexGuard, watch};

/// One batch's waiting room.
#[derive(Debug)]
pub struct Quarantine {
    /// How many drains of the batch are neither done nor waiting here.
    busy: watch::Sender<usize>,
    one_at_a_time: Mutex<()>,
}

/// A drain that others' suspects wait for, until it is dropped.
#[derive(Debug)]
pub(crate) struct Guest<'a>(&'a Quarantine);

impl Quarantine {
    /// For a batch of `drains`, all of which count as busy from now on.
    pub fn of(drains: usize) -> Self {
        Self { busy: watch::Sender::new(drains), one_at_a_time: Mutex::new(()) }
    }

    /// One of the batch's drains.
    pub(crate) fn guest(&self) -> Guest<'_> {
        Guest(self)
    }

    /// Waits until every other drain of the batch is done or waits here too,
    /// and no other suspect runs.
    pub(crate) async fn alone(&self) -> MutexGuard<'_, ()> {
        self.busy.send_modify(|busy| *busy -= 1);
        // Counted in again however the wait ends, for the guest to count out.
        let _back = Back(self);
        let mut busy = self.busy.subscribe();
        busy.wait_for(|busy| *busy == 0).await.expect("the sender is borrowed");
        self.one_at_a_time.lock().await
    }
}

struct Back<'a>(&'a Quarantine);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.busy.send_modify(|busy| *busy += 1);
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.busy.send_modify(|busy| *busy -= 1);
    }
}
