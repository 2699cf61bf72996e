//! The steps of an operator who redrives, unblocks and releases by force.

use webhook_serializer::{
    operator::{self, ParkedOutcome, is_redrivable},
    protocol::{entity::Sequence, format::attribute as a, receipt::Settlement},
};

use crate::{
    operations::Op,
    protocol::{Hearing, ModelAction, Protocol, StateBuilder},
    reached::Reached,
    state::{Append, AppendStep, ModelOperator, ModelState, Violation},
    store::{ClockReading, ModelId, ModelItem, ReceiptRef, RowRef, delivery_at, receipt_at, view_of},
    without::ViolatedRule,
};
use Hearing::{Heard, Lost};

/// The author of an operator's appends.
const OPERATOR: u8 = 90;

impl Protocol {
    pub fn operator_actions(&self, state: &ModelState, actions: &mut Vec<ModelAction>) {
        let replies: &[Hearing] = if state.left.lost_replies > 0 { &[Heard, Lost] } else { &[Heard] };
        match &state.operator {
            ModelOperator::Away => {
                let view = state.row.map(|row| view_of(&row));
                if state.left.redrives > 0 {
                    for (item, row) in &state.inbox {
                        if let ModelItem::Parked(sequence) = item {
                            let id = delivery_at(row).expect("a delivery");
                            actions.push(ModelAction::Redrive(*sequence, id));
                        }
                    }
                }
                if state.left.unblocks > 0 && view.is_some_and(|view| view.blocked.is_some()) {
                    actions.push(ModelAction::Unblock);
                }
                if state.left.forced_releases > 0 && view.is_some_and(|view| view.held.is_some()) {
                    actions.push(ModelAction::ForceRelease);
                }
                self.stop_actions(state, actions);
                self.rewind_actions(state, actions);
                return;
            }
            ModelOperator::Redrive(_, append) => {
                let mut wakes = false;
                self.append_actions(
                    state,
                    append,
                    &mut |clock, reply| actions.push(ModelAction::Operate(clock.unwrap_or(ClockReading::Early), reply)),
                    &mut || wakes = true,
                );
                if wakes {
                    actions.push(ModelAction::OperateWakeUp);
                }
            }
            ModelOperator::Check(..) | ModelOperator::Forget(..) | ModelOperator::Wake => {
                actions.push(ModelAction::Operate(ClockReading::Early, Heard));
            }
            ModelOperator::SkipLook(..) | ModelOperator::RewindLook(..) | ModelOperator::EndLook(_) => {
                actions.push(ModelAction::Operate(ClockReading::Early, Heard))
            }
            ModelOperator::Hold(_)
            | ModelOperator::Resume(_)
            | ModelOperator::SkipSettle(..)
            | ModelOperator::RewindWrite(..)
            | ModelOperator::EndSettle(..) => {
                actions.extend(replies.iter().map(|reply| ModelAction::Operate(ClockReading::Early, *reply)));
                if state.left.late_writes > 0 {
                    actions.push(ModelAction::OperateLate);
                }
            }
            ModelOperator::VoidExpired(_)
            | ModelOperator::Unblock
            | ModelOperator::Force(_)
            | ModelOperator::SkipAcquire(..)
            | ModelOperator::SkipPark(..)
            | ModelOperator::SkipRelease(_)
            | ModelOperator::RewindAcquire(..)
            | ModelOperator::RewindSpill(..)
            | ModelOperator::RewindRelease(_)
            | ModelOperator::EndAcquire(_) => {
                actions.extend(replies.iter().map(|reply| ModelAction::Operate(ClockReading::Early, *reply)));
            }
        }
        // An operator that dies between its write and its wake-up has not reported that it is done.
        if state.left.ingest_crashes > 0 && !matches!(state.operator, ModelOperator::Wake) {
            actions.push(ModelAction::OperatorDies);
        }
    }
}

impl StateBuilder<'_> {
    pub fn operate(&mut self, clock: ClockReading, reply: Hearing) {
        let heard = reply == Heard;
        match self.state.operator.clone() {
            ModelOperator::Away => {}
            ModelOperator::Check(sequence, id) => self.check_parked(sequence, id),
            ModelOperator::Redrive(sequence, mut append) => {
                match append.step {
                    AppendStep::Claim => self.claim(&mut append, clock, reply),
                    _ => self.put(&mut append, reply),
                }
                self.redriven(sequence, append);
            }
            ModelOperator::Forget(sequence, append) => self.forget(sequence, append),
            ModelOperator::VoidExpired(sequence) => {
                self.on_item(ModelItem::Delivery(sequence), Op::Void(sequence));
                if heard {
                    self.state.operator = ModelOperator::Unblock;
                }
            }
            ModelOperator::Unblock => {
                self.on_entity(Op::Unblock);
                if heard {
                    self.model.reach(Reached::Unblock);
                    let silent = self.has(ViolatedRule::UnblockWithoutWakeUp);
                    self.state.operator = if silent { ModelOperator::Away } else { ModelOperator::Wake };
                }
            }
            ModelOperator::Wake => {
                self.state.queue.push((None, false));
                self.state.operator = ModelOperator::Away;
            }
            ModelOperator::Force(seen) => {
                let executed = self.on_entity(Op::ForceRelease(seen));
                if heard {
                    self.model.reach(Reached::Forced);
                    // This wake-up only saves time: the former holder owes one too.
                    self.state.operator = ModelOperator::Away;
                    let _ = executed;
                }
            }
            operator @ (ModelOperator::Hold(_)
            | ModelOperator::Resume(_)
            | ModelOperator::SkipAcquire(..)
            | ModelOperator::SkipLook(..)
            | ModelOperator::SkipPark(..)
            | ModelOperator::SkipSettle(..)
            | ModelOperator::SkipRelease(_)) => self.stops(operator, heard),
            operator => self.rewinds(operator, heard),
        }
    }

    fn check_parked(&mut self, sequence: u64, id: ModelId) {
        if !self.has(ViolatedRule::RedriveWithoutLookup) {
            // Production reads twice. One read is enough here, because settled deliveries do not
            // change.
            let settled = match operator::parked_outcome(self.state.view().as_deref(), Sequence(sequence)) {
                ParkedOutcome::Undecided => {
                    self.state.operator = ModelOperator::Away;
                    return;
                }
                ParkedOutcome::Forgotten => None,
                ParkedOutcome::Settled(settlement) => Some(settlement),
                ParkedOutcome::Elsewhere => match self.state.item(ModelItem::Receipt(id)) {
                    Some(row) if self.has(ViolatedRule::OlderRowDecides) => Some(receipt_at(&row).1),
                    _ => self.state.stored_receipt(id).map(|receipt| receipt.settlement),
                },
            };
            if !is_redrivable(settled) {
                self.model.reach(Reached::ParkedAndApplied);
                if self.state.before(sequence).is_some_and(|last| last.settlement == Settlement::Parked) {
                    self.state.violates(Violation::Loss);
                }
                self.state.store(ModelItem::Parked(sequence), None);
                self.state.operator = ModelOperator::Away;
                return;
            }
        }
        let redrive = if self.has(ViolatedRule::RedriveKeepsItsNumber) { id.redrive } else { id.redrive + 1 };
        let append = Append::new(ModelId { redrive, ..id }, OPERATOR + self.state.left.redrives);
        self.state.operator = if self.has(ViolatedRule::RedriveForgetsFirst) {
            ModelOperator::Forget(sequence, Some(append))
        } else {
            ModelOperator::Redrive(sequence, append)
        };
    }

    fn forget(&mut self, sequence: u64, append: Option<Append>) {
        let parked = self.state.item(ModelItem::Parked(sequence)).and_then(|row| delivery_at(&row));
        if let Some(parked) = parked {
            let again = ModelId { redrive: parked.redrive + 1, ..parked };
            let stands = |(item, row): &(ModelItem, RowRef)| {
                matches!(item, ModelItem::Delivery(_)) && delivery_at(row) == Some(again)
            };
            let applied = |other: &ReceiptRef| {
                other.id().is_some_and(|id| id.delivery == parked.delivery) && other.settlement == Settlement::Applied
            };
            if !self.state.inbox.iter().any(stands) && !self.state.settled.iter().any(applied) {
                self.state.violates(Violation::Loss);
            }
        }
        self.state.store(ModelItem::Parked(sequence), None);
        self.state.operator = match append {
            Some(append) => ModelOperator::Redrive(sequence, append),
            None => ModelOperator::Away,
        };
    }

    pub fn redriven(&mut self, sequence: u64, append: Append) {
        self.state.operator = match append.step {
            AppendStep::Answered(_) => ModelOperator::Forget(sequence, None),
            AppendStep::Ended => ModelOperator::Away,
            _ => ModelOperator::Redrive(sequence, append),
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
        self.state.inbox.retain(|(item, _)| matches!(item, ModelItem::Parked(_)));
        let ids = self.state.settled.drain(..).filter_map(|receipt| receipt.id());
        self.state.forgotten.extend(ids);
        self.state.committed.clear();
        self.state.rewound.clear();
    }
}
