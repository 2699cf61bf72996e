//! Checks a run of the demonstration, a benchmark or a test: compares the sent deliveries with the handler's own log.
//! Reads no table.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use webhook_serializer::protocol::entity::{EntityKey, FencingToken, Sequence};

use crate::local::handler_log::{LoggedRun, RunEnd};

/// A sent delivery. Its times are by the monotonic clock that also times the handler's runs, so the two can be
/// compared.
#[derive(Debug, Clone)]
pub struct Sent {
    pub entity: EntityKey,
    pub delivery_id: String,
    pub sent: Duration,
    pub answered: Option<Duration>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditVerdict {
    pub lost: Vec<String>,
    pub repeated: Vec<String>,
    pub overlaps: Vec<String>,
    /// Deliveries that started before an earlier delivery of the same order had ended. A delivery is earlier than
    /// another if it was answered before the other was sent.
    pub ran_ahead: Vec<String>,
}

impl AuditVerdict {
    /// Compares the sent deliveries with the handler's runs. Deliveries in `excused` were parked and need not be
    /// applied.
    pub fn of(sent: &[Sent], runs: &[LoggedRun], excused: &BTreeSet<String>) -> Self {
        let mut verdict = Self::default();
        let mut by_entity: BTreeMap<&EntityKey, Vec<&LoggedRun>> = BTreeMap::new();
        for run in runs {
            by_entity.entry(&run.entity).or_default().push(run);
        }
        for runs in by_entity.values_mut() {
            runs.sort_by_key(|run| (run.started, run.sequence));
            verdict.find_overlaps(runs);
        }
        let mut sent_by_entity: BTreeMap<&EntityKey, Vec<&Sent>> = BTreeMap::new();
        for one in sent {
            sent_by_entity.entry(&one.entity).or_default().push(one);
        }
        for (entity, sent) in sent_by_entity {
            let runs = by_entity.get(entity).map(Vec::as_slice).unwrap_or_default();
            verdict.compare(&sent, runs, excused);
        }
        verdict
    }

    fn find_overlaps(&mut self, runs: &[&LoggedRun]) {
        let mut busy_until = Duration::ZERO;
        let mut at_work = None;
        for run in runs {
            // The deliveries of a group share a start and its token.
            if run.started < busy_until && at_work != Some(run.token) {
                self.overlaps.push(run.delivery_id.clone());
            }
            busy_until = busy_until.max(run.ended);
            at_work = Some(run.token);
        }
    }

    fn compare(&mut self, sent: &[&Sent], runs: &[&LoggedRun], excused: &BTreeSet<String>) {
        let mut first_start: BTreeMap<&str, Duration> = BTreeMap::new();
        let mut applied: BTreeMap<&str, u32> = BTreeMap::new();
        let mut decided: BTreeMap<&str, Duration> = BTreeMap::new();
        let mut rejected: BTreeSet<&str> = BTreeSet::new();
        let mut last_of: BTreeMap<FencingToken, Sequence> = BTreeMap::new();
        for run in runs {
            let last = last_of.entry(run.token).or_insert(run.sequence);
            *last = run.sequence.max(*last);
        }
        for run in runs {
            // A delivery behind a group waits for the group's last delivery, not for the earlier ones.
            let ended = if last_of[&run.token] > run.sequence { run.started } else { run.ended };
            let id = run.delivery_id.as_str();
            first_start.entry(id).or_insert(run.started);
            match run.ending {
                // The delivery was rejected, parked and redriven. Later deliveries waited only for the
                // rejection, so the time of the rejection stays.
                RunEnd::Applied if rejected.contains(id) => *applied.entry(id).or_default() += 1,
                RunEnd::Applied => {
                    *applied.entry(id).or_default() += 1;
                    let end = decided.entry(id).or_insert(ended);
                    *end = ended.max(*end);
                }
                RunEnd::Rejected => {
                    rejected.insert(id);
                    decided.entry(id).or_insert(ended);
                }
                RunEnd::Retry | RunEnd::Dropped => {}
            }
        }
        for one in sent {
            let id = one.delivery_id.as_str();
            match applied.get(id) {
                None if one.answered.is_some() && !excused.contains(id) => self.lost.push(id.to_owned()),
                Some(times) if *times > 1 => self.repeated.push(id.to_owned()),
                _ => {}
            }
        }
        // Walks through two sorted lists: `answered` by the time of the answer, `later` by the time of
        // sending.
        let mut answered: Vec<(Duration, Duration)> =
            sent.iter().filter_map(|one| Some((one.answered?, *decided.get(one.delivery_id.as_str())?))).collect();
        answered.sort_unstable();
        let mut later: Vec<&&Sent> = sent.iter().collect();
        later.sort_by_key(|one| one.sent);
        let mut before = answered.into_iter().peekable();
        let mut all_decided_at = Duration::ZERO;
        for one in later {
            while let Some((_, end)) = before.next_if(|(answered, _)| *answered < one.sent) {
                all_decided_at = all_decided_at.max(end);
            }
            if first_start.get(one.delivery_id.as_str()).is_some_and(|started| *started < all_decided_at) {
                self.ran_ahead.push(one.delivery_id.clone());
            }
        }
    }

    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for AuditVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return f.write_str("in order, one at a time, nothing lost, nothing repeated");
        }
        let lists = [
            ("lost", &self.lost),
            ("repeated", &self.repeated),
            ("overlapping", &self.overlaps),
            ("out of order", &self.ran_ahead),
        ];
        let wrong = lists.iter().filter(|(_, list)| !list.is_empty()).map(|(what, list)| {
            let some: Vec<&str> = list.iter().take(5).map(String::as_str).collect();
            let more = if list.len() > 5 { ", …" } else { "" };
            format!("{} {what} ({}{more})", list.len(), some.join(", "))
        });
        f.write_str(&wrong.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webhook_serializer::time::Timestamp;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn entity() -> EntityKey {
        EntityKey::parse("n/a").unwrap()
    }

    fn sent(id: &str, at: u64) -> Sent {
        Sent { entity: entity(), delivery_id: id.into(), sent: ms(at), answered: Some(ms(at + 1)) }
    }

    fn run(id: &str, from: u64, to: u64) -> LoggedRun {
        LoggedRun {
            entity: entity(),
            delivery_id: id.into(),
            sequence: Sequence(from),
            token: FencingToken(from),
            attempt: 1,
            received_at: Timestamp::from_millis(0),
            started_at: Timestamp::from_millis(from),
            started: ms(from),
            ended: ms(to),
            ending: RunEnd::Applied,
        }
    }

    fn verdict(sent: &[Sent], runs: &[LoggedRun]) -> AuditVerdict {
        AuditVerdict::of(sent, runs, &BTreeSet::new())
    }

    #[test]
    fn sequential_runs_pass_the_audit() {
        assert!(verdict(&[sent("1", 0), sent("2", 5)], &[run("1", 10, 20), run("2", 20, 30)]).is_clean());
    }

    #[test]
    fn concurrent_runs_are_reported_as_overlapping() {
        let verdict = verdict(&[sent("1", 0), sent("2", 5)], &[run("1", 10, 20), run("2", 15, 30)]);
        assert_eq!((verdict.overlaps.as_slice(), verdict.ran_ahead.as_slice()), (&["2".into()][..], &["2".into()][..]));
    }

    #[test]
    fn delivery_handled_before_earlier_sent_one_is_reported() {
        let verdict = verdict(&[sent("1", 0), sent("2", 5)], &[run("2", 10, 20), run("1", 20, 30)]);
        assert_eq!(verdict.ran_ahead, ["2"]);
        assert!(verdict.overlaps.is_empty());
    }

    #[test]
    fn audit_reports_overlap_of_a_run_with_the_preceding_group() {
        let with = |token, run: LoggedRun| LoggedRun { token: FencingToken(token), ..run };
        let of = |id, place, from| LoggedRun { sequence: Sequence(place), ..with(from, run(id, from, from + 10)) };
        let all = [sent("1", 0), sent("2", 5), sent("3", 8)];
        assert!(verdict(&all, &[of("1", 1, 10), of("2", 2, 10), of("3", 3, 20)]).is_clean());
        let early = verdict(&all, &[of("1", 1, 10), of("2", 2, 10), of("3", 3, 15)]);
        assert_eq!((early.overlaps, early.ran_ahead), (vec!["3".into()], vec!["3".into()]));
    }

    #[test]
    fn deliveries_sent_simultaneously_may_run_in_either_order() {
        assert!(verdict(&[sent("1", 0), sent("2", 0)], &[run("2", 10, 20), run("1", 20, 30)]).is_clean());
    }

    #[test]
    fn audit_reports_lost_and_repeated_deliveries() {
        let verdict = verdict(&[sent("1", 0), sent("2", 5)], &[run("2", 10, 20), run("2", 20, 30)]);
        assert_eq!((verdict.lost.as_slice(), verdict.repeated.as_slice()), (&["1".into()][..], &["2".into()][..]));
    }
}
