//! Orders through the handler and a table in memory: the samples of `events/`,
//! and what holds of any events in any order.

mod properties;
mod samples;

use std::{fs, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::*;
use crate::{
    protocol::{
        delivery::{Age, Envelope, Incoming, Item},
        entity::{FencingToken, SourceName},
        keys::delivery_row,
        memory::{self, MemoryTable},
        state::EventTimes,
    },
    providers::{Headers, Request},
    sources::Sources,
    time::{Env, Nonce, SeededRandom, SystemClock, Timestamp},
};

/// The only sender in tests that need no samples.
fn shop() -> SourceName {
    SourceName::parse("shop").unwrap()
}

/// What a worker makes of `incoming` when it stands at `sequence`.
fn delivery(incoming: &Incoming, sequence: u64) -> Delivery {
    let nonce = Nonce::from_parts(incoming.received_at, 1);
    let envelope = Envelope::pack(incoming, &nonce, Timestamp::from_millis(u64::MAX / 2));
    let key = delivery_row(&incoming.entity, crate::protocol::entity::Sequence(sequence));
    let row = memory::evaluate(&Write::put(key, envelope.row().clone()), None).unwrap().unwrap();
    match Item::parse(&incoming.entity, &row).unwrap() {
        Item::Delivery(unpacked) => unpacked.complete(&[]).unwrap(),
        Item::Void(_) => panic!("a delivery was put"),
    }
}

/// What the sample called `name` is when it is accepted.
fn sample(name: &str) -> Incoming {
    let read = |name| fs::read_to_string(format!("{}/../events/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let event: serde_json::Value = serde_json::from_str(&read(name)).unwrap();
    let body = event["body"].as_str().unwrap();
    let body = if event["isBase64Encoded"] == true { STANDARD.decode(body).unwrap() } else { body.into() };
    let headers = event["headers"].as_object().unwrap().iter();
    let headers: Headers = headers.map(|(name, value)| (name, value.as_str().unwrap())).collect();
    let source = event["rawPath"].as_str().unwrap().strip_prefix("/webhooks/").unwrap();
    let now = Timestamp::from_millis(event["requestContext"]["timeEpoch"].as_u64().unwrap());
    let sources = Sources::parse(&read("sources.toml")).unwrap();
    sources.get(source).unwrap().delivery(Request { headers: &headers, body: &body }, now)
}

/// A shop's orders, and whoever hands deliveries to them one after the other.
struct Shop {
    table: Arc<MemoryTable>,
    orders: Orders,
    times: EventTimes,
    sequence: u64,
}

impl Shop {
    fn open() -> Self {
        let table = Arc::new(MemoryTable::new());
        let orders = Orders::new(table.clone(), "shop-orders");
        Self { table, orders, times: EventTimes::default(), sequence: 0 }
    }

    async fn handle(&self, delivery: &Delivery) -> Result<Outcome, HandlerError> {
        let env = Env::new(SystemClock::start(), SeededRandom::new(1));
        let context = Context::detached(FencingToken(1), Duration::from_secs(5), env);
        self.orders.handle(delivery, &context).await
    }

    /// Accepts, handles and commits; returns the delivery as it was handled.
    async fn apply(&mut self, incoming: &Incoming) -> Delivery {
        self.sequence += 1;
        let mut delivery = delivery(incoming, self.sequence);
        if let Some(time) = delivery.event_time() {
            delivery.age = match self.times.of(delivery.family()) {
                Some(newest) if time < newest => Age::Older,
                Some(newest) if time == newest => Age::SameTime,
                _ => Age::Newer,
            };
            self.times = self.times.applied(delivery.family(), time);
        }
        let Outcome::Commit(writes) = self.handle(&delivery).await.unwrap() else { panic!("nothing to commit") };
        assert_eq!(writes.len(), 1);
        self.table.write(&writes[0]).await.unwrap();
        delivery
    }

    async fn order(&self, entity: &EntityKey) -> Order {
        self.orders.order(entity).await.unwrap().unwrap()
    }
}
