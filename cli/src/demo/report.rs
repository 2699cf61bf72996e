//! What an act ends with: a table per order and the verdict.

use std::{collections::BTreeMap, fmt, time::Duration};

use webhook_serializer::{handlers::orders::Orders, protocol::entity::EntityKey};

use crate::{
    audit::Verdict,
    journal::{Ending, Run},
    output::{self, Table},
    story::Story,
};

/// Longer tables are cut.
const SHOWN: usize = 6;

/// One order of an act.
#[derive(Debug, Clone)]
pub struct OrderReport {
    /// Its entity.
    pub entity: EntityKey,
    /// The names of its deliveries, in the order in which they arrived.
    pub arrived: Vec<String>,
    /// The names of those that ran, in the order in which they were applied.
    pub ran: Vec<String>,
    /// Handler starts.
    pub starts: usize,
    /// The longest time between acceptance and first start.
    pub waited: Duration,
    /// The time in handlers, all together.
    pub handled: Duration,
    /// What the `orders` handler made of it.
    pub state: String,
}

/// An act, judged.
#[derive(Debug, Clone)]
pub struct ActReport {
    /// The orders.
    pub orders: Vec<OrderReport>,
    /// The verdict.
    pub verdict: Verdict,
}

impl ActReport {
    /// From what was sent, what ran, and what stands in the orders' table.
    pub(super) async fn new(
        verdict: Verdict,
        arrived: BTreeMap<String, Vec<String>>,
        runs: &[Run],
        story: &Story,
        table: Orders,
    ) -> Self {
        let mut by_entity: BTreeMap<&EntityKey, Vec<&Run>> = BTreeMap::new();
        for run in runs {
            by_entity.entry(&run.entity).or_default().push(run);
        }
        let mut orders = Vec::new();
        for (entity, runs) in by_entity {
            let name = |run: &Run| story.name(&run.delivery_id, "");
            let ran: Vec<String> =
                runs.iter().filter(|run| run.ending == Ending::Applied).map(|run| name(run)).collect();
            let first = runs.first().map(|run| name(run)).unwrap_or_default();
            let mine = arrived.values().find(|names| names.contains(&first)).cloned().unwrap_or_default();
            let shown = orders.len() < SHOWN;
            let state = if shown { table.order(entity).await.ok().flatten() } else { None };
            orders.push(OrderReport {
                entity: entity.clone(),
                arrived: mine,
                ran,
                starts: runs.len(),
                waited: runs
                    .iter()
                    .filter(|run| run.attempt == 1)
                    .map(|run| run.started_at.since(run.received_at))
                    .max()
                    .unwrap_or_default(),
                handled: runs.iter().map(|run| run.ended.saturating_sub(run.started)).sum(),
                state: state.map(|order| order.state().to_string()).unwrap_or_default(),
            });
        }
        Self { orders, verdict }
    }
}

impl fmt::Display for ActReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&["order", "arrived", "ran", ">starts", ">waited", ">handled", "state"]);
        for order in self.orders.iter().take(SHOWN) {
            table.row([
                order.entity.to_string(),
                order.arrived.join(" "),
                order.ran.join(" "),
                order.starts.to_string(),
                output::duration(order.waited),
                output::duration(order.handled),
                order.state.clone(),
            ]);
        }
        write!(f, "{table}")?;
        if self.orders.len() > SHOWN {
            writeln!(f, "… and {} more orders", self.orders.len() - SHOWN)?;
        }
        let verdict = console::style(self.verdict.to_string());
        writeln!(f, "{}", if self.verdict.is_clean() { verdict.green() } else { verdict.red().bold() })
    }
}
