//! The protocol as steps: which may be taken in a state, and what each does.
//!
//! | here | mirrors |
//! |---|---|
//! | `claim`, `put`, `send_owed` | `Inbox::append` |
//! | `acquired`, `look` | `Drainer::drain`, `Drainer::acquire` |
//! | `turn`, `next_item`, `read_page`, `deliver`, `settle_step`, `commit`, `failed`, `give_up` | `Turns`, function for function |
//! | `finish` | `Drainer::attend`, and the queue's side of it |
//! | `visit`, `operate` | an exclusive holder, `Operator` |
//!
//! One step is one store write, one queue send, or one step of a handler; what
//! lies between is decided at once, as in the code.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use stateright::{Model, Property};
use webhook_serializer::protocol::{
    format::attribute as a,
    inbox::owes_wake_up,
    state::{BlockReason, LeaseKind, Settlement},
};

use crate::{
    changes::{Change, Changes},
    reached::Reached,
    state::{
        Append, AppendStep, Broken, Budget, Drain, Message, Operator, Page, RowStep, State, Step, Visitor, Worker,
    },
    store::{
        Clock, Decided, Drawn, Executed, Held, Id, Item, Op, Reply, Stored, View, changed, committed, delivery_at,
        execute, is_at_head, owed_receipt, receipt_at, time, view_of,
    },
};

/// A configuration: what there is to do, and what may go wrong.
#[derive(Debug, Clone)]
pub struct Protocol {
    pub changes: Changes,
    /// The deliveries that arrive, one ingest instance each; the same one
    /// twice is a provider's repeat.
    pub arrivals: &'static [u8],
    pub workers: usize,
    /// Handlers answer with writes to be committed.
    pub commit: bool,
    /// Its source has a rate: the next handler starts no sooner than that.
    pub rated: bool,
    /// After how many failures a delivery is given up.
    pub attempts: u32,
    /// Given up: blocked instead of parked.
    pub block: bool,
    /// A copy of a message shows that it was received before.
    pub counts_are_shown: bool,
    /// The first worker begins with a copy of a message deleted long ago.
    pub stray: bool,
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
            counts_are_shown: true,
            stray: false,
            budget: Budget::default(),
            reached: Arc::default(),
            violated: Arc::default(),
        }
    }
}

/// Whether the author of a write hears what became of it.
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

/// One step of one actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Claim(usize, Clock, Hearing),
    Put(usize, Hearing),
    SendOwed(usize),
    IngestDies(usize),
    Receive(usize),
    ReceiveAgain(usize),
    ReceiveCopy(usize),
    Work(usize, Clock, Hearing),
    RowWork(usize, Hearing),
    ReceiptWork(usize, Hearing),
    GapIsFilled(usize),
    GapMayHaveExpired(usize),
    PutsOff(usize),
    StoreIsOut(usize),
    HandlerEnds(usize, Answer),
    FindsItselfLost(usize),
    WorkerDies(usize),
    LateEffect(usize),
    Visit(Clock, Hearing),
    VisitorLeaves,
    VisitorDies,
    Redrive(u64, Id),
    Unblock,
    ForceRelease,
    Operate(Clock, Hearing),
    OperateWakeUp,
    OperatorDies,
    Purge,
}

use Hearing::{Heard, Lost};

/// A state being changed.
struct Next<'a> {
    model: &'a Protocol,
    state: State,
}

const PLACES: u8 = 3;
const OPERATOR: u8 = 90;

impl Protocol {
    fn reach(&self, what: Reached) {
        self.reached.fetch_or(1 << what as u8, Ordering::Relaxed);
    }

    fn work_actions(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let Some(worker) = &state.workers[number] else {
            // Idle workers are alike: the first of them receives.
            if state.workers[..number].iter().any(Option::is_none) {
                return;
            }
            if state.fresh > 0 {
                actions.push(Action::Receive(number));
            }
            if state.again > 0 {
                actions.push(Action::ReceiveAgain(number));
            }
            let others = state.workers.iter().flatten();
            if state.left.copies > 0 && others.clone().any(|other| other.message == Message::Own) {
                actions.push(Action::ReceiveCopy(number));
            }
            return;
        };
        let lossy = state.left.lost_replies > 0;
        let mut writes: Vec<Action> = Vec::new();
        let mut write = |action: fn(usize, Hearing) -> Action| {
            writes.push(action(number, Heard));
            if lossy {
                writes.push(action(number, Lost));
            }
        };
        let early: fn(usize, Hearing) -> Action = |number, reply| Action::Work(number, Clock::Early, reply);
        let late: fn(usize, Hearing) -> Action = |number, reply| Action::Work(number, Clock::Late, reply);
        match worker.step {
            Step::Acquire(_) => {
                write(early);
                let view = state.row.map(|row| view_of(&row));
                if view.is_some_and(|view| view.retry_at.is_some() || view.yield_until.is_some()) {
                    write(late);
                }
            }
            Step::Look(..) => {
                actions.push(Action::Work(number, Clock::Early, Heard));
                if state.left.take_overs > 0 {
                    actions.push(Action::Work(number, Clock::Late, Heard));
                }
            }
            Step::SendFresh
            | Step::PutOff
            | Step::FailWakeUp(_)
            | Step::HandOver
            | Step::Lost
            | Step::Finish { .. } => actions.push(Action::Work(number, Clock::Early, Heard)),
            Step::ReadPage => {
                actions.push(Action::Work(number, Clock::Early, Heard));
                if state.left.outages > 0 {
                    actions.push(Action::StoreIsOut(number));
                }
            }
            Step::Turn => {
                actions.push(Action::Work(number, Clock::Late, Heard));
                if worker.drain.as_ref().is_some_and(Drain::has_to_wait) || state.left.overruns > 0 {
                    actions.push(Action::PutsOff(number));
                }
            }
            Step::Gap => {
                let drain = worker.drain.as_ref().expect("a drain");
                if state.item(Item::Delivery(drain.view.next().0)).is_some() {
                    actions.push(Action::GapIsFilled(number));
                }
                let awaited = state.appends.iter().chain(state.operator.append()).any(|append| {
                    matches!(append.step, AppendStep::Write { sequence, stored: None, .. } if sequence == drain.view.next().0)
                });
                if !awaited || state.left.voids > 0 {
                    write(early);
                }
                if state.left.overruns > 0 {
                    actions.push(Action::PutsOff(number));
                }
                if state.left.expiries > 0 {
                    actions.push(Action::GapMayHaveExpired(number));
                }
            }
            Step::Start(..) => actions.push(Action::Work(number, Clock::Early, Heard)),
            Step::Run(..) => {
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
                    actions.push(Action::FindsItselfLost(number));
                }
            }
            Step::Settle { decided, row, receipt, .. } => {
                let pending = matches!(row, RowStep::Last | RowStep::Next);
                if pending {
                    write(Action::RowWork);
                }
                let follows =
                    decided.settlement == Settlement::Parked && !self.changes.has(Change::ReceiptBesideParking);
                if receipt == Some(false) && !(follows && pending) {
                    write(Action::ReceiptWork);
                }
            }
            Step::TakeOver(..)
            | Step::Mark(..)
            | Step::LetGo
            | Step::LetGoBlindly
            | Step::MakeSure(..)
            | Step::Commit { .. }
            | Step::Park(..)
            | Step::Fail { .. }
            | Step::BlockExpired
            | Step::Release
            | Step::ReleaseEmpty => write(early),
        }
        actions.extend(writes);
        if state.left.worker_crashes > 0 {
            actions.push(Action::WorkerDies(number));
        }
    }

    fn append_actions(
        &self,
        state: &State,
        append: &Append,
        write: &mut dyn FnMut(Option<Clock>, Hearing),
        wake: &mut dyn FnMut(),
    ) {
        let lossy = state.left.lost_replies > 0;
        let replies: &[Hearing] = if lossy { &[Heard, Lost] } else { &[Heard] };
        match append.step {
            AppendStep::Claim => {
                let view = state.row.map(|row| view_of(&row));
                let timed = view.is_some_and(|view| view.held.is_some() || view.retry_at.is_some());
                let clocks: &[Clock] = if timed { &[Clock::Early, Clock::Late] } else { &[Clock::Early] };
                for clock in clocks {
                    for reply in replies {
                        write(Some(*clock), *reply);
                    }
                }
            }
            AppendStep::Write { stored, woken, .. } => {
                if stored.is_none() {
                    for reply in replies {
                        write(None, *reply);
                    }
                }
                if append.owed && !woken {
                    wake();
                }
            }
            AppendStep::Answered(_) | AppendStep::Ended => {}
        }
    }

    /// Whether two arrivals could change places and nobody would notice.
    fn are_alike(&self, one: usize, other: usize) -> bool {
        let arrivals = self.arrivals;
        let only = |number: usize| arrivals.iter().filter(|id| **id == arrivals[number]).count() == 1;
        arrivals[one] == arrivals[other] || only(one) && only(other)
    }

    /// Lets only the first violation of a property through: of those in one block
    /// of states, stateright 0.31 reports the last, which is not the shortest.
    fn first(&self, property: &'static str, holds: bool) -> bool {
        holds || !self.violated.lock().expect("no one panics while holding this").insert(property)
    }

    /// Whether somebody is sure to look at the entity, the sweep not counted.
    fn is_sure(&self, state: &State) -> bool {
        let owes = |append: &Append| match append.step {
            AppendStep::Claim => append.owed,
            AppendStep::Write { woken, .. } => append.owed && !woken,
            AppendStep::Answered(_) | AppendStep::Ended => false,
        };
        let operator = match &state.operator {
            Operator::Wake => true,
            Operator::Redrive(_, append) => owes(append),
            _ => false,
        };
        state.fresh + state.again > 0
            || operator
            || state.appends.iter().any(owes)
            || state
                .workers
                .iter()
                .flatten()
                .any(|worker| worker.message == Message::Own || !matches!(worker.step, Step::Finish { .. }))
    }

    fn no_loss(&self, state: &State) -> bool {
        let Some(row) = state.row else { return true };
        let view = view_of(&row);
        let waits = state.appends.iter().any(|append| {
            matches!(append.step, AppendStep::Answered(sequence) if sequence > view.head.0) && view.blocked.is_none()
        });
        !waits || self.is_sure(state)
    }

    fn one_holder(&self, state: &State) -> bool {
        let Some(row) = state.row else { return true };
        let Some(token) = row.get(a::HOLDER).and_then(|_| row.number(a::TOKEN)) else { return true };
        let running = state.workers.iter().flatten().filter(|worker| {
            matches!(worker.step, Step::Run(..) | Step::Commit { .. })
                && worker.drain.as_ref().is_some_and(|drain| drain.lease.token().0 == token)
        });
        let late = state.late.iter().filter(|(late, _)| *late == token).count();
        let visits = matches!(state.visitor, Visitor::Hold(lease) | Visitor::Leave(lease) if lease.token().0 == token);
        let failing = late > 0
            && state.workers.iter().flatten().any(|worker| {
                !matches!(worker.step, Step::Run(..) | Step::Commit { .. })
                    && worker.drain.as_ref().is_some_and(|drain| drain.lease.token().0 == token)
            });
        // A handler that was given up is its worker's one start until that is counted.
        running.count() + usize::from(visits) + late.saturating_sub(usize::from(failing)) <= 1
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let arrivals = (0_u8..).zip(self.arrivals);
        let mut workers = vec![None; self.workers];
        if self.stray {
            let drawn = Drawn(100, 0);
            let again = self.counts_are_shown && !self.changes.has(Change::ReceivedAgainAcquiresAtOnce);
            let step = if again { Step::SendFresh } else { Step::Acquire(drawn) };
            workers[0] = Some(Worker { message: Message::Deleted, is_replaced: again, step, drain: None });
        }
        vec![State {
            left: self.budget,
            epoch: 0,
            row: None,
            inbox: Vec::new(),
            fresh: 0,
            again: 0,
            appends: arrivals.map(|(author, id)| Append::new(Id { delivery: *id, redrive: 0 }, author)).collect(),
            workers,
            visitor: Visitor::Away,
            operator: Operator::Away,
            receiver: (0, 0),
            late: Vec::new(),
            settled: Vec::new(),
            forgotten: Vec::new(),
            committed: Vec::new(),
            newest_token: 0,
            starts: 0,
            waiting_since: 0,
            broken: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken != 0 {
            return;
        }
        for (number, append) in state.appends.iter().enumerate() {
            // Deliveries that could change places begin one after the other.
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
        self.visitor_actions(state, actions);
        self.operator_actions(state, actions);
        if state.left.purges > 0 && state.row.is_some_and(|row| row.get(a::PURGE_AT).is_some()) {
            actions.push(Action::Purge);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = Next { model: self, state: state.clone() };
        next.take(action);
        (next.state != *state).then_some(next.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ORDER, |model: &Self, state: &State| model.first(ORDER, !state.is_broken(Broken::Order))),
            Property::always(EXCLUSION, |model: &Self, state: &State| {
                model.first(EXCLUSION, !state.is_broken(Broken::Token) && model.one_holder(state))
            }),
            Property::always(NO_LATE_EFFECT, |model: &Self, state: &State| {
                model.first(NO_LATE_EFFECT, !state.is_broken(Broken::LateEffect))
            }),
            Property::always(NO_LOSS, |model: &Self, state: &State| {
                model.first(NO_LOSS, !state.is_broken(Broken::Loss) && model.no_loss(state))
            }),
            Property::always(ONCE, |model: &Self, state: &State| model.first(ONCE, !state.is_broken(Broken::Once))),
            Property::always(CHARGED, |model: &Self, state: &State| {
                model.first(CHARGED, !state.is_broken(Broken::Charge))
            }),
            Property::always(PENDING, |model: &Self, state: &State| model.first(PENDING, state.pending_is_told())),
            Property::always(DECIDED_ONCE, |model: &Self, state: &State| {
                model.first(DECIDED_ONCE, !state.is_broken(Broken::DecidedTwice))
            }),
        ]
    }
}

pub const ORDER: &str = "G1 order";
pub const EXCLUSION: &str = "G2 exclusion";
pub const NO_LATE_EFFECT: &str = "G2 no late effect";
pub const NO_LOSS: &str = "G3 no loss";
pub const ONCE: &str = "G4 once";
pub const CHARGED: &str = "a failure is charged to its own delivery, and to a start of it";
pub const PENDING: &str = "what waits has waited since it came";
pub const DECIDED_ONCE: &str = "a sequence is decided once";

impl Protocol {
    fn visitor_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let replies: &[Hearing] = if state.left.lost_replies > 0 { &[Heard, Lost] } else { &[Heard] };
        match state.visitor {
            Visitor::Away if state.left.visits == 0 => {}
            Visitor::Away | Visitor::Ask(_) | Visitor::Wake => actions.push(Action::Visit(Clock::Early, Heard)),
            Visitor::Poll => {
                actions.push(Action::Visit(Clock::Early, Heard));
                actions.push(Action::VisitorLeaves);
            }
            Visitor::Look(..) => {
                actions.push(Action::Visit(Clock::Early, Heard));
                if state.left.take_overs > 0 {
                    actions.push(Action::Visit(Clock::Late, Heard));
                }
            }
            Visitor::Acquire(_) | Visitor::TakeOver(..) | Visitor::Hold(_) | Visitor::Leave(_) => {
                actions.extend(replies.iter().map(|reply| Action::Visit(Clock::Early, *reply)));
            }
        }
        if state.left.visitor_crashes > 0
            && matches!(state.visitor, Visitor::Hold(_) | Visitor::Leave(_) | Visitor::Wake)
        {
            actions.push(Action::VisitorDies);
        }
    }

    fn operator_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let replies: &[Hearing] = if state.left.lost_replies > 0 { &[Heard, Lost] } else { &[Heard] };
        match &state.operator {
            Operator::Away => {
                let view = state.row.map(|row| view_of(&row));
                if state.left.redrives > 0 {
                    for (item, row) in &state.inbox {
                        if let Item::Parked(sequence) = item {
                            let id = delivery_at(row).expect("a delivery");
                            actions.push(Action::Redrive(*sequence, id));
                        }
                    }
                }
                if state.left.unblocks > 0 && view.is_some_and(|view| view.blocked.is_some()) {
                    actions.push(Action::Unblock);
                }
                if state.left.forced > 0 && view.is_some_and(|view| view.held.is_some()) {
                    actions.push(Action::ForceRelease);
                }
                return;
            }
            Operator::Redrive(_, append) => {
                let mut wakes = false;
                self.append_actions(
                    state,
                    append,
                    &mut |clock, reply| actions.push(Action::Operate(clock.unwrap_or(Clock::Early), reply)),
                    &mut || wakes = true,
                );
                if wakes {
                    actions.push(Action::OperateWakeUp);
                }
            }
            Operator::Check(..) | Operator::Forget(..) | Operator::Wake => {
                actions.push(Action::Operate(Clock::Early, Heard));
            }
            Operator::VoidExpired(_) | Operator::Unblock | Operator::Force(_) => {
                actions.extend(replies.iter().map(|reply| Action::Operate(Clock::Early, *reply)));
            }
        }
        // One that dies between its write and its wake-up has not said that it is done.
        if state.left.ingest_crashes > 0 && !matches!(state.operator, Operator::Wake) {
            actions.push(Action::OperatorDies);
        }
    }
}

impl Next<'_> {
    fn has(&self, change: Change) -> bool {
        self.model.changes.has(change)
    }

    fn view(&self) -> Option<View> {
        self.state.row.map(|row| view_of(&row))
    }

    fn take(&mut self, action: Action) {
        if let Action::Claim(.., Lost)
        | Action::Put(_, Lost)
        | Action::Work(.., Lost)
        | Action::RowWork(_, Lost)
        | Action::ReceiptWork(_, Lost)
        | Action::Visit(_, Lost)
        | Action::Operate(_, Lost) = action
        {
            self.state.left.lost_replies -= 1;
        }
        match action {
            Action::Claim(number, clock, reply) => {
                let mut append = self.state.appends[number].clone();
                self.claim(&mut append, clock, reply);
                self.state.appends[number] = append;
            }
            Action::Put(number, reply) => {
                let mut append = self.state.appends[number].clone();
                self.put(&mut append, reply);
                self.state.appends[number] = append;
            }
            Action::SendOwed(number) => {
                let mut append = self.state.appends[number].clone();
                self.send_owed(&mut append);
                self.state.appends[number] = append;
            }
            Action::IngestDies(number) => {
                self.state.left.ingest_crashes -= 1;
                self.state.appends[number].step = AppendStep::Ended;
            }
            Action::Receive(number) => {
                self.state.fresh -= 1;
                self.receive(number, Message::Own, false);
            }
            Action::ReceiveAgain(number) => {
                self.state.again -= 1;
                self.receive(number, Message::Own, true);
            }
            Action::ReceiveCopy(number) => {
                self.state.left.copies -= 1;
                self.receive(number, Message::Copy, self.model.counts_are_shown);
            }
            Action::WorkerDies(number) => {
                self.state.left.worker_crashes -= 1;
                self.finish(number, false);
            }
            Action::LateEffect(number) => {
                let (token, sequence) = self.state.late.remove(number);
                self.effect(token, sequence);
            }
            Action::Visit(clock, reply) => self.visit(clock, reply),
            Action::VisitorLeaves => self.state.visitor = Visitor::Away,
            Action::VisitorDies => {
                self.state.left.visitor_crashes -= 1;
                self.state.visitor = Visitor::Away;
            }
            Action::Redrive(sequence, id) => {
                self.state.left.redrives -= 1;
                self.model.reach(Reached::Redrive);
                self.state.operator = Operator::Check(sequence, id);
            }
            Action::Unblock => {
                self.state.left.unblocks -= 1;
                let view = self.view().expect("blocked");
                self.state.operator = match view.blocked {
                    Some(BlockReason::Expired) => Operator::VoidExpired(view.next().0),
                    _ => Operator::Unblock,
                };
            }
            Action::ForceRelease => {
                self.state.left.forced -= 1;
                self.state.operator = Operator::Force(self.view().expect("held"));
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
                self.state.operator = Operator::Away;
            }
            Action::Purge => self.purge(),
            Action::Work(number, ..)
            | Action::StoreIsOut(number)
            | Action::RowWork(number, _)
            | Action::ReceiptWork(number, _)
            | Action::GapIsFilled(number)
            | Action::GapMayHaveExpired(number)
            | Action::PutsOff(number)
            | Action::HandlerEnds(number, _)
            | Action::FindsItselfLost(number) => {
                let mut worker = self.state.workers[number].take().expect("at work");
                let mut over = self.work(number, &mut worker, action);
                if over.is_none() {
                    over = self.go_on(&mut worker);
                }
                self.state.workers[number] = Some(worker);
                if let Some(delete) = over {
                    self.finish(number, delete);
                }
            }
        }
    }

    /// Takes the steps that nothing can come between: those that write nothing,
    /// where no lease can be lost meanwhile, and the deletion of a message that
    /// nobody else has. A longer pause would be another worker's absence.
    fn go_on(&mut self, worker: &mut Worker) -> Option<bool> {
        loop {
            match worker.step {
                Step::Finish { delete } if self.nobody_fails() => return Some(delete),
                Step::Look(drawn, seen) if self.state.left.take_overs == 0 => {
                    self.look(worker, drawn, seen, Clock::Early);
                    if matches!(worker.step, Step::TakeOver(..)) {
                        unreachable!("a lease runs by an early clock");
                    }
                }
                Step::ReadPage if self.nobody_loses() && self.state.left.outages == 0 => self.read_page(worker),
                Step::Start(sequence, id) if self.nobody_loses() => self.start(worker, sequence, id),
                Step::Run(..) if self.nobody_loses() && self.handlers_succeed() => {
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

    /// No message can be received twice any more.
    fn nobody_fails(&self) -> bool {
        let copied = self.state.workers.iter().flatten().any(|worker| worker.message != Message::Own);
        self.state.left.worker_crashes == 0 && self.state.left.copies == 0 && !copied
    }

    /// No lease can be lost any more but by its holder's death.
    fn nobody_loses(&self) -> bool {
        self.state.left.take_overs + self.state.left.forced == 0
    }

    // Writes.

    /// Does an operation on the entity's row.
    fn on_entity(&mut self, op: Op) -> Executed {
        let before = self.state.row;
        let executed = execute(self.model.changes, self.state.epoch, op, before);
        self.state.row = executed.row;
        if executed.landed {
            let token = executed.row.and_then(|row| row.number(a::TOKEN)).unwrap_or(0);
            if matches!(op, Op::Acquire(..) | Op::TakeOver(..)) && token <= self.state.newest_token {
                self.state.breaks(Broken::Token);
            }
            self.state.newest_token = token.max(self.state.newest_token);
            if let Op::Fail { sequence, .. } = op
                && view_of(&before.expect("a row")).next().0 != sequence
            {
                self.state.breaks(Broken::Charge);
            }
            if let Op::Claim(_) = op
                && before.is_none_or(|row| view_of(&row).is_empty())
            {
                self.state.waiting_since = view_of(&executed.row.expect("claimed")).tail.0;
            }
            if let Op::MarkStart(..) = op {
                self.state.starts += 1;
            }
            if let Op::Unblock = op {
                self.state.starts = 0;
            }
            if let Op::Settle(_, decided, _) | Op::SettleAndRelease(_, decided) = op {
                self.state.starts = 0;
                self.decided(decided);
            }
            if executed.row.is_some_and(|row| view_of(&row).attempts > u32::from(self.state.starts)) {
                self.state.breaks(Broken::Charge);
            }
        }
        executed
    }

    /// Does an operation on an inbox row.
    fn on_item(&mut self, item: Item, op: Op) -> Executed {
        let before = self.state.item(item);
        let executed = execute(self.model.changes, self.state.epoch, op, before);
        self.state.store(item, executed.row);
        if executed.landed && before.is_some() && matches!(item, Item::Delivery(_)) {
            self.state.breaks(Broken::DecidedTwice);
        }
        executed
    }

    /// The handler of what stands at `sequence` is started.
    fn counts_start(&mut self, sequence: u64) {
        if self.view().is_some_and(|view| view.next().0 == sequence) {
            self.state.starts += 1;
        }
    }

    /// A sequence was settled: was that right?
    fn decided(&mut self, decided: Decided) {
        let applied = |other: &Decided| {
            other.settlement == Settlement::Applied
                && other.id.map(|id| id.delivery) == decided.id.map(|id| id.delivery)
        };
        match decided.settlement {
            Settlement::Applied => {
                if self.state.settled.iter().any(applied) {
                    self.state.breaks(Broken::Once);
                }
                if self.model.commit && !decided.id.is_some_and(|id| self.state.committed.contains(&id)) {
                    self.state.breaks(Broken::Loss);
                }
            }
            Settlement::Parked => {
                self.model.reach(Reached::Park);
                if self.state.item(Item::Parked(decided.sequence)).is_none() {
                    self.state.breaks(Broken::Loss);
                }
            }
            Settlement::Repeat => {
                self.model.reach(Reached::Repeat);
                let known = |other: &Decided| other.id == decided.id && other.settlement != Settlement::Repeat;
                // A receipt may come late, even longer after than retention.
                let once = decided.id.is_some_and(|id| self.state.forgotten.contains(&id));
                if !self.state.settled.iter().any(known) && !once {
                    self.state.breaks(Broken::Loss);
                }
            }
            Settlement::Void => {
                self.model.reach(Reached::Void);
                let marker = self.state.item(Item::Delivery(decided.sequence));
                if marker.is_none_or(|row| delivery_at(&row).is_some()) {
                    self.state.breaks(Broken::DecidedTwice);
                }
            }
        }
        self.state.settled.push(decided);
    }

    // Ingest.

    fn claim(&mut self, append: &mut Append, clock: Clock, reply: Hearing) {
        let executed = self.on_entity(Op::Claim(append.drawn()));
        if reply == Lost {
            append.doubt = true;
            return;
        }
        let Reply::Claimed(sequence, view) = executed.reply else { unreachable!() };
        if !executed.landed {
            self.model.reach(Reached::LostClaimRecognised);
        }
        let doubt = append.doubt && !self.has(Change::RetryClaimWithoutDoubt);
        let now = time(self.state.epoch, clock);
        let spared = self.has(Change::NoWakeUpDuringARatesWait) && view.retry_at.is_some_and(|at| at > now);
        append.owed |= doubt || owes_wake_up(&view, now) && !spared;
        append.doubt = false;
        append.after = (0..)
            .zip(&self.state.appends)
            .fold(0, |set, (number, other)| set | u8::from(matches!(other.step, AppendStep::Answered(_))) << number);
        append.step = AppendStep::Write { sequence, stored: None, woken: false };
    }

    fn put(&mut self, append: &mut Append, reply: Hearing) {
        let AppendStep::Write { sequence, woken, .. } = append.step else { unreachable!() };
        // The envelope keeps the first claim's nonce.
        let executed = self.on_item(Item::Delivery(sequence), Op::Put(append.id, Drawn(append.author, 0), sequence));
        if reply == Lost {
            return;
        }
        append.step = AppendStep::Write { sequence, stored: Some(executed.reply == Reply::Stored), woken };
        self.written(append);
    }

    fn send_owed(&mut self, append: &mut Append) {
        let AppendStep::Write { sequence, stored, .. } = append.step else { unreachable!() };
        self.state.fresh += 1;
        append.step = AppendStep::Write { sequence, stored, woken: true };
        self.written(append);
    }

    fn written(&mut self, append: &mut Append) {
        let AppendStep::Write { sequence, stored, woken } = append.step else { unreachable!() };
        let forgets = self.has(Change::ForgetOwedAfterVoid) && stored == Some(false);
        let answers = self.has(Change::AnswerBeforeWakeUp) && stored == Some(true);
        if append.owed && !woken && !forgets && !answers {
            return;
        }
        match stored {
            None => {}
            Some(true) => append.step = AppendStep::Answered(sequence),
            Some(false) => {
                append.place += 1;
                append.owed = !forgets;
                append.step = if append.place < PLACES { AppendStep::Claim } else { AppendStep::Ended };
                self.model.reach(Reached::PutFindsVoid);
            }
        }
    }

    // The queue.

    fn receive(&mut self, number: usize, message: Message, again: bool) {
        let is_replaced = again && !self.has(Change::ReceivedAgainAcquiresAtOnce);
        let step = if is_replaced { Step::SendFresh } else { Step::Acquire(self.draw(number)) };
        self.state.workers[number] = Some(Worker { message, is_replaced, step, drain: None });
    }

    /// The worker is done with its message, or dead.
    fn finish(&mut self, number: usize, delete: bool) {
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
                None => self.state.again += 1,
            },
            (Message::Copy | Message::Deleted, _) => {}
        }
    }

    /// A nonce that no row still holds of this author's.
    fn draw(&self, number: usize) -> Drawn {
        if self.has(Change::HolderFromRequest) {
            return Drawn(200, 0);
        }
        self.unused(100 + number as u8)
    }

    fn unused(&self, author: u8) -> Drawn {
        let holder = self.view().and_then(|view| view.held.as_ref().map(|held| held.holder.clone()));
        let mut drawn = Drawn(author, 0);
        while holder.as_ref() == Some(&drawn.nonce()) {
            drawn.1 += 1;
        }
        drawn
    }

    // Workers.

    /// One step of a worker; whether it is done with its message, and if so
    /// whether it deletes it.
    fn work(&mut self, number: usize, worker: &mut Worker, action: Action) -> Option<bool> {
        let (clock, reply) = match action {
            Action::Work(_, clock, reply) => (clock, reply),
            Action::RowWork(_, reply) | Action::ReceiptWork(_, reply) => (Clock::Early, reply),
            _ => (Clock::Early, Heard),
        };
        match action {
            Action::PutsOff(_) => {
                let drain = worker.drain.as_ref().expect("a drain");
                if drain.has_to_wait() && worker.step == Step::Turn {
                    self.model.reach(Reached::Yield);
                } else {
                    self.state.left.overruns -= 1;
                }
                worker.step = Step::HandOver;
                return None;
            }
            Action::GapIsFilled(_) => {
                let drain = worker.drain.as_mut().expect("a drain");
                drain.page = Page::default();
                self.turn(worker);
                return None;
            }
            Action::StoreIsOut(_) => {
                self.state.left.outages -= 1;
                self.model.reach(Reached::StoreOut);
                // As `Turns::stop`: one that was received again has been replaced already.
                if !worker.is_replaced {
                    self.state.fresh += 1;
                }
                worker.step = Step::LetGoBlindly;
                return None;
            }
            Action::GapMayHaveExpired(_) => {
                self.state.left.expiries -= 1;
                worker.step = Step::BlockExpired;
                return None;
            }
            Action::FindsItselfLost(_) => {
                let lease = worker.drain.as_ref().expect("a drain").lease;
                if self.on_entity(Op::Renew(lease)).reply == Reply::Lost {
                    self.state.left.renewals -= 1;
                    worker.step = Step::Lost;
                }
                return None;
            }
            Action::HandlerEnds(_, answer) => {
                self.handler_ends(worker, answer);
                return None;
            }
            _ => {}
        }
        match worker.step {
            Step::SendFresh => {
                self.state.fresh += 1;
                worker.step = Step::Acquire(self.draw(number));
            }
            Step::Acquire(drawn) => {
                let executed = self.on_entity(Op::Acquire(LeaseKind::Drain, drawn, clock));
                if reply == Heard {
                    self.acquired(number, worker, drawn, executed);
                }
            }
            Step::Look(drawn, seen) => self.look(worker, drawn, seen, clock),
            Step::TakeOver(drawn, seen) => {
                let executed = self.on_entity(Op::TakeOver(LeaseKind::Drain, drawn, seen));
                if executed.landed {
                    self.state.left.take_overs = self.state.left.take_overs.saturating_sub(1);
                    self.model.reach(Reached::TakeOver);
                }
                if reply == Heard {
                    self.acquired(number, worker, drawn, executed);
                }
            }
            Step::PutOff => {
                self.state.fresh += 1;
                worker.step = Step::Finish { delete: true };
            }
            Step::Turn => self.next_item(worker),
            Step::ReadPage => self.read_page(worker),
            Step::MakeSure(id, settlement) => {
                let drain = worker.drain.as_ref().expect("a drain");
                let (sequence, token) = (drain.view.head.0, drain.view.token.0);
                self.on_item(Item::Receipt(id), Op::Receipt { id, sequence, settlement, token, deciding: false });
                if reply == Heard {
                    self.model.reach(Reached::ReceiptMadeSure);
                    let drain = worker.drain.as_mut().expect("a drain");
                    drain.page.receipts.push((id, sequence, settlement));
                    drain.receipt_is_sure = true;
                    self.item(worker);
                }
            }
            Step::Gap => {
                let drain = worker.drain.as_ref().expect("a drain");
                let sequence = drain.view.next().0;
                if self.has(Change::StepOverGaps) {
                    let behind = self.state.item(Item::Delivery(sequence + 1)).and_then(|row| delivery_at(&row));
                    if let Some(id) = behind {
                        worker.step = Step::Start(sequence + 1, id);
                    }
                    return None;
                }
                let executed = self.on_item(Item::Delivery(sequence), Op::Void(sequence));
                let awaited = |append: &Append| matches!(append.step, AppendStep::Write { sequence: at, stored: None, .. } if at == sequence);
                if self.state.appends.iter().chain(self.state.operator.append()).any(awaited) {
                    self.state.left.voids = self.state.left.voids.saturating_sub(1);
                }
                match executed.reply {
                    _ if reply == Lost => {}
                    Reply::Voided => self.settle(worker, sequence, None, Settlement::Void, false),
                    Reply::Filled => self.turn(worker),
                    _ => unreachable!(),
                }
            }
            Step::Start(sequence, id) => self.start(worker, sequence, id),
            Step::Commit { .. } => self.commit(worker, reply),
            Step::Park(sequence, id) => {
                self.on_item(Item::Parked(sequence), Op::Park(id, sequence));
                if reply == Heard {
                    self.settle(worker, sequence, Some(id), Settlement::Parked, true);
                }
            }
            Step::Settle { .. } => self.settle_step(worker, action, reply),
            Step::FailWakeUp(sequence) => {
                let attempts = worker.drain.as_ref().expect("a drain").view.attempts + 1;
                if !self.has(Change::FailKeepsItsMessage) {
                    self.state.fresh += 1;
                }
                worker.step = Step::Fail { sequence, attempts, retry: true };
            }
            Step::Fail { sequence, attempts, retry } => {
                let lease = worker.drain.as_ref().expect("a drain").lease;
                let executed = self.on_entity(Op::Fail { lease, sequence, attempts, retry });
                if reply == Heard {
                    self.model.reach(if retry { Reached::Retry } else { Reached::Block });
                    self.ended(worker, executed);
                    if self.has(Change::FailKeepsItsMessage) && retry && worker.step != Step::Lost {
                        worker.step = Step::Finish { delete: false };
                    }
                }
            }
            Step::BlockExpired => {
                let drain = worker.drain.as_ref().expect("a drain");
                let executed = self.on_entity(Op::BlockExpired(drain.lease, drain.view.next().0));
                if reply == Heard {
                    self.model.reach(Reached::BlockExpired);
                    self.ended(worker, executed);
                }
            }
            Step::HandOver => {
                if !self.has(Change::HandOverWithoutWakeUp) {
                    self.state.fresh += 1;
                }
                worker.step = Step::LetGo;
            }
            Step::LetGo => {
                let drain = worker.drain.as_ref().expect("a drain");
                let executed = self.on_entity(Op::HandOver(drain.lease, drain.view.is_suspect()));
                if reply == Heard {
                    self.ended(worker, executed);
                }
            }
            // Whatever becomes of it, also where nothing is heard.
            Step::LetGoBlindly => {
                let drain = worker.drain.as_ref().expect("a drain");
                self.on_entity(Op::HandOver(drain.lease, drain.view.is_suspect()));
                worker.step = Step::Finish { delete: true };
            }
            Step::Mark(sequence, id) => {
                let lease = worker.drain.as_ref().expect("a drain").lease;
                let marked = self.on_entity(Op::MarkStart(lease, sequence)).reply;
                self.model.reach(Reached::StartWritten);
                worker.step = match marked {
                    Reply::Lost if reply == Heard => Step::Lost,
                    // Not heard of, it is started all the same.
                    _ => Step::Start(sequence, id),
                };
            }
            Step::Release => {
                let lease = worker.drain.as_ref().expect("a drain").lease;
                let executed = self.on_entity(Op::Release(lease));
                if reply == Heard {
                    self.ended(worker, executed);
                }
            }
            Step::ReleaseEmpty => {
                let drain = worker.drain.as_mut().expect("a drain");
                let executed = self.on_entity(Op::ReleaseEmpty(drain.lease));
                match executed.reply {
                    _ if reply == Lost => {}
                    Reply::Grown(view) => {
                        drain.view = view;
                        self.turn(worker);
                    }
                    _ => self.ended(worker, executed),
                }
            }
            Step::Lost => {
                self.model.reach(Reached::LostLease);
                self.state.fresh += 1;
                worker.step = Step::Finish { delete: true };
            }
            Step::Finish { delete } => return Some(delete),
            Step::Run(..) => unreachable!(),
        }
        None
    }

    fn acquired(&mut self, number: usize, worker: &mut Worker, drawn: Drawn, executed: Executed) {
        worker.step = match executed.reply {
            Reply::Granted(lease, view) => {
                if !executed.landed {
                    self.model.reach(Reached::LostGrantRecognised);
                }
                let waited = view.yield_until.is_some() || view.retry_at.is_some();
                worker.drain = Some(Drain { lease, view, page: Page::default(), receipt_is_sure: false, waited });
                return self.turn(worker);
            }
            Reply::Empty | Reply::Blocked => Step::Finish { delete: true },
            Reply::Waiting => Step::PutOff,
            Reply::Free => Step::Acquire(self.draw(number)),
            Reply::Seen(view) => Step::Look(drawn, view),
            _ => unreachable!(),
        };
    }

    fn look(&mut self, worker: &mut Worker, drawn: Drawn, seen: View, clock: Clock) {
        let held = seen.held.as_ref().expect("held");
        let runs = held.runs(time(self.state.epoch, clock));
        worker.step = if !runs && seen.is_empty() && self.has(Change::DeleteAtExpiredEmptyLease) {
            Step::Finish { delete: true }
        } else if !runs {
            Step::TakeOver(drawn, seen)
        } else if held.kind == LeaseKind::Drain && self.has(Change::DropWhileDrained) {
            Step::Finish { delete: true }
        } else {
            Step::PutOff
        };
    }

    fn turn(&mut self, worker: &mut Worker) {
        let drain = worker.drain.as_ref().expect("a drain");
        let view = drain.view;
        let choice = drain.has_to_wait() || self.state.left.overruns > 0;
        worker.step = if view.is_empty() {
            Step::ReleaseEmpty
        } else if view.blocked.is_some() {
            Step::Release
        } else if view.handover {
            self.model.reach(Reached::Slice);
            Step::HandOver
        } else if choice {
            Step::Turn
        } else {
            return self.next_item(worker);
        };
    }

    fn next_item(&mut self, worker: &mut Worker) {
        let drain = worker.drain.as_ref().expect("a drain");
        if drain.page.until < drain.view.next().0 {
            worker.step = Step::ReadPage;
        } else {
            self.item(worker);
        }
    }

    fn read_page(&mut self, worker: &mut Worker) {
        let drain = worker.drain.as_mut().expect("a drain");
        let view = drain.view;
        let owed = owed_receipt(&view).filter(|_| !drain.receipt_is_sure);
        let mut page = Page { until: view.head.0, receipts: Vec::new() };
        let mut wanted: Vec<Id> = owed.iter().map(|(id, _)| *id).collect();
        while page.until < view.tail.0
            && let Some(row) = self.state.item(Item::Delivery(page.until + 1))
        {
            wanted.extend(delivery_at(&row));
            page.until += 1;
        }
        wanted.sort_unstable();
        wanted.dedup();
        for id in wanted {
            if let Some(row) = self.state.item(Item::Receipt(id)) {
                let (sequence, settlement) = receipt_at(&row);
                page.receipts.push((id, sequence, settlement));
            }
        }
        let known = |id: &Id| page.receipts.iter().any(|(known, ..)| known == id);
        let missing = owed.filter(|(id, _)| !known(id)).filter(|_| !self.model.changes.has(Change::ReceiptNotMadeSure));
        drain.page = page;
        match missing {
            Some((id, settlement)) => worker.step = Step::MakeSure(id, settlement),
            None => {
                // As `make_sure_of_receipt` is not called where nothing was unsure.
                drain.receipt_is_sure |= owed.is_some();
                self.item(worker);
            }
        }
    }

    fn item(&mut self, worker: &mut Worker) {
        let drain = worker.drain.as_ref().expect("a drain");
        let sequence = drain.view.next().0;
        if drain.page.until < sequence {
            worker.step = Step::Gap;
            return;
        }
        match self.state.item(Item::Delivery(sequence)) {
            // Retention took it since it was read, long ago.
            None => worker.step = Step::Finish { delete: false },
            Some(row) => match delivery_at(&row) {
                None => self.settle(worker, sequence, None, Settlement::Void, false),
                Some(id) => self.deliver(worker, sequence, id),
            },
        }
    }

    fn deliver(&mut self, worker: &mut Worker, sequence: u64, id: Id) {
        let drain = worker.drain.as_ref().expect("a drain");
        let known = drain.page.receipts.iter().find(|(known, ..)| *known == id);
        match known {
            Some((_, at, settlement)) if *at == sequence => {
                self.model.reach(Reached::ReceiptWithoutSettle);
                let settlement = *settlement;
                return self.settle(worker, sequence, Some(id), settlement, false);
            }
            Some(_) => return self.settle(worker, sequence, Some(id), Settlement::Repeat, false),
            None if is_at_head(&drain.view, id) => {
                return self.settle(worker, sequence, Some(id), Settlement::Repeat, false);
            }
            None => {}
        }
        if drain.view.attempts >= self.model.attempts {
            self.model.reach(Reached::KillerGivenUp);
            return self.give_up(worker, sequence, id);
        }
        worker.step = if drain.view.is_suspect() { Step::Mark(sequence, id) } else { Step::Start(sequence, id) };
    }

    fn start(&mut self, worker: &mut Worker, sequence: u64, id: Id) {
        let lease = worker.drain.as_ref().expect("a drain").lease;
        let view = self.view();
        let behind = |other: u64| view.is_none_or(|view| view.head.0 >= other);
        let here = self.state.appends.iter().find(|append| match append.step {
            AppendStep::Answered(at) => at == sequence,
            AppendStep::Write { sequence: at, stored, .. } => at == sequence && stored != Some(false),
            _ => false,
        });
        if let Some(here) = here {
            let early = (0_u8..).zip(&self.state.appends).any(|(number, other)| {
                here.after & 1 << number != 0 && matches!(other.step, AppendStep::Answered(at) if !behind(at))
            });
            if early {
                self.state.breaks(Broken::Order);
            }
        }
        let newest = view.is_some_and(|view| lease.is_mine(&view));
        let done = |other: &Decided| other.id == Some(id) && other.settlement != Settlement::Repeat;
        if newest && self.state.settled.iter().any(done) {
            self.state.breaks(Broken::Once);
        }
        // Where it was written before, it counts already; written by one that did not come to it, it did too.
        if !worker.drain.as_ref().expect("a drain").view.is_suspect() {
            self.counts_start(sequence);
        }
        worker.step = Step::Run(sequence, id);
    }

    /// An effect comes to a receiver that remembers the newest token.
    fn effect(&mut self, token: u64, sequence: u64) -> bool {
        let (newest, last) = self.state.receiver;
        if token < newest && !self.has(Change::ReceiversIgnoreTokens) {
            self.model.reach(Reached::LateEffectRefused);
            return false;
        }
        if sequence < last {
            self.state.breaks(Broken::LateEffect);
        }
        self.state.receiver = (token.max(newest), sequence);
        true
    }

    fn handler_ends(&mut self, worker: &mut Worker, answer: Answer) {
        let Step::Run(sequence, id) = worker.step else { unreachable!() };
        let lease = worker.drain.as_ref().expect("a drain").lease;
        match answer {
            Answer::Done if self.model.commit => worker.step = Step::Commit { sequence, id, landed: false },
            Answer::Done => {
                if self.effect(lease.token().0, sequence) {
                    self.settle(worker, sequence, Some(id), Settlement::Applied, true);
                } else {
                    self.failed(worker, sequence, id);
                }
            }
            Answer::Fails => {
                self.state.left.failures -= 1;
                self.failed(worker, sequence, id);
            }
            Answer::TimesOut => {
                self.state.left.timeouts -= 1;
                if !self.model.commit {
                    self.state.late.push((lease.token().0, sequence));
                }
                self.failed(worker, sequence, id);
            }
            Answer::Rejects => {
                self.state.left.rejections -= 1;
                worker.step = Step::Park(sequence, id);
            }
        }
    }

    fn failed(&mut self, worker: &mut Worker, sequence: u64, id: Id) {
        let drain = worker.drain.as_mut().expect("a drain");
        let attempts = drain.view.attempts + 1;
        if attempts >= self.model.attempts {
            drain.view = changed(drain.view, |view| view.attempts = attempts);
            self.give_up(worker, sequence, id);
        } else {
            worker.step = Step::FailWakeUp(sequence);
        }
    }

    fn give_up(&mut self, worker: &mut Worker, sequence: u64, id: Id) {
        let attempts = worker.drain.as_ref().expect("a drain").view.attempts;
        worker.step =
            if self.model.block { Step::Fail { sequence, attempts, retry: false } } else { Step::Park(sequence, id) };
    }

    fn settle(
        &mut self,
        worker: &mut Worker,
        sequence: u64,
        id: Option<Id>,
        settlement: Settlement,
        with_receipt: bool,
    ) {
        let drain = worker.drain.as_ref().expect("a drain");
        let is_last = drain.view.tail.0 == sequence;
        let hands_over = !is_last && self.state.left.slices > 0;
        if hands_over {
            self.state.left.slices -= 1;
        }
        let row = if is_last { RowStep::Last } else { RowStep::Next };
        let rated = self.model.rated && settlement == Settlement::Applied;
        let drain = worker.drain.as_ref().expect("a drain");
        let decided = Decided { sequence, id, settlement, rated, since: self.since(drain, sequence, id) };
        worker.step = Step::Settle { decided, row, receipt: with_receipt.then_some(false), hands_over };
    }

    /// As `Turns::decision`: since when what is behind `sequence` waits.
    fn since(&self, drain: &Drain, sequence: u64, id: Option<Id>) -> Option<u64> {
        id?;
        if drain.view.tail.0 == sequence {
            return Some(sequence + 1);
        }
        let next = (drain.page.until > sequence).then(|| self.state.item(Item::Delivery(sequence + 1))).flatten();
        let is_delivery = next.is_some_and(|row| delivery_at(&row).is_some());
        Some(if is_delivery { sequence + 1 } else { sequence })
    }

    /// The settle, or the receipt beside it; then what follows both.
    fn settle_step(&mut self, worker: &mut Worker, action: Action, reply: Hearing) {
        let Step::Settle { decided, mut row, mut receipt, hands_over } = worker.step else { unreachable!() };
        let drain = worker.drain.as_mut().expect("a drain");
        let token = drain.lease.token().0;
        if matches!(action, Action::ReceiptWork(..)) {
            let id = decided.id.expect("a delivery");
            // The token is the one it was run under, also where the settle came first.
            let token = if row == RowStep::Went { token - 1 } else { token };
            let (sequence, settlement) = (decided.sequence, decided.settlement);
            self.on_item(Item::Receipt(id), Op::Receipt { id, sequence, settlement, token, deciding: false });
            if reply == Lost {
                return;
            }
            receipt = Some(true);
        } else {
            let op = match row {
                RowStep::Last => Op::SettleAndRelease(drain.lease, decided),
                _ => Op::Settle(drain.lease, decided, hands_over),
            };
            let executed = self.on_entity(op);
            if reply == Lost {
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
                    drain.view = view;
                    RowStep::Next
                }
                Reply::Goes(lease, view) => {
                    if !executed.landed {
                        self.model.reach(Reached::LostSettleRecognised);
                    }
                    drain.lease = lease;
                    drain.view = view;
                    drain.waited &= !decided.rated;
                    RowStep::Went
                }
                Reply::Lost => RowStep::Lost,
                _ => unreachable!(),
            };
        }
        worker.step = Step::Settle { decided, row, receipt, hands_over };
        let behind = self.receipt_follows(decided);
        if row == RowStep::Lost && (behind || receipt != Some(false)) {
            worker.step = Step::Lost;
            return;
        }
        if matches!(row, RowStep::Last | RowStep::Next) || receipt == Some(false) {
            return;
        }
        let drain = worker.drain.as_mut().expect("a drain");
        if let (Some(true), Some(id)) = (receipt, decided.id) {
            drain.receipt_is_sure = true;
            drain.page.receipts.push((id, decided.sequence, decided.settlement));
        }
        match row {
            RowStep::Ended => worker.step = Step::Finish { delete: true },
            _ => self.turn(worker),
        }
    }

    /// Whether the receipt waits for the settle, rather than being written
    /// beside it.
    fn receipt_follows(&self, decided: Decided) -> bool {
        decided.settlement == Settlement::Parked && !self.has(Change::ReceiptBesideParking)
    }

    /// Settle, receipt and effect in one transaction.
    fn commit(&mut self, worker: &mut Worker, reply: Hearing) {
        let Step::Commit { sequence, id, landed } = worker.step else { unreachable!() };
        let settlement = Settlement::Applied;
        let since = self.since(worker.drain.as_ref().expect("a drain"), sequence, Some(id));
        let drain = worker.drain.as_mut().expect("a drain");
        let decided = Decided { sequence, id: Some(id), settlement, rated: false, since };
        let token = drain.lease.token().0;
        let settle = Op::Settle(drain.lease, decided, false);
        let receipt = Op::Receipt { id, sequence, settlement, token, deciding: true };
        let (changes, epoch) = (self.model.changes, self.state.epoch);
        let settled = execute(changes, epoch, settle, self.state.row);
        let remembered = execute(changes, epoch, receipt, self.state.item(Item::Receipt(id)));
        let lands = !landed && settled.landed && remembered.landed;
        if lands {
            if self.state.committed.contains(&id) {
                self.state.breaks(Broken::Once);
            }
            self.state.committed.push(id);
            self.on_entity(settle);
            self.on_item(Item::Receipt(id), receipt);
            self.model.reach(Reached::Commit);
        }
        let landed = landed || lands;
        if reply == Lost {
            worker.step = Step::Commit { sequence, id, landed };
            if self.has(Change::DoubtfulCommitFails) {
                self.failed(worker, sequence, id);
            }
            return;
        }
        let lease: Held = match (landed, settled.reply) {
            (true, _) => match execute(changes, epoch, settle, self.state.row).reply {
                Reply::Goes(lease, _) => lease,
                // The same request was answered again after another took over: it still says landed.
                _ => return worker.step = Step::Lost,
            },
            (false, Reply::Goes(lease, _)) if !settled.landed => lease,
            (false, Reply::Lost) => return worker.step = Step::Lost,
            (false, _) => {
                // There is a receipt: settled before.
                let settlement = if self.has(Change::CommitYieldsToReceipts) { settlement } else { Settlement::Repeat };
                return self.settle(worker, sequence, Some(id), settlement, false);
            }
        };
        drain.view = committed(epoch, drain.lease, decided, false, drain.view);
        drain.lease = lease;
        drain.receipt_is_sure = true;
        drain.page.receipts.push((id, sequence, settlement));
        self.turn(worker);
    }

    fn ended(&mut self, worker: &mut Worker, executed: Executed) {
        worker.step = match executed.reply {
            Reply::Ended(_) => {
                if !executed.landed {
                    self.model.reach(Reached::LostReleaseRecognised);
                }
                Step::Finish { delete: true }
            }
            Reply::Lost => Step::Lost,
            _ => unreachable!(),
        };
    }

    // People.

    fn visit(&mut self, clock: Clock, reply: Hearing) {
        let heard = reply == Heard;
        self.state.visitor = match self.state.visitor {
            Visitor::Away => {
                self.state.left.visits -= 1;
                Visitor::Acquire(self.unused(50))
            }
            Visitor::Poll => Visitor::Acquire(self.unused(50)),
            Visitor::Acquire(drawn) => {
                let executed = self.on_entity(Op::Acquire(LeaseKind::Exclusive, drawn, Clock::Early));
                if heard { self.let_in(drawn, executed) } else { self.state.visitor }
            }
            Visitor::Look(drawn, seen) => {
                let held = seen.held.as_ref().expect("held");
                if !held.runs(time(self.state.epoch, clock)) {
                    Visitor::TakeOver(drawn, seen)
                } else if held.kind == LeaseKind::Drain {
                    Visitor::Ask(drawn)
                } else {
                    Visitor::Poll
                }
            }
            Visitor::TakeOver(drawn, seen) => {
                let executed = self.on_entity(Op::TakeOver(LeaseKind::Exclusive, drawn, seen));
                if executed.landed {
                    self.state.left.take_overs = self.state.left.take_overs.saturating_sub(1);
                }
                if heard { self.let_in(drawn, executed) } else { self.state.visitor }
            }
            Visitor::Ask(_) => {
                self.on_entity(Op::AskToYield);
                Visitor::Poll
            }
            Visitor::Hold(lease) => match self.on_entity(Op::ReleaseEmpty(lease)).reply {
                _ if !heard => self.state.visitor,
                Reply::Grown(_) => Visitor::Leave(lease),
                _ => Visitor::Away,
            },
            Visitor::Leave(lease) => match self.on_entity(Op::Release(lease)).reply {
                _ if !heard => self.state.visitor,
                Reply::Ended(Some(view)) if !view.is_empty() => Visitor::Wake,
                _ => Visitor::Away,
            },
            Visitor::Wake => {
                self.state.fresh += 1;
                Visitor::Away
            }
        };
    }

    fn let_in(&mut self, drawn: Drawn, executed: Executed) -> Visitor {
        match executed.reply {
            Reply::Granted(lease, _) => {
                self.model.reach(Reached::Exclusive);
                Visitor::Hold(lease)
            }
            Reply::Seen(view) => Visitor::Look(drawn, view),
            _ => Visitor::Acquire(self.unused(50)),
        }
    }

    fn operate(&mut self, clock: Clock, reply: Hearing) {
        let heard = reply == Heard;
        match self.state.operator.clone() {
            Operator::Away => {}
            Operator::Check(sequence, id) => {
                if !self.has(Change::RedriveUnasked) {
                    match self.settled_as(sequence, id) {
                        Some(Some(Settlement::Parked) | None) => {}
                        Some(Some(_)) => {
                            self.model.reach(Reached::ParkedAndApplied);
                            self.state.store(Item::Parked(sequence), None);
                            self.state.operator = Operator::Away;
                            return;
                        }
                        None => {
                            self.state.operator = Operator::Away;
                            return;
                        }
                    }
                }
                let redrive = if self.has(Change::RedriveKeepsItsNumber) { id.redrive } else { id.redrive + 1 };
                let append = Append::new(Id { redrive, ..id }, OPERATOR + self.state.left.redrives);
                self.state.operator = if self.has(Change::RedriveForgetsFirst) {
                    Operator::Forget(sequence, Some(append))
                } else {
                    Operator::Redrive(sequence, append)
                };
            }
            Operator::Redrive(sequence, mut append) => {
                match append.step {
                    AppendStep::Claim => self.claim(&mut append, clock, reply),
                    _ => self.put(&mut append, reply),
                }
                self.redriven(sequence, append);
            }
            Operator::Forget(sequence, append) => {
                let parked = self.state.item(Item::Parked(sequence)).and_then(|row| delivery_at(&row));
                if let Some(parked) = parked {
                    let again = Id { redrive: parked.redrive + 1, ..parked };
                    let stands = |(item, row): &(Item, Stored)| {
                        matches!(item, Item::Delivery(_)) && delivery_at(row) == Some(again)
                    };
                    let applied = |other: &Decided| {
                        other.id.is_some_and(|id| id.delivery == parked.delivery)
                            && other.settlement == Settlement::Applied
                    };
                    if !self.state.inbox.iter().any(stands) && !self.state.settled.iter().any(applied) {
                        self.state.breaks(Broken::Loss);
                    }
                }
                self.state.store(Item::Parked(sequence), None);
                self.state.operator = match append {
                    Some(append) => Operator::Redrive(sequence, append),
                    None => Operator::Away,
                };
            }
            Operator::VoidExpired(sequence) => {
                self.on_item(Item::Delivery(sequence), Op::Void(sequence));
                if heard {
                    self.state.operator = Operator::Unblock;
                }
            }
            Operator::Unblock => {
                self.on_entity(Op::Unblock);
                if heard {
                    self.model.reach(Reached::Unblock);
                    let silent = self.has(Change::UnblockWithoutWakeUp);
                    self.state.operator = if silent { Operator::Away } else { Operator::Wake };
                }
            }
            Operator::Wake => {
                self.state.fresh += 1;
                self.state.operator = Operator::Away;
            }
            Operator::Force(seen) => {
                let executed = self.on_entity(Op::ForceRelease(seen));
                if heard {
                    self.model.reach(Reached::Forced);
                    // The wake-up only hastens: whoever held it owes one of its own.
                    self.state.operator = Operator::Away;
                    let _ = executed;
                }
            }
        }
    }

    /// As `Operator::settled_as`. Two reads there, of what does not change any
    /// more; `None`: not yet decided.
    fn settled_as(&self, sequence: u64, id: Id) -> Option<Option<Settlement>> {
        let Some(view) = self.view() else { return Some(None) };
        if view.head.0 < sequence {
            return None;
        }
        if view.head.0 == sequence
            && let Some(last) = &view.last_settled
        {
            return Some(Some(last.settlement));
        }
        Some(self.state.item(Item::Receipt(id)).map(|row| receipt_at(&row).1))
    }

    fn redriven(&mut self, sequence: u64, append: Append) {
        self.state.operator = match append.step {
            AppendStep::Answered(_) => Operator::Forget(sequence, None),
            AppendStep::Ended => Operator::Away,
            _ => Operator::Redrive(sequence, append),
        };
    }

    /// TTL deletes an idle row, long after the rows of its inbox.
    fn purge(&mut self) {
        let view = self.view().expect("a row");
        let waits = |append: &Append| matches!(append.step, AppendStep::Answered(at) if at > view.head.0);
        if self.state.appends.iter().any(waits) {
            self.state.breaks(Broken::Loss);
        }
        self.model.reach(Reached::Purge);
        self.state.left.purges -= 1;
        self.state.row = None;
        self.state.epoch += 1;
        self.state.inbox.retain(|(item, _)| matches!(item, Item::Parked(_)));
        let ids = self.state.settled.drain(..).filter_map(|decided| decided.id);
        self.state.forgotten.extend(ids);
        self.state.committed.clear();
    }
}
