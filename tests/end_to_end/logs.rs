//! The functions' log: its cost, its content, and that none of its lines has a secret, signature or body. The
//! run has every kind of failure and logs at the finest level.
//!
//! All lines and bytes are counted, including metrics.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use tests::{lines::Lines, prelude::*};
use tokio::sync::watch;
use tracing_subscriber::util::SubscriberInitExt;
use webhook_serializer::{
    jobs::{Context, OnCrash, switch::Switch},
    telemetry::{JsonLog, Metric, NAMESPACE, log_level},
};

const SECRET: &str = "bm90IHRvIGJlIGxvZ2dlZA==";
/// The secret of a sender that is authenticated by its URL.
const TOKEN: &str = "a-token-0123456789";
const FORMER_SECRET: &str = "bm90IHRvIGJlIGxvZ2dlZCBlaXRoZXI=";
const MARK: &str = "not-to-be-logged-either";

const SOURCES: &str = r#"
[sources.test]
provider = "standard-webhooks"
secrets = ["whsec_bm90IHRvIGJlIGxvZ2dlZA==", "whsec_bm90IHRvIGJlIGxvZ2dlZCBlaXRoZXI="]
handler = "test"
retry = { attempts = 2, first = "10ms" }

[sources.shipping]
provider = "standard-webhooks"
secrets = ["whsec_bm90IHRvIGJlIGxvZ2dlZA=="]
handler = "test"

[sources.block]
provider = "standard-webhooks"
secrets = ["whsec_bm90IHRvIGJlIGxvZ2dlZA=="]
handler = "test"
retry = { attempts = 1 }
on_failure = "block"

[sources.woo]
provider = "woocommerce"
secrets = ["bm90IHRvIGJlIGxvZ2dlZA=="]
handler = "test"

[sources.early]
provider = "standard-webhooks"
handler = "test"

[sources.parcels]
provider = "shipstation-v1"
secrets = ["a-token-0123456789"]
handler = "test"
"#;

/// Writes the log, and counts settled and blocked deliveries for tests to wait on.
#[derive(Debug, Clone)]
struct DecisionLog(watch::Sender<usize>, Arc<JsonLog>);

impl DecisionLog {
    fn logging(lines: &Lines, level: &str) -> Self {
        Self::by(JsonLog::to(lines.clone(), log_level(Some(level)), Env::system()))
    }

    fn by(log: JsonLog) -> Self {
        // The namespace as the template sets it.
        let log = log.measuring(format!("{NAMESPACE}/webhook-serializer"));
        // Lambda's request ids have this length.
        log.begin("8c2ea3a5-6d2e-4a5a-9d1c-0f5f0a1b2c3d");
        Self(watch::Sender::new(0), Arc::new(log))
    }

    async fn until(&self, count: usize) {
        // `self` owns the sender, so the channel is open.
        let _ = self.0.subscribe().wait_for(|decided| *decided == count).await;
    }
}

impl Observer for DecisionLog {
    fn observe(&self, event: &Event<'_>) {
        self.1.observe(event);
        if matches!(event, Event::Settled { .. } | Event::Blocked { .. }) {
            self.0.send_modify(|decided| *decided += 1);
        }
    }
}

/// Returns a body about an order. It contains a mark, which no log line may contain.
fn body(order: &str) -> String {
    format!(r#"{{"type":"order.updated","note":"{MARK}","data":{{"order_id":"{order}"}}}}"#)
}

/// Promise: no body, signature or secret in any log line.
#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_holds_secret_or_body() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt().with_max_level(log_level(Some("TRACE"))).with_writer(move || writer.clone()).init();
    let decided = DecisionLog::logging(&lines, "TRACE");
    let mut deployment = LocalDeployment::start_observed(SOURCES, Arc::new(decided.clone())).await;
    deployment.local.work(|_| {
        answering(|delivery, _| {
            // Handlers may quote bodies in their errors.
            let error = String::from_utf8_lossy(delivery.body()).into_owned();
            match delivery.delivery_id().as_str() {
                "fails" => Outcome::retry(error),
                "rejected" => Outcome::Reject(error),
                "panics" => panic!("{}", "in a test's handler"),
                _ => Outcome::Done,
            }
        })
    });
    let now = deployment.env.now();
    let mut hidden = [SECRET, FORMER_SECRET, MARK].map(str::to_owned).to_vec();
    for (source, id, body) in [
        ("test", "fine", body("1")),
        ("test", "fails", body("1")),
        ("test", "rejected", body("2")),
        ("test", "panics", body("2")),
        ("test", "unrouted", MARK.to_owned()),
        ("block", "fails", body("3")),
    ] {
        let webhook = signed(&deployment.sources, source, id, body, now);
        let signatures = webhook.headers.iter().filter(|(name, _)| name == "webhook-signature");
        hidden.extend(signatures.map(|(_, value)| value.trim_start_matches("v1,").to_owned()));
        // Bodies are stored in base64.
        hidden.push(STANDARD.encode(&webhook.body));
        assert_eq!(deployment.post(&webhook).await.status, 200, "{id}");
        let mut forged = webhook.clone();
        forged.body.push(b' ');
        assert_eq!(deployment.sender.post(&forged).await.unwrap().status, 401, "{id}");
        forged.source = "early".into();
        assert_eq!(deployment.sender.post(&forged).await.unwrap().status, 503, "{id}");
        forged.source = source.into();
        forged.headers.retain(|(name, _)| name != "webhook-signature");
        assert_eq!(deployment.sender.post(&forged).await.unwrap().status, 401, "{id}");
        forged.source = "nobody".into();
        assert_eq!(deployment.sender.post(&forged).await.unwrap().status, 404, "{id}");
    }
    let by_url = r#"{"resource_url":"https://example.com/shipments?batchId=7","resource_type":"SHIP_NOTIFY"}"#;
    for (token, status) in [(TOKEN, 200), ("guessed-token-0123456789", 401)] {
        hidden.push(token.to_owned());
        let path = format!("/webhooks/parcels?token={token}");
        let answer = deployment.sender.request("POST", &path, &[], by_url.into()).await.unwrap();
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(!answer.body.contains(token), "{}", answer.body);
    }
    decided.until(7).await;
    let operator = deployment.operator();
    for parked in operator.parked(&EntityKey::parse("test/order/2").unwrap()).await.unwrap() {
        operator.redrive(&parked, None).await.unwrap();
    }
    deployment.local.stop().await.expect("nothing had failed");

    let logged = lines.text();
    for expected in ["accepted", "settled", "attempt failed", "blocked", "not verified", "no secret"] {
        assert!(logged.contains(expected), "it is logged: {expected}");
    }
    let unverified: Vec<&str> = logged.lines().filter(|line| line.contains("not verified")).collect();
    let is_plain = |line: &&str| line.contains("no configured secret") && !line.contains(r#"\"error"#);
    assert!(unverified.iter().any(is_plain), "{unverified:?}");
    for hidden in hidden {
        let shown = logged.lines().find(|line| line.contains(&hidden));
        assert_eq!(shown, None, "{hidden}");
    }
}

/// The only dimensions that metrics may have.
const DIMENSIONS: [&str; 2] = ["source", "outcome"];

/// Returns a line's metrics; asserts that each is declared and present.
fn metrics_of(line: &Value) -> BTreeMap<String, u64> {
    let Some(declared) = line.get("_aws") else { return BTreeMap::new() };
    assert!(declared["Timestamp"].as_u64() > Some(1_700_000_000_000), "{line}");
    let directives = declared["CloudWatchMetrics"].as_array().unwrap();
    for directive in directives {
        let namespace = directive["Namespace"].as_str().unwrap();
        assert!(namespace.starts_with(NAMESPACE), "{line}");
        for dimension in directive["Dimensions"].as_array().unwrap().iter().flat_map(|set| set.as_array().unwrap()) {
            let dimension = dimension.as_str().unwrap();
            assert!(DIMENSIONS.contains(&dimension) && line[dimension].is_string(), "{line}");
        }
    }
    let metrics = directives.iter().flat_map(|directive| directive["Metrics"].as_array().unwrap());
    metrics
        .map(|metric| {
            let name = metric["Name"].as_str().unwrap();
            assert!(Metric::ALL.iter().any(|known| known.name() == name), "{line}");
            (name.to_owned(), line[name].as_u64().unwrap())
        })
        .collect()
}

/// Promise: two log lines and 800 bytes for a good delivery.
#[tokio::test(flavor = "multi_thread")]
async fn successful_delivery_logs_two_lines_and_800_bytes_at_most() {
    const ORDERS: usize = 5;
    const EACH: usize = 8;
    let lines = Lines::default();
    let decided = DecisionLog::logging(&lines, "INFO");
    let mut deployment = LocalDeployment::start_observed(SOURCES, Arc::new(decided.clone())).await;
    let started = Arc::new(Mutex::new(Vec::new()));
    let noted = started.clone();
    deployment.local.work(move |_| {
        let noted = noted.clone();
        answering(move |delivery, _| {
            noted.lock().unwrap().push((delivery.delivery_id().to_string(), delivery.sequence().0));
            Outcome::Done
        })
    });
    let now = deployment.env.now();
    for number in 0..EACH {
        for order in 0..ORDERS {
            // An id as long as Shopify's, the longest of all providers.
            let id = format!("b54557e4-bdd9-4b37-8a5f-bf7d70b{order:02}{number:03}");
            let order = format!("45078946{order}");
            let body = update(&order);
            let webhook = signed(&deployment.sources, "shipping", &id, body, now);
            assert_eq!(deployment.post(&webhook).await.status, 200);
        }
    }
    decided.until(ORDERS * EACH).await;
    deployment.local.stop().await.expect("nothing had failed");
    decided.1.end();

    // Leaves out the sweep's line, which is written only if a minute has passed.
    let text: String =
        lines.text().split_inclusive('\n').filter(|line| !line.contains("OldestWaitingSeconds")).collect();
    let json: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let deliveries = ORDERS * EACH;
    println!("{} lines, {} bytes for {deliveries} deliveries", json.len(), text.len());
    assert!(json.len() <= 2 * deliveries, "{} lines for {deliveries}", json.len());
    assert!(text.len() <= 800 * deliveries, "{} bytes for {deliveries}", text.len());

    // Each of three ids leads from a delivery's request to its settle.
    for (id, sequence) in &*started.lock().unwrap() {
        let of_it: Vec<_> = json.iter().filter(|line| line["delivery"] == id.as_str()).collect();
        let [accepted, settled] = of_it.as_slice() else { panic!("{id}: {of_it:?}") };
        for line in [accepted, settled] {
            assert_eq!(line["sequence"], *sequence);
            assert_eq!(line["entity"], accepted["entity"]);
            assert_eq!(line["source"], "shipping");
            assert!(line["request"].is_string() && line["level"] == "INFO");
        }
        assert_eq!((&accepted["message"], &settled["message"]), (&"accepted".into(), &"settled".into()));
        // This is the only metric counted by source. The other fields are for people and queries.
        assert_eq!(metrics_of(accepted), BTreeMap::from([("Accepted".to_owned(), 1)]));
        assert_eq!((metrics_of(settled), &settled["Delivered"]), (BTreeMap::new(), &1.into()));
        assert!(settled["LagMs"].is_u64() && settled["HandlerMs"].is_u64(), "{settled}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn outcome_metrics_are_counted_at_every_log_level() {
    let lines = Lines::default();
    let log = JsonLog::to(lines.clone(), log_level(Some("ERROR")), Env::system());
    let decided = DecisionLog::by(log.detailed(true));
    let mut deployment = LocalDeployment::start_observed(SOURCES, Arc::new(decided.clone())).await;
    deployment.local.work(|_| {
        answering(|delivery, _| match delivery.delivery_id().as_str() {
            "fails" => Outcome::retry("it fails"),
            "rejected" => Outcome::Reject("it is refused".into()),
            _ => Outcome::Done,
        })
    });
    let now = deployment.env.now();
    let posted = [
        ("test", "fine", "1"),
        ("test", "fine", "1"),
        ("test", "fails", "2"),
        ("test", "rejected", "3"),
        ("block", "fails", "4"),
    ];
    for (source, id, order) in posted {
        let webhook = signed(&deployment.sources, source, id, body(order), now);
        assert_eq!(deployment.post(&webhook).await.status, 200, "{id}");
    }
    decided.until(posted.len()).await;
    deployment.local.stop().await.expect("nothing had failed");
    decided.1.end();

    let mut sums: BTreeMap<(String, String, String), u64> = BTreeMap::new();
    for line in lines.json() {
        assert!(line.get("entity").is_none() && line.get("delivery").is_none(), "metrics only: {line}");
        let of = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        for (name, value) in metrics_of(&line).into_iter().filter(|(name, _)| !name.ends_with("Ms")) {
            *sums.entry((name, of("source"), of("outcome"))).or_default() += value;
        }
    }
    let expected = [
        ("Accepted", "block", "accepted", 1),
        ("Accepted", "test", "accepted", 4),
        ("Blocked", "block", "blocked", 1),
        ("Delivered", "test", "applied", 1),
        ("Parked", "test", "parked", 2),
        ("Repeated", "test", "repeat", 1),
        ("Retries", "test", "retry", 1),
    ];
    let expected =
        expected.map(|(name, source, outcome, sum)| ((name.to_owned(), source.to_owned(), outcome.to_owned()), sum));
    sums.retain(|(name, ..), _| expected.iter().any(|((known, ..), _)| known == name));
    assert_eq!(sums, BTreeMap::from(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_logged_by_source_in_few_lines() {
    let lines = Lines::default();
    let deployment = LocalDeployment::start_observed(SOURCES, Arc::new(DecisionLog::logging(&lines, "INFO"))).await;
    let now = deployment.env.now();
    let mut forged = signed(&deployment.sources, "test", "1", body("1"), now);
    forged.body.push(b' ');
    let post = async |source: &str, status: u16| {
        let webhook = SignedWebhook { source: source.into(), ..forged.clone() };
        assert_eq!(deployment.sender.post(&webhook).await.unwrap().status, status, "{source}");
    };
    post("early", 503).await;
    post("tset", 404).await;
    for _ in 0..100 {
        post("test", 401).await;
        post("made-up", 404).await;
        post("made-up-too", 404).await;
    }
    deployment.local.stop().await.expect("nothing had failed");

    let logged = lines.json();
    let of = |message: &str| logged.iter().filter(|line| line["message"] == message).cloned().collect::<Vec<_>>();
    let [early] = &of("no secret")[..] else { panic!("{logged:?}") };
    assert_eq!((&early["level"], &early["source"]), (&"WARN".into(), &"early".into()));
    let zero = |line: &Value| metrics_of(line).get("Accepted").copied();
    assert_eq!((zero(early), metrics_of(early)["Refused"]), (Some(0), 1));
    // On a slow machine the run takes at most a minute, with a line every ten seconds.
    let refused = of("not verified");
    assert!((1..=7).contains(&refused.len()) && refused.iter().all(|line| zero(line) == Some(0)), "{refused:?}");
    assert!(refused[0]["reason"].as_str().is_some_and(|reason| reason.contains("no configured secret")));
    let unknown = of("no such source");
    assert!((1..=7).contains(&unknown.len()), "{unknown:?}");
    assert!(unknown.iter().all(|line| line["source"] == "(none)" && zero(line).is_none()), "{unknown:?}");
    assert_eq!(unknown[0]["reason"], "the URL names `tset`; the nearest source is `test`");
}

/// WooCommerce disables a webhook after more than five failures in a row.
#[tokio::test(flavor = "multi_thread")]
async fn successive_refusals_are_reported_at_half_of_providers_limit() {
    let lines = Lines::default();
    let deployment = LocalDeployment::start_observed(SOURCES, Arc::new(DecisionLog::logging(&lines, "INFO"))).await;
    let now = deployment.env.now();
    let topic = [("x-wc-webhook-topic", "order.updated"), ("x-wc-webhook-source", "https://shop.example/")];
    let good = signed_as(&deployment.sources, "woo", &topic, r#"{"id":727}"#, now);
    let mut forged = good.clone();
    forged.body.push(b' ');
    let logged = || lines.json().iter().filter(|line| line["RefusedInARow"] == 1).count();
    for _ in 0..2 {
        assert_eq!(deployment.sender.post(&forged).await.unwrap().status, 401);
    }
    assert_eq!(deployment.post(&good).await.status, 200);
    for (refused, expected) in [0, 0, 1, 1].into_iter().enumerate() {
        assert_eq!(deployment.sender.post(&forged).await.unwrap().status, 401);
        assert_eq!(logged(), expected, "after {} since one was accepted", refused + 1);
    }
    deployment.local.stop().await.expect("nothing had failed");
}

#[tokio::test(start_paused = true)]
async fn exclusive_lease_durations_are_logged() {
    let world = TestWorld::new();
    let lines = Lines::default();
    let log = Arc::new(JsonLog::to(lines.clone(), log_level(None), world.env.clone()).detailed(true));
    let key = EntityKey::parse("test/a").expect("a key");
    let leases = world.leases("a test").observed_by(log);
    let visit = async || {
        let work = async |_| {
            world.env.sleep(Duration::from_secs(2)).await;
            Ok::<_, Infallible>(())
        };
        leases.run(&key, Terms::default(), work).await.expect("it is granted");
    };
    tokio::join!(visit(), visit());
    drop(leases.acquire(&key, Terms::default()).await.expect("it is granted"));
    leases.acquire(&key, Terms::default()).await.expect("it runs out").release().await.expect("it is ours");
    let metrics: Vec<(String, u64)> = lines.json().iter().flat_map(metrics_of).collect();
    let of =
        |name: &str| metrics.iter().filter(|(known, _)| known == name).map(|(_, value)| *value).collect::<Vec<_>>();
    assert_eq!(of("HoldMs"), [2000, 2000, 0]);
    assert_eq!((of("WaitMs").len(), of("Polls").len(), of("TakenOver")), (2, 2, vec![1]));
    assert!(lines.text().contains("lease dropped without release"));
}

#[tokio::test(start_paused = true)]
async fn failed_job_is_counted_without_error_text() {
    const MINUTE: Duration = Duration::from_secs(60);
    let world = TestWorld::new();
    let lines = Lines::default();
    let log = Arc::new(JsonLog::to(lines.clone(), log_level(Some("DEBUG")), world.env.clone()));
    let fails = |_: Context| async { Err::<(), JobError>(MARK.into()) };
    let hangs = Arc::new(Mutex::new(3));
    let once = Arc::new(Mutex::new(1));
    let crash = |left: &Arc<Mutex<u32>>| {
        let left = left.clone();
        move |_: Context| {
            let mut left = left.lock().expect("no one panics while holding this");
            let is_to_hang = *left > 0;
            *left = left.saturating_sub(1);
            async move { if is_to_hang { std::future::pending().await } else { Ok::<_, JobError>(()) } }
        }
    };
    let jobs = Jobs::new()
        .add(Job::new("fails", "every 10 minutes", fails))
        .add(Job::new("again", "every 10 minutes", crash(&hangs)))
        .add(Job::new("skips", "every 10 minutes", crash(&once)).on_crash(OnCrash::Skip));
    let ticker = Ticker::new(world.store(), &jobs, MINUTE, &Switch::On, HolderInfo::new("a test"));
    let ticker = ticker.expect("the jobs are right").isolated(Isolation::Inline).observed_by(log);
    let tick = || ticker.tick(world.env.now(), world.env.monotonic() + MINUTE);
    for _ in 0..3 {
        let killed = world.env.within(MINUTE / 2, tick()).await;
        assert!(killed.is_none(), "it was over before it could be killed");
        world.env.sleep(150 * Duration::from_secs(1)).await;
    }
    world.env.sleep(MINUTE).await;
    tick().await.expect("memory answers");

    let logged = lines.json();
    let failures = logged.iter().filter(|line| line["JobsFailed"] == 1);
    let failures: Vec<(&str, &str)> =
        failures.map(|line| (line["job"].as_str().unwrap(), line["message"].as_str().unwrap())).collect();
    // A job that is not started again is reported at its next tick. A job that crashes each time is reported
    // instead of its fourth start.
    let expected =
        [("fails", "job failed"), ("fails", "job failed"), ("again", "job crashed"), ("skips", "job crashed")];
    assert_eq!(failures, expected);
    let counted: u64 =
        logged.iter().flat_map(metrics_of).filter(|(name, _)| name == "JobsFailed").map(|(_, n)| n).sum();
    assert_eq!(counted, 4);
    assert!(!lines.text().contains(MARK));
}

#[tokio::test(start_paused = true)]
async fn log_names_lease_holder_that_prevents_a_tick() {
    const MINUTE: Duration = Duration::from_secs(60);
    let world = TestWorld::new();
    let lines = Lines::default();
    let writer = lines.clone();
    let logged = tracing_subscriber::fmt().with_max_level(log_level(Some("WARN"))).with_writer(move || writer.clone());
    let _guard = logged.finish().set_default();
    let jobs = Jobs::new().add(Job::new("nightly", "every minute", |_: Context| async { Ok::<_, JobError>(()) }));
    let ticker = Ticker::new(world.store(), &jobs, MINUTE, &Switch::On, HolderInfo::new("a test"));
    let ticker = ticker.expect("the job is right").isolated(Isolation::Inline);
    let key = EntityKey::parse("cron/nightly").expect("a key");
    let guard = world.leases("somebody at a desk").acquire(&key, Terms::default()).await.expect("it is free");
    ticker.tick(world.env.now(), world.env.monotonic() + MINUTE).await.expect("memory answers");
    guard.release().await.expect("it is ours");
    let logged = lines.text();
    assert!(logged.contains("skipped") && logged.contains("somebody at a desk"), "{logged}");
}

#[tokio::test(start_paused = true)]
async fn number_of_missed_ticks_is_logged() {
    const MINUTE: Duration = Duration::from_secs(60);
    let world = TestWorld::new();
    let lines = Lines::default();
    let writer = lines.clone();
    let logged = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
    let _guard = logged.with_max_level(log_level(Some("WARN"))).finish().set_default();
    let jobs = Jobs::new().add(Job::new("report", "every minute", |_: Context| async { Ok::<_, JobError>(()) }));
    let ticker = Ticker::new(world.store(), &jobs, MINUTE, &Switch::On, HolderInfo::new("a test"));
    let ticker = ticker.expect("the job is right").isolated(Isolation::Inline);
    for minutes in [0, 1, 4, 1] {
        world.env.sleep(minutes * MINUTE).await;
        ticker.tick(world.env.now(), world.env.monotonic() + MINUTE).await.expect("memory answers");
    }
    let logged = lines.json();
    let [missed] = &logged[..] else { panic!("{logged:?}") };
    assert_eq!((&missed["job"], &missed["left_out"]), (&"report".into(), &3.into()));
}
