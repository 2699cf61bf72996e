//! The sample receivers of `shared/examples/receivers` and those of the packages, in separate processes,
//! behind the real handlers and the real drain.

mod invoke;
mod mariadb;
mod packaged;
mod pages;
mod php;
mod postgres;
mod receiver;
mod relay;
mod server;
mod starter;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
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
    time::{Env, Timestamp},
};

use receiver::{FRAMEWORKS, ReceiverProcess, node, packaged, python};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
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

/// Returns the example receivers in Python and TypeScript, and those of the packages; for each, the reason if it cannot
/// be run.
async fn receivers() -> Vec<Result<Command, String>> {
    let mut commands = vec![python("receiver.py").await, node("receiver.ts").await];
    commands.extend(join_all(FRAMEWORKS.map(packaged)).await);
    commands
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
/// Promise: the packages' receivers verify, keep order, apply once and refuse old tokens, on Postgres, DynamoDB or in
/// memory. They refuse a delivery after a caught database error, and name a body that was read before.
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

async fn old_signature_is_refused(receiver: ReceiverProcess) {
    let sources = Sources::parse(&sources(receiver.url())).unwrap();
    let env = Env::system();
    let delivery = Delivery::detached(incoming("shop", "shop/order/1", "1", "orders/paid", &env), Sequence(1));
    let post = async |seconds: u64| {
        let destination = sources.get("shop").unwrap().forward().unwrap();
        let request = headers::request(
            destination,
            &delivery,
            FencingToken(7),
            Timestamp::from_millis(env.now().as_millis() - seconds * 1000),
        );
        let headers =
            request.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        let headers: Vec<_> = headers.collect();
        Sender::new(receiver.url()).request("POST", "", &headers, delivery.body().to_vec()).await.unwrap()
    };
    let answer = post(302).await;
    assert_eq!((answer.status, answer.body.as_str()), (401, "signed too long ago, or in the future"));
    assert_eq!(post(290).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_refuse_old_signatures() {
    with_each(receivers().await, old_signature_is_refused).await;
}
