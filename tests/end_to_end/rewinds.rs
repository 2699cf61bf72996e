//! Rewinds: applied deliveries run again, in order and before the waiting ones.

mod ended;
mod expiry;

use tests::{prelude::*, source};
use webhook_serializer::{
    operator::Rewinding,
    protocol::{history::History, keys::is_receipt_page},
};

fn operator(world: &TestWorld) -> Operator {
    world.operator().because(Reason::new("ada", "the table was emptied"))
}

async fn rewound(world: &TestWorld, behind: u64) -> RewindOutcome {
    let first = first(world).await;
    operator(world).rewind(&entity(), Sequence(first.0 + behind)).await.expect("memory answers")
}

async fn ended(world: &TestWorld) -> RewindOutcome {
    operator(world).end_rewind(&entity()).await.expect("memory answers")
}

async fn first(world: &TestWorld) -> Sequence {
    let settled = world.operator().settled(&entity(), Some(&world.state("test/a").await), 1000).await;
    let waiting = world.operator().inspect(&entity()).await.expect("memory answers").waiting;
    let settled = settled.expect("memory answers").places.into_keys().next();
    settled
        .or_else(|| waiting.first().map(webhook_serializer::protocol::delivery::InboxItem::sequence))
        .expect("a place")
}

async fn applied(count: u32) -> TestWorld {
    let world = TestWorld::with("test/a", 1..=count).await;
    world.work(&[world.drainer(Done)]).await;
    world
}

fn ids(from: u32, through: u32) -> Vec<String> {
    (from..=through).map(|id| id.to_string()).collect()
}

type RecordedStarts = Arc<Mutex<Vec<(String, u32, Option<FencingToken>, Age)>>>;

/// Returns a handler that notes each start and answers by the delivery's id.
fn noting<F>(starts: &RecordedStarts, answer: F) -> impl Handler + Clone + use<F>
where
    F: Fn(&str) -> Outcome + Clone + Send + Sync + 'static,
{
    let starts = starts.clone();
    answering(move |delivery, _| {
        let id = delivery.delivery_id().to_string();
        starts.lock().unwrap().push((id.clone(), delivery.attempt(), delivery.run_before(), delivery.age()));
        answer(&id)
    })
}

fn recording(starts: &RecordedStarts, fails: &'static str) -> impl Handler + Clone + use<> {
    noting(starts, move |id| if id == fails { Outcome::retry("not now") } else { Outcome::Done })
}

fn in_hours(why: &str) -> Outcome {
    Outcome::retry_after(Duration::from_secs(6 * 3600), why)
}

/// Promise: `rewind` runs applied deliveries again, in sequence, first; ends early or whole.
#[tokio::test(start_paused = true)]
async fn rewound_deliveries_run_in_order_before_waiting_ones() {
    let world = applied(4).await;
    operator(&world).hold(&entity()).await.unwrap();
    world.append_all("test/a", ["5", "6"]).await;
    let done = rewound(&world, 1).await;
    let RewindOutcome::Done(Rewinding { from, through, applied }) = done else { panic!("{done:?}") };
    assert_eq!((through.0 - from.0, applied), (2, 3));
    let inspected = world.operator().inspect(&entity()).await.unwrap();
    assert_eq!((inspected.waiting.len(), inspected.again.len()), (5, 3));
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started(), ids(1, 4), "it is on hold");
    operator(&world).resume(&entity()).await.unwrap();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started(), [ids(1, 4), ids(2, 6)].concat());
    let starts = world.events.settled().into_iter().map(|(id, _)| id);
    assert_eq!(starts.collect::<Vec<_>>(), world.started(), "each run has its event");
    let state = world.state("test/a").await;
    assert!(state.is_empty() && state.held.is_none() && state.pending_since.is_none(), "{state:?}");
    assert!(world.messages.is_empty());
}

/// All attempts of a rewound delivery's run share a token, which no other run has.
///
/// Promise: a rewound delivery has `run_before` and an unknown age; if parked, it keeps `run_before`.
#[tokio::test(start_paused = true)]
async fn rewound_delivery_carries_run_token_and_unknown_age() {
    let world = TestWorld::new();
    for (id, hour) in [("1", 2), ("2", 1)] {
        world.append_event("test/a", id, Timestamp::from_secs(3600 * hour)).await;
    }
    let starts = RecordedStarts::default();
    world.work(&[world.drainer(recording(&starts, "none"))]).await;
    let ages =
        |starts: &RecordedStarts| starts.lock().unwrap().drain(..).map(|(id, _, _, age)| (id, age)).collect::<Vec<_>>();
    assert_eq!(ages(&starts), [("1".into(), Age::Newer), ("2".into(), Age::Older)]);
    rewound(&world, 0).await;
    world.work(&[world.drainer(recording(&starts, "2"))]).await;
    let runs: Vec<_> = starts.lock().unwrap().drain(..).collect();
    let names: Vec<_> = runs.iter().map(|(id, attempt, before, _)| (id.as_str(), *attempt, before.is_some())).collect();
    assert_eq!(names, [("1", 1, true), ("2", 1, true), ("2", 2, true), ("2", 3, true)]);
    assert!(runs[1..].iter().all(|(.., before, _)| *before == runs[1].2), "{runs:?}");
    assert!(runs.iter().all(|(.., age)| *age == Age::Unknown), "{runs:?}");
    rewound(&world, 0).await;
    world.work(&[world.drainer(recording(&starts, "none"))]).await;
    let again: Vec<_> = starts.lock().unwrap().drain(..).collect();
    assert_eq!(again.iter().map(|(id, ..)| id.as_str()).collect::<Vec<_>>(), ["1"]);
    assert!(again[0].2 > runs[0].2, "{again:?} {runs:?}");
}

#[tokio::test(start_paused = true)]
async fn rewind_runs_only_applied_deliveries() {
    let world = TestWorld::with("test/a", ["1", "bad", "1", "3"]).await;
    world.work(&[world.drainer(rejecting("bad"))]).await;
    assert_eq!(world.started(), ["1", "bad", "3"]);
    let receipt_of_bad = async || world.state("test/a").await.recent.iter().nth(1).cloned().expect("a receipt");
    let before = receipt_of_bad().await;
    tokio::time::advance(Duration::from_secs(3_600)).await;
    rewound(&world, 0).await;
    world.work(&[world.drainer(rejecting("bad"))]).await;
    assert_eq!(world.started()[3..], ["1", "3"]);
    let after = receipt_of_bad().await;
    assert_eq!((before.attempts, after.attempts), (1, 1));
    assert!(after.token > before.token && after.settled_at > before.settled_at);
    let parked = world.events.settled().into_iter().filter(|(id, _)| id == "bad");
    assert_eq!(parked.count(), 1, "parked deliveries do not start again");
    let past = world.operator().settled(&entity(), Some(&world.state("test/a").await), 10).await.unwrap();
    let settled: Vec<_> = past.places.values().map(|past| past.settlement().unwrap()).collect();
    use Settlement::{Applied, Parked, Repeat};
    assert_eq!(settled, [Applied, Parked, Repeat, Applied]);
    let parked = world.operator().parked(&entity()).await.unwrap();
    world.operator().redrive(&parked[0], None).await.unwrap();
    world.work(&[world.drainer(rejecting("bad"))]).await;
    assert_eq!(world.started()[5..], ["bad"]);
}

/// The row has room for 21 receipts.
#[tokio::test(start_paused = true)]
async fn rewind_of_sixty_deliveries_keeps_recognising_repeats() {
    let world = applied(60).await;
    rewound(&world, 0).await;
    world.append_all("test/a", ["61", "7"]).await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started(), [ids(1, 60), ids(1, 61)].concat());
    world.append_all("test/a", ids(1, 61)).await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started().len(), 121);
    rewound(&world, 30).await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started()[121..], ids(31, 61));
}

#[tokio::test(start_paused = true)]
async fn failing_rewound_delivery_is_parked_and_redriven() {
    let world = applied(3).await;
    rewound(&world, 0).await;
    let starts = RecordedStarts::default();
    world.work(&[world.drainer(recording(&starts, "2"))]).await;
    assert_eq!(world.applied(), [ids(1, 3), vec!["1".into(), "3".into()]].concat());
    let failed_as = starts.lock().unwrap().iter().find(|run| run.0 == "2").expect("it was started").2;
    assert!(failed_as.is_some());
    world.append_all("test/a", 4..40).await;
    world.work(&[world.drainer(Done)]).await;
    let parked = world.operator().parked(&entity()).await.unwrap();
    let list: Vec<_> = parked.iter().map(|parked| (entity(), parked.sequence)).collect();
    let mut became = Vec::new();
    let tell = |_: &EntityKey, _, redriven: &Redriven| {
        became.push(redriven.clone());
        true
    };
    world.operator().redrive_all(&list, tell).await.unwrap();
    assert!(matches!(became[..], [Ok(_)]), "{became:?}");
    let starts = RecordedStarts::default();
    world.work(&[world.drainer(recording(&starts, "none"))]).await;
    assert_eq!(world.applied().last().unwrap(), "2");
    let names: Vec<_> = starts.lock().unwrap().drain(..).map(|(_, _, before, age)| (before, age)).collect();
    assert_eq!(names, [(failed_as, Age::Unknown)], "it goes out under the name of the run that failed");
    let last = world.state("test/a").await.head;
    operator(&world).rewind(&entity(), last).await.unwrap();
    world.work(&[world.drainer(recording(&starts, "none"))]).await;
    let again = starts.lock().unwrap()[0].2;
    assert!(again > failed_as, "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn rewind_gives_the_blocked_delivery_all_attempts_again() {
    let world = TestWorld::new();
    world.append_all_from("block", "test/a", ["1", "2", "3"]).await;
    let starts = RecordedStarts::default();
    world.work(&[world.drainer(recording(&starts, "3"))]).await;
    assert_eq!(world.state("test/a").await.blocked, Some(BlockReason::Attempts));
    rewound(&world, 1).await;
    world.work(&[world.drainer(recording(&starts, "3"))]).await;
    assert_eq!(world.started(), ["1", "2", "3", "3", "2", "3", "3"]);
    assert_eq!(world.state("test/a").await.blocked, Some(BlockReason::Attempts));
}

#[tokio::test(start_paused = true)]
async fn rewound_delivery_runs_alone_and_is_never_stale() {
    let world = TestWorld::new().with_sources(source!("test", "deliver = { up_to = 5 }", "stale = 'skip'"));
    for (id, hour) in [("1", 1), ("2", 2), ("3", 3)] {
        world.append_event("test/a", id, Timestamp::from_secs(3600 * hour)).await;
    }
    let counting = Counting::default();
    world.work(&[world.drainer(counting.clone())]).await;
    rewound(&world, 0).await;
    world.append_all("test/a", ["4", "5"]).await;
    world.work(&[world.drainer(counting.clone())]).await;
    let starts = counting.starts();
    let sizes: Vec<usize> = starts.iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 1, 1, 1, 2], "{starts:?}");
    let counted: Vec<u64> = world.committed().into_iter().map(|(_, times)| times).collect();
    assert_eq!(counted, [2, 2, 2, 1, 1], "each run commits once");
}

#[tokio::test(start_paused = true)]
async fn rewound_delivery_keeps_body_stored_in_parts() {
    let world = TestWorld::new();
    let incoming = world.append_noise("test/a", "1", 800_000).await;
    assert!(world.memory.rows(&TableName::Inbox).len() > 1, "it is stored in parts");
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let bodies = bodies.clone();
        answering(move |delivery, _| {
            bodies.lock().unwrap().push(delivery.body().clone());
            Outcome::Done
        })
    };
    world.work(&[world.drainer(handler.clone())]).await;
    rewound(&world, 0).await;
    world.work(&[world.drainer(handler)]).await;
    assert!(*bodies.lock().unwrap() == [incoming.body.clone(), incoming.body], "twice as it came");
}

#[tokio::test(start_paused = true)]
async fn rewind_to_missing_or_unsettled_delivery_changes_nothing() {
    let world = applied(3).await;
    let first = first(&world).await;
    let before = world.state("test/a").await;
    let back = async |at: u64| operator(&world).rewind(&entity(), Sequence(at)).await.unwrap();
    assert!(matches!(back(first.0 + 3).await, RewindOutcome::NotSettled(_)));
    assert!(matches!(back(0).await, RewindOutcome::NotSettled(_)));
    assert_eq!(back(first.0 - 1).await, RewindOutcome::Expired(Some(first)));
    world.memory.write(&Write::delete(delivery_row(&entity(), first.next()))).await.unwrap();
    assert_eq!(back(first.0).await, RewindOutcome::Expired(Some(Sequence(first.0 + 2))));
    world.memory.write(&Write::delete(delivery_row(&entity(), Sequence(first.0 + 2)))).await.unwrap();
    assert_eq!(back(first.0 + 2).await, RewindOutcome::Expired(None));
    assert_eq!(ended(&world).await, RewindOutcome::Nothing);
    let nobody = key("test/nobody");
    assert_eq!(operator(&world).rewind(&nobody, first).await, Err(OperatorError::Unknown));
    let after = world.state("test/a").await;
    assert_eq!((after.head, after.tail, after.recent), (before.head, before.tail, before.recent));

    let job = key("cron/report");
    assert_eq!(operator(&world).rewind(&job, first).await, Err(OperatorError::IsAJob));

    let world = TestWorld::with("test/a", ["1"]).await;
    world.work(&[world.drainer(answering(|_, _| Outcome::Reject("never".into())))]).await;
    assert_eq!(rewound(&world, 0).await, RewindOutcome::Nothing);
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started(), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn ending_rewind_settles_remaining_deliveries_as_applied() {
    for count in [3, 40] {
        let world = applied(count).await;
        rewound(&world, 0).await;
        world.append_all("test/a", ["1", "new"]).await;
        // The first delivery runs again; the second one fails and waits for hours.
        let fails = answering(|delivery, _| match delivery.delivery_id().as_str() {
            "1" => Outcome::Done,
            _ => in_hours("not now"),
        });
        let drainers = [world.drainer(fails)];
        let _ = world.env.within(Duration::from_secs(5), world.work(&drainers)).await;
        let done = ended(&world).await;
        let RewindOutcome::Done(Rewinding { applied, .. }) = done else { panic!("{done:?}") };
        assert_eq!(applied, count as usize - 1);
        assert_eq!(ended(&world).await, RewindOutcome::Nothing);
        world.work(&[world.drainer(Done)]).await;
        let once_more = vec!["1".to_owned(), "new".to_owned()];
        assert_eq!(world.applied(), [ids(1, count), once_more].concat());
        world.append_all("test/a", ids(1, count)).await;
        world.work(&[world.drainer(Done)]).await;
        assert_eq!(world.applied().len(), count as usize + 2, "all of it is remembered");
        let state = world.state("test/a").await;
        assert!(state.is_empty() && state.pending_since.is_none(), "{state:?}");
    }
}

/// The operator's process dies before each of its calls in turn, and no sweep runs.
#[tokio::test(start_paused = true)]
async fn rewind_command_killed_midway_loses_no_delivery() {
    for ends in [false, true] {
        for survives in 1.. {
            let mut world = applied(3).await;
            if ends {
                operator(&world).hold(&entity()).await.unwrap();
                rewound(&world, 0).await;
                operator(&world).resume(&entity()).await.unwrap();
            }
            let from = first(&world).await;
            let table = world.fail(Fault::SilentAfter, move |call| call.request >= survives);
            let operator = operator(&world);
            world.table = world.memory.clone();
            let work = async {
                match ends {
                    true => drop(operator.end_rewind(&entity()).await),
                    false => drop(operator.rewind(&entity(), from).await),
                }
            };
            let _ = world.env.within(Duration::from_secs(1), work).await;
            let drainers = [world.drainer(Done)];
            let drained = world.work(&drainers);
            let within = world.env.within(Duration::from_secs(120), drained).await;
            let state = world.state("test/a").await;
            assert!(state.is_empty(), "ends: {ends}, dead at call {survives}: {state:?}, {within:?}");
            let again = world.applied().split_off(3);
            assert!(again.is_empty() || again == ids(1, 3), "ends: {ends}, dead at call {survives}: {again:?}");
            world.append_all("test/a", ["2", "4"]).await;
            world.work(&[world.drainer(Done)]).await;
            assert_eq!(world.applied().split_off(3 + again.len()), ["4"], "ends: {ends}, call {survives}");
            if table.requests() < survives {
                break;
            }
        }
    }
}

/// An expired delivery is never taken for an unfilled sequence.
#[tokio::test(start_paused = true)]
async fn expired_rewound_delivery_blocks_the_order() {
    let world = applied(3).await;
    let from = first(&world).await;
    world.env.sleep(Duration::from_secs(20 * 86_400)).await;
    operator(&world).hold(&entity()).await.unwrap();
    rewound(&world, 0).await;
    world.memory.write(&Write::delete(delivery_row(&entity(), from.next()))).await.unwrap();
    operator(&world).resume(&entity()).await.unwrap();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.state("test/a").await.blocked, Some(BlockReason::Expired));
    operator(&world).unblock(&entity()).await.unwrap();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), [ids(1, 3), vec!["1".into(), "3".into()]].concat());
    assert!(world.memory.get(&entity_row(&entity())).await.unwrap().is_some());
}

/// Most receipts are in pages, and those of an earlier run in rows of their own too. The second run parks one delivery.
#[tokio::test(start_paused = true)]
async fn latest_run_of_each_delivery_decides_how_it_runs_again() {
    let world = applied(60).await;
    let tokens = async || {
        let receipts = world.operator().receipts(&entity()).await.unwrap();
        receipts.iter().map(|receipt| Some(receipt.token)).collect::<Vec<_>>()
    };
    let starts = RecordedStarts::default();
    let again = async |rejected: &'static str| {
        assert!(matches!(rewound(&world, 0).await, RewindOutcome::Done(_)));
        let answer = move |id: &str| if id == rejected { Outcome::Reject("not twice".into()) } else { Outcome::Done };
        world.work(&[world.drainer(noting(&starts, answer))]).await;
        let runs = starts.lock().unwrap().drain(..).collect::<Vec<_>>();
        runs.into_iter().map(|(id, _, before, _)| (id, before)).unzip::<_, _, Vec<_>, Vec<_>>()
    };
    let mut before = tokens().await;
    assert_eq!(again("7").await, (ids(1, 60), before));
    before = tokens().await;
    before.remove(6);
    assert_eq!(again("none").await, ([ids(1, 6), ids(8, 60)].concat(), before));
    assert!(world.state("test/a").await.spilled.pages);
}

/// Without its receipt, the delivery would look like a new one.
#[tokio::test(start_paused = true)]
async fn delivery_without_receipt_is_not_rewound() {
    let world = applied(50).await;
    let pages = world.memory.rows(&TableName::Inbox).into_iter().filter(is_receipt_page);
    let oldest = pages.min_by_key(|row| row.number(a::SEQUENCE)).expect("receipts have left the row");
    let key = key_of(&TableName::Inbox, &oldest).unwrap();
    world.memory.write(&Write::delete(key)).await.unwrap();
    let last = Sequence(oldest.number(a::SEQUENCE).unwrap());
    assert!(last > first(&world).await);
    assert_eq!(rewound(&world, 0).await, RewindOutcome::Expired(Some(last.next())));
}

#[tokio::test(start_paused = true)]
async fn rewind_after_ended_rewind_changes_run_before() {
    for count in [3, 40] {
        let world = applied(count).await;
        let starts = RecordedStarts::default();
        rewound(&world, 0).await;
        let drainers = [world.drainer(noting(&starts, |_| in_hours("not now")))];
        let _ = world.env.within(Duration::from_secs(5), world.work(&drainers)).await;
        ended(&world).await;
        rewound(&world, 0).await;
        world.work(&[world.drainer(recording(&starts, "none"))]).await;
        let runs: Vec<_> = starts.lock().unwrap().iter().filter(|run| run.0 == "1").map(|run| run.2).collect();
        assert!(runs.len() == 2 && runs[0] < runs[1], "of {count}: {runs:?}");
    }
}

/// The earlier run's effect may precede the effect of the delivery in front of it.
#[tokio::test(start_paused = true)]
async fn second_rewind_changes_run_before() {
    for count in [3, 40] {
        let world = applied(count).await;
        let starts = RecordedStarts::default();
        let until = Arc::new(Mutex::new("3"));
        let fails = until.clone();
        let handler = noting(&starts, move |id| match id == *fails.lock().unwrap() {
            true => in_hours("its answer was lost"),
            false => Outcome::Done,
        });
        let drainers = [world.drainer(handler)];
        rewound(&world, 2).await;
        let _ = world.env.within(Duration::from_secs(5), world.work(&drainers)).await;
        rewound(&world, 1).await;
        *until.lock().unwrap() = "none";
        world.work(&drainers).await;
        let runs = starts.lock().unwrap().clone();
        let ids: Vec<&str> = runs.iter().map(|run| run.0.as_str()).take(3).collect();
        assert_eq!(ids, ["3", "2", "3"], "of {count}");
        assert!(runs[0].2 < runs[2].2, "of {count}: {runs:?}");
        let mistakes = History::of(world.operator().receipts(&entity()).await.unwrap()).mistakes;
        assert_eq!(mistakes, []);
    }
}

#[tokio::test(start_paused = true)]
async fn redrive_of_skipped_rewound_delivery_keeps_run_before() {
    let world = applied(2).await;
    operator(&world).hold(&entity()).await.unwrap();
    rewound(&world, 0).await;
    let first = first(&world).await;
    operator(&world).skip(&entity(), first).await.unwrap();
    let parked = world.operator().parked_at(&entity(), first).await.unwrap().expect("it is parked");
    assert!(parked.delivery().run_before().is_some());
    world.operator().redrive(&parked, None).await.unwrap();
    operator(&world).resume(&entity()).await.unwrap();
    let starts = RecordedStarts::default();
    world.work(&[world.drainer(recording(&starts, "none"))]).await;
    let names: Vec<_> = starts.lock().unwrap().drain(..).map(|(id, _, before, _)| (id, before)).collect();
    assert_eq!(names.len(), 2);
    assert_eq!(names[1], ("1".into(), parked.delivery().run_before()));
}
