//! Bad input, each with its answer; and configurations that stop the start.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tests::{
    handlers::Done,
    lane::{Kept, Lane},
    settled::Settled,
    stage::{SOURCES, Stage},
    webhooks::{signed, update},
};
use webhook_serializer::{
    aws::Parts,
    engine::queue::{Message, Queue, QueueError, Visibility},
    functions::worker::{Attributes, Record, SqsEvent, Worker},
    protocol::entity::EntityKey,
};

type Headers = Vec<(String, String)>;

#[tokio::test(flavor = "multi_thread")]
async fn each_bad_request_has_its_answer_and_leaves_nothing() {
    let lane = Lane::start(SOURCES).await;
    let now = lane.env.now();
    let good = signed(&lane.sources, "test", "1", update("7"), now);
    let with = |name: &str, value: Option<&str>| -> Headers {
        let others = good.headers.iter().filter(|(held, _)| held != name).cloned();
        others.chain(value.map(|value| (name.to_owned(), value.to_owned()))).collect()
    };
    let stale = signed(
        &lane.sources,
        "test",
        "1",
        update("7"),
        webhook_serializer::time::Timestamp::from_millis(now.as_millis() - 301_000),
    );
    let early = signed(&lane.sources, "test", "1", update("7"), now + Duration::from_secs(330));
    let other = signed(&lane.sources, "test", "2", update("7"), now);
    let others_signature = other.headers.iter().find(|(name, _)| name == "webhook-signature").expect("it is signed");
    let path = "/webhooks/test";
    let twice = [others_signature].into_iter().chain(&good.headers).cloned().collect();
    let cases: [(&str, &str, &str, Headers, u16); 17] = [
        ("unknown source", "POST", "/webhooks/nobody", good.headers.clone(), 404),
        ("no source", "POST", "/webhooks/", good.headers.clone(), 404),
        ("another path", "POST", "/", good.headers.clone(), 404),
        ("below a source", "POST", "/webhooks/test/more", good.headers.clone(), 404),
        ("wrong method", "GET", path, good.headers.clone(), 405),
        ("wrong method", "PUT", path, good.headers.clone(), 405),
        ("no headers", "POST", path, Vec::new(), 401),
        ("no signature", "POST", path, with("webhook-signature", None), 401),
        ("no timestamp", "POST", path, with("webhook-timestamp", None), 401),
        ("malformed signature", "POST", path, with("webhook-signature", Some("v1,%%%")), 401),
        ("malformed timestamp", "POST", path, with("webhook-timestamp", Some("now")), 401),
        ("stale", "POST", path, stale.headers.clone(), 401),
        ("from the future", "POST", path, early.headers.clone(), 401),
        ("two headers with a signature", "POST", path, twice, 401),
        ("compressed, and the signature right", "POST", path, with("content-encoding", Some("gzip")), 415),
        ("compressed, for nobody", "POST", "/webhooks/nobody", with("content-encoding", Some("gzip")), 404),
        ("another's signature", "POST", path, with("webhook-signature", Some(&others_signature.1)), 401),
    ];
    for (what, method, path, headers, status) in cases {
        let answer = lane.sender.request(method, path, &headers, good.body.clone()).await.expect("it answers");
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
    }
    let gzip = with("content-encoding", Some("gzip"));
    let said = lane.sender.request("POST", path, &gzip, good.body.clone()).await.expect("it answers").body;
    assert!(said.contains("send it as it is, without content-encoding"), "what to do about it: {said}");
    let mut changed = good.body.clone();
    changed.push(b' ');
    assert_eq!(lane.sender.request("POST", path, &good.headers, changed).await.unwrap().status, 401, "another body");
    assert_eq!(lane.local.engines.wake_ups(), 0);
    let entity = EntityKey::parse("test/order/7").unwrap();
    assert_eq!(lane.operator().inspect(&entity).await.unwrap().state, None, "nothing was kept");
    assert_eq!(lane.post(&good).await.status, 200, "the one that the others were made from");
    lane.local.stop().await.expect("nothing had failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_without_an_entity_is_kept_and_parked_and_can_be_put_where_it_belongs() {
    let settled = Settled::default();
    let mut lane = Lane::start_observed(SOURCES, Arc::new(settled.clone())).await;
    let kept = Kept::default();
    lane.local.work(|_| kept.clone());
    // The last one has an entity whose key no message of the queue could carry.
    let uncarried = update("7\u{ffff}");
    for (id, body) in [("1", "no JSON"), ("2", r#"{"type":"order.updated"}"#), ("3", &uncarried)] {
        let webhook = signed(&lane.sources, "test", id, body, lane.env.now());
        assert_eq!(lane.post(&webhook).await.status, 200, "not refused: {body}");
    }
    settled.until(3).await;
    let unrouted = EntityKey::parse("test/unrouted").unwrap();
    let operator = lane.operator();
    let parked = operator.parked(&unrouted).await.unwrap();
    assert_eq!(parked.iter().map(|one| one.delivery().delivery_id().as_str()).collect::<Vec<_>>(), ["1", "2", "3"]);
    assert_eq!(parked[2].delivery().body(), uncarried.as_bytes());
    let belongs = EntityKey::parse("test/order/7").unwrap();
    operator.redrive(&parked[1], Some(&belongs)).await.unwrap();
    let deliveries = kept.first(1).await;
    assert_eq!((deliveries[0].entity(), deliveries[0].delivery_id().as_str()), (&belongs, "2"));
    assert_eq!(operator.parked(&unrouted).await.unwrap().len(), 2);
    lane.local.stop().await.expect("nothing had failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_up_that_cannot_be_read_is_deleted_and_harms_no_other() {
    let mut stage = Stage::start().await;
    let client = {
        let account = stage.engines.account();
        account.sqs(&account.http_client())
    };
    for body in ["no JSON", "{}", r#"{"entity":"no-namespace"}"#, r#"{"entity":7}"#] {
        let url = stage.engines.config().queue_url;
        client.send_message().queue_url(url).message_body(body).send().await.expect("the queue takes it");
    }
    stage.inbox().append(&stage.incoming("test/a", "1")).await.unwrap();
    stage.work(1, &Done);
    stage.until_no_wake_ups().await;
    stage.rest().await;
    assert_eq!(stage.journal.runs().len(), 1);
}

/// A queue that is not there.
struct Nowhere;

impl Queue for Nowhere {
    fn send<'a>(&'a self, _: &'a Message, _: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(async { Err(QueueError::Unavailable("there is none".into())) })
    }
}

impl Visibility for Nowhere {
    fn hide<'a>(&'a self, _: &'a [String], _: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(async { Err(QueueError::Unavailable("there is none".into())) })
    }
}

/// A message whose receive count is missing is taken for one that came before:
/// it is not deleted before a fresh one was sent.
#[tokio::test]
async fn a_wake_up_without_its_receive_count_is_kept_unless_a_fresh_one_was_sent() {
    let stage = Stage::start().await;
    stage.inbox().append(&stage.incoming("test/a", "1")).await.unwrap();
    let batch = |count: &str| SqsEvent {
        records: vec![Record {
            message_id: "m".into(),
            receipt_handle: "m".into(),
            body: r#"{"entity":"test/a"}"#.into(),
            attributes: Attributes { approximate_receive_count: count.into() },
        }],
    };
    let Parts { store, .. } = stage.parts();
    let drainer = stage.drainer_on(store, stage.waker_on(Nowhere), Done, Arc::new(webhook_serializer::telemetry::Log));
    let worker = Worker::new(drainer, Arc::new(Nowhere), stage.env().clone());
    let deadline = stage.env().now() + Duration::from_secs(60);
    assert_eq!(worker.process(batch(""), deadline).await.batch_item_failures.len(), 1);
    assert!(stage.journal.runs().is_empty());
    assert!(worker.process(batch("1"), deadline).await.batch_item_failures.is_empty());
    assert_eq!(stage.journal.runs().len(), 1);
}

/// Starts the worker's binary with a configuration, which stops it; what it
/// says.
fn refused(sources: &str, changes: &[(&str, &str)]) -> String {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("configuration");
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join(format!("{:x}.toml", md5_of(sources)));
    std::fs::write(&file, sources).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_aborting_worker"));
    command.env_clear().envs([
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_LAMBDA_FUNCTION_NAME", "worker"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
        // Nobody is there: should a configuration pass, this ends it too, in other words.
        ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1"),
        ("ENTITIES_TABLE", "entities"),
        ("INBOX_TABLE", "inbox"),
        ("QUEUE_URL", "http://127.0.0.1:1/000000000000/wake-ups"),
        ("JOURNAL", "/dev/null"),
    ]);
    command.env("SOURCES_FILE", &file);
    for (name, value) in changes {
        command.env(name, value);
    }
    let output = command.output().expect("it runs");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("a text") + &String::from_utf8_lossy(&output.stdout)
}

/// Any number that tells these documents apart.
fn md5_of(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[test]
fn a_wrong_configuration_stops_the_start_and_names_what_is_wrong() {
    for (changes, named) in [
        (&[("ENTITIES_TABLE", "")][..], &["ENTITIES_TABLE", "is not set"][..]),
        (&[("QUEUE_URL", "")], &["QUEUE_URL", "is not set"]),
        (&[("AWS_REGION", "")], &["AWS_REGION"]),
        (&[("LEASE_SECONDS", "soon")], &["LEASE_SECONDS", "soon"]),
        (&[("LEASE_SECONDS", "60")], &["LEASE_SECONDS", "less than FUNCTION_TIMEOUT_SECONDS"]),
        (&[("FUNCTION_TIMEOUT_SECONDS", "90")], &["FUNCTION_TIMEOUT_SECONDS", "less than VISIBILITY_TIMEOUT_SECONDS"]),
        (&[("FUNCTION_TIMEOUT_SECONDS", "30")], &["FUNCTION_TIMEOUT_SECONDS", "slow", "handler_timeout"]),
        (&[("RETENTION_DAYS", "0")], &["RETENTION_DAYS"]),
        (&[("SOURCES_FILE", "/no/such/file")], &["SOURCES_FILE", "/no/such/file"]),
    ] {
        let said = refused(SOURCES, changes);
        for name in named {
            assert!(said.contains(name), "{changes:?}: {name} is missing in {said}");
        }
    }
}

/// Whoever starts it must not take it for done.
#[test]
fn a_function_without_a_runtime_to_ask_for_events_fails() {
    let nowhere = "http://127.0.0.1:1";
    let said = refused(SOURCES, &[("AWS_ENDPOINT_URL_DYNAMODB", nowhere), ("AWS_ENDPOINT_URL_SQS", nowhere)]);
    assert!(said.contains("cannot start") && !said.contains("SOURCES_FILE"), "{said}");
}

#[test]
fn a_wrong_sources_document_stops_the_start_names_the_source_and_shows_no_secret() {
    let secret = "whsec_bm90IHRvIGJlIHNob3du";
    let with = |lines: &str| format!("[sources.shop]\nsecrets = [\"{secret}\"]\n{lines}\n");
    for (lines, named) in [
        ("provider = 'nobody'\nhandler = 'test'", "`shop`"),
        ("provider = 'standard-webhooks'", "handler"),
        ("provider = 'standard-webhooks'\nhandler = 'test'\nhandler_timeout = 'long'", "line 5"),
        ("provider = 'standard-webhooks'\nhandler = 'test'\nsecret = 'whsec_bm90IHRvIGJlIHNob3du'", "secret"),
        ("provider = 'standard-webhooks'\nhandler = 'test'\nretry = { attempts = 0 }", "attempts"),
        ("provider = 'standard-webhooks'\nhandler = 'test'\nentity = '{nothing'", "entity"),
        (
            "provider = 'standard-webhooks'\nhandler = 'test'\non_failure = 'whsec_bm90IHRvIGJlIHNob3du'",
            "`park` or `block`",
        ),
    ] {
        let said = refused(&with(lines), &[]);
        assert!(said.contains("SOURCES_FILE") && said.contains(named), "{lines}: {said}");
        assert!(!said.contains("bm90IHRvIGJlIHNob3du"), "{lines}: {said}");
    }
}
