//! The steps of an exclusive holder.

use webhook_serializer::{
    leases::wait::{WaitStep, wait_step},
    protocol::{lease::Acquired, state::LeaseKind},
};

use crate::{
    operations::{Executed, Op, OperationReply},
    protocol::{Hearing, ModelAction, Protocol, StateBuilder},
    reached::Reached,
    state::{Exclusive, ModelState},
    store::{AcquiredRef, ClockReading, NonceId, intern_lease, intern_view, time},
};
use Hearing::{Heard, Lost};

impl Protocol {
    pub fn exclusive_actions(&self, state: &ModelState, actions: &mut Vec<ModelAction>) {
        let replies: &[Hearing] = if state.left.lost_replies > 0 { &[Heard, Lost] } else { &[Heard] };
        match state.exclusive {
            Exclusive::Away if state.left.exclusive_leases == 0 => {}
            Exclusive::Away | Exclusive::Ask(_) | Exclusive::Wake => {
                actions.push(ModelAction::Exclusive(ClockReading::Early, Heard))
            }
            Exclusive::Poll => {
                actions.push(ModelAction::Exclusive(ClockReading::Early, Heard));
                actions.push(ModelAction::ExclusiveLeaves);
            }
            Exclusive::Look(..) => {
                actions.push(ModelAction::Exclusive(ClockReading::Early, Heard));
                if state.left.take_overs > 0 {
                    actions.push(ModelAction::Exclusive(ClockReading::Late, Heard));
                }
            }
            Exclusive::Acquire(_) | Exclusive::TakeOver(..) | Exclusive::Hold(_) | Exclusive::Leave(_) => {
                actions.extend(replies.iter().map(|reply| ModelAction::Exclusive(ClockReading::Early, *reply)));
            }
        }
        if state.left.exclusive_crashes > 0
            && matches!(state.exclusive, Exclusive::Hold(_) | Exclusive::Leave(_) | Exclusive::Wake)
        {
            actions.push(ModelAction::ExclusiveDies);
        }
    }
}

impl StateBuilder<'_> {
    pub fn take_exclusive_step(&mut self, clock: ClockReading, reply: Hearing) {
        let heard = reply == Heard;
        self.state.exclusive = match self.state.exclusive {
            Exclusive::Away => {
                self.state.left.exclusive_leases -= 1;
                Exclusive::Acquire(self.unused(50))
            }
            Exclusive::Poll => Exclusive::Acquire(self.unused(50)),
            Exclusive::Acquire(drawn) => {
                let executed = self.on_entity(Op::Acquire(LeaseKind::Exclusive, drawn, ClockReading::Early));
                if heard { self.answered(drawn, executed) } else { self.state.exclusive }
            }
            Exclusive::Look(drawn, answer) => self.let_in(drawn, answer, clock),
            Exclusive::TakeOver(drawn, seen) => {
                let executed = self.on_entity(Op::TakeOver(LeaseKind::Exclusive, drawn, seen));
                if executed.landed {
                    self.state.left.take_overs = self.state.left.take_overs.saturating_sub(1);
                }
                if heard { self.answered(drawn, executed) } else { self.state.exclusive }
            }
            Exclusive::Ask(_) => {
                self.on_entity(Op::RequestYield);
                Exclusive::Poll
            }
            Exclusive::Hold(lease) => match self.on_entity(Op::ReleaseEmpty(lease, true, false)).reply {
                _ if !heard => self.state.exclusive,
                OperationReply::Grown(_) => Exclusive::Leave(lease),
                _ => Exclusive::Away,
            },
            Exclusive::Leave(lease) => match self.on_entity(Op::YieldToDeliveries(lease)).reply {
                _ if !heard => self.state.exclusive,
                OperationReply::Ended(Some(view)) if !view.is_empty() => Exclusive::Wake,
                _ => Exclusive::Away,
            },
            Exclusive::Wake => {
                self.state.queue.push((None, false));
                Exclusive::Away
            }
        };
    }

    fn answered(&mut self, drawn: NonceId, executed: Executed) -> Exclusive {
        let OperationReply::Answered(answer) = executed.reply else { unreachable!() };
        match &*answer {
            // The next step decides whether the lease has expired.
            Acquired::Held(_) => Exclusive::Look(drawn, answer),
            _ => self.let_in(drawn, answer, ClockReading::Early),
        }
    }

    fn let_in(&mut self, drawn: NonceId, answer: AcquiredRef, clock: ClockReading) -> Exclusive {
        match wait_step((*answer).clone(), time(self.state.epoch, clock), None) {
            WaitStep::Granted(lease, _) => {
                self.model.reach(Reached::Exclusive);
                Exclusive::Hold(intern_lease(lease))
            }
            WaitStep::TakeOver(seen) => Exclusive::TakeOver(drawn, intern_view(&seen)),
            WaitStep::Await { asks: true, .. } => Exclusive::Ask(drawn),
            WaitStep::Await { .. } | WaitStep::AwaitTurn(_) | WaitStep::Request => Exclusive::Poll,
        }
    }
}
