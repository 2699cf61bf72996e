//! Ignored topics and filtered values, through ingest.

use serde_json::Value;
use tests::{lines::Lines, prelude::*};
use webhook_serializer::telemetry::{JsonLog, log_level};

const SOURCES: &str = "\
[sources.shop]
provider = 'standard-webhooks'
secrets = ['whsec_b2xkIHNlY3JldA==']
handler = 'test'
entity = 'shop/order/{/data/order_id}'
topics = { take = 'order.*', ignore = 'order.viewed' }
";

struct TopicsShop {
    world: TestWorld,
    sources: Arc<Sources>,
    ingest: Ingest,
    lines: Lines,
}

impl TopicsShop {
    fn new() -> Self {
        Self::with("")
    }

    fn with(fields: &str) -> Self {
        let world = TestWorld::new();
        let sources = Arc::new(Sources::parse(&format!("{SOURCES}{fields}")).unwrap());
        let lines = Lines::default();
        let log = Arc::new(JsonLog::to(lines.clone(), log_level(None), world.env.clone()));
        let inbox = Inbox::new(world.store(), world.waker(), world.settings.retention, log);
        let ingest = Ingest::new(sources.clone(), inbox, world.env.clone());
        Self { world, sources, ingest, lines }
    }

    async fn post(&self, id: &str, topic: &str, forged: bool) -> Response {
        self.post_body(id, &format!(r#"{{"type":"{topic}","data":{{"order_id":"1"}}}}"#), forged).await
    }

    async fn post_body(&self, id: &str, body: &str, forged: bool) -> Response {
        let mut webhook = signed(&self.sources, "shop", id, body.to_owned(), self.world.env.now());
        if forged {
            webhook.body.push(b' ');
        }
        self.ingest.answer(&request(&webhook)).await
    }

    fn rows(&self) -> usize {
        [TableName::Entities, TableName::Inbox].iter().map(|table| self.world.memory.rows(table).len()).sum()
    }
}

/// Promise: ignored topics are verified, answered 200, counted, not stored.
#[tokio::test(start_paused = true)]
async fn ignored_topic_is_answered_200_and_not_stored() {
    let shop = TopicsShop::new();
    for (id, topic) in [("1", "customer.updated"), ("2", "order.viewed"), ("3", "refund.created")] {
        let answer = shop.post(id, topic, false).await;
        assert_eq!((answer.status_code, answer.body), (200, format!(r#"{{"ignored":"{topic}"}}"#)));
    }
    assert_eq!((shop.rows(), shop.world.messages.sent()), (0, 0), "neither a row nor a wake-up");
    let lines = shop.lines.json();
    assert_eq!(lines.len(), 3);
    for (line, topic) in lines.iter().zip(["customer.updated", "order.viewed", "refund.created"]) {
        let logged = (&line["message"], &line["topic"], &line["source"], &line["outcome"], &line["Ignored"]);
        let text = |text: &str| Value::from(text);
        let one = Value::from(1);
        assert_eq!(logged, (&text("ignored"), &text(topic), &text("shop"), &text("ignored"), &one), "{line}");
    }
    let taken = shop.post("4", "order.updated", false).await;
    assert!(taken.body.starts_with(r#"{"accepted":1"#), "{}", taken.body);
    assert_eq!(shop.world.state("shop/order/1").await.waiting(), 1);
}

#[tokio::test(start_paused = true)]
async fn unverified_webhook_of_ignored_topic_gets_401() {
    let shop = TopicsShop::new();
    assert_eq!(shop.post("1", "customer.updated", true).await.status_code, 401);
    let lines = shop.lines.json();
    let logged: Vec<_> = lines.iter().map(|line| (&line["message"], line.get("topic"))).collect();
    assert_eq!(logged, [(&Value::from("not verified"), None)], "an unverified topic is not logged");
}

const WEB: &str = "filter = { '/data/channel' = ['web', 'pos'], '/data/test' = false }";

/// Promise: webhooks whose values `filter` excludes are verified, answered 200, counted, not stored.
#[tokio::test(start_paused = true)]
async fn filtered_webhook_is_answered_200_and_not_stored() {
    let shop = TopicsShop::with(WEB);
    let body = |data: &str| format!(r#"{{"type":"order.updated","data":{{"order_id":"1",{data}}}}}"#);
    for (id, data, place) in [
        ("1", r#""channel":"draft","test":false"#, "/data/channel"),
        ("2", r#""channel":"web","test":"false""#, "/data/test"),
        ("3", r#""channel":"web""#, "/data/test"),
    ] {
        let answer = shop.post_body(id, &body(data), false).await;
        let expected = format!(r#"{{"filter":"{place}","ignored":"order.updated"}}"#);
        assert_eq!((answer.status_code, answer.body), (200, expected), "{data}");
        let line = shop.lines.json().pop().unwrap();
        assert_eq!((&line["filter"], &line["Ignored"]), (&Value::from(place), &Value::from(1)), "{line}");
    }
    assert_eq!((shop.rows(), shop.world.messages.sent()), (0, 0), "neither a row nor a wake-up");
    assert_eq!(shop.post_body("4", &body(r#""channel":"draft""#), true).await.status_code, 401);
    let taken = shop.post_body("5", &body(r#""channel":"pos","test":false"#), false).await;
    assert!(taken.body.starts_with(r#"{"accepted":1"#), "{}", taken.body);
}

/// Promise: `filter` never excludes a webhook whose body cannot be read.
#[tokio::test(start_paused = true)]
async fn unreadable_webhook_is_parked_despite_filter() {
    let shop = TopicsShop::with(WEB);
    for (id, body) in [("1", "{\"data\":{\"channel\":\"draft\""), ("2", r#"{"data":{"channel":"\ud800"}}"#)] {
        let answer = shop.post_body(id, body, false).await;
        assert!(answer.body.contains(r#""entity":"shop/unrouted""#), "{body}: {}", answer.body);
    }
}
