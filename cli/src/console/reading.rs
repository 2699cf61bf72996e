//! Reads the tables for all pages. A reading stops at [`FREE`] read units unless the user asks for more. The more a
//! reading cost, the longer pages reuse it.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::sync::Mutex;
use webhook_serializer::{
    operator::{Estimate, Operator, OperatorError, Pass, ReadCost, held_entity, indexed_entity},
    protocol::{
        entity::EntityKey,
        receipt::{Receipt, Settlement},
        state::EntityState,
        table::{Index, Row, TableName},
    },
    time::Timestamp,
};

use super::Watched;
use crate::output::this_command;
use crate::view::{
    limits::{FREE, OTHERS, OTHERS_AT_ONCE, UNITS_OF_OTHERS},
    order_status::Kind,
    overview::Overview,
};

/// The read units per second that repeated readings spend on average. This rate costs less than a cent an hour.
pub(super) const UNITS_PER_SECOND: u64 = 20;

const ORDERS: &str = "the orders";
const PARKED: &str = "the parked deliveries";

const MIN_AGE: Duration = Duration::from_secs(1);

/// Pages reuse a reading of the parked deliveries for this many times the time that [`StoreReading::keeps`] returns.
const PARKED_AGES: u32 = 10;

/// The number of deliveries' rows that one request reads. A response has room for this many rows of the largest size.
const BATCH: usize = 25;

const SOURCES: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    Orders,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadingDepth {
    Free,
    Whole,
}

#[derive(Debug)]
pub(super) struct StoreReading {
    pub(super) at: Timestamp,
    pub(super) took: Duration,
    /// The orders, sorted by key.
    pub(super) orders: Vec<EntityState>,
    pub(super) overview: Overview,
    pub(super) units: u64,
    /// The tables and indexes that were not read to the end, each with the estimated read units for all of it.
    pub(super) unread: Vec<(&'static str, Estimate)>,
    /// True if all orders on hold are known, even if not all orders were read.
    pub(super) knows_held: bool,
    /// True if all failing and blocked orders are known.
    pub(super) knows_waits: bool,
    /// The reason why a table was read instead of an index, as a sentence without a full stop.
    pub(super) no_index: Option<String>,
}

#[derive(Debug)]
pub(super) struct Statuses {
    pub(super) orders: Arc<StoreReading>,
    parked: HashSet<EntityKey>,
    parked_at: Timestamp,
}

impl Statuses {
    pub(super) fn of(orders: Arc<StoreReading>, with_parked: &StoreReading) -> Self {
        let parked = with_parked.overview.parked.iter().map(|one| one.entity.clone()).collect();
        Self { orders, parked, parked_at: with_parked.at }
    }

    pub(super) fn find(&self, entity: &EntityKey) -> Option<&EntityState> {
        let orders = &self.orders.orders;
        orders.binary_search_by(|state| state.entity.cmp(entity)).ok().map(|at| &orders[at])
    }

    /// Returns whether the order has a parked delivery. Because the reading of parked deliveries may be old, newer
    /// receipts of parked deliveries count too.
    pub(super) fn has_parked(&self, state: &EntityState) -> bool {
        let is_newer = |receipt: &Receipt| receipt.settled_at > self.parked_at;
        let mut receipts = state.recent.iter();
        self.parked.contains(&state.entity)
            || receipts.any(|receipt| receipt.settlement == Settlement::Parked && is_newer(receipt))
    }

    pub(super) fn kind(&self, state: &EntityState) -> Kind {
        Kind::of(state, self.orders.at).with_parked(self.has_parked(state))
    }

    pub(super) fn needs_somebody(&self, state: &EntityState) -> bool {
        self.has_parked(state) || Kind::of(state, self.orders.at).needs_somebody()
    }
}

#[derive(Debug, Default)]
pub(super) struct SharedReadings {
    kept: std::sync::Mutex<[Option<Arc<StoreReading>>; 2]>,
    /// Locked during a reading, so that concurrent requests share one reading.
    making: Mutex<()>,
}

impl StoreReading {
    /// Returns how long pages reuse this reading.
    pub(super) fn keeps(&self, is_local: bool) -> Duration {
        let price = if is_local { 0 } else { self.units * 1000 / UNITS_PER_SECOND };
        MIN_AGE.max(Duration::from_millis(price)).max(self.took * 3)
    }

    /// Adds an order's state. The overview lists rows that cannot be parsed.
    fn add_order(&mut self, row: &Row) {
        let state = EntityState::parse(row).ok().filter(|state| !state.entity.is_kept_forever());
        self.orders.extend(state);
    }

    /// Returns whether all orders that are stopped or failing are known, even if not all orders were read.
    pub(super) fn knows_trouble(&self) -> bool {
        self.knows_held && self.knows_waits && self.overview.knows_parked
    }

    /// Returns whether the reading may have missed orders or deliveries of this kind, so that their number is at least
    /// the counted one.
    pub(super) fn is_part_of(&self, kind: Kind) -> bool {
        self.unread.iter().any(|(what, _)| match kind {
            Kind::Parked => *what == PARKED || !self.overview.knows_parked,
            Kind::OnHold => *what == ORDERS && !self.knows_held,
            Kind::Blocked | Kind::Failing | Kind::Unavailable => *what == ORDERS && !self.knows_waits,
            _ => *what == ORDERS,
        })
    }
}

impl SharedReadings {
    pub(super) async fn get(
        &self,
        watched: &Watched,
        wanted: Tables,
        depth: ReadingDepth,
    ) -> Result<Arc<StoreReading>, OperatorError> {
        let _making = self.making.lock().await;
        let now = watched.env.now();
        let is_local = watched.is_local;
        let fits = |reading: &Arc<StoreReading>| {
            let is_deep = depth == ReadingDepth::Free || reading.unread.is_empty();
            is_deep && now.since(reading.at) < reading.keeps(is_local)
        };
        let others = if wanted == Tables::Orders { [0, 1] } else { [1, 1] };
        // Once the orders in trouble are known, such a reading has fewer of the others than a page of orders shows.
        let has_enough = |reading: &Arc<StoreReading>| {
            wanted == Tables::All || !reading.knows_trouble() || reading.unread.iter().all(|(what, _)| *what != ORDERS)
        };
        let mut kept = others.iter().filter_map(|at| self.lock()[*at].clone());
        if let Some(reading) = kept.find(|reading| fits(reading) && has_enough(reading)) {
            return Ok(reading);
        }
        let reading = Arc::new(read(watched, wanted, depth).await?);
        self.lock()[usize::from(wanted == Tables::All)] = Some(reading.clone());
        Ok(reading)
    }

    /// Returns a reading that includes the parked deliveries. Such a reading may cost more, so pages reuse it for
    /// longer.
    pub(super) async fn with_parked(&self, watched: &Watched) -> Result<Arc<StoreReading>, OperatorError> {
        let now = watched.env.now();
        let is_local = watched.is_local;
        let age = |reading: &StoreReading| reading.keeps(is_local) * if is_local { 1 } else { PARKED_AGES };
        let kept = self.lock()[1].clone().filter(|reading| now.since(reading.at) < age(reading));
        match kept {
            Some(reading) => Ok(reading),
            None => self.get(watched, Tables::All, ReadingDepth::Free).await,
        }
    }

    /// Returns the newest complete reading of the orders, however old. A search needs only the orders' keys.
    pub(super) fn newest(&self) -> Option<Arc<StoreReading>> {
        let kept = self.lock();
        let whole = kept.iter().flatten().filter(|reading| !reading.unread.iter().any(|(what, _)| *what == ORDERS));
        whole.max_by_key(|reading| reading.at).cloned()
    }

    pub(super) async fn statuses(&self, watched: &Watched, depth: ReadingDepth) -> Result<Statuses, OperatorError> {
        // A reading with the parked deliveries holds the orders too.
        let with_parked = self.with_parked(watched).await?;
        let orders = self.get(watched, Tables::Orders, depth).await?;
        Ok(Statuses::of(orders, &with_parked))
    }

    pub(super) fn forget(&self) {
        *self.lock() = [None, None];
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Option<Arc<StoreReading>>; 2]> {
        self.kept.lock().expect("no one panics while holding this")
    }
}

async fn read(watched: &Watched, wanted: Tables, depth: ReadingDepth) -> Result<StoreReading, OperatorError> {
    let begun = watched.env.monotonic();
    let reading = StoreReading {
        at: watched.env.now(),
        took: Duration::ZERO,
        orders: Vec::new(),
        overview: Overview::default(),
        units: 0,
        unread: Vec::new(),
        knows_held: false,
        knows_waits: false,
        no_index: None,
    };
    let mut making = Making { operator: &watched.operator, depth, reading };
    if wanted == Tables::All {
        making.parked().await?;
        making.reading.knows_held = making.found(Index::Held, held_entity).await?;
        making.waits().await?;
    }
    making.orders().await?;
    if wanted == Tables::All {
        making.deliveries().await?;
        making.sources().await?;
    }
    let mut reading = making.reading;
    reading.orders.sort_by(|left, right| left.entity.cmp(&right.entity));
    reading.orders.dedup_by(|left, right| left.entity == right.entity);
    reading.took = watched.env.monotonic().saturating_sub(begun);
    Ok(reading)
}

struct Making<'a> {
    operator: &'a Operator,
    depth: ReadingDepth,
    reading: StoreReading,
}

/// Says why an index is not read, without a full stop.
fn lacking(error: &OperatorError) -> String {
    format!("An index cannot be read; `{} doctor` says what to do ({error})", this_command())
}

impl Making<'_> {
    /// Reads a table or an index. Returns what all of it costs if it was not read to the end.
    async fn pass(
        &mut self,
        mut pass: Pass<'_>,
        mut add: impl FnMut(&mut StoreReading, &Row),
    ) -> Result<Option<Estimate>, OperatorError> {
        self.pass_below(&mut pass, FREE, ReadCost::PAGE_UNITS, &mut add).await
    }

    /// Stops if a further page of `page_units` could make the reading take more than `most` units.
    async fn pass_below(
        &mut self,
        pass: &mut Pass<'_>,
        most: u64,
        page_units: u64,
        add: &mut impl FnMut(&mut StoreReading, &Row),
    ) -> Result<Option<Estimate>, OperatorError> {
        let before = self.reading.units;
        loop {
            self.reading.units = before + pass.read().units();
            if self.depth == ReadingDepth::Free && self.reading.units + page_units > most {
                return Ok(Some(pass.read().estimate()));
            }
            let Some(rows) = pass.page().await? else { return Ok(None) };
            rows.iter().for_each(|row| add(&mut self.reading, row));
        }
    }

    /// Reads the parked deliveries from their index. Without it, the reading of all deliveries finds them.
    async fn parked(&mut self) -> Result<(), OperatorError> {
        let pass = self.operator.index_pass(Index::Parked);
        match self.pass(pass, |reading, row| reading.overview.parked(row)).await {
            Ok(rest) => {
                self.reading.overview.knows_parked = true;
                self.reading.unread.extend(rest.map(|all| (PARKED, all)));
            }
            Err(error) if error.lacks_index() => {
                self.reading.overview.forget_parked();
                self.reading.no_index = Some(lacking(&error));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads the orders that an index holds. Returns `false` without the index, or if there are too many. Then the scan
    /// of all orders finds them.
    async fn found(&mut self, index: Index, entity: impl Fn(&Row) -> Option<EntityKey>) -> Result<bool, OperatorError> {
        let mut found = Vec::new();
        let pass = self.operator.index_pass(index);
        let rest = match self.pass(pass, |_, entry| found.extend(entity(entry))).await {
            Err(error) if error.lacks_index() => {
                self.reading.no_index.get_or_insert_with(|| lacking(&error));
                return Ok(false);
            }
            read => read?,
        };
        if rest.is_some() || (self.depth == ReadingDepth::Free && self.reading.units + found.len() as u64 > FREE) {
            return Ok(false);
        }
        for row in self.operator.order_rows(&found).await? {
            self.reading.overview.found(&row, self.reading.at);
            self.reading.add_order(&row);
        }
        self.reading.units += found.len() as u64;
        Ok(true)
    }

    /// Reads the failing and blocked orders from their index, unless rows of an older version may lack there.
    async fn waits(&mut self) -> Result<(), OperatorError> {
        self.reading.units += 1;
        if self.operator.has_mended().await? {
            self.reading.knows_waits = self.found(Index::Waits, indexed_entity).await?;
        } else {
            self.reading.no_index.get_or_insert("The sweep has yet to complete an index".to_owned());
        }
        Ok(())
    }

    async fn orders(&mut self) -> Result<(), OperatorError> {
        let mut pass = self.operator.pass(TableName::Entities);
        let mut add = |reading: &mut StoreReading, row: &Row| {
            reading.overview.order(row, reading.at);
            reading.add_order(row);
        };
        let rest = if self.reading.knows_trouble() {
            pass.limit(OTHERS_AT_ONCE);
            self.pass_below(&mut pass, self.reading.units + OTHERS, UNITS_OF_OTHERS, &mut add).await?
        } else {
            self.pass(pass, add).await?
        };
        self.reading.unread.extend(rest.map(|all| (ORDERS, all)));
        Ok(())
    }

    /// Reads all deliveries. If the parked ones are known already, this only adds the sources of each order's waiting
    /// deliveries. A partial reading would give wrong numbers for them, so it is dropped.
    async fn deliveries(&mut self) -> Result<(), OperatorError> {
        let knows_parked = self.reading.overview.knows_parked;
        if knows_parked && !self.reading.unread.is_empty() {
            return Ok(());
        }
        let pass = self.operator.pass(TableName::Inbox);
        match self.pass(pass, |reading, row| reading.overview.delivery(row)).await? {
            Some(_) if knows_parked => self.reading.overview.forget_waiting(),
            rest => self.reading.unread.extend(rest.map(|all| (PARKED, all))),
        }
        Ok(())
    }

    async fn sources(&mut self) -> Result<(), OperatorError> {
        let is_whole = !self.reading.knows_trouble() || self.reading.unread.is_empty();
        let unknown = self.reading.overview.unknown(|lane| is_whole || lane.kind.is_trouble());
        for some in unknown.chunks(BATCH).take(SOURCES / BATCH) {
            self.reading.units += some.len() as u64;
            for delivery in self.operator.deliveries(some).await? {
                let entity = delivery.entity().as_str();
                let source = delivery.source().clone();
                self.reading.overview.is_next(entity, delivery.sequence(), source, delivery.topic());
            }
        }
        Ok(())
    }
}
