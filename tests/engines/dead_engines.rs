//! An ingest whose store or queue refuses connections, or never answers, by the machine's clock.

use tests::{prelude::*, testbed::SOURCES};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use webhook_serializer::config::StoreConfig;

/// Half of five seconds, the shortest timeout of any sender.
const ANSWER: Duration = Duration::from_millis(2500);

/// Starts a port that accepts connections and sends each only `reply`.
async fn port_that_replies(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            // Waits for the request, because the client rejects an answer that comes before it.
            if !reply.is_empty() && connection.read(&mut [0; 16]).await.is_ok() {
                let _ = connection.write_all(reply).await;
            }
            held.push(connection);
        }
    });
    format!("http://{address}")
}

/// A reply that breaks off in the middle.
const STALLED: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: 100\r\n\r\n{\"";

async fn closed_port() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    format!("http://{}", listener.local_addr().expect("its address"))
}

async fn status_of(account: Account, config: StoreConfig) -> u16 {
    let env = Env::system();
    let Parts { store, waker, .. } = Parts::connect(&account, &config, &env, None);
    let inbox = Inbox::new(store, waker, config.retention, Arc::new(TracingLog));
    let sources = Arc::new(Sources::parse(SOURCES).expect("the sources are right"));
    let webhook = request(&signed(&sources, "test", "1", update("7"), env.now()));
    let ingest = Ingest::new(sources, inbox, env.clone());
    let before = env.monotonic();
    let status = ingest.answer(&webhook).await.status_code;
    let took = env.monotonic() - before;
    assert!(took <= ANSWER, "{took:?}");
    status
}

#[tokio::test]
async fn ingest_answers_in_time_with_unreachable_store_or_queue() {
    let testbed = TestBed::start().await;
    let account = testbed.engines.account();
    let config = testbed.engines.config();
    assert_eq!(status_of(account.clone(), config.clone()).await, 200);
    for dead in [port_that_replies(b"").await, port_that_replies(STALLED).await, closed_port().await] {
        let no_store = Account { dynamodb_endpoint: Some(dead.clone()), ..account.clone() };
        assert_eq!(status_of(no_store, config.clone()).await, 503);
        let no_queue = Account { sqs_endpoint: Some(dead), ..account.clone() };
        assert_eq!(status_of(no_queue, config.clone()).await, 200);
    }
}
