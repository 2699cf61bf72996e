//! `serializer redrive`: appends parked deliveries again, to their own order or to another.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use webhook_serializer::{
    StoreError,
    engine::append::Appended,
    operator::{OperatorError, Parked, Redriven},
    protocol::entity::{EntityKey, Sequence},
};

use super::{
    Act, Effect, OperationTarget, Report, Verb, VerbArguments, VerbSubcommand,
    choice::{Chosen, DeliveryChoice},
};
use crate::{
    commands::reason::{OptionalReason, ReasonOptions},
    output::counted,
    say,
    view::position::marked,
};

pub static REDRIVE: Verb = Verb {
    name: "redrive",
    label: "Redrive",
    description: "Each parked delivery is appended at the end of its order, behind newer ones, and is handled again.",
    subcommand: Some(VerbSubcommand::new::<Redrive>(
        "Append parked deliveries again, at the end of their orders: one or many",
        "Each delivery goes to the end of its order's inbox, behind newer ones. An order's oldest parked \
         delivery is appended first. With --source, --error, --since or --all it lists them first, and \
         asks. If the destination is down, the command waits for a probe, and says what it found.\n\n\
         After Ctrl-C or a crash, run the same command again to continue. It appends no delivery twice, \
         unless one failed again in between and was parked again.",
    )),
    is_final: false,
    asks_for_one: false,
    waits_for_probe: true,
    write_units: 5,
    takes: |_| false,
    // A console's form has no field for the order of an unrouted delivery.
    is_offered: |page| page.parked > 0 && !page.order.is_unrouted(),
    act: Act::Parked {
        act: |operator, targets, report| {
            let list: Vec<_> =
                targets.iter().filter_map(|target| Some((target.order.clone(), target.sequence?))).collect();
            Box::pin(async move {
                let goes_on = |order: &EntityKey, sequence, redriven: &Redriven| {
                    let target = OperationTarget { order: order.clone(), sequence: Some(sequence) };
                    report(&target, redrive(order, sequence, redriven))
                };
                operator.redrive_all(&list, goes_on).await
            })
        },
        note: |selection, _| {
            let orders = counted(selection.overtaken as u64, "order", "orders");
            let note = format!("In {orders}, an earlier delivery stays parked, and these deliveries run before it.");
            (selection.overtaken > 0).then_some(note)
        },
    },
};

#[derive(Debug, Args)]
struct Redrive {
    /// Append to this order's inbox instead: for deliveries under SOURCE/unrouted, whose order could not be found
    #[arg(
        long, value_name = "ORDER", requires = "order",
        conflicts_with_all = ["source", "error", "since", "all", "limit", "json"]
    )]
    to: Option<EntityKey>,
    #[command(flatten)]
    chosen: Chosen<OptionalReason, DeliveryChoice>,
}

impl VerbArguments for Redrive {
    async fn run(self, verb: &'static Verb) -> Result<ExitCode> {
        match &self.to {
            Some(to) => self.redirect(to).await,
            None => self.chosen.run(verb).await,
        }
    }
}

impl Redrive {
    async fn redirect(&self, to: &EntityKey) -> Result<ExitCode> {
        let Chosen { because, choice: DeliveryChoice { order, sequence, many } } = &self.chosen;
        let deployment = many.target.connect().await?;
        let operator = deployment.operator().because(because.reason());
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

fn redrive(order: &EntityKey, sequence: Sequence, redriven: &Redriven) -> Report {
    let what = format!("{order} {}", marked(sequence));
    let (effect, sentence, became) = match redriven {
        Ok(Appended { sequence: at, .. }) => {
            (Effect::Done, format!("{what} was appended again, as {}", marked(*at)), json!({ "back_at": at }))
        }
        Err(OperatorError::Queue(_)) => (
            Effect::Done,
            format!("{what} was appended again, but no wake-up could be sent; the sweep tries again each minute"),
            json!("back, unannounced"),
        ),
        Err(error @ OperatorError::NotParked) => (Effect::Nothing, format!("{what}: {error}"), json!("not parked")),
        Err(error @ OperatorError::DecidedOtherwise(settlement)) => {
            (Effect::Nothing, format!("{what}: {error}"), json!(settlement.as_str()))
        }
        Err(error @ OperatorError::Undecided) => {
            (Effect::Refused, format!("{what}: {error}; try again in a minute"), json!("undecided"))
        }
        Err(error @ OperatorError::Behind) => (
            Effect::Refused,
            format!("{what} was not appended, because {error}: try again later"),
            json!("an earlier delivery is not settled"),
        ),
        Err(OperatorError::Store(StoreError::Corrupt(error))) => (
            Effect::Refused,
            format!("{what} stays parked: it cannot be read: {error}"),
            json!({ "unreadable": error.to_string() }),
        ),
        Err(error) => (Effect::Refused, format!("{what}: {error}"), json!(error.to_string())),
    };
    let done = effect.is_done().then_some("redrive");
    Report::new(effect, sentence, json!({ "entity": order, "sequence": sequence, "done": done, "became": became }))
}
