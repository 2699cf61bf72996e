//! Appends of webhooks and redrives.

use crate::{
    operations::{Op, OperationReply},
    protocol::{Hearing, Protocol, StateBuilder},
    reached::Reached,
    state::{Append, AppendStep, ModelState},
    store::{ClockReading, ModelItem, NonceId, time},
    without::ViolatedRule,
};
use Hearing::{Heard, Lost};

impl Protocol {
    pub fn append_actions(
        &self,
        state: &ModelState,
        append: &Append,
        write: &mut dyn FnMut(Option<ClockReading>, Hearing),
        wake: &mut dyn FnMut(),
    ) {
        let lossy = state.left.lost_replies > 0;
        let replies: &[Hearing] = if lossy { &[Heard, Lost] } else { &[Heard] };
        match append.step {
            AppendStep::Claim => {
                let view = state.view();
                let timed = view.is_some_and(|view| view.held.is_some() || view.retry_at.is_some());
                let clocks: &[ClockReading] =
                    if timed { &[ClockReading::Early, ClockReading::Late] } else { &[ClockReading::Early] };
                for clock in clocks {
                    for reply in replies {
                        write(Some(*clock), *reply);
                    }
                }
            }
            AppendStep::Write { stored, owed, .. } => {
                if stored.is_none() {
                    for reply in replies {
                        write(None, *reply);
                    }
                }
                if owed.is_some() {
                    wake();
                }
            }
            AppendStep::Answered(_) | AppendStep::Ended => {}
        }
    }

    /// Returns whether two arrivals are interchangeable.
    pub fn are_alike(&self, one: usize, other: usize) -> bool {
        let arrivals = self.arrivals;
        let only = |number: usize| arrivals.iter().filter(|id| **id == arrivals[number]).count() == 1;
        arrivals[one] == arrivals[other] || only(one) && only(other)
    }
}

impl StateBuilder<'_> {
    pub fn claim(&mut self, append: &mut Append, clock: ClockReading, reply: Hearing) {
        let executed = self.on_entity(Op::Claim(append.drawn()));
        if reply == Lost {
            append.doubt = true;
            return;
        }
        let OperationReply::Claimed(sequence, view) = executed.reply else { unreachable!() };
        if !executed.landed {
            self.model.reach(Reached::LostClaimRecognised);
        }
        let doubt = append.doubt && !self.has(ViolatedRule::RetryClaimWithoutDoubt);
        let now = time(self.state.epoch, clock);
        let before = append.known;
        let mut owed = append.known.claimed(&view, doubt, now).and_then(|wake_up| wake_up.token);
        if self.has(ViolatedRule::NoWakeUpInRateWait) && view.retry_at.is_some_and(|at| at > now) && !doubt {
            append.known = before;
            owed = owed.filter(|_| before.owed);
        }
        append.doubt = false;
        append.after = (0..)
            .zip(&self.state.appends)
            .fold(0, |set, (number, other)| set | u8::from(matches!(other.step, AppendStep::Answered(_))) << number);
        append.step = AppendStep::Write { sequence, stored: None, owed };
    }

    pub fn put(&mut self, append: &mut Append, reply: Hearing) {
        let AppendStep::Write { sequence, owed, .. } = append.step else { unreachable!() };
        // The envelope keeps the nonce of the append's first claim.
        let executed =
            self.on_item(ModelItem::Delivery(sequence), Op::Put(append.id, NonceId(append.author, 0), sequence));
        if reply == Lost {
            return;
        }
        append.step = AppendStep::Write { sequence, stored: Some(executed.reply == OperationReply::Stored), owed };
        self.written(append);
    }

    pub fn send_owed(&mut self, append: &mut Append) {
        let AppendStep::Write { sequence, stored, owed } = append.step else { unreachable!() };
        self.state.queue.push((owed, false));
        append.step = AppendStep::Write { sequence, stored, owed: None };
        self.written(append);
    }

    fn written(&mut self, append: &mut Append) {
        let AppendStep::Write { sequence, stored, owed } = append.step else { unreachable!() };
        let forgets = self.has(ViolatedRule::ForgetOwedAfterVoid) && stored == Some(false);
        let answers = self.has(ViolatedRule::AnswerBeforeWakeUp) && stored == Some(true);
        if owed.is_some() && !forgets && !answers {
            return;
        }
        match stored {
            None => {}
            Some(true) => append.step = AppendStep::Answered(sequence),
            Some(false) => {
                append.step = if append.known.overtaken() { AppendStep::Claim } else { AppendStep::Ended };
                append.known.owed &= !forgets;
                self.model.reach(Reached::PutFindsVoid);
            }
        }
    }
}
