//! Copies receipts from an entity's row to pages, or to separate rows.

use std::time::Duration;

use futures_util::future::try_join_all;

use super::plan::{Drain, Spilling};
use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        entity::EntityKey,
        inbox::{Decision, Spill, SpillPage},
        receipt::Receipt,
    },
    time::Timestamp,
};

/// Copies the receipts that `decision` drops from the entity's row, and lets `decision` say where they are.
///
/// After an error, `decision` must not be written before it [drops nothing](Decision::dropping_nothing).
pub(crate) async fn spill_dropped(
    store: &Store,
    drain: &mut Drain,
    decision: &mut Decision,
    retention: Duration,
    patience: Duration,
) -> Result<(), StoreError> {
    if let Some(spilling) = drain.to_spill(decision) {
        spill(store, &drain.state().entity, &spilling, retention, patience).await?;
        drain.spilled(&spilling);
        drain.mark(decision);
    }
    Ok(())
}

/// Writes the receipts `spilling` of `entity`, so that they can leave the entity's row.
pub(crate) async fn spill(
    store: &Store,
    entity: &EntityKey,
    spilling: &Spilling,
    retention: Duration,
    patience: Duration,
) -> Result<(), StoreError> {
    match spilling {
        Spilling::Page(receipts) => {
            let purge_at = purge_at(store, receipts.iter(), retention);
            match SpillPage::of(entity, receipts, purge_at) {
                Some(page) => store.run(&page, patience).await,
                None => Ok(()),
            }
        }
        Spilling::Rows(receipts) => {
            let each = receipts.iter().map(|receipt| spill_one(store, entity, receipt, retention, patience));
            try_join_all(each).await.map(drop)
        }
    }
}

/// Copies one receipt to a separate row.
pub(crate) async fn spill_one(
    store: &Store,
    entity: &EntityKey,
    receipt: &Receipt,
    retention: Duration,
    patience: Duration,
) -> Result<(), StoreError> {
    match Spill::of(entity, receipt, purge_at(store, [receipt].into_iter(), retention)) {
        Some(spill) => store.run(&spill, patience).await,
        None => Ok(()),
    }
}

/// Returns the time until which a copy of `receipts` is kept. The retention counts from now at least,
/// because the clock of the worker that settled a delivery may have been slow.
fn purge_at<'a>(store: &Store, receipts: impl Iterator<Item = &'a Receipt>, retention: Duration) -> Timestamp {
    let newest = receipts.map(|receipt| receipt.settled_at).max();
    newest.map_or(store.env().now(), |newest| newest.max(store.env().now())) + retention
}
