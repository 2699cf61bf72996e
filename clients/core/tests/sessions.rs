//! Sessions driven by a host with a virtual clock and an embedded DynamoDB, which loses, delays and refuses replies.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

use client_core::{Client, Session};
use dynoxide::{Database, errors::DynoxideError};
use serde_json::{Value, json};

/// 2026-01-01T00:00:00Z.
const START: u64 = 1_767_225_600_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The request lands, and the connection breaks before the reply.
    Lost,
    /// The request lands, and no reply arrives.
    Silent,
    /// Like `Silent`, but for each further request too.
    Dead,
    Throttled,
    Broken,
    Conflict,
    Denied,
}

/// A store, the machine's clocks, and the faults of the next requests.
struct World {
    database: Database,
    /// The store's time, in milliseconds since the start.
    passed: Cell<u64>,
    /// The machine's clock less the store's clock, in milliseconds.
    skew: i64,
    faults: RefCell<VecDeque<Fault>>,
    operations: RefCell<Vec<String>>,
    steps: Cell<u64>,
}

struct Host<'a> {
    world: &'a World,
    session: Session,
    events: VecDeque<Value>,
    is_over: bool,
}

fn reply<Q: serde::de::DeserializeOwned, R: serde::Serialize>(
    input: Value,
    run: impl FnOnce(Q) -> Result<R, DynoxideError>,
) -> Value {
    match run(serde_json::from_value(input).unwrap()) {
        Ok(output) => json!({ "ok": output }),
        Err(error) => {
            let body: Value = serde_json::from_str(&error.to_json()).unwrap();
            json!({ "error": {
                "name": error.error_type().rsplit('#').next(), "message": error.to_string(), "status": error.status_code(),
                "item": body["Item"], "reasons": body["CancellationReasons"],
            } })
        }
    }
}

fn refusal(name: &str, status: u16) -> Value {
    json!({ "error": { "name": name, "message": "as the test demands", "status": status } })
}

impl World {
    fn new(skew: i64) -> Self {
        let database = Database::memory().unwrap();
        for (table, key) in [("entities", "entity"), ("totals", "order")] {
            let request = json!({
                "TableName": table, "BillingMode": "PAY_PER_REQUEST",
                "KeySchema": [{ "AttributeName": key, "KeyType": "HASH" }],
                "AttributeDefinitions": [{ "AttributeName": key, "AttributeType": "S" }],
            });
            database.create_table(serde_json::from_value(request).unwrap()).unwrap();
        }
        Self {
            database,
            passed: Cell::new(0),
            skew,
            faults: RefCell::default(),
            operations: RefCell::default(),
            steps: Cell::new(0),
        }
    }

    fn client(&self) -> Client {
        Client::new(r#"{"table":"entities","holder":"a test"}"#).unwrap()
    }

    fn fault(&self, fault: Fault) {
        self.faults.borrow_mut().push_back(fault);
    }

    fn requests(&self) -> Vec<String> {
        self.operations.take()
    }

    fn landed(&self, call: &Value, writes: &[Value]) -> Value {
        let mut input = call["input"].clone();
        match call["operation"].as_str().unwrap() {
            "GetItem" => reply(input, |request| self.database.get_item(request)),
            "UpdateItem" => reply(input, |request| self.database.update_item(request)),
            "DeleteItem" => reply(input, |request| self.database.delete_item(request)),
            "TransactWriteItems" => {
                for item in input["TransactItems"].as_array_mut().unwrap() {
                    if let Some(number) = item["write"].as_u64() {
                        *item = writes[usize::try_from(number).unwrap()].clone();
                    }
                }
                reply(input, |request| self.database.transact_write_items(request))
            }
            other => panic!("{other}"),
        }
    }

    /// Returns the reply to a call, or `None` if it gets none.
    fn answer(&self, call: &Value, writes: &[Value]) -> Option<Value> {
        self.operations.borrow_mut().push(call["operation"].as_str().unwrap().to_owned());
        let fault = self.faults.borrow().front().copied();
        if fault != Some(Fault::Dead) {
            self.faults.borrow_mut().pop_front();
        }
        let mut reply = match fault {
            None => self.landed(call, writes),
            Some(Fault::Lost) => {
                self.landed(call, writes);
                return Some(refusal("TimeoutError", 0));
            }
            Some(Fault::Silent | Fault::Dead) => {
                self.landed(call, writes);
                return None;
            }
            Some(Fault::Throttled) => refusal("ThrottlingException", 400),
            Some(Fault::Broken) => refusal("InternalServerError", 500),
            Some(Fault::Conflict) => refusal("TransactionConflictException", 400),
            Some(Fault::Denied) => refusal("AccessDeniedException", 400),
        };
        reply["date"] = ((START + self.passed.get()) / 1000 * 1000).into();
        Some(reply)
    }
}

impl<'a> Host<'a> {
    fn start(world: &'a World, client: &Client, start: Value) -> Self {
        let session = Session::new(client, &start.to_string()).unwrap();
        Self { world, session, events: VecDeque::new(), is_over: false }
    }

    fn acquire(world: &'a World, client: &Client, more: &Value) -> (Self, Value) {
        let mut start = json!({ "key": "shop/order/1" });
        start.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut host = Self::start(world, client, start);
        let event = host.event(&[], vec![]);
        (host, event)
    }

    /// Steps until the next event. Time passes only while nothing else happens.
    fn event(&mut self, writes: &[Value], mut commands: Vec<Value>) -> Value {
        let mut replies = Vec::new();
        for _ in 0..10_000 {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let wake = self.step(writes, &mut replies, std::mem::take(&mut commands));
            if self.events.is_empty() && replies.is_empty() {
                let wake = wake.expect("the session waits for something");
                self.world.passed.set(self.world.passed.get() + wake);
            }
        }
        panic!("no event came");
    }

    fn step(&mut self, writes: &[Value], replies: &mut Vec<Value>, commands: Vec<Value>) -> Option<u64> {
        let world = self.world;
        world.steps.set(world.steps.get() + 1);
        let entropy =
            format!("{:032x}", u128::from(world.steps.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let input = json!({
            "now": (START + world.passed.get()).checked_add_signed(self.world.skew), "monotonic": world.passed.get() as f64,
            "entropy": entropy, "replies": std::mem::take(replies), "commands": commands,
        });
        let step: Value = serde_json::from_str(&self.session.step(&input.to_string()).unwrap()).unwrap();
        self.events.extend(step["events"].as_array().unwrap().clone());
        self.is_over = step["over"] == true;
        for call in step["calls"].as_array().unwrap() {
            if let Some(reply) = world.answer(call, writes) {
                replies.push(json!([call["id"], reply]));
            }
        }
        step["wake"].as_u64()
    }

    fn command(&mut self, command: &str) -> Value {
        self.event(&[], vec![json!({ "do": command })])
    }

    fn commit(&mut self, order: &str) -> Value {
        let put = json!({ "Put": {
            "TableName": "totals", "Item": { "order": { "S": order } },
            "ConditionExpression": "attribute_not_exists(#o)", "ExpressionAttributeNames": { "#o": "order" },
        } });
        self.event(&[put], vec![json!({ "do": "commit", "tables": ["totals"] })])
    }

    /// Lets `time` pass in milliseconds, with a step at each time that the session asks for.
    fn pass(&mut self, time: u64) {
        let until = self.world.passed.get() + time;
        let mut replies = Vec::new();
        loop {
            let wake = self.step(&[], &mut replies, vec![]);
            if !replies.is_empty() {
                continue;
            }
            match wake {
                Some(wake) if self.world.passed.get() + wake < until => {
                    self.world.passed.set(self.world.passed.get() + wake)
                }
                _ => return self.world.passed.set(until),
            }
        }
    }
}

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
fn invalid_settings_key_or_terms_are_refused() {
    let client = World::new(0).client();
    for (start, reason) in [
        (json!({ "key": "order" }), "a key is a namespace and a name joined by '/'"),
        (json!({ "key": "a/b", "leaseMs": 999 }), "a lease lasts from 1 s to 15 min, not 999 ms"),
        (json!({ "key": "a/b", "leaseMs": 900_001 }), "a lease lasts from 1 s to 15 min, not 900001 ms"),
        (json!({ "key": "a/b", "waitMs": -1 }), "invalid value: integer `-1`, expected u64"),
        (json!({ "key": "a/b", "wait": 1 }), "unknown field `wait`"),
    ] {
        let refused = Session::new(&client, &start.to_string()).err().unwrap();
        assert!(refused.starts_with(reason), "{refused}");
    }
    for (settings, reason) in [
        (r#"{"table":""}"#, "the name of the entities table is empty"),
        (r#"{"table":"e","retentionDays":0}"#, "the retention of 0 days is not from 1 to 3650"),
        (r#"{"tabel":"e"}"#, "unknown field `tabel`"),
    ] {
        let refused = Client::new(settings).err().unwrap();
        assert!(refused.starts_with(reason), "{refused}");
    }
}
