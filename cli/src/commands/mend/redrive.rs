//! `serializer redrive`: appends parked deliveries again, to their own order or to another.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serializer::{operations::Verb, say, view::position::marked};
use webhook_serializer::{
    operator::{OperatorError, Parked},
    protocol::entity::EntityKey,
};

use super::{choice::DeliveryChoice, run::OperationRequest};
use crate::commands::reason::OptionalReason;

#[derive(Debug, Args)]
#[command(
    after_help = "Each delivery goes to the end of its order's inbox, behind newer ones. An order's oldest parked \
                  delivery is appended first. With --source, --error, --since or --all it lists them first, and \
                  asks.\n\n\
                  After Ctrl-C or a crash, run the same command again to continue. It appends no delivery twice, \
                  unless one failed again in between and was parked again."
)]
pub struct Redrive {
    /// Append to this order's inbox instead: for deliveries under SOURCE/unrouted, whose order could not be found
    #[arg(
        long, value_name = "ORDER", requires = "order",
        conflicts_with_all = ["source", "error", "since", "all", "limit", "json"]
    )]
    to: Option<EntityKey>,
    #[command(flatten)]
    because: OptionalReason,
    #[command(flatten)]
    deliveries: DeliveryChoice,
}

impl Redrive {
    pub async fn run(self) -> Result<ExitCode> {
        let DeliveryChoice { order, sequence, many } = &self.deliveries;
        let reason = self.because.reason();
        match &self.to {
            Some(to) => self.redirect(to).await,
            None => {
                OperationRequest { verb: Verb::Redrive, order: order.as_ref(), sequence: *sequence, many, reason }
                    .run()
                    .await
            }
        }
    }

    async fn redirect(&self, to: &EntityKey) -> Result<ExitCode> {
        let DeliveryChoice { order, sequence, many } = &self.deliveries;
        let deployment = many.target.connect().await?;
        let operator = deployment.operator().because(self.because.reason());
        let order = order.as_ref().context("with --to, give the ORDER under which the delivery is parked")?;
        let is_wanted = |one: &Parked| sequence.is_none_or(|named| named.fits(one.sequence));
        let parked: Vec<Parked> = operator.parked(order).await?.into_iter().filter(is_wanted).collect();
        if parked.is_empty() {
            let show = deployment.command("show", order.as_str());
            bail!("no such delivery of {order} is parked; nothing was changed. `{show}` lists the parked deliveries");
        }
        let mut code = ExitCode::SUCCESS;
        for one in &parked {
            let what = format!("{order} {}", marked(one.sequence));
            if many.dry_run {
                say!("{what} would be appended to the inbox of {to}");
                continue;
            }
            match operator.redrive(one, Some(to)).await {
                Ok(appended) => say!("{what} is in the inbox of {to}, as {}", marked(appended.sequence)),
                // A refused delivery does not stop the others.
                Err(error @ (OperatorError::DecidedOtherwise(_) | OperatorError::NotParked)) => say!("{what}: {error}"),
                Err(error @ OperatorError::Undecided) => {
                    say!("{what}: {error}; try again in a minute");
                    code = ExitCode::FAILURE;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(code)
    }
}
