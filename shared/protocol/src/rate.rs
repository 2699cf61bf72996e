//! Rate limits for the handler starts of one entity: `5/s`, `30/min`, `100/h`.
//!
//! The settle of a delivery stores in the entity's row when the next handler may start, so the
//! limit applies to every worker. A worker waits for up to a second itself. For a longer wait, it
//! sends a delayed wake-up instead of polling.

use std::{fmt, str::FromStr, time::Duration};

use serde::Deserialize;

/// A rate limit, as the shortest time between two handler starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Rate(Duration);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a rate is a whole number from 1 to 1000, a slash, and s, min or h, such as `5/s`")]
pub struct InvalidRate;

impl Rate {
    pub fn interval(self) -> Duration {
        self.0
    }
}

impl FromStr for Rate {
    type Err = InvalidRate;
    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let (number, unit) = text.split_once('/').ok_or(InvalidRate)?;
        let unit = match unit.trim() {
            "s" => 1,
            "min" => 60,
            "h" => 3600,
            _ => return Err(InvalidRate),
        };
        let number: u32 = number.trim().parse().map_err(|_| InvalidRate)?;
        match number {
            1..=1000 => Ok(Self(Duration::from_secs(unit) / number)),
            _ => Err(InvalidRate),
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = InvalidRate;
    fn try_from(text: String) -> Result<Self, InvalidRate> {
        text.parse()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one every {}", humantime::format_duration(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_parsed_from_number_and_unit() {
        let interval = |text: &str| text.parse::<Rate>().map(Rate::interval);
        assert_eq!(interval("5/s"), Ok(Duration::from_millis(200)));
        assert_eq!(interval("30/min"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("1000/s"), Ok(Duration::from_millis(1)));
        assert_eq!(interval("1/h"), Ok(Duration::from_secs(3600)));
        assert_eq!("30/min".parse::<Rate>().unwrap().to_string(), "one every 2s");
        for text in ["", "5", "0/s", "1001/s", "5/day", "-1/s", "5/s/s", "many/s"] {
            assert_eq!(interval(text), Err(InvalidRate), "{text}");
        }
    }
}
