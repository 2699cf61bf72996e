//! Extends the retention of deliveries that have waited for half of their retention.

use crate::protocol::{
    delivery::InboxItem,
    format::attribute as a,
    keys::{delivery_range, key_of, receipt_page_range, receipt_row},
    maintain::ExtendRetention,
    state::EntityState,
    table::{Key, Row, TableName},
};

use super::{PATIENCE, Sweep, SweepStop};

impl Sweep<'_> {
    pub(super) async fn keep(&mut self, state: &EntityState) -> Result<(), SweepStop> {
        let store = &self.sweeper.store;
        let retention = self.sweeper.retention;
        let mut are_pages_kept = !state.spilled.pages;
        let mut pages = store.pages(delivery_range(&state.entity, state.next(), state.tail, 100), PATIENCE);
        while let Some(rows) = pages.next().await? {
            let now = store.env().now();
            for row in &rows {
                if self.is_over() {
                    return Err(SweepStop::Time);
                }
                let due = row.number(a::PURGE_AT).unwrap_or(u64::MAX);
                if due < (now + retention / 2).as_secs_rounded_up() {
                    if !are_pages_kept {
                        self.keep_receipt_pages(state).await?;
                        are_pages_kept = true;
                    }
                    for row in rows_of(state, row) {
                        store.run(&ExtendRetention { row, until: now + retention }, PATIENCE).await?;
                    }
                    self.swept.kept += 1;
                }
            }
        }
        Ok(())
    }

    /// Extends the retention of the pages that may hold receipts of waiting deliveries, which were
    /// rewound.
    async fn keep_receipt_pages(&self, state: &EntityState) -> Result<(), SweepStop> {
        let store = &self.sweeper.store;
        let mut pages = store.pages(receipt_page_range(&state.entity, 100), PATIENCE);
        while let Some(rows) = pages.next().await? {
            let until = store.env().now() + self.sweeper.retention;
            let is_of_waiting = |row: &&Row| row.number(a::SEQUENCE).is_some_and(|last| last > state.head.0);
            for row in rows.iter().filter(is_of_waiting).filter_map(|row| key_of(&TableName::Inbox, row)) {
                store.run(&ExtendRetention { row, until }, PATIENCE).await?;
            }
        }
        Ok(())
    }
}

/// Returns the keys of the rows to keep for a delivery: the receipts with its identities, if receipts
/// have rows, the parts of its body, and its own row. Its own row comes last, because the sweep sees by
/// its expiry what is left to do.
///
/// The receipts are included because, without its receipt, a rewound delivery would look new.
fn rows_of(state: &EntityState, row: &Row) -> Vec<Key> {
    let mut keys = Vec::new();
    if let Ok(InboxItem::Delivery(unpacked)) = InboxItem::parse(&state.entity, row) {
        if state.spilled.rows {
            keys.extend(unpacked.head().repeated_hashes().map(|identity| receipt_row(&state.entity, identity)));
        }
        keys.extend(unpacked.head().part_keys());
    }
    keys.extend(key_of(&TableName::Inbox, row));
    keys
}
