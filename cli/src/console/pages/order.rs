//! The page of an order: its status, actions, timeline, deliveries and operations log.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;
use webhook_serializer::{
    operator::{Inspected, Parked},
    protocol::{
        delivery::{Delivery, InboxItem},
        entity::{EntityKey, Sequence},
        maintain::OperatorAction,
        receipt::Settlement,
        state::{EntityState, LeaseKind},
    },
    time::Timestamp,
};

use super::{
    super::{
        ConsoleState,
        frame::{PageFrame, PageRequest, Tab, ago, at, badge, delivery_path, encoded, order_path, position, timed},
        plot,
        request::Asked,
    },
    Shown, key, shown, unknown,
};
use crate::{
    output::duration,
    verbs::{Situation, VERBS, redrive::REDRIVE},
    view::{
        order_status::{Kind, NextCommand, OrderStatus, attempts_so_far},
        timeline::{Timeline, outcome, waited},
    },
};

const SETTLED: usize = 30;

#[derive(Debug, Deserialize)]
pub(super) struct OrderParameters {
    #[serde(default)]
    key: String,
    settled: Option<usize>,
}

pub(super) async fn page(
    State(shared): State<Arc<ConsoleState>>,
    Asked(parameters): Asked<OrderParameters>,
    request: PageRequest,
) -> Response {
    shown(order(&shared, &parameters, &request).await, &shared, &request)
}

async fn order(shared: &ConsoleState, parameters: &OrderParameters, request: &PageRequest) -> Shown {
    let entity = key(&parameters.key)?;
    let limit = parameters.settled.unwrap_or(SETTLED).min(1000);
    let timeline = Timeline::read(&shared.watched.operator, &entity, limit).await?;
    if !timeline.is_known() {
        return Err(unknown(shared, &entity).await);
    }
    let now = shared.watched.env.now();
    let delay = match timeline.next_source() {
        Some((source, state)) => shared.delay(source, state).await,
        None => None,
    };
    let status = timeline.status(now).with_delay(delay.as_ref(), now);
    let inspected = &timeline.inspected;
    let situation = Situation {
        order: &entity,
        sequence: None,
        state: inspected.state.as_ref(),
        parked: inspected.parked.len(),
        is_rewinding: !inspected.again.is_empty(),
    };
    let body = html! {
        div { (head(shared, &entity, &timeline, &status, now)) }
        div { (actions(&situation)) }
        div {
            (plot::timeline(&timeline, now))
            (waiting(inspected, now))
            (parked(&inspected.parked, now))
            (acts(&shared.watched.operator.acts(&entity).await?, now))
            (settled(&entity, &timeline, limit, now))
        }
    };
    Ok(PageFrame::new(entity.as_str(), Tab::None).read_at(now).again(shared.again()).around(shared, request, &body))
}

fn head(
    shared: &ConsoleState,
    entity: &EntityKey,
    timeline: &Timeline,
    status: &OrderStatus,
    now: Timestamp,
) -> Markup {
    let inspected = &timeline.inspected;
    html! {
        h1.key {
            (entity) " " (badge(status.kind))
            @if status.kind != Kind::Parked && !inspected.parked.is_empty() { " " (badge(Kind::Parked)) }
        }
        div.why { @for cause in &status.causes { p { (timed(cause)) } } }
        (next_commands(&status.next, &shared.watched.option, entity))
        @match &inspected.state {
            Some(state) => { (facts(state, now)) }
            None => { p.why { "The order's row was deleted. The deliveries below are still stored." } }
        }
        p.read { "Read at " (at(now)) "." }
    }
}

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
    let by = state.holder_info.as_ref().map_or("unknown", |info| info.as_str());
    html! {
        dl.facts {
            div { dt { "last arrived" } dd { (position(state.tail)) } }
            div { dt { "last settled" } dd { (position(state.head)) } }
            div { dt { "waiting" } dd { (state.waiting()) @if let Some(since) = state.pending_since.filter(|_| !state.is_empty()) { ", for " (ago(since, now)) } } }
            div { dt { "attempts" } dd { (attempts_so_far(state)) } }
            @if let Some(at) = state.retry_at.filter(|at| *at > now) { div { dt { "next attempt in" } dd { (duration(at.since(now))) } } }
            div {
                dt { "lease" }
                dd {
                    @match &state.held {
                        None => { "free" }
                        Some(held) => {
                            (by) ", " (if held.kind == LeaseKind::Drain { "drain" } else { "exclusive" }) ", "
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

pub(super) fn actions(situation: &Situation<'_>) -> Markup {
    let offered: Vec<_> = VERBS.iter().filter(|verb| (verb.is_offered)(situation)).collect();
    html! {
        @if !offered.is_empty() {
            section.act aria-label="Actions" {
                @for verb in offered {
                    details data-key=(verb.name) {
                        summary class=[verb.is_final.then_some("final")] data-row { (verb.label) @if situation.is_order() && verb.is(&REDRIVE) && situation.parked > 1 { " all " (situation.parked) } }
                        form method="post" action={ "/act/" (verb.name) } {
                            p { (verb.description) }
                            input type="hidden" name="key" value=(situation.order);
                            @if let Some(sequence) = verb.sequence_in_form(situation) { input type="hidden" name="sequence" value=(sequence); }
                            label { "Reason" input type="text" name="why" required maxlength="200" autocomplete="off" placeholder="for the operations log"; }
                            button.main[!verb.is_final].final[verb.is_final] { (verb.label) }
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
                            InboxItem::Void(sequence) => { tr { td.n { (position(*sequence)) } td colspan="4" { "tombstone: never written" } } }
                            InboxItem::Delivery(unpacked) => { (waiting_row(unpacked.head(), again.get(&unpacked.head().sequence()), now)) }
                        }
                    }
                }
            }
            @if more > 0 { p { "and " (more) " more wait behind these." } }
        }
    }
}

fn waiting_row(delivery: &Delivery, before: Option<&Settlement>, now: Timestamp) -> Markup {
    html! {
        tr {
            td.n { (position(delivery.sequence())) }
            td.key {
                a data-row href=(delivery_path(delivery.entity(), delivery.sequence())) { (delivery.topic()) }
                @if let Some(before) = before { " (" (before) " before)" }
            }
            td.name { (delivery.source()) }
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
                thead { tr { th.n { "#" } th { "Topic" } th { "Reason" } th { "Delivery" } th.n { "Since" } } }
                tbody {
                    @for one in parked {
                        tr {
                            td.n { (position(one.sequence)) }
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

fn acts(acts: &[OperatorAction], now: Timestamp) -> Markup {
    html! {
        @if !acts.is_empty() {
            h2 { "Operations log" }
            table.rows {
                thead { tr { th { "Operation" } th.n { "#" } th { "By" } th { "Reason" } th { "Result" } th.n { "Ago" } } }
                tbody {
                    @for act in acts.iter().rev() {
                        tr {
                            td { (act.verb) }
                            td.n { @if let Some(sequence) = act.sequence { (position(sequence)) } }
                            td { (act.reason.by) }
                            td { (act.reason.why) }
                            td { (act.ended.as_deref().unwrap_or("unknown: the operation was interrupted")) }
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
    // Parked deliveries are listed separately.
    let is_parked = |sequence: &Sequence| timeline.inspected.parked.iter().any(|one| one.sequence == *sequence);
    let settled: Vec<_> = timeline.settled.iter().filter(|(sequence, _)| !is_parked(sequence)).collect();
    html! {
        @if !settled.is_empty() {
            h2 { "Settled" }
            table.rows {
                thead { tr { th.n { "#" } th { "Topic" } th { "Outcome" } th.n { "Attempts" } th.n { "Waited" } th.n { "Took" } th.n { "Ago" } th.n { "Token" } } }
                tbody {
                    @for (sequence, past) in settled.iter().rev() {
                        tr {
                            td.n { (position(**sequence)) }
                            td.key {
                                @if let Some(delivery) = &past.delivery {
                                    a data-row href=(delivery_path(entity, **sequence)) { (delivery.topic()) }
                                    @if delivery.redrive() > 0 { " " span.dim { "redriven" } }
                                }
                            }
                            td { (badge(outcome(past))) }
                            td.n { @if let Some(receipt) = past.receipt.as_ref().filter(|receipt| receipt.attempts > 0) { (receipt.attempts_text()) } }
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
            p { "Older deliveries are not shown. " a href={ (order_path(entity)) "&settled=" (encoded(&(limit + 100).to_string())) } { "Show 100 more" } }
        }
    }
}
