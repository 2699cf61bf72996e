//! Tests that releases and renewals are recognised as the holder's own, and tests of lease ids.

use super::*;
use crate::{
    fixtures::{LENGTH, NOW, after, held, next_token, refused, state},
    memory::evaluate,
    operation::Operation,
    table::{Row, Written},
    time::Timestamp,
};

fn assert_recognised_only_while_free(end: &impl Operation<Outcome = Ended>, row: &Row) {
    let landed = after(end, row);
    assert_eq!(refused(end, &landed), Ended::Ended(state(&landed)));
    assert_eq!(refused(end, &next_token(&landed)), Ended::Lost, "somebody else's end");
    assert_eq!(refused(end, &next_token(row)), Ended::Lost, "somebody else has it");
    assert_eq!(end.judge(Written::Refused(None)), Ok(Ended::Lost), "there is no such entity any more");
}

#[test]
fn token_shows_whether_unanswered_release_landed() {
    let (lease, _, row) = held(LeaseKind::Drain, 1);
    assert_recognised_only_while_free(
        &HandOver { lease: &lease, suspected: false, due: Timestamp::from_millis(5), is_pause: true },
        &row,
    );
    let (lease, _, row) = held(LeaseKind::Exclusive, 1);
    assert_recognised_only_while_free(&Release { lease: &lease }, &row);
    assert_recognised_only_while_free(&YieldToDeliveries { lease: &lease, now: NOW }, &row);
}

#[test]
fn token_shows_whether_unanswered_renewal_landed() {
    let (lease, _, row) = held(LeaseKind::Drain, 1);
    let renew = Renew { lease: &lease, now: NOW + LENGTH / 3, length: LENGTH, wrong: None };
    let landed = after(&renew, &row);
    assert_eq!(refused(&renew, &landed), Renewed::Renewed(state(&landed)));
    assert_eq!(refused(&renew, &next_token(&landed)), Renewed::Lost);
    let released = after(&Release { lease: &lease }, &row);
    assert_eq!(refused(&renew, &released), Renewed::Lost);
    assert_eq!(renew.judge(Written::Refused(None)), Ok(Renewed::Lost));
}

#[test]
fn renewal_shortens_only_a_wrong_lease() {
    let (lease, granted, row) = held(LeaseKind::Exclusive, 1);
    let written = granted.held.map(|held| held.expires_at);
    let ends = |wrong| {
        let renew = Renew { lease: &lease, now: NOW, length: LENGTH / 2, wrong };
        evaluate(&renew.write(), Some(&row)).map(|after| after.and_then(|after| after.number(a::EXPIRES_AT))).ok()
    };
    assert_eq!(ends(None), None);
    assert_eq!(ends(Some(NOW)), None, "another write has replaced it");
    assert_eq!(ends(written), Some(Some((NOW + LENGTH / 2).as_millis())));
}

#[test]
fn lease_id_is_parsed_from_displayed_text() {
    let id = held(LeaseKind::Exclusive, 1).0.id();
    assert_eq!(id.to_string().parse(), Ok(id.clone()));
    let nonce = id.holder.as_str();
    let entity = id.entity();
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
