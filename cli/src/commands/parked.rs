//! `serializer parked` and `serializer redrive`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serializer::{
    output::{self, Table, duration},
    say,
};
use webhook_serializer::{
    engine::operator::{OperatorError, Parked},
    protocol::entity::{EntityKey, Sequence},
};

use super::{inspect::delivery_json, print_json, target::Target};

/// Options of `serializer parked`.
#[derive(Debug, Args)]
pub struct List {
    /// Only this order's
    #[arg(value_name = "ORDER")]
    order: Option<EntityKey>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl List {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let operator = deployment.operator();
        let parked = match &self.order {
            Some(order) => operator.parked(order).await?,
            None => operator.all_parked().await?,
        };
        let now = deployment.surroundings.now();
        let mut table = Table::new(&["order", ">sequence", "topic", "delivery", ">parked", "error"]);
        for one in &parked {
            if self.json {
                let mut value = delivery_json(one.delivery());
                value["error"] = one.error.clone().into();
                value["parked_at"] = serde_json::json!(one.parked_at);
                print_json(&value);
                continue;
            }
            table.row([
                one.delivery().entity().to_string(),
                one.sequence.to_string(),
                one.delivery().topic().to_owned(),
                one.delivery().delivery_id().to_string(),
                one.parked_at.map(|at| duration(now.since(at))).unwrap_or_default(),
                one.error.clone(),
            ]);
        }
        if !self.json {
            match table.is_empty() {
                true => say!("nothing is parked"),
                false => {
                    output::print(table);
                    say!("Put one back with `serializer redrive{} ORDER SEQUENCE`.", deployment.option);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Options of `serializer redrive`.
#[derive(Debug, Args)]
pub struct Redrive {
    /// Whose: the order's key
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// Only the one with this number; all of the order's by default
    sequence: Option<u64>,
    /// Into this order's inbox instead: for deliveries whose order could not be found, under SOURCE/unrouted
    #[arg(long, value_name = "ORDER")]
    to: Option<EntityKey>,
    #[command(flatten)]
    target: Target,
}

impl Redrive {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let operator = deployment.operator();
        let wanted = |one: &Parked| self.sequence.is_none_or(|sequence| one.sequence == Sequence(sequence));
        let parked: Vec<Parked> = operator.parked(&self.order).await?.into_iter().filter(wanted).collect();
        if parked.is_empty() {
            let what = match self.sequence {
                Some(sequence) => format!("of {} at {sequence}", self.order),
                None => format!("of {}", self.order),
            };
            bail!("nothing {what} is parked; `serializer parked{}` lists what is", deployment.option);
        }
        let mut undecided = false;
        for one in &parked {
            let what = format!("{} {}", self.order, one.sequence);
            match operator.redrive(one, self.to.as_ref()).await {
                Ok(appended) => {
                    let to = self.to.as_ref().unwrap_or(&self.order);
                    say!("{what} is back in the inbox of {to}, as {}", appended.sequence);
                }
                // None of them keeps the others from being put back.
                Err(error @ (OperatorError::DecidedOtherwise(_) | OperatorError::NotParked)) => {
                    say!("{what}: {error}")
                }
                Err(error @ OperatorError::Undecided) => {
                    say!("{what}: {error}");
                    undecided = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(if undecided { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
