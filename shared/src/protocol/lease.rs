//! Leases: time-limited permissions on an entity, as operations on its row.
//!
//! One acquire call at a time holds a lease. Expiry alone does not stop the
//! previous holder, which may be paused and not dead. Therefore each grant, and
//! each settle under it, increases the token, and every write of a holder names the
//! token that it was made under. *Mine* means that there is a lease and the token
//! is the holder's.
//!
//! The operations are pure. `leases/acquire.rs` and `engine/drain/acquire.rs` wait
//! and poll, `engine/lease_renewer.rs` renews.

use std::time::Duration;

mod acquire;
mod ask;
mod release;
mod renew;

pub use acquire::{Acquire, Acquired, TakeOver, deliveries_turn};
pub use ask::{ForceRelease, Forced, LONGEST_YIELD, RequestYield, yields_until};
pub use release::{Ended, HandOver, LONGEST_TURN, MarkHandOver, Release, ReleaseEmpty, Released, YieldToDeliveries};
pub use renew::{Renew, Renewed};

use crate::{
    protocol::{
        entity::{EntityKey, FencingToken, Sequence},
        format::{FORMAT, attribute as a, readable},
        hold::not_on_hold,
        keys::entity_row,
        receipt::Recent,
        state::{EntityState, LeaseKind},
        table::{Action, Change, Comparison, Condition, Write},
    },
    time::{Nonce, Timestamp},
};

/// A granted lease. Its holder's writes name its token.
///
/// It shows what was granted, not that it is still held; only the condition of a
/// write shows that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    pub(crate) entity: EntityKey,
    pub(crate) holder: Nonce,
    pub(crate) kind: LeaseKind,
    pub(crate) token: FencingToken,
}

impl Lease {
    /// Returns the entity.
    pub fn entity(&self) -> &EntityKey {
        &self.entity
    }

    /// Returns the fencing token to send along with effects.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns the condition that only this holder's writes meet, and only while
    /// it has the lease.
    pub fn mine(&self) -> Condition {
        Condition::All(vec![readable(), Condition::exists(a::HOLDER), Condition::equal(a::TOKEN, self.token.0)])
    }

    /// Returns the condition that the holder has the lease and `next` is the next sequence to
    /// settle.
    pub(crate) fn mine_before(&self, next: Sequence) -> Condition {
        Condition::All(vec![self.mine(), Condition::equal(a::HEAD, next.previous().0)])
    }

    /// Returns [`mine`](Self::mine) as a write without a change, for a transaction of the
    /// holder's own, which then lands only while it has the lease. AWS requires
    /// `dynamodb:ConditionCheckItem` on the entities table for it.
    pub fn check(&self) -> Write {
        Write { key: entity_row(&self.entity), condition: self.mine(), action: Action::Check }
    }

    /// Returns the id to look the lease up.
    #[doc(hidden)]
    pub fn id(&self) -> LeaseId {
        LeaseId { holder: self.holder.clone(), entity: self.entity.clone() }
    }

    /// Returns whether `state` shows this lease in force.
    #[doc(hidden)]
    pub fn is_mine(&self, state: &EntityState) -> bool {
        state.held.is_some() && state.token == self.token
    }

    /// Returns whether `state` shows that this holder's own write ended the lease
    /// and left the token unchanged. Anybody else's release comes with a greater
    /// token.
    #[doc(hidden)]
    pub fn was_released(&self, state: &EntityState) -> bool {
        state.held.is_none() && state.token == self.token
    }

    /// Returns the lease after a settle.
    pub(crate) fn settled(&self) -> Self {
        Self { token: self.token.next(), ..self.clone() }
    }

    pub(crate) fn update(&self, condition: Condition, changes: Vec<Change>) -> Write {
        Write { key: entity_row(&self.entity), condition, action: Action::Update(changes) }
    }
}

/// The id of a lease: the nonce of the acquire call and the entity. As text the
/// nonce, a colon and the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseId {
    pub(crate) holder: Nonce,
    pub(crate) entity: EntityKey,
}

/// The text is not a lease id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a lease id: 26 letters and digits, a colon, and the key of what is leased")]
pub struct InvalidLeaseId;

impl LeaseId {
    /// Returns the entity.
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

/// Demands that a time is absent or has passed. A time more than `farthest` ahead
/// comes from a wrong clock and counts as passed.
fn passed(time: &'static str, now: Timestamp, farthest: Duration) -> Condition {
    Condition::Any(vec![
        Condition::absent_or_at_most(time, now.as_millis()),
        Condition::compare(time, Comparison::Greater, (now + farthest).as_millis()),
    ])
}

/// The attributes of a lease.
const LEASE: [&str; 4] = [a::HOLDER, a::KIND, a::EXPIRES_AT, a::HOLDER_INFO];

/// Returns the changes that end a lease, except for `handover`.
pub(crate) fn lease_ended() -> Vec<Change> {
    LEASE.into_iter().map(Change::remove).collect()
}

/// Returns the changes that end a lease without a hand-over.
pub(crate) fn lease_removed() -> Vec<Change> {
    LEASE.into_iter().chain([a::HANDOVER]).map(Change::remove).collect()
}

/// Returns the changes that initialise the format and the numbers of a new row.
/// They start at the current time, so that a row that was deleted after long
/// idleness continues above its old numbers.
pub(crate) fn numbers_if_absent(now: Timestamp, names: &[&'static str]) -> Vec<Change> {
    let mut changes: Vec<Change> = names.iter().map(|name| Change::set_if_absent(*name, now.as_millis())).collect();
    changes.push(Change::set_if_absent(a::VERSION, FORMAT));
    changes
}

/// Returns when the row of an idle entity may be deleted: later than any row of
/// its inbox that is kept for `retention` from now, and no sooner than its receipts
/// may be forgotten. `None` for never.
pub fn idle_purge_at(entity: &EntityKey, recent: &Recent, now: Timestamp, retention: Duration) -> Option<Timestamp> {
    (!entity.is_kept_forever()).then(|| (now + retention.mul_f64(1.1)).max(recent.keep_until()))
}

/// Returns the condition and the change of a release that leaves the entity idle: a
/// row that is on hold must not be deleted.
pub(crate) fn purged_if_idle(purge_at: Option<Timestamp>) -> (Option<Condition>, Option<Change>) {
    (purge_at.map(|_| not_on_hold()), purge_change(purge_at))
}

/// Returns the change that lets an idle row be deleted; `None` for never.
pub(crate) fn purge_change(purge_at: Option<Timestamp>) -> Option<Change> {
    purge_at.map(|at| Change::set(a::PURGE_AT, at.as_secs_rounded_up()))
}

#[cfg(test)]
mod tests;
