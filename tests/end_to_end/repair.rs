//! Redrive, unblock and sweep. A delivery that waits for an operator, or whose wake-up was lost, is neither
//! lost nor applied twice.

use tests::prelude::*;
use webhook_serializer::{protocol::lease::TakeOver, telemetry::Swept};

const DAY: Duration = Duration::from_secs(86_400);

fn picky() -> impl Handler + Clone {
    answering(|delivery, _| match delivery.redrive() {
        0 if delivery.delivery_id().as_str().starts_with("bad") => Outcome::Reject("not now".into()),
        _ => Outcome::Done,
    })
}

/// Lets a day pass: rows expire and, if `swept`, the sweep runs.
async fn a_day_passes(world: &TestWorld, swept: bool) {
    tokio::time::advance(DAY).await;
    if swept {
        world.sweeper().sweep_all().await.expect("it sweeps");
    }
    let now = world.env.now().as_millis() / 1000;
    for table in [TableName::Inbox, TableName::Entities] {
        world.memory.purge(&table, |row| row.number(a::PURGE_AT).is_some_and(|at| at <= now));
    }
}

#[tokio::test(start_paused = true)]
async fn redriven_delivery_is_applied_once_in_order() {
    let world = TestWorld::with("test/a", ["1", "bad", "2"]).await;
    let drainers = [world.drainer(picky()), world.drainer(picky())];
    world.work(&drainers).await;
    let operator = world.operator();
    let parked = operator.parked(&entity()).await.unwrap();
    assert_eq!(parked.len(), 1);
    assert_eq!((parked[0].delivery().delivery_id().as_str(), &*parked[0].error), ("bad", "not now"));
    let (first, second, ..) = tokio::join!(
        operator.redrive(&parked[0], None),
        operator.redrive(&parked[0], None),
        async {
            world.append_all("test/a", ["3", "4"]).await;
        },
        world.work(&drainers),
    );
    assert_eq!(first.map(|_| ()), Ok(()));
    assert!(matches!(second, Ok(_) | Err(OperatorError::NotParked)), "{second:?}");
    world.work(&drainers).await;
    assert_eq!(operator.redrive(&parked[0], None).await, Err(OperatorError::NotParked));
    world.work(&drainers).await;

    assert!(operator.parked(&entity()).await.unwrap().is_empty());
    let mut applied = world.applied();
    assert_eq!(applied[..2], ["1", "2"]);
    applied.sort();
    assert_eq!(applied, ["1", "2", "3", "4", "bad"]);
    let runs = world.journal.runs();
    assert!(runs.is_sorted_by(|a, b| a.sequence < b.sequence), "in the order of their places");
    assert!(runs.is_sorted_by(|a, b| a.token < b.token));
    world.append("test/a", "bad").await;
    world.work(&drainers).await;
    assert_eq!(world.applied().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn waiting_deliveries_are_counted_by_source() {
    let world = TestWorld::new();
    for (entity, id) in [("test/a", "1"), ("test/a", "bad"), ("test/applied", "1")] {
        world.append(entity, id).await;
    }
    world.work(&[world.drainer(picky())]).await;
    for (source, entity) in [("test", "test/a"), ("test", "test/a"), ("test", "test/b"), ("block", "test/b")] {
        let id = world.env.nonce().to_string();
        world.append_from(source, entity, &id).await;
    }
    let waiting = world.operator().waiting_of(&SourceName::parse("test").unwrap()).await.unwrap();
    let b = key("test/b");
    assert_eq!(waiting, [(entity(), 2), (b, 1)].into());
}

#[derive(Clone, Default)]
struct Bodies(Arc<Mutex<Vec<bytes::Bytes>>>);

impl Handler for Bodies {
    async fn handle(&self, delivery: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
        self.0.lock().expect("no panic under the lock").push(delivery.body().clone());
        Ok(Outcome::Done)
    }
}

fn large(world: &TestWorld) -> bytes::Bytes {
    noise(&world.env, 1_500_000).into()
}

#[tokio::test(start_paused = true)]
async fn deliveries_of_blocked_order_outlive_the_retention() {
    let world = TestWorld::new();
    let body = large(&world);
    for id in ["1", "2", "3"] {
        let mut incoming = world.incoming_from("block", "test/a", id);
        if id == "2" {
            incoming.body = body.clone();
        }
        world.inbox().append(&incoming).await.unwrap();
    }
    world.work(&[world.drainer(failing())]).await;
    assert_eq!(world.state("test/a").await.blocked, Some(BlockReason::Attempts));
    for _ in 0..100 {
        a_day_passes(&world, true).await;
        assert!(world.messages.is_empty(), "a blocked entity is not woken");
    }
    let bodies = Bodies::default();
    assert!(matches!(world.operator().unblock(&entity()).await, Ok(Unblocked::Ended(_))));
    world.work(&[world.drainer(bodies.clone())]).await;
    assert_eq!(world.applied(), ["1", "2", "3"]);
    assert!(bodies.0.lock().unwrap()[1] == body, "the large one is whole");
}

/// Negative control: without the sweep the deliveries expire. Their order then blocks instead of skipping
/// them.
#[tokio::test(start_paused = true)]
async fn deliveries_deleted_by_expiry_block_the_order() {
    let world = TestWorld::new();
    world.append_all_from("block", "test/a", ["1", "2"]).await;
    world.work(&[world.drainer(failing())]).await;
    for _ in 0..31 {
        a_day_passes(&world, false).await;
    }
    world.operator().unblock(&entity()).await.unwrap();
    world.work(&[world.drainer(Done)]).await;
    assert!(world.applied().is_empty());
    let state = world.state("test/a").await;
    assert_eq!((state.blocked, state.waiting()), (Some(BlockReason::Expired), 2));
    for _ in 0..2 {
        world.operator().unblock(&entity()).await.unwrap();
        world.work(&[world.drainer(Done)]).await;
    }
    world.append("test/a", "3").await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["3"]);
}

/// Promise: parked deliveries stay redrivable until decided, or for `ParkedRetentionDays`.
#[tokio::test(start_paused = true)]
async fn parked_delivery_is_kept_until_redriven() {
    set_aside_it_is_kept(async |world| world.work(&[world.drainer(picky())]).await).await;
}

#[tokio::test(start_paused = true)]
async fn skipped_delivery_is_kept_until_redriven() {
    let skip = async |world: &TestWorld| {
        let next = world.state("test/a").await.next();
        world.operator().skip(&entity(), next).await.expect("memory answers");
    };
    set_aside_it_is_kept(skip).await;
}

async fn set_aside_it_is_kept(set_aside: impl AsyncFn(&TestWorld)) {
    let world = TestWorld::new();
    let body = large(&world);
    let mut incoming = world.incoming("test/a", "bad");
    incoming.body = body.clone();
    world.inbox().append(&incoming).await.unwrap();
    set_aside(&world).await;
    for _ in 0..100 {
        a_day_passes(&world, true).await;
    }
    let parked = world.operator().parked(&entity()).await.unwrap();
    world.operator().redrive(&parked[0], None).await.unwrap();
    let bodies = Bodies::default();
    world.work(&[world.drainer(bodies.clone())]).await;
    assert!(*bodies.0.lock().unwrap() == [body]);
    assert!(
        world.memory.rows(&TableName::Inbox).iter().all(|row| row.number(a::PURGE_AT).is_some()),
        "nothing is left over"
    );
}

#[tokio::test(start_paused = true)]
async fn sweep_finds_a_delivery_without_wake_up() {
    let mut world = TestWorld::new();
    let queue = world.queue.clone();
    world.break_queue(|_| Fault::Before(TableError::Throttled));
    let appended = world.inbox().append(&world.incoming("test/a", "1")).await.unwrap();
    assert!(appended.wake_up_failed.is_some());
    world.queue = queue;
    let sweep = async || world.sweeper().sweep_all().await.unwrap();
    let oldest = world.env.monotonic();
    let early = Swept { seen: 1, oldest, ..Swept::default() };
    assert_eq!(sweep().await, early, "its wake-up may still be on its way");
    tokio::time::advance(Duration::from_secs(301)).await;
    assert_eq!(sweep().await, Swept { woken: 1, oldest: oldest + Duration::from_secs(301), ..early });
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1"]);
    assert_eq!(sweep().await, Swept { seen: 1, ..Swept::default() }, "there is nothing to wake any more");
}

#[tokio::test(start_paused = true)]
async fn sweep_ends_an_abandoned_drain_lease() {
    let world = TestWorld::with("test/a", ["1"]).await;
    world.work(&[world.drainer(Done)]).await;
    // A drain takes over an expired exclusive lease even if the inbox is empty.
    let request = |kind| world.lease_request("test/a", kind, Duration::from_secs(15));
    let patience = Duration::from_secs(1);
    world.store().run(&request(LeaseKind::Exclusive), patience).await.unwrap();
    tokio::time::advance(Duration::from_secs(20)).await;
    let dead = TakeOver { request: request(LeaseKind::Drain), seen: world.state("test/a").await };
    assert!(matches!(world.store().run(&dead, patience).await.unwrap(), Acquired::Granted(..)));
    tokio::time::advance(Duration::from_secs(301)).await;
    let seen = Swept { seen: 1, ..Swept::default() };
    assert_eq!(world.sweeper().sweep_all().await.unwrap(), Swept { woken: 1, ..seen });
    world.work(&[world.drainer(Done)]).await;
    assert_eq!((world.state("test/a").await.held, world.applied()), (None, vec!["1".to_owned()]));
    assert_eq!(world.sweeper().sweep_all().await.unwrap(), seen);
    tokio::time::advance(60 * DAY).await;
    a_day_passes(&world, true).await;
    assert!(world.memory.rows(&TableName::Entities).is_empty());
}

#[tokio::test(start_paused = true)]
async fn redrive_with_failed_wake_up_is_found_by_sweep() {
    let mut world = TestWorld::with("test/a", ["bad"]).await;
    world.work(&[world.drainer(picky())]).await;
    let queue = world.queue.clone();
    world.break_queue(|_| Fault::Silent);
    let parked = world.operator().parked(&entity()).await.unwrap();
    assert!(matches!(world.operator().redrive(&parked[0], None).await, Err(OperatorError::Queue(_))));
    world.queue = queue;
    tokio::time::advance(Duration::from_secs(301)).await;
    world.sweeper().sweep_all().await.unwrap();
    world.work(&[world.drainer(picky())]).await;
    assert_eq!(world.applied(), ["bad"]);
}
