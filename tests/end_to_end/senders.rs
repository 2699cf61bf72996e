//! Mistakes of senders: bodies that cannot be read, missing topics, headers that come twice.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use tests::prelude::*;
use webhook_serializer::telemetry::IngestRefusal;

const SOURCES: &str = "
[sources.taker]
provider = 'generic'
secrets = 'q7mZ4kT1'
handler = 'h'
topics = { take = 'order.*', ignore = 'order.viewed' }
generic = { header = 'x-sign', hash = 'sha256', encoding = 'hex', delivery_id = 'x-id', topic = '/type', entity_kind = 'order', entity = '/order/id' }

[sources.ignorer]
provider = 'generic'
secrets = 'q7mZ4kT1'
handler = 'h'
topics = { ignore = '*' }
generic = { header = 'x-sign', hash = 'sha256', encoding = 'hex', delivery_id = 'x-id', topic = '/type', entity_kind = 'order', entity = '/order/id' }

[sources.all]
provider = 'generic'
secrets = 'q7mZ4kT1'
handler = 'h'
generic = { header = 'x-sign', hash = 'sha256', encoding = 'hex', delivery_id = 'x-id', topic = ['/type', 'x-topic'], entity_kind = 'order', entity = ['/order/id', 'x-order'] }

[sources.shop]
provider = 'shopify'
secrets = 'q7mZ4kT1'
handler = 'h'
topics = { take = 'orders/*' }

[sources.named]
provider = 'shopify'
secrets = 'q7mZ4kT1'
handler = 'h'
entity = ['{header:x-job}', 'shop/{account}/{header:x-order}']
";

fn world() -> TestWorld {
    TestWorld::new().with_sources(SOURCES)
}

async fn answer(world: &TestWorld, source: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Response {
    let webhook = signed_as(&world.sources(), source, headers, body, world.env.now());
    let request =
        HttpRequest { is_base64_encoded: true, body: Some(STANDARD.encode(&webhook.body)), ..blank(&webhook) };
    let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
    let answer = ingest.answer(&request).await;
    world.work(&[world.drainer(Done)]).await;
    answer
}

fn blank(webhook: &SignedWebhook) -> HttpRequest {
    request(&SignedWebhook { body: Vec::new(), ..webhook.clone() })
}

/// Returns the errors of the deliveries that were parked without an order.
async fn reasons(world: &TestWorld, source: &str) -> Vec<String> {
    let parked = world.operator().parked(&key(&format!("{source}/unrouted"))).await.expect("memory answers");
    parked.into_iter().map(|one| one.error.to_string()).collect()
}

const UNREADABLE: [(&[u8], &str); 13] = [
    (b"\xef\xbb\xbf{\"type\":\"order.updated\",\"order\":{\"id\":1}}", "the body begins with a byte-order mark"),
    (b"{\"type\":\"order.updated\",\"n\":\"Jos\xe9\",\"order\":{\"id\":1}}", "the body is not UTF-8 at byte 33"),
    (b"{\"type\":\"order.updated\",\"w\":NaN,\"order\":{\"id\":1}}", "the body is not JSON at line 1, column 29"),
    (b"{\"type\":\"order.updated\",\"order\":{\"id\":1}", "the body is not JSON at line 1, column 40"),
    (b"{\"type\":\"order.updated\",\"order\":{\"id\":1}}{}", "the body is not JSON at line 1, column 42"),
    (b"{'type':'order.updated'}", "the body is not JSON at line 1, column 2"),
    (b"\xff\xfe{\0\"\0t\0\"\0}\0", "the body is UTF-16"),
    (b"{\0\0\0}\0\0\0", "the body is UTF-32"),
    (b"\0\0\0{\0\0\0}", "the body is UTF-32"),
    (b"\xff\xfe\0\0{\0\0\0}\0\0\0", "the body is UTF-32"),
    (b"payload=%7B%22type%22%3A%22order.updated%22%7D", "the body is not JSON at line 1, column 1"),
    (b"<order><id>1</id></order>", "the body is XML"),
    (b"", "the body is empty"),
];

/// Promise: a webhook without a topic is never ignored; what belongs to no order is parked, and its error says why.
#[tokio::test(start_paused = true)]
async fn unreadable_body_is_parked_instead_of_ignored() {
    for (body, named) in UNREADABLE {
        for source in ["taker", "ignorer", "all"] {
            let world = world();
            let answer = answer(&world, source, &[("x-id", "1")], body).await;
            assert!(answer.body.contains("accepted"), "{source}, {named}: {answer:?}");
            let reasons = reasons(&world, source).await;
            assert!(reasons.len() == 1 && reasons[0].starts_with(named), "{source}, {named}: {reasons:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn webhook_without_topic_is_parked_instead_of_ignored() {
    const NO_TOPIC: &str = "the webhook has no topic, and the source takes only certain topics";
    const IGNORED: &str = "the webhook has no topic, and the source ignores `unknown`";
    for body in [r#"[{"type":"order.updated"}]"#, r#"{"order":{"id":1}}"#, r#"{"type":null,"order":{"id":1}}"#, "7"] {
        for (source, reason) in [("taker", NO_TOPIC), ("ignorer", IGNORED)] {
            let world = world();
            let answer = answer(&world, source, &[("x-id", "1")], body).await;
            assert!(answer.body.contains("accepted"), "{source}, {body}: {answer:?}");
            assert_eq!(reasons(&world, source).await, [reason], "{source}, {body}");
        }
    }
    let world = world();
    for (headers, body) in [(&[][..], r#"{"id":5}"#), (&[("x-shopify-topic", " ")], r#"{"id":6}"#)] {
        assert!(answer(&world, "shop", headers, body).await.body.contains("accepted"));
    }
    assert_eq!(reasons(&world, "shop").await, [NO_TOPIC, NO_TOPIC]);
}

#[tokio::test(start_paused = true)]
async fn webhook_with_unlisted_topic_is_ignored() {
    let world = world();
    for (topic, said) in
        [("order.updated", "taker/order/1"), ("order.viewed", "\"ignored\""), ("customer.updated", "\"ignored\"")]
    {
        let body = format!(r#"{{"type":"{topic}","order":{{"id":1}}}}"#);
        let answer = answer(&world, "taker", &[("x-id", topic)], body).await;
        assert!(answer.body.contains(said), "{topic}: {answer:?}");
    }
    let shopify = answer(&world, "shop", &[("x-shopify-topic", "customers/update")], "no JSON").await;
    assert_eq!(shopify.body, r#"{"ignored":"customers/update"}"#, "the header names the topic");
    assert_eq!(reasons(&world, "taker").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn parked_webhook_names_why_it_has_no_order() {
    let world = world();
    let of = |id: &str| format!(r#"{{"type":"order.updated","order":{{"id":"{id}"}}}}"#);
    for (id, body) in [
        ("1", of(&"x".repeat(513))),
        ("2", of("a\\nb")),
        ("3", of("\u{fffe}")),
        ("4", of("")),
        ("5", "{}".into()),
        ("6", of("\\ud800x")),
    ] {
        assert_eq!(answer(&world, "all", &[("x-id", id)], body).await.status_code, 200);
    }
    let named = [("x-shopify-topic", "orders/paid"), ("x-job", "cron/sweep")];
    assert_eq!(answer(&world, "named", &named, "{}").await.status_code, 200);
    assert_eq!(
        reasons(&world, "all").await,
        [
            "the order's key is invalid: a key has at most 512 bytes, this one has 523",
            "the order's key is invalid: a key must not contain control characters",
            "the order's key is invalid: a key must not contain U+FFFE or U+FFFF, which the queue cannot carry",
            "the source's rules find no order in the webhook",
            "the source's rules find no order in the webhook, which has no topic",
            "the source's rules find no order in the webhook; a text in the body has half of a surrogate pair, such as `\\ud800`, and cannot be read",
        ]
    );
    assert_eq!(
        reasons(&world, "named").await,
        ["the order's key is invalid: the key begins with `cron/`, which is reserved for jobs"]
    );
}

/// Promise: if a header comes twice, its first value counts, and differing delivery ids stay apart.
#[tokio::test(start_paused = true)]
async fn first_value_of_doubled_header_counts() {
    let world = world();
    let paid =
        |topic, id| [("x-shopify-topic", topic), ("x-shopify-webhook-id", id), ("x-shopify-shop-domain", "a, a")];
    for (topic, id) in [
        ("orders/paid", "w-1"),
        ("orders/paid,orders/paid", "w-1"),
        ("orders/paid, orders/cancelled", "w-1,w-1"),
        (" ,orders/paid", "w-1 , w-1,"),
    ] {
        let answer = answer(&world, "shop", &paid(topic, id), r#"{"id":5}"#).await;
        assert!(answer.body.contains("\"shop/order/5\""), "{topic}: {answer:?}");
    }
    use Settlement::{Applied, Repeat};
    assert_eq!(world.settlements("shop/order/5").await, [Applied, Repeat, Repeat, Repeat]);

    let headers = [("x-id", "1,1"), ("x-topic", "a.b,a.b"), ("x-order", "7,7")];
    assert!(answer(&world, "all", &headers, "{}").await.body.contains("\"all/order/7\""));
    assert!(answer(&world, "all", &[("x-id", "1"), ("x-order", "7")], "{}").await.body.contains("\"all/order/7\""));
    assert_eq!(world.settlements("all/order/7").await, [Applied, Repeat]);

    let headers = [("x-shopify-topic", "orders/paid"), ("x-shopify-shop-domain", "s,s"), ("x-order", "9,9")];
    assert!(answer(&world, "named", &headers, "{}").await.body.contains("\"shop/s/9\""));
}

#[tokio::test(start_paused = true)]
async fn ids_with_equal_text_before_comma_stay_apart() {
    let world = world();
    for (id, event) in [("7,1", "a"), ("7,2", "b"), ("7,2", "b")] {
        let body = format!(r#"{{"type":"{event}","order":{{"id":1}}}}"#);
        assert_eq!(answer(&world, "all", &[("x-id", id)], body).await.status_code, 200);
    }
    use Settlement::{Applied, Repeat};
    assert_eq!(world.settlements("all/order/1").await, [Applied, Applied, Repeat]);
}

/// Promise: a secret that a forger can guess opens no source.
#[tokio::test(start_paused = true)]
async fn webhook_signed_with_guessable_secret_gets_503() {
    let topic = [("x-shopify-topic", "orders/paid")];
    for (provider, secret) in [
        ("shopify", "…"),
        ("shopify", "${SECRET}"),
        ("shopify", " "),
        ("shopify", "k"),
        ("stripe", "whsec_"),
        ("stripe", "whsec_YQ=="),
        ("standard-webhooks", "whsec_YQ=="),
        ("shippo", "{{resolve:secretsmanager:shop}}"),
        ("shipstation-v1", "<your secret>"),
    ] {
        let sources = format!("[sources.a]\nprovider = '{provider}'\nhandler = 'h'\nsecrets = ['{secret}']\n");
        let world = TestWorld::new().with_sources(&sources);
        let refused = answer(&world, "a", &topic, r#"{"id":5}"#).await;
        assert_eq!(refused.status_code, 503, "{provider} {secret}: {refused:?}");
        assert!(refused.body.contains("no secret yet"), "{refused:?}");
        let rotated = TestWorld::new().with_sources(
            &sources.replace(&format!("['{secret}"), &format!("['whsec_Zk93bTR6S2dRcTdUaHBY', '{secret}")),
        );
        assert_eq!(answer(&rotated, "a", &topic, r#"{"id":5}"#).await.status_code, 200, "{provider} {secret}");
        let forged = signed_as(&world.sources(), "a", &topic, r#"{"id":5}"#, world.env.now());
        let ingest = Ingest::new(rotated.sources(), rotated.inbox(), rotated.env.clone());
        assert_eq!(ingest.answer(&request(&forged)).await.status_code, 401, "{provider} {secret}");
    }
}

#[derive(Debug, Default)]
struct RefusalLog(Mutex<Vec<(IngestRefusal, String)>>);

impl Observer for RefusalLog {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Refused { refusal, reason, .. } = event {
            self.0.lock().expect("no one panics").push((*refusal, (*reason).to_owned()));
        }
    }
}

/// The shapes of events are from AWS's pages about the proxy integrations, read on 2026-11-26.
///
/// Promise: an event that is not a function URL's is named.
#[tokio::test]
async fn event_of_another_service_is_named() {
    let world = world();
    let rest = json!({
        "resource": "/{proxy+}", "path": "/webhooks/shop", "httpMethod": "POST", "headers": null, "body": "{}",
        "queryStringParameters": null, "requestContext": { "stage": "prod", "resourcePath": "/{proxy+}" },
    });
    let mut first_format = rest.clone();
    first_format["version"] = "1.0".into();
    let balancer = json!({
        "requestContext": { "elb": { "targetGroupArn": "arn:aws:elasticloadbalancing:…" } }, "httpMethod": "POST",
        "path": "/webhooks/shop", "headers": { "x-shopify-topic": "orders/paid" }, "body": "{}",
    });
    let socket = json!({ "requestContext": { "routeKey": "$connect", "connectionId": "a=" }, "body": "{}" });
    let queue = json!({ "Records": [{ "messageId": "1", "body": "{}" }] });
    for (event, named) in [
        (rest, "it is the event of a REST API"),
        (first_format, "it is the event of a REST API"),
        (balancer, "it is the event of a load balancer"),
        (socket, "it is no HTTP request"),
        (queue, "it is no HTTP request"),
        (json!({}), "it is no HTTP request"),
    ] {
        let observer = Arc::new(RefusalLog::default());
        let inbox = Inbox::new(world.store(), world.waker(), world.settings.retention, observer.clone());
        let request: HttpRequest = serde_json::from_value(event).expect("it is read");
        let answer = Ingest::new(world.sources(), inbox, world.env.clone()).answer(&request).await;
        assert_eq!(answer.status_code, 503, "{named}: {answer:?}");
        let refused = observer.0.lock().expect("no one panics").clone();
        assert!(refused.len() == 1 && refused[0].0 == IngestRefusal::WrongEvent, "{refused:?}");
        assert!(refused[0].1.starts_with(named) && refused[0].1.contains("payload format 2.0"), "{refused:?}");
    }
    // `cargo lambda` adds `httpMethod` to the event of a Function URL.
    let url = json!({
        "version": "2.0", "rawPath": "/webhooks/shop", "httpMethod": "POST", "body": "{}",
        "requestContext": { "http": { "method": "POST" } },
    });
    let request: HttpRequest = serde_json::from_value(url).expect("it is read");
    assert_eq!(request.foreign(), None);
}
