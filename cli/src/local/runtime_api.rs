//! Serves the Lambda Runtime API, which a function's process polls for events.
//!
//! Each [`RuntimeApi`] serves one process, at a separate address. So requests of a replaced process fail, and no event
//! goes to a dead process.
//!
//! The API has no response streaming (a streamed response is collected), no extensions and no SnapStart.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::AbortHandle;

/// The longest time from a process's start to its first poll, as in Lambda.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest response in bytes, as in Lambda.
const RESPONSE_BYTES: usize = 6 * 1024 * 1024;

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum InvokeError {
    /// The handler returned an error or panicked; the process lives on.
    #[error("the function failed with {kind}: {message}")]
    Function { kind: String, message: String },
    #[error("the function could not start, {kind}: {message}")]
    Init { kind: String, message: String },
    /// The function did not answer in time. The invocation may have taken effect.
    #[error("the function did not answer in time")]
    TimedOut,
    /// The process ended before the answer. The invocation may have taken effect.
    #[error("the function's process ended before it answered: {how}")]
    Exited { how: String },
    #[error("the function's program could not be run: {why}")]
    NotStarted { why: String },
}

/// The progress of an invocation when its process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    Idle,
    /// The process had not taken the event, so another process may get the event.
    Untouched,
    InProgress,
}

#[derive(Debug)]
pub struct RuntimeApi {
    address: SocketAddr,
    shared: Arc<SharedInvocation>,
    /// Locked during an invocation, because a process handles one event at a time.
    turn: tokio::sync::Mutex<()>,
    server: AbortHandle,
}

#[derive(Debug)]
struct SharedInvocation {
    function_arn: HeaderValue,
    state: Mutex<InvocationState>,
    offered: Notify,
    has_polled: watch::Sender<bool>,
}

#[derive(Debug, Default)]
enum InvocationState {
    #[default]
    Idle,
    Offered(PendingEvent),
    Running {
        id: String,
        outcome: oneshot::Sender<Result<Bytes, InvokeError>>,
    },
    Failed(InvokeError),
}

#[derive(Debug)]
struct PendingEvent {
    id: String,
    payload: Bytes,
    timeout: Duration,
    taken: oneshot::Sender<()>,
    outcome: oneshot::Sender<Result<Bytes, InvokeError>>,
}

impl RuntimeApi {
    pub fn start(listener: TcpListener, function: &str) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let function_arn = format!("arn:aws:lambda:us-east-1:000000000000:function:{function}");
        let shared = Arc::new(SharedInvocation {
            function_arn: HeaderValue::from_str(&function_arn).map_err(std::io::Error::other)?,
            state: Mutex::default(),
            offered: Notify::new(),
            has_polled: watch::Sender::new(false),
        });
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .route("/2018-06-01/runtime/init/error", post(init_error))
            .layer(DefaultBodyLimit::disable())
            .with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Ok(Self { address, shared, turn: tokio::sync::Mutex::default(), server })
    }

    /// Returns the API's address, which is the value of the function's variable `AWS_LAMBDA_RUNTIME_API`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends an event to the process, after earlier events, and returns the response.
    ///
    /// The timeout starts when the process takes the event. Until then, a process that has never polled has ten
    /// seconds, as in Lambda; any other process has the timeout. Dropping this future withdraws an event that the
    /// process has not taken.
    pub async fn invoke(&self, payload: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, InvokeError> {
        let _turn = self.turn.lock().await;
        let (taken, was_taken) = oneshot::channel();
        let (outcome, answer) = oneshot::channel();
        let offer = PendingEvent { id: request_id(), payload: payload.into(), timeout, taken, outcome };
        {
            let mut state = self.shared.lock();
            if let InvocationState::Failed(error) = &*state {
                return Err(error.clone());
            }
            *state = InvocationState::Offered(offer);
        }
        let _withdrawn_when_dropped = InvocationWithdrawal(&self.shared);
        self.shared.offered.notify_one();
        let until_taken = if *self.shared.has_polled.borrow() { timeout } else { INIT_TIMEOUT };
        let in_time = async {
            // If the process fails or ends before it takes the event, `taken` is dropped and `answer` has the error.
            let _ = tokio::time::timeout(until_taken, was_taken).await.map_err(|_| InvokeError::TimedOut)?;
            tokio::time::timeout(timeout, answer).await.map_err(|_| InvokeError::TimedOut)
        };
        let gone =
            |_| InvokeError::Exited { how: "the local Runtime API ended before the function answered".to_owned() };
        in_time.await?.map_err(gone)?.map(Into::into)
    }

    pub async fn until_polled(&self) -> Result<(), InvokeError> {
        let mut has_polled = self.shared.has_polled.subscribe();
        // `self` owns the sender, so the channel is open.
        let polled = tokio::time::timeout(INIT_TIMEOUT, has_polled.wait_for(|polled| *polled)).await;
        polled.map(|_| ()).map_err(|_| InvokeError::TimedOut)
    }

    pub fn abandon(&self, how: &str) -> Abandoned {
        let exited = || Err(InvokeError::Exited { how: how.to_owned() });
        // The invoker may have stopped waiting.
        match std::mem::take(&mut *self.shared.lock()) {
            InvocationState::Idle | InvocationState::Failed(_) => Abandoned::Idle,
            InvocationState::Offered(offer) => {
                let _ = offer.outcome.send(exited());
                Abandoned::Untouched
            }
            InvocationState::Running { outcome, .. } => {
                let _ = outcome.send(exited());
                Abandoned::InProgress
            }
        }
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct InvocationWithdrawal<'a>(&'a SharedInvocation);

impl Drop for InvocationWithdrawal<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(*state, InvocationState::Offered(_) | InvocationState::Running { .. }) {
            *state = InvocationState::Idle;
        }
    }
}

impl SharedInvocation {
    fn lock(&self) -> MutexGuard<'_, InvocationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<(String, Bytes, Duration)> {
        let mut state = self.lock();
        match std::mem::take(&mut *state) {
            InvocationState::Offered(PendingEvent { id, payload, timeout, taken, outcome }) => {
                *state = InvocationState::Running { id: id.clone(), outcome };
                // The invoker may have just stopped waiting; it then withdraws the event itself.
                let _ = taken.send(());
                Some((id, payload, timeout))
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Completes the invocation with this id. Returns false if this invocation is not running.
    fn settle(&self, id: &str, result: Result<Bytes, InvokeError>) -> bool {
        let mut state = self.lock();
        match std::mem::take(&mut *state) {
            InvocationState::Running { id: running, outcome } if running == id => {
                let _ = outcome.send(result);
                true
            }
            other => {
                *state = other;
                false
            }
        }
    }
}

/// Answers a poll as soon as an event is offered. A process that polls before it responds breaks the protocol.
async fn next(State(shared): State<Arc<SharedInvocation>>) -> Response<Body> {
    shared.has_polled.send_replace(true);
    loop {
        // Only one process polls, so one permit suffices. The permit is kept if the event comes before the
        // poll.
        if let Some((id, payload, timeout)) = shared.take() {
            let deadline = (now() + timeout).as_millis().to_string();
            return Response::builder()
                .header("Content-Type", "application/json")
                .header("Lambda-Runtime-Aws-Request-Id", id)
                .header("Lambda-Runtime-Deadline-Ms", deadline)
                .header("Lambda-Runtime-Invoked-Function-Arn", &shared.function_arn)
                .header("Lambda-Runtime-Trace-Id", trace_id())
                .body(payload.into())
                .expect("ids, times and a checked ARN are header values");
        }
        if matches!(*shared.lock(), InvocationState::Running { .. }) {
            return refusal(StatusCode::FORBIDDEN, "InvalidStateTransition", "An invocation is under way.");
        }
        shared.offered.notified().await;
    }
}

async fn response(State(shared): State<Arc<SharedInvocation>>, Path(id): Path<String>, body: Bytes) -> Response<Body> {
    if body.len() > RESPONSE_BYTES {
        let message = format!("Response payload size exceeded maximum allowed payload size ({RESPONSE_BYTES} bytes).");
        let kind = "Function.ResponseSizeTooLarge".to_owned();
        shared.settle(&id, Err(InvokeError::Function { kind, message: message.clone() }));
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", &message);
    }
    settled(shared.settle(&id, Ok(body)))
}

async fn error(State(shared): State<Arc<SharedInvocation>>, Path(id): Path<String>, body: Bytes) -> Response<Body> {
    let Reported { kind, message } = Reported::read(&body);
    settled(shared.settle(&id, Err(InvokeError::Function { kind, message })))
}

async fn init_error(State(shared): State<Arc<SharedInvocation>>, body: Bytes) -> Response<Body> {
    let Reported { kind, message } = Reported::read(&body);
    let error = InvokeError::Init { kind, message };
    if let InvocationState::Offered(offer) =
        std::mem::replace(&mut *shared.lock(), InvocationState::Failed(error.clone()))
    {
        let _ = offer.outcome.send(Err(error));
    }
    accepted()
}

#[derive(Deserialize)]
struct Reported {
    #[serde(rename = "errorType", default)]
    kind: String,
    #[serde(rename = "errorMessage", default)]
    message: String,
}

impl Reported {
    /// Parses the error that a function reported. If the body has another form, the body becomes the error's message.
    fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_else(|_| Self {
            kind: "Runtime.Unknown".to_owned(),
            message: String::from_utf8_lossy(body).into_owned(),
        })
    }
}

fn settled(was_running: bool) -> Response<Body> {
    if was_running { accepted() } else { refusal(StatusCode::BAD_REQUEST, "InvalidRequestID", "Invalid request ID") }
}

fn accepted() -> Response<Body> {
    json_response(StatusCode::ACCEPTED, json!({ "status": "OK" }))
}

fn refusal(status: StatusCode, kind: &str, message: &str) -> Response<Body> {
    json_response(status, json!({ "errorType": kind, "errorMessage": message }))
}

fn json_response(status: StatusCode, value: Value) -> Response<Body> {
    axum::response::IntoResponse::into_response((status, Json(value)))
}

fn request_id() -> String {
    let high = random();
    let low = random();
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    )
}

fn trace_id() -> String {
    let seconds = now().as_secs();
    let high = random() as u32;
    let low = random();
    format!("Root=1-{seconds:08x}-{high:08x}{low:016x};Parent={:016x};Sampled=0", random())
}

fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

#[expect(clippy::disallowed_methods, reason = "the deadline is told to another process, by the machine's clock")]
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
