//! The steps of an operator who rewinds, and who ends a rewind early.

use std::collections::BTreeSet;

use webhook_serializer::{
    engine::drain::page::InboxPage,
    operator::as_before,
    protocol::{
        format::attribute as a,
        receipt::{Receipt, Settlement},
        state::LeaseKind,
    },
};

use crate::{
    drain::{DrainBegin, drain_begin, paged},
    operations::{Op, OperationReply},
    protocol::{ModelAction, Protocol, StateBuilder},
    reached::Reached,
    state::{ModelOperator, ModelState, Violation},
    store::{
        ClockReading, DecisionRef, LeaseRef, ModelItem, NonceId, ReceiptRef, View, arrival, delivery_at, entity,
        intern_decision, intern_receipt,
    },
    without::ViolatedRule,
};

impl Protocol {
    pub fn rewind_actions(&self, state: &ModelState, actions: &mut Vec<ModelAction>) {
        let Some(view) = state.view() else { return };
        let is_there = |at: &u64| state.item(ModelItem::Delivery(*at)).is_some();
        if state.left.rewinds > 0 {
            let back = (0..=view.head.0).rev().take_while(is_there).map(ModelAction::Rewind);
            actions.extend(back);
        }
        if state.left.rewind_ends > 0 && state.rewound.iter().any(|at| *at > view.head.0) {
            actions.push(ModelAction::EndRewind);
        }
    }
}

impl ModelState {
    /// Returns how many times this sequence was rewound.
    fn runs(&self, sequence: u64) -> usize {
        self.rewound.iter().filter(|at| **at == sequence).count()
    }

    /// Returns whether another start of this sequence is one too many. It is if the delivery was applied,
    /// here or at another sequence, and was not rewound since.
    pub fn is_over(&self, sequence: u64, is_it: impl Fn(&ReceiptRef) -> bool) -> bool {
        let (here, elsewhere): (Vec<&ReceiptRef>, Vec<&ReceiptRef>) =
            self.settled.iter().filter(|receipt| is_it(receipt)).partition(|receipt| receipt.sequence.0 == sequence);
        !elsewhere.is_empty() || here.len() > self.runs(sequence)
    }

    /// Returns how many times this delivery was rewound at any of its sequences. A delivery that is parked
    /// and redriven is applied at another sequence.
    pub fn runs_of(&self, delivery: u8) -> usize {
        let of_it = |receipt: &&ReceiptRef| receipt.id().is_some_and(|id| id.delivery == delivery);
        let places: BTreeSet<u64> = self.settled.iter().filter(of_it).map(|receipt| receipt.sequence.0).collect();
        places.into_iter().map(|place| self.runs(place)).sum()
    }

    /// Returns the last receipt of this sequence.
    pub fn before(&self, sequence: u64) -> Option<ReceiptRef> {
        self.settled.iter().rev().find(|receipt| receipt.sequence.0 == sequence).copied()
    }
}

impl StateBuilder<'_> {
    /// Records a rewind from this head.
    pub fn is_rewound(&mut self, from: u64, head: u64) {
        self.model.reach(Reached::Rewound);
        self.state.starts = 0;
        self.state.waiting_since = from;
        self.state.rewound.extend(from..=head);
        self.state.rewound.sort_unstable();
        self.state.rewinds += 1;
        if self.state.rewinds > self.state.rewinds_wanted {
            self.state.violates(Violation::Rewind);
        }
    }

    /// Checks that a sequence is settled again only after a rewind, and with the same outcome. The exception
    /// is an applied delivery, which may be parked now.
    pub fn is_decided_again(&mut self, now: ReceiptRef) {
        let sequence = now.sequence.0;
        let Some(before) = self.state.before(sequence) else { return };
        let times = self.state.settled.iter().filter(|receipt| receipt.sequence == now.sequence).count();
        let as_it_was = before.settlement == now.settlement
            || before.settlement == Settlement::Applied && now.settlement == Settlement::Parked;
        if times > self.state.runs(sequence) || !as_it_was || before.id() != now.id() {
            self.state.violates(Violation::Rewind);
        }
    }

    pub fn wants_rewind(&mut self, from: u64) -> ModelOperator {
        self.state.left.rewinds -= 1;
        self.state.rewinds_wanted += 1;
        ModelOperator::RewindAcquire(from, self.unused(80))
    }

    pub fn wants_end(&mut self) -> ModelOperator {
        self.state.left.rewind_ends -= 1;
        ModelOperator::EndAcquire(self.unused(85))
    }

    pub fn rewinds(&mut self, operator: ModelOperator, heard: bool) {
        self.state.operator = match operator {
            ModelOperator::RewindAcquire(from, drawn) => match self.asks(drawn, ClockReading::Early) {
                _ if !heard => return,
                Some(lease) => ModelOperator::RewindLook(from, lease),
                None => ModelOperator::Away,
            },
            ModelOperator::RewindLook(from, lease) => match self.state.view() {
                Some(view) if lease.is_mine(&view) && self.stands_from(from, view.head.0) => {
                    ModelOperator::RewindSpill(lease, view, from)
                }
                _ => ModelOperator::SkipRelease(lease),
            },
            ModelOperator::RewindSpill(lease, seen, from) => {
                let known = |receipt: &&Receipt| receipt.sequence.0 >= from && receipt.spills().is_some();
                let spilled = seen.recent.iter().filter(known).cloned().map(intern_receipt);
                let receipts: Vec<ReceiptRef> = spilled.chain(self.named_anew(lease, seen)).collect();
                match receipts.into_iter().find(|receipt| !self.has_row(*receipt)) {
                    Some(receipt) if !self.has(ViolatedRule::RewindWithoutReceipts) => {
                        self.on_item(receipt.item(), Op::Spill(receipt));
                        ModelOperator::RewindSpill(lease, seen, from)
                    }
                    _ => ModelOperator::RewindWrite(lease, seen, from),
                }
            }
            ModelOperator::RewindWrite(lease, seen, from) => {
                match self.on_entity(Op::Rewind(lease, seen, from)).reply {
                    _ if !heard => return,
                    OperationReply::Goes(lease, _) => ModelOperator::RewindRelease(lease),
                    _ => ModelOperator::Away,
                }
            }
            ModelOperator::RewindRelease(lease) => {
                self.on_entity(Op::YieldToDeliveries(lease));
                if heard { ModelOperator::Wake } else { return }
            }
            // The time in which deliveries go first, after the rewind, is over.
            ModelOperator::EndAcquire(drawn) => match self.asks(drawn, ClockReading::Late) {
                _ if !heard => return,
                Some(lease) => ModelOperator::EndLook(lease),
                None => ModelOperator::Away,
            },
            ModelOperator::EndLook(lease) => match self.state.view().filter(|view| lease.is_mine(view)) {
                Some(view) => match self.as_before(lease, view) {
                    Some(decision) => ModelOperator::EndSettle(lease, view, decision),
                    None => ModelOperator::SkipRelease(lease),
                },
                None => ModelOperator::SkipRelease(lease),
            },
            ModelOperator::EndSettle(lease, seen, decision) => {
                let own = |receipt: &&Receipt| receipt.sequence < decision.first && receipt.spills().is_some();
                let receipts: Vec<ReceiptRef> =
                    decision.dropped.iter().filter(own).cloned().map(intern_receipt).collect();
                match receipts.into_iter().find(|receipt| !self.has_row(*receipt)) {
                    Some(receipt) => {
                        self.on_item(receipt.item(), Op::Spill(receipt));
                        ModelOperator::EndSettle(lease, seen, decision)
                    }
                    None => match self.on_entity(Op::Skip(lease, seen, decision)).reply {
                        _ if !heard => return,
                        OperationReply::Ended(_) => {
                            self.model.reach(Reached::RewindEnded);
                            ModelOperator::Wake
                        }
                        OperationReply::Grown(view) => ModelOperator::EndSettle(lease, view, decision),
                        _ => ModelOperator::Away,
                    },
                }
            }
            other => unreachable!("{other:?} is none of these"),
        };
    }

    /// Returns whether each sequence from `from` to `head` has a row. The sequences of a recreated order row
    /// start elsewhere.
    fn stands_from(&self, from: u64, head: u64) -> bool {
        let is_there = |at: &u64| self.state.item(ModelItem::Delivery(*at)).is_some();
        (0..=head).rev().take_while(is_there).last().is_some_and(|first| first <= from) && from <= head
    }

    /// Returns the front's stored receipt, with the token of this lease. A front that has a receipt is being
    /// run again after an earlier rewind. `None` if it has no receipt.
    fn named_anew(&self, lease: LeaseRef, seen: View) -> Option<ReceiptRef> {
        let row = self.state.item(ModelItem::Delivery(seen.next().0))?;
        let id = delivery_at(&row)?;
        let before = self.state.stored_receipt(id)?;
        if before.sequence != seen.next() || seen.is_empty() {
            return None;
        }
        Some(intern_receipt(Receipt { token: lease.token(), ..before }))
    }

    fn has_row(&self, receipt: ReceiptRef) -> bool {
        // A refused write counts as done, so without the rule any row suffices.
        let any = self.has(ViolatedRule::OlderRunDecides);
        let stored = self.state.item(receipt.item());
        stored.is_some_and(|row| any || row.number(a::TOKEN) >= Some(receipt.token.0))
    }

    /// Tries once to acquire the lease; `None` if it was not granted.
    fn asks(&mut self, drawn: NonceId, clock: ClockReading) -> Option<LeaseRef> {
        let executed = self.on_entity(Op::Acquire(LeaseKind::Exclusive, drawn, clock));
        let OperationReply::Answered(answer) = executed.reply else { unreachable!() };
        match drain_begin(answer, self.state.epoch, clock, self.model.memory()) {
            DrainBegin::Granted(lease, _) => Some(lease),
            _ => None,
        }
    }

    fn as_before(&self, lease: LeaseRef, view: View) -> Option<DecisionRef> {
        let rows = (view.next().0..=view.tail.0).map_while(|at| self.state.item(ModelItem::Delivery(at)));
        let page =
            InboxPage::parse(entity(), view.next(), rows.map(|row| (*row).clone()).collect()).expect("sound rows");
        let receipts = self.state.inbox.iter().filter_map(|(item, row)| match item {
            ModelItem::Receipt(_) => Some((**row).clone()),
            _ => None,
        });
        let page = page.with_receipts(&receipts.collect::<Vec<_>>()).expect("sound rows");
        let page = page.with_paged(paged(self.state.receipt_pages()));
        let memory = self.model.memory();
        let seen_at = arrival(view.tail.0 + 1);
        as_before(&view, &page, memory, lease.token(), seen_at).map(|(decision, _)| intern_decision(decision))
    }
}
