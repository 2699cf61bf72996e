//! The orders that each tick of the sweep looks at, whatever segment is due.

use super::Remove;
use crate::{
    entity::EntityKey,
    format::{CorruptRow, FORMAT, attribute as a, check_format},
    keys::{WatchReason, watched, watched_row},
    operation::Operation,
    table::{Row, Write, Written},
    time::{Nonce, Timestamp},
};

/// Lets each tick of the sweep look at an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch<'a> {
    pub reason: WatchReason,
    pub entity: &'a EntityKey,
    pub nonce: &'a Nonce,
    pub purge_at: Timestamp,
}

impl Operation for Watch<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let key = watched_row(self.reason, self.entity);
        let row = key.to_row().with(a::VERSION, FORMAT).with(a::NONCE, self.nonce.as_str());
        Write::put(key, row.with(a::PURGE_AT, self.purge_at.as_secs_rounded_up()))
    }

    /// Does not recognise an earlier try of this write, and need not: a second try stores the same row.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// An entity that each tick of the sweep looks at.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    pub reason: WatchReason,
    pub entity: EntityKey,
    /// Ends the watch, unless a later one has replaced it.
    pub end: Remove,
}

impl Watched {
    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        check_format(row)?;
        let (reason, entity) = watched(row).ok_or(CorruptRow::Attribute(a::ITEM))?;
        let entity = EntityKey::parse(entity).map_err(|_| CorruptRow::Attribute(a::ITEM))?;
        Ok(Self { reason, entity, end: Remove::of(row)? })
    }
}
