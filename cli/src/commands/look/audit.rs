//! `serializer audit`: checks by the receipts that deliveries were settled in order, and none was applied twice.

use std::process::ExitCode;

use anyhow::{Error, Result, bail};
use clap::Args;
use console::style;
use futures_util::{StreamExt, stream};
use serde_json::json;
use serializer::say;
use webhook_serializer::{
    engine::store::StoreError,
    operator::OperatorError,
    protocol::{entity::EntityKey, format::CorruptRow, history::History},
};

use crate::commands::{
    print_json, similar, survey,
    target::{Deployment, Target},
};

/// The number of orders that are read at the same time.
const AT_ONCE: usize = 16;

#[derive(Debug, Args)]
pub struct Audit {
    /// Check only this order; all by default
    #[arg(value_name = "ORDER")]
    order: Option<EntityKey>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Audit {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let operator = deployment.operator();
        let entities = match self.order {
            Some(order) if !operator.is_known(&order).await? => {
                bail!("{}", similar::unknown(&order, &deployment).await)
            }
            Some(order) => vec![order],
            // Jobs have rows of the same form, without deliveries.
            None => operator.entities().await?.into_iter().filter(|entity| !entity.is_kept_forever()).collect(),
        };
        let mut orders = 0;
        let mut checked = 0;
        let mut mistakes = 0;
        let bar = survey::bar(entities.len() as u64, "audit");
        let read = async |entity: &EntityKey| operator.receipts(entity).await.map(History::of);
        let mut histories = stream::iter(&entities).map(async |entity| (entity, read(entity).await)).buffered(AT_ONCE);
        while let Some((entity, history)) = histories.next().await {
            let history = history.map_err(|error| unreadable(entity, error, &deployment))?;
            // A key that was only leased has no receipts and is not counted as an order.
            orders += usize::from(history.receipts > 0);
            checked += history.receipts;
            mistakes += history.mistakes.len();
            bar.inc(1);
            bar.suspend(|| {
                if self.json {
                    let found: Vec<String> = history.mistakes.iter().map(ToString::to_string).collect();
                    print_json(&json!({ "entity": entity, "receipts": history.receipts, "mistakes": found }));
                } else {
                    for mistake in &history.mistakes {
                        say!("{entity}: {}", style(mistake).red());
                    }
                }
            });
        }
        bar.finish_and_clear();
        if !self.json {
            let verdict = verdict(orders, checked, mistakes);
            say!("{}", if mistakes == 0 { style(verdict).green() } else { style(verdict).red() });
        }
        Ok(if mistakes == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Names the order in an error, and the next command if another version wrote the row.
fn unreadable(order: &EntityKey, error: OperatorError, deployment: &Deployment) -> Error {
    let is_foreign =
        matches!(error, OperatorError::Store(StoreError::Corrupt(CorruptRow::Newer(_) | CorruptRow::Older(_))));
    let doctor = deployment.line("doctor", &[]);
    let next = if is_foreign { format!("; `{doctor}` counts the rows of other versions") } else { String::new() };
    Error::new(error).context(format!("{order} cannot be read, so the audit ends{next}"))
}

fn verdict(orders: usize, receipts: usize, mistakes: usize) -> String {
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let looked = format!("{} of {}", counted(receipts, "receipt"), counted(orders, "order"));
    match mistakes {
        0 => format!("{looked}: settled in the order of arrival, one at a time, none applied twice"),
        _ => format!("{looked}: {}", counted(mistakes, "mistake")),
    }
}
