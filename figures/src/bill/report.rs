//! The report: the bill, item by item, and what other designs cost.

use serde_json::json;

use super::{
    COMPRESSION, Load, MEMORY_GB, RETENTION_DAYS,
    items::{Bill, dollars},
};
use crate::sheet::{FiguresReport, Sheet, SheetCell};

impl Load {
    /// Returns each design's bill, and the fixed costs that arise without any delivery.
    pub(super) fn bills(&self) -> [(Bill, f64); 3] {
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
             the observability stack is deployed, its dashboard is opened once a day, and alerts are on but nothing is in \
             trouble.",
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
