//! The functions' log, which has a line for each event, with its metrics.
//!
//! A delivery that succeeds has two lines, accepted and settled. A measurement that is taken between
//! them, such as the delivery's lag, goes into the line `settled`. Metrics do not depend on the log's
//! level: a line below the level holds only its metrics.

use std::{
    collections::BTreeMap,
    fmt,
    io::Write,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tracing::{Level, level_filters::LevelFilter};

use super::refusals::Refusals;
use super::{
    Observer,
    event::Event,
    json::{Json, MetricsSettings},
    line::{FieldValue, LogLine, Measures, millis},
    message::LogMessage,
    metric::{Metric, NAMESPACE},
};
use crate::{
    protocol::{delivery::Delivery, entity::EntityKey},
    time::Env,
};

pub struct JsonLog {
    env: Env,
    level: LevelFilter,
    counting: MetricsSettings,
    state: Mutex<LogState>,
}

struct LogState {
    sink: Box<dyn Write + Send>,
    request: String,
    entities: BTreeMap<EntityKey, EntityMetrics>,
    refusals: Refusals,
}

#[derive(Default)]
struct EntityMetrics {
    /// The monotonic time at which a delivery of this entity was last settled.
    settled: Option<Duration>,
    metrics: Vec<(Metric, u64)>,
}

impl JsonLog {
    /// Creates a log on standard output. Events below `level` are not written. Without a `namespace`, the
    /// metrics use [`NAMESPACE`].
    pub fn new(level: LevelFilter, namespace: Option<String>, env: Env) -> Self {
        let log = Self::to(std::io::stdout(), level, env);
        match namespace {
            Some(namespace) => log.measuring(namespace),
            None => log,
        }
    }

    pub fn to(sink: impl Write + Send + 'static, level: LevelFilter, env: Env) -> Self {
        let sink = Box::new(sink);
        Self {
            env,
            level,
            counting: MetricsSettings { namespace: NAMESPACE.to_owned(), detailed: false },
            state: Mutex::new(LogState {
                sink,
                request: String::new(),
                entities: BTreeMap::new(),
                refusals: Refusals::default(),
            }),
        }
    }

    /// Replaces the metrics' namespace. The text must not need escaping in a JSON string.
    #[must_use]
    pub fn measuring(mut self, namespace: impl Into<String>) -> Self {
        self.counting.namespace = namespace.into();
        self
    }

    /// Chooses the metrics that CloudWatch counts: all of them, or only those that alarms use.
    #[must_use]
    pub fn detailed(mut self, detailed: bool) -> Self {
        self.counting.detailed = detailed;
        self
    }

    /// Begins the log of the invocation with the id `request`. If measurements of the previous invocation are left,
    /// they are written first.
    pub fn begin(&self, request: &str) {
        self.end();
        self.report_overdue();
        self.state().request = request.to_owned();
    }

    /// Reports counted refusals, if no line about their kind was written for ten seconds. The lines name no
    /// request, because the refusals belong to several requests.
    fn report_overdue(&self) {
        let overdue = {
            let mut state = self.state();
            state.request.clear();
            state.refusals.overdue(self.env.monotonic())
        };
        for ((source, refusal), count) in &overdue {
            self.write(&LogLine::of_refusals(source.as_ref().map(|source| source.as_str()), *refusal, *count));
        }
    }

    /// Ends the log of the current invocation: writes the measurements that no line has reported.
    pub fn end(&self) {
        let entities = std::mem::take(&mut self.state().entities);
        let mut left: Vec<_> = entities.into_values().flat_map(|one| one.metrics).collect();
        if !left.is_empty() {
            left.sort_unstable();
            // A line holds one value per metric: the sum of counts, the maximum of times.
            let mut summed: Vec<(Metric, u64)> = Vec::new();
            for (metric, value) in left {
                match summed.last_mut() {
                    Some((same, longest)) if *same == metric && metric.name().ends_with("Ms") => *longest = value,
                    Some((same, sum)) if *same == metric => *sum += value,
                    _ => summed.push((metric, value)),
                }
            }
            self.write(&LogLine::measured_besides(summed));
        }
    }

    /// Writes a line. A line below the log's level is reduced to its metrics.
    fn write(&self, line: &LogLine<'_>) {
        let is_counted = line.metrics.iter().any(|(metric, _)| self.counting.counts(*metric));
        // A line for measurements has no other content, so it is not written if none is
        // counted.
        let is_said = line.level <= self.level && (is_counted || line.message != LogMessage::Measured.as_str());
        if !is_said && !is_counted {
            return;
        }
        let at = self.env.now();
        // Lambda drops lines whose level is below its own, so a line with metrics names INFO.
        let mut json = Json::new(if is_said { line.level } else { Level::INFO }, line.message, at);
        let mut state = self.state();
        if is_said {
            for (name, field) in &line.fields {
                match field {
                    FieldValue::Text(text) => json.text(name, text),
                    FieldValue::Number(number) => json.number(name, *number),
                }
            }
            if !state.request.is_empty() {
                json.text("request", &state.request);
            }
        }
        json.metrics(&self.counting, at, &line.metrics, line.dimensions);
        // An error cannot be reported anywhere, because the log itself failed.
        let _ = state.sink.write_all(json.end().as_bytes());
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().expect("no one panics while holding this")
    }

    fn measure(&self, entity: &EntityKey, metric: Metric, value: u64) {
        self.state().entities.entry(entity.clone()).or_default().metrics.push((metric, value));
    }

    /// Adds the entity's pending measurements to `own`. A line has room for one value of each metric, so the
    /// values of other deliveries of a group wait for the next lines.
    fn measured(&self, entity: &EntityKey, own: Vec<(Metric, u64)>) -> Vec<(Metric, u64)> {
        let mut metrics = own;
        if let Some(entities) = self.state().entities.get_mut(entity) {
            for (metric, value) in std::mem::take(&mut entities.metrics) {
                let is_there = metrics.iter().any(|(other, _)| *other == metric);
                let to = if is_there { &mut entities.metrics } else { &mut metrics };
                to.push((metric, value));
            }
        }
        metrics
    }

    /// Returns the line, or `None` for a refusal that is only counted. A later line reports the count.
    fn sampled<'a>(&self, event: &Event<'_>, line: LogLine<'a>) -> Option<LogLine<'a>> {
        match *event {
            Event::Accepted { incoming, .. } | Event::Deferred { incoming, .. } | Event::Ignored { incoming, .. } => {
                self.state().refusals.accepted(&incoming.identity.source);
                Some(line)
            }
            Event::Refused { source, refusal, limit, .. } => {
                let counted = self.state().refusals.refused(source, refusal, limit, self.env.monotonic());
                let line = line.counting(Metric::Refused, counted.due);
                let line = if counted.is_near_limit { line.counted(Metric::RefusedInARow, 1) } else { line };
                (counted.due > 0).then_some(line)
            }
            _ => Some(line),
        }
    }

    fn started(&self, delivery: &Delivery) {
        let entity = delivery.entity();
        let settled = self.state().entities.get_mut(entity).and_then(|entities| entities.settled.take());
        if let Some(settled) = settled {
            self.measure(entity, Metric::HandoverMs, millis(self.env.monotonic().saturating_sub(settled)));
        }
        // A rewound delivery has not waited since its arrival.
        if delivery.attempt() == 1 && delivery.run_before().is_none() {
            self.measure(entity, Metric::LagMs, millis(self.env.now().since(delivery.received_at())));
        }
    }
}

impl Observer for JsonLog {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Started { delivery, .. } = event {
            self.started(delivery);
        }
        let Some(mut line) = self.sampled(event, LogLine::of(event)) else { return };
        match line.measures {
            Measures::Own => {}
            Measures::WithPending(entity) => line.metrics = self.measured(entity, line.metrics),
            Measures::Pending(entity) => {
                return line.metrics.iter().for_each(|(metric, value)| self.measure(entity, *metric, *value));
            }
        }
        if let Event::Settled { entity, .. } = event {
            self.state().entities.entry((*entity).clone()).or_default().settled = Some(self.env.monotonic());
        }
        self.write(&line);
    }
}

impl fmt::Debug for JsonLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonLog").field("level", &self.level).finish_non_exhaustive()
    }
}
