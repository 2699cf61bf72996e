//! The sample functions behind the real handler `invoke`. Functions, handler and `docs/invoke.schema.json`
//! agree.

use std::{collections::BTreeMap, fs, pin::Pin, sync::Arc, time::Duration};

use serde_json::{Value, json};
use serializer::local::handler_log::RunEnd;
use tests::{invoke_types, not_run::not_run, settle_counter::SettleCounter, testbed::TestBed};
use tokio::process::Command;
use webhook_serializer::{
    aws::{
        Account,
        signed::{Call, Signed},
    },
    handler::{Context, Deliveries, Handler, Outcome},
    handlers::{event::Document, invoke::Invoke},
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{FencingToken, Sequence},
    },
    sources::{LiveSources, Sources},
    time::{Env, Timestamp},
};

use super::{
    dynamodb::DynamoDb,
    incoming,
    receiver::{Receiver, node_function, python_function},
    starts_of,
};

#[path = "../../cli/src/document/reference/tests/validator.rs"]
mod validator;

use validator::Validator;

const SOURCES: &str = r#"
    [sources.shop]
    provider = "standard-webhooks"
    secrets = ["whsec_Zk93bTR6S2dRcTdUaHBY"]
    handler = "invoke"
    retry = { attempts = 2, first = "10ms" }
    invoke = { function = "orders", qualifier = "live" }

    [sources.bursts]
    provider = "standard-webhooks"
    secrets = ["whsec_Zk93bTR6S2dRcTdUaHBY"]
    handler = "invoke"
    deliver = { up_to = 3 }
    retry = { attempts = 2, first = "10ms" }
    invoke = { function = "orders" }
"#;

/// Returns an account whose Lambda is at `url`.
fn account(url: &str) -> Account {
    Account { lambda_endpoint: Some(url.trim_end_matches('/').to_owned()), ..Account::local(url, url) }
}

fn handler(url: &str, sources: impl Into<LiveSources>) -> Invoke {
    let account = account(url);
    Invoke::new(sources, &account, &account.http_client(), &Env::system())
}

fn lambda(url: &str) -> Signed {
    let account = account(url);
    account.signed(&account.http_client(), "lambda", account.lambda_endpoint.clone(), &Env::system())
}

fn schema() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/invoke.schema.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn delivery(id: &str, topic: &str, place: u64) -> Delivery {
    Delivery::detached(incoming("shop", "shop/order/9", id, topic, &Env::system()), Sequence(place))
}

fn context(token: u64) -> Context {
    Context::detached(FencingToken(token), Duration::from_secs(10), Env::system())
}

/// Sends deliveries of several orders, and checks order, effects and fencing.
async fn handles_in_order_once_and_fenced(mut function: Receiver) {
    let mut testbed = TestBed::start_for(SOURCES).await;
    let settled = SettleCounter::default();
    for _ in 0..4 {
        let parts = testbed.parts();
        let handler = handler(function.url(), testbed.sources());
        testbed.feed(testbed.drainer_on(parts.store, parts.waker, handler, Arc::new(settled.clone())));
    }
    let env = testbed.env().clone();
    let inbox = testbed.inbox();
    let broken = Incoming { body: "no JSON".into(), ..incoming("shop", "shop/order/3", "c1", "orders/create", &env) };
    let binary = Incoming { body: b"{}\n"[..].into(), ..incoming("shop", "shop/order/2", "b2", "orders/paid", &env) };
    let sent = [
        incoming("shop", "shop/order/größe 1%", "a1", "orders/create", &env),
        incoming("shop", "shop/order/2", "b1", "orders/create", &env),
        incoming("shop", "shop/order/größe 1%", "a2", "app/uninstalled", &env),
        broken,
        incoming("shop", "shop/order/größe 1%", "a3", "orders/paid", &env),
        binary,
    ];
    for incoming in &sent {
        inbox.append(incoming).await.unwrap();
    }
    settled.until(sent.len()).await;
    testbed.rest().await;

    let mut applied: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    for _ in 0..4 {
        let line = function.line().await;
        assert_eq!((&line["outcome"], &line["source"]), (&"applied".into(), &"shop".into()));
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let order = applied.entry(text("entity_key")).or_default();
        order.push((text("delivery_id"), line["fencing_token"].as_u64().unwrap()));
    }
    let ids = |entity: &str| applied[entity].iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>();
    assert_eq!(ids("shop/order/größe 1%"), ["a1", "a3"]);
    assert_eq!(ids("shop/order/2"), ["b1", "b2"]);
    assert!(applied.values().all(|order| order.is_sorted_by(|one, next| one.1 < next.1)), "{applied:?}");

    // A rejected delivery is parked at once. A failing one is parked after its retries.
    assert_eq!(starts_of(&testbed.journal, "a2").collect::<Vec<_>>(), [RunEnd::Rejected]);
    assert_eq!(starts_of(&testbed.journal, "c1").collect::<Vec<_>>(), [RunEnd::Retry; 2]);
    let parked = testbed.operator().all_parked().await.unwrap();
    let parked: BTreeMap<_, _> =
        parked.iter().map(|parked| (parked.delivery().delivery_id().as_str(), parked.error.as_str())).collect();
    assert_eq!(parked["a2"], "nobody here wants to know");
    assert!(parked["c1"].starts_with("the function failed: "), "{parked:?}");
    assert_eq!(parked.len(), 2);

    let call = async |deliveries: Vec<Delivery>, token| {
        let handler = handler(function.url(), Arc::new(Sources::parse(SOURCES).unwrap()));
        handler.handle_all(Deliveries::detached(deliveries), &context(token)).await.unwrap()
    };
    // A group is applied as a whole or not at all, and its repeats are recognised.
    let group = || vec![delivery("1", "orders/create", 1), delivery("2", "orders/paid", 2)];
    let with_a_rejected_one = [group(), vec![delivery("3", "app/uninstalled", 3)]].concat();
    assert_eq!(call(with_a_rejected_one, 10).await, Outcome::Reject("nobody here wants to know".into()));
    assert_eq!(call(group(), 11).await, Outcome::Done);
    // After a lost answer, the group comes again with one more delivery.
    assert_eq!(call([group(), vec![delivery("4", "orders/edited", 4)]].concat(), 12).await, Outcome::Done);
    assert_eq!(call(group(), 11).await, Outcome::retry("token 11 is older than 12"));
    let mut lines = Vec::new();
    for _ in 0..5 {
        let line = function.line().await;
        lines.push(format!("{} {}", line["outcome"].as_str().unwrap(), line["delivery_id"].as_str().unwrap()));
    }
    assert_eq!(lines, ["applied 1", "applied 2", "repeated 1", "repeated 2", "applied 4"]);

    // The function's answers match the schema.
    let answer = Validator::new(&schema()["definitions"]["answer"].to_string());
    for (deliveries, token, outcome) in [
        (vec![delivery("5", "orders/paid", 5)], 13, "done"),
        (vec![delivery("6", "app/uninstalled", 6)], 14, "reject"),
        (vec![delivery("7", "orders/paid", 7)], 1, "retry"),
    ] {
        let body = Document::new(&deliveries.iter().collect::<Vec<_>>(), FencingToken(token)).json();
        let path = "/2015-03-31/functions/orders/invocations";
        let asked = Call { method: "POST", path, headers: &[], body };
        let answered = lambda(function.url()).send(asked, Duration::from_secs(10)).await.unwrap();
        let answered: Value = serde_json::from_slice(&answered.body).unwrap();
        let judged = (answered["outcome"].as_str(), answer.objections(&answered));
        assert_eq!(judged, (Some(outcome), vec![]), "{answered}");
    }
}

/// Runs the check on the function in each language, each with a separate store.
async fn with_each_function(check: impl AsyncFn(&DynamoDb, fn() -> Starting)) {
    let functions: [fn() -> Starting; 2] = [|| Box::pin(python_function()), || Box::pin(node_function())];
    for function in functions {
        match function().await {
            Ok(_) => check(&DynamoDb::start().await, function).await,
            Err(reason) => not_run(&reason),
        }
    }
}

type Starting = Pin<Box<dyn Future<Output = Result<Command, String>>>>;

async fn started(store: &DynamoDb, function: fn() -> Starting) -> Receiver {
    Receiver::start(store.function(function().await.unwrap()), "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_keep_order_ignore_repeats_and_refuse_old_tokens() {
    with_each_function(async |store, function| handles_in_order_once_and_fenced(started(store, function).await).await)
        .await;
}

/// Each step starts another instance of the function, so only the table remembers.
async fn applies_once_whatever_is_lost(store: &DynamoDb, function: fn() -> Starting) {
    let order = "shop/order/9";
    let call = async |id: &str, topic: &str, token: u64| {
        let mut function = started(store, function).await;
        let handler = handler(function.url(), Arc::new(Sources::parse(SOURCES).unwrap()));
        let outcome = handler.handle(&delivery(id, topic, token), &context(token)).await.unwrap();
        let outcome = match outcome {
            Outcome::Done => function.line().await["outcome"].as_str().unwrap().to_owned(),
            other => format!("{other:?}"),
        };
        store.assert_happened();
        outcome
    };
    store.lose_reply("UpdateItem");
    assert_eq!(call("1", "orders/create", 10).await, "applied", "the claim's reply was lost");
    store.lose_reply("PutItem");
    assert_eq!(call("2", "orders/paid", 11).await, "applied", "the reply of the last write was lost");
    assert_eq!(store.row(order).await, ("orders/paid".into(), 11, 2));
    assert_eq!(call("2", "orders/paid", 12).await, "repeated", "the function's answer was lost");
    let stale = call("1", "orders/create", 11).await;
    assert!(stale.contains("token 11 is older than 12"), "{stale}");
    // The row keeps a rejected delivery's token, but not its id.
    assert!(call("3", "app/uninstalled", 13).await.contains("nobody here wants to know"));
    assert_eq!(store.row(order).await, ("orders/paid".into(), 13, 2));

    // Between its two writes, this start is replaced by another.
    let (arrival, release) = store.hold("PutItem");
    let late = async { call("4", "orders/edited", 14).await };
    let newer = async {
        arrival.await.unwrap();
        assert_eq!(call("4", "orders/edited", 15).await, "applied");
        release.send(()).unwrap();
    };
    let (late, ()) = tokio::join!(late, newer);
    assert!(late.contains("token 14 was replaced by a newer one"), "{late}");
    assert_eq!(store.row(order).await, ("orders/edited".into(), 15, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn invoked_functions_apply_deliveries_once_despite_lost_replies() {
    with_each_function(applies_once_whatever_is_lost).await;
}

/// Four deliveries wait, and a start gets up to three of them.
pub async fn handles_groups<H: Handler + Clone>(
    mut function: Receiver,
    sources: &str,
    handler: impl FnOnce(&str, LiveSources) -> H,
) {
    let mut testbed = TestBed::start_for(sources).await;
    let env = testbed.env().clone();
    let inbox = testbed.inbox();
    for id in ["1", "2", "3", "4"] {
        inbox.append(&incoming("bursts", "bursts/order/1", id, "orders/edited", &env)).await.unwrap();
    }
    let settled = SettleCounter::default();
    let parts = testbed.parts();
    let handler = handler(function.url(), testbed.sources().into());
    testbed.feed(testbed.drainer_on(parts.store, parts.waker, handler, Arc::new(settled.clone())));
    settled.until(4).await;
    testbed.rest().await;
    let mut applied = Vec::new();
    for _ in 0..4 {
        let line = function.line().await;
        assert_eq!(line["outcome"], "applied");
        applied.push((line["delivery_id"].as_str().unwrap().to_owned(), line["fencing_token"].as_u64().unwrap()));
    }
    let first = applied[0].1;
    let starts: Vec<_> = applied.iter().map(|(id, token)| (id.as_str(), token - first)).collect();
    assert_eq!(starts, [("1", 0), ("2", 0), ("3", 0), ("4", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invoked_function_gets_waiting_deliveries_in_one_call() {
    with_each_function(async |store, function| handles_groups(started(store, function).await, SOURCES, handler).await)
        .await;
}

#[test]
fn invoke_event_matches_the_schema() {
    let schema = schema();
    let validator = Validator::new(&schema.to_string());
    let full = incoming("shop", "shop/order/№ 7", "größe", "orders/paid", &Env::system());
    let full = Incoming {
        provider: Some("shopify".into()),
        event_time: Some(Timestamp::from_secs(1_795_248_000)),
        body: b"\xff"[..].into(),
        ..full
    };
    let bare = Incoming { content_type: None, ..incoming("shop", "shop/order/№ 7", "2", "", &Env::system()) };
    let deliveries = [Delivery::detached(full, Sequence(1)), Delivery::detached(bare, Sequence(2))];
    let event = Document::new(&[&deliveries[0], &deliveries[1]], FencingToken(9)).json();
    let event: Value = serde_json::from_slice(&event).unwrap();
    assert_eq!(validator.objections(&event), Vec::<String>::new(), "{event}");
    // The event has exactly the described fields. `traceparent` is sent only with traces; see `tests/traces`.
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let described = |schema: &Value, sometimes: &[&str]| {
        let mut required: Vec<_> =
            schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        required.sort_unstable();
        let mut described = names(&schema["properties"]);
        described.retain(|name| !sometimes.contains(&name.as_str()));
        assert_eq!(described, required, "all fields are required");
        required
    };
    let schema_of_one = &schema["properties"]["deliveries"]["items"];
    assert_eq!(names(&event), described(&schema, &[]));
    assert_eq!(names(&event["deliveries"][1]), described(schema_of_one, &["traceparent"]));
    assert!(schema_of_one["properties"]["traceparent"].is_object(), "`traceparent` is described");
    // The schema refuses wrong events.
    for (path, wrong) in [("/version", json!(2)), ("/deliveries", json!([])), ("/deliveries/0/body", json!(null))] {
        let mut event = event.clone();
        *event.pointer_mut(path).unwrap() = wrong;
        assert_ne!(validator.objections(&event), Vec::<String>::new(), "{path}");
    }
}

#[test]
fn example_invoke_types_match_the_schema() {
    let schema = schema();
    for (name, made) in [("py", invoke_types::python(&schema)), ("ts", invoke_types::typescript(&schema))] {
        let path = format!("{}/../shared/examples/receivers/invoke_types.{name}", env!("CARGO_MANIFEST_DIR"));
        let found = fs::read_to_string(path).unwrap();
        assert!(
            found == made,
            "invoke_types.{name} is not made from this schema: cargo run -p tests --bin invoke-types"
        );
    }
}
