//! A destination that is down, as commands and console show it, and `retry`, `resume` and `redrive` during its outage.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering::Relaxed},
};

use serde_json::Value;

use crate::{
    console,
    endpoint::endpoint,
    running::{LocalProcess, event, file, folder, printed, ran},
};

/// A source that parks a delivery at its first failure, and one that blocks its order.
const SOURCES: &str = r#"
[sources.warehouse]
provider = "standard-webhooks"
secrets = ["whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA=="]
handler = "forward"
forward = { url = "ENDPOINT", secret = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==", allow_private = true }
retry = { attempts = 1 }

[sources.office]
provider = "standard-webhooks"
secrets = ["whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA=="]
handler = "forward"
forward = { url = "ENDPOINT", secret = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==", allow_private = true }
retry = { attempts = 1 }
on_failure = "block"
"#;

/// The number of orders that open a breaker, and one more.
const ORDERS: usize = 4;

/// The endpoint's answers: it fails deliveries, is down, and is up.
const FAILS: u16 = 500;
const IS_DOWN: u16 = 503;
const IS_UP: u16 = 204;

/// Promise: `status`, `show`, `list` and the console name a destination that is down, with its error and next probe.
/// `retry`, `resume` and `redrive` wait for a probe, and say what it found.
#[test]
fn outage_is_shown_and_verbs_say_what_a_probe_found() {
    let answer = Arc::new(AtomicU16::new(FAILS));
    let answers = answer.clone();
    let (url, _posts) = endpoint(move |_, _| (format!("{} Status", answers.load(Relaxed)), String::new()));
    let folder = folder();
    let sources = file(&folder, "sources.toml", &SOURCES.replace("ENDPOINT", &url));
    let sources = sources.to_str().unwrap();
    let mut local = LocalProcess::start(&["--sources", sources]);
    let sample = std::fs::read_to_string(event("standard-webhooks-order-shipped.json")).unwrap();
    let send = |local: &LocalProcess, source, order: &str| {
        let text = sample.replace("450789469", order).replace("Shipped000001", order).replace("warehouse", source);
        let sample = file(&folder, "event.json", &text);
        let sent = ran(&["send", "--to", &local.url, "--sources", sources, sample.to_str().unwrap()]);
        assert!(sent.status.success(), "{sent:?}");
    };
    send(&local, "warehouse", "parked");
    local.until(|told| told["what"] == "settled");
    send(&local, "office", "blocked");
    local.until(|told| told["what"] == "blocked");
    answer.store(IS_DOWN, Relaxed);
    for number in 0..ORDERS {
        send(&local, "warehouse", &number.to_string());
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

    let stays = format!("{url} stays down, and no order waits longer for it.");
    let verbs =
        [&["redrive", "warehouse/order/parked"][..], &["resume", "office/order/blocked"], &["retry", "--all", "--yes"]];
    let ran = std::thread::scope(|scope| {
        let local = &local;
        let run = |verb| scope.spawn(move || printed(&local.ran(verb)));
        verbs.map(run).map(|ran| ran.join().unwrap())
    });
    for failed in ran {
        assert!(failed.contains("\nThe probe failed: ") && failed.contains(&stays), "{failed}");
    }

    answer.store(IS_UP, Relaxed);
    let ended = printed(&local.ran(&["retry", "--all", "--yes"]));
    let is_over = ended.contains(&format!("\n{url} is up again: all its orders go on."));
    // A probe of the schedule may have ended the outage before the command looked.
    assert!(is_over || !ended.contains("is down since"), "{ended}");
    let mut settled = 0;
    local.until(|told| {
        settled += usize::from(told["what"] == "settled");
        settled == ORDERS + 2
    });
    assert_eq!(
        serde_json::from_str::<Value>(&printed(&local.ran(&["status", "--json"]))).unwrap()["outages"],
        Value::Array(vec![])
    );
}
