//! Exclusion in time: two processes with wrong clocks, and one lease.
//!
//! The operations, a waiter's decisions (`wait_step`), what a process knows of the store's time (`Env`), and what a
//! holder knows of its lease's end (`Term`) are production code. Only the loops of `leases/acquire.rs` and
//! `engine/lease_renewer.rs` are rewritten here.
//!
//! Time passes in half seconds. A request lands, and its reply arrives, at any time until the request is cut off.
//! Replies are lost, and processes die. No process freezes, because a frozen one cannot stop its work.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use stateright::{Checker, HasDiscoveries, Model, Property};
use webhook_serializer::{
    engine::lease_renewer::judged_at,
    leases::wait::{WaitStep, seen_row, wait_step},
    protocol::{
        entity::EntityKey,
        lease::{Acquire, Lease, Renew, Renewed, TakeOver, Term},
        memory,
        operation::Operation,
        state::{EntityState, HolderInfo, LeaseKind},
        table::Written,
    },
    time::{Clock, Env, Nonce, SeededRandom, Timestamp},
};

use crate::{
    not_run::is_thorough,
    store::{LeaseRef, RowRef, View, intern_lease, intern_view},
};

/// A rule that a control omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OmittedClockRule {
    /// Processes ignore the store's time.
    StoreTime,
    /// A holder does not replace an end of its lease that a wrong clock has set.
    Correction,
    /// A waiter takes a lease over once the store's time may have reached its end.
    SurelyReached,
    /// A lease ends its length after the time that its holder takes for the store's.
    LatestTime,
}

/// The number of half seconds since the model began.
type Half = u16;

const HALF: Duration = Duration::from_millis(500);
const LENGTH: Duration = Duration::from_secs(3);
const BASE: Timestamp = Timestamp::from_secs(1_767_225_600);

#[derive(Debug, Clone)]
struct Clocks {
    /// By how many milliseconds each process's clock is ahead.
    ahead: [i64; 2],
    /// The model ends at this time.
    end: Half,
    /// The most time between a request and its reply.
    slow: Half,
    deaths: u8,
    lost_replies: u8,
    without: Option<OmittedClockRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ClockState {
    now: Half,
    row: Option<RowRef>,
    processes: [Process; 2],
    deaths: u8,
    lost_replies: u8,
    is_taken_over: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Process {
    asked: u8,
    reply: Option<DatedReply>,
    call: Option<CallInFlight>,
    lease: Option<Holding>,
    /// The process waits for the lease and polls.
    waits: bool,
}

/// The newest reply of the store that the process received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct DatedReply {
    date: Timestamp,
    sent: Half,
    received: Half,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Holding {
    lease: LeaseRef,
    term: Term,
    works: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CallInFlight {
    request: ModelRequest,
    /// When the first try was sent, and when this one was.
    first: Half,
    sent: Half,
    landed: Option<Landed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Landed {
    is_applied: bool,
    row: Option<RowRef>,
    date: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ModelRequest {
    Acquire { drawn: u8, now: Timestamp, length: Duration },
    TakeOver { drawn: u8, now: Timestamp, length: Duration, seen: View },
    Renew { lease: LeaseRef, now: Timestamp, length: Duration, wrong: Option<Timestamp> },
    Look,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ClockStep {
    Passes,
    Asks(usize),
    Polls(usize),
    Renews(usize),
    Lands(usize),
    Hears(usize),
    /// The reply is lost, or the try is cut off, and the process sends the request again.
    SendsAgain(usize),
    Dies(usize),
}

fn entity() -> EntityKey {
    EntityKey::parse("invoice_gen/SUB-1").unwrap()
}

/// A half second as a process's monotonic clock shows it.
fn monotonic(at: Half) -> Duration {
    HALF * u32::from(at)
}

/// The clocks of one process: the machine's time, and the monotonic time.
#[derive(Clone)]
struct ProcessClock(Arc<Mutex<Half>>, i64);

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        let by_store = BASE + monotonic(*self.0.lock().unwrap());
        Timestamp::from_millis(by_store.as_millis().saturating_add_signed(self.1))
    }

    fn monotonic(&self) -> Duration {
        monotonic(*self.0.lock().unwrap())
    }

    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        unreachable!("the model does not sleep")
    }
}

impl ModelRequest {
    fn acquire(which: usize, drawn: u8, now: Timestamp, length: Duration) -> Acquire {
        Acquire {
            entity: entity(),
            kind: LeaseKind::Exclusive,
            holder: Nonce::from_parts(BASE, u128::from(drawn) * 2 + which as u128),
            info: HolderInfo::new("a process"),
            now,
            length,
        }
    }

    fn landed(&self, which: usize, row: Option<RowRef>, date: Timestamp) -> Landed {
        let write = match *self {
            Self::Acquire { drawn, now, length } => Self::acquire(which, drawn, now, length).write(),
            Self::TakeOver { drawn, now, length, seen } => {
                TakeOver { request: Self::acquire(which, drawn, now, length), seen: (*seen).clone() }.write()
            }
            Self::Renew { lease, now, length, wrong } => Renew { lease: &lease, now, length, wrong }.write(),
            Self::Look => return Landed { is_applied: false, row, date },
        };
        match memory::evaluate(&write, row.as_deref()) {
            Ok(written) => Landed { is_applied: true, row: written.map(RowRef::of), date },
            Err(_) => Landed { is_applied: false, row, date },
        }
    }
}

impl Landed {
    fn written(&self) -> Written {
        let row = self.row.as_deref().cloned();
        if self.is_applied { Written::Landed(row) } else { Written::Refused(row) }
    }
}

impl Clocks {
    /// Returns what a process knows about the time.
    fn env(&self, process: &Process, which: usize, now: Half) -> Env {
        let shown = Arc::new(Mutex::new(now));
        let env = Env::new(ProcessClock(shown.clone(), self.ahead[which]), SeededRandom::new(1));
        if let Some(reply) = process.reply.filter(|_| self.without != Some(OmittedClockRule::StoreTime)) {
            *shown.lock().unwrap() = reply.received;
            env.note_reply(reply.date, monotonic(reply.sent));
            *shown.lock().unwrap() = now;
        }
        env
    }

    fn lease_from(&self, env: &Env, now: Timestamp, length: Duration) -> Duration {
        if self.without == Some(OmittedClockRule::LatestTime) { length } else { env.lease_from(now, length) }
    }

    fn reached(&self, env: &Env) -> Timestamp {
        if self.without == Some(OmittedClockRule::SurelyReached) { env.now() } else { env.reached() }
    }

    fn asks(&self, env: &Env, process: &mut Process, now: Half) {
        process.asked += 1;
        let time = env.now();
        let length = self.lease_from(env, time, LENGTH);
        process.call = Some(CallInFlight::new(ModelRequest::Acquire { drawn: process.asked, now: time, length }, now));
        process.waits = false;
    }

    fn renews(&self, env: &Env, process: &mut Process, now: Half, wrong: Option<Timestamp>) {
        let Some(holding) = &process.lease else { return };
        let time = env.now();
        let length = self.lease_from(env, time, holding.term.renewed_from(monotonic(now)));
        process.call =
            Some(CallInFlight::new(ModelRequest::Renew { lease: holding.lease, now: time, length, wrong }, now));
    }

    /// Continues a process with the reply to its request.
    fn hears(&self, process: &mut Process, which: usize, now: Half) {
        let call = process.call.take().unwrap();
        let landed = call.landed.unwrap();
        process.reply = Some(DatedReply { date: landed.date, sent: call.sent, received: now });
        let env = self.env(process, which, now);
        let answer = match call.request {
            ModelRequest::Renew { lease, now: time, length, wrong } => {
                let renewed = Renew { lease: &lease, now: time, length, wrong }.judge(landed.written()).unwrap();
                return process.renewed(&renewed, call.first);
            }
            ModelRequest::Look => {
                let state = landed.row.map(|row| EntityState::parse(&row).unwrap());
                seen_row(state, env.now())
            }
            ModelRequest::Acquire { drawn, now, length } | ModelRequest::TakeOver { drawn, now, length, .. } => {
                ModelRequest::acquire(which, drawn, now, length).judge(landed.written()).unwrap()
            }
        };
        let time = match self.without {
            Some(OmittedClockRule::SurelyReached) => env.now(),
            _ => judged_at(&answer, &env),
        };
        match wait_step(answer, time, None) {
            WaitStep::Granted(lease, state) => self.granted(&env, process, call.first, now, lease, &state),
            WaitStep::TakeOver(seen) => {
                let time = self.reached(&env);
                let length = self.lease_from(&env, time, LENGTH);
                let seen = intern_view(&seen);
                process.call = Some(CallInFlight::new(
                    ModelRequest::TakeOver { drawn: process.asked, now: time, length, seen },
                    now,
                ));
            }
            WaitStep::Await { .. } | WaitStep::AwaitTurn(_) | WaitStep::Request => process.waits = true,
        }
    }

    /// Does what `LeaseRenewer::start` does.
    fn granted(&self, env: &Env, process: &mut Process, sent: Half, now: Half, lease: Lease, state: &EntityState) {
        let mut term = Term::new(LENGTH, monotonic(sent), Duration::MAX);
        let written = state.held.as_ref().unwrap().expires_at;
        let latest = env.latest_at(monotonic(sent)).filter(|_| self.without != Some(OmittedClockRule::Correction));
        let is_wrong = latest.is_some_and(|latest| term.is_wrong(written, monotonic(sent), latest));
        if term.left(monotonic(now)).is_zero() {
            return;
        }
        process.lease = Some(Holding { lease: intern_lease(lease), term, works: !is_wrong });
        if is_wrong {
            self.renews(env, process, now, Some(written));
        }
    }
}

impl CallInFlight {
    fn new(request: ModelRequest, now: Half) -> Self {
        Self { request, first: now, sent: now, landed: None }
    }
}

impl Process {
    fn renewed(&mut self, renewed: &Renewed, sent: Half) {
        match (renewed, &mut self.lease) {
            (Renewed::Renewed(_), Some(holding)) => {
                holding.term.extend(monotonic(sent));
                holding.works = true;
            }
            _ => self.lease = None,
        }
    }

    /// Gives the lease up if its time is over.
    fn notices(&mut self, now: Half) {
        if self.lease.as_ref().is_some_and(|holding| holding.term.left(monotonic(now)).is_zero()) {
            self.lease = None;
            self.call = None;
        }
    }

    fn works(&self) -> bool {
        self.lease.as_ref().is_some_and(|holding| holding.works)
    }
}

impl Model for Clocks {
    type State = ClockState;
    type Action = ClockStep;

    fn init_states(&self) -> Vec<ClockState> {
        let Self { deaths, lost_replies, .. } = *self;
        // The first process asks at once, in either half of the store's second.
        [0, 1]
            .into_iter()
            .map(|now| {
                let mut processes = <[Process; 2]>::default();
                self.asks(&self.env(&processes[0], 0, now), &mut processes[0], now);
                ClockState { now, row: None, processes, deaths, lost_replies, is_taken_over: false }
            })
            .collect()
    }

    fn actions(&self, state: &ClockState, steps: &mut Vec<ClockStep>) {
        let is_cut_off = |call: &CallInFlight| state.now - call.sent >= self.slow;
        let processes = || state.processes.iter().enumerate();
        if state.now < self.end && processes().all(|(_, process)| !process.call.as_ref().is_some_and(is_cut_off)) {
            steps.push(ClockStep::Passes);
        }
        for (which, process) in processes() {
            match (&process.call, &process.lease) {
                (Some(call), _) => {
                    match call.landed {
                        None => steps.push(ClockStep::Lands(which)),
                        Some(_) => steps.push(ClockStep::Hears(which)),
                    }
                    if state.lost_replies > 0 {
                        steps.push(ClockStep::SendsAgain(which));
                    }
                }
                (None, Some(holding)) if holding.term.due_in(monotonic(state.now)).is_zero() => {
                    steps.push(ClockStep::Renews(which));
                }
                (None, Some(_)) => {}
                (None, None) if process.waits => steps.push(ClockStep::Polls(which)),
                (None, None) if process.asked == 0 => steps.push(ClockStep::Asks(which)),
                (None, None) => {}
            }
            if state.deaths > 0 && (process.call.is_some() || process.lease.is_some()) {
                steps.push(ClockStep::Dies(which));
            }
        }
    }

    fn next_state(&self, last: &ClockState, step: ClockStep) -> Option<ClockState> {
        let mut state = last.clone();
        let now = state.now;
        match step {
            ClockStep::Passes => {
                state.now += 1;
                state.processes.iter_mut().for_each(|process| process.notices(now + 1));
            }
            ClockStep::Asks(which) => {
                let env = self.env(&state.processes[which], which, now);
                self.asks(&env, &mut state.processes[which], now);
            }
            ClockStep::Polls(which) => {
                let env = self.env(&state.processes[which], which, now);
                let process = &mut state.processes[which];
                process.waits = false;
                let is_free = state.row.is_none_or(|row| row.text("holder").is_none());
                if is_free {
                    self.asks(&env, process, now);
                } else {
                    process.call = Some(CallInFlight::new(ModelRequest::Look, now));
                }
            }
            ClockStep::Renews(which) => {
                let env = self.env(&state.processes[which], which, now);
                self.renews(&env, &mut state.processes[which], now, None);
            }
            ClockStep::Lands(which) => {
                let date = BASE + Duration::from_secs(monotonic(now).as_secs());
                let call = state.processes[which].call.as_mut()?;
                let landed = call.request.landed(which, state.row, date);
                state.is_taken_over |= landed.is_applied && matches!(call.request, ModelRequest::TakeOver { .. });
                call.landed = Some(landed);
                state.row = landed.row;
            }
            ClockStep::Hears(which) => self.hears(&mut state.processes[which], which, now),
            ClockStep::SendsAgain(which) => {
                state.lost_replies -= 1;
                let call = state.processes[which].call.as_mut()?;
                (call.sent, call.landed) = (now, None);
            }
            ClockStep::Dies(which) => {
                state.deaths -= 1;
                state.processes[which] = Process { asked: 1, ..Process::default() };
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(ALONE, |_, state| !state.processes.iter().all(Process::works)),
            Property::<Self>::sometimes(TAKEN_OVER, |_, state| state.is_taken_over && state.processes[1].works()),
            Property::<Self>::sometimes(RENEWED, |model, state| state.processes[0].works() && state.now == model.end),
        ]
    }
}

const ALONE: &str = "at most one process works";
const TAKEN_OVER: &str = "a dead holder's lease is taken over";
const RENEWED: &str = "a lease is renewed for longer than its length";

const SECOND: i64 = 1000;
const DAY: i64 = 86_400 * SECOND;

fn clocks(ahead: [i64; 2]) -> Clocks {
    Clocks { ahead, end: 10, slow: 1, deaths: 1, lost_replies: 0, without: None }
}

#[test]
fn one_process_works_at_a_time_whatever_the_clocks_show() {
    let mut models = vec![(Clocks { end: 7, deaths: 0, ..clocks([400, -900]) }, &[RENEWED][..], 106_412)];
    if is_thorough() {
        models.extend([
            (clocks([DAY, -DAY]), &[RENEWED, TAKEN_OVER][..], 508_662),
            (Clocks { end: 13, ..clocks([0, -16 * 60 * SECOND]) }, &[RENEWED, TAKEN_OVER], 955_892),
            (Clocks { end: 9, slow: 2, ..clocks([16 * SECOND, 0]) }, &[RENEWED, TAKEN_OVER], 1_686_038),
            (Clocks { end: 9, lost_replies: 1, ..clocks([400, -900]) }, &[RENEWED, TAKEN_OVER], 1_523_810),
        ]);
    }
    let mut changed = Vec::new();
    for (model, reached, states) in models {
        let checker = model.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let found = checker.unique_state_count();
        println!("{model:?}: {found} states");
        let violated = checker.discoveries().remove(ALONE).map(|path| path.into_actions());
        assert_eq!(violated, None, "{model:?}");
        for wanted in reached {
            assert!(checker.discovery(wanted).is_some(), "{model:?}: never: {wanted}");
        }
        if found != states && crate::counts_are_pinned() {
            changed.push(format!("{model:?}: {found} states, pinned are {states}"));
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

#[test]
fn model_notices_every_omitted_clock_rule() {
    for (rule, ahead) in [
        (OmittedClockRule::StoreTime, [0, 16 * SECOND]),
        (OmittedClockRule::StoreTime, [-16 * 60 * SECOND, 0]),
        (OmittedClockRule::Correction, [-DAY, 0]),
        (OmittedClockRule::SurelyReached, [0, DAY]),
        (OmittedClockRule::LatestTime, [-DAY, 0]),
    ] {
        let model = Clocks { without: Some(rule), slow: 2, ..clocks(ahead) };
        let wanted = HasDiscoveries::AnyOf([ALONE].into());
        let path = model.checker().finish_when(wanted).spawn_bfs().join().discovery(ALONE);
        let path = path.unwrap_or_else(|| panic!("{rule:?}: \"{ALONE}\" holds all the same"));
        println!("{rule:?}: {:?}", path.into_actions());
    }
}
