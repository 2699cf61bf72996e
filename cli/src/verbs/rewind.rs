//! `serializer rewind`: runs applied deliveries of an order again, or ends a rewind early.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use webhook_serializer::{
    operator::{RewindOutcome, Rewinding},
    protocol::entity::{EntityKey, Sequence},
};

use super::{
    Act, Effect, OperationTarget, Report, Verb, VerbArguments, VerbSubcommand,
    run::{conclude, refused_text},
};
use crate::{
    commands::{
        confirm::ask,
        reason::{ReasonOptions, RequiredReason},
        target::{Deployment, Target},
    },
    output::{self, counted},
    say,
    view::position::{Named, marked},
};

pub static REWIND: Verb = Verb {
    name: "rewind",
    label: "Rewind to here",
    description: "Applied deliveries run again from here on, in order, before all waiting deliveries. Their effects happen again.",
    subcommand: Some(VerbSubcommand::new::<RewindArguments>(
        "Run applied deliveries again, in order, before all waiting deliveries",
        "Runs the order's applied deliveries again, from SEQUENCE on, in order, before all waiting \
         deliveries. Use it after you fixed a handler, or lost its data. Their effects happen again. Parked, \
         superseded and repeated deliveries do not run again, and keep their outcome. A running handler \
         finishes first. A receiver sees another `webhook-id`; a handler finds the earlier run in `Delivery::run_before`.",
    )),
    is_final: false,
    asks_for_one: false,
    waits_for_probe: false,
    write_units: 3,
    takes: |_| false,
    is_offered: |page| {
        let is_settled = |sequence| page.state.is_some_and(|state| sequence <= state.head);
        page.parked == 0 && page.sequence.is_some_and(is_settled)
    },
    act: Act::Delivery(|operator, order, from| {
        Box::pin(async move {
            match operator.rewind(order, from).await {
                Err(error) => Report::not_leased(order, Some(from), error),
                rewound => Ok(begun(order, &rewound?)),
            }
        })
    }),
};

pub static END_REWIND: Verb = Verb {
    name: "end-rewind",
    label: "End the rewind",
    description: "Deliveries that have not run again stay as they were settled; waiting deliveries continue.",
    subcommand: None,
    is_final: false,
    asks_for_one: false,
    waits_for_probe: false,
    write_units: 3,
    takes: |_| false,
    is_offered: |page| page.is_order() && page.is_rewinding,
    act: Act::Order(|operator, order| {
        Box::pin(async move {
            match operator.end_rewind(order).await {
                Err(error) => Report::not_leased(order, None, error),
                rewound => Ok(ended(order, &rewound?)),
            }
        })
    }),
};

#[derive(Debug, Args)]
struct RewindArguments {
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

impl VerbArguments for RewindArguments {
    async fn run(self, verb: &'static Verb) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let sequence = match self.sequence {
            Some(named) => Some(deployment.sequence(&self.order, named).await?),
            None => None,
        };
        let target = OperationTarget { order: self.order.clone(), sequence };
        let verb = if self.end { &END_REWIND } else { verb };
        if let Some(from) = target.sequence
            && !self.yes
            && !self.is_wanted(from, &deployment).await?
        {
            output::complain("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        let reason = self.because.reason();
        let report = verb.run_one(&deployment.operator().because(reason.clone()), &target).await?;
        let code = conclude(&report, &self.order, &reason, self.json, &deployment).await?;
        if !self.json
            && let Ok(inspected) = deployment.operator().inspect(&self.order).await
            && inspected.state.is_some_and(|state| state.hold.since().is_some())
        {
            say!("The order is on hold: `{}` lets it continue.", deployment.command("resume", self.order.as_str()));
        }
        Ok(code)
    }
}

impl RewindArguments {
    async fn is_wanted(&self, from: Sequence, deployment: &Deployment) -> Result<bool> {
        let order = &self.order;
        let rewinding = match deployment.operator().would_rewind(order, from).await {
            Ok(RewindOutcome::Done(rewinding)) => Ok(rewinding),
            Ok(other) => Err(begun(order, &other)),
            Err(error) => Err(Report::not_leased(order, Some(from), error)?),
        };
        let Rewinding { from, through, applied } = match rewinding {
            Ok(rewinding) => rewinding,
            Err(refused) => bail!("{}", refused_text(&refused, order, deployment).await),
        };
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

fn begun(order: &EntityKey, rewound: &RewindOutcome) -> Report {
    match rewound {
        RewindOutcome::Done(rewinding) => {
            let run = counted(rewinding.applied as u64, "delivery runs", "deliveries run");
            let from = marked(rewinding.from);
            let through = marked(rewinding.through);
            let sentence = format!("{run} again on {order}, from {from} to {through}, then the waiting deliveries");
            done(order, "rewind", rewinding, sentence).then("rewind", &["--end", "--why", "TEXT"], "ends it early")
        }
        RewindOutcome::NotSettled(state) => {
            let last = marked(state.head);
            let why = format!("that delivery is not settled yet; the last settled delivery of {order} is {last}");
            refused(order, format!("nothing was changed: {why}"))
        }
        RewindOutcome::Expired(Some(first)) => {
            let rewind = format!("Rewind to {} at the earliest", marked(*first));
            refused(
                order,
                format!("nothing was changed: some of these deliveries have expired or never arrived. {rewind}"),
            )
        }
        RewindOutcome::Expired(None) => {
            refused(order, format!("nothing was changed: all deliveries of {order} have expired"))
        }
        RewindOutcome::Nothing => {
            refused(order, "nothing was changed: from that sequence on, no delivery was applied".to_owned())
        }
    }
}

fn ended(order: &EntityKey, rewound: &RewindOutcome) -> Report {
    let RewindOutcome::Done(rewinding) = rewound else {
        return refused(order, format!("no rewind of {order} is under way; nothing was changed"));
    };
    let from = marked(rewinding.from);
    let through = marked(rewinding.through);
    let sentence = format!("{order} {from} to {through} keep their earlier outcome; the waiting deliveries continue");
    done(order, "rewind ended", rewinding, sentence)
}

fn done(order: &EntityKey, done: &str, rewinding: &Rewinding, sentence: String) -> Report {
    let Rewinding { from, through, applied } = rewinding;
    let json = json!({ "entity": order, "done": done, "from": from, "through": through, "applied": applied });
    Report::new(Effect::Done, sentence, json)
}

fn refused(order: &EntityKey, sentence: String) -> Report {
    let json = json!({ "entity": order, "done": null });
    Report::new(Effect::Refused, sentence, json).then("show", &[], "lists its deliveries")
}
