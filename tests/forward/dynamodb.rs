//! The embedded DynamoDB behind a proxy that loses replies and holds requests.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serializer::local::{Engines, TOTALS_TABLE, sender::Sender};
use tokio::{net::TcpListener, process::Command, sync::oneshot, task::AbortHandle};

/// A store with the table of the sample functions.
pub struct DynamoDb {
    engines: Engines,
    proxy: Arc<Proxy>,
    url: String,
    serving: AbortHandle,
}

impl Drop for DynamoDb {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Proxy {
    store: Sender,
    plan: Mutex<Plan>,
}

/// What happens to the next request of an operation, such as `PutItem`.
#[derive(Default)]
enum Plan {
    #[default]
    Pass,
    LoseReply(&'static str),
    Hold(&'static str, Held),
}

struct Held {
    arrived: oneshot::Sender<()>,
    released: oneshot::Receiver<()>,
}

impl DynamoDb {
    pub async fn start() -> Self {
        let engines = Engines::start(None).await.unwrap();
        let proxy = Arc::new(Proxy { store: Sender::new(engines.dynamodb_url()), plan: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(relay).with_state(proxy.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }).abort_handle();
        Self { engines, proxy, url, serving }
    }

    /// Returns the command of a function, with the store's table and credentials in its environment.
    pub fn function(&self, mut command: Command) -> Command {
        for (name, value) in [
            ("TOTALS_TABLE", TOTALS_TABLE),
            ("AWS_ENDPOINT_URL_DYNAMODB", &self.url),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "local"),
            ("AWS_SECRET_ACCESS_KEY", "local"),
        ] {
            command.env(name, value);
        }
        command
    }

    /// Carries out the next request of `operation`, and answers it as failed.
    pub fn lose_reply(&self, operation: &'static str) {
        *self.proxy.plan.lock().unwrap() = Plan::LoseReply(operation);
    }

    /// Holds the next request of `operation` back. Returns a receiver that completes when the request
    /// arrives, and a sender that releases it.
    pub fn hold(&self, operation: &'static str) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
        let (arrived, arrival) = oneshot::channel();
        let (release, released) = oneshot::channel();
        *self.proxy.plan.lock().unwrap() = Plan::Hold(operation, Held { arrived, released });
        (arrival, release)
    }

    /// Asserts that the planned request has come.
    pub fn assert_happened(&self) {
        assert!(matches!(*self.proxy.plan.lock().unwrap(), Plan::Pass), "the request never came");
    }

    /// Returns the topic, the token and the number of applied ids in an order's row.
    pub async fn row(&self, order: &str) -> (String, u64, usize) {
        let account = self.engines.account();
        let client: Client = account.dynamodb(&account.http_client());
        let key = AttributeValue::S(order.to_owned());
        let read = client.get_item().table_name(TOTALS_TABLE).key("order", key).consistent_read(true);
        let row = read.send().await.unwrap().item.expect("a row");
        let token = row["fencing_token"].as_n().unwrap().parse().unwrap();
        let topic = row.get("topic").map_or_else(String::new, |topic| topic.as_s().unwrap().clone());
        (topic, token, row.get("applied").map_or(0, |applied| applied.as_m().unwrap().len()))
    }
}

impl Proxy {
    /// Takes the plan if these headers name its operation.
    fn plan(&self, headers: &HeaderMap) -> Plan {
        let target = headers["x-amz-target"].to_str().unwrap();
        let mut plan = self.plan.lock().unwrap();
        match &*plan {
            Plan::LoseReply(operation) | Plan::Hold(operation, _) if target.ends_with(operation) => {
                std::mem::take(&mut *plan)
            }
            _ => Plan::Pass,
        }
    }
}

async fn relay(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let plan = proxy.plan(&parts.headers);
    let is_lost = matches!(plan, Plan::LoseReply(_));
    if let Plan::Hold(_, held) = plan {
        held.arrived.send(()).unwrap();
        held.released.await.unwrap();
    }
    let headers = ["x-amz-target", "content-type", "authorization", "x-amz-date"];
    let headers = headers.iter().filter_map(|name| {
        let value = parts.headers.get(*name)?.to_str().unwrap();
        Some(((*name).to_owned(), value.to_owned()))
    });
    let answer = proxy.store.request("POST", "/", &headers.collect::<Vec<_>>(), body.to_vec()).await.unwrap();
    if is_lost {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let status = StatusCode::from_u16(answer.status).unwrap();
    (status, [("content-type", "application/x-amz-json-1.0")], Body::from(answer.body)).into_response()
}
