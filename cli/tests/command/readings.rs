//! The counts that `status`, `list` and the console show of tables with many orders, and their cost.

use std::{process::Output, time::Duration};

use serde_json::Value;
use webhook_serializer::{
    protocol::{
        attempt::{FailureClass, Retries},
        entity::{EntityKey, Sequence},
        format::{FORMAT, attribute as a},
        keys::{entity_row, parked_row, part_row, sweep_position_row},
        table::{Action, Change, Row, Write},
        waits::{SourceTag, WaitClass, Waits},
    },
    time::{Nonce, Timestamp},
};

use crate::{
    console,
    running::{complained, printed, serializer},
    trouble::Trouble,
};

/// Returns 36 settled orders whose rows have 12 MB; 4 KB cost half a read unit.
fn large_orders() -> impl Iterator<Item = Write> {
    (0..36).map(|number| order(&format!("shop/large/{number:02}"), "x".repeat(340_000)))
}

fn order(key: &str, padding: String) -> Write {
    let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, key).with("padding", padding);
    let row = row.with(a::HEAD, 12_u32).with(a::TAIL, 12_u32).with(a::TOKEN, 3_u32);
    Write::put(entity_row(&EntityKey::parse(key).unwrap()), row)
}

/// Promise: reading more than 1,000 units asks first.
#[test]
fn scan_over_1000_read_units_requires_yes_option() {
    let trouble = Trouble::start();
    trouble.write(large_orders());
    let refused = trouble.ran(&["list"]);
    let said = complained(&refused);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let about = said.split_once("reading the orders takes about ").and_then(|(_, rest)| rest.split_once(' '));
    let about: u64 = about.expect("it is said").0.parse().unwrap();
    assert!((1490..1600).contains(&about), "{said}");
    assert!(said.contains("add --yes"), "{said}");
    let units = trouble.json(&["status", "--yes"])["read_units"].as_u64().unwrap();
    assert!((1494..1600).contains(&units), "{units}");
}

#[test]
fn status_reads_all_deliveries_only_if_that_is_free_or_wanted() {
    let trouble = Trouble::start();
    let entity = EntityKey::parse("shop/order/1").unwrap();
    let part = |number| part_row(&entity, &Nonce::from_parts(Timestamp::from_millis(1), 1), number);
    let body = Row::new().with("body", "x".repeat(340_000));
    trouble.write((0..36).map(|number| Write::put(part(number), body.clone())));
    let told = trouble.json(&["status"]);
    assert_eq!((&told["complete"], &told["last_minutes"]["sources"]), (&true.into(), &Value::Null), "{told}");
    let whole = trouble.json(&["status", "--yes"]);
    assert!(whole["read_units"].as_u64() >= Some(1494) && whole["last_minutes"]["sources"].is_array(), "{whole}");
}

/// Promise: parked deliveries and orders on hold are counted exactly, however many orders there are. Without the
/// indexes, commands and console read the tables, and say so.
#[test]
fn parked_and_held_orders_are_counted_among_many_orders() {
    let trouble = Trouble::start();
    let parked = (1..=20_u64).map(|number| {
        let at = parked_row(&EntityKey::parse(&format!("shop/order/{number}")).unwrap(), Sequence(1));
        let row = at.to_row().with(a::VERSION, FORMAT).with(a::NONCE, "1").with(a::SOURCE, "shop").with(a::TOPIC, "t");
        let row = row.with(a::DELIVERY_ID, "1").with(a::RECEIVED_AT, 1_u32).with("padding", "x".repeat(9_000));
        let row = row.with(a::BODY_BYTES, 9_000_u32).with(a::ENCODING, "plain").with(a::PARKED_AT, 1_000_u32);
        Write::put(at, row.with(a::ERROR, "not now"))
    });
    let held = |key: &str, hold: i64| {
        let mut write = order(key, String::new());
        if let Action::Put(row) = &mut write.action {
            row.set(a::HOLD, hold);
        }
        write
    };
    let held = [held("shop/order/1", 1_000), held("shop/order/2", 2_000), held("shop/order/3", -1_000)];
    trouble.write(large_orders().chain(parked).chain(held));
    let now = console::page_at(&trouble.local.console, "");
    assert!(now.contains("<h1>20 deliveries parked, 2 orders on hold</h1>"), "{now}");
    assert!(now.contains("read only a part of the orders"), "{now}");
    let status = trouble.json(&["status", "--yes"]);
    assert_eq!((&status["parked"], &status["on_hold"], &status["orders"]), (&20.into(), &2.into(), &39.into()));
    assert_eq!(parked_of(&trouble.ran(&["list", "--parked", "--json"])), 20);
    let found = printed(&trouble.ran(&["doctor", "--no-rows"]));
    assert!(found.contains("it is filled"), "{found}");

    trouble.remove_index("inbox", "parked");
    let without = trouble.ran(&["list", "--parked", "--json", "--yes"]);
    assert_eq!(parked_of(&without), 20);
    assert!(complained(&without).contains("reads all deliveries instead"), "{without:?}");
    let found = printed(&trouble.ran(&["doctor", "--no-rows"]));
    assert!(found.contains("aws dynamodb update-table --table-name inbox --attribute-definitions"), "{found}");
    // A page may show what was read up to a second before.
    let now = console::while_it_serves(trouble.console(), |url| console::page_at(url, ""));
    assert!(now.contains("at least") && now.contains("An index cannot be read"), "{now}");
}

/// Returns a row of each kind that the index `waits` holds, by an order's number.
fn in_trouble(number: usize) -> Write {
    let mut write = order(&format!("shop/trouble/{number:02}"), String::new());
    let Action::Put(row) = &mut write.action else { panic!("it is put") };
    let class = [FailureClass::Failed, FailureClass::Failed, FailureClass::Unavailable][number % 3];
    let retries = Retries::default().after(class, Duration::from_secs(60));
    row.set(a::TAIL, 13_u32);
    row.set(a::LAST_ERROR, "out of order");
    row.set(a::RETRIES, retries.to_stored().expect("a failure"));
    row.set(a::PENDING_SINCE, 1_000_u32);
    let class = match number % 3 {
        0 => {
            row.set(a::ATTEMPTS, 1_u32);
            row.set(a::BLOCKED, "attempts");
            WaitClass::Blocked
        }
        1 => {
            row.set(a::ATTEMPTS, 1_u32);
            row.set(a::RETRY_AT, 4_000_000_000_000_u64);
            WaitClass::Failed
        }
        _ => {
            row.set(a::RETRY_AT, 4_000_000_000_000_u64);
            WaitClass::Unavailable
        }
    };
    row.set(a::WAITS, Waits { class, source: SourceTag::default() }.to_stored());
    write
}

fn trouble_of(status: &Value) -> [u64; 3] {
    ["blocked", "failing", "unavailable"].map(|kind| status[kind].as_u64().unwrap())
}

/// Promise: `status` and the console count failing and blocked orders exactly, for less than 100 read units, however
/// many orders there are.
#[test]
fn twenty_orders_in_trouble_among_thousands_cost_less_than_100_read_units() {
    // docs/figures.md has the counts with more settled orders.
    let settled = std::env::var("SETTLED_ORDERS").map_or(3_000, |orders| orders.parse().expect("a number"));
    let trouble = Trouble::start();
    let idle = (0..settled).map(|number| order(&format!("shop/idle/{number:07}"), "x".repeat(250)));
    trouble.write(idle.chain((0..20).map(in_trouble)));
    let status = trouble.json(&["status"]);
    assert_eq!((trouble_of(&status), &status["trouble_complete"]), ([7, 7, 6], &true.into()), "{status}");
    let units = status["read_units"].as_u64().unwrap();
    assert!(units < 100 && status["complete"] == false && status["orders"].as_u64() < Some(settled + 20), "{status}");
    let headline = "7 orders blocked, 7 orders failing, 6 orders waiting for an unavailable destination";
    let now = console::page_at(&trouble.local.console, "");
    assert!(now.contains(&format!("<h1>{headline}</h1>")), "{now}");
    let read = now.split_once(", for about ").and_then(|(_, rest)| rest.split_once(' ')).expect("it is said").0;
    assert!(read.parse::<u64>().unwrap() < 100, "{read}");
    println!("{settled} settled orders: read units of status {units}, of the console {read}");
    let listed = printed(&trouble.ran(&["list", "--failing", "--blocked", "--json"]));
    assert_eq!(listed.lines().count(), 20);
    let first = printed(&trouble.ran(&["list", "--limit", "3", "--yes"]));
    assert!(first.contains(&format!("{} more are not shown", settled + 17)), "{first}");
    let whole = trouble.json(&["status", "--yes"]);
    assert_eq!((trouble_of(&whole), &whole["orders"]), ([7, 7, 6], &(settled + 20).into()), "{whole}");
}

/// Promise: until the sweep has mended the rows of older versions, `status` reads all orders, and says so.
#[test]
fn rows_of_older_versions_have_status_read_all_orders() {
    let trouble = Trouble::start();
    trouble.write((0..20).map(in_trouble));
    let elsewhere = Write::update(sweep_position_row(), vec![Change::set(a::NONCE, "other")]);
    trouble.write([elsewhere].into_iter());
    let unmended = trouble.ran(&["status", "--json"]);
    assert!(complained(&unmended).contains("the sweep has yet to complete their index"), "{unmended:?}");
    let unmended: Value = serde_json::from_str(&printed(&unmended)).unwrap();
    assert_eq!((trouble_of(&unmended), &unmended["orders"]), ([7, 7, 6], &20.into()), "{unmended}");
}

/// Returns the number of parked deliveries that `list` printed as JSON.
fn parked_of(listed: &Output) -> usize {
    let lines = printed(listed);
    let orders = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    orders.map(|order| order["parked"].as_array().unwrap().len()).sum()
}

/// The rows have 1.4 MB, and 4 KB cost half a unit; a page reads a part of them.
#[test]
fn console_of_named_tables_spends_about_20_read_units_a_second() {
    let trouble = Trouble::start();
    trouble.write((1..=4).map(|number| {
        let order = EntityKey::parse(&format!("shop/order/{number}")).unwrap();
        let row =
            Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, order.as_str()).with("padding", "x".repeat(340_000));
        Write::put(entity_row(&order), row.with(a::HEAD, 12_u32).with(a::TAIL, 12_u32).with(a::TOKEN, 3_u32))
    }));
    for (target, is_priced) in [("--region=us-east-1", true), (trouble.local.target.as_str(), false)] {
        let mut command = serializer(&["console", "--json", target]);
        command.envs(trouble.environment());
        let update = console::while_it_serves(command, console::first_update);
        let price = update.split_once("Reading them costs about ").expect("a price").1;
        let (units, pause) = price.split_once(" read units every ").expect("a pause");
        let units: f64 = units.parse().unwrap();
        let pause: f64 = pause.split_once(" s.").unwrap().0.parse().unwrap();
        assert!(units > 40.0 && (pause > units / 20.0 - 0.1) == is_priced, "{target}: {price}");
    }
}
