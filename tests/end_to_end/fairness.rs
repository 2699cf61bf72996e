//! Nobody waits for an order for good: repeated callers leave turns to deliveries, deliveries leave turns to
//! callers, and a suspect starts despite the backlogs in its batch.

use tests::prelude::*;
use webhook_serializer::{leases::LeaseError, protocol::lease::LONGEST_TURN};

#[tokio::test(start_paused = true)]
async fn caller_reacquiring_lease_alternates_with_deliveries() {
    let world = TestWorld::new();
    let ids: Vec<String> = (0..20).map(|id| id.to_string()).collect();
    world.append_all("test/a", &ids).await;
    let leases = world.leases("a caller in a loop");
    let visits = async {
        for visits in 1..500 {
            let work = async |_| {
                world.env.sleep(Duration::from_millis(50)).await;
                Ok::<_, Infallible>(())
            };
            leases.run(&key("test/a"), Terms::default(), work).await.expect("its turn comes");
            if world.applied().len() == ids.len() {
                return visits;
            }
        }
        panic!("{} of {} deliveries got through between 500 visits", world.applied().len(), ids.len());
    };
    let drainers = [world.drainer(Slow(Duration::from_millis(10)))];
    let (visits, ()) = tokio::join!(visits, world.work(&drainers));
    assert_eq!(world.applied(), ids);
    assert!(visits <= ids.len() + 2, "{visits} visits");
}

#[tokio::test(start_paused = true)]
async fn second_lease_of_caller_waits_two_seconds_if_no_drain_begins() {
    let world = TestWorld::with("test/a", ["1"]).await;
    let leases = world.leases("a caller");
    let entity = key("test/a");
    let visit = |terms| leases.run(&entity, terms, async |_| Ok::<_, Infallible>(()));
    visit(Terms::default()).await.unwrap();
    let left = world.env.monotonic();
    let refused = leases.acquire(&entity, Terms::at_once()).await.unwrap_err();
    assert!(matches!(refused, LeaseError::Contended { .. }), "{refused}");
    visit(Terms::default()).await.unwrap();
    assert_eq!(world.env.monotonic() - left, LONGEST_TURN);
}

#[tokio::test(start_paused = true)]
async fn lease_caller_does_not_wait_for_deliveries_awaiting_retry() {
    let world = TestWorld::with("test/a", ["1"]).await;
    let fails = answering(|_, _| Outcome::retry_after(Duration::from_secs(600), "not yet"));
    assert_eq!(world.process(&world.drainer(fails), "test/a").await, Acknowledgement::Delete);
    let leases = world.leases("a caller");
    for _ in 0..3 {
        leases.run(&key("test/a"), Terms::at_once(), async |_| Ok::<_, Infallible>(())).await.expect("it is free");
    }
    for id in 0..2 {
        world.append("test/empty", &id.to_string()).await;
        world.work(&[world.drainer(Done)]).await;
        leases
            .run(&key("test/empty"), Terms::at_once(), async |_| Ok::<_, Infallible>(()))
            .await
            .expect("it is free, and nothing waits");
    }
}

/// One batch has an order whose holder died, and sixty orders with a minute of work each.
#[tokio::test(start_paused = true)]
async fn suspect_among_backlogs_starts_within_a_minute() {
    let mut world = TestWorld::new();
    world.function_time = Duration::from_secs(900);
    world.append("test/suspect", "suspect").await;
    let dying = world.drainer(Slow(Duration::from_secs(4)));
    let died = tokio::time::timeout(Duration::from_secs(1), world.process(&dying, "test/suspect")).await;
    assert!(died.is_err(), "it was at work");
    tokio::time::advance(2 * world.settings.lease).await;
    let backlogs: Vec<String> = (0..60).map(|number| format!("test/{number}")).collect();
    for entity in &backlogs {
        world.append_all(entity, (0..120).map(|id| format!("{entity} {id}"))).await;
    }
    let worker = world.worker(Slow(Duration::from_secs(1)));
    let began = world.env.monotonic();
    let records =
        backlogs.iter().map(|entity| record(entity, entity, "1")).chain([record("s", "test/suspect", "1")]).collect();
    worker.process(SqsEvent { records }, world.env.now() + world.function_time).await;
    let applied = world.journal.runs().into_iter().find(|run| run.delivery_id == "suspect" && run.attempt == 2);
    let waited = applied.expect("it ran").started - began;
    assert!(waited <= Duration::from_secs(60), "{waited:?}");
}
