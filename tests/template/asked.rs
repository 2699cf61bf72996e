//! Runs every function through all that it can do, and records the permissions that it asks for.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tests::{handlers::answering, source, world::TestWorld};
use webhook_serializer::{
    alerts::{Alerting, AlertsDocument, DeploymentNaming},
    handler::{self, Isolation},
    jobs::{Context, Job, JobError, Jobs, Outcome, Ticker, switch::Switch},
    protocol::{
        entity::EntityKey,
        inbox::Claim,
        keys::WatchReason,
        lease::{Acquire, Acquired, MarkHandOver},
        maintain::Watch,
        state::{HolderInfo, LeaseKind},
    },
    sources::{LiveSources, Sources},
    time::Timestamp,
};

use crate::grants::{AskedByFunctions, RequestedGrants};

const PATIENCE: Duration = Duration::from_secs(1);

/// Returns an incompressible body that is longer than one row.
fn in_parts(world: &TestWorld) -> Vec<u8> {
    let noise = || world.env.fraction().to_bits().to_le_bytes();
    std::iter::repeat_with(noise).flatten().take(1_000_000).collect()
}

/// Runs every path of each function under a paused clock, and returns the permissions used. The checks
/// compare them with the roles, in both directions.
pub async fn asked() -> AskedByFunctions {
    let mut world = TestWorld::new();
    let memory = world.table.clone();
    let messages = world.messages.clone();
    let acting_as = |world: &mut TestWorld, asked: &RequestedGrants| {
        world.table = asked.of_table(memory.clone());
        let queue = asked.of_queue(messages.clone());
        (world.queue, world.visibility, world.depth) = (queue.clone(), queue.clone(), queue);
    };
    let entity = EntityKey::parse("test/order/1").unwrap();
    let [ingest, worker, scheduler] = [(); 3].map(|()| RequestedGrants::default());

    acting_as(&mut world, &ingest);
    let mut order = world.incoming("test/order/1", "1");
    order.provider = Some("shopify".into());
    order.topic = "orders/paid".into();
    order.body = r#"{"id":1,"currency":"USD","total_price":"48.20","financial_status":"paid"}"#.into();
    world.inbox().append(&order).await.unwrap();
    // The handler rejects the delivery, and the worker parks it with all its parts.
    let mut rejected = world.incoming("test/order/1", "2");
    rejected.provider = Some("shopify".into());
    rejected.topic = "orders/paid".into();
    rejected.body = in_parts(&world).into();
    world.inbox().append(&rejected).await.unwrap();
    // An ingest claims a sequence and dies, so that the worker has to write a tombstone.
    let nonce = world.env.nonce();
    let claim = Claim { entity: &entity, nonce: &nonce, now: world.env.now() };
    world.store().run(&claim, PATIENCE).await.unwrap();

    // Another worker is about to hand the order over, so that this one looks, waits and requeues its wake-up.
    let held = Acquire {
        entity: entity.clone(),
        kind: LeaseKind::Drain,
        holder: world.env.nonce(),
        info: HolderInfo::new("another worker"),
        now: world.env.now(),
        length: Duration::from_secs(12),
    };
    let Acquired::Granted(lease, _) = world.store().run(&held, PATIENCE).await.unwrap() else { panic!("it is free") };
    world.store().run(&MarkHandOver { lease: &lease }, PATIENCE).await.unwrap();
    acting_as(&mut world, &worker);
    let rejects_long_bodies = answering(|delivery, _| match delivery.body().len() {
        ..1_000 => handler::Outcome::Done,
        _ => handler::Outcome::Reject("too long".into()),
    });
    world.feed(&[world.worker(rejects_long_bodies)], 1, &AtomicBool::new(true)).await;
    let settled = world.state("test/order/1").await;
    assert!(settled.is_empty() && settled.held.is_none(), "{settled:?}");
    let mut asked = worker.so_far();
    // The event source takes these actions under the worker's role.
    for action in ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"] {
        asked.insert((action.into(), "WakeUps".into()));
    }

    // A delivery has waited for longer than half the retention, and its wake-up is lost.
    world.append("test/order/2", "3").await;
    world.messages.clear();
    world.env.sleep(world.settings.retention * 2 / 3).await;
    let nonce = world.env.nonce();
    let entity = EntityKey::parse("test/order/3").unwrap();
    let owed = Watch { reason: WatchReason::Owed, entity: &entity, nonce: &nonce, purge_at: world.env.now() };
    world.store().run(&owed, PATIENCE).await.unwrap();
    acting_as(&mut world, &scheduler);
    let swept = world.sweeper().sweep_all().await.unwrap();
    assert_eq!((swept.woken, swept.kept), (1, 1));
    let (swept, ended) = world.sweeper().go_on(world.env.now(), Duration::MAX).await;
    assert_eq!((swept.owed, ended), (1, Ok(())));
    // The job crashed once, so that a later invocation takes it over, commits and records the tick.
    let store = world.store();
    let first = world.env.now().as_millis() / 60_000 * 60;
    let invoked = async |minute: u64, jobs: Jobs| {
        let ticker = Ticker::new(store.clone(), &jobs, Duration::from_secs(300), &Switch::On, HolderInfo::new("test"));
        let ticker = ticker.unwrap().isolated(Isolation::Inline);
        let scheduled = Timestamp::from_secs(first + minute * 60);
        ticker.tick(scheduled, world.env.monotonic() + Duration::from_secs(50)).await.unwrap()
    };
    let hangs = Job::new("report", "every minute", |_: Context| std::future::pending::<Result<(), JobError>>());
    let crashed = world.env.within(Duration::from_secs(5), invoked(0, Jobs::new().add(hangs))).await;
    assert!(crashed.is_none());
    world.env.sleep(Duration::from_secs(300)).await;
    let job = Job::new("report", "every minute", async |_: Context| Ok::<_, JobError>(Outcome::Commit(Vec::new())));
    invoked(1, Jobs::new().add(job)).await;
    let sources = format!("[alerts]\nto = 'https://hooks.slack.com/x'\n{}", source!("shop"));
    let sources = LiveSources::fixed(Arc::new(Sources::parse(&sources).unwrap()));
    let document = AlertsDocument::opened(sources, world.env.clone(), world.events.clone());
    let deployment = DeploymentNaming { name: "test".to_owned(), option: String::new() };
    let alerting = Alerting::new(world.operator(), world.store(), document, deployment);
    // It finds the parked delivery, and records it.
    alerting.run(world.env.now()).await.unwrap();
    AskedByFunctions { ingest: ingest.so_far(), worker: asked, scheduler: scheduler.so_far() }
}
