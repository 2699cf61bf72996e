//! Leases from several languages: the same cases for each client, behind a proxy that loses and falsifies the store's
//! replies; then all clients and workers on the same orders.

mod client;
mod jobs;
mod pages;
mod proxy;
mod runtimes;

use serde_json::{Value, json};
use tests::prelude::*;

use client::{Client, ClientLanguage};
use proxy::{Proxy, ReplyFault};

/// Two clients of one language, whose requests pass through the proxy.
struct Pair {
    _testbed: TestBed,
    proxy: Proxy,
    one: Client,
    two: Client,
}

impl Pair {
    async fn start(language: ClientLanguage) -> Self {
        let testbed = TestBed::start().await;
        let proxy = Proxy::start(&testbed.engines.dynamodb_url()).await;
        let client = || Client::start(language, &testbed.engines, proxy.url());
        let mut one = client();
        let two = client();
        // The first lease of a client also shows it the store's time.
        one.succeeds("acquire", "test/first", json!({})).await;
        one.succeeds("release", "test/first", json!({})).await;
        proxy.requests();
        Self { _testbed: testbed, proxy, one, two }
    }
}

/// Returns a write that lands once for `order`.
fn writes(order: &str) -> Value {
    json!({ "writes": [{ "Put": {
        "TableName": "totals", "Item": { "order": { "S": order } },
        "ConditionExpression": "attribute_not_exists(#o)", "ExpressionAttributeNames": { "#o": "order" },
    } }] })
}

fn without_wait() -> Value {
    json!({ "wait": 0 })
}

async fn with_each(check: impl AsyncFn(ClientLanguage, Pair)) {
    join_all(ClientLanguage::ALL.map(async |language| check(language, Pair::start(language).await).await)).await;
}

const FAULTS: [ReplyFault; 8] = [
    ReplyFault::Lost,
    ReplyFault::Late,
    ReplyFault::Cut,
    ReplyFault::Closed,
    ReplyFault::Repeated,
    ReplyFault::Throttled,
    ReplyFault::Broken,
    ReplyFault::Conflict,
];

#[tokio::test(flavor = "multi_thread")]
async fn uncontended_lease_costs_two_requests() {
    with_each(async |language, mut pair| {
        pair.one.succeeds("acquire", "test/a", json!({})).await;
        pair.one.succeeds("release", "test/a", json!({})).await;
        pair.one.succeeds("acquire", "test/a", json!({})).await;
        pair.one.succeeds("commit", "test/a", writes("a")).await;
        let expected = ["UpdateItem", "UpdateItem", "UpdateItem", "TransactWriteItems"];
        assert_eq!(pair.proxy.requests(), expected, "{language:?}");
    })
    .await;
}

/// Promise: a lost, late or refused reply at acquire, extend, release or commit is recovered; an uncontended lease is
/// two requests, in each language.
#[tokio::test(flavor = "multi_thread")]
async fn failed_reply_of_each_request_is_recovered() {
    with_each(async |language, mut pair| {
        for fault in FAULTS {
            for operation in ["acquire", "extend", "release", "commit"] {
                let key = format!("test/{fault:?}-{operation}");
                let request = if operation == "commit" { "TransactWriteItems" } else { "UpdateItem" };
                if operation != "acquire" {
                    pair.one.succeeds("acquire", &key, json!({})).await;
                }
                pair.proxy.plan(request, fault);
                let more = if operation == "commit" { writes(&key) } else { json!({}) };
                pair.one.succeeds(operation, &key, more).await;
                assert!(pair.proxy.is_done(), "{language:?}: {fault:?} at {operation}");
                if ["acquire", "extend"].contains(&operation) {
                    pair.two.fails("contended", "acquire", &key, without_wait()).await;
                    pair.one.succeeds("release", &key, json!({})).await;
                }
                pair.two.succeeds("acquire", &key, without_wait()).await;
                if operation == "commit" {
                    pair.two.fails("not_committed", "commit", &key, writes(&key)).await;
                }
                pair.two.succeeds("release", &key, json!({})).await;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_commit_of_expired_lease_is_refused() {
    with_each(async |_, mut pair| {
        let first = pair.one.succeeds("acquire", "test/late", json!({ "length": 1000 })).await;
        let second = pair.two.succeeds("acquire", "test/late", json!({ "wait": 10_000 })).await;
        assert!(first["token"].as_u64() < second["token"].as_u64());
        pair.one.fails("lost", "commit", "test/late", writes("late")).await;
        pair.two.succeeds("commit", "test/late", writes("late")).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_killed_holder_expires() {
    with_each(async |_, mut pair| {
        pair.two.succeeds("acquire", "test/killed", json!({ "length": 2000 })).await;
        pair.two.kill().await;
        pair.one.succeeds("acquire", "test/killed", json!({ "wait": 10_000 })).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_is_renewed_while_work_runs() {
    with_each(async |_, mut pair| {
        pair.one.send(&json!({ "op": "run", "key": "test/long", "length": 1000, "work": 4000 })).await;
        while pair.two.succeeds("lookup", "test/long", json!({})).await["held"] == false {}
        Env::system().sleep(Duration::from_millis(2500)).await;
        pair.two.fails("contended", "acquire", "test/long", without_wait()).await;
        let done = pair.one.answer().await;
        assert_eq!(done.get("error"), None, "{done}");
        pair.two.succeeds("acquire", "test/long", without_wait()).await;
    })
    .await;
}

/// Promise: a lost lease is never success in TypeScript or Python either, not even after blocked work; leases decide by
/// the store's clock.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_blocks_past_its_lease_is_lost() {
    with_each(async |_, mut pair| {
        pair.one
            .send(&json!({ "op": "run", "key": "test/blocked", "length": 1000, "block": 6000, "work": 2000 }))
            .await;
        while pair.two.succeeds("lookup", "test/blocked", json!({})).await["held"] == false {}
        pair.two.succeeds("acquire", "test/blocked", json!({ "wait": 10_000 })).await;
        assert_eq!(pair.one.answer().await["error"], "lost");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_cannot_succeed_names_the_remedy() {
    with_each(async |language, mut pair| {
        pair.proxy.plan("UpdateItem", ReplyFault::Denied);
        pair.one.fails("denied", "acquire", "test/denied", without_wait()).await;
        pair.one.fails("key_invalid", "acquire", "denied", without_wait()).await;
        pair.one.succeeds("acquire", "test/commit", json!({})).await;
        let elsewhere = json!({ "writes": [{ "Delete": { "TableName": "nowhere", "Key": { "a": { "S": "1" } } } }] });
        let missing = pair.one.fails("missing_table", "commit", "test/commit", elsewhere).await;
        // The Rust library passes on what DynamoDB says.
        if language != ClientLanguage::Rust {
            assert!(missing.contains("the table nowhere does not exist"), "{missing}");
        }
        // The lease was released: the writes can never succeed.
        pair.two.succeeds("acquire", "test/commit", without_wait()).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_forms_release_what_they_acquire() {
    let mut pair = Pair::start(ClientLanguage::TypeScript).await;
    let one = &mut pair.one;
    let two = &mut pair.two;
    one.succeeds("using", "test/using", json!({})).await;
    assert_eq!(one.succeeds("unless_held", "test/using", json!({})).await["ran"], true);
    assert_eq!(one.succeeds("write", "test/using", writes("using")).await["value"], "written");
    one.fails("not_committed", "write", "test/using", writes("using")).await;
    let message = one.fails("invalid", "write", "test/using", json!({})).await;
    assert!(message.contains("the writes are undefined, not a list"), "{message}");

    two.succeeds("acquire", "test/using", without_wait()).await;
    assert_eq!(one.succeeds("unless_held", "test/using", json!({})).await["ran"], false);
    let given_up = one.succeeds("given_up", "test/using", json!({ "after": 300 })).await;
    assert_eq!(given_up, json!({ "name": "TimeoutError", "isQuick": true }));
    two.succeeds("release", "test/using", json!({})).await;
    two.fails("invalid", "release", "test/using", json!({})).await;

    // The lease is released before the caller gets the error, so that a function may be frozen then.
    one.fails("out_of_time", "run", "test/using", json!({ "within": 2000, "work": 60_000 })).await;
    two.succeeds("acquire", "test/using", without_wait()).await;
    two.succeeds("release", "test/using", json!({})).await;
    one.fails("invalid", "run", "test/using", json!({ "wait": -1, "work": 0 })).await;

    let own = json!({ "writes": [{ "Delete": { "TableName": "entities", "Key": { "entity": { "S": "a/b" } } } }] });
    one.fails("invalid", "write", "test/using", own).await;
    let many = json!({ "writes": vec![json!({ "Delete": { "TableName": "totals", "Key": { "order": { "S": "1" } } } }); 100] });
    one.fails("invalid", "write", "test/using", many).await;
    two.succeeds("acquire", "test/using", without_wait()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_granted_to_an_aborted_typescript_request_is_released() {
    let mut pair = Pair::start(ClientLanguage::TypeScript).await;
    let aborted = pair.one.succeeds("aborted", "test/aborted", json!({})).await;
    assert!(aborted["refused"].as_u64() > Some(1), "{aborted}");
    assert_eq!(aborted["held"], 0, "{aborted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_host_hears_of_failures_around_a_lease() {
    let mut pair = Pair::start(ClientLanguage::TypeScript).await;
    let unwoken = pair.one.succeeds("unwoken", "test/unwoken", json!({})).await;
    let warning = unwoken["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("LeaseWarning: the lease of test/unwoken was released, but no wake-up"), "{warning}");
    let out_of_time = pair.one.succeeds("out_of_time", "test/out-of-time", json!({})).await;
    assert_eq!(out_of_time["heard"], out_of_time["sent"], "the release is on its way before");
    let message = pair.one.fails("invalid", "without_region", "test/region", json!({})).await;
    assert!(message.contains("the dynamodb client has no region: set AWS_REGION"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn misspelt_option_in_javascript_is_named() {
    let mut pair = Pair::start(ClientLanguage::TypeScript).await;
    let answer = pair.one.succeeds("misspelt", "test/misspelt", json!({})).await;
    let messages: Vec<&str> = answer["messages"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let options = "length, wait, within, signal, renew";
    let no_queue = "LeaseInvalid: \"nonsense\" is not the URL of a queue: set QUEUE_URL to the deployment's output \
                    QueueUrl, such as https://sqs.eu-central-1.amazonaws.com/123456789012/wake-ups";
    let retries = |client: &str| {
        format!(
            "LeaseInvalid: the {client} client retries by itself, while a lease's requests must not be repeated: create it \
             with maxAttempts: 1, or give none"
        )
    };
    let expected = [
        "LeaseInvalid: \"wiat\" is not an option: did you mean wait?",
        &format!("LeaseInvalid: \"timeout\" is not an option: the options are {options}"),
        &format!("LeaseInvalid: 3000 is not an object with the options {options}"),
        "LeaseInvalid: \"oncrash\" is not an option: did you mean onCrash?",
        "LeaseInvalid: \"queueURL\" is not an option: did you mean queueUrl?",
        no_queue,
        "LeaseInvalid: the name of the entities table is not given: set `table`, such as to ENTITIES_TABLE",
        "LeaseInvalid: job report: the schedule is not given, such as `0 3 * * *` or `every 6 hours`",
        "LeaseKeyInvalid: the key has a half of a surrogate pair, which is no character",
        "LeaseInvalid: write 0 names no table: a half of a surrogate pair is no character",
        "LeaseInvalid: the work is a generator, whose body would not run: begin it without `*`",
        "LeaseInvalid: dynamodb is not a client of the AWS SDK for JavaScript",
        &retries("dynamodb"),
        &retries("sqs"),
        no_queue,
        "TypeError: \"onEror\" is not an option: did you mean onError?",
    ];
    assert_eq!(messages, expected);
    assert_eq!(pair.two.succeeds("lookup", "test/misspelt", json!({})).await["held"], false);
    let of_the_commit = ["UpdateItem", "UpdateItem"];
    assert_eq!(pair.proxy.requests(), [&of_the_commit[..], &["GetItem"]].concat(), "nothing else was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_a_given_up_request_is_released() {
    with_each(async |_, mut pair| {
        pair.proxy.plan("UpdateItem", ReplyFault::Late);
        pair.one.fails("unreachable", "acquire", "test/given-up", without_wait()).await;
        pair.two.succeeds("acquire", "test/given-up", json!({ "wait": 5000 })).await;
    })
    .await;
}

const ORDERS: [&str; 4] = ["test/1", "test/2", "test/3", "test/4"];

/// A worker's handler that leaves the same traces as the clients.
#[derive(Clone)]
struct Traced {
    folder: Arc<std::path::Path>,
    counts: Arc<[AtomicU64; 3]>,
}

impl Handler for Traced {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let number = ORDERS.iter().position(|order| *order == delivery.entity().as_str()).expect("one of the orders");
        let inside = self.folder.join(format!("inside-{number}"));
        let last = self.folder.join(format!("token-{number}"));
        self.counts[0].fetch_add(1, Relaxed);
        if std::fs::File::create_new(&inside).is_err() {
            self.counts[1].fetch_add(1, Relaxed);
        }
        let before = std::fs::read_to_string(&last).ok().and_then(|token| token.parse().ok());
        if before.is_some_and(|before: u64| before >= context.token().0) {
            self.counts[2].fetch_add(1, Relaxed);
        }
        std::fs::write(&last, context.token().0.to_string()).expect("it can be written");
        Env::system().sleep(Duration::from_millis(1)).await;
        std::fs::remove_file(&inside).expect("it was created");
        Ok(Outcome::Done)
    }
}

/// Promise: clients in Rust, TypeScript and Python, and workers, hold an order one at a time, with growing tokens.
#[tokio::test(flavor = "multi_thread")]
async fn clients_and_workers_hold_an_order_one_at_a_time() {
    let times = if tests::not_run::is_thorough() { 250 } else { 20 };
    let mut testbed = TestBed::start().await;
    let folder = tempfile::tempdir().unwrap();
    let handler = Traced { folder: folder.path().into(), counts: Arc::default() };
    testbed.work(4, &handler);

    let store = testbed.engines.dynamodb_url();
    let mut clients: Vec<Client> =
        ClientLanguage::ALL.into_iter().map(|language| Client::start(language, &testbed.engines, &store)).collect();
    for client in &mut clients {
        // Each is at work before the first delivery.
        client.succeeds("lookup", ORDERS[0], json!({})).await;
    }
    for client in &mut clients {
        client.send(&json!({ "op": "crowd", "keys": ORDERS, "times": times, "folder": folder.path() })).await;
    }
    let names = ORDERS.map(|order| order["test/".len()..].to_owned());
    let sent = testbed.burst(&names, times, 1).await;
    let mut holds = 0;
    for client in &mut clients {
        let done = client.answer().await;
        assert_eq!((&done["overlaps"], &done["inversions"]), (&json!(0), &json!(0)), "{done}");
        holds += done["holds"].as_u64().unwrap();
    }
    testbed.until_no_wake_ups().await;
    testbed.rest().await;
    let [handled, overlaps, inversions] = [0, 1, 2].map(|number| handler.counts[number].load(Relaxed));
    assert_eq!((handled, overlaps, inversions), (sent.len() as u64, 0, 0));
    assert_eq!(holds, (clients.len() * times) as u64);
    println!("{holds} holds beside {handled} deliveries");
}
