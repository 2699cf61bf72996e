//! The way in: claim the next place, put the delivery there; and what is done
//! where it never comes.

use crate::{
    protocol::{
        delivery::Envelope,
        entity::{EntityKey, Sequence},
        format::{CorruptRow, FORMAT, attribute as a, readable},
        keys::{delivery_row, entity_row},
        lease::numbers_if_absent,
        operation::{Operation, updated_state},
        state::{EntityState, LeaseKind},
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
/// go; one that handed over has sent a wake-up that nobody has acted on yet, and
/// that may be lost only once it is overdue; a retry, a block and a hold have a
/// wake-up or an operator of their own. A wait for a rate alone has none: the
/// inbox may have been empty.
pub fn owes_wake_up(state: &EntityState, now: Timestamp) -> bool {
    let drained = state.held.as_ref().is_some_and(|held| held.kind == LeaseKind::Drain && held.runs(now));
    !(drained || state.was_handed_over(now) || state.is_retried_later(now) || state.is_stopped())
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
