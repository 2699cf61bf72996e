//! Summarizes the events of an act with many orders in a few lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use webhook_serializer::protocol::{
    entity::{EntityKey, Sequence},
    receipt::Settlement,
};

use crate::{
    output,
    view::recording::{EventKind, RecordedEvent},
};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    orders: usize,
    accepted: usize,
    started: usize,
    most_at_once: usize,
    applied: usize,
    in_order: usize,
    took: Duration,
    /// The counts of events that have no field of their own. Each key holds the event's name in singular and plural.
    others: BTreeMap<(&'static str, &'static str), usize>,
}

fn other(what: &EventKind) -> Option<(&'static str, &'static str)> {
    match what {
        EventKind::Accepted
        | EventKind::Started(..)
        | EventKind::Requeued(..)
        | EventKind::Settled(Settlement::Applied) => None,
        EventKind::Ignored => Some(("delivery ignored", "deliveries ignored")),
        EventKind::Settled(Settlement::Repeat) => Some(("repeat", "repeats")),
        EventKind::Settled(Settlement::Void) => Some(("tombstone", "tombstones")),
        EventKind::Settled(Settlement::Parked) => Some(("parked", "parked")),
        EventKind::Settled(Settlement::Superseded) => Some(("superseded", "superseded")),
        EventKind::Failed { .. } => Some(("attempt failed", "attempts failed")),
        EventKind::Blocked(_) => Some(("order blocked", "orders blocked")),
        EventKind::TakenOver(_) => Some(("lease taken over", "leases taken over")),
        EventKind::Lost => Some(("lease lost", "leases lost")),
        EventKind::WakeUpFailed => Some(("wake-up not sent", "wake-ups not sent")),
    }
}

impl Summary {
    pub(super) fn of(happenings: &[RecordedEvent]) -> Self {
        let mut summary = Self::default();
        let mut running = BTreeSet::new();
        let mut accepted = BTreeSet::new();
        let mut applied: BTreeMap<&EntityKey, Vec<Option<Sequence>>> = BTreeMap::new();
        for happening in happenings {
            let at_work = (&happening.entity, happening.sequence);
            if let Some(what) = other(&happening.what) {
                *summary.others.entry(what).or_default() += 1;
            }
            match happening.what {
                EventKind::Accepted => {
                    // A webhook that was sent again counts once.
                    accepted.insert((&happening.entity, happening.name.as_str()));
                    applied.entry(&happening.entity).or_default();
                }
                EventKind::Started(..) => {
                    summary.started += 1;
                    running.insert(at_work);
                    summary.most_at_once = summary.most_at_once.max(running.len());
                }
                EventKind::Settled(settlement) => {
                    running.remove(&at_work);
                    if settlement == Settlement::Applied {
                        summary.applied += 1;
                        applied.entry(&happening.entity).or_default().push(happening.sequence);
                    }
                }
                EventKind::Failed { .. } => _ = running.remove(&at_work),
                _ => {}
            }
        }
        summary.orders = applied.len();
        summary.accepted = accepted.len();
        summary.in_order = applied.values().filter(|places| places.is_sorted_by(|one, next| one < next)).count();
        if let [first, .., last] = happenings {
            summary.took = last.at.saturating_sub(first.at);
        }
        summary
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { orders, accepted, started, most_at_once, applied, in_order, took, others } = self;
        writeln!(
            f,
            "{accepted} webhooks of {orders} orders accepted, {applied} applied in {}",
            output::duration(*took)
        )?;
        writeln!(f, "{started} handler starts, at most {most_at_once} at the same time")?;
        write!(f, "{in_order} of {orders} orders applied in the order of arrival")?;
        if !others.is_empty() {
            let counted = |((one, several), count): (&(&str, &str), &usize)| match count {
                1 => format!("1 {one}"),
                _ => format!("{count} {several}"),
            };
            let others: Vec<String> = others.iter().map(counted).collect();
            write!(f, "\nalso: {}", others.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::protocol::entity::FencingToken;

    use super::*;

    fn event(entity: &str, sequence: u64, at: u64, what: EventKind) -> RecordedEvent {
        let entity = EntityKey::parse(entity).unwrap();
        let at = Duration::from_millis(at);
        RecordedEvent { at, entity, sequence: Some(Sequence(sequence)), name: format!("R{sequence}"), what }
    }

    fn run(entity: &str, sequence: u64, from: u64, to: u64) -> [RecordedEvent; 2] {
        let started = event(entity, sequence, from, EventKind::Started(1, FencingToken(sequence)));
        [started, event(entity, sequence, to, EventKind::Settled(Settlement::Applied))]
    }

    #[test]
    fn summary_counts_repeats_and_orders_applied_in_sequence() {
        let accepted = [("a/1", 1), ("a/1", 2), ("b/1", 1), ("b/1", 2)];
        let accepted = accepted.map(|(entity, sequence)| event(entity, sequence, 1000, EventKind::Accepted));
        let [a1, a1_applied] = run("a/1", 1, 1001, 1003);
        let [b2, b2_applied] = run("b/1", 2, 1002, 1004);
        let rest = [run("a/1", 2, 1005, 1006), run("b/1", 1, 1007, 3000)].concat();
        let repeat = || event("b/1", 1, 1000, EventKind::Settled(Settlement::Repeat));
        let lost = [event("b/1", 1, 1000, EventKind::Lost), repeat(), repeat()];
        let happenings = [&accepted[..], &lost, &[a1, b2, a1_applied, b2_applied], &rest].concat();
        assert_eq!(
            Summary::of(&happenings).to_string(),
            "4 webhooks of 2 orders accepted, 4 applied in 2.0 s\n\
             4 handler starts, at most 2 at the same time\n\
             1 of 2 orders applied in the order of arrival\n\
             also: 1 lease lost, 2 repeats"
        );
    }
}
