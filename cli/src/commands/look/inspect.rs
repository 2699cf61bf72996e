//! `serializer inspect`: one order, as its rows show it.

mod kept;

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Result;
use clap::Args;
use console::style;
use serde_json::json;
use serializer::{
    output::{self, Table, duration},
    say,
    view::{
        delivery,
        order_status::standing,
        timeline::{Timeline, outcome, waited},
    },
};
use webhook_serializer::{
    operator::Past,
    protocol::{
        delivery::{Delivery, Item},
        entity::{EntityKey, Sequence, SourceName},
        receipt::Settlement,
    },
    time::Timestamp,
};

use crate::commands::{
    print_json,
    setup::source::whereabouts,
    target::{Deployment, Target},
};
use kept::Kept;

/// Options of `serializer inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// Its key, such as shopify/order/450789469; `send` prints it
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// How many settled deliveries to show at most, the newest
    #[arg(long, default_value_t = 20, value_name = "N")]
    settled: usize,
    #[command(flatten)]
    target: Target,
}

/// The source of what is next, where that is paused. A help only: where the document
/// cannot be read, nothing is said of it.
async fn paused(timeline: &Timeline, deployment: &Deployment) -> Option<SourceName> {
    let Item::Delivery(next) = timeline.inspected.waiting.first()? else { return None };
    let source = next.head().source();
    let sources = whereabouts::configured(deployment, None).await.ok()?;
    sources.get(source.as_str()).is_some_and(|source| source.is_paused).then(|| source.clone())
}

/// All that is shown.
struct Seen {
    timeline: Timeline,
    /// What its handler keeps of it.
    kept: Option<Kept>,
    /// The source of what is next, where that is paused.
    paused: Option<SourceName>,
}

impl Inspect {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let seen = self.look(&deployment).await?;
        if self.json {
            print_json(&as_json(&self.order, &seen));
        } else {
            self.print(&seen, &deployment);
        }
        Ok(if seen.timeline.is_known() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn look(&self, deployment: &Deployment) -> Result<Seen> {
        let timeline = Timeline::read(&deployment.operator(), &self.order, self.settled).await?;
        let kept = match &deployment.orders_table {
            None => None,
            Some(table) => {
                // A diagnosis of the inbox is not to fail for what its handler keeps elsewhere.
                Kept::read(deployment.parts.store.table(), table, &self.order).await.unwrap_or_else(|error| {
                    output::complain(format_args!(
                        "what the handler `orders` keeps in {table} cannot be read: {error}"
                    ));
                    None
                })
            }
        };
        let paused = paused(&timeline, deployment).await;
        Ok(Seen { timeline, kept, paused })
    }

    fn print(&self, seen: &Seen, deployment: &Deployment) {
        let now = deployment.env.now();
        let Seen { timeline: Timeline { inspected, settled, has_older }, kept, paused } = seen;
        let name = style(self.order.as_str()).bold();
        match &inspected.state {
            None => {
                let raw = if deployment.is_local() { "" } else { " --raw" };
                let list = format!("serializer lease list{} --all{raw}", deployment.option);
                say!("{name}  {}", style("unknown").yellow());
                say!("Nothing has arrived for this key within the retention time, or it was erased.");
                say!("`{list}` lists the keys that there are.");
            }
            Some(state) => {
                let command = |command: &str| deployment.command(command, self.order.as_str());
                let standing = standing(state, inspected.waiting.first(), now, command);
                say!("{name}  {}", standing.word);
                standing.sentences.iter().for_each(|sentence| say!("{sentence}"));
                if let Some(source) = paused {
                    let resume = deployment.line("source resume", &[source.as_str()]);
                    say!("Its source {source} is paused: nothing of it is handled until `{resume}`.");
                }
                say!(
                    "{}",
                    style(format_args!(
                        "last arrived {}, last settled {}, {} waiting; token {}",
                        state.tail,
                        state.head,
                        state.waiting(),
                        state.token
                    ))
                    .dim()
                );
            }
        }
        if let Some(kept) = kept {
            say!("\n{kept}");
        }
        print_waiting(&inspected.waiting, &inspected.again, now);
        if !inspected.again.is_empty() {
            let end = deployment.line("rewind", &[self.order.as_str(), "--end", "--why", "TEXT"]);
            say!("Those that were settled before are run again where they were applied; `{end}` ends that early.");
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
            let redrive = deployment.command("redrive", self.order.as_str());
            let end = delivery::first_end(&inspected.parked).map(|end| format!("{end}\n")).unwrap_or_default();
            say!("\n{parked}{end}Put them back at the end with `{redrive}`, or one with its number behind that.");
        }
        print_settled(settled);
        if *has_older {
            say!("Older ones are not shown; --settled N shows more.");
        }
    }
}

fn print_waiting(waiting: &[Item], again: &BTreeMap<Sequence, Settlement>, now: Timestamp) {
    let columns = ["waiting", "source", "topic", "delivery", ">since", "before"];
    let shown = columns.len() - usize::from(again.is_empty());
    let mut table = Table::new(&columns[..shown]);
    for item in waiting {
        match item {
            Item::Void(sequence) => table.row([sequence.to_string(), String::new(), "void: never filled".into()]),
            Item::Delivery(unpacked) => {
                let delivery = unpacked.head();
                table.row([
                    delivery.sequence().to_string(),
                    delivery.source().to_string(),
                    delivery.topic().to_owned(),
                    delivery.delivery_id().to_string(),
                    duration(now.since(delivery.received_at())),
                    again.get(&delivery.sequence()).map(Settlement::to_string).unwrap_or_default(),
                ]);
            }
        }
    }
    if !table.is_empty() {
        say!("\n{}", table.to_string().trim_end());
    }
}

fn print_settled(settled: &BTreeMap<Sequence, Past>) {
    let mut table = Table::new(&["settled", "outcome", "topic", "delivery", ">attempts", ">waited", ">token"]);
    for (sequence, past) in settled {
        let of = |tell: fn(&Delivery) -> String| past.delivery.as_ref().map(tell).unwrap_or_default();
        let started = past.receipt.as_ref().filter(|receipt| receipt.attempts > 0);
        table.row([
            sequence.to_string(),
            outcome(past),
            of(|delivery| delivery.topic().to_owned()),
            of(|delivery| delivery.delivery_id().to_string()),
            started.map(|receipt| receipt.attempts.to_string()).unwrap_or_default(),
            waited(past).map(duration).unwrap_or_default(),
            started.map(|receipt| receipt.token.to_string()).unwrap_or_default(),
        ]);
    }
    if !table.is_empty() {
        say!("\n{}", table.to_string().trim_end());
    }
}

fn as_json(entity: &EntityKey, seen: &Seen) -> serde_json::Value {
    let Seen { timeline: Timeline { inspected, settled, .. }, kept, paused } = seen;
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
        Item::Void(sequence) => json!({ "sequence": sequence, "void": true }),
        Item::Delivery(unpacked) => {
            let mut value = delivery_json(unpacked.head());
            if let Some(before) = inspected.again.get(&unpacked.head().sequence()) {
                value["before"] = json!(before.as_str());
            }
            value
        }
    });
    let parked = inspected.parked.iter().map(|one| {
        let mut value = delivery_json(one.delivery());
        value["error"] = json!(one.error);
        value["parked_at"] = json!(one.parked_at);
        value["kept_until"] = json!(one.kept_until);
        value
    });
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
    let (order, row) = match kept {
        Some(kept @ Kept::Order(_)) => (Some(kept.as_json()), None),
        Some(kept @ Kept::Row(_)) => (None, Some(kept.as_json())),
        None => (None, None),
    };
    json!({
        "entity": entity, "state": state, "order": order, "row": row, "waiting": waiting.collect::<Vec<_>>(),
        "parked": parked.collect::<Vec<_>>(), "settled": settled.collect::<Vec<_>>(), "paused_source": paused,
    })
}

pub(in crate::commands) fn delivery_json(delivery: &Delivery) -> serde_json::Value {
    json!({
        "entity": delivery.entity(), "sequence": delivery.sequence(), "source": delivery.source(),
        "topic": delivery.topic(), "delivery_id": delivery.delivery_id(), "redrive": delivery.redrive(),
        "received_at": delivery.received_at(), "event_time": delivery.event_time(),
    })
}
