//! `serializer listen`: events of a stack's logs, and of a local run's rows.

use std::{
    io::{BufRead, BufReader},
    process::{Output, Stdio},
};

use serde_json::{Value, json};

use crate::{
    aws::StackWithLocal,
    running::{LocalProcess, complained, event as sample, file, folder, interrupt, position, printed, ran, serializer},
};

const ORDER: &str = "shopify/order/450789469";

fn told(done: &Output) -> Vec<String> {
    let line = |line: &str| -> String {
        let told: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {done:?}"));
        let text = |name: &str| told[name].as_str().unwrap_or("-").to_owned();
        format!("{} {} {}", text("what"), text("entity"), text("topic"))
    };
    printed(done).lines().map(line).collect()
}

#[test]
fn listen_to_local_run_prints_each_event_once() {
    let local = LocalProcess::with_order();
    let before = local.ran(&["listen", "--json", "--since", "5m", "--limit", "2"]);
    assert_eq!(told(&before), [format!("accepted {ORDER} orders/create"), format!("applied {ORDER} orders/create")]);

    let shown = printed(&local.ran(&["listen", "--since", "5m", "--limit", "1"]));
    let sequence = local.ran(&["show", ORDER, "--json"]);
    let sequence = serde_json::from_str::<Value>(&printed(&sequence)).expect("JSON")["state"]["head"].clone();
    assert!(shown.contains(&format!("{ORDER} {}  orders/create", position(sequence.as_u64().unwrap()))), "{shown}");

    let arguments = ["listen", &local.target, "--json", "--since", "5m", "--topic", "*rders/*"];
    let mut listen = serializer(&arguments).stdout(Stdio::piped()).spawn().expect("it can be started");
    let mut lines = BufReader::new(listen.stdout.take().expect("it is piped")).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    assert_eq!([next(), next()].map(|told| told["what"].clone()), ["accepted", "applied"]);
    // The command is polling by now.
    for sample in ["shopify-refunds-create.json", "shopify-orders-paid.json"] {
        assert!(local.send(&[sample]).status.success());
    }
    let third = next();
    assert_eq!((&third["what"], &third["topic"]), (&"accepted".into(), &"orders/paid".into()), "{third}");
    interrupt(&listen);
    assert_eq!(listen.wait().expect("it ends").code(), Some(0));
}

/// Returns a function's log line as CloudWatch returns it.
pub fn event(id: &str, at: u64, fields: &Value) -> Value {
    json!({ "eventId": id, "timestamp": at, "message": format!("{fields}\n") })
}

/// Returns a page of a log.
pub fn page(events: &[Value], token: Option<&str>) -> (u16, String) {
    let mut page = json!({ "events": events });
    if let Some(token) = token {
        page["nextToken"] = token.into();
    }
    (200, page.to_string())
}

/// Promise: `listen` prints each event once, in sequence.
#[test]
fn listen_to_stack_prints_each_log_line_once() {
    let stack = StackWithLocal::start();
    let line = |message: &str, outcome: &str| {
        let mut line =
            json!({ "level": "INFO", "message": message, "entity": "shop/order/1", "sequence": 9, "source": "shop" });
        line["outcome"] = outcome.into();
        line
    };
    let mut accepted = line("accepted", "accepted");
    accepted["topic"] = "orders/create".into();
    let late = u64::MAX / 1_000_000;
    let failed = line("attempt failed", "retry");
    let settled = line("settled", "parked");
    let pages = [
        // Ingest's log has two pages, with a throttled request in between; then comes the worker's. In the
        // second poll, both logs repeat the earlier lines.
        page(&[event("a", late, &accepted)], Some("t-1")),
        (400, r#"{"__type":"ThrottlingException","message":"Rate exceeded"}"#.to_owned()),
        page(&[], None),
        page(&[event("b", late + 1, &failed)], None),
        page(&[event("a", late, &accepted)], None),
        page(&[event("b", late + 1, &failed), event("c", late + 2, &settled)], None),
    ];
    stack.aws.answer_in_turn("Logs_20140328.FilterLogEvents", &pages);
    let done = stack.ran(&["listen", "--json", "--limit", "3"]);
    let expected = ["accepted", "failed", "parked"].map(|what| format!("{what} shop/order/1 orders/create"));
    assert_eq!(told(&done), expected, "{done:?}");
    let asked: Vec<Value> = stack
        .aws
        .asked("Logs_20140328.FilterLogEvents")
        .iter()
        .map(|body| serde_json::from_str(body).unwrap())
        .collect();
    let groups: Vec<&str> = asked.iter().map(|asked| asked["logGroupName"].as_str().unwrap()).collect();
    let [ingest, worker] = ["/aws/lambda/shop-ingest", "/aws/lambda/shop-worker"];
    assert_eq!(groups, [ingest, ingest, ingest, worker, ingest, worker]);
    let tokens = [0, 1, 2, 4].map(|at: usize| asked[at]["nextToken"].clone());
    assert_eq!(tokens, [Value::Null, "t-1".into(), "t-1".into(), Value::Null]);
    let said = complained(&done);
    assert_eq!(said.matches("logs throttles this account").count(), 1, "{done:?}");
    assert!(said.contains(
        "in an hour, listen sends 3600 requests to CloudWatch Logs; AWS's price list names no charge for them"
    ));
    assert!(asked[4]["startTime"].as_u64() > asked[0]["startTime"].as_u64(), "it reads on");
}

#[test]
fn unknown_outcome_is_refused_with_nearest_suggestion() {
    let refused = complained(&ran(&["listen", "--local", "--outcome", "prked"]));
    assert!(refused.contains("'prked'") && refused.contains("similar value exists: 'parked'"), "{refused}");
    assert!(refused.contains("superseded, failed, accepted"), "{refused}");
}

#[test]
fn listen_refuses_unknown_source_and_reports_unknown_order() {
    let mut local = LocalProcess::start(&[]);
    assert!(local.send(&["shopify-orders-create.json"]).status.success());
    local.until(|told| told["what"] == "settled");
    for command in [&["listen", "--limit", "1"][..], &["list"]] {
        let refused = local.ran(&[command, &["--source", "shopfy"]].concat());
        let said = "the sources document has no source `shopfy` (did you mean `shopify`?); its sources are ";
        assert!(complained(&refused).contains(said) && refused.status.code() == Some(1), "{refused:?}");
    }
    let empty = complained(&local.ran(&["listen", "--topic", ""]));
    assert!(empty.contains("the topic is empty; write `unknown` for deliveries without a topic"), "{empty}");
    let mistyped = ["listen", &local.target, "--since", "5m", "--limit", "1", "--order", "shopify/order/45078946"];
    let mut listen =
        serializer(&mistyped).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it can be started");
    let mut said = String::new();
    BufReader::new(listen.stderr.take().expect("it is piped")).read_line(&mut said).expect("text");
    let similar = format!(
        "there is no order shopify/order/45078946: no webhook has arrived for this key, or the order has expired \
        or was erased. Similar keys: {ORDER}. listen waits for the order's first event\n"
    );
    assert_eq!(said, similar);
    // It listens on: the order's first delivery ends it.
    let text = std::fs::read_to_string(sample("shopify-orders-create.json")).expect("a sample");
    let folder = folder();
    let sample = file(&folder, "event.json", &text.replace("450789469", "45078946"));
    assert!(ran(&["send", "--to", &local.url, sample.to_str().expect("a path in UTF-8")]).status.success());
    assert_eq!(listen.wait().expect("it ends").code(), Some(0));
}

#[test]
fn listen_error_says_why_logs_are_unreadable() {
    let stack = StackWithLocal::start();
    stack.aws.deny("Logs_20140328.FilterLogEvents");
    let denied = complained(&stack.ran(&["listen"]));
    assert!(denied.contains("your credentials need the permission logs:FilterLogEvents"), "{denied}");
    let missing = r#"{"__type":"ResourceNotFoundException","message":"no"}"#;
    stack.aws.answer("Logs_20140328.FilterLogEvents", 400, missing);
    let none = complained(&stack.ran(&["listen"]));
    assert!(none.contains("the log group /aws/lambda/shop-ingest does not exist"), "{none}");
    let named =
        ["listen", "--entities-table", "e", "--inbox-table", "i", "--queue-url", "q", "--region", "eu-central-1"];
    let nameless = complained(&stack.aws.ran("http://127.0.0.1:1", &named));
    assert!(nameless.contains("name the stack with --stack NAME"), "{nameless}");
}
