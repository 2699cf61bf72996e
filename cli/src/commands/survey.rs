//! Reads the tables of orders and deliveries. The survey shows the cost of reading, asks the operator before a high
//! cost, and stops at Ctrl-C.

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serializer::{
    output,
    view::{
        overview::{OrderSummary, Overview},
        throughput::Throughput,
    },
};
use webhook_serializer::{
    operator::{Estimate, Operator, ReadCost},
    protocol::table::TableName,
};

use super::{interrupt::Interrupt, target::Deployment};

/// The largest number of read units that a survey spends without asking the operator.
pub const FREE: u64 = 1000;

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

pub const PARKED: &str = "the parked deliveries";

pub const READ_ON: &str = "Continue to read?";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadScope {
    Orders,
    Parked,
    All,
    Everything,
}

#[derive(Debug, Default)]
pub struct Survey {
    pub overview: Overview,
    pub units: u64,
    pub unread: Vec<&'static str>,
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
        surveyor.survey.overview.keeps_settled = wanted == ReadScope::Everything;
        surveyor.survey.overview.pace = Throughput::until(deployment.env.now());
        if wanted != ReadScope::Parked {
            let free = if wanted == ReadScope::Orders { FREE } else { FREE - FOR_THE_SECOND };
            surveyor.table(TableName::Entities, "the orders", free).await?;
        }
        if wanted != ReadScope::Orders {
            surveyor.table(TableName::Inbox, PARKED, FREE).await?;
        }
        Ok(surveyor)
    }

    async fn table(&mut self, table: TableName, name: &'static str, free: u64) -> Result<()> {
        let is_orders = table == TableName::Entities;
        let operator = self.operator.clone();
        let mut pass = operator.pass(table);
        let before = self.survey.units;
        let unasked = self.unasked;
        let bar = bar(pass.read().of.into(), name);
        let mut agreed = self.cost.yes;
        loop {
            let units = pass.read().units();
            self.survey.units = before + units;
            if !agreed {
                self.unasked = unasked + units;
            }
            if !agreed && !self.declined && self.unasked + ReadCost::PAGE_UNITS > free {
                let said = cost_of(name, pass.read(), self.whole_table(is_orders).await);
                agreed = bar.suspend(|| self.interrupt.ask(&said, READ_ON))?;
                self.declined = !agreed;
            }
            if self.interrupt.came() || self.declined {
                self.survey.unread.push(name);
                break;
            }
            let Some(rows) = pass.page().await? else { break };
            let now = self.deployment.env.now();
            for row in &rows {
                match is_orders {
                    true => self.survey.overview.order(row, now),
                    false => self.survey.overview.delivery(row),
                }
            }
            bar.set_position(pass.read().parts.into());
            bar.set_message(format!("{} rows, {} read units", pass.read().rows, pass.read().units()));
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Returns the read units that reading the whole table costs. Returns `None` in AWS, because AWS updates a table's
    /// size only every six hours.
    async fn whole_table(&self, is_orders: bool) -> Option<u64> {
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
