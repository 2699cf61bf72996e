//! `serializer unblock`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::say;
use webhook_serializer::protocol::{entity::EntityKey, inbox::Unblocked};

use crate::commands::{reason::MaybeBecause, target::Target};

/// Options of `serializer unblock`.
#[derive(Debug, Args)]
pub struct Unblock {
    /// Its key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    #[command(flatten)]
    because: MaybeBecause,
    #[command(flatten)]
    target: Target,
}

impl Unblock {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let order = &self.order;
        match deployment.operator().because(self.because.reason()).unblock(order).await? {
            Unblocked::Unblocked(state) => {
                say!("{order} goes on, from {}: {} waiting", state.next(), state.waiting());
                say!("`{}` shows how it does", deployment.command("inspect", order.as_str()));
                if state.hold.since().is_some() {
                    say!("it is on hold, too, until `{}`", deployment.command("resume", order.as_str()));
                }
                Ok(ExitCode::SUCCESS)
            }
            Unblocked::NotBlocked(Some(state)) => {
                say!("{order} was not blocked; a worker was woken all the same: {} waiting", state.waiting());
                if state.hold.since().is_some() {
                    say!("it is on hold until `{}`", deployment.command("resume", order.as_str()));
                }
                Ok(ExitCode::SUCCESS)
            }
            Unblocked::NotBlocked(None) => {
                say!("nothing is known of {order}; is that its key? `serializer send` and the logs show keys");
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
