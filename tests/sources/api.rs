//! The document in Parameter Store or Secrets Manager. The functions' own HTTP client reads it from an
//! emulation on loopback.

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::{Value, json};
use tests::prelude::*;
use tokio::{net::TcpListener, task::AbortHandle};
use webhook_serializer::{
    config::SourcesOrigin,
    sources::{NewestDocument, SPACING, SourcesDocument},
    telemetry::Quiet,
    time::SystemClock,
};

use crate::script::document;

const SECRET: &str = "bm90IHRvIGJlIHNob3du";
const ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:sources-AbCdEf";

#[derive(Debug, Clone)]
struct RecordedRequest {
    target: String,
    authorization: String,
    body: Value,
}

#[derive(Clone)]
enum ServiceReply {
    Answer(StatusCode, String),
    Silence,
}

#[derive(Clone)]
struct ApiStandIn {
    received: Arc<Mutex<Vec<RecordedRequest>>>,
    reply: Arc<Mutex<ServiceReply>>,
    url: String,
    server: AbortHandle,
}

async fn answer(State(stand_in): State<SharedService>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let target = header("x-amz-target");
    let authorization = header("authorization");
    let body = serde_json::from_slice(&body).unwrap();
    stand_in.0.lock().unwrap().push(RecordedRequest { target, authorization, body });
    let reply = stand_in.1.lock().unwrap().clone();
    match reply {
        ServiceReply::Answer(status, body) => (status, body),
        ServiceReply::Silence => std::future::pending().await,
    }
}

type SharedService = (Arc<Mutex<Vec<RecordedRequest>>>, Arc<Mutex<ServiceReply>>);

impl ApiStandIn {
    async fn start(reply: ServiceReply) -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let reply = Arc::new(Mutex::new(reply));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/", post(answer)).with_state((received.clone(), reply.clone()));
        let server = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Self { received, reply, url, server }
    }

    fn set_reply(&self, reply: ServiceReply) {
        *self.reply.lock().unwrap() = reply;
    }

    fn account(&self) -> Account {
        Account {
            ssm_endpoint: Some(self.url.clone()),
            secrets_endpoint: Some(self.url.clone()),
            ..Account::local("http://127.0.0.1:1", "http://127.0.0.1:1")
        }
    }

    fn document(&self, origin: SourcesOrigin, env: &Env) -> Box<dyn SourcesDocument> {
        let account = self.account();
        account.document(&account.http_client(), origin, env)
    }

    async fn open(&self, origin: SourcesOrigin, env: &Env) -> Result<LiveSources, String> {
        let document = self.document(origin, env);
        LiveSources::open(document, env.clone(), Arc::new(Quiet)).await
    }

    fn received(&self) -> Vec<RecordedRequest> {
        self.received.lock().unwrap().clone()
    }
}

fn parameter() -> SourcesOrigin {
    SourcesOrigin::Parameter("/webhooks/sources".into())
}

fn parameter_with(secret: &str) -> ServiceReply {
    let document = document(&[("shop", secret)]);
    ServiceReply::Answer(StatusCode::OK, json!({ "Parameter": { "Value": document, "Version": 3 } }).to_string())
}

#[tokio::test]
async fn sources_document_is_read_by_signed_request() {
    let document = document(&[("shop", SECRET)]);
    for (origin, reply, service, target, body) in [
        (
            parameter(),
            json!({ "Parameter": { "Value": document, "Version": 3 } }),
            "ssm",
            "AmazonSSM.GetParameter",
            json!({ "Name": "/webhooks/sources", "WithDecryption": true }),
        ),
        (
            SourcesOrigin::Secret(ARN.into()),
            json!({ "ARN": ARN, "SecretString": document }),
            "secretsmanager",
            "secretsmanager.GetSecretValue",
            json!({ "SecretId": ARN }),
        ),
    ] {
        let stand_in = ApiStandIn::start(ServiceReply::Answer(StatusCode::OK, reply.to_string())).await;
        let live = stand_in.open(origin, &Env::system()).await.unwrap();
        assert_eq!(live.current().iter().map(|source| source.name.to_string()).collect::<Vec<_>>(), ["shop"]);
        let received = stand_in.received().remove(0);
        assert_eq!((received.target.as_str(), &received.body), (target, &body));
        let scope = received.authorization.contains(&format!("/us-east-1/{service}/aws4_request"));
        let signed = received.authorization.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-target");
        assert!(scope && signed, "{}", received.authorization);
    }
}

#[tokio::test]
async fn document_read_error_omits_the_service_message() {
    let refusal = |kind: &str| json!({ "__type": kind, "message": SECRET }).to_string();
    let no_document = json!({ "Parameter": { "Name": SECRET } }).to_string();
    for (reply, reason) in [
        ((StatusCode::BAD_REQUEST, refusal("ParameterNotFound")), "ssm refuses the request: ParameterNotFound"),
        (
            (StatusCode::BAD_REQUEST, refusal("com.amazonaws.ssm#AccessDeniedException")),
            "ssm refuses the request: AccessDeniedException",
        ),
        ((StatusCode::BAD_REQUEST, refusal("a b")), "ssm refuses the request: status 400"),
        ((StatusCode::SERVICE_UNAVAILABLE, SECRET.to_owned()), "ssm refuses the request: status 503"),
        ((StatusCode::OK, no_document), "the answer of ssm contains no document"),
        ((StatusCode::OK, SECRET.to_owned()), "the answer of ssm contains no document"),
    ] {
        let stand_in = ApiStandIn::start(ServiceReply::Answer(reply.0, reply.1)).await;
        assert_eq!(stand_in.document(parameter(), &Env::system()).read().await.unwrap_err(), reason);
    }
    let gone = ApiStandIn::start(ServiceReply::Silence).await;
    let gone = ApiStandIn { url: "http://127.0.0.1:1".into(), ..gone };
    assert_eq!(gone.document(parameter(), &Env::system()).read().await.unwrap_err(), "ssm does not answer");
}

#[tokio::test]
async fn last_document_is_kept_if_ssm_is_silent_or_unreachable() {
    let clock = ShiftedClock::new(SystemClock::start());
    let env = clock.clone().env(1);
    let pass = || clock.pass(SPACING);
    let stand_in = ApiStandIn::start(parameter_with(SECRET)).await;
    let live = stand_in.open(parameter(), &env).await.unwrap();
    let first = live.current();

    stand_in.set_reply(ServiceReply::Silence);
    pass();
    assert_eq!(live.newest().await, NewestDocument::Unknown, "silent");
    assert!(Arc::ptr_eq(&first, &live.current()));

    // The first read hangs and times out. The next one is answered.
    stand_in.set_reply(parameter_with("cm9sbGVk"));
    while live.newest().await == NewestDocument::Unknown {
        pass();
    }
    let rolled = live.current();
    assert!(!Arc::ptr_eq(&first, &rolled));

    stand_in.set_reply(ServiceReply::Answer(
        StatusCode::OK,
        json!({ "Parameter": { "Value": "no document" } }).to_string(),
    ));
    pass();
    assert_eq!(live.newest().await, NewestDocument::Unknown, "invalid");
    stand_in.server.abort();
    pass();
    assert_eq!(live.newest().await, NewestDocument::Unknown, "gone");
    assert!(Arc::ptr_eq(&rolled, &live.current()));
}
