//! Computes a month's bill, item by item, from the formulas that the tests assert.
//!
//! Prices are those of us-east-1, arm64, on demand. The bill also shows the permanent monthly
//! free tier, but not the free tier of an account's first year.

use std::collections::BTreeMap;

use serde_json::json;
use webhook_serializer::{
    config::SWEEP_ROWS,
    protocol::budget,
    sources::REFRESH,
    telemetry::{Metric, Scope},
};

use crate::{
    scaling::limit,
    sheet::{FiguresReport, Sheet, SheetCell},
};

/// The alarms and the dashboard.
const OBSERVABILITY: &str = include_str!("../../templates/observability.yaml");

/// Returns the number of metrics that the template's alarms watch, because an alarm is billed by its
/// metrics. Each source adds one alarm with one metric.
pub fn alarmed_metrics() -> f64 {
    OBSERVABILITY.matches(" MetricName: ").count() as f64
}

/// Returns the number of Logs Insights queries that the dashboard runs each time it is opened.
fn dashboard_queries() -> f64 {
    OBSERVABILITY.matches(r#""type": "log""#).count() as f64
}

/// Returns the number of metrics that are always published, without detailed metrics. Each source adds one.
/// `Deferred` has a value only during an outage: a day of one costs a cent.
fn metrics() -> f64 {
    let counted = |metric: &&Metric| metric.scope() == Scope::Overall && **metric != Metric::Deferred;
    Metric::ALL.iter().filter(counted).count() as f64
}

/// The hours of logs that the dashboard reads in a month. It is opened once a day and shows
/// three hours.
const DASHBOARD_HOURS: f64 = DAYS * 3.0;

const DAYS: f64 = 30.0;
const MINUTES: f64 = DAYS * 24.0 * 60.0;
pub(crate) const RETENTION_DAYS: f64 = 30.0;
const MEMORY_GB: f64 = 0.25;
/// The stored size of a JSON body, as a fraction of its original size.
const COMPRESSION: f64 = 0.25;
/// The size of a delivery row without its body, in KB.
const ROW_KB: f64 = 0.35;
/// The size of a receipt in its order's row, in KB.
const RECEIPT_KB: f64 = 0.025;
const ENTITY_KB: f64 = 0.3;
/// The time of ingest for one delivery, in ms. Ingest waits for the store twice.
pub(crate) const INGEST_MS: f64 = 15.0;
/// The time of a worker for one burst, in ms, without the handlers and their starts.
const WORKER_MS_PER_BURST: f64 = 10.0;
pub(crate) const WORKER_MS_PER_START: f64 = 6.0;
/// The time of the scheduler for one minute, in ms. The scheduler reads the jobs' rows, runs the
/// sweep and records the sweep's tick.
const SCHEDULER_MS: f64 = 55.0;
/// The receives a minute while the queue is empty: each of the event source's five pollers waits 20
/// seconds for a message.
const IDLE_RECEIVES_PER_MINUTE: f64 = 15.0;
/// The functions' own lines for one delivery.
const LOG_BYTES: f64 = 800.0;
/// The lines that Lambda writes for each invocation, as long as these.
const LAMBDA_LINES: [&str; 2] = [
    r#"{"time":"2026-11-25T12:00:00.000Z","type":"platform.start","record":{"requestId":"8b4f2d6e-3c1a-4f7b-9e5d-0a1b2c3d4e5f","functionArn":"arn:aws:lambda:us-east-1:123456789012:function:webhook-serializer-Ingest-AbCdEf012345","version":"$LATEST"}}"#,
    r#"{"time":"2026-11-25T12:00:00.000Z","type":"platform.report","record":{"requestId":"8b4f2d6e-3c1a-4f7b-9e5d-0a1b2c3d4e5f","metrics":{"durationMs":14.870,"billedDurationMs":15,"memorySizeMB":256,"maxMemoryUsedMB":31},"status":"success"}}"#,
];
/// The lines `swept` and `job done`, once a minute.
const SWEEP_LOG_BYTES: f64 = 480.0;
/// The minutes after which DynamoDB asks KMS for a table's key again, on each connection that
/// it serves:
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.howitworks.html>
const KEY_MINUTES: f64 = 5.0;
const TABLES: f64 = 2.0;

mod price {
    pub(super) const WRITE_UNIT: f64 = 0.625e-6;
    pub(super) const READ_UNIT: f64 = 0.125e-6;
    pub(super) const TABLE_GB_MONTH: f64 = 0.25;
    pub(super) const BACKUP_GB_MONTH: f64 = 0.20;
    pub(super) const SQS_REQUEST: f64 = 0.40e-6;
    pub(super) const SQS_FIFO_REQUEST: f64 = 0.50e-6;
    pub(super) const INVOCATION: f64 = 0.20e-6;
    pub(super) const GB_SECOND: f64 = 0.0000133334;
    pub(super) const LOG_GB: f64 = 0.50;
    pub(super) const LOG_SCAN_GB: f64 = 0.005;
    pub(super) const METRIC_MONTH: f64 = 0.30;
    pub(super) const ALARM_MONTH: f64 = 0.10;
    pub(super) const DASHBOARD_MONTH: f64 = 3.00;
    pub(super) const KEY_REQUEST: f64 = 0.03 / 10_000.0;
    pub(super) const KEY_MONTH: f64 = 1.00;
    pub(super) const SECRET_MONTH: f64 = 0.40;
    pub(super) const SECRET_READ: f64 = 0.05 / 10_000.0;
    pub(super) const ADVANCED_MONTH: f64 = 0.05;
}

/// Returns how many of `unit` are free each month in every account.
fn free(unit: &str) -> f64 {
    match unit {
        "invocations" | "queue requests" => 1e6,
        "GB-s" => 400_000.0,
        "log GB" => 5.0,
        "metrics" | "alarms" => 10.0,
        "dashboards" => 3.0,
        "table GB" => 25.0,
        "key requests" => 20_000.0,
        _ => 0.0,
    }
}

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

/// The requests and invocations that the wake-ups of one burst cause. Every delivery of the burst sends a wake-up,
/// because no worker has the order's lease yet.
///
/// Wake-ups that are received together lead to one drain. A batch that is received during that drain finds the lease
/// taken: a refused acquire, and a wake-up that is sent for the lease's expiry. That wake-up finds the order
/// drained: another refused acquire. `tests/end_to_end/budgets.rs` counts all three cases.
#[derive(Debug, Clone, Copy, PartialEq)]
struct WakeUps {
    sends: f64,
    /// The invocations of a worker, each with one batch.
    batches: f64,
    /// The refused acquires.
    refused: f64,
}

impl WakeUps {
    /// Returns the cost if the wake-ups of `burst` deliveries are received in `batches` batches.
    fn new(burst: f64, batches: f64) -> Self {
        let late = batches - 1.0;
        Self { sends: burst + late, batches: 1.0 + 2.0 * late, refused: 2.0 * late }
    }

    /// Returns the requests to the queue. A batch is received and deleted in one request each. The batch that drains
    /// the order also extends the visibility timeout once.
    fn requests(self) -> f64 {
        self.sends + 2.0 * self.batches + 1.0
    }
}

#[derive(Debug, Clone)]
struct BillItem {
    name: &'static str,
    count: f64,
    unit: &'static str,
    dollars: f64,
    /// The part of `dollars` that the free tier covers.
    free: f64,
    /// True if the item is for logs, metrics or alarms. Every design needs some of these.
    is_observation: bool,
}

impl BillItem {
    fn new(name: &'static str, count: f64, unit: &'static str, price: f64) -> Self {
        Self { name, count, unit, dollars: count * price, free: 0.0, is_observation: false }
    }

    fn observation(name: &'static str, count: f64, unit: &'static str, price: f64) -> Self {
        Self { is_observation: true, ..Self::new(name, count, unit, price) }
    }
}

fn function(name: &'static str, invocations: f64, ms_each: f64) -> [BillItem; 2] {
    let seconds = invocations * ms_each / 1000.0 * MEMORY_GB;
    [
        BillItem::new(name, invocations, "invocations", price::INVOCATION),
        BillItem::new("  its time", seconds, "GB-s", price::GB_SECOND),
    ]
}

#[derive(Debug, Clone)]
struct Bill {
    design: &'static str,
    items: Vec<BillItem>,
}

impl Bill {
    fn new(design: &'static str, mut items: Vec<BillItem>) -> Self {
        let mut used: BTreeMap<&str, f64> = BTreeMap::new();
        for item in items.iter_mut().filter(|item| item.count > 0.0) {
            let used = used.entry(item.unit).or_default();
            let taken = (free(item.unit) - *used).clamp(0.0, item.count);
            *used += taken;
            item.free = item.dollars * taken / item.count;
        }
        Self { design, items }
    }

    fn dollars(&self) -> f64 {
        self.items.iter().map(|item| item.dollars).sum()
    }

    fn free(&self) -> f64 {
        self.items.iter().map(|item| item.free).sum()
    }

    fn observation(&self) -> f64 {
        self.items.iter().filter(|item| item.is_observation).map(|item| item.dollars).sum()
    }

    /// Returns the part of the bill that can be compared between designs.
    fn without_observation(&self) -> f64 {
        self.dollars() - self.observation()
    }

    fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new(&[
            ("item", "a month"),
            ("count", ">count"),
            ("unit", ""),
            ("dollars", ">dollars"),
            ("free", ">free"),
        ]);
        for item in &self.items {
            let free = if item.free > 0.0 { dollars(item.free) } else { String::new() };
            sheet.row([
                SheetCell::text(item.name),
                SheetCell::number(item.count, count(item.count)),
                SheetCell::text(item.unit),
                SheetCell::number(item.dollars, dollars(item.dollars)),
                SheetCell::number(item.free, free),
            ]);
        }
        let none = || SheetCell::none("");
        let number = |amount: f64| SheetCell::number(amount, dollars(amount));
        sheet.row([SheetCell::text("in all"), none(), none(), number(self.dollars()), number(self.free())]);
        sheet
    }

    fn dollars_for(&self, name: &str) -> f64 {
        self.items.iter().filter(|item| item.name == name).map(|item| item.dollars).sum()
    }
}

impl Load {
    /// Returns a load of `per_second` deliveries of 4 KB, from two sources, with one delivery
    /// in each handler start.
    pub(crate) fn each_second(per_second: f64, burst: f64, handler_ms: f64) -> Self {
        let per_day = per_second * 86_400.0;
        let document = BilledDocument::Parameter;
        let is_apart = false;
        Self { per_day, burst, up_to: 1, body_kb: 4.0, handler_ms, sources: 2.0, own_key: false, document, is_apart }
    }

    pub(crate) fn dollars(&self) -> f64 {
        self.serializer().dollars()
    }

    pub(crate) fn table_gb(&self) -> f64 {
        let rows = self.per_day * RETENTION_DAYS;
        (rows * (self.row_kb() + RECEIPT_KB) + self.orders() * ENTITY_KB) / 1e6
    }

    /// Returns the number of orders that the tables hold, if each order has one burst.
    pub(crate) fn orders(&self) -> f64 {
        self.per_day * RETENTION_DAYS / self.burst
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

    fn front_door(&self) -> BillItem {
        BillItem::new("front door: Function URL", self.deliveries(), "URL requests", 0.0)
    }

    /// Returns the cost of reading the sources. Each instance of a function reads them at most
    /// once a minute, and only while it runs.
    fn sources_read(&self, ingest_ms: f64, invocations: f64, ms_each: f64) -> Vec<BillItem> {
        let readings = MINUTES * 60.0 / REFRESH.as_secs_f64();
        let by = |invocations: f64, ms_each: f64| (readings * instances(invocations, ms_each)).min(invocations);
        let reads = by(self.deliveries(), ingest_ms) + by(invocations, ms_each);
        let mut items = vec![BillItem::new("KMS, sources read", reads, "key requests", price::KEY_REQUEST)];
        match self.document {
            BilledDocument::Parameter => {}
            BilledDocument::Advanced => {
                items.push(BillItem::new("Advanced parameter", 1.0, "parameters", price::ADVANCED_MONTH))
            }
            BilledDocument::Secret => items.extend([
                BillItem::new("Secrets Manager", 1.0, "secrets", price::SECRET_MONTH),
                BillItem::new("  its reads", reads, "secret reads", price::SECRET_READ),
            ]),
        }
        items
    }

    /// Returns the cost of the user's own KMS key for the tables, if there is one.
    fn table_key(&self) -> Vec<BillItem> {
        if !self.own_key {
            return Vec::new();
        }
        let periods = MINUTES / KEY_MINUTES;
        let asked = |invocations: f64, ms_each: f64| invocations.min(periods * instances(invocations, ms_each));
        let (invocations, ms_each) = self.worker();
        let connections =
            asked(self.deliveries(), INGEST_MS) + asked(invocations, ms_each) + asked(MINUTES, SCHEDULER_MS);
        vec![
            BillItem::new("KMS, tables", TABLES * connections, "key requests", price::KEY_REQUEST),
            BillItem::new("KMS, the tables' key", 1.0, "keys", price::KEY_MONTH),
        ]
    }

    fn serializer(&self) -> Bill {
        let k = self.burst.round().max(1.0) as u64;
        let page_units = (self.row_kb() * self.burst / 4.0).ceil().max(1.0) as u64;
        let (worker_invocations, worker_ms_each) = self.worker();
        let writes =
            self.deliveries() * budget::append_writes(self.row_units()) as f64 + self.bursts() * self.drain_units();
        let reads = self.bursts() * budget::drain_reads(k, page_units, false) as f64;
        let swept = (self.orders() * 24.0 * DAYS).min(SWEEP_ROWS as f64 * MINUTES);
        let sweep_reads = swept * ENTITY_KB / 4.0 / 2.0;
        let tick_writes = (budget::TICK_WRITES + budget::SWEEP_WRITES) as f64;
        let tick_reads = (budget::JOB_MINUTE_READS + budget::SWEEP_READS) as f64;
        let gb = self.table_gb();
        let invocations = self.deliveries() + worker_invocations + MINUTES;
        let log_bytes = self.deliveries() * LOG_BYTES + MINUTES * SWEEP_LOG_BYTES + invocations * lambda_log_bytes();
        let log_gb = log_bytes / 1e9;
        let scanned_gb = log_gb / (DAYS * 24.0) * DASHBOARD_HOURS * dashboard_queries();
        let mut items = vec![self.front_door()];
        items.extend(function("ingest", self.deliveries(), INGEST_MS));
        items.extend(function("worker", worker_invocations, worker_ms_each));
        items.extend(function("scheduler", MINUTES, SCHEDULER_MS));
        items.extend([
            BillItem::new("table writes", writes, "write units", price::WRITE_UNIT),
            BillItem::new("table reads", reads, "read units", price::READ_UNIT),
            BillItem::new("sweep's ticks", MINUTES * tick_writes, "write units", price::WRITE_UNIT),
            BillItem::new("  its rows", MINUTES * tick_reads, "read units", price::READ_UNIT),
            BillItem::new("sweep", sweep_reads, "read units", price::READ_UNIT),
            BillItem::new("storage", gb, "table GB", price::TABLE_GB_MONTH),
            BillItem::new("backups", gb, "backup GB", price::BACKUP_GB_MONTH),
            BillItem::new("queue", self.bursts() * self.wake_ups().requests(), "queue requests", price::SQS_REQUEST),
            idle_receives(price::SQS_REQUEST),
        ]);
        items.extend(self.sources_read(INGEST_MS, worker_invocations, worker_ms_each));
        items.extend(self.table_key());
        items.extend([
            BillItem::observation("logs", log_gb, "log GB", price::LOG_GB),
            BillItem::observation("metrics", metrics() + self.sources, "metrics", price::METRIC_MONTH),
            BillItem::observation("alarms", alarmed_metrics() + self.sources, "alarms", price::ALARM_MONTH),
            BillItem::observation("dashboard", 1.0, "dashboards", price::DASHBOARD_MONTH),
            BillItem::observation("  its log queries", scanned_gb, "log GB", price::LOG_SCAN_GB),
        ]);
        Bill::new("this project", items)
    }

    fn fifo(&self) -> Bill {
        self.fifo_with("SQS FIFO", Vec::new(), 0.0)
    }

    /// Returns the bill of a FIFO queue with an idempotency table. For each delivery, a row is
    /// written twice and read once.
    fn fifo_idempotent(&self) -> Bill {
        let rows = vec![
            BillItem::new("idempotency writes", 2.0 * self.deliveries(), "write units", price::WRITE_UNIT),
            BillItem::new("idempotency reads", self.deliveries(), "read units", price::READ_UNIT),
        ];
        self.fifo_with("SQS FIFO + idempotency table", rows, 6.0)
    }

    fn fifo_with(&self, design: &'static str, more: Vec<BillItem>, more_ms: f64) -> Bill {
        // SQS bills each 64 KB as a request; a batch is received and deleted together.
        let chunks = (self.body_kb / 64.0).ceil().max(1.0);
        let batch = self.burst.clamp(1.0, 10.0);
        let batches = self.deliveries() / batch;
        let mut items = vec![self.front_door()];
        let ingest_ms = 10.0;
        let batch_ms = 5.0 + batch * (self.handler_ms + more_ms);
        items.extend(function("ingest", self.deliveries(), ingest_ms));
        items.extend(function("worker", batches, batch_ms));
        let requests = self.deliveries() * chunks + 2.0 * batches;
        items.push(BillItem::new("queue", requests, "queue requests", price::SQS_FIFO_REQUEST));
        items.push(idle_receives(price::SQS_FIFO_REQUEST));
        items.extend(more);
        items.extend(self.sources_read(ingest_ms, batches, batch_ms));
        Bill::new(design, items)
    }

    /// Returns each design's bill, and the fixed costs that arise without any delivery.
    fn bills(&self) -> [(Bill, f64); 3] {
        let idle = Self { per_day: 0.0, ..*self };
        [Self::serializer, Self::fifo, Self::fifo_idempotent]
            .map(|design| (design(self), design(&idle).without_observation()))
    }

    /// Returns the further cost of this project if each wake-up of a burst reaches another worker.
    fn more_apart(&self) -> f64 {
        Self { is_apart: true, ..*self }.serializer().dollars() - self.serializer().dollars()
    }

    /// Returns the bill, then what other designs cost.
    pub fn report(self) -> FiguresReport {
        let load = Self { burst: self.burst.max(1.0), ..self };
        let bills = load.bills();
        let [(ours, _), ..] = &bills;
        let items = ours.sheet();
        let mut designs = Sheet::new(&[
            ("design", "dollars a month, without observation"),
            ("dollars", ">in all"),
            ("idle_queue", ">idle queue"),
            ("scheduler", ">scheduler"),
            ("deliveries", ">deliveries"),
            ("a_million_more", ">a million more"),
        ]);
        for (bill, fixed) in &bills {
            let idle = bill.dollars_for("queue, idle receives");
            let deliveries = bill.without_observation() - fixed;
            let per_million = deliveries / load.deliveries() * 1e6;
            let all = [bill.without_observation(), idle, fixed - idle, deliveries, per_million];
            let cells = all.map(|amount| SheetCell::number(amount, dollars(amount)));
            designs.row(std::iter::once(SheetCell::text(bill.design)).chain(cells));
        }
        let text = format!(
            "{items}\n\
             {} dollars a month, {} of them for observation. If nothing else in the account uses the free tier: {}. \
             If each wake-up of a burst reaches another worker: {} more.\n\n\
             {}\n\
             Idle queue and scheduler cost this even without deliveries. Observation is left out, because every design \
             needs logs, metrics and alarms.\n\n\
             us-east-1, arm64, on demand. Free: AWS's monthly free tier that never expires. Assumed: bodies shrink to \
             {:.0} %, functions have {:.0} MB, rows are kept {RETENTION_DAYS} days, every metric has a value each hour, \
             the observability stack is deployed, and its dashboard is opened once a day.",
            dollars(ours.dollars()),
            dollars(ours.observation()),
            dollars(ours.dollars() - ours.free()),
            dollars(load.more_apart()),
            designs.to_string().trim_end(),
            COMPRESSION * 100.0,
            MEMORY_GB * 1024.0,
        );
        let json = json!({
            "a_month": items.json(),
            "dollars": ours.dollars(),
            "observation": ours.observation(),
            "free": ours.free(),
            "more_if_wake_ups_reach_other_workers": load.more_apart(),
            "without_observation": designs.json(),
        });
        FiguresReport { text, json }
    }
}

/// Returns the bytes that Lambda logs for each invocation.
fn lambda_log_bytes() -> f64 {
    LAMBDA_LINES.iter().map(|line| line.len() as f64 + 1.0).sum()
}

/// Returns the cost of one invocation of a function with the template's memory, logs included.
pub(crate) fn invocation_dollars(ms: f64) -> f64 {
    price::INVOCATION + ms / 1000.0 * MEMORY_GB * price::GB_SECOND + lambda_log_bytes() / 1e9 * price::LOG_GB
}

/// Returns the instances of a function that run at once, on average, but at least one.
fn instances(invocations: f64, ms_each: f64) -> f64 {
    (invocations * ms_each / (MINUTES * 60_000.0)).ceil()
}

fn idle_receives(price: f64) -> BillItem {
    BillItem::new("queue, idle receives", IDLE_RECEIVES_PER_MINUTE * MINUTES, "queue requests", price)
}

fn dollars(amount: f64) -> String {
    // Sums of fractions leave a remainder, which would print as -0.00.
    format!("{:.2}", if amount.abs() < 0.005 { 0.0 } else { amount })
}

fn count(count: f64) -> String {
    match count {
        ..1000.0 => format!("{count:.1}"),
        ..1e6 => format!("{:.1} k", count / 1e3),
        _ => format!("{:.1} M", count / 1e6),
    }
}

#[cfg(test)]
mod tests;
