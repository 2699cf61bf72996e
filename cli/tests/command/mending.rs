//! The verbs that change orders in trouble, one or many.

use std::sync::atomic::Ordering::Relaxed;

use serde_json::Value;

use crate::{
    running::{complained, event, file, position, printed, ran},
    trouble::{BLOCKED, PARKED, Trouble, parked},
};

/// Promise: bulk `redrive` lists first, keeps sequence, continues after a stop; two people may run it at once.
#[test]
fn bulk_redrive_lists_deliveries_before_any_change() {
    let mut trouble = Trouble::start();
    for (order, id) in [("450789469", "1"), ("450789470", "2"), ("450789469", "3"), ("450789469", "4")] {
        trouble.park(order, id);
    }
    let before = parked(&trouble);
    let asked = trouble.ran(&["redrive", "--source", "shopify"]);
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
    assert!(
        complained(&asked).contains(
            "nothing has been changed yet: the command asks a question, but has no terminal to ask on: add --yes"
        ),
        "{asked:?}"
    );
    let dry = trouble.ran(&["redrive", "--all", "--dry-run"]);
    assert!(dry.status.success());
    for listed in [printed(&asked), printed(&dry)] {
        let rows = listed.lines().filter(|line| line.starts_with("shopify/order/"));
        let rows = rows.map(|row| row.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
        let expected: Vec<String> =
            before.iter().map(|(order, sequence)| format!("{order} {}", position(*sequence))).collect();
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        assert!(listed.contains("4 deliveries of 2 orders."), "{listed}");
    }
    assert_eq!(parked(&trouble), before, "nothing was put back");
    let nothing = trouble.ran(&["redrive", "--source", "stripe", "--yes"]);
    assert!(
        complained(&nothing)
            .contains("there is no order or delivery to redrive that matches --source, --error and --since"),
        "{nothing:?}"
    );

    // The endpoint still fails, so each delivery is parked again, behind the others.
    let mut places = Vec::new();
    for options in [&["--error", "500", "--limit", "1"][..], &["--all"]] {
        let done = printed(&trouble.ran(&[&["redrive", "--yes", "--json"], options].concat()));
        for line in done.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            places.push((
                line["entity"].as_str().unwrap().to_owned(),
                line["sequence"].as_u64(),
                line["became"]["back_at"].as_u64(),
            ));
            trouble.local.until(|told| told["outcome"] == "parked");
        }
    }
    let of_one: Vec<_> = places.iter().filter(|(entity, ..)| entity == PARKED).collect();
    let put_back: Vec<u64> = of_one.iter().filter_map(|(_, from, _)| *from).collect();
    let first: Vec<u64> = before.iter().filter(|(entity, _)| entity == PARKED).map(|(_, at)| *at).collect();
    assert_eq!(put_back[..3], first, "each once, in their order");
    assert!(of_one.is_sorted_by_key(|(_, _, at)| at.expect("it is back")), "{places:?}");
}

/// Promise: the other bulk verbs list first and continue, while deliveries arrive.
#[test]
fn bulk_commands_list_targets_and_cost_before_confirmation() {
    let mut trouble = Trouble::start();
    trouble.park("450789469", "1");
    trouble.block();
    trouble.fail();
    let before = trouble.json(&["status", "--no-parked"])["groups"].clone();
    for (verb, order, notes) in [
        (&["resume"][..], BLOCKED, "1 order, in which 1 delivery waits."),
        (&["skip", "--why", "test"], BLOCKED, "1 order, in which 1 delivery waits."),
        (&["retry"], "stripe/order/", "1 order, in which 1 delivery waits."),
        (&["redrive"], PARKED, "1 delivery of 1 order."),
        (&["discard", "--why", "test"], PARKED, "1 delivery of 1 order."),
    ] {
        let listed = trouble.said(&[verb, &["--all", "--dry-run"]].concat());
        assert!(listed.contains(order) && listed.contains(notes) && listed.contains(" write units"), "{listed}");
        let asked = trouble.ran(&[verb, &["--since", "1h"]].concat());
        assert!(
            complained(&asked).contains(
                "nothing has been changed yet: the command asks a question, but has no terminal to ask on: add --yes"
            ),
            "{asked:?}"
        );
        let none = trouble.ran(&[verb, &["--error", "no such error", "--yes"]].concat());
        let nothing = format!("there is no order or delivery to {} that matches", verb[0]);
        assert!(complained(&none).contains(&nothing), "{none:?}");
    }
    let after = trouble.json(&["status", "--no-parked"])["groups"].clone();
    assert_eq!(before, after, "nothing was changed");
    let nosuch = trouble.ran(&["retry", "--source", "shopfy"]);
    assert!(complained(&nosuch).contains("has no source `shopfy` (did you mean `shopify`?)"), "{nosuch:?}");
    let held = trouble.ran(&["resume", "--all", "--held"]);
    assert!(complained(&held).contains("there is no order or delivery to resume; nothing was changed"), "{held:?}");
}

#[test]
fn bulk_resume_keeps_arrival_order_while_deliveries_arrive() {
    const ORDERS: u64 = 6;
    const SAMPLE: &str = "standard-webhooks-order-shipped.json";
    let mut trouble = Trouble::start();
    let text = std::fs::read_to_string(event(SAMPLE)).unwrap();
    let id = serde_json::from_str::<Value>(&text).unwrap()["headers"]["webhook-id"].as_str().unwrap().to_owned();
    let change = |order: u64, round: &str| {
        let text = text.replace("450789469", &format!("45078900{order}"));
        text.replace(&id, &format!("{id}{order}{round}"))
    };
    for order in 0..ORDERS {
        trouble.send(SAMPLE, |_| change(order, "a"), "blocked");
    }
    trouble.is_mended.store(true, Relaxed);
    let some = trouble.said(&["resume", "--source", "warehouse", "--limit", "2", "--yes"]);
    let lines: Vec<&str> = some.lines().collect();
    assert_eq!(lines[0], "resume: 2 done, 0 needed no change, 4 remain");
    assert!(lines[1].starts_with("Workers handle them by themselves; `") && lines[1].contains(" status "), "{some}");
    let later: Vec<_> = (0..ORDERS)
        .map(|order| file(&trouble.folder, &format!("later{order}.json"), &change(order, "b")))
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    let sources = trouble.folder.path().join("sources.toml");
    let send = ["send", "--to", &trouble.local.url, "--sources", sources.to_str().unwrap()];
    let arguments: Vec<&str> = send.into_iter().chain(later.iter().map(String::as_str)).collect();
    let resumed = std::thread::scope(|scope| {
        scope.spawn(|| assert!(ran(&arguments).status.success()));
        trouble.said(&["resume", "--all", "--yes", "--json"])
    });
    let done = resumed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["done"].clone());
    assert_eq!(done.collect::<Vec<_>>(), vec![Value::from("resume"); 4], "{resumed}");
    for _ in 0..2 * ORDERS {
        trouble.local.until(|told| told["outcome"] == "applied");
    }
    let audited = trouble.said(&["audit"]);
    assert_eq!(
        audited.trim(),
        "12 receipts of 6 orders: settled in the order of arrival, one at a time, none applied twice"
    );
}

#[test]
fn block_and_hold_of_an_order_end_separately() {
    let mut trouble = Trouble::start();
    trouble.block();
    trouble.said(&[&["hold", BLOCKED], &WHY[..]].concat());
    let listed = trouble.said(&["list", "--held"]);
    assert!(listed.contains(BLOCKED) && listed.contains("  blocked  "), "{listed}");
    let status = trouble.said(&["status"]);
    assert!(status.contains("1 is blocked (1 also on hold)"), "{status}");
    let ended = trouble.said(&["resume", "--held", "--all", "--yes"]);
    assert!(ended.contains("is no longer on hold, but stays blocked") && ended.contains("1 done, 0 "), "{ended}");
    assert!(!trouble.said(&["list", "--held"]).contains(BLOCKED));

    trouble.said(&[&["hold", BLOCKED], &WHY[..]].concat());
    let said = trouble.said(&["resume", "--all", "--yes"]);
    assert!(said.contains("is no longer blocked, but stays on hold") && said.contains("1 done, 0 "), "{said}");
    let log = trouble.said(&["show", BLOCKED, "--history"]);
    assert!(
        log.contains("no longer on hold, stays blocked") && log.contains("no longer blocked, stays on hold"),
        "{log}"
    );
}

/// Promise: `discard` deletes only what is parked, decided, and not being redriven.
#[test]
fn only_parked_deliveries_are_discarded() {
    let mut trouble = Trouble::start();
    trouble.park("450789469", "1");
    trouble.block();
    let sequence = parked(&trouble)[0].1.to_string();
    let discard = |order: &str, sequence: &str, options: &[&str]| {
        trouble.ran(&[&["discard", order, sequence, "--why", "a test order", "--by", "Ann"], options].concat())
    };
    let asked = discard(PARKED, &sequence, &[]);
    assert!(printed(&asked).contains("removed for good, with its body"), "{asked:?}");
    assert_eq!((asked.status.code(), parked(&trouble).len()), (Some(1), 1));
    let done = discard(PARKED, &sequence, &["--yes"]);
    assert!(printed(&done).ends_with(" is discarded\n"), "{done:?}");
    assert!(parked(&trouble).is_empty());
    let again = discard(PARKED, &sequence, &["--yes"]);
    assert!(
        complained(&again)
            .contains("is not parked: the delivery was settled, redriven or discarded, or the sequence was never used; nothing was changed")
    );
    let waits = trouble.json(&["show", BLOCKED])["state"]["tail"].to_string();
    let refused = discard(BLOCKED, &waits, &["--yes"]);
    assert!(
        complained(&refused).contains("is not parked: the delivery waits for its turn; nothing was changed"),
        "{refused:?}"
    );
    let shown = trouble.said(&["show", PARKED, &sequence]);
    assert!(shown.contains("was redriven or discarded, or it expired"), "{shown}");
}

const WHY: [&str; 4] = ["--why", "the warehouse counts", "--by", "ada"];

#[test]
fn held_order_accepts_deliveries_and_runs_after_resume() {
    let mut trouble = Trouble::start();
    let held = trouble.said(&[&["hold", "shopify/order/450789471"], &WHY[..]].concat());
    assert!(
        held.contains("is on hold: nothing waits, and nothing starts until it is resumed\n  serializer resume "),
        "{held}"
    );
    let ended = trouble.said(&["resume", "shopify/order/450789471"]);
    assert!(ended.contains("is no longer on hold: nothing waits"), "{ended}");
    trouble.said(&[&["hold", "shopify/order/450789471"], &WHY[..]].concat());
    let text = |text: String| text.replace("450789469", "450789471");
    trouble.send("shopify-orders-create.json", text, "accepted");
    let listed = trouble.said(&["list", "--held"]);
    assert!(listed.contains("shopify/order/450789471  on hold"), "{listed}");
    assert_eq!(trouble.json(&["status"])["on_hold"], 1);
    let inspected = trouble.said(&["show", "shopify/order/450789471"]);
    assert!(inspected.contains("1 delivery waits.\n  serializer show "), "{inspected}");
    let again = trouble.said(&[&["hold", "shopify/order/450789471"], &WHY[..]].concat());
    assert!(again.contains("was on hold already"), "{again}");

    let resumed = trouble.said(&["resume", "shopify/order/450789471"]);
    assert!(resumed.contains("continues from ") && resumed.contains(": 1 delivery waits"), "{resumed}");
    trouble.local.until(|told| told["outcome"] == "applied");
    let again = trouble.said(&["resume", "shopify/order/450789471"]);
    assert!(again.contains("was neither blocked nor on hold; a wake-up was sent: nothing waits"), "{again}");
    let nobody = trouble.ran(&["resume", "shopify/order/1"]);
    assert!(
        !nobody.status.success() && complained(&nobody).contains("there is no order shopify/order/1"),
        "{nobody:?}"
    );
    let refused = trouble.ran(&["hold", "shopify/order/450789471"]);
    assert!(complained(&refused).contains("--why <TEXT>"), "{refused:?}");
}

#[test]
fn order_continues_after_skip_and_history_names_operator() {
    let mut trouble = Trouble::start();
    trouble.block();
    let inspected = trouble.json(&["show", BLOCKED]);
    let first = inspected["waiting"][0]["sequence"].to_string();
    let later = (first.parse::<u64>().unwrap() + 1).to_string();
    let wrong = trouble.ran(&[&["skip", BLOCKED, &later, "--yes"], &WHY[..]].concat());
    assert!(complained(&wrong).contains("it never arrived; nothing was skipped"), "{wrong:?}");
    let asked = trouble.ran(&[&["skip", BLOCKED, &first], &WHY[..]].concat());
    assert!(complained(&asked).contains("add --yes"), "{asked:?}");
    let skipped = trouble.said(&[&["skip", BLOCKED, &first, "--yes"], &WHY[..]].concat());
    assert!(skipped.contains("is parked; unless on hold, the order continues\n  serializer redrive "), "{skipped}");
    let twice = trouble.ran(&[&["skip", BLOCKED, &first, "--yes"], &WHY[..]].concat());
    assert!(complained(&twice).contains("it is settled, or was never used; nothing was skipped"), "{twice:?}");
    let parked = trouble.said(&["show", BLOCKED]);
    assert!(parked.contains("skipped by ada: the warehouse counts"), "{parked}");
    trouble.said(&["redrive", BLOCKED]);
    trouble.local.until(|told| told["what"] == "blocked");
    trouble.said(&["resume", BLOCKED, "--why", "it is open", "--by", "bob"]);

    let history = printed(&trouble.ran(&["show", BLOCKED, "--history", "--json"]));
    let told: Vec<String> = history
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|act| format!("{} {}: {}", act["by"], act["what"], act["ended"]).replace('"', ""))
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(&told[0], "ada skip: settled as parked");
    assert!(told[1].contains(" redrive: appended again, as "), "{told:?}");
    assert!(told[2].starts_with("bob resume: continues at "), "{told:?}");
    let shown = trouble.said(&["show", BLOCKED, "--history"]);
    assert!(shown.lines().count() == 4 && shown.contains("the warehouse counts"), "{shown}");
}

#[test]
fn retry_command_starts_next_attempt_immediately() {
    let mut trouble = Trouble::start();
    trouble.fail();
    let order = trouble.json(&["status"])["groups"][0]["entity"].as_str().unwrap().to_owned();
    let status = trouble.said(&["status"]);
    let retry = format!("serializer retry {} --source ", trouble.local.target);
    assert!(status.contains(&retry), "{retry}: {status}");
    let retried = trouble.said(&["retry", &order]);
    assert!(retried.contains(" is due now: ") && retried.contains(": attempt 2"), "{retried}");
    trouble.local.until(|told| told["what"] == "failed" && told["attempt"] == 2);
    let idle = trouble.said(&["retry", &order]);
    assert!(idle.contains("is due now"), "it waits for another: {idle}");
}
