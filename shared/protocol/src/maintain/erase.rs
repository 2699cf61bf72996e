//! Erases an entity: deletes the rows of its inbox, and removes the receipts, the event times and
//! the holder's description from the entity's row.

use std::time::Duration;

use crate::{
    format::{CorruptRow, attribute as a, readable},
    hold::not_on_hold,
    keys::{action_nonce, entity_row, key_of, sequence_of, watched},
    lease::purge_change,
    operation::Operation,
    state::EntityState,
    table::{Action, Change, Condition, Key, Row, TableName, Write, Written},
    time::Timestamp,
};

/// The time that an erased row is kept, counted from the erasure or from the row's greatest
/// number, whichever is later.
///
/// A row's numbers are also times in milliseconds. If a row is created after the deletion, its
/// numbers start at the current time. These numbers exceed those of the erased row, unless the
/// creator's clock is behind by more than this constant.
const NUMBERS_STAY: Duration = Duration::from_secs(86_400);

/// Removes the receipts, the event times and the holder's description from the row of a free entity
/// with an empty inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forget<'a> {
    pub seen: &'a EntityState,
    /// The earliest time to delete the row itself. `None` means never.
    pub purge_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// The row keeps `head`, `tail` and `token`, but nothing about the deliveries.
    Numbers,
    Gone,
    /// Nothing was changed, because a delivery arrived, or the entity was leased, put on hold or
    /// rewound.
    Changed,
}

impl<'a> Forget<'a> {
    /// Creates the erasure of an entity's row. The row may be deleted a day after `now`, or a day
    /// after its greatest number if that is later. The row's numbers are also times in
    /// milliseconds, by clocks that may be ahead.
    pub fn of(seen: &'a EntityState, now: Timestamp) -> Self {
        let newest = Timestamp::from_millis(now.as_millis().max(seen.tail.0).max(seen.token.0));
        Self { seen, purge_at: (!seen.entity.is_kept_forever()).then_some(newest + NUMBERS_STAY) }
    }
}

impl Forget<'_> {
    /// Returns whether the row has more than its key and numbers.
    pub fn removes_anything(&self) -> bool {
        let Self { seen, .. } = self;
        let has_receipts = seen.recent.last().is_some() || seen.spilled.is_anywhere();
        has_receipts || seen.holder_info.is_some() || seen.newest_event_time.to_stored().is_some()
    }
}

impl Operation for Forget<'_> {
    type Outcome = Forgotten;

    fn write(&self) -> Write {
        // The other attributes contain nothing about settled deliveries.
        let kept_for_repeats = [a::RECENT, a::SPILLED, a::NEWEST_EVENT_TIME, a::HOLDER_INFO];
        let mut changes = kept_for_repeats.map(Change::remove).to_vec();
        changes.extend(purge_change(self.purge_at));
        Write {
            key: entity_row(&self.seen.entity),
            condition: Condition::All(vec![
                Condition::equal(a::TAIL, self.seen.tail.0),
                Condition::equal(a::HEAD, self.seen.head.0),
                Condition::absent(a::HOLDER),
                not_on_hold(),
                readable(),
            ]),
            action: Action::Update(changes),
        }
    }

    /// Does not recognise an earlier try of this write, and need not: a second try also meets the
    /// condition, and changes nothing.
    fn judge(&self, reply: Written) -> Result<Forgotten, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Forgotten::Numbers,
            Written::Refused(None) => Forgotten::Gone,
            Written::Refused(Some(_)) => Forgotten::Changed,
        })
    }
}

/// Deletes a delivery, a parked delivery, a receipt, a page of receipts, an entry of the operations log or a row of
/// [`watched_range`](crate::keys::watched_range). If another row has replaced it under the same key, the other row
/// stays.
#[derive(Debug, Clone, PartialEq)]
pub struct Remove {
    key: Key,
    condition: Condition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    Gone,
    /// Another row with the same key has replaced the row, and stays.
    Another,
}

impl Remove {
    /// Creates the deletion of a row. A receipt is identified by its sequence, because all receipts
    /// of a delivery have the same key. Any other row is identified by its nonce.
    pub fn of(row: &Row) -> Result<Self, CorruptRow> {
        let has_nonce = sequence_of(row).is_some() || action_nonce(row).is_some() || watched(row).is_some();
        let known_by = if has_nonce { a::NONCE } else { a::SEQUENCE };
        let value = row.get(known_by).ok_or(CorruptRow::Attribute(known_by))?;
        let key = key_of(&TableName::Inbox, row).ok_or(CorruptRow::Attribute(a::ENTITY))?;
        Ok(Self { key, condition: Condition::equal(known_by, value.clone()) })
    }
}

impl Operation for Remove {
    type Outcome = Removed;

    fn write(&self) -> Write {
        Write { key: self.key.clone(), condition: self.condition.clone(), action: Action::Delete }
    }

    /// Treats a missing row as success: an earlier try of this write deleted the row, or its
    /// retention has ended.
    fn judge(&self, reply: Written) -> Result<Removed, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) | Written::Refused(None) => Removed::Gone,
            Written::Refused(Some(_)) => Removed::Another,
        })
    }
}

/// Deletes one part of a body. The part's key contains the append's nonce, so no other part can
/// replace it.
#[derive(Debug, Clone, PartialEq)]
pub struct RemovePart<'a> {
    pub part: &'a Key,
}

impl Operation for RemovePart<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        Write::delete(self.part.clone())
    }

    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
