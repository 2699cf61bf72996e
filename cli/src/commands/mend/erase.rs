//! `serializer erase`: removes all stored data of an order.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serializer::{
    output::{self, counted},
    say,
};
use webhook_serializer::{
    operator::{Erased, OperatorError},
    protocol::entity::EntityKey,
};

use crate::commands::{confirm::ask, similar, target::Target};

#[derive(Debug, Args)]
#[command(
    after_help = "The command refuses while deliveries wait, somebody has leased the order, or it is on hold. Deliveries \
                  that arrive during the erase stay: run it again."
)]
pub struct Erase {
    /// The order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    target: Target,
}

impl Erase {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let order = &self.order;
        let question = format!("All stored data of {order} will be removed for good, with the bodies. Erase?");
        if !self.yes && !ask(&question).context("nothing has been changed yet")? {
            output::complain("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        let erased = match deployment.operator().erase(order).await {
            Err(OperatorError::InUse) => bail!(
                "{order} is on hold, leased, or has waiting deliveries; nothing was erased. `{}` shows which",
                deployment.command("show", order.as_str())
            ),
            Err(OperatorError::Unknown) => bail!("{}", similar::unknown(order, &deployment).await),
            erased => erased?,
        };
        match erased {
            Erased::Numbers { rows: 0 } => say!("{order}: nothing was left to erase"),
            Erased::Numbers { rows } => say!("{order}: {} erased", counted(rows, "row was", "rows were")),
            Erased::Newer { rows } => {
                say!(
                    "{order}: {} erased. Deliveries arrived meanwhile and stay: run this again when they \
                     are handled",
                    counted(rows, "row was", "rows were")
                );
            }
        }
        Ok(match erased {
            Erased::Numbers { .. } => ExitCode::SUCCESS,
            Erased::Newer { .. } => ExitCode::FAILURE,
        })
    }
}
