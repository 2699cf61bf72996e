//! Leases: timed permission on an entity, as operations on its row.
//!
//! A lease is held by one acquire call at a time. Expiry alone does not stop
//! the previous holder: it may be paused, not dead. So each grant, and each
//! settle under it, makes a token greater than the last, and every write of a
//! holder names the token it was made under. *Mine* means: the lease is there
//! and the token is mine.
//!
//! Pure. Waiting and polling are in `leases/acquire.rs` and `engine/drain/acquire.rs`,
//! renewing in `engine/keeper.rs`.

use std::time::Duration;

mod acquire;
mod ask;
mod release;
mod renew;

pub use acquire::{Acquire, Acquired, TakeOver, deliveries_turn};
pub use ask::{AskToYield, ForceRelease, Forced, LONGEST_YIELD, yields_until};
pub use release::{AnnounceEnd, Ended, GiveWay, HandOver, LONGEST_TURN, Release, ReleaseEmpty, Released};
pub use renew::{Renew, Renewed};

use crate::{
    protocol::{
        entity::{EntityKey, FencingToken},
        format::{FORMAT, attribute as a, readable},
        hold::not_on_hold,
        keys::entity_row,
        receipt::Recent,
        state::{EntityState, LeaseKind},
        table::{Action, Change, Comparison, Condition, Write},
    },
    time::{Nonce, Timestamp},
};

/// Proof of a grant: what a holder's writes are made under.
///
/// It says what was granted, not that it still is; only the condition of a
/// write can say that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    pub(crate) entity: EntityKey,
    pub(crate) holder: Nonce,
    pub(crate) kind: LeaseKind,
    pub(crate) token: FencingToken,
}

impl Lease {
    /// What it is a lease on.
    pub fn entity(&self) -> &EntityKey {
        &self.entity
    }

    /// The fencing token that effects are to carry.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The condition that only this holder's writes meet, and only while the
    /// lease is its own.
    pub fn mine(&self) -> Condition {
        Condition::All(vec![readable(), Condition::exists(a::HOLDER), Condition::equal(a::TOKEN, self.token.0)])
    }

    /// The same as a write that changes nothing: for a transaction of the
    /// holder's own, which then lands only while the lease is its own. AWS asks
    /// for the permission `dynamodb:ConditionCheckItem` on the entities' table.
    pub fn check(&self) -> Write {
        Write { key: entity_row(&self.entity), condition: self.mine(), action: Action::Check }
    }

    /// Its id, under which it can be looked up.
    #[doc(hidden)]
    pub fn id(&self) -> LeaseId {
        LeaseId { holder: self.holder.clone(), entity: self.entity.clone() }
    }

    /// Whether `state` shows this lease in force.
    #[doc(hidden)]
    pub fn is_mine(&self, state: &EntityState) -> bool {
        state.held.is_some() && state.token == self.token
    }

    /// Whether `state` shows that this lease ended in a write that left the
    /// token as it was: this holder's own release, since anybody else's comes
    /// with a greater token.
    #[doc(hidden)]
    pub fn was_released(&self, state: &EntityState) -> bool {
        state.held.is_none() && state.token == self.token
    }

    /// The lease after a settle.
    pub(crate) fn settled(&self) -> Self {
        Self { token: self.token.next(), ..self.clone() }
    }

    pub(crate) fn update(&self, condition: Condition, changes: Vec<Change>) -> Write {
        Write { key: entity_row(&self.entity), condition, action: Action::Update(changes) }
    }
}

/// Which lease: the acquire call that was granted it, and on what. As text the
/// call's nonce, a colon and the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseId {
    pub(crate) holder: Nonce,
    pub(crate) entity: EntityKey,
}

/// The text is no lease id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a lease id: 26 letters and digits, a colon, and the key of what is leased")]
pub struct InvalidLeaseId;

impl LeaseId {
    /// What it is a lease on.
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

/// A time is absent or has passed. One that is further ahead than `farthest` was
/// written by a clock that is far off, and counts as passed.
fn passed(time: &'static str, now: Timestamp, farthest: Duration) -> Condition {
    Condition::Any(vec![
        Condition::absent_or_at_most(time, now.as_millis()),
        Condition::compare(time, Comparison::Greater, (now + farthest).as_millis()),
    ])
}

/// What a row says of a lease.
const LEASE: [&str; 4] = [a::HOLDER, a::KIND, a::EXPIRES_AT, a::HOLDER_INFO];

/// The changes that end a lease, but for what they leave in `handover`.
pub(crate) fn lease_ended() -> Vec<Change> {
    LEASE.into_iter().map(Change::remove).collect()
}

/// The changes that end a lease, behind no wake-up of its own.
pub(crate) fn lease_removed() -> Vec<Change> {
    LEASE.into_iter().chain([a::HANDOVER]).map(Change::remove).collect()
}

/// The changes that write format and lowest numbers of a row that is created by
/// this write. Their base is the time, so that a row that was deleted after
/// long idleness goes on above its old numbers.
pub(crate) fn numbers_if_absent(now: Timestamp, names: &[&'static str]) -> Vec<Change> {
    let mut changes: Vec<Change> = names.iter().map(|name| Change::set_if_absent(*name, now.as_millis())).collect();
    changes.push(Change::set_if_absent(a::VERSION, FORMAT));
    changes
}

/// When the row of an idle entity may be deleted: later than any row of its
/// inbox that is kept for `retention` from now on, and no sooner than what it
/// remembers may be forgotten, by whoever keeps that longest. `None`: never.
pub fn idle_purge_at(entity: &EntityKey, recent: &Recent, now: Timestamp, retention: Duration) -> Option<Timestamp> {
    (!entity.is_kept_forever()).then(|| (now + retention.mul_f64(1.1)).max(recent.keep_until()))
}

/// What a release asks and writes that leaves its entity idle: a row that is to
/// be deleted must not be on hold.
pub(crate) fn purged_if_idle(purge_at: Option<Timestamp>) -> (Option<Condition>, Option<Change>) {
    (purge_at.map(|_| not_on_hold()), purge_change(purge_at))
}

/// The change that says when a row may be deleted for idleness; `None`: never.
pub(crate) fn purge_change(purge_at: Option<Timestamp>) -> Option<Change> {
    purge_at.map(|at| Change::set(a::PURGE_AT, at.as_secs_rounded_up()))
}

#[cfg(test)]
mod tests;
