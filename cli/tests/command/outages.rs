//! A destination that is down, as commands and console show it, and `retry` during its outage.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use serde_json::Value;

use crate::{
    console,
    endpoint::endpoint,
    running::{LocalProcess, event, file, folder, printed, ran},
};

const SOURCES: &str = r#"
[sources.warehouse]
provider = "standard-webhooks"
secrets = ["whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA=="]
handler = "forward"
forward = { url = "ENDPOINT", secret = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==", allow_private = true }
"#;

/// The number of orders that open a breaker, and one more.
const ORDERS: usize = 4;

/// Promise: `status`, `show`, `list` and the console name a destination that is down, with its error and next probe.
/// `retry` waits for a probe, and says what it found.
#[test]
fn outage_is_shown_and_retry_says_what_its_probe_found() {
    let is_up = Arc::new(AtomicBool::new(false));
    let answers = is_up.clone();
    let (url, _posts) = endpoint(move |_, _| {
        let status = if answers.load(Relaxed) { "204 No Content" } else { "503 Service Unavailable" };
        (status.to_owned(), String::new())
    });
    let folder = folder();
    let sources = file(&folder, "sources.toml", &SOURCES.replace("ENDPOINT", &url));
    let sources = sources.to_str().unwrap();
    let mut local = LocalProcess::start(&["--sources", sources]);
    let sample = std::fs::read_to_string(event("standard-webhooks-order-shipped.json")).unwrap();
    for number in 0..ORDERS {
        let text = sample.replace("450789469", &number.to_string()).replace("Shipped000001", &number.to_string());
        let sample = file(&folder, "event.json", &text);
        let sent = ran(&["send", "--to", &local.url, "--sources", sources, sample.to_str().unwrap()]);
        assert!(sent.status.success(), "{sent:?}");
    }

    let outage = loop {
        let status: Value = serde_json::from_str(&printed(&local.ran(&["status", "--json"]))).unwrap();
        if let [outage] = &status["outages"].as_array().unwrap()[..] {
            break outage.clone();
        }
    };
    assert_eq!(outage["destination"], *url);
    assert!(outage["error"].as_str().unwrap().contains("503"), "{outage}");
    let status = printed(&local.ran(&["status"]));
    assert!(status.contains(&format!("\n{url} is down since ")), "{status}");
    let held_back = format!("because {url} is down; ");
    for command in [&["show", "warehouse/order/0"][..], &["list"]] {
        let said = printed(&local.ran(command));
        assert!(said.contains(&held_back), "{said}");
    }
    let page = console::page_at(&local.console, "");
    assert!(page.contains(&format!("{url} is down since ")), "{page}");

    let failed = printed(&local.ran(&["retry", "--all", "--yes"]));
    let stays = format!("{url} stays down, and no order waits longer for it.");
    assert!(failed.contains("\nThe probe failed: ") && failed.contains(&stays), "{failed}");

    is_up.store(true, Relaxed);
    let ended = printed(&local.ran(&["retry", "--all", "--yes"]));
    let is_over = ended.contains(&format!("\n{url} is up again: all its orders go on."));
    // A probe of the schedule may have ended the outage before the command looked.
    assert!(is_over || !ended.contains("is down since"), "{ended}");
    let mut settled = 0;
    local.until(|told| {
        settled += usize::from(told["what"] == "settled");
        settled == ORDERS
    });
    assert_eq!(
        serde_json::from_str::<Value>(&printed(&local.ran(&["status", "--json"]))).unwrap()["outages"],
        Value::Array(vec![])
    );
}
