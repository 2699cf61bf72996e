//! Deliveries that the store does not accept and whose sender would not repeat them. They are answered 202,
//! kept in the queue, and appended once the store is available again.

mod batches;

use serializer::local::QUEUE;
use tests::{prelude::*, source, testbed::SOURCES};
use webhook_serializer::{
    engine::queue,
    protocol::{inbox::PutOutcome, trace::Trace},
};

const SAYS: &str = concat!(
    source!("queued", "on_outage = 'queue'"),
    source!("refused", "on_outage = 'refuse'"),
    source!("again"),
    "\n[sources.woo]\nprovider = 'woocommerce'\nsecrets = ['q7mZ4kT1']\nhandler = 'test'\n",
    "\n[sources.woo_refused]\nprovider = 'woocommerce'\nsecrets = ['q7mZ4kT1']\nhandler = 'test'\non_outage = 'refuse'\n",
);

const ANSWER: Duration = Duration::from_millis(2500);
const HOUR: Duration = Duration::from_secs(3600);

fn outages() -> [Fault; 6] {
    let before = |error| Fault::Before(error);
    [
        before(TableError::Throttled),
        before(TableError::Conflict),
        before(TableError::Unknown("no connection".into())),
        before(TableError::Invalid("AccessDeniedException".into())),
        Fault::Silent,
        Fault::SilentAfter,
    ]
}

fn is_put(write: &[Write]) -> bool {
    matches!(write, [Write { action: Action::Put(_), .. }])
}

/// Returns a world whose store follows `plan` until the time `until`.
fn out_until(until: Duration, plan: impl Fn(&TableCall<'_>) -> Fault + Send + Sync + 'static) -> TestWorld {
    let mut world = TestWorld::new().with_sources(SAYS);
    let clock = world.env.clone();
    let end = clock.monotonic() + until;
    world.break_table(move |call| if clock.monotonic() < end { plan(call) } else { Fault::None });
    world
}

fn webhook(world: &TestWorld, source: &str, id: &str, body: String) -> HttpRequest {
    request(&signed(&world.sources(), source, id, body, world.env.now()))
}

async fn answered(world: &TestWorld, webhook: &HttpRequest) -> Response {
    let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
    let before = world.env.monotonic();
    let response = ingest.answer(webhook).await;
    let took = world.env.monotonic() - before;
    assert!(took <= ANSWER, "{took:?}");
    response
}

async fn status(world: &TestWorld, source: &str, id: &str) -> u16 {
    answered(world, &webhook(world, source, id, update("7"))).await.status_code
}

type Handled = Arc<Mutex<Vec<(String, bool, Age)>>>;

fn recording() -> (Handled, impl Handler + Clone) {
    let handled = Handled::default();
    let note = handled.clone();
    let handler = answering(move |delivery: &Delivery, _| {
        let of_it = (delivery.delivery_id().to_string(), delivery.deferred_until().is_some(), delivery.age());
        note.lock().unwrap().push(of_it);
        Outcome::Done
    });
    (handled, handler)
}

/// Promise: `on_outage` and the provider's default decide whether a delivery is deferred. Such a delivery is answered
/// 202 (Adobe Commerce: 200), and applied once, marked as deferred. If it was stored before, it is a repeat.
#[tokio::test(start_paused = true)]
async fn deferred_delivery_is_applied_once_after_an_outage() {
    for fault in outages() {
        let what = format!("{fault:?}");
        let world = out_until(HOUR, move |_| fault.clone());
        let response = answered(&world, &webhook(&world, "queued", "1", update("7"))).await;
        assert_eq!((response.status_code, &*response.body), (202, r#"{"deferred":true,"entity":"queued/order/7"}"#));
        assert_eq!(world.events.deferred(), (1, 0), "{what}");
        let (handled, handler) = recording();
        world.work(&[world.drainer(handler)]).await;
        let back = world.env.monotonic();
        assert_eq!(*handled.lock().unwrap(), [("1".to_owned(), true, Age::Unknown)], "{what}");
        assert_eq!(world.events.deferred(), (1, 1), "{what}");
        assert!(back < HOUR + Duration::from_secs(330), "{what}: after {back:?}");
        // The store is tried again after 15, 30, 60, 120 and 240 s, then every five minutes.
        assert!(world.messages.is_empty() && world.messages.sent() < 30, "{what}: {} sends", world.messages.sent());
        let state = world.state("queued/order/7").await;
        assert_eq!((state.waiting(), state.held), (0, None), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn deferred_delivery_already_stored_is_a_repeat() {
    for fault in [Fault::ReplyLost, Fault::SilentAfter] {
        let what = format!("{fault:?}");
        let hit = fault.clone();
        let world = out_until(HOUR, move |call| if is_put(call.writes) { hit.clone() } else { Fault::None });
        let response = answered(&world, &webhook(&world, "queued", "1", update("7"))).await;
        // A repeated put recognises its own earlier try. Only a put without any answer is in doubt.
        assert_eq!(response.status_code, 202, "{what}");
        tokio::time::advance(HOUR).await;
        world.work(&[world.drainer(Done)]).await;
        assert_eq!(world.applied(), ["1"], "{what}");
        let ends = world.settlements("queued/order/7").await;
        assert_eq!(ends, [Settlement::Applied, Settlement::Repeat], "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn on_outage_option_overrides_provider_default() {
    for (source, expected) in [("queued", 202), ("refused", 503), ("again", 503)] {
        let world = out_until(HOUR, |_| Fault::Silent);
        assert_eq!(status(&world, source, "1").await, expected, "{source}");
        assert_eq!(world.messages.len(), usize::from(expected == 202), "{source}");
    }
    let order = r#"{"id":7,"date_modified_gmt":"2026-01-05T14:01:40"}"#;
    let topic = [("x-wc-webhook-topic", "order.updated"), ("x-wc-webhook-source", "https://shop.example/")];
    for (source, expected) in [("woo", 202), ("woo_refused", 503)] {
        let world = out_until(HOUR, |_| Fault::Silent);
        let sent = signed_as(&world.sources(), source, &topic, order, world.env.now());
        assert_eq!(answered(&world, &request(&sent)).await.status_code, expected, "{source}");
        tokio::time::advance(HOUR).await;
        world.work(&[world.drainer(Done)]).await;
        assert_eq!(world.applied().len(), usize::from(expected == 202), "{source}");
    }
    let wrong = SAYS.replace("'queue'", "'hush'");
    let refused = Sources::parse(&wrong).unwrap_err().to_string();
    assert!(refused.contains("expected `queue` or `refuse`") && !refused.contains("hush"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn delivery_too_large_to_defer_gets_503() {
    let mut random = fastrand::Rng::with_seed(1);
    let noise: String = (0..1_500_000).map(|_| random.alphanumeric()).collect();
    let body = |noise: &str| format!(r#"{{"type":"order.updated","data":{{"order_id":"7","note":"{noise}"}}}}"#);
    for (length, expected) in [(1_500_000, 503), (600_000, 202)] {
        let world = out_until(HOUR, |_| Fault::Silent);
        let webhook = webhook(&world, "queued", "1", body(&noise[..length]));
        let before = world.env.monotonic();
        assert_eq!(answered(&world, &webhook).await.status_code, expected, "{length}");
        let took = world.env.monotonic() - before;
        assert_eq!(took > Duration::from_millis(1500), expected == 503, "{length}: {took:?}");
        assert_eq!(world.messages.len(), usize::from(expected == 202));
    }
    let world = TestWorld::new().with_sources(SAYS);
    assert_eq!(answered(&world, &webhook(&world, "queued", "1", body(&noise))).await.status_code, 200);
}

#[tokio::test(start_paused = true)]
async fn outage_of_one_request_defers_no_delivery() {
    for fault in [Fault::Before(TableError::Throttled), Fault::Silent, Fault::SilentAfter] {
        let what = format!("{fault:?}");
        let world = out_until(HOUR, move |call| if call.request == 1 { fault.clone() } else { Fault::None });
        assert_eq!(status(&world, "queued", "1").await, 200, "{what}");
        assert_eq!(world.events.deferred(), (0, 0), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn webhook_gets_503_if_store_and_queue_fail() {
    for fault in outages() {
        let what = format!("{fault:?}");
        let mut world = out_until(HOUR, |_| Fault::Silent);
        world.break_queue(move |_| fault.clone());
        let response = answered(&world, &webhook(&world, "queued", "1", update("7"))).await;
        assert_eq!((response.status_code, response.headers.contains_key("retry-after")), (503, true), "{what}");
        assert_eq!(world.events.deferred(), (0, 0), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn deferred_delivery_appended_twice_is_applied_once() {
    let world = out_until(Duration::from_secs(60), |_| Fault::Silent);
    assert_eq!(status(&world, "queued", "1").await, 202);
    tokio::time::advance(Duration::from_secs(60)).await;
    let drainer = world.drainer(Done);
    let message = world.messages.receive_due().expect("it waits");
    assert_eq!(world.process_in_worker(&drainer, &message).await, Acknowledgement::Delete);
    assert_eq!(world.state("queued/order/7").await.waiting(), 1, "it is durable");
    world.messages.acknowledge(message, Acknowledgement::Keep);
    world.work(&[drainer]).await;
    assert_eq!(world.applied(), ["1"]);
    let ends = world.settlements("queued/order/7").await;
    assert_eq!(ends, [Settlement::Applied, Settlement::Repeat]);
}

/// Promise: a deferred delivery's message is deleted only after its append or a fresh message.
#[tokio::test(start_paused = true)]
async fn deferred_message_is_deleted_only_after_being_replaced() {
    let mut world = out_until(HOUR, |_| Fault::Silent);
    assert_eq!(status(&world, "queued", "1").await, 202);
    let messages = world.messages.clone();
    let message = messages.receive_due().expect("it waits");
    let whole = std::mem::replace(
        &mut world.queue,
        Arc::new(FaultyQueue::new(messages.clone(), &world.env, |_| Fault::Silent)),
    );
    assert_eq!(world.process_in_worker(&world.drainer(Done), &message).await, Acknowledgement::Keep);
    assert!(messages.is_empty());
    world.queue = whole;
    assert_eq!(world.process_in_worker(&world.drainer(Done), &message).await, Acknowledgement::Delete);
    assert_eq!(messages.len(), 1, "one delayed message replaces it");
    assert_eq!(world.events.deferred(), (1, 0));
    let pause = messages.delays()[0];
    assert!((7..=15).contains(&pause.as_secs()), "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn handler_sees_deferred_event_as_older_than_applied_event() {
    const ACME: &str = "[sources.acme]\nprovider = 'generic'\nsecrets = ['q7mZ4kT1']\nhandler = 'h'\non_outage = 'queue'\n\
         generic = { header = 'x-sign', hash = 'sha256', encoding = 'hex', delivery_id = 'x-id', topic = '/type', \
         entity = '/order', event_time = '/at' }\n";
    let world = out_until(Duration::from_secs(30), |_| Fault::Silent).with_sources(ACME);
    let send = async |id: &str, at: u64| {
        let body = format!(r#"{{"type":"order.updated","order":"7","at":{at}}}"#);
        let sent = signed_as(&world.sources(), "acme", &[("x-id", id)], body, world.env.now());
        answered(&world, &request(&sent)).await.status_code
    };
    let now = world.env.now().as_millis() / 1000;
    assert_eq!(send("first", now).await, 202);
    let waits = world.messages.receive_due().expect("it waits");
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(send("second", now + 1).await, 200);
    let (handled, handler) = recording();
    let drainer = world.drainer(handler);
    let wake_up = world.messages.receive_due().expect("a wake-up");
    assert_eq!(world.process_in_worker(&drainer, &wake_up).await, Acknowledgement::Delete);
    world.messages.acknowledge(wake_up, Acknowledgement::Delete);
    world.messages.acknowledge(waits, Acknowledgement::Keep);
    world.work(&[drainer]).await;
    let handled = handled.lock().unwrap().clone();
    assert_eq!(handled, [("second".to_owned(), false, Age::Newer), ("first".to_owned(), true, Age::Older)]);
}

#[tokio::test(start_paused = true)]
async fn deferred_delivery_does_not_supersede_a_newer_event() {
    let says = SAYS.replace("[sources.woo]", "[sources.woo]\ndeliver = 'latest'");
    let world = out_until(Duration::from_secs(30), |_| Fault::Silent).with_sources(&says);
    let send = async |topic: &str| {
        let topic = [("x-wc-webhook-topic", topic), ("x-wc-webhook-source", "https://shop.example/")];
        let sent = signed_as(&world.sources(), "woo", &topic, r#"{"id":7}"#, world.env.now());
        answered(&world, &request(&sent)).await.status_code
    };
    assert_eq!(send("order.created").await, 202);
    let deferred = world.messages.receive_due().expect("it waits");
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(send("order.updated").await, 200);
    let topics = Arc::new(Mutex::new(Vec::new()));
    let note = topics.clone();
    let drainer = world.drainer(answering(move |delivery: &Delivery, _| {
        note.lock().unwrap().push((delivery.topic().to_owned(), delivery.superseded()));
        Outcome::Done
    }));
    assert_eq!(world.process_in_worker(&drainer, &deferred).await, Acknowledgement::Delete);
    world.messages.acknowledge(deferred, Acknowledgement::Delete);
    world.work(&[drainer]).await;
    assert_eq!(world.settlements("woo/order/7").await, [Settlement::Applied; 2]);
    let topics = topics.lock().unwrap().clone();
    assert_eq!(topics, ["order.updated", "order.created"].map(|topic| (topic.to_owned(), 0)));
}

/// The gap's time runs from the append, not from the webhook's arrival.
#[tokio::test(start_paused = true)]
async fn gap_age_counts_from_append_of_following_deferred_delivery() {
    let world = out_until(HOUR, |_| Fault::Silent);
    assert_eq!(status(&world, "queued", "late").await, 202);
    tokio::time::advance(HOUR).await;
    let store = world.store();
    let nonce = world.env.nonce();
    let incoming = world.incoming_from("queued", "queued/order/7", "in front");
    let claim = Claim { entity: &incoming.entity, nonce: &nonce, now: world.env.now() };
    let place = store.run(&claim, HOUR).await.unwrap().sequence;
    let late = async {
        world.env.sleep(Duration::from_secs(2)).await;
        let envelope = Envelope::pack(&incoming, &nonce, world.env.now() + HOUR);
        assert_eq!(store.run(&Put { envelope: &envelope, sequence: place }, HOUR).await.unwrap(), PutOutcome::Stored);
    };
    let drainers = [world.drainer(Done)];
    tokio::join!(world.work(&drainers), late);
    assert_eq!(world.applied(), ["in front", "late"]);
}

#[tokio::test(start_paused = true)]
async fn message_with_unreadable_deferred_delivery_is_kept() {
    let world = out_until(Duration::from_secs(30), |_| Fault::Silent);
    assert_eq!(status(&world, "queued", "1").await, 202);
    tokio::time::advance(Duration::from_secs(30)).await;
    let good = world.messages.receive_due().expect("it waits").record();
    let record = |id: &str, body: String| SqsRecord { message_id: id.into(), body, ..good.clone() };
    let newer = good.body.replacen(":1", ":2", 1);
    let cut = good.body[..good.body.len() / 2].to_owned();
    let damaged = good.body.replacen("\"length\":", "\"length\":1", 1);
    let jobs = good.body.replacen("queued/order/7", "cron/nightly", 1);
    let broken = [record("newer", newer), record("cut", cut), record("damaged", damaged), record("job", jobs)];
    let records = broken.into_iter().chain([good.clone(), record("nothing", "not json".into())]).collect();
    let deadline = world.env.now() + world.function_time;
    let kept = world.worker(Done).process(SqsEvent { records }, deadline).await;
    let mut kept: Vec<_> = kept.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect();
    kept.sort();
    assert_eq!(kept, ["cut", "damaged", "job", "newer"]);
    assert_eq!((world.events.deferred(), world.events.unreadable()), ((1, 1), 4));
    assert_eq!(world.state("queued/order/7").await.waiting(), 1);
}

/// No worker reads the message before the queue moves it to the dead letters.
#[tokio::test]
async fn deferred_delivery_moved_back_from_dead_letters_is_applied() {
    let mut testbed =
        TestBed::start_for(&SOURCES.replace("handler = 'test'", "handler = 'test'\non_outage = 'queue'")).await;
    let incoming = testbed.incoming("test/a", "1");
    let deferred = queue::Message::Deferred(Box::new(
        webhook_serializer::engine::deferred::Deferred::of(&incoming, None, Trace::default()).expect("it fits"),
    ));
    testbed.queue().send(&deferred, Duration::ZERO).await.expect("the queue takes it");
    let account = testbed.engines.account();
    let client = account.sqs(&account.http_client());
    let url = testbed.engines.config().queue_url;
    let dead = url.replace(QUEUE, "dead-letters");
    let letter = loop {
        let wake_ups = client.receive_message().queue_url(&url).visibility_timeout(0);
        wake_ups.send().await.expect("it answers");
        let letters = client.receive_message().queue_url(&dead).send().await.expect("it answers");
        if let Some(letter) = letters.messages.unwrap_or_default().pop() {
            break letter;
        }
    };
    let body = letter.body.expect("a body");
    assert_eq!(queue::Message::parse(&body), Ok(deferred));
    client.send_message().queue_url(&url).message_body(body).send().await.expect("it is redriven");
    testbed.work(1, &Done);
    testbed.until_no_wake_ups().await;
    testbed.rest().await;
    let runs = testbed.journal.runs();
    assert_eq!(runs.iter().map(|run| run.delivery_id.as_str()).collect::<Vec<_>>(), ["1"]);
    assert_eq!(runs[0].entity, key("test/a"));
}

#[tokio::test]
async fn longest_deferred_delivery_fits_one_message() {
    let mut testbed = TestBed::start().await;
    let mut noise = vec![0; 784_000];
    fastrand::Rng::with_seed(1).fill(&mut noise);
    let incoming = webhook_serializer::Incoming { body: noise.into(), ..testbed.incoming("test/a", "1\u{ffff}\u{1}") };
    let deferred =
        webhook_serializer::engine::deferred::Deferred::of(&incoming, None, Trace::default()).expect("it fits");
    let message = queue::Message::Deferred(Box::new(deferred));
    assert!(message.text().len() > 1_040_000);
    // On a busy machine, a megabyte may take longer than a call may. A copy that landed is then a repeat.
    let queue = testbed.queue();
    let is_sent = async || queue.send(&message, Duration::ZERO).await.is_ok();
    assert!(is_sent().await || is_sent().await || is_sent().await, "the queue takes it");
    let (handled, handler) = recording();
    testbed.work(1, &handler);
    testbed.until_no_wake_ups().await;
    testbed.rest().await;
    assert_eq!(*handled.lock().unwrap(), [("1\u{ffff}\u{1}".to_owned(), true, Age::Unknown)]);
}

/// Adobe Commerce treats any answer other than 200 with this body as a failure.
#[tokio::test(start_paused = true)]
async fn deferred_adobe_commerce_delivery_gets_required_answer() {
    let key = include_str!("../../events/keys/private.pem");
    let says =
        format!("[sources.commerce]\nprovider = 'adobe-commerce'\nsecrets = \"\"\"{key}\"\"\"\nhandler = 'test'\n");
    let mut world = TestWorld::new().with_sources(&says);
    let before = world.table.clone();
    world.break_table(|_| Fault::Silent);
    let post = async |world: &TestWorld, body: &str| {
        let webhook = signed_as(&world.sources(), "commerce", &[], body, world.env.now());
        let Response { status_code, body, .. } = answered(world, &request(&webhook)).await;
        (status_code, body)
    };
    let demanded = (200, r#"{"op":"success"}"#.to_owned());
    assert_eq!(post(&world, r#"{"id":"1"}"#).await, demanded);
    assert_eq!(world.events.deferred(), (1, 0));
    world.table = before;
    assert_eq!(post(&world, r#"{"id":"2"}"#).await, demanded);
    assert_eq!(world.events.deferred(), (1, 0));
}
