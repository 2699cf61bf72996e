//! Lanes as server-sent events: from the recording if the deployment runs in this
//! process, otherwise from the orders' rows.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::{Query, State},
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use webhook_serializer::{
    protocol::{entity::EntityKey, receipt::Settlement, state::EntityState},
    time::{Env, Timestamp},
};

use super::{
    Shared,
    reading::{Depth, Reading, Tables},
};
use crate::{
    output::visible,
    view::{
        lanes::{Drawing, Kind, Lane, Sign},
        order_status,
        recording::EventRecorder,
    },
};

pub(super) const MAX_LANES: usize = 200;

/// The most bars, and signs, sent of a lane.
const NEWEST: usize = 60;

/// Events within this time are sent together.
const BATCHING: Duration = Duration::from_millis(120);

#[derive(Debug, Deserialize)]
pub(super) struct Parameters {
    #[serde(default)]
    filter: String,
}

/// Sends the lanes that match the filter, then their changes.
pub(super) async fn stream(
    State(shared): State<Arc<Shared>>,
    Query(parameters): Query<Parameters>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let watch = Watch {
        filter: parameters.filter.trim().to_lowercase(),
        source: match &shared.watched.story {
            Some(story) => Source::Recording(Box::new(Recorded::new(story.clone(), &shared.watched.env))),
            None => Source::Rows(None),
        },
        sent: HashMap::new(),
        order: Vec::new(),
        shared,
    };
    let events = stream::unfold(watch, |mut watch| async {
        let event = watch.next().await;
        Some((Ok(event), watch))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

/// An open page.
struct Watch {
    shared: Arc<Shared>,
    filter: String,
    source: Source,
    /// The lanes on the page, as they were sent.
    sent: HashMap<EntityKey, Value>,
    order: Vec<EntityKey>,
}

enum Source {
    Recording(Box<Recorded>),
    /// The time of the reading that was sent.
    Rows(Option<Timestamp>),
}

impl Watch {
    async fn next(&mut self) -> Event {
        let (lanes, more) = match &mut self.source {
            Source::Recording(recorded) => {
                let changed = recorded.next().await;
                recorded.lanes(&self.filter, &changed, &self.sent)
            }
            Source::Rows(at) => match rows(&self.shared, at).await {
                Ok(reading) => {
                    let mut found = lanes_of_rows(&reading, &self.filter);
                    found.1["price"] = price(&reading, !self.shared.watched.option.is_empty()).into();
                    found
                }
                Err(problem) => {
                    self.shared.watched.env.sleep(Duration::from_secs(5)).await;
                    return event(&json!({ "problem": visible(&problem) }));
                }
            },
        };
        self.changes(lanes, more)
    }

    /// Returns how `lanes`, all that belong on the page, differ from those on it.
    fn changes(&mut self, lanes: Vec<(EntityKey, Option<Value>)>, mut more: Value) -> Event {
        let order: Vec<EntityKey> = lanes.iter().map(|(entity, _)| entity.clone()).collect();
        let shown: HashSet<&EntityKey> = order.iter().collect();
        self.sent.retain(|entity, _| shown.contains(entity));
        let mut changed = Vec::new();
        for (entity, lane) in lanes {
            let Some(lane) = lane.filter(|lane| self.sent.get(&entity) != Some(lane)) else { continue };
            changed.push(lane.clone());
            self.sent.insert(entity, lane);
        }
        if order != self.order {
            more["order"] = json!(order);
            self.order = order;
        }
        more["lanes"] = changed.into();
        more["now"] = self.shared.watched.env.now().as_millis().into();
        event(&more)
    }
}

fn event(value: &Value) -> Event {
    Event::default().data(value.to_string())
}

fn price(reading: &Reading, is_local: bool) -> String {
    let again = reading.keeps(is_local);
    let part = if reading.unread.is_empty() { "" } else { " (only a part of them)" };
    format!(
        "Drawn from the rows of {} orders{part}, read for about {} read units every {}.",
        reading.orders.len(),
        reading.units,
        crate::output::duration(again)
    )
}

struct Recorded {
    story: EventRecorder,
    drawing: Drawing,
    has_sent: bool,
    next: usize,
    /// All orders, by first appearance.
    all: Vec<EntityKey>,
    /// The number of each order's last event.
    last: HashMap<EntityKey, usize>,
    /// The difference between the wall clock and the recording's clock, in milliseconds.
    offset: u64,
    env: Env,
}

impl Recorded {
    fn new(story: EventRecorder, env: &Env) -> Self {
        let offset = env.now().as_millis().saturating_sub(story.now().as_millis() as u64);
        let env = env.clone();
        Self {
            story,
            drawing: Drawing::default(),
            has_sent: false,
            next: 0,
            all: Vec::new(),
            last: HashMap::new(),
            offset,
            env,
        }
    }

    /// Waits for changed lanes and returns their orders. The first call does not wait.
    async fn next(&mut self) -> HashSet<EntityKey> {
        if std::mem::replace(&mut self.has_sent, true) {
            let mut length = self.story.length();
            // The recording owns the sender, so the channel is open.
            let _ = length.wait_for(|length| *length > self.next).await;
            self.env.sleep(BATCHING).await;
        }
        let mut changed = HashSet::new();
        for happening in self.story.since(self.next) {
            self.next += 1;
            self.drawing.take_in(&happening);
            if self.last.insert(happening.entity.clone(), self.next).is_none() {
                self.all.push(happening.entity.clone());
            }
            changed.insert(happening.entity);
        }
        changed
    }

    /// Returns the orders that belong on the page, the newest first; with their lane
    /// if it has changed or is not on the page yet.
    fn lanes(
        &self,
        filter: &str,
        changed: &HashSet<EntityKey>,
        sent: &HashMap<EntityKey, Value>,
    ) -> (Vec<(EntityKey, Option<Value>)>, Value) {
        let now = self.story.now();
        let mut fitting: Vec<(usize, &EntityKey, Option<Value>)> = Vec::new();
        for (at, entity) in self.all.iter().enumerate() {
            let is_known = sent.contains_key(entity) && !changed.contains(entity);
            // Without a filter, only the lanes that end up on the page are drawn.
            if is_known || filter.is_empty() {
                fitting.push((at, entity, None));
                continue;
            }
            let Some(value) = self.value(entity, now) else { continue };
            if matches(&value, filter) {
                fitting.push((at, entity, Some(value)));
            }
        }
        let matching = fitting.len();
        fitting.sort_by_key(|(_, entity, _)| std::cmp::Reverse(self.last.get(*entity).copied()));
        fitting.truncate(MAX_LANES);
        fitting.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        let anew = |entity: &EntityKey, value: Option<Value>| match value {
            None if changed.contains(entity) || !sent.contains_key(entity) => self.value(entity, now),
            value => value,
        };
        let lanes = fitting.into_iter().map(|(_, entity, value)| (entity.clone(), anew(entity, value))).collect();
        (lanes, json!({ "matching": matching, "all": self.all.len() }))
    }

    fn value(&self, entity: &EntityKey, now: Duration) -> Option<Value> {
        let lane = self.drawing.lane(entity, now)?;
        let ms = |at: Duration| at.as_millis() as u64 + self.offset;
        let newest = |count: usize| count.saturating_sub(NEWEST);
        let spans = lane.spans[newest(lane.spans.len())..].iter().map(|span| {
            let kind = match span.kind {
                Kind::Waiting => "waiting",
                Kind::Retrying => "retrying",
                Kind::Orphaned => "orphaned",
                Kind::Running => "running",
            };
            json!([span.sequence, kind, ms(span.from), (!span.is_open).then(|| ms(span.to)), visible(&span.name)])
        });
        let marks = lane.marks[newest(lane.marks.len())..].iter().map(|mark| {
            let sign = match mark.sign {
                Sign::Repeat => "=",
                Sign::Parked => "P",
                Sign::Superseded => "–",
                Sign::Blocked => "B",
                Sign::Failed => "!",
                Sign::TakenOver => "»",
            };
            json!([sign, ms(mark.at), visible(&mark.name)])
        });
        let waiting = lane.totals.accepted.saturating_sub(lane.totals.settled);
        Some(json!({
            "key": entity, "label": visible(entity.as_str()), "state": state(&lane), "source": self.story.source(entity),
            "waiting": waiting, "spans": spans.collect::<Vec<_>>(), "marks": marks.collect::<Vec<_>>(),
        }))
    }
}

fn state(lane: &Lane) -> &'static str {
    let is_open = |kind: Kind| lane.spans.iter().any(|span| span.is_open && span.kind == kind);
    let started_after = |at: Duration| lane.spans.iter().any(|span| span.kind == Kind::Running && span.from >= at);
    let last = |sign: Sign| lane.marks.iter().rev().find(|mark| mark.sign == sign);
    let is_parked = last(Sign::Parked).is_some_and(|mark| {
        // A redriven delivery runs under the same name.
        !lane.spans.iter().any(|span| span.kind == Kind::Running && span.from >= mark.at && span.name == mark.name)
    });
    match () {
        () if last(Sign::Blocked).is_some_and(|mark| !started_after(mark.at)) => "blocked",
        () if is_open(Kind::Retrying) => "failing",
        () if is_open(Kind::Running) => "at work",
        () if is_open(Kind::Waiting) => "waiting",
        () if is_parked => "parked",
        () => "idle",
    }
}

/// Returns whether a lane's key, state, source or one of its topics contains the filter.
fn matches(lane: &Value, filter: &str) -> bool {
    let has = |value: &Value| value.as_str().is_some_and(|text| text.to_lowercase().contains(filter));
    let about = lane["spans"].as_array().into_iter().flatten().any(|span| has(&span[4]));
    filter.is_empty() || about || ["key", "state", "source"].into_iter().any(|name| has(&lane[name]))
}

/// Waits for a newer reading of the rows.
async fn rows(shared: &Shared, sent: &mut Option<Timestamp>) -> Result<Arc<Reading>, String> {
    loop {
        let reading = shared.readings.get(&shared.watched, Tables::Orders, Depth::Free).await;
        let reading = reading.map_err(|error| error.to_string())?;
        if *sent != Some(reading.at) {
            *sent = Some(reading.at);
            return Ok(reading);
        }
        let env = &shared.watched.env;
        let age = env.now().since(reading.at);
        let keeps = reading.keeps(!shared.watched.option.is_empty());
        env.sleep(keeps.saturating_sub(age).max(Duration::from_millis(100))).await;
    }
}

/// Draws the most recently changed orders from their rows.
fn lanes_of_rows(reading: &Reading, filter: &str) -> (Vec<(EntityKey, Option<Value>)>, Value) {
    let fitting = reading.orders.iter().filter(|state| {
        let state_text = order_status::Kind::of(state, reading.at).as_str();
        filter.is_empty() || state.entity.as_str().to_lowercase().contains(filter) || state_text.contains(filter)
    });
    let mut fitting: Vec<&EntityState> = fitting.collect();
    let matching = fitting.len();
    fitting.sort_by_cached_key(|state| std::cmp::Reverse(changed_at(state)));
    fitting.truncate(MAX_LANES);
    let lanes = fitting.into_iter().map(|state| (state.entity.clone(), Some(lane_of_row(state, reading.at)))).collect();
    (lanes, json!({ "matching": matching, "all": reading.orders.len() }))
}

fn changed_at(state: &EntityState) -> Option<Timestamp> {
    state.recent.last().map(|receipt| receipt.settled_at).max(state.pending_since)
}

fn lane_of_row(state: &EntityState, now: Timestamp) -> Value {
    let kind = order_status::Kind::of(state, now);
    let (mut spans, mut marks) = (Vec::new(), Vec::new());
    for receipt in state.recent.iter() {
        let at = receipt.settled_at.as_millis();
        let name = format!("#{}", receipt.sequence);
        if let Some(started) = receipt.started_at() {
            spans.push(json!([receipt.sequence, "running", started.as_millis(), at, name]));
        }
        let sign = match receipt.settlement {
            Settlement::Parked => Some("P"),
            Settlement::Repeat => Some("="),
            Settlement::Superseded => Some("–"),
            _ if receipt.attempts > 1 => Some("!"),
            _ => None,
        };
        marks.extend(sign.map(|sign| json!([sign, at, name])));
    }
    if let Some(since) = state.pending_since.filter(|_| !state.is_empty()) {
        let span = match kind {
            order_status::Kind::AtWork => "running",
            order_status::Kind::Failing | order_status::Kind::Unavailable => "retrying",
            order_status::Kind::Abandoned => "orphaned",
            _ => "waiting",
        };
        spans.push(json!([state.next(), span, since.as_millis(), null, format!("#{}", state.next())]));
        if kind == order_status::Kind::Blocked {
            marks.push(json!(["B", since.as_millis(), format!("#{}", state.next())]));
        }
    }
    json!({
        "key": state.entity, "label": visible(state.entity.as_str()), "state": kind.as_str(), "source": null, "waiting": state.waiting(),
        "spans": spans, "marks": marks,
    })
}
