//! The inbox of an entity, as operations on its rows: claim a sequence, put the
//! delivery there, void it, settle it, write its receipt, park it.
//!
//! A sequence is decided once: ingest fills it or a worker voids it, by the
//! same put-if-absent; and settled once, under the newest token, strictly one
//! after the other. Pure; `append.rs` and `drain.rs` do it.

mod commit;
mod failing;

use std::time::Duration;

pub use commit::{Commit, Committed};
pub use failing::{Block, Fail, Failed, MarkStart, Marked, Unblock, Unblocked};

use crate::{
    protocol::{
        delivery::{Delivery, Envelope},
        entity::{EntityKey, FencingToken, IdentityHash, Sequence},
        format::{CorruptRow, FORMAT, attribute as a, check_format, readable, shortened},
        keys::{delivery_row, entity_row, parked_row, receipt_row},
        lease::{Lease, lease_removed, numbers_if_absent, purge_change},
        operation::{Operation, state_of, updated_state},
        state::{EntityState, EventTimes, Held, LONGEST_LEASE, LastSettled, LeaseKind, Settlement},
        table::{Action, Change, Comparison, Condition, Row, Write, Written},
    },
    time::{Nonce, Timestamp},
};

/// Claims the next sequence of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Of which entity.
    pub entity: &'a EntityKey,
    /// Drawn afresh for this claim.
    pub nonce: &'a Nonce,
    /// The time.
    pub now: Timestamp,
}

/// A claimed place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The sequence.
    pub sequence: Sequence,
    /// The row as it was left, or found.
    pub state: EntityState,
}

impl Operation for Claim<'_> {
    type Outcome = Claimed;

    fn write(&self) -> Write {
        let mut changes = vec![
            Change::Add { attribute: a::TAIL.into(), base: self.now.as_millis(), by: 1 },
            Change::set(a::LAST_CLAIM, self.nonce.as_str()),
            Change::set_if_absent(a::PENDING_SINCE, self.now.as_millis()),
            Change::remove(a::PURGE_AT),
        ];
        changes.extend(numbers_if_absent(self.now, &[a::HEAD, a::TOKEN]));
        Write {
            key: entity_row(self.entity),
            condition: Condition::All(vec![
                readable(),
                Condition::Any(vec![
                    Condition::absent(a::LAST_CLAIM),
                    Condition::compare(a::LAST_CLAIM, Comparison::NotEqual, self.nonce.as_str()),
                ]),
            ]),
            action: Action::Update(changes),
        }
    }

    /// Refused: a first try landed and is still the newest claim, so its place
    /// is the tail. Overtaken by another claim, a second try lands: the first
    /// one's place stays a gap, which a worker voids.
    fn judge(&self, reply: Written) -> Result<Claimed, CorruptRow> {
        let (Written::Landed(row) | Written::Refused(row)) = reply;
        let state = updated_state(row)?;
        Ok(Claimed { sequence: state.tail, state })
    }
}

/// Whether a claim that found `state` owes a wake-up: unless somebody is sure
/// to look. A drain whose lease runs must see the inbox empty before it lets
/// go; one that handed over has sent a wake-up that nobody has acted on yet; a
/// retry and a block have a wake-up or an operator of their own. A wait for a
/// rate alone has none: the inbox may have been empty.
pub fn owes_wake_up(state: &EntityState, now: Timestamp) -> bool {
    let drained = state.held.as_ref().is_some_and(|held| held.kind == LeaseKind::Drain && held.runs(now));
    let waits = state.attempts > 0 && state.retry_at.is_some_and(|at| at > now);
    !(drained || state.was_handed_over() || waits || state.blocked.is_some())
}

/// Puts a delivery at its claimed place.
#[derive(Debug, Clone)]
pub struct Put<'a> {
    /// What to put.
    pub envelope: &'a Envelope,
    /// Where.
    pub sequence: Sequence,
}

/// What became of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// The delivery is durable, in its place.
    Stored,
    /// A worker gave the place up in the meantime: claim another.
    Voided,
}

impl Operation for Put<'_> {
    type Outcome = PutOutcome;

    fn write(&self) -> Write {
        Write {
            key: delivery_row(self.envelope.entity(), self.sequence),
            condition: Condition::absent(a::ITEM),
            action: Action::Put(self.envelope.row().clone()),
        }
    }

    /// A first try that landed left this claim's nonce there.
    fn judge(&self, reply: Written) -> Result<PutOutcome, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => PutOutcome::Stored,
            Written::Refused(row) => {
                let mine = row.is_some_and(|row| row.text(a::NONCE) == Some(self.envelope.nonce().as_str()));
                if mine { PutOutcome::Stored } else { PutOutcome::Voided }
            }
        })
    }
}

/// Gives up a place that was claimed and not filled in time.
#[derive(Debug, Clone)]
pub struct Void<'a> {
    /// Of which entity.
    pub entity: &'a EntityKey,
    /// Which place.
    pub sequence: Sequence,
    /// When the marker may be deleted.
    pub purge_at: Timestamp,
}

/// What stands at the place after an attempt to void it.
#[derive(Debug, Clone, PartialEq)]
pub enum Voided {
    /// The marker: this one, or one put there before.
    Void,
    /// The delivery came after all. Its row comes along.
    Filled(Row),
}

impl Operation for Void<'_> {
    type Outcome = Voided;

    fn write(&self) -> Write {
        let marker = Row::new()
            .with(a::VERSION, FORMAT)
            .with(a::VOID, 1_u32)
            .with(a::PURGE_AT, self.purge_at.as_secs_rounded_up());
        Write {
            key: delivery_row(self.entity, self.sequence),
            condition: Condition::absent(a::ITEM),
            action: Action::Put(marker),
        }
    }

    /// Whoever put the marker: the place is decided. Nobody's name is needed.
    fn judge(&self, reply: Written) -> Result<Voided, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Voided::Void,
            Written::Refused(Some(row)) if row.get(a::VOID).is_none() => Voided::Filled(row),
            Written::Refused(_) => Voided::Void,
        })
    }
}

/// The decision about the delivery at `head + 1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its place.
    pub sequence: Sequence,
    /// Who it is and how it ended.
    pub settled: LastSettled,
    /// The newest event times, this one counted in.
    pub newest_event_time: EventTimes,
    /// No claim behind this place is older.
    pub pending_since: Option<Timestamp>,
    /// The next handler starts no sooner: its source has a rate.
    pub not_before: Option<Timestamp>,
}

/// Settles the delivery at `head + 1` and goes on holding the lease, under the
/// next token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// What is decided.
    pub decision: &'a Decision,
    /// The time.
    pub now: Timestamp,
    /// For how long the lease runs from now.
    pub length: Duration,
    /// Whether its holder is about to send a wake-up and let go: whoever comes
    /// meanwhile looks again at once, rather than when the lease would end.
    pub hands_over: bool,
}

/// What became of a settle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It is decided. The lease goes on under its next token.
    Settled(Lease, EntityState),
    /// The lease was not this holder's any more; nothing was decided by it.
    Lost,
}

impl Decision {
    fn changes(&self, token: FencingToken) -> Vec<Change> {
        let mut changes = vec![
            Change::set(a::HEAD, self.sequence.0),
            Change::set(a::TOKEN, token.next().0),
            Change::set(a::LAST_SETTLED, self.settled.to_stored()),
            Change::remove(a::ATTEMPTS),
            Change::remove(a::SUSPECT),
            Change::remove(a::STARTED),
            match self.not_before {
                Some(at) => Change::set(a::RETRY_AT, at.as_millis()),
                None => Change::remove(a::RETRY_AT),
            },
            Change::remove(a::LAST_ERROR),
        ];
        if let Some(times) = self.newest_event_time.to_stored() {
            changes.push(Change::set(a::NEWEST_EVENT_TIME, times));
        }
        changes
    }

    /// The lease is mine and this is the next delivery to be decided.
    fn is_due(&self, lease: &Lease) -> Condition {
        Condition::All(vec![lease.mine(), Condition::equal(a::HEAD, self.sequence.previous().0)])
    }
}

impl Settle<'_> {
    fn expires_at(&self) -> Timestamp {
        self.now + self.length.min(LONGEST_LEASE)
    }

    /// What the row is once this has landed on `before`: for a commit, whose
    /// reply does not bring it.
    #[must_use]
    pub fn applied(&self, before: &EntityState) -> EntityState {
        let decision = self.decision;
        let times = &decision.newest_event_time;
        let mut after = before.clone();
        after.head = decision.sequence;
        after.token = self.lease.token.next();
        after.held = after.held.map(|held| Held { expires_at: self.expires_at(), ..held });
        after.last_settled = Some(decision.settled.clone());
        after.attempts = 0;
        after.suspect = 0;
        after.started = None;
        after.retry_at = decision.not_before;
        after.last_error = None;
        after.pending_since = decision.pending_since.or(before.pending_since);
        after.newest_event_time = if times.to_stored().is_some() { times.clone() } else { after.newest_event_time };
        after.handover |= self.hands_over;
        after
    }
}

impl Operation for Settle<'_> {
    type Outcome = Settled;

    fn write(&self) -> Write {
        let mut changes = self.decision.changes(self.lease.token);
        changes.push(Change::set(a::EXPIRES_AT, self.expires_at().as_millis()));
        if let Some(since) = self.decision.pending_since {
            changes.push(Change::set(a::PENDING_SINCE, since.as_millis()));
        }
        if self.hands_over {
            changes.push(Change::set(a::HANDOVER, 1_u32));
        }
        self.lease.update(self.decision.is_due(self.lease), changes)
    }

    /// A first try that landed left this holder there and `head` at this place.
    fn judge(&self, reply: Written) -> Result<Settled, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => Settled::Settled(self.lease.settled(), updated_state(row)?),
            Written::Refused(row) => match state_of(row)? {
                Some(state)
                    if state.head == self.decision.sequence
                        && state.held.as_ref().is_some_and(|held| held.holder == self.lease.holder) =>
                {
                    Settled::Settled(self.lease.settled(), state)
                }
                _ => Settled::Lost,
            },
        })
    }
}

/// Settles the delivery at `head + 1` where it is the last one, and releases
/// the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleAndRelease<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// What is decided.
    pub decision: &'a Decision,
    /// When the row may be deleted for idleness; `None`: never.
    pub purge_at: Option<Timestamp>,
}

/// What became of settling the last delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettledAndReleased {
    /// It is decided, the inbox is empty, the lease has ended.
    Released,
    /// It is not the last one any more: nothing was decided, settle it and go
    /// on.
    Grown(EntityState),
    /// The lease was not this holder's any more; nothing was decided by it.
    Lost,
}

impl Operation for SettleAndRelease<'_> {
    type Outcome = SettledAndReleased;

    fn write(&self) -> Write {
        let condition =
            Condition::All(vec![self.decision.is_due(self.lease), Condition::equal(a::TAIL, self.decision.sequence.0)]);
        let mut changes = self.decision.changes(self.lease.token);
        changes.extend(lease_removed());
        changes.push(Change::remove(a::PENDING_SINCE));
        changes.extend(purge_change(self.purge_at));
        self.lease.update(condition, changes)
    }

    /// A first try that landed left the entity free, one token on, with this
    /// delivery settled. The token alone does not tell: somebody who took the
    /// lease over and released it, or an operator who ended it by force, leaves
    /// the same one, and the delivery unsettled. Had anybody acquired since, the
    /// token would be greater still, and this holder would have to believe
    /// itself lost; its delivery is settled either way.
    fn judge(&self, reply: Written) -> Result<SettledAndReleased, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => SettledAndReleased::Released,
            Written::Refused(row) => match state_of(row)? {
                Some(state) if self.lease.settled().was_released(&state) && state.head == self.decision.sequence => {
                    SettledAndReleased::Released
                }
                Some(state) if self.lease.is_mine(&state) && state.tail > self.decision.sequence => {
                    SettledAndReleased::Grown(state)
                }
                _ => SettledAndReleased::Lost,
            },
        })
    }
}

/// What is remembered of a settled delivery: it recognises repeats and tells
/// the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Which delivery.
    pub identity: IdentityHash,
    /// Where it stood.
    pub sequence: Sequence,
    /// How it ended.
    pub settlement: Settlement,
    /// The token of the handler start that ended it.
    pub token: FencingToken,
    /// How many attempts it took.
    pub attempts: u32,
    /// When it was accepted.
    pub received_at: Option<Timestamp>,
    /// When its last handler start was.
    pub started_at: Option<Timestamp>,
    /// When it was settled.
    pub settled_at: Timestamp,
    /// Its source, for people.
    pub source: Option<String>,
    /// The sender's id, cut to [`Receipt::TEXT_BYTES`], for people.
    pub delivery_id: Option<String>,
    /// Its topic, cut to [`Receipt::TEXT_BYTES`], for people.
    pub topic: Option<String>,
}

impl Receipt {
    /// How much of the sender's texts is kept: a receipt costs one write unit.
    pub const TEXT_BYTES: usize = 64;

    /// The receipt of `delivery`, settled at `settled_at` under `token`.
    pub fn of(
        delivery: &Delivery,
        settlement: Settlement,
        token: FencingToken,
        started_at: Option<Timestamp>,
        settled_at: Timestamp,
    ) -> Self {
        Self {
            identity: delivery.identity_hash().clone(),
            sequence: delivery.sequence(),
            settlement,
            token,
            attempts: delivery.attempt(),
            received_at: Some(delivery.received_at()),
            started_at,
            settled_at,
            source: Some(delivery.source().to_string()),
            delivery_id: Some(shortened(delivery.delivery_id().as_str(), Self::TEXT_BYTES)),
            topic: Some(shortened(delivery.topic(), Self::TEXT_BYTES)),
        }
    }

    /// The receipt that a holder before `state` owed and may not have written:
    /// what its row still says. `None`: there is nothing it could owe.
    pub fn owed(state: &EntityState, now: Timestamp) -> Option<Self> {
        let last = state.last_settled.as_ref()?;
        if last.settlement == Settlement::Repeat {
            return None;
        }
        Some(Self {
            identity: last.identity.clone()?,
            sequence: state.head,
            settlement: last.settlement,
            // The settle's own is not known any more: above every earlier one, below the next start's.
            token: FencingToken(state.token.0.saturating_sub(1)),
            attempts: 0,
            received_at: None,
            started_at: None,
            settled_at: now,
            source: None,
            delivery_id: None,
            topic: None,
        })
    }

    /// Reads an `r#` row.
    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        check_format(row)?;
        let number = |name| row.number(name).ok_or(CorruptRow::Attribute(name));
        let time = |name| row.number(name).map(Timestamp::from_millis);
        let identity = row.text(a::ITEM).and_then(|item| item.strip_prefix("r#"));
        Ok(Self {
            identity: IdentityHash::from_stored(identity.ok_or(CorruptRow::Attribute(a::ITEM))?),
            sequence: Sequence(number(a::SEQUENCE)?),
            settlement: row
                .text(a::OUTCOME)
                .and_then(Settlement::from_stored)
                .ok_or(CorruptRow::Attribute(a::OUTCOME))?,
            token: FencingToken(number(a::TOKEN)?),
            attempts: row.number(a::ATTEMPTS).unwrap_or(0).try_into().unwrap_or(u32::MAX),
            received_at: time(a::RECEIVED_AT),
            started_at: time(a::STARTED_AT),
            settled_at: time(a::SETTLED_AT).ok_or(CorruptRow::Attribute(a::SETTLED_AT))?,
            source: row.text(a::SOURCE).map(str::to_owned),
            delivery_id: row.text(a::DELIVERY_ID).map(str::to_owned),
            topic: row.text(a::TOPIC).map(str::to_owned),
        })
    }
}

/// Writes a receipt.
#[derive(Debug, Clone)]
pub struct WriteReceipt<'a> {
    /// Of which entity.
    pub entity: &'a EntityKey,
    /// The receipt.
    pub receipt: &'a Receipt,
    /// When it may be forgotten.
    pub purge_at: Timestamp,
}

impl WriteReceipt<'_> {
    /// The write beside a settle in one transaction. What a holder that lost
    /// its lease left about the same place gives way: the settle's condition
    /// says whose decision counts, and were this refused, the delivery would
    /// have to pass for applied without what its handler wrote.
    pub fn deciding(&self) -> Write {
        let same_place = Condition::All(vec![readable(), Condition::equal(a::SEQUENCE, self.receipt.sequence.0)]);
        self.write().when(Condition::Any(vec![Condition::absent(a::ITEM), same_place]))
    }
}

impl Operation for WriteReceipt<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let receipt = self.receipt;
        let mut row = Row::new()
            .with(a::VERSION, FORMAT)
            .with(a::SEQUENCE, receipt.sequence.0)
            .with(a::OUTCOME, receipt.settlement.as_str())
            .with(a::TOKEN, receipt.token.0)
            .with(a::ATTEMPTS, receipt.attempts)
            .with(a::SETTLED_AT, receipt.settled_at.as_millis())
            .with(a::PURGE_AT, self.purge_at.as_secs_rounded_up());
        for (name, time) in [(a::RECEIVED_AT, receipt.received_at), (a::STARTED_AT, receipt.started_at)] {
            if let Some(time) = time {
                row.set(name, time.as_millis());
            }
        }
        for (name, text) in
            [(a::SOURCE, &receipt.source), (a::DELIVERY_ID, &receipt.delivery_id), (a::TOPIC, &receipt.topic)]
        {
            if let Some(text) = text {
                row.set(name, text.as_str());
            }
        }
        Write {
            key: receipt_row(self.entity, &receipt.identity),
            condition: Condition::Any(vec![
                Condition::absent(a::ITEM),
                Condition::All(vec![
                    readable(),
                    Condition::equal(a::SEQUENCE, receipt.sequence.0),
                    Condition::compare(a::TOKEN, Comparison::Less, receipt.token.0),
                ]),
            ]),
            action: Action::Put(row),
        }
    }

    /// There is one: this one's first try, or one of another place. Either way
    /// it is remembered. One that a holder left about the same place that had
    /// lost its lease carries a smaller token and gives way: the receipt says
    /// what the settle said.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Sets a delivery aside where it is kept until a person decides.
#[derive(Debug, Clone)]
pub struct Park<'a> {
    /// Of which entity.
    pub entity: &'a EntityKey,
    /// Where it stood.
    pub sequence: Sequence,
    /// Its row's payload, with the error, as `delivery::parked_copy` makes it.
    pub row: &'a Row,
}

impl Operation for Park<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        Write {
            key: parked_row(self.entity, self.sequence),
            condition: Condition::absent(a::ITEM),
            action: Action::Put(self.row.clone()),
        }
    }

    /// It is there, by this try or one before, of this holder or of one that
    /// died between parking and settling.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::{
        lease::{Acquire, AskToYield},
        memory::evaluate,
        state::HolderInfo,
    };

    const LENGTH: Duration = Duration::from_secs(15);

    fn landed<O: Operation>(operation: &O, row: &mut Option<Row>) -> O::Outcome {
        *row = evaluate(&operation.write(), row.as_ref()).expect("it lands");
        operation.judge(Written::Landed(row.clone())).expect("it can be read")
    }

    proptest! {
        /// A commit's reply does not bring the row.
        #[test]
        fn a_settle_says_what_the_row_is_afterwards(
            claims in 1_u64..4,
            fails in any::<bool>(),
            asked in any::<bool>(),
            hands_over in any::<bool>(),
            since in any::<Option<u32>>(),
            not_before in any::<Option<u32>>(),
            event in any::<Option<u32>>(),
            settlement in prop::sample::select(vec![
                Settlement::Applied,
                Settlement::Repeat,
                Settlement::Void,
                Settlement::Parked,
            ]),
        ) {
            let entity = EntityKey::parse("shop/order/1").unwrap();
            let now = Timestamp::from_millis(1_000_000);
            let nonce = |number: u64| Nonce::from_parts(now, u128::from(number));
            let mut row = None;
            for number in 0..claims {
                landed(&Claim { entity: &entity, nonce: &nonce(number), now }, &mut row);
            }
            let acquire = |number: u64, now| Acquire {
                entity: entity.clone(),
                kind: LeaseKind::Drain,
                holder: nonce(number),
                info: HolderInfo::new("a worker"),
                now,
                length: LENGTH,
            };
            let granted = |acquired| match acquired {
                crate::protocol::lease::Acquired::Granted(lease, state) => (lease, state),
                other => panic!("{other:?}"),
            };
            let (mut lease, mut state) = granted(landed(&acquire(10, now), &mut row));
            if fails {
                let error = "out of order";
                let retry_at = Some(now);
                let fail = Fail { lease: &lease, sequence: state.next(), attempts: 1, retry_at, error };
                landed(&fail, &mut row);
                (lease, state) = granted(landed(&acquire(11, now), &mut row));
                landed(&MarkStart { lease: &lease, sequence: state.next() }, &mut row);
            }
            if asked {
                landed(&AskToYield { entity: &entity, now, until: now + LENGTH }, &mut row);
            }
            if fails || asked {
                state = EntityState::parse(row.as_ref().unwrap()).unwrap();
            }
            let times = EventTimes::default();
            let decision = Decision {
                sequence: state.next(),
                settled: LastSettled { identity: None, settlement },
                newest_event_time: event.map_or(times.clone(), |at| times.applied("orders", Timestamp::from_millis(at.into()))),
                pending_since: since.map(|at| Timestamp::from_millis(at.into())),
                not_before: not_before.map(|at| Timestamp::from_millis(at.into())),
            };
            let settle = Settle { lease: &lease, decision: &decision, now: now + LENGTH / 2, length: LENGTH, hands_over };
            let told = settle.applied(&state);
            let Settled::Settled(_, seen) = landed(&settle, &mut row) else { panic!("it is settled") };
            prop_assert_eq!(told, seen);
        }
    }
}
