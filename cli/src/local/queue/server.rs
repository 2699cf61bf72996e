//! The queues' HTTP interface: AWS JSON 1.0.

use std::{collections::HashSet, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

use super::{
    attribute::md5_of,
    error::{Code, SqsError},
    message::{MessageAttributes, NewMessage, QueuedMessage, md5},
    queues::{Queues, Receive},
};

/// The path of the queues that belong to the local run.
const ACCOUNT: &str = "000000000000/";

/// The largest request in bytes, with room for the longest body if JSON escapes each of its bytes.
const REQUEST_BYTES: usize = 8 * 1024 * 1024;

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");

const BATCH: usize = 10;

/// Returns a queue's URL. Its path is the name; a name without slashes is in an account of the local run's own.
pub fn queue_url(address: SocketAddr, name: &str) -> String {
    let account = if name.contains('/') { "" } else { ACCOUNT };
    format!("http://{address}/{account}{name}")
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SendMessage {
    queue_url: String,
    #[serde(flatten)]
    message: SentMessage,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SentMessage {
    #[serde(default)]
    message_body: String,
    #[serde(default)]
    delay_seconds: i64,
    message_group_id: Option<String>,
    message_deduplication_id: Option<String>,
    #[serde(default)]
    message_attributes: MessageAttributes,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SentEntry {
    id: String,
    #[serde(flatten)]
    message: SentMessage,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveMessage {
    queue_url: String,
    #[serde(default = "one")]
    max_number_of_messages: usize,
    visibility_timeout: Option<i64>,
    #[serde(default)]
    wait_time_seconds: i64,
    /// The older name of `message_system_attribute_names`, still sent by some SDKs.
    #[serde(default)]
    attribute_names: Vec<String>,
    #[serde(default)]
    message_system_attribute_names: Vec<String>,
}

fn one() -> usize {
    1
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchRequest<T> {
    queue_url: String,
    #[serde(default = "Vec::new")]
    entries: Vec<T>,
}

/// An entry of a batch. The answer names it by its id.
trait Entry {
    fn id(&self) -> &str;
}

impl Entry for SentEntry {
    fn id(&self) -> &str {
        &self.id
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchEntry {
    id: String,
    receipt_handle: String,
    #[serde(default)]
    visibility_timeout: i64,
}

impl Entry for BatchEntry {
    fn id(&self) -> &str {
        &self.id
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetQueueAttributes {
    queue_url: String,
    #[serde(default)]
    attribute_names: Vec<String>,
}

struct Server {
    queues: Arc<Queues>,
    closing: watch::Receiver<bool>,
}

/// Serves the queues until `shutdown` completes. The server then answers waiting receives without messages, and
/// finishes the requests that are running.
pub async fn serve(
    listener: TcpListener,
    queues: Arc<Queues>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (close, closing) = watch::channel(false);
    let server = Arc::new(Server { queues, closing });
    // SDKs post to different paths, so the path is ignored: the body holds the queue's URL.
    let router = Router::new().fallback(answer).layer(DefaultBodyLimit::max(REQUEST_BYTES)).with_state(server);
    let shutdown = async move {
        shutdown.await;
        close.send_replace(true);
    };
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}

async fn answer(State(server): State<Arc<Server>>, headers: HeaderMap, body: Bytes) -> Response {
    let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
    match server.perform(target, &body).await {
        Ok(answer) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], answer.to_string()).into_response(),
        Err(SqsError { code, message }) => {
            let (status, shape, query_code) = code.on_the_wire();
            let fault = if status < 500 { "Sender" } else { "Receiver" };
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let body = json!({ "__type": shape, "message": message }).to_string();
            let query_error = [("x-amzn-query-error", format!("{query_code};{fault}"))];
            (status, [(header::CONTENT_TYPE, CONTENT_TYPE)], query_error, body).into_response()
        }
    }
}

impl Server {
    async fn perform(&self, target: &str, body: &[u8]) -> Result<Value, SqsError> {
        match target.strip_prefix("AmazonSQS.").unwrap_or_default() {
            "SendMessage" => {
                let SendMessage { queue_url, message } = read(body)?;
                self.send(name_in(&queue_url), message)
            }
            "SendMessageBatch" => self.batch(read(body)?, |queue, entry: SentEntry| self.send(queue, entry.message)),
            "ReceiveMessage" => {
                let mut closing = self.closing.clone();
                tokio::select! {
                    biased;
                    received = self.receive(read(body)?) => received,
                    _ = closing.wait_for(|closing| *closing) => Ok(json!({})),
                }
            }
            "DeleteMessageBatch" => self.batch(read(body)?, |queue, entry: BatchEntry| {
                self.queues.delete(queue, &entry.receipt_handle)?;
                Ok(json!({}))
            }),
            "ChangeMessageVisibilityBatch" => self.batch(read(body)?, |queue, entry: BatchEntry| {
                let timeout = visibility(entry.visibility_timeout)?;
                self.queues.change_visibility(queue, &entry.receipt_handle, timeout)?;
                Ok(json!({}))
            }),
            "GetQueueAttributes" => self.attributes(&read(body)?),
            _ => {
                let message = format!("The local queue does not have the action {target:?}.");
                Err(SqsError::new(Code::UnknownOperation, message))
            }
        }
    }

    fn send(&self, queue: &str, sent: SentMessage) -> Result<Value, SqsError> {
        let message = NewMessage {
            body: sent.message_body,
            delay: seconds("DelaySeconds", sent.delay_seconds, 900)?,
            group: sent.message_group_id,
            deduplication_id: sent.message_deduplication_id,
            attributes: sent.message_attributes,
        };
        let id = self.queues.send(queue, &message)?;
        let digest = md5(&message.body);
        let of_attributes = md5_of(&message.attributes);
        Ok(json!({ "MessageId": id, "MD5OfMessageBody": digest, "MD5OfMessageAttributes": of_attributes }))
    }

    async fn receive(&self, request: ReceiveMessage) -> Result<Value, SqsError> {
        let max_messages = request.max_number_of_messages;
        if !(1..=BATCH).contains(&max_messages) {
            let reason = "Must be between 1 and 10, if provided.";
            return Err(SqsError::invalid_parameter("MaxNumberOfMessages", max_messages, reason));
        }
        let receive = Receive {
            max_messages,
            visibility_timeout: request.visibility_timeout.map(visibility).transpose()?,
            wait: seconds("WaitTimeSeconds", request.wait_time_seconds, 20)?,
        };
        let messages = self.queues.receive(name_in(&request.queue_url), receive).await?;
        let names = [request.attribute_names, request.message_system_attribute_names].concat();
        let message =
            |QueuedMessage { message_id, receipt_handle, body, sent_at, receive_count, .. }: QueuedMessage| {
                json!({
                    "MessageId": message_id,
                    "ReceiptHandle": receipt_handle,
                    "MD5OfBody": md5(&body),
                    "Body": body,
                    "Attributes": requested(&names, &[
                        ("ApproximateReceiveCount", u128::from(receive_count)),
                        ("SentTimestamp", sent_at.as_millis()),
                    ]),
                })
            };
        Ok(json!({ "Messages": messages.into_iter().map(message).collect::<Vec<_>>() }))
    }

    /// Applies the entries of a batch in their order. `apply` returns the answer about an entry, without its id.
    fn batch<T: Entry>(
        &self,
        request: BatchRequest<T>,
        apply: impl Fn(&str, T) -> Result<Value, SqsError>,
    ) -> Result<Value, SqsError> {
        let queue = name_in(&request.queue_url);
        self.queues.visibility_timeout(queue)?;
        let entries = request.entries;
        if entries.is_empty() {
            return Err(SqsError::new(Code::EmptyBatchRequest, "There should be at least one entry in the request."));
        }
        if entries.len() > BATCH {
            let message =
                format!("Maximum number of entries per request are {BATCH}. You have sent {}.", entries.len());
            return Err(SqsError::new(Code::TooManyEntriesInBatchRequest, message));
        }
        let mut seen = HashSet::new();
        if let Some(entry) = entries.iter().find(|entry| !seen.insert(entry.id())) {
            return Err(SqsError::new(Code::BatchEntryIdsNotDistinct, format!("Id {} repeated.", entry.id())));
        }
        let mut successful = Vec::new();
        let mut failed = Vec::new();
        for entry in entries {
            let id = entry.id().to_owned();
            match apply(queue, entry) {
                Ok(mut answer) => {
                    answer["Id"] = id.into();
                    successful.push(answer);
                }
                Err(SqsError { code, message }) => {
                    let (status, _, code) = code.on_the_wire();
                    let is_senders_fault = status < 500;
                    failed.push(json!({ "Id": id, "Code": code, "Message": message, "SenderFault": is_senders_fault }));
                }
            }
        }
        Ok(json!({ "Successful": successful, "Failed": failed }))
    }

    fn attributes(&self, request: &GetQueueAttributes) -> Result<Value, SqsError> {
        let queue = name_in(&request.queue_url);
        let timeout = self.queues.visibility_timeout(queue)?;
        let counts = self.queues.counts(queue)?;
        let attributes = [
            ("VisibilityTimeout", u128::from(timeout.as_secs())),
            ("ApproximateNumberOfMessages", u128::from(counts.visible)),
            ("ApproximateNumberOfMessagesNotVisible", u128::from(counts.in_flight)),
            ("ApproximateNumberOfMessagesDelayed", u128::from(counts.delayed)),
        ];
        let is_known = |name: &String| name == "All" || attributes.iter().any(|(known, _)| known == name);
        if let Some(unknown) = request.attribute_names.iter().find(|name| !is_known(name)) {
            return Err(SqsError::new(Code::InvalidAttributeName, format!("Unknown Attribute {unknown}.")));
        }
        Ok(json!({ "Attributes": requested(&request.attribute_names, &attributes) }))
    }
}

fn requested(names: &[String], attributes: &[(&str, u128)]) -> Value {
    let is_requested = |name: &str| names.iter().any(|requested| requested == "All" || requested == name);
    let requested = attributes.iter().filter(|(name, _)| is_requested(name));
    requested
        .map(|(name, value)| ((*name).to_owned(), value.to_string().into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn name_in(queue_url: &str) -> &str {
    let path = queue_url.splitn(4, '/').nth(3).unwrap_or_default();
    path.strip_prefix(ACCOUNT).unwrap_or(path)
}

fn visibility(timeout: i64) -> Result<Duration, SqsError> {
    seconds("VisibilityTimeout", timeout, 43_200)
}

fn seconds(parameter: &str, value: i64, most: u64) -> Result<Duration, SqsError> {
    let in_range = u64::try_from(value).ok().filter(|value| *value <= most);
    in_range.map(Duration::from_secs).ok_or_else(|| {
        SqsError::invalid_parameter(parameter, value, format!("Must be >= 0 and <= {most}, if provided."))
    })
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, SqsError> {
    serde_json::from_slice(body).map_err(|error| SqsError::new(Code::SerializationException, error.to_string()))
}
