//! A store whose leases exclude nobody: the negative control of the tests of order.

use std::sync::{Arc, Mutex};

use webhook_serializer::protocol::{
    format::attribute as a,
    table::{Action, Change, Comparison, Condition, Operand, Row, Table, TableError, TableName, Value, Write, Written},
};

use crate::forwarding::{Forwarding, Layer, TableReply, TableRequest};

const LEASE: [&str; 4] = [a::HOLDER, a::KIND, a::EXPIRES_AT, a::HOLDER_INFO];

/// A table that ignores the conditions of writes to orders' rows, except those on `tail`. So the writes of
/// every holder land. Each worker needs a separate table, because the table remembers which lease its worker
/// assumes.
pub type LeaselessTable = Forwarding<AssumedLeases>;

#[derive(Default)]
pub struct AssumedLeases {
    assumed: Mutex<std::collections::HashMap<String, Row>>,
}

impl LeaselessTable {
    pub fn new(inner: Arc<dyn Table>) -> Self {
        Self::through(AssumedLeases::default(), inner)
    }
}

impl Layer for AssumedLeases {
    async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
        let TableRequest::Write(write @ Write { action: Action::Update(changes), .. }) = request else {
            return request.of(inner).await;
        };
        if write.key.table != TableName::Entities || is_claim(changes) {
            return request.of(inner).await;
        }
        let entity = format!("{:?}", write.key.partition.1);
        let lease: Row = changes
            .iter()
            .filter_map(|change| match change {
                Change::Set(name, value) if LEASE.contains(&&**name) => Some((name.clone(), value.clone())),
                _ => None,
            })
            .collect();
        let assumed = {
            let mut assumed = self.assumed.lock().expect("no one panics while holding this");
            let row = assumed.entry(entity).or_default();
            for (name, value) in lease {
                row.set(name, value);
            }
            row.clone()
        };
        let open = Write {
            key: write.key.clone(),
            condition: without_lease(&write.condition),
            action: Action::Update(changes.iter().filter(|change| !is_of_lease(change)).cloned().collect()),
        };
        let token = token_of(&write.condition);
        let patched = |row: Option<Row>| {
            row.map(|mut row| {
                for (name, value) in assumed.clone() {
                    row.set(name, value);
                }
                if let Some(token) = &token {
                    row.set(a::TOKEN, token.clone());
                }
                row
            })
        };
        Ok(TableReply::Written(match inner.write(&open).await? {
            Written::Landed(row) => Written::Landed(row),
            Written::Refused(row) => Written::Refused(patched(row)),
        }))
    }
}

fn is_claim(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change, Change::Set(name, _) if name == a::LAST_CLAIM))
}

fn is_of_lease(change: &Change) -> bool {
    let (Change::Set(name, _)
    | Change::SetIfAbsent(name, _)
    | Change::Remove(name)
    | Change::Add { attribute: name, .. }) = change;
    LEASE.contains(&&**name)
}

/// Returns the part of a condition that is about `tail`.
fn without_lease(condition: &Condition) -> Condition {
    match condition {
        Condition::All(parts) => Condition::All(parts.iter().map(without_lease).collect()),
        Condition::Compare(name, _, _) if name == a::TAIL => condition.clone(),
        Condition::Compare(_, _, Operand::Attribute(name)) if name == a::TAIL => condition.clone(),
        _ => Condition::Always,
    }
}

fn token_of(condition: &Condition) -> Option<Value> {
    match condition {
        Condition::All(parts) => parts.iter().find_map(token_of),
        Condition::Compare(name, Comparison::Equal, Operand::Value(token)) if name == a::TOKEN => Some(token.clone()),
        _ => None,
    }
}
