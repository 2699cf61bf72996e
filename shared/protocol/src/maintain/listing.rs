//! The list of jobs. It exists because the entities table cannot be queried by prefix.

use crate::{
    format::{CorruptRow, FORMAT, attribute as a},
    keys::job_listing_row,
    operation::Operation,
    table::{Write, Written},
};

/// Adds a job to the list of jobs, before the job's row is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListJob<'a> {
    pub job: &'a str,
}

impl Operation for ListJob<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let key = job_listing_row(self.job);
        let row = key.to_row().with(a::VERSION, FORMAT);
        Write::put(key, row)
    }

    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
