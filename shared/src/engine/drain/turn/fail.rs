//! An attempt that failed: tried again later, set aside, or the entity blocked.

use std::time::Duration;

use super::{Ran, Turn, Turns};
use crate::{
    engine::{
        drain::{PATIENCE, Stopped},
        queue::WakeUp,
    },
    protocol::{
        attempt::{Next, OnFailure},
        delivery::{Delivery, Unpacked, parked_copy},
        entity::Sequence,
        inbox::{Fail, Failed, Park},
        maintain::KeepForever,
        state::{BlockReason, Settlement},
        table::Row,
    },
    sources::Source,
    telemetry::Event,
    time::Timestamp,
};

impl Turns<'_> {
    pub(super) async fn failed(
        &mut self,
        delivery: &Delivery,
        unpacked: Unpacked,
        row: Row,
        source: &Source,
        asked: Option<Duration>,
        error: &str,
    ) -> Result<Turn, Stopped> {
        let attempts = self.state.attempts + 1;
        let fraction = self.drainer.store.surroundings().fraction();
        match source.retry.after(attempts, asked, source.on_failure, fraction) {
            Next::GiveUp(on_failure) => {
                self.state.attempts = attempts;
                self.give_up(unpacked, row, on_failure, error).await
            }
            Next::Retry(wait) => {
                // Tried again no sooner than its source's rate allows.
                let wait = source.rate.map_or(wait, |rate| wait.max(rate.interval()));
                let retry_at = self.now() + wait;
                let wake_up = WakeUp::of(&self.state.entity);
                self.keeper.hold(self.drainer.wake(&wake_up, wait)).await??;
                self.fail(delivery.sequence(), attempts, Some(retry_at), error).await?;
                self.drainer.observer.observe(&Event::Failed { delivery, retry_in: wait, error });
                Ok(Turn::Break(()))
            }
        }
    }

    async fn fail(
        &mut self,
        sequence: Sequence,
        attempts: u32,
        retry_at: Option<Timestamp>,
        error: &str,
    ) -> Result<(), Stopped> {
        let fail = Fail { lease: self.keeper.lease(), sequence, attempts, retry_at, error };
        match self.drainer.store.run(&fail, self.patience()).await? {
            Failed::Counted => Ok(()),
            Failed::Lost => Err(Stopped::Lost),
        }
    }

    pub(super) async fn give_up(
        &mut self,
        unpacked: Unpacked,
        row: Row,
        on_failure: OnFailure,
        error: &str,
    ) -> Result<Turn, Stopped> {
        match on_failure {
            OnFailure::Park => self.park(unpacked, row, error).await,
            OnFailure::Block => {
                let attempts = self.state.attempts;
                self.fail(unpacked.head().sequence(), attempts, None, error).await?;
                self.blocked(BlockReason::Attempts, Some(unpacked.head()))
            }
        }
    }

    /// Sets the delivery aside, then settles it as parked.
    pub(super) async fn park(&mut self, unpacked: Unpacked, row: Row, error: &str) -> Result<Turn, Stopped> {
        let store = &self.drainer.store;
        let sequence = unpacked.head().sequence();
        for part in unpacked.head().part_keys() {
            self.keeper.hold(store.run(&KeepForever { part }, PATIENCE)).await??;
        }
        let copy = parked_copy(&row, &crate::protocol::format::shortened(error, 1000), self.now());
        let park = Park { entity: &self.state.entity, sequence, row: &copy };
        self.keeper.hold(store.run(&park, PATIENCE)).await??;
        let mut delivery = unpacked.head().clone();
        delivery.attempt = self.state.attempts.max(1);
        let ran = Ran::not(delivery);
        self.settle_delivery(ran, Settlement::Parked, Some(row)).await
    }
}
