//! Refusals, counted. Anybody can cause them, so they must not cost a line each:
//! the first of a kind has a line at once, those behind it one every ten seconds.

use std::{collections::BTreeMap, time::Duration};

use super::event::Refusal;
use crate::protocol::entity::SourceName;

/// For how long refusals of one kind are only counted once a line has told of
/// one. What was counted in the last of these of a process is never told.
pub(super) const SPACING: Duration = Duration::from_secs(10);

/// A configured source, or none of them, and why it was refused. There are no
/// more kinds than sources and reasons: no name that a stranger made up is one.
type Kind = (Option<SourceName>, Refusal);

/// What was refused in this process.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    kinds: BTreeMap<Kind, Untold>,
    /// Of each source, since it last accepted something.
    in_a_row: BTreeMap<SourceName, u32>,
}

#[derive(Debug, Default)]
struct Untold {
    count: u64,
    /// When a line last told of this kind.
    told: Option<Duration>,
}

/// What one more refusal comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// How many a line is to tell of; zero: it can wait.
    pub(super) due: u64,
    /// Whether with this one the source has come halfway to its provider's limit
    /// of failures in a row.
    pub(super) is_near_limit: bool,
}

impl Refusals {
    /// Counts one more, at `now` of a clock that never goes back. `limit`: so
    /// many failures in a row make the source's provider switch it off.
    pub(super) fn refused(
        &mut self,
        source: Option<&SourceName>,
        refusal: Refusal,
        limit: Option<u32>,
        now: Duration,
    ) -> Counted {
        let in_a_row = source.filter(|_| refusal.is_failure()).map(|source| {
            let in_a_row = self.in_a_row.entry(source.clone()).or_default();
            *in_a_row = in_a_row.saturating_add(1);
            *in_a_row
        });
        let is_near_limit = limit.zip(in_a_row).is_some_and(|(limit, in_a_row)| in_a_row == limit.div_ceil(2));
        let untold = self.kinds.entry((source.cloned(), refusal)).or_default();
        untold.count += 1;
        let is_due = is_near_limit || untold.told.is_none_or(|told| now >= told + SPACING);
        let due = if is_due { untold.take(now) } else { 0 };
        Counted { due, is_near_limit }
    }

    /// The source accepted something: its row of failures ends.
    pub(super) fn accepted(&mut self, source: &SourceName) {
        self.in_a_row.remove(source);
    }

    /// The kinds that were only counted for too long, with how many there were.
    pub(super) fn overdue(&mut self, now: Duration) -> Vec<(Kind, u64)> {
        let overdue = self
            .kinds
            .iter_mut()
            .filter(|(_, untold)| untold.count > 0 && untold.told.is_none_or(|told| now >= told + SPACING));
        overdue.map(|(kind, untold)| (kind.clone(), untold.take(now))).collect()
    }
}

impl Untold {
    fn take(&mut self, now: Duration) -> u64 {
        self.told = Some(now);
        std::mem::take(&mut self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> SourceName {
        SourceName::parse("shop").unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_of_a_kind_is_told_at_once_and_a_flood_by_a_line_every_ten_seconds() {
        let mut refusals = Refusals::default();
        let (mut lines, mut told) = (0, 0);
        for second in 0..60 {
            for _ in 0..100 {
                let due = refusals.refused(Some(&shop()), Refusal::NotVerified, None, at(second)).due;
                lines += u64::from(due > 0);
                told += due;
            }
        }
        assert_eq!(lines, 6);
        let left: u64 = refusals.overdue(at(60)).into_iter().map(|(_, count)| count).sum();
        assert_eq!(told + left, 6000, "none is lost");
        assert_eq!(refusals.overdue(at(80)), []);
    }

    #[test]
    fn a_flood_of_made_up_names_hides_no_refusal_of_a_configured_source() {
        let mut refusals = Refusals::default();
        for _ in 0..1000 {
            refusals.refused(None, Refusal::UnknownSource, None, at(0));
        }
        assert_eq!(refusals.refused(Some(&shop()), Refusal::NotVerified, None, at(0)).due, 1);
        assert_eq!(refusals.kinds.len(), 2);
    }

    #[test]
    fn half_of_the_failures_in_a_row_that_a_provider_allows_are_told_at_once() {
        let mut refusals = Refusals::default();
        let refuse = |refusals: &mut Refusals| {
            let counted = refusals.refused(Some(&shop()), Refusal::NotVerified, Some(5), at(0));
            (counted.due, counted.is_near_limit)
        };
        assert_eq!([(); 4].map(|()| refuse(&mut refusals)), [(1, false), (0, false), (2, true), (0, false)]);
        refusals.accepted(&shop());
        assert_eq!([(); 3].map(|()| refuse(&mut refusals).1), [false, false, true], "a row begins anew");
    }

    #[test]
    fn a_look_by_a_browser_is_no_failure_of_the_source() {
        let mut refusals = Refusals::default();
        for _ in 0..8 {
            assert!(!refusals.refused(Some(&shop()), Refusal::NotPosted, Some(5), at(0)).is_near_limit);
        }
    }
}
