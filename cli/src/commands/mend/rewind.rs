//! `serializer rewind`: what was applied, run once more.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use serializer::{output, say};
use webhook_serializer::{
    leases::LeaseError,
    operator::{Operator, OperatorError, Rewinding, Rewound},
    protocol::entity::{EntityKey, Sequence},
};

use crate::commands::{
    confirm::ask,
    print_json,
    reason::Because,
    target::{Deployment, Target},
};

/// Options of `serializer rewind`.
#[derive(Debug, Args)]
#[command(
    after_help = "What was applied from there on is handled again, in its order and before anything that waits: after a \
                  handler was mended, or the data that it keeps was lost. Its effects come again. What was parked, left \
                  out or a repeat stays so. A handler that is at work ends first. A receiver sees another `webhook-id`; \
                  a handler is told by `Delivery::run_before`."
)]
pub struct Rewind {
    /// Its order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// The number of the first delivery that is to be run again, as `inspect` shows it
    #[arg(required_unless_present = "end", conflicts_with = "end")]
    sequence: Option<u64>,
    /// Run nothing more of it again: what has not been yet stays as it was
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    because: Because,
    /// Do it without asking
    #[arg(long, short = 'y')]
    yes: bool,
    /// One JSON object that says what was done; with --yes
    #[arg(long, requires = "yes")]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Rewind {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let operator = deployment.operator().because(self.because.reason());
        let done = match self.sequence.map(Sequence) {
            Some(from) => {
                if !self.yes && !self.is_wanted(&operator, from, &deployment).await? {
                    output::complain("nothing was changed");
                    return Ok(ExitCode::FAILURE);
                }
                operator.rewind(&self.order, from).await
            }
            None => operator.end_rewind(&self.order).await,
        };
        let rewinding = self.understood(done, &deployment)?;
        self.tell(rewinding, &deployment);
        if !self.json
            && let Ok(inspected) = operator.inspect(&self.order).await
            && inspected.state.is_some_and(|state| state.hold.since().is_some())
        {
            say!("It is on hold: `{}` lets it go on.", deployment.command("resume", self.order.as_str()));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn is_wanted(&self, operator: &Operator, from: Sequence, deployment: &Deployment) -> Result<bool> {
        let order = &self.order;
        let Rewinding { from, through, applied } =
            self.understood(operator.would_rewind(order, from).await, deployment)?;
        let others = through.0 - from.0 + 1 - applied as u64;
        say!("{order} {from} to {through}: {applied} that were applied are run again, in order.");
        if others > 0 {
            say!("{others} between them stay as they were settled: parked, left out, void or a repeat.");
        }
        say!("What waits, waits until then.");
        ask("Run them again?")
    }

    fn understood(&self, done: Result<Rewound, OperatorError>, deployment: &Deployment) -> Result<Rewinding> {
        let order = &self.order;
        let inspect = deployment.command("inspect", order.as_str());
        match done {
            Ok(Rewound::Done(rewinding)) => Ok(rewinding),
            Ok(Rewound::NotSettled(state)) => bail!(
                "{order} {} is not settled: the last that is, is {}; nothing was changed. `{inspect}` shows them",
                self.sequence.unwrap_or_default(),
                state.head
            ),
            Ok(Rewound::Expired(Some(first))) => bail!(
                "what stood there is not kept any more, or nobody remembers how it ended; nothing was changed. The first from \
                 which all is there is {first}"
            ),
            Ok(Rewound::Expired(None)) => bail!("nothing of {order} is kept any more; nothing was changed"),
            Ok(Rewound::Nothing) if self.end => bail!("nothing of {order} is to be run again; nothing was changed"),
            Ok(Rewound::Nothing) => {
                bail!("nothing was applied from there on; nothing was changed. `{inspect}` shows what became of them")
            }
            Err(OperatorError::Unknown) => {
                let list = deployment.line("entities", &[]);
                bail!("nothing is known of {order}; is that its key? `{list}` lists those that do not move")
            }
            Err(OperatorError::Lease(LeaseError::Contended { by, until })) => {
                bail!(deployment.contended(order, &by, until))
            }
            Err(OperatorError::Lease(LeaseError::Lost)) => {
                bail!("the lease was lost on the way: it may be done or not. `{inspect}` shows which")
            }
            Err(error) => Err(error.into()),
        }
    }

    fn tell(&self, rewinding: Rewinding, deployment: &Deployment) {
        let order = &self.order;
        let Rewinding { from, through, applied } = rewinding;
        if self.json {
            let done = if self.end { "rewind ended" } else { "rewind" };
            print_json(&json!({ "entity": order, "done": done, "from": from, "through": through, "applied": applied }));
        } else if self.end {
            say!("{order} {from} to {through} stay as they were settled before; what waits goes on");
        } else {
            let end = deployment.line("rewind", &[order.as_str(), "--end"]);
            let (deliveries, are) = if applied == 1 { ("delivery", "is") } else { ("deliveries", "are") };
            say!("{applied} {deliveries} of {order} {are} run again, from {from} to {through}, then what waits");
            say!("`{end} --why TEXT` ends that early");
        }
    }
}
