//! `find` and `export`: a customer's data, found by a value in the bodies, and printed.

use std::{
    io::Write,
    process::{Output, Stdio},
};

use serde_json::Value;

use crate::{
    running::{LocalProcess, complained, event, file, folder, printed, ran, serializer},
    trouble::{PARKED, Trouble},
};

fn lines(output: &Output) -> Vec<Value> {
    printed(output).lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

/// Runs a command with this standard input.
fn piped(local: &LocalProcess, command: &[&str], input: &str) -> Output {
    let mut child = serializer(&[command, &[&local.target]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads its input");
    child.wait_with_output().expect("it ends")
}

/// Promise: `find` finds waiting, settled and parked deliveries by a value in their bodies, and `export` prints them
/// with their bodies as they were sent.
#[test]
fn customer_is_found_and_exported_from_all_stored_deliveries() {
    let mut trouble = Trouble::start();
    trouble.park("450789469", "1");
    trouble.park("450789470", "2");
    let found = trouble.ran(&["find", "450789469", "--field", "/id"]);
    assert!(found.status.success(), "{found:?}");
    assert!(printed(&found).ends_with("1 match in 4 rows\n"), "{found:?}");
    let keys = trouble.ran(&["find", "450789469", "--keys"]);
    assert_eq!(printed(&keys), format!("{PARKED}\n"));
    let [json] = &*lines(&trouble.ran(&["find", "450789469", "--json"])) else { panic!("one delivery") };
    assert_eq!((&json["entity"], &json["source"]), (&PARKED.into(), &"shopify".into()));
    let exported = lines(&trouble.ran(&["export", PARKED]));
    let [delivery] = &*exported else { panic!("{exported:?}") };
    assert_eq!(lines(&piped(&trouble.local, &["export"], &printed(&keys))), exported);
    assert_eq!((&delivery["parked"], &delivery["sequence"]), (&true.into(), &json["sequence"]));
    let body: Value = serde_json::from_str(delivery["body"].as_str().expect("a body")).expect("as it was sent");
    assert_eq!(body["id"], 450_789_469);
    for (arguments, expected) in [
        (&["find", "450789469", "--source", "stripe"][..], "0 matches in 0 rows\n"),
        (&["find", "bob@example.com"], "0 matches in 4 rows\n"),
    ] {
        let nothing = trouble.ran(arguments);
        assert_eq!((printed(&nothing).as_str(), nothing.status.code()), (expected, Some(1)));
    }
    let misspelt = complained(&trouble.ran(&["find", "450789469", "--source", "shopfy"]));
    let told = "no delivery of a source `shopfy` is stored (did you mean `shopify`?); sources with deliveries: shopify";
    assert!(misspelt.contains(told), "{misspelt}");
}

#[test]
fn unusable_search_or_order_is_refused() {
    let local = LocalProcess::with_order();
    for (arguments, expected) in [
        (&["find", ""][..], "there is no text to find"),
        (&["find", "a", "--field", "customer"], "--field customer is not a JSON pointer"),
        (&["export", "shopify/order/45078946"], "Similar keys: shopify/order/450789469"),
        (&["export"], "name the orders"),
    ] {
        let refused = piped(&local, arguments, "");
        assert!(complained(&refused).contains(expected) && !refused.status.success(), "{refused:?}");
    }
}

/// Promise: `erase` also erases the copies that other sources got of an order's webhooks, but no other unrouted ones.
#[test]
fn erase_includes_copies_of_subscribers() {
    const SOURCES: &str = "[sources.shopify]\nprovider = 'shopify'\nsecrets = 'development-secret-of-shopify'\n\
                           handler = 'fan-out'\n[sources.mails]\nfrom = 'shopify'\nhandler = 'log'\n";
    let folder = folder();
    let document = file(&folder, "sources.toml", SOURCES);
    let document = document.to_str().expect("UTF-8");
    let mut local = LocalProcess::start(&["--sources", document]);
    let sent = ran(&["send", "--to", &local.url, "--sources", document, &event("shopify-orders-create.json")]);
    assert!(sent.status.success(), "{sent:?}");
    local.until(|told| told["outcome"] == "applied" && told["entity"] == "mails/order/450789469");
    let erased = local.ran(&["erase", "--yes", "shopify/order/450789469"]);
    assert!(printed(&erased).contains("\nmails/order/450789469: 2 rows were erased"), "{erased:?}");
    let unrouted = local.ran(&["erase", "--yes", "shopify/unrouted"]);
    assert!(!printed(&unrouted).contains("mails"), "{unrouted:?}");
}
