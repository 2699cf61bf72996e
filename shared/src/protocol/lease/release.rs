//! How a holder ends its lease: on an empty inbox, behind a wake-up, or to let
//! deliveries go first.

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

/// What became of a holder's write that ends its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The lease ended as asked; the row as it was left.
    Ended(EntityState),
    /// It was not this holder's any more.
    Lost,
}

/// Landed, or refused because a first try landed: the entity is free and the
/// token is still the holder's.
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
    /// The lease.
    pub lease: &'a Lease,
    /// When the row may be deleted for idleness; `None`: never, as while it is on
    /// hold.
    pub purge_at: Option<Timestamp>,
}

/// What became of ending a lease on an empty inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The lease ended and the inbox is empty.
    Released,
    /// The inbox is not empty, or its entity was put on hold, so that its row is
    /// to stay; the lease goes on.
    Grown(EntityState),
    /// The lease was not this holder's any more.
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

    /// A first try that landed left the entity free under this token.
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

/// Ends a lease, whatever waits in the inbox. An exclusive holder sends a
/// wake-up afterwards if something does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release<'a> {
    /// The lease.
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

/// Says that a drain is about to let go, whether or not its wake-up can be sent:
/// where it cannot, the lease runs out, and nobody takes its holder for one that
/// vanished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnounceEnd<'a> {
    /// The lease.
    pub lease: &'a Lease,
}

impl Operation for AnnounceEnd<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        self.lease.update(self.lease.mine(), vec![Change::set(a::HANDOVER, ABOUT_TO.as_millis())])
    }

    /// A second try changes nothing; refused, there is no lease to speak of.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Ends a drain's lease with deliveries left, behind a fresh wake-up that says
/// its token: until anybody is granted a lease, that is the one that counts. A
/// claim sees that one is under way and sends none of its own: each
/// would find the entity held, and be put off one for one until the inbox is
/// empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// Whether the next delivery is a suspect. It stays one, but holders that
    /// vanish are counted anew behind one that did not.
    pub suspected: bool,
    /// When the wake-up is due.
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

/// Ends an exclusive lease where deliveries wait, and lets them go first: until
/// `turn_until` nobody but a drain is granted one. Any grant ends that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GiveWay<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// The time.
    pub now: Timestamp,
}

/// For how long deliveries go first at most: about as long as it takes a worker
/// to come that has to be started.
pub const LONGEST_TURN: Duration = Duration::from_secs(2);

impl Operation for GiveWay<'_> {
    type Outcome = Ended;

    fn write(&self) -> Write {
        let mut changes = lease_removed();
        changes.push(Change::set(a::TURN_UNTIL, (self.now + LONGEST_TURN).as_millis()));
        self.lease.update(self.lease.mine(), changes)
    }

    /// As for [`Release`]: whoever had the lease released it.
    fn judge(&self, reply: Written) -> Result<Ended, CorruptRow> {
        judge_release(self.lease, reply)
    }
}
