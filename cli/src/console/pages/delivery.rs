//! One delivery: what became of it, its body, and what differs from the one
//! before.

use std::sync::Arc;

use axum::{
    Form,
    extract::{Query, State},
    response::Response,
};
use maud::{Markup, html};
use serde::Deserialize;
use webhook_serializer::{
    operator::{Content, Single},
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, Sequence},
    },
};

use super::{
    super::{
        Shared,
        actions::{About, Situation},
        frame::{Page, Place, Visitor, ago, badge, delivery_path, order_path},
        trouble::Trouble,
    },
    Shown, key,
    order::{actions, next_commands},
    sequence, shown,
};
use crate::view::{
    body::{Changed, Node, Redacted, diff, redacted},
    delivery::{DeliveryStatus, Fact},
};

/// A value is cut at so many characters, and a body at so many bytes.
const LONGEST: usize = 200;
const LARGEST: usize = 256 * 1024;

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    key: String,
    #[serde(default)]
    sequence: String,
}

pub(super) async fn page(State(shared): State<Arc<Shared>>, Query(asked): Query<Asked>, visitor: Visitor) -> Response {
    shown(delivery(&shared, &asked, false, &visitor).await, &shared, &visitor)
}

/// The same, with what is somebody's own: asked for with a button, so that no
/// link shows it by itself.
pub(super) async fn whole(State(shared): State<Arc<Shared>>, visitor: Visitor, Form(asked): Form<Asked>) -> Response {
    shown(delivery(&shared, &asked, true, &visitor).await, &shared, &visitor)
}

async fn delivery(shared: &Shared, asked: &Asked, raw: bool, visitor: &Visitor) -> Shown {
    let entity = key(&asked.key)?;
    let sequence = sequence(&asked.sequence)?;
    let operator = &shared.watched.operator;
    let single = operator.single(&entity, sequence).await?;
    if matches!(single.content, Content::Nothing) {
        return Err(Trouble::Unknown(missing(&entity, sequence, &single)));
    }
    let before = match &single.content {
        Content::Delivery(_) => operator.before(&entity, sequence).await?,
        _ => None,
    };
    let now = shared.watched.env.now();
    let status = DeliveryStatus::of(sequence, &single, now);
    let tail = single.state.as_ref().map_or(sequence, |state| state.tail);
    let situation =
        Situation { state: single.state.as_ref(), parked: usize::from(single.parked.is_some()), again: false };
    let body = html! {
        p.back {
            a href=(order_path(&entity)) { (entity) }
            @if sequence.0 > 1 { " " a rel="prev" href=(delivery_path(&entity, sequence.previous())) { "← " (sequence.previous()) } }
            @if sequence < tail { " " a rel="next" href=(delivery_path(&entity, sequence.next())) { (sequence.next()) " →" } }
        }
        h1.key { (single.content.delivery().map_or("void", Delivery::topic)) " " span.dim { "#" (sequence) } " " (badge(&status.word)) }
        div.why { @for said in &status.sentences { p { (said) } } }
        (next_commands(&status.next, &shared.watched.option, &entity))
        dl.facts {
            @for (name, fact) in &status.facts {
                div {
                    dt { (name) }
                    dd {
                        @match fact {
                            Fact::Text(text) => { (text) }
                            Fact::Number(number) => { (number) }
                            Fact::At(at) => { time datetime=(at) { (at) } @if *at <= now { ", " (ago(*at, now)) " ago" } }
                        }
                    }
                }
            }
        }
        (actions(About { entity: &entity, sequence: Some(sequence) }, situation))
        div.beside {
            (body_of(&entity, sequence, &single.content, raw))
            (difference(&single.content, before.as_ref(), raw))
        }
    };
    let title = format!("{entity} {sequence}");
    Ok(Page::new(&title, Place::Elsewhere).around(shared, visitor, &body))
}

/// Why there is nothing to be seen.
fn missing(entity: &EntityKey, sequence: Sequence, single: &Single) -> String {
    match &single.state {
        None => format!(
            "Nothing is known of {entity}: nothing has arrived for this key within the retention time, or it was erased."
        ),
        Some(state) if sequence > state.tail => {
            format!("There is no delivery {sequence} of {entity}: the last that arrived is {}.", state.tail)
        }
        Some(state) if sequence > state.head => {
            format!(
                "{entity} {sequence} is claimed and not written yet, or never will be; look again in a few seconds."
            )
        }
        Some(_) => format!(
            "{entity} {sequence} was settled or never used, and its delivery is gone: deliveries are kept for the retention time alone."
        ),
    }
}

fn body_of(entity: &EntityKey, sequence: Sequence, content: &Content, raw: bool) -> Markup {
    let Content::Delivery(delivery) = content else {
        return html! { section { h2 { "Body" } p { "It is gone: it was put back or discarded since it was parked." } } };
    };
    let node = Node::parse(delivery.body());
    let text = || cut(&String::from_utf8_lossy(delivery.body()), LARGEST);
    let (shown, hidden) = match (&node, raw) {
        (Some(node), true) => (cut(&node.to_string(), LARGEST), Vec::new()),
        (None, true) => (text(), Vec::new()),
        (Some(node), false) => {
            let Redacted { node, pointers } = redacted(node);
            (cut(&node.to_string(), LARGEST), pointers)
        }
        (None, false) => ("It is no JSON, and so hidden as a whole.".to_owned(), vec![String::new()]),
    };
    html! {
        section aria-labelledby="body" {
            h2 #body { "Body" @if raw { " " span.badge.warn { "all of it" } } }
            @if !hidden.is_empty() {
                form.show method="post" action="/delivery" {
                    input type="hidden" name="key" value=(entity);
                    input type="hidden" name="sequence" value=(sequence);
                    p { (hidden_count(&hidden)) " " button { "Show it all" } }
                }
            }
            pre tabindex="0" { code { (shown) } }
        }
    }
}

fn hidden_count(pointers: &[String]) -> Markup {
    html! { @match pointers.len() { 1 => { "1 place is hidden." } many => { (many) " places are hidden." } } }
}

fn difference(content: &Content, before: Option<&Delivery>, raw: bool) -> Markup {
    let (Content::Delivery(delivery), Some(before)) = (content, before) else { return html! {} };
    let nodes = Node::parse(before.body()).zip(Node::parse(delivery.body()));
    let changes = nodes.map(|(old, new)| diff(&old, &new, raw));
    let value = |value: &Option<String>| value.as_deref().map(|value| cut(value, LONGEST));
    html! {
        section aria-labelledby="difference" {
            h2 #difference { "Against " a href=(delivery_path(before.entity(), before.sequence())) { "#" (before.sequence()) } span.dim { ", " (before.topic()) } }
            @match &changes {
                None => { p { "One of the two bodies is no JSON." } }
                Some(changes) if changes.is_empty() => { p { "The same body." } }
                Some(changes) => {
                    ul.changes {
                        @for Changed { pointer, before, after } in changes {
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
