//! Order and exclusion, as the handlers' own journal shows them; and that the
//! same runs show it when either is missing.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use serializer::{local::queue::Faults, view::audit::Sent};
use tests::{
    faults::{Call, Fault, FaultyQueue, FaultyTable},
    handlers::{FailsFirst, Slow},
    stage::Stage,
    unguarded::Unguarded,
};
use webhook_serializer::{
    aws::Parts,
    protocol::{format::attribute as a, keys::delivery_row, table::Action},
    telemetry::Log,
};

const TASK: Duration = Duration::from_millis(20);
const WORKERS: usize = 32;
const ORDERS: usize = 20;
const ROUNDS: usize = 10;

fn orders() -> Vec<String> {
    (1..=ORDERS).map(|number| format!("o{number}-")).collect()
}

/// Waits until all is applied, and judges: clean, after so many handler starts.
async fn assert_clean(stage: &mut Stage, sent: &[Sent], starts: usize) {
    stage.journal.until_applied(ORDERS * ROUNDS).await;
    stage.rest().await;
    let verdict = stage.verdict(sent);
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(stage.journal.runs().len(), starts);
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_two_workers_run_twenty_orders_in_order() {
    let mut stage = Stage::start().await;
    stage.work(WORKERS, &Slow(TASK));
    let sent = stage.burst(&orders(), ROUNDS, 1).await;
    assert_clean(&mut stage, &sent, ORDERS * ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transient_failures_keep_the_order() {
    let mut stage = Stage::start().await;
    stage.work(WORKERS, &FailsFirst(TASK));
    let sent = stage.burst(&orders(), ROUNDS, 1).await;
    assert_clean(&mut stage, &sent, ORDERS * ROUNDS + ORDERS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_sent_twice_runs_once() {
    let mut stage = Stage::start().await;
    stage.work(WORKERS, &Slow(TASK));
    let sent = stage.burst(&orders(), ROUNDS, 2).await;
    assert_clean(&mut stage, &sent, ORDERS * ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wake_up_sent_twice_starts_nothing_twice() {
    let mut stage = Stage::start().await;
    let twice = || stage.waker_on(FaultyQueue::copying(stage.queue(), stage.env(), ORDERS as u64 * ROUNDS as u64));
    let inbox = stage.inbox_on(stage.parts().store, twice());
    let drainers: Vec<_> =
        (0..WORKERS).map(|_| stage.drainer_on(stage.parts().store, twice(), Slow(TASK), Arc::new(Log))).collect();
    drainers.into_iter().for_each(|drainer| stage.feed(drainer));
    let sent = stage.burst_into(&inbox, &orders(), ROUNDS, 1).await;
    assert_clean(&mut stage, &sent, ORDERS * ROUNDS).await;
}

/// A queue hands a message out twice now and then: at once, to two workers,
/// until one of them deletes it. Here it does so with every second delivery.
#[tokio::test(flavor = "multi_thread")]
async fn wake_up_received_twice_starts_nothing_twice() {
    let mut stage = Stage::start_with(Faults { duplicate_every: NonZeroU32::new(2) }).await;
    stage.work(WORKERS, &Slow(TASK));
    let sent = stage.burst(&orders(), ROUNDS, 1).await;
    assert_clean(&mut stage, &sent, ORDERS * ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_lease_handlers_overlap() {
    let mut stage = Stage::start().await;
    for _ in 0..WORKERS {
        let Parts { store, waker, .. } = stage.parts();
        let store = stage.store_on(Unguarded::new(store.table().clone()));
        let drainer = stage.drainer_on(store, waker, Slow(TASK), Arc::new(Log));
        stage.feed(drainer);
    }
    let sent = stage.burst(&orders(), ROUNDS, 1).await;
    stage.journal.until_applied(ORDERS * ROUNDS).await;
    stage.rest().await;
    let verdict = stage.verdict(&sent);
    assert!(!verdict.overlaps.is_empty(), "{verdict}");
    assert!(!verdict.ran_ahead.is_empty(), "{verdict}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_put_is_reported_as_lost() {
    let mut stage = Stage::start().await;
    stage.settings.gap = Duration::from_millis(200);
    stage.work(WORKERS, &Slow(TASK));
    let dropped = stage.incoming("test/o3-", "o3-4");
    let drops = move |call: &Call<'_>| match call.writes {
        [write] => match &write.action {
            Action::Put(row)
                if row.text(a::DELIVERY_ID) == Some(dropped.identity.delivery_id.as_str())
                    && write.key.partition
                        == delivery_row(&dropped.entity, webhook_serializer::protocol::entity::Sequence(0))
                            .partition =>
            {
                Fault::Forgotten
            }
            _ => Fault::None,
        },
        _ => Fault::None,
    };
    let store = stage.store_on(FaultyTable::new(stage.table(), stage.env(), drops));
    let inbox = stage.inbox_on(store, stage.parts().waker);
    let sent = stage.burst_into(&inbox, &orders(), ROUNDS, 1).await;
    stage.journal.until_applied(ORDERS * ROUNDS - 1).await;
    stage.rest().await;
    assert_eq!(stage.verdict(&sent).lost, ["o3-4"]);
}
