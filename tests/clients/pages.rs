//! The TypeScript of docs/leases.md, docs/jobs.md and the package's README, run as a user does.

use std::{path::Path, process::Stdio};

use serde_json::{Value, json};
use tests::prelude::*;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
};
use webhook_serializer::protocol::entity::EntityKey;

use crate::client::{self, ClientLanguage};

/// Returns the command of a page's block, such as `leases_1`.
fn block(name: &str, testbed: &TestBed) -> Command {
    let mut command = client::program(ClientLanguage::TypeScript, name);
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

/// The checkout of docs/leases.md as a separate process.
struct ExampleShop {
    _server: Child,
    port: u16,
    warnings: Lines<BufReader<ChildStderr>>,
}

impl ExampleShop {
    async fn open(block_name: &str, testbed: &TestBed, folder: &Path, more: &[(&str, &str)]) -> Self {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let mut command = block(block_name, testbed);
        command.env("PORT", port.to_string()).env("FOLDER", folder).envs(more.iter().copied());
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"), "{block_name}");
        let warnings = BufReader::new(server.stderr.take().unwrap()).lines();
        Self { _server: server, port, warnings }
    }

    async fn send(&self, order: &str) -> TcpStream {
        let body = json!({ "amount": 1 }).to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let head = format!(
            "POST /checkout/{order} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: \
             application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        stream
    }

    /// Returns the status line and the body of an answer.
    async fn answer(&self, order: &str) -> (String, String) {
        let mut answer = String::new();
        self.send(order).await.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    async fn checkout(&self, order: &str) -> (String, Value) {
        let (status, body) = self.answer(order).await;
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Returns the next error that the shop has logged, by its name.
    async fn warning(&mut self) -> String {
        loop {
            let line = self.warnings.next_line().await.unwrap().expect("it still runs");
            // The stack of a `DOMException` begins with `DOMException [AbortError]`.
            let name = line.split(':').next().unwrap_or_default().trim_start_matches("DOMException ");
            if name.starts_with("Lease") || name == "[AbortError]" {
                return name.trim_matches(['[', ']']).to_owned();
            }
        }
    }
}

/// The block as printed, with Express 5, and the same with Express 4.
const SHOPS: [&str; 2] = ["leases_2", "leases_2_express_4"];

#[tokio::test(flavor = "multi_thread")]
async fn checkouts_of_an_order_run_one_at_a_time() {
    for name in SHOPS {
        let testbed = TestBed::start().await;
        let folder = tempfile::tempdir().unwrap();
        let shop = ExampleShop::open(name, &testbed, folder.path(), &[]).await;
        let mut tokens = BTreeSet::new();
        for (status, receipt) in join_all([(); 3].map(|()| shop.checkout("1"))).await {
            assert_eq!((status.as_str(), &receipt["body"]), ("HTTP/1.1 200 OK", &json!({ "amount": 1 })), "{name}");
            tokens.insert(receipt["token"].as_u64());
        }
        assert_eq!(tokens.len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checkout_answers_each_failure_for_the_shopper() {
    for name in SHOPS {
        let testbed = TestBed::start().await;
        let folder = tempfile::tempdir().unwrap();
        let mut shop = ExampleShop::open(name, &testbed, folder.path(), &[]).await;
        let bad = shop.checkout("%07").await;
        assert_eq!(bad, ("HTTP/1.1 400 Bad Request".into(), json!({ "error": "this is not an order" })), "{name}");
        assert_eq!(shop.warning().await, "LeaseKeyInvalid");

        let order = EntityKey::parse("shop/order/2").unwrap();
        let held = leases(&testbed).acquire(&order, Terms::default()).await.unwrap();
        let busy = json!({ "error": "the order is being changed: try again" });
        assert_eq!(shop.checkout("2").await, ("HTTP/1.1 409 Conflict".into(), busy), "{name}");
        assert_eq!(shop.warning().await, "LeaseContended");
        drop(shop.send("2").await);
        assert_eq!(shop.warning().await, "AbortError", "{name}: the wait ends with the connection");
        held.release().await.unwrap();

        let nowhere = ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1");
        let mut cut_off = ExampleShop::open(name, &testbed, folder.path(), &[nowhere]).await;
        let later = json!({ "error": "try again later" });
        assert_eq!(cut_off.checkout("3").await, ("HTTP/1.1 503 Service Unavailable".into(), later), "{name}");
        assert_eq!(cut_off.warning().await, "LeaseUnreachable");

        // Express answers 500: the shopper is not at fault.
        let mut misconfigured = ExampleShop::open(name, &testbed, folder.path(), &[("AWS_REGION", "")]).await;
        assert_eq!(misconfigured.answer("4").await.0, "HTTP/1.1 500 Internal Server Error", "{name}");
        assert_eq!(misconfigured.warning().await, "LeaseInvalid");
    }
}
