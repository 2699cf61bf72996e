//! An order is forgotten when a person asks: nothing of it is left, and what
//! comes afterwards begins anew.

use std::{sync::Arc, time::Duration};

use shared::{
    entity::EntityKey,
    handler::Outcome,
    operator::OperatorError,
    table::{Row, TableError, TableName},
};
use tests::{
    faults::{Call, Fault, FaultyTable},
    handlers::answering,
    world::World,
};

fn entity() -> EntityKey {
    EntityKey::parse("test/a").expect("a key")
}

fn rows(world: &World) -> Vec<Row> {
    [TableName::Entities, TableName::Inbox].iter().flat_map(|table| world.memory.rows(table)).collect()
}

/// One applied, one parked with a body in several rows, one of another order.
async fn handled() -> World {
    let world = World::new();
    world.append("test/a", "1").await;
    let mut long = world.incoming("test/a", "bad");
    let noise = || world.surroundings.fraction().to_bits().to_le_bytes();
    long.body = std::iter::repeat_with(noise).flatten().take(1_000_000).collect();
    world.inbox().append(&long).await.expect("it is appended");
    world.append("test/b", "2").await;
    let handler = answering(|delivery, _| match delivery.delivery_id().as_str() {
        "bad" => Outcome::Reject("bad".into()),
        _ => Outcome::Done,
    });
    world.work(&[world.drainer(handler)]).await;
    world
}

/// Handled, and an hour ago.
async fn long_handled() -> World {
    let world = handled().await;
    tokio::time::advance(Duration::from_secs(3_600)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn all_that_was_handled_and_parked_is_gone_and_other_orders_stay() {
    let world = long_handled().await;
    let before = world.state("test/a").await;
    world.operator().erase(&entity()).await.expect("it is erased");
    let left = rows(&world);
    // Its row, its delivery, its receipt.
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left.iter().all(|row| row.text("entity") == Some("test/b")));
    world.append("test/a", "1").await;
    assert!(world.state("test/a").await.tail > before.tail, "sequences never come twice");
    assert_eq!(world.operator().erase(&entity()).await, Err(OperatorError::InUse), "it waits");
}

#[tokio::test(start_paused = true)]
async fn what_waits_or_is_too_fresh_to_be_begun_anew_is_not_touched() {
    let world = handled().await;
    let before = rows(&world);
    assert_eq!(world.operator().erase(&entity()).await, Err(OperatorError::TooFresh));
    assert_eq!(rows(&world), before);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    world.append("test/a", "3").await;
    let before = rows(&world);
    assert_eq!(world.operator().erase(&entity()).await, Err(OperatorError::InUse));
    assert_eq!(rows(&world), before);
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_it_is_erased_is_kept() {
    let mut world = long_handled().await;
    // The row is gone, and the page is being read when a delivery arrives.
    let plan = |call: &Call<'_>| if call.request == 3 { Fault::Slow(Duration::from_millis(500)) } else { Fault::None };
    world.table = Arc::new(FaultyTable::new(world.memory.clone(), &world.surroundings, plan));
    let operator = world.operator();
    world.table = world.memory.clone();
    let late = async {
        world.surroundings.sleep(Duration::from_millis(100)).await;
        world.append("test/a", "3").await;
    };
    let entity = entity();
    let (erased, ()) = tokio::join!(operator.erase(&entity), late);
    erased.expect("it is erased");
    world.work(&[world.drainer(answering(|_, _| Outcome::Done))]).await;
    assert_eq!(world.applied().last().map(String::as_str), Some("3"));
}

#[tokio::test(start_paused = true)]
async fn asked_again_after_any_failure_it_goes_on() {
    let mut answered = 0;
    loop {
        let mut world = long_handled().await;
        let gone = TableError::Invalid("gone".into());
        let plan =
            move |call: &Call<'_>| if call.request > answered { Fault::Before(gone.clone()) } else { Fault::None };
        world.table = Arc::new(FaultyTable::new(world.memory.clone(), &world.surroundings, plan));
        let first = world.operator().erase(&entity()).await;
        world.table = world.memory.clone();
        world.operator().erase(&entity()).await.expect("it is erased");
        assert_eq!(rows(&world).len(), 3, "cut off after {answered} calls");
        if first.is_ok() {
            break;
        }
        answered += 1;
    }
    // The row read and deleted, a page, and a delete of each row and part.
    assert!(answered > 8, "{answered}");
}
