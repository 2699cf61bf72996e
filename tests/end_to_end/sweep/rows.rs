//! What the sweep does to single rows: abandoned leases, expiry and waiting deliveries.

use futures_util::FutureExt;
use tests::prelude::*;

use super::{DAY, SweepDeployment};

async fn held(world: &TestWorld, entity: &str, kind: LeaseKind) {
    world.acquire(entity, kind, Duration::from_secs(15)).await;
}

#[tokio::test(start_paused = true)]
async fn sweep_ends_an_abandoned_exclusive_lease() {
    let world = TestWorld::new();
    held(&world, "test/a", LeaseKind::Exclusive).await;
    let deployed = SweepDeployment::by(&world);
    // The holder may only be slow, so nothing happens until five minutes after the lease's end.
    tokio::time::advance(Duration::from_secs(15 + 299)).await;
    assert_eq!(world.sweeper().sweep_all().await.expect("it sweeps").woken, 0);
    assert_eq!(deployed.minutes(6..66).await.woken, 1);
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.state("test/a").await.held, None);
    tokio::time::advance(60 * DAY).await;
    let now = world.env.now().as_millis() / 1000;
    world.memory.purge(&TableName::Entities, |row| row.number(a::PURGE_AT).is_some_and(|at| at <= now));
    let left = world.memory.rows(&TableName::Entities);
    let left: Vec<_> = left.iter().filter_map(|row| row.text(a::ENTITY)).collect();
    assert_eq!(left, ["cron/sweep"], "only the job's own is kept");
}

/// If a worker took the lease over, the schedulers could not run the tick.
#[tokio::test(start_paused = true)]
async fn sweep_does_not_end_a_jobs_lease() {
    let world = TestWorld::new();
    held(&world, "cron/report", LeaseKind::Exclusive).await;
    tokio::time::advance(DAY).await;
    assert_eq!(world.sweeper().sweep_all().await.expect("it sweeps").woken, 0);
    let row = world.memory.rows(&TableName::Entities).remove(0);
    assert!(JobState::parse(&row).expect("it can be read").entity.held.is_some());
}

/// An operator or a worker may park a delivery while the sweep runs.
#[tokio::test(start_paused = true)]
async fn delivery_parked_during_a_sweep_never_expires() {
    let mut world = TestWorld::new();
    world.append_noise("test/a", "1", 1_500_000).await;
    tokio::time::advance(20 * DAY).await;
    let memory = world.memory.clone();
    let rows = AtomicU64::new(0);
    world.break_table(move |call: &TableCall<'_>| {
        let is_requeue = call.writes.iter().any(|write| write.key.table == TableName::Inbox);
        if is_requeue && rows.fetch_add(1, Relaxed) == 0 {
            for row in memory.rows(&TableName::Inbox) {
                let key = key_of(&TableName::Inbox, &row).expect("a row has a key");
                let parked = Write::update(key, vec![Change::remove(a::PURGE_AT)]);
                memory.write(&parked).now_or_never().expect("memory answers at once").expect("it takes it");
            }
        }
        Fault::None
    });
    world.sweeper().sweep_all().await.expect("it sweeps");
    let rows = world.memory.rows(&TableName::Inbox);
    assert!(rows.len() > 2 && rows.iter().all(|row| row.get(a::PURGE_AT).is_none()), "{} rows", rows.len());
}

/// Promise: waiting deliveries are kept as long as they wait, jobs' rows forever.
#[tokio::test(start_paused = true)]
async fn sweep_keeps_every_waiting_delivery() {
    let world = TestWorld::with("test/a", 0..130).await;
    tokio::time::advance(20 * DAY).await;
    assert_eq!(world.sweeper().sweep_all().await.expect("it sweeps").kept, 130);
}

#[tokio::test(start_paused = true)]
async fn age_of_oldest_waiting_delivery_ignores_blocked_orders() {
    let world = TestWorld::new();
    world.append_from("block", "test/blocked", "1").await;
    world.work(&[world.drainer(failing())]).await;
    for (entity, wait) in [("test/a", 100), ("test/b", 1000), ("test/c", 10)] {
        tokio::time::advance(Duration::from_secs(wait)).await;
        world.append(entity, "1").await;
    }
    assert_eq!(world.sweeper().sweep_all().await.expect("it sweeps").oldest, Duration::from_secs(1010));
}

#[tokio::test(start_paused = true)]
async fn sweep_extends_expiry_and_never_shortens_it() {
    let world = TestWorld::with("test/a", ["1"]).await;
    tokio::time::advance(20 * DAY).await;
    let end = || world.memory.rows(&TableName::Inbox)[0].number(a::PURGE_AT).expect("an end");
    let sweep = async || world.sweeper().sweep_all().await.expect("it sweeps").kept;
    let first = end();
    assert_eq!(sweep().await, 1);
    assert_eq!(end(), first + 20 * 86_400, "the whole retention from now on");
    assert_eq!(sweep().await, 0, "there is half of it left");
    tokio::time::advance(14 * DAY).await;
    assert_eq!(sweep().await, 0);
    tokio::time::advance(2 * DAY).await;
    assert_eq!(sweep().await, 1);
}
