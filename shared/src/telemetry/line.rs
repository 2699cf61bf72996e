//! Renders events as log lines.

use std::{borrow::Cow, time::Duration};

use tracing::Level;

use super::{
    event::{Event, RequeueReason, Swept},
    message::{IngestRefusal, LogMessage},
    metric::{Dimensions, Metric},
};
use crate::protocol::{
    delivery::{Delivery, Incoming},
    entity::{EntityKey, FencingToken, Identity},
    receipt::Settlement,
    tick::TickOutcome,
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct LogLine<'a> {
    pub(super) level: Level,
    pub(super) message: &'static str,
    pub(super) fields: Vec<(&'static str, FieldValue<'a>)>,
    pub(super) metrics: Vec<(Metric, u64)>,
    pub(super) dimensions: Option<Dimensions<'a>>,
    pub(super) measures: Measures<'a>,
}

/// The source's name in lines about requests that name no configured source. The parentheses keep it
/// apart from real names.
const NO_SOURCE: &str = "(none)";

#[derive(Debug)]
pub(super) enum FieldValue<'a> {
    Text(Cow<'a, str>),
    Number(u64),
}

#[derive(Debug)]
pub(super) enum Measures<'a> {
    /// The line reports only the measurements of its own event.
    Own,
    /// The line also reports the entity's measurements that no line has reported yet.
    WithPending(&'a EntityKey),
    /// No line is written. The measurements wait for the entity's next line.
    Pending(&'a EntityKey),
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the level of a line about a requeued wake-up. Frequent reasons have DEBUG, because other lines
/// report them as well.
fn level_of(reason: RequeueReason) -> Level {
    use RequeueReason::{BreakerOpen, DestinationDown, Drained, Paused, Retry};
    if matches!(reason, Drained | Retry | BreakerOpen | DestinationDown | Paused) { Level::DEBUG } else { Level::INFO }
}

impl<'a> LogLine<'a> {
    fn new(level: Level, message: impl Into<&'static str>) -> Self {
        Self {
            level,
            message: message.into(),
            fields: Vec::new(),
            metrics: Vec::new(),
            dimensions: None,
            measures: Measures::Own,
        }
    }

    fn text(mut self, name: &'static str, text: impl Into<Cow<'a, str>>) -> Self {
        self.fields.push((name, FieldValue::Text(text.into())));
        self
    }

    fn number(mut self, name: &'static str, number: u64) -> Self {
        self.fields.push((name, FieldValue::Number(number)));
        self
    }

    fn time(self, name: &'static str, time: Duration) -> Self {
        self.number(name, millis(time))
    }

    fn of_entity(self, entity: &'a EntityKey) -> Self {
        self.text("entity", entity.as_str())
    }

    fn of_lease(self, entity: &'a EntityKey, token: FencingToken) -> Self {
        self.of_entity(entity).number("token", token.0)
    }

    fn of_delivery(self, delivery: &'a Delivery) -> Self {
        self.number("sequence", delivery.sequence().0).text("delivery", delivery.delivery_id().as_str())
    }

    pub(super) fn counted(mut self, metric: Metric, count: u64) -> Self {
        self.metrics.push((metric, count));
        self
    }

    pub(super) fn counting(mut self, metric: Metric, count: u64) -> Self {
        self.metrics.iter_mut().filter(|(known, _)| *known == metric).for_each(|(_, held)| *held = count);
        self
    }

    fn by(mut self, source: &'a str, outcome: &'static str) -> Self {
        self.dimensions = Some(Dimensions { source, outcome });
        self
    }

    fn measured(mut self, measures: Measures<'a>) -> Self {
        self.measures = measures;
        self
    }

    pub(super) fn measured_besides(metrics: Vec<(Metric, u64)>) -> Self {
        Self { metrics, ..Self::new(Level::INFO, LogMessage::Measured) }
    }

    pub(super) fn of_refusals(source: Option<&'a str>, refusal: IngestRefusal, count: u64) -> Self {
        // Anybody can invent a source's name or open the URL in a browser, so these refusals are
        // not warnings.
        let is_failure = source.is_some() && refusal.is_failure();
        let level = match refusal {
            // Only a mistake in the deployment causes it.
            IngestRefusal::WrongEvent | IngestRefusal::UnknownQueue => Level::ERROR,
            _ if is_failure => Level::WARN,
            _ => Level::INFO,
        };
        let line = Self::new(level, refusal.as_str()).counted(Metric::Refused, count);
        let line = if is_failure { line.counted(Metric::Accepted, 0) } else { line };
        line.by(source.unwrap_or(NO_SOURCE), refusal.as_str())
    }

    fn of_incoming(self, incoming: &'a Incoming, outcome: &'static str) -> Self {
        let Identity { source, delivery_id, .. } = &incoming.identity;
        self.text("delivery", delivery_id.as_str()).text("topic", &incoming.topic).by(source.as_str(), outcome)
    }

    fn with_wake_up(mut self, is_lost: bool) -> Self {
        if !is_lost {
            return self;
        }
        self.level = Level::WARN;
        self.text("wake_up", "failed").counted(Metric::FailedWakeUps, 1)
    }

    fn settled_as(mut self, settlement: Settlement, delivery: Option<&'a Delivery>, took: Option<Duration>) -> Self {
        let outcome = settlement.as_str();
        self = match delivery {
            Some(one) => self.text("delivery", one.delivery_id().as_str()).by(one.source().as_str(), outcome),
            None => self.text("outcome", outcome),
        };
        self.metrics.extend(match settlement {
            Settlement::Applied => Some((Metric::Delivered, 1)),
            Settlement::Repeat => Some((Metric::Repeated, 1)),
            Settlement::Parked => Some((Metric::Parked, 1)),
            Settlement::Void | Settlement::Superseded => None,
        });
        self.metrics.extend(took.map(|took| (Metric::HandlerMs, millis(took))));
        self
    }

    fn swept(swept: &Swept) -> Self {
        let line = Self::new(Level::INFO, "swept")
            .number("segments", swept.segments)
            .number("seen", swept.seen)
            .number("woken", swept.woken)
            .number("owed", swept.owed)
            .number("kept", swept.kept)
            .number("unreadable", swept.unreadable)
            .number("unserved", swept.unserved)
            .counted(Metric::OldestWaitingSeconds, swept.oldest.as_secs());
        if swept.lagging { line.text("queue", "lags") } else { line }
    }

    fn job_ended(job: &'a str, tick: Timestamp, ending: TickOutcome, took: Option<Duration>) -> Self {
        let (level, message) = match ending {
            TickOutcome::Done => (Level::INFO, "job done"),
            // The error is left out, because it may quote anything. The row holds the error.
            TickOutcome::Failed => (Level::ERROR, LogMessage::JobFailed.as_str()),
            TickOutcome::Crashed => (Level::ERROR, LogMessage::JobCrashed.as_str()),
        };
        let mut line = Self::new(level, message).text("job", job).text("tick", tick.to_string());
        if let Some(took) = took {
            line = line.time("took_ms", took);
        }
        if ending == TickOutcome::Done { line } else { line.counted(Metric::JobsFailed, 1) }
    }

    pub(super) fn of(event: &Event<'a>) -> Self {
        use Level as L;
        use LogMessage as M;
        match *event {
            Event::Accepted { incoming, sequence, is_wake_up_lost } => Self::new(L::INFO, M::Accepted)
                .of_entity(&incoming.entity)
                .number("sequence", sequence.0)
                .of_incoming(incoming, "accepted")
                .counted(Metric::Accepted, 1)
                .with_wake_up(is_wake_up_lost),
            Event::Deferred { incoming, reason } => Self::new(L::WARN, M::Deferred)
                .of_entity(&incoming.entity)
                .of_incoming(incoming, "deferred")
                .text("reason", reason)
                .counted(Metric::Accepted, 1)
                .counted(Metric::Deferred, 1),
            Event::TakenUp { incoming, sequence, after, is_wake_up_lost } => Self::new(L::INFO, M::DeferredAppended)
                .of_entity(&incoming.entity)
                .number("sequence", sequence.0)
                .of_incoming(incoming, "appended")
                .time("after_ms", after)
                .with_wake_up(is_wake_up_lost),
            Event::UnreadableDelivery { message_id, reason } => {
                Self::new(L::ERROR, "deferred delivery is unreadable; its message stays in the queue")
                    .text("message_id", message_id)
                    .text("reason", reason)
            }
            Event::Ignored { incoming, filter } => {
                let line = Self::new(L::INFO, M::Ignored).of_incoming(incoming, "ignored");
                let line = filter.into_iter().fold(line, |line, place| line.text("filter", place));
                line.counted(Metric::Accepted, 1).counted(Metric::Ignored, 1)
            }
            Event::Refused { source, refusal, reason, .. } => {
                Self::of_refusals(source.map(|source| source.as_str()), refusal, 1).text("reason", reason)
            }
            Event::Started { delivery, token } => Self::new(L::DEBUG, M::Started)
                .of_entity(delivery.entity())
                .number("sequence", delivery.sequence().0)
                .number("token", token.0),
            Event::Settled { entity, sequence, settlement, delivery, took } => {
                let level = if settlement == Settlement::Parked { L::WARN } else { L::INFO };
                let line = Self::new(level, M::Settled).of_entity(entity).number("sequence", sequence.0);
                line.settled_as(settlement, delivery, took).measured(Measures::WithPending(entity))
            }
            // The error is left out, because it may quote the body. The row holds the error.
            Event::Failed { delivery, retry_in, error: _ } => Self::new(L::WARN, M::AttemptFailed)
                .of_entity(delivery.entity())
                .of_delivery(delivery)
                .number("attempt", delivery.attempt().into())
                .time("retry_in_ms", retry_in)
                .counted(Metric::Retries, 1)
                .by(delivery.source().as_str(), "retry")
                .measured(Measures::WithPending(delivery.entity())),
            Event::Blocked { entity, reason, delivery } => {
                let mut line = Self::new(L::WARN, M::Blocked).of_entity(entity);
                if let Some(one) = delivery {
                    line = line.of_delivery(one).by(one.source().as_str(), "blocked");
                }
                line.text("reason", reason.as_str()).counted(Metric::Blocked, 1).measured(Measures::WithPending(entity))
            }
            Event::Requeued { entity, delay, reason } => Self::new(level_of(reason), M::Requeued)
                .of_entity(entity)
                .time("delay_ms", delay)
                .text("reason", reason.as_str())
                .measured(Measures::WithPending(entity)),
            Event::Waited { entity, waited, polls } => Self::new(L::DEBUG, M::Waited)
                .of_entity(entity)
                .counted(Metric::WaitMs, millis(waited))
                .counted(Metric::Polls, polls.into())
                .measured(Measures::Pending(entity)),
            Event::TakenOver { entity, token } => {
                Self::new(L::WARN, M::LeaseTakenOver).of_lease(entity, token).counted(Metric::TakenOver, 1)
            }
            Event::Lost { entity, token } => {
                Self::new(L::WARN, M::LeaseLost).of_lease(entity, token).counted(Metric::Lost, 1)
            }
            Event::LeaseGranted { entity, token, waited, polls } => {
                let line = Self::new(L::DEBUG, M::LeaseGranted).of_lease(entity, token);
                if polls == 0 {
                    return line;
                }
                line.counted(Metric::WaitMs, millis(waited)).counted(Metric::Polls, polls.into())
            }
            Event::LeaseEnded { entity, token, held } => Self::new(L::DEBUG, M::LeaseEnded)
                .of_lease(entity, token)
                .time("held_ms", held)
                .counted(Metric::HoldMs, millis(held)),
            Event::LeaseDropped { entity, token } => Self::new(L::WARN, M::LeaseDropped).of_lease(entity, token),
            Event::LeaseInDoubt { entity, token } => {
                Self::new(L::WARN, M::LeaseInDoubt).of_lease(entity, token).counted(Metric::InDoubt, 1)
            }
            Event::WakeUpFailed { entity } => {
                Self::new(L::WARN, M::WakeUpNotSent).of_entity(entity).counted(Metric::FailedWakeUps, 1)
            }
            Event::BreakerOpened { source, wait } => Self::new(L::WARN, M::BreakerOpened)
                .time("wait_ms", wait)
                .counted(Metric::BreakersOpened, 1)
                .by(source.as_str(), "breaker opened"),
            Event::BreakerClosed { source } => Self::new(L::INFO, M::BreakerClosed).text("source", source.as_str()),
            // The error is left out, because it may quote anything.
            Event::DestinationUnavailable { source, is_hung, error: _ } => {
                let (text, outcome) = match is_hung {
                    true => (M::DestinationSilent, "unanswered"),
                    false => (M::DestinationUnavailable, "unavailable"),
                };
                Self::new(L::WARN, text).counted(Metric::UnavailableSeconds, 0).by(source.as_str(), outcome)
            }
            Event::DestinationAvailable { source, after } => Self::new(L::INFO, M::DestinationAvailable)
                .counted(Metric::UnavailableSeconds, after.as_secs())
                .by(source.as_str(), "available"),
            Event::NoWakeUp { message_id } => {
                Self::new(L::WARN, "foreign message deleted").text("message_id", message_id)
            }
            Event::Inversion { delivery } => Self::new(L::INFO, M::Inversion)
                .of_entity(delivery.entity())
                .of_delivery(delivery)
                .counted(Metric::Inversions, 1)
                .measured(Measures::Pending(delivery.entity())),
            Event::Swept { swept } => Self::swept(swept),
            Event::JobEnded { job, tick, ending, took } => Self::job_ended(job, tick, ending, took),
            // The end of the batch has counted these threads already.
            Event::ThreadsLost { lost, is_end: true } => {
                Self::new(L::ERROR, "process ends: abandoned handlers block its threads").number("lost", lost as u64)
            }
            Event::ThreadsLost { lost, is_end: false } => Self::new(L::WARN, "abandoned handlers block threads")
                .number("lost", lost as u64)
                .counted(Metric::LostThreads, lost as u64),
            Event::SourcesChanged { count } => Self::new(L::INFO, "sources changed").number("sources", count as u64),
            Event::SourcesKept { reason, is_news } => {
                Self::new(if is_news { L::WARN } else { L::DEBUG }, M::SourcesKept)
                    .text("reason", reason)
                    .counted(Metric::SourcesNotRead, 1)
            }
        }
    }
}
