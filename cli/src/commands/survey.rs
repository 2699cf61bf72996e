//! Reads the tables of orders and deliveries, and their indexes. The survey shows the cost of reading, asks the operator
//! before a high cost, and stops at Ctrl-C.

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serializer::{
    output,
    view::{
        limits::{FREE, OTHERS, OTHERS_AT_ONCE, UNITS_OF_OTHERS},
        overview::{OrderSummary, Overview},
        throughput::Throughput,
    },
};
use webhook_serializer::{
    operator::{Estimate, Operator, OperatorError, Pass, ReadCost, held_entity, indexed_entity},
    protocol::{
        entity::EntityKey,
        table::{Index, Row, TableName},
    },
};

use super::{interrupt::Interrupt, target::Deployment};

/// The read units that are reserved for the second table. The second table's cost is unknown until its first page is
/// read.
const FOR_THE_SECOND: u64 = 2 * ReadCost::PAGE_UNITS;

/// The number of deliveries' rows that one request reads. A response has room for this many rows of the largest size.
const AT_ONCE: usize = 25;

/// The bytes that one read unit pays for. An eventually consistent read of 4 KB costs half a unit.
const BYTES_OF_A_UNIT: u64 = 8192;

#[derive(Debug, Clone, Copy, Args)]
pub struct Cost {
    /// Do not ask before reading more than 1,000 read units
    #[arg(long, short = 'y')]
    pub yes: bool,
}

const ORDERS: &str = "the orders";

pub const PARKED: &str = "the parked deliveries";

const HELD: &str = "the orders on hold";

const WAITS: &str = "the failing and blocked orders";

const DELIVERIES: &str = "the deliveries";

pub const READ_ON: &str = "Continue to read?";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadScope {
    Orders,
    /// The orders that are blocked, on hold or have an error.
    Trouble,
    Parked,
    /// The orders that are not settled, and the parked deliveries.
    All,
    /// [`All`](Self::All) and as many of the newest settled orders.
    Everything(usize),
    /// [`All`](Self::All) and, if this stays below [`FREE`], all deliveries. If the orders in trouble are known from
    /// indexes, the others may be read in part.
    Rates,
    /// [`All`](Self::All) and all deliveries.
    Deliveries,
}

/// The behaviour of a survey before it reads more than [`FREE`]: it asks the operator, or stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    Ask,
    Stop,
}

#[derive(Debug, Default)]
pub struct Survey {
    pub overview: Overview,
    pub units: u64,
    pub unread: Vec<&'static str>,
    /// True if all orders that are blocked, on hold or have an error are known from indexes.
    pub knows_trouble: bool,
    /// True if the other orders were read in part.
    pub is_partial: bool,
    /// True if all rows of deliveries were read, not only the parked ones.
    pub knows_deliveries: bool,
}

pub struct Surveyor<'a> {
    deployment: &'a Deployment,
    operator: Operator,
    interrupt: Interrupt,
    cost: Cost,
    /// The read units that the survey has spent so far without asking the operator.
    unasked: u64,
    /// True once the operator has declined to read on. The answer holds for all tables of the survey.
    declined: bool,
    pub survey: Survey,
}

impl<'a> Surveyor<'a> {
    pub async fn read(deployment: &'a Deployment, cost: Cost, interrupt: Interrupt, wanted: ReadScope) -> Result<Self> {
        let operator = deployment.operator();
        let mut surveyor =
            Self { deployment, operator, interrupt, cost, unasked: 0, declined: false, survey: Survey::default() };
        if let ReadScope::Everything(settled) = wanted {
            surveyor.survey.overview.keeps_settled = settled;
        }
        surveyor.survey.overview.pace = Throughput::until(deployment.env.now());
        let is_without_parked = matches!(wanted, ReadScope::Orders | ReadScope::Trouble);
        if !is_without_parked {
            surveyor.parked().await?;
        }
        let knows_parked = surveyor.survey.overview.knows_parked;
        if wanted != ReadScope::Parked {
            let knows_held = surveyor.found(Index::Held, HELD, held_entity).await?;
            // The others read all orders anyway.
            let reads_waits = wanted == ReadScope::Trouble || (wanted == ReadScope::Rates && !cost.yes);
            surveyor.survey.knows_trouble = reads_waits && surveyor.waits().await? && knows_held;
            let is_first = !is_without_parked && !knows_parked;
            let free = if is_first { FREE - FOR_THE_SECOND } else { FREE };
            match (wanted, surveyor.survey.knows_trouble) {
                (ReadScope::Trouble, true) => {}
                (ReadScope::Rates, true) if knows_parked => surveyor.others().await?,
                _ => surveyor.table(TableName::Entities, ORDERS, free).await?,
            }
        }
        match wanted {
            ReadScope::Orders | ReadScope::Trouble => {}
            _ if !knows_parked => surveyor.table(TableName::Inbox, PARKED, FREE).await?,
            ReadScope::Deliveries => surveyor.table(TableName::Inbox, DELIVERIES, FREE).await?,
            ReadScope::Rates if surveyor.survey.unread.is_empty() && !surveyor.survey.is_partial => {
                surveyor.deliveries_if_free().await?
            }
            _ => {}
        }
        Ok(surveyor)
    }

    /// Reads the parked deliveries from their index. Without it, says so: the survey must read all deliveries.
    async fn parked(&mut self) -> Result<()> {
        let operator = self.operator.clone();
        let mut pass = operator.index_pass(Index::Parked);
        let read = self.pass(&mut pass, PARKED, FREE, Beyond::Ask, |overview, row| overview.parked(row)).await;
        match read {
            Ok(_) => self.survey.overview.knows_parked = true,
            Err(error) if error.downcast_ref().is_some_and(OperatorError::lacks_index) => {
                self.survey.overview.forget_parked();
                output::complain(format_args!(
                    "the index of parked deliveries cannot be read, so the command reads all deliveries instead; \
                     `{} doctor` says what to do ({error})",
                    output::this_command()
                ));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads the orders that an index holds. Returns `false` without the index, or if there are too many. Then the scan
    /// of all orders finds them.
    async fn found(
        &mut self,
        index: Index,
        name: &'static str,
        entity: impl Fn(&Row) -> Option<EntityKey>,
    ) -> Result<bool> {
        let operator = self.operator.clone();
        let mut found: Vec<EntityKey> = Vec::new();
        let mut pass = operator.index_pass(index);
        let is_whole = self.pass(&mut pass, name, FREE, Beyond::Stop, |_, entry| found.extend(entity(entry))).await;
        match is_whole {
            Ok(true) if self.cost.yes || self.unasked + found.len() as u64 <= FREE => {}
            Ok(_) => return Ok(false),
            Err(error) if error.downcast_ref().is_some_and(OperatorError::lacks_index) => return Ok(false),
            Err(error) => return Err(error),
        }
        let now = self.deployment.env.now();
        for row in operator.order_rows(&found).await? {
            self.survey.overview.found(&row, now);
        }
        self.spend(found.len() as u64);
        Ok(true)
    }

    /// Reads the failing and blocked orders from their index, unless rows of an older version may lack there.
    async fn waits(&mut self) -> Result<bool> {
        self.spend(1);
        let reason = match self.operator.has_mended().await? {
            true if self.found(Index::Waits, WAITS, indexed_entity).await? => return Ok(true),
            true => format!(
                "their index cannot be read (`{} doctor` says what to do), or has too many entries",
                output::this_command()
            ),
            false => "the sweep has yet to complete their index".to_owned(),
        };
        output::complain(format_args!("the command reads all orders to find the failing and blocked ones: {reason}"));
        Ok(false)
    }

    /// Reads some of the orders that are not in trouble.
    async fn others(&mut self) -> Result<()> {
        let operator = self.operator.clone();
        let now = self.deployment.env.now();
        let mut pass = operator.pass(TableName::Entities);
        pass.limit(OTHERS_AT_ONCE);
        let most = self.survey.units + OTHERS;
        let before = self.survey.units;
        while self.survey.units + UNITS_OF_OTHERS <= most && !self.interrupt.came() {
            let Some(rows) = pass.page().await? else { return Ok(()) };
            rows.iter().for_each(|row| self.survey.overview.order(row, now));
            self.unasked += before + pass.read().units() - self.survey.units;
            self.survey.units = before + pass.read().units();
        }
        self.survey.is_partial = true;
        self.survey.overview.pace = Throughput::until(now);
        Ok(())
    }

    fn spend(&mut self, units: u64) {
        self.survey.units += units;
        self.unasked += if self.cost.yes { 0 } else { units };
    }

    async fn deliveries_if_free(&mut self) -> Result<()> {
        let operator = self.operator.clone();
        let mut pass = operator.pass(TableName::Inbox);
        let is_whole = self.pass(&mut pass, DELIVERIES, FREE, Beyond::Stop, |overview, row| overview.delivery(row));
        self.survey.knows_deliveries = is_whole.await?;
        if !self.survey.knows_deliveries {
            self.survey.overview.forget_waiting();
        }
        Ok(())
    }

    async fn table(&mut self, table: TableName, name: &'static str, free: u64) -> Result<()> {
        let operator = self.operator.clone();
        let is_orders = table == TableName::Entities;
        let now = self.deployment.env.now();
        let mut pass = operator.pass(table);
        let add = |overview: &mut Overview, row: &Row| match is_orders {
            true => overview.order(row, now),
            false => overview.delivery(row),
        };
        let is_whole = self.pass(&mut pass, name, free, Beyond::Ask, add).await?;
        self.survey.knows_deliveries |= is_whole && !is_orders;
        Ok(())
    }

    /// Reads a table or an index. Returns whether all of it was read.
    async fn pass(
        &mut self,
        pass: &mut Pass<'_>,
        name: &'static str,
        free: u64,
        beyond: Beyond,
        mut add: impl FnMut(&mut Overview, &Row),
    ) -> Result<bool> {
        let before = self.survey.units;
        let unasked = self.unasked;
        let bar = bar(pass.read().of.into(), name);
        let mut agreed = self.cost.yes;
        let is_whole = loop {
            let units = pass.read().units();
            self.survey.units = before + units;
            if !agreed {
                self.unasked = unasked + units;
            }
            let is_free = agreed || self.unasked + ReadCost::PAGE_UNITS <= free;
            match beyond {
                Beyond::Stop if !is_free || self.declined || self.interrupt.came() => break false,
                Beyond::Ask if !is_free && !self.declined => {
                    let said = cost_of(name, pass.read(), self.whole_table(pass.table()).await);
                    agreed = bar.suspend(|| self.interrupt.ask(&said, READ_ON))?;
                    self.declined = !agreed;
                }
                _ => {}
            }
            if self.interrupt.came() || self.declined {
                self.survey.unread.push(name);
                break false;
            }
            let Some(rows) = pass.page().await? else { break true };
            rows.iter().for_each(|row| add(&mut self.survey.overview, row));
            bar.set_position(pass.read().parts.into());
            bar.set_message(format!("{} rows, {} read units", pass.read().rows, pass.read().units()));
        };
        bar.finish_and_clear();
        Ok(is_whole)
    }

    /// Returns the read units that reading the whole table costs. Returns `None` for an index, and in AWS, because AWS
    /// updates a table's size only every six hours.
    async fn whole_table(&self, table: Option<&TableName>) -> Option<u64> {
        let is_orders = *table? == TableName::Entities;
        if !self.deployment.is_local() {
            return None;
        }
        let dynamodb = self.deployment.account.dynamodb(&self.deployment.account.http_client());
        let config = &self.deployment.config;
        let name = if is_orders { &config.entities_table } else { &config.inbox_table };
        let described = dynamodb.describe_table().table_name(name).send().await.ok()?.table?;
        Some(u64::try_from(described.table_size_bytes?).ok()? / BYTES_OF_A_UNIT)
    }

    pub async fn sources(&mut self, lane: impl Fn(&OrderSummary) -> bool) -> Result<()> {
        const NAME: &str = "the sources of waiting deliveries";
        let unknown = self.survey.overview.unknown(lane);
        let mut agreed = self.cost.yes;
        let bar = bar(unknown.len() as u64, NAME);
        for some in unknown.chunks(AT_ONCE) {
            let cost = some.len() as u64;
            if !agreed && !self.declined && self.unasked + cost > FREE {
                let left = unknown.len() as u64 - bar.position();
                let said = format!("finding {NAME} takes about {left} more read units, one for each order");
                agreed = bar.suspend(|| self.interrupt.ask(&said, READ_ON))?;
                self.declined = !agreed;
            }
            if self.interrupt.came() || self.declined {
                self.survey.unread.push(NAME);
                break;
            }
            for delivery in self.operator.deliveries(some).await? {
                let entity = delivery.entity().as_str();
                let source = delivery.source().clone();
                self.survey.overview.is_next(entity, delivery.sequence(), source, delivery.topic());
            }
            self.survey.units += cost;
            self.unasked += if agreed { 0 } else { cost };
            bar.inc(cost);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Returns the survey. Prints a warning if a table was read only in part or a row could not be read.
    pub fn finish(self) -> Survey {
        if !self.survey.unread.is_empty() {
            output::complain(format_args!(
                "the command read only a part of {}, so the output is incomplete",
                self.survey.unread.join(", ")
            ));
        }
        for (key, error) in &self.survey.overview.unreadable {
            output::complain(format_args!("a row of {key} cannot be read: {error}"));
        }
        self.survey
    }

    /// Returns the survey, or an error if a table was read only in part.
    pub fn complete(self) -> Result<Survey> {
        if !self.survey.unread.is_empty() {
            bail!("the command read only a part of {}; nothing was changed", self.survey.unread.join(", "));
        }
        Ok(self.finish())
    }
}

pub fn cost_of(name: &str, read: ReadCost, complete: Option<u64>) -> String {
    let estimate = complete.map_or_else(|| read.estimate(), |units| Estimate::About(units.max(read.units())));
    let all = match estimate {
        Estimate::About(units) => format!("about {units} read units in all"),
        Estimate::Over(units) => format!("more than {units} read units in all"),
    };
    format!("reading {name} takes {all}; the first {} rows took {} read units", read.rows, read.units())
}

pub fn bar(of: u64, name: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(of).with_prefix(name);
    let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg} (Ctrl-C stops)");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
