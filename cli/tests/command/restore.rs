//! `serializer restore` as an operator types it, on a copy of a local run's folder.

use serde_json::Value;
use webhook_serializer::time::Env;

use crate::running::{LocalProcess, complained, event, folder, printed, ran};

const ORDER: &str = "shopify/order/450789469";

/// Promise: `restore` refuses tables in use, and asks first; no job runs for an earlier time; rewound deliveries stay
/// applied.
#[test]
fn restore_runs_once_and_refuses_used_tables() {
    let day = folder();
    let copy = folder();
    let path = |folder: &tempfile::TempDir| folder.path().to_str().expect("a path in UTF-8").to_owned();
    let local = LocalProcess::start(&["--data", &path(&day)]);
    assert!(ran(&["hold", &local.target, ORDER, "--why", "a test"]).status.success());
    let sample = event("shopify-orders-create.json");
    assert!(ran(&["send", "--to", &local.url, &sample]).status.success());
    let as_of = Env::system().now().to_string();
    drop(local);
    for file in std::fs::read_dir(day.path()).expect("there is a folder") {
        let file = file.expect("it can be read");
        // This includes the files with writes that are not yet in the tables' own file.
        if file.file_name().to_string_lossy().starts_with("tables") {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).expect("it can be copied");
        }
    }

    // The functions have nothing to do there, because the order is on hold.
    let local = LocalProcess::start(&["--data", &path(&copy)]);
    let restore = |more: &[&str]| ran(&[&["restore", &local.target, "--why", "a test"], more].concat());
    let unasked = restore(&["--as-of", &as_of]);
    assert!(complained(&unasked).contains("nothing has been changed yet"), "{unasked:?}");
    let untold = restore(&["--yes"]);
    assert!(complained(&untold).contains("give the time of the backup with --as-of TIME"), "{untold:?}");
    let far = restore(&["--yes", "--as-of", "2020-01-01T00:00:00Z"]);
    let why = format!("nothing was changed: 1 order was written to after 2020-01-01T00:00:00.000Z: {ORDER}");
    assert!(complained(&far).contains(&why), "{far:?}");
    let looked = restore(&["--as-of", &as_of, "--dry-run"]);
    assert!(printed(&looked).contains("1 delivery of 1 order waited."), "{looked:?}");
    assert!(!printed(&ran(&["list", "--parked", &local.target])).contains("restored"), "nothing was changed so far");

    let restored = restore(&["--as-of", &as_of, "--yes"]);
    let told = printed(&restored);
    assert!(restored.status.success(), "{restored:?}");
    assert!(told.contains("1. 1 delivery of 1 order waited at "), "{told}");
    assert!(told.contains(&format!("serializer redrive {} --error restored", local.target)), "{told}");
    assert!(told.contains("2. Ask each sender for all webhooks that it sent from "), "{told}");
    let sources: Vec<_> = told.lines().filter(|line| line.starts_with("   shopify")).collect();
    assert!(matches!(&*sources, [line] if line.ends_with(" 4 h")), "{told}");
    assert!(printed(&ran(&["list", "--parked", &local.target])).contains("restored: the delivery waited at "));

    let again = restore(&["--as-of", &as_of, "--yes"]);
    assert!(printed(&again).contains("nothing is left to do"), "{again:?}");
    let other = restore(&["--as-of", "2026-01-01T00:00:00Z", "--yes"]);
    assert!(complained(&other).contains("a restore of these tables to "), "{other:?}");
}

#[test]
fn restore_reports_one_json_object() {
    let local = LocalProcess::start(&[]);
    assert!(ran(&["hold", &local.target, ORDER, "--why", "a test"]).status.success());
    let as_of = Env::system().now().to_string();
    let restored = ran(&["restore", &local.target, "--why", "a test", "--as-of", &as_of, "--yes", "--json"]);
    let told: Value = serde_json::from_str(&printed(&restored)).expect("it is JSON");
    assert_eq!((&told["orders"], &told["set_aside"], &told["whole"]), (&1.into(), &0.into(), &true.into()), "{told}");
}
