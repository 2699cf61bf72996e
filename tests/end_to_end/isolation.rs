//! Unaffected orders do not wait for failing or busy ones. Uses the real worker with the usual slots.

use futures_util::future::join;
use serializer::local::{DEFAULT_WORKERS, SLOTS};
use tests::{prelude::*, slots::WaitTimes, source};

const SOURCES: &str = concat!(
    source!("test"),
    source!("busy"),
    source!("sick", "handler_timeout = '10s'", "retry = { attempts = 20 }"),
    source!("flood"),
);

/// The handler takes 10 ms for `test`, half a second for `busy` and 50 ms for `flood`. The test decides about
/// `sick`.
#[derive(Debug, Clone, Copy)]
struct Ordinary(fn(Duration) -> Behaviour);

enum Behaviour {
    Hangs,
    Refuses,
    Takes(Duration),
}

impl Handler for Ordinary {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let env = context.env();
        let takes = match delivery.source().as_str() {
            "test" => Duration::from_millis(10),
            "busy" => Duration::from_millis(500),
            "flood" => Duration::from_millis(50),
            _ => match (self.0)(env.monotonic()) {
                Behaviour::Hangs => std::future::pending().await,
                Behaviour::Refuses => return Ok(Outcome::unavailable("connection refused")),
                Behaviour::Takes(time) => time,
            },
        };
        env.sleep(takes).await;
        Ok(Outcome::Done)
    }
}

fn world() -> World {
    World::new().with_sources(SOURCES)
}

fn workers(world: &World, count: usize, behaviour: fn(Duration) -> Behaviour) -> Vec<Worker> {
    (0..count).map(|_| world.worker(Ordinary(behaviour))).collect()
}

/// Appends one delivery a millisecond, so that they spread over several batches.
async fn append(world: &World, source: &str, orders: usize, each: usize) {
    for round in 0..each {
        for order in 0..orders {
            let entity = format!("{source}/{order}");
            let incoming = world.incoming_from(source, &entity, &format!("{source}-{order}-{round}"));
            world.inbox().append(&incoming).await.expect("it is appended");
            world.env.sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn beside(source: &str, orders: usize, each: usize, workers: usize, slots: usize) -> WaitTimes {
    let world = world();
    let workers = self::workers(&world, workers, hangs);
    join(world.others_wait(&workers, slots, 60), append(&world, source, orders, each)).await.0
}

async fn beside_by_default(source: &str, orders: usize, each: usize) -> WaitTimes {
    beside(source, orders, each, DEFAULT_WORKERS.get(), SLOTS).await
}

/// Hangs for two minutes only, so that the run ends.
fn hangs(now: Duration) -> Behaviour {
    match now < Duration::from_secs(120) {
        true => Behaviour::Hangs,
        false => Behaviour::Takes(Duration::from_millis(10)),
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_endpoint_delays_no_other_order() {
    let waited = beside_by_default("sick", 500, 1).await;
    assert!(waited.is_short(), "{waited:?}");
}

/// An account limited to ten concurrent executions allows at most five slots.
#[tokio::test(start_paused = true)]
async fn hanging_endpoint_delays_median_order_under_1s_with_five_slots() {
    let waited = beside("sick", 500, 1, 5, 1).await;
    assert!(waited.median < Duration::from_secs(1), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn ten_backlogged_orders_delay_no_other_order() {
    let waited = beside_by_default("busy", 10, 30).await;
    assert!(waited.is_short(), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn hundred_backlogged_orders_delay_no_other_order() {
    let waited = beside_by_default("busy", 100, 30).await;
    assert!(waited.is_short(), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn flood_of_one_source_delays_no_other_order() {
    let waited = beside_by_default("flood", 500, 4).await;
    assert!(waited.is_short(), "{waited:?}");
}

/// A hundred orders share ten slots; four deliveries of each take 12 s in parallel.
#[tokio::test(start_paused = true)]
async fn slow_successful_handler_opens_no_breaker() {
    let world = world();
    let workers = workers(&world, 10, |_| Behaviour::Takes(Duration::from_secs(3)));
    append(&world, "sick", 100, 4).await;
    let began = world.env.monotonic();
    world.feed(&workers, 1, &AtomicBool::new(true)).await;
    let ended = world.journal.runs().into_iter().map(|run| run.ended).max().expect("some ran");
    assert_eq!(ended - began, Duration::from_secs(12));
    assert_eq!((world.applied().len(), world.events.held_back()), (400, 0));
}

#[tokio::test(start_paused = true)]
async fn breaker_parks_no_delivery_of_destination_refusing_for_an_hour() {
    let world = world();
    let workers = workers(&world, 5, |now| match now < Duration::from_secs(3600) {
        true => Behaviour::Refuses,
        false => Behaviour::Takes(Duration::from_millis(10)),
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
    let workers = workers(&world, 1, |_| Behaviour::Hangs);
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
