//! Reads which destinations are down.

use super::{Operator, OperatorError, PAGE, PATIENCE};
use crate::protocol::{keys::outage_range, outage::Outage};

impl Operator {
    /// Returns the outages that last, the longest first. Rows that cannot be parsed are left out.
    ///
    /// # Errors
    ///
    /// Returns [`OperatorError::Store`] if the table does not answer.
    pub async fn outages(&self) -> Result<Vec<Outage>, OperatorError> {
        let mut outages: Vec<Outage> = Vec::new();
        let mut pages = self.store.pages(outage_range(PAGE), PATIENCE);
        while let Some(rows) = pages.next().await? {
            outages.extend(rows.iter().filter_map(|row| Outage::parse(row).ok().flatten()));
        }
        outages.sort_by_key(|outage| outage.since);
        Ok(outages)
    }
}
