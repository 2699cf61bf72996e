//! Extends the retention of deliveries that have waited for half of their retention.

use crate::protocol::{
    delivery::InboxItem,
    format::attribute as a,
    keys::{delivery_range, key_of, receipt_row},
    maintain::ExtendRetention,
    state::EntityState,
    table::{Key, Row, TableName},
};

use super::{PATIENCE, Sweep, SweepStop};

impl Sweep<'_> {
    pub(super) async fn keep(&mut self, state: &EntityState) -> Result<(), SweepStop> {
        let store = &self.sweeper.store;
        let retention = self.sweeper.retention;
        let mut pages = store.pages(delivery_range(&state.entity, state.next(), state.tail, 100), PATIENCE);
        while let Some(rows) = pages.next().await? {
            let now = store.env().now();
            for row in &rows {
                if self.is_over() {
                    return Err(SweepStop::Time);
                }
                let due = row.number(a::PURGE_AT).unwrap_or(u64::MAX);
                if due < (now + retention / 2).as_secs_rounded_up() {
                    for row in rows_of(state, row) {
                        store.run(&ExtendRetention { row, until: now + retention }, PATIENCE).await?;
                    }
                    self.swept.kept += 1;
                }
            }
        }
        Ok(())
    }
}

/// Returns the keys of a delivery's row, of its body's parts and, if receipts have spilled, of the
/// receipts with its identities.
///
/// The receipts are included because, without its receipt, a rewound delivery would look new.
fn rows_of(state: &EntityState, row: &Row) -> Vec<Key> {
    let mut keys: Vec<_> = key_of(&TableName::Inbox, row).into_iter().collect();
    if let Ok(InboxItem::Delivery(unpacked)) = InboxItem::parse(&state.entity, row) {
        keys.extend(unpacked.head().part_keys());
        if state.spilled {
            keys.extend(unpacked.head().repeated_hashes().map(|identity| receipt_row(&state.entity, identity)));
        }
    }
    keys
}
