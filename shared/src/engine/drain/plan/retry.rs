//! Decides what follows a handler's answer: the delivery is settled, retried or parked, or its
//! entity is blocked.

use std::time::Duration;

use super::{DeliveryGroup, Drain, HANDOVER_DELAY, PageItem, Step, park};
use crate::{
    handler::Outcome,
    protocol::{
        attempt::{FailureClass, LONGEST_ASKED, OnFailure, Retries},
        entity::Sequence,
        format::one_line,
        state::NOT_TRIED,
    },
    sources::Source,
    time::Timestamp,
};

/// The allowance for clock skew. The waits that a delivery inherits are limited to its age plus
/// this allowance.
const ALLOWED_SKEW: Duration = Duration::from_secs(300);

/// The mean wait after an [`Outcome::NotNow`] that requests no wait. Jitter adds or removes up to
/// half of it.
const NO_ROOM: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerTiming {
    pub at: Timestamp,
    pub took: Duration,
    /// A random number from 0.0 to 1.0, for the jitter of the wait that follows.
    pub fraction: f64,
}

/// A start that did not settle its deliveries.
struct Unsettled<'a> {
    class: FailureClass,
    error: String,
    group: DeliveryGroup,
    source: &'a Source,
    at: Timestamp,
}

impl Drain {
    pub fn answered(&self, outcome: Outcome, group: DeliveryGroup, source: &Source, answered: AnswerTiming) -> Step {
        let (class, asked, error) = match outcome {
            Outcome::Done => return Step::Apply,
            Outcome::Commit(writes) => return Step::Commit(writes),
            // A rejection does not say which delivery of the group it concerns, so each runs by itself.
            Outcome::Reject(error) if group.is_several() => {
                return self.apart(group, HANDOVER_DELAY, one_line(&error), source, Retries::default());
            }
            Outcome::Reject(error) => return park(self.tried(group) + 1, one_line(&error)),
            Outcome::Retry { after, error } => (FailureClass::Failed, after, error),
            Outcome::Unanswered { after, error } => (FailureClass::Unanswered, after, error),
            Outcome::Unavailable { after, error } => (FailureClass::Unavailable, after, error),
            Outcome::NotNow { after, error } => {
                let asked = after.filter(|after| !after.is_zero()).map(|after| after.min(LONGEST_ASKED));
                let wait = match asked {
                    Some(asked) => self.no_later(asked, answered.at),
                    None => self.scheduled(NO_ROOM.mul_f64(0.5 + answered.fraction), answered.at),
                };
                let start = Unsettled::of(FailureClass::Unavailable, &error, group, source, answered.at);
                return self.unsettled(start, wait, wait);
            }
        };
        self.after(class, asked, &error, group, source, answered)
    }

    pub fn failed(&self, error: &str, group: DeliveryGroup, source: &Source, answered: AnswerTiming) -> Step {
        self.after(FailureClass::Failed, None, error, group, source, answered)
    }

    pub fn refused(&self, group: DeliveryGroup, source: &Source, answered: AnswerTiming) -> Step {
        self.failed("a condition of the handler's own writes did not hold", group, source, answered)
    }

    fn after(
        &self,
        class: FailureClass,
        asked: Option<Duration>,
        error: &str,
        group: DeliveryGroup,
        source: &Source,
        AnswerTiming { at, took, fraction }: AnswerTiming,
    ) -> Step {
        let waited = self.retries(at).waited(class);
        let backoff = self.scheduled(source.retry.doubled(class, waited, fraction), at);
        let asked = asked.map(|asked| self.no_later(asked, at));
        let wait = source.retry.wait(class, backoff, asked, took);
        // A handler that asks for shorter waits must not get more attempts.
        self.unsettled(Unsettled::of(class, error, group, source, at), wait, wait.max(backoff))
    }

    /// Returns the step for a delivery whose start a breaker refused: the delivery waits for `wait`.
    ///
    /// The refusal counts nothing and reaches no limit, because the delivery was not tried. If the
    /// delivery already waits for an unavailable destination, this time goes on.
    pub fn held_back(&self, wait: Duration, source: &Source, at: Timestamp) -> Step {
        let wait = no_sooner(self.scheduled(wait, at), source);
        let retries = match self.retries(at) {
            retries if retries.waits_for_destination() => {
                retries.waiting(FailureClass::Unavailable, self.beyond_ended_wait(wait, at))
            }
            retries => retries,
        };
        // A delivery that was tried keeps its error, and so its class of waits.
        let error = self.state.last_error.clone().unwrap_or_else(|| NOT_TRIED.into());
        Step::Retry { is_started: false, attempts: self.state.attempts, retries, one_by_one: None, wait, error }
    }

    /// Returns the step after `start`.
    ///
    /// If the delivery is retried, it waits for `wait`, or for the interval of the source's rate if
    /// that is longer. The longer of this actual wait and `counted` is added to the delivery's
    /// total wait of the same class, which the source limits.
    fn unsettled(&self, start: Unsettled<'_>, wait: Duration, counted: Duration) -> Step {
        let Unsettled { class, error, group, source, at } = start;
        let mut retries = self.retries(at);
        if !self.has_attempts_of(group) {
            retries.failures = 0;
        }
        // An unavailable destination began nothing. So no attempt counts, and the group stays together.
        let is_charged = class != FailureClass::Unavailable;
        let attempts = if is_charged { self.tried(group) + 1 } else { self.state.attempts };
        // DynamoDB's TTL could delete a delivery that waits for longer.
        // A limit counts the time that has passed, not the rest of a wait that an operator ended.
        let passed = retries.without(self.unspent_wait(at));
        let is_over = passed.waited(class) >= self.memory.retention / 2;
        if is_over || source.retry.gives_up(class, &passed) {
            let carried = if is_charged { Retries::default() } else { self.state.retries.carried() };
            return match (group.is_several(), source.on_failure) {
                (true, _) => self.apart(group, HANDOVER_DELAY, error, source, carried),
                (_, OnFailure::Park) if self.is_followed_by(source) => Step::Park { attempts, error, carried },
                (_, OnFailure::Park) => park(attempts, error),
                (_, on_failure) => self.give_up(on_failure, attempts, error),
            };
        }
        if is_charged && group.is_several() && !group.is_latest {
            return self.apart(group, wait, error, source, Retries::default());
        }
        let one_by_one = if !is_charged {
            None
        } else if group.is_several() {
            Some(self.state.head)
        } else {
            // From now on the attempts belong to the delivery in front.
            self.state.has_attempts_of_latest().then(|| self.state.next())
        };
        let wait = no_sooner(wait, source);
        let retries = retries.after(class, self.beyond_ended_wait(wait.max(counted), at));
        Step::Retry { is_started: true, attempts, retries, one_by_one, wait, error }
    }

    /// Returns whether the delivery behind the one in front is read, and comes from `source`. Only
    /// then may it inherit waits for the source's destination.
    fn is_followed_by(&self, source: &Source) -> bool {
        let next = self.page.items.get(1).and_then(PageItem::delivery);
        next.is_some_and(|next| next.source() == &source.name)
    }

    /// Returns the retries of the delivery in front.
    ///
    /// Waits that the delivery inherited from an earlier one are limited to its own age plus
    /// [`ALLOWED_SKEW`].
    fn retries(&self, now: Timestamp) -> Retries {
        let Some(front) = self.front() else { return self.state.retries };
        self.state.retries.at_most(now.since(front.unpacked.head().appended_at()) + ALLOWED_SKEW)
    }

    /// Returns the rest of the wait that an operator ended.
    pub(super) fn unspent_wait(&self, now: Timestamp) -> Duration {
        self.ended_wait.map_or(Duration::ZERO, |ended| ended.until.since(now))
    }

    /// Returns the part of `wait` that the delivery's total wait does not include yet.
    fn beyond_ended_wait(&self, wait: Duration, now: Timestamp) -> Duration {
        wait.saturating_sub(self.unspent_wait(now))
    }

    /// Returns `asked`, or the rest of the wait that an operator ended, if that is shorter.
    fn no_later(&self, asked: Duration, now: Timestamp) -> Duration {
        match self.unspent_wait(now) {
            Duration::ZERO => asked,
            unspent => asked.min(unspent),
        }
    }

    /// Returns `wait`, or the rest of the wait that an operator ended.
    fn scheduled(&self, wait: Duration, now: Timestamp) -> Duration {
        match self.unspent_wait(now) {
            Duration::ZERO => wait,
            unspent => unspent,
        }
    }

    /// Returns the step that splits a group: from now on each of its deliveries starts by itself.
    ///
    /// Then only the delivery that causes the failure uses up its attempts.
    fn apart(&self, group: DeliveryGroup, wait: Duration, error: String, source: &Source, retries: Retries) -> Step {
        let one_by_one = Some(Sequence(self.state.head.0 + group.size as u64));
        Step::Retry { is_started: true, attempts: 0, retries, one_by_one, wait: no_sooner(wait, source), error }
    }

    pub(super) fn give_up(&self, on_failure: OnFailure, attempts: u32, error: String) -> Step {
        match on_failure {
            OnFailure::Park => park(attempts, error),
            OnFailure::Block => Step::GiveUp { attempts, retries: self.state.retries, error },
        }
    }
}

impl<'a> Unsettled<'a> {
    fn of(class: FailureClass, error: &str, group: DeliveryGroup, source: &'a Source, at: Timestamp) -> Self {
        Self { class, error: one_line(error), group, source, at }
    }
}

fn no_sooner(wait: Duration, source: &Source) -> Duration {
    source.rate.map_or(wait, |rate| wait.max(rate.interval()))
}
