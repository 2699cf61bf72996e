//! `serializer export`: prints what is stored of orders, with the deliveries' bodies.

use std::{io::IsTerminal, process::ExitCode};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;
use serde_json::{Value, json};
use serializer::{output, view::delivery::delivery_json};
use webhook_serializer::{operator::StoredDelivery, protocol::entity::EntityKey};

use crate::commands::{print_json, similar, target::Target};

#[derive(Debug, Args)]
#[command(
    after_help = "Prints one JSON object per line: each stored delivery of the orders, oldest first, with its body as it \
                  was sent. A body that is not UTF-8 is in `body_base64`. Nothing is hidden.\n\n\
                  `serializer find` finds the orders of one customer:\n\n  \
                  serializer find ada@example.com --keys | serializer export"
)]
pub struct Export {
    /// The orders' keys, such as shopify/order/450789469; without any, they are read from standard input, one a line
    #[arg(value_name = "ORDER")]
    orders: Vec<EntityKey>,
    #[command(flatten)]
    target: Target,
}

impl Export {
    pub async fn run(self) -> Result<ExitCode> {
        let orders = if self.orders.is_empty() { typed()? } else { self.orders };
        let deployment = self.target.connect().await?;
        let operator = deployment.operator();
        for order in &orders {
            if !operator.is_known(order).await? {
                bail!("{}", similar::unknown(order, &deployment).await);
            }
            let stored = operator.stored(order).await?;
            if stored.is_empty() {
                output::complain(format_args!("{order}: no delivery is stored any more"));
            }
            stored.iter().for_each(|stored| print_json(&exported(stored)));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads orders' keys from standard input.
fn typed() -> Result<Vec<EntityKey>> {
    let input = std::io::stdin();
    let lines: Vec<String> = match input.is_terminal() {
        true => Vec::new(),
        false => input.lines().collect::<Result<_, _>>().context("standard input cannot be read")?,
    };
    ensure!(!lines.is_empty(), "name the orders, such as shopify/order/450789469, or pipe their keys to the command");
    lines.iter().map(|line| EntityKey::parse(line).with_context(|| format!("{line:?} is no order's key"))).collect()
}

fn exported(stored: &StoredDelivery) -> Value {
    let delivery = &stored.delivery;
    let mut object = delivery_json(delivery);
    object["content_type"] = json!(delivery.content_type());
    object["parked"] = stored.is_parked.into();
    match std::str::from_utf8(delivery.body()) {
        _ if !stored.has_body => object["body"] = Value::Null,
        Ok(text) => object["body"] = text.into(),
        Err(_) => object["body_base64"] = STANDARD.encode(delivery.body()).into(),
    }
    object
}
