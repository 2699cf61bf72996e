//! Receipts leave an entity's row for rows of their own.

use std::time::Duration;

use futures_util::future::join_all;

use super::{Driver, LETTING_GO};
use crate::{
    engine::{drain::plan::SHORT, store::Store},
    protocol::{
        entity::EntityKey,
        inbox::{Decision, Spill},
        receipt::Receipt,
    },
};

impl Driver<'_> {
    /// Makes sure that what leaves the row with `decision` is remembered
    /// elsewhere. What cannot be written there stays in the row for now: that costs
    /// less than a handler's work that is not settled in the function's time.
    pub(super) async fn spilled(&mut self, decision: Decision) -> Decision {
        let receipts = self.drain.to_spill(&decision);
        if receipts.is_empty() {
            return decision;
        }
        // Half of what is left is for the settle.
        let left = self.drainer.now_left(self.deadline).saturating_sub(LETTING_GO);
        match self.spill(receipts, SHORT.min(left / 2)).await {
            Some(spilled) => {
                self.drain.spilled(spilled);
                decision
            }
            None => decision.dropping_nothing(),
        }
    }

    /// Writes what will leave the row with the next decision, to be awaited beside
    /// the write of this one: so the next has nothing to wait for. What was
    /// written; nothing, where it could not be.
    pub(super) fn spill_ahead(&self, decision: &Decision) -> impl Future<Output = Vec<Receipt>> + use<> {
        let spill = self.spill(self.drain.to_spill_ahead(decision), SHORT);
        async { spill.await.unwrap_or_default() }
    }

    /// The receipts, if all of them have rows of their own now.
    fn spill(&self, receipts: Vec<Receipt>, patience: Duration) -> impl Future<Output = Option<Vec<Receipt>>> + use<> {
        let (store, entity) = (self.drainer.store.clone(), self.drain.state().entity.clone());
        let retention = self.drainer.settings.retention;
        async move {
            let each = receipts.iter().map(|receipt| write(&store, &entity, receipt, retention, patience));
            join_all(each).await.into_iter().all(|is_there| is_there).then_some(receipts)
        }
    }
}

/// Whether the receipt is there.
async fn write(store: &Store, entity: &EntityKey, receipt: &Receipt, retention: Duration, patience: Duration) -> bool {
    // Counted from now at the least: whoever settled it may have had a clock that is behind.
    let purge_at = store.env().now().max(receipt.settled_at) + retention;
    match Spill::of(entity, receipt, purge_at) {
        Some(spill) => store.run(&spill, patience).await.is_ok(),
        None => true,
    }
}
