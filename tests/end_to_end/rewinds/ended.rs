//! Rewinds that are ended early.

use tests::prelude::*;
use webhook_serializer::operator::Rewinding;

use super::{RecordedStarts, applied, ended, entity, first, ids, operator, rewound};

const DAY: Duration = Duration::from_secs(86_400);

fn done(rewound: RewindOutcome) -> Rewinding {
    match rewound {
        RewindOutcome::Done(rewinding) => rewinding,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn rewinds_are_logged_with_the_outcome() {
    let world = applied(3).await;
    let from = first(&world).await;
    let a_moment = async || world.env.sleep(Duration::from_secs(1)).await;
    rewound(&world, 1).await;
    a_moment().await;
    ended(&world).await;
    a_moment().await;
    ended(&world).await;
    a_moment().await;
    rewound(&world, 3).await;
    let acts = world.operator().acts(&entity()).await.expect("memory answers");
    let acts: Vec<_> = acts.into_iter().map(|act| (act.verb, act.ended.expect("it has ended"))).collect();
    let both = format!("2 deliveries from {} to {}", Sequence(from.0 + 1), Sequence(from.0 + 2));
    let expected = [
        ("rewind", both.as_str()),
        ("rewind --end", &both),
        ("rewind --end", "nothing to do"),
        ("rewind", "nothing was changed: that sequence is not settled"),
    ];
    assert_eq!(acts, expected.map(|(verb, ended)| (verb.to_owned(), ended.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn rewind_of_last_delivery_can_be_ended() {
    let world = applied(3).await;
    rewound(&world, 2).await;
    assert_eq!(done(ended(&world).await).applied, 1);
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started(), ids(1, 3));
}

#[tokio::test(start_paused = true)]
async fn rewind_continues_beyond_the_first_page() {
    let world = applied(120).await;
    rewound(&world, 0).await;
    assert_eq!(done(ended(&world).await).applied, 120);
    rewound(&world, 0).await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started(), [ids(1, 120), ids(1, 120)].concat());
}

/// The operator that ends the rewind dies at each call in turn, and the run continues.
#[tokio::test(start_paused = true)]
async fn crash_while_ending_rewind_keeps_run_before() {
    for survives in 1.. {
        let mut world = applied(40).await;
        rewound(&world, 0).await;
        let starts = RecordedStarts::default();
        let runs = starts.clone();
        let drainers = [world.drainer(answering(move |delivery, _| {
            let id = delivery.delivery_id().to_string();
            let attempt = delivery.attempt();
            runs.lock().unwrap().push((id.clone(), attempt, delivery.run_before(), delivery.age()));
            match (id.as_str(), attempt) {
                ("1", 1) => Outcome::retry_after(Duration::from_secs(60), "its answer was lost"),
                _ => Outcome::Done,
            }
        }))];
        let _ = world.env.within(Duration::from_secs(5), world.work(&drainers)).await;
        let table = world.fail(Fault::SilentAfter, move |call| call.request >= survives);
        let operator = operator(&world);
        world.table = world.memory.clone();
        let _ = world.env.within(Duration::from_secs(1), operator.end_rewind(&entity())).await;
        let _ = world.env.within(Duration::from_secs(300), world.work(&drainers)).await;
        assert!(world.state("test/a").await.is_empty(), "dead at call {survives}");
        let names: Vec<_> = starts.lock().unwrap().iter().filter(|run| run.0 == "1").map(|run| run.2).collect();
        assert!(names.iter().all(|name| *name == names[0]), "dead at call {survives}: {names:?}");
        if table.requests() < survives {
            assert_eq!(names.len(), 1, "it was ended");
            break;
        }
    }
}

/// An operator has to see an expired delivery; it is not treated as an unfilled sequence.
#[tokio::test(start_paused = true)]
async fn ending_rewind_stops_at_a_missing_delivery() {
    let mut world = applied(3).await;
    let from = first(&world).await;
    world.env.sleep(20 * DAY).await;
    rewound(&world, 0).await;
    world.memory.write(&Write::delete(delivery_row(&entity(), from.next()))).await.expect("it is deleted");
    let circles = || Fault::Before(TableError::Invalid("it goes round in circles".into()));
    world.fail(circles(), move |call| call.request > 100);
    assert_eq!(done(ended(&world).await), Rewinding { from, through: from, applied: 1 });
    world.table = world.memory.clone();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.state("test/a").await.blocked, Some(BlockReason::Expired));
    assert_eq!(world.started(), ids(1, 3));
}

#[tokio::test(start_paused = true)]
async fn waiting_time_after_ended_rewind_counts_from_arrival() {
    let world = applied(3).await;
    world.env.sleep(DAY).await;
    rewound(&world, 0).await;
    let came = world.env.now();
    world.append("test/a", "4").await;
    world.env.sleep(DAY).await;
    ended(&world).await;
    assert_eq!(world.state("test/a").await.pending_since, Some(came));
}

#[tokio::test(start_paused = true)]
async fn waiting_time_counts_from_arrival_while_rewind_is_being_ended() {
    for before in 1.. {
        let mut world = applied(3).await;
        world.env.sleep(20 * DAY).await;
        rewound(&world, 0).await;
        world.env.sleep(DAY).await;
        let began = world.env.now();
        let pause = Duration::from_millis(500);
        let table = world.fail(Fault::Slow(pause), move |call| call.request == before);
        let operator = operator(&world);
        world.table = world.memory.clone();
        let comes = async {
            world.env.sleep(Duration::from_millis(100)).await;
            world.append("test/a", "4").await;
        };
        let key = entity();
        let (rewound, ()) = tokio::join!(operator.end_rewind(&key), comes);
        assert_eq!(done(rewound.expect("memory answers")).applied, 3);
        let since = world.state("test/a").await.pending_since;
        assert!(since >= Some(began), "before call {before}: {since:?}");
        if table.requests() < before {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deliveries_still_start_singly_after_ended_rewind() {
    let world = TestWorld::new().with_sources(tests::source!("test", "deliver = { up_to = 5 }"));
    world.append_all("test/a", ["1", "2", "3"]).await;
    let counting = Counting::default();
    world.work(&[world.drainer(counting.clone())]).await;
    rewound(&world, 0).await;
    world.append_all("test/a", ["4", "5"]).await;
    world.acquire("test/a", LeaseKind::Drain, Duration::from_secs(15)).await;
    world.env.sleep(Duration::from_secs(20)).await;
    assert_eq!(done(ended(&world).await).applied, 3);
    world.work(&[world.drainer(counting.clone())]).await;
    assert_eq!(counting.starts(), [vec!["1", "2", "3"], vec!["4"], vec!["5"]]);
}
