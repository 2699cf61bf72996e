//! The ingest function: verify a webhook, find its entity, put it in the inbox,
//! wake a worker, answer.
//!
//! What is answered 2xx is durable. What cannot be believed is answered 4xx and
//! nothing of it is kept; what is believed is never refused for what it says.

mod http;
pub mod keys;

use std::{sync::Arc, time::Duration};

use lambda_runtime::Error;

use crate::{
    aws::boot::Start,
    config::{Environment, SourcesOrigin},
    engine::append::Inbox,
    protocol::delivery::{Incoming, LARGEST_BODY},
    providers::{self, Unverified, Verified},
    sources::{LiveSources, Newest, Sources},
    time::Surroundings,
};

pub use http::{Http, Request, RequestContext, Response};
use keys::PublishedKeys;

/// The function, ready for requests.
#[derive(Debug, Clone)]
pub struct Ingest {
    sources: LiveSources,
    inbox: Inbox,
    keys: PublishedKeys,
    surroundings: Surroundings,
}

/// The longest that an answer may take: senders give up after five seconds at
/// the earliest, and half of that is ours.
const ANSWER: Duration = Duration::from_millis(2500);

/// What is to be done with a request, as far as some sources tell.
enum Judged {
    /// Append it; then answer with this body, if its sender demands one.
    Delivery(Box<Incoming>, Option<&'static str>),
    /// Tell that it is ignored; then answer as for [`Judged::Delivery`].
    Ignored(Box<Incoming>, Option<&'static str>),
    /// Answer this, whatever else is configured.
    Answer(Response),
    /// Answer this, unless a newer document says otherwise: its source may have
    /// been added, its secret rolled, its provider corrected.
    Unless(Response),
}

impl Ingest {
    /// An ingest of `sources` into `inbox`.
    pub fn new(sources: impl Into<LiveSources>, inbox: Inbox, surroundings: Surroundings) -> Self {
        let keys = PublishedKeys::new(surroundings.clone());
        Self { sources: sources.into(), inbox, keys, surroundings }
    }

    /// As it is, with the keys of senders that publish theirs from `keys`.
    pub fn with_keys(self, keys: PublishedKeys) -> Self {
        Self { keys, ..self }
    }

    /// Answers one request.
    pub async fn answer(&self, request: &Request) -> Response {
        let asked = self.surroundings.monotonic();
        self.sources.beside(self.take(request, asked)).await
    }

    async fn take(&self, request: &Request, asked: Duration) -> Response {
        let known = self.sources.current();
        let (incoming, demanded) = match self.judge(&known, request).await {
            Judged::Delivery(incoming, demanded) => (incoming, demanded),
            Judged::Ignored(incoming, demanded) => return self.ignore(&incoming, demanded),
            Judged::Answer(response) => return response,
            Judged::Unless(response) => match self.judge_by_newest(&known, request, response).await {
                Ok(taken) => taken,
                Err(response) => return response,
            },
        };
        let left = ANSWER.saturating_sub(self.surroundings.monotonic().saturating_sub(asked));
        let source = self.sources.current().get(incoming.identity.source.as_str()).cloned();
        let linger = source.and_then(|source| source.linger);
        match self.inbox.append_within(&incoming, linger, left).await {
            Ok(appended) => Response::accepted(&incoming.entity, appended.sequence).saying(demanded),
            Err(error) => {
                tracing::error!(source = %incoming.identity.source, %error, "not stored");
                Response::unavailable("not stored; send it again")
            }
        }
    }

    fn ignore(&self, incoming: &Incoming, demanded: Option<&'static str>) -> Response {
        self.inbox.ignore(incoming);
        Response::ignored(&incoming.topic).saying(demanded)
    }

    /// For a request that `known` would answer with `refusal`: nothing is
    /// refused that the newest document, which is asked for first, would take.
    async fn judge_by_newest(
        &self,
        known: &Arc<Sources>,
        request: &Request,
        refusal: Response,
    ) -> Result<(Box<Incoming>, Option<&'static str>), Response> {
        let newest = self.sources.newest().await;
        let current = self.sources.current();
        let refusal = if Arc::ptr_eq(known, &current) {
            refusal
        } else {
            match self.judge(&current, request).await {
                Judged::Delivery(incoming, demanded) => return Ok((incoming, demanded)),
                Judged::Ignored(incoming, demanded) => return Err(self.ignore(&incoming, demanded)),
                Judged::Answer(response) => return Err(response),
                Judged::Unless(response) => response,
            }
        };
        // Of a source that is configured: anybody can make names up.
        match refusal.status_code {
            401 => tracing::warn!(source = request.source(), reason = refusal.reason(), ?newest, "not verified"),
            503 => tracing::warn!(source = request.source(), ?newest, "no secret"),
            _ => {}
        }
        Err(match newest {
            Newest::Known => refusal,
            Newest::Unknown => Response::unavailable("it cannot be verified now; send it again"),
        })
    }

    async fn judge(&self, sources: &Sources, request: &Request) -> Judged {
        let is_post = request.request_context.http.method == "POST";
        let Some(name) = request.source() else {
            return Judged::Answer(Response::refused(404, "there is no such source"));
        };
        let Some(source) = sources.get(name) else {
            let response = Response::refused(404, "there is no such source");
            return if is_post { Judged::Unless(response) } else { Judged::Answer(response) };
        };
        if !is_post {
            let challenge = source.challenge().and_then(|parameter| Some((parameter, request.parameter(parameter)?)));
            return Judged::Answer(match challenge {
                Some((parameter, value)) if request.request_context.http.method == "GET" => {
                    Response::challenged(parameter, &value)
                }
                _ => Response::wrong_method(),
            });
        }
        if let Some(coding) = request.compression() {
            return Judged::Answer(Response::compressed(coding));
        }
        let Some(body) = request.bytes() else {
            return Judged::Answer(Response::refused(400, "the body is not the base64 it is said to be"));
        };
        if body.len() > LARGEST_BODY {
            return Judged::Answer(Response::refused(413, "the body is larger than 6 MB"));
        }
        let headers = request.headers();
        let webhook = providers::Request { headers: &headers, body: &body };
        let now = self.surroundings.now();
        match self.keys.verify(source, webhook, now).await {
            Ok(Verified::Delivery) => {
                let (incoming, demanded) = (Box::new(source.delivery(webhook, now)), source.answer());
                match source.takes(&incoming.topic) {
                    true => Judged::Delivery(incoming, demanded),
                    false => Judged::Ignored(incoming, demanded),
                }
            }
            Ok(Verified::Ping) => Judged::Answer(Response::fine()),
            // The secret that it is signed with may be on its way here.
            Err(Unverified::Mismatch) if !source.has_secret() => {
                Judged::Unless(Response::unavailable("this source has no secret yet; send it again"))
            }
            Err(reason @ Unverified::Stale(_)) => {
                tracing::warn!(source = %source.name, %reason, "not verified");
                Judged::Answer(Response::refused(401, &reason.to_string()))
            }
            Err(reason @ (Unverified::Unfetched(_) | Unverified::Unusable(..))) => {
                tracing::warn!(source = %source.name, %reason, "it cannot be verified now");
                Judged::Answer(Response::unavailable("the key that it is signed with is not at hand; send it again"))
            }
            Err(reason) => Judged::Unless(Response::refused(401, &reason.to_string())),
        }
    }
}

/// Runs the function in Lambda, configured by its environment.
///
/// # Errors
///
/// The configuration is wrong, or Lambda's runtime API cannot be reached.
pub fn run() -> Result<(), Error> {
    super::start(async {
        let start = Start::read(&Environment)?;
        let log = super::log(&start.surroundings);
        let sources = start.warm_and_open(SourcesOrigin::read(&Environment)?, log.clone()).await?;
        let inbox = start.connect(log.clone()).inbox();
        let ingest = Ingest::new(sources, inbox, start.surroundings);
        lambda_runtime::run(lambda_runtime::service_fn(|event: lambda_runtime::LambdaEvent<Request>| {
            let (ingest, log) = (&ingest, &log);
            async move {
                let response = super::logged(log, &event.context, ingest.answer(&event.payload)).await;
                Ok::<_, Error>(response)
            }
        }))
        .await
    })
}
