//! Shows an order: its status, and its waiting, parked and settled deliveries.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Result;
use console::style;
use serde_json::json;
use serializer::{
    output::{Table, duration},
    say,
    view::{
        delivery::{self, delivery_json, parked_json},
        order_status::{DelayCause, OrderStatus, SourceDelay},
        overview::ParkedDelivery,
        position::marked,
        similar,
        timeline::{Timeline, outcome, waited},
        tone::Word,
    },
};
use webhook_serializer::{
    operator::{Parked, Past},
    protocol::{
        delivery::{Delivery, InboxItem},
        entity::{EntityKey, Sequence},
        receipt::{Receipt, Settlement},
    },
    time::Timestamp,
};

use super::ShownOrder;
use crate::commands::{print_json, setup::source::whereabouts, target::Deployment};

struct OrderReport {
    timeline: Timeline,
    delay: Option<SourceDelay>,
    similar: Vec<String>,
}

impl OrderReport {
    fn status(&self, now: Timestamp) -> OrderStatus {
        let status = self.timeline.status(now);
        status.with_delay(self.delay.as_ref(), now)
    }
}

impl ShownOrder {
    pub(super) async fn order(&self, deployment: &Deployment) -> Result<ExitCode> {
        let seen = self.look(deployment).await?;
        if self.json {
            print_json(&as_json(&self.order, &seen, deployment));
        } else {
            self.print_order(&seen, deployment);
        }
        Ok(if seen.timeline.is_known() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn look(&self, deployment: &Deployment) -> Result<OrderReport> {
        let timeline = Timeline::read(&deployment.operator(), &self.order, self.settled).await?;
        let delay = match timeline.next_source() {
            Some((source, state)) => whereabouts::delay(deployment, source, state).await,
            None => None,
        };
        let similar = match timeline.is_known() {
            true => Vec::new(),
            false => similar::keys(&self.order, &deployment.operator()).await,
        };
        Ok(OrderReport { timeline, delay, similar })
    }

    fn print_order(&self, seen: &OrderReport, deployment: &Deployment) {
        let now = deployment.env.now();
        let OrderReport { timeline: Timeline { inspected, settled, has_older }, similar, .. } = seen;
        let name = style(self.order.as_str()).bold();
        if seen.timeline.is_known() {
            let status = seen.status(now);
            say!("{name}  {}", Word::from(status.kind).styled());
            status.causes.iter().for_each(|cause| say!("{cause}"));
            deployment.print_next(&self.order, &status.next);
        } else {
            let raw: &[&str] = if deployment.is_local() { &[] } else { &["--raw"] };
            let list = deployment.line("lease list", &[&["--all"], raw].concat());
            say!("{name}  {}", style("unknown").yellow());
            say!("No webhook has arrived for this key, or the order has expired or was erased.");
            if !similar.is_empty() {
                say!("Similar keys: {}.", similar.join(", "));
            }
            say!("`{list}` lists all keys.");
        }
        if let Some(state) = &inspected.state {
            say!(
                "{}",
                style(format_args!(
                    "last accepted {}, last settled {}, {} waiting, fencing token {}",
                    marked(state.tail),
                    marked(state.head),
                    state.waiting(),
                    state.token
                ))
                .dim()
            );
        } else if seen.timeline.is_known() {
            say!("The order's row was deleted; the deliveries below are still stored.");
        }
        print_waiting(&inspected.waiting, &inspected.again, now);
        if !inspected.again.is_empty() {
            let end = deployment.line("rewind", &[self.order.as_str(), "--end", "--why", "TEXT"]);
            say!("A rewind runs the applied deliveries again; `{end}` ends it early.");
        }
        let mut parked = Table::new(&["parked", "topic", "delivery", ">since", "error"]);
        for one in &inspected.parked {
            parked.row([
                marked(one.sequence),
                one.delivery().topic().to_owned(),
                one.delivery().delivery_id().to_string(),
                one.parked_at.map(|at| duration(now.since(at))).unwrap_or_default(),
                one.error.clone(),
            ]);
        }
        if !parked.is_empty() {
            let end = delivery::first_end(inspected.parked.iter().filter_map(|one| one.kept_until));
            say!("\n{}", format!("{parked}{}", end.unwrap_or_default()).trim_end());
        }
        print_settled(settled, &inspected.parked);
        if *has_older {
            say!("Older deliveries are not shown; --settled N shows more.");
        }
    }
}

fn print_waiting(waiting: &[InboxItem], again: &BTreeMap<Sequence, Settlement>, now: Timestamp) {
    let columns = ["waiting", "source", "topic", "delivery", ">since", "before"];
    let shown = columns.len() - usize::from(again.is_empty());
    let mut table = Table::new(&columns[..shown]);
    for item in waiting {
        match item {
            InboxItem::Void(sequence) => {
                table.row([marked(*sequence), String::new(), "tombstone: never written".into()])
            }
            InboxItem::Delivery(unpacked) => {
                let delivery = unpacked.head();
                let before = again.get(&delivery.sequence()).copied().map(Word::from).unwrap_or_default();
                table.row([
                    marked(delivery.sequence()),
                    delivery.source().to_string(),
                    delivery.topic().to_owned(),
                    delivery.delivery_id().to_string(),
                    duration(now.since(delivery.received_at())),
                    before.text.clone(),
                ]);
                table.style(5, before.style());
            }
        }
    }
    if !table.is_empty() {
        say!("\n{}", table.to_string().trim_end());
    }
}

fn print_settled(settled: &BTreeMap<Sequence, Past>, parked: &[Parked]) {
    let mut table = Table::new(&["settled", "outcome", "topic", "delivery", ">attempts", ">waited", ">token"]);
    for (sequence, past) in settled.iter().filter(|(sequence, _)| parked.iter().all(|one| one.sequence != **sequence)) {
        let of = |tell: fn(&Delivery) -> String| past.delivery.as_ref().map(tell).unwrap_or_default();
        let outcome = outcome(past);
        let started = past.receipt.as_ref().filter(|receipt| receipt.attempts > 0);
        table.row([
            marked(*sequence),
            outcome.text.clone(),
            of(|delivery| delivery.topic().to_owned()),
            of(|delivery| delivery.delivery_id().to_string()),
            started.map(Receipt::attempts_text).unwrap_or_default(),
            waited(past).map(duration).unwrap_or_default(),
            started.map(|receipt| receipt.token.to_string()).unwrap_or_default(),
        ]);
        table.style(1, outcome.style());
    }
    if !table.is_empty() {
        say!("\n{}", table.to_string().trim_end());
    }
}

fn as_json(entity: &EntityKey, seen: &OrderReport, deployment: &Deployment) -> serde_json::Value {
    let status = seen.status(deployment.env.now());
    let next = status.next.iter().map(|next| next.line(&deployment.option, entity));
    let OrderReport { timeline: Timeline { inspected, settled, .. }, delay, .. } = seen;
    let pause = delay.as_ref().filter(|delay| delay.is_pause());
    let state = inspected.state.as_ref().map(|state| {
        json!({
            "tail": state.tail, "head": state.head, "waiting": state.waiting(), "token": state.token,
            "held": state.held.as_ref().map(|held| json!({
                "kind": held.kind.as_str(), "expires_at": held.expires_at,
                "by": state.holder_info.as_ref().map(|info| info.as_str()),
            })),
            "attempts": state.attempts, "suspect": state.suspect, "one_by_one": state.one_by_one, "retry_at": state.retry_at, "last_error": state.last_error,
            "pending_since": state.pending_since, "on_hold": state.hold.since(), "blocked": state.blocked.map(|reason| reason.as_str()),
        })
    });
    let waiting = inspected.waiting.iter().map(|item| match item {
        InboxItem::Void(sequence) => json!({ "sequence": sequence, "void": true }),
        InboxItem::Delivery(unpacked) => {
            let mut value = delivery_json(unpacked.head());
            if let Some(before) = inspected.again.get(&unpacked.head().sequence()) {
                value["before"] = json!(before.as_str());
            }
            value
        }
    });
    let parked = inspected.parked.iter().map(|one| parked_json(&ParkedDelivery::from(one)));
    let settled = settled.iter().map(|(sequence, past)| {
        let mut value = past.delivery.as_ref().map_or_else(|| json!({ "sequence": sequence }), delivery_json);
        value["outcome"] = json!(past.settlement().map(Settlement::as_str));
        if let Some(first) = past.first {
            value["of"] = json!(first);
        }
        if let Some(receipt) = &past.receipt {
            value["attempts"] = json!(receipt.attempts);
            value["token"] = json!(receipt.token);
            value["started_at"] = json!(receipt.started_at());
            value["settled_at"] = json!(receipt.settled_at);
        }
        value
    });
    json!({
        "entity": entity, "kind": status.kind.as_str(), "causes": status.causes, "next": next.collect::<Vec<_>>(),
        "state": state, "waiting": waiting.collect::<Vec<_>>(),
        "parked": parked.collect::<Vec<_>>(), "settled": settled.collect::<Vec<_>>(),
        "paused_source": pause.map(|pause| &pause.source),
        "is_pause_seen": pause.map(|pause| pause.cause != DelayCause::Paused { looked_at_again: None }),
    })
}
