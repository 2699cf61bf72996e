//! The document behind the two services, over the wire: a stand-in for them on
//! loopback, the functions' own HTTP client.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::AbortHandle};
use webhook_serializer::{
    aws::Account,
    config::SourcesOrigin,
    sources::{Document, LiveSources, Newest, SPACING},
    telemetry::Quiet,
    time::{Clock, Env, SeededRandom, SystemClock, Timestamp},
};

use crate::script::document;

const SECRET: &str = "bm90IHRvIGJlIHNob3du";
const ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:sources-AbCdEf";

/// One request as the stand-in got it.
#[derive(Debug, Clone)]
struct Asked {
    target: String,
    authorization: String,
    question: Value,
}

/// What the stand-in does.
#[derive(Clone)]
enum Reply {
    /// Answers.
    Says(StatusCode, String),
    /// Takes the request and never answers.
    Hangs,
}

#[derive(Clone)]
struct StandIn {
    asked: Arc<Mutex<Vec<Asked>>>,
    reply: Arc<Mutex<Reply>>,
    url: String,
    server: AbortHandle,
}

async fn answer(State(stand_in): State<Shared>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let (target, authorization) = (header("x-amz-target"), header("authorization"));
    let question = serde_json::from_slice(&body).unwrap();
    stand_in.0.lock().unwrap().push(Asked { target, authorization, question });
    let reply = stand_in.1.lock().unwrap().clone();
    match reply {
        Reply::Says(status, body) => (status, body),
        Reply::Hangs => std::future::pending().await,
    }
}

type Shared = (Arc<Mutex<Vec<Asked>>>, Arc<Mutex<Reply>>);

impl StandIn {
    async fn start(reply: Reply) -> Self {
        let (asked, reply) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(reply)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/", post(answer)).with_state((asked.clone(), reply.clone()));
        let server = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Self { asked, reply, url, server }
    }

    fn replies(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }

    fn account(&self) -> Account {
        Account {
            ssm_endpoint: Some(self.url.clone()),
            secrets_endpoint: Some(self.url.clone()),
            ..Account::local("http://127.0.0.1:1", "http://127.0.0.1:1")
        }
    }

    fn document(&self, origin: SourcesOrigin, env: &Env) -> Box<dyn Document> {
        let account = self.account();
        account.document(&account.http_client(), origin, env)
    }

    async fn open(&self, origin: SourcesOrigin, env: &Env) -> Result<LiveSources, String> {
        let document = self.document(origin, env);
        LiveSources::open(document, env.clone(), Arc::new(Quiet)).await
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn parameter() -> SourcesOrigin {
    SourcesOrigin::Parameter("/webhooks/sources".into())
}

fn of_parameter(secret: &str) -> Reply {
    let document = document(&[("shop", secret)]);
    Reply::Says(StatusCode::OK, json!({ "Parameter": { "Value": document, "Version": 3 } }).to_string())
}

/// The machine's clock, ahead by some seconds that a test adds.
struct Ahead(SystemClock, Arc<Mutex<std::time::Duration>>);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.0.now() + *self.1.lock().unwrap()
    }

    fn monotonic(&self) -> std::time::Duration {
        self.0.monotonic() + *self.1.lock().unwrap()
    }

    fn sleep(&self, duration: std::time::Duration) -> futures_util::future::BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }
}

#[tokio::test]
async fn parameter_is_read_decrypted_and_signed() {
    let stand_in = StandIn::start(of_parameter(SECRET)).await;
    let live = stand_in.open(parameter(), &Env::system()).await.unwrap();
    assert_eq!(live.current().iter().map(|source| source.name.to_string()).collect::<Vec<_>>(), ["shop"]);
    let asked = stand_in.asked().remove(0);
    assert_eq!(asked.target, "AmazonSSM.GetParameter");
    assert_eq!(asked.question, json!({ "Name": "/webhooks/sources", "WithDecryption": true }));
    let scope = asked.authorization.contains("/us-east-1/ssm/aws4_request");
    let signed = asked.authorization.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-target");
    assert!(scope && signed, "{}", asked.authorization);
}

#[tokio::test]
async fn secret_is_read_by_arn_and_signed() {
    let reply = json!({ "ARN": ARN, "SecretString": document(&[("shop", SECRET)]) }).to_string();
    let stand_in = StandIn::start(Reply::Says(StatusCode::OK, reply)).await;
    let live = stand_in.open(SourcesOrigin::Secret(ARN.into()), &Env::system()).await.unwrap();
    assert_eq!(live.current().iter().count(), 1);
    let asked = stand_in.asked().remove(0);
    assert_eq!(asked.target, "secretsmanager.GetSecretValue");
    assert_eq!(asked.question, json!({ "SecretId": ARN }));
    assert!(asked.authorization.contains("/us-east-1/secretsmanager/aws4_request"), "{}", asked.authorization);
}

#[tokio::test]
async fn read_error_omits_the_service_message() {
    let refusal = |kind: &str| json!({ "__type": kind, "message": SECRET }).to_string();
    let no_document = json!({ "Parameter": { "Name": SECRET } }).to_string();
    for (reply, reason) in [
        ((StatusCode::BAD_REQUEST, refusal("ParameterNotFound")), "ssm refuses it: ParameterNotFound"),
        (
            (StatusCode::BAD_REQUEST, refusal("com.amazonaws.ssm#AccessDeniedException")),
            "ssm refuses it: AccessDeniedException",
        ),
        ((StatusCode::BAD_REQUEST, refusal("a b")), "ssm refuses it: status 400"),
        ((StatusCode::SERVICE_UNAVAILABLE, SECRET.to_owned()), "ssm refuses it: status 503"),
        ((StatusCode::OK, no_document), "ssm answers without a text that could be the document"),
        ((StatusCode::OK, SECRET.to_owned()), "ssm answers without a text that could be the document"),
    ] {
        let stand_in = StandIn::start(Reply::Says(reply.0, reply.1)).await;
        assert_eq!(stand_in.document(parameter(), &Env::system()).read().await.unwrap_err(), reason);
    }
    let gone = StandIn::start(Reply::Hangs).await;
    let gone = StandIn { url: "http://127.0.0.1:1".into(), ..gone };
    assert_eq!(gone.document(parameter(), &Env::system()).read().await.unwrap_err(), "ssm does not answer");
}

#[tokio::test]
async fn slow_or_missing_service_keeps_last_document() {
    let ahead = Arc::default();
    let env = Env::new(Ahead(SystemClock::start(), Arc::clone(&ahead)), SeededRandom::new(1));
    let pass = || *ahead.lock().unwrap() += SPACING;
    let stand_in = StandIn::start(of_parameter(SECRET)).await;
    let live = stand_in.open(parameter(), &env).await.unwrap();
    let first = live.current();

    stand_in.replies(Reply::Hangs);
    pass();
    assert_eq!(live.newest().await, Newest::Unknown, "slow");
    assert!(Arc::ptr_eq(&first, &live.current()));

    // The reading that hangs ends by itself; the next one is answered.
    stand_in.replies(of_parameter("cm9sbGVk"));
    while live.newest().await == Newest::Unknown {
        pass();
    }
    let rolled = live.current();
    assert!(!Arc::ptr_eq(&first, &rolled));

    stand_in.replies(Reply::Says(StatusCode::OK, json!({ "Parameter": { "Value": "no document" } }).to_string()));
    pass();
    assert_eq!(live.newest().await, Newest::Unknown, "wrong");
    stand_in.server.abort();
    pass();
    assert_eq!(live.newest().await, Newest::Unknown, "gone");
    assert!(Arc::ptr_eq(&rolled, &live.current()));
}
