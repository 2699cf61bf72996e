//! A host with a virtual clock and an embedded DynamoDB, which loses, delays and refuses replies.

#![allow(dead_code, reason = "each test uses a part")]

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

use client_core::{Client, Session};
use dynoxide::{Database, errors::DynoxideError};
use serde_json::{Value, json};

/// 2026-01-01T00:00:00Z.
pub const START: u64 = 1_767_225_600_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    None,
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
    /// The AWS SDK finds no credentials, and sends nothing.
    NoCredentials,
    /// The request is refused, as one whose signature is too old.
    Expired,
    /// The request lands this long after it was sent, in milliseconds, and no reply arrives.
    Late(u64),
}

/// A store, the machine's clocks, and the faults of the next requests.
pub struct World {
    pub database: Database,
    /// The store's time, in milliseconds since the start.
    pub passed: Cell<u64>,
    /// The machine's clock less the store's clock, in milliseconds.
    pub skew: i64,
    pub faults: RefCell<VecDeque<Fault>>,
    pub operations: RefCell<Vec<String>>,
    pub steps: Cell<u64>,
    /// Requests that land later, and when.
    late: RefCell<Vec<(u64, Value)>>,
    /// Set if the queue refuses messages.
    pub is_queue_broken: Cell<bool>,
}

pub struct Host<'a> {
    pub world: &'a World,
    pub session: Session,
    pub events: VecDeque<Value>,
    pub is_over: bool,
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
    pub fn new(skew: i64) -> Self {
        let database = Database::memory().unwrap();
        let tables: [(&str, &[(&str, &str)]); 3] = [
            ("entities", &[("entity", "HASH")]),
            ("inbox", &[("entity", "HASH"), ("item", "RANGE")]),
            ("totals", &[("order", "HASH")]),
        ];
        for (table, keys) in tables {
            let schema: Vec<Value> =
                keys.iter().map(|(name, kind)| json!({ "AttributeName": name, "KeyType": kind })).collect();
            let types: Vec<Value> =
                keys.iter().map(|(name, _)| json!({ "AttributeName": name, "AttributeType": "S" })).collect();
            let request = json!({
                "TableName": table, "BillingMode": "PAY_PER_REQUEST", "KeySchema": schema, "AttributeDefinitions": types,
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
            late: RefCell::default(),
            is_queue_broken: Cell::new(false),
        }
    }

    pub fn client(&self) -> Client {
        Client::new(
            r#"{"table":"entities","inboxTable":"inbox","queueUrl":"https://queue/wake-ups","holder":"a test"}"#,
        )
        .unwrap()
    }

    pub fn fault(&self, fault: Fault) {
        self.faults.borrow_mut().push_back(fault);
    }

    /// Applies `fault` to the request after the next `place` ones.
    pub fn fault_at(&self, place: usize, fault: Fault) {
        self.faults.borrow_mut().extend(std::iter::repeat_n(Fault::None, place).chain([fault]));
    }

    pub fn faults_are_over(&self) -> bool {
        self.faults.borrow().is_empty()
    }

    pub fn requests(&self) -> Vec<String> {
        self.operations.take()
    }

    pub fn landed(&self, call: &Value, writes: &[Value]) -> Value {
        let mut input = call["input"].clone();
        match call["operation"].as_str().unwrap() {
            "GetItem" => reply(input, |request| self.database.get_item(request)),
            "PutItem" => reply(input, |request| self.database.put_item(request)),
            "SendMessage" if self.is_queue_broken.get() => refusal("AccessDenied", 403),
            "SendMessage" => json!({ "ok": {} }),
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

    /// Lets a delivery wait for the order.
    pub fn deliver(&self, key: &str) {
        let request = json!({
            "TableName": "entities", "Key": { "entity": { "S": key } }, "UpdateExpression": "SET tail = tail + :one",
            "ExpressionAttributeValues": { ":one": { "N": "1" } },
        });
        self.database.update_item(serde_json::from_value(request).unwrap()).unwrap();
    }

    /// Lands the requests whose time has come.
    pub fn land_late(&self) {
        let now = self.passed.get();
        let due: Vec<(u64, Value)> = self.late.borrow_mut().extract_if(.., |(time, _)| *time <= now).collect();
        for (_, call) in due {
            self.landed(&call, &[]);
        }
    }

    /// Returns the reply to a call, or `None` if it gets none.
    pub fn answer(&self, call: &Value, writes: &[Value]) -> Option<Value> {
        self.operations.borrow_mut().push(call["operation"].as_str().unwrap().to_owned());
        self.land_late();
        let fault = self.faults.borrow().front().copied();
        if fault != Some(Fault::Dead) {
            self.faults.borrow_mut().pop_front();
        }
        let mut reply = match fault {
            None | Some(Fault::None) => self.landed(call, writes),
            Some(Fault::Lost) => {
                self.landed(call, writes);
                return Some(refusal("TimeoutError", 0));
            }
            Some(Fault::Silent | Fault::Dead) => {
                self.landed(call, writes);
                return None;
            }
            Some(Fault::Late(after)) => {
                self.late.borrow_mut().push((self.passed.get() + after, call.clone()));
                return None;
            }
            Some(Fault::Throttled) => refusal("ThrottlingException", 400),
            Some(Fault::Broken) => refusal("InternalServerError", 500),
            Some(Fault::Conflict) => refusal("TransactionConflictException", 400),
            Some(Fault::Expired) => {
                let message = "Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z";
                json!({ "error": { "name": "InvalidSignatureException", "message": message, "status": 400 } })
            }
            Some(Fault::NoCredentials) => return Some(refusal("CredentialsProviderError", 0)),
            Some(Fault::Denied) => refusal("AccessDeniedException", 400),
        };
        reply["date"] = ((START + self.passed.get()) / 1000 * 1000).into();
        Some(reply)
    }
}

impl<'a> Host<'a> {
    pub fn start(world: &'a World, client: &Client, start: Value) -> Self {
        let session = Session::new(client, &start.to_string()).unwrap();
        Self { world, session, events: VecDeque::new(), is_over: false }
    }

    pub fn acquire(world: &'a World, client: &Client, more: &Value) -> (Self, Value) {
        let mut start = json!({ "key": "shop/order/1" });
        start.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut host = Self::start(world, client, start);
        let event = host.event(&[], vec![]);
        (host, event)
    }

    /// Steps until the next event. Time passes only while nothing else happens.
    pub fn event(&mut self, writes: &[Value], mut commands: Vec<Value>) -> Value {
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

    pub fn step(&mut self, writes: &[Value], replies: &mut Vec<Value>, commands: Vec<Value>) -> Option<u64> {
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

    pub fn command(&mut self, command: &str) -> Value {
        self.event(&[], vec![json!({ "do": command })])
    }

    pub fn commit(&mut self, order: &str) -> Value {
        let put = json!({ "Put": {
            "TableName": "totals", "Item": { "order": { "S": order } },
            "ConditionExpression": "attribute_not_exists(#o)", "ExpressionAttributeNames": { "#o": "order" },
        } });
        self.event(&[put], vec![json!({ "do": "commit", "tables": ["totals"] })])
    }

    /// Lets `time` pass in milliseconds, with a step at each time that the session asks for.
    pub fn pass(&mut self, time: u64) {
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
