//! `serializer erase`: removes all stored data of an order.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Args;
use serializer::{
    output::{self, counted},
    say,
};
use webhook_serializer::{
    operator::{Erased, OperatorError},
    protocol::entity::EntityKey,
};

use crate::commands::{
    confirm::ask,
    setup::source::whereabouts,
    similar,
    target::{Deployment, Target},
};

const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(
    after_help = "The command refuses while deliveries wait, somebody has leased the order, or it is on hold. Deliveries \
                  that arrive during the erase stay: run it again."
)]
pub struct Erase {
    /// The order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    target: Target,
}

impl Erase {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let copies = copies(&self.order, &deployment).await?;
        let names: Vec<&str> = [&self.order].into_iter().chain(&copies).map(EntityKey::as_str).collect();
        let question = format!(
            "All stored data of {} will be removed for good, with the bodies. Erase?",
            names.join(" and of its copy ")
        );
        if !self.yes && !ask(&question).context("nothing has been changed yet")? {
            output::complain("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        let mut code = ExitCode::SUCCESS;
        // While the order has waiting deliveries, copies may still be added; it is refused first then.
        for order in [&self.order].into_iter().chain(&copies) {
            if !erase(order, &deployment).await? {
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}

/// Returns the orders with copies of this order's deliveries, by the sources that get them. A source with templates of
/// its own names other orders, which only the deliveries' bodies tell.
async fn copies(order: &EntityKey, deployment: &Deployment) -> Result<Vec<EntityKey>> {
    let Ok(sources) = whereabouts::configured(deployment).await else {
        output::complain("note: the sources document cannot be read, so copies of other sources are not looked for");
        return Ok(Vec::new());
    };
    let mut copies = Vec::new();
    let mut others = Vec::new();
    for subscriber in sources.iter().filter(|source| source.is_copied_from(order, &sources)) {
        match subscriber.key_of_copies(order) {
            Some(copy) if deployment.parts.store.entity(&copy, PATIENCE).await?.is_some() => copies.push(copy),
            Some(_) => {}
            None => others.push(format!("`{}`", subscriber.name)),
        }
    }
    if !others.is_empty() {
        output::complain(format_args!(
            "note: {} has templates of its own: `{} find` names its orders with this customer's data",
            others.join(", "),
            output::this_command()
        ));
    }
    Ok(copies)
}

/// Erases an order. Returns whether nothing is left.
async fn erase(order: &EntityKey, deployment: &Deployment) -> Result<bool> {
    let erased = match deployment.operator().erase(order).await {
        Err(OperatorError::InUse) => bail!(
            "{order} is on hold, leased, or has waiting deliveries; it was not erased. `{}` shows which",
            deployment.command("show", order.as_str())
        ),
        Err(OperatorError::Unknown) => bail!("{}", similar::unknown(order, deployment).await),
        erased => erased?,
    };
    match erased {
        Erased::Numbers { rows: 0 } => say!("{order}: nothing was left to erase"),
        Erased::Numbers { rows } => say!("{order}: {} erased", counted(rows, "row was", "rows were")),
        Erased::Newer { rows } => {
            say!(
                "{order}: {} erased. Deliveries arrived meanwhile and stay: run this again when they \
                 are handled",
                counted(rows, "row was", "rows were")
            );
        }
    }
    Ok(matches!(erased, Erased::Numbers { .. }))
}
