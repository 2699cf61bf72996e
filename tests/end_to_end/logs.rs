//! No secret, no signature and no body is in any log line: of a run in which
//! everything that can go wrong does, logged at the finest level there is.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use shared::{
    entity::EntityKey,
    handler::Outcome,
    telemetry::{Event, Log, Observer, log_level},
};
use tests::{handlers::answering, lane::Lane, webhooks::signed};
use tokio::sync::watch;

const SECRET: &str = "bm90IHRvIGJlIGxvZ2dlZA==";
const FORMER_SECRET: &str = "bm90IHRvIGJlIGxvZ2dlZCBlaXRoZXI=";
const MARK: &str = "not-to-be-logged-either";

const SOURCES: &str = r#"
[sources.test]
provider = "standard-webhooks"
secrets = ["whsec_bm90IHRvIGJlIGxvZ2dlZA==", "whsec_bm90IHRvIGJlIGxvZ2dlZCBlaXRoZXI="]
handler = "test"
retry = { attempts = 2, first = "10ms" }

[sources.block]
provider = "standard-webhooks"
secrets = ["whsec_bm90IHRvIGJlIGxvZ2dlZA=="]
handler = "test"
retry = { attempts = 1 }
on_failure = "block"
"#;

/// All that is logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no one panics while holding this").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Logs, and counts what was settled or blocked.
#[derive(Debug, Clone, Default)]
struct Decided(watch::Sender<usize>);

impl Observer for Decided {
    fn observe(&self, event: &Event<'_>) {
        Log.observe(event);
        if matches!(event, Event::Settled { .. } | Event::Blocked { .. }) {
            self.0.send_modify(|decided| *decided += 1);
        }
    }
}

/// A body with the mark in it, about an order.
fn body(order: &str) -> String {
    format!(r#"{{"type":"order.updated","note":"{MARK}","data":{{"order_id":"{order}"}}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_secret_and_no_body_is_in_any_log_line() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt().with_max_level(log_level(Some("TRACE"))).with_writer(move || writer.clone()).init();
    let decided = Decided::default();
    let mut lane = Lane::start_observed(SOURCES, Arc::new(decided.clone())).await;
    lane.local.work(|_| {
        answering(|delivery, _| {
            // Handlers quote bodies in their errors.
            let error = String::from_utf8_lossy(delivery.body()).into_owned();
            match delivery.delivery_id().as_str() {
                "fails" => Outcome::retry(error),
                "rejected" => Outcome::Reject(error),
                "panics" => panic!("{}", "in a test's handler"),
                _ => Outcome::Done,
            }
        })
    });
    let now = lane.surroundings.now();
    let mut hidden = [SECRET, FORMER_SECRET, MARK].map(str::to_owned).to_vec();
    for (source, id, body) in [
        ("test", "fine", body("1")),
        ("test", "fails", body("1")),
        ("test", "rejected", body("2")),
        ("test", "panics", body("2")),
        ("test", "unrouted", MARK.to_owned()),
        ("block", "fails", body("3")),
    ] {
        let webhook = signed(&lane.sources, source, id, body, now);
        let signatures = webhook.headers.iter().filter(|(name, _)| name == "webhook-signature");
        hidden.extend(signatures.map(|(_, value)| value.trim_start_matches("v1,").to_owned()));
        // As a store's requests have it.
        hidden.push(STANDARD.encode(&webhook.body));
        assert_eq!(lane.post(&webhook).await.status, 200, "{id}");
        let mut forged = webhook.clone();
        forged.body.push(b' ');
        assert_eq!(lane.sender.post(&forged).await.unwrap().status, 401, "{id}");
        forged.headers.retain(|(name, _)| name != "webhook-signature");
        assert_eq!(lane.sender.post(&forged).await.unwrap().status, 401, "{id}");
        forged.source = "nobody".into();
        assert_eq!(lane.sender.post(&forged).await.unwrap().status, 404, "{id}");
    }
    let mut all = decided.0.subscribe();
    // The sender lives in `decided`, so the channel is open.
    let _ = all.wait_for(|decided| *decided == 6).await;
    let operator = lane.operator();
    for parked in operator.parked(&EntityKey::parse("test/order/2").unwrap()).await.unwrap() {
        operator.redrive(&parked, None).await.unwrap();
    }
    lane.local.stop().await.expect("nothing had failed");

    let logged = String::from_utf8(lines.0.lock().unwrap().clone()).expect("a text");
    for expected in ["accepted", "settled", "attempt failed", "blocked", "not verified"] {
        assert!(logged.contains(expected), "it is logged that something was {expected}");
    }
    for hidden in hidden {
        let shown = logged.lines().find(|line| line.contains(&hidden));
        assert_eq!(shown, None, "{hidden}");
    }
}
