//! The sample receivers of `shared/examples/receivers`, in separate processes,
//! behind the real handlers and the real drain.

mod invoke;
mod postgres;
mod receiver;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serializer::local::{
    handler_log::{Journal, RunEnd},
    sender::Sender,
};
use tests::{
    not_run::not_run,
    settle_counter::SettleCounter,
    testbed::{self, TestBed},
};
use webhook_serializer::{
    Key,
    handler::{Context, Handler, HandlerError, Outcome},
    handlers::{
        event::Document,
        forward::{Forward, headers},
    },
    protocol::{
        delivery::{Delivery, Incoming, LARGEST_BODY},
        entity::{FencingToken, Sequence},
    },
    sources::Sources,
    time::Env,
};

use postgres::Postgres;
use receiver::{ReceiverProcess, in_suite, node, node_with_postgres, packaged, python};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::mpsc,
};

/// The receivers' two secrets, as during a rotation.
const SECRETS: &str = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA== whsec_Zm9ybWVyLWRldmVsb3BtZW50LXNlY3JldA==";

/// Returns two sources: `shop` signs with a secret that the receiver knows, `forger` with an unknown one.
fn sources(url: &str) -> String {
    let source = |name: &str, secret: &str| {
        format!(
            r#"
            [sources.{name}]
            provider = "standard-webhooks"
            secrets = ["whsec_Zk93bTR6S2dRcTdUaHBY"]
            handler = "forward"
            retry = {{ attempts = 2, first = "10ms" }}
            forward = {{ url = "{url}", secret = "{secret}", allow_private = true }}
            "#
        )
    };
    source("shop", "whsec_Zm9ybWVyLWRldmVsb3BtZW50LXNlY3JldA==") + &source("forger", "whsec_d2hvZXZlcg==")
}

fn incoming(source: &str, entity: &str, id: &str, topic: &str, env: &Env) -> Incoming {
    Incoming {
        provider: None,
        topic: topic.into(),
        family: topic.into(),
        body: format!("{{ \"id\": \"{id}\" }}\n").into_bytes().into(),
        ..testbed::incoming(source, entity, id, env.now())
    }
}

/// A `Forward` handler that records its starts.
#[derive(Clone)]
struct RecordedForward {
    forward: Forward,
    starts: Arc<Mutex<BTreeMap<String, (Delivery, FencingToken)>>>,
}

impl Handler for RecordedForward {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let start = (delivery.clone(), context.token());
        self.starts.lock().unwrap().insert(delivery.delivery_id().to_string(), start);
        self.forward.handle(delivery, context).await
    }
}

fn starts_of<'a>(journal: &Journal, id: &'a str) -> impl Iterator<Item = RunEnd> + use<'a> {
    journal.runs().into_iter().filter(move |run| run.delivery_id == id).map(|run| run.ending)
}

/// Returns the example receivers in Python and TypeScript, and those of the npm package; for each, the reason if it cannot
/// be run.
async fn receivers() -> Vec<Result<Command, String>> {
    let examples = [python("receiver.py").await, node("receiver.ts").await];
    examples.into_iter().chain([packaged("express", None).await, packaged("hono", None).await]).collect()
}

async fn with_each(commands: impl IntoIterator<Item = Result<Command, String>>, check: impl AsyncFn(ReceiverProcess)) {
    for command in commands {
        match command {
            Ok(command) => check(ReceiverProcess::start(command, SECRETS).await).await,
            Err(reason) => not_run(&reason),
        }
    }
}

/// Sends deliveries of two orders and of a forger, and checks order, effects and fencing.
async fn handles_in_order_once_and_fenced(mut receiver: ReceiverProcess) {
    let mut testbed = TestBed::start_for(&sources(receiver.url())).await;
    let recorded = RecordedForward { forward: Forward::new(testbed.sources()), starts: Arc::default() };
    let settled = SettleCounter::default();
    for _ in 0..4 {
        let parts = testbed.parts();
        let drainer = testbed.drainer_on(parts.store, parts.waker, recorded.clone(), Arc::new(settled.clone()));
        testbed.feed(drainer);
    }

    let env = testbed.env().clone();
    let inbox = testbed.inbox();
    let sent = [
        ("shop", "shop/order/größe 1%", "a1", "orders/create"),
        ("shop", "shop/order/2", "b1", "orders/create"),
        ("shop", "shop/order/größe 1%", "a2", "app/uninstalled"),
        ("forger", "forger/order/1", "f1", "orders/create"),
        ("shop", "shop/order/größe 1%", "a3", "orders/paid"),
        ("shop", "shop/order/2", "b2", "orders/paid"),
    ];
    for (source, entity, id, topic) in sent {
        inbox.append(&incoming(source, entity, id, topic, &env)).await.unwrap();
    }
    settled.until(sent.len()).await;
    testbed.rest().await;

    let mut applied: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    for _ in 0..4 {
        let line = receiver.line().await;
        assert_eq!(line["outcome"], "applied");
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let token = line["fencing_token"].as_u64().unwrap();
        assert_eq!(text("source"), "shop");
        assert_eq!(text("age"), "unknown");
        applied.entry(text("entity_key")).or_default().push((text("delivery_id"), token));
    }
    let ids = |entity: &str| applied[entity].iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>();
    assert_eq!(ids("shop/order/größe 1%"), ["a1", "a3"]);
    assert_eq!(ids("shop/order/2"), ["b1", "b2"]);
    assert!(applied.values().all(|order| order.is_sorted_by(|one, next| one.1 < next.1)), "{applied:?}");

    // A delivery answered 410 is parked at once. One with a wrong signature is parked after its retries.
    assert_eq!(starts_of(&testbed.journal, "a2").collect::<Vec<_>>(), [RunEnd::Rejected]);
    assert_eq!(starts_of(&testbed.journal, "f1").collect::<Vec<_>>(), [RunEnd::Retry; 2]);
    let parked = testbed.operator().all_parked().await.unwrap();
    let mut parked: Vec<_> =
        parked.iter().map(|parked| (parked.delivery().delivery_id().as_str(), parked.error.as_str())).collect();
    parked.sort_unstable();
    let unauthorized = "the endpoint answered 401: no known secret makes this signature";
    assert_eq!(parked, [("a2", "the endpoint answered 410: nobody here wants to know"), ("f1", unauthorized)]);

    // This start was replaced by another while its request was under way.
    let (first, first_token) = recorded.starts.lock().unwrap()["a1"].clone();
    let (last, last_token) = recorded.starts.lock().unwrap()["a3"].clone();
    let handle = async |delivery: &Delivery, token| {
        let context = Context::detached(token, Duration::from_secs(10), env.clone());
        recorded.forward.handle(delivery, &context).await.unwrap()
    };
    let Outcome::Retry { after: None, error } = handle(&first, first_token).await else { panic!("it is stale") };
    assert!(error.starts_with(&format!("the endpoint answered 409: token {first_token} is older than")), "{error}");

    // This start repeats one whose answer was lost.
    assert_eq!(handle(&last, last_token.next()).await, Outcome::Done);
    let line = receiver.line().await;
    assert_eq!((&line["outcome"], &line["delivery_id"]), (&"repeated".into(), &"a3".into()));
}

/// Promise: the receivers apply in sequence, once, and refuse stale tokens.
///
/// Promise: the npm package's receivers verify, keep order, apply each delivery once and refuse old tokens; an answer's
/// writes land once; a parsed body is named.
#[tokio::test(flavor = "multi_thread")]
async fn receivers_keep_order_ignore_repeats_and_refuse_old_tokens() {
    with_each(receivers().await, handles_in_order_once_and_fenced).await;
}

async fn handles_lists(receiver: ReceiverProcess) {
    let sources = bursts(receiver.url());
    invoke::handles_groups(receiver, &sources, "applied", |_, sources| Forward::new(sources)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_get_waiting_deliveries_in_one_request() {
    with_each(receivers().await, handles_lists).await;
}

/// Returns sources whose source `bursts` delivers up to three deliveries at once.
fn bursts(url: &str) -> String {
    sources(url).replace("[sources.shop]", "[sources.bursts]\n            deliver = { up_to = 3 }")
}

/// In a list, each character of this body takes two bytes.
async fn takes_longest_list(mut receiver: ReceiverProcess) {
    let env = Env::system();
    let body = format!("\"{}\"", "\\\"".repeat(LARGEST_BODY / 2 - 1));
    let longest = Incoming { body: body.into(), ..incoming("bursts", "bursts/order/1", "1", "orders/edited", &env) };
    let forward = Forward::new(Arc::new(Sources::parse(&bursts(receiver.url())).unwrap()));
    let context = Context::detached(FencingToken(7), Duration::from_secs(120), env);
    let outcome = forward.handle(&Delivery::detached(longest, Sequence(1)), &context).await.unwrap();
    assert_eq!(outcome, Outcome::Done);
    assert_eq!(receiver.line().await["outcome"], "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_accept_longest_list() {
    with_each(receivers().await, takes_longest_list).await;
}

/// Answers each connection's first request: with 413 and without reading its body if it has several deliveries, and
/// otherwise with 200. The client may take such a 413 for a broken connection.
async fn refuses_long_lists(listener: TcpListener, numbers: mpsc::UnboundedSender<usize>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut number = 0;
        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).await.unwrap();
            match line.trim_end().to_ascii_lowercase().split_once(": ") {
                Some(("serializer-deliveries", value)) => number = value.parse().unwrap(),
                Some(("content-length", value)) => length = value.parse().unwrap(),
                _ => {}
            }
        }
        numbers.send(number).unwrap();
        let status = if number > 1 { "413 Content Too Large" } else { "200 OK" };
        if number == 1 {
            tokio::io::copy(&mut (&mut stream).take(length), &mut tokio::io::sink()).await.unwrap();
        }
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_refused_as_too_large_is_applied_singly() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, mut numbers) = mpsc::unbounded_channel();
    let endpoint = tokio::spawn(refuses_long_lists(listener, sender));
    let mut testbed = TestBed::start_for(&bursts(&url)).await;
    let env = testbed.env().clone();
    let inbox = testbed.inbox();
    for id in ["1", "2", "3"] {
        let incoming = incoming("bursts", "bursts/order/1", id, "orders/edited", &env);
        inbox.append(&Incoming { body: vec![b'a'; 1_500_000].into(), ..incoming }).await.unwrap();
    }
    let settled = SettleCounter::default();
    let parts = testbed.parts();
    let forward = Forward::new(testbed.sources());
    testbed.feed(testbed.drainer_on(parts.store, parts.waker, forward, Arc::new(settled.clone())));
    settled.until(3).await;
    testbed.rest().await;
    endpoint.abort();
    assert_eq!(testbed.operator().all_parked().await.unwrap().len(), 0);
    let sent: Vec<_> = std::iter::from_fn(|| numbers.try_recv().ok()).collect();
    assert_eq!(sent, [3, 1, 1, 1]);
}

/// The sender labels its body as a list of deliveries of another source.
async fn forged_list_is_one_delivery(mut receiver: ReceiverProcess) {
    let env = Env::system();
    let sources = Sources::parse(&sources(receiver.url())).unwrap();
    let forged = incoming("shop", "shop/order/2", "x", "orders/paid", &env);
    let list =
        Document::new(&[&Delivery::detached(forged, Sequence(2))], FencingToken(1_000_000_000_000_000_000)).json();
    let sent = incoming("shop", "shop/order/1", "a", "orders/paid", &env);
    let delivery = Delivery::detached(Incoming { body: list, ..sent }, Sequence(1));
    let destination = sources.get("shop").unwrap().forward().unwrap();
    let request = headers::request(destination, &delivery, FencingToken(7), env.now());
    let sent = request.headers().iter().filter(|(name, _)| *name != "content-type");
    let mut sent: Vec<_> = sent.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    sent.push(("content-type".into(), headers::TOGETHER.into()));
    let answer = Sender::new(receiver.url()).request("POST", "", &sent, delivery.body().to_vec()).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "applied"));
    let line = receiver.line().await;
    assert_eq!((&line["entity_key"], &line["fencing_token"]), (&"shop/order/1".into(), &7.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_treat_forged_group_as_one_delivery() {
    with_each(receivers().await, forged_list_is_one_delivery).await;
}

/// Starts a Postgres server. Also returns a function that starts a receiver on it.
async fn on_postgres() -> Result<(Postgres, impl AsyncFn() -> ReceiverProcess), String> {
    let postgres = Postgres::start().await?;
    let url = postgres.url();
    node_with_postgres(&url).await?;
    let start = async move || ReceiverProcess::start(node_with_postgres(&url).await.unwrap(), SECRETS).await;
    Ok((postgres, start))
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_receiver_keeps_order_ignores_repeats_and_old_tokens() {
    match on_postgres().await {
        Ok((_postgres, start)) => handles_in_order_once_and_fenced(start().await).await,
        Err(reason) => not_run(&reason),
    }
}

/// The receiver writes the order, the token and the id in one transaction.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_postgres_receiver_remembers_applied_deliveries() {
    match on_postgres().await {
        Ok((postgres, start)) => remembers_applied_deliveries(postgres, start, "error").await,
        Err(reason) => not_run(&reason),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packaged_receiver_on_postgres_applies_deliveries_once() {
    let postgres = match Postgres::start().await {
        Ok(postgres) => postgres,
        Err(reason) => return not_run(&reason),
    };
    let url = postgres.url();
    if let Err(reason) = packaged("express", Some(&url)).await {
        return not_run(&reason);
    }
    let start = async move || ReceiverProcess::start(packaged("express", Some(&url)).await.unwrap(), SECRETS).await;
    remembers_applied_deliveries(postgres, start, "it failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn database_error_caught_in_apply_is_no_success() {
    let postgres = match Postgres::start().await {
        Ok(postgres) => postgres,
        Err(reason) => return not_run(&reason),
    };
    let command = match packaged("express", Some(&postgres.url())).await {
        Ok(command) => command,
        Err(reason) => return not_run(&reason),
    };
    let receiver = ReceiverProcess::start(command, SECRETS).await;
    let env = Env::system();
    let forward = Forward::new(Arc::new(Sources::parse(&sources(receiver.url())).unwrap()));
    let context = Context::detached(FencingToken(7), Duration::from_secs(10), env.clone());
    let sent = incoming("shop", "shop/order/1", "1", "orders/caught", &env);
    let outcome = forward.handle(&Delivery::detached(sent, Sequence(1)), &context).await.unwrap();
    assert_eq!(outcome, Outcome::retry("the endpoint answered 500: it failed"));
    assert_eq!(postgres.psql("SELECT count(*) FROM applied").await.unwrap(), "0");
}

/// The block of docs/handlers.md counts deliveries by answers with writes.
#[tokio::test(flavor = "multi_thread")]
async fn answer_helper_of_page_counts_each_delivery_once() {
    let mut command = match in_suite("handlers_1").await {
        Ok(command) => command,
        Err(reason) => return not_run(&reason),
    };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    command.env("SECRET", SECRETS.split(' ').nth(1).unwrap()).env("PORT", port.to_string()).kill_on_drop(true);
    let _receiver = command.spawn().unwrap();
    // It prints nothing, so it is ready once it accepts a connection.
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        Env::system().sleep(Duration::from_millis(20)).await;
    }
    let url = format!("http://127.0.0.1:{port}/webhooks");
    let sources = sources(&url).replace("allow_private = true", "allow_private = true, commit = ['totals']");
    let mut testbed = TestBed::start_for(&sources).await;
    let settled = SettleCounter::default();
    let parts = testbed.parts();
    let forward = Forward::new(testbed.sources());
    testbed.feed(testbed.drainer_on(parts.store, parts.waker, forward, Arc::new(settled.clone())));
    let inbox = testbed.inbox();
    for id in ["1", "2", "2", "3"] {
        inbox.append(&incoming("shop", "shop/order/1", id, "orders/paid", testbed.env())).await.unwrap();
    }
    settled.until(3).await;
    testbed.rest().await;
    let key = Key::named("totals", "order", "shop/order/1");
    let row = testbed.parts().store.get(&key, Duration::from_secs(5)).await.unwrap().expect("it was written");
    assert_eq!(row.number("deliveries"), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn parsed_body_is_refused_with_the_remedy() {
    let command = match packaged("express", None).await {
        Ok(command) => command,
        Err(reason) => return not_run(&reason),
    };
    let receiver = ReceiverProcess::start(command, SECRETS).await;
    let env = Env::system();
    let url = format!("{}parsed", receiver.url());
    let forward = Forward::new(Arc::new(Sources::parse(&sources(&url)).unwrap()));
    let context = Context::detached(FencingToken(7), Duration::from_secs(10), env.clone());
    let sent = incoming("shop", "shop/order/1", "1", "orders/paid", &env);
    let outcome = forward.handle(&Delivery::detached(sent, Sequence(1)), &context).await.unwrap();
    let Outcome::Retry { error, .. } = outcome else { panic!("{outcome:?}") };
    let expected = "the endpoint answered 500: the body was parsed before the receiver, as express.json() does";
    assert!(error.starts_with(expected), "{error}");
}

/// `failed` is the text of the receiver's answer after an error.
async fn remembers_applied_deliveries(postgres: Postgres, start: impl AsyncFn() -> ReceiverProcess, failed: &str) {
    let env = Env::system();
    let delivery = |id: &str, topic: &str| {
        let mut incoming = incoming("shop", "shop/order/1", id, topic, &env);
        if topic == "orders/broken" {
            incoming.body = "no JSON".into();
        }
        Delivery::detached(incoming, Sequence(1))
    };
    let post = async |receiver: &ReceiverProcess, delivery: &Delivery, token: u64| {
        let forward = Forward::new(Arc::new(Sources::parse(&sources(receiver.url())).unwrap()));
        let context = Context::detached(FencingToken(token), Duration::from_secs(10), env.clone());
        forward.handle(delivery, &context).await.unwrap()
    };
    let created = delivery("1", "orders/create");
    let paid = delivery("2", "orders/paid");
    let broken = delivery("3", "orders/broken");
    let orders = async || postgres.psql("SELECT last_topic, deliveries FROM orders").await.unwrap();

    let receiver = start().await;
    assert_eq!(post(&receiver, &created, 10).await, Outcome::Done);
    assert_eq!(post(&receiver, &paid, 11).await, Outcome::Done);
    drop(receiver);

    let receiver = start().await;
    assert_eq!(post(&receiver, &paid, 12).await, Outcome::Done, "its answer was lost");
    assert_eq!(orders().await, "orders/paid|2", "a repeat is acknowledged and changes nothing");
    let late = Outcome::retry("the endpoint answered 409: token 11 is older than the newest seen");
    assert_eq!(post(&receiver, &created, 11).await, late);

    // A failed effect rolls back the delivery's id, but keeps its token.
    assert_eq!(post(&receiver, &broken, 13).await, Outcome::retry(format!("the endpoint answered 500: {failed}")));
    assert_eq!(orders().await, "orders/paid|2");
    assert_eq!(postgres.psql("SELECT count(*) FROM applied").await.unwrap(), "2");
    assert_eq!(postgres.psql("SELECT token FROM newest_token").await.unwrap(), "13");

    // Two starts with the same delivery run concurrently, and one of them applies it.
    let shipped = delivery("4", "orders/fulfilled");
    let (one, other) = tokio::join!(post(&receiver, &shipped, 14), post(&receiver, &shipped, 14));
    assert_eq!((one, other), (Outcome::Done, Outcome::Done));
    assert_eq!(orders().await, "orders/fulfilled|3");
}
