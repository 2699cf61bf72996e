//! `serializer rewind`: runs applied deliveries of an order again, or ends a rewind early.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serializer::{
    operations::{self, OperationTarget, Verb},
    output::{self, counted},
    say,
    view::position::{Named, marked},
};
use webhook_serializer::{
    operator::{RewindOutcome, Rewinding},
    protocol::entity::{EntityKey, Sequence},
};

use super::run::{refused_text, run_one};
use crate::commands::{
    confirm::ask,
    reason::RequiredReason,
    target::{Deployment, Target},
};

#[derive(Debug, Args)]
#[command(after_help = "Runs the order's applied deliveries again, from SEQUENCE on, in order, before all waiting \
                  deliveries. Use it after you fixed a handler, or lost its data. Their effects happen again. Parked, \
                  superseded and repeated deliveries stay as they are. A running handler finishes first. A receiver \
                  sees another `webhook-id`; a handler finds the earlier run in `Delivery::run_before`.")]
pub struct Rewind {
    /// The order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// The first delivery to run again: its position, such as 7011, as `show` prints it, or its whole sequence
    #[arg(required_unless_present = "end", conflicts_with = "end")]
    sequence: Option<Named>,
    /// End a rewind early: deliveries that have not run again stay as they were
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    because: RequiredReason,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print the result as one JSON object; needs --yes
    #[arg(long, requires = "yes")]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Rewind {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let sequence = match self.sequence {
            Some(named) => Some(deployment.sequence(&self.order, named).await?),
            None => None,
        };
        let target = OperationTarget { order: self.order.clone(), sequence };
        let verb = if self.end { Verb::EndRewind } else { Verb::Rewind };
        if let Some(from) = target.sequence
            && !self.yes
            && !self.is_wanted(from, &deployment).await?
        {
            output::complain("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        let code = run_one(verb, &target, self.because.reason(), self.json, &deployment).await?;
        if !self.json
            && let Ok(inspected) = deployment.operator().inspect(&self.order).await
            && inspected.state.is_some_and(|state| state.hold.since().is_some())
        {
            say!("The order is on hold: `{}` lets it continue.", deployment.command("resume", self.order.as_str()));
        }
        Ok(code)
    }

    async fn is_wanted(&self, from: Sequence, deployment: &Deployment) -> Result<bool> {
        let order = &self.order;
        let rewound = deployment.operator().would_rewind(order, from).await;
        let rewound = match rewound {
            Ok(RewindOutcome::Done(rewinding)) => rewinding,
            Ok(other) => {
                bail!("{}", refused_text(&operations::rewound(Verb::Rewind, order, &other), order, deployment).await)
            }
            Err(error) => {
                let target = OperationTarget { order: order.clone(), sequence: Some(from) };
                bail!("{}", refused_text(&operations::not_leased(&target, error)?, order, deployment).await)
            }
        };
        let Rewinding { from, through, applied } = rewound;
        let others = through.0 - from.0 + 1 - applied as u64;
        say!(
            "{order} {} to {}: {} again, in order.",
            marked(from),
            marked(through),
            counted(applied as u64, "applied delivery runs", "applied deliveries run")
        );
        if others > 0 {
            let others = counted(others, "other sequence in this range does", "other sequences in this range do");
            say!("{others} not run again: parked, superseded, a tombstone or a repeat.");
        }
        say!("Waiting deliveries run afterwards.");
        ask("Run them again?")
    }
}
