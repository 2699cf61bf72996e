//! Leases: timed permission on an entity, as operations on its row.
//!
//! A lease is held by one acquire call at a time. Expiry alone does not stop
//! the previous holder: it may be paused, not dead. So each grant, and each
//! settle under it, makes a token greater than the last, and every write of a
//! holder names the token it was made under. *Mine* means: the lease is there
//! and the token is mine.
//!
//! Pure. Waiting and polling are in `drain/acquire.rs`, renewing in `keeper.rs`.

use std::time::Duration;

use crate::{
    protocol::{
        entity::{EntityKey, FencingToken},
        format::{CorruptRow, FORMAT, attribute as a, readable},
        keys::entity_row,
        operation::{Operation, state_of, updated_state},
        state::{EntityState, HOLDER_VANISHED, HolderInfo, LONGEST_LEASE, LeaseKind},
        table::{Action, Change, Comparison, Condition, Write, Written},
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

    /// When it was asked for, by its holder's clock.
    pub fn asked_at(&self) -> Option<Timestamp> {
        self.holder.drawn_at()
    }
}

impl std::str::FromStr for LeaseId {
    type Err = InvalidLeaseId;
    fn from_str(text: &str) -> Result<Self, InvalidLeaseId> {
        let (nonce, key) = text.split_once(':').ok_or(InvalidLeaseId)?;
        let holder = Nonce::from_stored(nonce);
        if nonce.len() != 26 || holder.drawn_at().is_none() {
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

/// What a row says of a lease.
const LEASE: [&str; 4] = [a::HOLDER, a::KIND, a::EXPIRES_AT, a::HOLDER_INFO];

/// The changes that end a lease.
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

/// A request for the lease of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    /// Of what.
    pub entity: EntityKey,
    /// For what.
    pub kind: LeaseKind,
    /// Drawn afresh for this call: never taken from a request, whose id may
    /// come twice.
    pub holder: Nonce,
    /// For people.
    pub info: HolderInfo,
    /// The time.
    pub now: Timestamp,
    /// For how long, at most [`LONGEST_LEASE`].
    pub length: Duration,
}

/// What became of a request for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// It is yours. The row as it is now comes along.
    Granted(Lease, EntityState),
    /// Somebody has it, or had it and did not release it. Wait, or
    /// [`TakeOver`] if it no longer runs.
    Held(EntityState),
    /// A drain is not wanted: nothing waits in the inbox.
    Empty,
    /// Not before this time; now, for a lease that was to be taken over and
    /// turned out free.
    Waiting {
        /// Not before this, by the clock of whoever wrote it.
        until: Timestamp,
        /// The token under which the wake-up was sent that will see to it, where
        /// the last holder let go behind one.
        awaited: Option<FencingToken>,
    },
    /// A drain is not wanted until an operator unblocks the entity.
    Blocked,
}

impl Acquire {
    fn lease(&self, token: FencingToken) -> Lease {
        Lease { entity: self.entity.clone(), holder: self.holder.clone(), kind: self.kind, token }
    }

    fn grant(&self) -> Vec<Change> {
        let length = self.length.min(LONGEST_LEASE);
        let mut changes = vec![
            Change::set(a::HOLDER, self.holder.as_str()),
            Change::set(a::KIND, self.kind.as_str()),
            Change::set(a::EXPIRES_AT, (self.now + length).as_millis()),
            Change::set(a::HOLDER_INFO, self.info.as_str()),
            Change::Add { attribute: a::TOKEN.into(), base: self.now.as_millis(), by: 1 },
            Change::remove(a::PURGE_AT),
            Change::remove(a::TURN_UNTIL),
            Change::remove(a::HANDOVER),
        ];
        if self.kind == LeaseKind::Exclusive {
            changes.push(Change::remove(a::YIELD_UNTIL));
        }
        changes.extend(numbers_if_absent(self.now, &[a::TAIL, a::HEAD]));
        changes
    }

    /// What a row that refused this request says. A lost reply is recognised by
    /// the holder, which no other call has.
    fn explain(&self, state: Option<EntityState>) -> Acquired {
        let Some(state) = state else { return Acquired::Empty };
        match &state.held {
            Some(held) if held.holder == self.holder => Acquired::Granted(self.lease(state.token), state),
            Some(_) => Acquired::Held(state),
            None if self.kind == LeaseKind::Exclusive => {
                Acquired::Waiting { until: deliveries_turn(&state, self.now).unwrap_or(self.now), awaited: None }
            }
            None => standing(&state, self.now).unwrap_or(Acquired::Waiting { until: self.now, awaited: None }),
        }
    }
}

/// Why a drain is not wanted on an entity that nobody holds; `None`: it is.
pub fn standing(state: &EntityState, now: Timestamp) -> Option<Acquired> {
    if state.is_empty() {
        return Some(Acquired::Empty);
    }
    if state.blocked.is_some() {
        return Some(Acquired::Blocked);
    }
    let until = state.retry_at.max(state.yield_until)?;
    let awaited = state.handover.then_some(state.token);
    (until > now).then_some(Acquired::Waiting { until, awaited })
}

/// Until when deliveries go first, if they do now. A time that is further ahead
/// than that was written by a clock that is far off, and counts as passed.
pub fn deliveries_turn(state: &EntityState, now: Timestamp) -> Option<Timestamp> {
    state.turn_until.filter(|until| *until > now && *until <= now + LONGEST_LEASE)
}

/// That they do not: whoever is no drain may have the entity.
fn no_turn(now: Timestamp) -> Condition {
    Condition::Any(vec![
        Condition::absent_or_at_most(a::TURN_UNTIL, now.as_millis()),
        Condition::compare(a::TURN_UNTIL, Comparison::Greater, (now + LONGEST_LEASE).as_millis()),
    ])
}

impl Operation for Acquire {
    type Outcome = Acquired;

    fn write(&self) -> Write {
        let free = Condition::absent(a::HOLDER);
        let condition = match self.kind {
            LeaseKind::Exclusive => Condition::All(vec![readable(), free, no_turn(self.now)]),
            LeaseKind::Drain => Condition::All(vec![
                readable(),
                free,
                Condition::compare_with(a::HEAD, Comparison::Less, a::TAIL),
                Condition::absent(a::BLOCKED),
                Condition::absent_or_at_most(a::RETRY_AT, self.now.as_millis()),
                Condition::absent_or_at_most(a::YIELD_UNTIL, self.now.as_millis()),
            ]),
        };
        Write { key: entity_row(&self.entity), condition, action: Action::Update(self.grant()) }
    }

    fn judge(&self, reply: Written) -> Result<Acquired, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => {
                let state = updated_state(row)?;
                Acquired::Granted(self.lease(state.token), state)
            }
            Written::Refused(row) => self.explain(state_of(row)?),
        })
    }
}

/// A request for a lease that its holder let expire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeOver {
    /// The request.
    pub request: Acquire,
    /// The row in which the lease was seen expired.
    pub seen: EntityState,
}

impl TakeOver {
    /// What the vanished holder costs the delivery at `head + 1`, where it was
    /// draining with something to drain: an attempt, if it had written down
    /// that it starts it; else a suspicion, since it may have vanished before.
    fn charge(&self) -> Vec<Change> {
        let drained = self.seen.held.as_ref().is_some_and(|held| held.kind == LeaseKind::Drain);
        // One that said that it was about to let go did not vanish: it could not send its wake-up.
        if !drained || self.seen.is_empty() || self.seen.handover {
            return Vec::new();
        }
        let one_more = |name: &'static str| Change::Add { attribute: name.into(), base: 0, by: 1 };
        let counted = if self.seen.is_started() { one_more(a::ATTEMPTS) } else { one_more(a::SUSPECT) };
        vec![counted, Change::set(a::LAST_ERROR, HOLDER_VANISHED)]
    }
}

impl Operation for TakeOver {
    type Outcome = Acquired;

    fn write(&self) -> Write {
        let now = self.request.now;
        let condition = Condition::All(vec![
            readable(),
            Condition::exists(a::HOLDER),
            Condition::equal(a::TOKEN, self.seen.token.0),
            match self.seen.started {
                Some(token) => Condition::equal(a::STARTED, token.0),
                None => Condition::absent(a::STARTED),
            },
            Condition::Any(vec![
                Condition::compare(a::EXPIRES_AT, Comparison::AtMost, now.as_millis()),
                Condition::compare(a::EXPIRES_AT, Comparison::Greater, (now + LONGEST_LEASE).as_millis()),
            ]),
        ]);
        let mut changes = self.request.grant();
        changes.extend(self.charge());
        Write { key: entity_row(&self.request.entity), condition, action: Action::Update(changes) }
    }

    /// As for [`Acquire`]. A row that turned out free is reported as waiting
    /// for no time at all: acquire.
    fn judge(&self, reply: Written) -> Result<Acquired, CorruptRow> {
        self.request.judge(reply)
    }
}

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
    /// When the row may be deleted for idleness; `None`: never.
    pub purge_at: Option<Timestamp>,
}

/// What became of ending a lease on an empty inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The lease ended and the inbox is empty.
    Released,
    /// The inbox is not empty; the lease goes on.
    Grown(EntityState),
    /// The lease was not this holder's any more.
    Lost,
}

impl Operation for ReleaseEmpty<'_> {
    type Outcome = Released;

    fn write(&self) -> Write {
        let condition =
            Condition::All(vec![self.lease.mine(), Condition::compare_with(a::HEAD, Comparison::Equal, a::TAIL)]);
        let mut changes = lease_removed();
        changes.push(Change::remove(a::PENDING_SINCE));
        changes.extend(purge_change(self.purge_at));
        self.lease.update(condition, changes)
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

pub(crate) fn purge_change(purge_at: Option<Timestamp>) -> Option<Change> {
    purge_at.map(|at| Change::set(a::PURGE_AT, at.as_secs_rounded_up()))
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
        self.lease.update(self.lease.mine(), vec![Change::set(a::HANDOVER, 1_u32)])
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
}

impl Operation for HandOver<'_> {
    type Outcome = Ended;

    fn write(&self) -> Write {
        let mut changes: Vec<Change> = LEASE.into_iter().map(Change::remove).collect();
        changes.push(Change::set(a::HANDOVER, 1_u32));
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

/// Asks a draining worker to let an exclusive waiter in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskToYield<'a> {
    /// Whom.
    pub entity: &'a EntityKey,
    /// The time.
    pub now: Timestamp,
    /// Until when drains are to keep off.
    pub until: Timestamp,
}

/// How long drains keep off at most when asked to.
pub const LONGEST_YIELD: Duration = Duration::from_secs(10);

impl Operation for AskToYield<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let until = self.until.min(self.now + LONGEST_YIELD);
        Write {
            key: entity_row(self.entity),
            condition: Condition::All(vec![
                readable(),
                Condition::equal(a::KIND, LeaseKind::Drain.as_str()),
                Condition::absent_or_at_most(a::YIELD_UNTIL, self.now.as_millis()),
            ]),
            action: Action::Update(vec![Change::set(a::YIELD_UNTIL, until.as_millis())]),
        }
    }

    /// Landed or not, there is nothing to tell apart: asking twice is harmless,
    /// and a refusal means that nobody drains or that it was asked already.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Takes a lease away from its holder, for an operator. What its holder still
/// writes is refused by the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForceRelease<'a> {
    /// The row in which the operator saw the lease.
    pub seen: &'a EntityState,
    /// Who, when and why, for people; stays on the row until the next grant.
    pub record: HolderInfo,
}

/// What became of a forced release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forced {
    /// The lease is gone; send a wake-up if the inbox is not empty.
    Released(EntityState),
    /// It is not the lease that was seen any more; nothing was changed.
    Changed(Option<EntityState>),
}

impl Operation for ForceRelease<'_> {
    type Outcome = Forced;

    fn write(&self) -> Write {
        let mut conditions =
            vec![readable(), Condition::exists(a::HOLDER), Condition::equal(a::TOKEN, self.seen.token.0)];
        let mut changes = vec![
            Change::remove(a::HOLDER),
            Change::remove(a::KIND),
            Change::remove(a::EXPIRES_AT),
            Change::remove(a::HANDOVER),
            Change::set(a::HOLDER_INFO, self.record.as_str()),
            Change::set(a::TOKEN, self.seen.token.next().0),
        ];
        if self.seen.is_empty() {
            // What comes later must not seem to have waited since.
            conditions.push(Condition::equal(a::TAIL, self.seen.tail.0));
            changes.push(Change::remove(a::PENDING_SINCE));
        }
        Write {
            key: entity_row(&self.seen.entity),
            condition: Condition::All(conditions),
            action: Action::Update(changes),
        }
    }

    /// A first try that landed left the entity free, one token on, with this
    /// record.
    fn judge(&self, reply: Written) -> Result<Forced, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => Forced::Released(updated_state(row)?),
            Written::Refused(row) => match state_of(row)? {
                Some(state)
                    if state.held.is_none()
                        && state.token == self.seen.token.next()
                        && state.holder_info.as_ref() == Some(&self.record) =>
                {
                    Forced::Released(state)
                }
                state => Forced::Changed(state),
            },
        })
    }
}
