//! Sources whose deliveries come by a queue: what Lambda hands over, what stays in the queue, and in which order.

use serde_json::{Value, json};
use serializer::local::samples;
use tests::prelude::*;
use webhook_serializer::{functions::ingest::ForeignRecords, telemetry::IngestRefusal};

const QUEUE: &str = "arn:aws:sqs:eu-central-1:123456789012:orders";
const FIFO: &str = "arn:aws:sqs:eu-central-1:123456789012:orders.fifo";

const SOURCES: &str = "
[sources.orders]
provider = 'generic'
queue = 'arn:aws:sqs:eu-central-1:123456789012:orders'
handler = 'h'
topics = { ignore = 'order.viewed' }
filter = { '/test' = false }
generic = { topic = '/type', delivery_id = 'x-id', entity_kind = 'order', entity = '/order' }

[sources.fifo]
provider = 'generic'
queue = 'arn:aws:sqs:eu-central-1:123456789012:orders.fifo'
handler = 'h'
generic = { entity = '/order' }

[sources.grouped]
provider = 'generic'
queue = 'arn:aws:sqs:eu-central-1:123456789012:grouped.fifo'
handler = 'h'
generic = { delivery_id = 'MessageDeduplicationId', entity = 'MessageGroupId', event_time = 'SentTimestamp' }
";

fn world() -> TestWorld {
    TestWorld::new().with_sources(SOURCES)
}

/// Returns a record in the form that AWS documents: https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html.
fn record(arn: &str, id: &str, body: &str) -> Value {
    let mut record = json!({
        "messageId": id,
        "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a...",
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1545082649183",
            "SenderId": "AIDAIENQZJOLO23YVJ4VO",
            "ApproximateFirstReceiveTimestamp": "1545082649185",
        },
        "messageAttributes": {},
        "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": "eu-central-1",
    });
    if arn.ends_with(".fifo") {
        record["attributes"]["SequenceNumber"] = "18849496460467696128".into();
        record["attributes"]["MessageDeduplicationId"] = "1".into();
    }
    record
}

fn order(arn: &str, id: &str, order: &str) -> Value {
    record(arn, id, &format!(r#"{{"type":"order.updated","test":false,"order":"{order}","n":"{id}"}}"#))
}

fn in_group(mut record: Value, group: &str) -> Value {
    record["attributes"]["MessageGroupId"] = group.into();
    record
}

fn with_id(mut record: Value, id: &str) -> Value {
    record["messageAttributes"]["X-Id"] = json!({
        "stringValue": id, "stringListValues": [], "binaryListValues": [], "dataType": "String",
    });
    record
}

/// Gives the batch to ingest. Returns the ids of the messages that stay in the queue.
async fn failed_ids_of(ingest: &Ingest, records: &[Value]) -> Vec<String> {
    let event: HttpRequest = serde_json::from_value(json!({ "Records": records })).expect("it is read");
    let answer = serde_json::to_value(ingest.process(&event).await.expect("it is known")).expect("an answer is JSON");
    let failures = answer["batchItemFailures"].as_array().unwrap_or_else(|| panic!("{answer}"));
    failures.iter().map(|failure| failure["itemIdentifier"].as_str().expect("an id").to_owned()).collect()
}

async fn failed_ids(world: &TestWorld, records: &[Value]) -> Vec<String> {
    failed_ids_of(&Ingest::new(world.sources(), world.inbox(), world.env.clone()), records).await
}

async fn work(world: &TestWorld) {
    world.work(&[world.drainer(Done)]).await;
}

/// Ignored deliveries with their filter, and refusals with their reason.
#[derive(Debug, Default)]
struct Reports(Mutex<Vec<String>>);

impl Reports {
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no one panics"))
    }
}

impl Observer for Reports {
    fn observe(&self, event: &Event<'_>) {
        let report = match event {
            Event::Ignored { incoming, filter } => format!("ignored {} {filter:?}", incoming.identity.delivery_id),
            Event::Refused { source: None, refusal, reason, .. } => format!("{}: {reason}", refusal.as_str()),
            _ => return,
        };
        self.0.lock().expect("no one panics").push(report);
    }
}

fn reporting(world: &TestWorld) -> (Ingest, Arc<Reports>) {
    let reports = Arc::new(Reports::default());
    let inbox = Inbox::new(world.store(), world.waker(), world.settings.retention, reports.clone());
    (Ingest::new(world.sources(), inbox, world.env.clone()), reports)
}

/// Returns the number of the call's entity, if the call writes an entity's row or an inbox.
fn is_about(call: &TableCall<'_>, order: &str) -> bool {
    call.writes.iter().any(|write| format!("{write:?}").contains(order))
}

/// Promise: the messages of a source's queue are its deliveries, and those of an order are applied in the order of
/// their batch.
#[tokio::test(start_paused = true)]
async fn messages_of_a_queue_are_applied_in_order() {
    for arn in [QUEUE, FIFO] {
        let world = world();
        let batch: Vec<Value> = (0..10)
            .map(|n: u32| in_group(order(arn, &format!("m{n}"), &(n % 2).to_string()), &format!("g{}", n % 3)))
            .collect();
        assert_eq!(failed_ids(&world, &batch).await, [""; 0]);
        work(&world).await;
        let applied = world.applied();
        let of = |parity: usize| -> Vec<String> {
            let number = |id: &String| id[1..].parse::<usize>().expect("a number");
            applied.iter().filter(|id| number(id) % 2 == parity).cloned().collect()
        };
        assert_eq!(of(0), ["m0", "m2", "m4", "m6", "m8"], "{arn}");
        assert_eq!(of(1), ["m1", "m3", "m5", "m7", "m9"], "{arn}");
    }
}

#[tokio::test(start_paused = true)]
async fn attributes_of_a_message_are_read_like_headers() {
    let world = world();
    let grouped = FIFO.replace("orders", "grouped");
    assert_eq!(failed_ids(&world, &[in_group(record(&grouped, "a", "{}"), "order/7")]).await, [""; 0]);
    work(&world).await;
    assert_eq!(world.applied(), ["1"], "the deduplication id");
    let state = world.state("grouped/order/7").await;
    assert_eq!(state.newest_event_time.of("unknown"), Some(Timestamp::from_millis(1_545_082_649_183)));
}

/// Promise: a message that is not stored stays in the queue, and so do later ones of its batch with the same order or,
/// in a FIFO queue, the same group. The others are deleted.
#[tokio::test(start_paused = true)]
async fn messages_behind_a_failed_one_stay_in_the_queue() {
    let batch = |arn: &str| {
        [("a", "7", "x"), ("b", "8", "x"), ("c", "9", "y"), ("d", "7", "y"), ("e", "9", "z"), ("f", "8", "y")]
            .map(|(id, of, group)| in_group(order(arn, id, of), group))
    };
    // A standard queue does not keep a group's order. `d` has the order of `a`; in the FIFO queue, `f` has the group of `d`.
    for (arn, expected) in [(QUEUE, vec!["a", "d"]), (FIFO, vec!["a", "b", "d", "f"])] {
        let mut world = world();
        let healthy = world.table.clone();
        let failing = if arn == FIFO { "fifo/7" } else { "orders/order/7" };
        world.fail(Fault::Before(TableError::Throttled), move |call| is_about(call, failing));
        assert_eq!(failed_ids(&world, &batch(arn)).await, expected, "{arn}");
        world.table = healthy;
        work(&world).await;
        let left: Vec<Value> = batch(arn)
            .into_iter()
            .filter(|record| expected.contains(&record["messageId"].as_str().expect("an id")))
            .collect();
        assert_eq!(failed_ids(&world, &left).await, [""; 0]);
        work(&world).await;
        let applied = world.applied();
        let position = |id: &str| applied.iter().position(|one| one == id).expect("it is applied");
        assert_eq!(applied.len(), 6, "{applied:?}");
        assert!(position("a") < position("d") && position("b") < position("f") && position("c") < position("e"));
    }
}

/// Promise: in an outage, a queue's messages stay in the queue, and none is applied twice afterwards.
#[tokio::test(start_paused = true)]
async fn outage_leaves_all_messages_in_the_queue() {
    let batch: Vec<Value> = (0..10).map(|n| order(QUEUE, &format!("m{n}"), &(n % 3).to_string())).collect();
    let before = |error| Fault::Before(error);
    for fault in [
        before(TableError::Throttled),
        before(TableError::Unknown("no connection".into())),
        before(TableError::Invalid("AccessDeniedException".into())),
        Fault::Silent,
        Fault::SilentAfter,
    ] {
        let mut world = world();
        let healthy = world.table.clone();
        let what = format!("{fault:?}");
        world.break_table(move |_| fault.clone());
        let began = world.env.monotonic();
        assert_eq!(failed_ids(&world, &batch).await.len(), 10, "{what}");
        assert!(world.env.monotonic() - began < Duration::from_secs(8), "{what}: ingest has ten seconds");
        assert_eq!(world.events.deferred(), (0, 0), "{what}: nothing is deferred");
        world.table = healthy;
        tokio::time::advance(Duration::from_secs(400)).await;
        assert_eq!(failed_ids(&world, &batch).await, [""; 0], "{what}");
        world.sweeper().sweep_all().await.expect("it sweeps");
        work(&world).await;
        let applied: BTreeSet<String> = world.applied().into_iter().collect();
        assert_eq!((applied.len(), world.applied().len()), (10, 10), "{what}");
    }
}

/// A store that takes over a second for each append must not outlast the function: the last messages are not tried.
#[tokio::test(start_paused = true)]
async fn batch_of_one_order_ends_before_the_function_does() {
    let mut world = world();
    let clock = world.env.clone();
    world.break_table(|_| Fault::Slow(Duration::from_millis(600)));
    let batch: Vec<Value> = (0..10).map(|n| order(QUEUE, &format!("m{n}"), "7")).collect();
    let began = clock.monotonic();
    let kept = failed_ids(&world, &batch).await;
    let took = clock.monotonic() - began;
    assert!(!kept.is_empty() && kept.len() < 10 && took < Duration::from_secs(8), "{kept:?} after {took:?}");
    assert_eq!(kept, batch[10 - kept.len()..].iter().map(|one| one["messageId"].as_str().unwrap()).collect::<Vec<_>>());
}

/// Promise: a message with the sender's id is a repeat of an earlier event with that id, also of one that came by HTTP.
/// Without that id, two messages with equal bodies are two events.
#[tokio::test(start_paused = true)]
async fn message_is_a_repeat_by_its_senders_id() {
    let by_http = SOURCES
        .replacen("queue = 'arn:aws:sqs:eu-central-1:123456789012:orders'", "secrets = 'q7mZ4kT1'", 1)
        .replacen("generic = { topic", "generic = { token_in = 'x-key', topic", 1);
    let mut world = TestWorld::new().with_sources(&by_http);
    let body = r#"{"type":"order.updated","test":false,"order":"7"}"#;
    let webhook = signed_as(&world.sources(), "orders", &[("x-id", "e1")], body, world.env.now());
    let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
    assert_eq!(ingest.answer(&request(&webhook)).await.status_code, 200);
    work(&world).await;
    world = world.with_sources(SOURCES);
    let same = with_id(record(QUEUE, "a", body), "e1");
    let other = record(QUEUE, "b", body);
    let equal = record(QUEUE, "c", body);
    assert_eq!(failed_ids(&world, &[same, other.clone(), equal, other]).await, [""; 0]);
    work(&world).await;
    assert_eq!(world.applied(), ["e1", "b", "c"]);
    use Settlement::{Applied, Repeat};
    assert_eq!(world.settlements("orders/order/7").await, [Applied, Repeat, Applied, Applied, Repeat]);
}

/// Promise: a message without an order is parked as a webhook is, and holds no group.
#[tokio::test(start_paused = true)]
async fn message_without_order_is_parked_and_holds_no_group() {
    let world = world();
    let unreadable = record(FIFO, "a", "no JSON");
    let nameless = record(FIFO, "b", r#"{"no":"order"}"#);
    let batch = [unreadable, nameless, order(FIFO, "c", "7")].map(|record| in_group(record, "x"));
    assert_eq!(failed_ids(&world, &batch).await, [""; 0]);
    work(&world).await;
    assert_eq!(world.applied(), ["c"]);
    let parked = world.operator().parked(&key("fifo/unrouted")).await.expect("memory answers");
    let reasons: Vec<String> = parked.into_iter().map(|one| one.error.to_string()).collect();
    assert_eq!(
        reasons,
        [
            "the body is not JSON at line 1, column 2",
            "the source's rules find no order in the webhook, which has no topic"
        ]
    );
}

/// The event has the form of https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-events-structure.html, read on
/// 2026-11-29. The source is the page's.
///
/// Promise: an event of EventBridge comes by a queue, and its order is found in `detail`.
#[tokio::test(start_paused = true)]
async fn event_of_eventbridge_is_applied_as_the_page_says() {
    let page = tests::tree::read("docs/queues.md");
    let example = page.split("## EventBridge").nth(1).and_then(|text| text.split("```toml\n").nth(1));
    let document = example.and_then(|text| text.split("```").next()).expect("an example");
    let world = TestWorld::new().with_sources(document);
    let event = |id: &str, kind: &str, detail: Value| {
        let body = json!({
            "version": "0", "id": id, "detail-type": kind, "source": "com.example.shop", "account": "123456789012",
            "time": "2018-12-17T21:37:29Z", "region": "eu-central-1", "resources": [], "detail": detail,
        });
        record("arn:aws:sqs:eu-central-1:123456789012:shop", &format!("m-{id}"), &body.to_string())
    };
    let updated = event("e1", "order.updated", json!({ "shop": "berlin", "order": { "id": 7 } }));
    let refunded = event("e2", "refund.created", json!({ "shop": "berlin", "refund": { "order_id": 7 } }));
    let mut again = updated.clone();
    again["messageId"] = "another".into();
    assert_eq!(failed_ids(&world, &[updated, refunded, again]).await, [""; 0]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = seen.clone();
    let handler = answering(move |delivery: &Delivery, _| {
        let topic = delivery.topic().to_owned();
        let order = delivery.entity().to_string();
        note.lock().unwrap().push((topic, order, delivery.incoming().event_time));
        Outcome::Done
    });
    world.work(&[world.drainer(handler)]).await;
    assert_eq!(world.applied(), ["e1", "e2"]);
    let happened = Some(Timestamp::from_secs(1_545_082_649));
    let expected = ["order.updated", "refund.created"].map(|topic| (topic.into(), "shop/order/7".into(), happened));
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// Returns the message of a sample in `events/queues/`.
fn sample(name: &str) -> Value {
    let event: Value = serde_json::from_str(&tests::tree::read(format!("events/queues/{name}.json"))).expect("JSON");
    event["Records"][0].clone()
}

fn queue_sources() -> String {
    tests::tree::read("events/queues/sources.toml")
}

/// Promise: a webhook of Shopify or Stripe that comes by EventBridge is a repeat of the one that came by HTTP, and its
/// handler gets the same body.
#[tokio::test(start_paused = true)]
async fn webhook_by_eventbridge_is_a_repeat_of_the_one_by_http() {
    for (name, order) in
        [("shopify-orders-paid", "shopify/order/450789469"), ("stripe-charge-refunded", "stripe/order/450789469")]
    {
        let mut world = TestWorld::new().with_sources(samples::SOURCES);
        let event = tests::tree::read(format!("events/{name}.json"));
        let webhook = samples::webhook(&event, &world.sources(), world.env.now()).expect("a sample");
        let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
        assert_eq!(ingest.answer(&request(&webhook)).await.status_code, 200, "{name}");
        work(&world).await;
        world = world.with_sources(&queue_sources());
        assert_eq!(failed_ids(&world, &[sample(name)]).await, [""; 0], "{name}");
        work(&world).await;
        use Settlement::{Applied, Repeat};
        assert_eq!(world.settlements(order).await, [Applied, Repeat], "{name}");

        let only_by_queue = TestWorld::new().with_sources(&queue_sources());
        assert_eq!(failed_ids(&only_by_queue, &[sample(name)]).await, [""; 0], "{name}");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let note = seen.clone();
        let handler = answering(move |delivery: &Delivery, _| {
            let body: Value = serde_json::from_slice(delivery.body()).expect("JSON");
            note.lock().unwrap().push((delivery.topic().to_owned(), body));
            Outcome::Done
        });
        only_by_queue.work(&[only_by_queue.drainer(handler)]).await;
        let body: Value = serde_json::from_slice(&webhook.body).expect("JSON");
        assert_eq!(*seen.lock().unwrap(), [(webhook.incoming.topic.clone(), body)], "{name}");
    }
}

/// Promise: a message that its preset cannot read is parked, and none is lost.
#[tokio::test(start_paused = true)]
async fn message_that_a_preset_cannot_read_is_parked() {
    for (name, order) in [
        ("amazon-sp-api-order-change", "amazon-sp-api/order/903-8868176-2219830"),
        ("commercetools-eventbridge", "commercetools/order/7c2b1f0e-59a4-4d0c-9a55-0b6f0c5a7d11"),
        ("shopify-orders-paid", "shopify/order/450789469"),
        ("stripe-charge-refunded", "stripe/order/450789469"),
    ] {
        let world = TestWorld::new().with_sources(&queue_sources());
        let readable = sample(name);
        let with_body = |id: &str, body: &str| {
            let mut record = readable.clone();
            record["messageId"] = id.into();
            record["body"] = body.into();
            record
        };
        let broken = [
            ("a", "no JSON"),
            ("b", "{}"),
            ("c", r#"{"detail-type":"a","detail":7}"#),
            ("d", r#"{"detail-type":"a"}"#),
        ];
        let mut batch = broken.map(|(id, body)| with_body(id, body)).to_vec();
        batch.push(readable.clone());
        assert_eq!(failed_ids(&world, &batch).await, [""; 0], "{name}");
        work(&world).await;
        assert_eq!(world.settlements(order).await, [Settlement::Applied], "{name}");
        let source = order.split('/').next().expect("a source");
        let parked = world.operator().parked(&key(&format!("{source}/unrouted"))).await.expect("memory answers");
        assert_eq!(parked.len(), broken.len(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn ignored_message_is_counted_and_deleted() {
    let world = world();
    let (ingest, reports) = reporting(&world);
    let viewed = record(QUEUE, "a", r#"{"type":"order.viewed","order":"7"}"#);
    let test = record(QUEUE, "b", r#"{"type":"order.updated","test":true,"order":"7"}"#);
    assert_eq!(failed_ids_of(&ingest, &[viewed, test, order(QUEUE, "c", "7")]).await, [""; 0]);
    assert_eq!(reports.taken(), ["ignored a None", "ignored b Some(\"/test\")"]);
    work(&world).await;
    assert_eq!(world.applied(), ["c"]);
}

/// Promise: a message of a queue that no source has stays in its queue, and the log names the queue and no body.
#[tokio::test(start_paused = true)]
async fn message_of_an_unknown_queue_stays_and_is_logged() {
    let world = world();
    let (ingest, reports) = reporting(&world);
    let unknown = QUEUE.replace("orders", "ordres");
    let batch = [record(&unknown, "a", r#"{"hush":1}"#), order(QUEUE, "b", "7"), record(&unknown, "c", "hush")];
    assert_eq!(failed_ids_of(&ingest, &batch).await, ["a", "c"]);
    let expected = format!("no source for the queue: no source has queue = \"{unknown}\" (did you mean `{QUEUE}`?)");
    assert_eq!(reports.taken(), [expected.clone(), expected]);
    assert_eq!(IngestRefusal::UnknownQueue.as_str(), "no source for the queue");
    work(&world).await;
    assert_eq!(world.applied(), ["b"]);
}

/// Promise: no HTTP request reaches a source with a queue, or passes for its messages.
#[tokio::test(start_paused = true)]
async fn http_request_cannot_pass_for_a_message() {
    let world = world();
    let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
    let batch = json!({ "Records": [order(QUEUE, "a", "7")] }).to_string();
    for path in ["/webhooks/orders", "/"] {
        for body in [batch.as_str(), r#"{"type":"order.updated","test":false,"order":"7"}"#] {
            let event = json!({
                "version": "2.0", "rawPath": path, "body": body, "headers": { "x-id": "1", "content-type": "application/json" },
                "requestContext": { "http": { "method": "POST" } },
            });
            let event: HttpRequest = serde_json::from_value(event).expect("it is read");
            let answer =
                serde_json::to_value(ingest.process(&event).await.expect("it is known")).expect("an answer is JSON");
            assert_eq!(answer["statusCode"], 404, "{path}: {answer}");
        }
    }
    assert!(world.messages.is_empty() && world.memory.rows(&TableName::Inbox).is_empty());
    let of_other_services = [
        json!({ "Records": [{ "eventSource": "aws:s3", "s3": { "object": { "key": "a" } } }] }),
        json!({ "Records": [{ "EventSource": "aws:sns", "Sns": { "MessageId": "a", "Message": "{}" } }] }),
        json!({ "Records": [{ "eventSource": "aws:kinesis", "eventSourceARN": QUEUE, "kinesis": {} }] }),
        json!({ "Records": [order(QUEUE, "a", "7"), { "eventSourceARN": QUEUE }] }),
    ];
    for event in of_other_services {
        let event: HttpRequest = serde_json::from_value(event).expect("it is read");
        assert_eq!(ingest.process(&event).await, Err(ForeignRecords), "{event:?}");
    }
    assert!(world.memory.rows(&TableName::Inbox).is_empty());
    let empty: HttpRequest = serde_json::from_value(json!({ "Records": [] })).expect("it is read");
    let answer = serde_json::to_value(ingest.process(&empty).await.expect("it has no records")).expect("it is JSON");
    assert_eq!(answer["statusCode"], 503, "{answer}");
}
