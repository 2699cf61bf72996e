//! `serializer parked`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::{
    output::{self, Table, duration},
    say,
    view::delivery,
};
use webhook_serializer::protocol::entity::EntityKey;

use crate::commands::{look::inspect::delivery_json, print_json, target::Target};

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
        let now = deployment.env.now();
        let mut table = Table::new(&["order", ">sequence", "topic", "delivery", ">parked", "error"]);
        for one in &parked {
            if self.json {
                let mut value = delivery_json(one.delivery());
                value["error"] = one.error.clone().into();
                value["parked_at"] = serde_json::json!(one.parked_at);
                value["kept_until"] = serde_json::json!(one.kept_until);
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
                    if let Some(end) = delivery::first_end(&parked) {
                        say!("{end}");
                    }
                    say!("Put one back with `serializer redrive{} ORDER SEQUENCE`.", deployment.option);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
