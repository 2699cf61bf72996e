//! The sample functions behind the real handler `invoke`. Functions, handler and `docs/invoke.schema.json`
//! agree.

use std::{
    collections::BTreeMap,
    fs,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::{Value, json};
use serializer::local::{TOTALS_TABLE, handler_log::RunEnd};
use tests::{
    faults::{Fault, FaultyTable},
    invoke_types,
    not_run::not_run,
    settle_counter::SettleCounter,
    testbed::TestBed,
};
use tokio::process::Command;
use webhook_serializer::{
    aws::{
        Account,
        signed::{ServiceCall, SigningClient},
    },
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    handlers::{event::Document, invoke::Invoke},
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{FencingToken, Sequence},
        table::Key,
    },
    sources::{LiveSources, Sources},
    time::{Env, Timestamp},
};

use super::{
    incoming,
    receiver::{ReceiverProcess, node, python},
    starts_of,
};

#[path = "../../cli/src/document/reference/tests/validator.rs"]
mod validator;

use validator::Validator;

pub const SOURCES: &str = r#"
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

    [sources.lossy]
    provider = "standard-webhooks"
    secrets = ["whsec_Zk93bTR6S2dRcTdUaHBY"]
    handler = "invoke"
    deliver = { up_to = 2 }
    retry = { attempts = 20, first = "10ms" }
    invoke = { function = "orders" }
"#;

/// Returns an account whose Lambda is at `url`.
fn account(url: &str) -> Account {
    Account { lambda_endpoint: Some(url.trim_end_matches('/').to_owned()), ..Account::local(url, url) }
}

pub fn handler(url: &str, sources: impl Into<LiveSources>) -> Invoke {
    let account = account(url);
    Invoke::new(sources, &account, &account.http_client(), &Env::system())
}

fn lambda(url: &str) -> SigningClient {
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

/// Returns what the row of an order says: the topic, and how many deliveries were counted.
async fn row(testbed: &TestBed, order: &str) -> (String, u64) {
    let row = testbed.table().get(&Key::named(TOTALS_TABLE, "order", order)).await.unwrap().expect("it was written");
    (row.text("topic").unwrap().to_owned(), row.number("deliveries").unwrap())
}

fn context(token: u64) -> Context {
    Context::detached(FencingToken(token), Duration::from_secs(10), Env::system())
}

/// Sends deliveries of several orders, and checks order, effects and answers.
async fn handles_in_order_and_writes_with_the_settle(mut function: ReceiverProcess) {
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
        assert_eq!((&line["outcome"], &line["source"]), (&"done".into(), &"shop".into()));
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

    assert_eq!(row(&testbed, "shop/order/größe 1%").await, ("orders/paid".into(), 2));
    assert_eq!(row(&testbed, "shop/order/2").await, ("orders/paid".into(), 2));

    // A group is answered as a whole.
    let call = async |deliveries: Vec<Delivery>, token| {
        let handler = handler(function.url(), Arc::new(Sources::parse(SOURCES).unwrap()));
        handler.handle_all(Deliveries::detached(deliveries), &context(token)).await.unwrap()
    };
    let group = vec![delivery("1", "orders/create", 1), delivery("2", "orders/paid", 2)];
    let with_a_rejected_one = [group.clone(), vec![delivery("3", "app/uninstalled", 3)]].concat();
    assert_eq!(call(with_a_rejected_one, 10).await, Outcome::Reject("nobody here wants to know".into()));
    assert!(matches!(call(group, 11).await, Outcome::Commit(writes) if writes.len() == 1));

    // The function's answers match the schema.
    let answer = Validator::new(&schema()["definitions"]["answer"].to_string());
    for (deliveries, token, outcome) in
        [(vec![delivery("5", "orders/paid", 5)], 13, "done"), (vec![delivery("6", "app/uninstalled", 6)], 14, "reject")]
    {
        let body = Document::new(&deliveries.iter().collect::<Vec<_>>(), FencingToken(token)).json();
        let path = "/2015-03-31/functions/orders/invocations";
        let asked = ServiceCall { method: "POST", path, headers: &[], body };
        let answered = lambda(function.url()).send(asked, Duration::from_secs(10)).await.unwrap();
        let answered: Value = serde_json::from_slice(&answered.body).unwrap();
        let judged = (answered["outcome"].as_str(), answer.objections(&answered));
        assert_eq!(judged, (Some(outcome), vec![]), "{answered}");
    }
}

/// Runs the check on the function in each language.
async fn with_each_function(check: impl AsyncFn(ReceiverProcess)) {
    let functions: [fn() -> Starting; 2] =
        [|| Box::pin(python("invoke_handler.py")), || Box::pin(node("invoke_handler.ts"))];
    for function in functions {
        match function().await {
            Ok(mut command) => {
                command.env("TOTALS_TABLE", TOTALS_TABLE);
                check(ReceiverProcess::start(command, "").await).await;
            }
            Err(reason) => not_run(&reason),
        }
    }
}

type Starting = Pin<Box<dyn Future<Output = Result<Command, String>>>>;

/// Promise: the sample functions handle in sequence, and their writes land once, whatever reply or answer is lost;
/// binary bodies, and those with many control characters, come in base64.
#[tokio::test(flavor = "multi_thread")]
async fn functions_keep_order_and_write_with_the_settle() {
    with_each_function(handles_in_order_and_writes_with_the_settle).await;
}

/// Loses every third answer of a handler.
pub struct LosesAnswers<H> {
    pub inner: H,
    pub answers: AtomicU64,
}

impl<H> LosesAnswers<H> {
    fn heard(&self, outcome: Result<Outcome, HandlerError>) -> Result<Outcome, HandlerError> {
        match self.answers.fetch_add(1, Relaxed) % 3 {
            0 => Ok(Outcome::retry("the answer was lost")),
            _ => outcome,
        }
    }
}

impl<H: Handler> Handler for LosesAnswers<H> {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        self.heard(self.inner.handle(delivery, context).await)
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        self.heard(self.inner.handle_all(deliveries, context).await)
    }

    fn handles_all(&self, name: &str) -> bool {
        self.inner.handles_all(name)
    }

    fn runs_elsewhere(&self, name: &str) -> bool {
        self.inner.runs_elsewhere(name)
    }
}

/// Four workers handle six deliveries of each of six orders, alone and in groups. Answers are lost, and so are replies
/// of transactions that landed.
async fn counts_once_whatever_is_lost(function: ReceiverProcess) {
    let mut testbed = TestBed::start_for(SOURCES).await;
    let orders: Vec<String> = (0..6).map(|number| format!("lossy/order/{number}")).collect();
    let inbox = testbed.inbox();
    for number in 0..6 {
        for order in &orders {
            let id = format!("{order}-{number}");
            inbox.append(&incoming("lossy", order, &id, "orders/paid", testbed.env())).await.unwrap();
        }
    }
    let settled = SettleCounter::default();
    let lost = Arc::new(AtomicU64::new(0));
    for _ in 0..4 {
        let lost = lost.clone();
        let table = FaultyTable::new(testbed.table(), testbed.env(), move |call| {
            let is_lost = call.writes.len() > 1 && call.write % 3 == 0;
            lost.fetch_add(u64::from(is_lost), Relaxed);
            if is_lost { Fault::ReplyLost } else { Fault::None }
        });
        let handler = LosesAnswers { inner: handler(function.url(), testbed.sources()), answers: AtomicU64::default() };
        let store = testbed.store_on(table);
        testbed.feed(testbed.drainer_on(store, testbed.parts().waker, handler, Arc::new(settled.clone())));
    }
    settled.until(36).await;
    testbed.rest().await;
    for order in &orders {
        assert_eq!(row(&testbed, order).await, ("orders/paid".into(), 6), "{order}");
    }
    assert!(lost.load(Relaxed) > 0, "no reply was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_in_functions_answers_land_once_whatever_is_lost() {
    with_each_function(counts_once_whatever_is_lost).await;
}

/// Four deliveries wait, and a start gets up to three of them.
pub async fn handles_groups<H: Handler + Clone>(
    mut function: ReceiverProcess,
    sources: &str,
    outcome: &str,
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
        assert_eq!(line["outcome"], outcome);
        applied.push((line["delivery_id"].as_str().unwrap().to_owned(), line["fencing_token"].as_u64().unwrap()));
    }
    let first = applied[0].1;
    let starts: Vec<_> = applied.iter().map(|(id, token)| (id.as_str(), token - first)).collect();
    assert_eq!(starts, [("1", 0), ("2", 0), ("3", 0), ("4", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invoked_function_gets_waiting_deliveries_in_one_call() {
    with_each_function(async |function| handles_groups(function, SOURCES, "done", handler).await).await;
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
