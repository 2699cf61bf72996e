//! Keeping what waits: rows that have waited for half the retention get their
//! whole retention again.

use crate::{
    protocol::{
        delivery::Item,
        format::{CorruptRow, attribute as a},
        keys::{delivery_range, key_of, sequence_of},
        operation::Operation,
        state::EntityState,
        table::{Action, Change, Comparison, Condition, Key, Row, TableName, Write, Written},
    },
    time::Timestamp,
};

use super::{PATIENCE, Stop, Sweep};

/// Puts the end of a row's retention off.
#[derive(Debug, Clone, PartialEq)]
struct PutOff {
    /// Which row, of a delivery or of a part of its body.
    row: Key,
    /// Its new end.
    until: Timestamp,
}

impl Operation for PutOff {
    type Outcome = ();

    /// Never makes a row that is gone, never brings an end nearer, and gives
    /// none to a row that has none: it may be what an operator parked in the
    /// meantime.
    fn write(&self) -> Write {
        let end = self.until.as_secs_rounded_up();
        Write {
            key: self.row.clone(),
            condition: Condition::compare(a::PURGE_AT, Comparison::Less, end),
            action: Action::Update(vec![Change::set(a::PURGE_AT, end)]),
        }
    }

    /// Landed or not, it ends no sooner than this, or is not for us: twice is
    /// harmless.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

impl Sweep<'_> {
    /// Gives the pending rows of an entity their whole retention again.
    pub(super) async fn keep(&mut self, state: &EntityState) -> Result<(), Stop> {
        let (store, retention) = (&self.sweeper.store, self.sweeper.retention);
        let mut from = state.next();
        while from <= state.tail {
            let range = delivery_range(&state.entity, from, state.tail, 100);
            let page = store.query(&range, PATIENCE).await?;
            let now = store.surroundings().now();
            for row in &page.rows {
                if self.is_over() {
                    return Err(Stop::Time);
                }
                let due = row.number(a::PURGE_AT).unwrap_or(u64::MAX);
                if due < (now + retention / 2).as_secs_rounded_up() {
                    for row in rows_of(state, row) {
                        store.run(&PutOff { row, until: now + retention }, PATIENCE).await?;
                    }
                    self.swept.kept += 1;
                }
            }
            match page.rows.last().and_then(sequence_of) {
                Some(last) if page.more => from = last.next(),
                _ => break,
            }
        }
        Ok(())
    }
}

/// The row of a delivery, and those of its body.
fn rows_of(state: &EntityState, row: &Row) -> Vec<Key> {
    let mut keys: Vec<_> = key_of(&TableName::Inbox, row).into_iter().collect();
    if let Ok(Item::Delivery(unpacked)) = Item::parse(&state.entity, row) {
        keys.extend(unpacked.head().part_keys());
    }
    keys
}
