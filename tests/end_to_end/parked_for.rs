//! Parked deliveries are kept until an operator decides, or for the configured time.

use tests::prelude::*;
use webhook_serializer::protocol::keys::is_parked;

const DAY: Duration = Duration::from_secs(86_400);

const KEPT: Duration = Duration::from_secs(60 * 86_400);

/// Parks three deliveries: one by a worker, one by an operator, and one by a restore. Returns each one's
/// order and the time at which it was parked.
async fn set_aside(kept: Option<Duration>) -> (TestWorld, [(EntityKey, Timestamp); 3]) {
    let mut world = TestWorld::new();
    world.settings.parked_retention = kept;
    let orders = ["test/worker", "test/person", "test/restore"];
    let mut at = Vec::new();
    for order in orders {
        world.append_noise(order, order, 800_000).await;
        world.messages.clear();
    }
    let rejects = world.drainer(answering(|_, _| Outcome::Reject("never".into())));
    world.waker().wake(&key("test/worker"), Duration::ZERO, DAY).await.expect("it is woken");
    world.work(&[rejects]).await;
    at.push(world.env.now());
    world.env.sleep(DAY).await;
    let operator = world.operator();
    let place = world.state("test/person").await.next();
    let skipped = operator.skip(&key("test/person"), place).await.expect("it answers");
    assert_eq!(skipped, SkipOutcome::As(Settlement::Parked));
    at.push(world.env.now());
    world.env.sleep(DAY).await;
    let NextRestore::GoOn(restoring) = operator.begin_restore(world.env.now()).await.expect("it answers") else {
        panic!("no restore before");
    };
    operator.restore(&restoring, &key("test/restore"), false).await.expect("it is restored");
    at.push(world.env.now());
    let mut told = orders.into_iter().map(key).zip(at);
    let told = std::array::from_fn(|_| told.next().expect("three"));
    (world, told)
}

fn parked(world: &TestWorld, order: &EntityKey) -> Vec<Row> {
    let rows = world.memory.rows(&TableName::Inbox).into_iter();
    rows.filter(|row| is_parked(row) && row.text(a::ENTITY) == Some(order.as_str())).collect()
}

/// Returns the rows of body parts, which have a body and no nonce.
fn parts(world: &TestWorld) -> Vec<Row> {
    let rows = world.memory.rows(&TableName::Inbox).into_iter();
    rows.filter(|row| row.get(a::BODY).is_some() && row.get(a::NONCE).is_none()).collect()
}

fn end(row: &Row) -> Option<Timestamp> {
    row.number(a::PURGE_AT).map(Timestamp::from_secs)
}

#[tokio::test(start_paused = true)]
async fn parked_delivery_never_expires_by_default() {
    let (world, aside) = set_aside(None).await;
    for (order, _) in aside {
        let [parked] = &parked(&world, &order)[..] else { panic!("one of {order}") };
        assert_eq!(end(parked), None, "{order}");
        let [told] = &world.operator().parked(&order).await.expect("it answers")[..] else { panic!("one of {order}") };
        assert_eq!(told.kept_until, None);
    }
    let parts = parts(&world);
    assert!(parts.len() >= 9 && parts.iter().all(|part| end(part).is_none()), "{}", parts.len());
}

#[tokio::test(start_paused = true)]
async fn parked_delivery_expires_after_parked_retention() {
    let (world, aside) = set_aside(Some(KEPT)).await;
    let mut ends = Vec::new();
    for (order, at) in &aside {
        let [parked] = &parked(&world, order)[..] else { panic!("one of {order}") };
        let until = end(parked).expect("it has an end");
        assert!((KEPT - DAY / 24..=KEPT + DAY / 24).contains(&until.since(*at)), "{order} until {until}");
        let [told] = &world.operator().parked(order).await.expect("it answers")[..] else { panic!("one of {order}") };
        assert_eq!(told.kept_until, Some(until));
        ends.push(until);
    }
    let of_parts: Vec<Timestamp> = parts(&world).iter().map(|part| end(part).expect("it has an end")).collect();
    assert!(of_parts.len() >= 9, "{} of three bodies", of_parts.len());
    // A part must outlive its delivery, even though TTL may delete either one days late.
    let least = |until: &Timestamp| of_parts.iter().filter(|end| **end >= *until + 2 * DAY).count();
    assert_eq!(ends.iter().map(least).min(), Some(of_parts.len()), "{of_parts:?}, {ends:?}");

    world.env.sleep(KEPT - 3 * DAY).await;
    let purge = || world.memory.purge(&TableName::Inbox, |row| end(row).is_some_and(|end| end < world.env.now()));
    purge();
    let list: Vec<_> = world.operator().all_parked().await.expect("it answers");
    let list: Vec<_> = list.iter().map(|one| (one.delivery().entity().clone(), one.sequence)).collect();
    let mut became = Vec::new();
    let is_third = |order: &EntityKey| *order == aside[2].0;
    let first_two: Vec<_> = list.iter().filter(|(order, _)| !is_third(order)).cloned().collect();
    let operator = world.operator();
    operator
        .redrive_all(&first_two, |_, _, what| {
            became.push(what.is_ok());
            true
        })
        .await
        .expect("it answers");
    assert_eq!((list.len(), became), (3, vec![true, true]));
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied().len(), 2, "whole, with all their parts");

    world.env.sleep(20 * DAY).await;
    purge();
    assert_eq!(world.operator().all_parked().await.expect("it answers").len(), 0, "the third was not decided in time");
    world.append("test/restore", "later").await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied().last().map(String::as_str), Some("later"), "its order continues");
}
