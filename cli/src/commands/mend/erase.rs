//! `serializer erase`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serializer::say;
use webhook_serializer::{
    operator::{Erased, OperatorError},
    protocol::entity::EntityKey,
};

use crate::commands::target::Target;

#[derive(Debug, Args)]
#[command(
    after_help = "It refuses while deliveries wait or are being handled. Deliveries that arrive during the erase stay: run it again."
)]
pub struct Erase {
    /// The order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    #[command(flatten)]
    target: Target,
}

impl Erase {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let order = &self.order;
        let erased = match deployment.operator().erase(order).await {
            Err(OperatorError::InUse) => bail!(
                "deliveries of {order} wait, or somebody has its lease; nothing was erased. `{}` shows which",
                deployment.command("show", order.as_str())
            ),
            erased => erased?,
        };
        match erased {
            Erased::Numbers { rows } => say!("{order}: {rows} rows are gone"),
            Erased::Newer { rows } => {
                say!(
                    "{order}: {rows} rows are gone; deliveries that arrived meanwhile stay. Run it again when they are handled"
                );
            }
        }
        Ok(match erased {
            Erased::Numbers { .. } => ExitCode::SUCCESS,
            Erased::Newer { .. } => ExitCode::FAILURE,
        })
    }
}
