//! Finds the purpose of a write from its changes and conditions.

use webhook_serializer::protocol::{
    attempt::Retries,
    entity::EntityKey,
    format::attribute as a,
    table::{Action, Change, Condition, Key, Row, Value, Write},
};

use super::super::world::{entity_number, key};
pub use crate::rules::{changes, drop_parts, sets};

/// Returns a delivery id that reads the same in each retry period of its sender.
pub fn without_period(delivery_id: &str) -> String {
    delivery_id.replace('~', "-")
}

pub fn is_claim(write: &Write) -> bool {
    sets(write, a::LAST_CLAIM)
}

pub fn is_put(write: &Write) -> bool {
    let item = write.key.sort.as_ref().map(|(_, item)| item);
    matches!(item, Some(Value::S(item)) if item.starts_with("d#"))
        && matches!(&write.action, Action::Put(row) if row.get(a::VOID).is_none())
}

pub fn written_start(write: &Write) -> Option<(usize, u64)> {
    let Value::N(token) = set_to(write, a::STARTED)? else { return None };
    Some((entity_number(&entity_of(&write.key)?), u64::try_from(token).ok()?))
}

pub fn is_receipt(key: &Key) -> bool {
    matches!(&key.sort, Some((_, Value::S(item))) if item.starts_with("r#") || item.starts_with("s#"))
}

pub fn is_parked_item(key: &Key) -> bool {
    matches!(&key.sort, Some((_, Value::S(item))) if item.starts_with("p#"))
}

pub fn raises(write: &Write) -> bool {
    is_claim(write) && sets(write, a::HEAD)
}

/// Returns whether the write takes the lease by force for a restore: no other write to the holder sets a
/// tail.
pub fn seizes(write: &Write) -> bool {
    sets(write, a::HOLDER) && sets(write, a::TAIL)
}

pub fn set(write: &mut Write, attribute: &'static str, to: u64) {
    let Action::Update(changes) = &mut write.action else { return };
    for change in changes {
        if matches!(change, Change::Set(name, _) if name == attribute) {
            *change = Change::set(attribute, to);
        }
    }
}

pub fn waits(row: &Row) -> Retries {
    let stored = row.bytes(a::RETRIES).filter(|_| row.text(a::LAST_ERROR).is_some());
    stored.and_then(|bytes| Retries::from_stored(bytes)).unwrap_or_default()
}

pub fn leave(write: &mut Write, attributes: &[&str]) {
    let Action::Update(changes) = &mut write.action else { return };
    changes.retain(|change| {
        !matches!(change, Change::Set(name, _) | Change::Remove(name) if attributes.iter().any(|one| name == one))
    });
}

pub fn entity_of(key_: &Key) -> Option<EntityKey> {
    match &key_.partition.1 {
        Value::S(text) => EntityKey::parse(text).ok().map(|entity| key(entity_number(&entity))),
        _ => None,
    }
}

pub fn takes_over(write: &Write) -> bool {
    let mut held = false;
    find_parts(&write.condition, &mut |part| {
        held |= matches!(part, Condition::Exists(name) if name == a::HOLDER);
    });
    held && sets(write, a::HOLDER)
}

pub fn is_charge(change: &Change) -> bool {
    matches!(change, Change::Add { attribute, .. } if attribute == a::ATTEMPTS)
}

pub fn set_to(write: &Write, attribute: &str) -> Option<Value> {
    let Action::Update(changes) = &write.action else { return None };
    changes.iter().find_map(|change| match change {
        Change::Set(name, value) if name == attribute => Some(value.clone()),
        _ => None,
    })
}

pub fn find_parts(condition: &Condition, look: &mut impl FnMut(&Condition)) {
    look(condition);
    if let Condition::All(parts) | Condition::Any(parts) = condition {
        for part in parts {
            find_parts(part, look);
        }
    }
}
