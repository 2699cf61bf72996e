//! `serializer hold`: puts an order on hold, so that no handler starts.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::operations::{OperationTarget, Verb};
use webhook_serializer::protocol::entity::EntityKey;

use super::run::run_one;
use crate::commands::{reason::RequiredReason, target::Target};

#[derive(Debug, Args)]
#[command(
    after_help = "A running handler finishes; then no other handler of the order starts. Webhooks are still accepted, \
                  and wait in order until `resume`. Leases are still granted, so that a script may work on the order."
)]
pub struct Hold {
    /// The order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    #[command(flatten)]
    because: RequiredReason,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Hold {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let order = OperationTarget { order: self.order, sequence: None };
        run_one(Verb::Hold, &order, self.because.reason(), self.json, &deployment).await
    }
}
