//! Tests of how the bill grows with the load, and that the pages in `docs/` contain its current
//! figures.

use super::{
    items::{Bill, dollars},
    observation::{LAMBDA_LINES, LOG_BYTES, SWEEP_LOG_BYTES, metrics},
    *,
};
use crate::made::check_part;

const LOAD: Load = Load {
    per_day: 10_000.0,
    burst: 3.0,
    bursts_per_order: 1.0,
    up_to: 1,
    body_kb: 4.0,
    handler_ms: 50.0,
    sources: 2.0,
    own_key: false,
    document: BilledDocument::Parameter,
    is_apart: false,
};

/// The load of the pages.
const SHOP: Load = Load { burst: 5.0, ..LOAD };

fn count_of(load: Load, name: &str) -> f64 {
    load.serializer().items.iter().find(|item| item.name == name).expect("the item").count
}

fn table_writes(load: Load) -> f64 {
    count_of(load, "table writes")
}

/// Promise: the cost estimate uses the asserted units.
#[test]
fn billed_writes_are_sum_of_delivery_and_burst_costs() {
    // Each delivery costs three units: one for the claim, two for the row. Each burst costs four.
    assert_eq!(table_writes(LOAD), 300_000.0 * 3.0 + 100_000.0 * 4.0);
}

#[test]
fn burst_of_one_takes_one_wake_up() {
    let one = Load { burst: 1.0, ..LOAD };
    assert_eq!(one.wake_ups(), WakeUps { sends: 1.0, batches: 1.0, refused: 0.0 });
    assert_eq!(Load { is_apart: true, ..one }.wake_ups(), one.wake_ups());
    // Send, receive, extension of the visibility timeout, delete.
    assert_eq!(count_of(one, "queue"), 300_000.0 * 4.0);
    assert_eq!(count_of(one, "worker"), 300_000.0);
}

#[test]
fn burst_sends_a_wake_up_per_delivery_and_is_received_in_batches() {
    let wake_ups = |burst| Load { burst, ..LOAD }.wake_ups();
    assert_eq!(wake_ups(10.0), WakeUps { sends: 10.0, batches: 1.0, refused: 0.0 });
    // The second batch finds the lease taken, and its requeued wake-up finds the order drained.
    assert_eq!(wake_ups(11.0), WakeUps { sends: 12.0, batches: 3.0, refused: 2.0 });
    let apart = Load { burst: 5.0, is_apart: true, ..LOAD }.wake_ups();
    assert_eq!(apart, WakeUps { sends: 9.0, batches: 9.0, refused: 8.0 });
    assert_eq!((wake_ups(5.0).requests(), apart.requests()), (8.0, 28.0));
}

#[test]
fn json_has_the_items_of_the_table() {
    let json = SHOP.report().json;
    let items = json["a_month"].as_array().expect("an array");
    let queue = items.iter().find(|item| item["item"] == "queue").expect("the item");
    assert_eq!((&queue["count"], &queue["unit"]), (&count_of(SHOP, "queue").into(), &"queue requests".into()));
    assert_eq!(items.last().expect("the sum")["dollars"], json["dollars"]);
    assert_eq!(json["without_observation"].as_array().map(Vec::len), Some(3));
}

#[test]
fn sweep_reads_each_order_once_however_many_bursts_it_has() {
    let swept = |bursts_per_order| {
        let load = Load { bursts_per_order, ..LOAD };
        count_of(load, "sweep") * sweep_hours(load.orders())
    };
    let row_kb = |bursts_per_order| Load { bursts_per_order, ..LOAD }.entity_kb();
    assert!((swept(5.0) / row_kb(5.0) * 5.0 - swept(1.0) / row_kb(1.0)).abs() < 1e-3);
    assert_eq!((row_kb(1.0), row_kb(9.0)), (ENTITY_KB + 3.0 * RECEIPT_KB, ENTITY_KB + ROW_RECEIPTS * RECEIPT_KB));
}

#[test]
fn group_settles_in_one_write() {
    let writes = |up_to| table_writes(Load { up_to, ..LOAD });
    assert_eq!(writes(1) - writes(3), 100_000.0 * 2.0);
    assert_eq!(writes(1) - writes(2), 100_000.0);
    assert_eq!(writes(25), writes(3));
}

#[test]
fn doubled_load_doubles_all_but_fixed_costs() {
    let twice = Load { per_day: 20_000.0, ..LOAD };
    let idle = Load { per_day: 0.0, ..LOAD };
    let bills = LOAD.bills().into_iter().zip(twice.bills()).zip(idle.bills());
    for (((bill, fixed), (twice, fixed_of_twice)), (idle, _)) in bills {
        assert!(fixed > 0.0 && fixed < bill.dollars(), "{}", bill.design);
        assert_eq!(fixed, fixed_of_twice, "{}", bill.design);
        // The sources are read at most once a minute, and a large table is swept less often.
        let others = |bill: &Bill| {
            bill.without_observation() - bill.dollars_for("KMS, sources read") - bill.dollars_for("sweep")
        };
        let growing = |bill: &Bill| others(bill) - others(&idle);
        assert!((growing(&twice) / growing(&bill) - 2.0).abs() < 0.02, "{}", bill.design);
    }
}

#[test]
fn only_this_projects_bill_includes_observability() {
    let [(ours, _), others @ ..] = LOAD.bills();
    assert!(ours.observation() > 0.0 && ours.without_observation() < ours.dollars());
    assert!(others.iter().all(|(bill, _)| bill.observation() == 0.0));
}

#[test]
fn free_tier_is_deducted_once() {
    let bill = LOAD.serializer();
    let free = |name: &str| bill.items.iter().find(|item| item.name == name).map(|item| item.free).unwrap();
    assert_eq!((free("ingest"), free("worker")), (bill.dollars_for("ingest"), bill.dollars_for("worker")));
    assert_eq!(free("table writes"), 0.0, "on demand has no free tier");
    // Ten metrics and ten alarms are free.
    assert!((free("metrics") - 10.0 * price::METRIC_MONTH).abs() < 1e-9);
    assert!((free("alarms") - 10.0 * price::ALARM_MONTH).abs() < 1e-9);
    // Items with the same unit share one free allowance.
    let many = Load { per_day: 1e6, burst: 1.0, ..LOAD }.serializer();
    let taken = many.items.iter().filter(|item| item.unit == "queue requests").map(|item| item.free).sum::<f64>();
    assert!((taken - 1e6 * price::SQS_REQUEST).abs() < 1e-9, "{taken}");
}

#[test]
fn customer_managed_key_is_billed_per_call() {
    let bill = Load { own_key: true, ..LOAD }.serializer();
    // Each of three functions uses the key for each of two tables every five minutes.
    assert_eq!(bill.dollars_for("KMS, tables"), 3.0 * 2.0 * 8_640.0 * price::KEY_REQUEST);
    let more = bill.dollars() - LOAD.serializer().dollars();
    assert!((more - price::KEY_MONTH - bill.dollars_for("KMS, tables")).abs() < 1e-9, "{more}");
}

#[test]
fn logs_contain_lambdas_lines_of_each_invocation() {
    let own = 300_000.0 * LOG_BYTES + MINUTES * SWEEP_LOG_BYTES;
    // Deliveries, bursts and minutes.
    let invocations = 300_000.0 + 60_000.0 + 43_200.0;
    let lines = LAMBDA_LINES.iter().map(|line| line.len() as f64 + 1.0).sum::<f64>();
    assert!((count_of(SHOP, "logs") * 1e9 - own - invocations * lines).abs() < 1.0);
    assert!(
        (1.5..2.5).contains(&(count_of(SHOP, "logs") * 1e9 / (300_000.0 * LOG_BYTES))),
        "about twice the own lines"
    );
}

#[test]
fn each_instance_reads_the_sources_once_a_minute() {
    // One instance of each function.
    assert_eq!(count_of(SHOP, "KMS, sources read"), 3.0 * MINUTES);
    // A thousand deliveries a second keep 15 instances of ingest busy, and 58 of the worker.
    let busy = Load { per_day: 86_400_000.0, ..SHOP };
    assert_eq!(count_of(busy, "KMS, sources read"), (15.0 + 58.0 + 1.0) * MINUTES);
}

/// `tests/end_to_end/alerts.rs` counts the units of a minute.
#[test]
fn alerts_cost_two_write_units_and_three_and_a_half_read_units_a_minute() {
    assert_eq!(count_of(SHOP, "alerts"), 2.0 * MINUTES);
    assert_eq!(count_of(SHOP, "  their looks"), 3.5 * MINUTES);
    let idle = Load { per_day: 0.0, ..SHOP };
    assert_eq!(
        alerts_dollars(&idle.serializer()),
        alerts_dollars(&SHOP.serializer()),
        "they do not grow with the load"
    );
}

fn alerts_dollars(bill: &Bill) -> f64 {
    bill.dollars_for("alerts") + bill.dollars_for("  their looks")
}

#[test]
fn place_of_sources_document_is_billed() {
    let more = |document| {
        let bill = |document| Load { document, ..SHOP }.serializer().dollars();
        bill(document) - bill(BilledDocument::Parameter)
    };
    assert!((more(BilledDocument::Advanced) - 0.05).abs() < 1e-9);
    // A dollar buys 200,000 reads.
    assert!((more(BilledDocument::Secret) - 0.40 - 3.0 * MINUTES / 200_000.0).abs() < 1e-9);
}

#[test]
fn figures_page_contains_the_current_bill() {
    let report = SHOP.report().text;
    let (table, rest) = report.split_once("\n\n").expect("a table");
    check_part(
        "docs/figures.md",
        "--body-kb 4` estimates a month:\n\n```\n",
        "\n```",
        &format!("{table}\n\n{}", rest.trim_end()),
    );
}

#[test]
fn pages_name_the_current_bill() {
    let [(ours, fixed), ..] = SHOP.bills();
    let records = ours.dollars_for("logs") + ours.dollars_for("metrics");
    let observability = dollars(ours.observation() - records - alerts_dollars(&ours));
    let said = format!(
        "{} a month for the core ({:.0} cents when idle). Logs and {} metrics cost ${}, observability ${observability}",
        dollars(ours.without_observation()),
        fixed * 100.0,
        count_of(SHOP, "metrics"),
        dollars(records),
    );
    check_part("docs/deploying.md", "no free tier) pays $", ". [Figures]", &said);
    check_part("docs/deploying.md", "This stack costs $", " a month, of which", &observability);
    check_part("docs/operating.md", "- **It costs** $", " a month", &dollars(alerts_dollars(&ours)));
    check_part("docs/operating.md", "The alarms need ", " metrics with one source", &(metrics() + 1.0).to_string());
}
