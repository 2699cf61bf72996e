//! `serializer discard`: a parked delivery removed for good.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use serializer::{
    output::{self, duration},
    say,
};
use webhook_serializer::{
    operator::OperatorError,
    protocol::entity::{EntityKey, Sequence},
};

use crate::commands::{
    confirm::ask,
    look::inspect::delivery_json,
    print_json,
    reason::Because,
    target::{Deployment, Target},
};

/// Options of `serializer discard`.
#[derive(Debug, Args)]
#[command(
    after_help = "Only what is parked can be discarded: what waits has its turn first, and `erase` forgets an order as \
                  a whole."
)]
pub struct Discard {
    /// Its order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// Its number, as `parked` shows it
    sequence: u64,
    #[command(flatten)]
    because: Because,
    /// Remove it without asking
    #[arg(long, short = 'y')]
    yes: bool,
    /// One JSON object that says what was done; with --yes
    #[arg(long, requires = "yes")]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Discard {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let reason = self.because.reason();
        let operator = deployment.operator().because(reason.clone());
        let (order, sequence) = (&self.order, Sequence(self.sequence));
        let Some(parked) = operator.parked_at(order, sequence).await? else {
            return self.is_not_parked(&deployment).await;
        };
        let delivery = parked.delivery();
        if !self.json {
            let now = deployment.env.now();
            let ago =
                parked.parked_at.map(|at| format!(", parked {} ago", duration(now.since(at)))).unwrap_or_default();
            say!(
                "{order} {sequence}: {} {}{ago}: {}",
                delivery.topic(),
                output::one_line(delivery.delivery_id().as_str()),
                parked.error
            );
            say!(
                "It is removed for good, body and all: it is never handled, and cannot be put back. Its order is not \
                 touched. The same webhook sent again within {} days counts as a repeat.",
                deployment.retention.as_secs() / 86_400
            );
        }
        if !self.yes && !ask("Remove it?")? {
            output::complain("nothing was removed");
            return Ok(ExitCode::FAILURE);
        }
        match operator.discard(&parked).await {
            Ok(()) => {}
            Err(OperatorError::Undecided) => bail!(
                "{order} {sequence} is still being decided: the worker that set it aside has not settled it, or died \
                 in between. Nothing was removed; try again in a minute"
            ),
            Err(OperatorError::DecidedOtherwise(settlement)) => bail!(
                "{order} {sequence} was {settlement} after all: what was parked was left over by a worker that lost \
                 its lease. It is removed"
            ),
            Err(error) => return Err(error.into()),
        }
        if self.json {
            let mut value = delivery_json(delivery);
            value["done"] = json!("discarded");
            value["error"] = json!(parked.error);
            value["by"] = json!(reason.by);
            value["why"] = json!(reason.why);
            print_json(&value);
        } else {
            say!("{order} {sequence} is discarded, by {}: {}", reason.by, reason.why);
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn is_not_parked(&self, deployment: &Deployment) -> Result<ExitCode> {
        let (order, sequence) = (&self.order, Sequence(self.sequence));
        let state = deployment.operator().single(order, sequence).await?.state;
        let what = match state {
            Some(state) if state.head < sequence && sequence <= state.tail => "it waits for its turn",
            Some(state) if sequence <= state.head => "it was settled, put back or discarded",
            _ => "nothing is known of it",
        };
        bail!(
            "{order} {sequence} is not parked: {what}; nothing was removed. `{}` lists what is parked",
            deployment.line("parked", &[order.as_str()])
        );
    }
}
