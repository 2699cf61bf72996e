//! The queue's HTTP side: AWS JSON 1.0 on a listener it is given.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::error::{Code, QueueError};
use super::operations::Operations;
pub use super::operations::queue_url;
use super::queues::Queues;
use super::wire::{Received, Refusal};

/// Room for a full batch in which each byte is escaped in JSON.
const REQUEST_BYTES: usize = 8 * 1024 * 1024;
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");

struct Server {
    queues: Arc<Queues>,
    address: SocketAddr,
    closing: watch::Receiver<bool>,
}

/// Serves the queues until `shutdown` completes; then answers waiting receives as empty, finishes the requests under
/// way and returns.
pub async fn serve(
    listener: TcpListener,
    queues: Arc<Queues>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (close, closing) = watch::channel(false);
    let server = Server { queues, address: listener.local_addr()?, closing };
    // SDKs post to "/", some to the queue's own path: the queue's URL in the body is what counts.
    let router =
        Router::new().fallback(answer).layer(DefaultBodyLimit::max(REQUEST_BYTES)).with_state(Arc::new(server));
    let shutdown = async move {
        shutdown.await;
        close.send_replace(true);
    };
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}

async fn answer(State(server): State<Arc<Server>>, headers: HeaderMap, body: Bytes) -> Response {
    match server.perform(&headers, &body).await {
        Ok(answer) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], answer).into_response(),
        Err(error) => refuse(&error),
    }
}

impl Server {
    async fn perform(&self, headers: &HeaderMap, body: &[u8]) -> Result<Vec<u8>, QueueError> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let trace_header = text("x-amzn-trace-id").map(ToOwned::to_owned);
        let on = Operations { queues: &self.queues, address: self.address, trace_header };
        let target = text("x-amz-target").unwrap_or_default();
        match target.strip_prefix("AmazonSQS.").unwrap_or_default() {
            "SendMessage" => written(on.send_message(read(body)?)),
            "SendMessageBatch" => written(on.send_message_batch(read(body)?)),
            "ReceiveMessage" => {
                let mut closing = self.closing.clone();
                written(tokio::select! {
                    biased;
                    received = on.receive_message(read(body)?) => received,
                    _ = closing.wait_for(|closing| *closing) => Ok(Received { messages: Vec::new() }),
                })
            }
            "DeleteMessage" => written(on.delete_message(read(body)?)),
            "DeleteMessageBatch" => written(on.delete_message_batch(read(body)?)),
            "ChangeMessageVisibility" => written(on.change_message_visibility(read(body)?)),
            "ChangeMessageVisibilityBatch" => written(on.change_message_visibility_batch(read(body)?)),
            "PurgeQueue" => written(on.purge_queue(read(body)?)),
            "GetQueueUrl" => written(on.get_queue_url(read(body)?)),
            "CreateQueue" => written(on.create_queue(read(body)?)),
            "ListQueues" => written(on.list_queues(read(body)?)),
            "GetQueueAttributes" => written(on.get_queue_attributes(read(body)?)),
            "SetQueueAttributes" => written(on.set_queue_attributes(read(body)?)),
            _ => Err(QueueError::new(Code::UnknownOperation, format!("Not served here: {target:?}."))),
        }
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, QueueError> {
    serde_json::from_slice(body).map_err(|error| QueueError::new(Code::SerializationException, error.to_string()))
}

fn written(outcome: Result<impl Serialize, QueueError>) -> Result<Vec<u8>, QueueError> {
    serde_json::to_vec(&outcome?).map_err(|error| QueueError::new(Code::InternalFailure, error.to_string()))
}

fn refuse(error: &QueueError) -> Response {
    let fault = if error.code.is_senders_fault() { "Sender" } else { "Receiver" };
    let query_error = format!("{};{fault}", error.code.query_code());
    let body = serde_json::to_vec(&Refusal { shape: error.code.shape(), message: &error.message });
    let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, body.unwrap_or_default()).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
    if let Ok(query_error) = HeaderValue::from_str(&query_error) {
        response.headers_mut().insert("x-amzn-query-error", query_error);
    }
    response
}
