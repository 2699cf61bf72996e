//! The template of a user's own project is this repository, except for what makes it somebody else's.

use std::{fs, path::Path, time::Duration};

use bytes::Bytes;
use serializer::local::samples;
use webhook_serializer::{
    Context, Delivery, DeliveryId, EntityKey, Env, FencingToken, Handler, Identity, Incoming, Outcome, Sequence,
    SourceName, Timestamp, functions::ingest::HttpRequest,
};

use crate::file as read;

#[path = "../../templates/rust/functions/worker/src/lib.rs"]
#[expect(dead_code, reason = "nothing runs the function itself")]
mod worker;

/// Returns the profiles of a `Cargo.toml` that functions or tests are built with, without comments.
fn profiles(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_profile = false;
    for line in manifest.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            // These profiles are only for this repository's own measurements.
            is_profile = line.starts_with("[profile.") && line != "[profile.fast]";
        }
        if is_profile {
            found.push(line.to_owned());
        }
    }
    found
}

/// Returns the first value that the text sets `name` to.
fn set<'a>(name: &str, text: &'a str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    line.unwrap_or_else(|| panic!("{name} is not set"))
}

/// Promise: a project's template is this repository's, except the stack's name.
#[test]
fn project_template_deploys_and_builds_like_this_project() {
    let templates =
        ["template.yaml", "templates/observability.yaml", "templates/domain.yaml", "templates/inlets/queue.yaml"];
    for same in templates.into_iter().chain(["rustfmt.toml"]) {
        assert!(read(same) == read(format!("templates/rust/{same}")), "{same}");
    }
    let named = read("samconfig.toml").replace("\"webhook-serializer", "\"{{ project_name }}");
    assert_eq!(named, read("templates/rust/samconfig.toml"), "but for the stack's name");

    let ours = read("Cargo.toml");
    let theirs = read("templates/rust/Cargo.toml");
    assert!(profiles(&ours).len() > 8, "they were read");
    assert_eq!(profiles(&ours), profiles(&theirs));
    for name in ["edition", "rust-version"] {
        assert_eq!(set(name, &ours), set(name, &theirs), "{name}");
    }
    let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../templates/rust/events");
    let events = fs::read_dir(events).expect("it has samples").map(|event| event.expect("one").file_name());
    let events: Vec<String> = events.map(|name| name.into_string().expect("a name")).collect();
    assert!(events.len() >= 4, "{events:?}");
    for event in events {
        let ours = format!("events/{event}");
        let theirs = format!("templates/rust/events/{event}");
        assert!(read(&ours) == read(&theirs), "{event}");
    }
}

/// A request that only pings the endpoint reaches no handler.
///
/// Promise: one command makes a project that builds, can use tokio, passes its tests and demo.
#[tokio::test]
async fn project_handler_accepts_every_sample() {
    let totals = worker::Totals { table: Some("totals".into()) };
    let mut committed = 0;
    for (name, event) in samples::ALL.iter().filter(|(name, _)| !name.ends_with("-ping.json")) {
        let event: HttpRequest = serde_json::from_str(event).expect("an event");
        let body: Bytes = event.bytes().expect("a body").into_owned().into();
        // The template's handler reads JSON.
        if serde_json::from_slice::<serde_json::Value>(&body).is_err() {
            continue;
        }
        let incoming = Incoming {
            entity: EntityKey::parse("shop/order/1").unwrap(),
            identity: Identity {
                source: SourceName::parse("shop").unwrap(),
                delivery_id: DeliveryId::new(*name),
                redrive: 0,
            },
            provider: None,
            topic: (*name).into(),
            family: (*name).into(),
            event_time: None,
            received_at: Timestamp::from_secs(1_767_225_600),
            content_type: None,
            body,
        };
        let context = Context::detached(FencingToken(1), Duration::from_secs(5), Env::system());
        match totals.handle(&Delivery::detached(incoming, Sequence(1)), &context).await {
            Ok(Outcome::Done) => {}
            Ok(Outcome::Commit(_)) => committed += 1,
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(committed > 5, "{committed} samples have a total");
}

/// `tokio::time::sleep` compiles only if the project depends on `tokio` itself.
#[test]
fn project_template_depends_on_tokio() {
    for function in ["worker", "scheduler"] {
        let manifest = read(format!("templates/rust/functions/{function}/Cargo.toml"));
        let (_, dependencies) = manifest.split_once("[dependencies]\n").expect("dependencies");
        let dependencies = dependencies.split("\n[").next().expect("a table");
        assert!(dependencies.contains("tokio.workspace = true\n"), "{function}");
    }
    let workspace = read("templates/rust/Cargo.toml");
    assert!(workspace.lines().any(|line| line.starts_with("tokio = ") && line.contains("\"time\"")), "{workspace}");
}
