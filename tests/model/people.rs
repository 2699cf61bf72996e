//! An exclusive holder, and an operator.

use webhook_serializer::{
    leases::wait::{Follows, follows},
    operator::{Told, is_put_back, told},
    protocol::{entity::Sequence, format::attribute as a, lease::Acquired, receipt::Settlement, state::LeaseKind},
};

use crate::{
    operations::{Executed, Op, Reply},
    protocol::{Action, Hearing, Next, Protocol},
    reached::Reached,
    state::{Append, AppendStep, Broken, Operator, State, Visitor},
    store::{
        Answer, Clock, Drawn, Id, Item, Stored, Told as Remembered, delivery_at, intern_lease, intern_view, receipt_at,
        time, view_of,
    },
    without::Rule,
};
use Hearing::{Heard, Lost};

/// Whose appends are an operator's.
const OPERATOR: u8 = 90;

impl Protocol {
    pub fn visitor_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let replies: &[Hearing] = if state.left.lost_replies > 0 { &[Heard, Lost] } else { &[Heard] };
        match state.visitor {
            Visitor::Away if state.left.visits == 0 => {}
            Visitor::Away | Visitor::Ask(_) | Visitor::Wake => actions.push(Action::Visit(Clock::Early, Heard)),
            Visitor::Poll => {
                actions.push(Action::Visit(Clock::Early, Heard));
                actions.push(Action::VisitorLeaves);
            }
            Visitor::Look(..) => {
                actions.push(Action::Visit(Clock::Early, Heard));
                if state.left.take_overs > 0 {
                    actions.push(Action::Visit(Clock::Late, Heard));
                }
            }
            Visitor::Acquire(_) | Visitor::TakeOver(..) | Visitor::Hold(_) | Visitor::Leave(_) => {
                actions.extend(replies.iter().map(|reply| Action::Visit(Clock::Early, *reply)));
            }
        }
        if state.left.visitor_crashes > 0
            && matches!(state.visitor, Visitor::Hold(_) | Visitor::Leave(_) | Visitor::Wake)
        {
            actions.push(Action::VisitorDies);
        }
    }

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
                if state.left.forced > 0 && view.is_some_and(|view| view.held.is_some()) {
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
        // One that dies between its write and its wake-up has not said that it is done.
        if state.left.ingest_crashes > 0 && !matches!(state.operator, Operator::Wake) {
            actions.push(Action::OperatorDies);
        }
    }
}

impl Next<'_> {
    pub fn visit(&mut self, clock: Clock, reply: Hearing) {
        let heard = reply == Heard;
        self.state.visitor = match self.state.visitor {
            Visitor::Away => {
                self.state.left.visits -= 1;
                Visitor::Acquire(self.unused(50))
            }
            Visitor::Poll => Visitor::Acquire(self.unused(50)),
            Visitor::Acquire(drawn) => {
                let executed = self.on_entity(Op::Acquire(LeaseKind::Exclusive, drawn, Clock::Early));
                if heard { self.answered(drawn, executed) } else { self.state.visitor }
            }
            Visitor::Look(drawn, answer) => self.let_in(drawn, answer, clock),
            Visitor::TakeOver(drawn, seen) => {
                let executed = self.on_entity(Op::TakeOver(LeaseKind::Exclusive, drawn, seen));
                if executed.landed {
                    self.state.left.take_overs = self.state.left.take_overs.saturating_sub(1);
                }
                if heard { self.answered(drawn, executed) } else { self.state.visitor }
            }
            Visitor::Ask(_) => {
                self.on_entity(Op::RequestYield);
                Visitor::Poll
            }
            Visitor::Hold(lease) => match self.on_entity(Op::ReleaseEmpty(lease, true, false)).reply {
                _ if !heard => self.state.visitor,
                Reply::Grown(_) => Visitor::Leave(lease),
                _ => Visitor::Away,
            },
            Visitor::Leave(lease) => match self.on_entity(Op::YieldToDeliveries(lease)).reply {
                _ if !heard => self.state.visitor,
                Reply::Ended(Some(view)) if !view.is_empty() => Visitor::Wake,
                _ => Visitor::Away,
            },
            Visitor::Wake => {
                self.state.queue.push((None, false));
                Visitor::Away
            }
        };
    }

    fn answered(&mut self, drawn: Drawn, executed: Executed) -> Visitor {
        let Reply::Answered(answer) = executed.reply else { unreachable!() };
        match &*answer {
            // What the clock says of it comes later.
            Acquired::Held(_) => Visitor::Look(drawn, answer),
            _ => self.let_in(drawn, answer, Clock::Early),
        }
    }

    fn let_in(&mut self, drawn: Drawn, answer: Answer, clock: Clock) -> Visitor {
        match follows((*answer).clone(), time(self.state.epoch, clock), None) {
            Follows::Granted(lease, _) => {
                self.model.reach(Reached::Exclusive);
                Visitor::Hold(intern_lease(lease))
            }
            Follows::TakeOver(seen) => Visitor::TakeOver(drawn, intern_view(&seen)),
            Follows::Await { asks: true, .. } => Visitor::Ask(drawn),
            Follows::Await { .. } | Follows::StandBack(_) | Follows::Request => Visitor::Poll,
        }
    }

    pub fn operate(&mut self, clock: Clock, reply: Hearing) {
        let heard = reply == Heard;
        match self.state.operator.clone() {
            Operator::Away => {}
            Operator::Check(sequence, id) => {
                if !self.has(Rule::RedriveUnasked) {
                    // Two reads there, of what does not change any more.
                    let settled = match told(self.state.view().as_deref(), Sequence(sequence)) {
                        Told::Undecided => {
                            self.state.operator = Operator::Away;
                            return;
                        }
                        Told::Forgotten => None,
                        Told::Settled(settlement) => Some(settlement),
                        Told::InItsReceipt => self.state.item(Item::Receipt(id)).map(|row| receipt_at(&row).1),
                    };
                    if !is_put_back(settled) {
                        self.model.reach(Reached::ParkedAndApplied);
                        if self.state.before(sequence).is_some_and(|last| last.settlement == Settlement::Parked) {
                            self.state.breaks(Broken::Loss);
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
            Operator::Redrive(sequence, mut append) => {
                match append.step {
                    AppendStep::Claim => self.claim(&mut append, clock, reply),
                    _ => self.put(&mut append, reply),
                }
                self.redriven(sequence, append);
            }
            Operator::Forget(sequence, append) => {
                let parked = self.state.item(Item::Parked(sequence)).and_then(|row| delivery_at(&row));
                if let Some(parked) = parked {
                    let again = Id { redrive: parked.redrive + 1, ..parked };
                    let stands = |(item, row): &(Item, Stored)| {
                        matches!(item, Item::Delivery(_)) && delivery_at(row) == Some(again)
                    };
                    let applied = |other: &Remembered| {
                        other.id().is_some_and(|id| id.delivery == parked.delivery)
                            && other.settlement == Settlement::Applied
                    };
                    if !self.state.inbox.iter().any(stands) && !self.state.settled.iter().any(applied) {
                        self.state.breaks(Broken::Loss);
                    }
                }
                self.state.store(Item::Parked(sequence), None);
                self.state.operator = match append {
                    Some(append) => Operator::Redrive(sequence, append),
                    None => Operator::Away,
                };
            }
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
                    // The wake-up only hastens: whoever held it owes one of its own.
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

    pub fn redriven(&mut self, sequence: u64, append: Append) {
        self.state.operator = match append.step {
            AppendStep::Answered(_) => Operator::Forget(sequence, None),
            AppendStep::Ended => Operator::Away,
            _ => Operator::Redrive(sequence, append),
        };
    }

    /// TTL deletes an idle row, long after the rows of its inbox.
    pub fn purge(&mut self) {
        let row = self.state.row.expect("a row");
        let view = view_of(&row);
        let waits = |append: &Append| matches!(append.step, AppendStep::Answered(at) if at > view.head.0);
        if self.state.appends.iter().any(waits) {
            self.state.breaks(Broken::Loss);
        }
        self.model.reach(Reached::Purge);
        self.state.left.purges -= 1;
        self.state.row = None;
        self.state.epoch += 1;
        // No request is under way for as long as that.
        self.state.late_writes.clear();
        let purge_at = row.number(a::PURGE_AT).expect("it is to be purged");
        if purge_at * 1000 < view.recent.keep_until().as_millis() {
            // What was settled is not yet to be forgotten.
            return;
        }
        self.state.inbox.retain(|(item, _)| matches!(item, Item::Parked(_)));
        let ids = self.state.settled.drain(..).filter_map(|told| told.id());
        self.state.forgotten.extend(ids);
        self.state.committed.clear();
        self.state.rewound.clear();
    }
}
