//! A store or queue that refuses, throttles, reports conflicts or is silent. Ingest answers in time, workers
//! lose nothing, and no handler runs without a lease.

use serializer::view::audit::AuditVerdict;
use tests::prelude::*;

/// The longest time that ingest may take for an answer: half of the five seconds after which the least
/// patient sender gives up.
const ANSWER: Duration = Duration::from_millis(2500);

fn throttled() -> Fault {
    Fault::Before(TableError::Throttled)
}

fn conflict() -> Fault {
    Fault::Before(TableError::Conflict)
}

fn refused() -> Fault {
    Fault::Before(TableError::Unknown("no connection".into()))
}

fn denied() -> Fault {
    Fault::Before(TableError::Invalid("AccessDeniedException".into()))
}

fn outages() -> [Fault; 6] {
    [throttled(), conflict(), refused(), denied(), Fault::Silent, Fault::SilentAfter]
}

fn is_put(write: &[Write]) -> bool {
    matches!(write, [Write { action: Action::Put(_), .. }])
}

/// Posts one webhook under the two plans, and checks that the answer came in time. Then repeats the webhook
/// unless it was answered 200, sweeps, and checks that it is applied once.
async fn answered(
    plan: impl Fn(&TableCall<'_>) -> Fault + Send + Sync + 'static,
    queue_plan: impl Fn(u64) -> Fault + Send + Sync + 'static,
) -> Response {
    let mut world = TestWorld::new();
    let table = world.table.clone();
    let queue = world.queue.clone();
    world.break_table(plan);
    world.break_queue(queue_plan);
    let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
    let webhook = request(&signed(&world.sources(), "test", "1", update("7"), world.env.now()));
    let before = world.env.monotonic();
    let response = ingest.answer(&webhook).await;
    let took = world.env.monotonic() - before;
    assert!(took <= ANSWER, "{took:?}");

    (world.table, world.queue) = (table, queue);
    if response.status_code != 200 {
        assert_eq!((response.status_code, response.headers.contains_key("retry-after")), (503, true));
        let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
        assert_eq!(ingest.answer(&webhook).await.status_code, 200);
    }
    tokio::time::advance(Duration::from_secs(400)).await;
    world.sweeper().sweep_all().await.expect("it sweeps");
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1"]);
    assert_eq!(world.state("test/order/7").await.waiting(), 0);
    response
}

/// Promise: 503 without the store, or for an unknown signature without the document.
#[tokio::test(start_paused = true)]
async fn ingest_answers_503_in_time_without_store() {
    for fault in outages() {
        for puts_only in [false, true] {
            let what = format!("{fault:?}, of puts only: {puts_only}");
            let fault = fault.clone();
            let plan = move |call: &TableCall<'_>| match !puts_only || is_put(call.writes) {
                true => fault.clone(),
                false => Fault::None,
            };
            assert_eq!(answered(plan, |_| Fault::None).await.status_code, 503, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ingest_waits_out_a_short_store_outage() {
    for fault in [throttled(), conflict(), refused(), Fault::ReplyLost, Fault::Silent, Fault::SilentAfter] {
        for bad in 1..=2 {
            let what = format!("{bad}: {fault:?}");
            let fault = fault.clone();
            let plan = move |call: &TableCall<'_>| if call.request == bad { fault.clone() } else { Fault::None };
            assert_eq!(answered(plan, |_| Fault::None).await.status_code, 200, "{what}");
        }
    }
}

/// Promise: 200 only when durable, even without the queue; a ping gets 200, too.
#[tokio::test(start_paused = true)]
async fn ingest_answers_200_while_queue_is_unreachable() {
    for fault in outages() {
        let what = format!("{fault:?}");
        let response = answered(|_| Fault::None, move |_| fault.clone()).await;
        assert_eq!(response.status_code, 200, "{what}");
    }
}

/// Promise: every answer within 2.5 s, plus a second for a sender's key.
#[tokio::test(start_paused = true)]
async fn ingest_answers_in_time_with_slow_store() {
    for slow in [200, 500, 800, 1000] {
        let plan = move |_: &TableCall<'_>| Fault::Slow(Duration::from_millis(slow));
        let response = answered(plan, |_| Fault::Silent).await;
        assert_eq!(response.status_code, if slow < 900 { 200 } else { 503 }, "{slow} ms");
    }
}

const WORKERS: usize = 4;
const ENTITIES: [&str; 5] = ["test/a", "test/b", "test/c", "test/d", "test/e"];
const FROM: Duration = Duration::from_secs(5);
const TO: Duration = Duration::from_secs(45);

/// Four workers handle twenty-five deliveries of five orders, each in three seconds. From 5 s to 45 s all
/// calls fail.
async fn through_an_outage(fault: Fault, queue_fault: Fault) {
    let what = format!("{fault:?}, {queue_fault:?}");
    let mut world = TestWorld::new();
    let env = world.env.clone();
    let mut sent = Vec::new();
    for number in 0..5 {
        for entity in ENTITIES {
            let incoming = world.incoming(entity, &format!("{entity}-{number}"));
            let at = env.monotonic();
            world.inbox().append(&incoming).await.expect("it is appended");
            let answered = Some(env.monotonic());
            sent.push(Sent { entity: incoming.entity, delivery_id: format!("{entity}-{number}"), sent: at, answered });
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }
    let out = move |clock: &Env| (FROM..TO).contains(&clock.monotonic());
    let table = world.table.clone();
    let queue = world.queue.clone();
    let clock = env.clone();
    let plan = move |_: &TableCall<'_>| if out(&clock) { fault.clone() } else { Fault::None };
    world.table = Arc::new(FaultyTable::new(table, &env, plan));
    let clock = env.clone();
    let plan = move |_| if out(&clock) { queue_fault.clone() } else { Fault::None };
    world.queue = Arc::new(FaultyQueue::new(queue, &env, plan));
    let drainers: Vec<_> = (0..WORKERS).map(|_| world.drainer(Slow(Duration::from_secs(3)))).collect();
    world.work(&drainers).await;

    let runs = world.journal.runs();
    let verdict = AuditVerdict::of(&sent, &runs, &BTreeSet::new());
    // Deliveries that were applied and not settled run again: handlers run at least once.
    let AuditVerdict { lost, overlaps, ran_ahead, repeated } = verdict;
    assert_eq!((lost, overlaps, ran_ahead), Default::default(), "{what}");
    assert!(repeated.len() <= WORKERS, "{what}: {repeated:?}");
    let unguarded = runs.iter().filter(|run| run.started > FROM && run.started < TO).count();
    assert_eq!(unguarded, 0, "{what}: started without a provable lease");
    assert!(runs.iter().any(|run| run.started >= TO), "{what}: it was in the way");
    for entity in ENTITIES {
        let mut tokens: Vec<_> = runs.iter().filter(|run| run.entity.as_str() == entity).collect();
        tokens.sort_by_key(|run| run.started);
        assert!(tokens.is_sorted_by(|a, b| a.token < b.token), "{what}: a token for each start");
        let state = world.state(entity).await;
        assert_eq!((state.waiting(), state.held), (0, None), "{what}");
    }
}

/// Promise: fail closed: without the store, no handler starts.
#[tokio::test(start_paused = true)]
async fn store_outage_loses_no_delivery_and_starts_none() {
    for fault in outages() {
        through_an_outage(fault, Fault::None).await;
    }
}

#[tokio::test(start_paused = true)]
async fn outage_of_store_and_queue_loses_no_delivery() {
    for fault in outages() {
        through_an_outage(fault.clone(), fault).await;
    }
}

#[tokio::test(start_paused = true)]
async fn handler_stops_before_unrenewed_lease_expires() {
    let mut world = TestWorld::new();
    world.append_from("slow", "slow/a", "1").await;
    let clock = world.env.clone();
    let from = Duration::from_secs(7);
    world.fail(Fault::Silent, move |_| (from..Duration::from_secs(60)).contains(&clock.monotonic()));
    world.work(&[world.drainer(Slow(Duration::from_secs(40))), world.drainer(Slow(Duration::from_secs(40)))]).await;
    let runs = world.journal.runs();
    assert_eq!(runs.iter().map(|run| run.ending).collect::<Vec<_>>(), [RunEnd::Dropped, RunEnd::Applied]);
    // The last renewal is after 5 s, so the lease ends 15 s later.
    assert!(runs[0].ended <= Duration::from_secs(5) + world.settings.lease, "{:?}", runs[0].ended);
    assert!(runs[1].started >= runs[0].ended);
}
