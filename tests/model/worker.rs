//! A worker's steps. What to do is asked of the production plan each time; here
//! it is done, one store write, queue send or handler step at a time.

use std::time::Duration;

use webhook_serializer::{
    engine::{
        drain::{
            begin::{Begin, Drained, Fate, begin, fate},
            plan,
        },
        queue::WakeUp,
    },
    handler::Outcome,
    protocol::{
        lease::Acquired,
        state::{LeaseKind, Settlement},
    },
};

use crate::{
    changes::Change,
    drain::{Knows, Learned, at_the_end, moment, source},
    protocol::{Action, Answer as Answers, Hearing, Next, Protocol},
    reached::Reached,
    state::{Budget, Draining, Message, RowStep, State, Step, Worker},
    store::{
        Answer, Clock, Committing, Drawn, Executed, Item, LEASE, Op, Reply, Told, Transaction, entity, intern_lease,
        intern_view, time, told,
    },
};
use Hearing::{Heard, Lost};

/// More of the function's time than anything takes.
const AMPLE: Duration = Duration::from_secs(600);

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
            Step::Settle { decided, row, receipt, .. } => {
                let pending = matches!(row, RowStep::Last | RowStep::Next);
                if pending {
                    add(Action::RowWork);
                }
                let follows = self.receipt_follows(decided.settlement());
                if receipt == Some(false) && !(follows && pending) {
                    add(Action::ReceiptWork);
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
            | Step::RetryWakeUp(_)
            | Step::HandOver
            | Step::Start
            | Step::Finish { .. } => {
                actions.push(early(number, Heard));
            }
            Step::TakeOver(..)
            | Step::Mark
            | Step::LetGo
            | Step::LetGoBlindly
            | Step::MakeSure(_)
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

    /// Whether a receipt waits for its settle, rather than being written beside
    /// it.
    fn receipt_follows(&self, settlement: Settlement) -> bool {
        settlement == Settlement::Parked && !self.changes.has(Change::ReceiptBesideParking)
    }
}

impl Next<'_> {
    // The queue.

    pub fn receive(&mut self, number: usize, message: Message, token: Option<u64>, again: bool) {
        let is_replaced = again && !self.has(Change::ReceivedAgainAcquiresAtOnce);
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
        if self.has(Change::HolderFromRequest) {
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
                    moment(epoch, Clock::Early)
                } else {
                    self.state.left.overruns -= 1;
                    at_the_end(epoch)
                };
                if worker.step == Step::Gap {
                    worker.step = Step::HandOver;
                } else {
                    self.ask(worker, &when);
                }
                return None;
            }
            Action::GapIsFilled(_) => {
                self.learns(worker, Learned::Filled);
                self.turn(worker);
                return None;
            }
            Action::StoreIsOut(_) => {
                // As `Driver::stop`: one that was received again has been replaced already.
                worker.step = match worker.step {
                    Step::Announce => Step::HandOver,
                    _ => {
                        self.state.left.outages -= 1;
                        self.model.reach(Reached::StoreOut);
                        worker.draining_mut().is_stopped = true;
                        if worker.is_replaced { Step::LetGoBlindly } else { Step::Announce }
                    }
                };
                return None;
            }
            Action::GapMayHaveExpired(_) => {
                self.state.left.expiries -= 1;
                // Its retention is so short that half of it is over.
                let step = worker.draining().knows.gap_stays(time(epoch, Clock::Late), Duration::ZERO);
                self.takes(worker, step, false);
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
            Step::Ask => self.ask(worker, &moment(epoch, clock)),
            Step::ReadPage => self.read_page(worker),
            Step::MakeSure(told) => {
                self.on_item(Item::Receipt(told.0), Op::Receipt(told));
                if heard {
                    self.model.reach(Reached::ReceiptMadeSure);
                    self.learns(worker, Learned::MadeSure(told));
                    self.turn(worker);
                }
            }
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
            Step::Commit { landed } => self.commit(worker, landed, heard),
            Step::Park { ran } => {
                let (sequence, id) = worker.draining().knows.place();
                self.on_item(Item::Parked(sequence), Op::Park(id.expect("a delivery"), sequence));
                if heard {
                    self.settle(worker, Settlement::Parked, true, ran);
                }
            }
            Step::Settle { .. } => self.settle_step(worker, action, heard),
            Step::RetryWakeUp(attempts) => {
                if !self.has(Change::FailKeepsItsMessage) {
                    self.state.queue.push((None, false));
                }
                worker.step = Step::Fail { attempts, retry: true };
            }
            Step::Fail { attempts, retry } => {
                let Draining { lease, knows, .. } = *worker.draining();
                let sequence = knows.place().0;
                let executed = self.on_entity(Op::Fail { lease, sequence, attempts, retry });
                if heard {
                    self.model.reach(if retry { Reached::Retry } else { Reached::Block });
                    self.ended(worker, executed);
                    if self.has(Change::FailKeepsItsMessage) && retry && matches!(executed.reply, Reply::Ended(_)) {
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
                self.on_entity(Op::AnnounceEnd(worker.draining().lease));
                worker.step = Step::HandOver;
            }
            Step::HandOver => {
                let Draining { lease, is_stopped, .. } = *worker.draining();
                if !self.has(Change::HandOverWithoutWakeUp) {
                    self.state.queue.push((Some(lease.token().0), false));
                }
                worker.step = if is_stopped { Step::LetGoBlindly } else { Step::LetGo };
            }
            // Whatever becomes of it, also where nothing is heard.
            Step::LetGoBlindly => {
                let op = if worker.is_replaced { Op::Release(worker.draining().lease) } else { hand_over(worker) };
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
                let executed = self.on_entity(Op::ReleaseEmpty(worker.draining().lease));
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
        if let Acquired::Held(seen) = &*answer {
            worker.step = Step::Look(drawn, intern_view(seen));
        } else {
            if matches!(&*answer, Acquired::Granted(..)) && !executed.landed {
                self.model.reach(Reached::LostGrantRecognised);
            }
            self.begins(number, worker, drawn, answer, clock);
        }
    }

    fn look(&mut self, number: usize, worker: &mut Worker, drawn: Drawn, seen: crate::store::View, clock: Clock) {
        let answer = Answer::held(seen);
        let held = seen.held.as_ref().expect("held");
        let runs = held.runs(time(self.state.epoch, clock));
        let lets_go = if runs {
            held.kind == LeaseKind::Drain && self.has(Change::DropWhileDrained)
        } else {
            seen.is_empty() && self.has(Change::DeleteAtExpiredEmptyLease)
        };
        if lets_go {
            worker.step = Step::Finish { delete: true };
        } else {
            self.begins(number, worker, drawn, answer, clock);
        }
    }

    fn begins(&mut self, number: usize, worker: &mut Worker, drawn: Drawn, answer: Answer, clock: Clock) {
        match begin((*answer).clone(), time(self.state.epoch, clock), AMPLE, None) {
            Begin::Granted(lease, state) => {
                let (lease, view) = (intern_lease(lease), intern_view(&state));
                let waited = view.yield_until.is_some() || view.retry_at.is_some();
                worker.drain = Some(Draining { lease, knows: Knows::granted(view), waited, is_stopped: false });
                self.turn(worker);
            }
            Begin::NothingToDo => self.ends(worker, Drained::Ended),
            Begin::NotNow(delay, reason) => self.ends(worker, Drained::NotNow(delay, reason)),
            Begin::Awaits(token, delay) => self.ends(worker, Drained::Awaits(token, delay)),
            Begin::AskAfter(_) => worker.step = Step::Acquire(self.draw(number)),
            Begin::TakeOver { seen, .. } => worker.step = Step::TakeOver(drawn, intern_view(&seen)),
            Begin::LookWithin(_) => unreachable!("it does not wait"),
        }
    }

    /// Its drain is over: what becomes of its wake-up?
    fn ends(&mut self, worker: &mut Worker, drained: Drained) {
        let wake_up = WakeUp { entity: entity().clone(), token: worker.token };
        worker.step = match fate(&wake_up, worker.is_replaced, drained, LEASE) {
            Fate::Delete => Step::Finish { delete: true },
            Fate::Keep => Step::Finish { delete: false },
            Fate::Replace(fresh, ..) => Step::PutOff(fresh.token),
        };
    }

    fn loses(&mut self, worker: &mut Worker) {
        self.model.reach(Reached::LostLease);
        self.ends(worker, Drained::Lost);
    }

    fn ended(&mut self, worker: &mut Worker, executed: Executed) {
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

    // The drain.

    fn learns(&self, worker: &mut Worker, learned: Learned) {
        let drain = worker.draining_mut();
        drain.knows = drain.knows.learns(self.state.epoch, learned);
    }

    fn source(&self) -> std::sync::Arc<webhook_serializer::sources::Source> {
        source(self.model.attempts, self.model.block, self.model.rated)
    }

    /// What comes next; where the clocks have a say in it, that is a step.
    fn turn(&mut self, worker: &mut Worker) {
        let drain = worker.draining();
        let late = drain.knows.next_step(&moment(self.state.epoch, Clock::Late), &self.source());
        let is_over = matches!(late, plan::Step::ReleaseEmpty | plan::Step::Release | plan::Step::Block(_));
        if !is_over && (drain.has_to_wait() || self.state.left.overruns > 0) {
            worker.step = Step::Ask;
        } else {
            self.takes(worker, late, false);
        }
    }

    fn ask(&mut self, worker: &mut Worker, moment: &plan::Moment) {
        let step = worker.draining().knows.next_step(moment, &self.source());
        self.takes(worker, step, false);
    }

    /// Begins a step of the plan. `ran`: it follows a run of the handler.
    fn takes(&mut self, worker: &mut Worker, step: plan::Step, ran: bool) {
        let drain = worker.draining();
        worker.step = match step {
            plan::Step::ReleaseEmpty => Step::ReleaseEmpty,
            plan::Step::Release => Step::Release,
            plan::Step::Block(reason) => Step::Block(reason),
            plan::Step::HandOver(_, reason) => {
                if reason == webhook_serializer::telemetry::PutOffReason::Slice {
                    self.model.reach(Reached::Slice);
                }
                Step::HandOver
            }
            plan::Step::ReadPage(_) => Step::ReadPage,
            plan::Step::MakeSure(_) if self.has(Change::ReceiptNotMadeSure) => {
                let plan::Step::MakeSure(receipt) = step else { unreachable!() };
                self.learns(worker, Learned::MadeSure(told(&receipt)));
                return self.turn(worker);
            }
            plan::Step::MakeSure(receipt) => Step::MakeSure(told(&receipt)),
            plan::Step::AwaitGap => Step::Gap,
            plan::Step::Start if drain.knows.state().is_suspect() => Step::Mark,
            plan::Step::Start => Step::Start,
            plan::Step::Settle(settlement) => {
                if settlement != Settlement::Repeat && settlement != Settlement::Void {
                    self.model.reach(Reached::ReceiptWithoutSettle);
                }
                return self.settle(worker, settlement, false, ran);
            }
            plan::Step::Apply => return self.settle(worker, Settlement::Applied, true, ran),
            plan::Step::Commit(_) => Step::Commit { landed: false },
            plan::Step::SetAside(..) => {
                if !ran {
                    self.model.reach(Reached::KillerGivenUp);
                }
                Step::Park { ran }
            }
            plan::Step::Retry { attempts, .. } => Step::RetryWakeUp(attempts),
            plan::Step::GiveUp(attempts, _) => Step::Fail { attempts, retry: false },
            plan::Step::Wait(_) | plan::Step::Void(_) | plan::Step::FindSource | plan::Step::BeAlone(_) => {
                unreachable!("{step:?}: nothing here is that short, unknown or in company")
            }
        };
    }

    fn read_page(&mut self, worker: &mut Worker) {
        let (from, to) = (worker.draining().knows.state().next().0, worker.draining().knows.state().tail.0);
        self.read(worker, from, to);
    }

    fn read(&mut self, worker: &mut Worker, from: u64, to: u64) {
        let rows: Vec<_> = (from..=to).filter_map(|at| self.state.item(Item::Delivery(at))).collect();
        let receipts = self.state.inbox.iter().filter_map(|(item, row)| match item {
            Item::Receipt(id) => Some((*id, *row)),
            _ => None,
        });
        let receipts = receipts.collect();
        self.learns(worker, Learned::Read(from, rows, receipts));
        self.turn(worker);
    }

    /// Its wait at a gap is over.
    fn void(&mut self, worker: &mut Worker, heard: bool) {
        let (sequence, _) = worker.draining().knows.place();
        if self.has(Change::StepOverGaps) {
            if self.state.item(Item::Delivery(sequence + 1)).is_some() {
                self.read(worker, sequence + 1, sequence + 1);
            }
            return;
        }
        let stays = worker.draining().knows.gap_stays(time(self.state.epoch, Clock::Early), Duration::MAX);
        assert_eq!(stays, plan::Step::Void(webhook_serializer::protocol::entity::Sequence(sequence)));
        if self.state.is_awaited(sequence) {
            self.state.left.voids = self.state.left.voids.saturating_sub(1);
        }
        let learned = match self.on_item(Item::Delivery(sequence), Op::Void(sequence)).reply {
            _ if !heard => return,
            Reply::Voided => Learned::Voided,
            Reply::Filled => Learned::Filled,
            _ => unreachable!(),
        };
        self.learns(worker, learned);
        self.turn(worker);
    }

    fn handler_ends(&mut self, worker: &mut Worker, answer: Answers) {
        let Draining { lease, knows, .. } = *worker.draining();
        let (sequence, _) = knows.place();
        let retry = || Outcome::retry("");
        let outcome = match answer {
            Answers::Done if self.model.commit => Outcome::Commit(Vec::new()),
            // Its effect is refused: it says so.
            Answers::Done if !self.effect(lease.token().0, sequence) => retry(),
            Answers::Done => Outcome::Done,
            Answers::Fails => {
                self.state.left.failures -= 1;
                retry()
            }
            Answers::TimesOut => {
                self.state.left.timeouts -= 1;
                if !self.model.commit {
                    self.state.late.push((lease.token().0, sequence));
                }
                retry()
            }
            Answers::Rejects => {
                self.state.left.rejections -= 1;
                Outcome::Reject(String::new())
            }
        };
        self.takes(worker, knows.answer(outcome, &self.source()), true);
    }

    fn fails(&mut self, worker: &mut Worker) {
        let step = worker.draining().knows.failed(None, String::new(), &self.source(), 0.0);
        self.takes(worker, step, true);
    }

    fn told(&self, worker: &Worker, settlement: Settlement) -> Told {
        let Draining { lease, knows, .. } = *worker.draining();
        let (sequence, id) = knows.place();
        (id.expect("a delivery"), sequence, settlement, lease.token().0)
    }

    fn settle(&mut self, worker: &mut Worker, settlement: Settlement, with_receipt: bool, ran: bool) {
        let knows = worker.draining().knows;
        let decided = knows.decides(self.state.epoch, settlement, ran && self.model.rated);
        let hands_over = knows.hands_over(decided.sequence, self.state.left.slices > 0);
        if hands_over {
            self.state.left.slices -= 1;
        }
        let row = if knows.is_last(decided.sequence) { RowStep::Last } else { RowStep::Next };
        worker.step = Step::Settle { decided, row, receipt: with_receipt.then_some(false), hands_over };
    }

    /// The settle, or the receipt beside it; then what follows both.
    fn settle_step(&mut self, worker: &mut Worker, action: Action, heard: bool) {
        let Step::Settle { decided, mut row, mut receipt, hands_over } = worker.step else { unreachable!() };
        let token = worker.draining().lease.token().0;
        // The token is the one it was run under, also where the settle came first.
        let token = if matches!(row, RowStep::Went(_)) { token - 1 } else { token };
        let told = decided.id().map(|id| (id, decided.place(), decided.settlement(), token));
        if matches!(action, Action::ReceiptWork(..)) {
            let told = told.expect("a delivery");
            self.on_item(Item::Receipt(told.0), Op::Receipt(told));
            if !heard {
                return;
            }
            receipt = Some(true);
        } else {
            let drain = worker.draining_mut();
            let op = match row {
                RowStep::Last => Op::SettleAndRelease(drain.lease, decided),
                _ => Op::Settle(drain.lease, decided, hands_over),
            };
            let executed = self.on_entity(op);
            if !heard {
                return;
            }
            row = match executed.reply {
                Reply::Ended(_) => {
                    if !executed.landed {
                        self.model.reach(Reached::LostReleaseRecognised);
                    }
                    RowStep::Ended
                }
                Reply::Grown(view) => {
                    self.model.reach(Reached::Grown);
                    self.learns(worker, Learned::Seen(view));
                    RowStep::Next
                }
                Reply::Goes(lease, view) => {
                    if !executed.landed {
                        self.model.reach(Reached::LostSettleRecognised);
                    }
                    drain.lease = lease;
                    drain.waited &= decided.not_before.is_none();
                    RowStep::Went(view)
                }
                Reply::Lost => RowStep::Lost,
                _ => unreachable!(),
            };
        }
        worker.step = Step::Settle { decided, row, receipt, hands_over };
        let behind = self.model.receipt_follows(decided.settlement());
        if row == RowStep::Lost && (behind || receipt != Some(false)) {
            return self.loses(worker);
        }
        if matches!(row, RowStep::Last | RowStep::Next) || receipt == Some(false) {
            return;
        }
        match row {
            RowStep::Went(view) => {
                self.learns(worker, Learned::Settled(view, told.filter(|_| receipt.is_some())));
                self.turn(worker);
            }
            _ => self.ends(worker, Drained::Ended),
        }
    }

    /// Settle, receipt and effect in one transaction.
    fn commit(&mut self, worker: &mut Worker, landed: bool, heard: bool) {
        let Draining { lease, knows, .. } = *worker.draining();
        let told = self.told(worker, Settlement::Applied);
        let id = told.0;
        let decided = knows.decides(self.state.epoch, Settlement::Applied, self.model.rated);
        let hands_over = knows.hands_over(decided.sequence, self.state.left.slices > 0);
        let transaction = Transaction { lease, decided, told, hands_over, known: intern_view(knows.state()), landed };
        let rows = (self.state.row, self.state.item(Item::Receipt(id)));
        let (lands, committing) = transaction.judged(self.model.changes, self.state.epoch, rows.0, rows.1);
        if lands && !landed {
            if self.state.committed.contains(&id) {
                self.state.breaks(crate::state::Broken::Once);
            }
            self.state.committed.push(id);
            self.state.left.slices -= u8::from(hands_over);
            self.on_entity(Op::Settle(lease, decided, hands_over));
            self.on_item(Item::Receipt(id), Op::Receipt(told));
            self.model.reach(Reached::Commit);
        }
        if !heard {
            worker.step = Step::Commit { landed: landed || lands };
            if self.has(Change::DoubtfulCommitFails) {
                self.fails(worker);
            }
            return;
        }
        match committing {
            Committing::Landed(lease, view) => {
                let drain = worker.draining_mut();
                drain.lease = lease;
                drain.waited &= decided.not_before.is_none();
                self.learns(worker, Learned::Settled(view, Some(told)));
                self.turn(worker);
            }
            Committing::Lost => self.loses(worker),
            Committing::SettledBefore => {
                let believed = self.has(Change::CommitYieldsToReceipts);
                let settlement = if believed { Settlement::Applied } else { Settlement::Repeat };
                self.settle(worker, settlement, false, true);
            }
            Committing::Refused => self.fails(worker),
        }
    }
}

fn hand_over(worker: &Worker) -> Op {
    let drain = worker.draining();
    Op::HandOver(drain.lease, drain.knows.state().is_suspect())
}
