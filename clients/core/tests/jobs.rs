//! Jobs, driven by hosts with a virtual clock.

mod host;

use client_core::{Client, Session};
use serde_json::{Value, json};

use host::{Fault, Host, START, World};

const MINUTE: u64 = 60_000;

fn job(more: &Value) -> Value {
    let mut start = json!({ "job": "report", "schedule": "* * * * *" });
    start.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    start
}

/// Starts a call. Returns the host and the first event.
fn call<'a>(world: &'a World, client: &Client, more: &Value) -> (Host<'a>, Value) {
    let mut host = Host::start(world, client, job(more));
    let event = host.event(&[], vec![]);
    (host, event)
}

fn done(host: &mut Host<'_>) -> Value {
    host.command("done")
}

/// Lets the minute's tick become due. The first call of a job defines it.
fn world() -> World {
    let world = World::new(0);
    world.passed.set(MINUTE + 5000);
    world
}

#[test]
fn due_tick_starts_once_whatever_request_fails() {
    for fault in [Fault::Lost, Fault::Silent, Fault::Throttled, Fault::Broken] {
        // GetItem, PutItem and UpdateItem for the definition, UpdateItem for the start, UpdateItem for the record.
        for place in 0..5 {
            let world = world();
            let client = world.client();
            let mut host = Host::start(&world, &client, job(&json!({})));
            world.fault_at(place, fault);
            let due = host.event(&[], vec![]);
            assert_eq!((&due["is"], &due["tick"]), (&json!("due"), &json!(START + MINUTE)), "{fault:?} at {place}");
            let (other, event) = call(&world, &world.client(), &json!({}));
            assert_eq!((&event["is"], other.is_over), (&json!("finished"), true), "{fault:?} at {place}");
            assert_eq!(done(&mut host)["is"], "finished", "{fault:?} at {place}");
            assert!(world.faults_are_over(), "{fault:?} at {place}");
            assert_eq!(call(&world, &client, &json!({})).1["is"], "finished", "{fault:?} at {place}");
        }
    }
}

#[test]
fn start_after_a_stale_read_is_refused() {
    let world = world();
    let client = world.client();
    // Defines the job.
    let (mut first, _) = call(&world, &client, &json!({}));
    assert_eq!(done(&mut first)["is"], "finished");
    world.passed.set(2 * MINUTE + 5000);
    let mut slow = Host::start(&world, &client, job(&json!({})));
    let mut read = Vec::new();
    slow.step(&[], &mut read, vec![]);
    let (mut quick, due) = call(&world, &world.client(), &json!({}));
    assert_eq!(due["is"], "due");
    assert_eq!(done(&mut quick)["is"], "finished");
    slow.step(&[], &mut read, vec![]);
    slow.step(&[], &mut read, vec![]);
    assert_eq!(slow.events.pop_front().unwrap()["is"], "finished", "the tick has run since it read the row");
}

#[test]
fn crashed_tick_starts_again_unless_skipped() {
    for (on_crash, starts) in [("again", 3), ("skip", 1)] {
        let world = world();
        let mut tokens = Vec::new();
        for _ in 0..6 {
            let (_, event) = call(&world, &world.client(), &json!({ "onCrash": on_crash, "schedule": "1 0 * * *" }));
            tokens.extend(event["token"].as_u64());
            // The process dies, and its lease expires.
            world.passed.set(world.passed.get() + 3 * MINUTE);
        }
        assert_eq!(tokens.len(), starts, "{on_crash}");
        assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    }
}

#[test]
fn failed_tick_does_not_start_again() {
    let world = world();
    let (mut host, due) = call(&world, &world.client(), &json!({}));
    assert_eq!(due["is"], "due");
    let failed = host.event(&[], vec![json!({ "do": "failed", "error": "no paper" })]);
    assert_eq!((&failed["is"], host.is_over), (&json!("finished"), true));
    assert_eq!(call(&world, &world.client(), &json!({})).1["is"], "finished");
}

#[test]
fn writes_of_a_tick_land_once_with_its_record() {
    for fault in [None, Some(Fault::Lost), Some(Fault::Silent), Some(Fault::Conflict)] {
        let world = world();
        let (mut host, _) = call(&world, &world.client(), &json!({}));
        fault.into_iter().for_each(|fault| world.fault(fault));
        let commit = |host: &mut Host<'_>| {
            let put = json!({ "Put": {
                "TableName": "totals", "Item": { "order": { "S": "report" } },
                "ConditionExpression": "attribute_not_exists(#o)", "ExpressionAttributeNames": { "#o": "order" },
            } });
            host.event(&[put], vec![json!({ "do": "done", "tables": ["totals"] })])
        };
        assert_eq!(commit(&mut host)["is"], "finished", "{fault:?}");
        world.passed.set(2 * MINUTE + 5000);
        let (mut host, due) = call(&world, &world.client(), &json!({}));
        assert_eq!(due["tick"], START + 2 * MINUTE);
        let refused = commit(&mut host);
        assert_eq!((&refused["is"], &refused["refused"]), (&json!("not_committed"), &json!([0])), "{fault:?}");
        assert!(host.is_over);
        assert_eq!(call(&world, &world.client(), &json!({})).1["is"], "finished", "its tick is recorded as failed");
    }
}

#[test]
fn late_run_of_lost_lease_records_nothing() {
    let world = world();
    let (mut frozen, first) = call(&world, &world.client(), &json!({ "leaseMs": 1000 }));
    world.passed.set(world.passed.get() + 3 * MINUTE);
    let (mut next, second) = call(&world, &world.client(), &json!({}));
    assert_eq!(first["tick"], second["tick"]);
    assert!(second["token"].as_u64() > first["token"].as_u64());
    assert_eq!(done(&mut frozen)["is"], "lost");
    // Another tick has become due.
    assert_eq!(done(&mut next)["is"], "due");
    assert_eq!(done(&mut next)["is"], "finished");
}

#[test]
fn wrong_clock_runs_the_tick_of_the_stores_time() {
    for skew in [-86_400_000, 86_400_000] {
        let world = World::new(skew);
        world.passed.set(MINUTE + 5000);
        let (mut host, due) = call(&world, &world.client(), &json!({}));
        assert_eq!(due["tick"], START + MINUTE, "{skew}");
        assert_eq!(done(&mut host)["is"], "finished", "{skew}");
    }
}

#[test]
fn job_of_another_schedule_is_refused_while_in_use() {
    let world = world();
    let (mut host, _) = call(&world, &world.client(), &json!({ "zone": "Europe/Berlin" }));
    assert_eq!(done(&mut host)["is"], "finished");
    let (refused, event) = call(&world, &world.client(), &json!({ "schedule": "0 3 * * *" }));
    assert_eq!((&event["is"], refused.is_over), (&json!("other_schedule"), true));
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("with the definition `on * * * * * Europe/Berlin`"), "{message}");
    assert!(message.contains("use the same schedule on all hosts, or another name"), "{message}");
    world.passed.set(20 * MINUTE);
    assert_eq!(call(&world, &world.client(), &json!({ "schedule": "0 3 * * *" })).1["is"], "finished");
    let plain = call(&world, &world.client(), &json!({})).1;
    assert_eq!(plain["is"], "other_schedule", "the changed schedule counts from now on");
}

#[test]
fn write_to_own_table_fails_the_tick_by_name() {
    let world = world();
    for table in ["entities", "inbox"] {
        let (mut host, _) = call(&world, &world.client(), &json!({}));
        let invalid = host.event(&[], vec![json!({ "do": "done", "tables": [table] })]);
        assert_eq!(invalid["is"], "invalid");
        assert!(invalid["message"].as_str().unwrap().contains("the serializer's own table"), "{invalid}");
        assert_eq!(host.event(&[], vec![json!({ "do": "failed", "error": "it" })])["is"], "finished");
        world.passed.set(world.passed.get() + MINUTE);
    }
}

/// Promise: an invalid job, or one in use with another schedule, is refused with the remedy; time zones are the
/// library's; a wrong clock runs no tick early.
#[test]
fn invalid_job_is_refused_with_the_remedy() {
    let client = World::new(0).client();
    for (more, reason) in [
        (json!({ "job": "Report" }), "job `Report`: a job's name is 1 to"),
        (json!({ "job": "sweep" }), "job `sweep`: `sweep` is the scheduler's own job: choose another name"),
        (json!({ "schedule": "0 0 30 2 *" }), "job `report`: schedule: \"0 0 30 2 *\" is never due"),
        (json!({ "schedule": "*/7 * * * *" }), "job `report`: schedule: \"*/7 * * * *\" is not due every 7 minutes"),
        (json!({ "schedule": "daily" }), "job `report`: schedule: \"daily\" is not a schedule: write five fields"),
        (json!({ "zone": "Berlin" }), "job `report`: schedule: \"Berlin\" is not a time zone of the IANA database"),
        (json!({ "schedule": "every day", "zone": "UTC" }), "job `report`: schedule: a rate has no time zone"),
        (json!({ "leaseMs": 999 }), "job `report`: lease: must be from 1 to 600 s"),
        (json!({ "onCrash": "never" }), "unknown variant `never`"),
        (json!({ "every": "day" }), "unknown field `every`"),
    ] {
        let refused = Session::new(&client, &job(&more).to_string()).err().unwrap();
        assert!(refused.starts_with(reason), "{refused}");
    }
    let without_inbox = Client::new(r#"{"table":"entities"}"#).unwrap();
    let refused = Session::new(&without_inbox, &job(&json!({})).to_string()).err().unwrap();
    assert!(refused.ends_with("set INBOX_TABLE"), "{refused}");
}
