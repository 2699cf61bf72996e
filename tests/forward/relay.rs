//! The relay that `serializer init` writes for ShipStation's webhooks, which name a URL instead of an order.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use serializer::starter::{Language, StarterHandler};
use tests::{not_run::not_run, settle_counter::SettleCounter, testbed::TestBed};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use webhook_serializer::{
    handlers::forward::Forward,
    protocol::delivery::Incoming,
    providers::{Headers, Request, Verified},
    sources::Sources,
    time::Env,
};

use crate::{
    incoming,
    pages::{PageReceiver, free_port},
    sources,
    starter::{LANGUAGES, shell, written},
};

const RELAYED: &str = "https://ssapi.shipstation.com/shipments?storeID=1&batchId=7&includeShipmentItems=False";

/// A server that answers 200, in place of ingest, of ShipStation or of a foreign host.
struct IngestServer {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl IngestServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut bytes = Vec::new();
                while !is_whole(&bytes) && stream.read_buf(&mut bytes).await.unwrap() > 0 {}
                let request = String::from_utf8(bytes).unwrap();
                let body = page(&request);
                received.lock().unwrap().push(request);
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Returns ShipStation's answer to the request: the first or the second page, each with a shipment.
fn page(request: &str) -> String {
    let line = request.lines().next().unwrap_or_default();
    let number = if line.contains("page=2") { 2 } else { 1 };
    let shipment = serde_json::json!({ "shipmentId": number, "orderNumber": "727", "trackingNumber": null });
    serde_json::json!({ "shipments": [shipment], "total": 2, "page": number, "pages": 2 }).to_string()
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// Starts the receiver of a shop with WooCommerce and ShipStation. `line` may change the line that starts it.
async fn receiver(
    folder: &tempfile::TempDir,
    language: Language,
    change: impl Fn(String) -> String,
) -> Result<PageReceiver, String> {
    let port = free_port();
    let handler = StarterHandler::Forward { url: format!("http://127.0.0.1:{port}/webhooks") };
    let line = change(written(folder.path(), language, handler, &["woocommerce", "shipstation-v1"]));
    Ok(PageReceiver::start(shell(folder.path(), language, &line).await?, port).await)
}

/// Delivers webhooks of ShipStation with these URLs, and returns the errors of those that were parked.
async fn deliver(receiver: &PageReceiver, urls: &[&str]) -> Vec<String> {
    let mut testbed =
        TestBed::start_for(&sources(&receiver.url).replace("[sources.shop]", "[sources.shipstation-v1]")).await;
    let settled = SettleCounter::default();
    let parts = testbed.parts();
    let forward = Forward::new(testbed.sources());
    testbed.feed(testbed.drainer_on(parts.store, parts.waker, forward, Arc::new(settled.clone())));
    for (number, url) in urls.iter().enumerate() {
        let webhook = serde_json::json!({ "resource_url": url, "resource_type": "SHIP_NOTIFY" });
        let incoming =
            incoming("shipstation-v1", "shipstation-v1/batch/7", &number.to_string(), "SHIP_NOTIFY", testbed.env());
        let body = webhook.to_string().into_bytes().into();
        testbed.inbox().append(&Incoming { body, ..incoming }).await.unwrap();
    }
    settled.until(urls.len()).await;
    testbed.rest().await;
    testbed.operator().all_parked().await.unwrap().into_iter().map(|parked| parked.error).collect()
}

/// Promise: the relay that `serializer init` writes posts ShipStation's shipments to their order, in TypeScript and
/// Python, the same one with the same id.
#[tokio::test(flavor = "multi_thread")]
async fn relayed_shipment_gets_its_orders_key() {
    for language in LANGUAGES {
        let folder = tempfile::tempdir().unwrap();
        let ingest = IngestServer::start().await;
        let url = ingest.url.clone();
        let change = |line: String| line.replace("http://127.0.0.1:9000", &url);
        let receiver = match receiver(&folder, language, change).await {
            Ok(receiver) => receiver,
            Err(reason) => {
                not_run(&reason);
                continue;
            }
        };
        assert_eq!(deliver(&receiver, &[RELAYED, RELAYED]).await, [""; 0]);
        let document = fs::read_to_string(folder.path().join("sources.toml")).unwrap();
        let sources = Sources::parse(&document).unwrap();
        let requests = ingest.requests();
        let posted: Vec<(String, String)> = requests.iter().map(|request| stored(&sources, request)).collect();
        let expected = ("shop/order/727".to_owned(), "shipstation-SHIP_NOTIFY-33974374".to_owned());
        assert_eq!(posted, [expected.clone(), expected]);

        // Under the URL of a webhook about orders, ShipStation lists orders. The first two webhooks are repeats now.
        let orders = r#"{"orders":[{"orderId":94113592,"orderNumber":"728"}],"total":1,"page":1,"pages":1}"#;
        fs::write(folder.path().join("shipments.json"), orders).unwrap();
        assert_eq!(deliver(&receiver, &[RELAYED; 3]).await, [""; 0]);
        let expected = ("shop/order/728".to_owned(), "shipstation-SHIP_NOTIFY-94113592".to_owned());
        assert_eq!(stored(&sources, ingest.requests().last().unwrap()), expected);
    }
}

/// Returns key and id of a delivery of the source `parcels`.
fn stored(sources: &Sources, request: &str) -> (String, String) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /webhooks/parcels "), "{head}");
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers: Headers = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let request = Request { headers: &headers, body: body.as_bytes() };
    let source = sources.get("parcels").unwrap();
    let now = Env::system().now();
    assert_eq!(source.verify(request, now), Ok(Verified::Delivery));
    let incoming = source.delivery(request, now);
    (incoming.entity.to_string(), incoming.identity.delivery_id.to_string())
}

/// The relay asks for each page, whether ShipStation's URL has parameters or not.
#[tokio::test(flavor = "multi_thread")]
async fn relay_reads_all_pages_of_any_url() {
    for language in LANGUAGES {
        let folder = tempfile::tempdir().unwrap();
        let server = IngestServer::start().await;
        let url = server.url.clone();
        let change = |line: String| {
            for name in ["shipstation.mts", "shipstation.py"].map(|name| folder.path().join(name)) {
                if let Ok(relay) = fs::read_to_string(&name) {
                    fs::write(name, relay.replace("https://ssapi.shipstation.com", &url)).unwrap();
                }
            }
            line.replace("http://127.0.0.1:9000", &url)
                .replace("SHIPMENTS=shipments.json", "SHIPSTATION_KEY=a2V5OnNlY3JldA==")
        };
        let receiver = match receiver(&folder, language, change).await {
            Ok(receiver) => receiver,
            Err(reason) => {
                not_run(&reason);
                continue;
            }
        };
        let urls = ["/shipments", "/shipments?storeID=1&batchId=7"].map(|path| format!("{}{path}", server.url));
        assert_eq!(deliver(&receiver, &[&urls[0], &urls[1]]).await, [""; 0]);
        let requests = server.requests();
        let (asked, posted): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.starts_with("GET "));
        let paths: Vec<&str> = asked.iter().filter_map(|request| request.split(' ').nth(1)).collect();
        let first = ["/shipments?page=1", "/shipments?page=2"];
        let second = ["/shipments?storeID=1&batchId=7&page=1", "/shipments?storeID=1&batchId=7&page=2"];
        assert_eq!(paths, [first, second].concat());
        assert!(
            asked.iter().all(|request| request.to_ascii_lowercase().contains("authorization: basic a2v5onnly3jlda=="))
        );
        let sources = Sources::parse(&fs::read_to_string(folder.path().join("sources.toml")).unwrap()).unwrap();
        let ids: Vec<String> = posted.iter().map(|request| stored(&sources, request).1).collect();
        let page = ["shipstation-SHIP_NOTIFY-1", "shipstation-SHIP_NOTIFY-2"];
        assert_eq!(ids, [page, page].concat());
    }
}

/// ShipStation signs nothing, so a forged webhook may name any URL.
#[tokio::test(flavor = "multi_thread")]
async fn relay_gives_its_key_to_no_other_host() {
    for language in LANGUAGES {
        let folder = tempfile::tempdir().unwrap();
        let foreign = IngestServer::start().await;
        let change = |line: String| line.replace("SHIPMENTS=shipments.json", "SHIPSTATION_KEY=a2V5OnNlY3JldA==");
        let receiver = match receiver(&folder, language, change).await {
            Ok(receiver) => receiver,
            Err(reason) => {
                not_run(&reason);
                continue;
            }
        };
        let parked = deliver(&receiver, &[&format!("{}/shipments?batchId=7", foreign.url)]).await;
        assert!(parked.len() == 1 && parked[0].starts_with("the endpoint answered 500"), "{parked:?}");
        assert_eq!(foreign.requests(), [""; 0]);
    }
}
