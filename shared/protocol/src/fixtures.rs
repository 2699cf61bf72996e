//! Rows and replies for the unit tests of operations.

use std::time::Duration;

use super::{
    entity::{EntityKey, IdentityHash},
    format::attribute as a,
    inbox::Claim,
    lease::{Acquire, Acquired, Lease, remove_lease_and_handover},
    memory::evaluate,
    operation::Operation,
    receipt::{Receipt, Settlement},
    state::{EntityState, HolderInfo, LeaseKind},
    table::{Change, Row, Written},
};
use crate::time::{Nonce, Timestamp};

pub const NOW: Timestamp = Timestamp::from_millis(1_000_000);
pub const LENGTH: Duration = Duration::from_secs(15);

pub fn entity() -> EntityKey {
    EntityKey::parse("shop/order/1").expect("a key")
}

pub fn nonce(number: u64) -> Nonce {
    Nonce::from_parts(NOW, u128::from(number))
}

pub fn request(kind: LeaseKind, holder: u64, now: Timestamp) -> Acquire {
    Acquire { entity: entity(), kind, holder: nonce(holder), info: HolderInfo::new("a worker"), now, length: LENGTH }
}

pub fn state(row: &Row) -> EntityState {
    EntityState::parse(row).expect("a sound row")
}

pub fn landed<O: Operation>(operation: &O, row: &mut Option<Row>) -> O::Outcome {
    *row = evaluate(&operation.write(), row.as_ref()).expect("it lands");
    operation.judge(Written::Landed(row.clone())).expect("a sound row")
}

pub fn after(operation: &impl Operation, row: &Row) -> Row {
    evaluate(&operation.write(), Some(row)).expect("it lands").expect("a row")
}

pub fn refused<O: Operation>(operation: &O, row: &Row) -> O::Outcome {
    operation.judge(Written::Refused(Some(row.clone()))).expect("a sound row")
}

pub fn granted(acquired: Acquired) -> (Lease, EntityState) {
    match acquired {
        Acquired::Granted(lease, state) => (lease, state),
        other => panic!("{other:?}"),
    }
}

pub fn claimed(claims: u64) -> Row {
    let entity = entity();
    let mut row = None;
    for number in 0..claims {
        landed(&Claim { entity: &entity, nonce: &nonce(number), now: NOW }, &mut row);
    }
    row.expect("a row")
}

pub fn held(kind: LeaseKind, claims: u64) -> (Lease, EntityState, Row) {
    let mut row = Some(claimed(claims));
    let (lease, state) = granted(landed(&request(kind, 10, NOW), &mut row));
    (lease, state, row.expect("a row"))
}

pub fn applied(state: &EntityState, lease: &Lease) -> Receipt {
    Receipt {
        sequence: state.next(),
        identity: Some(IdentityHash::from_bytes([7; 8])),
        settlement: Settlement::Applied,
        token: lease.token(),
        attempts: 0,
        settled_at: NOW,
        took: None,
    }
}

pub fn further(row: &Row, name: &'static str, by: u64) -> Row {
    let number = row.number(name).expect("a number");
    row.clone().with(name, number + by)
}

pub fn next_token(row: &Row) -> Row {
    further(row, a::TOKEN, 1)
}

pub fn freed(row: &Row) -> Row {
    let mut row = row.clone();
    for change in remove_lease_and_handover() {
        let Change::Remove(name) = change else { panic!("{change:?}") };
        row.remove(&name);
    }
    row
}
