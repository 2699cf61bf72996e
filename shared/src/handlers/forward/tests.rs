//! Tests of the handler `forward` with endpoints whose answers are scripted.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::*;
use crate::{
    engine::{run::run, threads::Threads},
    handler::{Canceller, Deliveries, Isolation},
    handlers::sample,
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{FencingToken, Sequence},
    },
    sources::Sources,
    time::Timestamp,
    tls::endpoint::{Endpoint, EndpointReply},
};

const TIME: Duration = Duration::from_secs(20);

fn sources(forward: &str) -> Arc<Sources> {
    let document = format!(
        "[sources.shop]\nprovider = 'shopify'\nsecrets = ['s']\nhandler = 'forward'\nforward = {{ {forward} }}\n"
    );
    Arc::new(Sources::parse(&document).unwrap())
}

fn anywhere(url: &str) -> Forward {
    Forward::new(sources(&format!("url = '{url}', secret = 'whsec_c2VjcmV0', allow_private = true")))
}

fn delivery(id: &str, entity: &str) -> Delivery {
    sample::delivery(id, entity, "{ \"id\":\t7 }\n")
}

async fn post_within(forward: &Forward, delivery: &Delivery, time: Duration) -> Outcome {
    let context = Context::detached(FencingToken(9), time, Env::system());
    forward.handle(delivery, &context).await.unwrap()
}

async fn post(forward: &Forward) -> Outcome {
    post_within(forward, &delivery("7", "shop/order/7"), TIME).await
}

fn error(outcome: Outcome) -> String {
    match outcome {
        Outcome::Retry { error, .. } | Outcome::Unanswered { error, .. } | Outcome::Unavailable { error, .. } => error,
        other => panic!("{other:?}"),
    }
}

fn signature(key: &[u8], id: &str, time: &str, body: &[u8]) -> String {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).unwrap();
    mac.update(format!("{id}.{time}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// Promise: requests are signed by Standard Webhooks, other fields are headers; no sender's body passes for a list.
#[tokio::test]
async fn request_has_original_body_and_every_header() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::status(204)).await;
    let forward = anywhere(&format!("{}/hooks?key=a%20b", endpoint.url()));
    let delivery = delivery("größe 1%", "shop/order/№ 7");
    assert_eq!(post_within(&forward, &delivery, TIME).await, Outcome::Done);
    let posted = endpoint.posted().await;
    assert_eq!(posted.line, "POST /hooks?key=a%20b HTTP/1.1");
    assert_eq!(posted.body, b"{ \"id\":\t7 }\n");
    let expected = [
        ("content-type", "application/json; charset=utf-8"),
        ("serializer-delivery-id", "gr%C3%B6%C3%9Fe%201%25"),
        ("serializer-source", "shop"),
        ("serializer-provider", "shopify"),
        ("serializer-topic", "orders/paid"),
        ("serializer-entity-key", "shop/order/%E2%84%96%207"),
        ("serializer-sequence", "41"),
        ("serializer-fencing-token", "9"),
        ("serializer-attempt", "3"),
        ("serializer-redrive", "2"),
        ("serializer-age", "same-time"),
        ("serializer-received-at", "2026-11-21T08:00:01.234Z"),
        ("serializer-event-time", "2026-11-21T08:00:00.000Z"),
    ];
    for (name, value) in expected {
        assert_eq!(posted.header(name), value, "{name}");
    }
}

#[tokio::test]
async fn request_is_signed_with_every_secret() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::status(200)).await;
    let url = endpoint.url();
    let secrets = "secret = ['whsec_bmV3', 'whsec_b2xk']";
    let forward = Forward::new(sources(&format!("url = '{url}', {secrets}, allow_private = true")));
    assert_eq!(post(&forward).await, Outcome::Done);
    let posted = endpoint.posted().await;
    let id = posted.header("webhook-id");
    let time = posted.header("webhook-timestamp");
    let signatures = [b"new", b"old"].map(|key| signature(key, id, time, &posted.body));
    assert_eq!(posted.header("webhook-signature"), signatures.join(" "));
    let signed_at = Timestamp::from_secs(time.parse().unwrap());
    assert!(Env::system().now().since(signed_at) < TIME);
}

fn requested(delivery: &Delivery) -> http::HeaderMap {
    let url = "url = 'https://example.com/', secret = 'whsec_c2VjcmV0'";
    let destination = sources(url).get("shop").unwrap().forward().unwrap().clone();
    headers::request(&destination, delivery, FencingToken(1), Timestamp::from_secs(1)).headers().clone()
}

#[test]
fn headers_without_value_are_not_sent() {
    let headers = requested(&delivery("7", "shop/order/7"));
    for absent in ["serializer-superseded", "serializer-run-before", "serializer-deferred-until"] {
        assert!(!headers.contains_key(absent), "{absent}: {:?}", headers.get(absent));
    }
}

#[tokio::test]
async fn retry_and_redrive_keep_webhook_id() {
    let id = |delivery: &Delivery| requested(delivery)["webhook-id"].to_str().unwrap().to_owned();
    let own = delivery("7", "shop/order/7");
    let mut again = own.clone();
    again.attempt = 4;
    assert_eq!(id(&own), id(&again));
    let redriven = Delivery::detached(own.redriven(Timestamp::from_secs(2)), Sequence(50));
    assert_eq!(id(&own), id(&redriven), "it may have been applied although its answers were lost");
    assert_ne!(id(&own), id(&delivery("8", "shop/order/7")));
    assert_eq!(id(&own).len(), 22);
}

#[tokio::test]
async fn rewound_delivery_gets_new_webhook_id() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::status(200)).await;
    let forward = anywhere(&endpoint.url());
    let mut again = delivery("7", "shop/order/7");
    assert_eq!(post_within(&forward, &again, TIME).await, Outcome::Done);
    let own = endpoint.posted().await.header("webhook-id").to_owned();
    let mut ids = vec![own.clone()];
    for token in [41, 77] {
        again.run_before = Some(FencingToken(token));
        assert_eq!(post_within(&forward, &again, TIME).await, Outcome::Done);
        let posted = endpoint.posted().await;
        assert_eq!(posted.header("serializer-run-before"), token.to_string());
        ids.push(posted.header("webhook-id").to_owned());
    }
    assert_eq!(ids, [own.clone(), format!("{own}_41"), format!("{own}_77")]);
}

#[test]
fn forged_group_content_type_is_not_forwarded() {
    let sent = |content_type: &str| {
        let incoming = delivery("7", "shop/order/7").redriven(Timestamp::from_secs(2));
        let incoming = Incoming { content_type: Some(content_type.into()), ..incoming };
        requested(&Delivery::detached(incoming, Sequence(1)))["content-type"].to_str().unwrap().to_owned()
    };
    for forged in [
        headers::TOGETHER,
        "Application/Vnd.Webhook-Serializer.Deliveries+JSON; charset=utf-8",
        "text/plain, application/vnd.webhook-serializer.deliveries+json",
        // Some parsers trim the no-break space, and lower-case the Kelvin sign to k.
        "application/vnd.webhook-serializer.deliveries+json\u{a0}",
        "application/vnd.webhoo\u{212a}-serializer.deliveries+json",
    ] {
        assert_eq!(sent(forged), "application/octet-stream", "{forged}");
    }
    for passed_on in ["application/x-www-form-urlencoded", "application/vnd.example+json; charset=utf-8"] {
        assert_eq!(sent(passed_on), passed_on);
    }
}

fn groups(url: &str) -> Forward {
    let document = format!(
        "[sources.shop]\nprovider = 'shopify'\nsecrets = ['s']\nhandler = 'forward'\ndeliver = {{ up_to = 3 }}\n\
         forward = {{ url = '{url}', secret = 'whsec_c2VjcmV0', allow_private = true }}\n"
    );
    Forward::new(Arc::new(Sources::parse(&document).unwrap()))
}

/// Promise: groups are one signed list, even of one; `latest` comes singly.
#[tokio::test]
async fn group_is_posted_as_one_signed_list() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::status(200)).await;
    let forward = groups(&endpoint.url());
    assert!(forward.handles_all("forward") && !forward.handles_all("orders"));
    let group = ["1", "2"].map(|id| delivery(id, "shop/order/№ 7"));
    let own = crate::handlers::event::id(&group[0]);
    let context = Context::detached(FencingToken(9), TIME, Env::system());
    assert_eq!(forward.handle_all(Deliveries::detached(group), &context).await.unwrap(), Outcome::Done);
    let posted = endpoint.posted().await;
    for (name, value) in [
        ("content-type", "application/vnd.webhook-serializer.deliveries+json"),
        ("serializer-deliveries", "2"),
        ("serializer-source", "shop"),
        ("serializer-entity-key", "shop/order/%E2%84%96%207"),
        ("serializer-fencing-token", "9"),
    ] {
        assert_eq!(posted.header(name), value, "{name}");
    }
    let id = posted.header("webhook-id");
    let time = posted.header("webhook-timestamp");
    assert_eq!(id, format!("group:{own}_2"));
    assert_eq!(posted.header("webhook-signature"), signature(b"secret", id, time, &posted.body));
    let event: serde_json::Value = serde_json::from_slice(&posted.body).unwrap();
    assert_eq!((&event["entity_key"], &event["fencing_token"]), (&"shop/order/№ 7".into(), &9.into()));
    let ids: Vec<_> = event["deliveries"].as_array().unwrap().iter().map(|one| &one["delivery_id"]).collect();
    assert_eq!(ids, ["1", "2"]);

    // A list of one delivery has a group's id too.
    assert_eq!(post(&forward).await, Outcome::Done);
    let posted = endpoint.posted().await;
    assert_eq!(posted.header("serializer-deliveries"), "1");
    let event: serde_json::Value = serde_json::from_slice(&posted.body).unwrap();
    assert_eq!(event["deliveries"].as_array().unwrap().len(), 1);
    assert_eq!(posted.header("webhook-id"), format!("group:{}_1", event["deliveries"][0]["id"].as_str().unwrap()));
}

#[tokio::test]
async fn group_is_posted_whole_if_source_no_longer_has_deliver_option() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::status(200)).await;
    let group = Deliveries::detached(["1", "2"].map(|id| delivery(id, "shop/order/7")));
    let context = Context::detached(FencingToken(9), TIME, Env::system());
    assert_eq!(anywhere(&endpoint.url()).handle_all(group, &context).await.unwrap(), Outcome::Done);
    let posted = endpoint.posted().await;
    assert_eq!(posted.header("serializer-deliveries"), "2");
    let event: serde_json::Value = serde_json::from_slice(&posted.body).unwrap();
    assert_eq!(event["deliveries"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn answer_applies_to_the_whole_group() {
    for (status, expected) in [
        (410, Outcome::Reject("the endpoint answered 410 Gone".into())),
        (400, Outcome::retry("the endpoint answered 400 Bad Request")),
        (503, Outcome::unavailable("the endpoint answered 503 Service Unavailable")),
    ] {
        let endpoint = Endpoint::start(move |_| EndpointReply::status(status)).await;
        let group = Deliveries::detached(["1", "2"].map(|id| delivery(id, "shop/order/7")));
        let context = Context::detached(FencingToken(9), TIME, Env::system());
        assert_eq!(groups(&endpoint.url()).handle_all(group, &context).await.unwrap(), expected);
        assert_eq!(endpoint.accepted(), 1);
    }
}

#[tokio::test]
async fn forwarded_request_has_count_of_superseded_deliveries() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::status(200)).await;
    let mut latest = delivery("7", "shop/order/7");
    latest.superseded = 4;
    assert_eq!(post_within(&anywhere(&endpoint.url()), &latest, TIME).await, Outcome::Done);
    let posted = endpoint.posted().await;
    assert_eq!(posted.header("serializer-superseded"), "4");
    assert_eq!(posted.body, **latest.body());
}

#[tokio::test]
async fn endpoint_answering_410_rejects_the_delivery() {
    let endpoint = Endpoint::start(|_| EndpointReply::status(410)).await;
    assert_eq!(post(&anywhere(&endpoint.url())).await, Outcome::Reject("the endpoint answered 410 Gone".into()));
}

#[tokio::test]
async fn compressed_answer_is_not_quoted() {
    for (encoding, expected) in
        [("gzip", "the endpoint answered 400 Bad Request"), ("identity", "the endpoint answered 400: ....")]
    {
        let reply = move |_| EndpointReply::status(400).body(4).with("Content-Encoding", encoding);
        let endpoint = Endpoint::start(reply).await;
        assert_eq!(post(&anywhere(&endpoint.url())).await, Outcome::retry(expected), "{encoding}");
    }
}

#[tokio::test]
async fn retry_after_header_sets_the_wait() {
    let endpoint = Endpoint::start(|_| EndpointReply::status(429).with("Retry-After", "77")).await;
    let Outcome::Unavailable { after: Some(wait), error } = post(&anywhere(&endpoint.url())).await else { panic!() };
    assert!((77.0..=85.0).contains(&wait.as_secs_f64()), "{wait:?}");
    assert_eq!(error, "the endpoint answered 429 Too Many Requests");
}

/// Promise: redirects are not followed; private addresses need `allow_private`.
#[tokio::test]
async fn redirect_is_not_followed() {
    let elsewhere = Endpoint::start(|_| EndpointReply::status(200)).await;
    let location = elsewhere.url();
    let endpoint = Endpoint::start(move |_| EndpointReply::status(307).with("Location", &location)).await;
    let error = error(post(&anywhere(&endpoint.url())).await);
    assert!(error.starts_with("the endpoint answered 307: redirects are not followed"), "{error}");
    assert_eq!(elsewhere.accepted(), 0);
}

#[tokio::test]
async fn silent_endpoint_yields_unanswered_outcome() {
    let endpoint = Endpoint::start(|_| EndpointReply::Never).await;
    let forward = anywhere(&endpoint.url());
    let time = Duration::from_millis(300);
    let outcome = post_within(&forward, &delivery("7", "shop/order/7"), time).await;
    assert_eq!(outcome, Outcome::unanswered(format!("no answer within 0.3 s from {}", endpoint.url())));
}

#[tokio::test]
async fn failed_connection_yields_unavailable_outcome() {
    let refusing = Endpoint::start(|_| EndpointReply::status(200)).await;
    let refused = refusing.url();
    refusing.stop().await;
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let untrusted = Endpoint::start_tls(&certificate, |_| EndpointReply::status(200)).await;
    // Resolvers refuse a label of 64 bytes without a query.
    let unknown = format!("https://{}.invalid", "a".repeat(64));
    for url in [refused, untrusted.url(), unknown] {
        let forward = anywhere(&format!("{url}/hooks?key=hush"));
        let Outcome::Unavailable { after: None, error } = post(&forward).await else { panic!("{url}") };
        assert!(error.starts_with(&format!("cannot connect to {url}/hooks: ")) && !error.contains("hush"), "{error}");
    }
}

#[tokio::test]
async fn incomplete_answer_yields_unanswered_outcome() {
    for half in [&b"HTTP/1.1 20"[..], b""] {
        let endpoint = Endpoint::start(|_| EndpointReply::Raw(half.to_vec())).await;
        let Outcome::Unanswered { after: None, error } = post(&anywhere(&endpoint.url())).await else { panic!() };
        assert!(error.starts_with(&format!("no answer from {}: ", endpoint.url())), "{error}");
    }
}

fn answer(status_line: &str, headers: &str) -> EndpointReply {
    EndpointReply::Whole(format!("{status_line}\r\nContent-Length: 0\r\n{headers}\r\n").into_bytes())
}

/// Promise: a 2xx without `commit` counts whatever its headers, up to 4,096 lines and 1 MiB; an unreadable answer is a
/// failed attempt.
#[tokio::test]
async fn success_counts_whatever_its_headers() {
    let lines = |count: usize| (0..count).map(|number| format!("x-{number}: a\r\n")).collect::<String>();
    for (name, headers) in [
        ("101 lines", lines(101)),
        ("1,000 lines", lines(1000)),
        ("a long line", format!("link: {}\r\n", "a".repeat(900_000))),
        ("a line without a colon", "hush\r\n".to_owned()),
        ("a name with spaces", "a name : a value\r\n".to_owned()),
        ("a folded line", "x-folded: one\r\n two\r\n".to_owned()),
    ] {
        let endpoint = Endpoint::start(move |_| answer("HTTP/1.1 200 OK", &headers)).await;
        assert_eq!(post(&anywhere(&endpoint.url())).await, Outcome::Done, "{name}");
    }
}

/// The endpoint has answered, so a repeated attempt may be a repeated effect.
#[tokio::test]
async fn unreadable_answer_is_a_failed_attempt() {
    for (name, status_line, headers) in [
        ("too many lines", "HTTP/1.1 200 OK", "x: a\r\n".repeat(20_000)),
        ("too long a line", "HTTP/1.1 200 OK", format!("link: {}\r\n", "a".repeat(3_000_000))),
        ("two lengths", "HTTP/1.1 200 OK", "Content-Length: 7\r\n".to_owned()),
        ("another version", "HTTP/7 200 OK", String::new()),
        ("another protocol", "220 mail.example.com ESMTP", String::new()),
    ] {
        let status_line = status_line.to_owned();
        let endpoint = Endpoint::start(move |_| answer(&status_line, &headers)).await;
        let outcome = post(&anywhere(&endpoint.url())).await;
        let Outcome::Retry { after: None, error } = outcome else { panic!("{name}: {outcome:?}") };
        let expected = format!("cannot read the answer of {}: ", endpoint.url());
        assert!(error.starts_with(&expected), "{name}: {error}");
    }
}

#[tokio::test]
async fn one_connection_serves_many_deliveries() {
    let endpoint =
        Endpoint::start(|post| EndpointReply::status(if post % 2 == 0 { 200 } else { 500 }).body(9000)).await;
    let forward = anywhere(&endpoint.url());
    for number in 0..20 {
        let expected = number % 2 == 0;
        assert_eq!(post(&forward).await == Outcome::Done, expected, "{number}");
    }
    assert_eq!(endpoint.accepted(), 1);
}

#[tokio::test]
async fn long_answer_closes_the_connection() {
    let endpoint = Endpoint::start(|_| EndpointReply::status(200).body(1024 * 1024)).await;
    let forward = anywhere(&endpoint.url());
    for accepted in 1..=3 {
        assert_eq!(post(&forward).await, Outcome::Done);
        assert_eq!(endpoint.accepted(), accepted);
    }
}

#[tokio::test]
async fn response_body_that_never_arrives_changes_no_outcome() {
    let endpoint = Endpoint::start(|_| EndpointReply::status(200).body_never_sent(10)).await;
    assert_eq!(post(&anywhere(&endpoint.url())).await, Outcome::Done);
}

#[tokio::test]
async fn host_resolving_to_private_address_is_refused() {
    let endpoint = Endpoint::start(|_| EndpointReply::status(200)).await;
    // Parsers do not take this for an address, but resolvers return 127.0.0.1.
    let url = format!("https://0x7f000001:{}/", endpoint.port());
    let forward = Forward::new(sources(&format!("url = '{url}', secret = 'whsec_c2VjcmV0'")));
    let error = error(post(&forward).await);
    let cause = "127.0.0.1 is not a public address: set allow_private = true to allow it";
    assert_eq!(error, format!("cannot connect to https://0x7f000001:{}: {cause}", endpoint.port()));
    assert_eq!(endpoint.accepted(), 0);
}

#[tokio::test]
async fn only_configured_certificate_authorities_are_trusted() {
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let endpoint = Endpoint::start_tls(&certificate, |_| EndpointReply::status(200)).await;
    let sources = sources(&format!("url = '{}', secret = 'whsec_c2VjcmV0', allow_private = true", endpoint.url()));
    let refused = error(post(&Forward::new(&sources)).await);
    assert!(refused.contains("invalid peer certificate"), "{refused}");

    let directory = std::env::temp_dir().join(format!("forward-{}", Env::system().nonce()));
    std::fs::write(&directory, certificate.cert.pem()).unwrap();
    let file = directory.to_string_lossy().into_owned();
    let variables: &[(&str, &str)] = &[("FORWARD_CA_BUNDLE", &file)];
    let forward = Forward::configured(&sources, &variables);
    std::fs::remove_file(&directory).unwrap();
    assert_eq!(post(&forward.unwrap()).await, Outcome::Done);
}

#[test]
fn unusable_ca_bundle_is_refused_and_named() {
    let sources = sources("url = 'https://example.com/', secret = 'whsec_c2VjcmV0'");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for file in ["/nowhere/at-all.pem", manifest] {
        let variables: &[(&str, &str)] = &[("FORWARD_CA_BUNDLE", file)];
        let refused = Forward::configured(&sources, &variables).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("FORWARD_CA_BUNDLE: {file} ")), "{refused}");
    }
}

#[tokio::test]
async fn cancelled_start_closes_the_connection() {
    let mut endpoint = Endpoint::start(|_| EndpointReply::Never).await;
    let env = Env::system();
    let deadline = env.monotonic() + TIME;
    let (canceller, context) = Canceller::start("forward", FencingToken(1), deadline, env);
    let forward = Arc::new(anywhere(&endpoint.url()));
    let delivery = Deliveries::detached([delivery("7", "shop/order/7")]);
    let started =
        tokio::spawn(async move { run(&Threads::default(), forward, Isolation::Thread, delivery, context).await });
    endpoint.posted().await;
    drop(canceller);
    assert_eq!(started.await.unwrap(), Some(Outcome::retry("the handler was cancelled")));
    endpoint.hung_up().await;
}

#[tokio::test]
async fn delivery_is_retried_if_source_lacks_forward_table() {
    let forward = Forward::new(Arc::<Sources>::default());
    assert_eq!(post(&forward).await, Outcome::retry("the source has no table `forward`"));
    assert!(forward.answers_to("forward") && !forward.answers_to("orders"));
}

#[test]
fn debug_output_of_forward_hides_secrets() {
    let forward = anywhere("http://127.0.0.1:9/hush");
    let shown = format!("{forward:?}");
    assert!(shown.contains("127.0.0.1"), "{shown}");
    assert!(!shown.contains("hush") && !shown.contains("c2Vj"), "{shown}");
}
