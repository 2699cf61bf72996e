//! Renews a lease.

use std::time::Duration;

use super::Lease;
use crate::{
    format::{CorruptRow, attribute as a},
    operation::{Operation, state_of},
    state::{EntityState, LONGEST_LEASE},
    table::{Change, Comparison, Condition, Write, Written},
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renew<'a> {
    pub lease: &'a Lease,
    pub now: Timestamp,
    pub length: Duration,
    /// The lease's end in the row, if it was written by a wrong clock. The renewal then replaces it even by an
    /// earlier end.
    pub wrong: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    Renewed(EntityState),
    /// The lease was lost. The holder must write nothing more.
    Lost,
}

impl Operation for Renew<'_> {
    type Outcome = Renewed;

    fn write(&self) -> Write {
        let until = (self.now + self.length.min(LONGEST_LEASE)).as_millis();
        let is_earlier = Condition::compare(a::EXPIRES_AT, Comparison::Less, until);
        let is_replaced = match self.wrong {
            Some(wrong) => Condition::Any(vec![is_earlier, Condition::equal(a::EXPIRES_AT, wrong.as_millis())]),
            None => is_earlier,
        };
        let condition = Condition::All(vec![self.lease.mine(), is_replaced]);
        self.lease.update(condition, vec![Change::set(a::EXPIRES_AT, until)])
    }

    /// Treats a refusal as success if the holder still has the lease. In that case, an earlier try
    /// or a renewal by a faster clock has already extended the lease at least as far.
    fn judge(&self, reply: Written) -> Result<Renewed, CorruptRow> {
        let state = match reply {
            Written::Landed(row) | Written::Refused(row) => state_of(row)?,
        };
        Ok(match state {
            Some(state) if self.lease.is_mine(&state) => Renewed::Renewed(state),
            _ => Renewed::Lost,
        })
    }
}
