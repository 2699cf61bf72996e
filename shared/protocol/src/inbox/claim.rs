//! The operations of an append: claim the next sequence, and put the delivery there. If the
//! delivery never arrives, a worker writes a tombstone.

use crate::{
    delivery::Envelope,
    entity::{EntityKey, Sequence},
    format::{CorruptRow, FORMAT, attribute as a, readable},
    keys::{delivery_row, entity_row},
    lease::numbers_if_absent,
    operation::{Operation, has_nonce, updated_state},
    state::{EntityState, LeaseKind},
    table::{Action, Change, Comparison, Condition, Row, Write, Written},
    time::{Nonce, Timestamp},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim<'a> {
    pub entity: &'a EntityKey,
    pub nonce: &'a Nonce,
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    pub sequence: Sequence,
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

    /// Treats every reply as success. A refusal means that an earlier try of this write landed and
    /// is still the newest claim, so its sequence is the tail. If another claim came in between,
    /// this try lands as well. The earlier try's sequence then remains a gap, which a worker fills
    /// with a tombstone.
    fn judge(&self, reply: Written) -> Result<Claimed, CorruptRow> {
        let (Written::Landed(row) | Written::Refused(row)) = reply;
        let state = updated_state(row)?;
        Ok(Claimed { sequence: state.tail, state })
    }
}

/// Returns whether the writer of a claim must send a wake-up. The parameter `state` is the entity's
/// row after the claim. No wake-up is needed in these cases:
///
/// - A worker has a valid drain lease. Before it releases the lease, it empties the inbox or sends
///   a wake-up.
/// - A hand-over's wake-up is on its way, or one follows an exclusive lease. It counts as lost only
///   when it is five minutes overdue.
/// - A delivery waits for a retry, which has a wake-up of its own.
/// - The entity is blocked or on hold. The operator who lets it continue sends a wake-up.
///
/// A wait for a rate limit alone does need a wake-up: if the inbox was empty, no wake-up is on its
/// way.
pub fn owes_wake_up(state: &EntityState, now: Timestamp) -> bool {
    let drained = state.held.as_ref().is_some_and(|held| held.kind == LeaseKind::Drain && held.runs(now));
    !(drained
        || state.is_followed(now)
        || state.was_handed_over(now)
        || state.is_retried_later(now)
        || state.is_stopped())
}

#[derive(Debug, Clone)]
pub struct Put<'a> {
    pub envelope: &'a Envelope,
    pub sequence: Sequence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Stored,
    /// A worker wrote a tombstone at the sequence first. The caller must claim another sequence.
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

    /// Treats a refusal as success if the row has the append's nonce, because then an earlier try
    /// of this write landed.
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

#[derive(Debug, Clone, PartialEq)]
pub enum Voided {
    /// The sequence has a tombstone, from this write or an earlier one.
    Void,
    /// The sequence has a delivery, which arrived after all. Contains the delivery's row.
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

    /// Treats any tombstone in the row as success: the sequence is decided, no matter which process
    /// wrote the tombstone.
    fn judge(&self, reply: Written) -> Result<Voided, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Voided::Void,
            Written::Refused(Some(row)) if row.get(a::VOID).is_none() => Voided::Filled(row),
            Written::Refused(_) => Voided::Void,
        })
    }
}
