//! An operator keeps drains off an entity, and lets them at it again. What is at
//! work ends, what arrives waits; exclusive leases are granted as ever.

use crate::{
    protocol::{
        entity::EntityKey,
        format::{CorruptRow, attribute as a, readable},
        keys::entity_row,
        lease::{numbers_if_absent, purge_change},
        operation::{Operation, state_of, updated_state},
        state::EntityState,
        table::{Action, Change, Comparison, Condition, Row, Value, Write, Written},
    },
    time::Timestamp,
};

/// Whether an entity is on hold, and which of its holds it was. Each has a number
/// above the last one's, and takes its row from one number to the next: so a
/// first try that lands late can neither hold again what goes on, nor let go on
/// what is held anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hold(i64);

impl Hold {
    /// What a row says.
    pub(crate) fn parse(row: &Row) -> Result<Self, CorruptRow> {
        match row.get(a::HOLD) {
            None => Ok(Self::default()),
            Some(Value::N(number)) => Ok(Self(*number)),
            Some(_) => Err(CorruptRow::Attribute(a::HOLD)),
        }
    }

    /// Since when it is on hold, by its operator's clock; `None`: it is not.
    pub fn since(self) -> Option<Timestamp> {
        u64::try_from(self.0).ok().filter(|at| *at > 0).map(Timestamp::from_millis)
    }

    /// One that begins at `now`, after this one.
    fn begun(self, now: Timestamp) -> Self {
        Self(self.0.saturating_abs().saturating_add(1).max(i64::try_from(now.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The same, ended.
    fn ended(self) -> Self {
        Self(-self.0)
    }

    fn change(self) -> Change {
        Change::set(a::HOLD, Value::N(self.0))
    }

    /// That a row still says this.
    fn stands(self) -> Condition {
        match self.0 {
            0 => Condition::absent(a::HOLD),
            number => Condition::compare(a::HOLD, Comparison::Equal, Value::N(number)),
        }
    }
}

/// That an entity is not on hold.
pub(crate) fn not_on_hold() -> Condition {
    Condition::absent_or_at_most(a::HOLD, 0_u32)
}

/// Keeps drains off an entity until it is resumed, and makes its row where there
/// is none. It is not deleted for idleness meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin<'a> {
    /// Of which entity.
    pub entity: &'a EntityKey,
    /// What its row said, or nothing; not on hold.
    pub seen: Hold,
    /// The time.
    pub now: Timestamp,
}

/// What became of the begin or the end of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// It is done. The row as it is.
    Done(EntityState),
    /// Another operator was faster; look again. `None`: there is no row.
    Otherwise(Option<EntityState>),
}

fn judge(hold: Hold, reply: Written) -> Result<Changed, CorruptRow> {
    Ok(match reply {
        Written::Landed(row) => Changed::Done(updated_state(row)?),
        Written::Refused(row) => match state_of(row)? {
            Some(state) if state.hold == hold => Changed::Done(state),
            state => Changed::Otherwise(state),
        },
    })
}

impl Operation for Begin<'_> {
    type Outcome = Changed;

    fn write(&self) -> Write {
        let mut changes = numbers_if_absent(self.now, &[a::TAIL, a::HEAD, a::TOKEN]);
        changes.extend([self.seen.begun(self.now).change(), Change::remove(a::PURGE_AT)]);
        Write {
            key: entity_row(self.entity),
            condition: Condition::All(vec![readable(), self.seen.stands()]),
            action: Action::Update(changes),
        }
    }

    /// A first try that landed left this number. So did another operator's of the
    /// same moment: it is on hold all the same.
    fn judge(&self, reply: Written) -> Result<Changed, CorruptRow> {
        judge(self.seen.begun(self.now), reply)
    }
}

/// Ends a hold; send a wake-up afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End<'a> {
    /// The row that shows it.
    pub seen: &'a EntityState,
    /// When a row that was seen idle may be deleted for that; `None`: never.
    pub purge_at: Option<Timestamp>,
}

impl Operation for End<'_> {
    type Outcome = Changed;

    fn write(&self) -> Write {
        let mut conditions = vec![readable(), self.seen.hold.stands()];
        let mut changes = vec![self.seen.hold.ended().change()];
        if self.seen.is_empty() && self.seen.held.is_none() {
            conditions.push(Condition::absent(a::HOLDER));
            conditions.push(Condition::compare_with(a::HEAD, Comparison::Equal, a::TAIL));
            changes.extend(purge_change(self.purge_at));
        }
        Write {
            key: entity_row(&self.seen.entity),
            condition: Condition::All(conditions),
            action: Action::Update(changes),
        }
    }

    /// A first try that landed left this number, with the sign turned.
    fn judge(&self, reply: Written) -> Result<Changed, CorruptRow> {
        judge(self.seen.hold.ended(), reply)
    }
}
