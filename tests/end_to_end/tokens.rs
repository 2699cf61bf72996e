//! Senders that do not sign: a token in the URL, a header or Basic authentication; forms, and requests without a body.

use tests::prelude::*;
use webhook_serializer::functions::ingest::{Http, RequestContext};

const SOURCES: &str = "
[sources.changes]
provider = 'generic'
secrets = 'q7mZ4kT1x9'
handler = 'h'
generic = { token_in = '{query:token}', entity = '{form:id}', entity_kind = 'payment', retried_for = '0s', answer = '[accepted]', challenge = 'echo' }

[sources.push]
provider = 'generic'
secrets = 'shop:q7mZ4kT1x9'
handler = 'h'
entity = '{source}/order/{query:order_id}'
generic = { token_in = 'basic' }

[sources.chat]
provider = 'slack'
secrets = 'q7mZ4kT1x9'
handler = 'h'

[sources.keyed]
provider = 'generic'
secrets = 'q7mZ4kT1x9'
handler = 'h'
topics = { take = 'order.*' }
generic = { token_in = 'x-api-key', topic = '{form:event}', delivery_id = '{form:event_id}', entity = '{form:order}' }
";

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

struct TokenSender {
    world: TestWorld,
    ingest: Ingest,
}

impl TokenSender {
    fn new() -> Self {
        let world = TestWorld::new().with_sources(SOURCES);
        Self { ingest: Ingest::new(world.sources(), world.inbox(), world.env.clone()), world }
    }

    async fn send(&self, source: &str, query: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let webhook = SignedWebhook {
            query: Some(query.to_owned()),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            body: body.into(),
            ..signed_as(&self.world.sources(), source, &[], "", self.world.env.now())
        };
        self.ingest.answer(&request(&webhook)).await
    }

    async fn pending(&self, entity: &str) -> u64 {
        let Some(row) = self.world.memory.get(&entity_row(&key(entity))).await.expect("memory answers") else {
            return 0;
        };
        let state = EntityState::parse(&row).expect("its row is readable");
        state.tail.0 - state.head.0
    }
}

#[tokio::test(start_paused = true)]
async fn equal_forms_of_an_object_are_several_deliveries() {
    let sender = TokenSender::new();
    for sent in 1..=3 {
        let answer = sender.send("changes", "token=q7mZ4kT1x9", &[FORM], "id=tr_7").await;
        assert_eq!((answer.status_code, answer.body.as_str()), (200, "[accepted]"));
        assert_eq!(answer.headers["content-type"], "text/plain");
        assert_eq!(sender.pending("changes/payment/tr_7").await, sent);
        sender.world.env.sleep(Duration::from_millis(1)).await;
    }
}

/// Promise: `generic` describes senders that do not sign, forms, and requests without a body.
#[tokio::test(start_paused = true)]
async fn request_with_wrong_token_is_refused_in_each_place() {
    let sender = TokenSender::new();
    for (source, query, header) in [
        ("changes", "", None),
        ("changes", "token=other", None),
        ("changes", "token=", None),
        ("changes", "", Some(("token", "q7mZ4kT1x9"))),
        ("push", "order_id=7", None),
        ("push", "order_id=7", Some(("authorization", "Basic c2hvcDpvdGhlcg=="))),
        ("push", "order_id=7", Some(("authorization", "Bearer shop:q7mZ4kT1x9"))),
        ("keyed", "x-api-key=q7mZ4kT1x9", None),
        ("keyed", "", Some(("x-api-key", "other"))),
    ] {
        let headers: Vec<_> = header.into_iter().chain([FORM]).collect();
        let answer = sender.send(source, query, &headers, "id=tr_7&event=order.paid&order=7").await;
        assert_eq!(answer.status_code, 401, "{source} {query} {header:?}");
        assert!(!answer.body.contains("q7mZ4kT1x9"), "{}", answer.body);
    }
    for entity in ["changes/payment/tr_7", "push/order/7", "keyed/7"] {
        assert_eq!(sender.pending(entity).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn request_without_body_is_delivered_under_query_parameter() {
    let sender = TokenSender::new();
    let basic = ("authorization", "Basic c2hvcDpxN21aNGtUMXg5");
    let answer = sender.send("push", "order_id=o-7&x=1", &[basic], "").await;
    assert_eq!(answer.status_code, 200, "{}", answer.body);
    assert_eq!(sender.pending("push/order/o-7").await, 1);
    let answer = sender.send("push", "x=1", &[basic], "").await;
    assert_eq!(answer.status_code, 200, "what names no order is kept without one");
    assert_eq!(sender.pending("push/unrouted").await, 1);
}

#[tokio::test(start_paused = true)]
async fn form_field_names_topic_delivery_and_order() {
    let sender = TokenSender::new();
    let send = async |body: &str| sender.send("keyed", "", &[("x-api-key", "q7mZ4kT1x9"), FORM], body).await.body;
    assert!(send("event=order.paid&event_id=e-1&order=a+b").await.contains("accepted"));
    assert_eq!(sender.pending("keyed/a b").await, 1);
    assert_eq!(send("event=cart.viewed&event_id=e-2&order=7").await, r#"{"ignored":"cart.viewed"}"#);
    send("event=order.paid&event_id=e-3").await;
    send("event_id=e-4&order=7").await;
    sender.world.work(&[sender.world.drainer(Done)]).await;
    let parked = sender.world.operator().parked(&key("keyed/unrouted")).await.expect("memory answers");
    let errors: Vec<String> = parked.into_iter().map(|one| one.error.to_string()).collect();
    assert!(errors.len() == 2 && errors.iter().all(|error| error.contains("the body is a form")), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn signed_challenge_of_slack_is_answered_and_not_stored() {
    let sender = TokenSender::new();
    let body = r#"{"token":"t","challenge":"3eZbrw1a","type":"url_verification"}"#;
    let signed = signed_as(&sender.world.sources(), "chat", &[], body, sender.world.env.now());
    let answer = sender.ingest.answer(&request(&signed)).await;
    assert_eq!((answer.status_code, answer.body.as_str()), (200, r#"{"challenge":"3eZbrw1a"}"#));
    let headers: Vec<(&str, &str)> =
        signed.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let forged = sender.send("chat", "", &headers, &body.replace("3e", "4e")).await;
    assert!(forged.status_code == 401 && !forged.body.contains("4eZ"), "{}", forged.body);
    assert_eq!(sender.pending("chat/unrouted").await, 0);
}

#[tokio::test(start_paused = true)]
async fn test_request_of_generic_sender_gets_its_parameter_back() {
    let sender = TokenSender::new();
    let get = |source: &str, query: &str| HttpRequest {
        raw_path: format!("/webhooks/{source}"),
        raw_query_string: query.to_owned(),
        request_context: RequestContext { http: Http { method: "GET".into() }, ..RequestContext::default() },
        ..HttpRequest::default()
    };
    let answer = sender.ingest.answer(&get("changes", "token=x&echo=a%2Bb")).await;
    assert_eq!((answer.status_code, answer.body.as_str()), (200, r#"{"echo":"a+b"}"#));
    assert_eq!(sender.ingest.answer(&get("changes", "challenge=a")).await.status_code, 405);
    assert_eq!(sender.ingest.answer(&get("push", "echo=a")).await.status_code, 405);
}
