//! A drain's steps: what the production plan says, begun, and what came of it
//! told to the plan.

use webhook_serializer::{
    engine::drain::{
        begin::Drained,
        plan::{self, Group},
    },
    protocol::{entity::Sequence, format::attribute as a, inbox::Decision, keys::delivery_row, receipt::Settlement},
    telemetry::RequeueReason,
};

use crate::{
    drain::{Ended, Learned, Said, Sort, Todo, When},
    operations::{Op, Reply},
    protocol::{Action, Answer, Next},
    reached::Reached,
    state::{Broken, Draining, RowStep, Step, Worker},
    store::{Clock, Decided, Held, Item, Stored, View, entity},
    transaction::{Committing, Transaction},
    without::Rule,
};

impl Next<'_> {
    pub fn learns(&self, worker: &mut Worker, learned: Learned) {
        let drain = worker.draining_mut();
        drain.knows = drain.knows.learns(self.state.epoch, learned);
    }

    pub fn sort(&self) -> Sort {
        (self.model.attempts, self.model.block, self.model.rated, self.model.deliver)
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
                if *reason == RequeueReason::Slice {
                    self.model.reach(Reached::Slice);
                }
                Step::HandOver
            }
            plan::Step::ReadPage => Step::ReadPage,
            plan::Step::AwaitGap => Step::Gap,
            plan::Step::Start { is_written, group } => {
                worker.draining_mut().group = *group;
                if group.is_several() {
                    self.model.reach(Reached::Group);
                }
                if *is_written { Step::Mark } else { Step::Start }
            }
            plan::Step::Settle(settlement) => return self.settle(worker, *settlement, false, ran),
            plan::Step::Apply => return self.settle(worker, Settlement::Applied, false, ran),
            plan::Step::Commit(_) => return self.settle(worker, Settlement::Applied, true, ran),
            plan::Step::SetAside { .. } => {
                if !ran {
                    self.model.reach(Reached::KillerGivenUp);
                }
                Step::Park { ran }
            }
            plan::Step::Retry { attempts, retries, one_by_one, .. } => {
                let apart = one_by_one.is_some_and(|last| last > worker.draining().knows.state().head);
                if apart {
                    self.model.reach(Reached::Apart);
                }
                let charged = self.has(Rule::GroupIsCharged) && apart;
                Step::RetryWakeUp(*attempts + u32::from(charged), *retries, *one_by_one)
            }
            plan::Step::GiveUp(attempts, retries, _) => {
                Step::Fail { attempts: *attempts, retries: *retries, one_by_one: None, retry: false }
            }
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
        let mut rows: Vec<_> = (from..=to).filter_map(|at| self.state.item(Item::Delivery(at))).collect();
        if self.has(Rule::GroupOverAHole) {
            rows = (from..).zip(rows).map(|(at, row)| moved(row, at)).collect();
        }
        let repeats_itself = self.has(Rule::RepeatsItself);
        let asks = worker.draining().knows.has_spilled() && !self.has(Rule::ReceiptsUnread);
        let receipts = self.state.inbox.iter().filter_map(|(item, row)| match item {
            Item::Receipt(id) if asks => Some((*id, if repeats_itself { elsewhere(*row) } else { *row })),
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
        let Draining { lease, knows, group, .. } = *worker.draining();
        // What a group did elsewhere may come again from its first place on.
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
        self.takes(worker, knows.answer(said, group, self.sort()), true);
    }

    fn fails(&mut self, worker: &mut Worker) {
        let Draining { knows, group, .. } = *worker.draining();
        let todo = knows.answer(Said::Retry, group, self.sort());
        self.takes(worker, todo, true);
    }

    /// Decides the places in front so; with what its handler writes, or without.
    pub fn settle(&mut self, worker: &mut Worker, settlement: Settlement, commits: bool, ran: bool) {
        let Draining { lease, knows, group, .. } = *worker.draining();
        let rated = (ran || commits) && self.model.rated;
        // What is set aside is the one in front.
        let group = if ran && settlement == Settlement::Applied { group } else { Group::ONE };
        let ended = Ended { settlement, group, token: lease.token().0, rated };
        let decided = knows.decides(self.state.epoch, ended);
        self.spills(worker, decided, commits);
    }

    /// What drops out of the row is written elsewhere first.
    fn spills(&mut self, worker: &mut Worker, decided: Decided, commits: bool) {
        let knows = worker.draining().knows;
        if !knows.spills(decided).is_empty() && !self.has(Rule::DropWithoutReceipt) {
            worker.step = Step::Spill { decided, commits };
        } else if commits {
            worker.step = Step::Commit { decided, landed: false };
        } else {
            let row = if knows.is_last(decided.last()) { RowStep::Last } else { RowStep::Next };
            let hands_over = knows.hands_over(decided.last(), self.state.left.slices > 0);
            self.state.left.slices -= u8::from(hands_over);
            let ahead = !knows.spills_ahead(decided).is_empty();
            worker.step = Step::Settle { decided, row, ahead, hands_over };
        }
    }

    /// One receipt is written.
    pub fn spill(&mut self, worker: &mut Worker, decided: Decided, commits: bool, heard: bool) {
        let told = worker.draining().knows.spills(decided)[0];
        self.on_item(told.item(), Op::Spill(told));
        self.model.reach(Reached::Spilled);
        if heard {
            self.learns(worker, Learned::Spilled(told));
            self.spills(worker, decided, commits);
        }
    }

    /// It cannot be written: it stays in the row.
    pub fn cannot_spill(&mut self, worker: &mut Worker, decided: Decided, commits: bool) {
        self.model.reach(Reached::SpillPutOff);
        self.spills(worker, crate::store::decided((*decided).clone().dropping_nothing()), commits);
    }

    /// The settle, or what is written ahead beside it.
    pub fn settle_step(&mut self, worker: &mut Worker, action: Action, heard: bool) {
        let Step::Settle { decided, row, hands_over, .. } = worker.step else { unreachable!() };
        if matches!(action, Action::ReceiptWork(..)) {
            let told = worker.draining().knows.spills_ahead(decided)[0];
            self.on_item(told.item(), Op::Spill(told));
            if heard {
                self.model.reach(Reached::SpilledAhead);
                self.learns(worker, Learned::Spilled(told));
                worker.step = Step::Settle { decided, row, ahead: false, hands_over };
            }
            return;
        }
        let Draining { lease, knows, .. } = *worker.draining();
        let op = match row {
            RowStep::Last => Op::SettleAndRelease(lease, decided, knows.is_on_hold()),
            RowStep::Next => Op::Settle(lease, decided, hands_over),
        };
        let executed = self.on_entity(op);
        if !heard {
            return;
        }
        match executed.reply {
            Reply::Ended(_) => {
                if !executed.landed {
                    self.model.reach(Reached::LostReleaseRecognised);
                }
                self.ends(worker, Drained::Ended);
            }
            Reply::Grown(view) => {
                self.model.reach(Reached::Grown);
                self.learns(worker, Learned::Seen(view));
                self.spills(worker, decided, false);
            }
            Reply::Goes(lease, view) => {
                if !executed.landed {
                    self.model.reach(Reached::LostSettleRecognised);
                }
                self.is_settled(worker, lease, view, decided);
            }
            Reply::Lost => self.loses(worker),
            _ => unreachable!(),
        }
    }

    fn is_settled(&mut self, worker: &mut Worker, lease: Held, view: View, decided: Decided) {
        let drain = worker.draining_mut();
        drain.lease = lease;
        drain.group = Group::ONE;
        drain.waited &= decided.not_before.is_none();
        let decided = if self.has(Rule::DropsForgotten) {
            crate::store::decided(Decision { dropped: Vec::new(), ..(*decided).clone() })
        } else {
            decided
        };
        self.learns(worker, Learned::Settled(view, decided));
        self.turn(worker);
    }

    /// Settle and effect in one transaction.
    pub fn commit(&mut self, worker: &mut Worker, decided: Decided, landed: bool, heard: bool) {
        let Draining { lease, knows, group, .. } = *worker.draining();
        let hands_over = knows.hands_over(decided.last(), self.state.left.slices > 0);
        let is_blind = self.has(Rule::CommitBlindToHold);
        let transaction = Transaction { lease, decided, hands_over, knows, landed, sort: self.sort(), group, is_blind };
        let (lands, committing) = transaction.judged(self.state.epoch, self.state.row);
        if lands && !landed {
            for (sequence, id) in knows.handled(group) {
                let runs = self.state.rewound.iter().filter(|at| **at == sequence).count();
                if self.state.committed.iter().filter(|other| **other == id).count() > runs {
                    self.state.breaks(Broken::Once);
                }
                self.state.committed.push(id);
            }
            self.state.left.slices -= u8::from(hands_over);
            let op = match transaction.releases() {
                true => Op::SettleAndRelease(lease, decided, knows.is_on_hold()),
                false => Op::Settle(lease, decided, hands_over),
            };
            self.on_entity(op);
            self.model.reach(Reached::Commit);
        }
        if !heard {
            worker.step = Step::Commit { decided, landed: landed || lands };
            if self.has(Rule::DoubtfulCommitFails) {
                self.fails(worker);
            }
            return;
        }
        match committing {
            Committing::Landed(lease, view) => self.is_settled(worker, lease, view, decided),
            Committing::Released => {
                self.model.reach(Reached::CommitReleases);
                self.ends(worker, Drained::Ended);
            }
            Committing::Grown(view) => {
                let met = if view.hold.since().is_some() { Reached::HoldMetCommit } else { Reached::CommitGrown };
                self.model.reach(met);
                self.learns(worker, Learned::Seen(view));
                worker.step = Step::Commit { decided, landed: false };
            }
            Committing::Lost => self.loses(worker),
            Committing::Follows(todo) => self.takes(worker, todo, true),
        }
    }
}

/// A receipt as if it spoke of another place.
fn elsewhere(row: Stored) -> Stored {
    Stored::of((*row).clone().with(a::SEQUENCE, 0_u32))
}

/// A row as if it stood at this place.
fn moved(row: Stored, at: u64) -> Stored {
    let (_, item) = delivery_row(entity(), Sequence(at)).sort.expect("an inbox row");
    Stored::of((*row).clone().with(a::ITEM, item))
}
