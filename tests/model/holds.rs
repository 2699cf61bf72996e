//! The steps of an operator who holds, resumes and skips.

use webhook_serializer::{
    engine::drain::plan::{DeliveryGroup, Front},
    protocol::{lease::Acquired, receipt::Settlement, state::LeaseKind},
};

use crate::{
    drain::{DrainBegin, Observation, SettleArgs, drain_begin},
    operations::{Op, OperationReply},
    protocol::{ModelAction, Protocol, StateBuilder},
    reached::Reached,
    state::{ModelOperator, ModelState, Violation},
    store::{AcquiredRef, ClockReading, LeaseRef, ModelItem, View, delivery_at},
    without::ViolatedRule,
};

impl Protocol {
    pub fn stop_actions(&self, state: &ModelState, actions: &mut Vec<ModelAction>) {
        let view = state.view();
        let on_hold = view.is_some_and(|view| view.is_on_hold());
        if state.left.holds > 0 && !on_hold {
            actions.push(ModelAction::PutOnHold);
        }
        if on_hold {
            actions.push(ModelAction::Resume);
        }
        if let Some(view) = view.filter(|view| state.left.skips > 0 && !view.is_empty())
            && state.item(ModelItem::Delivery(view.next().0)).is_some_and(|row| delivery_at(&row).is_some())
        {
            actions.push(ModelAction::Skip(view.next().0));
        }
    }
}

impl StateBuilder<'_> {
    pub fn wants(&mut self, wanted: ModelAction) {
        let view = self.state.view();
        self.state.operator = match wanted {
            ModelAction::PutOnHold => {
                self.state.left.holds -= 1;
                ModelOperator::Hold(view.map(|view| view.hold).unwrap_or_default())
            }
            ModelAction::Resume => ModelOperator::Resume(view.expect("on hold")),
            ModelAction::Skip(sequence) => {
                self.state.left.skips -= 1;
                ModelOperator::SkipAcquire(sequence, self.unused(70))
            }
            other => unreachable!("{other:?} is none of these"),
        };
    }

    /// Delays the operator's write; the operator sends it again.
    pub fn sends_late(&mut self) {
        self.state.left.late_writes -= 1;
        self.state.late_writes.push(match &self.state.operator {
            ModelOperator::Hold(seen) => Op::Hold(*seen),
            ModelOperator::Resume(seen) => Op::Resume(*seen),
            ModelOperator::SkipSettle(lease, seen, decision) | ModelOperator::EndSettle(lease, seen, decision) => {
                Op::Skip(*lease, *seen, *decision)
            }
            ModelOperator::RewindWrite(lease, seen, from) => Op::Rewind(*lease, *seen, *from),
            other => unreachable!("{other:?} writes nothing late"),
        });
    }

    pub fn stops(&mut self, operator: ModelOperator, heard: bool) {
        self.state.operator = match operator {
            ModelOperator::Hold(seen) => {
                let executed = self.on_entity(Op::Hold(seen));
                match executed.reply {
                    _ if !heard => return,
                    OperationReply::Done => {
                        self.state.reported_hold = Some(true);
                        ModelOperator::Away
                    }
                    // A late write has changed the row.
                    _ => self.looks_again(),
                }
            }
            ModelOperator::Resume(seen) => match self.on_entity(Op::Resume(seen)).reply {
                _ if !heard => return,
                OperationReply::Done => {
                    self.model.reach(Reached::Resumed);
                    self.state.reported_hold = Some(false);
                    if self.has(ViolatedRule::ResumeWithoutWakeUp) { ModelOperator::Away } else { ModelOperator::Wake }
                }
                _ => match self.state.view().filter(|view| view.is_on_hold()) {
                    Some(view) => ModelOperator::Resume(view),
                    None => {
                        self.state.reported_hold = Some(false);
                        ModelOperator::Wake
                    }
                },
            },
            ModelOperator::SkipAcquire(sequence, drawn) => {
                let executed = self.on_entity(Op::Acquire(LeaseKind::Exclusive, drawn, ClockReading::Early));
                let OperationReply::Answered(answer) = executed.reply else { unreachable!() };
                match drain_begin(answer, self.state.epoch, ClockReading::Early, self.model.memory()) {
                    _ if !heard => return,
                    DrainBegin::Granted(lease, _) => ModelOperator::SkipLook(sequence, lease),
                    // The operator does not wait for the order.
                    _ => ModelOperator::Away,
                }
            }
            ModelOperator::SkipLook(sequence, lease) => self.look_in_front(sequence, lease),
            ModelOperator::SkipPark(lease, known) => {
                let (sequence, id) = known.place();
                self.on_item(ModelItem::Parked(sequence), Op::Park(id.expect("a delivery"), sequence));
                if !heard {
                    return;
                }
                let token = lease.token().0;
                let ended =
                    SettleArgs { settlement: Settlement::Parked, group: DeliveryGroup::ONE, token, rated: false };
                let decision = known.decides(self.state.epoch, ended);
                assert!(known.spills(decision).is_none(), "its row has room");
                ModelOperator::SkipSettle(lease, self.seen(), decision)
            }
            ModelOperator::SkipSettle(lease, seen, decision) => {
                match self.on_entity(Op::Skip(lease, seen, decision)).reply {
                    _ if !heard => return,
                    OperationReply::Ended(_) => {
                        self.model.reach(Reached::Skipped);
                        ModelOperator::Wake
                    }
                    OperationReply::Grown(view) => ModelOperator::SkipSettle(lease, view, decision),
                    _ => ModelOperator::Away,
                }
            }
            ModelOperator::SkipRelease(lease) => {
                self.on_entity(Op::Release(lease));
                if heard { ModelOperator::Wake } else { return }
            }
            other => unreachable!("{other:?} is none of these"),
        };
    }

    fn seen(&self) -> View {
        self.state.view().expect("a row")
    }

    fn looks_again(&mut self) -> ModelOperator {
        match self.state.view() {
            Some(view) if view.is_on_hold() => {
                self.state.reported_hold = Some(true);
                ModelOperator::Away
            }
            view => ModelOperator::Hold(view.map(|view| view.hold).unwrap_or_default()),
        }
    }

    fn look_in_front(&mut self, sequence: u64, lease: LeaseRef) -> ModelOperator {
        let view = self.seen();
        let is_in_front = !view.is_empty() && view.next().0 == sequence;
        let takes_any = self.has(ViolatedRule::SkipTakesAnyHead) && !view.is_empty();
        if !lease.is_mine(&view) || !(is_in_front || takes_any) {
            return ModelOperator::SkipRelease(lease);
        }
        if !is_in_front {
            self.state.violates(Violation::Skip);
        }
        let DrainBegin::Granted(_, known) = drain_begin(
            AcquiredRef::of(Acquired::Granted((*lease).clone(), (*view).clone())),
            self.state.epoch,
            ClockReading::Early,
            self.model.memory(),
        ) else {
            unreachable!()
        };
        let rows = self.state.item(ModelItem::Delivery(sequence)).into_iter().collect();
        let known = known.observes(self.state.epoch, Observation::Read(view.next().0, rows, Vec::new(), None));
        // In this model, an operator leaves repeats to a worker.
        match known.front_item() {
            Front::Delivery(_) => ModelOperator::SkipPark(lease, known),
            _ => ModelOperator::SkipRelease(lease),
        }
    }
}
