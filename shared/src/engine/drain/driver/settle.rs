//! A decision becomes the entity's, by one write.

use super::{Driver, GO_ON, Turn};
use crate::{
    engine::drain::{
        Stopped,
        plan::{Ending, Group, Ran},
    },
    protocol::{
        attempt::Retries,
        inbox::{Decision, Settle, SettleAndRelease, Settled, SettledAndReleased},
        lease::Lease,
        receipt::Settlement,
        state::EntityState,
    },
    telemetry::Event,
    time::Timestamp,
};

impl Driver<'_> {
    /// When the row was last seen, by the clock that others know.
    fn seen_at(&self) -> Timestamp {
        let ago = self.monotonic().saturating_sub(self.seen);
        Timestamp::from_millis(self.now().as_millis().saturating_sub(ago.as_millis() as u64))
    }

    /// What is decided of the place in front and its group, once what leaves the
    /// row with it is remembered elsewhere.
    pub(super) async fn decide(&mut self, settlement: Settlement, ran: Option<&Ran>, carried: Retries) -> Decision {
        let ending = Ending {
            settlement,
            group: ran.map_or(Group::ONE, |ran| ran.group),
            token: self.renewer.lease().token(),
            attempts: ran.and_then(|ran| ran.deliveries.last()).map_or(0, |delivery| delivery.attempt()),
            took: ran.and_then(|ran| ran.took),
            at: self.now(),
            carried,
        };
        let decision = self.drain.decision(ending, self.seen_at(), self.not_before);
        self.spilled(decision).await
    }

    /// The write that settles and goes on; where the slice is over, only to hand
    /// over.
    pub(super) fn settle_under<'l>(&self, lease: &'l Lease, decision: &'l Decision) -> Settle<'l> {
        let hands_over = self.drain.hands_over(decision.last(), self.monotonic() >= self.slice_ends);
        Settle { lease, decision, now: self.now(), length: self.renewer.length(), hands_over }
    }

    /// The write that settles the last places and ends the lease.
    pub(super) fn last_under<'l>(&self, lease: &'l Lease, decision: &'l Decision) -> SettleAndRelease<'l> {
        SettleAndRelease { lease, decision, purge_at: self.idle_purge_at(&decision.recent) }
    }

    /// Settles the place in front, with its group; `ran` is the run that ended so,
    /// where one did.
    pub(super) async fn settle(&mut self, settlement: Settlement, ran: Option<Ran>) -> Result<Turn, Stopped> {
        self.settle_carrying(settlement, ran, Retries::default()).await
    }

    /// The same; `carried` is what the next delivery begins with.
    pub(super) async fn settle_carrying(
        &mut self,
        settlement: Settlement,
        ran: Option<Ran>,
        carried: Retries,
    ) -> Result<Turn, Stopped> {
        let decision = self.decide(settlement, ran.as_ref(), carried).await;
        let goes_on = self.settle_row(&decision).await?;
        self.told_settled(&decision, ran.as_ref());
        Ok(match goes_on {
            Some(state) => {
                self.settled(state, &decision);
                GO_ON
            }
            None => Turn::Break(()),
        })
    }

    /// Tells of the settled places in front.
    pub(super) fn told_settled(&mut self, decision: &Decision, ran: Option<&Ran>) {
        let ran = ran.map_or(&[][..], |ran| &ran.deliveries);
        for receipt in decision.receipts() {
            let before = self.drain.read_at(receipt.sequence).and_then(|delivery| self.drain.before(delivery));
            if before.is_some_and(|before| before.settlement == receipt.settlement && ran.is_empty()) {
                // It was told of then: it is parked, or left out, as it was.
                continue;
            }
            let ran = ran.iter().find(|delivery| delivery.sequence() == receipt.sequence);
            let delivery = ran.map(|delivery| &**delivery).or_else(|| self.drain.read_at(receipt.sequence));
            if let Some(delivery) = delivery {
                self.spans.settled(delivery, receipt.settlement);
            }
            self.drainer.observer.observe(&Event::Settled {
                entity: &self.drain.state().entity,
                sequence: receipt.sequence,
                settlement: receipt.settlement,
                delivery,
                took: receipt.took.filter(|_| receipt.sequence == decision.last()),
            });
        }
    }

    /// The places in front are settled, and the row is `state`.
    pub(super) fn settled(&mut self, state: EntityState, decision: &Decision) {
        self.drain.settled(state, decision);
        self.source = None;
    }

    /// The row afterwards; `None`: the lease has ended with the last places.
    async fn settle_row(&mut self, decision: &Decision) -> Result<Option<EntityState>, Stopped> {
        let store = &self.drainer.store;
        let lease = self.renewer.lease().clone();
        while self.drain.is_last(decision.last()) {
            match store.run(&self.last_under(&lease, decision), self.patience()).await? {
                SettledAndReleased::Released => return Ok(None),
                SettledAndReleased::Grown(state) => self.drain.seen(state),
                SettledAndReleased::Lost => return Err(Stopped::Lost),
            }
        }
        let sent = self.monotonic();
        let settle = self.settle_under(&lease, decision);
        // Where the inbox turned out longer than this page, the next one is read beside the settle.
        let (settled, ahead, spilled) = tokio::join!(
            store.run(&settle, self.patience()),
            self.ahead(decision.places()),
            self.spill_ahead(decision)
        );
        match settled? {
            Settled::Settled(lease, state) => {
                self.renewer.prolonged(lease, sent);
                self.seen = sent;
                self.drain.spilled(spilled);
                if let Some(Ok(ahead)) = ahead {
                    self.drain.read_ahead(ahead);
                }
                Ok(Some(state))
            }
            Settled::Lost => Err(Stopped::Lost),
        }
    }
}
