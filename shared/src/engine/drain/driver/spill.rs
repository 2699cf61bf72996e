//! Moves receipts from an entity's row to rows of their own.

use std::time::Duration;

use futures_util::future::join_all;

use super::{Driver, RELEASE_MARGIN};
use crate::{
    engine::{drain::plan::SHORT_WAIT, store::Store},
    protocol::{
        entity::EntityKey,
        inbox::{Decision, Spill},
        receipt::Receipt,
    },
};

impl Driver<'_> {
    /// Writes a receipt row for each receipt that `decision` drops from the entity's row, and
    /// returns `decision`.
    ///
    /// If a write fails, returns a decision that drops no receipts. So the drain can still settle
    /// the deliveries within the function's time.
    pub(super) async fn spilled(&mut self, decision: Decision) -> Decision {
        let receipts = self.drain.to_spill(&decision);
        if receipts.is_empty() {
            return decision;
        }
        // Half of the time left is reserved for the settle.
        let left = self.drainer.now_left(self.deadline).saturating_sub(RELEASE_MARGIN);
        match self.spill(receipts, SHORT_WAIT.min(left / 2)).await {
            Some(spilled) => {
                self.drain.spilled(spilled);
                decision
            }
            None => decision.dropping_nothing(),
        }
    }

    /// Writes a receipt row for each receipt that the settle after `decision` is expected to drop
    /// from the entity's row. Returns these receipts, or none if a write failed.
    ///
    /// The caller writes `decision` concurrently.
    pub(super) fn spill_ahead(&self, decision: &Decision) -> impl Future<Output = Vec<Receipt>> + use<> {
        let spill = self.spill(self.drain.to_spill_ahead(decision), SHORT_WAIT);
        async { spill.await.unwrap_or_default() }
    }

    fn spill(&self, receipts: Vec<Receipt>, patience: Duration) -> impl Future<Output = Option<Vec<Receipt>>> + use<> {
        let store = self.drainer.store.clone();
        let entity = self.drain.state().entity.clone();
        let retention = self.drainer.settings.retention;
        async move {
            let each = receipts.iter().map(|receipt| write(&store, &entity, receipt, retention, patience));
            join_all(each).await.into_iter().all(|is_written| is_written).then_some(receipts)
        }
    }
}

async fn write(store: &Store, entity: &EntityKey, receipt: &Receipt, retention: Duration, patience: Duration) -> bool {
    // The retention counts from now at least, because the clock of the worker that settled the
    // delivery may have been slow.
    let purge_at = store.env().now().max(receipt.settled_at) + retention;
    match Spill::of(entity, receipt, purge_at) {
        Some(spill) => store.run(&spill, patience).await.is_ok(),
        None => true,
    }
}
