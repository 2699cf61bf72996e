//! The TypeScript of docs/leases.md, docs/jobs.md and the package's README, run as a user does.

use std::process::Stdio;

use serde_json::{Value, json};
use tests::prelude::*;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::Command,
};
use webhook_serializer::protocol::entity::EntityKey;

use crate::client::{self, Language};

/// Returns the command of a page's block, such as `leases_1`.
fn block(name: &str, testbed: &TestBed) -> Command {
    let mut command = client::program(Language::TypeScript, name);
    client::connect(&mut command, &testbed.engines, &testbed.engines.dynamodb_url());
    command.kill_on_drop(true);
    command
}

async fn printed(name: &str, testbed: &TestBed) -> String {
    let output = block(name, testbed).output().await.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn leases(testbed: &TestBed) -> Leases {
    let parts = testbed.parts();
    Leases::new(parts.store, "a test").waking(parts.waker)
}

/// Promise: the TypeScript of the pages runs as printed, from the packed package.
#[tokio::test(flavor = "multi_thread")]
async fn first_block_of_each_page_runs_as_printed() {
    let testbed = TestBed::start().await;
    let invoice = printed("leases_1", &testbed).await;
    assert!(invoice.starts_with("drawn up under token "), "{invoice}");
    let subscription = EntityKey::parse("invoice_gen/SUB-1234").unwrap();
    let held = leases(&testbed).acquire(&subscription, Terms::default()).await.unwrap();
    assert_eq!(printed("leases_1", &testbed).await, "skipped: another run holds the lease\n");
    held.release().await.unwrap();

    let total = printed("readme_1", &testbed).await;
    let key = Key::named("totals", "order", "shop/order/7");
    let row = testbed.parts().store.get(&key, Duration::from_secs(5)).await.unwrap().expect("it was written");
    assert_eq!(row.text("total"), Some(total.trim_end()));
}

#[tokio::test(flavor = "multi_thread")]
async fn report_of_the_jobs_page_runs_once_a_tick() {
    let testbed = TestBed::start().await;
    // A minute may begin between two calls.
    let first = printed("jobs_1", &testbed).await;
    assert!(first.contains("the report of 20") && first.contains(", under token "), "{first}");
    let calls = join_all([(); 3].map(|()| printed("jobs_1", &testbed))).await;
    assert!(calls.iter().filter(|call| *call != "[]\n").count() <= 1, "{calls:?}");
    let key = Key::named("totals", "order", "report");
    let row = testbed.parts().store.get(&key, Duration::from_secs(5)).await.unwrap().expect("it was written");
    assert!(row.text("total").is_some_and(|total| total.starts_with("the report of 20")), "{row:?}");
}

async fn checkout(port: u16, order: u32) -> (String, Value) {
    let body = json!({ "amount": order }).to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let head = format!(
        "POST /checkout/{order} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn checkouts_of_an_order_run_one_at_a_time() {
    let testbed = TestBed::start().await;
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut command = block("leases_2", &testbed);
    command.env("PORT", port.to_string()).env("FOLDER", folder.path()).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));

    let answers = join_all([checkout(port, 1), checkout(port, 1), checkout(port, 1)]).await;
    let mut tokens = BTreeSet::new();
    for (status, receipt) in answers {
        assert_eq!((status.as_str(), &receipt["body"]), ("HTTP/1.1 200 OK", &json!({ "amount": 1 })));
        tokens.insert(receipt["token"].as_u64());
    }
    assert_eq!(tokens.len(), 3);

    let order = EntityKey::parse("shop/order/2").unwrap();
    let held = leases(&testbed).acquire(&order, Terms::default()).await.unwrap();
    let (status, busy) = checkout(port, 2).await;
    assert_eq!(status, "HTTP/1.1 409 Conflict");
    assert!(busy["error"].as_str().unwrap().starts_with("shop/order/2 is held by a test until "), "{busy}");
    held.release().await.unwrap();
}
