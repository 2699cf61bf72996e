//! `serializer erase`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use webhook_serializer::{
    engine::operator::Erased,
    protocol::{
        entity::EntityKey,
        table::{Action, Condition, Key, Write},
    },
};

use super::target::Target;

/// Options of `serializer erase`.
#[derive(Debug, Args)]
pub struct Erase {
    /// Which
    entity: EntityKey,
    /// The table of the handler `orders`, to erase the order there too
    #[arg(long, env = "ORDERS_TABLE", value_name = "NAME")]
    orders_table: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Erase {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let erased = deployment.operator().erase(&self.entity).await?;
        match erased {
            Erased::Numbers { rows } => println!("{}: {rows} rows are gone", self.entity),
            Erased::Newer { rows } => println!(
                "{}: {rows} rows are gone; what came meanwhile stays, ask again when it is handled",
                self.entity
            ),
        }
        match self.orders_table {
            None => println!("no --orders-table was given: what it holds of the order stays"),
            Some(table) => {
                let key = Key::named(table.clone(), "order", self.entity.as_str());
                let delete = Write { key, condition: Condition::Always, action: Action::Delete };
                deployment.parts.store.table().write(&delete).await?;
                println!("{}: nothing is left in {table}", self.entity);
            }
        }
        Ok(match erased {
            Erased::Numbers { .. } => ExitCode::SUCCESS,
            Erased::Newer { .. } => ExitCode::FAILURE,
        })
    }
}
