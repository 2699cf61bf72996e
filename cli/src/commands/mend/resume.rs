//! `serializer resume`: lets orders continue that are blocked or on hold.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::operations::{StopKind, Verb};

use super::{choice::OrderChoice, run::OperationRequest};
use crate::commands::reason::OptionalReason;

#[derive(Debug, Args)]
#[command(
    after_help = "Workers try a blocked order's delivery again, and count its attempts from zero. The deliveries \
                  behind it follow, in order. If the order is blocked as `expired`, a tombstone fills the empty \
                  sequence instead. Resume also ends a hold. For an order that is neither blocked nor on hold, \
                  it sends a wake-up.\n\n\
                  Without ORDER it resumes many: the blocked orders, or with --held those on hold. It lists them with \
                  the cost, and asks. After Ctrl-C, the same command continues."
)]
pub struct Resume {
    /// Resume orders that are on hold, instead of blocked ones
    #[arg(long, conflicts_with = "order")]
    held: bool,
    #[command(flatten)]
    because: OptionalReason,
    #[command(flatten)]
    orders: OrderChoice,
}

impl Resume {
    pub async fn run(self) -> Result<ExitCode> {
        let stop = match (&self.orders.order, self.held) {
            (Some(_), _) => StopKind::Any,
            (None, true) => StopKind::Hold,
            (None, false) => StopKind::Block,
        };
        let OrderChoice { order, many } = &self.orders;
        let request = OperationRequest {
            verb: Verb::Resume(stop),
            order: order.as_ref(),
            sequence: None,
            many,
            reason: self.because.reason(),
        };
        request.run().await
    }
}
