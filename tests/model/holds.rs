//! The steps of an operator who holds, resumes and skips.

use webhook_serializer::{
    engine::drain::plan::{Front, Group},
    protocol::{lease::Acquired, receipt::Settlement, state::LeaseKind},
};

use crate::{
    drain::{DrainBegin, Observation, SettleArgs, drain_begin},
    operations::{Op, Reply},
    protocol::{Action, Next, Protocol},
    reached::Reached,
    state::{Operator, State, Violation},
    store::{AcquiredRef, Clock, Item, LeaseRef, View, delivery_at},
    without::Rule,
};

impl Protocol {
    pub fn stop_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let view = state.view();
        let on_hold = view.is_some_and(|view| view.is_on_hold());
        if state.left.holds > 0 && !on_hold {
            actions.push(Action::PutOnHold);
        }
        if on_hold {
            actions.push(Action::Resume);
        }
        if let Some(view) = view.filter(|view| state.left.skips > 0 && !view.is_empty())
            && state.item(Item::Delivery(view.next().0)).is_some_and(|row| delivery_at(&row).is_some())
        {
            actions.push(Action::Skip(view.next().0));
        }
    }
}

impl Next<'_> {
    pub fn wants(&mut self, wanted: Action) {
        let view = self.state.view();
        self.state.operator = match wanted {
            Action::PutOnHold => {
                self.state.left.holds -= 1;
                Operator::Hold(view.map(|view| view.hold).unwrap_or_default())
            }
            Action::Resume => Operator::Resume(view.expect("on hold")),
            Action::Skip(sequence) => {
                self.state.left.skips -= 1;
                Operator::SkipAcquire(sequence, self.unused(70))
            }
            other => unreachable!("{other:?} is none of these"),
        };
    }

    /// Delays the operator's write; the operator sends it again.
    pub fn sends_late(&mut self) {
        self.state.left.late_writes -= 1;
        self.state.late_writes.push(match &self.state.operator {
            Operator::Hold(seen) => Op::Hold(*seen),
            Operator::Resume(seen) => Op::Resume(*seen),
            Operator::SkipSettle(lease, seen, decision) | Operator::EndSettle(lease, seen, decision) => {
                Op::Skip(*lease, *seen, *decision)
            }
            Operator::RewindWrite(lease, seen, from) => Op::Rewind(*lease, *seen, *from),
            other => unreachable!("{other:?} writes nothing late"),
        });
    }

    pub fn stops(&mut self, operator: Operator, heard: bool) {
        self.state.operator = match operator {
            Operator::Hold(seen) => {
                let executed = self.on_entity(Op::Hold(seen));
                match executed.reply {
                    _ if !heard => return,
                    Reply::Done => {
                        self.state.reported_hold = Some(true);
                        Operator::Away
                    }
                    // A late write has changed the row.
                    _ => self.looks_again(),
                }
            }
            Operator::Resume(seen) => match self.on_entity(Op::Resume(seen)).reply {
                _ if !heard => return,
                Reply::Done => {
                    self.model.reach(Reached::Resumed);
                    self.state.reported_hold = Some(false);
                    if self.has(Rule::ResumeWithoutWakeUp) { Operator::Away } else { Operator::Wake }
                }
                _ => match self.state.view().filter(|view| view.is_on_hold()) {
                    Some(view) => Operator::Resume(view),
                    None => {
                        self.state.reported_hold = Some(false);
                        Operator::Wake
                    }
                },
            },
            Operator::SkipAcquire(sequence, drawn) => {
                let executed = self.on_entity(Op::Acquire(LeaseKind::Exclusive, drawn, Clock::Early));
                let Reply::Answered(answer) = executed.reply else { unreachable!() };
                match drain_begin(answer, self.state.epoch, Clock::Early, self.model.capacity) {
                    _ if !heard => return,
                    DrainBegin::Granted(lease, _) => Operator::SkipLook(sequence, lease),
                    // The operator does not wait for the order.
                    _ => Operator::Away,
                }
            }
            Operator::SkipLook(sequence, lease) => self.look_in_front(sequence, lease),
            Operator::SkipPark(lease, known) => {
                let (sequence, id) = known.place();
                self.on_item(Item::Parked(sequence), Op::Park(id.expect("a delivery"), sequence));
                if !heard {
                    return;
                }
                let token = lease.token().0;
                let ended = SettleArgs { settlement: Settlement::Parked, group: Group::ONE, token, rated: false };
                let decision = known.decides(self.state.epoch, ended);
                assert!(known.spills(decision).is_empty(), "its row has room");
                Operator::SkipSettle(lease, self.seen(), decision)
            }
            Operator::SkipSettle(lease, seen, decision) => {
                match self.on_entity(Op::Skip(lease, seen, decision)).reply {
                    _ if !heard => return,
                    Reply::Ended(_) => {
                        self.model.reach(Reached::Skipped);
                        Operator::Wake
                    }
                    Reply::Grown(view) => Operator::SkipSettle(lease, view, decision),
                    _ => Operator::Away,
                }
            }
            Operator::SkipRelease(lease) => {
                self.on_entity(Op::Release(lease));
                if heard { Operator::Wake } else { return }
            }
            other => unreachable!("{other:?} is none of these"),
        };
    }

    fn seen(&self) -> View {
        self.state.view().expect("a row")
    }

    fn looks_again(&mut self) -> Operator {
        match self.state.view() {
            Some(view) if view.is_on_hold() => {
                self.state.reported_hold = Some(true);
                Operator::Away
            }
            view => Operator::Hold(view.map(|view| view.hold).unwrap_or_default()),
        }
    }

    fn look_in_front(&mut self, sequence: u64, lease: LeaseRef) -> Operator {
        let view = self.seen();
        let is_in_front = !view.is_empty() && view.next().0 == sequence;
        let takes_any = self.has(Rule::SkipTakesAnyHead) && !view.is_empty();
        if !lease.is_mine(&view) || !(is_in_front || takes_any) {
            return Operator::SkipRelease(lease);
        }
        if !is_in_front {
            self.state.violates(Violation::Skip);
        }
        let DrainBegin::Granted(_, known) = drain_begin(
            AcquiredRef::of(Acquired::Granted((*lease).clone(), (*view).clone())),
            self.state.epoch,
            Clock::Early,
            self.model.capacity,
        ) else {
            unreachable!()
        };
        let rows = self.state.item(Item::Delivery(sequence)).into_iter().collect();
        let known = known.observes(self.state.epoch, Observation::Read(view.next().0, rows, Vec::new()));
        // In this model, an operator leaves repeats to a worker.
        match known.front_item() {
            Front::Delivery(_) => Operator::SkipPark(lease, known),
            _ => Operator::SkipRelease(lease),
        }
    }
}
