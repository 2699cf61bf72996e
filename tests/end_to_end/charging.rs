//! The counting of attempts: failed starts, and recorded starts whose holder vanished.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use tests::{prelude::*, source};
use webhook_serializer::{config::WorkerConfig, protocol::state::VANISHED_BEFORE_START};

const ATTEMPTS: usize = 3;
const MINUTE: Duration = Duration::from_secs(60);

fn endless() -> impl Handler + Clone {
    Scripted(|_: &Delivery, _: &Context| std::future::pending())
}

/// Processes one wake-up in a worker that vanishes after two seconds, and waits until its lease has expired.
async fn vanishes(world: &TestWorld, drainer: &Drainer) {
    let message = world.messages.receive().await.expect("a wake-up");
    let received = ReceivedWakeUp::new(message.content.entity().clone(), message.times);
    let deadline = world.env.monotonic() + world.function_time;
    let quarantine = SuspectGate::new(1);
    let acknowledgement =
        world.env.within(Duration::from_secs(2), drainer.process(&received, deadline, &quarantine)).await;
    world.messages.acknowledge(message, acknowledgement.unwrap_or(Acknowledgement::Keep));
    while world.state("test/a").await.held.is_some_and(|held| held.runs(world.env.now())) {
        world.env.sleep(Duration::from_secs(1)).await;
    }
}

fn marks_start(write: &Write) -> bool {
    let sets = |change: &Change| matches!(change, Change::Set(name, _) if *name == a::STARTED);
    matches!(&write.action, Action::Update(changes) if changes.iter().any(sets))
}

fn records_failure(write: &Write) -> bool {
    let sets = |change: &Change| matches!(change, Change::Set(name, _) if *name == a::LAST_ERROR);
    matches!(&write.action, Action::Update(changes) if changes.iter().any(sets))
}

async fn is_parked(world: &TestWorld, entity: &str) -> Vec<String> {
    let entity = key(entity);
    let parked = world.operator().parked(&entity).await.expect("memory answers");
    parked.into_iter().map(|parked| parked.error).collect()
}

#[tokio::test(start_paused = true)]
async fn not_now_outcome_counts_no_attempt() {
    const REFUSED: usize = 10;
    let world = TestWorld::with("test/a", ["1", "2"]).await;
    let refused = Arc::new(AtomicUsize::new(0));
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = attempts.clone();
    let drainer = world.drainer(answering(move |delivery, _| {
        seen.lock().unwrap().push((delivery.delivery_id().to_string(), delivery.attempt()));
        match refused.fetch_add(1, Ordering::SeqCst) {
            0..REFUSED => Outcome::not_now("the function is throttled"),
            _ => Outcome::Done,
        }
    }));
    let began = world.env.monotonic();
    world.work(&[drainer]).await;
    assert_eq!(world.applied(), ["1", "2"]);
    let first = std::iter::repeat_n(("1".to_owned(), 1), REFUSED + 1);
    assert_eq!(*attempts.lock().unwrap(), first.chain([("2".to_owned(), 1)]).collect::<Vec<_>>());
    assert_eq!(is_parked(&world, "test/a").await, [""; 0]);
    let took = world.env.monotonic() - began;
    assert!(took >= Duration::from_millis(2500) * REFUSED as u32, "it waits each time: {took:?}");
}

/// A wake-up that overtook the write would find the lease, and would be requeued until the lease expires.
#[tokio::test(start_paused = true)]
async fn wake_up_of_immediate_retry_follows_its_write() {
    for asked in [0, 1, 999_999, 1_000_000].map(Duration::from_nanos) {
        for outcome in
            [Outcome::retry_after(asked, "not yet"), Outcome::NotNow { after: Some(asked), error: "not yet".into() }]
        {
            let mut world = TestWorld::with("test/a", ["1"]).await;
            world.fail(Fault::Slow(Duration::from_millis(50)), |call| call.writes.iter().any(records_failure));
            let asks = Arc::new(AtomicUsize::new(0));
            let first = outcome.clone();
            let handler = answering(move |_, _| match asks.fetch_add(1, Ordering::SeqCst) {
                0 => first.clone(),
                _ => Outcome::Done,
            });
            world.work(&[world.drainer(handler.clone()), world.drainer(handler)]).await;
            assert_eq!((world.applied().len(), world.messages.sent()), (1, 2), "{outcome:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn row_keeps_first_200_bytes_of_handler_error() {
    let world = TestWorld::with("test/a", ["1"]).await;
    let error = format!("ValueError: {}", "x".repeat(300));
    let drainer = world.drainer(answering({
        let error = error.clone();
        move |_, _| Outcome::retry(error.clone())
    }));
    let message = world.messages.receive().await.expect("a wake-up");
    let received = ReceivedWakeUp::new(message.content.entity().clone(), message.times);
    drainer.process(&received, world.env.monotonic() + world.function_time, &SuspectGate::new(1)).await;
    assert_eq!(world.state("test/a").await.last_error.as_deref(), Some(&error[..200]));
}

/// The first holder may have died before the start; starts after that are recorded.
///
/// Promise: a delivery's first dead worker counts no attempt; at its limit the delivery is parked or blocks.
#[tokio::test(start_paused = true)]
async fn delivery_that_kills_every_worker_is_parked() {
    let world = TestWorld::with("test/a", ["1"]).await;
    for crash in 0..=ATTEMPTS {
        assert_eq!(is_parked(&world, "test/a").await, [""; 0], "after {crash} crashes");
        vanishes(&world, &world.drainer(endless())).await;
    }
    let state = world.state("test/a").await;
    assert_eq!((state.attempts as usize, state.is_started()), (ATTEMPTS - 1, true));
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(is_parked(&world, "test/a").await, ["holder vanished"]);
    assert_eq!(world.started().len(), ATTEMPTS + 1, "it is not started again");
}

/// The worker dies before its handler starts, for example because a page is too large.
#[tokio::test(start_paused = true)]
async fn repeated_worker_deaths_before_start_block_the_order() {
    let mut world = TestWorld::with("test/a", ["1"]).await;
    let whole = world.table.clone();
    world.fail(Fault::Silent, |call| call.read > 0);
    for vanished in 0..=VANISHED_BEFORE_START {
        let seen = world.state("test/a").await;
        assert_eq!((seen.blocked, seen.suspect), (None, vanished.saturating_sub(1)));
        vanishes(&world, &world.drainer(Done)).await;
    }
    world.table = whole;
    world.work(&[world.drainer(Done)]).await;
    let state = world.state("test/a").await;
    assert_eq!((state.blocked, state.attempts, state.waiting()), (Some(BlockReason::Vanished), 0, 1));
    world.operator().unblock(&state.entity).await.expect("memory answers");
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1"]);
}

/// Promise: versions run side by side; a row of a newer format is refused.
#[tokio::test(start_paused = true)]
async fn row_of_a_newer_format_is_never_changed() {
    let world = TestWorld::with("test/a", ["1"]).await;
    let entity = key("test/a");
    let version = webhook_serializer::protocol::format::FORMAT + 1;
    let newer = Write::update(entity_row(&entity), vec![Change::set(a::VERSION, version)]);
    world.table.write(&newer).await.expect("memory answers");
    let before = world.memory.rows(&TableName::Entities);
    let refused = world.inbox().append(&world.incoming("test/a", "2")).await;
    assert!(refused.unwrap_err().to_string().contains(&format!("a row has format {version}")));
    assert_eq!(world.process_next(&world.drainer(Done)).await, Acknowledgement::Delete, "a fresh one is under way");
    assert_eq!(world.messages.len(), 1, "that one, for later");
    assert!(world.operator().unblock(&entity).await.is_err());
    let work = async |_| Ok::<_, Infallible>(());
    assert!(world.leases("a script").run(&entity, Terms::default(), work).await.is_err());
    assert_eq!(world.memory.rows(&TableName::Entities), before);
    assert_eq!(world.memory.rows(&TableName::Entities)[0].get(a::VERSION), Some(&Value::from(version)));
}

/// Recording the start takes time too. Configurations that leave no time for it are refused.
#[tokio::test(start_paused = true)]
async fn suspect_with_longest_allowed_handler_timeout_still_starts() {
    let document = |seconds: u32| format!(source!("slowest", "handler_timeout = '{}s'"), seconds);
    let is_accepted = |seconds: u32| {
        let sources = Sources::parse(&document(seconds)).expect("the document is right");
        WorkerConfig::read(&[].as_slice(), &sources).is_ok()
    };
    let slowest = (1..60).filter(|seconds| is_accepted(*seconds)).max().expect("some fit into a minute");
    let world = TestWorld::new().with_sources(&document(slowest));
    world.append_from("slowest", "test/a", "1").await;
    vanishes(&world, &world.drainer(endless())).await;
    let hour = Duration::from_secs(3600);
    let worked = world.env.within(hour, world.work(&[world.drainer(Done)])).await;
    assert_eq!((slowest, worked, world.applied()), (55, Some(()), vec!["1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn suspect_does_not_start_until_store_records_the_start() {
    for fault in [Fault::Before(TableError::Throttled), Fault::Silent, Fault::SilentAfter] {
        let mut world = TestWorld::with("test/a", ["1"]).await;
        vanishes(&world, &world.drainer(endless())).await;
        let clock = world.env.clone();
        let marked = Arc::new(OnceLock::new());
        let first = marked.clone();
        // The store is out for a minute, from the first attempt to record the start.
        world.fail(fault.clone(), move |call| {
            let now = clock.monotonic();
            if call.writes.iter().any(marks_start) {
                first.get_or_init(|| now);
            }
            first.get().is_some_and(|first| now < *first + MINUTE)
        });
        world.work(&[world.drainer(Done)]).await;
        let runs = world.journal.runs();
        let marked = *marked.get().expect("a start was recorded");
        assert_eq!((runs.len(), world.applied()), (2, vec!["1".to_owned()]), "{fault:?}");
        assert!(runs[1].started >= marked + MINUTE, "{fault:?}: {runs:?}");
    }
}

/// To the next holder, a record whose reply was lost looks like that of a handler that vanished, if the store stays
/// away until the lease has expired. So it counts an attempt (rule 11).
#[tokio::test(start_paused = true)]
async fn recorded_start_counts_if_store_stays_away_beyond_the_lease() {
    for (mark, attempts) in [(Fault::SilentAfter, 3), (Fault::Silent, 2)] {
        let mut world = TestWorld::with("test/a", ["1"]).await;
        vanishes(&world, &world.drainer(endless())).await;
        let clock = world.env.clone();
        let marked = OnceLock::new();
        world.break_table(move |call| {
            let now = clock.monotonic();
            let is_mark = call.writes.iter().any(marks_start) && marked.set(now).is_ok();
            match marked.get() {
                _ if is_mark => mark.clone(),
                Some(marked) if now < *marked + MINUTE => Fault::Silent,
                _ => Fault::None,
            }
        });
        world.work(&[world.drainer(Done)]).await;
        assert_eq!((world.journal.runs().len(), world.applied()), (2, vec!["1".to_owned()]));
        let state = world.state("test/a").await;
        assert_eq!(state.recent.iter().last().expect("it was settled").attempts, attempts);
    }
}
