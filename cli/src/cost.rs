//! The monthly bill, item by item, from the same formulas as the tests assert.
//!
//! Prices: AWS, us-east-1, arm64, on demand, without free tiers. What is
//! assumed besides stands in [`Assumptions`].

use serde::Serialize;
use webhook_serializer::protocol::budget;

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
    /// Configured sources, for metrics.
    pub sources: f64,
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
    /// Metrics of each source.
    pub metrics: f64,
    /// Metrics that alarms look at, each of which is billed.
    pub alarms: f64,
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
    metrics: 13.0,
    alarms: 20.0,
};

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
    pub(super) const HTTP_API_REQUEST: f64 = 1.00e-6;
    pub(super) const LOG_GB: f64 = 0.50;
    pub(super) const METRIC_MONTH: f64 = 0.30;
    pub(super) const ALARM_MONTH: f64 = 0.10;
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
    /// What of it is due before the first delivery comes.
    pub fixed: f64,
}

impl Bill {
    fn of(design: &'static str, items: Vec<Item>) -> Self {
        let dollars = items.iter().map(|item| item.dollars).sum();
        Self { design, items, dollars, fixed: 0.0 }
    }

    /// What an item of that name costs, in dollars a month.
    pub fn dollars_for(&self, name: &str) -> f64 {
        self.items.iter().filter(|item| item.item == name).map(|item| item.dollars).sum()
    }
}

fn item(item: &'static str, count: f64, unit: &'static str, price: f64) -> Item {
    Item { item, count, unit, dollars: count * price }
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
            true => item("front door: HTTP API", self.deliveries(), "requests", price::HTTP_API_REQUEST),
            false => item("front door: Function URL", self.deliveries(), "requests", 0.0),
        }
    }

    fn idle_receives(&self) -> f64 {
        ASSUMPTIONS.idle_receives_a_minute * 60.0 * 24.0 * ASSUMPTIONS.days
    }

    fn observation(&self, logs_and_metrics: f64) -> Vec<Item> {
        let gb = self.deliveries() * ASSUMPTIONS.log_bytes / 1e9 * logs_and_metrics;
        vec![
            item("logs", gb, "GB", price::LOG_GB),
            item("metrics", self.sources * ASSUMPTIONS.metrics * logs_and_metrics, "metrics", price::METRIC_MONTH),
            item("alarms", ASSUMPTIONS.alarms, "alarms", price::ALARM_MONTH),
        ]
    }

    /// This project.
    pub fn serializer(&self) -> Bill {
        let k = self.burst.round().max(1.0) as u64;
        let page_kb = self.row_kb() * self.burst;
        let page_units = (page_kb / 4.0).ceil().max(1.0) as u64;
        let writes = self.deliveries() * budget::append_writes(self.b()) as f64
            + self.bursts() * budget::group_drain_writes(k, self.up_to) as f64
            // A wake-up of a burst that comes too late finds it drained.
            + self.bursts() * (ASSUMPTIONS.wake_ups - 1.0);
        let reads = self.bursts() * budget::drain_reads(k, page_units, false) as f64;
        let entities = self.per_day * ASSUMPTIONS.retention_days / self.burst;
        let sweep_reads = entities * ASSUMPTIONS.entity_kb / 4.0 / 2.0 * 24.0 * ASSUMPTIONS.days;
        let rows = self.per_day * ASSUMPTIONS.retention_days;
        let gb = (rows * (self.row_kb() + ASSUMPTIONS.receipt_kb) + entities * ASSUMPTIONS.entity_kb) / 1e6;
        let wake_ups = self.bursts() * ASSUMPTIONS.wake_ups;
        let starts = self.burst / self.up_to.clamp(1, k) as f64;
        let worker_ms = ASSUMPTIONS.worker_ms.0 + starts * (ASSUMPTIONS.worker_ms.1 + self.handler_ms);
        let minutes = 60.0 * 24.0 * ASSUMPTIONS.days;
        let mut items = vec![self.front_door()];
        items.extend(function("ingest", self.deliveries(), ASSUMPTIONS.ingest_ms));
        items.extend(function("worker", wake_ups, worker_ms / ASSUMPTIONS.wake_ups));
        // A look at the jobs' rows, the sweep as one of them, its start and its record.
        items.extend(function("scheduler", minutes, 55.0));
        items.push(item("table writes", writes, "write units", price::WRITE_UNIT));
        items.push(item("table reads", reads, "read units", price::READ_UNIT));
        let tick_writes = (budget::TICK_WRITES + budget::SWEEP_WRITES) as f64;
        let tick_reads = (budget::JOB_MINUTE_READS + budget::SWEEP_READS) as f64;
        items.push(item("sweep's ticks", minutes * tick_writes, "write units", price::WRITE_UNIT));
        items.push(item("  its rows", minutes * tick_reads, "read units", price::READ_UNIT));
        items.push(item("sweep", sweep_reads, "read units", price::READ_UNIT));
        items.push(item("storage", gb, "GB", price::TABLE_GB_MONTH));
        items.push(item("backups", gb, "GB", price::BACKUP_GB_MONTH));
        // Sent, received, deleted; those of a batch that has something to do are kept hidden by one more.
        items.push(item("queue", 3.0 * wake_ups + self.bursts(), "requests", price::SQS_REQUEST));
        items.push(item("queue, idle receives", self.idle_receives(), "requests", price::SQS_REQUEST));
        items.extend(self.observation(1.0));
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
        items.push(item("queue", requests, "requests", price::SQS_FIFO_REQUEST));
        items.push(item("queue, idle receives", self.idle_receives(), "requests", price::SQS_FIFO_REQUEST));
        items.extend(more);
        items.extend(self.observation(0.5));
        Bill::of(design, items)
    }

    /// All designs, side by side.
    pub fn bills(&self) -> [Bill; 3] {
        let designs = [Self::serializer, Self::fifo, Self::fifo_idempotent];
        let idle = Self { per_day: 0.0, ..*self };
        designs.map(|design| Bill { fixed: design(&idle).dollars, ..design(self) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load { per_day: 10_000.0, burst: 3.0, up_to: 1, body_kb: 4.0, handler_ms: 50.0, http_api: false, sources: 2.0 }
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
            let (one, two) = (bill.dollars - bill.fixed, twice.dollars - twice.fixed);
            assert!((two / one - 2.0).abs() < 0.02, "{}: {one}, then {two}", bill.design);
        }
    }

    #[test]
    fn bursts_make_each_delivery_cheaper() {
        let single = Load { burst: 1.0, ..load() };
        assert!(load().serializer().dollars < single.serializer().dollars);
    }
}
