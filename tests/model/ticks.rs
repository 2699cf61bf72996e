//! Jobs: two schedulers, invoked repeatedly for two ticks in any order, on one job's row.
//!
//! Every write is a production operation, and the production `Policy` decides what to do. Only the loop of
//! `jobs/ticker.rs` is rewritten here. Schedulers die between any two steps, replies are lost after their
//! writes landed, an operator releases leases by force, and each clock may find a lease valid or expired.

use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};
use webhook_serializer::{
    jobs::{
        Missed, OnCrash,
        due::{MOST_STARTS, NextTick, Policy},
        schedule::Schedule,
    },
    protocol::{
        entity::EntityKey,
        lease::{Acquire, ForceRelease, Lease},
        memory,
        operation::Operation,
        state::{EntityState, HolderInfo, LeaseKind},
        table::{Action, Change, Condition, Write, Written},
        tick::{
            CompleteTick, Completed, DefineJob, GiveUpTick, GivenUp, JobState, RecordPolicy, StartTick, Started,
            TakeOverTick, TickOutcome, TickResult,
        },
    },
    time::{Nonce, Timestamp},
};

use crate::store::RowRef;

/// A rule that a control omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OmittedTickRule {
    /// Recording a tick does not check the lease.
    TokenAtCompletion,
    /// A start does not check whether its tick is recorded.
    TickAtStart,
    /// A tick that must not run twice is recorded at its end, not at its start.
    RecordAtStart,
    /// Giving up a tick does not change the token.
    TokenAtGivingUp,
    CountOfStarts,
}

#[derive(Debug, Clone)]
struct Ticks {
    missed: Missed,
    on_crash: OnCrash,
    budget: TickBudget,
    without: Option<OmittedTickRule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct TickBudget {
    deliveries: u8,
    crashes: u8,
    lost_replies: u8,
    /// Decisions that are made by a fast clock.
    ahead: u8,
    /// Releases by force.
    forced: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TickState {
    row: RowRef,
    schedulers: [ModelScheduler; 2],
    budget: TickBudget,
    calls: u8,
    history: TickHistory,
}

/// How often each tick was started, completed and given up, by its minute. The tick of minute 0 was due
/// before the run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct TickHistory {
    started: [u8; 3],
    completed: [u8; 3],
    given_up: [u8; 3],
    newest_token: u64,
    token_went_back: bool,
    started_when_completed: bool,
    reported_wrongly: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ModelScheduler {
    Idle,
    Looks {
        scheduled: Timestamp,
        seen: Box<JobState>,
    },
    Runs {
        scheduled: Timestamp,
        lease: Lease,
        tick: Timestamp,
    },
    /// The scheduler has written, and the reply was lost.
    Doubts {
        scheduled: Timestamp,
        call: Box<SchedulerCall>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SchedulerCall {
    Start { number: u8, tick: Timestamp, start: u32, now: Timestamp, seen: JobState },
    GiveUp { seen: JobState, tick: Timestamp, now: Timestamp },
    Complete { lease: Lease, tick: Timestamp },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TickStep {
    /// The scheduler is invoked for this minute and reads the row.
    Invoked(usize, u32),
    /// The scheduler takes its next step, by a clock that is this many minutes ahead.
    Acts(usize, u64),
    /// The scheduler takes its next step, and the reply is lost.
    ActsUnheard(usize, u64),
    /// The scheduler sends the write again.
    Repeats(usize),
    Dies(usize),
    /// An operator releases the lease by force.
    Forced,
}

const BASE: u64 = 1_767_225_600_000;

fn minute(number: u32) -> Timestamp {
    Timestamp::from_millis(BASE + u64::from(number) * 60_000)
}

fn number(tick: Timestamp) -> usize {
    usize::try_from((tick.as_millis() - BASE) / 60_000).unwrap()
}

fn job() -> EntityKey {
    EntityKey::parse("cron/job").unwrap()
}

/// Changes a write as a control does.
fn without(mut write: Write, rule: Option<OmittedTickRule>, call: &SchedulerCall) -> Write {
    let (Some(rule), Action::Update(changes)) = (rule, &mut write.action) else { return write };
    let names = |change: &Change, name: &str| matches!(change, Change::Set(set, _) if set == name);
    match (rule, call) {
        (OmittedTickRule::TokenAtCompletion, SchedulerCall::Complete { .. }) => write.condition = Condition::Always,
        (OmittedTickRule::TickAtStart, SchedulerCall::Start { .. }) => {
            // The condition on the tick is the last one.
            if let Condition::All(parts) = &mut write.condition {
                parts.pop();
            }
        }
        (OmittedTickRule::RecordAtStart, SchedulerCall::Start { .. }) => {
            changes.retain(|change| !names(change, "last_tick"))
        }
        (OmittedTickRule::TokenAtGivingUp, SchedulerCall::GiveUp { .. }) => {
            changes.retain(|change| !names(change, "token"));
        }
        (OmittedTickRule::CountOfStarts, SchedulerCall::Start { .. }) => {
            changes.retain(|change| !names(change, "starts"));
        }
        _ => {}
    }
    write
}

impl Ticks {
    fn policy(&self) -> Policy {
        let schedule = Schedule::parse("every minute").unwrap();
        Policy { schedule, is_on: true, missed: self.missed, on_crash: self.on_crash }
    }

    fn start(&self, number: u8, tick: Timestamp, start: u32, now: Timestamp) -> StartTick {
        let request = Acquire {
            entity: job(),
            kind: LeaseKind::Exclusive,
            holder: Nonce::from_parts(minute(0), u128::from(number)),
            info: HolderInfo::new("a scheduler"),
            now,
            length: Duration::from_secs(30),
        };
        let recorded = match self.on_crash {
            OnCrash::Again => RecordPolicy::AtCompletion,
            OnCrash::Skip => RecordPolicy::AtStart,
        };
        StartTick { request, tick, start, recorded }
    }

    /// Applies a call's write, and notes it in the history.
    fn written(&self, state: &mut TickState, call: &SchedulerCall) -> Written {
        let write = match call {
            SchedulerCall::Start { number, tick, start, now, seen } => {
                let start = self.start(*number, *tick, *start, *now);
                match seen.entity.held {
                    None => start.write(),
                    Some(_) => TakeOverTick { start, seen: seen.clone() }.write(),
                }
            }
            SchedulerCall::GiveUp { seen, tick, now } => GiveUpTick { seen, tick: *tick, now: *now }.write(),
            SchedulerCall::Complete { lease, tick } => complete(lease, *tick).write(),
        };
        let Ok(row) = memory::evaluate(&without(write, self.without, call), Some(&*state.row)) else {
            return Written::Refused(Some((*state.row).clone()));
        };
        let row = row.expect("no write of a job deletes its row");
        let token = row.number("token").unwrap();
        let history = &mut state.history;
        match call {
            SchedulerCall::Start { tick, .. } => {
                history.started[number(*tick)] += 1;
                history.started_when_completed |= history.completed[number(*tick)] > 0;
                history.token_went_back |= token <= history.newest_token;
                history.newest_token = token;
            }
            SchedulerCall::GiveUp { tick, .. } => history.given_up[number(*tick)] += 1,
            SchedulerCall::Complete { tick, .. } => history.completed[number(*tick)] += 1,
        }
        state.row = RowRef::of(row.clone());
        Written::Landed(Some(row))
    }

    /// Continues a scheduler with the reply to its call.
    fn proceed(
        &self,
        state: &mut TickState,
        call: &SchedulerCall,
        reply: Written,
        scheduled: Timestamp,
    ) -> ModelScheduler {
        let looks = |seen| ModelScheduler::Looks { scheduled, seen: Box::new(seen) };
        match call {
            SchedulerCall::Start { number, tick, start, now, .. } => {
                match self.start(*number, *tick, *start, *now).judge(reply).unwrap() {
                    Started::Granted(lease, _) => ModelScheduler::Runs { scheduled, lease, tick: *tick },
                    Started::Held(_) | Started::Free(None) => ModelScheduler::Idle,
                    Started::Recorded(seen) | Started::Free(Some(seen)) => looks(seen),
                }
            }
            SchedulerCall::GiveUp { seen, tick, now } => {
                match (GiveUpTick { seen, tick: *tick, now: *now }).judge(reply).unwrap() {
                    GivenUp::GivenUp(seen) | GivenUp::Changed(Some(seen)) => looks(seen),
                    GivenUp::Changed(None) => ModelScheduler::Idle,
                }
            }
            SchedulerCall::Complete { lease, tick } => match complete(lease, *tick).judge(reply).unwrap() {
                Completed::Recorded(seen) => {
                    state.history.reported_wrongly |= state.history.completed[number(*tick)] == 0;
                    looks(seen)
                }
                Completed::Lost => ModelScheduler::Idle,
            },
        }
    }

    /// Returns a scheduler's next write, by a clock that is `ahead` minutes ahead.
    fn call(&self, state: &TickState, scheduler: &ModelScheduler, ahead: u64) -> Option<(Timestamp, SchedulerCall)> {
        match scheduler {
            ModelScheduler::Looks { scheduled, seen } => {
                let now = minute(0) + Duration::from_secs(60 * ahead);
                let call = match self.policy().next(seen, *scheduled, now) {
                    NextTick::Nothing | NextTick::Held { .. } => return None,
                    NextTick::Start { tick, start, .. } => {
                        SchedulerCall::Start { number: state.calls, tick, start, now, seen: (**seen).clone() }
                    }
                    NextTick::GiveUp { tick } => SchedulerCall::GiveUp { seen: (**seen).clone(), tick, now },
                };
                Some((*scheduled, call))
            }
            ModelScheduler::Runs { scheduled, lease, tick } => {
                Some((*scheduled, SchedulerCall::Complete { lease: lease.clone(), tick: *tick }))
            }
            ModelScheduler::Idle | ModelScheduler::Doubts { .. } => None,
        }
    }
}

fn complete(lease: &Lease, tick: Timestamp) -> CompleteTick<'_> {
    let result = TickResult { ending: TickOutcome::Done, at: minute(0), took: Duration::ZERO, error: String::new() };
    CompleteTick { lease, tick, result }
}

impl Model for Ticks {
    type State = TickState;
    type Action = TickStep;

    fn init_states(&self) -> Vec<TickState> {
        let definition = self.policy().definition();
        let define = DefineJob { entity: &job(), definition: &definition, seen: None, from: minute(0), now: minute(0) };
        let row = memory::evaluate(&define.write(), None).unwrap().unwrap();
        vec![TickState {
            row: RowRef::of(row),
            schedulers: [ModelScheduler::Idle, ModelScheduler::Idle],
            budget: self.budget,
            calls: 0,
            history: TickHistory::default(),
        }]
    }

    fn actions(&self, state: &TickState, steps: &mut Vec<TickStep>) {
        for (which, scheduler) in state.schedulers.iter().enumerate() {
            match scheduler {
                // Of two idle schedulers, the first is invoked.
                ModelScheduler::Idle if which == 1 && state.schedulers[0] == ModelScheduler::Idle => {}
                ModelScheduler::Idle if state.budget.deliveries > 0 => {
                    steps.extend([1, 2].map(|minute| TickStep::Invoked(which, minute)));
                }
                ModelScheduler::Idle => {}
                ModelScheduler::Doubts { .. } => steps.push(TickStep::Repeats(which)),
                ModelScheduler::Looks { .. } | ModelScheduler::Runs { .. } => {
                    let clocks: &[u64] = match scheduler {
                        // Each clock is far enough ahead to find the lease of the one before expired, but not
                        // so far that the lease seems invalid.
                        ModelScheduler::Looks { .. } if state.budget.ahead > 0 => &[0, 3, 6, 9],
                        _ => &[0],
                    };
                    for ahead in clocks {
                        steps.push(TickStep::Acts(which, *ahead));
                        if state.budget.lost_replies > 0 {
                            steps.push(TickStep::ActsUnheard(which, *ahead));
                        }
                    }
                }
            }
            if *scheduler != ModelScheduler::Idle && state.budget.crashes > 0 {
                steps.push(TickStep::Dies(which));
            }
        }
        if state.budget.forced > 0 && state.row.text("holder").is_some() {
            steps.push(TickStep::Forced);
        }
    }

    fn next_state(&self, last: &TickState, step: TickStep) -> Option<TickState> {
        let mut state = last.clone();
        match step {
            TickStep::Invoked(which, due) => {
                state.budget.deliveries -= 1;
                let seen = Box::new(JobState::parse(&state.row).unwrap());
                state.schedulers[which] = ModelScheduler::Looks { scheduled: minute(due), seen };
            }
            TickStep::Acts(which, ahead) | TickStep::ActsUnheard(which, ahead) => {
                state.budget.ahead -= u8::from(ahead > 0);
                let Some((scheduled, call)) = self.call(&state, &state.schedulers[which], ahead) else {
                    state.schedulers[which] = ModelScheduler::Idle;
                    return matches!(step, TickStep::Acts(..)).then_some(state);
                };
                state.calls += u8::from(matches!(call, SchedulerCall::Start { .. }));
                let reply = self.written(&mut state, &call);
                state.schedulers[which] = match step {
                    TickStep::Acts(..) => self.proceed(&mut state, &call, reply, scheduled),
                    _ => {
                        state.budget.lost_replies -= 1;
                        ModelScheduler::Doubts { scheduled, call: Box::new(call) }
                    }
                };
            }
            TickStep::Repeats(which) => {
                let ModelScheduler::Doubts { scheduled, call } = state.schedulers[which].clone() else { return None };
                let reply = self.written(&mut state, &call);
                state.schedulers[which] = self.proceed(&mut state, &call, reply, scheduled);
            }
            TickStep::Dies(which) => {
                state.budget.crashes -= 1;
                state.schedulers[which] = ModelScheduler::Idle;
            }
            TickStep::Forced => {
                state.budget.forced -= 1;
                let seen = EntityState::parse(&state.row).unwrap();
                let force = ForceRelease { seen: &seen, record: HolderInfo::new("an operator") };
                state.row = RowRef::of(memory::evaluate(&force.write(), Some(&*state.row)).unwrap().unwrap());
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONCE, |_, state| state.history.completed.iter().all(|times| *times <= 1)),
            Property::<Self>::always(GROWS, |_, state| !state.history.token_went_back),
            Property::<Self>::always(OVER, |_, state| !state.history.started_when_completed),
            Property::<Self>::always(HONEST, |_, state| !state.history.reported_wrongly),
            Property::<Self>::always(BOUNDED, |model, state| {
                let most = match model.on_crash {
                    OnCrash::Again => MOST_STARTS as u8,
                    OnCrash::Skip => 1,
                };
                state.history.started.iter().all(|times| *times <= most)
            }),
            Property::<Self>::sometimes(COMPLETED, |_, state| state.history.completed == [0, 1, 1]),
        ];
        if self.missed == Missed::Each && self.on_crash == OnCrash::Again {
            properties.push(Property::<Self>::always(NOT_LOST, |_, state| {
                let last = number(Timestamp::from_millis(state.row.number("last_tick").unwrap()));
                (1..=last).all(|tick| state.history.completed[tick] + state.history.given_up[tick] > 0)
            }));
            properties.push(Property::<Self>::sometimes(GIVEN_UP, |_, state| {
                state.history.started[1] == 3 && state.history.given_up[1] == 1
            }));
            properties.push(Property::<Self>::sometimes(RUN_AGAIN, |_, state| {
                state.history.started[1] > 1 && state.history.completed[1] == 1
            }));
        }
        properties
    }
}

const ONCE: &str = "a tick is completed at most once";
const GROWS: &str = "tokens grow with every start";
const OVER: &str = "no completed tick is started";
const BOUNDED: &str = "a tick is started no more often than its job allows";
const HONEST: &str = "a tick reported as recorded is recorded";
const NOT_LOST: &str = "a recorded tick was completed or given up";

const COMPLETED: &str = "both ticks are completed";
const RUN_AGAIN: &str = "a tick whose run died is completed";
const GIVEN_UP: &str = "a tick is started three times and given up";

const SOME: TickBudget = TickBudget { deliveries: 3, crashes: 1, lost_replies: 1, ahead: 1, forced: 0 };
const DEADLY: TickBudget = TickBudget { deliveries: 4, crashes: 3, lost_replies: 0, ahead: 3, forced: 0 };

fn ticks(missed: Missed, on_crash: OnCrash, budget: TickBudget) -> Ticks {
    Ticks { missed, on_crash, budget, without: None }
}

#[test]
fn ticks_run_once_in_every_interleaving() {
    let mut changed = Vec::new();
    for (model, states) in [
        (ticks(Missed::Each, OnCrash::Again, DEADLY), 52_925),
        (ticks(Missed::Each, OnCrash::Again, SOME), 15_135),
        (ticks(Missed::Once, OnCrash::Again, SOME), 10_898),
        (ticks(Missed::Skip, OnCrash::Skip, TickBudget { forced: 1, ..SOME }), 21_859),
    ] {
        let name = format!("{:?}, {:?}, {:?}", model.missed, model.on_crash, model.budget);
        let checker = model.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let found = checker.unique_state_count();
        println!("{name}: {found} states");
        for property in [ONCE, GROWS, OVER, HONEST, BOUNDED, NOT_LOST] {
            let violated = checker.discoveries().remove(property).map(|path| path.into_actions());
            assert_eq!(violated, None, "{name} violates \"{property}\"");
        }
        let wanted: &[&str] = match model.budget {
            DEADLY => &[COMPLETED, RUN_AGAIN, GIVEN_UP],
            _ => &[COMPLETED],
        };
        for wanted in wanted {
            assert!(checker.discovery(wanted).is_some(), "{name}: never: {wanted}");
        }
        if found != states && crate::counts_are_pinned() {
            changed.push(format!("{name}: {found} states, pinned are {states}"));
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

#[test]
fn model_notices_every_omitted_tick_rule() {
    let again = |budget| ticks(Missed::Once, OnCrash::Again, budget);
    for (rule, property, model) in [
        (OmittedTickRule::TokenAtCompletion, ONCE, again(SOME)),
        (OmittedTickRule::TickAtStart, OVER, again(SOME)),
        (OmittedTickRule::RecordAtStart, BOUNDED, ticks(Missed::Skip, OnCrash::Skip, TickBudget { forced: 1, ..SOME })),
        (OmittedTickRule::CountOfStarts, BOUNDED, again(DEADLY)),
        (OmittedTickRule::TokenAtGivingUp, HONEST, again(TickBudget { crashes: 2, ..DEADLY })),
    ] {
        let model = Ticks { without: Some(rule), ..model };
        let wanted = HasDiscoveries::AnyOf([property].into());
        let path = model.checker().finish_when(wanted).spawn_bfs().join().discovery(property);
        let path = path.unwrap_or_else(|| panic!("{rule:?}: \"{property}\" holds all the same"));
        println!("{rule:?}: {:?}", path.into_actions());
    }
}
