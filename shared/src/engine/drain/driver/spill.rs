//! Writes receipts elsewhere before a settle drops them from the entity's row.

use super::{Driver, RELEASE_MARGIN};
use crate::{
    engine::drain::{
        plan::{SHORT_WAIT, Spilling},
        spill::{spill, spill_dropped},
    },
    protocol::inbox::Decision,
};

impl Driver<'_> {
    /// Writes the receipts that `decision` drops from the entity's row elsewhere, and returns
    /// `decision`.
    ///
    /// If a write fails, returns a decision that drops no receipts. So the drain can still settle
    /// the deliveries within the function's time.
    pub(super) async fn spilled(&mut self, mut decision: Decision) -> Decision {
        // Half of the time left is reserved for the settle.
        let left = self.drainer.now_left(self.deadline).saturating_sub(RELEASE_MARGIN);
        let patience = SHORT_WAIT.min(left / 2);
        let retention = self.drainer.settings.retention;
        match spill_dropped(&self.drainer.store, &mut self.drain, &mut decision, retention, patience).await {
            Ok(()) => decision,
            Err(_) => decision.dropping_nothing(),
        }
    }

    /// Writes the receipts elsewhere that the settle after `decision` is expected to drop from the
    /// entity's row. Returns these receipts, or none if a write failed.
    ///
    /// The caller writes `decision` concurrently.
    pub(super) fn spill_ahead(&self, decision: &Decision) -> impl Future<Output = Option<Spilling>> + use<> {
        let spilling = self.drain.to_spill_ahead(decision);
        let store = self.drainer.store.clone();
        let entity = self.drain.state().entity.clone();
        let retention = self.drainer.settings.retention;
        async move {
            let spilling = spilling?;
            spill(&store, &entity, &spilling, retention, SHORT_WAIT).await.ok().map(|()| spilling)
        }
    }
}
