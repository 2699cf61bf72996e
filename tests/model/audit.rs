//! What is looked at in every state, and at every step that could break it.

use stateright::Property;
use webhook_serializer::protocol::{format::attribute as a, receipt::Settlement};

use crate::{
    operations::{Executed, Op, execute},
    protocol::{Next, Protocol},
    reached::Reached,
    state::{Append, AppendStep, Broken, Draining, Message, Operator, State, Step, Visitor, Worker},
    store::{Decided, Item, Told, delivery_at, view_of},
    without::Rule,
};

pub const ORDER: &str = "G1 order";
pub const EXCLUSION: &str = "G2 exclusion";
pub const NO_LATE_EFFECT: &str = "G2 no late effect";
pub const NO_LOSS: &str = "G3 no loss";
pub const ONCE: &str = "G4 once";
pub const CHARGED: &str = "a failure is charged to its own delivery, and to a start of it";
pub const PENDING: &str = "what waits has waited since it came";
pub const HOLD: &str = "nothing starts on hold, and it is on hold as its operator was told";
pub const SKIPPED: &str = "skipped is what a person saw";
pub const REWOUND: &str = "run again is what was applied, as often as a person asked for";
pub const DECIDED_ONCE: &str = "a sequence is decided once";

/// The properties of every state.
pub fn properties() -> Vec<Property<Protocol>> {
    vec![
        Property::always(ORDER, |model: &Protocol, state: &State| model.first(ORDER, !state.is_broken(Broken::Order))),
        Property::always(EXCLUSION, |model: &Protocol, state: &State| {
            model.first(EXCLUSION, !state.is_broken(Broken::Token) && model.one_holder(state))
        }),
        Property::always(NO_LATE_EFFECT, |model: &Protocol, state: &State| {
            model.first(NO_LATE_EFFECT, !state.is_broken(Broken::LateEffect))
        }),
        Property::always(NO_LOSS, |model: &Protocol, state: &State| {
            model.first(NO_LOSS, !state.is_broken(Broken::Loss) && model.no_loss(state))
        }),
        Property::always(ONCE, |model: &Protocol, state: &State| model.first(ONCE, !state.is_broken(Broken::Once))),
        Property::always(CHARGED, |model: &Protocol, state: &State| {
            model.first(CHARGED, !state.is_broken(Broken::Charge))
        }),
        Property::always(PENDING, |model: &Protocol, state: &State| model.first(PENDING, state.pending_is_told())),
        Property::always(HOLD, |model: &Protocol, state: &State| {
            model.first(HOLD, !state.is_broken(Broken::Hold) && state.is_as_told())
        }),
        Property::always(SKIPPED, |model: &Protocol, state: &State| {
            model.first(SKIPPED, !state.is_broken(Broken::Skip))
        }),
        Property::always(REWOUND, |model: &Protocol, state: &State| {
            model.first(REWOUND, !state.is_broken(Broken::Rewind))
        }),
        Property::always(DECIDED_ONCE, |model: &Protocol, state: &State| {
            model.first(DECIDED_ONCE, !state.is_broken(Broken::DecidedTwice))
        }),
    ]
}

impl Protocol {
    /// Lets only the first violation of a property through: of those in one block
    /// of states, stateright 0.31 reports the last, which is not the shortest.
    pub fn first(&self, property: &'static str, holds: bool) -> bool {
        holds || !self.violated.lock().expect("no one panics while holding this").insert(property)
    }

    /// Whether somebody is sure to look at the entity, the sweep not counted.
    pub fn is_sure(&self, state: &State) -> bool {
        let owes = |append: &Append| match append.step {
            AppendStep::Claim => append.knows.owed,
            AppendStep::Write { owed, .. } => owed.is_some(),
            AppendStep::Answered(_) | AppendStep::Ended => false,
        };
        let operator = match &state.operator {
            Operator::Wake | Operator::Resume(_) => true,
            Operator::SkipLook(..) | Operator::SkipPark(..) | Operator::SkipSettle(..) | Operator::SkipRelease(_) => {
                true
            }
            Operator::RewindLook(..)
            | Operator::RewindSpill(..)
            | Operator::RewindWrite(..)
            | Operator::RewindRelease(_)
            | Operator::EndLook(_)
            | Operator::EndSettle(..) => true,
            Operator::Redrive(_, append) => owes(append),
            _ => false,
        };
        !state.queue.is_empty()
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
            matches!(append.step, AppendStep::Answered(sequence) if sequence > view.head.0) && !view.is_stopped()
        });
        // What was answered and does not wait was decided, as itself.
        let gone = state.appends.iter().any(|append| {
            let AppendStep::Answered(sequence) = append.step else { return false };
            let told = |told: &Told| told.sequence.0 == sequence && told.id() == Some(append.id);
            sequence <= view.head.0 && !state.settled.iter().any(told) && !state.forgotten.contains(&append.id)
        });
        !gone && (!waits || self.is_sure(state))
    }

    fn one_holder(&self, state: &State) -> bool {
        let Some(row) = state.row else { return true };
        let Some(token) = row.get(a::HOLDER).and_then(|_| row.number(a::TOKEN)) else { return true };
        let running = state.workers.iter().flatten().filter(|worker| {
            matches!(worker.step, Step::Run | Step::Spill { commits: true, .. } | Step::Commit { .. })
                && worker.drain.as_ref().is_some_and(|drain| drain.lease.token().0 == token)
        });
        let late = state.late.iter().filter(|(late, _)| *late == token).count();
        let visits = matches!(state.visitor, Visitor::Hold(lease) | Visitor::Leave(lease) if lease.token().0 == token);
        let failing = late > 0
            && state.workers.iter().flatten().any(|worker| {
                !matches!(worker.step, Step::Run | Step::Spill { commits: true, .. } | Step::Commit { .. })
                    && worker.drain.as_ref().is_some_and(|drain| drain.lease.token().0 == token)
            });
        // A handler that was given up is its worker's one start until that is counted.
        running.count() + usize::from(visits) + late.saturating_sub(usize::from(failing)) <= 1
    }
}

impl Next<'_> {
    /// Does an operation on the entity's row.
    pub fn on_entity(&mut self, op: Op) -> Executed {
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
            if let Op::TakeOver(..) = op
                && before.is_some_and(|row| view_of(&row).has_attempts_of_latest())
            {
                // Each runs by itself from here on: the starts were of what stood for it.
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
            if let Op::Settle(_, decided, _) | Op::SettleAndRelease(_, decided, _) | Op::Skip(_, _, decided) = op {
                self.state.starts = 0;
                decided.each().into_iter().for_each(|told| self.decided(told, decided));
            }
            if executed.row.is_some_and(|row| view_of(&row).attempts > u32::from(self.state.starts)) {
                self.state.breaks(Broken::Charge);
            }
        }
        executed
    }

    /// Does an operation on an inbox row.
    pub fn on_item(&mut self, item: Item, op: Op) -> Executed {
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
        if self.state.view().is_some_and(|view| view.next().0 == sequence) {
            self.state.starts += 1;
        }
    }

    /// A sequence was settled: was that right?
    fn decided(&mut self, told: Told, with: Decided) {
        self.is_decided_again(told);
        let before = self.state.before(told.sequence.0);
        let as_before = before.is_some_and(|before| before.settlement == told.settlement);
        let applied = |other: &Told| {
            other.settlement == Settlement::Applied
                && other.id().map(|id| id.delivery) == told.id().map(|id| id.delivery)
        };
        match told.settlement {
            Settlement::Applied => {
                let runs = told.id().map_or(0, |id| self.state.runs_of(id.delivery));
                if self.state.settled.iter().filter(|other| applied(other)).count() > runs {
                    self.state.breaks(Broken::Once);
                }
                if self.model.commit && !told.id().is_some_and(|id| self.state.committed.contains(&id)) {
                    self.state.breaks(Broken::Loss);
                }
            }
            Settlement::Parked => {
                self.model.reach(Reached::Park);
                // What was parked before may be put back since.
                if self.state.item(Item::Parked(told.sequence.0)).is_none() && !as_before {
                    self.state.breaks(Broken::Loss);
                }
            }
            Settlement::Repeat => {
                self.model.reach(Reached::Repeat);
                let known = |other: &Told| other.id() == told.id() && other.settlement != Settlement::Repeat;
                // A receipt may come late, even longer after than retention.
                let once = told.id().is_some_and(|id| self.state.forgotten.contains(&id));
                if !self.state.settled.iter().any(known) && !once {
                    self.state.breaks(Broken::Loss);
                }
            }
            Settlement::Superseded => {
                self.model.reach(Reached::Superseded);
                // By a newer one, which is applied with it.
                if !as_before && with.each().last().is_none_or(|last| last.settlement != Settlement::Applied) {
                    self.state.breaks(Broken::Loss);
                }
            }
            Settlement::Void => {
                self.model.reach(Reached::Void);
                let marker = self.state.item(Item::Delivery(told.sequence.0));
                if marker.is_none_or(|row| delivery_at(&row).is_some()) {
                    self.state.breaks(Broken::DecidedTwice);
                }
            }
        }
        self.state.settled.push(told);
    }

    pub fn start(&mut self, worker: &mut Worker) {
        let Draining { lease, knows, group, .. } = *worker.draining();
        let (first, _) = knows.place();
        let view = self.state.view();
        let newest = view.is_some_and(|view| lease.is_mine(&view));
        if newest && view.is_some_and(|view| view.hold.since().is_some()) && lease.token().0 > self.state.held_at {
            self.state.breaks(Broken::Hold);
        }
        for (sequence, id) in knows.handled(group) {
            // Those before it are settled, or in the same start.
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
            let done = |other: &Told| other.id() == Some(id) && other.settlement != Settlement::Repeat;
            let again = newest && self.state.is_over(sequence, done);
            for (broken, is_so) in [(Broken::Order, early), (Broken::Once, again)] {
                if is_so {
                    self.state.breaks(broken);
                }
            }
        }
        // Where it was written before, it counts already; written by one that did not come to it, it did too.
        // A start of a group is none of each of it, unless one stands for all.
        if !knows.state().is_suspect() && (!group.is_several() || group.is_latest) {
            self.counts_start(first);
        }
        worker.step = Step::Run;
    }

    /// An effect comes to a receiver that remembers the newest token.
    pub fn effect(&mut self, token: u64, sequence: u64) -> bool {
        let (newest, last) = self.state.receiver;
        if token < newest && !self.has(Rule::ReceiversIgnoreTokens) {
            self.model.reach(Reached::LateEffectRefused);
            return false;
        }
        // Under a newer token it is one that a person has run again: its order is looked at when it starts.
        if sequence < last && (token <= newest || !self.state.rewound.contains(&sequence)) {
            self.state.breaks(Broken::LateEffect);
        }
        self.state.receiver = (token.max(newest), sequence);
        true
    }
}
