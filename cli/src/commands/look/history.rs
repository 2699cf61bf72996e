//! `serializer history`: what people did to an order.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use serializer::{
    output::{self, Table, duration},
    say,
};
use webhook_serializer::protocol::entity::EntityKey;

use crate::commands::{print_json, target::Target};

/// Options of `serializer history`.
#[derive(Debug, Args)]
#[command(
    after_help = "Kept for 400 days, or until the order is erased. What is done is written down before, and how it ended \
                  afterwards: where an end is missing, whoever did it was interrupted, and it may be done. `lease \
                  release` leaves its record on the lease, until the next one is granted."
)]
pub struct History {
    /// Its key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl History {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let acts = deployment.operator().acts(&self.order).await?;
        let now = deployment.env.now();
        let mut table = Table::new(&[">ago", "what", ">delivery", "by", "why", "how it ended"]);
        for act in &acts {
            let (by, why) = (&act.reason.by, &act.reason.why);
            if self.json {
                print_json(&json!({
                    "entity": act.entity, "at": act.at(), "what": act.verb, "sequence": act.sequence,
                    "by": by, "why": why, "ended": act.ended,
                }));
                continue;
            }
            table.row([
                act.at().map(|at| duration(now.since(at))).unwrap_or_default(),
                act.verb.clone(),
                act.sequence.map(|sequence| sequence.to_string()).unwrap_or_default(),
                by.clone(),
                why.clone(),
                act.ended.clone().unwrap_or_else(|| "not known: it was interrupted".into()),
            ]);
        }
        if self.json {
            return Ok(ExitCode::SUCCESS);
        }
        if table.is_empty() {
            say!("nobody has held, skipped, retried, put back or discarded anything of {}", self.order);
        } else {
            output::print(table);
        }
        Ok(ExitCode::SUCCESS)
    }
}
