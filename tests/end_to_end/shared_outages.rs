//! A destination that is down for all processes: one probe at a time tries it, and its first success ends all waits.

use std::sync::atomic::AtomicUsize;

use tests::{
    forwarding::{Forwarding, Layer, TableReply, TableRequest},
    prelude::*,
    source,
};
use webhook_serializer::protocol::{attempt::FailureClass, keys::outage_range};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

const SOURCES: &str = source!("shop");

/// The number of workers of a run. Each takes ten orders at a time.
const WORKERS: usize = 5;

type DestinationAnswer = fn() -> Outcome;

const REFUSES: DestinationAnswer = || Outcome::unavailable("connection refused");
const HANGS: DestinationAnswer = || Outcome::unanswered("no answer within 10 s");

/// Returns a handler that takes 250 ms, or ten seconds if it hangs. While `is_down`, it gives `answer` and counts the
/// start.
fn destination(
    is_down: impl Fn(Duration) -> bool + Clone + Send + Sync + 'static,
    answer: DestinationAnswer,
    starts: &Arc<AtomicUsize>,
) -> impl Handler + Clone {
    let starts = starts.clone();
    Scripted(move |_: &Delivery, context: &Context| {
        let env = context.env().clone();
        let is_down = is_down(env.monotonic());
        starts.fetch_add(usize::from(is_down), Relaxed);
        async move {
            let is_hung = is_down && matches!(answer(), Outcome::Unanswered { .. });
            env.sleep(if is_hung { 10 * SECOND } else { SECOND / 4 }).await;
            Ok::<_, HandlerError>(if is_down { answer() } else { Outcome::Done })
        }
    })
}

/// Appends one delivery to each of these orders, which take turns with the sources.
async fn append_orders(world: &TestWorld, sources: &[&str], orders: usize) {
    for order in 0..orders {
        let source = sources[order % sources.len()];
        world.append_from(source, &format!("{source}/{order}"), &order.to_string()).await;
    }
}

/// Feeds workers with this handler until all orders are applied, or until `end` has passed.
async fn work_until(world: &TestWorld, handler: impl Handler + Clone, orders: usize, end: Duration) {
    let workers: Vec<_> = (0..WORKERS).map(|_| world.worker(handler.clone())).collect();
    let is_over = AtomicBool::new(false);
    let ends = async {
        while world.applied().len() < orders && world.env.monotonic() < end {
            world.env.sleep(SECOND / 10).await;
        }
    };
    tokio::select! {
        () = world.feed(&workers, 1, &is_over) => {}
        () = ends => {}
    }
}

struct Recovery {
    /// The time from the destination's return to its first success.
    first: Duration,
    /// The time from then until all orders are settled.
    rest: Duration,
}

fn recovery(world: &TestWorld, back: Duration, orders: usize) -> Recovery {
    let runs = world.journal.runs();
    let applied: Vec<_> = runs.iter().filter(|run| run.ending == RunEnd::Applied).map(|run| run.ended).collect();
    assert_eq!(applied.len(), orders, "each is applied once");
    let first = *applied.iter().min().expect("some are applied");
    Recovery { first: first.saturating_sub(back), rest: *applied.iter().max().expect("some are applied") - first }
}

/// Promise: the first success after an outage starts all waiting orders within ten seconds. Until then, all workers
/// together send one probe at a time.
#[tokio::test(start_paused = true)]
async fn first_success_after_an_outage_ends_all_waits() {
    for (orders, lasts, answer, most) in [
        (1, MINUTE, REFUSES, 10),
        (20, MINUTE, REFUSES, 40),
        (500, MINUTE, REFUSES, 75),
        (1, 10 * MINUTE, REFUSES, 15),
        (20, 10 * MINUTE, REFUSES, 130),
        (100, 10 * MINUTE, REFUSES, 165),
        (20, 10 * MINUTE, HANGS, 65),
        (60, 10 * MINUTE, HANGS, 100),
    ] {
        let world = TestWorld::new().with_sources(SOURCES);
        append_orders(&world, &["shop"], orders).await;
        let starts = Arc::default();
        let back = world.env.monotonic() + lasts;
        work_until(&world, destination(move |now| now < back, answer, &starts), orders, back + 10 * MINUTE).await;
        let Recovery { first, rest } = recovery(&world, back, orders);
        let starts = starts.load(Relaxed);
        println!("{orders} orders, down for {lasts:?}: {first:?}, then {rest:?}; {starts} starts");
        assert!(starts <= most, "{orders} orders, {:?}: {starts} starts during the outage", answer());
        // A probe that hangs lasts ten seconds, and is followed by a wait as long.
        let limit = if matches!(answer(), Outcome::Unanswered { .. }) { 30 * SECOND } else { 20 * SECOND };
        assert!(first <= limit || orders == 1, "{orders} orders, {:?}: {first:?}", answer());
        assert!(rest <= 10 * SECOND, "{orders} orders, {:?}: {rest:?}", answer());
    }
}

/// Returns a source that forwards to `url`.
fn forwarding(name: &str, url: &str) -> String {
    format!(
        "[sources.{name}]\nprovider = 'standard-webhooks'\nsecrets = ['whsec_Zk93bTR6S2dRcTdUaHBY']\nhandler = \
         'forward'\nforward = {{ url = '{url}', secret = 'whsec_Zk93bTR6S2dRcTdUaHBY' }}\n"
    )
}

async fn outages(world: &TestWorld) -> Vec<Row> {
    world.memory.query(&outage_range(10)).await.expect("memory answers").rows
}

/// Tries all orders again, as `retry --all` does. Checks that no wait ends later than before.
async fn retry_all(world: &TestWorld, orders: &[String]) {
    let mut waits = Vec::new();
    for order in orders {
        let wait = world.state(order).await.retry_at.filter(|at| *at > world.env.now() + 5 * SECOND);
        waits.extend(wait.map(|wait| (order, wait)));
        world.operator().retry(&key(order)).await.expect("memory answers");
    }
    assert!(waits.len() >= orders.len() / 2, "{} orders wait", waits.len());
    world.env.sleep(3 * SECOND).await;
    for (order, wait) in waits {
        let retry_at = world.state(order).await.retry_at;
        assert!(retry_at <= Some(wait), "{order}: {wait:?}, {retry_at:?}");
    }
}

/// Promise: sources that forward to one endpoint share its outage; other sources do not notice it. `retry --all`
/// lengthens no wait.
#[tokio::test(start_paused = true)]
async fn sources_of_one_endpoint_share_its_outage() {
    const SHARED: [&str; 5] = ["a", "b", "c", "d", "e"];
    let documents = SHARED.map(|name| forwarding(name, "https://example.com/")).concat() + source!("well");
    for (orders, lasts, most) in [(20, 10 * MINUTE, 130), (500, MINUTE, 75)] {
        let world = TestWorld::new().with_sources(&documents);
        append_orders(&world, &SHARED, orders).await;
        let starts = Arc::default();
        let back = world.env.monotonic() + lasts;
        let shared = destination(move |now| now < back, REFUSES, &starts);
        let handler = Scripted(move |delivery: &Delivery, context: &Context| {
            let shared = shared.clone();
            let delivery = delivery.clone();
            let context = context.clone();
            async move {
                match delivery.source().as_str() {
                    "well" => Ok(Outcome::Done),
                    _ => shared.handle(&delivery, &context).await,
                }
            }
        });
        let well = lasts.as_secs() as usize / 6;
        let mut sent = BTreeMap::new();
        let others = async {
            for number in 0..well {
                let id = format!("well-{number}");
                world.append_from("well", &format!("well/{number}"), &id).await;
                sent.insert(id, world.env.monotonic());
                world.env.sleep(6 * SECOND).await;
            }
        };
        let retries = async {
            world.env.sleep(lasts / 3).await;
            let all: Vec<_> = (0..orders).map(|order| format!("{}/{order}", SHARED[order % SHARED.len()])).collect();
            retry_all(&world, &all).await;
        };
        tokio::join!(others, retries, work_until(&world, handler, orders + well, back + 10 * MINUTE));
        let runs = world.journal.runs();
        let (others, shared): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.delivery_id.starts_with("well"));
        for run in others {
            assert!(run.started - sent[&run.delivery_id] <= SECOND, "{run:?}");
        }
        let ended: Vec<_> = shared.iter().filter(|run| run.ending == RunEnd::Applied).map(|run| run.ended).collect();
        let first = *ended.iter().min().expect("some");
        let last = *ended.iter().max().expect("some");
        let starts = starts.load(Relaxed);
        println!(
            "{orders} orders of five sources, down for {lasts:?}: {:?}, then {:?}; {starts} starts",
            first - back,
            last - first
        );
        assert!((ended.len(), last - first <= 10 * SECOND) == (orders, true), "{orders} orders: {ended:?}");
        assert!(starts <= most, "{orders} orders: {starts} starts of five sources");
        assert_eq!(outages(&world).await.len(), 1);
    }
}

/// Counts the requests for rows of outages.
#[derive(Default)]
struct OutageRequests(AtomicUsize);

impl Layer for OutageRequests {
    async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
        let outages = outage_range(1).partition;
        let is_hit = match request {
            TableRequest::Write(write) => write.key.partition == outages,
            TableRequest::Get(key) => key.partition == outages,
            TableRequest::Query(range) => range.partition == outages,
            _ => false,
        };
        self.0.fetch_add(usize::from(is_hit), Relaxed);
        request.of(inner).await
    }
}

/// Neither deliveries that fail nor two orders with an unavailable destination begin an outage.
#[tokio::test(start_paused = true)]
async fn no_outage_is_read_or_written_without_one() {
    let mut world = TestWorld::new().with_sources(SOURCES);
    let requests = Arc::new(Forwarding::through(OutageRequests::default(), world.memory.clone()));
    world.table = requests.clone();
    append_orders(&world, &["shop"], 30).await;
    let handler = answering(|delivery, _| match delivery.delivery_id().as_str() {
        "1" | "2" => Outcome::unavailable("connection refused"),
        "3" | "4" | "5" | "6" if delivery.attempt() < 3 => Outcome::retry("an error of the delivery"),
        _ => Outcome::Done,
    });
    work_until(&world, handler, 28, world.env.monotonic() + MINUTE).await;
    assert_eq!((world.applied().len(), requests.0.load(Relaxed)), (28, 0));
}

type IsWrite = fn(&Write) -> bool;

/// The writes of an outage, by an attribute that only they change.
const WRITES: [(&str, IsWrite); 4] = [
    ("report down", |write| sets(write, a::DESTINATION)),
    ("claim probe", |write| removes(write, a::FAILED_AT) && !removes(write, a::DOWN_SINCE)),
    ("report probe", |write| sets(write, a::ERROR) && !sets(write, a::DESTINATION)),
    ("report up", |write| removes(write, a::DOWN_SINCE)),
];

fn changes(write: &Write, is: impl Fn(&Change) -> bool) -> bool {
    write.key.partition == outage_range(1).partition
        && matches!(&write.action, Action::Update(changes) if changes.iter().any(is))
}

fn sets(write: &Write, attribute: &str) -> bool {
    changes(write, |change| matches!(change, Change::Set(name, _) if name == attribute))
}

fn removes(write: &Write, attribute: &str) -> bool {
    changes(write, |change| matches!(change, Change::Remove(name) if name == attribute))
}

#[tokio::test(start_paused = true)]
async fn orders_recover_if_replies_to_an_outages_writes_are_lost() {
    for (name, is_hit) in WRITES {
        for (fault, every) in [(Fault::ReplyLost, 2), (Fault::SilentAfter, 3), (Fault::Silent, 2), (throttled(), 2)] {
            let what = format!("{name}: {fault:?} of every {every}");
            let mut world = TestWorld::new().with_sources(SOURCES);
            let hits = AtomicUsize::new(0);
            world.fail(fault, move |call| {
                call.writes.iter().any(is_hit) && hits.fetch_add(1, Relaxed).is_multiple_of(every)
            });
            append_orders(&world, &["shop"], 20).await;
            let starts = Arc::default();
            let back = world.env.monotonic() + 2 * MINUTE;
            work_until(&world, destination(move |now| now < back, REFUSES, &starts), 20, back + 20 * MINUTE).await;
            let applied = world.applied().len();
            assert_eq!(applied, 20, "{what}");
            let Recovery { first, rest } = recovery(&world, back, 20);
            // Without a report, each process's own breaker limits the starts, and ends the waits of its orders.
            assert!(starts.load(Relaxed) <= 200, "{what}: {starts:?} starts");
            assert!(first + rest <= 6 * MINUTE, "{what}: {first:?}, {rest:?}");
        }
    }
}

fn throttled() -> Fault {
    Fault::Before(TableError::Throttled)
}

/// The process that claimed a probe dies: another one claims the next.
#[tokio::test(start_paused = true)]
async fn dead_prober_is_replaced() {
    let world = TestWorld::new().with_sources(SOURCES);
    append_orders(&world, &["shop"], 20).await;
    let starts = Arc::default();
    let down = destination(|_| true, REFUSES, &starts);
    work_until(&world, down, 20, world.env.monotonic() + MINUTE).await;
    let died = world.env.monotonic();
    let hangs = Scripted(|_: &Delivery, _: &Context| std::future::pending());
    work_until(&world, hangs, 20, died + 8 * SECOND).await;
    let row = outages(&world).await.remove(0);
    assert!(row.get(a::DOWN_SINCE).is_some() && row.get(a::FAILED_AT).is_none(), "the probe was claimed: {row:?}");
    let back = world.env.monotonic();
    work_until(&world, Done, 20, back + 10 * MINUTE).await;
    let Recovery { first, rest } = recovery(&world, back, 20);
    // The handler's timeout, five seconds, and the time until a lease has ended.
    assert!((first <= MINUTE, rest <= 20 * SECOND) == (true, true), "{first:?}, {rest:?}");
}

/// The destination is up for three seconds of each minute. An order's total wait, which a limit ends, grows by no more
/// than the time that passes.
#[tokio::test(start_paused = true)]
async fn recoveries_count_only_time_that_passed() {
    let world = TestWorld::new().with_sources(SOURCES);
    for order in 0..20 {
        world.append_all_from("shop", &format!("shop/{order}"), (0..60).map(|id| format!("{order}-{id:02}"))).await;
    }
    let starts = Arc::default();
    let handler = destination(|now| now.as_secs() % 60 >= 3, REFUSES, &starts);
    let began = world.env.now();
    work_until(&world, handler, 20 * 60, world.env.monotonic() + 20 * MINUTE).await;
    assert!(world.applied().len() >= 20, "{}", world.applied().len());
    for order in 0..20 {
        let state = world.state(&format!("shop/{order}")).await;
        let unspent = state.retry_at.map_or(Duration::ZERO, |at| at.since(world.env.now()));
        let waited = state.retries.waited(FailureClass::Unavailable);
        assert!(waited <= world.env.now().since(began) + unspent, "shop/{order}: {waited:?}, {unspent:?} to go");
    }
}

/// A new URL in the document is another destination, so orders do not wait for the old one.
#[tokio::test(start_paused = true)]
async fn orders_of_a_changed_destination_go_on() {
    let world = TestWorld::new().with_sources(&forwarding("shop", "https://example.com/old"));
    append_orders(&world, &["shop"], 20).await;
    let starts = Arc::default();
    work_until(&world, destination(|_| true, REFUSES, &starts), 20, world.env.monotonic() + 5 * MINUTE).await;
    let world = world.with_sources(&forwarding("shop", "https://example.com/new"));
    let back = world.env.monotonic();
    work_until(&world, Done, 20, back + 10 * MINUTE).await;
    let Recovery { first, rest } = recovery(&world, back, 20);
    assert!(first + rest <= 10 * SECOND, "{first:?}, {rest:?}");
}

/// A destination that asks for a wait has no capacity, and is not down.
#[tokio::test(start_paused = true)]
async fn destination_that_asks_for_a_wait_is_not_down() {
    let answers: [DestinationAnswer; 2] = [
        || Outcome::Unavailable { after: Some(MINUTE), error: "429 with Retry-After".into() },
        || Outcome::not_now("the function is throttled"),
    ];
    for answer in answers {
        let world = TestWorld::new().with_sources(SOURCES);
        append_orders(&world, &["shop"], 20).await;
        let starts = Arc::default();
        work_until(&world, destination(|_| true, answer, &starts), 20, world.env.monotonic() + 5 * MINUTE).await;
        assert!(world.events.breakers().0 > 0, "{:?}: breakers open", answer());
        assert_eq!(outages(&world).await, [], "{:?}", answer());
    }
}

/// A refused start's wait counts nothing. So its end by a probe gives no extra attempt, and limits hold as without an
/// outage.
#[tokio::test(start_paused = true)]
async fn probe_after_a_refused_start_is_an_ordinary_attempt() {
    const LIMITED: &str = source!("shop", "retry = { first = '10ms', unanswered_for = '5ms' }");
    let world = TestWorld::new().with_sources(LIMITED);
    append_orders(&world, &["shop"], 6).await;
    let starts = Arc::default();
    work_until(&world, destination(|_| true, HANGS, &starts), 1, world.env.monotonic() + 20 * MINUTE).await;
    assert_eq!(starts.load(Relaxed), 2 * 6, "each is started twice");
    assert_eq!(world.operator().all_parked().await.expect("memory answers").len(), 6);
}

/// An event beside the wait of an order for a destination that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    WakeUp,
    Retry,
    LeaseDuringOutage,
    LeaseBeyondOutage,
    LeaseThatExpires,
    Hold,
}

/// The end of an outage also ends the wait of an order that another wake-up of the batch names, that was on hold, or
/// whose lease somebody else has held.
#[tokio::test(start_paused = true)]
async fn outage_ends_waits_whatever_else_happens_to_the_order() {
    use Beside::*;
    let mut late = Vec::new();
    for beside in [WakeUp, Retry, LeaseDuringOutage, LeaseBeyondOutage, LeaseThatExpires, Hold] {
        let world = TestWorld::new().with_sources(SOURCES);
        append_orders(&world, &["shop"], 3).await;
        let down = destination(|_| true, REFUSES, &Arc::default());
        let fails_for = |time| work_until(&world, down.clone(), 3, world.env.monotonic() + time);
        fails_for(5 * MINUTE).await;
        let leases = world.leases("a person");
        let operator = world.operator();
        let orders = ["shop/1", "shop/2"].map(key);
        let acquire = async |lease| {
            let granted = orders.iter().map(|order| leases.acquire(order, Terms::default().lease(lease)));
            join_all(granted).await.into_iter().map(|guard| guard.expect("it is free")).collect::<Vec<_>>()
        };
        for order in &orders {
            match beside {
                WakeUp => world.waker().wake(order, Duration::ZERO, SECOND).await.expect("memory answers"),
                Retry => _ = operator.retry(order).await.expect("memory answers"),
                Hold => _ = operator.hold(order).await.expect("memory answers"),
                LeaseDuringOutage | LeaseBeyondOutage | LeaseThatExpires => {}
            }
        }
        match beside {
            Retry => fails_for(2 * SECOND).await,
            LeaseDuringOutage => {
                let guards = acquire(MINUTE).await;
                fails_for(2 * SECOND).await;
                for guard in guards {
                    guard.release().await.expect("memory answers");
                }
                fails_for(2 * SECOND).await;
            }
            WakeUp | LeaseBeyondOutage | LeaseThatExpires | Hold => {}
        }
        // All wake-ups are due then, so that those of one order come in one batch.
        world.env.sleep(30 * SECOND).await;
        let back = world.env.monotonic();
        let ends = async {
            match beside {
                LeaseBeyondOutage => {
                    let guards = acquire(MINUTE).await;
                    world.env.sleep(8 * SECOND).await;
                    for guard in guards {
                        guard.release().await.expect("memory answers");
                    }
                }
                LeaseThatExpires => drop(acquire(4 * SECOND).await),
                Hold => {
                    world.env.sleep(8 * SECOND).await;
                    for order in &orders {
                        operator.resume(order).await.expect("memory answers");
                    }
                }
                WakeUp | Retry | LeaseDuringOutage => {}
            }
        };
        tokio::join!(ends, work_until(&world, Done, 3, back + 10 * MINUTE));
        let Recovery { first, rest } = recovery(&world, back, 3);
        println!("{beside:?}: {first:?}, then {rest:?}");
        // A worker that finds somebody else's lease comes back after as long as the lease has lasted.
        let most = if beside == LeaseBeyondOutage { 20 * SECOND } else { 10 * SECOND };
        late.extend((rest > most).then_some((beside, rest)));
    }
    assert!(late.is_empty(), "{late:?}");
}
