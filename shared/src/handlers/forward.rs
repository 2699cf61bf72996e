//! The handler that posts each delivery or group to an HTTP endpoint, in order.
//!
//! The request has the original body, a Standard Webhooks signature, and the delivery's other
//! fields in `serializer-…` headers ([`headers`]). The answer decides the outcome:
//!
//! | answer | outcome |
//! |---|---|
//! | 2xx | done |
//! | 2xx of the content type [`ANSWER`] | commit, if the source's `forward` has a `commit` |
//! | 2xx with a `commit` of another content type, or compressed | retry, if the source's `forward` has a `commit` |
//! | 410 | reject |
//! | cannot connect, 429, 503 | unavailable: the endpoint has begun nothing |
//! | no answer in time, connection lost, 502, 504 | unanswered: the endpoint may have begun |
//! | any other status, an unreadable answer | retry: this delivery failed |
//!
//! The wait before the next attempt is that of the source's policy. `Retry-After`, of at most an
//! hour, replaces this wait after *retry*, and can only lengthen it after *unavailable* and
//! *unanswered*. The status and the beginning of the answer become the delivery's error.
//!
//! An attempt may repeat an earlier attempt whose answer was lost. Therefore an endpoint must apply
//! each `webhook-id` once, and refuse a fencing token below the newest one that it has seen for the
//! entity. `examples/receivers/` shows both.
//!
//! The signature covers id, time and body, as Standard Webhooks specifies. The other headers
//! are only as trustworthy as the connection, which uses TLS unless the source allows private
//! addresses.

mod answer;
mod client;
mod clients;
pub mod headers;
pub mod payload;
mod redacted;
#[cfg(test)]
mod tests;

use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;

use crate::{
    config::{InvalidConfig, Variables},
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    handlers::call_timeout,
    protocol::delivery::Delivery,
    sources::{FORWARD, LiveSources, deliver::Deliver},
    time::Env,
    tls::Roots,
};
pub(crate) use clients::Clients;

/// The maximum number of bytes of an answer's body that are read, unless it may have writes. The error quotes their beginning. Once
/// a body was read to its end, the connection can be reused. For a longer body, opening a new connection
/// is cheaper.
const ANSWER_BYTES: usize = 16 * 1024;
/// The content type of an answer that has writes.
pub const ANSWER: &str = "application/vnd.webhook-serializer.answer+json";

/// The maximum length of an answer that may have writes, in bytes. DynamoDB's limit for a transaction is 4 MiB.
const LONGEST_ANSWER: usize = 6 * 1024 * 1024;

const ANSWER_TIME: Duration = Duration::from_millis(250);

/// The handler `forward`, which posts deliveries to the destinations of their sources.
#[derive(Clone)]
pub struct Forward {
    sources: LiveSources,
    clients: Clients,
}

impl Forward {
    #[doc(hidden)]
    pub fn new(sources: impl Into<LiveSources>) -> Self {
        Self { sources: sources.into(), clients: Clients::trusting(Roots::mozilla()) }
    }

    /// Creates a handler that trusts Mozilla's certificate authorities, and those in the PEM
    /// file that the variable `FORWARD_CA_BUNDLE` names.
    #[doc(hidden)]
    pub fn configured(sources: impl Into<LiveSources>, variables: &impl Variables) -> Result<Self, InvalidConfig> {
        Ok(Self { sources: sources.into(), clients: Clients::configured(Roots::mozilla(), variables)? })
    }

    async fn post(&self, deliveries: &[&Delivery], context: &Context) -> Outcome {
        let first = deliveries[0];
        let sources = self.sources.current();
        let source = sources.get(first.source().as_str());
        let Some((source, destination)) = source.and_then(|source| Some((source, source.forward()?))) else {
            return Outcome::retry("the source has no table `forward`");
        };
        let client = self.clients.of(destination.scope());
        let env = context.env();
        let limit = call_timeout(context);
        // An endpoint that gets groups also gets a single delivery as a list, so that it reads
        // only one form.
        let request = if deliveries.len() > 1 || matches!(source.deliver, Deliver::UpTo(_)) {
            headers::together(destination, deliveries, context.token(), env.now())
        } else {
            headers::request(destination, first, context.token(), env.now())
        };
        let response = match env.within(limit, client.send(request)).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => {
                let url = destination.shown();
                return if error.is_connect() {
                    Outcome::unavailable(format!("cannot connect to {url}: {error}"))
                } else if error.is_unreadable() {
                    // The endpoint has handled the request, and would answer the next one in the same way.
                    Outcome::retry(format!("cannot read the answer of {url}: {error}"))
                } else {
                    Outcome::unanswered(format!("no answer from {url}: {error}"))
                };
            }
            None => {
                let time = limit.as_secs_f64();
                let url = destination.shown();
                return Outcome::unanswered(format!("no answer within {time:.1} s from {url}"));
            }
        };
        let (head, body) = response.into_parts();
        if head.status.is_success() && !destination.commit().is_empty() {
            let read = env.within(call_timeout(context), Limited::new(body, LONGEST_ANSWER).collect()).await;
            return match read {
                Some(Ok(body)) => answer::with_commit(&head.headers, &body.to_bytes(), destination.commit()),
                Some(Err(error)) if error.is::<LengthLimitError>() => answer::too_long(&head.headers),
                _ => Outcome::unanswered("the answer did not arrive whole, and it may have writes"),
            };
        }
        if head.status.is_success() && answer::is_typed(&head.headers) {
            return Outcome::retry("the answer has writes, but the source's `forward` has no `commit`");
        }
        let body = read_out(body, env).await;
        let is_shown = answer::is_plain(&head.headers) && !head.status.is_success();
        let excerpt = if is_shown { redacted::excerpt(&body, destination) } else { String::new() };
        answer::judge(head.status, &head.headers, &excerpt, env.now(), env.fraction())
    }
}

impl Handler for Forward {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        Ok(self.post(&[delivery], context).await)
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        Ok(self.post(&deliveries.iter().collect::<Vec<_>>(), context).await)
    }

    fn answers_to(&self, name: &str) -> bool {
        name == FORWARD
    }

    fn handles_all(&self, name: &str) -> bool {
        name == FORWARD
    }

    fn runs_elsewhere(&self, name: &str) -> bool {
        name == FORWARD
    }
}

/// Reads the body of an answer, up to [`ANSWER_BYTES`] and [`ANSWER_TIME`]. If the body is longer or
/// slower, the connection is closed.
async fn read_out(mut body: Incoming, env: &Env) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if bytes.len() > ANSWER_BYTES {
                break;
            }
        }
    };
    // The outcome does not depend on the body, so a timeout does not matter.
    let _ = env.within(ANSWER_TIME, read).await;
    bytes
}

impl std::fmt::Debug for Forward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forward").field("sources", &self.sources).finish_non_exhaustive()
    }
}
