//! `serializer skip`: the delivery that is in the way, set aside by a person.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use serializer::{output, say};
use webhook_serializer::{
    leases::LeaseError,
    operator::{OperatorError, Skipped},
    protocol::{
        entity::{EntityKey, Sequence},
        receipt::Settlement,
    },
};

use crate::commands::{
    confirm::ask,
    print_json,
    reason::Because,
    target::{Deployment, Target},
};

/// Options of `serializer skip`.
#[derive(Debug, Args)]
#[command(
    after_help = "It is parked, so that `redrive` puts it back at the end and `discard` removes it. What waits behind it \
                  goes on in order, blocked no longer. A handler that is at work on it ends first: where that applies \
                  it, nothing is skipped.\n\n\
                  With deliver = \"latest\", the error that is shown may be of a newer delivery, which the handler got for \
                  all that wait. That one is not skipped. Where its attempts are used up, each is tried by itself; then the \
                  error is of the next one."
)]
pub struct Skip {
    /// Its order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// Its number, as `inspect` shows it: it must be the next to be handled
    sequence: u64,
    #[command(flatten)]
    because: Because,
    /// Skip it without asking
    #[arg(long, short = 'y')]
    yes: bool,
    /// One JSON object that says what was done; with --yes
    #[arg(long, requires = "yes")]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Skip {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let operator = deployment.operator().because(self.because.reason());
        let (order, sequence) = (&self.order, Sequence(self.sequence));
        if !self.yes {
            let single = operator.single(order, sequence).await?;
            let Some(state) = single.state else { bail!(unknown(order, &deployment)) };
            if state.next() != sequence || state.is_empty() {
                bail!(self.not_in_front(&deployment, state.head, state.tail));
            }
            match single.content.delivery() {
                Some(delivery) => {
                    say!(
                        "{order} {sequence}: {} {}",
                        delivery.topic(),
                        output::one_line(delivery.delivery_id().as_str())
                    );
                    if let Some(error) = &state.last_error {
                        let attempts = if state.attempts == 1 { "attempt" } else { "attempts" };
                        let whose =
                            if state.has_attempts_of_latest() { "the latest, which stands for it, " } else { "" };
                        say!("{whose}failed after {} {attempts}: {error}", state.attempts);
                    }
                    say!("It is parked: `redrive` puts it back at the end.");
                }
                None => say!("{order} {sequence}: nothing stands there; its place is given up."),
            }
            match (state.waiting() - 1, state.hold.since()) {
                (0, _) => say!("Nothing waits behind it."),
                (behind, None) => say!("Behind it, what waits goes on in order: {behind}."),
                (behind, Some(_)) => say!("Behind it wait {behind}, on hold until they are resumed."),
            }
            if !ask("Skip it?")? {
                output::complain("nothing was skipped");
                return Ok(ExitCode::FAILURE);
            }
        }
        let skipped = match operator.skip(order, sequence).await {
            Ok(skipped) => skipped,
            Err(OperatorError::Unknown) => bail!(unknown(order, &deployment)),
            Err(OperatorError::Lease(LeaseError::Contended { by, until })) => {
                bail!(deployment.contended(order, &by, until))
            }
            Err(error) => return Err(error.into()),
        };
        match skipped {
            Skipped::As(settlement) => self.tell(settlement, &deployment),
            Skipped::NotInFront(state) => bail!(self.not_in_front(&deployment, state.head, state.tail)),
            Skipped::NotThereYet => bail!(
                "{order} {sequence} was claimed and nothing stands there yet; nothing was skipped. A worker gives the \
                 place up within seconds if nothing comes"
            ),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn tell(&self, settlement: Settlement, deployment: &Deployment) {
        let (order, sequence) = (&self.order, self.sequence);
        if self.json {
            print_json(
                &json!({ "entity": order, "sequence": sequence, "done": "skip", "settled": settlement.as_str() }),
            );
            return;
        }
        match settlement {
            Settlement::Parked => {
                let redrive = deployment.line("redrive", &[order.as_str(), &sequence.to_string()]);
                say!("{order} {sequence} is parked, and in nobody's way; `{redrive}` puts it back at the end");
            }
            Settlement::Void => say!("{order} {sequence} is given up: nothing stood there"),
            other => say!("{order} {sequence} was a {other} of one settled before, and is settled so"),
        }
    }

    fn not_in_front(&self, deployment: &Deployment, head: Sequence, tail: Sequence) -> String {
        let Self { order, sequence, .. } = self;
        let inspect = deployment.command("inspect", order.as_str());
        let why = match Sequence(*sequence) {
            settled if settled <= head => "it is settled".to_owned(),
            waits if waits <= tail => format!("{} is in front of it", head.next()),
            _ => "it never arrived".to_owned(),
        };
        format!(
            "{order} {sequence} is not the next to be handled: {why}; nothing was skipped. `{inspect}` shows what is"
        )
    }
}

fn unknown(order: &EntityKey, deployment: &Deployment) -> String {
    let list = deployment.line("entities", &[]);
    format!("nothing is known of {order}; is that its key? `{list}` lists those that do not move")
}
