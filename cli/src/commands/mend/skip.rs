//! `serializer skip`: parks the next delivery of an order, which continues with the delivery behind it.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::operations::Verb;

use super::{choice::DeliveryChoice, run::OperationRequest};
use crate::commands::reason::RequiredReason;

#[derive(Debug, Args)]
#[command(
    after_help = "Parks the next delivery of an order. Later, `redrive` appends it again at the end, or `discard` \
                  removes it. The deliveries behind it continue, in order, unless the order is on hold. A \
                  running handler finishes first; if it applies the delivery, nothing is skipped.\n\n\
                  Without ORDER it skips the next delivery of each blocked order, unless the order is blocked as \
                  `expired`.\n\n\
                  With deliver = \"latest\", the error may belong to a newer delivery, which the handler got instead \
                  of all waiting ones. This command does not skip that newer delivery. Once its attempts are used up, \
                  the worker tries each delivery alone, and the error belongs to the next one."
)]
pub struct Skip {
    #[command(flatten)]
    because: RequiredReason,
    #[command(flatten)]
    deliveries: DeliveryChoice,
}

impl Skip {
    pub async fn run(self) -> Result<ExitCode> {
        let DeliveryChoice { order, sequence, many } = &self.deliveries;
        let reason = self.because.reason();
        OperationRequest { verb: Verb::Skip, order: order.as_ref(), sequence: *sequence, many, reason }.run().await
    }
}
