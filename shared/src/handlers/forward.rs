//! Posts each delivery, or each group, in order, to an HTTP endpoint: the handler
//! for code in any language.
//!
//! The body goes out as it came in, signed by Standard Webhooks; what a
//! handler is told besides stands in `serializer-…` headers ([`headers`]).
//! The answer decides: 2xx is done, 410 sets the delivery aside for good, all
//! else is tried again, when `Retry-After` says or else the source's policy.
//! An endpoint that cannot be reached, or answers 429 or 503, is unavailable: it
//! has begun nothing. One that gives no answer in time, breaks the connection, or
//! whose gateway answers 502 or 504, may have begun. 500 and the rest are failures
//! of this delivery. The status and the first words of a refusal become the
//! delivery's error.
//! An attempt may repeat one whose answer was lost, so an endpoint applies a
//! `webhook-id` once, and refuses a token below the newest it has seen of an
//! entity. `examples/receivers/` shows both.
//!
//! The signature covers id, time and body, as the specification has it. The
//! other headers are as trustworthy as the connection: TLS, unless the source
//! allows private addresses.

mod answer;
mod client;
pub mod headers;
mod said;
#[cfg(test)]
mod tests;

use std::time::Duration;

use http::header::CONTENT_ENCODING;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::{
    config::{InvalidConfig, Variables},
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    protocol::delivery::Delivery,
    sources::{FORWARD, LiveSources, deliver::Deliver, destination::Reach},
    time::Env,
    tls::Roots,
};
use client::Client;

/// What is left of a start's time when the endpoint's is up, so that it is this
/// handler that says so.
const HEADROOM: Duration = Duration::from_millis(100);

/// An answer's body is read so that its connection can be used again, and for
/// its first words; beyond this much, or this long, another connection is
/// cheaper.
const ANSWER_BYTES: usize = 16 * 1024;
const ANSWER_TIME: Duration = Duration::from_millis(250);

/// Posts deliveries to the destinations of their sources, as they are
/// configured at the time. Sources name it `forward`.
#[derive(Clone)]
pub struct Forward {
    sources: LiveSources,
    /// A pool of connections for each reach: what was connected to under the
    /// one must not be used under the other.
    public: Client,
    anywhere: Client,
}

impl Forward {
    /// Forwards to what `sources` name; trusts the certificate authorities that
    /// browsers trust.
    #[doc(hidden)]
    pub fn new(sources: impl Into<LiveSources>) -> Self {
        Self::with(sources, Roots::mozilla())
    }

    /// As [`Forward::new`]; trusts besides the certificates in the PEM file
    /// that `FORWARD_CA_BUNDLE` names, if it is set.
    #[doc(hidden)]
    pub fn configured(sources: impl Into<LiveSources>, variables: &impl Variables) -> Result<Self, InvalidConfig> {
        const VARIABLE: &str = "FORWARD_CA_BUNDLE";
        let mut roots = Roots::mozilla();
        if let Some(path) = variables.value(VARIABLE) {
            let invalid = |reason: String| InvalidConfig::new(VARIABLE, format!("{path} {reason}"));
            let pem = std::fs::read(&path).map_err(|error| invalid(format!("cannot be read: {error}")))?;
            roots.add(&pem).map_err(invalid)?;
        }
        Ok(Self::with(sources, roots))
    }

    fn with(sources: impl Into<LiveSources>, roots: Roots) -> Self {
        let tls = roots.trusted();
        Self {
            sources: sources.into(),
            public: Client::new(Reach::Public, &tls),
            anywhere: Client::new(Reach::Anywhere, &tls),
        }
    }
}

impl Forward {
    /// Posts what a start is about, at least one, and waits for the answer as long
    /// as the start has time.
    async fn post(&self, deliveries: &[&Delivery], context: &Context) -> Outcome {
        let first = deliveries[0];
        let sources = self.sources.current();
        let source = sources.get(first.source().as_str());
        let Some((source, destination)) = source.and_then(|source| Some((source, source.forward()?))) else {
            return Outcome::retry("its source names no destination to forward to");
        };
        let client = match destination.reach() {
            Reach::Public => &self.public,
            Reach::Anywhere => &self.anywhere,
        };
        let env = context.env();
        let time = context.time_left();
        let limit = time.saturating_sub(HEADROOM.min(time / 10));
        // Also one by itself comes as a list then: an endpoint reads one form.
        let request = if deliveries.len() > 1 || matches!(source.deliver, Deliver::UpTo(_)) {
            headers::together(destination, deliveries, context.token(), env.now())
        } else {
            headers::request(destination, first, context.token(), env.now())
        };
        let response = match env.within(limit, client.send(request)).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => {
                let text = format!("{}: {error}", destination.host());
                return if error.is_connect() { Outcome::unavailable(text) } else { Outcome::unanswered(text) };
            }
            None => return Outcome::unanswered(format!("no answer within {:.1} s", limit.as_secs_f64())),
        };
        let (head, body) = response.into_parts();
        let body = read_out(body, env).await;
        // What is compressed, though nobody asked for that, is no text.
        let is_text = head.headers.get(CONTENT_ENCODING).is_none_or(|encoding| encoding == "identity");
        let is_shown = is_text && !head.status.is_success();
        let said = if is_shown { said::first_words(&body, destination) } else { String::new() };
        answer::judge(head.status, &head.headers, &said, env.now(), env.fraction())
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
}

/// Reads a body to its end, if that is near; a connection whose answer is not
/// read out is closed. What came of it is returned.
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
    // What is in the body decides nothing, nor does whether it came.
    let _ = env.within(ANSWER_TIME, read).await;
    bytes
}

impl std::fmt::Debug for Forward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forward").field("sources", &self.sources).finish_non_exhaustive()
    }
}
