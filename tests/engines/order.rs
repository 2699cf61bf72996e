//! Order and exclusion, as the handlers' journal shows them; with negative controls.

use std::num::NonZeroU32;

use serializer::local::queue::QueueFaults;
use tests::{handlers::FailsFirst, leaseless::LeaselessTable, prelude::*};

const TASK: Duration = Duration::from_millis(20);
const WORKERS: usize = 32;
const ORDERS: usize = 20;
const ROUNDS: usize = 10;

fn orders() -> Vec<String> {
    (1..=ORDERS).map(|number| format!("o{number}-")).collect()
}

/// Waits until all deliveries are applied. Asserts that the journal shows no mistake and has this many
/// starts.
async fn assert_clean(testbed: &mut TestBed, sent: &[Sent], starts: usize) {
    testbed.journal.until_applied(ORDERS * ROUNDS).await;
    testbed.rest().await;
    let verdict = testbed.verdict(sent);
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(testbed.journal.runs().len(), starts);
}

/// Promise: sequence: a delivery answered first is settled first.
#[tokio::test(flavor = "multi_thread")]
async fn thirty_two_workers_run_deliveries_of_twenty_orders_in_order() {
    let mut testbed = TestBed::start().await;
    testbed.work(WORKERS, &Slow(TASK));
    let sent = testbed.burst(&orders(), ROUNDS, 1).await;
    assert_clean(&mut testbed, &sent, ORDERS * ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_stay_in_order_despite_transient_failures() {
    let mut testbed = TestBed::start().await;
    testbed.work(WORKERS, &FailsFirst(TASK));
    let sent = testbed.burst(&orders(), ROUNDS, 1).await;
    assert_clean(&mut testbed, &sent, ORDERS * ROUNDS + ORDERS).await;
}

/// Promise: once: a repeat is not applied.
#[tokio::test(flavor = "multi_thread")]
async fn delivery_sent_twice_runs_once() {
    let mut testbed = TestBed::start().await;
    testbed.work(WORKERS, &Slow(TASK));
    let sent = testbed.burst(&orders(), ROUNDS, 2).await;
    assert_clean(&mut testbed, &sent, ORDERS * ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wake_up_sent_twice_starts_each_delivery_once() {
    let mut testbed = TestBed::start().await;
    let twice =
        || testbed.waker_on(FaultyQueue::copying(testbed.queue(), testbed.env(), ORDERS as u64 * ROUNDS as u64));
    let inbox = testbed.inbox_on(testbed.parts().store, twice());
    let drainers: Vec<_> = (0..WORKERS)
        .map(|_| testbed.drainer_on(testbed.parts().store, twice(), Slow(TASK), Arc::new(TracingLog)))
        .collect();
    drainers.into_iter().for_each(|drainer| testbed.feed(drainer));
    let sent = testbed.burst_into(&inbox, &orders(), ROUNDS, 1).await;
    assert_clean(&mut testbed, &sent, ORDERS * ROUNDS).await;
}

/// The queue delivers every second message to two workers at once.
///
/// Promise: exclusion: one handler start holds the newest token.
#[tokio::test(flavor = "multi_thread")]
async fn wake_up_received_twice_starts_each_delivery_once() {
    let mut testbed = TestBed::start_with(QueueFaults { duplicate_every: NonZeroU32::new(2) }).await;
    testbed.work(WORKERS, &Slow(TASK));
    let sent = testbed.burst(&orders(), ROUNDS, 1).await;
    assert_clean(&mut testbed, &sent, ORDERS * ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_overlap_when_lease_checks_are_off() {
    let mut testbed = TestBed::start().await;
    for _ in 0..WORKERS {
        let Parts { store, waker, .. } = testbed.parts();
        let store = testbed.store_on(LeaselessTable::new(store.table().clone()));
        let drainer = testbed.drainer_on(store, waker, Slow(TASK), Arc::new(TracingLog));
        testbed.feed(drainer);
    }
    let sent = testbed.burst(&orders(), ROUNDS, 1).await;
    testbed.journal.until_applied(ORDERS * ROUNDS).await;
    testbed.rest().await;
    let verdict = testbed.verdict(&sent);
    assert!(!verdict.overlaps.is_empty(), "{verdict}");
    assert!(!verdict.ran_ahead.is_empty(), "{verdict}");
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_lost_to_dropped_put_is_reported() {
    let mut testbed = TestBed::start().await;
    testbed.settings.gap = Duration::from_millis(200);
    testbed.work(WORKERS, &Slow(TASK));
    let dropped = testbed.incoming("test/o3-", "o3-4");
    let drops = move |call: &TableCall<'_>| match call.writes {
        [write] => match &write.action {
            Action::Put(row)
                if row.text(a::DELIVERY_ID) == Some(dropped.identity.delivery_id.as_str())
                    && write.key.partition == delivery_row(&dropped.entity, Sequence(0)).partition =>
            {
                Fault::Forgotten
            }
            _ => Fault::None,
        },
        _ => Fault::None,
    };
    let store = testbed.store_on(FaultyTable::new(testbed.table(), testbed.env(), drops));
    let inbox = testbed.inbox_on(store, testbed.parts().waker);
    let sent = testbed.burst_into(&inbox, &orders(), ROUNDS, 1).await;
    testbed.journal.until_applied(ORDERS * ROUNDS - 1).await;
    testbed.rest().await;
    assert_eq!(testbed.verdict(&sent).lost, ["o3-4"]);
}
