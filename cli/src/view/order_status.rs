//! The status of an order: its kind, the causes, and the commands that an operator can run next. Commands and pages all
//! derive an order's status here.

mod delay;

use std::time::Duration;

use webhook_serializer::{
    alerts::Trouble,
    protocol::{
        attempt::{FailureClass, Retries},
        entity::{EntityKey, Sequence, SourceName},
        state::{BlockReason, EntityState, LeaseKind, VANISHED_BEFORE_START},
    },
    time::Timestamp,
};

use crate::{
    output::{command_line, counted, duration},
    view::position::{ShortSequence, marked},
};

pub use delay::{DelayCause, KnownSources, SourceDelay, SourceDelays};

/// The kinds of order states, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Blocked,
    Parked,
    OnHold,
    Failing,
    Unavailable,
    Abandoned,
    Leased,
    Waiting,
    AtWork,
    Idle,
}

impl Kind {
    pub const ALL: [Self; 10] = [
        Self::Blocked,
        Self::Parked,
        Self::OnHold,
        Self::Failing,
        Self::Unavailable,
        Self::Abandoned,
        Self::Leased,
        Self::Waiting,
        Self::AtWork,
        Self::Idle,
    ];

    /// Derives the kind from the order's row. The result is never `Parked`, because the row does not record parked
    /// deliveries.
    pub fn of(state: &EntityState, now: Timestamp) -> Self {
        match &state.held {
            _ if state.blocked.is_some() => Self::Blocked,
            _ if state.hold.since().is_some() => Self::OnHold,
            Some(held) if held.runs(now) => match held.kind {
                LeaseKind::Drain => Self::AtWork,
                LeaseKind::Exclusive => Self::Leased,
            },
            Some(_) => Self::Abandoned,
            None if state.is_empty() => Self::Idle,
            None if is_unavailable(state) => Self::Unavailable,
            None if state.attempts > 0 || failed_group(state).is_some() => Self::Failing,
            None => Self::Waiting,
        }
    }

    pub fn is_trouble(self) -> bool {
        !matches!(self, Self::AtWork | Self::Waiting | Self::Idle)
    }

    pub fn with_parked(self, has_parked: bool) -> Self {
        if self == Self::Idle && has_parked { Self::Parked } else { self }
    }

    pub fn needs_somebody(self) -> bool {
        matches!(self, Self::Blocked | Self::Parked | Self::OnHold)
    }

    /// Describes orders of this kind in a sentence, such as `2 orders are …`.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Unavailable => "waiting for an unavailable destination",
            Self::Abandoned => "with the lease of a dead holder",
            Self::Leased => "leased by others",
            _ => self.as_str(),
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => Trouble::Blocked.as_str(),
            Self::Parked => Trouble::Parked.as_str(),
            Self::OnHold => Trouble::OnHold.as_str(),
            Self::Failing => Trouble::Failing.as_str(),
            Self::Unavailable => Trouble::Unavailable.as_str(),
            Self::Abandoned => "abandoned",
            Self::Leased => "leased",
            Self::Waiting => "waiting",
            Self::AtWork => "at work",
            Self::Idle => "idle",
        }
    }
}

/// The beginning of the sentence about a failed delivery's next attempt.
const NEXT_ATTEMPT: &str = "The next attempt starts";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextCommand {
    pub command: &'static str,
    /// The command line's first argument, if that argument is a source instead of the order's key.
    pub source: Option<SourceName>,
    pub arguments: Vec<String>,
    pub purpose: &'static str,
    /// Set if the command only wakes a worker.
    wakes_worker: bool,
}

impl NextCommand {
    pub fn new(command: &'static str, arguments: &[&str], purpose: &'static str) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { command, source: None, arguments, purpose, wakes_worker: false }
    }

    fn waking(command: &'static str, purpose: &'static str) -> Self {
        Self { wakes_worker: true, ..Self::new(command, &[], purpose) }
    }

    /// Returns the command that redrives an order's `count` parked deliveries. `one` is the delivery to redrive if
    /// `count` is 1. If the deliveries are unrouted, the command redrives only `one` in any case, because unrouted
    /// deliveries belong to different orders.
    pub fn redrive(order: &EntityKey, one: Sequence, count: usize) -> Self {
        let one = ShortSequence(one).to_string();
        match count {
            _ if order.is_unrouted() => Self::new("redrive", &[&one, "--to", "ORDER"], "appends it to ORDER"),
            1 => Self::new("redrive", &[&one], "once the cause is fixed: appends it again at the end"),
            _ => Self::new("redrive", &[], "once the cause is fixed: appends them again at the end"),
        }
    }

    pub fn line(&self, option: &str, order: &EntityKey) -> String {
        let first = self.source.as_ref().map_or(order.as_str(), SourceName::as_str);
        let arguments: Vec<&str> = [first].into_iter().chain(self.arguments.iter().map(String::as_str)).collect();
        command_line(self.command, option, &arguments)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct ParkedDeliveries<'a> {
    pub order: &'a EntityKey,
    pub count: usize,
    pub newest: Sequence,
    pub newest_error: &'a str,
}

impl<'a> ParkedDeliveries<'a> {
    /// Builds the summary of deliveries that are sorted by sequence. Returns `None` if there are no deliveries.
    pub fn of(parked: impl ExactSizeIterator<Item = (&'a EntityKey, Sequence, &'a str)>) -> Option<Self> {
        let count = parked.len();
        parked.last().map(|(order, newest, newest_error)| Self { order, count, newest, newest_error })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderStatus {
    pub kind: Kind,
    /// Sentences that explain the order's state. Causes that need an operator come first.
    pub causes: Vec<String>,
    pub next: Vec<NextCommand>,
}

impl OrderStatus {
    /// Derives the status from the order's row. `topic` is the topic of the order's next delivery, if known.
    pub fn of(
        state: Option<&EntityState>,
        topic: Option<&str>,
        parked: Option<ParkedDeliveries<'_>>,
        now: Timestamp,
    ) -> Self {
        let kind = state.map_or(Kind::Idle, |state| Kind::of(state, now)).with_parked(parked.is_some());
        let mut status = Self { kind, causes: Vec::new(), next: Vec::new() };
        if let Some(state) = state {
            status.explain_stop(state, topic, now);
        }
        if let Some(parked) = parked {
            status.explain_parked(parked);
        }
        if let Some(state) = state {
            status.explain_progress(state, topic, now);
        }
        status
    }

    fn explain_stop(&mut self, state: &EntityState, topic: Option<&str>, now: Timestamp) {
        let delivery = delivery(state, topic);
        let next = ShortSequence(state.next()).to_string();
        if let Some(reason) = state.blocked {
            let error = state.last_error.as_deref().unwrap_or("no error was recorded");
            self.explain(match reason {
                BlockReason::Attempts => format!("{delivery} failed after {}: {error}", attempts(state)),
                BlockReason::Expired => format!(
                    "#{next} is empty and so old that its delivery may have expired. Ask the sender whether a webhook is missing."
                ),
                BlockReason::Vanished => format!(
                    "{VANISHED_BEFORE_START} workers in a row died before they started the handler of {delivery}. Their logs say why."
                ),
            });
            match reason {
                BlockReason::Expired => {
                    self.next.push(NextCommand::new(
                        "resume",
                        &[],
                        "fills it with a tombstone and continues with the next delivery",
                    ));
                }
                BlockReason::Attempts | BlockReason::Vanished => {
                    self.show(&next);
                    self.next.push(NextCommand::new(
                        "resume",
                        &[],
                        "once the cause is fixed: tries it again, its attempts counted from zero",
                    ));
                    let skip = NextCommand::new(
                        "skip",
                        &[&next, "--why", "TEXT"],
                        "parks it and continues with the next delivery",
                    );
                    self.next.push(skip);
                }
            }
        }
        if let Some(since) = state.hold.since() {
            let waiting = counted(state.waiting(), "delivery waits", "deliveries wait");
            self.explain(format!("An operator put it on hold {} ago. {waiting}.", duration(now.since(since))));
            self.next.push(NextCommand::new("show", &["--history"], "who put it on hold, and why"));
            if state.blocked.is_none() {
                self.next.push(NextCommand::new("resume", &[], "lets it continue"));
            }
        }
    }

    fn explain_parked(&mut self, parked: ParkedDeliveries<'_>) {
        let ParkedDeliveries { order, count, newest, newest_error } = parked;
        let one = ShortSequence(newest).to_string();
        self.show(&one);
        self.next.push(NextCommand::redrive(order, newest, count));
        if count == 1 {
            self.explain(format!("1 delivery is parked: {newest_error}"));
            self.next.push(NextCommand::new("discard", &[&one, "--why", "TEXT"], "removes it for good"));
        } else {
            self.explain(format!("{count} deliveries are parked; the error of the newest: {newest_error}"));
        }
    }

    fn explain_progress(&mut self, state: &EntityState, topic: Option<&str>, now: Timestamp) {
        if self.kind != Kind::Blocked {
            self.explain_failure(state, topic, now);
        }
        let by = state.holder_info.as_ref().map_or("somebody", |info| info.as_str());
        let is_stopped = state.is_stopped();
        match &state.held {
            Some(held) if held.runs(now) => {
                let left = duration(held.expires_at.since(now));
                match held.kind {
                    LeaseKind::Drain if is_stopped => {
                        self.explain(format!("A worker ({by}) finishes the running delivery and starts no other."));
                    }
                    LeaseKind::Drain => self.explain(format!(
                        "A worker ({by}) handles the order; its lease expires in {left} unless it is renewed."
                    )),
                    LeaseKind::Exclusive => {
                        self.explain(format!(
                            "{by} has leased the order; the lease expires in {left} unless it is renewed. Deliveries wait until it ends."
                        ));
                        let release = &["--why", "TEXT"];
                        self.next.push(NextCommand::new(
                            "lease release",
                            release,
                            "takes the lease from a holder that hangs",
                        ));
                    }
                }
            }
            Some(held) if !is_stopped => {
                let ago = duration(now.since(held.expires_at));
                self.explain(format!(
                    "Its holder ({by}) died or froze: the lease expired {ago} ago. The next wake-up lets a worker take it over; the sweep sends one within three hours."
                ));
                self.next.push(NextCommand::waking("resume", "wakes a worker now"));
            }
            _ => {}
        }
        match self.kind {
            Kind::Waiting => {
                let waiting = counted(state.waiting(), "delivery waits", "deliveries wait");
                let later = |time: Option<Timestamp>| time.filter(|at| *at > now).map(|at| duration(at.since(now)));
                self.explain(match (later(state.retry_at), later(state.handover)) {
                    (Some(left), _) => format!(
                        "{waiting}. The next start is due in {left} at the earliest: by the source's `rate`, the turn of other \
                         orders, or a delivery that is still being stored."
                    ),
                    (None, Some(left)) => format!("{waiting}. A worker looks again in {left}."),
                    (None, None) => format!("{waiting} to be handled."),
                });
                self.next.push(NextCommand::waking("resume", "if this lasts: wakes a worker"));
            }
            Kind::Idle => self.explain("All deliveries are settled.".to_owned()),
            _ => {}
        }
    }

    fn explain_failure(&mut self, state: &EntityState, topic: Option<&str>, now: Timestamp) {
        let delivery = delivery(state, topic);
        let error = state.last_error.as_deref().unwrap_or("no error was recorded");
        let group = failed_group(state);
        let unserved = state.retry_at.map_or(Duration::ZERO, |at| at.since(now));
        let waited = duration(state.retries.total().saturating_sub(unserved));
        if !state.is_empty() && (state.attempts > 0 || group.is_some() || is_unavailable(state)) {
            self.explain(match group {
                _ if is_held_back(state) => format!("{delivery} waits for its destination: {error}"),
                _ if is_unavailable(state) => {
                    format!("{delivery} waits for its destination, so far {waited} in all: {error}")
                }
                _ if is_unanswered(state) => {
                    let tried = attempts(state);
                    format!("{delivery} has no answer after {tried}, and has waited {waited} in all: {error}")
                }
                Some(last) => format!(
                    "A group of deliveries up to {} failed, and each delivery is now tried alone: {error}",
                    marked(last)
                ),
                None if state.has_attempts_of_latest() => {
                    format!("The newest waiting delivery failed after {}: {error}", attempts(state))
                }
                None => format!("{delivery} failed after {}: {error}", attempts(state)),
            });
            if !state.is_stopped() && state.held.is_none() {
                self.show(&ShortSequence(state.next()).to_string());
                match state.retry_at.filter(|at| *at > now) {
                    Some(at) => {
                        self.explain(format!("{NEXT_ATTEMPT} in {}.", duration(at.since(now))));
                        self.next.push(NextCommand::waking("retry", "starts it now"));
                    }
                    None => self.explain(format!("{NEXT_ATTEMPT} when a worker is free.")),
                }
            }
        }
        if state.suspect > 0 {
            let died = counted(state.suspect.into(), "worker", "workers");
            self.explain(format!(
                "{died} died while {delivery} was next. So the delivery runs in isolation: alone, after the worker's other orders, and its start is recorded first."
            ));
        }
    }

    fn explain(&mut self, cause: String) {
        let end = if cause.ends_with(['.', '!', '?']) { "" } else { "." };
        self.causes.push(cause + end);
    }

    fn show(&mut self, sequence: &str) {
        let show = NextCommand::new("show", &[sequence], "the delivery and its body");
        if !self.next.contains(&show) {
            self.next.push(show);
        }
    }

    pub fn summary(&self) -> String {
        if self.kind == Kind::Idle { String::new() } else { self.causes.join(" ") }
    }
}

fn delivery(state: &EntityState, topic: Option<&str>) -> String {
    match topic {
        Some(topic) => format!("{topic} {}", marked(state.next())),
        None => marked(state.next()),
    }
}

fn attempts(state: &EntityState) -> String {
    counted(state.attempts.into(), "attempt", "attempts")
}

/// Returns the number of attempts, and names the starts that count none.
pub fn attempts_so_far(state: &EntityState) -> String {
    let uncounted = uncounted(state).map(|starts| format!(", without {starts}"));
    format!("{}{}", state.attempts, uncounted.unwrap_or_default())
}

/// Names the starts of the next delivery that the number of attempts leaves out, if there were any.
pub fn uncounted(state: &EntityState) -> Option<&'static str> {
    let has_any = !state.retries.waited(FailureClass::Unavailable).is_zero();
    has_any.then_some("starts that found the destination unavailable")
}

fn is_unavailable(state: &EntityState) -> bool {
    waits_as(state, FailureClass::Unavailable) || is_held_back(state)
}

/// Returns whether a breaker refused the next delivery's first start.
fn is_held_back(state: &EntityState) -> bool {
    let is_untried = state.attempts == 0 && state.suspect == 0 && state.retries.total().is_zero();
    is_untried && state.last_error.is_some() && state.retry_at.is_some() && failed_group(state).is_none()
}

/// Returns whether the latest start of the next delivery gave no answer.
fn is_unanswered(state: &EntityState) -> bool {
    waits_as(state, FailureClass::Unanswered)
}

fn waits_as(state: &EntityState, class: FailureClass) -> bool {
    let waits = state.retry_at.is_some() && state.last_error.is_some() && state.retries != Retries::default();
    waits && state.retries.class == class && !state.is_empty()
}

/// Returns the last sequence of a group that failed as a whole. The deliveries of such a group are then handled one by
/// one. Returns `None` once one of these deliveries has failed by itself.
fn failed_group(state: &EntityState) -> Option<Sequence> {
    let is_uncharged = state.attempts == 0 && state.suspect == 0 && state.last_error.is_some();
    state.one_by_one.filter(|_| state.is_one_by_one() && is_uncharged)
}

#[cfg(test)]
mod tests;
