//! Reads a range of rows page by page.

use std::time::Duration;

use super::store::{Store, StoreError};
use crate::protocol::table::{Range, Row};

/// A reading of a range, in ascending order of the sort keys. Each page has at most the range's `limit` of rows.
#[derive(Debug)]
pub struct Pages<'a> {
    store: &'a Store,
    /// The range that is still to be read. `None` at the end.
    rest: Option<Range>,
    patience: Duration,
}

impl Store {
    /// Begins to read `range`. Each page is tried until `patience` has passed.
    pub fn pages(&self, range: Range, patience: Duration) -> Pages<'_> {
        let rest = (!range.is_empty()).then_some(range);
        Pages { store: self, rest, patience }
    }
}

impl Pages<'_> {
    /// Reads the next page, which is never empty. Returns `None` at the end of the range.
    pub async fn next(&mut self) -> Result<Option<Vec<Row>>, StoreError> {
        let Some(range) = self.rest.take() else { return Ok(None) };
        let page = self.store.query(&range, self.patience).await?;
        self.rest = page.rows.last().filter(|_| page.more).and_then(|last| range.after(last));
        Ok((!page.rows.is_empty()).then_some(page.rows))
    }
}
