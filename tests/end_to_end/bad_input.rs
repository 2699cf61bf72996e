//! Answers to bad requests, and configurations with which a function does not start.

use std::{path::Path, process::Command};

use tests::{prelude::*, settle_counter::SettleCounter, testbed::SOURCES};

type HeaderList = Vec<(String, String)>;

/// Promise: 401, 404, 405, 415.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_request_is_refused_and_stores_nothing() {
    let deployment = LocalDeployment::start(SOURCES).await;
    let now = deployment.env.now();
    let good = signed(&deployment.sources, "test", "1", update("7"), now);
    let with = |name: &str, value: Option<&str>| -> HeaderList {
        let others = good.headers.iter().filter(|(held, _)| held != name).cloned();
        others.chain(value.map(|value| (name.to_owned(), value.to_owned()))).collect()
    };
    let stale =
        signed(&deployment.sources, "test", "1", update("7"), Timestamp::from_millis(now.as_millis() - 301_000));
    let early = signed(&deployment.sources, "test", "1", update("7"), now + Duration::from_secs(330));
    let other = signed(&deployment.sources, "test", "2", update("7"), now);
    let others_signature = other.headers.iter().find(|(name, _)| name == "webhook-signature").expect("it is signed");
    let path = "/webhooks/test";
    let twice = [others_signature].into_iter().chain(&good.headers).cloned().collect();
    let cases: [(&str, &str, &str, HeaderList, u16); 17] = [
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
        let answer = deployment.sender.request(method, path, &headers, good.body.clone()).await.expect("it answers");
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
    }
    let gzip = with("content-encoding", Some("gzip"));
    let said = deployment.sender.request("POST", path, &gzip, good.body.clone()).await.expect("it answers").body;
    assert!(said.contains("send it as it is, without content-encoding"), "what to do about it: {said}");
    let mut changed = good.body.clone();
    changed.push(b' ');
    assert_eq!(
        deployment.sender.request("POST", path, &good.headers, changed).await.unwrap().status,
        401,
        "another body"
    );
    assert_eq!(deployment.local.engines.wake_ups(), 0);
    let entity = key("test/order/7");
    assert_eq!(deployment.operator().inspect(&entity).await.unwrap().state, None, "nothing was kept");
    assert_eq!(deployment.post(&good).await.status, 200, "the one that the others were made from");
    deployment.local.stop().await.expect("nothing had failed");
}

/// Promise: a delivery without an order is parked under `<source>/unrouted`.
#[tokio::test(flavor = "multi_thread")]
async fn delivery_without_an_order_is_parked_as_unrouted() {
    let settled = SettleCounter::default();
    let mut deployment = LocalDeployment::start_observed(SOURCES, Arc::new(settled.clone())).await;
    let kept = DeliveryCollector::default();
    deployment.local.work(|_| kept.clone());
    // The key of this last one contains a character that no queue message can carry.
    let uncarried = update("7\u{ffff}");
    for (id, body) in [("1", "no JSON"), ("2", r#"{"type":"order.updated"}"#), ("3", &uncarried)] {
        let webhook = signed(&deployment.sources, "test", id, body, deployment.env.now());
        assert_eq!(deployment.post(&webhook).await.status, 200, "not refused: {body}");
    }
    settled.until(3).await;
    let unrouted = key("test/unrouted");
    let operator = deployment.operator();
    let parked = operator.parked(&unrouted).await.unwrap();
    assert_eq!(parked.iter().map(|one| one.delivery().delivery_id().as_str()).collect::<Vec<_>>(), ["1", "2", "3"]);
    assert_eq!(parked[2].delivery().body(), uncarried.as_bytes());
    let belongs = key("test/order/7");
    operator.redrive(&parked[1], Some(&belongs)).await.unwrap();
    let deliveries = kept.first(1).await;
    assert_eq!((deliveries[0].entity(), deliveries[0].delivery_id().as_str()), (&belongs, "2"));
    assert_eq!(operator.parked(&unrouted).await.unwrap().len(), 2);
    deployment.local.stop().await.expect("nothing had failed");
}

/// Starts the worker's binary with a configuration that it refuses; returns its output.
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
        // The port is closed: with a valid configuration the worker would end here, with another message.
        ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1"),
        ("ENTITIES_TABLE", "entities"),
        ("INBOX_TABLE", "inbox"),
        ("QUEUE_URL", "http://127.0.0.1:1/000000000000/wake-ups"),
        ("JOURNAL", "/dev/null"),
    ]);
    command.env("SOURCES", format!("file:{}", file.display()));
    for (name, value) in changes {
        command.env(name, value);
    }
    let output = command.output().expect("it runs");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("a text") + &String::from_utf8_lossy(&output.stdout)
}

fn md5_of(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[test]
fn function_with_invalid_configuration_does_not_start() {
    for (changes, named) in [
        (&[("ENTITIES_TABLE", "")][..], &["ENTITIES_TABLE", "is not set"][..]),
        (&[("QUEUE_URL", "")], &["QUEUE_URL", "is not set"]),
        (&[("AWS_REGION", "")], &["AWS_REGION"]),
        (&[("LEASE_SECONDS", "soon")], &["LEASE_SECONDS", "soon"]),
        (&[("LEASE_SECONDS", "60")], &["LEASE_SECONDS", "less than FUNCTION_TIMEOUT_SECONDS"]),
        (&[("FUNCTION_TIMEOUT_SECONDS", "90")], &["FUNCTION_TIMEOUT_SECONDS", "less than VISIBILITY_TIMEOUT_SECONDS"]),
        (&[("FUNCTION_TIMEOUT_SECONDS", "30")], &["FUNCTION_TIMEOUT_SECONDS", "slow", "handler_timeout"]),
        (&[("RETENTION_DAYS", "0")], &["RETENTION_DAYS"]),
        (&[("SOURCES", "file:/no/such/file")], &["SOURCES", "/no/such/file"]),
    ] {
        let said = refused(SOURCES, changes);
        for name in named {
            assert!(said.contains(name), "{changes:?}: {name} is missing in {said}");
        }
    }
}

#[test]
fn function_without_runtime_api_does_not_start() {
    let nowhere = "http://127.0.0.1:1";
    let said = refused(SOURCES, &[("AWS_ENDPOINT_URL_DYNAMODB", nowhere), ("AWS_ENDPOINT_URL_SQS", nowhere)]);
    assert!(said.contains("cannot start") && !said.contains("SOURCES:"), "{said}");
}

#[test]
fn refused_start_with_invalid_sources_hides_secrets() {
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
        assert!(said.contains("SOURCES:") && said.contains(named), "{lines}: {said}");
        assert!(!said.contains("bm90IHRvIGJlIHNob3du"), "{lines}: {said}");
    }
}
