//! Several deliveries of an order in one handler start, and deliveries superseded by newer ones.

use tests::{prelude::*, world::key as entity};

const KEY: &str = "test/a";

fn sources(options: &str) -> String {
    format!(
        "[sources.test]\nprovider = 'shopify'\nsecrets = 'q7mZ4kT1'\nhandler = 'h'\nhandler_timeout = '5s'\n\
         retry = {{ attempts = 3, first = '1s' }}\n{options}\n"
    )
}

fn world(options: &str) -> TestWorld {
    TestWorld::new().with_sources(&sources(options))
}

async fn appended(world: &TestWorld, ids: impl IntoIterator<Item = &'static str>) {
    world.append_all(KEY, ids).await;
}

fn once(ids: &[&str]) -> Vec<(String, u64)> {
    ids.iter().map(|id| ((*id).to_owned(), 1)).collect()
}

/// Promise: a group runs in one start and commits in one write; after a failure, its deliveries are tried singly.
#[tokio::test(start_paused = true)]
async fn group_is_handled_in_one_start_and_commit() {
    let world = world("deliver = { up_to = 4 }");
    let ids = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    appended(&world, ids).await;
    let handler = Counting::default();
    world.work(&[world.drainer(handler.clone())]).await;
    assert_eq!(handler.starts(), [&ids[..4], &ids[4..8], &ids[8..]]);
    assert_eq!(world.committed(), once(&ids));
    let recent = world.state(KEY).await.recent;
    let tokens: Vec<u64> = recent.iter().map(|receipt| receipt.token.0).collect();
    assert_eq!((tokens[0], tokens[3] + 1, tokens[4] + 1), (tokens[3], tokens[4], tokens[8]), "one token a start");
    assert!(recent.iter().all(|receipt| receipt.settlement == Settlement::Applied && receipt.attempts == 1));
}

/// If the group's duration counted once for each delivery, it would look several times as long.
#[tokio::test(start_paused = true)]
async fn group_logs_every_delivery_but_only_one_duration() {
    let world = world("deliver = { up_to = 4 }");
    appended(&world, ["0", "1", "2", "3", "4"]).await;
    world.work(&[world.drainer(Counting::default())]).await;
    let told = [("0", false), ("1", false), ("2", false), ("3", true), ("4", true)];
    assert_eq!(world.events.settled(), told.map(|(id, timed)| (id.to_owned(), timed)));
}

/// JSON doubles each quote, and base64 lengthens other bytes by a third.
///
/// Promise: a group has at most 5 MiB of bodies as JSON, so its event fits; a single one of 6 MB or more is parked.
#[tokio::test(start_paused = true)]
async fn group_ends_before_its_json_exceeds_five_mib() {
    const MIB: usize = 1024 * 1024;
    let noise = |bytes| noise(&TestWorld::new().env, bytes);
    let expected = |sizes: &[usize]| {
        let mut ids = ["0", "1", "2"].into_iter();
        sizes.iter().map(|size| ids.by_ref().take(*size).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    for (what, body, sizes) in [
        ("text", vec![b'a'; MIB], &[3][..]),
        ("text", vec![b'a'; 2 * MIB], &[2, 1]),
        ("quotes", vec![b'"'; MIB], &[2, 1]),
        ("quotes", vec![b'"'; 2 * MIB], &[1, 1, 1]),
        ("control characters", vec![1; 2 * MIB], &[1, 1, 1]),
        ("bytes in parts", noise(MIB), &[3]),
        ("bytes in parts", noise(2 * MIB), &[1, 1, 1]),
        ("the largest bodies", vec![b'"'; 6 * MIB], &[1, 1, 1]),
    ] {
        let world = world("deliver = { up_to = 3 }");
        for id in ["0", "1", "2"] {
            let incoming = Incoming { body: body.clone().into(), ..world.incoming(KEY, id) };
            world.inbox().append(&incoming).await.expect("it is appended");
        }
        let handler = Counting::default();
        world.work(&[world.drainer(handler.clone())]).await;
        assert_eq!(handler.starts(), expected(sizes), "{what}, {} bytes", body.len());
    }
}

#[tokio::test(start_paused = true)]
async fn failing_delivery_of_a_group_is_parked_alone() {
    for at in 0..4 {
        for rejects in [false, true] {
            let world = world("deliver = { up_to = 4 }");
            let ids = ["0", "1", "2", "3", "4", "5"];
            appended(&world, ids).await;
            let handler = Counting { poison: vec![(ids[at], rejects)], ..Counting::default() };
            world.work(&[world.drainer(handler.clone())]).await;
            let others: Vec<&str> = ids.into_iter().filter(|id| *id != ids[at]).collect();
            assert_eq!(world.committed(), once(&others), "{at}");
            let parked = world.operator().parked(&entity(KEY)).await.unwrap();
            assert_eq!(parked.len(), 1);
            assert_eq!(parked[0].delivery().delivery_id().as_str(), ids[at]);
            let mut expected = vec![ids[..4].to_vec()];
            expected.extend((0..4).flat_map(|alone| {
                let times = if alone == at && !rejects { 3 } else { 1 };
                std::iter::repeat_n(vec![ids[alone]], times)
            }));
            expected.push(ids[4..].to_vec());
            assert_eq!(handler.starts(), expected);
            let state = world.state(KEY).await;
            assert_eq!((state.one_by_one, state.attempts), (None, 0));
            let attempts: Vec<u32> = state.recent.iter().map(|receipt| receipt.attempts).collect();
            let failed = if rejects { 1 } else { 3 };
            let of = |place| if place == at { failed } else { 1 };
            assert_eq!(attempts, [0, 1, 2, 3, 4, 5].map(of));
        }
    }
}

/// The holder dies once after each of its calls to the store.
#[tokio::test(start_paused = true)]
async fn group_is_applied_once_despite_holder_death() {
    for calls in 1.. {
        let mut world = world("deliver = { up_to = 3 }");
        let ids = ["0", "1", "2", "3"];
        appended(&world, ids).await;
        let handler = Counting::default();
        let lives = world.work_after_a_death(&entity(KEY), calls, handler).await;
        assert_eq!(world.committed(), once(&ids), "after {calls} calls");
        assert_eq!(world.settlements(KEY).await, [Settlement::Applied; 4]);
        if lives {
            // The holder acquires, reads a page and commits twice.
            assert_eq!(calls, 4);
            break;
        }
    }
}

/// If a delivery kills its holder again, it then does so alone.
#[tokio::test(start_paused = true)]
async fn deliveries_of_a_group_start_singly_after_take_over() {
    let mut world = world("deliver = { up_to = 3 }");
    let ids = ["0", "1", "2", "3"];
    appended(&world, ids).await;
    let handler = Counting::default();
    assert!(!world.work_after_a_death(&entity(KEY), 2, handler.clone()).await);
    assert_eq!(handler.starts(), [&ids[..3], &ids[..1], &ids[1..2], &ids[2..3], &ids[3..]]);
}

#[tokio::test(start_paused = true)]
async fn group_ends_before_a_repeat() {
    let world = world("deliver = { up_to = 9 }");
    appended(&world, ["0", "1", "0", "2", "1", "3"]).await;
    let handler = Counting::default();
    world.work(&[world.drainer(handler.clone())]).await;
    assert_eq!(handler.starts(), [vec!["0", "1"], vec!["2"], vec!["3"]]);
    assert_eq!(world.committed(), once(&["0", "1", "2", "3"]));
    use Settlement::{Applied, Repeat};
    assert_eq!(world.settlements(KEY).await, [Applied, Applied, Repeat, Applied, Repeat, Applied]);
}

/// Promise: `latest` handles a family's newest; redriven or deferred deliveries supersede none.
#[tokio::test(start_paused = true)]
async fn newest_delivery_supersedes_all_waiting_under_policy_latest() {
    let world = world("deliver = 'latest'");
    appended(&world, ["0", "1", "2", "3"]).await;
    let handler = Counting::default();
    world.work(&[world.drainer(handler.clone())]).await;
    assert_eq!(*handler.starts.lock().unwrap(), [[("3".to_owned(), 3)]]);
    use Settlement::{Applied, Repeat, Superseded};
    assert_eq!(world.settlements(KEY).await, [Superseded, Superseded, Superseded, Applied]);
    appended(&world, ["1", "3"]).await;
    world.work(&[world.drainer(handler.clone())]).await;
    assert_eq!(handler.starts().len(), 1);
    assert_eq!(world.settlements(KEY).await[4..], [Repeat, Repeat]);
    assert_eq!(world.committed(), once(&["3"]));
}

/// If it superseded the newer event, the receiver would be left with the older state.
#[tokio::test(start_paused = true)]
async fn older_event_supersedes_no_newer_event() {
    let world = world("deliver = 'latest'");
    for (id, at) in [("0", 7), ("new", 9), ("old", 8)] {
        world.append_event(KEY, id, Timestamp::from_secs(at)).await;
    }
    let ages: Arc<Mutex<Vec<_>>> = Arc::default();
    let told = ages.clone();
    let handler = answering(move |delivery, _| {
        told.lock().unwrap().push((delivery.delivery_id().to_string(), delivery.age()));
        Outcome::Done
    });
    world.work(&[world.drainer(handler)]).await;
    assert_eq!(*ages.lock().unwrap(), [("new".to_owned(), Age::Newer), ("old".to_owned(), Age::Older)]);
}

/// The holder vanishes with a retry of the latest delivery. Each delivery then runs alone.
#[tokio::test(start_paused = true)]
async fn attempts_under_policy_latest_count_for_no_other_delivery() {
    let mut world = world("deliver = 'latest'");
    appended(&world, ["0", "1", "2"]).await;
    let starts: Arc<Mutex<Vec<(String, u32)>>> = Arc::default();
    let told = starts.clone();
    // `2` fails twice and hangs in its third start, until its holder vanishes; then `0` fails once.
    let handler = answering(move |delivery, _| {
        let mut starts = told.lock().unwrap();
        starts.push((delivery.delivery_id().to_string(), delivery.attempt()));
        let is_early = starts.len() <= 3 || starts.len() == 4 && delivery.delivery_id().as_str() == "0";
        if is_early { Outcome::retry("not yet") } else { Outcome::Done }
    });
    let whole = world.table.clone();
    // Two rounds of acquire, page and fail; then an acquire and a page.
    world.fail(Fault::Silent, |call| call.request > 8);
    let drainer = world.drainer(handler.clone());
    let works = async {
        for _ in 0..3 {
            world.process(&drainer, KEY).await;
            world.env.sleep(Duration::from_secs(5)).await;
        }
    };
    assert!(world.env.within(Duration::from_secs(20), works).await.is_none());
    world.table = whole;
    tokio::time::advance(Duration::from_secs(60)).await;
    world.work(&[world.drainer(handler)]).await;
    // The holder may have vanished during `0`'s own start, so that start counts as an attempt of `0`.
    let expected = [("2", 1), ("2", 2), ("2", 3), ("0", 2), ("0", 3), ("1", 1), ("2", 1)];
    assert_eq!(*starts.lock().unwrap(), expected.map(|(id, attempt)| (id.to_owned(), attempt)));
    assert_eq!(world.settlements(KEY).await, [Settlement::Applied; 3]);
}

#[tokio::test(start_paused = true)]
async fn failing_newest_delivery_is_parked_alone_under_policy_latest() {
    let world = world("deliver = 'latest'");
    appended(&world, ["0", "1", "2"]).await;
    let handler = Counting { poison: vec![("2", false)], ..Counting::default() };
    world.work(&[world.drainer(handler.clone())]).await;
    assert_eq!(handler.starts(), [["2"], ["2"], ["2"], ["0"], ["1"], ["2"], ["2"], ["2"]]);
    use Settlement::{Applied, Parked};
    assert_eq!(world.settlements(KEY).await, [Applied, Applied, Parked]);
}

#[tokio::test(start_paused = true)]
async fn redriven_delivery_supersedes_no_newer_delivery() {
    let world = world("deliver = 'latest'");
    let starts = Arc::new(Mutex::new(Vec::new()));
    let note = starts.clone();
    let handler = answering(move |delivery, _| {
        note.lock().unwrap().push((delivery.delivery_id().to_string(), delivery.superseded()));
        let is_parked = delivery.delivery_id().as_str() == "old" && delivery.redrive() == 0;
        if is_parked { Outcome::Reject("not yet".into()) } else { Outcome::Done }
    });
    let drainers = [world.drainer(handler)];
    appended(&world, ["old"]).await;
    world.work(&drainers).await;
    appended(&world, ["new"]).await;
    let parked = world.operator().parked(&entity(KEY)).await.unwrap().remove(0);
    world.operator().redrive(&parked, None).await.unwrap();
    world.work(&drainers).await;
    use Settlement::{Applied, Parked};
    assert_eq!(world.settlements(KEY).await, [Parked, Applied, Applied]);
    let starts = starts.lock().unwrap().clone();
    assert_eq!(starts, ["old", "new", "old"].map(|id| (id.to_owned(), 0)));
}

/// Three deliveries that arrive within the linger share one start. A full group is not delayed.
///
/// Promise: linger waits, unless a group is full; without `handle_all`, no worker starts for groups.
#[tokio::test(start_paused = true)]
async fn wake_up_skips_linger_if_group_is_full() {
    let world = world("deliver = { up_to = 3 }\nlinger = '2s'");
    let linger = world.sources().get("test").unwrap().linger;
    let comes = async |id: &str| {
        world.inbox().append_within(&world.incoming(KEY, id), linger, Duration::from_secs(2)).await.unwrap();
    };
    let begun = world.env.monotonic();
    let handler = Counting::default();
    comes("0").await;
    comes("1").await;
    assert_eq!(world.messages.len(), 2);
    let delays = world.messages.delays();
    assert_eq!(delays, [Duration::from_secs(2); 2]);
    comes("2").await;
    assert_eq!(world.messages.delays()[2], Duration::ZERO);
    world.work(&[world.drainer(handler.clone())]).await;
    assert_eq!(handler.starts(), [["0", "1", "2"]]);
    assert!(world.env.monotonic() - begun >= Duration::from_secs(2), "the other wake-ups find nothing");
}

#[tokio::test(start_paused = true)]
async fn wake_up_skips_linger_if_group_fills_receipt_capacity() {
    let key = format!("test/{}", "x".repeat(251));
    let capacity = Recent::capacity(&entity(&key));
    assert_eq!(capacity, 10);
    for deliver in ["{ up_to = 25 }", "'latest'"] {
        let world = world(&format!("deliver = {deliver}\nlinger = '2s'"));
        let linger = world.sources().get("test").unwrap().linger;
        for number in 1..=capacity {
            let incoming = world.incoming(&key, &number.to_string());
            world.inbox().append_within(&incoming, linger, Duration::from_secs(2)).await.unwrap();
        }
        let delays = world.messages.delays();
        assert_eq!(delays[..capacity - 1], vec![Duration::from_secs(2); capacity - 1], "{deliver}");
        assert_eq!(delays[capacity - 1], Duration::ZERO, "{deliver}");
        let handler = Counting::default();
        world.work(&[world.drainer(handler.clone())]).await;
        assert_eq!(handler.starts().len(), 1, "{deliver}");
    }
}

#[tokio::test(start_paused = true)]
async fn wake_up_skips_linger_while_deliveries_start_singly() {
    let world = world("deliver = { up_to = 3 }\nlinger = '2s'");
    let linger = world.sources().get("test").unwrap().linger;
    let comes = async |id: &str| {
        world.inbox().append_within(&world.incoming(KEY, id), linger, Duration::from_secs(2)).await.unwrap();
    };
    comes("0").await;
    let one_by_one = Change::set(a::ONE_BY_ONE, world.state(KEY).await.tail.0 + 9);
    world.table.write(&Write::update(entity_row(&entity(KEY)), [one_by_one])).await.unwrap();
    comes("1").await;
    assert_eq!(world.messages.delays(), [Duration::from_secs(2), Duration::ZERO]);
}

/// Promise: stale deliveries are skipped, unless of equal or no time, or redriven; sorting by time is stable.
#[tokio::test(start_paused = true)]
async fn stale_delivery_is_superseded() {
    let world = world("stale = 'skip'");
    let handler = Counting::default();
    let comes = async |id: &str, at: u64| {
        world.append_event(KEY, id, Timestamp::from_secs(at)).await;
        world.work(&[world.drainer(handler.clone())]).await;
    };
    for (id, at) in [("new", 7), ("tie", 7), ("old", 6), ("old", 6), ("newer", 8)] {
        comes(id, at).await;
    }
    assert_eq!(handler.starts(), [["new"], ["tie"], ["newer"]]);
    use Settlement::{Applied, Repeat, Superseded};
    assert_eq!(world.settlements(KEY).await, [Applied, Applied, Superseded, Repeat, Applied]);
}

#[tokio::test(start_paused = true)]
async fn far_future_event_makes_no_later_event_stale() {
    let world = world("stale = 'skip'");
    let (ages, handler) = ages();
    let comes = async |id: &str, ahead: Duration| {
        world.append_event(KEY, id, world.env.now() + ahead).await;
        world.work(&[world.drainer(handler.clone())]).await;
    };
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    comes("a year ahead", minutes(60 * 24 * 365)).await;
    comes("now", minutes(0)).await;
    comes("as far ahead as allowed", minutes(5)).await;
    comes("now again", minutes(0)).await;
    let ages = ages.lock().unwrap().clone();
    assert_eq!(ages, [Age::Unknown, Age::Newer, Age::Newer]);
    use Settlement::{Applied, Superseded};
    assert_eq!(world.settlements(KEY).await, [Applied, Applied, Applied, Superseded]);
}

fn ages() -> (Arc<Mutex<Vec<Age>>>, impl Handler + Clone) {
    let ages = Arc::<Mutex<Vec<Age>>>::default();
    let note = ages.clone();
    let handler = answering(move |delivery: &Delivery, _| {
        note.lock().unwrap().push(delivery.age());
        Outcome::Done
    });
    (ages, handler)
}

#[tokio::test(start_paused = true)]
async fn spilled_receipts_of_groups_recognise_each_repeat() {
    let key = format!("test/{}", "x".repeat(470));
    let world = world("deliver = { up_to = 25 }");
    let ids: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    world.append_all(&key, ids.iter().chain(&ids)).await;
    let handler = Counting::default();
    world.work(&[world.drainer(handler.clone())]).await;
    let all: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(world.committed(), once(&all));
    let largest = handler.starts().iter().map(Vec::len).max();
    assert_eq!(largest, Some(Recent::capacity(&entity(&key))));
    assert_eq!(world.state(&key).await.waiting(), 0);
    let receipts = world.operator().receipts(&entity(&key)).await.unwrap();
    assert_eq!(receipts.iter().filter(|receipt| receipt.settlement == Settlement::Applied).count(), 40);
}

#[tokio::test(start_paused = true)]
async fn unreadable_body_parks_only_that_delivery_of_group() {
    let world = world("deliver = { up_to = 3 }");
    appended(&world, ["0", "1", "2"]).await;
    let state = world.state(KEY).await;
    let second = delivery_row(&state.entity, Sequence(state.head.0 + 2));
    let broken = Write::update(second, [Change::set("body", Value::B("{".into()))]);
    assert!(matches!(world.table.write(&broken).await.unwrap(), Written::Landed(_)));
    let handler = Counting::default();
    world.work(&[world.drainer(handler.clone())]).await;
    assert_eq!(handler.starts(), [["0"], ["2"]]);
    use Settlement::{Applied, Parked};
    assert_eq!(world.settlements(KEY).await, [Applied, Parked, Applied]);
}

/// One row of a body in several parts is missing.
#[tokio::test(start_paused = true)]
async fn incomplete_body_parks_only_that_delivery_of_group() {
    let world = world("deliver = { up_to = 3 }");
    for id in ["0", "1", "2"] {
        let size = if id == "0" { 1_000_000 } else { 10 };
        world.append_noise(KEY, id, size).await;
    }
    let rows = world.memory.rows(&TableName::Inbox);
    let part = rows.iter().find(|row| row.text(a::ENTITY).is_some_and(|of| of.contains('\u{1f}')));
    let part = key_of(&TableName::Inbox, part.expect("the body has parts")).expect("a row has a key");
    let gone = Write { key: part, condition: Condition::Always, action: Action::Delete };
    assert!(matches!(world.table.write(&gone).await.unwrap(), Written::Landed(_)));
    let handler = Counting::default();
    let began = world.env.monotonic();
    world.work(&[world.drainer(handler.clone())]).await;
    assert_eq!(handler.starts(), [["1", "2"]]);
    assert_eq!(world.env.monotonic(), began, "it is not tried");
    use Settlement::{Applied, Parked};
    assert_eq!(world.settlements(KEY).await, [Parked, Applied, Applied]);
}

#[tokio::test(start_paused = true)]
async fn handler_without_handle_all_gets_single_deliveries() {
    let world = world("deliver = { up_to = 3 }");
    appended(&world, ["0", "1"]).await;
    world.work(&[world.drainer(Slow(Duration::ZERO))]).await;
    assert_eq!(world.applied(), ["0", "1"]);
}
