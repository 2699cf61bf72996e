//! Appends to the inbox: claim the next sequence and put the delivery there, or
//! write a tombstone if it never arrives.

use crate::{
    protocol::{
        delivery::Envelope,
        entity::{EntityKey, Sequence},
        format::{CorruptRow, FORMAT, attribute as a, readable},
        keys::{delivery_row, entity_row},
        lease::numbers_if_absent,
        operation::{Operation, has_nonce, updated_state},
        state::{EntityState, LeaseKind},
        table::{Action, Change, Comparison, Condition, Row, Write, Written},
    },
    time::{Nonce, Timestamp},
};

/// Claims the next sequence of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim<'a> {
    pub entity: &'a EntityKey,
    /// A new nonce for this claim.
    pub nonce: &'a Nonce,
    pub now: Timestamp,
}

/// A claimed sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    pub sequence: Sequence,
    /// The row after the claim.
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

    /// A refusal means that a first try landed and is still the newest claim, so
    /// its sequence is the tail. If another claim came in between, a second try
    /// lands, and the first one's sequence remains a gap for a tombstone.
    fn judge(&self, reply: Written) -> Result<Claimed, CorruptRow> {
        let (Written::Landed(row) | Written::Refused(row)) = reply;
        let state = updated_state(row)?;
        Ok(Claimed { sequence: state.tail, state })
    }
}

/// Returns whether a claim that found `state` must send a wake-up, because no other is
/// certain to come.
///
/// No wake-up is needed under a valid drain lease, because a drain must see the inbox
/// empty before it releases. After a hand-over a wake-up is on its way, and may be lost
/// only once it is overdue. A retry, a block and a hold have a wake-up or an operator
/// of their own. A wait for a rate limit alone has no wake-up: the inbox may have been
/// empty.
pub fn owes_wake_up(state: &EntityState, now: Timestamp) -> bool {
    let drained = state.held.as_ref().is_some_and(|held| held.kind == LeaseKind::Drain && held.runs(now));
    !(drained || state.was_handed_over(now) || state.is_retried_later(now) || state.is_stopped())
}

/// Puts a delivery at its claimed sequence.
#[derive(Debug, Clone)]
pub struct Put<'a> {
    pub envelope: &'a Envelope,
    pub sequence: Sequence,
}

/// The outcome of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// The delivery is durable at its sequence.
    Stored,
    /// A worker wrote a tombstone there in the meantime: claim another sequence.
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

    /// Recognises a landed first try, which left this claim's nonce in the row.
    fn judge(&self, reply: Written) -> Result<PutOutcome, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => PutOutcome::Stored,
            Written::Refused(row) if has_nonce(&row, self.envelope.nonce()) => PutOutcome::Stored,
            Written::Refused(_) => PutOutcome::Voided,
        })
    }
}

/// Writes a tombstone at a sequence that was claimed but not filled in time.
#[derive(Debug, Clone)]
pub struct Void<'a> {
    pub entity: &'a EntityKey,
    pub sequence: Sequence,
    pub purge_at: Timestamp,
}

/// The row at the sequence after an attempt to write a tombstone.
#[derive(Debug, Clone, PartialEq)]
pub enum Voided {
    /// A tombstone, by this write or an earlier one.
    Void,
    /// The delivery arrived after all; this is its row.
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

    /// Accepts every tombstone: whoever wrote it, the sequence is decided.
    fn judge(&self, reply: Written) -> Result<Voided, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Voided::Void,
            Written::Refused(Some(row)) if row.get(a::VOID).is_none() => Voided::Filled(row),
            Written::Refused(_) => Voided::Void,
        })
    }
}
