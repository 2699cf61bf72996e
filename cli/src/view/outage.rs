//! The words for a destination that is down, the same in commands and pages.

use serde_json::{Value, json};
use webhook_serializer::{protocol::outage::Outage, time::Timestamp};

use crate::output::duration;

/// The next try of a destination that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tries {
    Probe,
    /// None, because all its sources are paused.
    Paused,
    /// None, because no source uses it any more.
    Unused,
}

/// Says since when the destination is down, why, and when it is tried next. The sentence has no full stop.
pub fn sentence(outage: &Outage, tries: Tries, now: Timestamp) -> String {
    let down = outage.headline();
    let lasts = duration(now.since(outage.since));
    let next = match tries {
        Tries::Paused if outage.next_probe().is_some() => "nothing tries it while its sources are paused".to_owned(),
        Tries::Unused => "nothing tries it, because no source uses it any more".to_owned(),
        _ => next_probe(outage, now),
    };
    format!("{down}, for {lasts}: {}. Its orders are held back; {next}", outage.error)
}

/// Says why an order of the destination waits. The sentence has no full stop.
pub fn of_order(outage: &Outage, now: Timestamp) -> String {
    let Outage { name, since, .. } = outage;
    format!("It is held back since {}, because {name} is down; {}", time_of_day(*since), next_probe(outage, now))
}

fn time_of_day(at: Timestamp) -> String {
    format!("{} UTC", &at.to_string()[11..16])
}

fn next_probe(outage: &Outage, now: Timestamp) -> String {
    match outage.next_probe().map(|at| at.since(now)) {
        None => "a probe runs now".to_owned(),
        Some(left) if left.is_zero() => "the next probe is due".to_owned(),
        Some(left) => format!("the next probe is due in {}", duration(left)),
    }
}

pub fn as_json(outage: &Outage, tries: Tries) -> Value {
    let next_probe = outage.next_probe().filter(|_| tries == Tries::Probe);
    json!({
        "destination": outage.name, "since": outage.since, "error": outage.error, "next_probe": next_probe,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use webhook_serializer::protocol::{
        format::{FORMAT, attribute as a},
        keys::outage_row,
        outage::DestinationId,
        time::Nonce,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_767_225_600);

    fn outage(failed_at: Option<u64>) -> Outage {
        let row = outage_row(&DestinationId::of("forward", "https://shop.example/")).to_row();
        let row = row.with(a::VERSION, FORMAT).with(a::DESTINATION, "https://shop.example");
        let row = row.with(a::DOWN_SINCE, NOW.as_millis()).with(a::ERROR, "connection refused");
        let row = row.with(a::NONCE, Nonce::from_parts(NOW, 1).as_str()).with(a::DUE, NOW.as_millis() + 188_000);
        let row = failed_at.into_iter().fold(row, |row, at| row.with(a::FAILED_AT, at).with(a::FAILED_ORDER, "x"));
        Outage::parse(&row).expect("the row is readable").expect("it is down")
    }

    #[test]
    fn sentence_says_since_when_why_and_when_it_is_tried_next() {
        let failed = outage(Some(NOW.as_millis() + 180_000));
        let at = |seconds| sentence(&failed, Tries::Probe, NOW + Duration::from_secs(seconds));
        let down = |lasts| format!("https://shop.example is down since 00:00 UTC, for {lasts}: connection refused");
        assert_eq!(at(180), format!("{}. Its orders are held back; the next probe is due in 8.0 s", down("3 min")));
        assert_eq!(at(190), format!("{}. Its orders are held back; the next probe is due", down("3 min")));
        for tries in [Tries::Probe, Tries::Paused] {
            let claimed = sentence(&outage(None), tries, NOW + Duration::from_secs(30));
            assert_eq!(claimed, format!("{}. Its orders are held back; a probe runs now", down("30.0 s")));
        }
        let order = of_order(&failed, NOW + Duration::from_secs(180));
        let expected =
            "It is held back since 00:00 UTC, because https://shop.example is down; the next probe is due in 8.0 s";
        assert_eq!(order, expected);
    }
}
