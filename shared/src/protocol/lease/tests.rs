//! Ends and renewals of a lease, recognised as the holder's own or not; and lease
//! ids.

use super::*;
use crate::{
    protocol::{inbox::Claim, memory::evaluate, operation::Operation, state::HolderInfo, table::Row, table::Written},
    time::Timestamp,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const LENGTH: Duration = Duration::from_secs(15);

fn entity() -> EntityKey {
    EntityKey::parse("shop/order/1").expect("it is a key")
}

/// A lease on an entity with one delivery.
fn held(kind: LeaseKind) -> (Lease, Row) {
    let (entity, nonce) = (entity(), Nonce::from_parts(NOW, 1));
    let claimed = evaluate(&Claim { entity: &entity, nonce: &nonce, now: NOW }.write(), None).expect("it lands");
    let info = HolderInfo::new("a worker");
    let acquire = Acquire { entity, kind, holder: Nonce::from_parts(NOW, 7), info, now: NOW, length: LENGTH };
    let row = evaluate(&acquire.write(), claimed.as_ref()).expect("it lands");
    match acquire.judge(Written::Landed(row.clone())) {
        Ok(Acquired::Granted(lease, _)) => (lease, row.expect("a row")),
        other => panic!("{other:?}"),
    }
}

fn state(row: &Row) -> EntityState {
    EntityState::parse(row).expect("it can be read")
}

/// Returns the row with the next token, as after a take-over or a settle.
fn a_token_on(row: &Row) -> Row {
    let token = row.number(a::TOKEN).expect("a token");
    row.clone().with(a::TOKEN, token + 1)
}

fn refused<O: Operation>(operation: &O, row: &Row) -> O::Outcome {
    operation.judge(Written::Refused(Some(row.clone()))).expect("it can be read")
}

fn assert_recognised_only_while_free(end: &impl Operation<Outcome = Ended>, row: &Row) {
    let landed = evaluate(&end.write(), Some(row)).expect("it lands").expect("a row");
    assert_eq!(refused(end, &landed), Ended::Ended(state(&landed)));
    assert_eq!(refused(end, &a_token_on(&landed)), Ended::Lost, "somebody else's end");
    assert_eq!(refused(end, &a_token_on(row)), Ended::Lost, "somebody else has it");
    assert_eq!(end.judge(Written::Refused(None)), Ok(Ended::Lost), "there is no such entity any more");
}

#[test]
fn lost_release_is_recognised_by_the_token() {
    let (lease, row) = held(LeaseKind::Drain);
    assert_recognised_only_while_free(
        &HandOver { lease: &lease, suspected: false, due: Timestamp::from_millis(5) },
        &row,
    );
    let (lease, row) = held(LeaseKind::Exclusive);
    assert_recognised_only_while_free(&Release { lease: &lease }, &row);
    assert_recognised_only_while_free(&YieldToDeliveries { lease: &lease, now: NOW }, &row);
}

#[test]
fn lost_renewal_is_recognised_by_the_token() {
    let (lease, row) = held(LeaseKind::Drain);
    let renew = Renew { lease: &lease, now: NOW + LENGTH / 3, length: LENGTH };
    let landed = evaluate(&renew.write(), Some(&row)).expect("it lands").expect("a row");
    assert_eq!(refused(&renew, &landed), Renewed::Renewed(state(&landed)));
    assert_eq!(refused(&renew, &a_token_on(&landed)), Renewed::Lost);
    let released = evaluate(&Release { lease: &lease }.write(), Some(&row)).expect("it lands").expect("a row");
    assert_eq!(refused(&renew, &released), Renewed::Lost);
    assert_eq!(renew.judge(Written::Refused(None)), Ok(Renewed::Lost));
}

#[test]
fn lease_id_is_parsed_from_its_text() {
    let id = held(LeaseKind::Exclusive).0.id();
    assert_eq!(id.to_string().parse(), Ok(id.clone()));
    let (nonce, entity) = (id.holder.as_str(), id.entity());
    let others = [
        format!("{}:{entity}", "ü".repeat(13)),
        format!("{}:{entity}", "!".repeat(26)),
        format!("{}:{entity}", &nonce[1..]),
        format!("{nonce}0:{entity}"),
        format!("{nonce}:"),
        nonce.to_owned(),
        entity.to_string(),
    ];
    for text in others {
        assert_eq!(text.parse::<LeaseId>(), Err(InvalidLeaseId), "{text}");
    }
}
