//! A decision becomes the entity's, by a settle beside its receipt.

use super::{Driver, GO_ON, Turn};
use crate::{
    engine::drain::{
        PATIENCE, Stopped,
        plan::{Ran, receipt_follows},
    },
    protocol::{
        entity::Sequence,
        inbox::{Decision, Receipt, Settle, SettleAndRelease, Settled, SettledAndReleased, WriteReceipt},
        lease::Lease,
        state::{EntityState, Settlement},
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

    pub(super) fn decision(&self, settlement: Settlement) -> Decision {
        self.drain.decision(settlement, self.seen_at(), self.not_before)
    }

    pub(super) fn receipt(&self, settlement: Settlement, ran: &Ran) -> Receipt {
        Receipt::of(&ran.delivery, settlement, self.keeper.lease().token(), ran.started_at, self.now())
    }

    /// The write that settles and goes on; where the slice is over, only to hand
    /// over.
    pub(super) fn settle_under<'l>(&self, lease: &'l Lease, decision: &'l Decision) -> Settle<'l> {
        let hands_over = self.drain.hands_over(decision.sequence, self.monotonic() >= self.slice_ends);
        Settle { lease, decision, now: self.now(), length: self.keeper.length(), hands_over }
    }

    /// Settles the place in front; with a receipt, where `ran` was decided now.
    /// The receipt must have landed before anything else is settled.
    pub(super) async fn settle(&mut self, settlement: Settlement, ran: Option<Ran>) -> Result<Turn, Stopped> {
        let store = &self.drainer.store;
        let entity = self.drain.state().entity.clone();
        let decision = self.decision(settlement);
        let receipt = ran.as_ref().map(|ran| self.receipt(settlement, ran));
        let purge_at = self.purge_at();
        let write_receipt = async {
            match &receipt {
                Some(receipt) => store.run(&WriteReceipt { entity: &entity, receipt, purge_at }, PATIENCE).await,
                None => Ok(()),
            }
        };
        let goes_on = if receipt_follows(settlement) {
            let goes_on = self.settle_row(&decision).await?;
            write_receipt.await?;
            goes_on
        } else {
            let (goes_on, landed) = tokio::join!(self.settle_row(&decision), write_receipt);
            let goes_on = goes_on?;
            landed?;
            goes_on
        };
        self.told_settled(decision.sequence, settlement, ran.as_ref());
        Ok(match goes_on {
            Some(state) => {
                self.settled(state, receipt);
                GO_ON
            }
            None => Turn::Break(()),
        })
    }

    /// Tells of the settled place in front.
    pub(super) fn told_settled(&self, sequence: Sequence, settlement: Settlement, ran: Option<&Ran>) {
        let read = || self.drain.front().map(|waiting| waiting.unpacked.head());
        self.drainer.observer.observe(&Event::Settled {
            entity: &self.drain.state().entity,
            sequence,
            settlement,
            delivery: ran.map(|ran| &*ran.delivery).or_else(read),
            took: ran.and_then(|ran| ran.took),
        });
    }

    /// The place in front is settled, and the row is `state`.
    pub(super) fn settled(&mut self, state: EntityState, receipt: Option<Receipt>) {
        self.drain.settled(state, receipt);
        self.source = None;
    }

    /// The row afterwards; `None`: the lease has ended with the last place.
    async fn settle_row(&mut self, decision: &Decision) -> Result<Option<EntityState>, Stopped> {
        let store = &self.drainer.store;
        let lease = self.keeper.lease().clone();
        if self.drain.is_last(decision.sequence) {
            let last = SettleAndRelease { lease: &lease, decision, purge_at: self.idle_purge_at() };
            match store.run(&last, self.patience()).await? {
                SettledAndReleased::Released => return Ok(None),
                SettledAndReleased::Grown(state) => self.drain.seen(state),
                SettledAndReleased::Lost => return Err(Stopped::Lost),
            }
        }
        let sent = self.monotonic();
        let settle = self.settle_under(&lease, decision);
        // Where the inbox turned out longer than this page, the next one is read beside the settle.
        let (settled, ahead) = tokio::join!(store.run(&settle, self.patience()), self.ahead());
        match settled? {
            Settled::Settled(lease, state) => {
                self.keeper.prolonged(lease, sent);
                self.seen = sent;
                if let Some(Ok(ahead)) = ahead {
                    self.drain.read_ahead(ahead);
                }
                Ok(Some(state))
            }
            Settled::Lost => Err(Stopped::Lost),
        }
    }
}
