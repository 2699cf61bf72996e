//! The functions' log: a line for each decision that matters, its metrics in
//! the same line.
//!
//! A delivery that goes well has two lines: accepted, settled. What was
//! measured on the way, such as its lag, waits for the line that decides it.
//! Metrics do not depend on the level: below it, a line holds only them.

use std::{
    collections::BTreeMap,
    fmt,
    io::Write,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tracing::{Level, level_filters::LevelFilter};

use super::{
    Event, Observer, PutOffReason,
    line::{Dimensions, Line, Metric, NAMESPACE},
    log_level,
};
use crate::{
    config::{Environment, Variables},
    protocol::{delivery::Delivery, entity::EntityKey, state::Settlement, tick::Ending},
    time::Surroundings,
};

/// Writes one JSON object a line.
pub struct JsonLog {
    surroundings: Surroundings,
    level: LevelFilter,
    namespace: String,
    state: Mutex<State>,
}

struct State {
    sink: Box<dyn Write + Send>,
    request: String,
    under_way: BTreeMap<EntityKey, UnderWay>,
}

/// What is known of an entity that this invocation works on.
#[derive(Default)]
struct UnderWay {
    /// When its last delivery was settled.
    settled: Option<Duration>,
    /// What waits for a line.
    metrics: Vec<(Metric, u64)>,
}

impl JsonLog {
    /// To standard output, from the level that `AWS_LAMBDA_LOG_LEVEL` names on,
    /// with metrics in the namespace that `METRICS_NAMESPACE` names.
    pub fn new(surroundings: Surroundings) -> Self {
        let level = log_level(Environment.value("AWS_LAMBDA_LOG_LEVEL").as_deref());
        let log = Self::to(std::io::stdout(), level, surroundings);
        match Environment.value("METRICS_NAMESPACE") {
            Some(namespace) => log.measuring(namespace),
            None => log,
        }
    }

    /// To `sink`, from `level` on.
    pub fn to(sink: impl Write + Send + 'static, level: LevelFilter, surroundings: Surroundings) -> Self {
        let sink = Box::new(sink);
        Self {
            surroundings,
            level,
            namespace: NAMESPACE.to_owned(),
            state: Mutex::new(State { sink, request: String::new(), under_way: BTreeMap::new() }),
        }
    }

    /// The same, with metrics in `namespace`, which is a JSON string's inside.
    #[must_use]
    pub fn measuring(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// An invocation begins, which Lambda calls `request`. What the one before
    /// it measured and no line took is written.
    pub fn begin(&self, request: &str) {
        self.end();
        self.state().request = request.to_owned();
    }

    /// The invocation ends.
    pub fn end(&self) {
        let under_way = std::mem::take(&mut self.state().under_way);
        let mut left: Vec<_> = under_way.into_values().flat_map(|one| one.metrics).collect();
        if !left.is_empty() {
            left.sort_unstable();
            // A metric's values in one line are one value: the sum of counts, the longest of times.
            let mut summed: Vec<(Metric, u64)> = Vec::new();
            for (metric, value) in left {
                match summed.last_mut() {
                    Some((same, longest)) if *same == metric && metric.name().ends_with("Ms") => *longest = value,
                    Some((same, sum)) if *same == metric => *sum += value,
                    _ => summed.push((metric, value)),
                }
            }
            self.write(Level::INFO, "measured", |_| {}, &summed, None);
        }
    }

    /// Writes a line; below the level, only its metrics.
    fn write(
        &self,
        level: Level,
        message: &str,
        say: impl FnOnce(&mut Line),
        metrics: &[(Metric, u64)],
        dimensions: Option<Dimensions<'_>>,
    ) {
        let is_said = level <= self.level;
        if !is_said && metrics.is_empty() {
            return;
        }
        let at = self.surroundings.now();
        // Lambda drops what is below its level, by what the line says.
        let mut line = Line::new(if is_said { level } else { Level::INFO }, message, at);
        let mut state = self.state();
        if is_said {
            say(&mut line);
            if !state.request.is_empty() {
                line.text("request", &state.request);
            }
        }
        line.metrics(&self.namespace, at, metrics, dimensions);
        // Nobody is there to be told that the log cannot be written.
        let _ = state.sink.write_all(line.end().as_bytes());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no one panics while holding this")
    }

    /// Leaves a measurement to the entity's next line.
    fn measure(&self, entity: &EntityKey, metric: Metric, value: u64) {
        self.state().under_way.entry(entity.clone()).or_default().metrics.push((metric, value));
    }

    /// What was measured of the entity and no line has yet, behind `own`.
    fn measured(&self, entity: &EntityKey, own: &[(Metric, u64)]) -> Vec<(Metric, u64)> {
        let mut metrics = own.to_vec();
        if let Some(under_way) = self.state().under_way.get_mut(entity) {
            metrics.append(&mut under_way.metrics);
        }
        metrics
    }

    fn started(&self, delivery: &Delivery) {
        let entity = delivery.entity();
        let settled = self.state().under_way.get(entity).and_then(|under_way| under_way.settled);
        if let Some(settled) = settled {
            self.measure(entity, Metric::HandoverMs, millis(self.surroundings.monotonic().saturating_sub(settled)));
        }
        if delivery.attempt() == 1 {
            self.measure(entity, Metric::LagMs, millis(self.surroundings.now().since(delivery.received_at())));
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Observer for JsonLog {
    fn observe(&self, event: &Event<'_>) {
        let of = |entity: &EntityKey| {
            let entity = entity.clone();
            move |line: &mut Line| line.text("entity", &entity)
        };
        match event {
            Event::Accepted { incoming, appended } => {
                let identity = &incoming.identity;
                let failed = appended.wake_up_failed.is_some();
                let metrics: &[_] = if failed { &[(Metric::FailedWakeUps, 1)] } else { &[] };
                let dimensions = Dimensions { source: identity.source.as_str(), outcome: "accepted" };
                let say = |line: &mut Line| {
                    line.text("entity", &incoming.entity);
                    line.number("sequence", appended.sequence.0);
                    line.text("delivery", &identity.delivery_id);
                    line.text("topic", &incoming.topic);
                    if failed {
                        line.text("wake_up", "failed");
                    }
                };
                let level = if failed { Level::WARN } else { Level::INFO };
                self.write(level, "accepted", say, metrics, Some(dimensions));
            }
            Event::Started { delivery, token } => {
                self.started(delivery);
                let say = |line: &mut Line| {
                    of(delivery.entity())(line);
                    line.number("sequence", delivery.sequence().0);
                    line.number("token", token.0);
                };
                self.write(Level::DEBUG, "started", say, &[], None);
            }
            Event::Settled { entity, sequence, settlement, delivery, took } => {
                let counted = match settlement {
                    Settlement::Applied => Some(Metric::Delivered),
                    Settlement::Repeat => Some(Metric::Repeated),
                    Settlement::Parked => Some(Metric::Parked),
                    _ => None,
                };
                let mut own: Vec<_> = counted.map(|metric| (metric, 1)).into_iter().collect();
                own.extend(took.map(|took| (Metric::HandlerMs, millis(took))));
                let metrics = self.measured(entity, &own);
                self.state().under_way.entry((*entity).clone()).or_default().settled =
                    Some(self.surroundings.monotonic());
                let outcome = settlement.as_str();
                let dimensions = delivery.map(|one| Dimensions { source: one.source().as_str(), outcome });
                let say = |line: &mut Line| {
                    of(entity)(line);
                    line.number("sequence", sequence.0);
                    match delivery {
                        Some(delivery) => line.text("delivery", delivery.delivery_id()),
                        None => line.text("outcome", outcome),
                    }
                };
                let level = if *settlement == Settlement::Parked { Level::WARN } else { Level::INFO };
                self.write(level, "settled", say, &metrics, dimensions);
            }
            // Not the error: its text is the handler's, and may quote the body. It stands on the row.
            Event::Failed { delivery, retry_in, error: _ } => {
                let metrics = self.measured(delivery.entity(), &[(Metric::Retries, 1)]);
                let say = |line: &mut Line| {
                    of(delivery.entity())(line);
                    line.number("sequence", delivery.sequence().0);
                    line.text("delivery", delivery.delivery_id());
                    line.number("attempt", delivery.attempt().into());
                    line.number("retry_in_ms", millis(*retry_in));
                };
                let dimensions = Dimensions { source: delivery.source().as_str(), outcome: "retry" };
                self.write(Level::WARN, "attempt failed", say, &metrics, Some(dimensions));
            }
            Event::Blocked { entity, reason, delivery } => {
                let metrics = self.measured(entity, &[(Metric::Blocked, 1)]);
                let say = |line: &mut Line| {
                    of(entity)(line);
                    if let Some(delivery) = delivery {
                        line.number("sequence", delivery.sequence().0);
                        line.text("delivery", delivery.delivery_id());
                    }
                    line.text("reason", reason.as_str());
                };
                let dimensions = delivery.map(|one| Dimensions { source: one.source().as_str(), outcome: "blocked" });
                self.write(Level::WARN, "blocked", say, &metrics, dimensions);
            }
            Event::PutOff { entity, delay, reason } => {
                // The common ones, of which another line tells already.
                let is_common =
                    matches!(reason, PutOffReason::Drained | PutOffReason::Retry | PutOffReason::BreakerOpen);
                let metrics = self.measured(entity, &[]);
                let say = |line: &mut Line| {
                    of(entity)(line);
                    line.number("delay_ms", millis(*delay));
                    line.text("reason", format_args!("{reason:?}"));
                };
                self.write(if is_common { Level::DEBUG } else { Level::INFO }, "put off", say, &metrics, None);
            }
            Event::Waited { entity, waited, polls } => {
                self.measure(entity, Metric::WaitMs, millis(*waited));
                self.measure(entity, Metric::Polls, (*polls).into());
            }
            Event::TakenOver { entity, token } => {
                let say = |line: &mut Line| {
                    of(entity)(line);
                    line.number("token", token.0);
                };
                let metrics = [(Metric::TakenOver, 1)];
                self.write(Level::WARN, "taken over from a holder that vanished", say, &metrics, None);
            }
            Event::Lost { entity, token } => {
                let say = |line: &mut Line| {
                    of(entity)(line);
                    line.number("token", token.0);
                };
                self.write(Level::WARN, "lease lost", say, &[(Metric::Lost, 1)], None);
            }
            Event::LeaseGranted { entity, token, waited, polls } => {
                let say = |line: &mut Line| {
                    of(entity)(line);
                    line.number("token", token.0);
                };
                let waits = [(Metric::WaitMs, millis(*waited)), (Metric::Polls, (*polls).into())];
                let metrics: &[_] = if *polls > 0 { &waits } else { &[] };
                self.write(Level::DEBUG, "lease granted", say, metrics, None);
            }
            Event::LeaseEnded { entity, token, held } => {
                let say = |line: &mut Line| {
                    of(entity)(line);
                    line.number("token", token.0);
                    line.number("held_ms", millis(*held));
                };
                self.write(Level::DEBUG, "lease ended", say, &[(Metric::HoldMs, millis(*held))], None);
            }
            Event::LeaseDropped { entity, token } => {
                let say = |line: &mut Line| {
                    of(entity)(line);
                    line.number("token", token.0);
                };
                self.write(Level::WARN, "lease dropped without release; it is left to run out", say, &[], None);
            }
            Event::LeaseInDoubt { entity, token } => {
                let say = |line: &mut Line| {
                    of(entity)(line);
                    line.number("token", token.0);
                };
                self.write(Level::WARN, "the end of a lease was not answered", say, &[(Metric::InDoubt, 1)], None);
            }
            Event::WakeUpFailed { entity } => {
                self.write(Level::WARN, "wake-up not sent", of(entity), &[(Metric::FailedWakeUps, 1)], None);
            }
            Event::BreakerOpened { source, wait } => {
                let say = |line: &mut Line| line.number("wait_ms", millis(*wait));
                let dimensions = Dimensions { source: source.as_str(), outcome: "held back" };
                let opened = [(Metric::BreakersOpened, 1)];
                self.write(Level::WARN, "source held back: its handler is unwell", say, &opened, Some(dimensions));
            }
            Event::BreakerClosed { source } => {
                self.write(Level::INFO, "source goes on", |line| line.text("source", source), &[], None);
            }
            Event::NoWakeUp { message_id } => {
                let say = |line: &mut Line| line.text("message_id", message_id);
                self.write(Level::WARN, "not a wake-up; deleted", say, &[], None);
            }
            Event::ThreadsLost { lost, is_end } => {
                let lost = u64::try_from(*lost).unwrap_or(u64::MAX);
                let (level, message, metrics): (_, _, &[_]) = if *is_end {
                    // Counted when its batch was over.
                    (Level::ERROR, "ends: handlers block its threads", &[])
                } else {
                    (Level::WARN, "handlers still block their threads", &[(Metric::LostThreads, lost)])
                };
                self.write(level, message, |line| line.number("lost", lost), metrics, None);
            }
            Event::Inversion { delivery } => self.measure(delivery.entity(), Metric::Inversions, 1),
            Event::Swept { swept } => {
                let say = |line: &mut Line| {
                    line.number("segments", swept.segments);
                    line.number("seen", swept.seen);
                    line.number("woken", swept.woken);
                    line.number("kept", swept.kept);
                    line.number("unreadable", swept.unreadable);
                    line.number("unserved", swept.unserved);
                    if swept.lagging {
                        line.text("queue", "lags");
                    }
                };
                let oldest = [(Metric::OldestWaitingSeconds, swept.oldest.as_secs())];
                self.write(Level::INFO, "swept", say, &oldest, None);
            }
            Event::JobEnded { job, tick, ending, took } => {
                let say = |line: &mut Line| {
                    line.text("job", job);
                    line.text("tick", tick);
                    if let Some(took) = took {
                        line.number("took_ms", millis(*took));
                    }
                };
                match ending {
                    Ending::Done => self.write(Level::INFO, "job done", say, &[], None),
                    // Not the error: its text is the function's, and may quote anything. It stands on the row.
                    Ending::Failed => self.write(Level::ERROR, "job failed", say, &[(Metric::JobsFailed, 1)], None),
                    Ending::Crashed => self.write(Level::ERROR, "job crashed", say, &[(Metric::JobsFailed, 1)], None),
                }
            }
            Event::SourcesChanged { count } => {
                self.write(Level::INFO, "sources changed", |line| line.number("sources", *count as u64), &[], None);
            }
            Event::SourcesKept { reason, is_news } => {
                let say = |line: &mut Line| line.text("reason", reason);
                let level = if *is_news { Level::WARN } else { Level::DEBUG };
                self.write(level, "sources kept", say, &[(Metric::SourcesNotRead, 1)], None);
            }
        }
    }
}

impl fmt::Debug for JsonLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonLog").field("level", &self.level).finish_non_exhaustive()
    }
}
