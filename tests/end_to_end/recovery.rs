//! A dead worker is replaced soon, whatever the queue's visibility timeout. Its messages are hidden for
//! little more than a lease at a time.

use futures_util::future::pending;
use tests::{prelude::*, source};
use tokio::sync::Notify;
use webhook_serializer::{
    engine::{deferred::Deferred, queue::Visibility},
    protocol::trace::Trace,
};

const SECOND: Duration = Duration::from_secs(1);

const RECOVERY: Duration = Duration::from_secs(20);

fn endless(started: &Arc<Notify>) -> impl Handler + Clone {
    let started = started.clone();
    Scripted(move |_: &Delivery, _: &Context| {
        started.notify_one();
        pending()
    })
}

/// Feeds a worker until the queue is empty, or until `end` completes and kills the worker.
async fn works_until(world: &TestWorld, handler: impl Handler, end: impl Future<Output = ()>) {
    let workers = [world.worker(handler)];
    let is_over = AtomicBool::new(true);
    tokio::select! {
        biased;
        () = end => {}
        () = world.feed(&workers, 1, &is_over) => {}
    }
}

/// Returns the time from now until these deliveries have started and been applied.
async fn recovered_within(world: &TestWorld, ids: &[&str]) -> Duration {
    let died = world.env.monotonic();
    works_until(world, Done, world.env.sleep(2 * RECOVERY)).await;
    let runs = world.journal.runs();
    let of = |id: &&str| runs.iter().find(|run| run.delivery_id == **id && run.ending == RunEnd::Applied);
    ids.iter().map(|id| of(id).map_or(Duration::MAX, |run| run.started - died)).max().expect("some")
}

#[tokio::test(start_paused = true)]
async fn order_of_a_dead_worker_continues_in_seconds() {
    for lived in [0, 1, 2_990, 3_010, 4_990] {
        let mut world = TestWorld::new();
        world.function_time = Duration::from_secs(900);
        world.append("test/a", "a").await;
        world.append("test/b", "b").await;
        works_until(&world, endless(&Arc::default()), world.env.sleep(Duration::from_millis(lived))).await;
        let recovered = recovered_within(&world, &["a", "b"]).await;
        assert!(recovered <= RECOVERY, "{recovered:?} after it had worked for {lived} ms");
    }
}

/// A queue that is slow to extend visibility timeouts, or refuses to on demand.
struct Reluctant {
    inner: Arc<dyn Visibility>,
    takes: Duration,
    env: Env,
    refuses: AtomicBool,
}

impl Visibility for Reluctant {
    fn hide<'a>(&'a self, receipts: &'a [String], time: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(async move {
            if self.refuses.load(Relaxed) {
                return Err(QueueError::Unavailable("not now".into()));
            }
            self.env.sleep(self.takes).await;
            self.inner.hide(receipts, time).await
        })
    }
}

fn reluctant(world: &mut TestWorld, takes: Duration) -> Arc<Reluctant> {
    let inner = world.messages.clone();
    let env = world.env.clone();
    let queue = Arc::new(Reluctant { inner, takes, env, refuses: AtomicBool::new(false) });
    world.visibility = queue.clone();
    queue
}

/// A message that reappeared earlier would only be requeued.
#[tokio::test(start_paused = true)]
async fn message_of_dead_worker_reappears_soon_after_lease_expiry() {
    for lived in (10..20_000).step_by(490) {
        let world = patient();
        world.append("test/a", "a").await;
        works_until(&world, endless(&Arc::default()), world.env.sleep(Duration::from_millis(lived))).await;
        let died = world.env.now();
        let length = world.settings.lease;
        let lease = world.state("test/a").await.held.expect("its holder died").expires_at;
        world.messages.receive().await.expect("it was not deleted");
        let back = world.env.now();
        assert!(back.since(lease) >= SECOND, "{:?} after it had worked for {lived} ms", back.since(lease));
        let soonest = length + SECOND;
        let latest = length + length / 5 + SECOND;
        assert!((soonest..=latest).contains(&back.since(died)), "{:?}: it had lived {lived} ms", back.since(died));
    }
}

/// For example, the process runs out of memory with the first page.
#[tokio::test(start_paused = true)]
async fn order_continues_in_seconds_if_worker_dies_at_handler_start() {
    let mut world = TestWorld::new();
    reluctant(&mut world, Duration::from_millis(300));
    world.append("test/a", "a").await;
    let started = Arc::new(Notify::new());
    works_until(&world, endless(&started), started.notified()).await;
    let recovered = recovered_within(&world, &["a"]).await;
    assert!(recovered <= RECOVERY, "{recovered:?}");
}

#[tokio::test(start_paused = true)]
async fn unanswered_visibility_call_delays_start_by_a_second_at_most() {
    let mut world = TestWorld::new();
    reluctant(&mut world, 3600 * SECOND);
    world.append("test/a", "a").await;
    world.feed(&[world.worker(Done)], 1, &AtomicBool::new(true)).await;
    let runs = world.journal.runs();
    assert!(runs.len() == 1 && runs[0].started <= SECOND, "{runs:?}");
}

/// Like `forward`: what this handler calls runs in another process.
struct Elsewhere;

impl Handler for Elsewhere {
    async fn handle(&self, _: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        context.env().sleep(SECOND / 100).await;
        Ok(Outcome::Done)
    }

    fn runs_elsewhere(&self, _: &str) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn handler_that_runs_elsewhere_starts_before_visibility_is_extended() {
    let mut world = TestWorld::new();
    reluctant(&mut world, SECOND / 5);
    for (number, id) in ["a", "b"].into_iter().enumerate() {
        world.append("test/a", id).await;
        let began = world.env.monotonic();
        world.process_next(&world.drainer(Elsewhere)).await;
        let run = &world.journal.runs()[number];
        assert_eq!((run.started, run.ended), (began, began + SECOND / 100), "{run:?}");
    }
    assert_eq!(world.messages.hidden(), 2, "the requests were not broken off");
}

/// A delivery that may have ended a worker waits, whatever its handler.
#[tokio::test(start_paused = true)]
async fn suspect_that_runs_elsewhere_starts_after_visibility_is_extended() {
    let mut started = Vec::new();
    for takes in [Duration::ZERO, SECOND / 5] {
        let mut world = TestWorld::new();
        world.append("test/a", "a").await;
        works_until(&world, endless(&Arc::default()), world.env.sleep(SECOND)).await;
        reluctant(&mut world, takes);
        works_until(&world, Elsewhere, world.env.sleep(2 * RECOVERY)).await;
        let runs = world.journal.runs();
        started.extend(runs.iter().filter(|run| run.ending == RunEnd::Applied).map(|run| run.started));
    }
    assert_eq!(started[1], started[0] + SECOND / 5);
}

fn patient() -> TestWorld {
    let mut world = TestWorld::new().with_sources(source!("test", "handler_timeout = '800s'"));
    world.function_time = Duration::from_secs(900);
    world
}

#[tokio::test(start_paused = true)]
async fn message_stays_invisible_while_long_handler_runs() {
    let world = patient();
    world.append("test/a", "a").await;
    world.feed(&[world.worker(Slow(Duration::from_secs(599)))], 1, &AtomicBool::new(true)).await;
    assert_eq!((world.applied(), world.messages.sent()), (vec!["a".to_owned()], 1));
    assert_eq!(world.messages.hidden(), 200, "at the grant, and at each fifth of a lease");
}

#[tokio::test(start_paused = true)]
async fn batch_extends_visibility_in_one_request() {
    let mut world = TestWorld::new();
    for number in 0..10 {
        world.append(&format!("test/{number}"), &number.to_string()).await;
    }
    world.feed(&[world.worker(Done)], 1, &AtomicBool::new(true)).await;
    assert_eq!((world.applied().len(), world.messages.hidden()), (10, 1));
    for number in 0..10 {
        world.waker().wake(&format!("test/{number}").parse().unwrap(), Duration::ZERO, SECOND).await.unwrap();
    }
    let slow = |_: &TableCall<'_>| Fault::Slow(SECOND / 2);
    world.break_table(slow);
    world.feed(&[world.worker(Done)], 1, &AtomicBool::new(true)).await;
    assert_eq!(world.messages.hidden(), 1);
}

/// The queue's own visibility timeout is more than a quarter of an hour.
#[tokio::test(start_paused = true)]
async fn message_kept_during_outage_returns_after_lease_length() {
    let mut world = TestWorld::with("test/a", ["a"]).await;
    let clock = world.env.clone();
    let outage = clock.monotonic() + 8 * SECOND;
    world.fail(Fault::Before(TableError::Throttled), move |_| clock.monotonic() < outage);
    let recovered = recovered_within(&world, &["a"]).await;
    assert!(recovered <= RECOVERY + SECOND, "{recovered:?}, of which five seconds were tried");
}

#[tokio::test(start_paused = true)]
async fn message_of_throttled_order_returns_before_batch_ends() {
    let mut world = patient();
    world.append("test/long", "long").await;
    world.append("test/a", "a").await;
    let clock = world.env.clone();
    let begun = clock.monotonic();
    world.fail(Fault::Before(TableError::Throttled), move |call| match call.writes {
        [write] => write.key.partition.1 == "test/a".into() && clock.monotonic() < begun + 8 * SECOND,
        _ => false,
    });
    let handler = |delivery: &Delivery, context: &Context| {
        let time = if delivery.delivery_id().as_str() == "long" { 599 * SECOND } else { Duration::ZERO };
        let clock = context.env().clone();
        async move {
            clock.sleep(time).await;
            Ok(Outcome::Done)
        }
    };
    let workers = [world.worker(Scripted(handler)), world.worker(Scripted(handler))];
    world.feed(&workers, 1, &AtomicBool::new(true)).await;
    assert_eq!(world.applied(), ["a", "long"]);
    let runs = world.journal.runs();
    let waited = runs.iter().find(|run| run.delivery_id == "a").expect("it ran").started - begun;
    assert!(waited <= RECOVERY + SECOND, "{waited:?}, of which five seconds were tried");
}

/// While a suspect waits for its batch, its message may become visible, and another worker may delete it. A
/// lease acquired after that would have no wake-up.
#[tokio::test(start_paused = true)]
async fn worker_acquires_no_lease_for_possibly_visible_message() {
    suspect_beside(30 * SECOND, Duration::ZERO).await;
}

/// If the acquire were retried, it could land just after the message became visible.
#[tokio::test(start_paused = true)]
async fn acquire_is_not_retried_near_visibility_timeout() {
    suspect_beside(17 * SECOND, 20 * SECOND).await;
}

/// Runs a batch of a delivery that takes `long` and of a suspect. The visibility timeout cannot be extended.
/// From ten seconds on, writes of the suspect's row are throttled, until `throttled`.
async fn suspect_beside(long: Duration, throttled: Duration) {
    let mut world = patient();
    let queue = reluctant(&mut world, Duration::ZERO);
    world.append("test/suspect", "suspect").await;
    works_until(&world, endless(&Arc::default()), world.env.sleep(SECOND)).await;
    world.messages.clear();
    world.env.sleep(2 * world.settings.lease).await;
    let seen = world.state("test/suspect").await;
    world.append("test/long", "long").await;
    let sent = world.messages.sent();
    queue.refuses.store(true, Relaxed);
    let clock = world.env.clone();
    let begun = world.env.monotonic();
    let plan = move |call: &TableCall<'_>| {
        let suspects = call.writes.iter().any(|write| format!("{:?}", write.key).contains("test/suspect"));
        let since = clock.monotonic() - begun;
        match suspects && since > 10 * SECOND && since < throttled {
            true => Fault::Before(TableError::Throttled),
            false => Fault::None,
        }
    };
    world.break_table(plan);
    let worker = world.worker(Slow(long));
    let event =
        SqsEvent { records: vec![record("test/long", "test/long", "1"), record("test/suspect", "test/suspect", "1")] };
    let response = worker.process(event, world.env.now() + world.function_time).await;
    assert_eq!(world.state("test/suspect").await, seen, "it is unchanged");
    let kept = response.batch_item_failures.iter().any(|failure| failure.item_identifier == "test/suspect");
    assert!(kept || world.messages.sent() > sent, "its wake-up, or a fresh one, sees to it");
}

/// If the worker responded late, the whole batch would return.
#[tokio::test(start_paused = true)]
async fn silent_queue_does_not_delay_the_batch_response() {
    let mut world = TestWorld::new();
    world.function_time = 4 * SECOND;
    world.append("test/a", "a").await;
    let deferred = Deferred::of(&world.incoming("test/b", "b"), None, Trace::default()).expect("it fits");
    let silent = |_: &TableCall<'_>| Fault::Silent;
    world.break_table(silent);
    world.break_queue(|_| Fault::Silent);
    reluctant(&mut world, 3600 * SECOND);
    let wake_up = r#"{"entity":"test/a"}"#.to_owned();
    for body in [wake_up, Message::Deferred(Box::new(deferred)).text()] {
        let record = SqsRecord { body, ..record("1", "test/a", "1") };
        let began = world.env.monotonic();
        let deadline = world.env.now() + world.function_time;
        let response = world.worker(Done).process(SqsEvent { records: vec![record.clone()] }, deadline).await;
        assert_eq!(response.batch_item_failures.len(), 1, "it is kept: {record:?}");
        let took = world.env.monotonic() - began;
        assert!(took < world.function_time, "{took:?}: {record:?}");
    }
}
