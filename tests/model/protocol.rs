//! The steps of the model: which ones are possible in a state, and what each does.
//!
//! The production plan decides a drain's next step (`drain.rs`, `worker.rs`), and `Appending` decides what an
//! append owes (`ingest.rs`). A step is one store write, one queue send, or one step of a handler.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use stateright::{Model, Property};
use webhook_serializer::{
    engine::drain::plan::Memory,
    protocol::{format::attribute as a, receipt::PAGES, state::BlockReason},
    sources::deliver::Deliver,
};

use crate::{
    audit::properties,
    drain::RETENTION,
    reached::Reached,
    state::{
        Append, AppendStep, EventBudget, Exclusive, HeldMessage, ModelOperator, ModelState, ModelWorker, WorkerStep,
    },
    store::{ClockReading, ModelId, NonceId},
    without::{Changes, ViolatedRule},
};

/// A configuration: the deliveries, the setting, and the possible faults.
#[derive(Debug, Clone)]
pub struct Protocol {
    pub changes: Changes,
    /// The deliveries that arrive, each with its own ingest instance. Equal numbers are repeats.
    pub arrivals: &'static [u8],
    pub workers: usize,
    /// Handlers settle by commit.
    pub commit: bool,
    /// The source has a rate limit.
    pub rated: bool,
    /// The number of failed attempts after which a delivery is given up.
    pub attempts: u32,
    /// A delivery that is given up blocks the entity.
    pub block: bool,
    pub deliver: Deliver,
    /// The number of receipts in the row.
    pub capacity: usize,
    /// The most pages of receipts. Further receipts get separate rows.
    pub receipt_pages: usize,
    /// Every copy of a message shows a receive count above one.
    pub counts_are_shown: bool,
    /// The first worker starts with a copy of a message that was deleted long ago.
    pub stray: bool,
    /// The first worker is the first to receive its message, but knows that the message may be visible again.
    pub may_be_back: bool,
    pub budget: EventBudget,
    pub reached: Arc<AtomicU64>,
    pub violated: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Protocol {
    pub fn memory(&self) -> Memory {
        Memory { capacity: self.capacity, receipt_pages: self.receipt_pages, retention: RETENTION }
    }
}

impl Default for Protocol {
    fn default() -> Self {
        Self {
            changes: Changes::default(),
            arrivals: &[0],
            workers: 1,
            commit: false,
            rated: false,
            attempts: 2,
            block: false,
            deliver: Deliver::Each,
            capacity: 9,
            receipt_pages: PAGES,
            counts_are_shown: true,
            stray: false,
            may_be_back: false,
            budget: EventBudget::default(),
            reached: Arc::default(),
            violated: Arc::default(),
        }
    }
}

/// What happens to a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hearing {
    Heard,
    Lost,
}

/// How a handler ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandlerAnswer {
    Done,
    Fails,
    TimesOut,
    Rejects,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelAction {
    Claim(usize, ClockReading, Hearing),
    Put(usize, Hearing),
    SendOwed(usize),
    IngestDies(usize),
    Receive(usize, usize),
    ReceiveCopy(usize),
    Work(usize, ClockReading, Hearing),
    RowWork(usize, Hearing),
    ReceiptWork(usize, Hearing),
    GapIsFilled(usize),
    GapMayHaveExpired(usize),
    StopsEarly(usize),
    StoreIsOut(usize),
    HandlerEnds(usize, HandlerAnswer),
    RenewalFails(usize),
    WorkerDies(usize),
    LateEffect(usize),
    Exclusive(ClockReading, Hearing),
    ExclusiveLeaves,
    ExclusiveDies,
    Redrive(u64, ModelId),
    Unblock,
    ForceRelease,
    PutOnHold,
    Resume,
    Skip(u64),
    Rewind(u64),
    EndRewind,
    Operate(ClockReading, Hearing),
    OperateWakeUp,
    /// The operator's write is delayed, and the operator sends it again.
    OperateLate,
    LateWrite(usize),
    OperatorDies,
    Purge,
}

use Hearing::Lost;

/// A state under construction.
pub struct StateBuilder<'a> {
    pub model: &'a Protocol,
    pub state: ModelState,
}

impl Protocol {
    pub fn reach(&self, what: Reached) {
        self.reached.fetch_or(1 << what as u8, Ordering::Relaxed);
    }
}

impl Model for Protocol {
    type State = ModelState;
    type Action = ModelAction;

    fn init_states(&self) -> Vec<ModelState> {
        let arrivals = (0_u8..).zip(self.arrivals);
        let mut workers = vec![None; self.workers];
        if self.stray {
            let drawn = NonceId(100, 0);
            let again =
                self.counts_are_shown && !self.may_be_back && !self.changes.has(ViolatedRule::RedeliveryAcquiresAtOnce);
            let step = match again {
                true => WorkerStep::SendFresh,
                false if self.may_be_back && !self.changes.has(ViolatedRule::AcquireAfterVisibilityTimeout) => {
                    WorkerStep::Requeue(None)
                }
                false => WorkerStep::Acquire(drawn),
            };
            workers[0] =
                Some(ModelWorker { message: HeldMessage::Deleted, token: None, is_replaced: again, step, drain: None });
        }
        vec![ModelState {
            left: self.budget,
            epoch: 0,
            row: None,
            inbox: Vec::new(),
            queue: Vec::new(),
            appends: arrivals.map(|(author, id)| Append::new(ModelId { delivery: *id, redrive: 0 }, author)).collect(),
            workers,
            exclusive: Exclusive::Away,
            operator: ModelOperator::Away,
            receiver: (0, 0),
            late: Vec::new(),
            settled: Vec::new(),
            forgotten: Vec::new(),
            committed: Vec::new(),
            newest_token: 0,
            starts: 0,
            waiting_since: 0,
            violations: 0,
            reported_hold: Some(false),
            held_at: 0,
            rewound: Vec::new(),
            rewinds: 0,
            rewinds_wanted: 0,
            late_writes: Vec::new(),
        }]
    }

    fn actions(&self, state: &ModelState, actions: &mut Vec<ModelAction>) {
        if state.violations != 0 {
            return;
        }
        for (number, append) in state.appends.iter().enumerate() {
            // Interchangeable deliveries start in order.
            let waits = |other: usize| !state.appends[other].has_begun() && self.are_alike(other, number);
            if !append.has_begun() && (0..number).any(waits) {
                continue;
            }
            let mut wakes = false;
            self.append_actions(
                state,
                append,
                &mut |clock, reply| {
                    actions.push(match clock {
                        Some(clock) => ModelAction::Claim(number, clock, reply),
                        None => ModelAction::Put(number, reply),
                    })
                },
                &mut || wakes = true,
            );
            if wakes {
                actions.push(ModelAction::SendOwed(number));
            }
            if state.left.ingest_crashes > 0 && !append.is_over() && append.has_begun() {
                actions.push(ModelAction::IngestDies(number));
            }
        }
        for number in 0..state.workers.len() {
            self.work_actions(state, number, actions);
        }
        actions.extend((0..state.late.len()).map(ModelAction::LateEffect));
        self.exclusive_actions(state, actions);
        self.operator_actions(state, actions);
        actions.extend((0..state.late_writes.len()).map(ModelAction::LateWrite));
        if state.left.purges > 0 && state.row.is_some_and(|row| row.get(a::PURGE_AT).is_some()) {
            actions.push(ModelAction::Purge);
        }
    }

    fn next_state(&self, state: &ModelState, action: ModelAction) -> Option<ModelState> {
        let mut next = StateBuilder { model: self, state: state.clone() };
        next.take(action);
        next.state.forget_old_tokens();
        (next.state != *state).then_some(next.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }
}

impl StateBuilder<'_> {
    pub fn has(&self, rule: ViolatedRule) -> bool {
        self.model.changes.has(rule)
    }

    fn take(&mut self, action: ModelAction) {
        if let ModelAction::Claim(.., Lost)
        | ModelAction::Put(_, Lost)
        | ModelAction::Work(.., Lost)
        | ModelAction::RowWork(_, Lost)
        | ModelAction::ReceiptWork(_, Lost)
        | ModelAction::Exclusive(_, Lost)
        | ModelAction::Operate(_, Lost) = action
        {
            self.state.left.lost_replies -= 1;
        }
        match action {
            ModelAction::Claim(number, ..)
            | ModelAction::Put(number, _)
            | ModelAction::SendOwed(number)
            | ModelAction::IngestDies(number) => {
                self.ingest(number, action);
            }
            ModelAction::Receive(number, at) => {
                let (token, again) = self.state.queue.remove(at);
                self.receive(number, HeldMessage::Own, token, again);
            }
            ModelAction::ReceiveCopy(number) => {
                self.state.left.copies -= 1;
                let mut others = self.state.workers.iter().flatten();
                let token = others.find(|other| other.message == HeldMessage::Own).and_then(|other| other.token);
                self.receive(number, HeldMessage::Copy, token, self.model.counts_are_shown);
            }
            ModelAction::WorkerDies(number) => {
                self.state.left.worker_crashes -= 1;
                self.finish(number, false);
            }
            ModelAction::LateEffect(number) => {
                let (token, sequence) = self.state.late.remove(number);
                self.effect(token, sequence);
            }
            ModelAction::Exclusive(clock, reply) => self.take_exclusive_step(clock, reply),
            ModelAction::ExclusiveLeaves => self.state.exclusive = Exclusive::Away,
            ModelAction::ExclusiveDies => {
                self.state.left.exclusive_crashes -= 1;
                self.state.exclusive = Exclusive::Away;
            }
            ModelAction::Purge => self.purge(),
            ModelAction::Work(number, ..)
            | ModelAction::StoreIsOut(number)
            | ModelAction::RowWork(number, _)
            | ModelAction::ReceiptWork(number, _)
            | ModelAction::GapIsFilled(number)
            | ModelAction::GapMayHaveExpired(number)
            | ModelAction::StopsEarly(number)
            | ModelAction::HandlerEnds(number, _)
            | ModelAction::RenewalFails(number) => self.take_work_step(number, action),
            operator => self.take_operator_step(operator),
        }
    }

    fn ingest(&mut self, number: usize, action: ModelAction) {
        let mut append = self.state.appends[number].clone();
        match action {
            ModelAction::Claim(_, clock, reply) => self.claim(&mut append, clock, reply),
            ModelAction::Put(_, reply) => self.put(&mut append, reply),
            ModelAction::SendOwed(_) => self.send_owed(&mut append),
            ModelAction::IngestDies(_) => {
                self.state.left.ingest_crashes -= 1;
                append.step = AppendStep::Ended;
            }
            other => unreachable!("{other:?} is not a step of ingest"),
        }
        self.state.appends[number] = append;
    }

    fn take_work_step(&mut self, number: usize, action: ModelAction) {
        let mut worker = self.state.workers[number].take().expect("at work");
        let mut over = self.work(number, &mut worker, action);
        if over.is_none() {
            over = self.go_on(number, &mut worker);
        }
        self.state.workers[number] = Some(worker);
        if let Some(delete) = over {
            self.finish(number, delete);
        }
    }

    fn take_operator_step(&mut self, action: ModelAction) {
        match action {
            ModelAction::Redrive(sequence, id) => {
                self.state.left.redrives -= 1;
                self.model.reach(Reached::Redrive);
                self.state.operator = ModelOperator::Check(sequence, id);
            }
            ModelAction::Unblock => {
                self.state.left.unblocks -= 1;
                let view = self.state.view().expect("blocked");
                self.state.operator = match view.blocked {
                    Some(BlockReason::Expired) => ModelOperator::VoidExpired(view.next().0),
                    _ => ModelOperator::Unblock,
                };
            }
            ModelAction::ForceRelease => {
                self.state.left.forced_releases -= 1;
                self.state.operator = ModelOperator::Force(self.state.view().expect("held"));
            }
            ModelAction::PutOnHold | ModelAction::Resume | ModelAction::Skip(_) => self.wants(action),
            ModelAction::Rewind(from) => self.state.operator = self.wants_rewind(from),
            ModelAction::EndRewind => self.state.operator = self.wants_end(),
            ModelAction::OperateLate => self.sends_late(),
            ModelAction::LateWrite(number) => {
                let op = self.state.late_writes.remove(number);
                self.on_entity(op);
            }
            ModelAction::Operate(clock, reply) => self.operate(clock, reply),
            ModelAction::OperateWakeUp => {
                if let ModelOperator::Redrive(sequence, mut append) = self.state.operator.clone() {
                    self.send_owed(&mut append);
                    self.redriven(sequence, append);
                }
            }
            ModelAction::OperatorDies => {
                self.state.left.ingest_crashes -= 1;
                if let ModelOperator::Hold(_) | ModelOperator::Resume(_) = self.state.operator {
                    self.state.reported_hold = None;
                }
                // The operator sent this delayed wake-up before its write.
                if let ModelOperator::Resume(_)
                | ModelOperator::SkipSettle(..)
                | ModelOperator::RewindWrite(..)
                | ModelOperator::RewindRelease(_)
                | ModelOperator::EndSettle(..)
                | ModelOperator::Unblock = self.state.operator
                {
                    self.state.queue.push((None, false));
                }
                self.state.operator = ModelOperator::Away;
            }
            other => unreachable!("{other:?} is not a step of an operator"),
        }
    }
}
