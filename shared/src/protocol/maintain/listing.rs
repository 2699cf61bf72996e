//! The list of jobs, by name: the table of entities cannot be asked for those
//! of a namespace.

use crate::protocol::{
    format::{CorruptRow, FORMAT, attribute as a},
    keys::job_listing_row,
    operation::Operation,
    table::{Write, Written},
};

/// Lists a job, before its row is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListJob<'a> {
    /// Its name.
    pub job: &'a str,
}

impl Operation for ListJob<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let key = job_listing_row(self.job);
        let row = key.to_row().with(a::VERSION, FORMAT);
        Write::put(key, row)
    }

    /// It asks for nothing: whoever lists a job puts the same row.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
