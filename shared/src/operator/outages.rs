//! Reads which destinations are down.

use super::{Operator, OperatorError, PAGE, PATIENCE};
use crate::protocol::{keys::outage_range, outage::Outage};

impl Operator {
    /// Returns the outages that last, the longest first. Costs one read unit for about 30 destinations that were
    /// down in the last week.
    ///
    /// # Errors
    ///
    /// Returns [`OperatorError::Store`] if the table does not answer. Rows that cannot be parsed are left out.
    pub async fn outages(&self) -> Result<Vec<Outage>, OperatorError> {
        let page = self.store.query(&outage_range(PAGE), PATIENCE).await?;
        let mut outages: Vec<Outage> = page.rows.iter().filter_map(|row| Outage::parse(row).ok().flatten()).collect();
        outages.sort_by_key(|outage| outage.since);
        Ok(outages)
    }
}
