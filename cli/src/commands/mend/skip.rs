//! `serializer skip`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::operations::Verb;

use super::{choice::Deliveries, run::Request};
use crate::commands::reason::RequiredReason;

/// Options of `serializer skip`.
#[derive(Debug, Args)]
#[command(
    after_help = "The delivery must be the next of its order. It is parked: `redrive` appends it again at the end, `discard` \
                  removes it. Those behind it continue, in order. A handler at work finishes first; if it applies the \
                  delivery, nothing is skipped.\n\n\
                  Many: the next delivery of each blocked order.\n\n\
                  With deliver = \"latest\", the error may be of a newer delivery, which the handler got in place of all \
                  that wait. That one is not skipped. Once its attempts are used up, each is tried by itself; then the \
                  error is of the next one."
)]
pub struct Skip {
    #[command(flatten)]
    because: RequiredReason,
    #[command(flatten)]
    deliveries: Deliveries,
}

impl Skip {
    pub async fn run(self) -> Result<ExitCode> {
        let Deliveries { order, sequence, many } = &self.deliveries;
        let reason = self.because.reason();
        Request { verb: Verb::Skip, order: order.as_ref(), sequence: *sequence, many, reason }.run().await
    }
}
