//! The monthly bill, item by item, from the same formulas as the tests assert.
//!
//! Prices: AWS, us-east-1, arm64, on demand. What AWS gives every account each
//! month, for ever, is taken off beside them; what it gives for a first year is
//! not. What is assumed besides stands in [`Assumptions`].

mod instances;

use std::collections::BTreeMap;

use serde::Serialize;
use webhook_serializer::{config::SWEEP_ROWS, protocol::budget, sources::REFRESH};

pub use instances::{INSTANCE_HOUR, Instances, MOST_WORKERS, Room};

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Deliveries a day.
    pub per_day: f64,
    /// Deliveries of one entity that wait together when its drain starts.
    pub burst: f64,
    /// How many of them one start of the handler is about, at most.
    pub up_to: u64,
    /// The size of a body as it is sent, in KB.
    pub body_kb: f64,
    /// How long a start of the handler takes.
    pub handler_ms: f64,
    /// Whether an HTTP API stands in front instead of a Function URL.
    pub http_api: bool,
    /// Configured sources, for metrics and for the alarm that looks at each.
    pub sources: f64,
    /// Whether every metric is counted by source and outcome: `DetailedMetrics`.
    pub detailed_metrics: bool,
    /// Whether the handler keeps a row of its own for each order, as `orders`
    /// does: it reads it, and commits the next one with its delivery.
    pub keeps_orders: bool,
    /// Whether the sources stand in Secrets Manager instead of Parameter Store.
    pub secrets_manager: bool,
    /// Whether they are encrypted with a KMS key of one's own.
    pub own_key: bool,
    /// The Lambda Managed Instances that run the workers, where some do.
    pub instances: Option<Instances>,
}

/// What a bill assumes that nobody was asked for.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Assumptions {
    /// Days in a month.
    pub days: f64,
    /// What a JSON body shrinks to when it is stored.
    pub compression: f64,
    /// KB of a delivery row besides its body.
    pub row_kb: f64,
    /// KB of a receipt in its order's row, which has room for those of an order of usual length.
    pub receipt_kb: f64,
    /// KB of an entity's row.
    pub entity_kb: f64,
    /// How long inbox rows are kept, in days.
    pub retention_days: f64,
    /// Memory of every function, in GB.
    pub memory_gb: f64,
    /// How long an ingest runs, in ms: two waits for the store.
    pub ingest_ms: f64,
    /// How long a worker runs besides its handlers: for each wake-up, and for
    /// each delivery, in ms.
    pub worker_ms: (f64, f64),
    /// Wake-ups of a burst that are sent before the lease is taken.
    pub wake_ups: f64,
    /// Empty receives of the event source a minute: its pollers wait 20 s each.
    pub idle_receives_a_minute: f64,
    /// Log bytes a delivery.
    pub log_bytes: f64,
    /// Metrics over everything that are always counted: at most, since those of
    /// trouble are billed only in an hour that has some.
    pub metrics: f64,
    /// With detail: over everything, and of each source by outcome.
    pub detailed_metrics: (f64, f64),
    /// Metrics that alarms look at, each of which is billed. The one that looks at
    /// each source is billed by those besides.
    pub alarms: f64,
    /// Write units of the row that a handler commits, where it keeps one.
    pub order_units: f64,
}

/// The assumptions of every bill here.
pub const ASSUMPTIONS: Assumptions = Assumptions {
    days: 30.0,
    compression: 0.25,
    row_kb: 0.35,
    receipt_kb: 0.025,
    entity_kb: 0.3,
    retention_days: 30.0,
    memory_gb: 0.25,
    ingest_ms: 15.0,
    worker_ms: (10.0, 6.0),
    wake_ups: 1.5,
    idle_receives_a_minute: 15.0,
    log_bytes: 800.0,
    metrics: 9.0,
    detailed_metrics: (24.0, 13.0),
    alarms: 21.0,
    order_units: 1.0,
};

/// Requests a second that the HTTP API lets in, where nobody said otherwise.
pub const HTTP_API_RATE: u64 = 200;

/// Requests a second that Lambda lets through a Function URL, for each function
/// that may run at once
/// (<https://docs.aws.amazon.com/lambda/latest/dg/urls-configuration.html>).
const URL_RATE: u64 = 10;

/// How long ingest takes to refuse a small request that proves nothing, in ms.
const REFUSAL_MS: f64 = 3.0;

/// Requests that prove nothing, as many as a door lets through.
#[derive(Debug, Clone, Serialize)]
pub struct Flood {
    /// Which door, and what limits it.
    pub door: &'static str,
    /// How many a second come through.
    pub per_second: u64,
    /// Dollars for a million of those that come through.
    pub million: f64,
    /// Dollars for a million of those that do not.
    pub turned_away: f64,
}

impl Flood {
    /// What a day of it costs, in dollars, where `per_second` are sent.
    pub fn day(&self, per_second: u64) -> f64 {
        let through = per_second.min(self.per_second);
        let millions = |per_second: u64| per_second as f64 * 86_400.0 / 1e6;
        millions(through) * self.million + millions(per_second - through) * self.turned_away
    }
}

/// A flood at each door. Its lines in the logs are some a minute; nothing of it
/// is stored.
pub fn floods() -> [Flood; 4] {
    let ingest = 1e6 * (price::INVOCATION + REFUSAL_MS / 1000.0 * ASSUMPTIONS.memory_gb * price::GB_SECOND);
    let api = 1e6 * price::HTTP_API_REQUEST;
    [
        Flood {
            door: "Function URL, 1,000 functions at once",
            per_second: URL_RATE * 1000,
            million: ingest,
            turned_away: 0.0,
        },
        Flood {
            door: "Function URL, IngestConcurrency 20",
            per_second: URL_RATE * 20,
            million: ingest,
            turned_away: 0.0,
        },
        // AWS does not say that those answered 429 cost nothing.
        Flood { door: "HTTP API", per_second: HTTP_API_RATE, million: api + ingest, turned_away: api },
        // A rule of 100 requests in five minutes for each address; they come from a thousand. CloudFront bills
        // none that WAF blocks.
        Flood {
            door: "CloudFront with WAF, a Function URL behind",
            per_second: 1000 * 100 / 300,
            million: 1e6 * (price::CLOUDFRONT_REQUEST + price::WAF_REQUEST) + ingest,
            turned_away: 1e6 * price::WAF_REQUEST,
        },
    ]
}

/// Prices in dollars.
mod price {
    pub(super) const WRITE_UNIT: f64 = 0.625e-6;
    pub(super) const READ_UNIT: f64 = 0.125e-6;
    pub(super) const TABLE_GB_MONTH: f64 = 0.25;
    pub(super) const BACKUP_GB_MONTH: f64 = 0.20;
    pub(super) const SQS_REQUEST: f64 = 0.40e-6;
    pub(super) const SQS_FIFO_REQUEST: f64 = 0.50e-6;
    pub(super) const INVOCATION: f64 = 0.20e-6;
    pub(super) const GB_SECOND: f64 = 0.0000133334;
    /// Of Managed Instances, on top of EC2's price on demand; a request costs what any costs
    /// (<https://aws.amazon.com/lambda/pricing/>).
    pub(super) const MANAGEMENT_FEE: f64 = 0.15;
    pub(super) const HTTP_API_REQUEST: f64 = 1.00e-6;
    pub(super) const CLOUDFRONT_REQUEST: f64 = 1.00e-6;
    pub(super) const WAF_REQUEST: f64 = 0.60e-6;
    pub(super) const LOG_GB: f64 = 0.50;
    pub(super) const METRIC_MONTH: f64 = 0.30;
    pub(super) const ALARM_MONTH: f64 = 0.10;
    pub(super) const DASHBOARD_MONTH: f64 = 3.00;
    pub(super) const SECRET_MONTH: f64 = 0.40;
    pub(super) const SECRET_READ: f64 = 0.05 / 10_000.0;
    pub(super) const KEY_MONTH: f64 = 1.00;
    pub(super) const KEY_REQUEST: f64 = 0.03 / 10_000.0;
}

/// What is free each month in every account, by what it is counted in; an
/// account's other uses take from the same.
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

/// One line of a bill.
#[derive(Debug, Clone, Serialize)]
pub struct Item {
    /// For what.
    pub item: &'static str,
    /// How many a month.
    pub count: f64,
    /// Of what.
    pub unit: &'static str,
    /// Dollars a month.
    pub dollars: f64,
    /// What of them is free, where nothing else in the account uses it.
    pub free: f64,
    /// Whether it is for looking at the rest: logs, metrics, alarms. Every design
    /// needs some, and what it has is its owner's choice.
    pub is_observation: bool,
}

/// A bill.
#[derive(Debug, Clone, Serialize)]
pub struct Bill {
    /// Of what design.
    pub design: &'static str,
    /// Its lines.
    pub items: Vec<Item>,
    /// Their sum, in dollars a month.
    pub dollars: f64,
    /// What of it the free tier takes off.
    pub free: f64,
    /// What of it is for observation.
    pub observation: f64,
    /// What of it, but for observation, is due before the first delivery comes.
    pub fixed: f64,
}

impl Bill {
    fn of(design: &'static str, mut items: Vec<Item>) -> Self {
        let mut used: BTreeMap<&str, f64> = BTreeMap::new();
        for item in items.iter_mut().filter(|item| item.count > 0.0) {
            let used = used.entry(item.unit).or_default();
            let taken = (free(item.unit) - *used).clamp(0.0, item.count);
            *used += taken;
            item.free = item.dollars * taken / item.count;
        }
        let sum = |dollars: fn(&Item) -> f64| items.iter().map(dollars).sum();
        let observation = |item: &Item| if item.is_observation { item.dollars } else { 0.0 };
        let (dollars, free, observation) = (sum(|item| item.dollars), sum(|item| item.free), sum(observation));
        Self { design, items, dollars, free, observation, fixed: 0.0 }
    }

    /// In all but observation: what compares with another design.
    pub fn bare(&self) -> f64 {
        self.dollars - self.observation
    }

    /// What an item of that name costs, in dollars a month.
    pub fn dollars_for(&self, name: &str) -> f64 {
        self.items.iter().filter(|item| item.item == name).map(|item| item.dollars).sum()
    }
}

fn item(item: &'static str, count: f64, unit: &'static str, price: f64) -> Item {
    Item { item, count, unit, dollars: count * price, free: 0.0, is_observation: false }
}

fn observing(name: &'static str, count: f64, unit: &'static str, price: f64) -> Item {
    Item { is_observation: true, ..item(name, count, unit, price) }
}

fn function(name: &'static str, invocations: f64, ms_each: f64) -> [Item; 2] {
    let seconds = invocations * ms_each / 1000.0 * ASSUMPTIONS.memory_gb;
    [item(name, invocations, "invocations", price::INVOCATION), item("  its time", seconds, "GB-s", price::GB_SECOND)]
}

impl Load {
    fn deliveries(&self) -> f64 {
        self.per_day * ASSUMPTIONS.days
    }

    fn bursts(&self) -> f64 {
        self.deliveries() / self.burst
    }

    fn row_kb(&self) -> f64 {
        ASSUMPTIONS.row_kb + self.body_kb * ASSUMPTIONS.compression
    }

    /// Write units of a delivery row.
    pub fn b(&self) -> u64 {
        self.row_kb().ceil().max(1.0) as u64
    }

    fn front_door(&self) -> Item {
        match self.http_api {
            true => item("front door: HTTP API", self.deliveries(), "API requests", price::HTTP_API_REQUEST),
            false => item("front door: Function URL", self.deliveries(), "URL requests", 0.0),
        }
    }

    fn idle_receives(&self) -> f64 {
        ASSUMPTIONS.idle_receives_a_minute * 60.0 * 24.0 * ASSUMPTIONS.days
    }

    /// Logs, metrics and alarms of this project, the topic given.
    fn observation(&self) -> [Item; 4] {
        let gb = self.deliveries() * ASSUMPTIONS.log_bytes / 1e9;
        let (overall, of_each) = ASSUMPTIONS.detailed_metrics;
        let metrics = match self.detailed_metrics {
            true => overall + self.sources * (of_each + 1.0),
            false => ASSUMPTIONS.metrics + self.sources,
        };
        [
            observing("logs", gb, "log GB", price::LOG_GB),
            observing("metrics", metrics, "metrics", price::METRIC_MONTH),
            observing("alarms", ASSUMPTIONS.alarms + self.sources, "alarms", price::ALARM_MONTH),
            observing("dashboard", 1.0, "dashboards", price::DASHBOARD_MONTH),
        ]
    }

    /// Reading the sources document: each function that has something to do reads
    /// it once a minute.
    fn secrets(&self, wake_ups: f64) -> Vec<Item> {
        let readings = 60.0 * 60.0 * 24.0 * ASSUMPTIONS.days / REFRESH.as_secs_f64();
        let reads = readings.min(self.deliveries()) + readings.min(wake_ups);
        let mut items = Vec::new();
        if self.secrets_manager {
            items.push(item("Secrets Manager", 1.0, "secrets", price::SECRET_MONTH));
            items.push(item("  its reads", reads, "reads", price::SECRET_READ));
        }
        if self.own_key {
            items.push(item("KMS key", 1.0, "keys", price::KEY_MONTH));
        }
        // Of a secret AWS's own key decrypts for nothing; of a parameter it does not.
        if self.own_key || !self.secrets_manager {
            items.push(item("KMS, sources read", reads, "key requests", price::KEY_REQUEST));
        }
        items
    }

    /// Wake-ups of a month: each starts a worker's run, or is one of several in it.
    fn wake_ups(&self) -> f64 {
        self.bursts() * ASSUMPTIONS.wake_ups
    }

    /// How long the workers are busy with a burst, in ms.
    fn worker_ms(&self) -> f64 {
        let k = self.burst.round().max(1.0) as u64;
        let starts = self.burst / self.up_to.clamp(1, k) as f64;
        ASSUMPTIONS.worker_ms.0 + starts * (ASSUMPTIONS.worker_ms.1 + self.handler_ms)
    }

    /// How many worker runs are under way at once, on average.
    pub fn runs_at_once(&self) -> f64 {
        self.bursts() * self.worker_ms() / 1000.0 / (60.0 * 60.0 * 24.0 * ASSUMPTIONS.days)
    }

    fn worker(&self) -> Vec<Item> {
        let [runs, time] = function("worker", self.wake_ups(), self.worker_ms() / ASSUMPTIONS.wake_ups);
        let Some(instances) = self.instances else { return vec![runs, time] };
        // Whether the free requests count for these is not said.
        let runs = Item { unit: "managed invocations", ..runs };
        let fee = instances.hour * price::MANAGEMENT_FEE;
        vec![
            runs,
            item("  its instances", instances.hours(), "instance hours", instances.hour),
            item("  their management", instances.hours(), "instance hours", fee),
        ]
    }

    /// This project.
    pub fn serializer(&self) -> Bill {
        let k = self.burst.round().max(1.0) as u64;
        let page_kb = self.row_kb() * self.burst;
        let page_units = (page_kb / 4.0).ceil().max(1.0) as u64;
        let starts_of_a_burst = k.div_ceil(self.up_to.clamp(1, k));
        // With a row of the handler's own, each settle is a transaction.
        let drain = match self.keeps_orders {
            true => budget::commit_drain_writes(starts_of_a_burst, ASSUMPTIONS.order_units as u64),
            false => budget::group_drain_writes(k, self.up_to),
        };
        let writes = self.deliveries() * budget::append_writes(self.b()) as f64
            + self.bursts() * drain as f64
            // A wake-up of a burst that comes too late finds it drained.
            + self.bursts() * (ASSUMPTIONS.wake_ups - 1.0);
        let own_reads = if self.keeps_orders { starts_of_a_burst } else { 0 };
        let reads = self.bursts() * (budget::drain_reads(k, page_units, false) + own_reads) as f64;
        let entities = self.per_day * ASSUMPTIONS.retention_days / self.burst;
        let minutes = 60.0 * 24.0 * ASSUMPTIONS.days;
        let swept = (entities * 24.0 * ASSUMPTIONS.days).min(SWEEP_ROWS as f64 * minutes);
        let sweep_reads = swept * ASSUMPTIONS.entity_kb / 4.0 / 2.0;
        let rows = self.per_day * ASSUMPTIONS.retention_days;
        let gb = (rows * (self.row_kb() + ASSUMPTIONS.receipt_kb) + entities * ASSUMPTIONS.entity_kb) / 1e6;
        let wake_ups = self.wake_ups();
        let mut items = vec![self.front_door()];
        items.extend(function("ingest", self.deliveries(), ASSUMPTIONS.ingest_ms));
        items.extend(self.worker());
        // A look at the jobs' rows, the sweep as one of them, its start and its record.
        items.extend(function("scheduler", minutes, 55.0));
        items.push(item("table writes", writes, "write units", price::WRITE_UNIT));
        items.push(item("table reads", reads, "read units", price::READ_UNIT));
        let tick_writes = (budget::TICK_WRITES + budget::SWEEP_WRITES) as f64;
        let tick_reads = (budget::JOB_MINUTE_READS + budget::SWEEP_READS) as f64;
        items.push(item("sweep's ticks", minutes * tick_writes, "write units", price::WRITE_UNIT));
        items.push(item("  its rows", minutes * tick_reads, "read units", price::READ_UNIT));
        items.push(item("sweep", sweep_reads, "read units", price::READ_UNIT));
        items.push(item("storage", gb, "table GB", price::TABLE_GB_MONTH));
        items.push(item("backups", gb, "backup GB", price::BACKUP_GB_MONTH));
        // Sent, received, deleted; those of a batch that has something to do are kept hidden by one more.
        items.push(item("queue", 3.0 * wake_ups + self.bursts(), "queue requests", price::SQS_REQUEST));
        items.push(item("queue, idle receives", self.idle_receives(), "queue requests", price::SQS_REQUEST));
        items.extend(self.secrets(wake_ups));
        items.extend(self.observation());
        Bill::of("this project", items)
    }

    /// SQS FIFO with the order as message group, and one handler.
    pub fn fifo(&self) -> Bill {
        self.fifo_with("SQS FIFO", Vec::new(), 0.0)
    }

    /// The same with an idempotency table: a row written twice and read once
    /// for each delivery.
    pub fn fifo_idempotent(&self) -> Bill {
        let rows = vec![
            item("idempotency writes", 2.0 * self.deliveries(), "write units", price::WRITE_UNIT),
            item("idempotency reads", self.deliveries(), "read units", price::READ_UNIT),
        ];
        self.fifo_with("SQS FIFO + idempotency table", rows, 6.0)
    }

    fn fifo_with(&self, design: &'static str, more: Vec<Item>, more_ms: f64) -> Bill {
        // 64 KB count as one request; a batch of several is received and deleted together.
        let chunks = (self.body_kb / 64.0).ceil().max(1.0);
        let batch = self.burst.clamp(1.0, 10.0);
        let requests = self.deliveries() * chunks + 2.0 * self.deliveries() / batch;
        let mut items = vec![self.front_door()];
        items.extend(function("ingest", self.deliveries(), 10.0));
        let worker_ms = 5.0 + batch * (self.handler_ms + more_ms);
        items.extend(function("worker", self.deliveries() / batch, worker_ms));
        items.push(item("queue", requests, "queue requests", price::SQS_FIFO_REQUEST));
        items.push(item("queue, idle receives", self.idle_receives(), "queue requests", price::SQS_FIFO_REQUEST));
        if self.keeps_orders {
            let units = ASSUMPTIONS.order_units;
            items.push(item("orders' writes", self.deliveries() * units, "write units", price::WRITE_UNIT));
            items.push(item("orders' reads", self.deliveries(), "read units", price::READ_UNIT));
        }
        items.extend(more);
        items.extend(self.secrets(self.deliveries() / batch));
        Bill::of(design, items)
    }

    /// All designs, side by side.
    pub fn bills(&self) -> [Bill; 3] {
        let designs = [Self::serializer, Self::fifo, Self::fifo_idempotent];
        let idle = Self { per_day: 0.0, ..*self };
        designs.map(|design| {
            let fixed = design(&idle).bare();
            Bill { fixed, ..design(self) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn load() -> Load {
        Load {
            per_day: 10_000.0,
            burst: 3.0,
            up_to: 1,
            body_kb: 4.0,
            handler_ms: 50.0,
            http_api: false,
            sources: 2.0,
            detailed_metrics: false,
            keeps_orders: false,
            secrets_manager: false,
            own_key: false,
            instances: None,
        }
    }

    #[test]
    fn a_bill_is_the_sum_of_its_items() {
        for bill in load().bills() {
            let sum: f64 = bill.items.iter().map(|item| item.dollars).sum();
            assert!((sum - bill.dollars).abs() < 1e-9, "{}", bill.design);
            assert!(bill.items.iter().all(|item| item.dollars >= 0.0));
        }
    }

    #[test]
    fn table_writes_are_those_of_the_budget() {
        let writes = |bill: &Bill| bill.items.iter().find(|item| item.item == "table writes").map(|item| item.count);
        // B = 2: (B + 1) each, 4 a burst of three, half a refused acquire a burst.
        let expected = 300_000.0 * 3.0 + 100_000.0 * 4.0 + 100_000.0 * 0.5;
        assert_eq!(writes(&load().serializer()), Some(expected));
    }

    #[test]
    fn a_group_is_settled_by_one_write() {
        let writes = |up_to| load_writes(&Load { up_to, ..load() });
        assert_eq!(writes(1) - writes(3), 100_000.0 * 2.0);
        assert_eq!(writes(1) - writes(2), 100_000.0);
        assert_eq!(writes(25), writes(3));
    }

    fn load_writes(load: &Load) -> f64 {
        load.serializer().items.iter().find(|item| item.item == "table writes").map(|item| item.count).unwrap()
    }

    #[test]
    fn what_is_fixed_is_due_without_a_delivery_and_the_rest_grows_with_them() {
        let twice = Load { per_day: 20_000.0, ..load() };
        for (bill, twice) in load().bills().iter().zip(twice.bills()) {
            assert!(bill.fixed > 0.0 && bill.fixed < bill.dollars, "{}", bill.design);
            assert_eq!(bill.fixed, twice.fixed, "{}", bill.design);
            // Of reading the sources there is no more than once a minute.
            let grows = |bill: &Bill| bill.bare() - bill.fixed - bill.dollars_for("KMS, sources read");
            let (one, two) = (grows(bill), grows(&twice));
            assert!((two / one - 2.0).abs() < 0.02, "{}: {one}, then {two}", bill.design);
        }
    }

    #[test]
    fn a_commit_counts_the_settle_and_the_row_twice() {
        let kept = load_writes(&Load { keeps_orders: true, ..load() }) - load_writes(&load());
        // Four units for each of 300,000 deliveries instead of one.
        assert_eq!(kept, 300_000.0 * 3.0);
        let in_groups = Load { keeps_orders: true, up_to: 3, ..load() };
        assert_eq!(load_writes(&in_groups) - load_writes(&Load { up_to: 3, ..load() }), 100_000.0 * 3.0);
    }

    #[test]
    fn designs_are_compared_without_what_looks_at_them() {
        let [ours, others @ ..] = load().bills();
        assert!(ours.observation > 0.0 && ours.bare() < ours.dollars);
        assert!(others.iter().all(|bill| bill.observation == 0.0 && bill.bare() == bill.dollars));
        let detailed = Load { detailed_metrics: true, ..load() };
        assert_eq!(detailed.serializer().bare(), ours.bare());
    }

    #[test]
    fn what_every_account_has_for_nothing_is_taken_off_once() {
        let bill = load().serializer();
        let free = |name: &str| bill.items.iter().find(|item| item.item == name).map(|item| item.free).unwrap();
        assert_eq!((free("ingest"), free("worker")), (bill.dollars_for("ingest"), bill.dollars_for("worker")));
        assert_eq!(free("table writes"), 0.0, "on demand there is none");
        // Ten of eleven metrics; of twenty-three alarms ten.
        assert!((bill.dollars_for("metrics") - free("metrics") - price::METRIC_MONTH).abs() < 1e-9);
        assert!((free("alarms") - 10.0 * price::ALARM_MONTH).abs() < 1e-9);
        // A million a month and no more: the queue's share is what its idle receives leave.
        let many = Load { per_day: 1e6, burst: 1.0, ..load() }.serializer();
        let taken = many.items.iter().filter(|item| item.unit == "queue requests").map(|item| item.free).sum::<f64>();
        assert!((taken - 1e6 * price::SQS_REQUEST).abs() < 1e-9, "{taken}");
        assert!(many.items.iter().all(|item| item.free <= item.dollars + 1e-12));
    }

    #[test]
    fn a_secret_and_a_key_of_one_s_own_are_on_the_bill() {
        let secret = Load { secrets_manager: true, ..load() }.serializer();
        assert_eq!(secret.dollars_for("Secrets Manager"), price::SECRET_MONTH);
        assert_eq!(secret.dollars_for("KMS, sources read"), 0.0, "AWS's own key decrypts a secret for nothing");
        // Ingest and worker, a minute each.
        let reads = |bill: &Bill, name: &str| bill.items.iter().find(|item| item.item == name).map(|item| item.count);
        assert_eq!(reads(&secret, "  its reads"), Some(2.0 * 43_200.0));
        let key = Load { own_key: true, ..load() }.serializer();
        assert_eq!(key.dollars_for("KMS key"), price::KEY_MONTH);
        assert_eq!(reads(&key, "KMS, sources read"), Some(2.0 * 43_200.0));
    }

    #[test]
    fn metrics_without_detail_are_those_that_the_functions_count() {
        use webhook_serializer::telemetry::{Metric, Scope};
        // Those that count only in an outage cost a cent for a day of it.
        let rare = [Metric::Deferred, Metric::UnavailableSeconds];
        let always = || Metric::ALL.iter().filter(|metric| !rare.contains(metric));
        let of = |scope| always().filter(|metric| metric.scope() == scope).count() as f64;
        assert_eq!((of(Scope::Overall), of(Scope::BySource)), (ASSUMPTIONS.metrics, 1.0));
        assert_eq!(of(Scope::Overall) + of(Scope::Detailed), ASSUMPTIONS.detailed_metrics.0);
    }

    #[test]
    fn a_flood_costs_what_its_door_lets_through_and_what_it_turns_away() {
        let [url, reserved, api, _] = floods();
        assert_eq!((url.per_second, reserved.per_second), (10_000, 200));
        assert_eq!(reserved.day(200), reserved.day(1_000_000), "Lambda bills no request that it refuses");
        assert!((url.day(200) - reserved.day(200)).abs() < 1e-9);
        // 17.28 million requests, at a dollar and 21 cents.
        assert!((api.day(200) - 17.28 * 1.21).abs() < 0.01, "{}", api.day(200));
        assert!(api.day(400) > api.day(200));
    }

    #[test]
    fn bursts_make_each_delivery_cheaper() {
        let single = Load { burst: 1.0, ..load() };
        assert!(load().serializer().dollars < single.serializer().dollars);
    }
}
