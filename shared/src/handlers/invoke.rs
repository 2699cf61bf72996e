//! The handler that calls a Lambda function with each delivery or group, in order.
//!
//! The function is called synchronously with a JSON document (`event.rs`), and its answer
//! decides the outcome (`answer.rs`). Each handler start makes one call; retries follow the
//! source's policy.
//!
//! A call may repeat an earlier call, whose answer was lost or whose timeout passed while the
//! function was still running. Therefore a function must apply each `id` once, and refuse a
//! fencing token below the newest one that it has seen for the entity. `examples/receivers/`
//! shows both.

mod answer;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::{
    aws::{
        Account, Http,
        call::NoAnswer,
        signed::{ServiceCall, SigningClient},
    },
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    handlers::{call_timeout, event::Document},
    protocol::delivery::Delivery,
    sources::{INVOKE, LiveSources, destination, invocation::Function},
    time::Env,
};

/// The smallest size, in bytes, at which Lambda refuses the event of a synchronous call.
const LIMIT: usize = 6 * 1024 * 1024;

/// The handler `invoke`, which calls the functions of the deliveries' sources.
#[derive(Clone)]
pub struct Invoke {
    sources: LiveSources,
    lambda: Arc<SigningClient>,
}

impl Invoke {
    #[doc(hidden)]
    pub fn new(sources: impl Into<LiveSources>, account: &Account, http: &Http, env: &Env) -> Self {
        let lambda = account.signed(http, "lambda", account.lambda_endpoint.clone(), env);
        Self { sources: sources.into(), lambda: Arc::new(lambda) }
    }

    async fn call(&self, deliveries: &[&Delivery], context: &Context) -> Outcome {
        let sources = self.sources.current();
        let Some(function) = sources.get(deliveries[0].source().as_str()).and_then(|source| source.invoke()) else {
            return Outcome::retry("the source has no table `invoke`");
        };
        let event = Document::new(deliveries, context.token());
        let bytes = event.bytes();
        if bytes >= LIMIT {
            // After a rejected group, each of its deliveries is tried alone.
            return Outcome::Reject(format!("the event has {bytes} bytes; Lambda accepts less than {LIMIT}"));
        }
        let limit = call_timeout(context);
        let path = self.path(function);
        let asked = ServiceCall {
            method: "POST",
            path: &path,
            headers: &[("content-type", "application/json"), ("x-amz-invocation-type", "RequestResponse")],
            body: event.json(),
        };
        match context.env().within(limit, self.lambda.send(asked, context.time_left())).await {
            Some(Ok(answer)) => answer::judge(&answer),
            Some(Err(NoAnswer { is_sent: true, cause })) => {
                Outcome::unanswered(format!("no answer from {}: {cause}", self.destination(function)))
            }
            Some(Err(NoAnswer { cause, .. })) => {
                Outcome::unavailable(format!("cannot connect to {}: {cause}", self.destination(function)))
            }
            None => {
                let time = limit.as_secs_f64();
                let destination = self.destination(function);
                Outcome::unanswered(format!("no answer within {time:.1} s from {destination}"))
            }
        }
    }

    fn destination(&self, function: &Function) -> String {
        let endpoint =
            self.lambda.endpoint().parse::<http::Uri>().map(|url| destination::shown(&url)).unwrap_or_default();
        format!("{endpoint}, function {function}")
    }

    /// Returns the URL path of a call. Only emulators are called without TLS, and they get no qualifier: an
    /// emulator has one version of a function, and SAM's emulator refuses a qualifier.
    fn path(&self, function: &Function) -> String {
        match self.lambda.endpoint().starts_with("http://") {
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

    fn runs_elsewhere(&self, name: &str) -> bool {
        name == INVOKE
    }
}

impl std::fmt::Debug for Invoke {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invoke").field("sources", &self.sources).finish_non_exhaustive()
    }
}
