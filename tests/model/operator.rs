//! The steps of an operator who redrives, unblocks and releases by force.

use webhook_serializer::{
    operator::{self, ParkedOutcome, is_redrivable},
    protocol::{entity::Sequence, format::attribute as a, receipt::Settlement},
};

use crate::{
    operations::Op,
    protocol::{Action, Hearing, Next, Protocol},
    reached::Reached,
    state::{Append, AppendStep, Operator, State, Violation},
    store::{Clock, Id, Item, ReceiptRef, RowRef, delivery_at, receipt_at, view_of},
    without::Rule,
};
use Hearing::{Heard, Lost};

/// The author of an operator's appends.
const OPERATOR: u8 = 90;

impl Protocol {
    pub fn operator_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let replies: &[Hearing] = if state.left.lost_replies > 0 { &[Heard, Lost] } else { &[Heard] };
        match &state.operator {
            Operator::Away => {
                let view = state.row.map(|row| view_of(&row));
                if state.left.redrives > 0 {
                    for (item, row) in &state.inbox {
                        if let Item::Parked(sequence) = item {
                            let id = delivery_at(row).expect("a delivery");
                            actions.push(Action::Redrive(*sequence, id));
                        }
                    }
                }
                if state.left.unblocks > 0 && view.is_some_and(|view| view.blocked.is_some()) {
                    actions.push(Action::Unblock);
                }
                if state.left.forced_releases > 0 && view.is_some_and(|view| view.held.is_some()) {
                    actions.push(Action::ForceRelease);
                }
                self.stop_actions(state, actions);
                self.rewind_actions(state, actions);
                return;
            }
            Operator::Redrive(_, append) => {
                let mut wakes = false;
                self.append_actions(
                    state,
                    append,
                    &mut |clock, reply| actions.push(Action::Operate(clock.unwrap_or(Clock::Early), reply)),
                    &mut || wakes = true,
                );
                if wakes {
                    actions.push(Action::OperateWakeUp);
                }
            }
            Operator::Check(..) | Operator::Forget(..) | Operator::Wake => {
                actions.push(Action::Operate(Clock::Early, Heard));
            }
            Operator::SkipLook(..) | Operator::RewindLook(..) | Operator::EndLook(_) => {
                actions.push(Action::Operate(Clock::Early, Heard))
            }
            Operator::Hold(_)
            | Operator::Resume(_)
            | Operator::SkipSettle(..)
            | Operator::RewindWrite(..)
            | Operator::EndSettle(..) => {
                actions.extend(replies.iter().map(|reply| Action::Operate(Clock::Early, *reply)));
                if state.left.late_writes > 0 {
                    actions.push(Action::OperateLate);
                }
            }
            Operator::VoidExpired(_)
            | Operator::Unblock
            | Operator::Force(_)
            | Operator::SkipAcquire(..)
            | Operator::SkipPark(..)
            | Operator::SkipRelease(_)
            | Operator::RewindAcquire(..)
            | Operator::RewindSpill(..)
            | Operator::RewindRelease(_)
            | Operator::EndAcquire(_) => {
                actions.extend(replies.iter().map(|reply| Action::Operate(Clock::Early, *reply)));
            }
        }
        // An operator that dies between its write and its wake-up has not reported that it is done.
        if state.left.ingest_crashes > 0 && !matches!(state.operator, Operator::Wake) {
            actions.push(Action::OperatorDies);
        }
    }
}

impl Next<'_> {
    pub fn operate(&mut self, clock: Clock, reply: Hearing) {
        let heard = reply == Heard;
        match self.state.operator.clone() {
            Operator::Away => {}
            Operator::Check(sequence, id) => self.check_parked(sequence, id),
            Operator::Redrive(sequence, mut append) => {
                match append.step {
                    AppendStep::Claim => self.claim(&mut append, clock, reply),
                    _ => self.put(&mut append, reply),
                }
                self.redriven(sequence, append);
            }
            Operator::Forget(sequence, append) => self.forget(sequence, append),
            Operator::VoidExpired(sequence) => {
                self.on_item(Item::Delivery(sequence), Op::Void(sequence));
                if heard {
                    self.state.operator = Operator::Unblock;
                }
            }
            Operator::Unblock => {
                self.on_entity(Op::Unblock);
                if heard {
                    self.model.reach(Reached::Unblock);
                    let silent = self.has(Rule::UnblockWithoutWakeUp);
                    self.state.operator = if silent { Operator::Away } else { Operator::Wake };
                }
            }
            Operator::Wake => {
                self.state.queue.push((None, false));
                self.state.operator = Operator::Away;
            }
            Operator::Force(seen) => {
                let executed = self.on_entity(Op::ForceRelease(seen));
                if heard {
                    self.model.reach(Reached::Forced);
                    // This wake-up only saves time: the former holder owes one too.
                    self.state.operator = Operator::Away;
                    let _ = executed;
                }
            }
            operator @ (Operator::Hold(_)
            | Operator::Resume(_)
            | Operator::SkipAcquire(..)
            | Operator::SkipLook(..)
            | Operator::SkipPark(..)
            | Operator::SkipSettle(..)
            | Operator::SkipRelease(_)) => self.stops(operator, heard),
            operator => self.rewinds(operator, heard),
        }
    }

    fn check_parked(&mut self, sequence: u64, id: Id) {
        if !self.has(Rule::RedriveWithoutLookup) {
            // Production reads twice. One read is enough here, because settled deliveries do not
            // change.
            let settled = match operator::parked_outcome(self.state.view().as_deref(), Sequence(sequence)) {
                ParkedOutcome::Undecided => {
                    self.state.operator = Operator::Away;
                    return;
                }
                ParkedOutcome::Forgotten => None,
                ParkedOutcome::Settled(settlement) => Some(settlement),
                ParkedOutcome::InReceiptRow => self.state.item(Item::Receipt(id)).map(|row| receipt_at(&row).1),
            };
            if !is_redrivable(settled) {
                self.model.reach(Reached::ParkedAndApplied);
                if self.state.before(sequence).is_some_and(|last| last.settlement == Settlement::Parked) {
                    self.state.violates(Violation::Loss);
                }
                self.state.store(Item::Parked(sequence), None);
                self.state.operator = Operator::Away;
                return;
            }
        }
        let redrive = if self.has(Rule::RedriveKeepsItsNumber) { id.redrive } else { id.redrive + 1 };
        let append = Append::new(Id { redrive, ..id }, OPERATOR + self.state.left.redrives);
        self.state.operator = if self.has(Rule::RedriveForgetsFirst) {
            Operator::Forget(sequence, Some(append))
        } else {
            Operator::Redrive(sequence, append)
        };
    }

    fn forget(&mut self, sequence: u64, append: Option<Append>) {
        let parked = self.state.item(Item::Parked(sequence)).and_then(|row| delivery_at(&row));
        if let Some(parked) = parked {
            let again = Id { redrive: parked.redrive + 1, ..parked };
            let stands =
                |(item, row): &(Item, RowRef)| matches!(item, Item::Delivery(_)) && delivery_at(row) == Some(again);
            let applied = |other: &ReceiptRef| {
                other.id().is_some_and(|id| id.delivery == parked.delivery) && other.settlement == Settlement::Applied
            };
            if !self.state.inbox.iter().any(stands) && !self.state.settled.iter().any(applied) {
                self.state.violates(Violation::Loss);
            }
        }
        self.state.store(Item::Parked(sequence), None);
        self.state.operator = match append {
            Some(append) => Operator::Redrive(sequence, append),
            None => Operator::Away,
        };
    }

    pub fn redriven(&mut self, sequence: u64, append: Append) {
        self.state.operator = match append.step {
            AppendStep::Answered(_) => Operator::Forget(sequence, None),
            AppendStep::Ended => Operator::Away,
            _ => Operator::Redrive(sequence, append),
        };
    }

    /// Deletes an idle row, as TTL does, and the order's inbox rows, which TTL deletes long before. Parked
    /// rows stay.
    pub fn purge(&mut self) {
        let row = self.state.row.expect("a row");
        let view = view_of(&row);
        let waits = |append: &Append| matches!(append.step, AppendStep::Answered(at) if at > view.head.0);
        if self.state.appends.iter().any(waits) {
            self.state.violates(Violation::Loss);
        }
        self.model.reach(Reached::Purge);
        self.state.left.purges -= 1;
        self.state.row = None;
        self.state.epoch += 1;
        // No request is delayed for as long as a row lives.
        self.state.late_writes.clear();
        let purge_at = row.number(a::PURGE_AT).expect("it is to be purged");
        if purge_at * 1000 < view.recent.keep_until().as_millis() {
            // The receipts must not be forgotten yet.
            return;
        }
        self.state.inbox.retain(|(item, _)| matches!(item, Item::Parked(_)));
        let ids = self.state.settled.drain(..).filter_map(|receipt| receipt.id());
        self.state.forgotten.extend(ids);
        self.state.committed.clear();
        self.state.rewound.clear();
    }
}
