//! Scans a whole table page by page, and estimates what the scan costs.

use super::{Operator, OperatorError, PATIENCE};
use crate::protocol::table::{Row, Scanned, Segment, TableName};

/// The number of segments of a scan. All segments have about the same size, so the cost of the
/// first few allows an estimate of the total cost.
pub(super) const PARTS: u32 = 16;

const PAGE: u32 = 500;

#[derive(Debug)]
pub struct Pass<'a> {
    operator: &'a Operator,
    table: TableName,
    segment: Segment,
    read: ReadCost,
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
        if self.segment.number == self.segment.of {
            return Ok(None);
        }
        let Scanned { rows, after } = self.operator.store.scan(&self.table, &self.segment, PATIENCE).await?;
        self.read.add(&rows);
        if after.is_none() {
            self.segment.number += 1;
            self.read.parts += 1;
        }
        self.segment.after = after;
        Ok(Some(rows))
    }

    pub fn read(&self) -> ReadCost {
        self.read
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
        Pass { operator: self, table, segment, read: ReadCost { of: self.parts, ..ReadCost::default() } }
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
