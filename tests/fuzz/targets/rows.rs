//! Stored rows: any content is parsed or refused.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use webhook_serializer::protocol::{
    delivery::InboxItem,
    entity::EntityKey,
    format::{FORMAT, attribute as a},
    receipt::Receipt,
    state::EntityState,
    table::{Row, Value},
};

#[derive(Debug, Arbitrary)]
enum FuzzValue {
    Text(String),
    Number(i64),
    Bytes(Vec<u8>),
    Null,
}

fuzz_target!(|fields: Vec<(u8, FuzzValue)>| {
    // The row is almost valid, so that the fuzzer gets past the first check.
    let mut row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "n/a").with(a::ITEM, "d#00000000000000000007");
    for (name, field) in fields {
        let value = match field {
            FuzzValue::Text(text) => Value::S(text),
            FuzzValue::Number(number) => Value::N(number),
            FuzzValue::Bytes(bytes) => Value::B(bytes.into()),
            FuzzValue::Null => Value::Null,
        };
        row.set(a::ALL[name as usize % a::ALL.len()], value);
    }
    let _ = row.size();
    if let Ok(state) = EntityState::parse(&row) {
        let _ = (state.waiting(), state.is_suspect());
    }
    let _ = Receipt::parse(&row);
    let entity = EntityKey::parse("n/a").expect("a key");
    if let Ok(InboxItem::Delivery(unpacked)) = InboxItem::parse(&entity, &row) {
        let _ = unpacked.complete(&[]);
    }
});
