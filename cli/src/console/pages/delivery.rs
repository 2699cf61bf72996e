//! The page of a delivery: its status, its body with personal data hidden, and the changes since an earlier delivery.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;
use webhook_serializer::{
    operator::{Content, LOOKS_BACK},
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, Sequence},
        state::EntityState,
    },
};

use super::{
    super::{
        ConsoleState,
        frame::{PageFrame, PageRequest, Tab, ago, at, badge, delivery_path, order_path, position, timed},
        problem::Problem,
        request::{Asked, SentForm},
    },
    Shown, key,
    order::{actions, next_commands},
    sequence, shown, unknown,
};
use crate::{
    verbs::Situation,
    view::{
        body::{BodyNode, ChangedValue, Redacted, diff, redacted},
        delivery::{DeliveryStatus, Fact, is_blocked_at},
        position::marked,
    },
};

const LONGEST: usize = 200;
const LARGEST: usize = 256 * 1024;

#[derive(Debug, Deserialize)]
pub(super) struct DeliveryParameters {
    #[serde(default)]
    key: String,
    #[serde(default)]
    sequence: String,
}

pub(super) async fn page(
    State(shared): State<Arc<ConsoleState>>,
    Asked(parameters): Asked<DeliveryParameters>,
    request: PageRequest,
) -> Response {
    shown(delivery(&shared, &parameters, false, &request).await, &shared, &request)
}

/// Shows the delivery with its personal data. Only a form can open this page; a link cannot.
pub(super) async fn unredacted(
    State(shared): State<Arc<ConsoleState>>,
    request: PageRequest,
    SentForm(parameters): SentForm<DeliveryParameters>,
) -> Response {
    shown(delivery(&shared, &parameters, true, &request).await, &shared, &request)
}

async fn delivery(shared: &ConsoleState, parameters: &DeliveryParameters, raw: bool, request: &PageRequest) -> Shown {
    let entity = key(&parameters.key)?;
    let sequence = sequence(shared, &entity, &parameters.sequence).await?;
    let operator = &shared.watched.operator;
    let single = operator.single(&entity, sequence).await?;
    if matches!(single.content, Content::Nothing) && !is_blocked_at(sequence, &single) {
        return Err(match &single.state {
            None => unknown(shared, &entity).await,
            Some(state) => Problem::Unknown(missing(&entity, sequence, state)),
        });
    }
    let before = match &single.content {
        Content::Delivery(delivery) => operator.before(delivery).await?,
        _ => None,
    };
    let now = shared.watched.env.now();
    let next = single.state.as_ref().filter(|state| state.next() == sequence);
    let delay = match next.zip(single.content.delivery()) {
        Some((state, delivery)) => shared.delay(delivery.source(), state).await,
        None => None,
    };
    let status = DeliveryStatus::of(sequence, &single, delay.as_ref(), now);
    let tail = single.state.as_ref().map_or(sequence, |state| state.tail);
    let situation = Situation {
        order: &entity,
        sequence: Some(sequence),
        state: single.state.as_ref(),
        parked: usize::from(single.parked.is_some()),
        is_rewinding: false,
    };
    let body = html! {
        p.back {
            a href=(order_path(&entity)) { (entity) }
            @if sequence.0 > 1 { " " a rel="prev" href=(delivery_path(&entity, sequence.previous())) { "← " (position(sequence.previous())) } }
            @if sequence < tail { " " a rel="next" href=(delivery_path(&entity, sequence.next())) { (position(sequence.next())) " →" } }
        }
        div {
            h1.key { (single.content.delivery().map_or("empty", Delivery::topic)) " " span.dim { (position(sequence)) } " " (badge(status.word.clone())) }
            div.why { @for sentence in &status.sentences { p { (timed(sentence)) } } }
            (next_commands(&status.next, &shared.watched.option, &entity))
            dl.facts {
                @for (name, fact) in &status.facts {
                    div {
                        dt { (name) }
                        dd {
                            @match fact {
                                Fact::Text(text) => { (text) }
                                Fact::Number(number) => { (number) }
                                Fact::At(time) => { (at(*time)) @if *time <= now { ", " (ago(*time, now)) " ago" } }
                            }
                        }
                    }
                }
            }
            p.read { "Read at " (at(now)) "." }
        }
        div { (actions(&situation)) }
        div.beside {
            (body_of(&entity, sequence, &single.content, raw))
            (difference(&single.content, before.as_ref(), raw))
        }
    };
    let title = format!("{entity} {}", marked(sequence));
    let page = PageFrame::new(&title, Tab::None).read_at(now);
    // Only a form opens a page with personal data, so that a refresh could not.
    let page = if raw { page } else { page.again(shared.again()) };
    Ok(page.around(shared, request, &body))
}

fn missing(entity: &EntityKey, sequence: Sequence, state: &EntityState) -> String {
    let shown = marked(sequence);
    match sequence {
        _ if sequence > state.tail => {
            format!("There is no delivery {sequence} of {entity}; the last one is {}.", state.tail)
        }
        _ if sequence > state.head => format!(
            "{entity} {shown} is claimed but not written. Reload in a few seconds; if it is never written, a worker fills it with a tombstone."
        ),
        _ => format!(
            "There is no delivery {entity} {shown}: the sequence was never used, or its delivery was settled and then deleted."
        ),
    }
}

fn body_of(entity: &EntityKey, sequence: Sequence, content: &Content, raw: bool) -> Markup {
    let Content::Delivery(delivery) = content else {
        let why = match content {
            Content::Bodiless(_) => "The body is gone: the delivery was redriven or discarded.",
            _ => "There is no body, because this sequence has no delivery.",
        };
        return html! { section { h2 { "Body" } p { (why) } } };
    };
    let node = BodyNode::parse(delivery.body());
    let text = || cut(&String::from_utf8_lossy(delivery.body()), LARGEST);
    let (shown, hidden) = match (&node, raw) {
        (Some(node), true) => (cut(&node.to_string(), LARGEST), Vec::new()),
        (None, true) => (text(), Vec::new()),
        (Some(node), false) => {
            let Redacted { node, pointers } = redacted(node);
            (cut(&node.to_string(), LARGEST), pointers)
        }
        (None, false) => ("The body is not JSON, so all of it is hidden.".to_owned(), vec![String::new()]),
    };
    html! {
        section aria-labelledby="body" {
            h2 #body { "Body" @if raw { " " span.badge.warn { "unredacted" } } }
            @if !hidden.is_empty() {
                form.show method="post" action="/delivery" {
                    input type="hidden" name="key" value=(entity);
                    input type="hidden" name="sequence" value=(sequence);
                    p { (hidden_count(&hidden)) " " button { "Show everything" } }
                }
            }
            pre tabindex="0" { code { (shown) } }
        }
    }
}

fn hidden_count(pointers: &[String]) -> Markup {
    html! { @match pointers.len() { 1 => { "1 value is hidden." } many => { (many) " values are hidden." } } }
}

fn difference(content: &Content, before: Option<&Delivery>, raw: bool) -> Markup {
    let Content::Delivery(delivery) = content else { return html! {} };
    let Some(before) = before else {
        return html! {
            section aria-labelledby="difference" {
                h2 #difference { "Difference" }
                p { "There is nothing to compare: among the " (LOOKS_BACK) " deliveries before this one, no stored delivery is from " (delivery.source()) " with the topic " (delivery.topic()) "." }
            }
        };
    };
    let nodes = BodyNode::parse(before.body()).zip(BodyNode::parse(delivery.body()));
    let changes = nodes.map(|(old, new)| diff(&old, &new, raw));
    let value = |value: &Option<String>| value.as_deref().map(|value| cut(value, LONGEST));
    html! {
        details.difference open {
            summary { h2 #difference { "Changes since the last " (before.topic()) } }
            p { "Compared with " a href=(delivery_path(before.entity(), before.sequence())) { (position(before.sequence())) } ", the newest earlier delivery of this topic." }
            @match &changes {
                None => { p { "One of the bodies is not JSON." } }
                Some(changes) if changes.is_empty() => { p { "The bodies are the same." } }
                Some(changes) => {
                    ul.changes {
                        @for ChangedValue { pointer, before, after } in changes {
                            li {
                                code { (pointer) }
                                @if let Some(before) = value(before) { del { (before) } }
                                @if let Some(after) = value(after) { ins { (after) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cut(value: &str, longest: usize) -> String {
    match value.char_indices().nth(longest) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}
