//! The handler `log`, which a new deployment uses until it has another handler.

use crate::{
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    protocol::delivery::Delivery,
};

/// A handler that logs each delivery without its body and settles it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Log;

impl Handler for Log {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        tracing::info!(
            entity = delivery.entity().as_str(),
            source = delivery.source().as_str(),
            topic = delivery.topic(),
            delivery_id = delivery.delivery_id().as_sent(),
            sequence = delivery.sequence().0,
            token = context.token().0,
            "delivery"
        );
        Ok(Outcome::Done)
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        for delivery in deliveries.iter() {
            self.handle(delivery, context).await?;
        }
        Ok(Outcome::Done)
    }

    fn answers_to(&self, name: &str) -> bool {
        name == "log"
    }

    fn handles_all(&self, name: &str) -> bool {
        self.answers_to(name)
    }
}
