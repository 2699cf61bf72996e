//! Sends lanes as server-sent events. The lanes come from the recording if the deployment runs in this process,
//! otherwise from the orders' rows.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use webhook_serializer::{
    operator::OperatorError,
    protocol::{entity::EntityKey, state::EntityState},
    time::{Env, Timestamp},
};

use super::{
    ConsoleState,
    reading::{ReadingDepth, Statuses, StoreReading},
    request::Asked,
};
use crate::{
    output::visible,
    view::{
        lanes::{Drawing, LaneSpanKind, MarkKind},
        order_status,
        overview::active_at,
        position::marked,
        recording::EventRecorder,
        tone::Tone,
    },
};

pub(super) const MAX_LANES: usize = 200;

/// The number of newest spans that are sent for each lane. The same limit applies to the lane's marks.
const NEWEST: usize = 60;

const STATES: Duration = Duration::from_secs(1);

const BATCHING: Duration = Duration::from_millis(120);

#[derive(Debug, Deserialize)]
pub(super) struct LiveParameters {
    #[serde(default)]
    filter: String,
}

pub(super) async fn stream(
    State(shared): State<Arc<ConsoleState>>,
    Asked(parameters): Asked<LiveParameters>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let watch = Watch {
        filter: parameters.filter.trim().to_lowercase(),
        source: match &shared.watched.story {
            Some(story) => LiveView::Recording(Box::new(LiveRecording::new(story.clone(), &shared.watched.env))),
            None => LiveView::Rows(None),
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

struct Watch {
    shared: Arc<ConsoleState>,
    filter: String,
    source: LiveView,
    sent: HashMap<EntityKey, Value>,
    order: Vec<EntityKey>,
}

enum LiveView {
    Recording(Box<LiveRecording>),
    /// The lanes come from the orders' rows. The value is the time of the last reading that was sent to the page.
    Rows(Option<Timestamp>),
}

impl Watch {
    async fn next(&mut self) -> Event {
        let found = match &mut self.source {
            LiveView::Recording(recorded) => {
                let changed = recorded.next().await;
                let statuses = self.shared.readings.statuses(&self.shared.watched, ReadingDepth::Free).await;
                statuses.map(|statuses| recorded.lanes(&self.filter, &changed, &self.sent, &statuses))
            }
            LiveView::Rows(at) => rows(&self.shared, at).await.map(|statuses| {
                let mut found = lanes_of_rows(&statuses, &self.filter);
                found.1["price"] = price(&statuses.orders, self.shared.watched.is_local).into();
                found
            }),
        };
        match found {
            Ok((lanes, more)) => self.changes(lanes, more),
            Err(error) => {
                self.shared.watched.env.sleep(Duration::from_secs(5)).await;
                event(&json!({ "problem": visible(&error.to_string()) }))
            }
        }
    }

    /// Returns the event that changes the page's lanes into `lanes`. A lane of `None` is unchanged. Orders that are
    /// missing from `lanes` are removed from the page.
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

fn price(reading: &StoreReading, is_local: bool) -> String {
    let again = reading.keeps(is_local);
    let part = if reading.unread.is_empty() { "" } else { " (only a part of them)" };
    format!(
        "The lanes show the rows of {} orders{part}. Reading them costs about {} read units every {}.",
        reading.orders.len(),
        reading.units,
        crate::output::duration(again)
    )
}

struct LiveRecording {
    story: EventRecorder,
    drawing: Drawing,
    has_sent: bool,
    next: usize,
    /// All recorded orders, sorted by their first events.
    all: Vec<EntityKey>,
    /// The position of each order's last event in the recording, counted from 1.
    last: HashMap<EntityKey, usize>,
    /// The difference between the wall clock and the monotonic clock of the recording, in milliseconds.
    offset: u64,
    env: Env,
}

impl LiveRecording {
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

    /// Returns the orders whose lanes changed. Waits up to [`STATES`] for an event and, if one occurs, [`BATCHING`] for
    /// further ones; the first call does not wait.
    async fn next(&mut self) -> HashSet<EntityKey> {
        if std::mem::replace(&mut self.has_sent, true) {
            let mut length = self.story.length();
            if self.env.within(STATES, length.wait_for(|length| *length > self.next)).await.is_some() {
                self.env.sleep(BATCHING).await;
            }
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

    /// Selects at most [`MAX_LANES`] orders: first those that need an operator, then those with the newest events.
    /// Returns their lanes, sorted by urgency and then by the order's first event, the newest first. A lane without new
    /// events is not drawn again; only its state is updated.
    fn lanes(
        &self,
        filter: &str,
        changed: &HashSet<EntityKey>,
        sent: &HashMap<EntityKey, Value>,
        statuses: &Statuses,
    ) -> (Vec<(EntityKey, Option<Value>)>, Value) {
        let now = self.story.now();
        let urgency = |state: Option<&EntityState>| match state.filter(|state| statuses.needs_somebody(state)) {
            Some(state) => (0, Some(statuses.kind(state))),
            None => (1, None),
        };
        let mut fitting: Vec<Fitting<'_>> = Vec::new();
        for (at, entity) in self.all.iter().enumerate() {
            let state = statuses.find(entity);
            let mut value = None;
            if !filter.is_empty() {
                let Some(drawn) = self.value(entity, now, statuses) else { continue };
                if !matches(&drawn, filter) {
                    continue;
                }
                value = Some(drawn);
            }
            fitting.push(Fitting { urgency: urgency(state), at: Some(at), entity, value });
        }
        // Orders that stopped before this process started have no recorded events.
        let silent = statuses.orders.orders.iter().filter(|state| !self.last.contains_key(&state.entity));
        for state in silent.filter(|state| statuses.needs_somebody(state)) {
            let value = lane_of_row(state, statuses);
            if matches(&value, filter) {
                fitting.push(Fitting {
                    urgency: urgency(Some(state)),
                    at: None,
                    entity: &state.entity,
                    value: Some(value),
                });
            }
        }
        let matching = fitting.len();
        fitting.sort_by_key(|one| (one.urgency, Reverse(self.last.get(one.entity))));
        fitting.truncate(MAX_LANES);
        fitting.sort_by_key(|one| (one.urgency, Reverse(one.at)));
        let anew = |one: Fitting<'_>| {
            let value = one.value.or_else(|| match sent.get(one.entity) {
                Some(value) if !changed.contains(one.entity) => Some(with_state(value.clone(), one.entity, statuses)),
                _ => self.value(one.entity, now, statuses),
            });
            (one.entity.clone(), value)
        };
        (fitting.into_iter().map(anew).collect(), json!({ "matching": matching }))
    }

    fn value(&self, entity: &EntityKey, now: Duration, statuses: &Statuses) -> Option<Value> {
        let lane = self.drawing.lane(entity, now)?;
        let ms = |at: Duration| at.as_millis() as u64 + self.offset;
        let newest = |count: usize| count.saturating_sub(NEWEST);
        let spans = lane.spans[newest(lane.spans.len())..].iter().map(|span| {
            let kind = match span.kind {
                LaneSpanKind::Waiting => "waiting",
                LaneSpanKind::Retrying => "retrying",
                LaneSpanKind::Orphaned => "orphaned",
                LaneSpanKind::Running => "running",
            };
            json!([span.sequence, kind, ms(span.from), (!span.is_open).then(|| ms(span.to)), visible(&span.name)])
        });
        let marks = lane.marks[newest(lane.marks.len())..]
            .iter()
            .map(|mark| mark_json(mark.kind, ms(mark.at), &visible(&mark.name)));
        let value = json!({
            "key": entity, "label": visible(entity.as_str()), "source": self.story.source(entity),
            "spans": spans.collect::<Vec<_>>(), "marks": marks.collect::<Vec<_>>(),
        });
        Some(with_state(value, entity, statuses))
    }
}

struct Fitting<'a> {
    urgency: (u8, Option<order_status::Kind>),
    /// The order's index among the recorded orders; `None` if the order has no recorded events.
    at: Option<usize>,
    entity: &'a EntityKey,
    value: Option<Value>,
}

/// Adds an order's state to its lane. An order whose row has not been read yet has just arrived, so the order's state
/// is `Waiting`.
fn with_state(mut lane: Value, entity: &EntityKey, statuses: &Statuses) -> Value {
    let state = statuses.find(entity);
    let kind = state.map_or(order_status::Kind::Waiting, |state| statuses.kind(state));
    let is_parked = state.is_some_and(|state| statuses.has_parked(state));
    lane["state"] = kind.as_str().into();
    lane["tone"] = Tone::from(if is_parked { order_status::Kind::Parked } else { kind }).class().into();
    lane["waiting"] = state.map_or(0, EntityState::waiting).into();
    lane["is_parked"] = is_parked.into();
    lane
}

fn mark_json(kind: MarkKind, at: u64, name: &str) -> Value {
    let (sign, tone) = kind.sign();
    json!([sign, at, name, tone.class()])
}

fn matches(lane: &Value, filter: &str) -> bool {
    let has = |value: &Value| value.as_str().is_some_and(|text| text.to_lowercase().contains(filter));
    let about = lane["spans"].as_array().into_iter().flatten().any(|span| has(&span[4]));
    let is_parked = lane["is_parked"] == true && "parked".contains(filter);
    filter.is_empty() || about || is_parked || ["key", "state", "source"].into_iter().any(|name| has(&lane[name]))
}

/// Waits for a reading that is newer than `sent`, and returns the reading.
async fn rows(shared: &ConsoleState, sent: &mut Option<Timestamp>) -> Result<Statuses, OperatorError> {
    loop {
        // The page's first lanes are what somebody opened, all later ones are refreshes.
        let _permit = match sent {
            Some(_) => Some(shared.budget.permit(&shared.watched.env).await),
            None => None,
        };
        let statuses = shared.readings.statuses(&shared.watched, ReadingDepth::Free).await?;
        if *sent != Some(statuses.orders.at) {
            *sent = Some(statuses.orders.at);
            return Ok(statuses);
        }
        let env = &shared.watched.env;
        let age = env.now().since(statuses.orders.at);
        let keeps = statuses.orders.keeps(shared.watched.is_local);
        env.sleep(keeps.saturating_sub(age).max(Duration::from_millis(100))).await;
    }
}

fn lanes_of_rows(statuses: &Statuses, filter: &str) -> (Vec<(EntityKey, Option<Value>)>, Value) {
    let fitting = statuses.orders.orders.iter().filter(|state| {
        let state_text = statuses.kind(state).as_str();
        let is_parked = || statuses.has_parked(state) && "parked".contains(filter);
        let key = || state.entity.as_str().to_lowercase();
        filter.is_empty() || state_text.contains(filter) || key().contains(filter) || is_parked()
    });
    let mut fitting: Vec<&EntityState> = fitting.collect();
    let matching = fitting.len();
    fitting.sort_by_cached_key(|state| (!statuses.needs_somebody(state), Reverse(active_at(state))));
    fitting.truncate(MAX_LANES);
    let lanes = fitting.into_iter().map(|state| (state.entity.clone(), Some(lane_of_row(state, statuses)))).collect();
    (lanes, json!({ "matching": matching }))
}

fn lane_of_row(state: &EntityState, statuses: &Statuses) -> Value {
    let kind = statuses.kind(state);
    let mut spans = Vec::new();
    let mut marks = Vec::new();
    for receipt in state.recent.iter() {
        let at = receipt.settled_at.as_millis();
        let name = marked(receipt.sequence);
        if let Some(started) = receipt.started_at() {
            spans.push(json!([receipt.sequence, "running", started.as_millis(), at, name]));
        }
        let kind = MarkKind::of(receipt.settlement).or((receipt.attempts > 1).then_some(MarkKind::Failed));
        marks.extend(kind.map(|kind| mark_json(kind, at, &name)));
    }
    if let Some(since) = state.pending_since.filter(|_| !state.is_empty()) {
        let span = match kind {
            order_status::Kind::AtWork => "running",
            order_status::Kind::Failing | order_status::Kind::Unavailable => "retrying",
            order_status::Kind::Abandoned => "orphaned",
            _ => "waiting",
        };
        spans.push(json!([state.next(), span, since.as_millis(), null, marked(state.next())]));
        if kind == order_status::Kind::Blocked {
            marks.push(mark_json(MarkKind::Blocked, since.as_millis(), &marked(state.next())));
        }
    }
    let lane = json!({
        "key": state.entity, "label": visible(state.entity.as_str()), "source": null, "spans": spans, "marks": marks,
    });
    with_state(lane, &state.entity, statuses)
}
