//! The sweep's position, stored in one row.
//!
//! The sweep scans the segments of the table one after the other, and then begins again. A scan of one segment is due
//! one to three minutes after the previous one. Overdue scans follow each other at once.

use std::time::Duration;

use crate::{
    format::{CorruptRow, FORMAT, attribute as a, check_format},
    keys::{entity_row_named, sweep_position_row},
    operation::{Operation, has_nonce, nonce_as_seen},
    table::{Action, Change, Key, Row, Write, Written},
    time::{Nonce, Timestamp},
};

/// The number of segments into which the sweep divides the table. A small table is swept once an hour, a segment a
/// minute.
pub const SEGMENTS: u32 = 60;

/// The least time from the due time of one segment's scan to the due time of the next.
pub const TURN: Duration = Duration::from_secs(60);

/// The rows of a segment that delay the next segment by one [`TURN`].
const ROWS_A_TURN: u64 = 1_000;

/// The most turns from one segment to the next. So a pass over a large table is due each three hours.
const MOST_TURNS: u64 = 3;

/// Returns the time from the due time of a segment with `rows` rows to that of the next. A large table is swept less
/// often, because each pass costs in proportion to its rows.
pub fn pace(rows: u64) -> Duration {
    TURN * rows.div_ceil(ROWS_A_TURN).clamp(1, MOST_TURNS) as u32
}

/// A step of the sweep: the scan of one segment of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepTurn {
    /// The number of segments that the sweep has finished before this one, since its first tick or the last change of
    /// [`Position::in_one_part`].
    pub number: u64,
    /// The key of the entity after which the scan continues; `None` at the segment's beginning.
    pub after: Option<String>,
    /// The time of the tick at which this segment's scan is due.
    pub due: Timestamp,
}

impl SweepTurn {
    pub fn first(tick: Timestamp) -> Self {
        Self { number: 0, after: None, due: tick }
    }

    /// Returns the first scan of a pass whose segments are all due at once.
    pub fn first_of_pass(tick: Timestamp) -> Self {
        let due = tick.as_millis().saturating_sub((pace(u64::MAX) * SEGMENTS - TURN).as_millis() as u64);
        Self::first(Timestamp::from_millis(due))
    }

    pub fn segment(&self) -> u32 {
        u32::try_from(self.number % u64::from(SEGMENTS)).unwrap_or(0)
    }

    pub fn is_due(&self, tick: Timestamp) -> bool {
        self.due <= tick
    }

    pub fn continues_after(&self) -> Option<Key> {
        self.after.as_deref().map(entity_row_named)
    }

    /// Returns the scan of the next segment. The parameter `tick` is the tick in which this scan
    /// ended, and `pace` the time until the next one.
    ///
    /// The sweep makes up for at most one pass. So after an outage of days, it passes over the table once. If the pace of
    /// segments differs, some of them follow later.
    #[must_use]
    pub fn finished(&self, tick: Timestamp, pace: Duration) -> Self {
        let most_late = pace * (SEGMENTS - 2);
        let earliest = Timestamp::from_millis(tick.as_millis().saturating_sub(most_late.as_millis() as u64));
        Self { number: self.number + 1, after: None, due: (self.due + pace).max(earliest) }
    }
}

/// The time after which the writes of an older version have ended: a function's longest run, and a margin.
const OLDER_WRITES_END: Duration = Duration::from_secs(20 * 60);

/// The segments in which sweeps of this version have mended every row, one after the other.
///
/// An older version advances the position without mending, and does not know the round. So a round counts only with the
/// position's own nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// The tick after which the round began.
    pub since: Timestamp,
    /// The number of mended segments, at most [`SEGMENTS`].
    pub segments: u32,
}

impl Round {
    pub fn begun(tick: Timestamp) -> Self {
        Self { since: tick, segments: 0 }
    }

    /// Returns the round of a process that has mended all rows, and that alone writes the tables.
    pub fn complete(now: Timestamp) -> Self {
        Self { since: now, segments: SEGMENTS }
    }

    /// Returns the round after another segment. Segments count only once no older version writes any more.
    #[must_use]
    pub fn finished(self, tick: Timestamp) -> Self {
        let counts = tick.since(self.since) >= OLDER_WRITES_END;
        Self { segments: (self.segments + u32::from(counts)).min(SEGMENTS), ..self }
    }

    /// Returns whether every row has been mended, so that the index of waiting entities holds all that it must.
    pub fn is_complete(&self) -> bool {
        self.segments >= SEGMENTS
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub turn: SweepTurn,
    pub nonce: Nonce,
    /// `None` until a sweep of this version has finished a segment.
    pub round: Option<Round>,
    /// Set if the sweep scans the whole table in the turn of the first segment. A position of the other division does
    /// not say which rows are left. An older version leaves the stored mark when it advances the position, so the mark
    /// counts only with the position's own nonce.
    pub in_one_part: bool,
}

impl Position {
    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        check_format(row)?;
        let number = |name| row.number(name).ok_or(CorruptRow::Attribute(name));
        let nonce = row.text(a::NONCE).ok_or(CorruptRow::Attribute(a::NONCE))?;
        let round = |since, segments| Round { since: Timestamp::from_millis(since), segments };
        let segments = row.number(a::ROUND).and_then(|segments| u32::try_from(segments).ok());
        Ok(Self {
            turn: SweepTurn {
                number: number(a::TURN)?,
                after: row.text(a::AFTER).map(str::to_owned),
                due: Timestamp::from_millis(number(a::DUE)?),
            },
            nonce: Nonce::from_stored(nonce),
            round: row
                .number(a::ROUND_SINCE)
                .zip(segments)
                .filter(|_| row.text(a::ROUND_NONCE) == Some(nonce))
                .map(|(since, segments)| round(since, segments)),
            in_one_part: row.text(a::IN_ONE_PART) == Some(nonce),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvancePosition<'a> {
    /// The position that the sweep last read or stored; `None` if no position is stored yet.
    pub seen: Option<&'a Position>,
    pub to: &'a Position,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PositionAdvanced {
    Advanced,
    /// Another sweep has advanced the position, and continues from there.
    Elsewhere,
}

impl AdvancePosition<'_> {
    fn changes(&self) -> Vec<Change> {
        let Position { turn, nonce, round, in_one_part } = self.to;
        let mut changes = vec![
            Change::set(a::VERSION, FORMAT),
            Change::set(a::TURN, turn.number),
            match &turn.after {
                Some(after) => Change::set(a::AFTER, after.as_str()),
                None => Change::remove(a::AFTER),
            },
            Change::set(a::DUE, turn.due.as_millis()),
            Change::set(a::NONCE, nonce.as_str()),
            match in_one_part {
                true => Change::set(a::IN_ONE_PART, nonce.as_str()),
                false => Change::remove(a::IN_ONE_PART),
            },
        ];
        match round {
            Some(round) => changes.extend([
                Change::set(a::ROUND, round.segments),
                Change::set(a::ROUND_SINCE, round.since.as_millis()),
                Change::set(a::ROUND_NONCE, nonce.as_str()),
            ]),
            None => changes.extend([a::ROUND, a::ROUND_SINCE, a::ROUND_NONCE].map(Change::remove)),
        }
        changes
    }
}

impl Operation for AdvancePosition<'_> {
    type Outcome = PositionAdvanced;

    fn write(&self) -> Write {
        Write {
            key: sweep_position_row(),
            // If another sweep has advanced the position, the nonce differs. So a sweep that was
            // frozen neither skips segments nor moves the position back.
            condition: nonce_as_seen(self.seen.map(|seen| &seen.nonce)),
            action: Action::Update(self.changes()),
        }
    }

    /// Treats a refusal as success if the row has the nonce of the position `to`, because then an
    /// earlier try of this write landed.
    fn judge(&self, reply: Written) -> Result<PositionAdvanced, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => PositionAdvanced::Advanced,
            Written::Refused(row) if has_nonce(&row, &self.to.nonce) => PositionAdvanced::Advanced,
            Written::Refused(_) => PositionAdvanced::Elsewhere,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Timestamp = Timestamp::from_secs(1_767_225_600);

    fn turns(turn: &mut SweepTurn, tick: Timestamp) -> u32 {
        let mut turns = 0;
        while turn.is_due(tick) {
            *turn = turn.finished(tick, TURN);
            turns += 1;
        }
        turns
    }

    #[test]
    fn every_sweep_segment_is_due_within_an_hour() {
        let mut turn = SweepTurn::first(TICK);
        let mut segments = Vec::new();
        for minute in 0..60 {
            segments.push(turn.segment());
            assert_eq!(turns(&mut turn, TICK + minute * TURN), 1);
        }
        segments.sort_unstable();
        assert_eq!(segments, Vec::from_iter(0..SEGMENTS));
        assert_eq!(turn.segment(), 0);
    }

    #[test]
    fn sweep_segments_of_missed_minutes_are_due_immediately() {
        let mut turn = SweepTurn::first(TICK);
        turns(&mut turn, TICK);
        assert_eq!(turns(&mut turn, TICK + 10 * TURN), 10);
        assert_eq!(turns(&mut turn, TICK + 11 * TURN), 1);
    }

    #[test]
    fn sweep_after_days_without_ticks_makes_one_pass() {
        let mut turn = SweepTurn::first(TICK);
        turns(&mut turn, TICK);
        let days = TICK + Duration::from_secs(3 * 86_400);
        assert_eq!(turns(&mut turn, days), SEGMENTS, "a pass");
        assert_eq!(turns(&mut turn, days + TURN), 1);
    }

    #[test]
    fn pass_due_at_once_has_each_segment_once() {
        let mut turn = SweepTurn::first_of_pass(TICK);
        assert_eq!((turns(&mut turn, TICK), turn.segment()), (SEGMENTS, 0));
    }

    #[test]
    fn segments_of_a_large_table_are_due_each_three_minutes() {
        assert_eq!([0, 1, 1_000, 1_001, 2_001, 9_000].map(pace), [1, 1, 1, 2, 3, 3].map(|turns| turns * TURN));
        let slow = |turn: SweepTurn, tick| {
            let next = move |turn: &SweepTurn| turn.is_due(tick).then(|| turn.finished(tick, pace(u64::MAX)));
            std::iter::successors(Some(turn), next)
        };
        let turn = slow(SweepTurn::first(TICK), TICK).last().unwrap();
        assert_eq!((turn.number, turn.due), (1, TICK + 3 * TURN));
        let days = TICK + Duration::from_secs(3 * 86_400);
        for (turn, number) in [(turn, 61), (SweepTurn::first_of_pass(days), 60)] {
            let next = slow(turn, days).last().unwrap();
            assert_eq!((next.number, next.due), (number, days + 3 * TURN), "a pass");
        }
    }

    #[test]
    fn sweep_tick_before_last_finished_one_scans_no_segment() {
        let mut turn = SweepTurn::first(TICK + TURN);
        turns(&mut turn, TICK + TURN);
        assert!(!turn.is_due(TICK));
    }

    #[test]
    fn round_is_complete_an_hour_after_older_writes_have_ended() {
        let mut round = Round::begun(TICK);
        let turns = (1..).find(|minute| {
            round = round.finished(TICK + *minute * TURN);
            round.is_complete()
        });
        assert_eq!((turns, round.segments), (Some(79), SEGMENTS));
        assert!(round.finished(TICK + 80 * TURN).is_complete() && Round::complete(TICK).is_complete());
    }

    #[test]
    fn sweep_position_is_read_as_written() {
        let turn = SweepTurn { number: 77, after: Some("shop/order/1".into()), due: TICK };
        let round = Some(Round { since: TICK, segments: 7 });
        let position = Position { turn, nonce: Nonce::from_parts(TICK, 1), round, in_one_part: true };
        let write = AdvancePosition { seen: None, to: &position }.write();
        let Action::Update(changes) = write.action else { panic!("an update") };
        let row = changes.into_iter().fold(write.key.to_row(), |row, change| match change {
            Change::Set(attribute, value) => row.with(attribute, value),
            _ => row,
        });
        let of_older = row.clone().with(a::NONCE, Nonce::from_parts(TICK, 2).as_str());
        let of_older = Position::parse(&of_older).unwrap();
        assert_eq!((of_older.round, of_older.in_one_part), (None, false), "an older version advanced it");
        assert_eq!(Position::parse(&row), Ok(position));
        let newer = row.with(a::VERSION, FORMAT + 1);
        assert_eq!(Position::parse(&newer), Err(CorruptRow::Newer(u64::from(FORMAT) + 1)));
    }
}
