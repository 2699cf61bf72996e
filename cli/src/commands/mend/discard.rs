use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::operations::Verb;

use super::{choice::Deliveries, run::Request};
use crate::commands::reason::RequiredReason;

/// Options of `serializer discard`.
#[derive(Debug, Args)]
#[command(
    after_help = "A discarded delivery is removed for good, body and all: it is never handled. Its order is not touched. Only \
                  parked deliveries can be discarded; `erase` removes an order as a whole."
)]
pub struct Discard {
    #[command(flatten)]
    because: RequiredReason,
    #[command(flatten)]
    deliveries: Deliveries,
}

impl Discard {
    pub async fn run(self) -> Result<ExitCode> {
        let Deliveries { order, sequence, many } = &self.deliveries;
        let reason = self.because.reason();
        Request { verb: Verb::Discard, order: order.as_ref(), sequence: *sequence, many, reason }.run().await
    }
}
