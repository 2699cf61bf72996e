//! Operations that end a lease: on an empty inbox, after a wake-up was sent, or to give waiting
//! deliveries their turn.

use std::time::Duration;

use super::{Lease, purged_if_idle, remove_lease, remove_lease_and_handover};
use crate::{
    format::{CorruptRow, attribute as a},
    operation::{Operation, state_of, updated_state},
    state::{ABOUT_TO, EntityState, FIRST_HOLDER},
    table::{Change, Comparison, Condition, Write, Written},
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Ended(EntityState),
    Lost,
}

/// Treats a refusal as success if the entity is free and its row has the lease's token, because
/// then an earlier try of this write landed.
fn judge_release(lease: &Lease, reply: Written) -> Result<Ended, CorruptRow> {
    Ok(match reply {
        Written::Landed(row) => Ended::Ended(updated_state(row)?),
        Written::Refused(row) => match state_of(row)? {
            Some(state) if lease.was_released(&state) => Ended::Ended(state),
            _ => Ended::Lost,
        },
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseEmpty<'a> {
    pub lease: &'a Lease,
    /// The earliest time to delete the idle row. `None` means never, for example while the entity
    /// is on hold.
    pub purge_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    Released,
    /// The lease continues, because the inbox is not empty, or because the entity was put on hold
    /// and its row must stay.
    Grown(EntityState),
    Lost,
}

impl Operation for ReleaseEmpty<'_> {
    type Outcome = Released;

    fn write(&self) -> Write {
        let is_empty = Condition::compare_with(a::HEAD, Comparison::Equal, a::TAIL);
        let mut changes = remove_lease_and_handover();
        changes.push(Change::remove(a::PENDING_SINCE));
        let (may_go, purge) = purged_if_idle(self.purge_at);
        changes.extend(purge);
        self.lease.update(Condition::All([self.lease.mine(), is_empty].into_iter().chain(may_go).collect()), changes)
    }

    /// Treats a refusal as success if the entity is free and its row has the lease's token, because
    /// then an earlier try of this write landed.
    fn judge(&self, reply: Written) -> Result<Released, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Released::Released,
            Written::Refused(row) => match state_of(row)? {
                Some(state) if self.lease.was_released(&state) => Released::Released,
                Some(state) if self.lease.is_mine(&state) => Released::Grown(state),
                _ => Released::Lost,
            },
        })
    }
}

/// Ends a lease, whether or not deliveries wait. If deliveries wait, an exclusive holder must send
/// a wake-up afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release<'a> {
    pub lease: &'a Lease,
}

impl Operation for Release<'_> {
    type Outcome = Ended;

    fn write(&self) -> Write {
        self.lease.update(self.lease.mine(), remove_lease_and_handover())
    }

    fn judge(&self, reply: Written) -> Result<Ended, CorruptRow> {
        judge_release(self.lease, reply)
    }
}

/// Records that a drain will hand over next. If the drain then cannot send its wake-up, the lease
/// expires, and the record shows that the holder did not vanish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkHandOver<'a> {
    pub lease: &'a Lease,
}

impl Operation for MarkHandOver<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        self.lease.update(self.lease.mine(), vec![Change::set(a::HANDOVER, ABOUT_TO.as_millis())])
    }

    /// Treats every reply as success: a second write changes nothing, and a refusal means that the
    /// lease is gone.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Ends a drain's lease while deliveries wait. The drain has already sent a wake-up with the
/// lease's token. Until the next grant, claims rely on that wake-up, unless it is five minutes
/// overdue.
///
/// Until then, an append whose claim sees the hand-over sends no further wake-up. Such a wake-up
/// would find the entity leased to the next drain, and workers would requeue it until the inbox is
/// empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver<'a> {
    pub lease: &'a Lease,
    /// Set if the next delivery is a suspect. The delivery remains a suspect, but the count of
    /// vanished holders restarts, because this holder did not vanish.
    pub suspected: bool,
    /// The time at which the wake-up is due.
    pub due: Timestamp,
    /// Set if no drain may start before `due`, as if the source's rate demanded it. Earlier wake-ups
    /// are then requeued or deleted.
    pub is_pause: bool,
}

impl Operation for HandOver<'_> {
    type Outcome = Ended;

    fn write(&self) -> Write {
        let mut changes = remove_lease();
        changes.push(Change::set(a::HANDOVER, self.due.as_millis()));
        if self.suspected {
            changes.push(Change::set(a::SUSPECT, FIRST_HOLDER));
        }
        if self.is_pause {
            changes.push(Change::set(a::RETRY_AT, self.due.as_millis()));
        }
        self.lease.update(self.lease.mine(), changes)
    }

    fn judge(&self, reply: Written) -> Result<Ended, CorruptRow> {
        judge_release(self.lease, reply)
    }
}

/// Ends an exclusive lease while deliveries wait, and gives the deliveries their turn: until
/// `turn_until`, only a drain is granted a lease. Any grant ends the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YieldToDeliveries<'a> {
    pub lease: &'a Lease,
    pub now: Timestamp,
}

/// The time for which only drains are granted the lease, after an exclusive holder has yielded to
/// waiting deliveries. A worker needs about this time to start.
pub const LONGEST_TURN: Duration = Duration::from_secs(2);

impl Operation for YieldToDeliveries<'_> {
    type Outcome = Ended;

    fn write(&self) -> Write {
        let mut changes = remove_lease_and_handover();
        changes.push(Change::set(a::TURN_UNTIL, (self.now + LONGEST_TURN).as_millis()));
        self.lease.update(self.lease.mine(), changes)
    }

    fn judge(&self, reply: Written) -> Result<Ended, CorruptRow> {
        judge_release(self.lease, reply)
    }
}
