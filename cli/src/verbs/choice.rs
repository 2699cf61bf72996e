//! Options that choose the orders or deliveries to change: one by its key, or many by their properties.

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgGroup, Args};
use webhook_serializer::protocol::entity::EntityKey;

use super::{
    OperationTarget, Verb, VerbArguments,
    run::{OperationRequest, conclude},
};
use crate::{
    commands::{reason::ReasonOptions, selection::Selection, target::Target},
    view::position::Named,
};

/// A reason, and the orders or deliveries to change.
#[derive(Debug, Args)]
pub struct Chosen<R: Args, C: Args> {
    #[command(flatten)]
    pub because: R,
    #[command(flatten)]
    pub choice: C,
}

impl<R: ReasonOptions, C: Args + Into<DeliveryChoice>> VerbArguments for Chosen<R, C> {
    async fn run(self, verb: &'static Verb) -> Result<ExitCode> {
        OperationRequest { verb, choice: self.choice.into(), reason: self.because.reason() }.run().await
    }
}

/// A single order, and a reason.
#[derive(Debug, Args)]
pub struct OneOrder<R: Args> {
    /// The order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    #[command(flatten)]
    because: R,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl<R: ReasonOptions> VerbArguments for OneOrder<R> {
    async fn run(self, verb: &'static Verb) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let reason = self.because.reason();
        let target = OperationTarget { order: self.order, sequence: None };
        let report = verb.run_one(&deployment.operator().because(reason.clone()), &target).await?;
        conclude(&report, &target.order, &reason, self.json, &deployment).await
    }
}

/// Selects one order, or many.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["order", "source", "error", "since", "all"]))]
pub struct OrderChoice {
    /// The order's key, such as shopify/order/450789469; or choose many by --source, --error, --since or --all
    #[arg(value_name = "ORDER", conflicts_with_all = ["source", "error", "since", "all", "limit"])]
    pub order: Option<EntityKey>,
    #[command(flatten)]
    pub many: Many,
}

/// Selects one delivery, all of an order, or many.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["order", "source", "error", "since", "all"]))]
pub struct DeliveryChoice {
    /// The order's key, such as shopify/order/450789469; or choose many by --source, --error, --since or --all
    #[arg(value_name = "ORDER")]
    pub order: Option<EntityKey>,
    /// The delivery's position, such as 7011, as `show` prints it, or its whole sequence
    #[arg(conflicts_with_all = ["source", "error", "since", "all", "limit"])]
    pub sequence: Option<Named>,
    #[command(flatten)]
    pub many: Many,
}

impl From<OrderChoice> for DeliveryChoice {
    fn from(OrderChoice { order, many }: OrderChoice) -> Self {
        Self { order, sequence: None, many }
    }
}

#[derive(Debug, Args)]
pub struct Many {
    #[command(flatten)]
    pub selection: Selection,
    /// Choose everything that the command can change, in every order
    #[arg(long, conflicts_with_all = ["order", "source", "error", "since"])]
    pub all: bool,
    /// Change at most N, from the top of the list; try one with --limit 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// List the changes without making them
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask: neither before changes, nor before reading more than 1,000 read units
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
}
