//! How a lease goes on.

use std::time::Duration;

use super::Lease;
use crate::{
    protocol::{
        format::{CorruptRow, attribute as a},
        operation::{Operation, state_of},
        state::{EntityState, LONGEST_LEASE},
        table::{Change, Comparison, Condition, Write, Written},
    },
    time::Timestamp,
};

/// Puts off the end of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renew<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// The time.
    pub now: Timestamp,
    /// For how long from `now`.
    pub length: Duration,
}

/// What became of a holder's write that leaves it the holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// The lease is still this holder's.
    Renewed(EntityState),
    /// It is not. Change nothing any more.
    Lost,
}

impl Operation for Renew<'_> {
    type Outcome = Renewed;

    fn write(&self) -> Write {
        let until = (self.now + self.length.min(LONGEST_LEASE)).as_millis();
        let condition =
            Condition::All(vec![self.lease.mine(), Condition::compare(a::EXPIRES_AT, Comparison::Less, until)]);
        self.lease.update(condition, vec![Change::set(a::EXPIRES_AT, until)])
    }

    /// Refused and still mine: a first try or a faster clock put it off as far
    /// already.
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
