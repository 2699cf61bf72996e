//! What the tables say, read for all pages together: no more of it than is free
//! unless somebody asks, and not again before it is old enough for its price.

use std::{sync::Arc, time::Duration};

use tokio::sync::Mutex;
use webhook_serializer::{
    operator::{Estimate, OperatorError, Read},
    protocol::{state::EntityState, table::TableName},
    time::Timestamp,
};

use super::Watched;
use crate::view::overview::Overview;

/// So many read units are spent on a look without asking, as by the commands.
pub(super) const FREE: u64 = 1000;

/// So many a second are spent on looking again, about: less than a cent an hour.
pub(super) const UNITS_PER_SECOND: u64 = 20;

/// What the table of orders is called where not all of it was read.
const ORDERS: &str = "the orders";

/// A look is not repeated within this.
const AT_LEAST: Duration = Duration::from_secs(1);

/// So many deliveries are read at once, to see who sent them: with the largest
/// body in its row that is as much as an answer holds.
const AT_ONCE: usize = 25;

/// Of so many orders it is read who sent what waits there, where that is not known.
const SOURCES: usize = 200;

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The orders' own rows.
    Orders,
    /// These, and what is parked, which stands among all deliveries.
    All,
}

/// How far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// As far as it is free.
    Free,
    /// To the end: somebody asked.
    Whole,
}

/// What was seen.
#[derive(Debug)]
pub(super) struct Reading {
    /// When.
    pub(super) at: Timestamp,
    /// How long it took.
    pub(super) took: Duration,
    /// All orders with a row, by key.
    pub(super) orders: Vec<EntityState>,
    /// What does not move, and what is parked.
    pub(super) overview: Overview,
    /// The read units that it took, about.
    pub(super) units: u64,
    /// What was not read to its end, and about how many read units that takes.
    pub(super) unread: Vec<(&'static str, Estimate)>,
}

/// The newest readings.
#[derive(Debug, Default)]
pub(super) struct Readings {
    kept: std::sync::Mutex<[Option<Arc<Reading>>; 2]>,
    /// Whoever comes while one is made waits for it, and shares it.
    making: Mutex<()>,
}

impl Reading {
    /// When it may be made again.
    pub(super) fn keeps(&self, is_local: bool) -> Duration {
        let price = if is_local { 0 } else { self.units * 1000 / UNITS_PER_SECOND };
        AT_LEAST.max(Duration::from_millis(price)).max(self.took * 3)
    }
}

impl Readings {
    /// What is `wanted`, new or new enough.
    ///
    /// # Errors
    ///
    /// The store could not be reached.
    pub(super) async fn get(
        &self,
        watched: &Watched,
        wanted: Wanted,
        depth: Depth,
    ) -> Result<Arc<Reading>, OperatorError> {
        let _making = self.making.lock().await;
        let now = watched.env.now();
        let is_local = !watched.option.is_empty();
        let fits = |reading: &Arc<Reading>| {
            let is_deep = depth == Depth::Free || reading.unread.is_empty();
            is_deep && now.since(reading.at) < reading.keeps(is_local)
        };
        let others = if wanted == Wanted::Orders { [0, 1] } else { [1, 1] };
        if let Some(reading) = others.iter().filter_map(|at| self.kept()[*at].clone()).find(fits) {
            return Ok(reading);
        }
        let reading = Arc::new(read(watched, wanted, depth).await?);
        self.kept()[usize::from(wanted == Wanted::All)] = Some(reading.clone());
        Ok(reading)
    }

    /// The newest look at the orders, however old, where it was one at all of
    /// them: their keys at least are still theirs.
    pub(super) fn newest(&self) -> Option<Arc<Reading>> {
        let kept = self.kept();
        let whole = kept.iter().flatten().filter(|reading| !reading.unread.iter().any(|(what, _)| *what == ORDERS));
        whole.max_by_key(|reading| reading.at).cloned()
    }

    /// Something was changed: what was read before is out of date.
    pub(super) fn forget(&self) {
        *self.kept() = [None, None];
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, [Option<Arc<Reading>>; 2]> {
        self.kept.lock().expect("no one panics while holding this")
    }
}

async fn read(watched: &Watched, wanted: Wanted, depth: Depth) -> Result<Reading, OperatorError> {
    let begun = watched.env.monotonic();
    let mut reading = Reading {
        at: watched.env.now(),
        took: Duration::ZERO,
        orders: Vec::new(),
        overview: Overview::default(),
        units: 0,
        unread: Vec::new(),
    };
    let operator = &watched.operator;
    let tables: &[_] = match wanted {
        Wanted::Orders => &[(TableName::Entities, ORDERS)],
        Wanted::All => &[(TableName::Entities, ORDERS), (TableName::Inbox, "what is parked")],
    };
    for (table, name) in tables {
        let before = reading.units;
        let mut pass = operator.pass(table.clone());
        loop {
            reading.units = before + pass.read().units();
            if depth == Depth::Free && reading.units + Read::PAGE_UNITS > FREE {
                reading.unread.push((name, pass.read().estimate()));
                break;
            }
            let Some(rows) = pass.page().await? else { break };
            for row in &rows {
                if *table != TableName::Entities {
                    reading.overview.delivery(row);
                    continue;
                }
                reading.overview.order(row, reading.at);
                // One that cannot be read is told by the overview.
                let state = EntityState::parse(row).ok().filter(|state| !state.entity.is_kept_forever());
                reading.orders.extend(state);
            }
        }
    }
    if wanted == Wanted::All {
        for some in reading.overview.unknown(|_| true).chunks(AT_ONCE).take(SOURCES / AT_ONCE) {
            reading.units += some.len() as u64;
            for delivery in operator.deliveries(some).await? {
                let (entity, source) = (delivery.entity().as_str(), delivery.source().clone());
                reading.overview.is_next(entity, delivery.sequence(), source, delivery.topic());
            }
        }
    }
    reading.orders.sort_by(|left, right| left.entity.cmp(&right.entity));
    reading.took = watched.env.monotonic().saturating_sub(begun);
    Ok(reading)
}
