//! `serializer inspect`: one entity, as its rows show it.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use console::style;
use serde_json::json;
use serializer::output::{Table, duration};
use webhook_serializer::{
    engine::operator::Inspected,
    protocol::{delivery::Item, entity::EntityKey, state::EntityState},
    time::Timestamp,
};

use super::{print_json, target::Target};

/// Options of `serializer inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// Its key, such as shopify/order/450789469
    entity: EntityKey,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// How many receipts to show at most, the newest
    #[arg(long, default_value_t = 20, value_name = "N")]
    receipts: usize,
    #[command(flatten)]
    target: Target,
}

impl Inspect {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let inspected = deployment.operator().inspect(&self.entity).await?;
        if self.json {
            print_json(&as_json(&self.entity, &inspected));
        } else {
            self.print(&inspected, deployment.surroundings.now());
        }
        let known = inspected.state.is_some() || !inspected.receipts.is_empty() || !inspected.parked.is_empty();
        Ok(if known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print(&self, inspected: &Inspected, now: Timestamp) {
        match &inspected.state {
            None => println!("{}  no row: nothing was claimed lately, or ever", style(&self.entity).bold()),
            Some(state) => print_state(state, now),
        }
        let mut waiting = Table::new(&["waiting", "source", "topic", "delivery", ">since"]);
        for item in &inspected.waiting {
            match item {
                Item::Void(sequence) => waiting.row([sequence.to_string(), "void".into()]),
                Item::Delivery(unpacked) => {
                    let delivery = unpacked.head();
                    waiting.row([
                        delivery.sequence().to_string(),
                        delivery.source().to_string(),
                        delivery.topic().to_owned(),
                        delivery.delivery_id().to_string(),
                        duration(now.since(delivery.received_at())),
                    ]);
                }
            }
        }
        if !waiting.is_empty() {
            println!("\n{waiting}");
        }
        let mut parked = Table::new(&["parked", "topic", "delivery", ">since", "error"]);
        for one in &inspected.parked {
            parked.row([
                one.sequence.to_string(),
                one.delivery().topic().to_owned(),
                one.delivery().delivery_id().to_string(),
                one.parked_at.map(|at| duration(now.since(at))).unwrap_or_default(),
                one.error.clone(),
            ]);
        }
        if !parked.is_empty() {
            println!("\n{parked}put back with: serializer redrive {} [SEQUENCE]", self.entity);
        }
        let mut settled = Table::new(&["settled", "outcome", "topic", "delivery", ">attempts", ">waited", ">token"]);
        let skipped = inspected.receipts.len().saturating_sub(self.receipts);
        for receipt in inspected.receipts.iter().skip(skipped) {
            let waited = receipt.started_at.zip(receipt.received_at);
            settled.row([
                receipt.sequence.to_string(),
                receipt.settlement.to_string(),
                receipt.topic.clone().unwrap_or_default(),
                receipt.delivery_id.clone().unwrap_or_default(),
                receipt.attempts.to_string(),
                waited.map(|(started, received)| duration(started.since(received))).unwrap_or_default(),
                receipt.token.to_string(),
            ]);
        }
        if !settled.is_empty() {
            println!("\n{settled}");
        }
        if skipped > 0 {
            println!("{skipped} older ones not shown; --receipts N shows more");
        }
    }
}

fn print_state(state: &EntityState, now: Timestamp) {
    let standing = match (&state.held, state.blocked) {
        (_, Some(reason)) => style(format!("blocked ({reason})")).red(),
        (Some(held), _) if held.runs(now) => {
            let by = state.holder_info.as_ref().map(|info| info.as_str()).unwrap_or_default();
            style(format!("held by {by} ({}), {} left", held.kind.as_str(), duration(held.expires_at.since(now))))
                .yellow()
        }
        (Some(_), _) => style("held by one that vanished; to be taken over".to_owned()).yellow(),
        (None, _) if state.is_empty() => style("idle".to_owned()).green(),
        (None, _) => style("waiting for a worker".to_owned()).yellow(),
    };
    println!("{}  {standing}", style(&state.entity).bold());
    println!("tail {}  head {}  waiting {}  token {}", state.tail, state.head, state.waiting(), state.token);
    if state.attempts > 0 {
        let error = state.last_error.as_deref().unwrap_or_default();
        let again = state.retry_at.map(|at| format!(", again in {}", duration(at.since(now)))).unwrap_or_default();
        println!("{} failed {} times{again}: {error}", state.next(), state.attempts);
    }
}

fn as_json(entity: &EntityKey, inspected: &Inspected) -> serde_json::Value {
    let state = inspected.state.as_ref().map(|state| {
        json!({
            "tail": state.tail, "head": state.head, "waiting": state.waiting(), "token": state.token,
            "held": state.held.as_ref().map(|held| json!({
                "kind": held.kind.as_str(), "expires_at": held.expires_at,
                "by": state.holder_info.as_ref().map(|info| info.as_str()),
            })),
            "attempts": state.attempts, "retry_at": state.retry_at, "last_error": state.last_error,
            "pending_since": state.pending_since, "blocked": state.blocked.map(|reason| reason.as_str()),
        })
    });
    let waiting = inspected.waiting.iter().map(|item| match item {
        Item::Void(sequence) => json!({ "sequence": sequence, "void": true }),
        Item::Delivery(unpacked) => delivery_json(unpacked.head()),
    });
    let parked = inspected.parked.iter().map(|one| {
        let mut value = delivery_json(one.delivery());
        value["error"] = json!(one.error);
        value["parked_at"] = json!(one.parked_at);
        value
    });
    let receipts = inspected.receipts.iter().map(|receipt| {
        json!({
            "sequence": receipt.sequence, "outcome": receipt.settlement.as_str(), "topic": receipt.topic,
            "source": receipt.source, "delivery_id": receipt.delivery_id, "attempts": receipt.attempts,
            "token": receipt.token, "received_at": receipt.received_at, "started_at": receipt.started_at,
            "settled_at": receipt.settled_at,
        })
    });
    json!({
        "entity": entity, "state": state, "waiting": waiting.collect::<Vec<_>>(),
        "parked": parked.collect::<Vec<_>>(), "receipts": receipts.collect::<Vec<_>>(),
    })
}

pub(super) fn delivery_json(delivery: &webhook_serializer::protocol::delivery::Delivery) -> serde_json::Value {
    json!({
        "entity": delivery.entity(), "sequence": delivery.sequence(), "source": delivery.source(),
        "topic": delivery.topic(), "delivery_id": delivery.delivery_id(), "redrive": delivery.redrive(),
        "received_at": delivery.received_at(), "event_time": delivery.event_time(),
    })
}
