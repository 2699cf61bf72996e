//! Scans a whole table or index page by page, and estimates what the scan costs.

use super::{Operator, OperatorError, PATIENCE};
use crate::{
    engine::{store::StoreError, sweep},
    protocol::{
        entity::EntityKey,
        format::attribute as a,
        keys::entity_row,
        table::{Index, IndexScan, InvalidKind, Row, Scanned, Segment, TableName},
    },
};

/// The number of segments of a scan. All segments have about the same size, so the cost of the
/// first few allows an estimate of the total cost.
pub(super) const PARTS: u32 = 16;

const PAGE: u32 = 500;

/// The most rows that one request reads by key.
const ORDERS_AT_ONCE: usize = 100;

#[derive(Debug)]
pub struct Pass<'a> {
    operator: &'a Operator,
    rest: Rest,
    read: ReadCost,
}

/// The rest of a scan.
#[derive(Debug)]
enum Rest {
    Table(TableName, Segment),
    Index(IndexScan),
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadCost {
    pub rows: u64,
    /// The number of segments that the scan has read completely.
    pub parts: u32,
    pub of: u32,
    half_units: u64,
}

/// An estimate of the DynamoDB read units that a whole scan takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimate {
    About(u64),
    /// The scan takes more than this many read units. Not even its first segment is completely read
    /// yet.
    Over(u64),
}

impl Default for ReadCost {
    fn default() -> Self {
        Self { rows: 0, parts: 0, of: PARTS, half_units: 0 }
    }
}

impl ReadCost {
    /// The largest number of read units that one page costs. A page has at most 1 MB.
    pub const PAGE_UNITS: u64 = 128;

    pub fn units(&self) -> u64 {
        self.half_units.div_ceil(2)
    }

    pub fn estimate(&self) -> Estimate {
        match self.parts {
            0 => Estimate::Over(self.units() * u64::from(self.of)),
            parts => Estimate::About(self.units() * u64::from(self.of) / u64::from(parts)),
        }
    }

    /// Adds a page. An eventually consistent read costs half a unit for each 4 KB or part of it.
    fn add(&mut self, rows: &[Row]) {
        let bytes: usize = rows.iter().map(Row::size).sum();
        self.rows += rows.len() as u64;
        self.half_units += bytes.div_ceil(4096).max(1) as u64;
    }
}

impl Pass<'_> {
    /// Reads the next page of rows, in no particular order and with eventual consistency. Returns
    /// `None` at the end. After an error, call the function again to continue.
    pub async fn page(&mut self) -> Result<Option<Vec<Row>>, OperatorError> {
        let store = &self.operator.store;
        let (rows, is_whole_part) = match &mut self.rest {
            Rest::Table(table, segment) => {
                let Scanned { rows, after } = store.scan(table, segment, PATIENCE).await?;
                segment.number += u32::from(after.is_none());
                segment.after = after;
                (rows, segment.after.is_none())
            }
            Rest::Index(scan) => {
                let page = store.scan_index(scan, PATIENCE).await?;
                scan.after = page.after;
                (page.rows, scan.after.is_none())
            }
            Rest::Nothing => return Ok(None),
        };
        self.read.add(&rows);
        self.read.parts += u32::from(is_whole_part);
        if self.read.parts == self.read.of {
            self.rest = Rest::Nothing;
        }
        Ok(Some(rows))
    }

    /// Makes each further page read at most `rows` rows.
    pub fn limit(&mut self, rows: u32) {
        match &mut self.rest {
            Rest::Table(_, segment) => segment.limit = rows,
            Rest::Index(scan) => scan.limit = rows,
            Rest::Nothing => {}
        }
    }

    pub fn read(&self) -> ReadCost {
        self.read
    }

    /// Returns the table that is being scanned. `None` for an index, and at the end.
    pub fn table(&self) -> Option<&TableName> {
        if let Rest::Table(table, _) = &self.rest { Some(table) } else { None }
    }
}

impl Operator {
    /// Makes this operator scan each table as a single segment. Such a scan gives no early estimate
    /// of its cost.
    ///
    /// A single segment suits the embedded table, which visits all rows for each page of a segment.
    #[must_use]
    pub fn in_one_part(self) -> Self {
        Self { parts: 1, ..self }
    }

    pub fn pass(&self, table: TableName) -> Pass<'_> {
        let segment = Segment { number: 0, of: self.parts, after: None, limit: PAGE };
        let read = ReadCost { of: self.parts, ..ReadCost::default() };
        Pass { operator: self, rest: Rest::Table(table, segment), read }
    }

    /// Reads an index from its beginning. Its rows have only the attributes that the index holds. Fails with an error
    /// that [`OperatorError::lacks_index`] recognises if the index cannot be read; then only a pass of the table tells
    /// which rows there are.
    pub fn index_pass(&self, index: Index) -> Pass<'_> {
        let read = ReadCost { of: 1, ..ReadCost::default() };
        Pass { operator: self, rest: Rest::Index(IndexScan { index, after: None, limit: PAGE }), read }
    }

    /// Returns whether the sweep has mended all rows of older versions, so that [`Index::Waits`] holds every entity
    /// that is blocked or has an error. Costs one read unit.
    pub async fn has_mended(&self) -> Result<bool, OperatorError> {
        let position = match sweep::position(&self.store).await {
            Err(StoreError::Corrupt(_)) => None,
            read => read?,
        };
        Ok(position.and_then(|position| position.round).is_some_and(|round| round.is_complete()))
    }

    /// Finds the entity whose key has this hash, among those that an index shows: that are parked, blocked or on hold, or
    /// have an error.
    pub async fn order_with_hash(&self, hash: &str) -> Result<Option<EntityKey>, OperatorError> {
        for index in Index::ALL {
            let mut pass = self.index_pass(index);
            while let Some(rows) = pass.page().await? {
                let mut entities = rows.iter().filter_map(indexed_entity);
                if let Some(found) = entities.find(|entity| entity.hash() == hash) {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Reads the rows of these entities. The result leaves out entities without a row.
    pub async fn order_rows(&self, entities: &[EntityKey]) -> Result<Vec<Row>, OperatorError> {
        let mut rows = Vec::new();
        for some in entities.chunks(ORDERS_AT_ONCE) {
            let keys: Vec<_> = some.iter().map(entity_row).collect();
            rows.extend(self.store.get_many(&keys, PATIENCE).await?);
        }
        Ok(rows)
    }
}

/// Returns the entity of an index's entry.
pub fn indexed_entity(entry: &Row) -> Option<EntityKey> {
    entry.text(a::ENTITY).and_then(|entity| EntityKey::parse(entity).ok())
}

/// Returns the entity of an entry of [`Index::Held`], if its hold has not ended.
pub fn held_entity(entry: &Row) -> Option<EntityKey> {
    // The number of an ended hold is negative.
    entry.number(a::HOLD)?;
    indexed_entity(entry)
}

impl OperatorError {
    /// Returns whether a request for an index was refused: the table has no such index, the index is still being
    /// filled, or the caller may not read it.
    pub fn lacks_index(&self) -> bool {
        let Self::Store(StoreError::Invalid(request)) = self else { return false };
        matches!(request.kind, InvalidKind::Request | InvalidKind::Permission)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_read_cost_is_estimated_from_first_segments() {
        let row = |bytes: usize| Row::new().with("x", "x".repeat(bytes - 1));
        let mut read = ReadCost::default();
        read.add(&[row(4096), row(1)]);
        assert_eq!((read.units(), read.estimate()), (1, Estimate::Over(16)), "two started 4 KB, at half a unit each");
        read.add(&vec![row(4096); 38]);
        read.parts = 4;
        assert_eq!((read.rows, read.units(), read.estimate()), (40, 20, Estimate::About(80)));
        read.add(&[]);
        assert_eq!(read.units(), 21, "an empty page is not free");
        assert_eq!(
            ReadCost { of: 1, parts: 0, ..read }.estimate(),
            Estimate::Over(21),
            "of one part only the cost so far"
        );
    }
}
