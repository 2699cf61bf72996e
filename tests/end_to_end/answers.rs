//! Writes in the answers of functions and endpoints land in the transaction that settles the delivery.

use serde_json::{Value as Json, json};
use serializer::local::TOTALS_TABLE;
use tests::{prelude::*, settle_counter::SettleCounter};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use webhook_serializer::{
    aws::Account,
    handlers::{
        forward::{ANSWER, Forward},
        invoke::Invoke,
    },
};

const SOURCE: &str = "provider = 'standard-webhooks'\nsecrets = ['whsec_Zk93bTR6S2dRcTdUaHBY']\n\
                      retry = { attempts = 2, first = '10ms' }\n";

/// Answers each request with the JSON document that `answer` makes of the request's body, until the test ends.
async fn serve(answer: impl Fn(&Json) -> Json + Clone + Send + Sync + 'static) -> String {
    serve_with(ANSWER, "", answer).await
}

/// Like [`serve`], with the content type `kind` and further header lines, each with its line end.
async fn serve_with(
    kind: &'static str,
    headers: &'static str,
    answer: impl Fn(&Json) -> Json + Clone + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(respond(stream, kind, headers, answer.clone()));
        }
    });
    url
}

async fn respond(mut stream: TcpStream, kind: &str, headers: &str, answer: impl Fn(&Json) -> Json) {
    let mut received = Vec::new();
    let body = loop {
        let mut chunk = [0; 65_536];
        let read = stream.read(&mut chunk).await.expect("the request arrives");
        received.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&received);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) || read == 0 {
            break serde_json::from_str(body).unwrap_or_default();
        }
    };
    let body = answer(&body).to_string();
    let head = format!("content-type: {kind}; charset=utf-8\r\ncontent-length: {}\r\nconnection: close", body.len());
    let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{headers}{head}\r\n\r\n{body}").as_bytes()).await;
}

fn count(table: &str, order: &str, by: usize) -> Json {
    json!({ "Update": {
        "TableName": table, "Key": { "order": { "S": order } }, "UpdateExpression": "ADD #n :by",
        "ExpressionAttributeNames": { "#n": "n" }, "ExpressionAttributeValues": { ":by": { "N": by.to_string() } },
    } })
}

fn invoke(testbed: &TestBed, url: &str) -> Invoke {
    let account = Account { lambda_endpoint: Some(url.to_owned()), ..Account::local(url, url) };
    Invoke::new(testbed.sources().clone(), &account, &account.http_client(), &Env::system())
}

async fn total(testbed: &TestBed, order: &str) -> Option<u64> {
    let row = testbed.table().get(&Key::named(TOTALS_TABLE, "order", order)).await.expect("it answers")?;
    row.number("n")
}

/// A function that only counts, without ids or tokens, alone and in groups.
///
/// Promise: DynamoDB writes in an answer, from any language, land once with the settle; a mistake is named, and writes
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn functions_writes_land_once_with_the_settle() {
    let url = serve(|event| {
        let order = event["entity_key"].as_str().expect("a text");
        let deliveries = event["deliveries"].as_array().expect("a list").len();
        json!({ "outcome": "done", "commit": [count(TOTALS_TABLE, order, deliveries)] })
    })
    .await;
    let sources = format!(
        "[sources.one]\n{SOURCE}handler = 'invoke'\ninvoke = {{ function = 'orders' }}\n\
         [sources.several]\n{SOURCE}handler = 'invoke'\ninvoke = {{ function = 'orders' }}\ndeliver = {{ up_to = 4 }}\n"
    );
    let mut testbed = TestBed::start_for(&sources).await;
    let settled = SettleCounter::default();
    let orders = ["one/a", "one/b", "several/c", "several/d"];
    for number in 0..6 {
        for order in orders {
            let source = order.split('/').next().expect("a source");
            let incoming = tests::testbed::incoming(source, order, &format!("{order}-{number}"), testbed.env().now());
            testbed.inbox().append(&incoming).await.expect("it is appended");
        }
    }
    for _ in 0..3 {
        let parts = testbed.parts();
        let handler = invoke(&testbed, &url);
        testbed.feed(testbed.drainer_on(parts.store, parts.waker, handler, Arc::new(settled.clone())));
    }
    settled.until(24).await;
    testbed.rest().await;
    for order in orders {
        assert_eq!(total(&testbed, order).await, Some(6), "{order}");
    }
}

/// Each delivery's answer has another mistake. Nothing is written, and the delivery's error names the mistake.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_commit_parks_the_delivery_with_its_reason() {
    let table = |name: &str| json!([count(name, "x", 1)]);
    let failing = json!([{ "ConditionCheck": {
        "TableName": TOTALS_TABLE, "Key": { "order": { "S": "none" } }, "ConditionExpression": "attribute_exists(n)",
    } }, count(TOTALS_TABLE, "x", 1)]);
    let mut another_key = count(TOTALS_TABLE, "x", 1);
    another_key["Update"]["Key"] = json!({ "id": { "S": "x" } });
    let mut text_added = count(TOTALS_TABLE, "x", 1);
    text_added["Update"]["ExpressionAttributeValues"][":by"] = json!({ "S": "1" });
    let cases = BTreeMap::from([
        ("misspelt", (json!([{ "Updat": {} }]), "`commit[0]` must have one of Put, Update")),
        ("twice", (json!([count(TOTALS_TABLE, "x", 1), count(TOTALS_TABLE, "x", 1)]), "ValidationException")),
        ("unknown", (table("no-such-table"), "ResourceNotFoundException")),
        ("key", (json!([another_key]), "ValidationError: ")),
        ("kind", (json!([text_added]), "ValidationError: ")),
        ("own", (table("entities"), "the serializer's own tables are written by nobody else")),
        ("condition", (failing, "a condition of the handler's own writes did not hold")),
    ]);
    let answers = cases.clone();
    let url = serve(move |event| {
        let id = event["entity_key"].as_str().and_then(|order| order.strip_prefix("shop/")).expect("an order");
        json!({ "outcome": "done", "commit": answers[id].0 })
    })
    .await;
    let sources = format!("[sources.shop]\n{SOURCE}handler = 'invoke'\ninvoke = {{ function = 'orders' }}\n");
    let mut testbed = TestBed::start_for(&sources).await;
    for id in cases.keys() {
        let incoming = tests::testbed::incoming("shop", &format!("shop/{id}"), id, testbed.env().now());
        testbed.inbox().append(&incoming).await.expect("it is appended");
    }
    let handler = invoke(&testbed, &url);
    testbed.work(1, &handler);
    testbed.until_no_wake_ups().await;
    testbed.rest().await;
    let parked = testbed.operator().all_parked().await.expect("it answers");
    let errors: BTreeMap<_, _> =
        parked.iter().map(|parked| (parked.delivery().delivery_id().as_str(), parked.error.as_str())).collect();
    for (id, (_, expected)) in &cases {
        assert!(errors[id].contains(expected), "{id}: {}", errors[id]);
    }
    assert_eq!(total(&testbed, "x").await, None);
}

/// An endpoint may write only the tables that its source names.
#[tokio::test(flavor = "multi_thread")]
async fn endpoints_write_only_the_tables_of_their_source() {
    let url = serve(|_| json!({ "outcome": "done", "commit": [count(TOTALS_TABLE, "x", 1)] })).await;
    let compressing =
        serve_with(ANSWER, "content-encoding: gzip\r\n", |_| json!({ "outcome": "done", "commit": [] })).await;
    let plain = serve_with("application/json", "", |_| json!({ "outcome": "done", "commit": [] })).await;
    let source = |name: &str, commit: &str| {
        let url = match name {
            "gzip" => &compressing,
            "json" => &plain,
            _ => &url,
        };
        format!(
            "[sources.{name}]\n{SOURCE}handler = 'forward'\nforward = {{ url = '{url}', secret = \
             'whsec_Zk93bTR6S2dRcTdUaHBY', allow_private = true{commit} }}\n"
        )
    };
    let sources = source("may", &format!(", commit = '{TOTALS_TABLE}'"))
        + &source("another", ", commit = ['another']")
        + &source("none", "")
        + &source("gzip", ", commit = ['another']")
        + &source("json", ", commit = ['another']");
    let mut testbed = TestBed::start_for(&sources).await;
    for name in ["may", "another", "none", "gzip", "json"] {
        let incoming = tests::testbed::incoming(name, &format!("{name}/1"), name, testbed.env().now());
        testbed.inbox().append(&incoming).await.expect("it is appended");
    }
    let handler = Forward::new(testbed.sources().clone());
    testbed.work(1, &handler);
    testbed.until_no_wake_ups().await;
    testbed.rest().await;
    assert_eq!(total(&testbed, "x").await, Some(1));
    let parked = testbed.operator().all_parked().await.expect("it answers");
    let mut errors: Vec<_> = parked.iter().map(|parked| parked.error.as_str()).collect();
    errors.sort_unstable();
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert!(errors[0].contains("the answer has `commit`, but not the content type"), "{errors:?}");
    assert!(errors[3].contains("`commit[0]` names a table that the source's `forward.commit` lacks"), "{errors:?}");
    assert!(errors[2].contains("the answer is compressed, so its writes cannot be read"), "{errors:?}");
    assert!(errors[1].contains("but the source's `forward` has no `commit`"), "{errors:?}");
}
