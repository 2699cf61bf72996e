//! Repeats are recognised by receipts, in the order's row and in rows of their own.

use super::*;

#[test]
fn delivery_with_receipt_in_entity_row_is_repeat() {
    let comes_again =
        |id, settlement| next(&drain(remembering(&[("D1", Settlement::Void), (id, settlement)], 8), 1), MOMENT);
    let repeat = Step::Settle(Settlement::Repeat);
    assert_eq!(comes_again("D8", Settlement::Applied), repeat);
    assert_eq!(comes_again("D8", Settlement::Parked), repeat);
    assert_eq!(comes_again("D8", Settlement::Repeat), STARTED);
    assert_eq!(comes_again("D4", Settlement::Applied), STARTED);
}

#[test]
fn delivery_with_a_receipt_row_is_a_repeat() {
    let with = |id, at, settlement| {
        let mut drain = Drain::granted(EntityState { spilled: true, ..row(7, 8) }, MEMORY);
        assert!(drain.has_spilled());
        let mut page = page(1);
        let receipt = receipt_of(id, at, settlement);
        page.receipts.extend(receipt.identity.map(|identity| (identity, receipt)));
        drain.read(page);
        next(&drain, MOMENT)
    };
    assert_eq!(with("D8", 4, Settlement::Applied), Step::Settle(Settlement::Repeat));
    assert_eq!(with("D4", 4, Settlement::Applied), STARTED);
    // A rewound delivery has a receipt for its own sequence. If it was applied, it runs again.
    assert_eq!(with("D8", 8, Settlement::Applied), STARTED);
    for settlement in [Settlement::Parked, Settlement::Superseded] {
        assert_eq!(with("D8", 8, settlement), Step::Settle(settlement));
    }
}

/// The row holds three receipts, so those of D8, D9 and D10 replace those of D5, D6 and D7.
#[test]
fn receipt_dropped_from_row_still_identifies_repeats() {
    let places = ["D8", "D9", "D10", "D8", "D6"];
    let rows = (8..).zip(places).map(|(at, id)| stored(&incoming(id, at), at)).collect();
    let remembered = [("D5", Settlement::Applied), ("D6", Settlement::Applied), ("D7", Settlement::Applied)];
    let mut drain = Drain::granted(remembering(&remembered, 12), MEMORY);
    drain.read(InboxPage::parse(&entity(), Sequence(8), rows).unwrap());
    for _ in 0..3 {
        assert_eq!(next(&drain, MOMENT), STARTED);
        settle(&mut drain, Settlement::Applied);
    }
    assert!(!drain.has_spilled(), "as granted");
    assert_eq!(next(&drain, MOMENT), Step::Settle(Settlement::Repeat));
    settle(&mut drain, Settlement::Repeat);
    assert!(!drain.state.recent.holds(incoming("D6", 1).identity.hash()));
    assert_eq!(next(&drain, MOMENT), Step::Settle(Settlement::Repeat));
}

#[test]
fn receipts_are_spilled_once_before_being_dropped() {
    let remembered = [("D5", Settlement::Applied), ("D6", Settlement::Repeat), ("D7", Settlement::Parked)];
    let mut drain = drain(remembering(&remembered, 12), 4);
    let decision = drain.decision(ended(Settlement::Applied), NOW, None);
    assert_eq!(identities(&decision.dropped), [5]);
    assert_eq!(identities(&drain.to_spill(&decision)), [5]);
    // A repeat gets no receipt row.
    assert_eq!(identities(&drain.to_spill_ahead(&decision)), [0; 0]);
    drain.spilled(decision.dropped.clone());
    assert_eq!(identities(&drain.to_spill(&decision)), [0; 0], "written already");
    settle(&mut drain, Settlement::Applied);
    let decision = drain.decision(ended(Settlement::Applied), NOW, None);
    assert_eq!((identities(&decision.dropped), identities(&drain.to_spill(&decision))), (vec![6], vec![]));
    let ahead = drain.to_spill_ahead(&decision);
    assert_eq!(identities(&ahead), [7]);
    drain.spilled(ahead);
    settle(&mut drain, Settlement::Applied);
    let decision = drain.decision(ended(Settlement::Applied), NOW, None);
    assert_eq!((identities(&decision.dropped), identities(&drain.to_spill(&decision))), (vec![7], vec![]));
}

/// The write of the current decision may still fail, so the receipts that this decision adds are
/// not spilled yet.
#[test]
fn receipt_is_not_spilled_before_its_decision_is_written() {
    let one = Memory { capacity: 1, ..MEMORY };
    let mut drain = Drain::granted(remembering(&[("D7", Settlement::Applied)], 12), one);
    drain.read(page(4));
    let decision = drain.decision(ended(Settlement::Applied), NOW, None);
    assert_eq!(identities(&decision.dropped), [7]);
    assert_eq!(drain.to_spill_ahead(&decision), []);
}

#[test]
fn receipts_are_spilled_ahead_only_if_deliveries_wait() {
    let remembered = [("D5", Settlement::Applied), ("D6", Settlement::Applied), ("D7", Settlement::Applied)];
    let ahead = |tail| {
        let drain = drain(remembering(&remembered, tail), 1);
        let decision = drain.decision(ended(Settlement::Applied), NOW, None);
        identities(&drain.to_spill_ahead(&decision))
    };
    assert_eq!((ahead(8), ahead(9)), (vec![], vec![6]));
}

#[test]
fn unspilled_receipts_stay_in_the_row() {
    let remembered = [("D5", Settlement::Applied), ("D6", Settlement::Applied), ("D7", Settlement::Applied)];
    let mut drain = drain(remembering(&remembered, 12), 4);
    let decision = drain.decision(ended(Settlement::Applied), NOW, None).dropping_nothing();
    let places: Vec<u64> = decision.recent.iter().map(|receipt| receipt.sequence.0).collect();
    assert_eq!((places, decision.dropped.len()), (vec![5, 6, 7, 8], 0));
    drain.settled(EntityState { head: Sequence(8), recent: decision.recent.clone(), ..row(7, 12) }, &decision);
    let next = drain.decision(ended(Settlement::Applied), NOW, None);
    assert_eq!(identities(&drain.to_spill(&next)), [5, 6]);
}

#[test]
fn repeat_within_one_page_is_recognised() {
    let rows = vec![stored(&incoming("D8", 8), 8), stored(&incoming("D9", 9), 9), stored(&incoming("D8", 8), 10)];
    let mut drain = Drain::granted(row(7, 10), MEMORY);
    drain.read(InboxPage::parse(&entity(), Sequence(8), rows).unwrap());
    settle(&mut drain, Settlement::Applied);
    assert_eq!(next(&drain, MOMENT), STARTED);
    settle(&mut drain, Settlement::Applied);
    assert_eq!(next(&drain, MOMENT), Step::Settle(Settlement::Repeat));
}
