//! `serializer show`: shows an order, one of its deliveries, or its operations log.

mod delivery;
mod history;
mod order;

use std::{process::ExitCode, str::FromStr};

use anyhow::{Context, Result};
use clap::Args;
use serializer::view::position::Named;
use webhook_serializer::protocol::entity::{EntityKey, InvalidEntityKey};

use crate::commands::target::{Deployment, Target};

#[derive(Debug, Args)]
#[command(
    after_help = "A delivery's position is the last four digits of its sequence, which --json prints in full.\n\n\
                  With SEQUENCE it shows that delivery and its body. By default it hides names, addresses, e-mail, \
                  phone numbers, likely card numbers, the query of links, and all values under keys such as customer, \
                  billing_address or token. A body that is not JSON is hidden as a whole. Of the sender's headers only \
                  topic, delivery id and content type are stored.\n\n\
                  With --history it lists what operators did to the order, for 400 days or until the order is erased. \
                  An operation without a result was interrupted, and may have taken effect. `lease release` is \
                  recorded in the lease, until the lease is granted again."
)]
pub struct Show {
    /// The order's key, such as shopify/order/450789469; `send` and `list` print it. Or the hash in an alert, while the
    /// order is in trouble
    #[arg(value_name = "ORDER")]
    order: OrderName,
    /// One delivery: its position, such as 7011, or its whole sequence
    sequence: Option<Named>,
    /// List what operators did to the order: who, when and why
    #[arg(long, conflicts_with_all = ["sequence", "settled", "raw", "diff"])]
    history: bool,
    /// Show at most the N newest settled deliveries
    #[arg(long, default_value_t = 20, value_name = "N", conflicts_with_all = ["sequence", "raw", "diff"])]
    settled: usize,
    /// Show the body as it was sent, nothing hidden; on a terminal, control characters are escaped
    #[arg(long, requires = "sequence")]
    raw: bool,
    /// Show the differences from the newest earlier delivery of the same topic, instead of the body
    #[arg(long, requires = "sequence")]
    diff: bool,
    /// Print one JSON object, or with --history one per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// An order's key, or its hash.
#[derive(Debug, Clone)]
enum OrderName {
    Key(EntityKey),
    Hash(String),
}

impl FromStr for OrderName {
    type Err = InvalidEntityKey;

    fn from_str(text: &str) -> Result<Self, InvalidEntityKey> {
        match EntityKey::is_hash(text) {
            true => Ok(Self::Hash(text.to_owned())),
            false => EntityKey::parse(text).map(Self::Key),
        }
    }
}

impl OrderName {
    async fn key(self, deployment: &Deployment) -> Result<EntityKey> {
        match self {
            Self::Key(key) => Ok(key),
            Self::Hash(hash) => deployment.operator().order_with_hash(&hash).await?.with_context(|| {
                format!(
                    "no order in trouble has the hash {hash}: it has recovered, or belongs to another deployment. `{}` lists \
                     orders",
                    deployment.line("list", &[])
                )
            }),
        }
    }
}

/// The order to show, and how.
struct ShownOrder {
    order: EntityKey,
    settled: usize,
    raw: bool,
    diff: bool,
    json: bool,
}

impl Show {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let Self { settled, raw, diff, json, .. } = self;
        let shown = ShownOrder { order: self.order.key(&deployment).await?, settled, raw, diff, json };
        match self.sequence {
            Some(named) => shown.delivery(deployment.sequence(&shown.order, named).await?, &deployment).await,
            None if self.history => shown.history(&deployment).await,
            None => shown.order(&deployment).await,
        }
    }
}
