//! Leases, driven by a host with a virtual clock.

mod host;

use client_core::{Client, Session};
use serde_json::{Value, json};

use host::{Fault, Host, START, World};

fn without_wait() -> Value {
    json!({ "waitMs": 0 })
}

#[test]
fn uncontended_lease_costs_two_requests() {
    let world = World::new(0);
    let client = world.client();
    let (mut host, granted) = Host::acquire(&world, &client, &json!({ "renew": true }));
    assert_eq!(granted["is"], "granted");
    assert!(granted["token"].as_u64() > Some(0));
    assert_eq!(host.command("release")["is"], "released");
    assert!(host.is_over);
    assert_eq!(world.requests(), ["UpdateItem", "UpdateItem"]);
}

#[test]
fn failed_reply_of_each_request_is_recovered() {
    for fault in [Fault::Lost, Fault::Silent, Fault::Throttled, Fault::Broken, Fault::Conflict] {
        for place in ["acquire", "extend", "release", "commit"] {
            let world = World::new(0);
            let client = world.client();
            if place == "acquire" {
                world.fault(fault);
            }
            let (mut host, granted) = Host::acquire(&world, &client, &json!({}));
            assert_eq!(granted["is"], "granted", "{fault:?} at {place}");
            let (_, refused) = Host::acquire(&world, &client, &without_wait());
            assert_eq!((&refused["is"], &refused["by"]), (&json!("contended"), &json!("a test")));
            if place != "acquire" {
                world.fault(fault);
            }
            let ended = match place {
                "commit" => host.commit("1"),
                command => host.command(if command == "acquire" { "release" } else { command }),
            };
            let expected = ["released", "extended", "released", "committed"];
            let number = ["acquire", "extend", "release", "commit"].iter().position(|known| *known == place).unwrap();
            assert_eq!(ended["is"], expected[number], "{fault:?} at {place}");
            assert_eq!(host.is_over, place != "extend");
        }
    }
}

#[test]
fn held_lease_is_renewed_until_released() {
    let world = World::new(0);
    let client = world.client();
    let (mut host, granted) = Host::acquire(&world, &client, &json!({ "renew": true, "leaseMs": 3000 }));
    assert_eq!(granted["is"], "granted");
    host.pass(10_000);
    let renewals = world.requests().len() - 1;
    assert!((8..=12).contains(&renewals), "{renewals}");
    let (_, refused) = Host::acquire(&world, &client, &without_wait());
    assert_eq!(refused["is"], "contended");
    assert_eq!(host.command("release")["is"], "released");
}

#[test]
fn frozen_holder_learns_that_its_lease_is_lost() {
    let world = World::new(0);
    let client = world.client();
    let (mut frozen, _) = Host::acquire(&world, &client, &json!({ "renew": true, "leaseMs": 2000 }));
    // The frozen process takes no step.
    world.passed.set(world.passed.get() + 4000);
    let (mut next, granted) = Host::acquire(&world, &client, &json!({}));
    assert_eq!(granted["is"], "granted");
    let lost = frozen.event(&[], vec![]);
    assert_eq!(lost["is"], "lost");
    assert!(lost["message"].as_str().unwrap().starts_with("the lease of shop/order/1 was lost"), "{lost}");
    assert_eq!(next.command("release")["is"], "released");
}

#[test]
fn late_commit_of_lost_lease_writes_nothing() {
    let world = World::new(0);
    let client = world.client();
    let (mut late, first) = Host::acquire(&world, &client, &json!({ "leaseMs": 1000 }));
    let (mut next, second) = Host::acquire(&world, &client, &json!({ "waitMs": 10_000 }));
    assert!(second["token"].as_u64() > first["token"].as_u64());
    assert_eq!(late.commit("1")["is"], "lost");
    assert_eq!(next.commit("1")["is"], "committed");
}

#[test]
fn failed_condition_keeps_the_lease() {
    let world = World::new(0);
    let client = world.client();
    let (mut host, _) = Host::acquire(&world, &client, &json!({}));
    assert_eq!(host.commit("1")["is"], "committed");
    let (mut host, _) = Host::acquire(&world, &client, &json!({}));
    let refused = host.commit("1");
    assert_eq!((&refused["is"], &refused["refused"]), (&json!("not_committed"), &json!([0])));
    assert_eq!(host.commit("2")["is"], "committed");
}

#[test]
fn write_to_own_table_or_hundredth_write_is_invalid() {
    let world = World::new(0);
    let client = world.client();
    let (mut host, _) = Host::acquire(&world, &client, &json!({}));
    let mut commit = |tables: Vec<&str>| {
        let invalid = host.event(&[], vec![json!({ "do": "commit", "tables": tables })]);
        assert_eq!(invalid["is"], "invalid");
        invalid["message"].as_str().unwrap().to_owned()
    };
    let own = "write 1 is to entities, the serializer's own table, which only the serializer writes";
    assert_eq!(commit(vec!["totals", "entities"]), own);
    assert_eq!(commit(vec!["totals", "arn:aws:dynamodb:eu-central-1:1:table/entities"]), own);
    let inbox = "write 0 is to inbox, the serializer's own table, which only the serializer writes";
    assert_eq!(commit(vec!["inbox"]), inbox);
    assert_eq!(commit(vec!["totals"; 100]), "a commit has at most 99 writes, not 100");
    assert_eq!(host.command("release")["is"], "released");
}

#[test]
fn silent_store_is_unreachable_and_denial_is_named() {
    let world = World::new(0);
    let client = world.client();
    world.fault(Fault::Dead);
    let (_, unreachable) = Host::acquire(&world, &client, &without_wait());
    assert_eq!(unreachable["is"], "unreachable");
    world.faults.take();
    world.fault(Fault::Denied);
    let (_, denied) = Host::acquire(&world, &client, &without_wait());
    assert_eq!(denied["is"], "denied");
    let elsewhere = Client::new(r#"{"table":"nowhere"}"#).unwrap();
    let (_, missing) = Host::acquire(&world, &elsewhere, &without_wait());
    assert_eq!(missing["is"], "missing_table", "{missing}");
}

#[test]
fn wrong_table_is_named() {
    let world = World::new(0);
    let message = |event: &serde_json::Value| event["message"].as_str().unwrap_or_default().to_owned();
    for (table, start, wrong) in [
        ("nowhere", json!({ "look": true }), "does not exist"),
        ("totals", json!({ "look": true }), "has another key"),
        ("totals", json!({}), "has another key"),
    ] {
        let elsewhere = Client::new(&json!({ "table": table }).to_string()).unwrap();
        let (_, refused) = Host::acquire(&world, &elsewhere, &start);
        assert!(message(&refused).starts_with(&format!("the table {table} {wrong}")), "{refused}");
    }
    // A commit's writes may go to several tables, and DynamoDB does not say which one it misses.
    let client = world.client();
    for (tables, named) in [
        (vec!["nowhere"], "the table nowhere does not exist"),
        (vec!["nowhere", "totals"], "one of the tables nowhere, totals does not exist"),
    ] {
        let (mut host, _) = Host::acquire(&world, &client, &json!({}));
        let put = |table| json!({ "Put": { "TableName": table, "Item": { "order": { "S": "1" } } } });
        let writes: Vec<_> = tables.iter().map(put).collect();
        let missing = host.event(&writes, vec![json!({ "do": "commit", "tables": tables })]);
        assert!(message(&missing).starts_with(named), "{missing}");
    }
}

#[test]
fn absent_credentials_are_not_to_be_renewed() {
    let world = World::new(0);
    let client = world.client();
    world.fault(Fault::NoCredentials);
    let (_, absent) = Host::acquire(&world, &client, &without_wait());
    assert_eq!(absent["is"], "denied");
    assert!(absent["message"].as_str().unwrap().contains("set AWS_ACCESS_KEY_ID"), "{absent}");
}

#[test]
fn settings_that_name_no_queue_are_refused() {
    for url in ["", "nonsense", "https://queue", "https:///wake-ups", "sqs://queue/wake-ups", " https://queue/wake-ups"]
    {
        let refused = Client::new(&json!({ "table": "entities", "queueUrl": url }).to_string()).err();
        let message = refused.unwrap_or_default();
        assert!(message.starts_with(&format!("\"{url}\" is not the URL of a queue: set QUEUE_URL")), "{message}");
    }
    assert!(Client::new(r#"{"table":"entities","queueUrl":"http://127.0.0.1:1/0/wake-ups"}"#).is_ok());
}

#[test]
fn wrong_clock_costs_one_request_once() {
    for skew in [-86_400_000, 86_400_000] {
        let world = World::new(skew);
        let client = world.client();
        for requests in [3, 2] {
            let (mut host, granted) = Host::acquire(&world, &client, &json!({}));
            assert_eq!(granted["is"], "granted");
            assert_eq!(host.command("release")["is"], "released");
            assert_eq!(world.requests().len(), requests, "{skew}");
        }
    }
}

#[test]
fn look_shows_holder_and_end() {
    let world = World::new(0);
    let client = world.client();
    let look = || Host::start(&world, &client, json!({ "key": "shop/order/1", "look": true })).event(&[], vec![]);
    assert_eq!(look()["held"], false);
    let (mut host, granted) = Host::acquire(&world, &client, &json!({}));
    let seen = look();
    assert_eq!((&seen["held"], &seen["by"], &seen["token"]), (&json!(true), &json!("a test"), &granted["token"]));
    assert!(seen["until"].as_u64() >= Some(START + 15_000));
    assert_eq!(host.command("release")["is"], "released");
    assert_eq!(look()["held"], false);
}

#[test]
fn invalid_key_is_the_only_event() {
    let world = World::new(0);
    for start in [json!({ "key": "order" }), json!({ "key": "order", "look": true })] {
        let (host, refused) = Host::acquire(&world, &world.client(), &start);
        assert_eq!(refused["is"], "invalid_key");
        assert!(refused["message"].as_str().unwrap().starts_with("a key is a namespace and a name"), "{refused}");
        assert!(host.is_over);
    }
}

#[test]
fn invalid_settings_or_terms_are_refused() {
    let client = World::new(0).client();
    for (start, reason) in [
        (json!({ "key": null }), "the key, or the job's name, is not a text"),
        (json!({ "key": "a/b", "leaseMs": 999 }), "a lease lasts from 1 s to 15 min, not 999 ms"),
        (json!({ "key": "a/b", "leaseMs": 900_001 }), "a lease lasts from 1 s to 15 min, not 900001 ms"),
        (json!({ "key": "a/b", "waitMs": -1 }), "invalid value: integer `-1`, expected u64"),
        (json!({ "key": "a/b", "wait": 1 }), "unknown field `wait`"),
    ] {
        let refused = Session::new(&client, &start.to_string()).err().unwrap();
        assert!(refused.starts_with(reason) && !refused.contains(" at line "), "{refused}");
    }
    let refused = Session::new(&client, r#"{"key":"a/\ud83d"}"#).err().unwrap();
    assert_eq!(refused, "a text is not Unicode, or a number is not finite");
    for (settings, reason) in [
        (r#"{"table":""}"#, "the name of the entities table is not given"),
        (r#"{"table":"e","inboxTable":"e"}"#, "`table` and `inboxTable` are both e"),
        ("{}", "the name of the entities table is not given"),
        (r#"{"table":"e","retentionDays":0}"#, "the retention of 0 days is not from 1 to 3650"),
        (r#"{"tabel":"e"}"#, "unknown field `tabel`"),
    ] {
        let refused = Client::new(settings).err().unwrap();
        assert!(refused.starts_with(reason), "{refused}");
    }
}

/// Acquires without a wait while the next requests fail by `faults`. Returns the host, and whether the lease is free
/// once `time` has passed.
fn is_free_after(time: u64, faults: &[Fault]) -> bool {
    let world = World::new(0);
    let client = world.client();
    faults.iter().for_each(|fault| world.fault(*fault));
    let (mut host, refused) = Host::acquire(&world, &client, &without_wait());
    assert_eq!(refused["is"], "unreachable", "{faults:?}");
    assert!(!host.is_over, "it may still be granted");
    host.pass(time);
    assert!(host.events.is_empty(), "{faults:?}");
    world.land_late();
    let (_, event) = Host::acquire(&world, &client, &without_wait());
    event["is"] == "granted"
}

/// Promise: a lease that is granted after `acquire` has failed or was given up is released, as is one whose caller has
/// aborted; a failed wake-up is a warning.
#[test]
fn acquire_that_lands_after_its_error_is_released() {
    for faults in [&[Fault::Silent][..], &[Fault::Late(2000)], &[Fault::Late(5000)], &[Fault::Silent, Fault::Silent]] {
        assert!(is_free_after(10_000, faults), "{faults:?}");
    }
    assert!(!is_free_after(0, &[Fault::Silent]), "it is granted at first");
}

#[test]
fn session_of_unanswered_acquire_ends_with_its_lease() {
    let world = World::new(0);
    world.fault(Fault::Dead);
    let (mut host, refused) = Host::acquire(&world, &world.client(), &without_wait());
    assert_eq!(refused["is"], "unreachable");
    host.pass(20_000);
    assert!(host.is_over);
}

#[test]
fn abandoned_acquire_is_released_whatever_its_reply() {
    for fault in [None, Some(Fault::Silent), Some(Fault::Lost), Some(Fault::Broken)] {
        let world = World::new(0);
        let client = world.client();
        fault.into_iter().for_each(|fault| world.fault(fault));
        let mut host = Host::start(&world, &client, json!({ "key": "shop/order/1" }));
        let mut replies = Vec::new();
        host.step(&[], &mut replies, vec![]);
        host.step(&[], &mut Vec::new(), vec![json!({ "do": "abandon" })]);
        host.step(&[], &mut replies, vec![]);
        host.pass(10_000);
        assert!(host.is_over, "{fault:?}");
        let (_, next) = Host::acquire(&world, &client, &without_wait());
        assert_eq!(next["is"], "granted", "{fault:?}");
    }
}

#[test]
fn abandoned_wait_sends_no_further_request() {
    let world = World::new(0);
    let client = world.client();
    let (_held, _) = Host::acquire(&world, &client, &json!({}));
    let mut host = Host::start(&world, &client, json!({ "key": "shop/order/1" }));
    host.pass(100);
    world.requests();
    host.step(&[], &mut Vec::new(), vec![json!({ "do": "abandon" })]);
    assert!(host.is_over);
    assert_eq!(world.requests(), [""; 0]);
}

#[test]
fn failed_wake_up_is_a_warning_and_the_release_succeeds() {
    let world = World::new(0);
    let (mut host, _) = Host::acquire(&world, &world.client(), &json!({}));
    world.deliver("shop/order/1");
    world.is_queue_broken.set(true);
    let warning = host.command("release");
    assert_eq!(warning["is"], "warning");
    assert!(warning["message"].as_str().unwrap().contains("no wake-up could be sent"), "{warning}");
    assert_eq!(host.event(&[], vec![])["is"], "released");
    assert!(host.is_over);
}

#[test]
fn signature_of_a_wrong_clock_names_the_clock() {
    let world = World::new(0);
    world.fault(Fault::Expired);
    let (_, denied) = Host::acquire(&world, &world.client(), &without_wait());
    assert_eq!(denied["is"], "denied");
    assert!(
        denied["message"].as_str().unwrap().ends_with("this host's clock is wrong; set it, such as by NTP"),
        "{denied}"
    );
}
