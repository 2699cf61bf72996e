//! Ends a lease: on an empty inbox, after sending a wake-up, or to let deliveries
//! take their turn.

use std::time::Duration;

use super::{Lease, lease_ended, lease_removed, purged_if_idle};
use crate::{
    protocol::{
        format::{CorruptRow, attribute as a},
        operation::{Operation, state_of, updated_state},
        state::{ABOUT_TO, EntityState},
        table::{Change, Comparison, Condition, Write, Written},
    },
    time::Timestamp,
};

/// The outcome of a write that ends a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The lease has ended; the row afterwards.
    Ended(EntityState),
    /// The lease had been lost.
    Lost,
}

/// The write landed, or was refused because a first try landed: the entity is free
/// and the token is still the holder's.
fn judge_release(lease: &Lease, reply: Written) -> Result<Ended, CorruptRow> {
    Ok(match reply {
        Written::Landed(row) => Ended::Ended(updated_state(row)?),
        Written::Refused(row) => match state_of(row)? {
            Some(state) if lease.was_released(&state) => Ended::Ended(state),
            _ => Ended::Lost,
        },
    })
}

/// Ends a lease on an empty inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseEmpty<'a> {
    pub lease: &'a Lease,
    /// The earliest deletion of the idle row; `None` for never, as while on hold.
    pub purge_at: Option<Timestamp>,
}

/// The outcome of ending a lease on an empty inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The lease has ended and the inbox is empty.
    Released,
    /// The inbox is not empty, or the entity was put on hold so that its row must
    /// stay; the lease continues.
    Grown(EntityState),
    /// The lease had been lost.
    Lost,
}

impl Operation for ReleaseEmpty<'_> {
    type Outcome = Released;

    fn write(&self) -> Write {
        let is_empty = Condition::compare_with(a::HEAD, Comparison::Equal, a::TAIL);
        let mut changes = lease_removed();
        changes.push(Change::remove(a::PENDING_SINCE));
        let (may_go, purge) = purged_if_idle(self.purge_at);
        changes.extend(purge);
        self.lease.update(Condition::All([self.lease.mine(), is_empty].into_iter().chain(may_go).collect()), changes)
    }

    /// Recognises a landed first try, which left the entity free under this token.
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

/// Ends a lease whatever waits in the inbox. An exclusive holder sends a wake-up
/// afterwards if deliveries wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release<'a> {
    pub lease: &'a Lease,
}

impl Operation for Release<'_> {
    type Outcome = Ended;

    fn write(&self) -> Write {
        self.lease.update(self.lease.mine(), lease_removed())
    }

    fn judge(&self, reply: Written) -> Result<Ended, CorruptRow> {
        judge_release(self.lease, reply)
    }
}

/// Marks the hand-over of a drain before its release, whether or not its wake-up can be
/// sent. If it cannot, the lease expires, and the holder does not count as vanished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkHandOver<'a> {
    pub lease: &'a Lease,
}

impl Operation for MarkHandOver<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        self.lease.update(self.lease.mine(), vec![Change::set(a::HANDOVER, ABOUT_TO.as_millis())])
    }

    /// Accepts every reply: a second write changes nothing; a refusal means that the lease is gone.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Ends a drain's lease while deliveries wait, after sending a wake-up that names
/// the lease's token. Until the next grant only that wake-up counts. Claims see that
/// it is on its way and send none: otherwise each of theirs would find the entity
/// held and be requeued until the inbox is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver<'a> {
    pub lease: &'a Lease,
    /// The next delivery is suspected. It stays so, but the count of
    /// vanished holders starts again, because this one did not vanish.
    pub suspected: bool,
    /// The time at which the wake-up is due.
    pub due: Timestamp,
}

impl Operation for HandOver<'_> {
    type Outcome = Ended;

    fn write(&self) -> Write {
        let mut changes = lease_ended();
        changes.push(Change::set(a::HANDOVER, self.due.as_millis()));
        if self.suspected {
            changes.push(Change::set(a::SUSPECT, 1_u32));
        }
        self.lease.update(self.lease.mine(), changes)
    }

    fn judge(&self, reply: Written) -> Result<Ended, CorruptRow> {
        judge_release(self.lease, reply)
    }
}

/// Ends an exclusive lease while deliveries wait, and lets them take their turn:
/// until `turn_until` only a drain is granted a lease. Any grant ends the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YieldToDeliveries<'a> {
    pub lease: &'a Lease,
    pub now: Timestamp,
}

/// The longest turn of deliveries: about the time that a worker needs to start.
pub const LONGEST_TURN: Duration = Duration::from_secs(2);

impl Operation for YieldToDeliveries<'_> {
    type Outcome = Ended;

    fn write(&self) -> Write {
        let mut changes = lease_removed();
        changes.push(Change::set(a::TURN_UNTIL, (self.now + LONGEST_TURN).as_millis()));
        self.lease.update(self.lease.mine(), changes)
    }

    /// Like [`Release`].
    fn judge(&self, reply: Written) -> Result<Ended, CorruptRow> {
        judge_release(self.lease, reply)
    }
}
