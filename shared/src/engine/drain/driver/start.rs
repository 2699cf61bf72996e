//! A start of the handler, and what it answers.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, select};

use super::{Driver, Turn};
use crate::{
    engine::{
        breaker::Refused,
        drain::{
            Drainer, PATIENCE, Stopped,
            page::Page,
            plan::{Answered, Group, HANDED_OVER, MARKING, Ran, Step, set_aside},
        },
        run::run,
        store::StoreError,
    },
    handler::{Canceller, Deliveries},
    protocol::{
        delivery::{Age, Delivery, Unpacked},
        entity::Sequence,
        format::CorruptRow,
        inbox::{MarkStart, Marked},
    },
    sources::Found,
    telemetry::{Event, RequeueReason},
};

impl<'a> Driver<'a> {
    /// Runs the handler of the delivery in front, or of its group.
    pub(super) async fn start(
        &mut self,
        is_written: bool,
        group: Group,
        ran: &mut Option<Ran>,
    ) -> Result<Turn, Stopped> {
        let follows = |step| Ok(Turn::Continue(Some(step)));
        let Some(Found::Source(source)) = self.source.clone() else {
            return follows(Step::HandOver(HANDED_OVER, RequeueReason::UnknownSource));
        };
        let (group, mut deliveries) = match self.complete(group).await? {
            Ok(complete) => complete,
            Err(error) => return follows(set_aside(self.drain.state().attempts, error.to_string())),
        };
        let mut applied = self.drain.state().newest_event_time.clone();
        for delivery in &mut deliveries {
            delivery.attempt = self.drain.attempt(group);
            delivery.run_before = self.drain.run_before(delivery);
            delivery.age = delivery.age_beside(&applied);
            delivery.superseded = if group.is_latest { group.places as u32 - 1 } else { 0 };
            if delivery.age == Age::Older {
                self.drainer.observer.observe(&Event::Inversion { delivery });
            }
            if let Some(time) = delivery.event_time() {
                applied = applied.applied(delivery.family(), time);
            }
        }
        self.renewer.hold(self.in_flight.hidden()).await?;
        let ticket = match self.admitted(&source) {
            Ok(ticket) => ticket,
            Err(Refused { wait, longest, error }) => {
                let error = if error.is_empty() { "others of its source have yet to be answered" } else { &error };
                return follows(self.drain.held_back(wait, longest, error, &source, self.answered(Duration::ZERO)));
            }
        };
        if is_written {
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
        let timed = run(threads, handler.clone(), *isolation, Deliveries(deliveries.clone()), context);
        let timed = self.spans.within(timed);
        let ahead = self.ahead(group.places);
        // The next page is read meanwhile; a handler that is done does not wait for it.
        let both = async {
            match select(pin!(timed), pin!(ahead)).await {
                Either::Left((outcome, _)) => (outcome, None),
                Either::Right((ahead, timed)) => (timed.await, ahead),
            }
        };
        let (outcome, ahead) = self.renewer.hold(both).await?;
        self.spans.ran(outcome.as_ref());
        // Tells one that blocks its thread and is late; what it still does is refused by its token.
        drop(canceller);
        // What went wrong there is met again when that page is needed.
        if let Some(Ok(ahead)) = ahead {
            self.drain.read_ahead(ahead);
        }
        let took = self.monotonic().saturating_sub(started);
        *ran = Some(Ran { deliveries, group, took: Some(took) });
        let Some(outcome) = outcome else {
            // What did not start is no attempt.
            return follows(Step::HandOver(HANDED_OVER, RequeueReason::NoThread));
        };
        self.report(ticket, &source, &outcome);
        follows(self.drain.answered(outcome, group, &source, self.answered(took)))
    }

    /// What is known of a start that took so long and is answered now.
    pub(super) fn answered(&self, took: Duration) -> Answered {
        Answered { at: self.now(), took, fraction: self.drainer.store.env().fraction() }
    }

    /// The members of the group with their bodies: of those in front of the first
    /// that cannot be read. An error: it is the one in front.
    async fn complete(&mut self, mut group: Group) -> Result<Result<(Group, Vec<Delivery>), CorruptRow>, Stopped> {
        'shorter: loop {
            let members: Vec<Unpacked> = self.drain.members(group).map(|waiting| waiting.unpacked.clone()).collect();
            let mut deliveries = Vec::with_capacity(members.len());
            for unpacked in members {
                let before = unpacked.head().sequence().0.saturating_sub(self.drain.state().next().0);
                let parts = unpacked.head().part_keys();
                let parts = if parts.is_empty() {
                    Vec::new()
                } else {
                    self.renewer.hold(self.drainer.store.get_many(&parts, PATIENCE)).await??
                };
                match unpacked.complete(&parts) {
                    Ok(delivery) => deliveries.push(delivery),
                    Err(error) if before == 0 => return Ok(Err(error)),
                    Err(_) => {
                        group.places = before as usize;
                        continue 'shorter;
                    }
                }
            }
            return Ok(Ok((group, deliveries)));
        }
    }

    /// Writes a start down before it is made. Where the store does not say that
    /// it is written, it is made all the same: a start that is written and not
    /// made would be charged, one that is made and not written is not.
    async fn mark_start(&mut self, sequence: Sequence) -> Result<(), Stopped> {
        let lease = self.renewer.lease().clone();
        let mark = MarkStart { lease: &lease, sequence };
        match self.renewer.hold(self.drainer.store.run(&mark, MARKING)).await? {
            Ok(Marked::Marked) | Err(StoreError::Unavailable(_)) => Ok(()),
            Ok(Marked::Lost) => Err(Stopped::Lost),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the next page while the last deliveries of this one are decided, so
    /// many.
    pub(super) fn ahead(&self, in_front: usize) -> impl Future<Output = Option<Result<Page, StoreError>>> + use<'a> {
        let wanted = self.drain.ahead(in_front, self.source.as_ref());
        let has_spilled = self.drain.has_spilled();
        let store = &self.drainer.store;
        let entity = self.drain.state().entity.clone();
        async move {
            let (from, to) = wanted?;
            Some(Page::read(store, &entity, from, to, has_spilled).await)
        }
    }
}
