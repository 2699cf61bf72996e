//! The bill of this project, and those of other designs for the same load.

use webhook_serializer::{
    config::SWEEP_ROWS,
    protocol::{
        budget,
        maintain::{SEGMENTS, pace},
    },
    sources::REFRESH,
};

use super::{
    BilledDocument, DAYS, INGEST_MS, Load, MINUTES,
    items::{Bill, BillItem, function},
    observation::{
        DASHBOARD_HOURS, LOG_BYTES, SWEEP_LOG_BYTES, alarmed_metrics, dashboard_queries, lambda_log_bytes, metrics,
    },
    price,
};

/// The time of the scheduler for one minute, in ms. The scheduler reads the jobs' rows, runs the
/// sweep and records the sweep's tick.
const SCHEDULER_MS: f64 = 55.0;
/// The receives a minute while the queue is empty: each of the event source's five pollers waits 20
/// seconds for a message.
const IDLE_RECEIVES_PER_MINUTE: f64 = 15.0;
/// The minutes after which DynamoDB asks KMS for a table's key again, on each connection that
/// it serves:
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.howitworks.html>
const KEY_MINUTES: f64 = 5.0;
const TABLES: f64 = 2.0;

impl Load {
    fn front_door(&self) -> BillItem {
        BillItem::new("front door: Function URL", self.deliveries(), "URL requests", 0.0)
    }

    /// Returns the cost of reading the sources. Each instance of a function reads them at most
    /// once a minute, and only while it runs. `functions` are the functions' invocations, and the time of each in ms.
    fn sources_read(&self, functions: &[(f64, f64)]) -> Vec<BillItem> {
        let readings = MINUTES * 60.0 / REFRESH.as_secs_f64();
        let by = |(invocations, ms_each): &(f64, f64)| (readings * instances(*invocations, *ms_each)).min(*invocations);
        let reads = functions.iter().map(by).sum();
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

    pub(super) fn serializer(&self) -> Bill {
        let page_units = (self.row_kb() * self.burst / 4.0).ceil().max(1.0) as u64;
        let (worker_invocations, worker_ms_each) = self.worker();
        let writes =
            self.deliveries() * budget::append_writes(self.row_units()) as f64 + self.bursts() * self.drain_units();
        let reads = self.bursts() * budget::drain_reads(page_units, 0) as f64;
        let swept = self.orders() * 24.0 * DAYS / sweep_hours(self.orders());
        let sweep_reads = swept * self.entity_kb() / 4.0 / 2.0;
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
        // The scheduler reads whether alerts are wanted.
        items.extend(self.sources_read(&[(self.deliveries(), INGEST_MS), self.worker(), (MINUTES, SCHEDULER_MS)]));
        items.extend(self.table_key());
        items.extend(alerts());
        items.extend([
            BillItem::observation("logs", log_gb, "log GB", price::LOG_GB),
            BillItem::observation("metrics", metrics() + self.sources, "metrics", price::METRIC_MONTH),
            BillItem::observation("alarms", alarmed_metrics() + self.sources, "alarms", price::ALARM_MONTH),
            BillItem::observation("dashboard", 1.0, "dashboards", price::DASHBOARD_MONTH),
            BillItem::observation("  its log queries", scanned_gb, "log GB", price::LOG_SCAN_GB),
        ]);
        Bill::new("this project", items)
    }

    pub(super) fn fifo(&self) -> Bill {
        self.fifo_with("SQS FIFO", Vec::new(), 0.0)
    }

    /// Returns the bill of a FIFO queue with an idempotency table. For each delivery, a row is
    /// written twice and read once.
    pub(super) fn fifo_idempotent(&self) -> Bill {
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
        items.extend(self.sources_read(&[(self.deliveries(), ingest_ms), (batches, batch_ms)]));
        Bill::new(design, items)
    }
}

/// Returns the hours of a pass of the sweep over `orders` orders.
pub(crate) fn sweep_hours(orders: f64) -> f64 {
    let by_pace = pace((orders / f64::from(SEGMENTS)) as u64) * SEGMENTS;
    (by_pace.as_secs_f64() / 3600.0).max(orders / SWEEP_ROWS as f64 / 60.0)
}

/// Returns the instances of a function that run at once, on average, but at least one.
fn instances(invocations: f64, ms_each: f64) -> f64 {
    (invocations * ms_each / (MINUTES * 60_000.0)).ceil()
}

/// Returns the cost of the job of alerts while nothing is in trouble.
fn alerts() -> [BillItem; 2] {
    let reads = budget::JOB_MINUTE_READS as f64 + budget::ALERTS_READS;
    [
        BillItem::observation("alerts", MINUTES * budget::TICK_WRITES as f64, "write units", price::WRITE_UNIT),
        BillItem::observation("  their looks", MINUTES * reads, "read units", price::READ_UNIT),
    ]
}

fn idle_receives(price: f64) -> BillItem {
    BillItem::new("queue, idle receives", IDLE_RECEIVES_PER_MINUTE * MINUTES, "queue requests", price)
}
