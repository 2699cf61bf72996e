//! The report of an act: a table of its orders, and the verdict of the audit.

use std::{collections::BTreeMap, fmt, time::Duration};

use webhook_serializer::protocol::{entity::EntityKey, table::Table as Store};

use super::deployment::committed;
use crate::{
    local::handler_log::{LoggedRun, RunEnd},
    output::{self, Table},
    view::{audit::AuditVerdict, recording::EventRecorder},
};

const SHOWN: usize = 6;

#[derive(Debug, Clone)]
pub struct DemoOrderReport {
    pub entity: EntityKey,
    /// The names of the order's deliveries, in order of arrival.
    pub arrived: Vec<String>,
    /// The names of the applied deliveries, in order of their application.
    pub ran: Vec<String>,
    /// The names of the deliveries that were rejected, and applied after a redrive.
    pub put_back: Vec<String>,
    pub starts: usize,
    pub waited: Duration,
    pub handled: Duration,
    /// The number of deliveries that the handler's commits have counted; `None` if the row was not read.
    pub committed: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct ActReport {
    pub orders: Vec<DemoOrderReport>,
    pub verdict: AuditVerdict,
}

impl ActReport {
    pub(super) async fn new(
        verdict: AuditVerdict,
        arrived: BTreeMap<String, Vec<String>>,
        runs: &[LoggedRun],
        starts: &[EntityKey],
        story: &EventRecorder,
        table: &dyn Store,
    ) -> Self {
        let mut by_entity: BTreeMap<&EntityKey, Vec<&LoggedRun>> = BTreeMap::new();
        for run in runs {
            by_entity.entry(&run.entity).or_default().push(run);
        }
        let mut orders = Vec::new();
        for (entity, runs) in by_entity {
            let name = |run: &LoggedRun| story.name(&run.delivery_id, "");
            let ran: Vec<String> =
                runs.iter().filter(|run| run.ending == RunEnd::Applied).map(|run| name(run)).collect();
            let rejected = |run: &LoggedRun| {
                runs.iter().any(|other| other.ending == RunEnd::Rejected && other.delivery_id == run.delivery_id)
            };
            let is_put_back = |run: &&&LoggedRun| run.ending == RunEnd::Applied && rejected(run);
            let put_back = runs.iter().filter(is_put_back).map(|run| name(run)).collect();
            let first = runs.first().map(|run| name(run)).unwrap_or_default();
            let mine = arrived.values().find(|names| names.contains(&first)).cloned().unwrap_or_default();
            let shown = orders.len() < SHOWN;
            let committed = if shown { committed(table, entity).await } else { None };
            orders.push(DemoOrderReport {
                entity: entity.clone(),
                arrived: mine,
                ran,
                put_back,
                starts: starts.iter().filter(|started| *started == entity).count(),
                waited: runs
                    .iter()
                    .filter(|run| run.attempt == 1)
                    .map(|run| run.started_at.since(run.received_at))
                    .max()
                    .unwrap_or_default(),
                handled: handled(&runs),
                committed,
            });
        }
        Self { orders, verdict }
    }
}

/// Returns the total time in handlers. The time of a handler start with several deliveries counts once.
fn handled(runs: &[&LoggedRun]) -> Duration {
    let by_start: BTreeMap<_, _> = runs.iter().map(|run| (run.token, run.ended.saturating_sub(run.started))).collect();
    by_start.into_values().sum()
}

fn shortened(names: &[String]) -> String {
    match names {
        [first, _, _, .., last] => format!("{first} … {last}"),
        few => few.join(" "),
    }
}

impl fmt::Display for ActReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&["order", "arrived", "ran", ">starts", ">waited", ">handled", ">counted"]);
        for order in self.orders.iter().take(SHOWN) {
            table.row([
                order.entity.to_string(),
                shortened(&order.arrived),
                if order.ran == order.arrived { "in order".to_owned() } else { shortened(&order.ran) },
                order.starts.to_string(),
                output::duration(order.waited),
                output::duration(order.handled),
                order.committed.map(|count| count.to_string()).unwrap_or_default(),
            ]);
        }
        write!(f, "{table}")?;
        if self.orders.len() > SHOWN {
            writeln!(f, "… and {} more orders", self.orders.len() - SHOWN)?;
        }
        let put_back: Vec<&str> = self.orders.iter().flat_map(|order| &order.put_back).map(String::as_str).collect();
        match (self.verdict.is_clean(), put_back.as_slice()) {
            (false, _) => writeln!(f, "{}", console::style(&self.verdict).red().bold()),
            (true, []) => writeln!(f, "{}", console::style(&self.verdict).green()),
            (true, put_back) => {
                let names = put_back.join(" and ");
                let sentence = format!("{names}: redriven, and applied last. All others:\n{}", self.verdict);
                writeln!(f, "{}", console::style(sentence).green())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(put_back: &[&str]) -> DemoOrderReport {
        DemoOrderReport {
            entity: EntityKey::parse("n/a").unwrap(),
            arrived: vec!["RA1".into(), "RA2".into()],
            ran: vec!["RA2".into(), "RA1".into()],
            put_back: put_back.iter().map(|name| (*name).to_owned()).collect(),
            starts: 3,
            waited: Duration::ZERO,
            handled: Duration::ZERO,
            committed: None,
        }
    }

    #[test]
    fn report_mentions_redriven_delivery_separately() {
        let shown = |put_back: &[&str]| {
            let report = ActReport { orders: vec![order(put_back)], verdict: AuditVerdict::default() };
            console::strip_ansi_codes(&report.to_string()).lines().skip(2).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(
            shown(&["RA1"]),
            "RA1: redriven, and applied last. All others:\nin order, one at a time, nothing lost, nothing repeated"
        );
        assert_eq!(shown(&[]), "in order, one at a time, nothing lost, nothing repeated");
    }
}
