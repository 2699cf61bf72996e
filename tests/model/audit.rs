//! The properties. Each is checked in every state, or at every step that could violate it.

use stateright::Property;
use webhook_serializer::protocol::{format::attribute as a, receipt::Settlement};

use crate::{
    operations::{Executed, Op, execute},
    protocol::{Protocol, StateBuilder},
    reached::Reached,
    state::{
        Append, AppendStep, Draining, Exclusive, HeldMessage, ModelOperator, ModelState, ModelWorker, Violation,
        WorkerStep,
    },
    store::{DecisionRef, ModelItem, ReceiptRef, RowRef, delivery_at, view_of},
    without::ViolatedRule,
};

pub const ORDER: &str = "G1 order";
pub const EXCLUSION: &str = "G2 exclusion";
pub const NO_LATE_EFFECT: &str = "G2 no late effect";
pub const NO_LOSS: &str = "G3 no loss";
pub const ONCE: &str = "G4 once";
pub const CHARGED: &str = "a failure counts for a start of its own delivery";
pub const PENDING: &str = "`pending_since` is the age of the front";
pub const HOLD: &str = "nothing starts on hold, and holds are as reported";
pub const SKIPPED: &str = "a skip parks the delivery that the operator saw";
pub const REWOUND: &str = "a rewind runs what was applied, once per request";
pub const WAITS: &str = "`waits` tells what the row's error and block tell";
pub const DECIDED_ONCE: &str = "a sequence is decided once";

pub fn properties() -> Vec<Property<Protocol>> {
    macro_rules! always {
        ($name:ident, |$model:ident, $state:ident| $holds:expr) => {
            Property::always($name, |$model: &Protocol, $state: &ModelState| $model.report_first($name, $holds))
        };
        ($name:ident, $violation:ident) => {
            always!($name, |model, state| !state.is_violated(Violation::$violation))
        };
    }
    vec![
        always!(ORDER, Order),
        always!(EXCLUSION, |model, state| !state.is_violated(Violation::Token) && model.one_holder(state)),
        always!(NO_LATE_EFFECT, LateEffect),
        always!(NO_LOSS, |model, state| !state.is_violated(Violation::Loss) && model.no_loss(state)),
        always!(ONCE, Once),
        always!(CHARGED, Charge),
        always!(PENDING, |model, state| state.is_pending_since_correct()),
        always!(HOLD, |model, state| !state.is_violated(Violation::Hold) && state.is_hold_as_reported()),
        always!(SKIPPED, Skip),
        always!(REWOUND, Rewind),
        always!(WAITS, |model, state| state.row.is_none_or(|row| are_waits_due(&row))),
        always!(DECIDED_ONCE, DecidedTwice),
    ]
}

fn are_waits_due(row: &RowRef) -> bool {
    let view = view_of(row);
    view.waits == view.due_waits()
}

impl Protocol {
    /// Reports only the first violation of a property. stateright 0.31 reports the last violation in a block
    /// of states, which is not the one with the shortest path.
    pub fn report_first(&self, property: &'static str, holds: bool) -> bool {
        holds || !self.violated.lock().expect("no one panics while holding this").insert(property)
    }

    /// Returns whether somebody is certain to look at the entity even without the sweep.
    pub fn is_sure(&self, state: &ModelState) -> bool {
        let owes = |append: &Append| match append.step {
            AppendStep::Claim => append.known.owed,
            AppendStep::Write { owed, .. } => owed.is_some(),
            AppendStep::Answered(_) | AppendStep::Ended => false,
        };
        let operator = match &state.operator {
            ModelOperator::Wake | ModelOperator::Resume(_) => true,
            ModelOperator::SkipLook(..)
            | ModelOperator::SkipPark(..)
            | ModelOperator::SkipSettle(..)
            | ModelOperator::SkipRelease(_) => true,
            ModelOperator::RewindLook(..)
            | ModelOperator::RewindSpill(..)
            | ModelOperator::RewindWrite(..)
            | ModelOperator::RewindRelease(_)
            | ModelOperator::EndLook(_)
            | ModelOperator::EndSettle(..) => true,
            ModelOperator::Redrive(_, append) => owes(append),
            _ => false,
        };
        !state.queue.is_empty()
            || operator
            || state.appends.iter().any(owes)
            || state
                .workers
                .iter()
                .flatten()
                .any(|worker| worker.message == HeldMessage::Own || !matches!(worker.step, WorkerStep::Finish { .. }))
    }

    fn no_loss(&self, state: &ModelState) -> bool {
        let Some(row) = state.row else { return true };
        let view = view_of(&row);
        let waits = state.appends.iter().any(|append| {
            matches!(append.step, AppendStep::Answered(sequence) if sequence > view.head.0) && !view.is_stopped()
        });
        // An answered delivery that no longer waits was settled under its own identity.
        let gone = state.appends.iter().any(|append| {
            let AppendStep::Answered(sequence) = append.step else { return false };
            let receipt = |receipt: &ReceiptRef| receipt.sequence.0 == sequence && receipt.id() == Some(append.id);
            sequence <= view.head.0 && !state.settled.iter().any(receipt) && !state.forgotten.contains(&append.id)
        });
        !gone && (!waits || self.is_sure(state))
    }

    fn one_holder(&self, state: &ModelState) -> bool {
        let Some(row) = state.row else { return true };
        let Some(token) = row.get(a::HOLDER).and_then(|_| row.number(a::TOKEN)) else { return true };
        let running = state.workers.iter().flatten().filter(|worker| {
            matches!(worker.step, WorkerStep::Run | WorkerStep::Spill { commits: true, .. } | WorkerStep::Commit { .. })
                && worker.drain.as_ref().is_some_and(|drain| drain.lease.token().0 == token)
        });
        let late = state.late.iter().filter(|(late, _)| *late == token).count();
        let is_exclusive =
            matches!(state.exclusive, Exclusive::Hold(lease) | Exclusive::Leave(lease) if lease.token().0 == token);
        let failing = late > 0
            && state.workers.iter().flatten().any(|worker| {
                !matches!(
                    worker.step,
                    WorkerStep::Run | WorkerStep::Spill { commits: true, .. } | WorkerStep::Commit { .. }
                ) && worker.drain.as_ref().is_some_and(|drain| drain.lease.token().0 == token)
            });
        // Until its failure is counted, a handler that timed out is its worker's only start.
        running.count() + usize::from(is_exclusive) + late.saturating_sub(usize::from(failing)) <= 1
    }
}

impl StateBuilder<'_> {
    /// Runs an operation on the entity's row.
    pub fn on_entity(&mut self, op: Op) -> Executed {
        let before = self.state.row;
        let executed = execute(self.model.changes, self.state.epoch, op, before);
        self.state.row = executed.row;
        if executed.landed {
            let token = executed.row.and_then(|row| row.number(a::TOKEN)).unwrap_or(0);
            if matches!(op, Op::Acquire(..) | Op::TakeOver(..)) && token <= self.state.newest_token {
                self.state.violates(Violation::Token);
            }
            self.state.newest_token = token.max(self.state.newest_token);
            if let Op::Fail { sequence, .. } = op
                && view_of(&before.expect("a row")).next().0 != sequence
            {
                self.state.violates(Violation::Charge);
            }
            if let Op::Claim(_) = op
                && before.is_none_or(|row| view_of(&row).is_empty())
            {
                self.state.waiting_since = view_of(&executed.row.expect("claimed")).tail.0;
            }
            if let Op::TakeOver(..) = op
                && before.is_some_and(|row| view_of(&row).has_attempts_of_latest())
            {
                // From here on, deliveries run alone. The starts counted so far were the latest delivery's.
                self.state.starts = 0;
            }
            if let Op::MarkStart(..) = op {
                self.state.starts += 1;
            }
            if let Op::Hold(_) = op {
                self.state.held_at = self.state.newest_token;
                self.model.reach(Reached::OnHold);
            }
            if let Op::Unblock = op {
                self.state.starts = 0;
            }
            if let Op::Rewind(_, seen, from) = op {
                self.is_rewound(from, seen.head.0);
            }
            if let Op::Settle(_, decision, _) | Op::SettleAndRelease(_, decision, _) | Op::Skip(_, _, decision) = op {
                self.state.starts = 0;
                decision.each().into_iter().for_each(|receipt| self.decided(receipt, decision));
            }
            if executed.row.is_some_and(|row| view_of(&row).attempts > u32::from(self.state.starts)) {
                self.state.violates(Violation::Charge);
            }
        }
        executed
    }

    /// Runs an operation on an inbox row.
    pub fn on_item(&mut self, item: ModelItem, op: Op) -> Executed {
        let before = self.state.item(item);
        let executed = execute(self.model.changes, self.state.epoch, op, before);
        self.state.store(item, executed.row);
        if executed.landed && before.is_some() && matches!(item, ModelItem::Delivery(_)) {
            self.state.violates(Violation::DecidedTwice);
        }
        executed
    }

    fn counts_start(&mut self, sequence: u64) {
        if self.state.view().is_some_and(|view| view.next().0 == sequence) {
            self.state.starts += 1;
        }
    }

    /// Checks the settlement of a sequence.
    fn decided(&mut self, receipt: ReceiptRef, with: DecisionRef) {
        self.is_decided_again(receipt);
        let before = self.state.before(receipt.sequence.0);
        let as_before = before.is_some_and(|before| before.settlement == receipt.settlement);
        let applied = |other: &ReceiptRef| {
            other.settlement == Settlement::Applied
                && other.id().map(|id| id.delivery) == receipt.id().map(|id| id.delivery)
        };
        match receipt.settlement {
            Settlement::Applied => {
                let runs = receipt.id().map_or(0, |id| self.state.runs_of(id.delivery));
                if self.state.settled.iter().filter(|other| applied(other)).count() > runs {
                    self.state.violates(Violation::Once);
                }
                if self.model.commit && !receipt.id().is_some_and(|id| self.state.committed.contains(&id)) {
                    self.state.violates(Violation::Loss);
                }
            }
            Settlement::Parked => {
                self.model.reach(Reached::Park);
                // A delivery that was parked before the rewind may have been redriven since.
                if self.state.item(ModelItem::Parked(receipt.sequence.0)).is_none() && !as_before {
                    self.state.violates(Violation::Loss);
                }
            }
            Settlement::Repeat => {
                self.model.reach(Reached::Repeat);
                let known = |other: &ReceiptRef| other.id() == receipt.id() && other.settlement != Settlement::Repeat;
                // A receipt that was written late may outlive its delivery's retention.
                let once = receipt.id().is_some_and(|id| self.state.forgotten.contains(&id));
                if !self.state.settled.iter().any(known) && !once {
                    self.state.violates(Violation::Loss);
                }
            }
            Settlement::Superseded => {
                self.model.reach(Reached::Superseded);
                // A delivery is superseded by a newer one that is applied with it.
                if !as_before && with.each().last().is_none_or(|last| last.settlement != Settlement::Applied) {
                    self.state.violates(Violation::Loss);
                }
            }
            Settlement::Void => {
                self.model.reach(Reached::Void);
                let marker = self.state.item(ModelItem::Delivery(receipt.sequence.0));
                if marker.is_none_or(|row| delivery_at(&row).is_some()) {
                    self.state.violates(Violation::DecidedTwice);
                }
            }
        }
        self.state.settled.push(receipt);
    }

    pub fn start(&mut self, worker: &mut ModelWorker) {
        let Draining { lease, known, group, .. } = *worker.draining();
        let (first, _) = known.place();
        let view = self.state.view();
        let newest = view.is_some_and(|view| lease.is_mine(&view));
        if newest && view.is_some_and(|view| view.is_on_hold()) && lease.token().0 > self.state.held_at {
            self.state.violates(Violation::Hold);
        }
        for (sequence, id) in known.handled(group) {
            // Earlier deliveries must be settled, or be part of the same start.
            let behind =
                |other: u64| view.is_none_or(|view| view.head.0 >= other) || (first..sequence).contains(&other);
            let here = self.state.appends.iter().find(|append| match append.step {
                AppendStep::Answered(at) => at == sequence,
                AppendStep::Write { sequence: at, stored, .. } => at == sequence && stored != Some(false),
                _ => false,
            });
            let early = here.is_some_and(|here| {
                (0_u8..).zip(&self.state.appends).any(|(number, other)| {
                    here.after & 1 << number != 0 && matches!(other.step, AppendStep::Answered(at) if !behind(at))
                })
            });
            let done = |other: &ReceiptRef| other.id() == Some(id) && other.settlement != Settlement::Repeat;
            let again = newest && self.state.is_over(sequence, done);
            for (violations, is_so) in [(Violation::Order, early), (Violation::Once, again)] {
                if is_so {
                    self.state.violates(violations);
                }
            }
        }
        // A start that is recorded has been counted, and so has the start of a holder that vanished before
        // it. A group's start counts for no single delivery. The latest delivery's start counts, for all that
        // it supersedes.
        if !known.state().is_suspect() && (!group.is_several() || group.is_latest) {
            self.counts_start(first);
        }
        worker.step = WorkerStep::Run;
    }

    /// Delivers an effect to a receiver that remembers the newest token.
    pub fn effect(&mut self, token: u64, sequence: u64) -> bool {
        let (newest, last) = self.state.receiver;
        if token < newest && !self.has(ViolatedRule::ReceiversIgnoreTokens) {
            self.model.reach(Reached::LateEffectRefused);
            return false;
        }
        // A rewound delivery runs under a newer token. Its order was checked when it started.
        if sequence < last && (token <= newest || !self.state.rewound.contains(&sequence)) {
            self.state.violates(Violation::LateEffect);
        }
        self.state.receiver = (token.max(newest), sequence);
        true
    }
}
