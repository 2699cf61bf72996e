//! What a restore reports about each order, including unreadable ones.

use tests::prelude::*;
use webhook_serializer::{operator::Restored, protocol::maintain::RestoreRecord};

use super::{HOUR, PATIENCE, disaster::copied, entity, restore};

async fn begun(world: &TestWorld, as_of: Timestamp) -> RestoreRecord {
    match world.operator().begin_restore(as_of).await.expect("it answers") {
        NextRestore::GoOn(restoring) => restoring,
        other => panic!("{other:?}"),
    }
}

async fn ended(world: &TestWorld, key: &str) -> Vec<Option<String>> {
    let acts = world.operator().acts(&entity(key)).await.expect("it answers");
    acts.into_iter().map(|act| act.ended).collect()
}

#[tokio::test(start_paused = true)]
async fn restore_logs_the_waiting_deliveries_it_found() {
    let world = TestWorld::new();
    for key in ["test/idle", "test/again", "test/repeat"] {
        world.append(key, "1").await;
    }
    world.work(&[world.drainer(Done)]).await;
    world.append("test/aside", "1").await;
    let drainers = [world.drainer(answering(|_, _| Outcome::retry_after(6 * HOUR, "not now")))];
    let _ = world.env.within(Duration::from_secs(5), world.work(&drainers)).await;
    let applied = world.state("test/again").await.head;
    world.operator().rewind(&entity("test/again"), applied).await.expect("it answers");
    world.append("test/repeat", "1").await;
    let nonce = world.env.nonce();
    let now = world.env.now();
    let claim = Claim { entity: &entity("test/lost"), nonce: &nonce, now };
    world.store().run(&claim, PATIENCE).await.expect("it is claimed");

    assert!(restore(&world.operator(), world.env.now()).await.expect("it answers").0);
    for (key, told) in [
        ("test/aside", "1 parked, 0 recognised as repeats, 0 lost, 0 applied before"),
        ("test/repeat", "0 parked, 1 recognised as repeats, 0 lost, 0 applied before"),
        ("test/lost", "0 parked, 0 recognised as repeats, 1 lost, 0 applied before"),
        ("test/again", "0 parked, 0 recognised as repeats, 0 lost, 1 applied before"),
    ] {
        assert_eq!(ended(&world, key).await, [Some(told.to_owned())], "{key}");
    }
    assert_eq!(ended(&world, "test/idle").await, []);
    let operator = world.operator();
    let mut counts = Vec::new();
    let restoring = operator.restoring().await.expect("it answers").expect("one was begun");
    for key in ["test/aside", "test/repeat", "test/lost", "test/again", "test/idle"] {
        let told = operator.restored_before(&restoring, &entity(key)).await.expect("it answers");
        counts.push([told.parked, told.repeats, told.lost, told.applied_before]);
    }
    assert_eq!(counts, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0; 4]], "for a later run's report");
    let receipts = world.operator().receipts(&entity("test/aside")).await.expect("it answers");
    let tried: Vec<_> = receipts.iter().map(|receipt| (receipt.settlement, receipt.attempts)).collect();
    assert_eq!(tried, [(Settlement::Parked, 1)], "its attempts before it was parked");
}

/// Tables have many empty orders.
#[tokio::test(start_paused = true)]
async fn empty_order_is_restored_with_one_write() {
    let mut world = TestWorld::new();
    let leased = world.leases("a script").acquire(&entity("test/a"), Terms::at_once()).await.expect("free");
    leased.release().await.expect("it is released");
    let restoring = begun(&world, world.env.now()).await;
    let table = world.break_table(|_| Fault::None);
    let restored = world.operator().restore(&restoring, &entity("test/a"), false).await;
    assert!(matches!(restored, Ok(Restored::Raised(_))), "{restored:?}");
    assert_eq!(table.writes(), 1);
}

/// These deliveries were appended after the order's row was copied and before the inbox was.
#[tokio::test(start_paused = true)]
async fn restore_parks_deliveries_beyond_the_tail() {
    let mut world = TestWorld::with("test/a", ["first"]).await;
    let as_of = world.env.now();
    let backup = Arc::new(MemoryTable::new());
    copied(&world.memory, TableName::Entities, &backup).await;
    world.append_all("test/a", 0..120).await;
    world.env.sleep(Duration::from_millis(100)).await;
    let last = world.env.now();
    world.append("test/a", "last").await;
    copied(&world.memory, TableName::Inbox, &backup).await;
    (world.table, world.memory) = (backup.clone(), backup);
    let (is_whole, told) = restore(&world.operator(), as_of).await.expect("it answers");
    let Restored::Raised(told) = &told["test/a"] else { panic!("{told:?}") };
    assert_eq!((is_whole, told.parked, told.lost), (true, 122, 0));
    assert_eq!(told.newest.values().map(|newest| newest.received_at).collect::<Vec<_>>(), [last]);
}

#[tokio::test(start_paused = true)]
async fn unreadable_row_does_not_stop_a_restore() {
    let world = TestWorld::new();
    for key in ["test/a", "test/b", "test/c"] {
        world.append(key, "1").await;
    }
    let change = async |change: Change| {
        let write = Write::update(entity_row(&entity("test/b")), vec![change]);
        world.memory.write(&write).await.expect("it is written");
    };
    change(Change::set(a::BLOCKED, "no reason")).await;
    let as_of = world.env.now();
    let mut told = BTreeMap::new();
    let restoring = begun(&world, as_of).await;
    let operator = world.operator();
    let all = operator.restore_all(&restoring, false, |key, restored| {
        told.insert(key.to_owned(), matches!(restored, Ok(Restored::Raised(_))));
        true
    });
    assert_eq!(all.await, Ok(false));
    assert_eq!(
        told,
        [("test/a", true), ("test/b", false), ("test/c", true)].map(|(key, is)| (key.to_owned(), is)).into()
    );
    change(Change::remove(a::BLOCKED)).await;
    let (is_whole, told) = restore(&world.operator(), as_of).await.expect("it answers");
    assert!(is_whole && matches!(told["test/b"], Restored::Raised(_)), "{told:?}");
    assert_eq!(told.values().filter(|restored| **restored == Restored::Already).count(), 2);
}

/// A delivery that arrives during the restore interrupts it, because an operator has to decide about this
/// delivery.
#[tokio::test(start_paused = true)]
async fn interrupted_restore_is_not_logged_as_ended() {
    let mut world = TestWorld::with("test/a", ["1"]).await;
    let as_of = world.env.now();
    world.env.sleep(HOUR).await;
    let restoring = begun(&world, as_of).await;
    // The write that raises the row's numbers is the order's last one.
    let raises = |write: &Write| match &write.action {
        Action::Update(changes) => {
            changes.iter().any(|change| matches!(change, Change::Set(name, _) if name == a::LAST_CLAIM))
        }
        _ => false,
    };
    let pause = Duration::from_millis(500);
    let (operator, _) = world.failing_operator(Fault::Slow(pause), move |call| call.writes.iter().any(raises));
    let comes = async {
        world.env.sleep(Duration::from_millis(100)).await;
        world.append("test/a", "2").await;
    };
    let key = entity("test/a");
    let (restored, ()) = tokio::join!(operator.restore(&restoring, &key, false), comes);
    assert_eq!(restored, Ok(Restored::InUse));
    assert_eq!(ended(&world, "test/a").await, [None]);
    let forced = operator.restore(&restoring, &key, true).await;
    assert!(matches!(forced, Ok(Restored::Raised(_))), "{forced:?}");
    assert!(ended(&world, "test/a").await[0].is_some());
    assert_eq!(operator.parked(&key).await.expect("it answers").len(), 2);
}
