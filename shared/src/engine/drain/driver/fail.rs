//! A start that did not settle its delivery: tried again later, set aside, or the
//! entity stopped.

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
        attempt::{FailureClass, Retries},
        entity::Sequence,
        inbox::{Fail, Failed},
        receipt::Settlement,
        state::BlockReason,
    },
    sources::Found,
    telemetry::{Event, RequeueReason},
    time::Timestamp,
};

/// A destination that has kept one order waiting for so long is reported as
/// unavailable, also where no breaker opens.
const REPORTED_AFTER: Duration = Duration::from_secs(60);

/// What is recorded of a start that did not settle its delivery.
pub(super) struct Count {
    pub(super) attempts: u32,
    pub(super) retries: Retries,
    pub(super) one_by_one: Option<Sequence>,
    pub(super) error: String,
}

impl Driver<'_> {
    /// Records it, behind a wake-up for the next attempt. `ran`: the run that ended
    /// so; else a breaker refused it.
    pub(super) async fn retry(&mut self, count: &Count, wait: Duration, ran: Option<&Ran>) -> Result<Turn, Stopped> {
        let retry_at = self.now() + wait;
        let wake_up = WakeUp::under(&self.drain.state().entity, self.renewer.lease().token());
        if ran.is_some() {
            self.renewer.hold(self.drainer.wake(&wake_up, wait)).await??;
        } else {
            self.renewer.hold(self.drainer.requeue(&wake_up, wait, RequeueReason::BreakerOpen)).await??;
        }
        self.fail(count, Some(retry_at)).await?;
        if let Some(Found::Source(source)) = &self.source
            && count.retries.class != FailureClass::Failed
            && count.retries.waited(count.retries.class) >= REPORTED_AFTER
        {
            self.is_unavailable(&source.name, &count.error);
        }
        let observer = &self.drainer.observer;
        for delivery in ran.into_iter().flat_map(|ran| &ran.deliveries) {
            observer.observe(&Event::Failed { delivery, retry_in: wait, error: &count.error });
        }
        Ok(Turn::Break(()))
    }

    /// Counts the attempt and stops the entity.
    pub(super) async fn give_up(&mut self, count: &Count) -> Result<Turn, Stopped> {
        self.fail(count, None).await?;
        self.blocked(BlockReason::Attempts, Some(self.head()))
    }

    async fn fail(&mut self, count: &Count, retry_at: Option<Timestamp>) -> Result<(), Stopped> {
        let state = self.drain.state();
        let Count { attempts, retries, one_by_one, error } = count;
        let fail = Fail {
            lease: self.renewer.lease(),
            sequence: state.next(),
            attempts: *attempts,
            retries: *retries,
            suspected: state.is_suspect(),
            one_by_one: *one_by_one,
            retry_at,
            error,
        };
        match self.drainer.store.run(&fail, self.patience()).await? {
            Failed::Counted => Ok(()),
            Failed::Lost => Err(Stopped::Lost),
        }
    }

    /// Sets the delivery aside, then settles it as parked.
    pub(super) async fn set_aside(&mut self, attempts: u32, error: &str, carried: Retries) -> Result<Turn, Stopped> {
        let store = &self.drainer.store;
        let waiting = self.drain.front().expect("a delivery is set aside");
        let mut delivery = waiting.unpacked.head().clone();
        let run_before = self.drain.run_before(&delivery);
        let aside = Aside { error, run_before, kept_for: self.drainer.settings.parked_retention };
        self.renewer.hold(aside.set(store, waiting)).await??;
        delivery.attempt = attempts.max(1);
        let parked = Ran { deliveries: vec![Arc::new(delivery)], group: Group::ONE, took: None };
        self.settle_carrying(Settlement::Parked, Some(parked), carried).await
    }
}
