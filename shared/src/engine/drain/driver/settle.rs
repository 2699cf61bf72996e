//! Settles the deliveries in front with one write.

use futures_util::future::join;

use super::{CONTINUE, Driver, Flow, HandlerRun};
use crate::{
    engine::drain::{DrainError, plan::SettleRequest},
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
    fn seen_at(&self) -> Timestamp {
        let ago = self.monotonic().saturating_sub(self.seen);
        Timestamp::from_millis(self.now().as_millis().saturating_sub(ago.as_millis() as u64))
    }

    /// Decides how to settle the deliveries of `run`, or the delivery in front if `run` has none.
    /// Also writes the receipts elsewhere that the decision drops from the entity's row. If that fails,
    /// the decision drops no receipt.
    pub(super) async fn decide(&mut self, settlement: Settlement, run: &HandlerRun, carried: Retries) -> Decision {
        let request = SettleRequest {
            settlement,
            group: run.group,
            token: self.renewer.lease().token(),
            attempts: run.deliveries.last().map_or(0, |delivery| delivery.attempt()),
            took: run.took,
            at: self.now(),
            carried,
        };
        let decision = self.drain.decision(request, self.seen_at(), self.not_before);
        self.spilled(decision).await
    }

    /// Returns the write that carries out `decision` and keeps the lease. Once the drain's slice is
    /// over, the write also marks the hand-over. An isolated drain's slice ends with the suspect,
    /// because until then the worker can take no other batch.
    pub(super) fn settle_under<'l>(&self, lease: &'l Lease, decision: &'l Decision) -> Settle<'l> {
        let is_over = self.slot.is_isolated() || self.monotonic() >= self.began + self.pace.slice;
        let hands_over = self.drain.hands_over(decision.last(), is_over);
        let now = self.now();
        Settle { lease, decision, now, length: self.renewer.length_from(now), hands_over }
    }

    pub(super) fn last_under<'l>(&self, lease: &'l Lease, decision: &'l Decision) -> SettleAndRelease<'l> {
        SettleAndRelease { lease, decision, purge_at: self.idle_purge_at(&decision.recent) }
    }

    /// Settles the deliveries of the parameter `run`, or the delivery in front. The next delivery
    /// inherits the waits in `carried`.
    pub(super) async fn settle(
        &mut self,
        settlement: Settlement,
        run: &HandlerRun,
        carried: Retries,
    ) -> Result<Flow, DrainError> {
        let decision = self.decide(settlement, run, carried).await;
        let row = self.settle_row(&decision).await?;
        self.observe_settled(&decision, run);
        Ok(match row {
            Some(state) => {
                self.settled(state, &decision);
                CONTINUE
            }
            None => Flow::Break(()),
        })
    }

    pub(super) fn observe_settled(&mut self, decision: &Decision, run: &HandlerRun) {
        for receipt in decision.receipts() {
            let before = self.drain.read_at(receipt.sequence).and_then(|delivery| self.drain.before(delivery));
            if before.is_some_and(|before| before.settlement == receipt.settlement && run.deliveries.is_empty()) {
                // The same outcome was reported before the rewind.
                continue;
            }
            let handled = run.deliveries.iter().find(|delivery| delivery.sequence() == receipt.sequence);
            let delivery = handled.map(|delivery| &**delivery).or_else(|| self.drain.read_at(receipt.sequence));
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

    pub(super) fn settled(&mut self, state: EntityState, decision: &Decision) {
        self.drain.settled(state, decision);
        self.source = None;
    }

    /// Writes `decision`, and returns the row afterwards. Returns `None` if the inbox became empty
    /// and the lease ended.
    async fn settle_row(&mut self, decision: &Decision) -> Result<Option<EntityState>, DrainError> {
        let store = &self.drainer.store;
        let lease = self.renewer.lease().clone();
        while self.drain.is_last(decision.last()) {
            match store.run(&self.last_under(&lease, decision), self.patience()).await? {
                SettledAndReleased::Released => return Ok(None),
                SettledAndReleased::Grown(state) => self.drain.seen(state),
                SettledAndReleased::Lost => return Err(DrainError::Lost),
            }
        }
        let sent = self.monotonic();
        let settle = self.settle_under(&lease, decision);
        let write = join(store.run(&settle, self.patience()), self.spill_ahead(decision));
        let (settled, spilled) = self.reading_ahead(decision.places(), write).await;
        match settled? {
            Settled::Settled(lease, state) => {
                self.renewer.extended(lease, sent);
                self.seen = sent;
                spilled.iter().for_each(|written| self.drain.spilled(written));
                Ok(Some(state))
            }
            Settled::Lost => Err(DrainError::Lost),
        }
    }
}
