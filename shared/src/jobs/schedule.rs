//! Computes when a job is due, from a cron expression in a time zone or from a rate.
//!
//! A cron expression has five fields and follows daylight saving time as Vixie cron does. If
//! minutes and hours are values, lists or ranges, they are times of day. When the clock is set
//! forward and skips a time of day, the job is due at that moment. When the clock is set back and
//! shows a time of day twice, the job is due the first time. If minutes or hours have a wildcard or
//! a step, they are an interval: a skipped time is not due, and a repeated time is due twice.
//!
//! Rates count from the Unix epoch, so no scheduler has to store when a job last ran.

use std::{fmt, str::FromStr, time::Duration};

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};

use crate::time::Timestamp;
use step::FIELDS;
pub use zone::Zone;
use zone::{Instants, WallTime, ZonedTime};

mod step;
mod zone;

#[derive(Debug, Clone, PartialEq)]
pub struct Schedule(ScheduleKind);

#[derive(Debug, Clone, PartialEq)]
enum ScheduleKind {
    /// The job is due each time the local clock shows a matching time.
    Interval(CronExpression),
    /// The job is due once for each matching time of day, even if the local clock skips or repeats
    /// that time.
    TimesOfDay(CronExpression),
    Every(Duration),
}

#[derive(Debug, Clone, PartialEq)]
struct CronExpression {
    text: String,
    cron: Box<Cron>,
    zone: Zone,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSchedule {
    #[error("{0:?} is not a schedule: write five fields, such as `0 3 * * *`, or a rate such as `every 5 minutes`")]
    Form(String),
    #[error("{text:?} is not a cron expression: {reason}")]
    Cron { text: String, reason: String },
    #[error(
        "{text:?} is not due every {count} {unit}: the step `{step}` begins anew each {longer}. Write {rate}a list of {unit}"
    )]
    Step {
        text: String,
        step: Box<str>,
        count: u32,
        unit: &'static str,
        longer: &'static str,
        /// The rate with this period, if there is one, and `, or`.
        rate: Box<str>,
    },
    #[error("{0:?} is never due: its day does not exist in its months")]
    Never(String),
    #[error("{0:?} is not a time zone of the IANA database, such as `Europe/Berlin`")]
    Zone(String),
    #[error("a rate has no time zone")]
    RateInZone,
}

/// The longest period of a rate, in minutes.
const LONGEST_PERIOD: u64 = 366 * 24 * 60;

impl Schedule {
    /// Parses a cron expression, whose time zone is UTC, or a rate. A schedule that is never due is
    /// an error.
    pub fn parse(text: &str) -> Result<Self, InvalidSchedule> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["every", ref rate @ ..] => Self::rate(rate).ok_or_else(|| InvalidSchedule::Form(text.to_owned())),
            [_, _, _, _, _] => Self::cron(&words.join(" ")),
            _ => Err(InvalidSchedule::Form(text.to_owned())),
        }
    }

    fn rate(words: &[&str]) -> Option<Self> {
        let (count, unit) = match *words {
            [unit] => (1, unit),
            [count, unit] => (count.parse::<u64>().ok()?, unit),
            _ => return None,
        };
        let minutes = match unit {
            "minute" | "minutes" => 1,
            "hour" | "hours" => 60,
            "day" | "days" => 24 * 60,
            _ => return None,
        };
        let minutes = count.checked_mul(minutes).filter(|minutes| (1..=LONGEST_PERIOD).contains(minutes))?;
        Some(Self(ScheduleKind::Every(Duration::from_secs(60 * minutes))))
    }

    fn cron(text: &str) -> Result<Self, InvalidSchedule> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let invalid = |error: croner::errors::CronError| InvalidSchedule::Cron {
            text: text.to_owned(),
            reason: error.to_string(),
        };
        let cron = parser.parse(text).map_err(invalid)?;
        for (field, expression) in FIELDS.iter().zip(text.split(' ')) {
            field.check(expression, text)?;
        }
        let is_interval = text.split(' ').take(2).any(|field| field.contains(['*', '?', '/']));
        let kind = if is_interval { ScheduleKind::Interval } else { ScheduleKind::TimesOfDay };
        let schedule = Self(kind(CronExpression { text: text.to_owned(), cron: Box::new(cron), zone: Zone::utc() }));
        match schedule.first_after(Timestamp::from_secs(0)) {
            Some(_) => Ok(schedule),
            None => Err(InvalidSchedule::Never(text.to_owned())),
        }
    }

    pub fn in_zone(self, name: &str) -> Result<Self, InvalidSchedule> {
        self.by(Zone::find(name).ok_or_else(|| InvalidSchedule::Zone(name.to_owned()))?)
    }

    /// Sets the time zone of a cron expression.
    pub fn by(self, zone: Zone) -> Result<Self, InvalidSchedule> {
        match self.0 {
            ScheduleKind::Interval(expression) => {
                Ok(Self(ScheduleKind::Interval(CronExpression { zone, ..expression })))
            }
            ScheduleKind::TimesOfDay(expression) => {
                Ok(Self(ScheduleKind::TimesOfDay(CronExpression { zone, ..expression })))
            }
            ScheduleKind::Every(_) => Err(InvalidSchedule::RateInZone),
        }
    }

    pub fn first_after(&self, time: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            ScheduleKind::Every(period) => {
                let period = period.as_millis() as u64;
                Some(Timestamp::from_millis((time.as_millis() / period + 1) * period))
            }
            ScheduleKind::Interval(CronExpression { cron, zone, .. }) => {
                from_seconds(cron.find_next_occurrence(&zoned(time, zone)?, false).ok()?.instant)
            }
            ScheduleKind::TimesOfDay(expression) => expression.first_time_of_day_after(time),
        }
    }

    /// Returns the last tick at or before `time`.
    pub fn last_until(&self, time: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            ScheduleKind::Every(period) => {
                let period = period.as_millis() as u64;
                Some(Timestamp::from_millis(time.as_millis() / period * period))
            }
            ScheduleKind::Interval(CronExpression { cron, zone, .. }) => {
                from_seconds(cron.find_previous_occurrence(&zoned(time, zone)?, true).ok()?.instant)
            }
            ScheduleKind::TimesOfDay(expression) => expression.last_time_of_day_until(time),
        }
    }

    /// Returns the ticks after `from` up to and including `until`, newest first.
    pub fn back_from(&self, until: Timestamp, from: Timestamp) -> impl Iterator<Item = Timestamp> {
        let before = |tick: Timestamp| Timestamp::from_millis(tick.as_millis().saturating_sub(1000));
        std::iter::successors(self.last_until(until), move |tick| self.last_until(before(*tick)))
            .take_while(move |tick| *tick > from)
    }
}

/// Computes times of day. croner searches in local time, and this code converts the results to UTC.
///
/// croner's own conversion is correct only for a single time of day, not for a list.
impl CronExpression {
    fn first_time_of_day_after(&self, time: Timestamp) -> Option<Timestamp> {
        let time = to_seconds(time)?;
        let mut wall = self.zone.wall_at(time);
        loop {
            wall = self.cron.find_next_occurrence(&wall, false).ok()?;
            let due = self.due(wall);
            if due > time {
                return from_seconds(due);
            }
        }
    }

    fn last_time_of_day_until(&self, time: Timestamp) -> Option<Timestamp> {
        let time = to_seconds(time)?;
        // While a repeated hour runs for the second time, all its times were due before. So the search
        // starts at the time that the clock would show if it had not been set back.
        let mut wall = self.zone.wall_at_before_repeat(time);
        let mut inclusive = true;
        loop {
            wall = self.cron.find_previous_occurrence(&wall, inclusive).ok()?;
            let due = self.due(wall);
            if due <= time {
                return from_seconds(due);
            }
            inclusive = false;
        }
    }

    /// Returns the moment at which the local time `wall` is due.
    ///
    /// A local time that the clock skips is due when the clock is set forward. A local time that
    /// the clock shows twice is due the first time.
    fn due(&self, wall: WallTime) -> i64 {
        match self.zone.instants(wall) {
            Instants::One(instant) | Instants::Two(instant, _) | Instants::Skipped(instant) => instant,
        }
    }
}

fn zoned(time: Timestamp, zone: &Zone) -> Option<ZonedTime<'_>> {
    Some(ZonedTime { instant: to_seconds(time)?, zone })
}

fn to_seconds(time: Timestamp) -> Option<i64> {
    i64::try_from(time.as_millis() / 1000).ok()
}

fn from_seconds(seconds: i64) -> Option<Timestamp> {
    u64::try_from(seconds).ok().map(Timestamp::from_secs)
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ScheduleKind::Interval(CronExpression { text, zone, .. })
            | ScheduleKind::TimesOfDay(CronExpression { text, zone, .. }) => {
                write!(f, "{text} {}", zone.name())
            }
            ScheduleKind::Every(period) => {
                let minutes = period.as_secs() / 60;
                let (count, unit) = match minutes {
                    _ if minutes % (24 * 60) == 0 => (minutes / (24 * 60), "day"),
                    _ if minutes % 60 == 0 => (minutes / 60, "hour"),
                    _ => (minutes, "minute"),
                };
                match count {
                    1 => write!(f, "every {unit}"),
                    _ => write!(f, "every {count} {unit}s"),
                }
            }
        }
    }
}

/// Parses the form that `Display` writes: a cron expression with its time zone, or a rate.
impl FromStr for Schedule {
    type Err = InvalidSchedule;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.rsplit_once(' ') {
            Some((expression, zone)) if text.split(' ').count() == 6 => Self::parse(expression)?.in_zone(zone),
            _ => Self::parse(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::from_millis(u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap())
    }

    fn berlin(text: &str) -> Schedule {
        Schedule::parse(text).unwrap().in_zone("Europe/Berlin").unwrap()
    }

    /// Returns all ticks of `schedule` between two times, oldest first.
    ///
    /// Asserts that searching backwards and searching forwards find the same ticks.
    fn ticks(schedule: &Schedule, from: &str, until: &str) -> Vec<String> {
        let from = at(from);
        let until = at(until);
        let mut back: Vec<Timestamp> = schedule.back_from(until, from).collect();
        back.reverse();
        let forward = std::iter::successors(schedule.first_after(from), |tick| schedule.first_after(*tick));
        let forward: Vec<Timestamp> = forward.take_while(|tick| *tick <= until).collect();
        assert_eq!(back, forward, "{schedule}");
        back.into_iter().map(|tick| tick.to_string().replace(".000Z", "Z")).collect()
    }

    #[test]
    fn cron_expression_uses_the_configured_time_zone() {
        let ticks = ticks(&berlin("0 3 * * *"), "2026-01-01T00:00:00Z", "2026-01-02T12:00:00Z");
        assert_eq!(ticks, ["2026-01-01T02:00:00Z", "2026-01-02T02:00:00Z"]);
    }

    /// Promise: daylight saving: skipped and repeated times, intervals.
    #[test]
    fn time_skipped_by_dst_is_due_at_change() {
        // Berlin goes from 02:00 to 03:00 on 29 March 2026, at 01:00 UTC.
        let ticks = ticks(&berlin("30 2 * * *"), "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z");
        assert_eq!(ticks, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    }

    #[test]
    fn time_repeated_by_dst_is_due_once() {
        // Berlin goes from 03:00 to 02:00 on 25 October 2026, at 01:00 UTC.
        let ticks = ticks(&berlin("30 2 * * *"), "2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z");
        assert_eq!(ticks, ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    }

    #[test]
    fn each_listed_time_is_due_despite_dst_change() {
        // In spring 02:30 is due at 03:00. In autumn it is due once.
        let ticks_of = |expression, from, until| ticks(&berlin(expression), from, until);
        for (expression, spring, autumn) in [
            (
                "30 2,14 * * *",
                vec!["2026-03-29T01:00:00Z", "2026-03-29T12:30:00Z"],
                vec!["2026-10-25T00:30:00Z", "2026-10-25T13:30:00Z"],
            ),
            // In spring, both skipped times are due at 03:00. They and 03:00 itself are one tick.
            (
                "0,30 2-3 * * *",
                vec!["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
                vec!["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z", "2026-10-25T02:30:00Z"],
            ),
        ] {
            assert_eq!(ticks_of(expression, "2026-03-28T23:00:00Z", "2026-03-29T21:00:00Z"), spring, "{expression}");
            assert_eq!(ticks_of(expression, "2026-10-24T22:00:00Z", "2026-10-25T22:00:00Z"), autumn, "{expression}");
        }
    }

    #[test]
    fn tick_search_within_repeated_hour_finds_adjacent_ticks() {
        let schedule = berlin("10,50 2,14 * * *");
        // The clock shows 02:20 for the second time. 02:50 was due before the clock was set back.
        let time = at("2026-10-25T01:20:00Z");
        assert_eq!(schedule.last_until(time), Some(at("2026-10-25T00:50:00Z")));
        assert_eq!(schedule.first_after(time), Some(at("2026-10-25T13:10:00Z")));
    }

    #[test]
    fn half_hourly_schedule_ignores_dst_changes() {
        let autumn = ticks(&berlin("*/30 * * * *"), "2026-10-24T23:59:00Z", "2026-10-25T02:00:00Z");
        assert_eq!(autumn.len(), 5);
        let spring = ticks(&berlin("*/30 * * * *"), "2026-03-28T23:59:00Z", "2026-03-29T02:00:00Z");
        assert_eq!(spring.len(), 5);
    }

    #[test]
    fn forward_and_backward_search_find_the_same_ticks() {
        let expressions = [
            "30 2 * * *",
            "0 0 * * *",
            "0 */6 * * *",
            "15 1,2,3 * * SUN",
            "0,45 0-3 * * *",
            "59 23 31 * *",
            "0 12 * * MON#1",
        ];
        for zone in
            ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Santiago"]
        {
            for expression in expressions {
                let schedule = Schedule::parse(expression).unwrap().in_zone(zone).unwrap();
                assert!(!ticks(&schedule, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z").is_empty());
            }
        }
    }

    #[test]
    fn rate_schedule_counts_from_the_unix_epoch() {
        let schedule = Schedule::parse("every 5 minutes").unwrap();
        let ticks = ticks(&schedule, "2026-01-01T00:00:00Z", "2026-01-01T00:12:00Z");
        assert_eq!(ticks, ["2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z"]);
    }

    #[test]
    fn displayed_schedule_parses_to_same_schedule() {
        for text in [
            "0 3 * * * Europe/Berlin",
            "*/5 * * * * UTC",
            "every minute",
            "every 5 minutes",
            "every 2 hours",
            "every day",
        ] {
            let schedule: Schedule = text.parse().unwrap();
            assert_eq!(schedule.to_string(), text);
            assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
        }
    }

    #[test]
    fn invalid_schedule_is_explained() {
        let refused = |text: &str| Schedule::parse(text).unwrap_err().to_string();
        assert!(refused("0 3 * *").contains("is not a schedule"));
        assert!(refused("0 0 3 * * *").contains("is not a schedule"));
        assert!(refused("61 3 * * *").contains("is not a cron expression"), "{}", refused("61 3 * * *"));
        assert!(refused("0 0 30 2 *").contains("is never due"), "{}", refused("0 0 30 2 *"));
        for rate in ["every 0 minutes", "every second", "every 90 seconds", "every", "every -1 hours", "every 367 days"]
        {
            assert!(refused(rate).contains("is not a schedule"), "{rate}");
        }
        let zone = Schedule::parse("0 3 * * *").unwrap().in_zone("Europe/Atlantis").unwrap_err();
        assert_eq!(zone, InvalidSchedule::Zone("Europe/Atlantis".into()));
        assert_eq!(Schedule::parse("every day").unwrap().in_zone("UTC"), Err(InvalidSchedule::RateInZone));
    }
}
