//! Unaffected orders do not wait for failing, busy, leased or rated ones. Uses the real worker with what a default
//! deployment has: five workers, each with one batch at a time.

use futures_util::future::join;
use tests::{faults::Fault, prelude::*, slots::WaitTimes, source};

const SOURCES: &str = concat!(
    source!("test"),
    source!("busy"),
    source!("sick", "handler_timeout = '10s'", "retry = { attempts = 20 }"),
    source!("flood"),
    source!("second"),
    source!("slowly", "rate = '1/s'"),
    source!("rated", "rate = '5/s'"),
);

/// `WorkerConcurrency` of a default deployment.
const WORKERS: usize = 5;

/// The handler takes 10 ms, half a second for `busy`, a second for `second` and 50 ms for `flood`. The test decides
/// about `sick`.
#[derive(Debug, Clone, Copy)]
struct Ordinary(fn(Duration) -> RunBehaviour);

enum RunBehaviour {
    Hangs,
    Refuses,
    Takes(Duration),
}

impl Handler for Ordinary {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let env = context.env();
        let takes = match delivery.source().as_str() {
            "test" | "slowly" | "rated" => Duration::from_millis(10),
            "busy" => Duration::from_millis(500),
            "second" => Duration::from_secs(1),
            "flood" => Duration::from_millis(50),
            _ => match (self.0)(env.monotonic()) {
                RunBehaviour::Hangs => std::future::pending().await,
                RunBehaviour::Refuses => return Ok(Outcome::unavailable("connection refused")),
                RunBehaviour::Takes(time) => time,
            },
        };
        env.sleep(takes).await;
        Ok(Outcome::Done)
    }
}

fn world() -> TestWorld {
    TestWorld::new().with_sources(SOURCES)
}

fn workers(world: &TestWorld, count: usize, behaviour: fn(Duration) -> RunBehaviour) -> Vec<Worker> {
    (0..count).map(|_| world.worker(Ordinary(behaviour))).collect()
}

/// Appends one delivery a millisecond, so that they spread over several batches.
async fn append(world: &TestWorld, source: &str, orders: usize, each: usize) {
    for round in 0..each {
        for order in 0..orders {
            let entity = format!("{source}/{order}");
            let incoming = world.incoming_from(source, &entity, &format!("{source}-{order}-{round}"));
            world.inbox().append(&incoming).await.expect("it is appended");
            world.env.sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Hangs for two minutes only, so that the run ends.
fn hangs(now: Duration) -> RunBehaviour {
    match now < Duration::from_secs(120) {
        true => RunBehaviour::Hangs,
        false => RunBehaviour::Takes(Duration::from_millis(10)),
    }
}

/// Returns how long other orders wait while `busy` runs.
async fn others_wait(world: &TestWorld, after: Duration, busy: impl Future<Output = ()>) -> WaitTimes {
    let workers = workers(world, WORKERS, hangs);
    let (waited, ()) = join(world.others_wait(&workers, 1, after, 60), busy).await;
    println!("{waited:?}");
    waited
}

async fn others_wait_beside(source: &str, orders: usize, each: usize) -> WaitTimes {
    let world = world();
    others_wait(&world, Duration::ZERO, append(&world, source, orders, each)).await
}

/// Until the first handlers time out after ten seconds, every worker may wait for them.
#[tokio::test(start_paused = true)]
async fn hanging_endpoint_delays_median_order_under_1s() {
    let waited = others_wait_beside("sick", 500, 1).await;
    assert!(waited.median < Duration::from_secs(1), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_hangs_for_long_delays_no_other_order() {
    let world = world();
    let after = Duration::from_secs(11);
    let waited = others_wait(&world, after, append(&world, "sick", 500, 1)).await;
    assert!(waited.is_short(), "{waited:?}");
}

/// Promise: isolation: no order delays another while a worker has room.
#[tokio::test(start_paused = true)]
async fn ten_backlogged_orders_delay_no_other_order() {
    let waited = others_wait_beside("busy", 10, 30).await;
    assert!(waited.is_short(), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn hundred_backlogged_orders_delay_no_other_order() {
    let waited = others_wait_beside("busy", 100, 30).await;
    assert!(waited.is_short(), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn hundred_backlogs_of_slow_handlers_delay_no_other_order() {
    let waited = others_wait_beside("second", 100, 30).await;
    assert!(waited.is_short(), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn flood_of_one_source_delays_no_other_order() {
    let waited = others_wait_beside("flood", 500, 4).await;
    assert!(waited.is_short(), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn hundred_slowly_rated_orders_delay_no_other_order() {
    let waited = others_wait_beside("slowly", 100, 30).await;
    assert!(waited.is_short(), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn hundred_rated_orders_delay_no_other_order() {
    let waited = others_wait_beside("rated", 100, 30).await;
    assert!(waited.is_short(), "{waited:?}");
}

/// The leased order gets thirty webhooks a second.
#[tokio::test(start_paused = true)]
async fn leased_order_delays_no_other_order() {
    let world = world();
    let leases = world.leases("a program");
    let leased = key("test/leased");
    let work = leases.run(&leased, Terms::default(), |_| async {
        world.env.sleep(Duration::from_secs(60)).await;
        Ok::<_, String>(())
    });
    let webhooks = async {
        for number in 0..1800 {
            world.append("test/leased", &format!("leased-{number}")).await;
            world.env.sleep(Duration::from_secs(1) / 30).await;
        }
    };
    let waited = others_wait(&world, Duration::ZERO, async {
        join(work, webhooks).await.0.expect("the lease is kept");
    });
    let waited = waited.await;
    assert!(waited.is_short(), "{waited:?}");
    assert_eq!(world.applied().len(), 600 + 1800);
}

/// Each worker dies with ten orders that have a backlog.
#[tokio::test(start_paused = true)]
async fn dead_workers_orders_delay_no_other_order() {
    let world = world();
    let dying = workers(&world, WORKERS, hangs);
    let is_over = AtomicBool::new(false);
    append(&world, "busy", 50, 1).await;
    let fed = join(world.feed(&dying, 1, &is_over), async {
        for order in 0..50 {
            world.append_all_from("busy", &format!("busy/{order}"), 1..10).await;
        }
    });
    assert!(world.env.within(Duration::from_millis(300), fed).await.is_none());
    world.messages.receivers_died();
    let waited = others_wait(&world, Duration::ZERO, async {}).await;
    assert!(waited.is_short(), "{waited:?}");
    assert_eq!((world.events.taken_over(), world.applied().len()), (50, 600 + 500));
}

/// The store throttles every write of one order for a minute.
#[tokio::test(start_paused = true)]
async fn throttled_order_delays_no_other_order() {
    let mut world = world();
    world.append_all("test/throttled", 0..60).await;
    let env = world.env.clone();
    let over = world.env.monotonic() + Duration::from_secs(60);
    let throttled = entity_row(&key("test/throttled"));
    world.fail(Fault::Before(TableError::Throttled), move |call| {
        env.monotonic() < over && call.writes.iter().any(|write| write.key == throttled)
    });
    let waited = others_wait(&world, Duration::ZERO, async {}).await;
    assert!(waited.is_short(), "{waited:?}");
}

/// A hundred orders share ten slots; four deliveries of each take 12 s in parallel, and pauses between slices.
#[tokio::test(start_paused = true)]
async fn slow_successful_handler_opens_no_breaker() {
    let world = world();
    let workers = workers(&world, 10, |_| RunBehaviour::Takes(Duration::from_secs(3)));
    append(&world, "sick", 100, 4).await;
    let began = world.env.monotonic();
    world.feed(&workers, 1, &AtomicBool::new(true)).await;
    let ended = world.journal.runs().into_iter().map(|run| run.ended).max().expect("some ran");
    assert!(ended - began < Duration::from_secs(20), "{:?}", ended - began);
    assert_eq!((world.applied().len(), world.events.held_back()), (400, 0));
}

#[tokio::test(start_paused = true)]
async fn breaker_parks_no_delivery_of_destination_refusing_for_an_hour() {
    let world = world();
    let workers = workers(&world, 5, |now| match now < Duration::from_secs(3600) {
        true => RunBehaviour::Refuses,
        false => RunBehaviour::Takes(Duration::from_millis(10)),
    });
    append(&world, "sick", 50, 2).await;
    world.feed(&workers, 1, &AtomicBool::new(true)).await;
    let (opened, closed) = world.events.breakers();
    assert!(opened > 0 && closed > 0, "{opened} {closed}");
    assert_eq!(world.applied().len(), 100, "nothing was given up in an hour");
    for order in 0..50 {
        assert!(world.state(&format!("sick/{order}")).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn open_breaker_admits_one_probe_at_a_time() {
    let world = world();
    let workers = workers(&world, 1, |_| RunBehaviour::Hangs);
    append(&world, "sick", 30, 1).await;
    let over = AtomicBool::new(false);
    let end = async {
        world.env.sleep(Duration::from_secs(600)).await;
        over.store(true, Relaxed);
    };
    let feed = world.feed(&workers, 1, &over);
    tokio::select! {
        () = feed => {}
        () = end => {}
    }
    let mut runs = world.journal.runs();
    // The end of the test drops a handler that runs.
    runs.retain(|run| run.ended < Duration::from_secs(600));
    runs.sort_by_key(|run| run.started);
    // The first batch started before the breaker opened.
    let probes = &runs[10..];
    assert!(probes.len() >= 4, "{}", probes.len());
    for pair in probes.windows(2) {
        assert!(pair[1].started >= pair[0].ended + Duration::from_secs(5), "{pair:?}");
        assert_ne!(pair[1].entity, pair[0].entity, "another order than the one that failed last");
    }
    let mut charged = 0;
    for order in 0..30 {
        charged += world.state(&format!("sick/{order}")).await.attempts as usize;
    }
    assert_eq!(charged, runs.len(), "as many attempts as starts");
}
