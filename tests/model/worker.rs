//! A worker's steps, from the queue to the end of its drain.

use webhook_serializer::{
    engine::{
        drain::{
            begin::{Disposition, Drained, disposition},
            plan::{self, Group},
        },
        queue::WakeUp,
    },
    protocol::{lease::Acquired, receipt::Settlement, state::LeaseKind},
};

use crate::{
    drain::{DrainBegin, Observation, PlanTime, drain_begin},
    operations::{Executed, Op, Reply},
    protocol::{Action, Answer, Hearing, Next, Protocol},
    reached::Reached,
    state::{Budget, Draining, Message, State, Step, Worker},
    store::{AcquiredRef, Clock, Item, LEASE, NonceId, entity, time},
    without::Rule,
};
use Hearing::{Heard, Lost};

impl Protocol {
    pub fn work_actions(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let Some(worker) = &state.workers[number] else {
            receive_actions(state, number, actions);
            return;
        };
        let lossy = state.left.lost_replies > 0;
        let mut writes: Vec<Action> = Vec::new();
        let mut add = |action: fn(usize, Hearing) -> Action| {
            writes.push(action(number, Heard));
            if lossy {
                writes.push(action(number, Lost));
            }
        };
        let early: fn(usize, Hearing) -> Action = |number, reply| Action::Work(number, Clock::Early, reply);
        let late: fn(usize, Hearing) -> Action = |number, reply| Action::Work(number, Clock::Late, reply);
        match worker.step {
            Step::Acquire(_) => {
                add(early);
                if state.view().is_some_and(|view| view.retry_at.is_some() || view.yield_until.is_some()) {
                    add(late);
                }
            }
            Step::Settle { ahead, .. } => {
                add(Action::RowWork);
                if ahead {
                    add(Action::ReceiptWork);
                }
            }
            Step::Spill { .. } => {
                add(early);
                if state.left.outages > 0 {
                    actions.push(Action::StoreIsOut(number));
                }
            }
            Step::Look(..) => {
                actions.push(early(number, Heard));
                if state.left.take_overs > 0 {
                    actions.push(late(number, Heard));
                }
            }
            Step::Ask => {
                actions.push(late(number, Heard));
                if worker.draining().has_to_wait() || state.left.overruns > 0 {
                    actions.push(Action::StopsEarly(number));
                }
            }
            Step::ReadPage | Step::MarkHandOver => {
                actions.push(early(number, Heard));
                if state.left.outages > 0 || worker.step == Step::MarkHandOver {
                    actions.push(Action::StoreIsOut(number));
                }
            }
            Step::Gap => {
                gap_actions(state, number, worker, actions);
                if !state.is_awaited(worker.draining().known.place().0) || state.left.voids > 0 {
                    add(early);
                }
            }
            Step::Run => run_actions(state, number, actions),
            Step::SendFresh
            | Step::Requeue(_)
            | Step::SendFollower(_)
            | Step::Follow(_)
            | Step::RetryWakeUp(..)
            | Step::HandOver
            | Step::Start
            | Step::Finish { .. } => {
                actions.push(early(number, Heard));
            }
            Step::TakeOver(..)
            | Step::RecordStart
            | Step::ReleaseHandedOver
            | Step::ReleaseUnheard
            | Step::Commit { .. }
            | Step::Park { .. }
            | Step::Fail { .. }
            | Step::Block(_)
            | Step::Release
            | Step::ReleaseEmpty => add(early),
        }
        actions.extend(writes);
        if state.left.worker_crashes > 0 {
            actions.push(Action::WorkerDies(number));
        }
    }
}

fn receive_actions(state: &State, number: usize, actions: &mut Vec<Action>) {
    // Idle workers are interchangeable, so the first one receives.
    if state.workers[..number].iter().any(Option::is_none) {
        return;
    }
    let mut last = None;
    for (at, message) in state.queue.iter().enumerate() {
        if last.replace(message) != Some(message) {
            actions.push(Action::Receive(number, at));
        }
    }
    if state.left.copies > 0 && state.workers.iter().flatten().any(|other| other.message == Message::Own) {
        actions.push(Action::ReceiveCopy(number));
    }
}

fn gap_actions(state: &State, number: usize, worker: &Worker, actions: &mut Vec<Action>) {
    let sequence = worker.draining().known.place().0;
    if state.item(Item::Delivery(sequence)).is_some() {
        actions.push(Action::GapIsFilled(number));
    }
    if state.left.overruns > 0 {
        actions.push(Action::StopsEarly(number));
    }
    if state.left.expiries > 0 {
        actions.push(Action::GapMayHaveExpired(number));
    }
}

fn run_actions(state: &State, number: usize, actions: &mut Vec<Action>) {
    actions.push(Action::HandlerEnds(number, Answer::Done));
    for (left, answer) in [
        (state.left.failures, Answer::Fails),
        (state.left.timeouts, Answer::TimesOut),
        (state.left.rejections, Answer::Rejects),
    ] {
        if left > 0 {
            actions.push(Action::HandlerEnds(number, answer));
        }
    }
    if state.left.renewals > 0 {
        actions.push(Action::RenewalFails(number));
    }
}

impl Next<'_> {
    // The queue.

    pub fn receive(&mut self, number: usize, message: Message, token: Option<u64>, again: bool) {
        let is_replaced = again && !self.has(Rule::RedeliveryAcquiresAtOnce);
        let step = if is_replaced { Step::SendFresh } else { Step::Acquire(self.draw(number)) };
        self.state.workers[number] = Some(Worker { message, token, is_replaced, step, drain: None });
    }

    /// Ends the work on a message, also after a crash.
    pub fn finish(&mut self, number: usize, delete: bool) {
        let Some(worker) = self.state.workers[number].take() else { return };
        let mut others = self.state.workers.iter_mut().flatten();
        match (worker.message, delete) {
            (Message::Own, true) => {
                others.filter(|other| other.message == Message::Copy).for_each(|other| other.message = Message::Deleted)
            }
            (Message::Copy, true) => {
                others.filter(|other| other.message == Message::Own).for_each(|other| other.message = Message::Deleted)
            }
            (Message::Own, false) => match others.find(|other| other.message == Message::Copy) {
                Some(other) => other.message = Message::Own,
                None => self.state.queue.push((worker.token, true)),
            },
            (Message::Copy | Message::Deleted, _) => {}
        }
    }

    /// Returns a nonce of this author that no row holds.
    pub fn draw(&self, number: usize) -> NonceId {
        if self.has(Rule::HolderFromRequest) {
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
    pub fn go_on(&mut self, number: usize, worker: &mut Worker) -> Option<bool> {
        loop {
            match worker.step {
                Step::Finish { delete } if self.nobody_fails() => return Some(delete),
                Step::Look(drawn, seen) if self.state.left.take_overs == 0 => {
                    self.look(number, worker, drawn, seen, Clock::Early);
                }
                Step::ReadPage if self.nobody_loses() && self.state.left.outages == 0 => self.read_page(worker),
                Step::Start if self.nobody_loses() => self.start(worker),
                Step::Run if self.nobody_loses() && self.handlers_succeed() => {
                    self.handler_ends(worker, Answer::Done);
                }
                _ => return None,
            }
        }
    }

    fn handlers_succeed(&self) -> bool {
        let Budget { failures, timeouts, rejections, .. } = self.state.left;
        failures + timeouts + rejections == 0
    }

    /// Returns whether no message can be received twice any more.
    fn nobody_fails(&self) -> bool {
        let copied = self.state.workers.iter().flatten().any(|worker| worker.message != Message::Own);
        self.state.left.worker_crashes == 0 && self.state.left.copies == 0 && !copied
    }

    /// Returns whether leases can be lost only by the death of their holders.
    fn nobody_loses(&self) -> bool {
        self.state.left.take_overs + self.state.left.forced_releases == 0
    }

    /// Handles an event other than the worker's next step.
    fn event(&mut self, worker: &mut Worker, action: Action) {
        match action {
            Action::StopsEarly(_) => {
                let waits = worker.step == Step::Ask && worker.draining().has_to_wait();
                let when = if waits {
                    self.model.reach(Reached::Yield);
                    PlanTime::At(Clock::Early)
                } else {
                    self.state.left.overruns -= 1;
                    PlanTime::OutOfTime
                };
                if worker.step == Step::Gap {
                    worker.step = Step::HandOver;
                } else {
                    self.ask(worker, when);
                }
            }
            Action::GapIsFilled(_) => {
                self.observes(worker, Observation::Filled);
                self.turn(worker);
            }
            Action::StoreIsOut(_) => {
                worker.step = match worker.step {
                    Step::MarkHandOver => Step::HandOver,
                    Step::Spill { decision, commits } => {
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
            Action::GapMayHaveExpired(_) => {
                self.state.left.expiries -= 1;
                let todo = worker.draining().known.gap_is_over(self.state.epoch, true);
                self.takes(worker, todo, false);
            }
            Action::RenewalFails(_) => {
                let lease = worker.draining().lease;
                if self.on_entity(Op::Renew(lease)).reply == Reply::Lost {
                    self.state.left.renewals -= 1;
                    self.loses(worker);
                }
            }
            Action::HandlerEnds(_, answer) => {
                self.handler_ends(worker, answer);
            }
            other => unreachable!("{other:?} is no event of a worker"),
        }
    }

    /// Takes a step. If the worker is then done with its message, returns whether to delete it.
    pub fn work(&mut self, number: usize, worker: &mut Worker, action: Action) -> Option<bool> {
        let (clock, reply) = match action {
            Action::Work(_, clock, reply) => (clock, reply),
            Action::RowWork(_, reply) | Action::ReceiptWork(_, reply) => (Clock::Early, reply),
            event => {
                self.event(worker, event);
                return None;
            }
        };
        let heard = reply == Heard;
        match worker.step {
            Step::SendFresh => {
                self.state.queue.push((worker.token, false));
                worker.step = Step::Acquire(self.draw(number));
            }
            Step::Acquire(drawn) => {
                let executed = self.on_entity(Op::Acquire(LeaseKind::Drain, drawn, clock));
                if heard {
                    self.acquired(number, worker, drawn, executed, clock);
                }
            }
            Step::Look(drawn, seen) => self.look(number, worker, drawn, seen, clock),
            Step::TakeOver(drawn, seen) => {
                let executed = self.on_entity(Op::TakeOver(LeaseKind::Drain, drawn, seen));
                if executed.landed {
                    self.state.left.take_overs = self.state.left.take_overs.saturating_sub(1);
                    self.model.reach(Reached::TakeOver);
                }
                if heard {
                    self.acquired(number, worker, drawn, executed, Clock::Late);
                }
            }
            Step::Requeue(token) => {
                self.state.queue.push((token, false));
                worker.step = Step::Finish { delete: true };
            }
            Step::SendFollower(token) => {
                self.state.queue.push((Some(token), false));
                worker.step = match self.has(Rule::FollowedBeforeSent) {
                    true => Step::Finish { delete: true },
                    false => Step::Follow(token),
                };
            }
            Step::Follow(token) => {
                self.on_entity(Op::Follow(token));
                worker.step = match self.has(Rule::FollowedBeforeSent) {
                    true => Step::SendFollower(token),
                    false => Step::Finish { delete: true },
                };
            }
            Step::Finish { delete } => return Some(delete),
            Step::Ask => self.ask(worker, PlanTime::At(clock)),
            Step::ReadPage => self.read_page(worker),
            Step::Gap => self.void(worker, heard),
            Step::RecordStart => {
                let (sequence, _) = worker.draining().known.place();
                let marked = self.on_entity(Op::MarkStart(worker.draining().lease, sequence)).reply;
                self.model.reach(Reached::StartWritten);
                match marked {
                    Reply::Lost if heard => self.loses(worker),
                    _ if heard => worker.step = Step::Start,
                    _ => self.store_is_out(worker),
                }
            }
            Step::Start => self.start(worker),
            Step::Run => unreachable!("a handler ends"),
            Step::Spill { decision, commits } => self.spill(worker, decision, commits, heard),
            Step::Commit { decision, landed } => self.commit(worker, decision, landed, heard),
            Step::Park { ran } => {
                let (sequence, id) = worker.draining().known.place();
                self.on_item(Item::Parked(sequence), Op::Park(id.expect("a delivery"), sequence));
                if heard {
                    self.settle(worker, Settlement::Parked, false, ran);
                }
            }
            Step::Settle { .. } => self.settle_step(worker, action, heard),
            Step::RetryWakeUp(attempts, retries, one_by_one) => {
                if !self.has(Rule::FailKeepsItsMessage) {
                    self.state.queue.push((Some(worker.draining().lease.token().0), false));
                }
                worker.step = Step::Fail { attempts, retries, one_by_one, retry: true };
            }
            Step::Fail { .. } => self.fail(worker, heard),
            _ => self.take_last_step(worker, heard),
        }
        None
    }

    fn fail(&mut self, worker: &mut Worker, heard: bool) {
        let Step::Fail { attempts, retries, one_by_one, retry } = worker.step else { unreachable!() };
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
            if self.has(Rule::FailKeepsItsMessage) && retry && matches!(executed.reply, Reply::Ended(_)) {
                worker.step = Step::Finish { delete: false };
            }
        }
    }

    fn take_last_step(&mut self, worker: &mut Worker, heard: bool) {
        match worker.step {
            Step::Block(reason) => {
                let executed =
                    self.on_entity(Op::Block(worker.draining().lease, worker.draining().known.place().0, reason));
                if heard {
                    self.model.reach(Reached::BlockExpired);
                    self.ended(worker, executed);
                }
            }
            Step::MarkHandOver => {
                self.on_entity(Op::MarkHandOver(worker.draining().lease));
                worker.step = Step::HandOver;
            }
            Step::HandOver => {
                let Draining { lease, is_stopped, .. } = *worker.draining();
                if !self.has(Rule::HandOverWithoutWakeUp) {
                    self.state.queue.push((Some(lease.token().0), false));
                }
                worker.step = if is_stopped { Step::ReleaseUnheard } else { Step::ReleaseHandedOver };
            }
            // Neither the outcome nor the arrival of the reply matters.
            Step::ReleaseUnheard => {
                let op = match plan::stop(worker.is_replaced) {
                    plan::Stop::Release => Op::Release(worker.draining().lease),
                    plan::Stop::HandOver => hand_over(worker),
                };
                self.on_entity(op);
                self.ends(worker, Drained::Ended);
            }
            Step::ReleaseHandedOver => {
                let executed = self.on_entity(hand_over(worker));
                if heard {
                    self.ended(worker, executed);
                }
            }
            Step::Release => {
                let executed = self.on_entity(Op::Release(worker.draining().lease));
                if heard {
                    self.ended(worker, executed);
                }
            }
            Step::ReleaseEmpty => {
                let Draining { lease, known, .. } = *worker.draining();
                let executed = self.on_entity(Op::ReleaseEmpty(lease, false, known.is_on_hold()));
                match executed.reply {
                    _ if !heard => {}
                    Reply::Grown(view) => {
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

    fn acquired(&mut self, number: usize, worker: &mut Worker, drawn: NonceId, executed: Executed, clock: Clock) {
        let Reply::Answered(answer) = executed.reply else { unreachable!() };
        if let Acquired::Held(_) = &*answer {
            worker.step = Step::Look(drawn, answer);
        } else {
            if matches!(&*answer, Acquired::Granted(..)) && !executed.landed {
                self.model.reach(Reached::LostGrantRecognised);
            }
            self.begins(number, worker, drawn, answer, clock);
        }
    }

    fn look(&mut self, number: usize, worker: &mut Worker, drawn: NonceId, answer: AcquiredRef, clock: Clock) {
        let Acquired::Held(seen) = &*answer else { unreachable!() };
        let held = seen.held.as_ref().expect("held");
        let is_drain = held.kind == LeaseKind::Drain;
        let lets_go = if held.runs(time(self.state.epoch, clock)) {
            is_drain && self.has(Rule::DropWhileDrained)
        } else {
            is_drain && seen.is_empty() && self.has(Rule::DeleteAtExpiredEmptyLease)
        };
        if lets_go {
            worker.step = Step::Finish { delete: true };
        } else {
            self.begins(number, worker, drawn, answer, clock);
        }
    }

    fn begins(&mut self, number: usize, worker: &mut Worker, drawn: NonceId, answer: AcquiredRef, clock: Clock) {
        match drain_begin(answer, self.state.epoch, clock, self.model.capacity) {
            DrainBegin::Granted(lease, known) => {
                let state = known.state();
                let waited = state.yield_until.is_some() || state.retry_at.is_some();
                worker.drain = Some(Draining { lease, known, waited, is_stopped: false, group: Group::ONE });
                self.turn(worker);
            }
            DrainBegin::Drained(drained) => self.ends(worker, drained),
            DrainBegin::AskAgain => worker.step = Step::Acquire(self.draw(number)),
            DrainBegin::TakeOver(seen) => worker.step = Step::TakeOver(drawn, seen),
        }
    }

    /// Ends the drain, and decides what happens to its wake-up.
    pub fn ends(&mut self, worker: &mut Worker, drained: Drained) {
        let wake_up = WakeUp { token: worker.token, ..WakeUp::of(entity()) };
        worker.step = match disposition(&wake_up, worker.is_replaced, drained, LEASE) {
            Disposition::Delete => Step::Finish { delete: true },
            Disposition::Keep => Step::Finish { delete: false },
            Disposition::Replace(..) if let Drained::Follows { token, .. } = drained => {
                match self.has(Rule::FollowedBeforeSent) {
                    true => Step::Follow(token.0),
                    false => Step::SendFollower(token.0),
                }
            }
            Disposition::Replace(fresh, ..) => Step::Requeue(fresh.token),
        };
    }

    /// Ends the drain, because the store does not answer.
    fn store_is_out(&mut self, worker: &mut Worker) {
        worker.draining_mut().is_stopped = true;
        worker.step = match plan::stop(worker.is_replaced) {
            plan::Stop::Release => Step::ReleaseUnheard,
            plan::Stop::HandOver => Step::MarkHandOver,
        };
    }

    pub fn loses(&mut self, worker: &mut Worker) {
        self.model.reach(Reached::LostLease);
        self.ends(worker, Drained::Lost);
    }

    pub fn ended(&mut self, worker: &mut Worker, executed: Executed) {
        match executed.reply {
            Reply::Ended(_) => {
                if !executed.landed {
                    self.model.reach(Reached::LostReleaseRecognised);
                }
                self.ends(worker, Drained::Ended);
            }
            Reply::Lost => self.loses(worker),
            _ => unreachable!(),
        }
    }
}

fn hand_over(worker: &Worker) -> Op {
    let drain = worker.draining();
    Op::HandOver(drain.lease, drain.known.state().is_suspect())
}
