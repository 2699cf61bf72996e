//! Tests of the handler `invoke` with endpoints whose answers are scripted.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::{
    aws::call::LONGEST_ANSWER,
    engine::drain::GROUP_BYTES,
    handlers::{event, sample},
    protocol::{
        delivery::Incoming,
        entity::{EntityKey, FencingToken, Sequence},
    },
    sources::Sources,
    time::Timestamp,
    tls::{
        Roots,
        endpoint::{Endpoint, EndpointReply},
    },
};

const TIME: Duration = Duration::from_secs(20);

const ORDERS: &str = "function orders";

const DONE: &[u8] = br#"{"outcome": "done"}"#;

fn sources(invoke: &str) -> Arc<Sources> {
    let document =
        format!("[sources.shop]\nprovider = 'shopify'\nsecrets = ['s']\nhandler = 'invoke'\ninvoke = {{ {invoke} }}\n");
    Arc::new(Sources::parse(&document).unwrap())
}

fn at(url: &str, invoke: &str, roots: Option<Roots>) -> Invoke {
    let account = Account { lambda_endpoint: Some(url.to_owned()), roots, ..Account::local(url, url) };
    Invoke::new(sources(invoke), &account, &account.http_client(), &Env::system())
}

fn orders(endpoint: &Endpoint) -> Invoke {
    at(&endpoint.url(), "function = 'orders'", None)
}

fn delivery(id: &str, body: impl Into<Bytes>) -> Delivery {
    sample::delivery(id, "shop/order/№ 7", body)
}

fn within(time: Duration) -> Context {
    Context::detached(FencingToken(1_795_248_000_009), time, Env::system())
}

async fn call(invoke: &Invoke) -> Outcome {
    invoke.handle(&delivery("7", "{}"), &within(TIME)).await.unwrap()
}

async fn event(endpoint: &mut Endpoint) -> Value {
    serde_json::from_slice(&endpoint.posted().await.body).unwrap()
}

/// Promise: schema, types and samples agree on the document that a function gets.
#[tokio::test]
async fn lambda_request_has_every_field_and_signature() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::of(DONE)).await;
    let delivery = delivery("größe 1%", "{ \"id\":\t7 }\n");
    assert_eq!(orders(&endpoint).handle(&delivery, &within(TIME)).await.unwrap(), Outcome::Done);
    let posted = endpoint.posted().await;
    assert_eq!(posted.line, "POST /2015-03-31/functions/orders/invocations HTTP/1.1");
    assert_eq!(posted.header("content-type"), "application/json");
    assert_eq!(posted.header("x-amz-invocation-type"), "RequestResponse");
    let signed = posted.header("authorization");
    assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=local/"), "{signed}");
    assert!(signed.contains("/us-east-1/lambda/aws4_request, SignedHeaders=content-type;"), "{signed}");
    let expected = json!({
        "version": 1,
        "source": "shop",
        "entity_key": "shop/order/№ 7",
        "fencing_token": 1_795_248_000_009_u64,
        "deliveries": [{
            "id": event::id(&delivery),
            "delivery_id": "größe 1%",
            "topic": "orders/paid",
            "provider": "shopify",
            "sequence": 41,
            "attempt": 3,
            "redrive": 2,
            "run_before": null,
            "superseded": 0,
            "age": "same-time",
            "received_at": "2026-11-21T08:00:01.234Z",
            "deferred_until": null,
            "event_time": "2026-11-21T08:00:00.000Z",
            "content_type": "application/json; charset=utf-8",
            "body": "{ \"id\":\t7 }\n",
            "body_is_base64": false,
        }],
    });
    assert_eq!(serde_json::from_slice::<Value>(&posted.body).unwrap(), expected);
}

#[tokio::test]
async fn group_is_sent_in_one_lambda_call() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::of(br#"{"outcome": "retry", "after": 7}"#)).await;
    let group = Deliveries::detached(["1", "2", "3"].map(|id| delivery(id, "{}")));
    let answered = orders(&endpoint).handle_all(group, &within(TIME)).await.unwrap();
    assert!(matches!(answered, Outcome::Retry { after: Some(after), .. } if after.as_secs() == 7), "{answered:?}");
    let event = event(&mut endpoint).await;
    let ids: Vec<_> = event["deliveries"].as_array().unwrap().iter().map(|one| &one["delivery_id"]).collect();
    assert_eq!(ids, ["1", "2", "3"]);
}

#[tokio::test]
async fn binary_body_is_sent_in_base64() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::of(DONE)).await;
    let delivery = delivery("7", &b"\xff\x00"[..]);
    assert_eq!(orders(&endpoint).handle(&delivery, &within(TIME)).await.unwrap(), Outcome::Done);
    let event = event(&mut endpoint).await;
    assert_eq!(
        (&event["deliveries"][0]["body"], &event["deliveries"][0]["body_is_base64"]),
        (&"/wA=".into(), &true.into())
    );
}

/// Promise: each start makes one call; a delivery keeps its `id` unless rewound.
#[tokio::test]
async fn delivery_id_in_event_changes_only_after_rewind() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::of(DONE)).await;
    let invoke = orders(&endpoint);
    let mut ids = Vec::new();
    for (attempt, run_before) in [(1, None), (2, None), (1, Some(FencingToken(41)))] {
        let mut delivery = delivery("7", "{}");
        (delivery.attempt, delivery.run_before) = (attempt, run_before);
        assert_eq!(invoke.handle(&delivery, &within(TIME)).await.unwrap(), Outcome::Done);
        let event = event(&mut endpoint).await;
        let one = &event["deliveries"][0];
        ids.push((one["id"].as_str().unwrap().to_owned(), one["run_before"].clone()));
    }
    let own = ids[0].0.clone();
    assert_eq!(ids, [(own.clone(), Value::Null), (own.clone(), Value::Null), (format!("{own}_41"), 41.into())]);
}

#[tokio::test]
async fn function_qualifier_is_sent_only_to_aws() {
    const INVOKE: &str = "function = 'arn:aws:lambda:us-east-1:123456789012:function:orders', qualifier = '$LATEST'";
    const PATH: &str =
        "POST /2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A123456789012%3Afunction%3Aorders/invocations";
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let roots = Roots::in_pem(certificate.cert.pem().as_bytes()).unwrap();
    let mut lambda = Endpoint::start_tls(&certificate, |_| EndpointReply::of(DONE)).await;
    assert_eq!(call(&at(&lambda.url(), INVOKE, Some(roots))).await, Outcome::Done);
    assert_eq!(lambda.posted().await.line, format!("{PATH}?Qualifier=%24LATEST HTTP/1.1"));
    let mut emulator = Endpoint::start(|_| EndpointReply::of(DONE)).await;
    assert_eq!(call(&at(&emulator.url(), INVOKE, None)).await, Outcome::Done);
    assert_eq!(emulator.posted().await.line, format!("{PATH} HTTP/1.1"));
}

#[tokio::test]
async fn handler_start_calls_lambda_once() {
    for (status, expected) in [
        (500, "Lambda answered 500"),
        (503, "Lambda answered 503"),
        (403, "the worker may not call the function (403)"),
    ] {
        let endpoint = Endpoint::start(move |_| EndpointReply::status(status)).await;
        assert_eq!(call(&orders(&endpoint)).await, Outcome::unavailable(expected));
        assert_eq!(endpoint.posts(), 1, "{expected}");
    }
    let endpoint = Endpoint::start(|_| EndpointReply::status(429).with("Retry-After", "3")).await;
    let after = Some(Duration::from_secs(3));
    assert_eq!(call(&orders(&endpoint)).await, Outcome::NotNow { after, error: "the function is throttled".into() });
    assert_eq!(endpoint.posts(), 1);
}

#[tokio::test]
async fn function_error_header_marks_a_failure() {
    let thrown: &'static [u8] =
        br#"{"errorType": "TypeError", "errorMessage": "order is undefined", "trace": ["at hush"]}"#;
    let endpoint = Endpoint::start(move |_| EndpointReply::of(thrown).with("X-Amz-Function-Error", "Unhandled")).await;
    let expected = Outcome::retry("the function failed: TypeError: order is undefined");
    assert_eq!(call(&orders(&endpoint)).await, expected);
}

#[tokio::test]
async fn silent_function_yields_unanswered_outcome_before_handler_timeout() {
    let endpoint = Endpoint::start(|_| EndpointReply::Never).await;
    let late = orders(&endpoint).handle(&delivery("7", "{}"), &within(Duration::from_millis(300))).await.unwrap();
    assert_eq!(late, Outcome::unanswered(format!("no answer within 0.3 s from {}, {ORDERS}", endpoint.url())));
    assert_eq!(endpoint.posts(), 1);
}

#[tokio::test]
async fn refused_connection_yields_unavailable_and_cut_off_one_unanswered() {
    for half in [&b"HTTP/1.1 200 \r\nContent-Length: 20\r\n\r\n{\"outcome\""[..], b"HTTP/1.1 20", b""] {
        let endpoint = Endpoint::start(|_| EndpointReply::Raw(half.to_vec())).await;
        let invoke = orders(&endpoint);
        let url = endpoint.url();
        let Outcome::Unanswered { after: None, error } = call(&invoke).await else { panic!("the function may run") };
        assert!(error.starts_with(&format!("no answer from {url}, {ORDERS}: ")), "{error}");
        endpoint.stop().await;
        let expected = format!("cannot connect to {url}, {ORDERS}: Connection refused (os error 111)");
        assert_eq!(call(&invoke).await, Outcome::unavailable(expected));
    }
}

#[tokio::test]
async fn oversized_event_is_rejected_without_lambda_call() {
    let endpoint = Endpoint::start(|_| EndpointReply::of(DONE)).await;
    let invoke = orders(&endpoint);
    // Each quote takes two bytes in JSON.
    let large = delivery("7", "\"".repeat(LIMIT / 2));
    let Outcome::Reject(error) = invoke.handle(&large, &within(TIME)).await.unwrap() else { panic!() };
    assert!(error.starts_with("the event has 62") && error.ends_with("; Lambda accepts less than 6291456"), "{error}");
    let large = Deliveries::detached(["1", "2"].map(|id| delivery(id, "x".repeat(LIMIT / 2))));
    assert!(matches!(invoke.handle_all(large, &within(TIME)).await.unwrap(), Outcome::Reject(_)));
    assert_eq!(endpoint.posts(), 0);
    let fits = delivery("7", "x".repeat(LIMIT - 1000));
    assert_eq!(invoke.handle(&fits, &within(TIME)).await.unwrap(), Outcome::Done);
}

#[test]
fn longest_group_fits_a_lambda_event() {
    let field = "\u{1}".repeat(256);
    let deliveries = [(); 25].map(|()| {
        let incoming = Incoming {
            entity: EntityKey::parse(&format!("shop/{}", "\"".repeat(507))).unwrap(),
            topic: field[..128].into(),
            provider: Some(field[..128].into()),
            content_type: Some(field[..128].into()),
            ..sample::delivery(&field, "shop/order/7", vec![b'a'; GROUP_BYTES / 25]).redriven(Timestamp::from_secs(1))
        };
        Delivery::detached(incoming, Sequence(u64::MAX))
    });
    let event = Document::new(&deliveries.iter().collect::<Vec<_>>(), FencingToken(u64::MAX));
    assert!(event.bytes() < LIMIT, "{}", event.bytes());
}

/// Lambda itself sends no longer answer. Other endpoints may, even one without an end.
///
/// Promise: an answer is read up to Lambda's limit; a longer one is a failed attempt.
#[tokio::test]
async fn answer_longer_than_lambdas_limit_is_not_read() {
    let padded = |length: usize| {
        let padding = " ".repeat(length - DONE.len());
        [DONE, padding.as_bytes()].concat()
    };
    for (length, expected) in [
        (LONGEST_ANSWER, Outcome::Done),
        (LONGEST_ANSWER + 1, Outcome::retry("the function's answer is longer than 6291556 bytes")),
    ] {
        let endpoint = Endpoint::start(move |_| EndpointReply::of(&padded(length))).await;
        assert_eq!(call(&orders(&endpoint)).await, expected, "{length}");
    }
    let endless = Endpoint::start(|_| EndpointReply::Endless(b"HTTP/1.1 200 \r\n\r\n".to_vec())).await;
    let expected = Outcome::retry("the function's answer is longer than 6291556 bytes");
    assert_eq!(call(&orders(&endless)).await, expected);
    let endless = Endpoint::start(|_| EndpointReply::Endless(b"HTTP/1.1 503 \r\n\r\n".to_vec())).await;
    assert_eq!(call(&orders(&endless)).await, Outcome::unavailable("Lambda answered 503"));
}

#[tokio::test]
async fn delivery_is_retried_if_source_lacks_invoke_table() {
    let account = Account::local("http://127.0.0.1:1", "http://127.0.0.1:1");
    let invoke = Invoke::new(Arc::<Sources>::default(), &account, &account.http_client(), &Env::system());
    assert_eq!(call(&invoke).await, Outcome::retry("the source has no table `invoke`"));
    assert!(invoke.answers_to("invoke") && invoke.handles_all("invoke"));
    assert!(!invoke.answers_to("orders") && !invoke.handles_all("orders"));
}
