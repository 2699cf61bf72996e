//! Erase removes everything of an order except its numbers, and nothing that arrives in the meantime.

use serde_json::Value;
use tests::prelude::*;
use webhook_serializer::{handlers::event::Document, protocol::inbox::PutOutcome, time::Nonce};

const DAY: Duration = Duration::from_secs(86_400);
const PATIENCE: Duration = Duration::from_secs(1);

fn rows(world: &TestWorld) -> Vec<Row> {
    [TableName::Entities, TableName::Inbox].iter().flat_map(|table| world.memory.rows(table)).collect()
}

fn left(world: &TestWorld, entity: &str) -> Vec<Row> {
    rows(world).into_iter().filter(|row| row.text(a::ENTITY).is_some_and(|key| key.starts_with(entity))).collect()
}

fn picky() -> impl Handler + Clone {
    answering(|delivery, _| match delivery.delivery_id().as_str() {
        "bad" => Outcome::Reject("bad".into()),
        _ => Outcome::Done,
    })
}

/// Returns a world with one applied delivery, one parked one with a large body, and one of another order.
async fn handled() -> TestWorld {
    let world = TestWorld::new();
    world.append_event("test/a", "1", world.env.now()).await;
    world.append_noise("test/a", "bad", 1_000_000).await;
    world.append("test/b", "2").await;
    world.work(&[world.drainer(picky())]).await;
    world
}

/// Promise: `erase` deletes an order's data only; webhooks sent again keep their `webhook-id`.
#[tokio::test(start_paused = true)]
async fn erase_removes_one_order_only() {
    let world = handled().await;
    let before = world.state("test/a").await;
    let other = left(&world, "test/b");
    // The rows of two deliveries, the parked one, and the receipts in the order's row.
    assert_eq!(world.operator().erase(&entity()).await, Ok(Erased::Numbers { rows: 4 }));
    let numbers = left(&world, "test/a");
    let [numbers] = &*numbers else { panic!("{numbers:?}") };
    let names: Vec<&str> = numbers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, [a::ENTITY, a::HEAD, a::LAST_CLAIM, a::PURGE_AT, a::TAIL, a::TOKEN, a::VERSION]);
    assert_eq!(left(&world, "test/b"), other);
    world.append("test/a", "1").await;
    assert_eq!(world.operator().erase(&entity()).await, Err(OperatorError::InUse), "it waits");
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1", "2", "1"]);
    let after = world.state("test/a").await;
    assert!(after.tail > before.tail && after.token > before.token, "neither comes twice");
}

#[tokio::test(start_paused = true)]
async fn row_of_erased_order_expires_after_a_day() {
    let world = handled().await;
    let ahead = world.env.now() + Duration::from_secs(3_600);
    let nonce = world.env.nonce();
    let other = key("test/c");
    world.store().run(&Claim { entity: &other, nonce: &nonce, now: ahead }, PATIENCE).await.expect("it is claimed");
    world.append("test/c", "3").await;
    world.work(&[world.drainer(Done)]).await;
    for key in [entity(), other] {
        world.operator().erase(&key).await.expect("it is erased");
        let newest = world.state(key.as_str()).await.token.0.max(world.env.now().as_millis());
        let row =
            &world.memory.rows(&TableName::Entities).into_iter().find(|row| row.text(a::ENTITY) == Some(key.as_str()));
        let due = row.as_ref().and_then(|row| row.number(a::PURGE_AT)).expect("it expires");
        assert_eq!(due, (newest + DAY.as_millis() as u64).div_ceil(1000), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn row_of_a_job_never_expires() {
    let world = TestWorld::new();
    let job = key("cron/nightly");
    let run = world.leases("a scheduler").acquire(&job, Terms::at_once()).await.expect("it is free");
    run.release().await.expect("it is released");
    assert_eq!(world.operator().erase(&job).await, Err(OperatorError::IsAJob));
    let [row] = &*world.memory.rows(&TableName::Entities) else { panic!("one row") };
    assert_eq!(row.get(a::PURGE_AT), None);
}

#[tokio::test(start_paused = true)]
async fn erase_of_nothing_says_so() {
    let world = handled().await;
    assert_eq!(world.operator().erase(&key("test/none")).await, Err(OperatorError::Unknown));
    for rows in [4, 0] {
        assert_eq!(world.operator().erase(&entity()).await, Ok(Erased::Numbers { rows }));
    }
}

/// A receiver that remembers applied ids recognises the webhook as a repeat.
#[tokio::test(start_paused = true)]
async fn webhook_sent_again_after_erase_keeps_webhook_id() {
    let world = TestWorld::new();
    let ids = Arc::new(Mutex::new(Vec::new()));
    let known = ids.clone();
    let handler = answering(move |delivery, _| {
        let event: Value =
            serde_json::from_slice(&Document::new(&[delivery], FencingToken(1)).json()).expect("it is JSON");
        known.lock().unwrap().push(event["deliveries"][0]["id"].clone());
        Outcome::Done
    });
    for _ in 0..2 {
        world.append("test/a", "1").await;
        world.work(&[world.drainer(handler.clone())]).await;
        world.operator().erase(&entity()).await.expect("it is erased");
    }
    let ids = ids.lock().unwrap().clone();
    assert_eq!((ids.len(), &ids[0]), (2, &ids[1]));
}

/// Promise: `erase` refuses while a delivery waits or runs; a delivery that arrives during it stays.
#[tokio::test(start_paused = true)]
async fn order_with_lease_or_waiting_delivery_is_not_erased() {
    let world = handled().await;
    world.append("test/a", "3").await;
    let before = rows(&world);
    assert_eq!(world.operator().erase(&entity()).await, Err(OperatorError::InUse));
    assert_eq!(rows(&world), before);
    world.work(&[world.drainer(Done)]).await;
    let held = world.leases("somebody").acquire(&entity(), Terms::at_once()).await.expect("it is free");
    let before = rows(&world);
    assert_eq!(world.operator().erase(&entity()).await, Err(OperatorError::InUse));
    assert_eq!(rows(&world), before);
    held.release().await.expect("it is released");
    assert!(matches!(world.operator().erase(&entity()).await, Ok(Erased::Numbers { .. })));
}

#[tokio::test(start_paused = true)]
async fn erase_removes_rows_beyond_the_first_page() {
    let world = TestWorld::with("test/a", 0..120).await;
    world.work(&[world.drainer(Done)]).await;
    let capacity = Recent::capacity(&entity()) as u64;
    let pages = (120 - capacity).div_ceil(capacity);
    assert_eq!(world.operator().erase(&entity()).await, Ok(Erased::Numbers { rows: 120 + pages + 1 }));
    assert_eq!(left(&world, "test/a").len(), 1);
}

/// Without the tombstone, the put would land behind `head`: it would be answered 2xx and never handled.
#[tokio::test(start_paused = true)]
async fn late_put_after_erase_is_refused_by_tombstone() {
    let world = TestWorld::new();
    let (place, nonce) = world.claim("test/a").await;
    world.append("test/a", "2").await;
    world.work(&[world.drainer(Done)]).await;
    assert!(matches!(world.operator().erase(&entity()).await, Ok(Erased::Numbers { .. })));
    let purge_at = world.env.now() + 30 * DAY;
    let envelope = Envelope::pack(&world.incoming("test/a", "late"), &nonce, purge_at);
    let put = Put { envelope: &envelope, sequence: place };
    assert_eq!(world.store().run(&put, PATIENCE).await, Ok(PutOutcome::Voided));
    world.append("test/a", "late").await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["2", "late"]);
}

/// The erase is stopped before each of its calls in turn. The order's row has expired or has not.
#[tokio::test(start_paused = true)]
async fn delivery_parked_during_an_erase_is_kept() {
    let unrouted = key("test/unrouted");
    for has_row in [true, false] {
        for stop in 2.. {
            let mut world = TestWorld::with("test/unrouted", ["old", "older"]).await;
            world.work(&[world.drainer(Done)]).await;
            if !has_row {
                world.memory.purge(&TableName::Entities, |_| true);
                tokio::time::advance(40 * DAY).await;
            }
            let (operator, table) =
                world.failing_operator(Fault::Slow(Duration::from_millis(500)), move |call| call.request == stop);
            let late = async {
                world.env.sleep(Duration::from_millis(100)).await;
                world.append("test/unrouted", "late").await;
                world.work(&[world.drainer(Done)]).await;
            };
            let (erased, ()) = tokio::join!(operator.erase(&unrouted), late);
            let inspected = world.operator().inspect(&unrouted).await.expect("memory answers");
            let ids: Vec<&str> = inspected.parked.iter().map(|one| one.delivery().delivery_id().as_str()).collect();
            let what = format!("row: {has_row}, stopped before call {stop}: {erased:?}");
            assert_eq!(ids.last(), Some(&"late"), "{what}");
            let late = world.incoming("test/unrouted", "late").identity.hash();
            let receipts = world.operator().receipts(&unrouted).await.expect("memory answers");
            assert_eq!(receipts.last().and_then(|receipt| receipt.identity), Some(late));
            let stopped = table.requests() >= stop;
            if stopped && has_row {
                assert!(matches!(erased, Ok(Erased::Newer { .. })), "{what}");
            }
            if has_row || !stopped {
                assert_eq!(ids, ["late"], "{what}");
            }
            assert!(matches!(operator.erase(&unrouted).await, Ok(Erased::Numbers { .. })), "{what}");
            assert_eq!(left(&world, "test/unrouted").len(), 1, "{what}");
            if !stopped {
                assert!(stop > 6, "there is something to stop at: {stop}");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn row_changed_during_an_erase_is_kept() {
    for who in ["a delivery", "a holder", "a newer version"] {
        let mut world = handled().await;
        // Before the erase's last call, after all its deletes.
        let last = |call: &TableCall<'_>| call.writes.iter().any(|write| write.key.table == TableName::Entities);
        let (operator, _) = world.failing_operator(Fault::Slow(Duration::from_millis(500)), last);
        let comes = async {
            world.env.sleep(Duration::from_millis(100)).await;
            match who {
                "a delivery" => world.append("test/a", "3").await,
                "a holder" => {
                    let guard = world.leases(who).acquire(&entity(), Terms::at_once()).await.expect("it is free");
                    std::mem::forget(guard);
                }
                _ => {
                    let newer = Change::set(a::VERSION, webhook_serializer::protocol::format::FORMAT + 1);
                    let write = Write::update(entity_row(&entity()), vec![newer]);
                    world.memory.write(&write).await.expect("memory answers");
                }
            }
            left(&world, "test/a").remove(0)
        };
        let key = entity();
        let (erased, row) = tokio::join!(operator.erase(&key), comes);
        assert_eq!(erased, Ok(Erased::Newer { rows: 3 }), "{who}");
        assert_eq!(left(&world, "test/a").remove(0), row, "{who}");
    }
}

#[tokio::test(start_paused = true)]
async fn erase_removes_items_of_order_without_row() {
    let world = handled().await;
    world.memory.purge(&TableName::Entities, |row| row.text(a::ENTITY) == Some("test/a"));
    assert_eq!(world.operator().erase(&entity()).await, Ok(Erased::Numbers { rows: 3 }));
    assert!(left(&world, "test/a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn repeated_erase_completes_after_any_failure() {
    let mut answered = 0;
    loop {
        let mut world = handled().await;
        let gone = TableError::Invalid("gone".into());
        let plan =
            move |call: &TableCall<'_>| if call.request > answered { Fault::Before(gone.clone()) } else { Fault::None };
        world.break_table(plan);
        let first = world.operator().erase(&entity()).await;
        world.table = world.memory.clone();
        world.operator().erase(&entity()).await.expect("it is erased");
        assert_eq!(left(&world, "test/a").len(), 1, "cut off after {answered} calls");
        if first.is_ok() {
            break;
        }
        answered += 1;
    }
    // The erase reads the row and a page, deletes each row and part, and writes the row.
    assert!(answered > 8, "{answered}");
}

#[tokio::test(start_paused = true)]
async fn erase_stops_at_row_of_newer_format() {
    let world = handled().await;
    let row = Row::new()
        .with(a::VERSION, webhook_serializer::protocol::format::FORMAT + 1)
        .with(a::NONCE, Nonce::from_parts(world.env.now(), 1).as_str());
    let key = parked_row(&entity(), world.state("test/a").await.head);
    world.table.write(&Write::put(key, row)).await.expect("memory answers");
    assert!(matches!(world.operator().erase(&entity()).await, Err(OperatorError::Store(_))));
}
