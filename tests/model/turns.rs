//! A drain's steps: what the production plan says, begun, and what came of it
//! told to the plan.

use webhook_serializer::{
    engine::drain::{begin::Drained, plan},
    protocol::{entity::Sequence, state::Settlement},
    telemetry::PutOffReason,
};

use crate::{
    drain::{Learned, Said, Sort, Todo, When},
    operations::{Op, Reply},
    protocol::{Action, Answer, Next},
    reached::Reached,
    state::{Broken, Draining, RowStep, Step, Worker},
    store::{Clock, Item, Told, told},
    transaction::{Committing, Transaction},
    without::Rule,
};

impl Next<'_> {
    pub fn learns(&self, worker: &mut Worker, learned: Learned) {
        let drain = worker.draining_mut();
        drain.knows = drain.knows.learns(self.state.epoch, learned);
    }

    pub fn sort(&self) -> Sort {
        (self.model.attempts, self.model.block, self.model.rated)
    }

    /// What comes next; where the clocks have a say in it, that is a step.
    pub fn turn(&mut self, worker: &mut Worker) {
        let drain = worker.draining();
        let late = drain.knows.next_step(self.state.epoch, When::At(Clock::Late), self.sort());
        let is_over = matches!(*late, plan::Step::ReleaseEmpty | plan::Step::Release | plan::Step::Block(_));
        if !is_over && (drain.has_to_wait() || self.state.left.overruns > 0) {
            worker.step = Step::Ask;
        } else {
            self.takes(worker, late, false);
        }
    }

    pub fn ask(&mut self, worker: &mut Worker, when: When) {
        let todo = worker.draining().knows.next_step(self.state.epoch, when, self.sort());
        self.takes(worker, todo, false);
    }

    /// Begins a step of the plan. `ran`: it follows a run of the handler.
    pub fn takes(&mut self, worker: &mut Worker, todo: Todo, ran: bool) {
        worker.step = match &*todo {
            plan::Step::ReleaseEmpty => Step::ReleaseEmpty,
            plan::Step::Release => Step::Release,
            plan::Step::Block(reason) => Step::Block(*reason),
            plan::Step::HandOver(_, reason) => {
                if *reason == PutOffReason::Slice {
                    self.model.reach(Reached::Slice);
                }
                Step::HandOver
            }
            plan::Step::ReadPage(_) => Step::ReadPage,
            plan::Step::MakeSure(receipt) if self.has(Rule::ReceiptNotMadeSure) => {
                self.learns(worker, Learned::MadeSure(told(receipt)));
                return self.turn(worker);
            }
            plan::Step::MakeSure(receipt) => Step::MakeSure(told(receipt)),
            plan::Step::AwaitGap => Step::Gap,
            plan::Step::Start { is_written: true } => Step::Mark,
            plan::Step::Start { is_written: false } => Step::Start,
            plan::Step::Settle(settlement) => {
                if !ran && !matches!(settlement, Settlement::Repeat | Settlement::Void) {
                    self.model.reach(Reached::ReceiptWithoutSettle);
                }
                return self.settle(worker, *settlement, false, ran);
            }
            plan::Step::Apply => return self.settle(worker, Settlement::Applied, true, ran),
            plan::Step::Commit(_) => Step::Commit { landed: false },
            plan::Step::SetAside(..) => {
                if !ran {
                    self.model.reach(Reached::KillerGivenUp);
                }
                Step::Park { ran }
            }
            plan::Step::Retry { attempts, .. } => Step::RetryWakeUp(*attempts),
            plan::Step::GiveUp(attempts, _) => Step::Fail { attempts: *attempts, retry: false },
            plan::Step::Wait(_) | plan::Step::Void(_) | plan::Step::FindSource | plan::Step::BeAlone(_) => {
                unreachable!("{todo:?}: nothing here is that short, unknown or in company")
            }
        };
    }

    pub fn read_page(&mut self, worker: &mut Worker) {
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
    pub fn void(&mut self, worker: &mut Worker, heard: bool) {
        let (sequence, _) = worker.draining().knows.place();
        if self.has(Rule::StepOverGaps) {
            if self.state.item(Item::Delivery(sequence + 1)).is_some() {
                self.read(worker, sequence + 1, sequence + 1);
            }
            return;
        }
        let todo = worker.draining().knows.gap_is_over(self.state.epoch, false);
        assert_eq!(*todo, plan::Step::Void(Sequence(sequence)));
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

    pub fn handler_ends(&mut self, worker: &mut Worker, answer: Answer) {
        let Draining { lease, knows, .. } = *worker.draining();
        let (sequence, _) = knows.place();
        let said = match answer {
            Answer::Done if self.model.commit => Said::Commit,
            // Its effect is refused: it says so.
            Answer::Done if !self.effect(lease.token().0, sequence) => Said::Retry,
            Answer::Done => Said::Done,
            Answer::Fails => {
                self.state.left.failures -= 1;
                Said::Retry
            }
            Answer::TimesOut => {
                self.state.left.timeouts -= 1;
                if !self.model.commit {
                    self.state.late.push((lease.token().0, sequence));
                }
                Said::Retry
            }
            Answer::Rejects => {
                self.state.left.rejections -= 1;
                Said::Reject
            }
        };
        self.takes(worker, knows.answer(said, self.sort()), true);
    }

    fn fails(&mut self, worker: &mut Worker) {
        let todo = worker.draining().knows.answer(Said::Retry, self.sort());
        self.takes(worker, todo, true);
    }

    fn told(&self, worker: &Worker, settlement: Settlement) -> Told {
        let Draining { lease, knows, .. } = *worker.draining();
        let (sequence, id) = knows.place();
        (id.expect("a delivery"), sequence, settlement, lease.token().0)
    }

    pub fn settle(&mut self, worker: &mut Worker, settlement: Settlement, with_receipt: bool, ran: bool) {
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
    pub fn settle_step(&mut self, worker: &mut Worker, action: Action, heard: bool) {
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
    pub fn commit(&mut self, worker: &mut Worker, landed: bool, heard: bool) {
        let Draining { lease, knows, .. } = *worker.draining();
        let told = self.told(worker, Settlement::Applied);
        let id = told.0;
        let decided = knows.decides(self.state.epoch, Settlement::Applied, self.model.rated);
        let hands_over = knows.hands_over(decided.sequence, self.state.left.slices > 0);
        let transaction = Transaction { lease, decided, told, hands_over, knows, landed, sort: self.sort() };
        let rows = [self.state.row, self.state.item(Item::Receipt(id))];
        let (lands, committing) = transaction.judged(self.model.changes, self.state.epoch, rows);
        if lands && !landed {
            if self.state.committed.contains(&id) {
                self.state.breaks(Broken::Once);
            }
            self.state.committed.push(id);
            self.state.left.slices -= u8::from(hands_over);
            self.on_entity(Op::Settle(lease, decided, hands_over));
            self.on_item(Item::Receipt(id), Op::Receipt(told));
            self.model.reach(Reached::Commit);
        }
        if !heard {
            worker.step = Step::Commit { landed: landed || lands };
            if self.has(Rule::DoubtfulCommitFails) {
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
            Committing::Follows(todo) => {
                // Believed to be its own.
                if self.has(Rule::CommitYieldsToReceipts) && *todo == plan::Step::Settle(Settlement::Repeat) {
                    return self.settle(worker, Settlement::Applied, false, true);
                }
                self.takes(worker, todo, true);
            }
        }
    }
}
