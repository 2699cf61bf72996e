//! Calls a Lambda function with each delivery, or each group, in order: the
//! handler for functions in any language.
//!
//! The function is called synchronously with a JSON document
//! (`event.rs`), and its answer decides (`answer.rs`). There is one
//! call for a start, and no repeat of it: the source's policy repeats.
//! A call may repeat one whose answer was lost, or one that still runs after its
//! time was up, so a function applies an `id` once, and refuses a token below
//! the newest it has seen of an entity. `examples/receivers/` shows both.

mod answer;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use crate::{
    aws::{
        Account, Http,
        call::NoAnswer,
        signed::{Asked, Signed},
    },
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    handlers::event,
    protocol::delivery::Delivery,
    sources::{INVOKE, LiveSources, invocation::Function},
    time::Env,
};

/// What is left of a start's time when the function's is up, so that it is this
/// handler that says so.
const HEADROOM: Duration = Duration::from_millis(100);

/// A synchronous call's event is smaller than this, in bytes.
const LIMIT: usize = 6 * 1024 * 1024;

/// Calls the functions that sources name, as they are configured at the time.
/// Sources name it `invoke`.
#[derive(Clone)]
pub struct Invoke {
    sources: LiveSources,
    lambda: Arc<Signed>,
}

impl Invoke {
    /// Calls what `sources` name, as `account` over `http`.
    #[doc(hidden)]
    pub fn new(sources: impl Into<LiveSources>, account: &Account, http: &Http, env: &Env) -> Self {
        let lambda = account.signed(http, "lambda", account.lambda_endpoint.clone(), env);
        Self { sources: sources.into(), lambda: Arc::new(lambda) }
    }

    /// Calls with what a start is about, at least one.
    async fn call(&self, deliveries: &[&Delivery], context: &Context) -> Outcome {
        let sources = self.sources.current();
        let Some(function) = sources.get(deliveries[0].source().as_str()).and_then(|source| source.invoke()) else {
            return Outcome::retry("its source names no function to call");
        };
        let event = event::json(deliveries, context.token());
        if event.len() >= LIMIT {
            // Of a group, each is tried by itself then.
            return Outcome::Reject(format!("its event has {} bytes; Lambda takes less than {LIMIT}", event.len()));
        }
        let time = context.time_left();
        let limit = time.saturating_sub(HEADROOM.min(time / 10));
        let path = self.path(function);
        let asked = Asked {
            method: "POST",
            path: &path,
            headers: &[("content-type", "application/json"), ("x-amz-invocation-type", "RequestResponse")],
            body: &event,
        };
        match context.env().within(limit, self.lambda.send(asked, time)).await {
            Some(Ok(answer)) => answer::judge(&answer),
            Some(Err(NoAnswer { is_sent: true, cause })) => Outcome::unanswered(format!("no answer: {cause}")),
            Some(Err(NoAnswer { cause, .. })) => {
                Outcome::unavailable(format!("cannot connect: {cause} at {}", self.lambda.endpoint()))
            }
            None => Outcome::unanswered(format!("no answer within {:.1} s", limit.as_secs_f64())),
        }
    }

    /// AWS is never asked without encryption.
    fn is_emulator(&self) -> bool {
        self.lambda.endpoint().starts_with("http://")
    }

    /// The path of a call. An emulator has one version of a function; that of
    /// SAM refuses a qualifier.
    fn path(&self, function: &Function) -> String {
        match self.is_emulator() {
            true => function.unqualified().path("invocations"),
            false => function.path("invocations"),
        }
    }
}

impl Handler for Invoke {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        Ok(self.call(&[delivery], context).await)
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        Ok(self.call(&deliveries.iter().collect::<Vec<_>>(), context).await)
    }

    fn answers_to(&self, name: &str) -> bool {
        name == INVOKE
    }

    fn handles_all(&self, name: &str) -> bool {
        name == INVOKE
    }
}

impl std::fmt::Debug for Invoke {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invoke").field("sources", &self.sources).finish_non_exhaustive()
    }
}
