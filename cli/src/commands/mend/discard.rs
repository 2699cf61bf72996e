//! `serializer discard`: removes parked deliveries for good.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::operations::Verb;

use super::{choice::DeliveryChoice, run::OperationRequest};
use crate::commands::reason::RequiredReason;

#[derive(Debug, Args)]
#[command(after_help = "Discard removes parked deliveries for good, with their bodies: no handler gets them. Other \
                  deliveries of their orders stay. Only parked deliveries can be discarded; `erase` removes a whole \
                  order.")]
pub struct Discard {
    #[command(flatten)]
    because: RequiredReason,
    #[command(flatten)]
    deliveries: DeliveryChoice,
}

impl Discard {
    pub async fn run(self) -> Result<ExitCode> {
        let DeliveryChoice { order, sequence, many } = &self.deliveries;
        let reason = self.because.reason();
        OperationRequest { verb: Verb::Discard, order: order.as_ref(), sequence: *sequence, many, reason }.run().await
    }
}
