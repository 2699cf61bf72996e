//! Forgetting: rows of an inbox as they were read, and an entity's own down to
//! its numbers.

use std::time::Duration;

use crate::{
    protocol::{
        format::{CorruptRow, attribute as a, readable},
        hold::not_on_hold,
        keys::{act_nonce, entity_row, key_of, sequence_of},
        lease::purge_change,
        operation::Operation,
        state::EntityState,
        table::{Action, Change, Condition, Key, Row, TableName, Write, Written},
    },
    time::Timestamp,
};

/// How much longer than its own numbers say the row stays that has nothing but
/// numbers left. One that is made anew begins with its maker's time, which is
/// above them unless its clock is behind by as much.
const NUMBERS_STAY: Duration = Duration::from_secs(86_400);

/// Takes all but the numbers from an entity's row, which is free and empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forget<'a> {
    /// The row as the request found it.
    pub seen: &'a EntityState,
    /// When what is left may be deleted; `None`: never.
    pub purge_at: Option<Timestamp>,
}

/// What became of the row of an entity that was to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// Only numbers are left.
    Numbers,
    /// There is no row any more.
    Gone,
    /// A delivery came, somebody took the lease, it was put on hold, or is to be run
    /// again; nothing was changed.
    Changed,
}

impl<'a> Forget<'a> {
    /// For a request at `now`. The row's own numbers are times as well, of clocks that may be ahead of
    /// this one.
    pub fn of(seen: &'a EntityState, now: Timestamp) -> Self {
        let newest = Timestamp::from_millis(now.as_millis().max(seen.tail.0).max(seen.token.0));
        Self { seen, purge_at: (!seen.entity.is_kept_forever()).then_some(newest + NUMBERS_STAY) }
    }
}

impl Operation for Forget<'_> {
    type Outcome = Forgotten;

    fn write(&self) -> Write {
        // What else a row tells belongs to a delivery that waits, or to a holder.
        let told = [a::RECENT, a::SPILLED, a::NEWEST_EVENT_TIME, a::HOLDER_INFO];
        let mut changes = told.map(Change::remove).to_vec();
        changes.extend(purge_change(self.purge_at));
        Write {
            key: entity_row(&self.seen.entity),
            condition: Condition::All(vec![
                Condition::equal(a::TAIL, self.seen.tail.0),
                Condition::equal(a::HEAD, self.seen.head.0),
                Condition::absent(a::HOLDER),
                not_on_hold(),
                readable(),
            ]),
            action: Action::Update(changes),
        }
    }

    /// The tail says that nothing came, the head that nobody has it run again. A
    /// landed first try leaves what the condition asks for as it was, so that
    /// a second one lands too, and changes nothing.
    fn judge(&self, reply: Written) -> Result<Forgotten, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Forgotten::Numbers,
            Written::Refused(None) => Forgotten::Gone,
            Written::Refused(Some(_)) => Forgotten::Changed,
        })
    }
}

/// Deletes a delivery, a parked delivery, a receipt or what an operator did, and
/// nothing that stands in its place by now.
#[derive(Debug, Clone, PartialEq)]
pub struct Remove {
    key: Key,
    condition: Condition,
}

/// What became of a row that was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// It is not there any more.
    Gone,
    /// Another has come into its place, and stays.
    Another,
}

impl Remove {
    /// A delivery is known by the claim it was packed for, a receipt by the
    /// place it speaks of: its key is that of any other of the same delivery.
    ///
    /// # Errors
    ///
    /// The row is none of these.
    pub fn of(row: &Row) -> Result<Self, CorruptRow> {
        let known_by = if sequence_of(row).is_some() || act_nonce(row).is_some() { a::NONCE } else { a::SEQUENCE };
        let value = row.get(known_by).ok_or(CorruptRow::Attribute(known_by))?;
        let key = key_of(&TableName::Inbox, row).ok_or(CorruptRow::Attribute(a::ENTITY))?;
        Ok(Self { key, condition: Condition::equal(known_by, value.clone()) })
    }
}

impl Operation for Remove {
    type Outcome = Removed;

    fn write(&self) -> Write {
        Write { key: self.key.clone(), condition: self.condition.clone(), action: Action::Delete }
    }

    /// A first try that landed left nothing.
    fn judge(&self, reply: Written) -> Result<Removed, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) | Written::Refused(None) => Removed::Gone,
            Written::Refused(Some(_)) => Removed::Another,
        })
    }
}

/// Deletes one part of a body. Its key holds the nonce of one append: nobody
/// else's can stand there.
#[derive(Debug, Clone, PartialEq)]
pub struct RemovePart<'a> {
    /// Where it stands.
    pub part: &'a Key,
}

impl Operation for RemovePart<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        Write::delete(self.part.clone())
    }

    /// It asks for nothing: what a landed first try deleted may be deleted again.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
