//! Lists the next actions of a worker, and of whoever interferes with it, in a state.

use crate::{
    protocol::{HandlerAnswer, Hearing, ModelAction, Protocol},
    state::{HeldMessage, ModelState, ModelWorker, WorkerStep},
    store::{ClockReading, ModelItem},
};
use Hearing::{Heard, Lost};

impl Protocol {
    pub fn work_actions(&self, state: &ModelState, number: usize, actions: &mut Vec<ModelAction>) {
        let Some(worker) = &state.workers[number] else {
            receive_actions(state, number, actions);
            return;
        };
        let lossy = state.left.lost_replies > 0;
        let mut writes: Vec<ModelAction> = Vec::new();
        let mut add = |action: fn(usize, Hearing) -> ModelAction| {
            writes.push(action(number, Heard));
            if lossy {
                writes.push(action(number, Lost));
            }
        };
        let early: fn(usize, Hearing) -> ModelAction =
            |number, reply| ModelAction::Work(number, ClockReading::Early, reply);
        let late: fn(usize, Hearing) -> ModelAction =
            |number, reply| ModelAction::Work(number, ClockReading::Late, reply);
        match worker.step {
            WorkerStep::Acquire(_) => {
                add(early);
                if state.view().is_some_and(|view| view.retry_at.is_some() || view.yield_until.is_some()) {
                    add(late);
                }
            }
            WorkerStep::Settle { ahead, .. } => {
                add(ModelAction::RowWork);
                if ahead {
                    add(ModelAction::ReceiptWork);
                }
            }
            WorkerStep::Spill { .. } => {
                add(early);
                if state.left.outages > 0 {
                    actions.push(ModelAction::StoreIsOut(number));
                }
            }
            WorkerStep::Look(..) => {
                actions.push(early(number, Heard));
                if state.left.take_overs > 0 {
                    actions.push(late(number, Heard));
                }
            }
            WorkerStep::Ask => {
                actions.push(late(number, Heard));
                if worker.draining().has_to_wait() || state.left.overruns > 0 {
                    actions.push(ModelAction::StopsEarly(number));
                }
            }
            WorkerStep::ReadPage | WorkerStep::MarkHandOver => {
                actions.push(early(number, Heard));
                if state.left.outages > 0 || worker.step == WorkerStep::MarkHandOver {
                    actions.push(ModelAction::StoreIsOut(number));
                }
            }
            WorkerStep::Gap => {
                gap_actions(state, number, worker, actions);
                if !state.is_awaited(worker.draining().known.place().0) || state.left.voids > 0 {
                    add(early);
                }
            }
            WorkerStep::Run => run_actions(state, number, actions),
            WorkerStep::SendFresh
            | WorkerStep::Requeue(_)
            | WorkerStep::SendFollower(_)
            | WorkerStep::Follow(_)
            | WorkerStep::RetryWakeUp(..)
            | WorkerStep::HandOver
            | WorkerStep::Start
            | WorkerStep::Finish { .. } => {
                actions.push(early(number, Heard));
            }
            WorkerStep::TakeOver(..)
            | WorkerStep::RecordStart
            | WorkerStep::ReleaseHandedOver
            | WorkerStep::ReleaseUnheard
            | WorkerStep::Commit { .. }
            | WorkerStep::Park { .. }
            | WorkerStep::Fail { .. }
            | WorkerStep::Block(_)
            | WorkerStep::Release
            | WorkerStep::ReleaseEmpty => add(early),
        }
        actions.extend(writes);
        if state.left.worker_crashes > 0 {
            actions.push(ModelAction::WorkerDies(number));
        }
    }
}

fn receive_actions(state: &ModelState, number: usize, actions: &mut Vec<ModelAction>) {
    // Idle workers are interchangeable, so the first one receives.
    if state.workers[..number].iter().any(Option::is_none) {
        return;
    }
    let mut last = None;
    for (at, message) in state.queue.iter().enumerate() {
        if last.replace(message) != Some(message) {
            actions.push(ModelAction::Receive(number, at));
        }
    }
    if state.left.copies > 0 && state.workers.iter().flatten().any(|other| other.message == HeldMessage::Own) {
        actions.push(ModelAction::ReceiveCopy(number));
    }
}

fn gap_actions(state: &ModelState, number: usize, worker: &ModelWorker, actions: &mut Vec<ModelAction>) {
    let sequence = worker.draining().known.place().0;
    if state.item(ModelItem::Delivery(sequence)).is_some() {
        actions.push(ModelAction::GapIsFilled(number));
    }
    if state.left.overruns > 0 {
        actions.push(ModelAction::StopsEarly(number));
    }
    if state.left.expiries > 0 {
        actions.push(ModelAction::GapMayHaveExpired(number));
    }
}

fn run_actions(state: &ModelState, number: usize, actions: &mut Vec<ModelAction>) {
    actions.push(ModelAction::HandlerEnds(number, HandlerAnswer::Done));
    for (left, answer) in [
        (state.left.failures, HandlerAnswer::Fails),
        (state.left.timeouts, HandlerAnswer::TimesOut),
        (state.left.rejections, HandlerAnswer::Rejects),
    ] {
        if left > 0 {
            actions.push(ModelAction::HandlerEnds(number, answer));
        }
    }
    if state.left.renewals > 0 {
        actions.push(ModelAction::RenewalFails(number));
    }
}
