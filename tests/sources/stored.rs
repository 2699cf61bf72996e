//! Changes of a document in Parameter Store or Secrets Manager. The command's own code and HTTP client make
//! them, in an emulation that keeps versions as these services do.

use std::sync::{
    MutexGuard,
    atomic::{AtomicU32, Ordering},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::{Value, json};
use serializer::document::{ChangeOutcome, DocumentPlace, DocumentText, apply};
use tests::prelude::*;
use tokio::net::TcpListener;
use webhook_serializer::config::SourcesOrigin;

const NAME: &str = "/webhooks/sources";
const ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:sources-AbCdEf";

#[derive(Default)]
struct StandInServices {
    /// The parameter's versions; the last is the current one.
    parameter: Vec<String>,
    tier: &'static str,
    /// The secret's versions, by their ids.
    secret: Vec<(String, String)>,
    /// The id of the secret's current version.
    current: String,
    /// Documents that somebody else writes right before the next write.
    others: Vec<String>,
    denied: &'static str,
    /// The next write of the parameter lands, and its reply is lost.
    loses_reply: bool,
    requests: Vec<(String, Value)>,
}

#[derive(Clone, Default)]
struct ServicesStandIn(Arc<Mutex<StandInServices>>);

impl ServicesStandIn {
    fn services(&self) -> MutexGuard<'_, StandInServices> {
        self.0.lock().expect("no one panics while holding this")
    }

    /// Puts `text` into both services.
    fn with(text: &str) -> Self {
        let stand_in = Self::default();
        let mut services = stand_in.services();
        services.parameter.push(text.to_owned());
        services.secret.push(("first".into(), text.to_owned()));
        (services.current, services.tier) = ("first".into(), "Standard");
        drop(services);
        stand_in
    }

    async fn place(&self, origin: SourcesOrigin) -> DocumentPlace {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/", post(answer)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let account = Account {
            ssm_endpoint: Some(url.clone()),
            secrets_endpoint: Some(url),
            ..Account::local("http://127.0.0.1:1", "http://127.0.0.1:1")
        };
        DocumentPlace::at(origin, Some(&account)).unwrap()
    }

    async fn places(&self) -> [DocumentPlace; 2] {
        [self.place(SourcesOrigin::Parameter(NAME.into())).await, self.place(SourcesOrigin::Secret(ARN.into())).await]
    }

    async fn read(place: &DocumentPlace) -> Sources {
        Sources::parse(&place.read().await.unwrap().unwrap().text).unwrap()
    }
}

async fn answer(State(stand_in): State<ServicesStandIn>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    let target = headers["x-amz-target"].to_str().unwrap().split_once('.').unwrap().1.to_owned();
    let question: Value = serde_json::from_slice(&body).unwrap();
    let mut services = stand_in.services();
    services.requests.push((target.clone(), question.clone()));
    let text = |name: &str| question[name].as_str().unwrap_or_default().to_owned();
    let refusal = |kind: &str| (StatusCode::BAD_REQUEST, json!({ "__type": kind, "message": "hush" }).to_string());
    if target == services.denied {
        return refusal("AccessDeniedException");
    }
    let done = match target.as_str() {
        "GetParameter" => {
            let asked = text("Name");
            let number = asked.split_once(':').map_or(services.parameter.len(), |(_, number)| number.parse().unwrap());
            let Some(value) = number.checked_sub(1).and_then(|at| services.parameter.get(at)) else {
                return refusal("ParameterNotFound");
            };
            json!({ "Parameter": { "Name": NAME, "Type": "SecureString", "Value": value, "Version": number } })
        }
        // On the real service, a page may be empty without being the last.
        "DescribeParameters" if question["NextToken"].is_null() => json!({ "Parameters": [], "NextToken": "more" }),
        "DescribeParameters" => json!({ "Parameters": [{ "Name": NAME, "Tier": services.tier, "KeyId": "own-key" }] }),
        "PutParameter" if question["Overwrite"] == false && !services.parameter.is_empty() => {
            return refusal("ParameterAlreadyExists");
        }
        "PutParameter" => {
            let others: Vec<String> = services.others.drain(..).collect();
            services.parameter.extend(others);
            services.parameter.push(text("Value"));
            if std::mem::take(&mut services.loses_reply) {
                return (StatusCode::INTERNAL_SERVER_ERROR, String::new());
            }
            json!({ "Version": services.parameter.len() })
        }
        "GetSecretValue" => {
            let Some((id, value)) = services.secret.iter().find(|(id, _)| *id == services.current) else {
                return refusal("ResourceNotFoundException");
            };
            json!({ "SecretString": value, "VersionId": id })
        }
        "PutSecretValue" => {
            assert_eq!(question["VersionStages"], json!(["SERIALIZERPENDING"]), "the current one stays");
            services.secret.push((text("ClientRequestToken"), text("SecretString")));
            if let Some(other) = services.others.pop() {
                services.secret.push(("others".into(), other));
                services.current = "others".into();
            }
            json!({ "VersionId": text("ClientRequestToken") })
        }
        "UpdateSecretVersionStage" if text("RemoveFromVersionId") != services.current => {
            return refusal("InvalidParameterException");
        }
        "UpdateSecretVersionStage" => {
            services.current = text("MoveToVersionId");
            json!({})
        }
        other => panic!("{other}"),
    };
    (StatusCode::OK, done.to_string())
}

fn source(name: &str) -> String {
    format!("[sources.{name}]\nprovider = 'shopify'\nsecrets = ['{name}']\nhandler = 'orders'\n")
}

fn fields() -> Vec<(String, Value)> {
    let field = |(name, value): (&str, Value)| (name.to_owned(), value);
    [("provider", json!("shopify")), ("secrets", json!(["new"])), ("handler", json!("orders"))].map(field).to_vec()
}

async fn add(place: &DocumentPlace, name: &str) -> anyhow::Result<ChangeOutcome> {
    let edit = |text: &mut DocumentText| {
        anyhow::ensure!(!text.has(name), "there is a source `{name}` already");
        text.insert(name, &fields())
    };
    apply(place, 60, edit, |_| Ok(true)).await
}

fn names(sources: &Sources) -> Vec<String> {
    sources.iter().map(|source| source.name.to_string()).collect()
}

#[tokio::test]
async fn concurrent_document_write_is_merged_with_change() {
    for at in 0..2 {
        let stand_in = ServicesStandIn::with(&source("first"));
        let place = &stand_in.places().await[at];
        stand_in.services().others.push(source("first") + &source("theirs"));
        assert!(matches!(add(place, "ours").await.unwrap(), ChangeOutcome::Done(..)));
        assert_eq!(names(&ServicesStandIn::read(place).await), ["first", "ours", "theirs"], "{place}");
    }
}

#[tokio::test]
async fn unanswered_parameter_write_is_merged_with_concurrent_write() {
    let stand_in = ServicesStandIn::with(&source("first"));
    let [parameter, _] = stand_in.places().await;
    stand_in.services().others.push(source("first") + &source("theirs"));
    stand_in.services().loses_reply = true;
    assert!(matches!(add(&parameter, "ours").await.unwrap(), ChangeOutcome::Done(..)));
    assert_eq!(names(&ServicesStandIn::read(&parameter).await), ["first", "ours", "theirs"]);
}

#[tokio::test]
async fn conflicting_change_is_refused_and_concurrent_write_kept() {
    for at in 0..2 {
        let stand_in = ServicesStandIn::with(&source("first"));
        let place = &stand_in.places().await[at];
        let theirs = source("first") + &source("ours");
        stand_in.services().others.push(theirs.clone());
        let refused = format!("{:#}", add(place, "ours").await.unwrap_err());
        assert!(refused.ends_with("there is a source `ours` already"), "{refused}");
        assert_eq!(place.read().await.unwrap().unwrap().text, theirs, "{place}: {refused}");
    }
}

#[tokio::test]
async fn declined_change_restores_concurrent_write() {
    let stand_in = ServicesStandIn::with(&source("first"));
    let [parameter, _] = stand_in.places().await;
    let theirs = source("first") + &source("theirs");
    stand_in.services().others.push(theirs.clone());
    let asked = AtomicU32::new(0);
    // The first question is answered with yes. Theirs changes the difference, so there is a second.
    let edit = |text: &mut DocumentText| text.insert(if text.has("theirs") { "other" } else { "ours" }, &fields());
    let changed = apply(&parameter, 60, edit, |_| Ok(asked.fetch_add(1, Ordering::Relaxed) == 0)).await;
    assert!(matches!(changed, Ok(ChangeOutcome::Declined)));
    assert_eq!((asked.into_inner(), parameter.read().await.unwrap().unwrap().text), (2, theirs));
}

#[tokio::test]
async fn changed_ssm_parameter_keeps_key_tier_and_type() {
    let stand_in = ServicesStandIn::with(&source("first"));
    stand_in.services().tier = "Advanced";
    let [parameter, _] = stand_in.places().await;
    assert!(matches!(add(&parameter, "ours").await.unwrap(), ChangeOutcome::Done(_, Some(version)) if version == "2"));
    let asked = std::mem::take(&mut stand_in.services().requests);
    let (_, put) = asked.into_iter().find(|(target, _)| target == "PutParameter").unwrap();
    let said = (&put["KeyId"], &put["Tier"], &put["Type"], &put["Overwrite"]);
    assert_eq!(said, (&json!("own-key"), &json!("Advanced"), &json!("SecureString"), &json!(true)));
}

#[tokio::test]
async fn missing_parameter_is_created_but_missing_secret_refused() {
    let stand_in = ServicesStandIn::default();
    let [parameter, secret] = stand_in.places().await;
    assert!(matches!(add(&parameter, "ours").await.unwrap(), ChangeOutcome::Done(_, Some(version)) if version == "1"));
    let refused = format!("{:#}", add(&secret, "ours").await.unwrap_err());
    assert!(refused.contains("there is no such secret") && refused.contains("create-secret"), "{refused}");
}

#[tokio::test]
async fn denied_change_names_the_missing_permission() {
    let stand_in = ServicesStandIn::with(&source("first"));
    let places = stand_in.places().await;
    for (at, denied, needed) in [
        (0, "GetParameter", "ssm:GetParameter"),
        (0, "DescribeParameters", "ssm:DescribeParameters"),
        (0, "PutParameter", "ssm:PutParameter"),
        (1, "GetSecretValue", "secretsmanager:GetSecretValue"),
        (1, "PutSecretValue", "secretsmanager:PutSecretValue"),
        (1, "UpdateSecretVersionStage", "secretsmanager:UpdateSecretVersionStage"),
    ] {
        stand_in.services().denied = denied;
        let refused = format!("{:#}", add(&places[at], "ours").await.unwrap_err());
        assert!(refused.contains(needed) && !refused.contains("hush"), "{denied}: {refused}");
        stand_in.services().denied = "";
        assert_eq!(names(&ServicesStandIn::read(&places[at]).await), ["first"], "{denied}");
    }
    let nobody = Account {
        ssm_endpoint: Some("http://127.0.0.1:1".into()),
        ..Account::local("http://127.0.0.1:1", "http://127.0.0.1:1")
    };
    let gone = DocumentPlace::at(SourcesOrigin::Parameter(NAME.into()), Some(&nobody)).unwrap();
    let refused = format!("{:#}", add(&gone, "ours").await.unwrap_err());
    assert_eq!(refused, "the parameter /webhooks/sources cannot be read: ssm does not answer at http://127.0.0.1:1");
}

#[tokio::test]
async fn oversized_document_is_refused_without_a_write() {
    let long = |bytes: usize| format!("# {}\n{}", "x".repeat(bytes), source("first"));
    for (at, tier, bytes, limit) in [
        (0, "Standard", 4000, "and a standard parameter holds 4096: give the parameter the tier Advanced"),
        (0, "Advanced", 8100, "and a parameter holds 8192: move the document to Secrets Manager"),
        (1, "", 65_500, "and a secret holds 65536"),
    ] {
        let stand_in = ServicesStandIn::with(&long(bytes));
        stand_in.services().tier = tier;
        let place = &stand_in.places().await[at];
        let refused = format!("{:#}", add(place, "ours").await.unwrap_err());
        assert!(refused.contains(limit), "{refused}");
        assert!(!stand_in.services().requests.iter().any(|(target, _)| target.starts_with("Put")), "{refused}");
    }
    let stand_in = ServicesStandIn::with(&long(4000));
    stand_in.services().tier = "Advanced";
    let [parameter, _] = stand_in.places().await;
    assert!(matches!(add(&parameter, "ours").await.unwrap(), ChangeOutcome::Done(..)));
}
