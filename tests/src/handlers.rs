//! Handlers for tests.

use std::{
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use webhook_serializer::{
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    protocol::{
        delivery::Delivery,
        table::{Change, Key, Write},
    },
};

/// Succeeds after some time.
#[derive(Debug, Clone, Copy)]
pub struct Slow(pub Duration);

impl Handler for Slow {
    async fn handle(&self, _: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        context.env().sleep(self.0).await;
        Ok(Outcome::Done)
    }
}

/// Fails at the first attempt of every delivery whose id ends in `-1`.
#[derive(Debug, Clone, Copy)]
pub struct FailsFirst(pub Duration);

impl Handler for FailsFirst {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        context.env().sleep(self.0).await;
        let first = delivery.delivery_id().as_str().ends_with("-1") && delivery.attempt() == 1;
        Ok(if first { Outcome::retry("the first attempt fails") } else { Outcome::Done })
    }
}

/// A handler from a closure.
#[derive(Clone)]
pub struct Scripted<F>(pub F);

impl<F, A> Handler for Scripted<F>
where
    F: Fn(&Delivery, &Context) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Outcome, HandlerError>> + Send + 'static,
{
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        (self.0)(delivery, context).await
    }
}

/// Returns a handler that answers at once with what the closure returns.
pub fn answering(
    answer: impl Fn(&Delivery, &Context) -> Outcome + Clone + Send + Sync + 'static,
) -> impl Handler + Clone {
    Scripted(move |delivery: &Delivery, context: &Context| ready(Ok(answer(delivery, context))))
}

/// Fails each attempt.
pub fn failing() -> impl Handler + Clone {
    answering(|_, _| Outcome::retry("not now"))
}

/// Rejects the delivery with this id until it is redriven.
pub fn rejecting(id: &'static str) -> impl Handler + Clone {
    answering(move |delivery, _| match delivery.redrive() {
        0 if delivery.delivery_id().as_str() == id => Outcome::Reject("not now".into()),
        _ => Outcome::Done,
    })
}

/// Succeeds at once, for single deliveries and groups.
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

/// The table that [`Counting`] counts in.
pub const EFFECTS: &str = "effects";

/// The starts of a handler. A start is a list of its deliveries; each has its id and the number of deliveries
/// that it supersedes.
pub type Starts = Arc<Mutex<Vec<Vec<(String, u32)>>>>;

/// Counts each delivery in [`EFFECTS`] by a commit, and fails for `poison`.
#[derive(Debug, Clone, Default)]
pub struct Counting {
    pub starts: Starts,
    /// The ids of deliveries that fail; `true` means that they are rejected.
    pub poison: Vec<(&'static str, bool)>,
}

impl Counting {
    /// Returns each start's delivery ids.
    pub fn starts(&self) -> Vec<Vec<String>> {
        let starts = self.starts.lock().unwrap();
        starts.iter().map(|start| start.iter().map(|(id, _)| id.clone()).collect()).collect()
    }

    fn run<'a>(&self, deliveries: impl Iterator<Item = &'a Delivery>) -> Outcome {
        let ids: Vec<_> = deliveries.map(|one| (one.delivery_id().to_string(), one.superseded())).collect();
        let writes =
            ids.iter().map(|(id, _)| Write::update(Key::named(EFFECTS, "id", id.as_str()), [Change::add("count", 1)]));
        let poison = self.poison.iter().find(|(poison, _)| ids.iter().any(|(id, _)| id == poison));
        let outcome = match poison {
            Some((_, true)) => Outcome::Reject("poison".into()),
            Some((_, false)) => Outcome::retry("poison"),
            None => Outcome::Commit(writes.collect()),
        };
        self.starts.lock().unwrap().push(ids);
        outcome
    }
}

impl Handler for Counting {
    async fn handle(&self, delivery: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
        Ok(self.run([delivery].into_iter()))
    }

    async fn handle_all(&self, deliveries: Deliveries, _: &Context) -> Result<Outcome, HandlerError> {
        Ok(self.run(deliveries.iter()))
    }

    fn handles_all(&self, _: &str) -> bool {
        true
    }
}
