//! Computes a month's bill, item by item, from the formulas that the tests assert.
//!
//! Prices are those of us-east-1, arm64, on demand. The bill also shows the permanent monthly
//! free tier, but not the free tier of an account's first year.
//!
//! `designs.rs` computes each design's items, with the units of `observation.rs` and `wake_ups.rs` and the prices of
//! `price.rs`. `items.rs` adds them up, and `report.rs` prints them.

mod designs;
mod items;
mod observation;
mod price;
mod report;
mod wake_ups;

use webhook_serializer::protocol::budget;

use crate::scaling::limit;
pub(crate) use designs::sweep_hours;
pub use observation::alarmed_metrics;
use observation::lambda_log_bytes;
use wake_ups::WakeUps;

const DAYS: f64 = 30.0;
const MINUTES: f64 = DAYS * 24.0 * 60.0;
pub(crate) const RETENTION_DAYS: f64 = 30.0;
const MEMORY_GB: f64 = 0.25;
/// The stored size of a JSON body, as a fraction of its original size.
const COMPRESSION: f64 = 0.25;
/// The size of a delivery row without its body, in KB.
const ROW_KB: f64 = 0.35;
/// The size of a receipt in its order's row, in KB.
const RECEIPT_KB: f64 = 0.022;
/// The size of an order's row without receipts, in KB.
const ENTITY_KB: f64 = 0.17;
/// The size that DynamoDB adds to each item when it bills storage, in KB (read on 2026-11-29):
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>
const ITEM_OVERHEAD_KB: f64 = 0.1;
/// The most receipts in an order's row.
const ROW_RECEIPTS: f64 = 20.0;
/// The time of ingest for one delivery, in ms. Ingest waits for the store twice.
pub(crate) const INGEST_MS: f64 = 15.0;
/// The time of a worker for one burst, in ms, without the handlers and their starts.
const WORKER_MS_PER_BURST: f64 = 10.0;
pub(crate) const WORKER_MS_PER_START: f64 = 6.0;

/// The kind of place where the sources document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BilledDocument {
    /// A Standard parameter of Parameter Store
    Parameter,
    /// An Advanced parameter
    Advanced,
    /// A secret of Secrets Manager
    Secret,
}

/// The load that a bill is for.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Load {
    /// Deliveries a day
    #[arg(long, value_name = "N", value_parser = positive)]
    per_day: f64,
    /// Deliveries of one order that wait together when its drain starts
    #[arg(long, value_name = "K", default_value = "2", value_parser = positive)]
    burst: f64,
    /// Bursts of an order while its rows are kept, 30 days
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_least_one)]
    bursts_per_order: f64,
    /// The most deliveries in one handler start: the source's `deliver = { up_to = M }`
    #[arg(long, value_name = "M", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=25))]
    up_to: u64,
    /// Size of a body as sent, in KB
    #[arg(long, value_name = "S", default_value = "4", value_parser = positive)]
    body_kb: f64,
    /// Time of a handler start, in ms
    #[arg(long, value_name = "M", default_value = "50", value_parser = positive)]
    handler_ms: f64,
    /// Configured sources: each has a metric and an alarm
    #[arg(long, value_name = "N", default_value = "2", value_parser = positive)]
    sources: f64,
    /// The tables have a KMS key of yours: the parameter `TableKeyArn`
    #[arg(long)]
    own_key: bool,
    /// Where the sources document is
    #[arg(long, value_enum, default_value = "parameter")]
    document: BilledDocument,
    /// True if a burst's wake-ups are received one by one, by workers that run at the same time.
    #[arg(skip)]
    is_apart: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("give a number above 0".into()),
    }
}

fn at_least_one(text: &str) -> Result<f64, String> {
    positive(text).ok().filter(|number| *number >= 1.0).ok_or_else(|| "give a number of at least 1".into())
}

/// Returns the size that the bill assumes for the row of a settled order with this many receipts, in KB.
pub fn entity_kb(receipts: f64) -> f64 {
    ENTITY_KB + RECEIPT_KB * receipts.min(ROW_RECEIPTS)
}

impl Load {
    /// Returns a load of `per_second` deliveries of 4 KB, from two sources, with one delivery
    /// in each handler start.
    pub(crate) fn each_second(per_second: f64, burst: f64, handler_ms: f64) -> Self {
        let per_day = per_second * 86_400.0;
        let document = BilledDocument::Parameter;
        let is_apart = false;
        Self {
            per_day,
            burst,
            bursts_per_order: 1.0,
            up_to: 1,
            body_kb: 4.0,
            handler_ms,
            sources: 2.0,
            own_key: false,
            document,
            is_apart,
        }
    }

    pub(crate) fn dollars(&self) -> f64 {
        self.serializer().dollars()
    }

    pub(crate) fn table_gb(&self) -> f64 {
        let rows = self.per_day * RETENTION_DAYS;
        let items = rows * (self.row_kb() + RECEIPT_KB) + self.orders() * ENTITY_KB;
        (items + (rows + self.orders()) * ITEM_OVERHEAD_KB) / 1e6
    }

    /// Returns the number of orders that the tables hold.
    pub(crate) fn orders(&self) -> f64 {
        self.per_day * RETENTION_DAYS / (self.burst * self.bursts_per_order)
    }

    /// Returns the size of an order's row, in KB.
    fn entity_kb(&self) -> f64 {
        entity_kb(self.burst * self.bursts_per_order)
    }

    /// Returns the time of a worker for one burst, in ms.
    pub(crate) fn worker_ms(&self) -> f64 {
        let k = self.burst.round().max(1.0) as u64;
        let starts = self.burst / self.up_to.clamp(1, k) as f64;
        WORKER_MS_PER_BURST + starts * (WORKER_MS_PER_START + self.handler_ms)
    }

    pub(crate) fn row_units(&self) -> u64 {
        self.row_kb().ceil().max(1.0) as u64
    }

    /// Returns the write units that draining a burst costs in the entities table.
    pub(crate) fn drain_units(&self) -> f64 {
        let k = self.burst.round().max(1.0) as u64;
        budget::group_drain_writes(k, self.up_to) as f64 + self.wake_ups().refused * budget::FUTILE_WRITES as f64
    }

    fn wake_ups(&self) -> WakeUps {
        let full = if self.is_apart { 1.0 } else { limit::BATCH };
        WakeUps::new(self.burst, (self.burst / full).ceil())
    }

    /// Returns the invocations of the worker in a month, and the time of each in ms.
    fn worker(&self) -> (f64, f64) {
        let batches = self.wake_ups().batches;
        (self.bursts() * batches, (self.worker_ms() + (batches - 1.0) * WORKER_MS_PER_BURST) / batches)
    }

    fn deliveries(&self) -> f64 {
        self.per_day * DAYS
    }

    fn bursts(&self) -> f64 {
        self.deliveries() / self.burst
    }

    fn row_kb(&self) -> f64 {
        ROW_KB + self.body_kb * COMPRESSION
    }
}

/// Returns the cost of one invocation of a function with the template's memory, logs included.
pub(crate) fn invocation_dollars(ms: f64) -> f64 {
    price::INVOCATION + ms / 1000.0 * MEMORY_GB * price::GB_SECOND + lambda_log_bytes() / 1e9 * price::LOG_GB
}

#[cfg(test)]
mod tests;
