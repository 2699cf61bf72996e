//! Handlers for tests.

use std::time::Duration;

use shared::{
    delivery::Delivery,
    handler::{Context, Handler, HandlerError, Outcome},
};

/// Takes some time.
#[derive(Debug, Clone, Copy)]
pub struct Slow(pub Duration);

impl Handler for Slow {
    async fn handle(&self, _: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        context.surroundings().sleep(self.0).await;
        Ok(Outcome::Done)
    }
}

/// Fails at the first attempt of every delivery whose id ends in `-1`.
#[derive(Debug, Clone, Copy)]
pub struct FailsFirst(pub Duration);

impl Handler for FailsFirst {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        context.surroundings().sleep(self.0).await;
        let first = delivery.delivery_id().as_str().ends_with("-1") && delivery.attempt() == 1;
        Ok(if first { Outcome::retry("the first attempt fails") } else { Outcome::Done })
    }
}
