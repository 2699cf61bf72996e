//! The front doors, and the ingest function behind them. Its own `main` runs in a process with the variables
//! that a deploy sets.

use std::{io::Write as _, path::PathBuf, time::Duration};

use serde_json::Value;
use serializer::local::{
    Engines,
    function_process::{FunctionProcess, FunctionSettings, ProcessLogs},
};
use tests::{
    chaos::roles::ROLE,
    webhooks::{request, signed, update},
};
use webhook_serializer::{functions::ingest::HttpRequest, protocol::entity::EntityKey, sources::Sources, time::Env};

use crate::{core, document::text};

const ORIGIN_SECRET: &str = "0123456789abcdef0123456789abcdef";

const SOURCES: &str = r#"
[sources.test]
provider = "standard-webhooks"
secrets = ["whsec_Zk93bTR6S2dRcTdUaHBY"]
handler = "test"

[sources.adobe]
provider = "adobe-io-events"
client_id = "4fc8b9b2d2f14f4e8f6f3a6d1b1c0a55"
handler = "test"
"#;

/// Returns whether an HTTP API sends a request to this route's integration.
fn matches(route: &str, method: &str, path: &str) -> bool {
    let Some((routed, pattern)) = route.split_once(' ') else { return route == "$default" };
    let pattern: Vec<_> = pattern.split('/').collect();
    let path: Vec<_> = path.split('/').collect();
    let is_same = |(pattern, part): (&&str, &&str)| pattern.starts_with('{') && !part.is_empty() || pattern == part;
    (routed == method || routed == "ANY") && pattern.len() == path.len() && pattern.iter().zip(&path).all(is_same)
}

/// Promise: both doors pass on the same; no parameter replaces a table, queue or URL.
#[test]
fn http_api_and_function_url_forward_same_requests() {
    let deployed = core().deployed(&[("FrontDoor", "both")]);
    let route = deployed.text("IngestApiRoute Properties RouteKey");
    for (method, path) in [
        ("POST", "/webhooks/shop"),
        ("POST", "/webhooks/shop/"),
        ("GET", "/webhooks/adobe"),
        ("HEAD", "/webhooks/shop"),
        ("POST", "/elsewhere"),
    ] {
        assert!(matches(route, method, path), "{method} {path}");
    }
    assert!(!matches("POST /webhooks/{source}", "GET", "/webhooks/adobe"), "as API Gateway compares");
    assert!(!matches("POST /webhooks/{source}", "POST", "/webhooks/shop/"), "as API Gateway compares");

    // Both doors lead to the function itself, are open to everybody, and send the payload format that the
    // function reads.
    assert_eq!(deployed.text("IngestUrl Properties TargetFunctionArn"), "Ingest.Arn");
    assert_eq!(deployed.text("IngestUrl Properties AuthType"), "NONE");
    assert_eq!(deployed.text("IngestApiIntegration Properties IntegrationUri"), "Ingest.Arn");
    assert_eq!(deployed.text("IngestApiIntegration Properties PayloadFormatVersion"), "2.0");
    assert_eq!(deployed.text("IngestApiIntegration DependsOn"), "IngestApiPermission");
    assert_eq!(deployed.text("IngestApiRoute Properties AuthorizationType"), "NONE");
    assert_eq!(deployed.text("IngestApiStage Properties StageName"), "$default", "a stage would be part of the path");
    let permissions = deployed.of_type("AWS::Lambda::Permission");
    let actions: Vec<_> = permissions.values().map(|permission| text(&permission["Action"])).collect();
    assert_eq!(actions, ["lambda:InvokeFunction", "lambda:InvokeFunction", "lambda:InvokeFunctionUrl"]);
    assert_eq!(permissions["IngestInvokePermission"]["InvokedViaFunctionUrl"], "true");
}

/// The function's process and its engines.
struct Door {
    engines: Engines,
    process: FunctionProcess,
    sources: Sources,
    env: Env,
    _document: tempfile::NamedTempFile,
}

impl Door {
    async fn deployed(document: &str) -> Self {
        let engines = Engines::start(None).await.expect("they start");
        let mut stored = tempfile::NamedTempFile::new().expect("a file");
        stored.write_all(document.as_bytes()).expect("it is written");
        let config = engines.config();
        let variables = core().deployed(&[]).variables("Ingest").into_iter().map(|(name, value)| {
            let value = match value.as_str() {
                "EntitiesTable" => config.entities_table.clone(),
                "InboxTable" => config.inbox_table.clone(),
                "WakeUps" => config.queue_url.clone(),
                "/${AWS::StackName}/sources" => format!("file:{}", stored.path().display()),
                _ => value,
            };
            (name, value)
        });
        let of_lambda = [
            (ROLE, "ingest".to_owned()),
            ("AWS_ACCESS_KEY_ID", "local".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "local".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", engines.dynamodb_url()),
            ("AWS_ENDPOINT_URL_SQS", engines.queue_endpoint()),
        ];
        let environment = variables.chain(of_lambda.map(|(name, value)| (name.to_owned(), value))).collect();
        let process = FunctionProcess::new(FunctionSettings {
            name: "ingest".to_owned(),
            program: PathBuf::from(env!("CARGO_BIN_EXE_chaos")),
            timeout: Duration::from_secs(60),
            memory_mb: 128,
            environment,
            logs: ProcessLogs::Discarded,
        });
        let sources = Sources::parse(document).expect("they are right");
        Self { engines, process, sources, env: Env::system(), _document: stored }
    }

    async fn answer(&mut self, request: &HttpRequest) -> (u64, String) {
        let answer = self.process.invoke(serde_json::to_vec(request).expect("it is JSON")).await.expect("it answers");
        let answer: Value = serde_json::from_slice(&answer).expect("it answers in JSON");
        (answer["statusCode"].as_u64().expect("a status"), text(&answer["body"]))
    }

    /// Posts a valid delivery with these headers.
    async fn post(&mut self, id: &str, headers: &[(&str, &str)]) -> (u64, String) {
        let mut request = request(&signed(&self.sources, "test", id, update("7"), self.env.now()));
        request.headers.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self.answer(&request).await
    }

    async fn waiting(&self) -> u64 {
        let store = self.engines.connect(&self.env, None).store;
        let entity = EntityKey::parse("test/order/7").expect("a key");
        let state = store.entity(&entity, Duration::from_secs(5)).await.expect("it answers");
        state.map_or(0, |state| state.waiting())
    }
}

/// Promise: 403 without the secret of `origin` in `x-origin-secret`.
#[tokio::test(flavor = "multi_thread")]
async fn request_without_the_origin_secret_gets_403() {
    let mut door = Door::deployed(&format!("[origin]\nsecret = '{ORIGIN_SECRET}'\n{SOURCES}")).await;
    for headers in [&[][..], &[("x-origin-secret", "fedcba9876543210fedcba9876543210")]] {
        let (status, said) = door.post("around", headers).await;
        assert_eq!((status, said.contains(ORIGIN_SECRET)), (403, false), "{said}");
    }
    assert_eq!(door.waiting().await, 0, "both were signed");
    assert_eq!(door.post("through", &[("x-origin-secret", ORIGIN_SECRET)]).await.0, 200);
    assert_eq!(door.waiting().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn deployed_ingest_accepts_webhooks_and_answers_challenges() {
    let mut door = Door::deployed(SOURCES).await;
    let (status, said) = door.post("1", &[("content-encoding", "gzip")]).await;
    assert_eq!(status, 415, "{said}");
    assert!(said.contains("the body is compressed (gzip): send it as it is"), "{said}");
    assert_eq!(door.waiting().await, 0);
    assert_eq!(door.post("2", &[("content-encoding", "identity")]).await.0, 200);
    assert_eq!(door.waiting().await, 1);
    let mut challenge = HttpRequest { raw_path: "/webhooks/adobe".into(), ..HttpRequest::default() };
    challenge.raw_query_string = "challenge=8ec8d794-e0ab-42df-9017-e3dada8e84f7".into();
    challenge.request_context.http.method = "GET".into();
    let (status, said) = door.answer(&challenge).await;
    assert_eq!((status, said.contains("8ec8d794")), (200, true), "{said}");
}
