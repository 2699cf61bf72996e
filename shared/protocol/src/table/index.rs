//! The tables' global secondary indexes. They hold only the rows that an operator looks for, so reading one costs in
//! proportion to these rows, however large the table is.

use super::{Row, TableName};
use crate::{format::attribute as a, keys::key_of};

/// A global secondary index of one of the protocol's tables. Its partition key is `entity`.
///
/// DynamoDB keeps it up to date by itself, a moment after each write. It holds the rows that have the sort key's
/// attribute. So a row's writer chooses with one attribute whether the row is in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Index {
    /// The parked deliveries, without their bodies.
    Parked,
    /// The entities that are or were on hold: their keys, and the number of the newest hold, which is negative once the
    /// hold has ended.
    Held,
    /// The entities that are blocked or have an error, with what [`Waits`](crate::waits::Waits) tells, the error, and
    /// the time since which they wait.
    Waits,
}

/// The type of an index's sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortKind {
    Number,
    Bytes,
}

impl Index {
    /// All indexes. DynamoDB adds one to a table an update: `held`, then `waits`.
    pub const ALL: [Index; 3] = [Index::Parked, Index::Held, Index::Waits];

    /// Returns the index's name.
    pub const fn name(self) -> &'static str {
        match self {
            Index::Parked => "parked",
            Index::Held => "held",
            Index::Waits => "waits",
        }
    }

    /// Returns the table whose rows the index holds.
    pub const fn table(self) -> TableName {
        match self {
            Index::Parked => TableName::Inbox,
            Index::Held | Index::Waits => TableName::Entities,
        }
    }

    /// Returns the attribute that is the sort key. Only rows with this attribute are in the index.
    pub const fn sort(self) -> &'static str {
        match self {
            Index::Parked => a::PARKED_AT,
            Index::Held => a::HOLD,
            Index::Waits => a::WAITS,
        }
    }

    pub const fn sort_kind(self) -> SortKind {
        match self {
            Index::Parked | Index::Held => SortKind::Number,
            Index::Waits => SortKind::Bytes,
        }
    }

    /// Returns the attributes that the index holds besides the keys; none means the keys alone. A parked delivery has
    /// those that every delivery needs to be read, but no body.
    pub const fn projects(self) -> &'static [&'static str] {
        match self {
            Index::Parked => &[
                a::VERSION,
                a::NONCE,
                a::SOURCE,
                a::DELIVERY_ID,
                a::REDRIVE,
                a::TOPIC,
                a::EVENT_TIME,
                a::RECEIVED_AT,
                a::BODY_BYTES,
                a::ENCODING,
                a::ERROR,
                a::PURGE_AT,
            ],
            Index::Held => &[],
            Index::Waits => &[a::LAST_ERROR, a::PENDING_SINCE],
        }
    }

    /// Returns the part of a row that the index holds; `None` if the row is not in the index.
    pub fn entry(self, row: &Row) -> Option<Row> {
        row.get(self.sort())?;
        let keys = key_of(&self.table(), row)?.to_row();
        let kept = |name: &str| name == self.sort() || self.projects().contains(&name) || keys.get(name).is_some();
        Some(row.iter().filter(|(name, _)| kept(name)).map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Returns the write units that the index takes when a row changes: one for each KB of an entry that comes, goes or
    /// changes, and both if its sort key changes.
    pub fn write_units(self, before: Option<&Row>, after: Option<&Row>) -> u64 {
        let [before, after] = [before, after].map(|row| row.and_then(|row| self.entry(row)));
        match (before, after) {
            (None, None) => 0,
            (Some(one), None) | (None, Some(one)) => one.write_units(),
            (Some(before), Some(after)) if before == after => 0,
            (Some(before), Some(after)) if before.get(self.sort()) != after.get(self.sort()) => {
                before.write_units() + after.write_units()
            }
            (Some(before), Some(after)) => before.write_units().max(after.write_units()),
        }
    }
}

/// A request for one page of an index, in any order. The read is eventually consistent.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexScan {
    pub index: Index,
    /// The [`IndexPage::after`] of the page before. `None` for the first page.
    pub after: Option<Row>,
    pub limit: u32,
}

/// One page of an index.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IndexPage {
    /// The parts of rows that the index holds.
    pub rows: Vec<Row>,
    /// The place of the next page. `None` after the last page.
    pub after: Option<Row>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_takes_units_only_for_entries_that_change() {
        let row = Row::new().with(a::ENTITY, "a/b").with(a::ITEM, "an item").with(a::BODY, "x".repeat(3000));
        let parked = row.clone().with(a::PARKED_AT, 5_u32).with(a::ERROR, "no");
        let units = |before: Option<&Row>, after: Option<&Row>| Index::Parked.write_units(before, after);
        assert_eq!((units(None, Some(&row)), units(Some(&row), Some(&row))), (0, 0));
        assert_eq!((units(None, Some(&parked)), units(Some(&parked), None)), (1, 1), "without the body");
        let other_body = parked.clone().with(a::BODY, "y");
        assert_eq!(units(Some(&parked), Some(&other_body)), 0, "the index does not hold the body");
        assert_eq!(units(Some(&parked), Some(&parked.clone().with(a::ERROR, "2".repeat(1024)))), 2);
        assert_eq!(units(Some(&parked), Some(&parked.clone().with(a::PARKED_AT, 6_u32))), 2);
    }
}
