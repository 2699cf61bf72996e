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

#[cfg(feature = "ingest")]
use super::refusals::Refusals;
use super::{
    Observer,
    event::Event,
    json::{Counting, Json},
    line::{Field, Line, MEASURED, Measures, millis},
    metric::{Metric, NAMESPACE},
};
use crate::{
    protocol::{delivery::Delivery, entity::EntityKey},
    time::Env,
};

/// Writes one JSON object a line.
pub struct JsonLog {
    env: Env,
    level: LevelFilter,
    counting: Counting,
    state: Mutex<State>,
}

struct State {
    sink: Box<dyn Write + Send>,
    request: String,
    under_way: BTreeMap<EntityKey, UnderWay>,
    #[cfg(feature = "ingest")]
    refusals: Refusals,
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
    /// To standard output, from `level` on, with metrics in `namespace`;
    /// `None`: in [`NAMESPACE`].
    pub fn new(level: LevelFilter, namespace: Option<String>, env: Env) -> Self {
        let log = Self::to(std::io::stdout(), level, env);
        match namespace {
            Some(namespace) => log.measuring(namespace),
            None => log,
        }
    }

    /// To `sink`, from `level` on.
    pub fn to(sink: impl Write + Send + 'static, level: LevelFilter, env: Env) -> Self {
        let sink = Box::new(sink);
        Self {
            env,
            level,
            counting: Counting { namespace: NAMESPACE.to_owned(), detailed: false },
            state: Mutex::new(State {
                sink,
                request: String::new(),
                under_way: BTreeMap::new(),
                #[cfg(feature = "ingest")]
                refusals: Refusals::default(),
            }),
        }
    }

    /// The same, with metrics in `namespace`, which is a JSON string's inside.
    #[must_use]
    pub fn measuring(mut self, namespace: impl Into<String>) -> Self {
        self.counting.namespace = namespace.into();
        self
    }

    /// The same; `detailed`: every metric is counted, by source and outcome
    /// besides, and not only what the alarms look at.
    #[must_use]
    pub fn detailed(mut self, detailed: bool) -> Self {
        self.counting.detailed = detailed;
        self
    }

    /// An invocation begins, which Lambda calls `request`. What the one before
    /// it measured and no line took is written.
    pub fn begin(&self, request: &str) {
        self.end();
        #[cfg(feature = "ingest")]
        self.tell_overdue();
        self.state().request = request.to_owned();
    }

    /// Of refusals that were only counted for too long. They are of many requests.
    #[cfg(feature = "ingest")]
    fn tell_overdue(&self) {
        let overdue = {
            let mut state = self.state();
            state.request.clear();
            state.refusals.overdue(self.env.monotonic())
        };
        for ((source, refusal), count) in &overdue {
            self.write(&Line::of_refusals(source.as_ref().map(|source| source.as_str()), *refusal, *count));
        }
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
            self.write(&Line::measured_besides(summed));
        }
    }

    /// Writes a line; below the level, only its metrics.
    fn write(&self, line: &Line<'_>) {
        let is_counted = line.metrics.iter().any(|(metric, _)| self.counting.counts(*metric));
        // A line that only measures has nothing else to say.
        let is_said = line.level <= self.level && (is_counted || line.message != MEASURED);
        if !is_said && !is_counted {
            return;
        }
        let at = self.env.now();
        // Lambda drops what is below its level, by what the line says.
        let mut json = Json::new(if is_said { line.level } else { Level::INFO }, line.message, at);
        let mut state = self.state();
        if is_said {
            for (name, field) in &line.fields {
                match field {
                    Field::Text(text) => json.text(name, text),
                    Field::Number(number) => json.number(name, *number),
                }
            }
            if !state.request.is_empty() {
                json.text("request", &state.request);
            }
        }
        json.metrics(&self.counting, at, &line.metrics, line.dimensions);
        // Nobody is there to be told that the log cannot be written.
        let _ = state.sink.write_all(json.end().as_bytes());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no one panics while holding this")
    }

    /// Leaves a measurement to the entity's next line.
    fn measure(&self, entity: &EntityKey, metric: Metric, value: u64) {
        self.state().under_way.entry(entity.clone()).or_default().metrics.push((metric, value));
    }

    /// What was measured of the entity and no line has yet, behind `own`: of each
    /// metric one, since a line has room for one. Those of a group's others wait for
    /// the lines of these.
    fn measured(&self, entity: &EntityKey, own: Vec<(Metric, u64)>) -> Vec<(Metric, u64)> {
        let mut metrics = own;
        if let Some(under_way) = self.state().under_way.get_mut(entity) {
            for (metric, value) in std::mem::take(&mut under_way.metrics) {
                let is_there = metrics.iter().any(|(other, _)| *other == metric);
                let to = if is_there { &mut under_way.metrics } else { &mut metrics };
                to.push((metric, value));
            }
        }
        metrics
    }

    /// Of a flood of refusals `None` but of some, which tell of the others too.
    #[cfg(feature = "ingest")]
    fn sampled<'a>(&self, event: &Event<'_>, line: Line<'a>) -> Option<Line<'a>> {
        match *event {
            Event::Accepted { incoming, .. } | Event::Deferred { incoming, .. } | Event::Ignored { incoming } => {
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
        let settled = self.state().under_way.get_mut(entity).and_then(|under_way| under_way.settled.take());
        if let Some(settled) = settled {
            self.measure(entity, Metric::HandoverMs, millis(self.env.monotonic().saturating_sub(settled)));
        }
        // One that a person has run again has not waited since it arrived.
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
        let mut line = Line::of(event);
        #[cfg(feature = "ingest")]
        match self.sampled(event, line) {
            Some(sampled) => line = sampled,
            None => return,
        }
        match line.measures {
            Measures::Own => {}
            Measures::WithThoseOf(entity) => line.metrics = self.measured(entity, line.metrics),
            Measures::WithTheNextOf(entity) => {
                return line.metrics.iter().for_each(|(metric, value)| self.measure(entity, *metric, *value));
            }
        }
        if let Event::Settled { entity, .. } = event {
            self.state().under_way.entry((*entity).clone()).or_default().settled = Some(self.env.monotonic());
        }
        self.write(&line);
    }
}

impl fmt::Debug for JsonLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonLog").field("level", &self.level).finish_non_exhaustive()
    }
}
