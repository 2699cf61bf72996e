//! Refuses steps of cron expressions that mean another period than they seem to.

use super::InvalidSchedule;

/// A field of a cron expression, with what its unit is called and how many values it has.
pub(super) struct CronField {
    unit: &'static str,
    longer: &'static str,
    first: u32,
    count: u32,
    has_rate: bool,
    /// Set if `count` is that of the longest period, and other periods have fewer.
    varies: bool,
}

pub(super) const FIELDS: [CronField; 5] = [
    CronField { unit: "minutes", longer: "hour", first: 0, count: 60, has_rate: true, varies: false },
    CronField { unit: "hours", longer: "day", first: 0, count: 24, has_rate: true, varies: false },
    CronField { unit: "days", longer: "month", first: 1, count: 31, has_rate: true, varies: true },
    CronField { unit: "months", longer: "year", first: 1, count: 12, has_rate: false, varies: false },
    CronField { unit: "weekdays", longer: "week", first: 0, count: 7, has_rate: false, varies: false },
];

impl CronField {
    /// Refuses a step that means another period than it seems to: `*/90` in minutes is due once an hour, and `*/45`
    /// after 45 and 15 minutes in turn.
    pub(super) fn check(&self, expression: &str, text: &str) -> Result<(), InvalidSchedule> {
        for part in expression.split(',') {
            let Some((range, step)) = part.split_once('/') else { continue };
            let Ok(step) = step.parse::<u32>() else { continue };
            if step == 0 || self.divides(range, step) {
                continue;
            }
            let rate = if self.has_rate { format!("`every {step} {}`, or ", self.unit) } else { String::new() };
            return Err(InvalidSchedule::Step {
                text: text.to_owned(),
                step: part.into(),
                count: step,
                unit: self.unit,
                longer: self.longer,
                rate: rate.into(),
            });
        }
        Ok(())
    }

    fn divides(&self, range: &str, step: u32) -> bool {
        let last = self.first + self.count - 1;
        let ends = range.split_once('-').map(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        match ends {
            // A range of names, such as MON-FRI.
            Some(None) => true,
            // A range that somebody chose may end before its next step, but must have one.
            Some(Some((from, to))) if (from, to) != (self.first, last) => step <= u32::saturating_sub(to, from),
            // No step divides every month, so that the days of months may differ at their ends.
            _ if self.varies => step <= self.count / 2,
            _ => self.count.is_multiple_of(step),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::jobs::schedule::Schedule;

    #[test]
    fn step_that_does_not_divide_its_field_is_refused() {
        let refused = |text: &str| Schedule::parse(text).unwrap_err().to_string();
        assert_eq!(
            refused("*/90 * * * *"),
            "\"*/90 * * * *\" is not due every 90 minutes: the step `*/90` begins anew each hour. Write `every 90 minutes`, \
             or a list of minutes"
        );
        assert!(refused("0 */36 * * *").ends_with("begins anew each day. Write `every 36 hours`, or a list of hours"));
        for (text, rate) in [
            ("*/45 * * * *", "every 45 minutes"),
            ("*/7 9-17 * * MON-FRI", "every 7 minutes"),
            ("5-59/55 * * * *", "every 55 minutes"),
            ("0-59/7 * * * *", "every 7 minutes"),
            ("1,*/25 * * * *", "every 25 minutes"),
            ("15 */5 * * *", "every 5 hours"),
            ("0 0 */40 * *", "every 40 days"),
            ("0 0 */16 * *", "every 16 days"),
        ] {
            assert!(refused(text).contains(&format!("Write `{rate}`, or a list")), "{text}: {}", refused(text));
        }
        assert!(refused("0 0 1 */5 *").ends_with("begins anew each year. Write a list of months"));
        assert!(refused("0 0 * * */2").ends_with("begins anew each week. Write a list of weekdays"));
        for text in [
            "*/15 * * * *",
            "*/1 * * * *",
            "*/60 * * * *",
            "5-59/20 * * * *",
            "10-40/15 * * * *",
            "0,30 * * * *",
            "0 */6 * * *",
            "0 */24 * * *",
            "0 9-17/2 * * *",
            "0 0 */2 * *",
            "0 0 1-31/2 * *",
            "0 0 1 */3 *",
            "0 0 * * MON-FRI",
            "0 12 * * MON#1",
        ] {
            Schedule::parse(text).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
