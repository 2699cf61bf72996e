//! Leases, as operations on an entity's row. A lease gives its holder the entity for a limited
//! time.
//!
//! Each acquire call is a separate holder, and at most one holder has an entity's lease at a
//! time. Expiry alone does not stop a previous holder, which may be paused and not dead. Therefore
//! each grant and each settle increases the fencing token, and each write of a holder demands the
//! holder's token. *Mine* means that the row shows a lease, and the token is the holder's.
//!
//! The operations are pure. `leases/acquire.rs` and `engine/drain/acquire.rs` wait and poll, and
//! `engine/lease_renewer.rs` renews.

use std::time::Duration;

mod acquire;
mod ask;
mod follow;
mod release;
mod renew;
mod term;

pub use acquire::*;
pub use ask::*;
pub use follow::*;
pub use release::*;
pub use renew::*;
pub use term::*;

use crate::{
    entity::{EntityKey, FencingToken, Sequence},
    format::{FORMAT, attribute as a, readable},
    hold::not_on_hold,
    keys::entity_row,
    receipt::Recent,
    state::{EntityState, LeaseKind},
    table::{Action, Change, Comparison, Condition, Write},
    time::{Nonce, Timestamp},
};

/// A lease as it was granted. Each write of the holder demands the lease's fencing token.
///
/// The value does not show that the lease is still held. Only the condition of a write shows that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    pub(crate) entity: EntityKey,
    pub(crate) holder: Nonce,
    pub(crate) kind: LeaseKind,
    pub(crate) token: FencingToken,
}

impl Lease {
    /// Returns the leased entity.
    pub fn entity(&self) -> &EntityKey {
        &self.entity
    }

    /// Returns the fencing token, which the holder sends along with its effects elsewhere.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns the condition that the row shows a lease with this holder's token. Only this
    /// holder's writes meet the condition, and only while the holder has the lease.
    pub fn mine(&self) -> Condition {
        Condition::All(vec![readable(), Condition::exists(a::HOLDER), Condition::equal(a::TOKEN, self.token.0)])
    }

    /// Returns the condition that the holder has the lease and that `next` is the next sequence to
    /// settle.
    pub(crate) fn mine_before(&self, next: Sequence) -> Condition {
        Condition::All(vec![self.mine(), Condition::equal(a::HEAD, next.previous().0)])
    }

    /// Returns a write that changes nothing and has the condition [`mine`](Self::mine). A
    /// transaction that includes this write lands only while the holder has the lease. AWS requires
    /// the permission `dynamodb:ConditionCheckItem` on the entities table.
    pub fn check(&self) -> Write {
        Write { key: entity_row(&self.entity), condition: self.mine(), action: Action::Check }
    }

    #[doc(hidden)]
    pub fn id(&self) -> LeaseId {
        LeaseId { holder: self.holder.clone(), entity: self.entity.clone() }
    }

    #[doc(hidden)]
    pub fn is_mine(&self, state: &EntityState) -> bool {
        state.held.is_some() && state.token == self.token
    }

    /// Returns whether `state` shows that this holder's own write ended the lease. Such a write
    /// leaves the token unchanged. If somebody else ended the lease, the token is greater.
    #[doc(hidden)]
    pub fn was_released(&self, state: &EntityState) -> bool {
        state.held.is_none() && state.token == self.token
    }

    pub(crate) fn settled(&self) -> Self {
        Self { token: self.token.next(), ..self.clone() }
    }

    pub(crate) fn update(&self, condition: Condition, changes: Vec<Change>) -> Write {
        Write { key: entity_row(&self.entity), condition, action: Action::Update(changes) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseId {
    pub holder: Nonce,
    pub entity: EntityKey,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a lease id: an id is 26 letters and digits, a colon, and the leased key")]
pub struct InvalidLeaseId;

impl LeaseId {
    pub fn entity(&self) -> &EntityKey {
        &self.entity
    }
}

impl std::str::FromStr for LeaseId {
    type Err = InvalidLeaseId;
    fn from_str(text: &str) -> Result<Self, InvalidLeaseId> {
        let (nonce, key) = text.split_once(':').ok_or(InvalidLeaseId)?;
        let holder = Nonce::from_stored(nonce);
        if holder.drawn_at().is_none() {
            return Err(InvalidLeaseId);
        }
        Ok(Self { holder, entity: EntityKey::parse(key).map_err(|_| InvalidLeaseId)? })
    }
}

impl std::fmt::Display for LeaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.holder, self.entity)
    }
}

/// Returns the condition that the attribute `time` is absent or has passed. A time more than
/// `farthest` after `now` comes from a wrong clock, and counts as passed.
fn passed(time: &'static str, now: Timestamp, farthest: Duration) -> Condition {
    Condition::Any(vec![
        Condition::absent_or_at_most(time, now.as_millis()),
        Condition::compare(time, Comparison::Greater, (now + farthest).as_millis()),
    ])
}

const LEASE: [&str; 4] = [a::HOLDER, a::KIND, a::EXPIRES_AT, a::HOLDER_INFO];

/// Returns the changes that end a lease and leave the attribute `handover` as it is.
pub(crate) fn remove_lease() -> Vec<Change> {
    LEASE.into_iter().map(Change::remove).collect()
}

/// Returns the changes that end a lease and remove the attribute `handover`.
pub(crate) fn remove_lease_and_handover() -> Vec<Change> {
    LEASE.into_iter().chain([a::HANDOVER]).map(Change::remove).collect()
}

/// Returns the changes that initialise the format and the attributes `names` (some of `head`,
/// `tail` and `token`) in a new row. Each number starts at the current time in milliseconds. So an
/// entity whose idle row was deleted continues above its old sequences and token.
pub(crate) fn numbers_if_absent(now: Timestamp, names: &[&'static str]) -> Vec<Change> {
    let mut changes: Vec<Change> = names.iter().map(|name| Change::set_if_absent(*name, now.as_millis())).collect();
    changes.push(Change::set_if_absent(a::VERSION, FORMAT));
    changes
}

/// Returns the earliest time to delete the row of an idle entity; `None` for never. The row
/// outlives every inbox row that is kept for `retention` after `now`. It also keeps the receipts in
/// `recent` for as long as they are needed.
pub fn idle_purge_at(entity: &EntityKey, recent: &Recent, now: Timestamp, retention: Duration) -> Option<Timestamp> {
    (!entity.is_kept_forever()).then(|| (now + retention.mul_f64(1.1)).max(recent.keep_until()))
}

/// Returns the condition and the change of a release that leaves the entity idle. The change lets
/// the row be deleted at `purge_at`. The condition excludes an entity that is on hold, because its
/// row must stay.
pub(crate) fn purged_if_idle(purge_at: Option<Timestamp>) -> (Option<Condition>, Option<Change>) {
    (purge_at.map(|_| not_on_hold()), purge_change(purge_at))
}

pub(crate) fn purge_change(purge_at: Option<Timestamp>) -> Option<Change> {
    purge_at.map(|at| Change::set(a::PURGE_AT, at.as_secs_rounded_up()))
}

#[cfg(test)]
mod tests;
