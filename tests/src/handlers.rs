//! Handlers for tests.

use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use webhook_serializer::{
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    protocol::delivery::Delivery,
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

/// What a function says.
#[derive(Clone)]
pub struct Scripted<F>(pub F);

impl<F> Handler for Scripted<F>
where
    F: Fn(&Delivery, &Context) -> BoxFuture<'static, Result<Outcome, HandlerError>> + Send + Sync + 'static,
{
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        (self.0)(delivery, context).await
    }
}

/// A handler that answers at once, as a function says.
pub fn answering(
    answer: impl Fn(&Delivery, &Context) -> Outcome + Clone + Send + Sync + 'static,
) -> impl Handler + Clone {
    Scripted(move |delivery: &Delivery, context: &Context| {
        let answer: BoxFuture<'static, Result<Outcome, HandlerError>> = Box::pin(ready(Ok(answer(delivery, context))));
        answer
    })
}

/// Is done at once, with one as with several.
#[derive(Debug, Clone, Copy)]
pub struct Done;

impl Handler for Done {
    async fn handle(&self, _: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
        Ok(Outcome::Done)
    }

    async fn handle_all(&self, _: Deliveries, _: &Context) -> Result<Outcome, HandlerError> {
        Ok(Outcome::Done)
    }

    fn handles_all(&self, _: &str) -> bool {
        true
    }
}
