//! A worker's steps. What to do is asked of the production plan each time; here
//! it is done, one store write, queue send or handler step at a time.

use webhook_serializer::{
    engine::{
        drain::{
            begin::{Drained, Fate, fate},
            plan::{self, Group},
        },
        queue::WakeUp,
    },
    protocol::{lease::Acquired, receipt::Settlement, state::LeaseKind},
};

use crate::{
    drain::{Begun, Learned, When, begun},
    operations::{Executed, Op, Reply},
    protocol::{Action, Answer as Answers, Hearing, Next, Protocol},
    reached::Reached,
    state::{Budget, Draining, Message, State, Step, Worker},
    store::{Answer, Clock, Drawn, Item, LEASE, entity, time},
    without::Rule,
};
use Hearing::{Heard, Lost};

impl Protocol {
    pub fn work_actions(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let Some(worker) = &state.workers[number] else {
            // Idle workers are alike: the first of them receives.
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
                    actions.push(Action::PutsOff(number));
                }
            }
            Step::ReadPage | Step::Announce => {
                actions.push(early(number, Heard));
                if state.left.outages > 0 || worker.step == Step::Announce {
                    actions.push(Action::StoreIsOut(number));
                }
            }
            Step::Gap => {
                let sequence = worker.draining().knows.place().0;
                if state.item(Item::Delivery(sequence)).is_some() {
                    actions.push(Action::GapIsFilled(number));
                }
                if !state.is_awaited(sequence) || state.left.voids > 0 {
                    add(early);
                }
                if state.left.overruns > 0 {
                    actions.push(Action::PutsOff(number));
                }
                if state.left.expiries > 0 {
                    actions.push(Action::GapMayHaveExpired(number));
                }
            }
            Step::Run => {
                actions.push(Action::HandlerEnds(number, Answers::Done));
                for (left, answer) in [
                    (state.left.failures, Answers::Fails),
                    (state.left.timeouts, Answers::TimesOut),
                    (state.left.rejections, Answers::Rejects),
                ] {
                    if left > 0 {
                        actions.push(Action::HandlerEnds(number, answer));
                    }
                }
                if state.left.renewals > 0 {
                    actions.push(Action::FindsItselfLost(number));
                }
            }
            Step::SendFresh
            | Step::PutOff(_)
            | Step::RetryWakeUp(..)
            | Step::HandOver
            | Step::Start
            | Step::Finish { .. } => {
                actions.push(early(number, Heard));
            }
            Step::TakeOver(..)
            | Step::Mark
            | Step::LetGo
            | Step::LetGoBlindly
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

impl Next<'_> {
    // The queue.

    pub fn receive(&mut self, number: usize, message: Message, token: Option<u64>, again: bool) {
        let is_replaced = again && !self.has(Rule::ReceivedAgainAcquiresAtOnce);
        let step = if is_replaced { Step::SendFresh } else { Step::Acquire(self.draw(number)) };
        self.state.workers[number] = Some(Worker { message, token, is_replaced, step, drain: None });
    }

    /// The worker is done with its message, or dead.
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

    /// A nonce that no row still holds of this author's.
    pub fn draw(&self, number: usize) -> Drawn {
        if self.has(Rule::HolderFromRequest) {
            return Drawn(200, 0);
        }
        self.unused(100 + number as u8)
    }

    pub fn unused(&self, author: u8) -> Drawn {
        let holder = self.state.view().and_then(|view| view.held.as_ref().map(|held| held.holder.clone()));
        let mut drawn = Drawn(author, 0);
        while holder.as_ref() == Some(&drawn.nonce()) {
            drawn.1 += 1;
        }
        drawn
    }

    // Steps.

    /// Takes the steps that nothing can come between: those that write nothing,
    /// where no lease can be lost meanwhile, and the deletion of a message that
    /// nobody else has. A longer pause would be another worker's absence.
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
                    self.handler_ends(worker, Answers::Done);
                }
                _ => return None,
            }
        }
    }

    fn handlers_succeed(&self) -> bool {
        let Budget { failures, timeouts, rejections, .. } = self.state.left;
        failures + timeouts + rejections == 0
    }

    /// No message can be received twice any more.
    fn nobody_fails(&self) -> bool {
        let copied = self.state.workers.iter().flatten().any(|worker| worker.message != Message::Own);
        self.state.left.worker_crashes == 0 && self.state.left.copies == 0 && !copied
    }

    /// No lease can be lost any more but by its holder's death.
    fn nobody_loses(&self) -> bool {
        self.state.left.take_overs + self.state.left.forced == 0
    }

    /// One step of a worker; whether it is done with its message, and if so
    /// whether it deletes it.
    pub fn work(&mut self, number: usize, worker: &mut Worker, action: Action) -> Option<bool> {
        let epoch = self.state.epoch;
        let (clock, reply) = match action {
            Action::Work(_, clock, reply) => (clock, reply),
            Action::RowWork(_, reply) | Action::ReceiptWork(_, reply) => (Clock::Early, reply),
            Action::PutsOff(_) => {
                let waits = worker.step == Step::Ask && worker.draining().has_to_wait();
                let when = if waits {
                    self.model.reach(Reached::Yield);
                    When::At(Clock::Early)
                } else {
                    self.state.left.overruns -= 1;
                    When::TheEnd
                };
                if worker.step == Step::Gap {
                    worker.step = Step::HandOver;
                } else {
                    self.ask(worker, when);
                }
                return None;
            }
            Action::GapIsFilled(_) => {
                self.learns(worker, Learned::Filled);
                self.turn(worker);
                return None;
            }
            Action::StoreIsOut(_) => {
                worker.step = match worker.step {
                    Step::Announce => Step::HandOver,
                    Step::Spill { decided, commits } => {
                        self.state.left.outages -= 1;
                        self.cannot_spill(worker, decided, commits);
                        return None;
                    }
                    _ => {
                        self.state.left.outages -= 1;
                        self.model.reach(Reached::StoreOut);
                        worker.draining_mut().is_stopped = true;
                        match plan::stop(worker.is_replaced) {
                            plan::Stop::Release => Step::LetGoBlindly,
                            plan::Stop::HandOver => Step::Announce,
                        }
                    }
                };
                return None;
            }
            Action::GapMayHaveExpired(_) => {
                self.state.left.expiries -= 1;
                let todo = worker.draining().knows.gap_is_over(epoch, true);
                self.takes(worker, todo, false);
                return None;
            }
            Action::FindsItselfLost(_) => {
                let lease = worker.draining().lease;
                if self.on_entity(Op::Renew(lease)).reply == Reply::Lost {
                    self.state.left.renewals -= 1;
                    self.loses(worker);
                }
                return None;
            }
            Action::HandlerEnds(_, answer) => {
                self.handler_ends(worker, answer);
                return None;
            }
            _ => (Clock::Early, Heard),
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
            Step::PutOff(token) => {
                self.state.queue.push((token, false));
                worker.step = Step::Finish { delete: true };
            }
            Step::Finish { delete } => return Some(delete),
            Step::Ask => self.ask(worker, When::At(clock)),
            Step::ReadPage => self.read_page(worker),
            Step::Gap => self.void(worker, heard),
            Step::Mark => {
                let (sequence, _) = worker.draining().knows.place();
                let marked = self.on_entity(Op::MarkStart(worker.draining().lease, sequence)).reply;
                self.model.reach(Reached::StartWritten);
                match marked {
                    Reply::Lost if heard => self.loses(worker),
                    // Not heard of, it is started all the same.
                    _ => worker.step = Step::Start,
                }
            }
            Step::Start => self.start(worker),
            Step::Run => unreachable!("a handler ends"),
            Step::Spill { decided, commits } => self.spill(worker, decided, commits, heard),
            Step::Commit { decided, landed } => self.commit(worker, decided, landed, heard),
            Step::Park { ran } => {
                let (sequence, id) = worker.draining().knows.place();
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
            Step::Fail { attempts, retries, one_by_one, retry } => {
                let Draining { lease, knows, .. } = *worker.draining();
                let sequence = knows.place().0;
                let executed = self.on_entity(Op::Fail {
                    lease,
                    sequence,
                    attempts,
                    retries,
                    suspected: knows.state().is_suspect(),
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
            Step::Block(reason) => {
                let executed =
                    self.on_entity(Op::Block(worker.draining().lease, worker.draining().knows.place().0, reason));
                if heard {
                    self.model.reach(Reached::BlockExpired);
                    self.ended(worker, executed);
                }
            }
            Step::Announce => {
                self.on_entity(Op::MarkHandOver(worker.draining().lease));
                worker.step = Step::HandOver;
            }
            Step::HandOver => {
                let Draining { lease, is_stopped, .. } = *worker.draining();
                if !self.has(Rule::HandOverWithoutWakeUp) {
                    self.state.queue.push((Some(lease.token().0), false));
                }
                worker.step = if is_stopped { Step::LetGoBlindly } else { Step::LetGo };
            }
            // Whatever becomes of it, also where nothing is heard.
            Step::LetGoBlindly => {
                let op = match plan::stop(worker.is_replaced) {
                    plan::Stop::Release => Op::Release(worker.draining().lease),
                    plan::Stop::HandOver => hand_over(worker),
                };
                self.on_entity(op);
                self.ends(worker, Drained::Ended);
            }
            Step::LetGo => {
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
                let Draining { lease, knows, .. } = *worker.draining();
                let executed = self.on_entity(Op::ReleaseEmpty(lease, false, knows.is_on_hold()));
                match executed.reply {
                    _ if !heard => {}
                    Reply::Grown(view) => {
                        self.learns(worker, Learned::Seen(view));
                        self.turn(worker);
                    }
                    _ => self.ended(worker, executed),
                }
            }
        }
        None
    }

    // The beginning and the end.

    fn acquired(&mut self, number: usize, worker: &mut Worker, drawn: Drawn, executed: Executed, clock: Clock) {
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

    fn look(&mut self, number: usize, worker: &mut Worker, drawn: Drawn, answer: Answer, clock: Clock) {
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

    fn begins(&mut self, number: usize, worker: &mut Worker, drawn: Drawn, answer: Answer, clock: Clock) {
        match begun(answer, self.state.epoch, clock, self.model.capacity) {
            Begun::Granted(lease, knows) => {
                let state = knows.state();
                let waited = state.yield_until.is_some() || state.retry_at.is_some();
                worker.drain = Some(Draining { lease, knows, waited, is_stopped: false, group: Group::ONE });
                self.turn(worker);
            }
            Begun::Drained(drained) => self.ends(worker, drained),
            Begun::AskAgain => worker.step = Step::Acquire(self.draw(number)),
            Begun::TakeOver(seen) => worker.step = Step::TakeOver(drawn, seen),
        }
    }

    /// Its drain is over: what becomes of its wake-up?
    pub fn ends(&mut self, worker: &mut Worker, drained: Drained) {
        let wake_up = WakeUp { entity: entity().clone(), token: worker.token };
        worker.step = match fate(&wake_up, worker.is_replaced, drained, LEASE) {
            Fate::Delete => Step::Finish { delete: true },
            Fate::Keep => Step::Finish { delete: false },
            Fate::Replace(fresh, ..) => Step::PutOff(fresh.token),
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
    Op::HandOver(drain.lease, drain.knows.state().is_suspect())
}
