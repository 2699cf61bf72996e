//! The memory of a worker process that handles ten orders with large deliveries at once.

use tests::prelude::*;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::handlers::{Processes, record};

/// The number of wake-ups in a batch, as in the template.
const ORDERS: usize = 10;

const BODY_BYTES: usize = 1_000_000;

/// The bodies (10 MiB) and the connections' buffers, but not the lists (20 MiB).
const MOST_FOR_LISTS: u64 = 25;

/// The bodies, their events once (20 MiB), and buffers.
const MOST_FOR_EVENTS: u64 = 60;

/// An endpoint that answers only after it has read [`ORDERS`] requests, so that a worker has all of them in memory.
async fn endpoint(listener: TcpListener, answer: &'static str) {
    let read = Arc::new(watch::Sender::new(0));
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(serve(stream, read.clone(), answer));
    }
}

async fn serve(stream: TcpStream, read: Arc<watch::Sender<usize>>, answer: &'static str) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        tokio::io::copy(&mut (&mut stream).take(length), &mut tokio::io::sink()).await.expect("a body");
        read.send_modify(|read| *read += 1);
        read.subscribe().wait_for(|read| *read >= ORDERS).await.expect("the sender is here");
        stream.write_all(answer.as_bytes()).await.expect("it reads the answer");
    }
}

/// Returns the most memory that a process has used so far, in MiB.
fn peak(process_id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status")).expect("it lives");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

/// Returns the memory in MiB that a worker needs for ten orders, each with these deliveries.
async fn needed(name: &str, handler: &str, bodies: &[Vec<u8>]) -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let (table, answer) = match handler {
        "forward" => (
            format!("forward = {{ url = '{url}', secret = 'whsec_c2VjcmV0', allow_private = true }}"),
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ),
        _ => (
            "invoke = { function = 'orders' }".to_owned(),
            "HTTP/1.1 200 OK\r\ncontent-length: 18\r\n\r\n{\"outcome\":\"done\"}",
        ),
    };
    let endpoint = tokio::spawn(endpoint(listener, answer));
    let processes = Processes::start_with(
        name,
        &format!(
            "[sources.test]\nprovider = 'standard-webhooks'\nsecrets = ['whsec_c2VjcmV0']\nhandler = '{handler}'\n\
             handler_timeout = '50s'\ndeliver = {{ up_to = 25 }}\n{table}\n"
        ),
    )
    .await;
    let entities: Vec<String> = (0..ORDERS).map(|number| format!("test/{number}")).collect();
    for entity in &entities {
        for (number, body) in bodies.iter().enumerate() {
            processes.append_body(entity, &number.to_string(), body.clone()).await;
        }
    }
    let (settings, _logged) = processes.function(&[("AWS_ENDPOINT_URL_LAMBDA", &url), ("LEASE_SECONDS", "40")]);
    let mut process = FunctionProcess::new(settings);
    process.start().await.expect("it starts");
    let id = *process.process_ids().borrow().first().expect("one process");
    let before = peak(id);
    let records = entities.iter().map(|entity| record(entity, entity)).collect();
    process.invoke(serde_json::to_vec(&SqsEvent { records }).expect("it is JSON")).await.expect("it answers");
    for entity in &entities {
        let state = EntityState::parse(&processes.row(&key(entity)).await).expect("it is readable");
        assert_eq!((state.waiting(), state.attempts), (0, 0), "{name}: {entity}");
    }
    endpoint.abort();
    peak(id) - before
}

/// JSON doubles each quote. With bodies of 5.9 MB, an optimized worker needs 61 MiB to forward the lists, and 129 MiB
/// for the largest events; a debug build would take minutes.
///
/// Promise: ten orders with the largest lists fit a worker of 256 MB.
#[tokio::test(flavor = "multi_thread")]
async fn worker_holds_ten_large_lists_at_once() {
    let _alone = crate::isolation::ALONE.lock().await;
    let bodies = [vec![b'"'; BODY_BYTES]];
    for (name, handler, most) in [("lists", "forward", MOST_FOR_LISTS), ("events", "invoke", MOST_FOR_EVENTS)] {
        let needed = needed(name, handler, &bodies).await;
        assert!(needed <= most, "{name}: {needed} MiB");
    }
}
