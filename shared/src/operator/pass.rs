//! A look at every row of one of our tables, a page at a time, with what it has
//! cost so far and about what it will: whoever asks may stop in between.

use super::{Operator, OperatorError, PATIENCE};
use crate::protocol::table::{Row, Scanned, Segment, TableName};

/// A table is read in so many parts of about the same size: what the first ones
/// cost tells about what all of them will.
pub(super) const PARTS: u32 = 16;

const PAGE: u32 = 500;

/// A look at all rows of a table, under way.
#[derive(Debug)]
pub struct Pass<'a> {
    operator: &'a Operator,
    table: TableName,
    segment: Segment,
    read: Read,
}

/// What was read so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// How many rows.
    pub rows: u64,
    /// How many of the table's parts are done with.
    pub parts: u32,
    /// In how many it is read.
    pub of: u32,
    half_units: u64,
}

/// How many read units a whole pass takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimate {
    /// About so many.
    About(u64),
    /// More than that: not even the first part was read to its end.
    Over(u64),
}

impl Default for Read {
    fn default() -> Self {
        Self { rows: 0, parts: 0, of: PARTS, half_units: 0 }
    }
}

impl Read {
    /// The most read units that one page costs: it holds 1 MB.
    pub const PAGE_UNITS: u64 = 128;

    /// The read units that this has cost.
    pub fn units(&self) -> u64 {
        self.half_units.div_ceil(2)
    }

    /// What the whole table costs, by what was read of it.
    pub fn estimate(&self) -> Estimate {
        match self.parts {
            0 => Estimate::Over(self.units() * u64::from(self.of)),
            parts => Estimate::About(self.units() * u64::from(self.of) / u64::from(parts)),
        }
    }

    /// A page is paid for as a whole: half a unit for each started 4 KB, since
    /// it may be out of date.
    fn add(&mut self, rows: &[Row]) {
        let bytes: usize = rows.iter().map(Row::size).sum();
        self.rows += rows.len() as u64;
        self.half_units += bytes.div_ceil(4096).max(1) as u64;
    }
}

impl Pass<'_> {
    /// The next rows, in no order and possibly out of date; `None`: there are no
    /// more.
    ///
    /// # Errors
    ///
    /// The store could not be reached. Asked again, it goes on.
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

    /// What was read so far.
    pub fn read(&self) -> Read {
        self.read
    }
}

impl Operator {
    /// The same, which reads a table as one: an embedded one goes over all its rows
    /// for each page of a part. What a whole pass costs is not known before its end.
    #[must_use]
    pub fn in_one_part(self) -> Self {
        Self { parts: 1, ..self }
    }

    /// Begins to look at all rows of `table`, one of ours.
    pub fn pass(&self, table: TableName) -> Pass<'_> {
        let segment = Segment { number: 0, of: self.parts, after: None, limit: PAGE };
        Pass { operator: self, table, segment, read: Read { of: self.parts, ..Read::default() } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_first_parts_cost_tells_about_the_whole() {
        let row = |bytes: usize| Row::new().with("x", "x".repeat(bytes - 1));
        let mut read = Read::default();
        read.add(&[row(4096), row(1)]);
        assert_eq!((read.units(), read.estimate()), (1, Estimate::Over(16)), "two started 4 KB, at half a unit each");
        read.add(&vec![row(4096); 38]);
        read.parts = 4;
        assert_eq!((read.rows, read.units(), read.estimate()), (40, 20, Estimate::About(80)));
        read.add(&[]);
        assert_eq!(read.units(), 21, "an empty page is not free");
        assert_eq!(Read { of: 1, parts: 0, ..read }.estimate(), Estimate::Over(21), "of one part only the cost so far");
    }
}
