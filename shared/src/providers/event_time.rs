//! Parses the time formats that senders use: seconds, milliseconds, RFC 3339.

use std::time::UNIX_EPOCH;

use crate::time::Timestamp;

/// Parses a time to the millisecond. A number counts seconds, milli-, micro- or nanoseconds since the
/// Unix epoch; its size tells the unit. A date has the form of RFC 3339, such as
/// `2026-01-05T09:00:00.5-05:00`, and is in UTC if it has no zone. Returns `None` for times outside
/// the years 1970 to 9999.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    number(text).or_else(|| date(text)).map(Timestamp::from_millis).filter(|time| *time <= Timestamp::LATEST)
}

fn number(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    // 10^11 seconds is the year 5138 and 10^11 milliseconds was 1973, so a
    // number between 10^11 and 10^14 can only be milliseconds.
    Some(match whole.parse::<u64>().ok()? {
        seconds @ 0..100_000_000_000 => seconds * 1000 + millis_of(fraction),
        millis @ 100_000_000_000..100_000_000_000_000 => millis,
        micros @ 100_000_000_000_000..100_000_000_000_000_000 => micros / 1000,
        nanos => nanos / 1_000_000,
    })
}

fn millis_of(digits: &str) -> u64 {
    let digits = digits.bytes().chain([b'0'; 3]).take(3);
    digits.fold(0, |millis, digit| millis * 10 + u64::from(digit - b'0'))
}

fn date(text: &str) -> Option<u64> {
    let (local, ahead) = without_offset(text)?;
    let time = humantime::parse_rfc3339_weak(local).ok()?;
    let millis = i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
    u64::try_from(millis - ahead * 60_000).ok()
}

/// Splits a date into its local part and its UTC offset in minutes. The offset may have the form
/// `+05:00`, `-0500` or `+05`, and is positive east of Greenwich.
fn without_offset(text: &str) -> Option<(&str, i64)> {
    const DATE: usize = "2026-01-05T09:00:00".len();
    let Some(at) = text.rfind(['+', '-']).filter(|at| *at >= DATE) else { return Some((text, 0)) };
    let digits: String = text[at + 1..].chars().filter(|c| *c != ':').collect();
    if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let hours: i64 = digits[..2].parse().ok()?;
    let minutes: i64 = if digits.len() == 4 { digits[2..].parse().ok()? } else { 0 };
    if hours > 23 || minutes > 59 {
        return None;
    }
    let ahead = hours * 60 + minutes;
    Some((&text[..at], if text[at..].starts_with('-') { -ahead } else { ahead }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MILLIS: u64 = 1_767_621_600_250;

    #[test]
    fn every_timestamp_format_gives_the_same_time() {
        for text in [
            "1767621600.25",
            "1767621600.250999",
            "1767621600250",
            "1767621600250000",
            "1767621600250000000",
            "2026-01-05T14:00:00.25Z",
            "2026-01-05T14:00:00.250",
            "2026-01-05 14:00:00.25",
            "2026-01-05T14:00:00.250999999+00:00",
            "2026-01-05T09:00:00.25-05:00",
            "2026-01-05T09:00:00.25-0500",
            "2026-01-05T19:30:00.25+05:30",
            " 2026-01-05T15:00:00.25+01 ",
            "2026-01-06T13:59:00.25+23:59",
        ] {
            assert_eq!(parse(text), Some(Timestamp::from_millis(MILLIS)), "{text}");
        }
        assert_eq!(parse("1767621600"), Some(Timestamp::from_secs(1_767_621_600)));
        assert_eq!(parse("2026-01-05T09:00:00-05:00"), Some(Timestamp::from_secs(1_767_621_600)));
        assert_eq!(parse("0"), Some(Timestamp::from_millis(0)));
        assert_eq!(parse("9999-12-31T23:59:59.999Z"), Some(Timestamp::LATEST));
    }

    #[test]
    fn malformed_timestamp_is_rejected() {
        for text in [
            "",
            "-1",
            "1.",
            ".5",
            "1e9",
            "99999999999999999999",
            "2026-01-05",
            "2026-13-05T14:00:00Z",
            "2026-01-05T14:00:00+24:00",
            "2026-01-05T14:00:00+01:60",
            "2026-01-05T14:00:00+1:00é",
            "2026-01-05T14:00:00 EST",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "yesterday",
            "10000-01-01T00:00:00Z",
            "9999-12-31T23:59:59-00:01",
            "9999-12-31T23:00:00.000-0100",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn displayed_timestamp_parses_to_same_time(millis in 0..253_402_300_799_999_u64) {
            let time = Timestamp::from_millis(millis);
            prop_assert_eq!(parse(&time.to_string()), Some(time));
        }

        #[test]
        fn parser_never_panics_on_arbitrary_text(text in any::<String>(), near in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[0-9.+:Zé-]{0,12}") {
            let _ = (parse(&text), parse(&near));
        }
    }
}
