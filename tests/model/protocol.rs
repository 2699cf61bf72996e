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
    protocol::{format::attribute as a, state::BlockReason},
    sources::deliver::Deliver,
};

use crate::{
    audit::properties,
    reached::Reached,
    state::{Append, AppendStep, Budget, Exclusive, Message, Operator, State, Step, Worker},
    store::{Clock, Id, NonceId},
    without::{Changes, Rule},
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
    /// Every copy of a message shows a receive count above one.
    pub counts_are_shown: bool,
    /// The first worker starts with a copy of a message that was deleted long ago.
    pub stray: bool,
    /// The first worker is the first to receive its message, but knows that the message may be visible again.
    pub may_be_back: bool,
    pub budget: Budget,
    pub reached: Arc<AtomicU64>,
    pub violated: Arc<Mutex<BTreeSet<&'static str>>>,
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
            counts_are_shown: true,
            stray: false,
            may_be_back: false,
            budget: Budget::default(),
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
pub enum Answer {
    Done,
    Fails,
    TimesOut,
    Rejects,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Claim(usize, Clock, Hearing),
    Put(usize, Hearing),
    SendOwed(usize),
    IngestDies(usize),
    Receive(usize, usize),
    ReceiveCopy(usize),
    Work(usize, Clock, Hearing),
    RowWork(usize, Hearing),
    ReceiptWork(usize, Hearing),
    GapIsFilled(usize),
    GapMayHaveExpired(usize),
    StopsEarly(usize),
    StoreIsOut(usize),
    HandlerEnds(usize, Answer),
    RenewalFails(usize),
    WorkerDies(usize),
    LateEffect(usize),
    Exclusive(Clock, Hearing),
    ExclusiveLeaves,
    ExclusiveDies,
    Redrive(u64, Id),
    Unblock,
    ForceRelease,
    PutOnHold,
    Resume,
    Skip(u64),
    Rewind(u64),
    EndRewind,
    Operate(Clock, Hearing),
    OperateWakeUp,
    /// The operator's write is delayed, and the operator sends it again.
    OperateLate,
    LateWrite(usize),
    OperatorDies,
    Purge,
}

use Hearing::Lost;

/// A state under construction.
pub struct Next<'a> {
    pub model: &'a Protocol,
    pub state: State,
}

impl Protocol {
    pub fn reach(&self, what: Reached) {
        self.reached.fetch_or(1 << what as u8, Ordering::Relaxed);
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let arrivals = (0_u8..).zip(self.arrivals);
        let mut workers = vec![None; self.workers];
        if self.stray {
            let drawn = NonceId(100, 0);
            let again = self.counts_are_shown && !self.may_be_back && !self.changes.has(Rule::RedeliveryAcquiresAtOnce);
            let step = match again {
                true => Step::SendFresh,
                false if self.may_be_back && !self.changes.has(Rule::AcquireAfterVisibilityTimeout) => {
                    Step::Requeue(None)
                }
                false => Step::Acquire(drawn),
            };
            workers[0] = Some(Worker { message: Message::Deleted, token: None, is_replaced: again, step, drain: None });
        }
        vec![State {
            left: self.budget,
            epoch: 0,
            row: None,
            inbox: Vec::new(),
            queue: Vec::new(),
            appends: arrivals.map(|(author, id)| Append::new(Id { delivery: *id, redrive: 0 }, author)).collect(),
            workers,
            exclusive: Exclusive::Away,
            operator: Operator::Away,
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

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
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
                        Some(clock) => Action::Claim(number, clock, reply),
                        None => Action::Put(number, reply),
                    })
                },
                &mut || wakes = true,
            );
            if wakes {
                actions.push(Action::SendOwed(number));
            }
            if state.left.ingest_crashes > 0 && !append.is_over() && append.has_begun() {
                actions.push(Action::IngestDies(number));
            }
        }
        for number in 0..state.workers.len() {
            self.work_actions(state, number, actions);
        }
        actions.extend((0..state.late.len()).map(Action::LateEffect));
        self.exclusive_actions(state, actions);
        self.operator_actions(state, actions);
        actions.extend((0..state.late_writes.len()).map(Action::LateWrite));
        if state.left.purges > 0 && state.row.is_some_and(|row| row.get(a::PURGE_AT).is_some()) {
            actions.push(Action::Purge);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = Next { model: self, state: state.clone() };
        next.take(action);
        next.state.forget_old_tokens();
        (next.state != *state).then_some(next.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }
}

impl Next<'_> {
    pub fn has(&self, rule: Rule) -> bool {
        self.model.changes.has(rule)
    }

    fn take(&mut self, action: Action) {
        if let Action::Claim(.., Lost)
        | Action::Put(_, Lost)
        | Action::Work(.., Lost)
        | Action::RowWork(_, Lost)
        | Action::ReceiptWork(_, Lost)
        | Action::Exclusive(_, Lost)
        | Action::Operate(_, Lost) = action
        {
            self.state.left.lost_replies -= 1;
        }
        match action {
            Action::Claim(number, ..)
            | Action::Put(number, _)
            | Action::SendOwed(number)
            | Action::IngestDies(number) => {
                self.ingest(number, action);
            }
            Action::Receive(number, at) => {
                let (token, again) = self.state.queue.remove(at);
                self.receive(number, Message::Own, token, again);
            }
            Action::ReceiveCopy(number) => {
                self.state.left.copies -= 1;
                let mut others = self.state.workers.iter().flatten();
                let token = others.find(|other| other.message == Message::Own).and_then(|other| other.token);
                self.receive(number, Message::Copy, token, self.model.counts_are_shown);
            }
            Action::WorkerDies(number) => {
                self.state.left.worker_crashes -= 1;
                self.finish(number, false);
            }
            Action::LateEffect(number) => {
                let (token, sequence) = self.state.late.remove(number);
                self.effect(token, sequence);
            }
            Action::Exclusive(clock, reply) => self.take_exclusive_step(clock, reply),
            Action::ExclusiveLeaves => self.state.exclusive = Exclusive::Away,
            Action::ExclusiveDies => {
                self.state.left.exclusive_crashes -= 1;
                self.state.exclusive = Exclusive::Away;
            }
            Action::Purge => self.purge(),
            Action::Work(number, ..)
            | Action::StoreIsOut(number)
            | Action::RowWork(number, _)
            | Action::ReceiptWork(number, _)
            | Action::GapIsFilled(number)
            | Action::GapMayHaveExpired(number)
            | Action::StopsEarly(number)
            | Action::HandlerEnds(number, _)
            | Action::RenewalFails(number) => self.take_work_step(number, action),
            operator => self.take_operator_step(operator),
        }
    }

    fn ingest(&mut self, number: usize, action: Action) {
        let mut append = self.state.appends[number].clone();
        match action {
            Action::Claim(_, clock, reply) => self.claim(&mut append, clock, reply),
            Action::Put(_, reply) => self.put(&mut append, reply),
            Action::SendOwed(_) => self.send_owed(&mut append),
            Action::IngestDies(_) => {
                self.state.left.ingest_crashes -= 1;
                append.step = AppendStep::Ended;
            }
            other => unreachable!("{other:?} is not a step of ingest"),
        }
        self.state.appends[number] = append;
    }

    fn take_work_step(&mut self, number: usize, action: Action) {
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

    fn take_operator_step(&mut self, action: Action) {
        match action {
            Action::Redrive(sequence, id) => {
                self.state.left.redrives -= 1;
                self.model.reach(Reached::Redrive);
                self.state.operator = Operator::Check(sequence, id);
            }
            Action::Unblock => {
                self.state.left.unblocks -= 1;
                let view = self.state.view().expect("blocked");
                self.state.operator = match view.blocked {
                    Some(BlockReason::Expired) => Operator::VoidExpired(view.next().0),
                    _ => Operator::Unblock,
                };
            }
            Action::ForceRelease => {
                self.state.left.forced_releases -= 1;
                self.state.operator = Operator::Force(self.state.view().expect("held"));
            }
            Action::PutOnHold | Action::Resume | Action::Skip(_) => self.wants(action),
            Action::Rewind(from) => self.state.operator = self.wants_rewind(from),
            Action::EndRewind => self.state.operator = self.wants_end(),
            Action::OperateLate => self.sends_late(),
            Action::LateWrite(number) => {
                let op = self.state.late_writes.remove(number);
                self.on_entity(op);
            }
            Action::Operate(clock, reply) => self.operate(clock, reply),
            Action::OperateWakeUp => {
                if let Operator::Redrive(sequence, mut append) = self.state.operator.clone() {
                    self.send_owed(&mut append);
                    self.redriven(sequence, append);
                }
            }
            Action::OperatorDies => {
                self.state.left.ingest_crashes -= 1;
                if let Operator::Hold(_) | Operator::Resume(_) = self.state.operator {
                    self.state.reported_hold = None;
                }
                // The operator sent this delayed wake-up before its write.
                if let Operator::Resume(_)
                | Operator::SkipSettle(..)
                | Operator::RewindWrite(..)
                | Operator::RewindRelease(_)
                | Operator::EndSettle(..)
                | Operator::Unblock = self.state.operator
                {
                    self.state.queue.push((None, false));
                }
                self.state.operator = Operator::Away;
            }
            other => unreachable!("{other:?} is not a step of an operator"),
        }
    }
}
