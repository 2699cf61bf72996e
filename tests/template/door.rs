//! The ingest function as the template configures it: its own `main`, in a
//! process of its own, with the variables that a deploy gives it.

use std::{io::Write as _, path::PathBuf, time::Duration};

use serde_json::Value;
use serializer::local::{
    Engines,
    function_process::{FunctionProcess, FunctionSettings, Logs},
};
use tests::{
    chaos::roles::ROLE,
    webhooks::{request, signed, update},
};
use webhook_serializer::{functions::ingest::Request, protocol::entity::EntityKey, sources::Sources, time::Env};

use crate::document::{Template, text};

/// What stands in the parameter that `OriginSecret` names.
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// What is in SSM, in a file here.
const SOURCES: &str = r#"
[sources.test]
provider = "standard-webhooks"
secrets = ["whsec_c2VjcmV0"]
handler = "test"
"#;

/// The variables of a deploy with these parameters; what CloudFormation and AWS put
/// in for names is put in from here.
fn environment(given: &[(&str, &str)], engines: &Engines, sources: &str) -> Vec<(String, String)> {
    let (template, config) = (Template::read(), engines.config());
    let deployed = template.deployed(given);
    let variables = deployed.at("Ingest Properties Environment Variables").as_object().expect("variables");
    let found = variables.iter().map(|(name, value)| {
        let value = match text(value).as_str() {
            "EntitiesTable" => config.entities_table.clone(),
            "InboxTable" => config.inbox_table.clone(),
            "WakeUps" => config.queue_url.clone(),
            "{{resolve:ssm:/webhook-serializer/origin:3}}" => SECRET.to_owned(),
            other => other.to_owned(),
        };
        match name.as_str() {
            "SOURCES_PARAMETER" => ("SOURCES_FILE".to_owned(), sources.to_owned()),
            _ => (name.clone(), value),
        }
    });
    let of_lambda = [
        (ROLE, "ingest".to_owned()),
        ("AWS_ACCESS_KEY_ID", "local".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "local".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT_URL_DYNAMODB", engines.dynamodb_url()),
        ("AWS_ENDPOINT_URL_SQS", engines.queue_endpoint()),
    ];
    found.chain(of_lambda.map(|(name, value)| (name.to_owned(), value))).collect()
}

/// A function's process, and what it is asked.
struct Door {
    engines: Engines,
    process: FunctionProcess,
    sources: Sources,
    env: Env,
    _document: tempfile::NamedTempFile,
}

impl Door {
    async fn deployed(given: &[(&str, &str)]) -> Self {
        let engines = Engines::start(None).await.expect("they start");
        let mut document = tempfile::NamedTempFile::new().expect("a file");
        document.write_all(SOURCES.as_bytes()).expect("it is written");
        let process = FunctionProcess::new(FunctionSettings {
            name: "ingest".to_owned(),
            program: PathBuf::from(env!("CARGO_BIN_EXE_chaos")),
            timeout: Duration::from_secs(60),
            memory_mb: 128,
            environment: environment(given, &engines, &document.path().display().to_string()),
            logs: Logs::Discarded,
        });
        let sources = Sources::parse(SOURCES).expect("they are right");
        Self { engines, process, sources, env: Env::system(), _document: document }
    }

    /// A delivery that is right, with these headers besides.
    fn request(&self, id: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = request(&signed(&self.sources, "test", id, update("7"), self.env.now()));
        request.headers.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        request
    }

    async fn post(&mut self, id: &str, headers: &[(&str, &str)]) -> (u64, String) {
        let event = serde_json::to_vec(&self.request(id, headers)).expect("it is JSON");
        let answer = self.process.invoke(event).await.expect("it answers");
        let answer: Value = serde_json::from_slice(&answer).expect("it answers in JSON");
        (answer["statusCode"].as_u64().expect("a status"), text(&answer["body"]))
    }

    async fn waiting(&self) -> u64 {
        let store = self.engines.connect(&self.env, None).store;
        let entity = EntityKey::parse("test/order/7").expect("a key");
        let state = store.entity(&entity, Duration::from_secs(5)).await.expect("it answers");
        state.map_or(0, |state| state.waiting())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_origin_secret_only_what_came_through_the_front_is_looked_at() {
    let mut door = Door::deployed(&[("OriginSecret", "/webhook-serializer/origin:3")]).await;
    let (status, said) = door.post("around", &[]).await;
    assert_eq!((status, said.contains(SECRET)), (403, false), "{said}");
    let (status, said) = door.post("guessed", &[("x-origin-secret", "fedcba9876543210fedcba9876543210")]).await;
    assert_eq!((status, said.contains(SECRET)), (403, false), "{said}");
    assert_eq!(door.waiting().await, 0, "both were signed");
    assert_eq!(door.post("through", &[("x-origin-secret", SECRET)]).await.0, 200);
    assert_eq!(door.waiting().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_one_what_is_signed_is_accepted_and_a_compressed_body_is_refused_with_words() {
    let mut door = Door::deployed(&[]).await;
    let (status, said) = door.post("1", &[("content-encoding", "gzip")]).await;
    assert_eq!(status, 415, "{said}");
    assert!(said.contains("the body is compressed (gzip): send it as it is"), "{said}");
    assert_eq!(door.waiting().await, 0);
    assert_eq!(door.post("2", &[("content-encoding", "identity")]).await.0, 200);
    assert_eq!(door.waiting().await, 1);
}
