//! Ingest of senders that publish their keys: what is answered while a key cannot
//! be had, and to a sender that asks whether anybody is there.

use std::sync::{Arc, Mutex};

use tests::world::World;
use webhook_serializer::{
    engine::append::Inbox,
    functions::ingest::{Http, Ingest, Request, RequestContext, Response, keys::PublishedKeys},
    sources::Sources,
    telemetry::{Event, Observer},
    tls::Roots,
};

const SOURCES: &str = "
[sources.paypal]
provider = 'paypal'
webhook_id = 'WID'
handler = 'h'

[sources.new]
provider = 'paypal'
handler = 'h'

[sources.adobe]
provider = 'adobe-io-events'
client_id = 'CID'
handler = 'h'

[sources.shopify]
provider = 'shopify'
secrets = 'secret'
handler = 'h'
";

/// Nothing listens there.
const NOWHERE: &str = "https://127.0.0.1:1";

/// Why requests were refused, as the log is told.
#[derive(Debug, Default)]
struct Reasons(Mutex<Vec<String>>);

impl Observer for Reasons {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Refused { reason, .. } = event {
            self.0.lock().expect("no one panics while holding this").push((*reason).to_owned());
        }
    }
}

async fn answer(method: &str, path: &str, query: &str, headers: &[(&str, &str)]) -> Response {
    answer_telling(&Arc::default(), method, path, query, headers).await
}

async fn answer_telling(
    told: &Arc<Reasons>,
    method: &str,
    path: &str,
    query: &str,
    headers: &[(&str, &str)],
) -> Response {
    let world = World::new();
    let sources = Arc::new(Sources::parse(SOURCES).unwrap());
    let keys = PublishedKeys::standing_in(world.surroundings.clone(), NOWHERE.into(), Roots::mozilla());
    let inbox = Inbox::new(world.store(), world.waker(), world.settings.retention, told.clone());
    let ingest = Ingest::new(&sources, inbox, world.surroundings.clone()).with_keys(keys);
    let request = Request {
        raw_path: path.into(),
        raw_query_string: query.into(),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body: Some("{}".into()),
        request_context: RequestContext { http: Http { method: method.into() } },
        ..Request::default()
    };
    let answer = ingest.answer(&request).await;
    assert!(world.messages.is_empty(), "nothing of it is kept");
    answer
}

fn transmission(certificate: &str) -> [(&str, &str); 4] {
    [
        ("paypal-transmission-id", "t-1"),
        ("paypal-transmission-time", "2026-01-05T14:00:01Z"),
        ("paypal-transmission-sig", "AAAA"),
        ("paypal-cert-url", certificate),
    ]
}

#[tokio::test]
async fn while_a_sender_s_key_cannot_be_fetched_it_is_told_to_send_again() {
    let certificate = "https://api.paypal.com/v1/notifications/certs/CERT-1";
    let told = Arc::new(Reasons::default());
    let unavailable = answer_telling(&told, "POST", "/webhooks/paypal", "", &transmission(certificate)).await;
    assert_eq!(unavailable.status_code, 503, "{unavailable:?}");
    assert!(!unavailable.body.contains("api.paypal.com"), "{unavailable:?}");
    let told = told.0.lock().expect("no one panics while holding this").clone();
    assert_eq!(told, [format!("the sender's key at {certificate} was not fetched")], "as the log has it");
    assert!(unavailable.headers.contains_key("retry-after") && unavailable.body.contains("send it again"));
    let unconfigured = answer("POST", "/webhooks/new", "", &transmission(certificate)).await;
    assert_eq!(unconfigured.status_code, 503, "{unconfigured:?}");
}

#[tokio::test]
async fn a_key_that_is_not_the_sender_s_own_is_not_waited_for() {
    let refused = answer("POST", "/webhooks/paypal", "", &transmission("https://example.com/CERT-1")).await;
    assert_eq!(
        (refused.status_code, refused.body.as_str()),
        (401, r#"{"error":"header paypal-cert-url cannot be read"}"#)
    );
}

#[tokio::test]
async fn a_challenge_is_answered_to_whoever_asks_of_a_source_whose_sender_does() {
    let answered = answer("GET", "/webhooks/adobe", "a=b&challenge=8ec8d794-e0ab%2D42df%2B", &[]).await;
    assert_eq!((answered.status_code, answered.body.as_str()), (200, r#"{"challenge":"8ec8d794-e0ab-42df+"}"#));
    assert_eq!(answered.headers["content-type"], "application/json");
    for (method, path, query) in [
        ("GET", "/webhooks/adobe", ""),
        ("GET", "/webhooks/adobe", "challenges=1"),
        ("GET", "/webhooks/shopify", "challenge=1"),
        ("PUT", "/webhooks/adobe", "challenge=1"),
    ] {
        let refused = answer(method, path, query, &[]).await;
        assert_eq!(refused.status_code, 405, "{method} {path}?{query}");
        assert_eq!(refused.headers["allow"], "POST", "{method} {path}?{query}");
    }
}
