//! Starts the handler, and reads the next page concurrently.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, OptionFuture, select};

use super::{Driver, Flow, HandlerRun, PlannedStep};
use crate::{
    engine::{
        breaker::Admission,
        drain::{
            DrainError, Drainer, PATIENCE,
            plan::{AnswerTiming, DeliveryGroup, GROUP_BYTES, HANDOVER_DELAY, MARK_TIMEOUT, Step, park},
        },
        run::run,
    },
    handler::{Canceller, Deliveries},
    handlers::event::encoded_bytes,
    protocol::{
        delivery::{Age, Delivery, Unpacked},
        entity::Sequence,
        format::CorruptRow,
        inbox::{MarkStart, Marked},
    },
    sources::SourceLookup,
    telemetry::{Event, RequeueReason},
};

enum GroupMembers {
    Complete(DeliveryGroup, Vec<Delivery>),
    Corrupt(CorruptRow),
}

impl<'a> Driver<'a> {
    pub(super) async fn start(&mut self, must_record: bool, group: DeliveryGroup) -> Result<Flow, DrainError> {
        let follows = |step| Ok(Flow::Continue(Some(PlannedStep::new(step))));
        let Some(SourceLookup::Source(source)) = self.source.clone() else {
            return follows(Step::HandOver(HANDOVER_DELAY, RequeueReason::UnknownSource));
        };
        let (group, mut deliveries) = match self.complete(group).await? {
            GroupMembers::Complete(group, deliveries) => (group, deliveries),
            GroupMembers::Corrupt(error) => return follows(park(self.drain.state().attempts, error.to_string())),
        };
        self.describe(group, &mut deliveries);
        if must_record || !self.drainer.handler.runs_elsewhere(&source.handler) {
            self.renewer.hold(self.in_flight.first_extension()).await?;
        }
        let ticket = match self.admit(&source).await? {
            Admission::Start(ticket) => ticket,
            Admission::NotNow(wait) => return follows(self.drain.held_back(wait, &source, self.now())),
        };
        if must_record {
            self.mark_start(self.drain.state().next()).await?;
        }
        let token = self.renewer.lease().token();
        self.spans.starts(&source.handler, token, &mut deliveries);
        let deliveries: Vec<Arc<Delivery>> = deliveries.into_iter().map(Arc::new).collect();
        for delivery in &deliveries {
            self.drainer.observer.observe(&Event::Started { delivery, token });
        }
        self.not_before = source.rate.map(|rate| self.now() + rate.interval());
        let started = self.monotonic();
        let env = self.drainer.store.env().clone();
        let (canceller, context) =
            Canceller::start(&source.handler, token, started + source.handler_timeout, env.clone());
        let Drainer { threads, handler, isolation, .. } = self.drainer;
        let answer = run(threads, handler.clone(), *isolation, Deliveries(deliveries.clone()), context);
        let answer = self.spans.within(answer);
        let mut ahead = self.page_ahead(group.size);
        // Once the handler has answered, the settle is written without waiting for the page.
        let both = async {
            match select(pin!(answer), OptionFuture::from(ahead.as_mut())).await {
                Either::Left((outcome, _)) => (outcome, None),
                Either::Right((page, answer)) => (answer.await, page),
            }
        };
        let (outcome, page) = self.renewer.hold(both).await?;
        self.spans.ran(outcome.as_ref());
        // This cancels a handler that has timed out and still runs.
        drop(canceller);
        match page {
            None => self.ahead = ahead,
            page => self.keep_ahead(page),
        }
        let took = self.monotonic().saturating_sub(started);
        let Some(outcome) = outcome else {
            return follows(Step::HandOver(HANDOVER_DELAY, RequeueReason::NoThread));
        };
        self.report(ticket, &source, &outcome, took).await?;
        let step = self.drain.answered(outcome, group, &source, self.answered(took));
        let run = HandlerRun { deliveries, group, took: Some(took) };
        Ok(Flow::Continue(Some(PlannedStep { step, run })))
    }

    fn describe(&self, group: DeliveryGroup, deliveries: &mut [Delivery]) {
        let mut applied = self.drain.state().newest_event_time.clone();
        for delivery in deliveries {
            delivery.attempt = self.drain.attempt(group);
            delivery.run_before = self.drain.run_before(delivery);
            delivery.age = delivery.age_beside(&applied);
            delivery.superseded = if group.is_latest { group.size as u32 - 1 } else { 0 };
            if delivery.age == Age::Older {
                self.drainer.observer.observe(&Event::Inversion { delivery });
            }
            if let Some(time) = delivery.event_time() {
                applied = applied.applied(delivery.family(), time);
            }
        }
    }

    pub(super) fn answered(&self, took: Duration) -> AnswerTiming {
        AnswerTiming { at: self.now(), took, fraction: self.drainer.store.env().fraction() }
    }

    /// Reads the bodies of the deliveries in `group`. Ends the group before the first corrupt
    /// delivery, and before its JSON exceeds [`GROUP_BYTES`].
    async fn complete(&mut self, mut group: DeliveryGroup) -> Result<GroupMembers, DrainError> {
        'shorter: loop {
            let members: Vec<Unpacked> = self.drain.members(group).map(|waiting| waiting.unpacked.clone()).collect();
            let mut deliveries = Vec::with_capacity(members.len());
            let mut bytes = 0;
            for unpacked in members {
                let before = unpacked.head().sequence().0.saturating_sub(self.drain.state().next().0);
                let parts = unpacked.head().part_keys();
                let parts = if parts.is_empty() {
                    Vec::new()
                } else {
                    self.renewer.hold(self.drainer.store.get_many(&parts, PATIENCE)).await??
                };
                match unpacked.complete(&parts) {
                    Ok(delivery) => {
                        bytes += if group.is_several() { encoded_bytes(delivery.body()) } else { 0 };
                        if bytes > GROUP_BYTES && !deliveries.is_empty() {
                            group.size = before as usize;
                            return Ok(GroupMembers::Complete(group, deliveries));
                        }
                        deliveries.push(delivery);
                    }
                    Err(error) if before == 0 => return Ok(GroupMembers::Corrupt(error)),
                    Err(_) => {
                        group.size = before as usize;
                        continue 'shorter;
                    }
                }
            }
            return Ok(GroupMembers::Complete(group, deliveries));
        }
    }

    /// Records a suspect's start before the handler starts. Without a reply, the handler does not
    /// start, although the record may have landed.
    async fn mark_start(&mut self, sequence: Sequence) -> Result<(), DrainError> {
        let lease = self.renewer.lease().clone();
        let mark = MarkStart { lease: &lease, sequence };
        match self.renewer.hold(self.drainer.store.run(&mark, MARK_TIMEOUT)).await?? {
            Marked::Recorded => Ok(()),
            Marked::Lost => Err(DrainError::Lost),
        }
    }
}
