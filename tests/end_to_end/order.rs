//! Order and exclusion, as the handlers' own journal shows them.

use std::time::Duration;

use tests::{
    handlers::{FailsFirst, Slow},
    stage::Stage,
};

const TASK: Duration = Duration::from_millis(20);
const WORKERS: usize = 32;
const ORDERS: usize = 20;
const ROUNDS: usize = 10;

fn orders() -> Vec<String> {
    (1..=ORDERS).map(|number| format!("o{number}-")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_deliveries_of_twenty_orders_run_in_order_on_thirty_two_workers() {
    let mut stage = Stage::start().await;
    stage.work(WORKERS, &Slow(TASK));
    let sent = stage.burst(&orders(), ROUNDS, 1).await;
    stage.journal.until_applied(ORDERS * ROUNDS).await;
    stage.rest().await;
    let verdict = stage.verdict(&sent);
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(stage.journal.runs().len(), ORDERS * ROUNDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transient_failure_of_every_first_delivery_changes_no_order() {
    let mut stage = Stage::start().await;
    stage.work(WORKERS, &FailsFirst(TASK));
    let sent = stage.burst(&orders(), ROUNDS, 1).await;
    stage.journal.until_applied(ORDERS * ROUNDS).await;
    stage.rest().await;
    let verdict = stage.verdict(&sent);
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(stage.journal.runs().len(), ORDERS * ROUNDS + ORDERS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_sent_twice_runs_once() {
    let mut stage = Stage::start().await;
    stage.work(WORKERS, &Slow(TASK));
    let sent = stage.burst(&orders(), ROUNDS, 2).await;
    stage.journal.until_applied(ORDERS * ROUNDS).await;
    stage.rest().await;
    let verdict = stage.verdict(&sent);
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(stage.journal.runs().len(), ORDERS * ROUNDS);
}
