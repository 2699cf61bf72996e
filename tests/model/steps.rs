//! A drain's steps: carries out the production plan's steps and reports the results to it.

use webhook_serializer::{
    engine::drain::{
        begin::Drained,
        plan::{self, DeliveryGroup},
    },
    protocol::{
        entity::Sequence,
        format::attribute as a,
        inbox::Decision,
        keys::delivery_row,
        receipt::{Settlement, Spilled},
    },
    telemetry::RequeueReason,
};

use crate::{
    drain::{HandlerOutcome, Observation, PlanStep, PlanTime, SettleArgs, SourceKind},
    operations::{Op, OperationReply},
    protocol::{HandlerAnswer, ModelAction, StateBuilder},
    reached::Reached,
    state::{Draining, ModelWorker, RowStep, Violation, WorkerStep},
    store::{ClockReading, CopiedReceipts, DecisionRef, LeaseRef, ModelItem, RowRef, View, entity, intern_decision},
    transaction::{Committing, Transaction},
    without::ViolatedRule,
};

impl StateBuilder<'_> {
    pub fn observes(&self, worker: &mut ModelWorker, observation: Observation) {
        let drain = worker.draining_mut();
        drain.known = drain.known.observes(self.state.epoch, observation);
    }

    pub fn source_kind(&self) -> SourceKind {
        (self.model.attempts, self.model.block, self.model.rated, self.model.deliver)
    }

    /// Continues with the plan. If the clock matters, that is a separate step.
    pub fn turn(&mut self, worker: &mut ModelWorker) {
        let drain = worker.draining();
        let late = drain.known.next_step(self.state.epoch, PlanTime::At(ClockReading::Late), self.source_kind());
        let is_over = matches!(*late, plan::Step::ReleaseEmpty | plan::Step::Release | plan::Step::Block(_));
        if !is_over && (drain.has_to_wait() || self.state.left.overruns > 0) {
            worker.step = WorkerStep::Ask;
        } else {
            self.takes(worker, late, false);
        }
    }

    pub fn ask(&mut self, worker: &mut ModelWorker, when: PlanTime) {
        let todo = worker.draining().known.next_step(self.state.epoch, when, self.source_kind());
        self.takes(worker, todo, false);
    }

    /// Begins a step of the plan. `ran` says whether the handler has just run.
    pub fn takes(&mut self, worker: &mut ModelWorker, todo: PlanStep, ran: bool) {
        worker.step = match &*todo {
            plan::Step::ReleaseEmpty => WorkerStep::ReleaseEmpty,
            plan::Step::Release => WorkerStep::Release,
            plan::Step::Block(reason) => WorkerStep::Block(*reason),
            plan::Step::HandOver(_, reason) => {
                if *reason == RequeueReason::Slice {
                    self.model.reach(Reached::Slice);
                }
                WorkerStep::HandOver
            }
            plan::Step::ReadPage => WorkerStep::ReadPage,
            plan::Step::AwaitGap => WorkerStep::Gap,
            plan::Step::Start { must_record, group } => {
                worker.draining_mut().group = *group;
                if group.is_several() {
                    self.model.reach(Reached::Group);
                }
                if *must_record { WorkerStep::RecordStart } else { WorkerStep::Start }
            }
            plan::Step::Settle(settlement) => return self.settle(worker, *settlement, false, ran),
            plan::Step::Apply => return self.settle(worker, Settlement::Applied, false, ran),
            plan::Step::Commit(_) => return self.settle(worker, Settlement::Applied, true, ran),
            plan::Step::Park { .. } => {
                if !ran {
                    self.model.reach(Reached::KillerGivenUp);
                }
                WorkerStep::Park { ran }
            }
            plan::Step::Retry { attempts, retries, one_by_one, .. } => {
                let apart = one_by_one.is_some_and(|last| last > worker.draining().known.state().head);
                if apart {
                    self.model.reach(Reached::Apart);
                }
                let charged = self.has(ViolatedRule::GroupFailureCountsForFirst) && apart;
                WorkerStep::RetryWakeUp(*attempts + u32::from(charged), *retries, *one_by_one)
            }
            plan::Step::GiveUp { attempts, retries, .. } => {
                WorkerStep::Fail { attempts: *attempts, retries: *retries, one_by_one: None, retry: false }
            }
            plan::Step::Wait(_)
            | plan::Step::WriteTombstone(_)
            | plan::Step::FindSource
            | plan::Step::AwaitIsolation { .. } => {
                unreachable!("{todo:?}: nothing here is that short, unknown or in company")
            }
        };
    }

    pub fn read_page(&mut self, worker: &mut ModelWorker) {
        let from = worker.draining().known.state().next().0;
        let to = worker.draining().known.state().tail.0;
        self.read(worker, from, to);
    }

    fn read(&mut self, worker: &mut ModelWorker, from: u64, to: u64) {
        let mut rows: Vec<_> = (from..=to).filter_map(|at| self.state.item(ModelItem::Delivery(at))).collect();
        if self.has(ViolatedRule::GroupSpansGap) {
            rows = (from..).zip(rows).map(|(at, row)| moved(row, at)).collect();
        }
        let repeats_itself = self.has(ViolatedRule::RepeatsItself);
        let unread = match self.has(ViolatedRule::ReceiptsUnread) {
            true => Spilled::default(),
            false => worker.draining().known.unread(),
        };
        let receipts = self.state.inbox.iter().filter_map(|(item, row)| match item {
            ModelItem::Receipt(id) if unread.rows => Some((*id, if repeats_itself { elsewhere(*row) } else { *row })),
            _ => None,
        });
        let pages = unread.pages.then(|| self.state.receipt_pages().collect());
        self.observes(worker, Observation::Read(from, rows, receipts.collect(), pages));
        self.turn(worker);
    }

    /// Ends the wait at a gap.
    pub fn void(&mut self, worker: &mut ModelWorker, heard: bool) {
        let (sequence, _) = worker.draining().known.place();
        if self.has(ViolatedRule::StepOverGaps) {
            if self.state.item(ModelItem::Delivery(sequence + 1)).is_some() {
                self.read(worker, sequence + 1, sequence + 1);
            }
            return;
        }
        let todo = worker.draining().known.gap_is_over(self.state.epoch, false);
        assert_eq!(*todo, plan::Step::WriteTombstone(Sequence(sequence)));
        if self.state.is_awaited(sequence) {
            self.state.left.voids = self.state.left.voids.saturating_sub(1);
        }
        let observation = match self.on_item(ModelItem::Delivery(sequence), Op::Void(sequence)).reply {
            _ if !heard => return,
            OperationReply::Voided => Observation::Voided,
            OperationReply::Filled => Observation::Filled,
            _ => unreachable!(),
        };
        self.observes(worker, observation);
        self.turn(worker);
    }

    pub fn handler_ends(&mut self, worker: &mut ModelWorker, answer: HandlerAnswer) {
        let Draining { lease, known, group, .. } = *worker.draining();
        // If a group runs again, its effects are repeated from its first sequence on.
        let (sequence, _) = known.place();
        let answer = match answer {
            HandlerAnswer::Done if self.model.commit => HandlerOutcome::Commit,
            // A handler whose effect is refused fails.
            HandlerAnswer::Done if !self.effect(lease.token().0, sequence) => HandlerOutcome::Retry,
            HandlerAnswer::Done => HandlerOutcome::Done,
            HandlerAnswer::Fails => {
                self.state.left.failures -= 1;
                HandlerOutcome::Retry
            }
            HandlerAnswer::TimesOut => {
                self.state.left.timeouts -= 1;
                if !self.model.commit {
                    self.state.late.push((lease.token().0, sequence));
                }
                HandlerOutcome::Retry
            }
            HandlerAnswer::Rejects => {
                self.state.left.rejections -= 1;
                HandlerOutcome::Reject
            }
        };
        self.takes(worker, known.answer(answer, group, self.source_kind()), true);
    }

    fn fails(&mut self, worker: &mut ModelWorker) {
        let Draining { known, group, .. } = *worker.draining();
        let todo = known.answer(HandlerOutcome::Retry, group, self.source_kind());
        self.takes(worker, todo, true);
    }

    /// Settles the front and its group.
    pub fn settle(&mut self, worker: &mut ModelWorker, settlement: Settlement, commits: bool, ran: bool) {
        let Draining { lease, known, group, .. } = *worker.draining();
        let rated = (ran || commits) && self.model.rated;
        // Only the front can be parked, not a group.
        let group = if ran && settlement == Settlement::Applied { group } else { DeliveryGroup::ONE };
        let ended = SettleArgs { settlement, group, token: lease.token().0, rated };
        let decision = known.decides(self.state.epoch, ended);
        self.spills(worker, decision, commits);
    }

    /// Spills the receipts that the decision drops from the row, then settles.
    fn spills(&mut self, worker: &mut ModelWorker, decision: DecisionRef, commits: bool) {
        let known = worker.draining().known;
        if known.spills(decision).is_some() && !self.has(ViolatedRule::DropWithoutReceipt) {
            worker.step = WorkerStep::Spill { decision, commits };
        } else if commits {
            worker.step = WorkerStep::Commit { decision, landed: false };
        } else {
            let row = if known.is_last(decision.last()) { RowStep::Last } else { RowStep::Next };
            let hands_over = known.hands_over(decision.last(), self.state.left.slices > 0);
            self.state.left.slices -= u8::from(hands_over);
            let ahead = known.spills_ahead(decision).is_some();
            worker.step = WorkerStep::Settle { decision, row, ahead, hands_over };
        }
    }

    pub fn spill(&mut self, worker: &mut ModelWorker, decision: DecisionRef, commits: bool, heard: bool) {
        let receipts = worker.draining().known.spills(decision).expect("the decision drops receipts");
        self.on_item(receipts.item(), receipts.into());
        let is_row = matches!(receipts, CopiedReceipts::One(_));
        self.model.reach(if is_row { Reached::SpilledToRow } else { Reached::Spilled });
        if heard {
            self.observes(worker, Observation::Spilled(receipts));
            let marked = worker.draining().known.marks(decision);
            self.spills(worker, if self.has(ViolatedRule::SpilledUnmarked) { decision } else { marked }, commits);
        }
    }

    /// Leaves receipts that cannot be written in the row.
    pub fn cannot_spill(&mut self, worker: &mut ModelWorker, decision: DecisionRef, commits: bool) {
        self.model.reach(Reached::SpillFailed);
        self.spills(worker, intern_decision((*decision).clone().dropping_nothing()), commits);
    }

    /// Settles, or spills a receipt ahead.
    pub fn settle_step(&mut self, worker: &mut ModelWorker, action: ModelAction, heard: bool) {
        let WorkerStep::Settle { decision, row, hands_over, .. } = worker.step else { unreachable!() };
        if matches!(action, ModelAction::ReceiptWork(..)) {
            let receipts = worker.draining().known.spills_ahead(decision).expect("the next decision drops receipts");
            self.on_item(receipts.item(), receipts.into());
            if heard {
                self.model.reach(Reached::SpilledAhead);
                self.observes(worker, Observation::Spilled(receipts));
                worker.step = WorkerStep::Settle { decision, row, ahead: false, hands_over };
            }
            return;
        }
        let Draining { lease, known, .. } = *worker.draining();
        let op = match row {
            RowStep::Last => Op::SettleAndRelease(lease, decision, known.is_on_hold()),
            RowStep::Next => Op::Settle(lease, decision, hands_over),
        };
        let executed = self.on_entity(op);
        if !heard {
            return;
        }
        match executed.reply {
            OperationReply::Ended(_) => {
                if !executed.landed {
                    self.model.reach(Reached::LostReleaseRecognised);
                }
                self.ends(worker, Drained::Ended);
            }
            OperationReply::Grown(view) => {
                self.model.reach(Reached::Grown);
                self.observes(worker, Observation::Seen(view));
                self.spills(worker, decision, false);
            }
            OperationReply::Goes(lease, view) => {
                if !executed.landed {
                    self.model.reach(Reached::LostSettleRecognised);
                }
                self.is_settled(worker, lease, view, decision);
            }
            OperationReply::Lost => self.loses(worker),
            _ => unreachable!(),
        }
    }

    fn is_settled(&mut self, worker: &mut ModelWorker, lease: LeaseRef, view: View, decision: DecisionRef) {
        let drain = worker.draining_mut();
        drain.lease = lease;
        drain.group = DeliveryGroup::ONE;
        drain.waited &= decision.not_before.is_none();
        let decision = if self.has(ViolatedRule::HolderForgetsDrops) {
            intern_decision(Decision { dropped: Vec::new(), ..(*decision).clone() })
        } else {
            decision
        };
        self.observes(worker, Observation::Settled(view, decision));
        self.turn(worker);
    }

    pub fn commit(&mut self, worker: &mut ModelWorker, decision: DecisionRef, landed: bool, heard: bool) {
        let Draining { lease, known, group, .. } = *worker.draining();
        let hands_over = known.hands_over(decision.last(), self.state.left.slices > 0);
        let is_blind = self.has(ViolatedRule::CommitIgnoresHold);
        let transaction =
            Transaction { lease, decision, hands_over, known, landed, kind: self.source_kind(), group, is_blind };
        let (lands, committing) = transaction.judged(self.state.epoch, self.state.row);
        if lands && !landed {
            for (sequence, id) in known.handled(group) {
                let runs = self.state.rewound.iter().filter(|at| **at == sequence).count();
                if self.state.committed.iter().filter(|other| **other == id).count() > runs {
                    self.state.violates(Violation::Once);
                }
                self.state.committed.push(id);
            }
            self.state.left.slices -= u8::from(hands_over);
            let op = match transaction.releases() {
                true => Op::SettleAndRelease(lease, decision, known.is_on_hold()),
                false => Op::Settle(lease, decision, hands_over),
            };
            self.on_entity(op);
            self.model.reach(Reached::Commit);
        }
        if !heard {
            worker.step = WorkerStep::Commit { decision, landed: landed || lands };
            if self.has(ViolatedRule::DoubtfulCommitFails) {
                self.fails(worker);
            }
            return;
        }
        match committing {
            Committing::Landed(lease, view) => self.is_settled(worker, lease, view, decision),
            Committing::Released => {
                self.model.reach(Reached::CommitReleases);
                self.ends(worker, Drained::Ended);
            }
            Committing::Grown(view) => {
                let met = if view.is_on_hold() { Reached::HoldMetCommit } else { Reached::CommitGrown };
                self.model.reach(met);
                self.observes(worker, Observation::Seen(view));
                worker.step = WorkerStep::Commit { decision, landed: false };
            }
            Committing::Lost => self.loses(worker),
            Committing::Follows(todo) => self.takes(worker, todo, true),
        }
    }
}

/// Returns the receipt's row with the sequence 0.
fn elsewhere(row: RowRef) -> RowRef {
    RowRef::of((*row).clone().with(a::SEQUENCE, 0_u32))
}

/// Returns the delivery's row as if it were at the sequence `at`.
fn moved(row: RowRef, at: u64) -> RowRef {
    let (_, item) = delivery_row(entity(), Sequence(at)).sort.expect("an inbox row");
    RowRef::of((*row).clone().with(a::ITEM, item))
}
