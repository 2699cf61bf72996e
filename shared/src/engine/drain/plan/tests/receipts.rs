//! Repeats are recognised by receipts: in the order's row, in pages and in separate rows.

use super::*;
use crate::protocol::{
    inbox::SpillPage,
    memory::evaluate,
    receipt::{PagedReceipts, Spilled},
};

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

fn in_row(receipt: &Receipt) -> InboxPage {
    let mut page = page(1);
    page.receipts.extend(receipt.identity.map(|identity| (identity, receipt.clone())));
    page
}

fn paged(receipts: &[Receipt]) -> PagedReceipts {
    let mut paged = PagedReceipts::default();
    for receipt in receipts {
        let one = Recent::default().with(receipt.clone(), MEMORY.retention);
        let entity = entity();
        let write = SpillPage::of(&entity, &one, NOW).unwrap().write();
        paged.add(&evaluate(&write, None).unwrap().unwrap()).unwrap();
    }
    paged
}

#[test]
fn delivery_with_a_receipt_elsewhere_is_a_repeat() {
    let with = |id, at, settlement, is_paged| {
        let spilled = if is_paged { Spilled::PAGES } else { Spilled::ROWS };
        let mut drain = Drain::granted(EntityState { spilled, ..row(7, 8) }, MEMORY);
        assert_eq!(drain.unread(), spilled);
        let receipt = receipt_of(id, at, settlement);
        drain.read(if is_paged { page(1).with_paged(paged(&[receipt])) } else { in_row(&receipt) });
        assert!(!drain.unread().pages, "they are read once");
        next(&drain, MOMENT)
    };
    for is_paged in [true, false] {
        assert_eq!(with("D8", 4, Settlement::Applied, is_paged), Step::Settle(Settlement::Repeat));
        assert_eq!(with("D4", 4, Settlement::Applied, is_paged), STARTED);
        // A rewound delivery has a receipt for its own sequence. If it was applied, it runs again.
        assert_eq!(with("D8", 8, Settlement::Applied, is_paged), STARTED);
        for settlement in [Settlement::Parked, Settlement::Superseded] {
            assert_eq!(with("D8", 8, settlement, is_paged), Step::Settle(settlement));
        }
    }
}

#[test]
fn receipts_in_pages_identify_repeats_on_later_pages() {
    let mut drain = Drain::granted(EntityState { spilled: Spilled::PAGES, ..row(7, 9) }, MEMORY);
    drain.read(page(1).with_paged(paged(&[receipt_of("D9", 4, Settlement::Applied)])));
    settle(&mut drain, Settlement::Applied);
    let rows = vec![stored(&incoming("D9", 9), 9)];
    drain.read_ahead(InboxPage::parse(&entity(), Sequence(9), rows).unwrap());
    assert_eq!(next(&drain, MOMENT), Step::Settle(Settlement::Repeat));
}

/// The delivery was applied, rewound, and parked when it ran again.
#[test]
fn receipt_under_latest_token_counts() {
    let before = |token| Receipt { token: FencingToken(token), ..receipt_of("D8", 8, Settlement::Applied) };
    let after = |token| Receipt { token: FencingToken(token), ..receipt_of("D8", 8, Settlement::Parked) };
    let read = |page: InboxPage| {
        let mut drain = Drain::granted(EntityState { spilled: Spilled::ANYWHERE, ..row(7, 8) }, MEMORY);
        drain.read(page);
        next(&drain, MOMENT)
    };
    let parked = Step::Settle(Settlement::Parked);
    assert_eq!(read(in_row(&before(40)).with_paged(paged(&[after(50)]))), parked);
    assert_eq!(read(in_row(&after(50)).with_paged(paged(&[before(40)]))), parked);
    assert_eq!(read(page(1).with_paged(paged(&[before(40), after(50)]))), parked);
    assert_eq!(read(page(1).with_paged(paged(&[after(50), before(40)]))), parked);
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
    assert_eq!(drain.unread(), Spilled::default(), "as granted");
    assert_eq!(next(&drain, MOMENT), Step::Settle(Settlement::Repeat));
    settle(&mut drain, Settlement::Repeat);
    assert!(!drain.state.recent.holds(incoming("D6", 1).identity.hash()));
    assert_eq!(next(&drain, MOMENT), Step::Settle(Settlement::Repeat));
}

#[test]
fn receipts_are_spilled_in_one_page_before_being_dropped() {
    let remembered = [("D5", Settlement::Applied), ("D6", Settlement::Repeat), ("D7", Settlement::Parked)];
    let mut drain = drain(remembering(&remembered, 12), 4);
    let mut decision = drain.decision(ended(Settlement::Applied), NOW, None);
    assert_eq!((identities(&decision.dropped), decision.spilled), (vec![5], Spilled::default()));
    let page = drain.to_spill(&decision).expect("the first is dropped");
    assert_eq!(page.receipts().map(|receipt| receipt.sequence.0).collect::<Vec<_>>(), [5, 6, 7]);
    // The next receipt to leave is a repeat's, which need not be kept.
    assert_eq!(spilling(drain.to_spill_ahead(&decision)), [0; 0]);
    drain.spilled(&page);
    assert_eq!(drain.to_spill(&decision), None, "written already");
    drain.mark(&mut decision);
    assert_eq!(decision.spilled, Spilled::PAGES);
    for dropped in [5, 6, 7] {
        let decision = drain.decision(ended(Settlement::Applied), NOW, None);
        assert_eq!((identities(&decision.dropped), drain.to_spill(&decision)), (vec![dropped], None));
        assert_eq!(decision.spilled, Spilled::PAGES, "although the row may not say so yet");
        let ahead = drain.to_spill_ahead(&decision);
        if dropped == 7 {
            assert_eq!(spilling(ahead), [8, 9]);
        } else {
            assert_eq!(spilling(ahead), [0; 0]);
        }
        settle(&mut drain, Settlement::Applied);
    }
}

#[test]
fn receipts_of_an_earlier_holders_page_are_not_written_again() {
    let remembered = [("D5", Settlement::Applied), ("D6", Settlement::Applied), ("D7", Settlement::Applied)];
    let granted = EntityState { spilled: Spilled::PAGES, ..remembering(&remembered, 8) };
    let of_earlier = granted.recent.iter().cloned().collect::<Vec<_>>();
    let read = |paged: PagedReceipts| {
        let mut drain = Drain::granted(granted.clone(), MEMORY);
        drain.read(page(1).with_paged(paged));
        let decision = drain.decision(ended(Settlement::Applied), NOW, None);
        assert_eq!(identities(&decision.dropped), [5]);
        spilling(drain.to_spill(&decision))
    };
    assert_eq!(read(paged(&of_earlier)), [0; 0]);
    assert_eq!(read(paged(&of_earlier[1..])), [5, 6, 7]);
    // The delivery has been settled again since, after a rewind.
    let before_rewind = Receipt { token: FencingToken(1), ..of_earlier[0].clone() };
    assert_eq!(read(paged(&[before_rewind])), [5, 6, 7]);
}

#[test]
fn receipts_get_rows_of_their_own_beside_many_pages() {
    let remembered = [("D5", Settlement::Applied), ("D6", Settlement::Repeat), ("D7", Settlement::Applied)];
    let with = |pages: u64| {
        let granted = EntityState { spilled: Spilled::PAGES, ..remembering(&remembered, 8) };
        let mut drain = Drain::granted(granted, MEMORY);
        let of_others: Vec<_> = (0..pages).map(|_| receipt_of("D1", 1, Settlement::Applied)).collect();
        drain.read(page(1).with_paged(paged(&of_others)));
        let mut decision = drain.decision(ended(Settlement::Applied), NOW, None);
        let spilling = drain.to_spill(&decision).expect("a receipt is dropped");
        drain.spilled(&spilling);
        drain.mark(&mut decision);
        (spilling.place(), decision.spilled, spilling.receipts().count())
    };
    assert_eq!(with(PAGES as u64 - 1), (Spilled::PAGES, Spilled::PAGES, 3));
    assert_eq!(with(PAGES as u64), (Spilled::ROWS, Spilled::ANYWHERE, 1));
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
    assert_eq!(drain.to_spill_ahead(&decision), None);
}

#[test]
fn receipts_are_spilled_ahead_only_if_deliveries_wait() {
    let remembered = [("D5", Settlement::Applied), ("D6", Settlement::Applied), ("D7", Settlement::Applied)];
    let ahead = |tail| {
        let drain = drain(remembering(&remembered, tail), 1);
        let decision = drain.decision(ended(Settlement::Applied), NOW, None);
        spilling(drain.to_spill_ahead(&decision))
    };
    assert_eq!((ahead(8), ahead(9)), (vec![], vec![6, 7]));
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
    assert_eq!(spilling(drain.to_spill(&next)), [5, 6, 7, 8]);
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
