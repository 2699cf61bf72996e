//! Where the sweep is: one row, moved on by whoever sweeps.
//!
//! Segments take turns in a circle, so that the next one is always the one that
//! was swept longest ago. A turn comes up a minute after the one before it; one
//! that came late, or took longer than its minute, is made up for by those that
//! follow at once.

use std::time::Duration;

use crate::{
    protocol::{
        format::{CorruptRow, FORMAT, attribute as a, check_format},
        keys::{entity_row_named, sweep_position_row},
        operation::Operation,
        table::{Action, Change, Condition, Key, Row, Write, Written},
    },
    time::{Nonce, Timestamp},
};

/// One part of the table for each minute of an hour.
pub const SEGMENTS: u32 = 60;

/// How long a segment's turn lasts where it can be swept in that time.
pub const TURN: Duration = Duration::from_secs(60);

/// The most that is made up for: turns that are later than this are dropped,
/// so that behind an outage of days there is one pass at once, and not one for
/// each hour.
const MOST_LATE: Duration = Duration::from_secs(TURN.as_secs() * SEGMENTS as u64);

/// What the sweep has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which turn, counted from the first sweep there was.
    pub turn: u64,
    /// The entity behind which it goes on; `None`: its segment is not begun.
    pub after: Option<String>,
    /// The tick from which on it is due.
    pub due: Timestamp,
}

impl Place {
    /// The first turn of all, due at `tick`.
    pub fn first(tick: Timestamp) -> Self {
        Self { turn: 0, after: None, due: tick }
    }

    /// The segment whose turn it is.
    pub fn segment(&self) -> u32 {
        u32::try_from(self.turn % u64::from(SEGMENTS)).unwrap_or(0)
    }

    /// Whether its turn has come at `tick`.
    pub fn is_due(&self, tick: Timestamp) -> bool {
        self.due <= tick
    }

    /// The key behind which its scan goes on.
    pub fn go_on_behind(&self) -> Option<Key> {
        self.after.as_deref().map(entity_row_named)
    }

    /// The turn behind this one, which ended at `tick`.
    #[must_use]
    pub fn finished(&self, tick: Timestamp) -> Self {
        let earliest = Timestamp::from_millis(tick.as_millis().saturating_sub(MOST_LATE.as_millis() as u64));
        Self { turn: self.turn + 1, after: None, due: (self.due + TURN).max(earliest) }
    }
}

/// The row that remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// What is next.
    pub place: Place,
    /// Drawn afresh by whoever moved it here.
    pub nonce: Nonce,
}

impl Position {
    /// Reads the row.
    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        check_format(row)?;
        let number = |name| row.number(name).ok_or(CorruptRow::Attribute(name));
        Ok(Self {
            place: Place {
                turn: number(a::TURN)?,
                after: row.text(a::AFTER).map(str::to_owned),
                due: Timestamp::from_millis(number(a::DUE)?),
            },
            nonce: Nonce::from_stored(row.text(a::NONCE).ok_or(CorruptRow::Attribute(a::NONCE))?),
        })
    }
}

/// Moves the position on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveOn<'a> {
    /// The position as it was seen, from which on all was looked at; `None`:
    /// there was none.
    pub seen: Option<&'a Position>,
    /// Where it is now.
    pub to: &'a Position,
}

/// What became of moving the position on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    /// It is there.
    Moved,
    /// Somebody else moved it: another sweep is at it, and goes on from there.
    Elsewhere,
}

impl Operation for MoveOn<'_> {
    type Outcome = Moved;

    fn write(&self) -> Write {
        let place = &self.to.place;
        Write {
            key: sweep_position_row(),
            // A nonce is drawn once: where it stands still, nobody has moved anything, and nothing is
            // skipped. One that was frozen moves nothing back.
            condition: match self.seen {
                Some(seen) => Condition::equal(a::NONCE, seen.nonce.as_str()),
                None => Condition::absent(a::NONCE),
            },
            action: Action::Update(vec![
                Change::set(a::VERSION, FORMAT),
                Change::set(a::TURN, place.turn),
                match &place.after {
                    Some(after) => Change::set(a::AFTER, after.as_str()),
                    None => Change::remove(a::AFTER),
                },
                Change::set(a::DUE, place.due.as_millis()),
                Change::set(a::NONCE, self.to.nonce.as_str()),
            ]),
        }
    }

    /// A first try that landed left its nonce there.
    fn judge(&self, reply: Written) -> Result<Moved, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Moved::Moved,
            Written::Refused(row) => {
                let mine = row.is_some_and(|row| row.text(a::NONCE) == Some(self.to.nonce.as_str()));
                if mine { Moved::Moved } else { Moved::Elsewhere }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Timestamp = Timestamp::from_secs(1_767_225_600);

    /// How many turns a tick takes when time is no matter.
    fn turns(place: &mut Place, tick: Timestamp) -> u32 {
        let mut turns = 0;
        while place.is_due(tick) {
            *place = place.finished(tick);
            turns += 1;
        }
        turns
    }

    #[test]
    fn a_turn_comes_up_each_minute_and_an_hour_passes_every_segment() {
        let mut place = Place::first(TICK);
        let mut segments = Vec::new();
        for minute in 0..60 {
            segments.push(place.segment());
            assert_eq!(turns(&mut place, TICK + minute * TURN), 1);
        }
        segments.sort_unstable();
        assert_eq!(segments, Vec::from_iter(0..SEGMENTS));
        assert_eq!(place.segment(), 0);
    }

    #[test]
    fn minutes_that_were_missed_are_made_up_for_at_once() {
        let mut place = Place::first(TICK);
        turns(&mut place, TICK);
        assert_eq!(turns(&mut place, TICK + 10 * TURN), 10);
        assert_eq!(turns(&mut place, TICK + 11 * TURN), 1);
    }

    #[test]
    fn behind_days_without_a_sweep_there_is_one_pass_at_once_and_no_more() {
        let mut place = Place::first(TICK);
        turns(&mut place, TICK);
        let days = TICK + Duration::from_secs(3 * 86_400);
        assert_eq!(turns(&mut place, days), SEGMENTS + 2, "a pass, the turn that was due, and this minute's");
        assert_eq!(turns(&mut place, days + TURN), 1);
    }

    #[test]
    fn a_tick_that_is_delivered_late_finds_nothing_due() {
        let mut place = Place::first(TICK + TURN);
        turns(&mut place, TICK + TURN);
        assert!(!place.is_due(TICK));
    }

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let place = Place { turn: 77, after: Some("shop/order/1".into()), due: TICK };
        let position = Position { place, nonce: Nonce::from_parts(TICK, 1) };
        let write = MoveOn { seen: None, to: &position }.write();
        let Action::Update(changes) = write.action else { panic!("an update") };
        let row = changes.into_iter().fold(write.key.to_row(), |row, change| match change {
            Change::Set(attribute, value) => row.with(attribute, value),
            _ => row,
        });
        assert_eq!(Position::parse(&row), Ok(position));
        let newer = row.with(a::VERSION, FORMAT + 1);
        assert_eq!(Position::parse(&newer), Err(CorruptRow::Newer(u64::from(FORMAT) + 1)));
    }
}
