//! An attempt that failed: tried again later, set aside, or the entity stopped.

use std::{sync::Arc, time::Duration};

use super::{Driver, Turn};
use crate::{
    engine::{
        drain::{
            Stopped,
            aside::Aside,
            plan::{Group, Ran},
        },
        queue::WakeUp,
    },
    protocol::{
        entity::Sequence,
        inbox::{Fail, Failed},
        receipt::Settlement,
        state::BlockReason,
    },
    telemetry::Event,
    time::Timestamp,
};

impl Driver<'_> {
    /// Counts the attempt, behind a wake-up for the next one.
    pub(super) async fn retry(
        &mut self,
        attempts: u32,
        one_by_one: Option<Sequence>,
        wait: Duration,
        error: &str,
        ran: &Ran,
    ) -> Result<Turn, Stopped> {
        let retry_at = self.now() + wait;
        let wake_up = WakeUp::of(&self.drain.state().entity);
        self.keeper.hold(self.drainer.wake(&wake_up, wait)).await??;
        self.fail(attempts, one_by_one, Some(retry_at), error).await?;
        for delivery in &ran.deliveries {
            self.drainer.observer.observe(&Event::Failed { delivery, retry_in: wait, error });
        }
        Ok(Turn::Break(()))
    }

    /// Counts the attempt and stops the entity.
    pub(super) async fn give_up(&mut self, attempts: u32, error: &str) -> Result<Turn, Stopped> {
        self.fail(attempts, None, None, error).await?;
        self.blocked(BlockReason::Attempts, Some(self.head()))
    }

    async fn fail(
        &mut self,
        attempts: u32,
        one_by_one: Option<Sequence>,
        retry_at: Option<Timestamp>,
        error: &str,
    ) -> Result<(), Stopped> {
        let sequence = self.drain.state().next();
        let fail = Fail { lease: self.keeper.lease(), sequence, attempts, one_by_one, retry_at, error };
        match self.drainer.store.run(&fail, self.patience()).await? {
            Failed::Counted => Ok(()),
            Failed::Lost => Err(Stopped::Lost),
        }
    }

    /// Sets the delivery aside, then settles it as parked.
    pub(super) async fn set_aside(&mut self, attempts: u32, error: &str) -> Result<Turn, Stopped> {
        let store = &self.drainer.store;
        let waiting = self.drain.front().expect("a delivery is set aside");
        let mut delivery = waiting.unpacked.head().clone();
        let run_before = self.drain.run_before(&delivery);
        let aside = Aside { error, run_before, kept_for: self.drainer.settings.parked_retention };
        self.keeper.hold(aside.set(store, waiting)).await??;
        delivery.attempt = attempts.max(1);
        let parked = Ran { deliveries: vec![Arc::new(delivery)], group: Group::ONE, took: None };
        self.settle(Settlement::Parked, Some(parked)).await
    }
}
