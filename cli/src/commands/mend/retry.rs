//! `serializer retry`: starts the next attempt of failed deliveries now.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::operations::Verb;

use super::{choice::OrderChoice, run::OperationRequest};
use crate::commands::reason::OptionalReason;

#[derive(Debug, Args)]
#[command(
    after_help = "Retry makes an extra attempt. If it fails, or the source is held back because others fail, the next \
                  attempt is no later than it was. Attempts stay counted: if the last one fails, the delivery is parked \
                  or blocks its order. A blocked order continues with `resume`, which counts its attempts from zero."
)]
pub struct Retry {
    #[command(flatten)]
    because: OptionalReason,
    #[command(flatten)]
    orders: OrderChoice,
}

impl Retry {
    pub async fn run(self) -> Result<ExitCode> {
        let OrderChoice { order, many } = &self.orders;
        let reason = self.because.reason();
        OperationRequest { verb: Verb::Retry, order: order.as_ref(), sequence: None, many, reason }.run().await
    }
}
