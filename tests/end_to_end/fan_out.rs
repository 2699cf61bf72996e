//! One source, several handlers: each subscriber gets each order's deliveries in order, none lost, none applied twice.

use tests::prelude::*;
use webhook_serializer::{
    engine::queue::WakeUp,
    handlers::{Handlers, fan_out::FanOut},
};

/// A source whose deliveries go to subscribers. It retries a failed start every ten milliseconds.
const SHOP: &str = "
[sources.shop]
provider = 'standard-webhooks'
secrets = ['whsec_Zk93bTR6S2dRcTdUaHBY']
handler = 'fan-out'
";

/// Returns the sources `shop` and its subscribers. Each of them has the handler of its name.
fn sources(subscribers: &[&str]) -> String {
    let one = |name: &&str| {
        format!("[sources.{name}]\nfrom = 'shop'\nhandler = '{name}'\nretry = {{ first = '10ms', longest = '50ms' }}\n")
    };
    SHOP.to_owned() + &subscribers.iter().map(one).collect::<String>()
}

fn world(subscribers: &[&str]) -> TestWorld {
    TestWorld::new().with_sources(&sources(subscribers))
}

/// Returns a worker with the handler `fan-out` on the world's current store, and `Done` for `warehouse` and `mails`.
fn worker(world: &TestWorld) -> Drainer {
    world.drainer(handlers(world).with("warehouse", Done).with("mails", Done))
}

fn handlers(world: &TestWorld) -> Handlers {
    Handlers::new().with("fan-out", FanOut::new(world.sources(), world.inbox()))
}

/// Returns the ids of the deliveries that were applied to an order, in order.
fn applied(world: &TestWorld, entity: &str) -> Vec<String> {
    let runs = world.journal.runs().into_iter();
    let of_it = runs.filter(|run| run.ending == RunEnd::Applied && run.entity.as_str() == entity);
    of_it.map(|run| run.delivery_id).collect()
}

fn starts(world: &TestWorld, entity: &str) -> usize {
    world.journal.starts().iter().filter(|started| started.as_str() == entity).count()
}

fn is_of(entity: &str) -> impl Fn(&TableCall<'_>) -> bool + Send + Sync + 'static {
    let entity = Value::from(entity);
    move |call| call.writes.iter().any(|write| write.key.partition.1 == entity)
}

/// Promise: with `fan-out`, each of several sources gets an order's webhooks in order, none lost or applied twice, while
/// one of them fails, one is slow, and appends to one are refused.
#[tokio::test(start_paused = true)]
async fn failing_slow_and_throttled_subscriber_each_get_every_order_in_sequence() {
    let names = ["fails", "slow", "throttled"];
    let mut world = world(&names);
    let throttled = is_of("throttled/a");
    let refused = AtomicU64::new(0);
    world.fail(Fault::Before(TableError::Throttled), move |call| {
        throttled(call) && refused.fetch_add(1, Relaxed) % 40 < 25
    });
    let first_fails = answering(|delivery, _| match delivery.attempt() {
        1 => Outcome::retry("the first attempt fails"),
        _ => Outcome::Done,
    });
    let ids = ["1", "2", "3", "4", "5"];
    for id in ids {
        world.append_from("shop", "shop/a", id).await;
        world.append_from("shop", "shop/b", id).await;
    }
    let workers = [1, 2, 3].map(|_| {
        let handlers = handlers(&world).with("fails", first_fails.clone());
        world.drainer(handlers.with("slow", Slow(Duration::from_secs(3))).with("throttled", Done))
    });
    world.work(&workers).await;
    for order in ["a", "b"] {
        for name in names {
            assert_eq!(applied(&world, &format!("{name}/{order}")), ids, "{name}/{order}");
        }
    }
    assert!(starts(&world, "shop/a") > ids.len(), "no append was refused");
    assert_eq!(starts(&world, "shop/b"), ids.len(), "another order waited");
    assert_eq!(starts(&world, "fails/a"), 2 * ids.len());
}

/// Promise: `fan-out` settles a webhook once every subscriber has it; who has it settles a second copy as a repeat.
#[tokio::test(start_paused = true)]
async fn delivery_waits_until_every_subscriber_has_it() {
    let mut world = world(&["mails", "warehouse"]);
    world.fail(Fault::Before(TableError::Throttled), is_of("warehouse/a"));
    world.append_from("shop", "shop/a", "1").await;
    let worker_now = worker(&world);
    world.env.within(Duration::from_secs(60), world.work(&[worker_now])).await;
    let state = world.state("shop/a").await;
    assert_eq!((state.waiting(), state.attempts), (1, 0), "a refused append counts no attempt");
    let error = state.last_error.expect("it is named");
    assert!(error.contains("warehouse did not get it"), "{error}");
    assert_eq!((applied(&world, "mails/a"), starts(&world, "mails/a")), (vec!["1".to_owned()], 1));
    world.table = world.memory.clone();
    world.append_from("shop", "shop/a", "2").await;
    world.work(&[worker(&world)]).await;
    for entity in ["mails/a", "warehouse/a"] {
        assert_eq!((applied(&world, entity), starts(&world, entity)), (vec!["1".into(), "2".into()], 2), "{entity}");
    }
    assert!(world.settlements("mails/a").await.contains(&Settlement::Repeat));
}

async fn assert_all_have(world: &TestWorld, ids: &[&str], case: &str) {
    for entity in ["mails/a", "warehouse/a"] {
        assert_eq!(applied(world, entity), ids, "{entity}: {case}");
    }
    assert!(world.state("shop/a").await.is_empty(), "{case}");
}

/// Promise: a worker may die at every step of `fan-out`.
#[tokio::test(start_paused = true)]
async fn fan_out_survives_death_at_every_request() {
    let mut calls = 0;
    loop {
        let mut world = world(&["mails", "warehouse"]);
        world.append_all_from("shop", "shop/a", ["1", "2"]).await;
        world.break_table(move |call| if call.request > calls { Fault::Silent } else { Fault::None });
        let dying = worker(&world);
        let lives = world.env.within(Duration::from_millis(500), world.process(&dying, "shop/a")).await.is_some();
        world.table = world.memory.clone();
        world.env.sleep(world.function_time).await;
        world.work(&[worker(&world)]).await;
        assert_all_have(&world, &["1", "2"], &format!("dead after {calls} requests")).await;
        if lives {
            break;
        }
        calls += 1;
    }
    assert!(calls > 10, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn fan_out_survives_lost_reply_and_late_write() {
    for fault in [Fault::ReplyLost, Fault::Before(TableError::Throttled), Fault::Late(Duration::from_secs(40))] {
        for lost in 1..16 {
            let mut world = world(&["mails", "warehouse"]);
            world.append_all_from("shop", "shop/a", ["1", "2"]).await;
            let hit = fault.clone();
            world.fail(hit, move |call| call.write == lost);
            let faulty = worker(&world);
            world.env.within(Duration::from_secs(90), world.work(&[faulty])).await;
            world.table = world.memory.clone();
            world.env.sleep(Duration::from_secs(300)).await;
            for entity in ["shop/a", "mails/a", "warehouse/a"] {
                world.waker().send(&WakeUp::of(&key(entity)), Duration::ZERO, world.function_time).await.unwrap();
            }
            world.work(&[worker(&world)]).await;
            assert_all_have(&world, &["1", "2"], &format!("{fault:?} at write {lost}")).await;
        }
    }
}

/// Promise: a new subscriber gets earlier webhooks by a rewind; the others settle theirs as repeats.
#[tokio::test(start_paused = true)]
async fn rewind_reaches_new_subscriber_only() {
    let world = world(&["mails"]);
    world.append_all_from("shop", "shop/a", ["1", "2", "3"]).await;
    world.work(&[worker(&world)]).await;
    let first = world.state("shop/a").await.recent.iter().next().expect("a receipt").sequence;
    let world = world.with_sources(&sources(&["mails", "warehouse"]));
    world.operator().rewind(&key("shop/a"), first).await.unwrap();
    world.append_from("shop", "shop/a", "4").await;
    world.work(&[worker(&world)]).await;
    assert_all_have(&world, &["1", "2", "3", "4"], "rewound").await;
    assert_eq!(starts(&world, "mails/a"), 4, "it had the first three");
}

/// A copy of what may come late counts as deferred, so it supersedes nothing.
#[tokio::test(start_paused = true)]
async fn unrouted_delivery_reaches_all_subscribers_once_redriven() {
    let world = world(&["mails", "warehouse"]);
    world.append_from("shop", "shop/unrouted", "1").await;
    world.work(&[worker(&world)]).await;
    assert_eq!(world.journal.starts(), [], "it is parked");
    let parked = world.operator().parked(&key("shop/unrouted")).await.unwrap();
    world.operator().redrive(&parked[0], Some(&key("shop/a"))).await.unwrap();
    let late: Arc<Mutex<Vec<(u32, bool)>>> = Arc::default();
    let seen = late.clone();
    let notes = answering(move |delivery, _| {
        seen.lock().unwrap().push((delivery.redrive(), delivery.deferred_until().is_some()));
        Outcome::Done
    });
    let handlers = handlers(&world).with("mails", notes.clone()).with("warehouse", notes);
    world.work(&[world.drainer(handlers)]).await;
    assert_all_have(&world, &["1"], "redriven").await;
    assert_eq!(*late.lock().unwrap(), [(0, true), (0, true)]);
}

/// Promise: from one handler to several by changing the document, without losing or repeating a webhook.
#[tokio::test(start_paused = true)]
async fn one_handler_becomes_two_without_loss_or_repeat() {
    let before = SHOP.replace("'fan-out'", "'warehouse'");
    let world = TestWorld::new().with_sources(&before);
    world.append_all_from("shop", "shop/a", ["1", "2"]).await;
    world.work(&[worker(&world)]).await;
    let world = world.with_sources(&(before + "paused = true\n"));
    world.append_all_from("shop", "shop/a", ["3", "2", "4"]).await;
    let paused = worker(&world);
    world.env.within(Duration::from_secs(30), world.work(&[paused])).await;
    let world = world.with_sources(&sources(&["mails", "warehouse"]));
    world.append_from("shop", "shop/a", "5").await;
    world.work(&[worker(&world)]).await;
    // `fan-out` itself has also run for 3, 4 and 5.
    assert_eq!(applied(&world, "shop/a"), ["1", "2", "3", "4", "5"]);
    assert_all_have(&world, &["3", "4", "5"], "changed").await;
}

/// A worker chooses the handler by one document, and `fan-out` reads the next.
#[tokio::test(start_paused = true)]
async fn fan_out_settles_nothing_once_its_source_has_another_handler() {
    let world = world(&["mails"]);
    let other = Arc::new(Sources::parse(&SHOP.replace("'fan-out'", "'mails'")).unwrap());
    world.append_from("shop", "shop/a", "1").await;
    let changed = world.drainer(Handlers::new().with("fan-out", FanOut::new(other, world.inbox())));
    world.env.within(Duration::from_secs(30), world.work(&[changed])).await;
    let state = world.state("shop/a").await;
    assert_eq!((state.waiting(), state.attempts), (1, 0));
}

/// Promise: a subscriber's key of over 512 bytes, or a body without its template's fields, parks the copy under
/// `SUBSCRIBER/unrouted`.
#[tokio::test(start_paused = true)]
async fn copy_without_valid_key_is_parked_under_its_subscriber() {
    let longest = format!("shop/{}", "x".repeat(EntityKey::MAX_BYTES - 5));
    let world = world(&["mails", "warehouse"]);
    let world = world.with_sources(&(sources(&["mails", "warehouse"]) + "entity = '{source}/{/order}'\n"));
    world.append_from("shop", &longest, "1").await;
    world.work(&[worker(&world)]).await;
    assert_eq!(applied(&world, &longest), ["1"]);
    for (subscriber, reason) in [("mails", "at most 512 bytes, this one has 513"), ("warehouse", "find no order")] {
        let parked = world.operator().parked(&key(&format!("{subscriber}/unrouted"))).await.unwrap();
        assert!(parked[0].error.contains(reason), "{}", parked[0].error);
    }
}

/// A large body is copied into each inbox, so each inbox erases its own.
#[tokio::test(start_paused = true)]
async fn large_body_is_copied_as_stored() {
    let world = world(&["mails", "warehouse"]);
    let body = noise(&world.env, 1024 * 1024).into();
    let incoming = Incoming { body, ..world.incoming_from("shop", "shop/a", "1") };
    world.inbox().append(&incoming).await.unwrap();
    let bodies: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let seen = bodies.clone();
    let reads = answering(move |delivery, _| {
        seen.lock().unwrap().push(delivery.body().to_vec());
        Outcome::Done
    });
    let handlers = handlers(&world).with("mails", reads.clone()).with("warehouse", reads);
    let worker = world.drainer(handlers);
    world.work(std::slice::from_ref(&worker)).await;
    world.operator().erase(&key("shop/a")).await.unwrap();
    let first = world.state("mails/a").await.head;
    world.operator().rewind(&key("mails/a"), first).await.unwrap();
    world.work(&[worker]).await;
    let bodies = bodies.lock().unwrap().clone();
    assert!(bodies == vec![incoming.body.to_vec(); 3], "{} bodies", bodies.len());
}
