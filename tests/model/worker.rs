//! A worker's steps, from the queue to the end of its drain.

mod actions;

use webhook_serializer::{
    engine::{
        drain::{
            begin::{Disposition, Drained, disposition},
            plan::{self, DeliveryGroup},
        },
        queue::WakeUp,
    },
    protocol::{lease::Acquired, receipt::Settlement, state::LeaseKind},
};

use crate::{
    drain::{DrainBegin, Observation, PlanTime, drain_begin},
    operations::{Executed, Op, OperationReply},
    protocol::{HandlerAnswer, Hearing, ModelAction, StateBuilder},
    reached::Reached,
    state::{Draining, EventBudget, HeldMessage, ModelWorker, WorkerStep},
    store::{AcquiredRef, ClockReading, LEASE, ModelItem, NonceId, entity, time},
    without::ViolatedRule,
};
use Hearing::Heard;

impl StateBuilder<'_> {
    // The queue.

    pub fn receive(&mut self, number: usize, message: HeldMessage, token: Option<u64>, again: bool) {
        let is_replaced = again && !self.has(ViolatedRule::RedeliveryAcquiresAtOnce);
        let step = if is_replaced { WorkerStep::SendFresh } else { WorkerStep::Acquire(self.draw(number)) };
        self.state.workers[number] = Some(ModelWorker { message, token, is_replaced, step, drain: None });
    }

    /// Ends the work on a message, also after a crash.
    pub fn finish(&mut self, number: usize, delete: bool) {
        let Some(worker) = self.state.workers[number].take() else { return };
        let mut others = self.state.workers.iter_mut().flatten();
        match (worker.message, delete) {
            (HeldMessage::Own, true) => others
                .filter(|other| other.message == HeldMessage::Copy)
                .for_each(|other| other.message = HeldMessage::Deleted),
            (HeldMessage::Copy, true) => others
                .filter(|other| other.message == HeldMessage::Own)
                .for_each(|other| other.message = HeldMessage::Deleted),
            (HeldMessage::Own, false) => match others.find(|other| other.message == HeldMessage::Copy) {
                Some(other) => other.message = HeldMessage::Own,
                None => self.state.queue.push((worker.token, true)),
            },
            (HeldMessage::Copy | HeldMessage::Deleted, _) => {}
        }
    }

    /// Returns a nonce of this author that no row holds.
    pub fn draw(&self, number: usize) -> NonceId {
        if self.has(ViolatedRule::HolderFromRequest) {
            return NonceId(200, 0);
        }
        self.unused(100 + number as u8)
    }

    pub fn unused(&self, author: u8) -> NonceId {
        let holder = self.state.view().and_then(|view| view.held.as_ref().map(|held| held.holder.clone()));
        let mut drawn = NonceId(author, 0);
        while holder.as_ref() == Some(&drawn.nonce()) {
            drawn.1 += 1;
        }
        drawn
    }

    // Steps.

    /// Takes the steps that commute with all others: steps that write nothing, if no lease can be lost; and
    /// the deletion of a message that nobody else has.
    pub fn go_on(&mut self, number: usize, worker: &mut ModelWorker) -> Option<bool> {
        loop {
            match worker.step {
                WorkerStep::Finish { delete } if self.nobody_fails() => return Some(delete),
                WorkerStep::Look(drawn, seen) if self.state.left.take_overs == 0 => {
                    self.look(number, worker, drawn, seen, ClockReading::Early);
                }
                WorkerStep::ReadPage if self.nobody_loses() && self.state.left.outages == 0 => self.read_page(worker),
                WorkerStep::Start if self.nobody_loses() => self.start(worker),
                WorkerStep::Run if self.nobody_loses() && self.handlers_succeed() => {
                    self.handler_ends(worker, HandlerAnswer::Done);
                }
                _ => return None,
            }
        }
    }

    fn handlers_succeed(&self) -> bool {
        let EventBudget { failures, timeouts, rejections, .. } = self.state.left;
        failures + timeouts + rejections == 0
    }

    /// Returns whether no message can be received twice any more.
    fn nobody_fails(&self) -> bool {
        let copied = self.state.workers.iter().flatten().any(|worker| worker.message != HeldMessage::Own);
        self.state.left.worker_crashes == 0 && self.state.left.copies == 0 && !copied
    }

    /// Returns whether leases can be lost only by the death of their holders.
    fn nobody_loses(&self) -> bool {
        self.state.left.take_overs + self.state.left.forced_releases == 0
    }

    /// Handles an event other than the worker's next step.
    fn event(&mut self, worker: &mut ModelWorker, action: ModelAction) {
        match action {
            ModelAction::StopsEarly(_) => {
                let waits = worker.step == WorkerStep::Ask && worker.draining().has_to_wait();
                let when = if waits {
                    self.model.reach(Reached::Yield);
                    PlanTime::At(ClockReading::Early)
                } else {
                    self.state.left.overruns -= 1;
                    PlanTime::OutOfTime
                };
                if worker.step == WorkerStep::Gap {
                    worker.step = WorkerStep::HandOver;
                } else {
                    self.ask(worker, when);
                }
            }
            ModelAction::GapIsFilled(_) => {
                self.observes(worker, Observation::Filled);
                self.turn(worker);
            }
            ModelAction::StoreIsOut(_) => {
                worker.step = match worker.step {
                    WorkerStep::MarkHandOver => WorkerStep::HandOver,
                    WorkerStep::Spill { decision, commits } => {
                        self.state.left.outages -= 1;
                        return self.cannot_spill(worker, decision, commits);
                    }
                    _ => {
                        self.state.left.outages -= 1;
                        self.model.reach(Reached::StoreOut);
                        return self.store_is_out(worker);
                    }
                };
            }
            ModelAction::GapMayHaveExpired(_) => {
                self.state.left.expiries -= 1;
                let todo = worker.draining().known.gap_is_over(self.state.epoch, true);
                self.takes(worker, todo, false);
            }
            ModelAction::RenewalFails(_) => {
                let lease = worker.draining().lease;
                if self.on_entity(Op::Renew(lease)).reply == OperationReply::Lost {
                    self.state.left.renewals -= 1;
                    self.loses(worker);
                }
            }
            ModelAction::HandlerEnds(_, answer) => {
                self.handler_ends(worker, answer);
            }
            other => unreachable!("{other:?} is no event of a worker"),
        }
    }

    /// Takes a step. If the worker is then done with its message, returns whether to delete it.
    pub fn work(&mut self, number: usize, worker: &mut ModelWorker, action: ModelAction) -> Option<bool> {
        let (clock, reply) = match action {
            ModelAction::Work(_, clock, reply) => (clock, reply),
            ModelAction::RowWork(_, reply) | ModelAction::ReceiptWork(_, reply) => (ClockReading::Early, reply),
            event => {
                self.event(worker, event);
                return None;
            }
        };
        let heard = reply == Heard;
        match worker.step {
            WorkerStep::SendFresh => {
                self.state.queue.push((worker.token, false));
                worker.step = WorkerStep::Acquire(self.draw(number));
            }
            WorkerStep::Acquire(drawn) => {
                let executed = self.on_entity(Op::Acquire(LeaseKind::Drain, drawn, clock));
                if heard {
                    self.acquired(number, worker, drawn, executed, clock);
                }
            }
            WorkerStep::Look(drawn, seen) => self.look(number, worker, drawn, seen, clock),
            WorkerStep::TakeOver(drawn, seen) => {
                let executed = self.on_entity(Op::TakeOver(LeaseKind::Drain, drawn, seen));
                if executed.landed {
                    self.state.left.take_overs = self.state.left.take_overs.saturating_sub(1);
                    self.model.reach(Reached::TakeOver);
                }
                if heard {
                    self.acquired(number, worker, drawn, executed, ClockReading::Late);
                }
            }
            WorkerStep::Requeue(token) => {
                self.state.queue.push((token, false));
                worker.step = WorkerStep::Finish { delete: true };
            }
            WorkerStep::SendFollower(token) => {
                self.state.queue.push((Some(token), false));
                worker.step = match self.has(ViolatedRule::FollowedBeforeSent) {
                    true => WorkerStep::Finish { delete: true },
                    false => WorkerStep::Follow(token),
                };
            }
            WorkerStep::Follow(token) => {
                self.on_entity(Op::Follow(token));
                worker.step = match self.has(ViolatedRule::FollowedBeforeSent) {
                    true => WorkerStep::SendFollower(token),
                    false => WorkerStep::Finish { delete: true },
                };
            }
            WorkerStep::Finish { delete } => return Some(delete),
            WorkerStep::Ask => self.ask(worker, PlanTime::At(clock)),
            WorkerStep::ReadPage => self.read_page(worker),
            WorkerStep::Gap => self.void(worker, heard),
            WorkerStep::RecordStart => {
                let (sequence, _) = worker.draining().known.place();
                let marked = self.on_entity(Op::MarkStart(worker.draining().lease, sequence)).reply;
                self.model.reach(Reached::StartWritten);
                match marked {
                    OperationReply::Lost if heard => self.loses(worker),
                    _ if heard => worker.step = WorkerStep::Start,
                    _ => self.store_is_out(worker),
                }
            }
            WorkerStep::Start => self.start(worker),
            WorkerStep::Run => unreachable!("a handler ends"),
            WorkerStep::Spill { decision, commits } => self.spill(worker, decision, commits, heard),
            WorkerStep::Commit { decision, landed } => self.commit(worker, decision, landed, heard),
            WorkerStep::Park { ran } => {
                let (sequence, id) = worker.draining().known.place();
                self.on_item(ModelItem::Parked(sequence), Op::Park(id.expect("a delivery"), sequence));
                if heard {
                    self.settle(worker, Settlement::Parked, false, ran);
                }
            }
            WorkerStep::Settle { .. } => self.settle_step(worker, action, heard),
            WorkerStep::RetryWakeUp(attempts, retries, one_by_one) => {
                if !self.has(ViolatedRule::FailKeepsItsMessage) {
                    self.state.queue.push((Some(worker.draining().lease.token().0), false));
                }
                worker.step = WorkerStep::Fail { attempts, retries, one_by_one, retry: true };
            }
            WorkerStep::Fail { .. } => self.fail(worker, heard),
            _ => self.take_last_step(worker, heard),
        }
        None
    }

    fn fail(&mut self, worker: &mut ModelWorker, heard: bool) {
        let WorkerStep::Fail { attempts, retries, one_by_one, retry } = worker.step else { unreachable!() };
        let Draining { lease, known, .. } = *worker.draining();
        let sequence = known.place().0;
        let executed = self.on_entity(Op::Fail {
            lease,
            sequence,
            attempts,
            retries,
            suspected: known.state().is_suspect(),
            one_by_one,
            retry,
        });
        if heard {
            self.model.reach(if retry { Reached::Retry } else { Reached::Block });
            self.ended(worker, executed);
            if self.has(ViolatedRule::FailKeepsItsMessage)
                && retry
                && matches!(executed.reply, OperationReply::Ended(_))
            {
                worker.step = WorkerStep::Finish { delete: false };
            }
        }
    }

    fn take_last_step(&mut self, worker: &mut ModelWorker, heard: bool) {
        match worker.step {
            WorkerStep::Block(reason) => {
                let executed =
                    self.on_entity(Op::Block(worker.draining().lease, worker.draining().known.place().0, reason));
                if heard {
                    self.model.reach(Reached::BlockExpired);
                    self.ended(worker, executed);
                }
            }
            WorkerStep::MarkHandOver => {
                self.on_entity(Op::MarkHandOver(worker.draining().lease));
                worker.step = WorkerStep::HandOver;
            }
            WorkerStep::HandOver => {
                let Draining { lease, is_stopped, .. } = *worker.draining();
                if !self.has(ViolatedRule::HandOverWithoutWakeUp) {
                    self.state.queue.push((Some(lease.token().0), false));
                }
                worker.step = if is_stopped { WorkerStep::ReleaseUnheard } else { WorkerStep::ReleaseHandedOver };
            }
            // Neither the outcome nor the arrival of the reply matters.
            WorkerStep::ReleaseUnheard => {
                let op = match plan::EarlyEnd::of(worker.is_replaced) {
                    plan::EarlyEnd::Release => Op::Release(worker.draining().lease),
                    plan::EarlyEnd::HandOver => hand_over(worker),
                };
                self.on_entity(op);
                self.ends(worker, Drained::Ended);
            }
            WorkerStep::ReleaseHandedOver => {
                let executed = self.on_entity(hand_over(worker));
                if heard {
                    self.ended(worker, executed);
                }
            }
            WorkerStep::Release => {
                let executed = self.on_entity(Op::Release(worker.draining().lease));
                if heard {
                    self.ended(worker, executed);
                }
            }
            WorkerStep::ReleaseEmpty => {
                let Draining { lease, known, .. } = *worker.draining();
                let executed = self.on_entity(Op::ReleaseEmpty(lease, false, known.is_on_hold()));
                match executed.reply {
                    _ if !heard => {}
                    OperationReply::Grown(view) => {
                        self.observes(worker, Observation::Seen(view));
                        self.turn(worker);
                    }
                    _ => self.ended(worker, executed),
                }
            }
            other => unreachable!("{other:?} does not end a drain"),
        }
    }

    // The beginning and the end.

    fn acquired(
        &mut self,
        number: usize,
        worker: &mut ModelWorker,
        drawn: NonceId,
        executed: Executed,
        clock: ClockReading,
    ) {
        let OperationReply::Answered(answer) = executed.reply else { unreachable!() };
        if let Acquired::Held(_) = &*answer {
            worker.step = WorkerStep::Look(drawn, answer);
        } else {
            if matches!(&*answer, Acquired::Granted(..)) && !executed.landed {
                self.model.reach(Reached::LostGrantRecognised);
            }
            self.begins(number, worker, drawn, answer, clock);
        }
    }

    fn look(
        &mut self,
        number: usize,
        worker: &mut ModelWorker,
        drawn: NonceId,
        answer: AcquiredRef,
        clock: ClockReading,
    ) {
        let Acquired::Held(seen) = &*answer else { unreachable!() };
        let held = seen.held.as_ref().expect("held");
        let is_drain = held.kind == LeaseKind::Drain;
        let lets_go = if held.runs(time(self.state.epoch, clock)) {
            is_drain && self.has(ViolatedRule::DropWhileDrained)
        } else {
            is_drain && seen.is_empty() && self.has(ViolatedRule::DeleteAtExpiredEmptyLease)
        };
        if lets_go {
            worker.step = WorkerStep::Finish { delete: true };
        } else {
            self.begins(number, worker, drawn, answer, clock);
        }
    }

    fn begins(
        &mut self,
        number: usize,
        worker: &mut ModelWorker,
        drawn: NonceId,
        answer: AcquiredRef,
        clock: ClockReading,
    ) {
        match drain_begin(answer, self.state.epoch, clock, self.model.memory()) {
            DrainBegin::Granted(lease, known) => {
                let state = known.state();
                let waited = state.yield_until.is_some() || state.retry_at.is_some();
                worker.drain = Some(Draining { lease, known, waited, is_stopped: false, group: DeliveryGroup::ONE });
                self.turn(worker);
            }
            DrainBegin::Drained(drained) => self.ends(worker, drained),
            DrainBegin::AskAgain => worker.step = WorkerStep::Acquire(self.draw(number)),
            DrainBegin::TakeOver(seen) => worker.step = WorkerStep::TakeOver(drawn, seen),
        }
    }

    /// Ends the drain, and decides what happens to its wake-up.
    pub fn ends(&mut self, worker: &mut ModelWorker, drained: Drained) {
        let wake_up = WakeUp { token: worker.token, ..WakeUp::of(entity()) };
        worker.step = match disposition(&wake_up, worker.is_replaced, drained, LEASE) {
            Disposition::Delete => WorkerStep::Finish { delete: true },
            Disposition::Keep => WorkerStep::Finish { delete: false },
            Disposition::Replace(..) if let Drained::Follows { token, .. } = drained => {
                match self.has(ViolatedRule::FollowedBeforeSent) {
                    true => WorkerStep::Follow(token.0),
                    false => WorkerStep::SendFollower(token.0),
                }
            }
            Disposition::Replace(fresh, ..) => WorkerStep::Requeue(fresh.token),
        };
    }

    /// Ends the drain, because the store does not answer.
    fn store_is_out(&mut self, worker: &mut ModelWorker) {
        worker.draining_mut().is_stopped = true;
        worker.step = match plan::EarlyEnd::of(worker.is_replaced) {
            plan::EarlyEnd::Release => WorkerStep::ReleaseUnheard,
            plan::EarlyEnd::HandOver => WorkerStep::MarkHandOver,
        };
    }

    pub fn loses(&mut self, worker: &mut ModelWorker) {
        self.model.reach(Reached::LostLease);
        self.ends(worker, Drained::Lost);
    }

    pub fn ended(&mut self, worker: &mut ModelWorker, executed: Executed) {
        match executed.reply {
            OperationReply::Ended(_) => {
                if !executed.landed {
                    self.model.reach(Reached::LostReleaseRecognised);
                }
                self.ends(worker, Drained::Ended);
            }
            OperationReply::Lost => self.loses(worker),
            _ => unreachable!(),
        }
    }
}

fn hand_over(worker: &ModelWorker) -> Op {
    let drain = worker.draining();
    Op::HandOver(drain.lease, drain.known.state().is_suspect())
}
