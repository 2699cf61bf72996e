//! The time zones, from the table that `build.rs` writes.

use webhook_serializer::jobs::schedule::Zone;

const TABLE: &str = include_str!(concat!(env!("OUT_DIR"), "/zones.txt"));

/// 2025-01-01T00:00:00Z.
const FROM: i64 = 1_735_689_600;

/// Finds a zone by its name. Letter case does not matter.
pub(crate) fn find(name: &str) -> Option<Zone> {
    let is_asked = |known: &&str| known.eq_ignore_ascii_case(name);
    let (name, offsets) = TABLE.lines().find_map(|line| {
        let (names, offsets) = line.split_once('\t')?;
        Some((names.split(' ').find(is_asked)?, offsets))
    })?;
    let mut numbers = offsets.split(' ').map_while(|number| number.parse::<i64>().ok());
    let mut at = FROM;
    let mut changes = vec![(at, numbers.next()? as i32 * 15 * 60)];
    while let (Some(half_hours), Some(quarters)) = (numbers.next(), numbers.next()) {
        at += half_hours * 30 * 60;
        changes.push((at, quarters as i32 * 15 * 60));
    }
    Some(Zone::from_changes(name, changes))
}

#[cfg(test)]
mod tests {
    use webhook_serializer::{Timestamp, jobs::schedule::Schedule};

    use super::*;

    /// Compares with the library's own zones, in which the scheduler and the command compute.
    #[test]
    fn schedules_in_each_zone_agree_with_the_library() {
        let names: Vec<&str> = TABLE.lines().flat_map(|line| line.split('\t').next().unwrap().split(' ')).collect();
        assert!(names.len() > 500, "{}", names.len());
        for name in names {
            for text in ["0,30 0-3 1-7 3,4,9-11 *", "*/30 1-2 * * SAT,SUN"] {
                let by_table = Schedule::parse(text).unwrap().by(find(name).unwrap()).unwrap();
                let by_library = Schedule::parse(text).unwrap().in_zone(name).unwrap();
                assert_eq!(by_table.to_string(), by_library.to_string());
                for from in ["2025-03-01T00:00:00Z", "2026-10-20T00:00:00Z", "2049-09-20T00:00:00Z"] {
                    let mut at: Timestamp = from.parse().unwrap();
                    for _ in 0..24 {
                        let next = by_library.first_after(at);
                        assert_eq!(by_table.first_after(at), next, "{name}: {text} after {at}");
                        at = next.unwrap();
                        assert_eq!(by_table.last_until(at), by_library.last_until(at), "{name}: {text} until {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn zone_is_found_in_any_letter_case() {
        assert_eq!(find("europe/berlin").unwrap().name(), "Europe/Berlin");
        assert!(find("Europe/Atlantis").is_none());
    }
}
