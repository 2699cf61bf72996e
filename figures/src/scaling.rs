//! Finds the documented AWS limits that a given rate of webhooks would reach.

use serde_json::json;

use crate::{
    bill::{INGEST_MS, Load, RETENTION_DAYS, WORKER_MS_PER_START, sweep_hours},
    peak::{PeakOutcome, PeakStack, simulate},
    sheet::{FiguresReport, Sheet, SheetCell},
};

pub(crate) const BURST: f64 = 5.0;
const HANDLER_MS: f64 = 250.0;
/// The default of the template's parameter `WorkerConcurrency`.
const WORKER_CONCURRENCY: f64 = 5.0;
const RATES: [f64; 4] = [1.0, 100.0, 1_000.0, 10_000.0];

/// AWS's limits, and settings of the template. `docs/scaling.md` names the source of each.
pub(crate) mod limit {
    /// The write units a second that one partition accepts.
    pub(crate) const PARTITION_WRITES: f64 = 1_000.0;
    /// The write units a second that a new on-demand table accepts.
    pub(crate) const NEW_TABLE_WRITES: f64 = 4_000.0;
    /// The write units a second that any table accepts, before its quota is raised.
    pub(crate) const TABLE_WRITES: f64 = 40_000.0;
    /// The time within which a table's traffic may double. If the traffic exceeds double the
    /// earlier peak sooner, DynamoDB may throttle requests.
    pub(crate) const DOUBLING_SECONDS: usize = 30 * 60;
    /// The concurrent executions of an account, before its quota is raised.
    pub(crate) const ACCOUNT: f64 = 1_000.0;
    /// The requests a second that Lambda accepts for each concurrent execution that is allowed.
    pub(crate) const REQUESTS_EACH: f64 = 10.0;
    /// The execution environments that Lambda adds a second: 1,000 every ten seconds.
    pub(crate) const ENVIRONMENTS_A_SECOND: f64 = 100.0;
    /// The batches that the event source reads at the same time when it begins to poll.
    pub(crate) const FIRST_POLLERS: f64 = 5.0;
    /// The pollers that the event source adds a second: 300 a minute.
    pub(crate) const POLLERS_A_SECOND: f64 = 5.0;
    /// The largest number of pollers: the highest value of the event source's maximum concurrency.
    pub(crate) const POLLERS: f64 = 1_000.0;
    /// The template's batch size: the most wake-ups, and so the most orders, in one worker.
    pub(crate) const BATCH: f64 = 10.0;
    pub(crate) const IN_FLIGHT: f64 = 120_000.0;
}

pub(crate) fn load(rate: f64) -> Load {
    Load::each_second(rate, BURST, HANDLER_MS)
}

/// Returns the write units a second in the entities table and in the inbox table.
fn writes(rate: f64) -> [f64; 2] {
    let load = load(rate);
    [rate * (1.0 + load.drain_units() / BURST), rate * load.row_units() as f64]
}

pub(crate) fn workers(rate: f64, orders: f64) -> f64 {
    (rate / BURST * load(rate).worker_ms() / 1000.0 / orders).ceil()
}

/// Returns the seconds until the event source runs `workers` workers.
fn seconds_to_add(workers: f64) -> f64 {
    (workers - limit::FIRST_POLLERS).max(0.0) / limit::POLLERS_A_SECOND
}

/// Returns how many deliveries of one order are handled a second, in groups of `group` that
/// each take `handler_ms`.
fn order_rate(group: f64, handler_ms: f64) -> f64 {
    group * 1000.0 / (handler_ms + WORKER_MS_PER_START)
}

/// Returns the deliveries of one order a second at which the order's partition throttles, in
/// the entities table or in the inbox table.
fn order_limit(group: f64) -> f64 {
    let entities = 1.0 + 1.0 / group;
    // After about twenty deliveries of an order, each further one moves a receipt into the inbox table.
    let inbox = load(1.0).row_units() as f64 + 1.0;
    limit::PARTITION_WRITES / entities.max(inbox)
}

/// Returns the tables for `docs/scaling.md`.
pub fn report() -> FiguresReport {
    let throttles_at = |capacity: f64| (capacity / writes(1.0)[0]).floor();
    let new = throttles_at(limit::NEW_TABLE_WRITES);
    let grown = throttles_at(limit::TABLE_WRITES);
    let throttling = format!(
        "The entities table throttles above {} webhooks a second if new, above {} if grown",
        number(new),
        number(grown)
    );
    let [by_rate, by_group, by_stack] = [by_rate(), by_group(), by_stack()];
    FiguresReport {
        text: format!("{by_rate}{throttling}\n\n{by_group}\n{by_stack}").trim_end().to_owned(),
        json: json!({
            "by_rate": by_rate.json(),
            "throttles_above": { "new_table": new, "grown_table": grown },
            "by_group": by_group.json(),
            "by_stack": by_stack.json(),
        }),
    }
}

fn cell(value: f64) -> SheetCell {
    SheetCell::number(value, number(value))
}

fn by_rate() -> Sheet {
    let mut sheet = Sheet::new(&[
        ("figure", "webhooks a second"),
        ("at_1", ">1"),
        ("at_100", ">100"),
        ("at_1000", ">1,000"),
        ("at_10000", ">10,000"),
        ("limit", ">limit"),
    ]);
    let mut row = |name: &str, value: &dyn Fn(f64) -> f64, limit: Option<f64>| {
        let limit = limit.map_or_else(|| SheetCell::none(""), cell);
        sheet.row([SheetCell::text(name)].into_iter().chain(RATES.map(|rate| cell(value(rate)))).chain([limit]));
    };
    let new_table = Some(limit::NEW_TABLE_WRITES);
    let account = Some(limit::ACCOUNT);
    row("entities table, write units a second", &|rate| writes(rate)[0], new_table);
    row("inbox table, write units a second", &|rate| writes(rate)[1], new_table);
    row("ingest at once", &|rate| (rate * INGEST_MS / 1000.0).ceil(), account);
    row("  needed for a Function URL's rate", &|rate| (rate / limit::REQUESTS_EACH).ceil(), account);
    row("workers at once, ten orders each", &|rate| workers(rate, limit::BATCH), Some(WORKER_CONCURRENCY));
    row("  one order each", &|rate| workers(rate, 1.0), account);
    row("seconds to add them, ten orders each", &|rate| seconds_to_add(workers(rate, limit::BATCH)), None);
    row(
        "messages in flight, at most",
        &|rate| workers(rate, 1.0).min(limit::POLLERS) * limit::BATCH,
        Some(limit::IN_FLIGHT),
    );
    row("hours of a sweep's round", &|rate| sweep_hours(load(rate).orders()), Some(3.0));
    row("rows that expire a second", &|rate| rate * (1.0 + 1.0 / BURST), None);
    row("GB stored", &|rate| load(rate).table_gb(), None);
    row("dollars a month", &|rate| load(rate).dollars(), None);
    row("dollars a million", &|rate| load(rate).dollars() / (rate * 0.0864 * RETENTION_DAYS), None);
    sheet
}

fn by_group() -> Sheet {
    const GROUPS: [f64; 3] = [1.0, 10.0, 25.0];
    let mut sheet = Sheet::new(&[
        ("figure", "one order, deliveries a second"),
        ("alone", ">alone"),
        ("groups_of_10", ">groups of 10"),
        ("groups_of_25", ">groups of 25"),
    ]);
    let mut row = |name: &str, value: &dyn Fn(f64) -> f64| {
        sheet.row([SheetCell::text(name)].into_iter().chain(GROUPS.map(|group| cell(value(group)))));
    };
    row("handlers of 250 ms", &|group| order_rate(group, HANDLER_MS));
    row("handlers of 10 ms", &|group| order_rate(group, 10.0));
    row("its partition throttles at", &order_limit);
    sheet
}

fn by_stack() -> Sheet {
    let mut sheet = Sheet::new(&[
        ("usual", ">usual"),
        ("peak", ">peak"),
        ("workers", ">workers"),
        ("account", ">account"),
        ("warm", ">warm"),
        ("refused_percent", ">429"),
        ("not_stored_percent", ">503 or deferred"),
        ("longest_wait_seconds", ">longest wait"),
        ("most_waiting", ">most waiting"),
        ("caught_up_after_seconds", ">caught up after"),
    ]);
    let new_table = limit::NEW_TABLE_WRITES;
    for (usual, workers, account, warm) in [
        (10.0, 5.0, 10.0, new_table),
        (10.0, 5.0, limit::ACCOUNT, new_table),
        (100.0, 5.0, limit::ACCOUNT, new_table),
        (100.0, 50.0, limit::ACCOUNT, new_table),
        (1_000.0, 500.0, limit::ACCOUNT, new_table),
        (1_000.0, 500.0, 3_000.0, new_table),
        (1_000.0, 500.0, 3_000.0, 30_000.0),
    ] {
        let PeakOutcome { sent, refused, not_stored, longest_wait, most_waiting, caught_up } =
            simulate(PeakStack { usual, workers, account, warm });
        let percent = |part: f64| {
            let percent = part / sent * 100.0;
            SheetCell::number(percent, format!("{percent:.0} %"))
        };
        let seconds = |seconds: usize| SheetCell::number(seconds as f64, time(seconds));
        sheet.row([
            cell(usual),
            cell(usual * 10.0),
            cell(workers),
            cell(account),
            cell(warm),
            percent(refused),
            percent(not_stored),
            seconds(longest_wait),
            cell(most_waiting.round()),
            caught_up.map_or_else(|| SheetCell::none("over a day"), seconds),
        ]);
    }
    sheet
}

fn time(seconds: usize) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

/// Formats a number: one decimal below ten, and separated thousands.
fn number(number: f64) -> String {
    if number < 9.95 {
        let text = format!("{number:.1}");
        return text.strip_suffix(".0").map(str::to_owned).unwrap_or(text);
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::check_part;

    #[test]
    fn write_units_of_a_burst_are_counted_for_each_table() {
        // Five claims, one acquire, five settles; five rows of two units.
        assert_eq!(writes(5.0), [11.0, 10.0]);
    }

    #[test]
    fn more_orders_per_worker_need_fewer_workers() {
        // 200 orders a second, 1.29 s each.
        assert_eq!((workers(1_000.0, 1.0), workers(1_000.0, 10.0)), (258.0, 26.0));
        assert_eq!((seconds_to_add(5.0), seconds_to_add(305.0)), (0.0, 60.0));
    }

    #[test]
    fn sweep_takes_up_to_three_hours_until_eighteen_million_orders() {
        assert_eq!([6e4, 1e5, 1.8e7].map(sweep_hours), [1.0, 2.0, 3.0]);
        assert_eq!(sweep_hours(6e7), 10.0);
    }

    #[test]
    fn order_rate_is_limited_by_handler_or_partition() {
        assert!((order_rate(1.0, 250.0) - 3.9).abs() < 0.01);
        assert!((order_limit(1.0) - 1000.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn large_numbers_are_printed_in_short_form() {
        assert_eq!([0.0, 2.3, 9.97, 1_000.0, 1_234_567.0].map(number), ["0", "2.3", "10", "1,000", "1,234,567"]);
    }

    #[test]
    fn scaling_page_contains_the_current_report() {
        let page = include_str!("../../docs/scaling.md");
        check_part("docs/scaling.md", "write units.\n\n```\n", "\n```", &report().text);
        let words = page.split_whitespace().count();
        assert!(words <= 900, "{words} words");
    }
}
