//! Counts refusals, because anybody can cause them, and a log line for each would cost too much. The first refusal of a
//! kind is logged at once. Later ones are logged together, at most every ten seconds, except at half of a provider's
//! limit.

use std::{collections::BTreeMap, time::Duration};

use super::message::IngestRefusal;
use crate::protocol::entity::SourceName;

/// The shortest time between two lines about the same kind of refusal, except for a line at half of the provider's
/// limit. Refusals that were not yet logged are lost when the process ends.
pub(super) const SPACING: Duration = Duration::from_secs(10);

/// A kind of refusal: its source and its reason. The source is `None` if the request names no configured
/// source, so a flood of invented names adds no kinds.
type RefusalKind = (Option<SourceName>, IngestRefusal);

#[derive(Debug, Default)]
pub(super) struct Refusals {
    kinds: BTreeMap<RefusalKind, Unreported>,
    in_a_row: BTreeMap<SourceName, u32>,
}

#[derive(Debug, Default)]
struct Unreported {
    count: u64,
    /// The monotonic time of the last line about this kind of refusal.
    reported: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct CountedRefusal {
    /// The number of refusals that a line must report at once. Zero if no line is due.
    pub(super) due: u64,
    /// Whether the consecutive failures have just reached half of the provider's limit.
    pub(super) is_near_limit: bool,
}

impl Refusals {
    /// Counts a refusal at the monotonic time `now`. The parameter `limit` is the number of consecutive
    /// failures after which the provider disables the endpoint.
    pub(super) fn refused(
        &mut self,
        source: Option<&SourceName>,
        refusal: IngestRefusal,
        limit: Option<u32>,
        now: Duration,
    ) -> CountedRefusal {
        let in_a_row = source.filter(|_| refusal.is_failure()).map(|source| {
            let in_a_row = self.in_a_row.entry(source.clone()).or_default();
            *in_a_row = in_a_row.saturating_add(1);
            *in_a_row
        });
        let is_near_limit = limit.zip(in_a_row).is_some_and(|(limit, in_a_row)| in_a_row == limit.div_ceil(2));
        let unreported = self.kinds.entry((source.cloned(), refusal)).or_default();
        unreported.count += 1;
        let is_due = is_near_limit || unreported.reported.is_none_or(|reported| now >= reported + SPACING);
        let due = if is_due { unreported.take(now) } else { 0 };
        CountedRefusal { due, is_near_limit }
    }

    pub(super) fn accepted(&mut self, source: &SourceName) {
        self.in_a_row.remove(source);
    }

    /// Returns the kinds with counted refusals about which no line was written for [`SPACING`], with their
    /// counts. Each count starts again at zero.
    pub(super) fn overdue(&mut self, now: Duration) -> Vec<(RefusalKind, u64)> {
        let overdue = self.kinds.iter_mut().filter(|(_, unreported)| {
            unreported.count > 0 && unreported.reported.is_none_or(|reported| now >= reported + SPACING)
        });
        overdue.map(|(kind, unreported)| (kind.clone(), unreported.take(now))).collect()
    }
}

impl Unreported {
    fn take(&mut self, now: Duration) -> u64 {
        self.reported = Some(now);
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

    /// Promise: further refusals share log lines; the first of each kind is logged at once.
    #[test]
    fn first_refusal_is_logged_at_once_and_others_are_summed() {
        let mut refusals = Refusals::default();
        let mut lines = 0;
        let mut reported = 0;
        for second in 0..60 {
            for _ in 0..100 {
                let due = refusals.refused(Some(&shop()), IngestRefusal::NotVerified, None, at(second)).due;
                lines += u64::from(due > 0);
                reported += due;
            }
        }
        assert_eq!(lines, 6);
        let left: u64 = refusals.overdue(at(60)).into_iter().map(|(_, count)| count).sum();
        assert_eq!(reported + left, 6000, "none is lost");
        assert_eq!(refusals.overdue(at(80)), []);
    }

    #[test]
    fn flood_of_webhooks_for_unknown_sources_hides_no_other_refusal() {
        let mut refusals = Refusals::default();
        for _ in 0..1000 {
            refusals.refused(None, IngestRefusal::UnknownSource, None, at(0));
        }
        assert_eq!(refusals.refused(Some(&shop()), IngestRefusal::NotVerified, None, at(0)).due, 1);
        assert_eq!(refusals.kinds.len(), 2);
    }

    /// Promise: half of a provider's switch-off limit is reported at once.
    #[test]
    fn reaching_half_of_providers_failure_limit_is_reported_immediately() {
        let mut refusals = Refusals::default();
        let refuse = |refusals: &mut Refusals| {
            let counted = refusals.refused(Some(&shop()), IngestRefusal::NotVerified, Some(5), at(0));
            (counted.due, counted.is_near_limit)
        };
        assert_eq!([(); 4].map(|()| refuse(&mut refusals)), [(1, false), (0, false), (2, true), (0, false)]);
        refusals.accepted(&shop());
        assert_eq!([(); 3].map(|()| refuse(&mut refusals).1), [false, false, true], "a row begins anew");
    }

    #[test]
    fn get_request_does_not_count_as_failure() {
        let mut refusals = Refusals::default();
        for _ in 0..8 {
            assert!(!refusals.refused(Some(&shop()), IngestRefusal::NotPosted, Some(5), at(0)).is_near_limit);
        }
    }
}
