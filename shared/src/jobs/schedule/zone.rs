//! Local time, as croner searches it: time zones by their offsets from UTC.
//!
//! Times are in seconds. An instant counts from the Unix epoch, and a wall time is what a local clock shows, counted
//! from the epoch as if it were UTC.

use std::{cmp::Ordering, fmt, sync::Arc};

use croner::{
    errors::CronError,
    time::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday},
};

const DAY: i64 = 86_400;

/// A time zone.
#[derive(Clone)]
pub struct Zone {
    name: Arc<str>,
    offsets: ZoneOffsets,
}

#[derive(Clone)]
enum ZoneOffsets {
    Utc,
    #[cfg_attr(feature = "zones", allow(dead_code, reason = "only the clients in other languages have tables"))]
    Table(Arc<[(i64, i32)]>),
    #[cfg(feature = "zones")]
    Database(jiff::tz::TimeZone),
}

/// The instant or instants at which a local clock shows a wall time.
pub(super) enum Instants {
    One(i64),
    /// The clock is set back and shows the time twice.
    Two(i64, i64),
    /// The clock is set forward at this instant, and skips the time.
    Skipped(i64),
}

impl Zone {
    pub fn utc() -> Self {
        Self { name: "UTC".into(), offsets: ZoneOffsets::Utc }
    }

    /// Creates a zone from its changes, oldest first. Each is an instant and the offset from then on. The first offset
    /// also applies before.
    pub fn from_changes(name: &str, changes: impl IntoIterator<Item = (i64, i32)>) -> Self {
        Self { name: name.into(), offsets: ZoneOffsets::Table(changes.into_iter().collect()) }
    }

    /// Finds a zone of the IANA database. Without the feature `zones` there is only UTC.
    pub fn find(name: &str) -> Option<Self> {
        #[cfg(feature = "zones")]
        {
            let zone = jiff::tz::TimeZone::get(name).ok()?;
            Some(Self { name: zone.iana_name().unwrap_or("UTC").into(), offsets: ZoneOffsets::Database(zone) })
        }
        #[cfg(not(feature = "zones"))]
        (name == "UTC").then(Self::utc)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn offset_at(&self, instant: i64) -> i64 {
        match &self.offsets {
            ZoneOffsets::Utc => 0,
            ZoneOffsets::Table(changes) => {
                let next = changes.partition_point(|(from, _)| *from <= instant);
                changes.get(next.saturating_sub(1)).map_or(0, |(_, offset)| i64::from(*offset))
            }
            #[cfg(feature = "zones")]
            ZoneOffsets::Database(zone) => {
                jiff::Timestamp::from_second(instant).map_or(0, |instant| i64::from(zone.to_offset(instant).seconds()))
            }
        }
    }

    /// Returns the wall time at `instant`.
    pub(super) fn wall_at(&self, instant: i64) -> WallTime {
        WallTime(instant + self.offset_at(instant))
    }

    /// Returns the wall time that the clock would show at `instant`, had it not been set back within the last hours.
    pub(super) fn wall_at_before_repeat(&self, instant: i64) -> WallTime {
        let wall = self.wall_at(instant);
        match self.instants(wall) {
            Instants::Two(first, _) => WallTime(instant + (wall.0 - first)),
            Instants::One(_) | Instants::Skipped(_) => wall,
        }
    }

    /// Assumes that the offset changes at most once within two days.
    pub(super) fn instants(&self, wall: WallTime) -> Instants {
        let WallTime(wall) = wall;
        let [before, after] = [wall - DAY, wall + DAY].map(|near| self.offset_at(near));
        let [first, second] = [wall - before, wall - after];
        let is_shown = |instant: i64, offset: i64| self.offset_at(instant) == offset;
        match (is_shown(first, before), is_shown(second, after)) {
            (true, true) if first != second => Instants::Two(first, second),
            (true, _) => Instants::One(first),
            (false, true) => Instants::One(second),
            (false, false) => Instants::Skipped(self.change_between(second - 1, first + 1)),
        }
    }

    /// Returns the instant in `(from, until]` at which the offset changes.
    fn change_between(&self, mut from: i64, mut until: i64) -> i64 {
        let offset = self.offset_at(from);
        while until - from > 1 {
            let middle = from + (until - from) / 2;
            if self.offset_at(middle) == offset { from = middle } else { until = middle }
        }
        until
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WallTime(i64);

impl WallTime {
    fn weekday(self) -> Weekday {
        // The epoch was a Thursday.
        Weekday::from_days_from_sunday((self.0.div_euclid(DAY) + 4).rem_euclid(7) as u32)
    }

    /// Converts by the algorithm of Howard Hinnant's `civil_from_days`: years begin in March, so that leap days come
    /// last, and 400 years are an era of 146,097 days.
    fn to_civil(self) -> CivilDateTime {
        let days = self.0.div_euclid(DAY) + 719_468;
        let era = days.div_euclid(146_097);
        let day = days.rem_euclid(146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let from_march = (5 * day + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year + era * 400 + i64::from(month <= 2);
        let date =
            CivilDate::from_parts_unchecked(year as i32, month as u32, (day - (153 * from_march + 2) / 5 + 1) as u32);
        let second = self.0.rem_euclid(DAY) as u32;
        CivilDateTime::new(date, CivilTime::from_parts_unchecked(second / 3600, second / 60 % 60, second % 60))
    }

    fn from_civil(civil: CivilDateTime) -> Self {
        let month = i64::from(civil.month());
        let year = i64::from(civil.year()) - i64::from(month <= 2);
        let era = year.div_euclid(400);
        let year = year.rem_euclid(400);
        let from_march = (month + 9) % 12;
        let day = (153 * from_march + 2) / 5 + i64::from(civil.day()) - 1;
        let days = era * 146_097 + year * 365 + year / 4 - year / 100 + day - 719_468;
        let second = civil.hour() * 3600 + civil.minute() * 60 + civil.second();
        Self(days * DAY + i64::from(second))
    }
}

impl CronDateTime for WallTime {
    fn to_civil(&self) -> CivilDateTime {
        (*self).to_civil()
    }

    fn civil_weekday(&self) -> Weekday {
        self.weekday()
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        Ok(Resolution::Single(Self::from_civil(civil)))
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(seconds).map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// An instant in a time zone.
#[derive(Debug, Clone, Copy)]
pub(super) struct ZonedTime<'a> {
    pub(super) instant: i64,
    pub(super) zone: &'a Zone,
}

impl ZonedTime<'_> {
    fn wall(&self) -> WallTime {
        self.zone.wall_at(self.instant)
    }
}

impl CronDateTime for ZonedTime<'_> {
    fn to_civil(&self) -> CivilDateTime {
        self.wall().to_civil()
    }

    fn civil_weekday(&self) -> Weekday {
        self.wall().weekday()
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let at = |instant| Self { instant, ..*self };
        Ok(match self.zone.instants(WallTime::from_civil(civil)) {
            Instants::One(instant) => Resolution::Single(at(instant)),
            Instants::Two(first, second) => Resolution::Ambiguous(at(first), at(second)),
            Instants::Skipped(_) => Resolution::Gap,
        })
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        Some(Self { instant: self.instant.checked_add(seconds)?, ..*self })
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.instant.cmp(&other.instant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_converts_to_civil_date_and_back() {
        for day in (-800_000..800_000).step_by(97) {
            let wall = WallTime(day * DAY + day.rem_euclid(DAY));
            assert_eq!(WallTime::from_civil(wall.to_civil()), wall);
        }
        let leap_day = WallTime(951_782_400 + 3661);
        assert_eq!(leap_day.to_civil().to_string(), "2000-02-29T01:01:01");
        assert_eq!(leap_day.weekday(), Weekday::Tuesday);
    }

    #[test]
    fn table_has_the_first_offset_before_its_first_change() {
        let zone = Zone::from_changes("Test/Zone", [(0, 3600), (7200, 0)]);
        assert_eq!([-1, 0, 7199, 7200].map(|instant| zone.offset_at(instant)), [3600, 3600, 3600, 0]);
    }
}
