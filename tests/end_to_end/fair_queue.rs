//! A shop with hundreds of waiting orders, beside shops with one order each.

use tests::{prelude::*, source, testbed::incoming};
use tokio::sync::watch;
use webhook_serializer::{config::StoreConfig, telemetry::TracingLog, time::Env};

const FLOOD: usize = 300;
const QUIET: usize = 50;

/// The number of orders that are appended concurrently.
const AT_ONCE: usize = 10;

/// Each worker has a batch of ten orders.
const WORKERS: usize = 4;
const AT_WORK: usize = 10 * WORKERS;

/// Returns the positions of the quiet shops' orders among all handler starts. When these orders arrive, all workers are
/// busy with the other shop's.
async fn positions_of_quiet_shops(fair_queue: bool) -> Vec<usize> {
    let mut bed = TestBed::start_for(source!("test", "handler_timeout = '50s'")).await;
    let config = StoreConfig { fair_queue, ..bed.engines.config() };
    let Parts { store, waker, .. } = Parts::connect(&bed.engines.account(), &config, bed.env(), None);
    let inbox = bed.inbox_on(store.clone(), waker.clone());
    let append = async |shop: String, order: usize| {
        let id = format!("{shop} {order}");
        let incoming = incoming("test", &format!("test/{shop}/order/{order}"), &id, Env::system().now());
        inbox.append(&incoming).await.expect("it is appended");
    };
    for orders in (0..FLOOD).collect::<Vec<_>>().chunks(AT_ONCE) {
        join_all(orders.iter().map(|order| append("flood.example".to_owned(), *order))).await;
    }
    let gate = watch::Sender::new(false);
    let handler = Scripted({
        let gate = gate.clone();
        move |_: &Delivery, _: &Context| {
            let mut gate = gate.subscribe();
            async move {
                gate.wait_for(|is_open| *is_open).await.expect("the test has it");
                Ok(Outcome::Done)
            }
        }
    });
    for _ in 0..WORKERS {
        let observer = Arc::new(TracingLog);
        let drainer = bed.drainer_on(store.clone(), waker.clone(), handler.clone(), observer);
        bed.feed(drainer);
    }
    bed.journal.until_started(AT_WORK).await;
    for shops in (0..QUIET).collect::<Vec<_>>().chunks(AT_ONCE) {
        join_all(shops.iter().map(|shop| append(format!("quiet-{shop}.example"), 1))).await;
    }
    gate.send_replace(true);
    bed.journal.until_applied(FLOOD + QUIET).await;
    bed.rest().await;
    let starts = bed.journal.starts();
    assert_eq!(starts.len(), FLOOD + QUIET);
    (0..starts.len()).filter(|position| starts[*position].as_str().starts_with("test/quiet-")).collect()
}

/// Workers start their batches concurrently, so a start may be off by all but one of the batches.
const SLACK: usize = AT_WORK - 10;

/// Promise: with `FairQueue`, messages carry their account's group, and a fair queue serves quiet accounts before
/// another's backlog.
#[tokio::test]
async fn quiet_shops_are_served_before_backlog_in_fair_queue() {
    let quiet = positions_of_quiet_shops(true).await;
    assert!(quiet[QUIET - 1] < AT_WORK + QUIET + SLACK, "{quiet:?}");
}

/// The control: with the same flood, a queue without groups serves the quiet shops last.
#[tokio::test]
async fn quiet_shops_wait_for_backlog_without_fair_queue() {
    let quiet = positions_of_quiet_shops(false).await;
    assert!(quiet[0] >= FLOOD - SLACK, "{quiet:?}");
}
