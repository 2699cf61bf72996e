//! One order: how it stands, why it does not move, and all its deliveries.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Query, State},
    response::Response,
};
use maud::{Markup, html};
use serde::Deserialize;
use webhook_serializer::{
    operator::{Inspected, Parked},
    protocol::{
        delivery::{Delivery, Item},
        entity::EntityKey,
        maintain::OperatorAction,
        receipt::Settlement,
        state::{EntityState, LeaseKind},
    },
    time::Timestamp,
};

use super::{
    super::{
        Shared,
        actions::{About, Situation, is_offered, sequence_of},
        frame::{Page, Place, Visitor, ago, badge, delivery_path, encoded, order_path},
        plot,
        trouble::Trouble,
    },
    Shown, key, shown,
};
use crate::{
    operations::Verb,
    output::duration,
    view::{
        order_status::{Kind, NextCommand},
        timeline::{Timeline, outcome, waited},
    },
};

/// So many of what was settled are shown, the newest, and so many more for the asking.
const SETTLED: usize = 30;

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    key: String,
    settled: Option<usize>,
}

pub(super) async fn page(State(shared): State<Arc<Shared>>, Query(asked): Query<Asked>, visitor: Visitor) -> Response {
    shown(order(&shared, &asked, &visitor).await, &shared, &visitor)
}

async fn order(shared: &Shared, asked: &Asked, visitor: &Visitor) -> Shown {
    let entity = key(&asked.key)?;
    let limit = asked.settled.unwrap_or(SETTLED).min(1000);
    let timeline = Timeline::read(&shared.watched.operator, &entity, limit).await?;
    if !timeline.is_known() {
        return Err(Trouble::Unknown(format!(
            "Nothing is known of {entity}: nothing has arrived for this key within the retention time, or it was erased."
        )));
    }
    let now = shared.watched.env.now();
    let inspected = &timeline.inspected;
    let situation = Situation {
        state: inspected.state.as_ref(),
        parked: inspected.parked.len(),
        again: !inspected.again.is_empty(),
    };
    let body = html! {
        (head(shared, &entity, &timeline, now))
        (actions(About { entity: &entity, sequence: None }, situation))
        (plot::timeline(&timeline, now))
        (waiting(inspected, now))
        (parked(&inspected.parked, now))
        (acts(&shared.watched.operator.acts(&entity).await?, now))
        (settled(&entity, &timeline, limit, now))
    };
    Ok(Page { searched: "", ..Page::new(entity.as_str(), Place::Elsewhere) }.around(shared, visitor, &body))
}

fn head(shared: &Shared, entity: &EntityKey, timeline: &Timeline, now: Timestamp) -> Markup {
    let inspected = &timeline.inspected;
    let status = timeline.status(now);
    html! {
        h1.key {
            (entity) " " (badge(status.kind.as_str()))
            @if status.kind != Kind::Parked && !inspected.parked.is_empty() { " " (badge("parked")) }
        }
        div.why { @for cause in &status.causes { p { (cause) } } }
        (next_commands(&status.next, &shared.watched.option, entity))
        @match &inspected.state {
            Some(state) => { (facts(state, now)) }
            None => { p.why { "Its row is gone; what is below is left of it." } }
        }
    }
}

/// The same in a terminal.
pub(super) fn next_commands(next: &[NextCommand], option: &str, entity: &EntityKey) -> Markup {
    html! {
        @if !next.is_empty() {
            details.terminal {
                summary { "In a terminal" }
                ul { @for next in next { li { code { (next.line(option, entity)) } " " (next.purpose) } } }
            }
        }
    }
}

fn facts(state: &EntityState, now: Timestamp) -> Markup {
    let by = state.holder_info.as_ref().map_or("somebody", |info| info.as_str());
    html! {
        dl.facts {
            div { dt { "arrived" } dd { (state.tail) } }
            div { dt { "settled" } dd { (state.head) } }
            div { dt { "waiting" } dd { (state.waiting()) @if let Some(since) = state.pending_since.filter(|_| !state.is_empty()) { ", for " (ago(since, now)) } } }
            div { dt { "attempts" } dd { (state.attempts) } }
            @if let Some(at) = state.retry_at.filter(|at| *at > now) { div { dt { "again in" } dd { (duration(at.since(now))) } } }
            div {
                dt { "lease" }
                dd {
                    @match &state.held {
                        None => { "free" }
                        Some(held) => {
                            (by) ", " (if held.kind == LeaseKind::Drain { "a worker" } else { "no worker" }) ", "
                            @if held.expires_at > now { (duration(held.expires_at.since(now))) " left" }
                            @else { "expired " (ago(held.expires_at, now)) " ago" }
                        }
                    }
                }
            }
            div { dt { "token" } dd { (state.token) } }
        }
    }
}

/// A form for each thing that can be done here.
pub(super) fn actions(about: About<'_>, situation: Situation<'_>) -> Markup {
    let offered: Vec<Verb> = Verb::ALL.into_iter().filter(|verb| is_offered(*verb, about, situation)).collect();
    html! {
        @if !offered.is_empty() {
            section.act aria-label="What can be done" {
                @for verb in offered {
                    details {
                        summary class=[verb.is_final().then_some("final")] data-row { (verb.label()) @if about.sequence.is_none() && verb == Verb::Redrive && situation.parked > 1 { " all " (situation.parked) } }
                        form method="post" action={ "/act/" (verb.name()) } {
                            p { (verb.description()) }
                            input type="hidden" name="key" value=(about.entity);
                            @if let Some(sequence) = sequence_of(verb, about, situation) { input type="hidden" name="sequence" value=(sequence); }
                            label { "Why" input type="text" name="why" required maxlength="200" autocomplete="off" placeholder="for whoever looks next"; }
                            button.main[!verb.is_final()].final[verb.is_final()] { (verb.label()) }
                        }
                    }
                }
            }
        }
    }
}

fn waiting(inspected: &Inspected, now: Timestamp) -> Markup {
    let Inspected { state, waiting, again, .. } = inspected;
    let more = state.as_ref().map_or(0, EntityState::waiting).saturating_sub(waiting.len() as u64);
    html! {
        @if !waiting.is_empty() {
            h2 { "Waiting" }
            table.rows {
                thead { tr { th.n { "#" } th { "Topic" } th { "Source" } th { "Delivery" } th.n { "Since" } } }
                tbody {
                    @for item in waiting {
                        @match item {
                            Item::Void(sequence) => { tr { td.n { (sequence) } td colspan="4" { "void: never filled" } } }
                            Item::Delivery(unpacked) => { (waiting_row(unpacked.head(), again.get(&unpacked.head().sequence()), now)) }
                        }
                    }
                }
            }
            @if more > 0 { p { "and " (more) " more behind these." } }
        }
    }
}

fn waiting_row(delivery: &Delivery, before: Option<&Settlement>, now: Timestamp) -> Markup {
    html! {
        tr {
            td.n { (delivery.sequence()) }
            td.key {
                a data-row href=(delivery_path(delivery.entity(), delivery.sequence())) { (delivery.topic()) }
                @if let Some(before) = before { " (" (before) " before)" }
            }
            td { (delivery.source()) }
            td.id { (delivery.delivery_id()) }
            td.n { (ago(delivery.received_at(), now)) }
        }
    }
}

fn parked(parked: &[Parked], now: Timestamp) -> Markup {
    html! {
        @if !parked.is_empty() {
            h2 { "Parked" }
            table.rows {
                thead { tr { th.n { "#" } th { "Topic" } th { "Why" } th { "Delivery" } th.n { "Since" } } }
                tbody {
                    @for one in parked {
                        tr {
                            td.n { (one.sequence) }
                            td.key { a data-row href=(delivery_path(one.delivery().entity(), one.sequence)) { (one.delivery().topic()) } }
                            td.error { (one.error) }
                            td.id { (one.delivery().delivery_id()) }
                            td.n { @if let Some(at) = one.parked_at { (ago(at, now)) } }
                        }
                    }
                }
            }
        }
    }
}

/// What people did.
fn acts(acts: &[OperatorAction], now: Timestamp) -> Markup {
    html! {
        @if !acts.is_empty() {
            h2 { "Done by people" }
            table.rows {
                thead { tr { th { "What" } th.n { "#" } th { "Who" } th { "Why" } th { "How it ended" } th.n { "Ago" } } }
                tbody {
                    @for act in acts.iter().rev() {
                        tr {
                            td { (act.verb) }
                            td.n { @if let Some(sequence) = act.sequence { (sequence) } }
                            td { (act.reason.by) }
                            td { (act.reason.why) }
                            td { (act.ended.as_deref().unwrap_or("not known: it was interrupted")) }
                            td.n { @if let Some(at) = act.at() { (ago(at, now)) } }
                        }
                    }
                }
            }
        }
    }
}

fn settled(entity: &EntityKey, timeline: &Timeline, limit: usize, now: Timestamp) -> Markup {
    let took = |took: Option<Duration>| took.map(duration).unwrap_or_default();
    html! {
        @if !timeline.settled.is_empty() {
            h2 { "Settled" }
            table.rows {
                thead { tr { th.n { "#" } th { "Topic" } th { "Outcome" } th.n { "Attempts" } th.n { "Waited" } th.n { "Took" } th.n { "Ago" } th.n { "Token" } } }
                tbody {
                    @for (sequence, past) in timeline.settled.iter().rev() {
                        tr {
                            td.n { (sequence) }
                            td.key {
                                @if let Some(delivery) = &past.delivery {
                                    a data-row href=(delivery_path(entity, *sequence)) { (delivery.topic()) }
                                    @if delivery.redrive() > 0 { " " span.dim { "put back" } }
                                }
                            }
                            td { (badge(&outcome(past))) }
                            td.n { @if let Some(receipt) = past.receipt.as_ref().filter(|receipt| receipt.attempts > 0) { (receipt.attempts) } }
                            td.n { (took(waited(past))) }
                            td.n { (took(past.receipt.as_ref().and_then(|receipt| receipt.took))) }
                            td.n { @if let Some(receipt) = &past.receipt { (ago(receipt.settled_at, now)) } }
                            td.n { @if let Some(receipt) = past.receipt.as_ref().filter(|receipt| receipt.attempts > 0) { (receipt.token) } }
                        }
                    }
                }
            }
        }
        @if timeline.has_older {
            p { "Older ones are not shown. " a href={ (order_path(entity)) "&settled=" (encoded(&(limit + 100).to_string())) } { "Show 100 more" } }
        }
    }
}
