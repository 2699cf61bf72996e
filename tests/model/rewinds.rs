//! An operator who has what was applied run again, and who ends that early.

use std::collections::BTreeSet;

use webhook_serializer::{
    engine::drain::{page::Page, plan::Memory},
    operator::as_before,
    protocol::{
        format::attribute as a,
        receipt::{Receipt, Settlement},
        state::LeaseKind,
    },
};

use crate::{
    drain::{Begun, RETENTION, begun},
    operations::{Op, Reply},
    protocol::{Action, Next, Protocol},
    reached::Reached,
    state::{Broken, Operator, State},
    store::{Clock, Decided, Drawn, Held, Item, Told, View, arrival, decided, entity, told},
    without::Rule,
};

impl Protocol {
    /// What an operator may want run again, or not any more.
    pub fn rewind_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Some(view) = state.view() else { return };
        let is_there = |at: &u64| state.item(Item::Delivery(*at)).is_some();
        if state.left.rewinds > 0 {
            let back = (0..=view.head.0).rev().take_while(is_there).map(Action::Rewind);
            actions.extend(back);
        }
        if state.left.rewind_ends > 0 && state.rewound.iter().any(|at| *at > view.head.0) {
            actions.push(Action::EndRewind);
        }
    }
}

impl State {
    /// How often this place was set back to.
    fn runs(&self, sequence: u64) -> usize {
        self.rewound.iter().filter(|at| **at == sequence).count()
    }

    /// Whether another start of this place is one too many: it was applied, there or
    /// elsewhere, and nobody has had it run again since.
    pub fn is_over(&self, sequence: u64, is_it: impl Fn(&Told) -> bool) -> bool {
        let (here, elsewhere): (Vec<&Told>, Vec<&Told>) =
            self.settled.iter().filter(|told| is_it(told)).partition(|told| told.sequence.0 == sequence);
        !elsewhere.is_empty() || here.len() > self.runs(sequence)
    }

    /// How often a person has had this delivery run again, wherever it stood: what is
    /// parked then and put back is applied elsewhere.
    pub fn runs_of(&self, delivery: u8) -> usize {
        let of_it = |told: &&Told| told.id().is_some_and(|id| id.delivery == delivery);
        let places: BTreeSet<u64> = self.settled.iter().filter(of_it).map(|told| told.sequence.0).collect();
        places.into_iter().map(|place| self.runs(place)).sum()
    }

    /// How this place was settled before.
    pub fn before(&self, sequence: u64) -> Option<Told> {
        self.settled.iter().rev().find(|told| told.sequence.0 == sequence).copied()
    }
}

impl Next<'_> {
    /// An entity was set back from this head.
    pub fn is_rewound(&mut self, from: u64, head: u64) {
        self.model.reach(Reached::Rewound);
        self.state.starts = 0;
        self.state.waiting_since = from;
        self.state.rewound.extend(from..=head);
        self.state.rewound.sort_unstable();
        self.state.rewinds += 1;
        if self.state.rewinds > self.state.rewinds_wanted {
            self.state.breaks(Broken::Rewind);
        }
    }

    /// A place is decided once more: as often as it was asked for, and as what it
    /// was. What was applied may be set aside now.
    pub fn is_decided_again(&mut self, now: Told) {
        let sequence = now.sequence.0;
        let Some(before) = self.state.before(sequence) else { return };
        let times = self.state.settled.iter().filter(|told| told.sequence == now.sequence).count();
        let as_it_was = before.settlement == now.settlement
            || before.settlement == Settlement::Applied && now.settlement == Settlement::Parked;
        if times > self.state.runs(sequence) || !as_it_was || before.id() != now.id() {
            self.state.breaks(Broken::Rewind);
        }
    }

    pub fn wants_rewind(&mut self, from: u64) -> Operator {
        self.state.left.rewinds -= 1;
        self.state.rewinds_wanted += 1;
        Operator::RewindAcquire(from, self.unused(80))
    }

    pub fn wants_end(&mut self) -> Operator {
        self.state.left.rewind_ends -= 1;
        Operator::EndAcquire(self.unused(85))
    }

    pub fn rewinds(&mut self, operator: Operator, heard: bool) {
        self.state.operator = match operator {
            Operator::RewindAcquire(from, drawn) => match self.asks(drawn, Clock::Early) {
                _ if !heard => return,
                Some(lease) => Operator::RewindLook(from, lease),
                None => Operator::Away,
            },
            Operator::RewindLook(from, lease) => match self.state.view() {
                Some(view) if lease.is_mine(&view) && self.stands_from(from, view.head.0) => {
                    Operator::RewindSpill(lease, view, from)
                }
                _ => Operator::SkipRelease(lease),
            },
            Operator::RewindSpill(lease, seen, from) => {
                let known = |receipt: &&Receipt| receipt.sequence.0 >= from && receipt.spills().is_some();
                let spilled = seen.recent.iter().filter(known).cloned().map(told);
                let receipts: Vec<Told> = spilled.chain(self.named_anew(lease, seen)).collect();
                match receipts.into_iter().find(|receipt| !self.has_row(*receipt)) {
                    Some(receipt) if !self.has(Rule::RewindWithoutReceipts) => {
                        self.on_item(receipt.item(), Op::Spill(receipt));
                        Operator::RewindSpill(lease, seen, from)
                    }
                    _ => Operator::RewindWrite(lease, seen, from),
                }
            }
            Operator::RewindWrite(lease, seen, from) => match self.on_entity(Op::Rewind(lease, seen, from)).reply {
                _ if !heard => return,
                Reply::Goes(lease, _) => Operator::RewindRelease(lease),
                _ => Operator::Away,
            },
            Operator::RewindRelease(lease) => {
                self.on_entity(Op::YieldToDeliveries(lease));
                if heard { Operator::Wake } else { return }
            }
            // The turn that the rewind left to deliveries is over.
            Operator::EndAcquire(drawn) => match self.asks(drawn, Clock::Late) {
                _ if !heard => return,
                Some(lease) => Operator::EndLook(lease),
                None => Operator::Away,
            },
            Operator::EndLook(lease) => match self.state.view().filter(|view| lease.is_mine(view)) {
                Some(view) => match self.as_before(lease, view) {
                    Some(decided) => Operator::EndSettle(lease, view, decided),
                    None => Operator::SkipRelease(lease),
                },
                None => Operator::SkipRelease(lease),
            },
            Operator::EndSettle(lease, seen, decided) => {
                let own = |receipt: &&Receipt| receipt.sequence < decided.first && receipt.spills().is_some();
                let receipts: Vec<Told> = decided.dropped.iter().filter(own).cloned().map(told).collect();
                match receipts.into_iter().find(|receipt| !self.has_row(*receipt)) {
                    Some(receipt) => {
                        self.on_item(receipt.item(), Op::Spill(receipt));
                        Operator::EndSettle(lease, seen, decided)
                    }
                    None => match self.on_entity(Op::Skip(lease, seen, decided)).reply {
                        _ if !heard => return,
                        Reply::Ended(_) => {
                            self.model.reach(Reached::RewindEnded);
                            Operator::Wake
                        }
                        Reply::Grown(view) => Operator::EndSettle(lease, view, decided),
                        _ => Operator::Away,
                    },
                }
            }
            other => unreachable!("{other:?} is none of these"),
        };
    }

    /// Whether something stands at each of these places: what was made anew since
    /// begins elsewhere.
    fn stands_from(&self, from: u64, head: u64) -> bool {
        let is_there = |at: &u64| self.state.item(Item::Delivery(*at)).is_some();
        (0..=head).rev().take_while(is_there).last().is_some_and(|first| first <= from) && from <= head
    }

    /// What stands in front and is being run again already, under another name.
    fn named_anew(&self, lease: Held, seen: View) -> Option<Told> {
        let receipts = self.state.inbox.iter().filter(|(item, _)| matches!(item, Item::Receipt(_)));
        let mut receipts = receipts.map(|(_, row)| Receipt::parse(row).expect("a sound row"));
        let before = receipts.find(|receipt| receipt.sequence == seen.next() && !seen.is_empty())?;
        Some(told(Receipt { token: lease.token(), ..before }))
    }

    fn has_row(&self, receipt: Told) -> bool {
        let stored = self.state.item(receipt.item());
        stored.is_some_and(|row| row.number(a::TOKEN) >= Some(receipt.token.0))
    }

    /// Asks for the lease, once: the lease, where it was heard that it was granted.
    fn asks(&mut self, drawn: Drawn, clock: Clock) -> Option<Held> {
        let executed = self.on_entity(Op::Acquire(LeaseKind::Exclusive, drawn, clock));
        let Reply::Answered(answer) = executed.reply else { unreachable!() };
        match begun(answer, self.state.epoch, clock, self.model.capacity) {
            Begun::Granted(lease, _) => Some(lease),
            _ => None,
        }
    }

    fn as_before(&self, lease: Held, view: View) -> Option<Decided> {
        let rows = (view.next().0..=view.tail.0).map_while(|at| self.state.item(Item::Delivery(at)));
        let page = Page::of(entity(), view.next(), rows.map(|row| (*row).clone()).collect()).expect("sound rows");
        let receipts = self.state.inbox.iter().filter_map(|(item, row)| match item {
            Item::Receipt(_) => Some((**row).clone()),
            _ => None,
        });
        let page = page.with_receipts(&receipts.collect::<Vec<_>>()).expect("sound rows");
        let memory = Memory { capacity: self.model.capacity, retention: RETENTION };
        let seen_at = arrival(view.tail.0 + 1);
        as_before(&view, &page, memory, lease.token(), seen_at).map(|(decision, _)| decided(decision))
    }
}
