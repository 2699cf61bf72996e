//! Receipts: they are in the order's row, or in pages once the order's row is full.

use tests::{prelude::*, world::key as entity};
use webhook_serializer::protocol::{
    history::History,
    keys::{is_receipt_page, receipt_identity},
    receipt::{PAGES, PagedReceipts, Spilled},
};

/// Returns a key of 512 bytes, whose row has room for one receipt.
fn long() -> String {
    format!("test/{}", "x".repeat(507))
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

fn writes_receipt_page(write: &Write) -> bool {
    is_receipt_page(&write.key.to_row())
}

/// The numbers of receipts outside the order's row.
#[derive(Debug, PartialEq, Eq)]
struct SpilledCounts {
    pages: usize,
    in_pages: usize,
    rows: usize,
}

fn spilled(world: &TestWorld, key: &str) -> SpilledCounts {
    let mut paged = PagedReceipts::default();
    let mut rows = 0;
    for row in world.memory.rows(&TableName::Inbox).iter().filter(|row| row.text(a::ENTITY) == Some(key)) {
        if is_receipt_page(row) {
            paged.add(row).unwrap();
        }
        rows += usize::from(receipt_identity(row).is_some());
    }
    SpilledCounts { pages: paged.pages(), in_pages: paged.iter().count(), rows }
}

async fn row(world: &TestWorld, key: &str) -> Row {
    world.memory.get(&entity_row(&entity(key))).await.unwrap().expect("it has a row")
}

async fn handled(key: &str, ids: &[String]) -> TestWorld {
    let world = TestWorld::new();
    for id in ids {
        world.append(key, id).await;
        world.work(&[world.drainer(Done)]).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn delivery_with_spilled_receipt_is_recognised_as_repeat() {
    for key in ["test/a".to_owned(), long()] {
        let ids = numbers(60);
        let world = handled(&key, &ids).await;
        assert_eq!(world.started(), ids);
        for id in &ids {
            world.append(&key, id).await;
            world.work(&[world.drainer(Done)]).await;
        }
        assert_eq!(world.started(), ids, "none of them again");
        // All have left the row by now. Each page has a full row's receipts.
        let pages = 60_usize.div_ceil(Recent::capacity(&entity(&key))).min(PAGES);
        let rows = if pages == PAGES { 60 - PAGES } else { 0 };
        assert_eq!(spilled(&world, &key), SpilledCounts { pages, in_pages: 60 - rows, rows });
        assert!(world.state(&key).await.recent.iter().all(|receipt| receipt.settlement == Settlement::Repeat));
    }
}

#[tokio::test(start_paused = true)]
async fn row_holds_at_least_18_receipts_before_spilling() {
    let key = "test/order/450789469";
    let room = Recent::capacity(&entity(key));
    assert!(room >= 18, "{room}");
    let world = handled(key, &numbers(room)).await;
    assert_eq!(spilled(&world, key), SpilledCounts { pages: 0, in_pages: 0, rows: 0 });
    assert!(!world.state(key).await.spilled.is_anywhere());
    assert_eq!(row(&world, key).await.write_units(), 1);
    world.append(key, "one more").await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(spilled(&world, key), SpilledCounts { pages: 1, in_pages: room, rows: 0 }, "the whole row");
    assert_eq!(world.state(key).await.spilled, Spilled::PAGES);
    assert_eq!(row(&world, key).await.write_units(), 1);
}

/// The holder dies between spilling a receipt and the settle, or after the settle.
#[tokio::test(start_paused = true)]
async fn holder_death_while_spilling_loses_no_receipt() {
    for calls in 1.. {
        let mut world = TestWorld::new();
        let key = long();
        world.append_all(&key, ["1", "2", "1", "2", "3"]).await;
        let lives = world.work_after_a_death(&entity(&key), calls, Counting::default()).await;
        let once = ["1", "2", "3"].map(|id| (id.to_owned(), 1));
        assert_eq!(world.committed(), once, "after {calls} calls");
        let receipts = world.operator().receipts(&entity(&key)).await.unwrap();
        assert_eq!(History::of(receipts), History { receipts: 3, ..History::default() }, "after {calls} calls");
        if lives {
            // The holder acquires, reads a page, settles or commits five times, and spills receipts.
            assert_eq!(calls, 9);
            break;
        }
    }
}

/// The receipt costs one more write unit, and each settle up to a second.
#[tokio::test(start_paused = true)]
async fn receipt_stays_in_row_if_spilling_fails() {
    let mut world = TestWorld::new();
    let key = long();
    let whole = world.table.clone();
    world.fail(
        Fault::Before(TableError::Throttled),
        |call| matches!(call.writes, [write] if writes_receipt_page(write)),
    );
    for id in ["1", "2", "3"] {
        world.append(&key, id).await;
        world.work(&[world.drainer(Done)]).await;
    }
    let state = world.state(&key).await;
    assert_eq!((state.recent.iter().len(), state.spilled, spilled(&world, &key).pages), (3, Spilled::default(), 0));
    world.table = whole;
    for id in ["1", "4"] {
        world.append(&key, id).await;
        world.work(&[world.drainer(Done)]).await;
    }
    assert_eq!(world.started(), ["1", "2", "3", "4"]);
    let state = world.state(&key).await;
    assert_eq!((state.recent.iter().len(), state.spilled, spilled(&world, &key).in_pages), (1, Spilled::PAGES, 3));
}

#[tokio::test(start_paused = true)]
async fn handled_delivery_settles_although_receipt_writes_fail() {
    for fault in [Fault::Silent, Fault::Before(TableError::Throttled)] {
        let mut world = TestWorld::new();
        let key = long();
        world.append(&key, "1").await;
        world.work(&[world.drainer(Done)]).await;
        world.fail(fault, move |call| matches!(call.writes, [write] if writes_receipt_page(write)));
        world.function_time = Duration::from_millis(7050);
        world.append(&key, "2").await;
        world.work(&[world.drainer(Slow(Duration::from_millis(4900)))]).await;
        assert_eq!(world.applied(), ["1", "2"]);
        assert_eq!(world.state(&key).await.recent.iter().len(), 2);
    }
}

/// Expiry deletes rows in any order: here the order's row goes before its receipts.
#[tokio::test(start_paused = true)]
async fn receipt_outliving_order_row_identifies_no_repeat() {
    let world = TestWorld::new();
    let key = long();
    world.append_all(&key, ["bad", "1"]).await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(spilled(&world, &key).in_pages, 1);
    tokio::time::advance(world.settings.retention * 2).await;
    let expires =
        Write { key: entity_row(&entity(&key)), condition: Condition::All(Vec::new()), action: Action::Delete };
    world.memory.write(&expires).await.unwrap();
    let drainer = world.drainer(rejecting("bad"));
    world.append_all(&key, ["bad", "2"]).await;
    world.work(std::slice::from_ref(&drainer)).await;
    let operator = world.operator();
    let parked = operator.parked(&entity(&key)).await.unwrap();
    operator.redrive(&parked[0], None).await.expect("it is redriven");
    world.work(&[drainer]).await;
    assert_eq!(world.applied(), ["bad", "1", "2", "bad"]);
}

/// Holders of exclusive leases may keep rows for less time.
#[tokio::test(start_paused = true)]
async fn release_of_exclusive_lease_keeps_row_until_receipts_expire() {
    let world = handled("test/a", &["1".into()]).await;
    let until = world.state("test/a").await.recent.keep_until();
    assert_eq!(until, world.env.now() + world.settings.retention);
    let leases = world.leases("a script").kept_for(Duration::from_secs(60));
    let lease = leases.acquire(&entity("test/a"), Terms::at_once()).await.expect("it has no holder");
    lease.release().await.expect("it is ours");
    let purge_at = row(&world, "test/a").await.number(a::PURGE_AT).expect("it is idle");
    assert!(purge_at * 1000 >= until.as_millis(), "{purge_at}");
}

#[tokio::test(start_paused = true)]
async fn history_lists_each_receipt_once() {
    let world = handled("test/a", &numbers(50)).await;
    let receipts = world.operator().receipts(&entity("test/a")).await.unwrap();
    assert_eq!(receipts.len(), 50);
    assert!(receipts.windows(2).all(|pair| pair[1].sequence == pair[0].sequence.next()));
    assert_eq!(History::of(receipts), History { receipts: 50, ..History::default() });
}

/// With the settle, the transaction has a hundred writes.
#[tokio::test(start_paused = true)]
async fn commit_accepts_at_most_ninety_nine_writes() {
    let world = TestWorld::with("test/a", ["99", "100"]).await;
    let commits = answering(|delivery, _| {
        let count: u64 = delivery.delivery_id().as_str().parse().unwrap();
        let write = |number| Write::update(Key::named("totals", "order", number), [Change::add("n", 1)]);
        Outcome::commit((0..count).map(|number| write(number.to_string())))
    });
    world.work(&[world.drainer(commits)]).await;
    assert_eq!(world.memory.rows(&TableName::Named("totals".into())).len(), 99);
    let parked = world.operator().parked(&entity("test/a")).await.unwrap();
    assert_eq!(parked.iter().map(|one| one.delivery().delivery_id().as_str()).collect::<Vec<_>>(), ["100"]);
}

/// The commit that also releases is refused because of the new delivery. It is then repeated without the
/// release.
#[tokio::test(start_paused = true)]
async fn commit_lands_once_although_new_delivery_arrives() {
    let world = TestWorld::with("test/a", ["1"]).await;
    let inbox = world.inbox();
    let late = world.incoming("test/a", "2");
    let handler = Scripted(move |delivery: &Delivery, _: &Context| {
        let inbox = inbox.clone();
        let late = late.clone();
        let is_first = delivery.delivery_id().as_str() == "1";
        let key = Key::named("totals", "order", delivery.entity().as_str());
        async move {
            if is_first {
                inbox.append(&late).await?;
            }
            Ok(Outcome::commit([Write::update(key, [Change::add("n", 1)])]))
        }
    });
    let drainer = world.drainer(handler);
    assert_eq!(world.process(&drainer, "test/a").await, Acknowledgement::Delete);
    assert_eq!(world.started(), ["1", "2"]);
    let kept = world.memory.rows(&TableName::Named("totals".into())).remove(0);
    assert_eq!(kept.number("n"), Some(2));
    let state = world.state("test/a").await;
    assert!(state.is_empty() && state.held.is_none() && state.pending_since.is_none());
}

#[tokio::test(start_paused = true)]
async fn newest_event_time_is_kept_per_topic_family() {
    let world = TestWorld::new();
    let at = |hour: u64| Some(Timestamp::from_secs(1_767_000_000 + 3600 * hour));
    let newest =
        async |family: &str| world.inbox().newest_event_time(&entity("test/a"), family).await.expect("memory answers");
    assert_eq!(newest("orders").await, None, "it is unknown");
    for (id, family, hour) in [("1", "orders", 2), ("2", "orders", 1), ("3", "refunds", 3)] {
        let incoming = Incoming { family: family.into(), event_time: at(hour), ..world.incoming("test/a", id) };
        world.inbox().append(&incoming).await.expect("it is appended");
    }
    world.work(&[world.drainer(Done)]).await;
    assert_eq!((newest("orders").await, newest("refunds").await, newest("").await), (at(2), at(3), None));
}
