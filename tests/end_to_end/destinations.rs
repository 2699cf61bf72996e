//! Destinations that are down for minutes, hours or days. Nothing is parked before its limit, order is kept,
//! attempts are few, and the backlog drains soon afterwards.

mod endpoints;

use std::sync::atomic::AtomicUsize;

use tests::{prelude::*, slots::WaitTimes, source};
use webhook_serializer::{engine::drain::InFlight, operator::StateChange, protocol::attempt::FailureClass};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Default limits.
const DEFAULTS: &str = concat!(source!("shop"), source!("well"));

fn world() -> TestWorld {
    TestWorld::new().with_sources(DEFAULTS)
}

async fn append(world: &TestWorld, source: &str, order: &str, id: &str) {
    world.append_from(source, &format!("{source}/{order}"), id).await;
}

async fn parked(world: &TestWorld, order: &str) -> Vec<String> {
    let entity = key(&format!("shop/{order}"));
    let parked = world.operator().parked(&entity).await.expect("memory answers");
    parked.into_iter().map(|parked| parked.error).collect()
}

type DestinationAnswer = fn() -> Outcome;

const DOWN: [DestinationAnswer; 3] = [
    || Outcome::unavailable("connection refused"),
    || Outcome::unanswered("no answer within 9.9 s"),
    || Outcome::not_now("the function is throttled"),
];

/// Returns a handler that takes a second. Until `back`, it gives `answer` for the source `shop` and counts
/// these starts.
fn down_until(back: Duration, answer: DestinationAnswer, starts: &Arc<AtomicUsize>) -> impl Handler + Clone {
    let starts = starts.clone();
    Scripted(move |delivery: &Delivery, context: &Context| {
        let env = context.env().clone();
        let is_shop = delivery.source().as_str() == "shop";
        let starts = starts.clone();
        async move {
            let is_down = is_shop && env.monotonic() < back;
            starts.fetch_add(usize::from(is_down), Relaxed);
            env.sleep(SECOND).await;
            Ok::<_, HandlerError>(if is_down { answer() } else { Outcome::Done })
        }
    })
}

/// Works like [`TestWorld::work`], but every `dies`th wake-up kills its process after half a second.
async fn work_and_die(world: &TestWorld, processes: &[impl Fn() -> Drainer], dies: usize) {
    let received = AtomicUsize::new(1);
    join_all(processes.iter().map(async |process| {
        let mut drainer = process();
        while let Some(message) = world.messages.receive().await {
            let wake_up = match &message.content {
                Message::WakeUp(wake_up) => ReceivedWakeUp::wake_up(wake_up.clone(), message.times),
                Message::Deferred(deferred) => ReceivedWakeUp::new(deferred.entity().clone(), message.times),
            };
            let deadline = world.env.monotonic() + world.function_time;
            let alone = SuspectGate::new(1);
            let in_flight = InFlight::new(&world.env, false);
            let acknowledgement = drainer.process_among(&wake_up, deadline, &alone, &in_flight);
            let lives = match received.fetch_add(1, Relaxed).is_multiple_of(dies) {
                true => SECOND / 2,
                false => world.function_time * 2,
            };
            let acknowledgement = world.env.within(lives, acknowledgement).await.unwrap_or_else(|| {
                drainer = process();
                Acknowledgement::Keep
            });
            world.messages.acknowledge(message, acknowledgement);
        }
    }))
    .await;
}

/// Promise: hours of an unavailable destination park nothing; each class has its own limit; a lost wake-up stalls
/// nothing.
#[tokio::test(start_paused = true)]
async fn three_minute_destination_outage_parks_no_delivery() {
    for answer in DOWN {
        for orders in [1, 5] {
            let world = world();
            let starts = Arc::default();
            for order in 0..orders {
                append(&world, "shop", &order.to_string(), &order.to_string()).await;
            }
            let handler = down_until(world.env.monotonic() + 3 * MINUTE, answer, &starts);
            world.work(&[world.drainer(handler)]).await;
            let mut applied = world.applied();
            applied.sort();
            assert_eq!(applied, (0..orders).map(|order| order.to_string()).collect::<Vec<_>>(), "{:?}", answer());
            assert!(starts.load(Relaxed) <= 60, "{:?}: {starts:?} starts of {orders}", answer());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn long_destination_outage_is_reported_once() {
    let fails = || Outcome::retry("it broke");
    for (orders, down, answer, [hung, unavailable]) in [
        (1, 20 * SECOND, DOWN[0], [0, 0]),
        (1, 3 * MINUTE, DOWN[0], [0, 1]),
        (1, 3 * MINUTE, DOWN[1], [1, 0]),
        // The breaker opens before any delivery has waited for a minute.
        (3, 20 * SECOND, DOWN[0], [0, 1]),
        (3, 20 * SECOND, DOWN[1], [1, 0]),
        (1, 3 * MINUTE, fails, [0, 0]),
    ] {
        let world = world();
        let starts = Arc::default();
        for order in 0..orders {
            append(&world, "shop", &order.to_string(), "1").await;
        }
        world.work(&[world.drainer(down_until(world.env.monotonic() + down, answer, &starts))]).await;
        let events = &world.events;
        let reports = [events.hung(), events.unavailable(), events.available()];
        assert_eq!(reports, [hung, unavailable, hung + unavailable], "{orders}: {:?} for {down:?}", answer());
    }
}

/// Keeps `shop` down for six hours, while every fortieth wake-up kills its worker. Returns how long the
/// backlog then took.
async fn six_hours_down(world: &TestWorld, orders: usize, handler: impl Handler + Clone) -> Duration {
    let back = world.env.monotonic() + 6 * HOUR;
    let process = || world.drainer(handler.clone());
    let processes: Vec<_> = (0..10).map(|_| process).collect();
    let mut sent_to_well = BTreeMap::new();
    let senders = async {
        for hour in 0..6 {
            for order in 0..orders {
                if hour == 0 || order % 50 == 0 {
                    append(world, "shop", &order.to_string(), &format!("{order}.{hour}")).await;
                }
            }
            for minute in 0..60 {
                let id = format!("well {hour}.{minute}");
                append(world, "well", &format!("{minute}"), &id).await;
                sent_to_well.insert(id, world.env.monotonic());
                world.env.sleep(MINUTE).await;
            }
        }
    };
    let works = async {
        world.env.sleep(SECOND).await;
        work_and_die(world, &processes, 40).await;
    };
    tokio::join!(senders, works);
    let runs = world.journal.runs();
    let mut applied: BTreeMap<EntityKey, Vec<(u64, String)>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.ending == RunEnd::Applied) {
        applied.entry(run.entity.clone()).or_default().push((run.token.0, run.delivery_id.clone()));
    }
    for (entity, mut runs) in applied.clone() {
        runs.sort();
        let ids: Vec<_> = runs.into_iter().map(|(_, id)| id).collect();
        let mut sorted = ids.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(ids, sorted, "{entity}: in order, each once");
    }
    let all: BTreeSet<_> = applied.values().flatten().map(|(_, id)| id.clone()).collect();
    let sent = orders + 5 * orders.div_ceil(50) + 360;
    assert_eq!(all.len(), sent, "nothing is parked");
    let mut first_starts = BTreeMap::new();
    for run in &runs {
        first_starts.entry(&run.delivery_id).or_insert(run.started);
    }
    let waited = WaitTimes::of(sent_to_well.iter().map(|(id, sent)| first_starts[id].saturating_sub(*sent)).collect());
    assert!(waited.is_short(), "another source notices: {waited:?}");
    let last = runs.iter().filter(|run| run.ending == RunEnd::Applied).map(|run| run.ended).max();
    last.expect("some were applied").saturating_sub(back)
}

#[tokio::test(start_paused = true)]
async fn delivery_is_applied_after_destinations_six_hour_outage() {
    for (answer, most) in DOWN.into_iter().zip([140, 60, 4_500]) {
        let world = world();
        let starts = Arc::default();
        let handler = down_until(world.env.monotonic() + 6 * HOUR, answer, &starts);
        let took = six_hours_down(&world, 1, handler).await;
        let starts = starts.load(Relaxed);
        assert!((20..=most).contains(&starts), "{:?}: {starts} starts", answer());
        assert!(took <= 15 * MINUTE + 30 * SECOND, "{:?}: {took:?}", answer());
    }
}

#[tokio::test(start_paused = true)]
async fn delivery_that_always_hangs_is_parked_after_a_day() {
    let world = world();
    for (order, id) in [("a", "poison"), ("a", "behind"), ("b", "1"), ("c", "1")] {
        append(&world, "shop", order, id).await;
    }
    let began = world.env.monotonic();
    let handler = Scripted(|delivery: &Delivery, _: &Context| {
        let hangs = delivery.delivery_id().as_str() == "poison";
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok::<_, HandlerError>(Outcome::Done)
        }
    });
    world.work(&[world.drainer(handler.clone()), world.drainer(handler)]).await;
    let runs = world.journal.runs();
    let ended = |id: &str| runs.iter().filter(|run| run.delivery_id == id).map(|run| run.ended - began).max().unwrap();
    assert_eq!(parked(&world, "a").await, ["the handler's time was up"]);
    assert!((DAY..DAY + 2 * HOUR).contains(&ended("behind")), "{:?}", ended("behind"));
    assert!(ended("1") < SECOND);
    let starts = runs.iter().filter(|run| run.delivery_id == "poison").count();
    assert!((90..=160).contains(&starts), "{starts} starts");
}

/// Deliveries behind the first one do not each wait three more days.
#[tokio::test(start_paused = true)]
async fn backlog_is_parked_together_after_three_day_destination_outage() {
    let world = world();
    let starts = Arc::default();
    for id in 0..50 {
        append(&world, "shop", "a", &format!("{id:02}")).await;
    }
    let began = world.env.monotonic();
    let handler = down_until(began + 30 * DAY, DOWN[0], &starts);
    let late = async {
        world.env.sleep(2 * DAY).await;
        append(&world, "shop", "a", "late").await;
    };
    let works = async {
        world.env.sleep(SECOND).await;
        world.work(&[world.drainer(handler)]).await;
    };
    tokio::join!(late, works);
    assert_eq!(parked(&world, "a").await.len(), 51);
    let runs = world.journal.runs();
    let last = |id: &str| runs.iter().filter(|run| run.delivery_id == id).map(|run| run.ended - began).max().unwrap();
    assert!((3 * DAY..3 * DAY + HOUR).contains(&last("00")), "{:?}", last("00"));
    assert!(last("49") < 3 * DAY + HOUR, "{:?}", last("49"));
    assert!((5 * DAY - HOUR..5 * DAY + HOUR).contains(&last("late")), "{:?}: by its own age", last("late"));
}

#[tokio::test(start_paused = true)]
async fn delivery_failing_for_an_hour_is_parked() {
    let world = world();
    append(&world, "shop", "a", "1").await;
    let began = world.env.monotonic();
    world.work(&[world.drainer(answering(|_, _| Outcome::retry("it broke")))]).await;
    let took = world.env.monotonic() - began;
    assert!((HOUR..HOUR + 10 * MINUTE).contains(&took), "{took:?}");
    assert!((13..=25).contains(&world.started().len()), "{} starts", world.started().len());
    assert_eq!(parked(&world, "a").await, ["it broke"]);
}

/// The time of an outage does not count towards the hour in which a failing delivery is retried.
#[tokio::test(start_paused = true)]
async fn destination_outage_does_not_use_up_failure_retries() {
    let world = world();
    append(&world, "shop", "a", "1").await;
    let back = world.env.monotonic() + 6 * HOUR;
    let clock = world.env.clone();
    let failed = Arc::new(AtomicUsize::new(0));
    let attempts = Arc::new(AtomicUsize::new(0));
    let fails = failed.clone();
    let seen = attempts.clone();
    let handler = answering(move |delivery, _| match clock.monotonic() < back {
        true => Outcome::unavailable("connection refused"),
        false => {
            seen.fetch_max(delivery.attempt() as usize, Relaxed);
            if fails.fetch_add(1, Relaxed) < 3 { Outcome::retry("it starts up") } else { Outcome::Done }
        }
    });
    world.work(&[world.drainer(handler)]).await;
    assert_eq!(world.applied(), ["1"]);
    assert_eq!(attempts.load(Relaxed), 4, "what was never begun is no attempt");
}

#[tokio::test(start_paused = true)]
async fn order_waiting_for_retry_has_one_wake_up() {
    for answer in DOWN {
        let world = world();
        let starts = Arc::default();
        let handler = down_until(world.env.monotonic() + HOUR, answer, &starts);
        for id in 0..5 {
            append(&world, "shop", "a", &format!("{id:02}")).await;
        }
        let drainer = world.drainer(handler);
        for _ in 0..30 {
            while let Some(message) = world.messages.receive_due() {
                let acknowledgement = world.process_in_worker(&drainer, &message).await;
                world.messages.acknowledge(message, acknowledgement);
            }
            world.env.sleep(SECOND).await;
        }
        let state = world.state("shop/a").await;
        assert_eq!(
            (state.handover, world.messages.len()),
            (state.retry_at, 1),
            "{:?}: the others are released",
            answer()
        );
        let sent = world.messages.sent();
        for id in 5..50 {
            append(&world, "shop", "a", &format!("{id:02}")).await;
        }
        assert_eq!(world.messages.sent(), sent, "{:?}: claims rely on it", answer());
        world.work(&[drainer]).await;
        assert_eq!(world.applied().len(), 50);
    }
}

/// A webhook arrives every four minutes, and the queue loses the retry's wake-up.
#[tokio::test(start_paused = true)]
async fn later_claim_replaces_a_lost_retry_wake_up() {
    let world = world();
    let starts = Arc::default();
    let handler = down_until(world.env.monotonic() + 10 * SECOND, DOWN[0], &starts);
    let drainer = world.drainer(handler);
    append(&world, "shop", "a", "00").await;
    world.process_next(&drainer).await;
    assert!(world.state("shop/a").await.handover.is_some());
    world.messages.clear();
    for id in 1..=5 {
        world.env.sleep(4 * MINUTE).await;
        append(&world, "shop", "a", &format!("{id:02}")).await;
        world.sweeper().sweep_all().await.expect("memory answers");
        world.work(std::slice::from_ref(&drainer)).await;
        if id == 1 {
            assert_eq!(world.applied(), [""; 0], "its wake-up may still come");
        }
    }
    assert_eq!(world.applied().len(), 6);
}

/// Two processes have an open breaker each, and the operator tries all orders again, several times, in the middle
/// of the outage.
#[tokio::test(start_paused = true)]
async fn retry_command_prolongs_no_wait_during_outage() {
    let asks: [DestinationAnswer; 2] = [
        || Outcome::Unavailable { after: Some(HOUR), error: "503 with Retry-After".into() },
        || Outcome::NotNow { after: Some(HOUR), error: "429 with Retry-After".into() },
    ];
    for (answer, later) in DOWN.into_iter().zip([DOWN[1], asks[0], asks[1]]) {
        let world = world();
        let starts = Arc::default();
        let orders: Vec<String> = (1..=8).map(|order| format!("shop/{order}")).collect();
        for order in &orders {
            append(&world, "shop", &order["shop/".len()..], "1").await;
        }
        let handler = down_until(world.env.monotonic() + HOUR, answer, &starts);
        let drainers = [world.drainer(handler.clone()), world.drainer(handler)];
        let _ = world.env.within(2 * MINUTE, world.work(&drainers)).await;
        let handler = down_until(world.env.monotonic() + HOUR, later, &starts);
        let drainers = [world.drainer(handler.clone()), world.drainer(handler)];
        let work_for = async |time| world.env.within(time, world.work(&drainers)).await.unwrap_or_default();
        for round in 1..=3 {
            let before = starts.load(Relaxed);
            let mut waits = Vec::new();
            for order in &orders {
                let state = world.state(order).await;
                let wait = state.retry_at.filter(|at| *at > world.env.now() + 5 * SECOND);
                if matches!(world.operator().retry(&key(order)).await, Ok(StateChange::Done(_))) {
                    waits.push((order, wait, state.retries.total()));
                }
            }
            work_for(3 * SECOND).await;
            for (order, wait, total) in waits {
                let state = world.state(order).await;
                let Some(wait) = wait else { continue };
                // After a start without an answer, the handler may still run for as long.
                let latest = wait.max(world.env.now() + SECOND);
                assert!(state.retry_at <= Some(latest), "round {round}, {order}: {wait:?}, {state:?}");
                assert!(state.retries.total() <= total + SECOND, "round {round}, {order}: {total:?}, {state:?}");
            }
            assert!(starts.load(Relaxed) - before <= 2 * 4, "a probe a second of each process");
            work_for(20 * SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retry_command_of_one_order_frees_recovered_destination() {
    let world = world();
    let starts = Arc::default();
    for order in ["1", "2", "3", "4"] {
        append(&world, "shop", order, "1").await;
    }
    let back = world.env.monotonic() + 10 * MINUTE;
    let drainers = [world.drainer(down_until(back, DOWN[0], &starts))];
    let _ = world.env.within(10 * MINUTE, world.work(&drainers)).await;
    assert_eq!(world.applied(), [""; 0]);
    let waits =
        async |order: &str| world.state(order).await.retry_at.is_some_and(|at| at > world.env.now() + 5 * SECOND);
    let mut longest = None;
    for order in ["shop/1", "shop/2", "shop/3", "shop/4"] {
        if waits(order).await {
            longest = Some(order);
        }
    }
    world.operator().retry(&key(longest.expect("one waits"))).await.expect("memory answers");
    let _ = world.env.within(3 * SECOND, world.work(&drainers)).await;
    assert!(!world.applied().is_empty(), "the breaker lets it through");
}

/// The last wait before the limit has been counted in whole when it begins.
#[tokio::test(start_paused = true)]
async fn retry_command_in_last_wait_parks_nothing() {
    let world = world();
    append(&world, "shop", "a", "1").await;
    let drainer = world.drainer(answering(|_, _| Outcome::retry("no")));
    let failed_for = async || world.state("shop/a").await.retries.waited(FailureClass::Failed);
    while failed_for().await < HOUR {
        world.process_next(&drainer).await;
    }
    let due = world.state("shop/a").await.retry_at.expect("it waits");
    // Less than an hour has passed, and more than an hour less the allowance for clock skew.
    let rest = failed_for().await - (HOUR - 2 * MINUTE);
    world.env.sleep(due.since(world.env.now()).saturating_sub(rest)).await;
    world.operator().retry(&key("shop/a")).await.expect("memory answers");
    world.process_next(&drainer).await;
    assert_eq!((parked(&world, "a").await.len(), world.state("shop/a").await.retry_at), (0, Some(due)));
    while parked(&world, "a").await.is_empty() {
        world.process_next(&drainer).await;
    }
    assert!(world.env.now() >= due, "as without the operator");
}

#[tokio::test(start_paused = true)]
async fn retry_command_keeps_counted_waiting_time() {
    let world = world();
    let starts = Arc::default();
    append(&world, "shop", "a", "1").await;
    let back = world.env.monotonic() + DAY;
    let drainer = world.drainer(down_until(back, DOWN[0], &starts));
    let process = async || {
        world.process_next(&drainer).await;
        world.state("shop/a").await.retries.waited(FailureClass::Unavailable)
    };
    let first = process().await;
    world.operator().retry(&key("shop/a")).await.expect("memory answers");
    let second = process().await;
    assert!(second > first, "{first:?}, {second:?}");
    assert_eq!(starts.load(Relaxed), 2);
}
