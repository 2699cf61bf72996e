//! `serializer audit`: did order and once-ness hold, as the receipts tell it?

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use console::style;
use serde_json::json;
use webhook_serializer::protocol::{entity::EntityKey, history::History};

use super::{print_json, target::Target};

/// Options of `serializer audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// Only this one; all by default
    entity: Option<EntityKey>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Audit {
    pub async fn run(self) -> Result<ExitCode> {
        let operator = self.target.connect().await?.operator();
        let entities = match self.entity {
            Some(entity) => vec![entity],
            None => operator.entities().await?,
        };
        let (mut checked, mut mistakes) = (0, 0);
        for entity in &entities {
            let history = History::of(operator.receipts(entity).await?);
            checked += history.receipts;
            mistakes += history.mistakes.len();
            if self.json {
                let found: Vec<String> = history.mistakes.iter().map(ToString::to_string).collect();
                print_json(
                    &json!({ "entity": entity, "receipts": history.receipts, "inversions": history.inversions, "mistakes": found }),
                );
            } else {
                for mistake in &history.mistakes {
                    println!("{entity}: {}", style(mistake).red());
                }
            }
        }
        if !self.json {
            let verdict = format!("{checked} receipts of {} entities, {mistakes} mistakes", entities.len());
            println!("{}", if mistakes == 0 { style(verdict).green() } else { style(verdict).red() });
        }
        Ok(if mistakes == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
