//! Records a start that did not settle its delivery: the delivery is retried or parked, or its
//! entity is blocked.

use std::{sync::Arc, time::Duration};

use super::{Driver, Flow, HandlerRun};
use crate::{
    engine::{
        drain::{
            DrainError,
            park::Parking,
            plan::{DeliveryGroup, HANDOVER_DELAY},
        },
        outages::OutageWait,
        queue::WakeUp,
    },
    protocol::{
        attempt::{FailureClass, Retries},
        entity::Sequence,
        format::shortened,
        inbox::{AfterFailure, Fail, Failed},
        receipt::Settlement,
        state::BlockReason,
    },
    sources::SourceLookup,
    telemetry::{Event, RequeueReason},
    time::Timestamp,
};

/// The total wait of a delivery at which the drain reports its destination as unavailable. Waits
/// after unanswered starts and waits for an unavailable destination have separate totals.
///
/// A breaker that opens reports the destination sooner.
const REPORTED_AFTER: Duration = Duration::from_secs(60);

pub(super) struct UnsettledStart {
    pub(super) attempts: u32,
    pub(super) retries: Retries,
    pub(super) one_by_one: Option<Sequence>,
    pub(super) error: String,
}

impl Driver<'_> {
    /// Sends the wake-up for the next start, then records the wait and ends the lease.
    ///
    /// The parameter `run` has no deliveries if a breaker refused the start.
    pub(super) async fn retry(
        &mut self,
        failure: &UnsettledStart,
        wait: Duration,
        run: &HandlerRun,
    ) -> Result<Flow, DrainError> {
        let retry_at = self.now() + wait;
        let is_refused = run.deliveries.is_empty();
        let (outage, look) = self.outage_wait(failure, is_refused, retry_at).unzip();
        let wake_up = WakeUp { outage, ..WakeUp::under(&self.drain.state().entity, self.renewer.lease().token()) };
        let delay = look.map_or(wait, |look| look.min(wait)).max(HANDOVER_DELAY);
        if is_refused {
            self.renewer.hold(self.drainer.requeue(&wake_up, delay, RequeueReason::BreakerOpen)).await??;
        } else {
            self.renewer.hold(self.drainer.wake(&wake_up, delay)).await??;
        }
        self.fail(failure, AfterFailure::RetryAt(retry_at)).await?;
        if let Some(SourceLookup::Source(source)) = &self.source
            && failure.retries.class != FailureClass::Failed
            && failure.retries.waited(failure.retries.class) >= REPORTED_AFTER
        {
            let is_hung = failure.retries.class == FailureClass::Unanswered;
            self.report_unavailable(source, is_hung, &failure.error);
        }
        let observer = &self.drainer.observer;
        for delivery in &run.deliveries {
            observer.observe(&Event::Failed { delivery, retry_in: wait, error: &failure.error });
        }
        Ok(Flow::Break(()))
    }

    /// Returns the outage that the delivery waits for until `retry_at`, and the delay of the wake-up that first looks at
    /// it. `None` if the delivery does not wait for a destination that is down.
    fn outage_wait(
        &self,
        failure: &UnsettledStart,
        is_refused: bool,
        retry_at: Timestamp,
    ) -> Option<(OutageWait, Duration)> {
        let Some(SourceLookup::Source(source)) = &self.source else { return None };
        let is_down = is_refused || failure.retries.class != FailureClass::Failed;
        let outages = &self.drainer.outages;
        let outage = outages.known(&source.destination().id).filter(|_| is_down)?;
        let look = outages.look_after(&outage);
        // An early start must not exceed the source's rate.
        let look = source.rate.map_or(look, |rate| look.max(rate.interval()));
        let is_counted =
            !is_refused || failure.retries.waits_for_destination() || self.drain.is_extra_attempt(self.now());
        Some((OutageWait { destination: source.destination().id.clone(), until: retry_at, is_counted }, look))
    }

    pub(super) async fn give_up(&mut self, failure: &UnsettledStart) -> Result<Flow, DrainError> {
        self.fail(failure, AfterFailure::Block).await?;
        self.blocked(BlockReason::Attempts, Some(self.head()))
    }

    async fn fail(&mut self, failure: &UnsettledStart, then: AfterFailure) -> Result<(), DrainError> {
        let state = self.drain.state();
        let UnsettledStart { attempts, retries, one_by_one, error } = failure;
        let fail = Fail {
            lease: self.renewer.lease(),
            sequence: state.next(),
            attempts: *attempts,
            retries: *retries,
            suspected: state.is_suspect(),
            one_by_one: *one_by_one,
            then,
            error: &shortened(error, state.error_bytes()),
            source: self.source_tag(),
        };
        match self.drainer.store.run(&fail, self.patience()).await? {
            Failed::Counted => Ok(()),
            Failed::Lost => Err(DrainError::Lost),
        }
    }

    pub(super) async fn park(&mut self, attempts: u32, error: &str, carried: Retries) -> Result<Flow, DrainError> {
        let store = &self.drainer.store;
        let waiting = self.drain.front().expect("the step is about a delivery");
        let mut delivery = waiting.unpacked.head().clone();
        let run_before = self.drain.run_before(&delivery);
        let parking = Parking { error, run_before, restore: None, kept_for: self.drainer.settings.parked_retention };
        self.renewer.hold(parking.park(store, waiting)).await??;
        delivery.attempt = attempts.max(1);
        let parked = HandlerRun { deliveries: vec![Arc::new(delivery)], group: DeliveryGroup::ONE, took: None };
        self.settle(Settlement::Parked, &parked, carried).await
    }
}
