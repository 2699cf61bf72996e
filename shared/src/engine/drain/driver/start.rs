//! A start of the handler, and what it answers.

use std::{pin::pin, sync::Arc};

use futures_util::future::{Either, select};

use super::{Driver, Turn};
use crate::{
    engine::{
        drain::{
            Drainer, PATIENCE, Stopped,
            page::Page,
            plan::{HANDED_OVER, MARKING, Ran, Step},
        },
        run::run,
        store::StoreError,
    },
    handler::Canceller,
    protocol::{
        delivery::Age,
        entity::Sequence,
        inbox::{MarkStart, Marked},
    },
    sources::Found,
    telemetry::{Event, PutOffReason},
};

impl<'a> Driver<'a> {
    /// Runs the handler of the delivery in front.
    pub(super) async fn start(&mut self, is_written: bool, ran: &mut Option<Ran>) -> Result<Turn, Stopped> {
        let follows = |step| Ok(Turn::Continue(Some(step)));
        let (Some(waiting), Some(Found::Source(source))) = (self.drain.front(), self.source.clone()) else {
            return follows(Step::HandOver(HANDED_OVER, PutOffReason::UnknownSource));
        };
        let unpacked = waiting.unpacked.clone();
        let parts = unpacked.head().part_keys();
        let parts = if parts.is_empty() {
            Vec::new()
        } else {
            self.keeper.hold(self.drainer.store.get_many(&parts, PATIENCE)).await??
        };
        let mut delivery = match unpacked.complete(&parts) {
            Ok(delivery) => delivery,
            Err(error) => return follows(Step::SetAside(self.drain.state().attempts, error.to_string())),
        };
        delivery.attempt = self.drain.state().attempt();
        delivery.age = self.drain.age_of(&delivery);
        if delivery.age == Age::Older {
            self.drainer.observer.observe(&Event::Inversion { delivery: &delivery });
        }
        self.keeper.hold(self.in_flight.hidden()).await?;
        let ticket = match self.admitted(&source) {
            Ok(ticket) => ticket,
            Err(wait) => return follows(Step::HandOver(wait, PutOffReason::BreakerOpen)),
        };
        let delivery = Arc::new(delivery);
        if is_written {
            self.mark_start(delivery.sequence()).await?;
        }
        let token = self.keeper.lease().token();
        self.drainer.observer.observe(&Event::Started { delivery: &delivery, token });
        self.not_before = source.rate.map(|rate| self.now() + rate.interval());
        let started = self.monotonic();
        let surroundings = self.drainer.store.surroundings().clone();
        let (canceller, context) =
            Canceller::start(&source.handler, token, started + source.handler_timeout, surroundings.clone());
        let Drainer { threads, handler, isolation, .. } = self.drainer;
        let timed = run(threads, handler.clone(), *isolation, delivery.clone(), context);
        let ahead = self.ahead();
        // The next page is read meanwhile; a handler that is done does not wait for it.
        let both = async {
            match select(pin!(timed), pin!(ahead)).await {
                Either::Left((outcome, _)) => (outcome, None),
                Either::Right((ahead, timed)) => (timed.await, ahead),
            }
        };
        let (outcome, ahead) = self.keeper.hold(both).await?;
        // Tells one that blocks its thread and is late; what it still does is refused by its token.
        drop(canceller);
        // What went wrong there is met again when that page is needed.
        if let Some(Ok(ahead)) = ahead {
            self.drain.read_ahead(ahead);
        }
        *ran = Some(Ran { delivery, took: Some(self.monotonic().saturating_sub(started)) });
        let Some(outcome) = outcome else {
            // What did not start is no attempt.
            return follows(Step::HandOver(HANDED_OVER, PutOffReason::NoThread));
        };
        self.report(ticket, &source, &outcome);
        let fraction = self.drainer.store.surroundings().fraction();
        follows(self.drain.answered(outcome, &source, fraction))
    }

    /// Writes a start down before it is made. Where the store does not say that
    /// it is written, it is made all the same: a start that is written and not
    /// made would be charged, one that is made and not written is not.
    async fn mark_start(&mut self, sequence: Sequence) -> Result<(), Stopped> {
        let lease = self.keeper.lease().clone();
        let mark = MarkStart { lease: &lease, sequence };
        match self.keeper.hold(self.drainer.store.run(&mark, MARKING)).await? {
            Ok(Marked::Marked) | Err(StoreError::Unavailable(_)) => Ok(()),
            Ok(Marked::Lost) => Err(Stopped::Lost),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the next page while the last delivery of this one is decided.
    pub(super) fn ahead(&self) -> impl Future<Output = Option<Result<Page, StoreError>>> + use<'a> {
        let (wanted, has_spilled) = (self.drain.ahead(), self.drain.has_spilled());
        let store = &self.drainer.store;
        let entity = self.drain.state().entity.clone();
        async move {
            let (from, to) = wanted?;
            Some(Page::read(store, &entity, from, to, has_spilled).await)
        }
    }
}
