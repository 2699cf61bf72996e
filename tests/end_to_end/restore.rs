//! Restored tables in use. Receivers that remember tokens refuse nothing, doubtful deliveries are parked, and
//! nothing in the backup is lost.

mod disaster;
mod report;

use tests::{prelude::*, world::key as entity};
use webhook_serializer::{
    operator::{RestoreReport, Restored},
    protocol::{keys::is_receipt_page, receipt::Spilled},
};

use self::disaster::{Disaster, EffectReceiver, LONG_AGO, copied, nightly};

const PATIENCE: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

async fn restore(operator: &Operator, as_of: Timestamp) -> Result<(bool, BTreeMap<String, Restored>), OperatorError> {
    let mut told = BTreeMap::new();
    let restoring = match operator.begin_restore(as_of).await? {
        NextRestore::GoOn(restoring) => restoring,
        NextRestore::Done(_) => return Ok((true, told)),
        other => panic!("{other:?}"),
    };
    let is_whole = operator.restore_all(&restoring, false, |key, restored| {
        told.insert(key.to_owned(), restored.clone().expect("it can be read"));
        true
    });
    Ok((is_whole.await?, told))
}

/// Promise: after a restore, applied deliveries are recognised, waiting ones parked, none lost or refused.
#[tokio::test(start_paused = true)]
async fn restore_loses_no_delivery_and_receiver_accepts_tokens() {
    let disaster = Disaster::strikes().await;
    let restored = disaster.restore().await;
    let told = |key: &str| match &restored[key] {
        Restored::Raised(told) => told.clone(),
        other => panic!("{key}: {other:?}"),
    };
    let counts = |key: &str| (told(key).parked, told(key).repeats, told(key).lost);
    // One delivery repeats an applied one, the other repeats a parked one.
    assert_eq!(counts("test/waits"), (2, 2, 0));
    assert_eq!(counts("test/held"), (1, 0, 0));
    assert!(told("test/held").was_held);
    assert_eq!(counts("test/gap"), (1, 0, 1));
    assert_eq!(counts("test/on-hold"), (1, 0, 0));
    assert_eq!(counts("block/stopped"), (2, 0, 0));
    assert!(told("block/stopped").is_on_hold);
    assert_eq!(counts("test/idle"), (1, 0, 0), "behind the tail of the older copy");
    for key in ["test/parked", "test/leased"] {
        assert_eq!(told(key), RestoreReport { newest: told(key).newest, ..RestoreReport::default() }, "{key}");
    }
    assert!(!restored.contains_key("test/new"), "it was made since");
    let now = disaster.world.env.now();
    for key in ["test/idle", "test/waits", "test/parked"] {
        let token = disaster.world.state(key).await.token.0;
        // The rows live for longer than a day.
        assert!(token < (now + 2 * HOUR).as_millis(), "{key} would be purged while its numbers are ahead");
    }
    let newest = told("test/idle").newest.into_values().next().expect("it had deliveries");
    assert_eq!(newest.received_at, disaster.as_of + Duration::from_millis(500));
    disaster.goes_on().await;
    disaster.went_on_well().await;
}

#[tokio::test(start_paused = true)]
async fn receiver_refuses_tokens_of_backup_if_restore_is_not_run() {
    let disaster = Disaster::strikes().await;
    disaster.world.append("test/idle", "fresh").await;
    disaster.world.work(&[disaster.world.drainer(disaster.receiver.handler())]).await;
    assert!(!disaster.receiver.refused().is_empty());
}

/// Promise: a killed `restore` continues to the same result.
#[tokio::test(start_paused = true)]
async fn killed_restore_continues_to_the_same_result() {
    let before = Disaster::strikes().await;
    let whole = before.again().await;
    let told = whole.restore().await;
    let left = whole.left();
    let report = whole.report(&told).await;
    assert!(report.0 > 5 && !report.1.newest.is_empty() && !report.1.jobs.is_empty(), "{report:?}");
    for calls in 0.. {
        let mut disaster = before.again().await;
        let table = disaster.world.table.clone();
        // The last request before the operator dies lands.
        let plan = move |call: &TableCall<'_>| match call.request.cmp(&calls) {
            std::cmp::Ordering::Less => Fault::None,
            std::cmp::Ordering::Equal => Fault::SilentAfter,
            std::cmp::Ordering::Greater => Fault::Silent,
        };
        disaster.world.table = Arc::new(FaultyTable::new(table.clone(), &disaster.world.env, plan));
        let operator = disaster.world.operator();
        let killed = disaster.world.env.within(Duration::from_millis(500), restore(&operator, disaster.as_of));
        let killed = killed.await.is_none();
        disaster.world.table = table;
        let again = restore(&disaster.world.operator(), disaster.as_of).await.expect("it answers");
        assert!(again.0, "after {calls} calls");
        let found = disaster.left();
        let calls_made = format!("after {calls} calls");
        assert_eq!(found.symmetric_difference(&left).collect::<Vec<_>>(), [""; 0], "{calls_made}");
        if !again.1.is_empty() {
            assert_eq!(disaster.report(&again.1).await, report, "{calls_made}");
        }
        disaster.goes_on().await;
        disaster.went_on_well().await;
        if !killed {
            assert!(calls > 100, "{calls} calls");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn restore_has_same_result_despite_unanswered_writes() {
    let mut disaster = Disaster::strikes().await;
    let table = disaster.world.table.clone();
    // Each write's first reply is lost.
    let seen = Mutex::new(Vec::new());
    let plan = move |call: &TableCall<'_>| {
        let mut seen = seen.lock().expect("no panic under the lock");
        let writes = call.writes.to_vec();
        if writes.is_empty() || seen.contains(&writes) {
            return Fault::None;
        }
        seen.push(writes);
        Fault::ReplyLost
    };
    disaster.world.table = Arc::new(FaultyTable::new(table.clone(), &disaster.world.env, plan));
    let restored = disaster.restore().await;
    assert!(restored.values().all(|one| matches!(one, Restored::Raised(_))), "{restored:?}");
    disaster.world.table = table;
    let whole = Disaster::strikes().await;
    whole.restore().await;
    assert_eq!(disaster.left(), whole.left());
    disaster.goes_on().await;
    disaster.went_on_well().await;
}

#[tokio::test(start_paused = true)]
async fn second_restore_changes_nothing() {
    let disaster = Disaster::strikes().await;
    disaster.restore().await;
    let rows = |table| disaster.world.memory.rows(&table);
    let before = (rows(TableName::Entities), rows(TableName::Inbox));
    assert_eq!(disaster.restore().await, BTreeMap::new());
    assert_eq!((rows(TableName::Entities), rows(TableName::Inbox)), before);
    disaster.goes_on().await;
    disaster.world.append("test/idle", "waits").await;
    let before = (rows(TableName::Entities), rows(TableName::Inbox));
    assert_eq!(disaster.restore().await, BTreeMap::new());
    assert_eq!((rows(TableName::Entities), rows(TableName::Inbox)), before);
    let other = disaster.world.operator().begin_restore(disaster.as_of + HOUR).await.expect("it answers");
    assert!(matches!(other, NextRestore::Another(_)), "{other:?}");
}

#[tokio::test(start_paused = true)]
async fn restore_does_not_change_orders_in_use() {
    let disaster = Disaster::strikes().await;
    let operator = disaster.world.operator();
    let NextRestore::GoOn(restoring) = operator.begin_restore(disaster.as_of).await.expect("it answers") else {
        panic!("no restore began before")
    };
    let raised = operator.restore(&restoring, &entity("test/idle"), false).await.expect("it answers");
    assert!(matches!(raised, Restored::Raised(_)));
    disaster.world.env.sleep(HOUR).await;
    for key in ["test/idle", "test/new", "test/waits"] {
        disaster.world.append(key, "used").await;
    }
    let (is_whole, told) = restore(&operator, disaster.as_of).await.expect("it answers");
    assert!(!is_whole);
    assert_eq!(told["test/idle"], Restored::Already, "it was raised before it was used");
    assert_eq!(told["test/new"], Restored::Already, "it was made since");
    assert_eq!(told["test/waits"], Restored::InUse);
    let forced = operator.restore(&restoring, &entity("test/waits"), true).await.expect("it answers");
    assert!(matches!(forced, Restored::Raised(told) if told.parked == 3));
    assert!(restore(&operator, disaster.as_of).await.expect("it answers").0);
}

#[tokio::test(start_paused = true)]
async fn restore_continues_above_sequences_and_tokens_of_fast_clocks() {
    let world = TestWorld::new();
    let ahead = world.env.now() + 24 * HOUR;
    let nonce = world.env.nonce();
    world
        .store()
        .run(&Claim { entity: &entity("test/a"), nonce: &nonce, now: ahead }, PATIENCE)
        .await
        .expect("claimed");
    let before = world.state("test/a").await;
    let as_of = world.env.now();
    world.env.sleep(3 * HOUR).await;
    restore(&world.operator(), as_of).await.expect("it answers");
    let after = world.state("test/a").await;
    let most = before.tail.0 + (3 * HOUR).as_millis() as u64;
    assert!(after.tail.0 > most && after.head == after.tail && after.token.0 > most, "{after:?}");
    let row = world.memory.get(&entity_row(&entity("test/a"))).await.expect("memory answers").expect("a row");
    let purge_at = row.number(a::PURGE_AT).expect("it is purged some day");
    assert!(purge_at * 1000 > after.token.0, "not before a row that is made anew begins above it");
}

#[tokio::test(start_paused = true)]
async fn restored_job_skips_ticks_before_the_restore() {
    let disaster = Disaster::strikes().await;
    let restored = disaster.restore().await;
    let Restored::Raised(RestoreReport { job: Some(job), .. }) = &restored["cron/nightly"] else {
        panic!("{:?}", restored["cron/nightly"])
    };
    assert!(job.last_tick.is_some_and(|tick| tick <= disaster.as_of));
    let world = &disaster.world;
    let this = Timestamp::from_millis(world.env.now().as_millis() / 60_000 * 60_000);
    assert_eq!(nightly(world, this).await, 0, "it was due before the restore");
    world.env.sleep(Duration::from_secs(60)).await;
    assert_eq!(nightly(world, this + Duration::from_secs(60)).await, 1, "as ever from then on");
}

#[tokio::test(start_paused = true)]
async fn restore_keeps_receipts_and_parked_deliveries() {
    let disaster = Disaster::strikes().await;
    let before = disaster.world.operator().receipts(&entity("test/idle")).await.expect("it answers");
    assert!(before.len() > Recent::capacity(&entity("test/idle")));
    disaster.restore().await;
    let after = disaster.world.operator().receipts(&entity("test/idle")).await.expect("it answers");
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.last().map(|receipt| receipt.settlement), Some(Settlement::Parked));
    let parked = disaster.world.operator().parked(&entity("test/parked")).await.expect("it answers");
    disaster.world.operator().redrive(&parked[0], None).await.expect("it is redriven");
    let acts = disaster.world.operator().acts(&entity("test/waits")).await.expect("it answers");
    let ended: Vec<_> = acts.iter().map(|act| (act.verb.as_str(), act.ended.as_deref())).collect();
    assert_eq!(ended, [("restore", Some("2 parked, 2 recognised as repeats, 0 lost, 0 applied before"))]);
}

#[tokio::test(start_paused = true)]
async fn restore_reports_rewound_deliveries_as_applied() {
    let world = TestWorld::with("test/a", ["1", "2"]).await;
    world.work(&[world.drainer(Done)]).await;
    let first = Sequence(world.state("test/a").await.head.0 - 1);
    world.operator().hold(&entity("test/a")).await.expect("it answers");
    world.operator().rewind(&entity("test/a"), first).await.expect("it answers");
    world.append("test/a", "3").await;
    let (is_whole, told) = restore(&world.operator(), world.env.now()).await.expect("it answers");
    let Restored::Raised(told) = &told["test/a"] else { panic!("{told:?}") };
    assert_eq!((is_whole, told.applied_before, told.parked), (true, 2, 1));
    let receipts = world.operator().receipts(&entity("test/a")).await.expect("it answers");
    let attempts: Vec<_> = receipts.iter().map(|receipt| (receipt.settlement, receipt.attempts)).collect();
    assert_eq!(attempts[..2], [(Settlement::Applied, 1); 2], "as the receipts said");
    assert_eq!(world.applied(), ["1", "2"]);
}

/// The backup has an old copy of the order's row, in which the delivery waits, and a newer copy of the inbox,
/// with the delivery's receipt.
#[tokio::test(start_paused = true)]
async fn restore_keeps_deliveries_parked_between_table_copies() {
    let mut world = TestWorld::new();
    // The row of this key has room for one receipt.
    let key = format!("test/{}", "x".repeat(507));
    world.append(&key, "bad").await;
    let as_of = world.env.now();
    let backup = Arc::new(MemoryTable::new());
    copied(&world.memory, TableName::Entities, &backup).await;
    for id in ["1", "2"] {
        world.append(&key, id).await;
        world.work(&[world.drainer(rejecting("bad"))]).await;
    }
    copied(&world.memory, TableName::Inbox, &backup).await;
    (world.table, world.memory) = (backup.clone(), backup);
    let (is_whole, told) = restore(&world.operator(), as_of).await.expect("it answers");
    let Restored::Raised(told) = &told[&key] else { panic!("{told:?}") };
    assert_eq!((is_whole, told.parked, told.repeats, told.lost), (true, 2, 0, 0));
    let parked = world.operator().parked(&entity(&key)).await.expect("it answers");
    assert_eq!(parked[0].error, "not now");
    world.operator().redrive(&parked[0], None).await.expect("it is redriven");
}

/// A page of receipts is written beside a settle, and the next settle marks it. Here, the backup is of the time between.
#[tokio::test(start_paused = true)]
async fn restore_keeps_receipts_of_a_page_without_mark() {
    let world = TestWorld::new();
    // The row of this key has room for two receipts.
    let key = format!("test/{}", "x".repeat(415));
    world.append_all(&key, ["1", "2", "fails", "4"]).await;
    let handler = answering(|delivery, _| match delivery.delivery_id().as_str() {
        "fails" => Outcome::retry("not now"),
        _ => Outcome::Done,
    });
    world.process(&world.drainer(handler), &key).await;
    assert!(world.memory.rows(&TableName::Inbox).iter().any(is_receipt_page));
    assert_eq!(world.state(&key).await.spilled, Spilled::default(), "no settle followed");
    let (is_whole, told) = restore(&world.operator(), world.env.now()).await.expect("it answers");
    let Restored::Raised(told) = &told[&key] else { panic!("{told:?}") };
    assert_eq!((is_whole, told.parked), (true, 2));
    world.append_all(&key, ["1", "2", "5"]).await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1", "2", "5"]);
}

async fn process(testbed: &TestBed, receiver: &EffectReceiver) {
    let drainer = testbed.drainer(receiver.handler());
    let deadline = testbed.env().monotonic() + Duration::from_secs(60);
    let received = ReceivedWakeUp::new(entity("test/a"), 1);
    drainer.process(&received, deadline, &SuspectGate::new(1)).await;
}

async fn appended(testbed: &TestBed, ids: impl IntoIterator<Item = String>) {
    for id in ids {
        testbed.inbox().append(&testbed.incoming("test/a", &id)).await.expect("it is appended");
    }
}

#[tokio::test]
async fn embedded_tables_are_restored_from_copies() {
    let testbed = TestBed::start().await;
    let receiver = EffectReceiver::default();
    let long_ago = || (0..LONG_AGO).map(|number| format!("a{number}"));
    appended(&testbed, long_ago()).await;
    process(&testbed, &receiver).await;
    assert_eq!(receiver.applied("test/a").len(), LONG_AGO);
    appended(&testbed, ["waits".to_owned()]).await;
    let as_of = testbed.env().now();
    let restored = TestBed::start().await;
    for table in [TableName::Entities, TableName::Inbox] {
        let operator = testbed.operator();
        let mut pass = operator.pass(table.clone());
        while let Some(rows) = pass.page().await.expect("it answers") {
            for row in rows {
                let key = key_of(&table, &row).expect("one of ours");
                restored.table().write(&Write::put(key, row)).await.expect("it is written");
            }
        }
    }
    appended(&testbed, (0..5).map(|number| format!("gone{number}"))).await;
    process(&testbed, &receiver).await;
    receiver.forget_what_was_applied();

    let (is_whole, told) = restore(&restored.operator(), as_of).await.expect("it answers");
    assert!(is_whole);
    assert!(matches!(&told["test/a"], Restored::Raised(told) if told.parked == 1), "{told:?}");
    appended(&restored, long_ago().chain(["waits".to_owned(), "fresh".to_owned()])).await;
    process(&restored, &receiver).await;
    assert_eq!(receiver.refused(), [""; 0]);
    assert_eq!(receiver.applied("test/a"), ["fresh"]);
    assert_eq!(restore(&restored.operator(), as_of).await.expect("it answers"), (true, BTreeMap::new()));
}
