//! Options that choose the orders or deliveries to change: one by its key, or many by their properties.

use clap::{ArgGroup, Args};
use serializer::view::position::Named;
use webhook_serializer::protocol::entity::EntityKey;

use crate::commands::{selection::Selection, target::Target};

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
