//! Senders that publish their keys: the answers while a key is unavailable, and the answers to challenges.

use bytes::Bytes;
use serializer::local::samples::{self, DevelopmentKeys, SOURCES as SAMPLES};
use tests::prelude::*;
use webhook_serializer::{
    functions::ingest::{Http, RequestContext, keys::PublishedKeys},
    providers::{Address, Keys, RsaKey, Uncertified},
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
secrets = 'q7mZ4kT1'
handler = 'h'
";

/// A closed port.
const NOWHERE: &str = "https://127.0.0.1:1";

#[derive(Debug, Default)]
struct Reasons(Mutex<Vec<String>>);

impl Observer for Reasons {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Refused { reason, .. } = event {
            self.0.lock().expect("no panic under the lock").push((*reason).to_owned());
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
    let world = TestWorld::new();
    let sources = Arc::new(Sources::parse(SOURCES).unwrap());
    let keys = PublishedKeys::standing_in(world.env.clone(), NOWHERE.into(), Roots::mozilla());
    let inbox = Inbox::new(world.store(), world.waker(), world.settings.retention, told.clone());
    let ingest = Ingest::new(&sources, inbox, world.env.clone()).with_keys(keys);
    let request = HttpRequest {
        raw_path: path.into(),
        raw_query_string: query.into(),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body: Some("{}".into()),
        request_context: RequestContext { http: Http { method: method.into() }, ..RequestContext::default() },
        ..HttpRequest::default()
    };
    let answer = ingest.answer(&request).await;
    assert!(world.messages.is_empty(), "nothing of it is kept");
    answer
}

/// Keys that take 900 ms to find, without waiting.
struct SlowKeys(ShiftedClock);

impl Keys for SlowKeys {
    fn find(&self, at: &Address) -> Option<Bytes> {
        self.0.pass(Duration::from_millis(900));
        DevelopmentKeys.find(at)
    }

    fn certified(&self, pem: &[u8], names: &[&'static str], now: Timestamp) -> Result<RsaKey, Uncertified> {
        DevelopmentKeys.certified(pem, names, now)
    }
}

async fn answer_behind_a_slow_fetch(fault: Fault) -> (u16, Duration) {
    let clock = ShiftedClock::new(TokioClock::start());
    let mut world = TestWorld::by(Env::new(clock.clone(), SeededRandom::new(1)));
    world.break_table(move |_| fault.clone());
    let sources = Arc::new(
        Sources::parse(&SAMPLES.replace("[sources.paypal]", "[sources.paypal]\non_outage = 'queue'")).unwrap(),
    );
    let keys = PublishedKeys::beside(world.env.clone(), Arc::new(SlowKeys(clock)));
    let ingest = Ingest::new(&sources, world.inbox(), world.env.clone()).with_keys(keys);
    let event = include_str!("../../events/paypal-payment-capture-completed.json");
    let webhook = samples::webhook(event, &sources, world.env.now()).unwrap();
    let before = world.env.monotonic();
    let status = ingest.answer(&request(&webhook)).await.status_code;
    (status, world.env.monotonic() - before)
}

#[tokio::test(start_paused = true)]
async fn ingest_answers_in_time_after_slow_key_fetch() {
    let (status, _) = answer_behind_a_slow_fetch(Fault::Slow(Duration::from_millis(550))).await;
    assert_eq!(status, 200);
    let (status, took) = answer_behind_a_slow_fetch(Fault::Silent).await;
    assert_eq!(status, 202);
    assert!(took <= Duration::from_millis(3500), "{took:?}");
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
async fn webhook_with_unavailable_published_key_gets_503() {
    let certificate = "https://api.paypal.com/v1/notifications/certs/CERT-1";
    let told = Arc::new(Reasons::default());
    let unavailable = answer_telling(&told, "POST", "/webhooks/paypal", "", &transmission(certificate)).await;
    assert_eq!(unavailable.status_code, 503, "{unavailable:?}");
    assert!(!unavailable.body.contains("api.paypal.com"), "{unavailable:?}");
    let told = told.0.lock().expect("no panic under the lock").clone();
    assert_eq!(told, [format!("the sender's key at {certificate} was not fetched")], "as the log has it");
    assert!(unavailable.headers.contains_key("retry-after") && unavailable.body.contains("send the webhook again"));
    let unconfigured = answer("POST", "/webhooks/new", "", &transmission(certificate)).await;
    assert_eq!(unconfigured.status_code, 503, "{unconfigured:?}");
}

#[tokio::test]
async fn webhook_naming_key_on_foreign_host_gets_401() {
    let refused = answer("POST", "/webhooks/paypal", "", &transmission("https://example.com/CERT-1")).await;
    assert_eq!(
        (refused.status_code, refused.body.as_str()),
        (401, r#"{"error":"header paypal-cert-url cannot be read"}"#)
    );
}

#[tokio::test]
async fn challenge_is_answered_only_for_providers_with_challenges() {
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
