//! A proxy in front of DynamoDB, which loses, delays and falsifies replies as planned.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use webhook_serializer::time::Env;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyFault {
    /// The request lands, and the connection closes without a reply.
    Lost,
    /// The request lands, and the reply comes after the client's patience.
    Late,
    /// The request lands, and the connection closes within the reply's body.
    Cut,
    /// The connection closes, and the request does not land.
    Closed,
    /// The request lands twice, and the client gets the second reply.
    Repeated,
    Throttled,
    Broken,
    Conflict,
    Denied,
}

impl ReplyFault {
    fn reply(self) -> Option<(u16, &'static str)> {
        Some(match self {
            Self::Lost | Self::Late | Self::Cut | Self::Closed | Self::Repeated => return None,
            Self::Throttled => (400, "ThrottlingException"),
            Self::Broken => (500, "InternalServerError"),
            Self::Conflict => (400, "TransactionConflictException"),
            Self::Denied => (400, "AccessDeniedException"),
        })
    }
}

#[derive(Default)]
struct Plan {
    faults: VecDeque<(&'static str, ReplyFault)>,
    requests: Vec<String>,
    /// The time that is added to the dates of the replies.
    ahead: Duration,
}

/// A running proxy. Dropping it closes its connections.
pub struct Proxy {
    url: String,
    plan: Arc<Mutex<Plan>>,
    _connections: JoinSet<()>,
}

impl Proxy {
    pub async fn start(store: &str) -> Self {
        let store = store.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let plan: Arc<Mutex<Plan>> = Arc::default();
        let mut listening = JoinSet::new();
        let shared = plan.clone();
        listening.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(serve(client, store.clone(), shared.clone()));
            }
        });
        Self { url, plan, _connections: listening }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Applies `fault` to the next request for `operation`.
    pub fn plan(&self, operation: &'static str, fault: ReplyFault) {
        self.plan.lock().unwrap().faults.push_back((operation, fault));
    }

    /// Dates the replies so far ahead of the store's clock.
    pub fn set_ahead(&self, ahead: Duration) {
        self.plan.lock().unwrap().ahead = ahead;
    }

    /// Forgets the faults that have not happened.
    pub fn forget(&self) {
        self.plan.lock().unwrap().faults.clear();
    }

    /// Returns the operations requested since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.plan.lock().unwrap().requests)
    }

    /// Returns whether each planned fault has happened.
    pub fn is_done(&self) -> bool {
        self.plan.lock().unwrap().faults.is_empty()
    }
}

impl Plan {
    fn fault(&mut self, operation: &str) -> Option<ReplyFault> {
        self.requests.push(operation.to_owned());
        let is_next = self.faults.front().is_some_and(|(planned, _)| *planned == operation);
        self.faults.pop_front_if(|_| is_next).map(|(_, fault)| fault)
    }
}

async fn serve(mut client: TcpStream, store: String, plan: Arc<Mutex<Plan>>) {
    // An error means that the client or the store has closed the connection.
    while let Ok(Some(request)) = message(&mut client).await {
        // Rust's clients open their connection with a request that names no operation, and do not wait long for its
        // reply. So it can still be under way when a test begins.
        let operation = header(&request, "x-amz-target").and_then(|target| target.split('.').nth(1));
        let fault = operation.and_then(|operation| plan.lock().unwrap().fault(operation));
        if let Some((status, code)) = fault.and_then(ReplyFault::reply) {
            let body = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"as planned"}}"#);
            let head = format!(
                "HTTP/1.1 {status} Planned\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            if client.write_all((head + &body).as_bytes()).await.is_err() {
                return;
            }
            continue;
        }
        if fault == Some(ReplyFault::Closed) {
            return;
        }
        if fault == Some(ReplyFault::Repeated) && passed_on(&store, &request).await.is_err() {
            return;
        }
        let Ok(reply) = passed_on(&store, &request).await else { return };
        let ahead = plan.lock().unwrap().ahead;
        let reply = if ahead.is_zero() { reply } else { dated(&reply, ahead) };
        if fault == Some(ReplyFault::Lost) {
            return;
        }
        if fault == Some(ReplyFault::Cut) {
            let _ = client.write_all(&reply[..reply.len() - 1]).await;
            return;
        }
        if fault == Some(ReplyFault::Late) {
            Env::system().sleep(Duration::from_millis(1500)).await;
        }
        if client.write_all(&reply).await.is_err() {
            return;
        }
    }
}

/// Moves the date of a reply.
fn dated(reply: &[u8], ahead: Duration) -> Vec<u8> {
    let head = reply.windows(4).position(|window| window == b"\r\n\r\n").expect("a whole reply");
    let date = header(reply, "date").expect("the store dates its replies").to_owned();
    let moved = httpdate::fmt_http_date(httpdate::parse_http_date(&date).expect("a date") + ahead);
    let text = std::str::from_utf8(&reply[..head]).expect("text").replace(&date, &moved);
    [text.as_bytes(), &reply[head..]].concat()
}

async fn passed_on(store: &str, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut store = TcpStream::connect(store).await?;
    store.write_all(request).await?;
    message(&mut store).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Reads a request or a reply. Returns `None` at the end of the connection.
async fn message(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let length = header(&bytes, "content-length").and_then(|length| length.parse::<usize>().ok()).unwrap_or(0);
            if bytes.len() >= head + 4 + length {
                return Ok(Some(bytes));
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

fn header<'a>(message: &'a [u8], name: &str) -> Option<&'a str> {
    let end = message.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&message[..end]).ok()?;
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    fields
        .map(|(known, value)| (known, value.trim()))
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}
