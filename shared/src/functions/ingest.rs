//! The ingest function, which verifies a webhook, finds its entity, appends it to the inbox, wakes a
//! worker and answers.
//!
//! A delivery that is answered 200 is durable in its inbox, unless its source ignores it. A delivery
//! that is answered 202 is durable in the queue. Senders that demand a body get 200 in that case, too. A
//! webhook that fails verification is answered 4xx, or 503 if it cannot be verified at the moment, and is
//! not stored. A verified webhook is never refused for its content.

mod http;
pub mod keys;
mod queue;

use std::{sync::Arc, time::Duration};

use lambda_runtime::Error;

use crate::{
    aws::boot::StartConfig,
    config::{Environment, SourcesOrigin},
    engine::append::{Accepted, Inbox},
    nearest,
    protocol::{delivery::LARGEST_BODY, entity::SourceName},
    providers::{self, Unverified, Verified},
    sources::{IgnoredBy, LiveSources, NewestDocument, ORIGIN_HEADER, OnOutage, ReceivedWebhook, Sources},
    telemetry::{Event, IngestRefusal},
    time::Env,
    traces::ReceivedRequest,
};

pub use super::sqs::{BatchResponse, Failure};
pub use http::{Http, HttpRequest, RequestContext, Response};
use keys::PublishedKeys;
pub use queue::{MessageAttribute, QueueRecord};
use serde::Serialize;

#[derive(Debug, Clone)]
pub struct Ingest {
    sources: LiveSources,
    inbox: Inbox,
    keys: PublishedKeys,
    env: Env,
}

/// The longest time from a request to its answer, without the time to fetch a key
/// ([`keys::PATIENCE`]). The senders with the shortest timeout give up after five seconds.
const ANSWER: Duration = Duration::from_millis(2500);

/// The event comes from another service than SQS. Some services would take any response for a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the event's records are not messages of an SQS queue")]
pub struct ForeignRecords;

/// The answer to an event, in the form that the event's kind demands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Response(Response),
    Batch(BatchResponse),
}

enum RequestJudgement {
    /// Append the delivery. The text is the body of the answer, for senders that require one.
    Delivery(Box<ReceivedWebhook>, Option<String>),
    /// Answer the delivery without storing it, because its source ignores it. The text is the body of the
    /// answer, for senders that require one.
    Ignored(Box<ReceivedWebhook>, Option<String>),
    /// Give this answer to a valid request that carries no delivery.
    Answer(Response),
    /// Refuse the request. A newer sources document could not change that.
    Refused(RefusedRequest),
    /// Refuse the request only if the newest sources document refuses it too. That document may have other
    /// sources, secrets or providers than the one in use.
    RefusedByKnown(RefusedRequest),
}

struct RefusedRequest {
    refusal: IngestRefusal,
    reason: String,
    response: Response,
}

impl RefusedRequest {
    fn with_status(refusal: IngestRefusal, status_code: u16, reason: &str) -> Self {
        Self { refusal, reason: reason.to_owned(), response: Response::refused(status_code, reason) }
    }

    /// Creates a refusal for an unknown source. The logged reason contains `name` only if `name` is a valid
    /// source name.
    fn unknown(name: Option<&str>, sources: &Sources) -> Self {
        let name = name.filter(|name| SourceName::parse(name).is_ok());
        let reason = name.map_or("the URL names no source".to_owned(), |name| {
            let similar = nearest::nearest(name, sources.doors().map(|source| source.name.as_str()));
            let hint = similar.map(|similar| format!("; the nearest source is `{similar}`")).unwrap_or_default();
            format!("the URL names `{name}`{hint}")
        });
        let response = Response::refused(404, "there is no such source");
        Self { refusal: IngestRefusal::UnknownSource, reason, response }
    }

    fn retry_later(refusal: IngestRefusal, reason: &str) -> Self {
        Self { refusal, reason: reason.to_owned(), response: Response::unavailable(reason) }
    }
}

impl Ingest {
    pub fn new(sources: impl Into<LiveSources>, inbox: Inbox, env: Env) -> Self {
        let keys = PublishedKeys::new(env.clone());
        Self { sources: sources.into(), inbox, keys, env }
    }

    pub fn with_keys(self, keys: PublishedKeys) -> Self {
        Self { keys, ..self }
    }

    /// Answers an event: an HTTP request, or a batch of a queue's messages.
    ///
    /// # Errors
    ///
    /// The event is that of another service than SQS.
    pub async fn process(&self, event: &HttpRequest) -> Result<Answer, ForeignRecords> {
        if let Some(messages) = event.messages() {
            return Ok(Answer::Batch(self.append_messages(messages).await));
        }
        let response = self.answer(event).await;
        if event.records.is_empty() { Ok(Answer::Response(response)) } else { Err(ForeignRecords) }
    }

    pub async fn answer(&self, request: &HttpRequest) -> Response {
        let asked = self.env.monotonic();
        self.sources.beside(self.take(request, asked)).await
    }

    async fn take(&self, request: &HttpRequest, asked: Duration) -> Response {
        let trace = ReceivedRequest::new(&request.headers, &self.env);
        let mut answer_by = asked + ANSWER;
        let known = self.sources.current();
        let (received, required_body) = match self.judge(&known, request, &mut answer_by).await {
            RequestJudgement::Delivery(received, required_body) => (received, required_body),
            RequestJudgement::Ignored(received, required_body) => return self.ignore(&received, required_body),
            RequestJudgement::Answer(response) => return response,
            RequestJudgement::Refused(refused) => return self.refuse(&known, request, refused),
            RequestJudgement::RefusedByKnown(refused) => {
                match self.judge_by_newest(&known, request, refused, &mut answer_by).await {
                    Ok(taken) => taken,
                    Err(response) => return response,
                }
            }
        };
        let ReceivedWebhook { incoming, unrouted, .. } = *received;
        let left = answer_by.saturating_sub(self.env.monotonic());
        let source = self.sources.current().get(incoming.identity.source.as_str()).cloned();
        let linger = source.as_ref().and_then(|source| source.linger);
        let on_outage = source.map_or(OnOutage::Refuse, |source| source.on_outage());
        let span = trace.begin_span(&incoming);
        let accepted = self.inbox.accept(&incoming, unrouted.as_deref(), linger, on_outage, left);
        let (outcome, response) = match span.within(accepted).await {
            Ok(Accepted::Deferred) => ("deferred", Response::deferred(&incoming.entity).with_body(required_body)),
            Ok(Accepted::Appended(appended)) => {
                ("accepted", Response::accepted(&incoming.entity, appended.sequence).with_body(required_body))
            }
            Err(error) => {
                tracing::error!(source = %incoming.identity.source, %error, "not stored");
                ("not stored", Response::unavailable("not stored; send the webhook again"))
            }
        };
        span.end(outcome, response.status_code);
        response
    }

    fn ignore(&self, received: &ReceivedWebhook, required_body: Option<String>) -> Response {
        let filter = received.ignored.as_ref().and_then(IgnoredBy::place);
        self.inbox.observe(&Event::Ignored { incoming: &received.incoming, filter });
        Response::ignored(&received.incoming.topic, filter).with_body(required_body)
    }

    fn refuse(&self, sources: &Sources, request: &HttpRequest, refused: RefusedRequest) -> Response {
        let source = request.source().and_then(|name| sources.door(name));
        self.inbox.observe(&Event::Refused {
            source: source.map(|source| &source.name),
            refusal: refused.refusal,
            reason: &refused.reason,
            limit: source.and_then(|source| source.failure_limit()),
        });
        refused.response
    }

    /// Reads the newest sources document. If the document differs from `known`, decides again about the
    /// request, which `known` refused.
    async fn judge_by_newest(
        &self,
        known: &Arc<Sources>,
        request: &HttpRequest,
        refused: RefusedRequest,
        answer_by: &mut Duration,
    ) -> Result<(Box<ReceivedWebhook>, Option<String>), Response> {
        let newest = self.sources.newest().await;
        let current = self.sources.current();
        let refused = if Arc::ptr_eq(known, &current) {
            refused
        } else {
            match self.judge(&current, request, answer_by).await {
                RequestJudgement::Delivery(received, required_body) => return Ok((received, required_body)),
                RequestJudgement::Ignored(received, required_body) => return Err(self.ignore(&received, required_body)),
                RequestJudgement::Answer(response) => return Err(response),
                RequestJudgement::Refused(refused) => return Err(self.refuse(&current, request, refused)),
                RequestJudgement::RefusedByKnown(refused) => refused,
            }
        };
        let refused = match newest {
            NewestDocument::Known => refused,
            NewestDocument::Unknown => RefusedRequest::retry_later(
                IngestRefusal::SourcesUnread,
                "the sources cannot be read now; send the webhook again",
            ),
        };
        Err(self.refuse(&current, request, refused))
    }

    /// Decides about a request. Adds the time for fetching keys to the deadline `answer_by`, so that a fetch does not
    /// shorten the time for appending the delivery.
    async fn judge(&self, sources: &Sources, request: &HttpRequest, answer_by: &mut Duration) -> RequestJudgement {
        if let Some(foreign) = request.foreign() {
            let answer = "this function needs the events of a Function URL, or of an HTTP API with payload format 2.0";
            let refused = RefusedRequest::retry_later(IngestRefusal::WrongEvent, answer);
            return RequestJudgement::Refused(RefusedRequest { reason: format!("{foreign}; {answer}"), ..refused });
        }
        if !sources.origin().admits(request.headers.get(ORIGIN_HEADER).map(String::as_str)) {
            return RequestJudgement::RefusedByKnown(RefusedRequest::with_status(
                IngestRefusal::PastOrigin,
                403,
                "send webhooks to the proxy's URL",
            ));
        }
        let is_post = request.request_context.http.method == "POST";
        let Some(name) = request.source() else {
            return RequestJudgement::Refused(RefusedRequest::unknown(None, sources));
        };
        let Some(source) = sources.door(name) else {
            let refused = RefusedRequest::unknown(Some(name), sources);
            return if is_post {
                RequestJudgement::RefusedByKnown(refused)
            } else {
                RequestJudgement::Refused(refused)
            };
        };
        if !is_post {
            let challenge = source.challenge().and_then(|parameter| Some((parameter, request.parameter(parameter)?)));
            return match challenge {
                Some((parameter, value)) if request.request_context.http.method == "GET" => {
                    RequestJudgement::Answer(Response::challenged(parameter, &value))
                }
                _ => {
                    let refused = RefusedRequest::with_status(IngestRefusal::NotPosted, 405, "webhooks need POST");
                    RequestJudgement::Refused(RefusedRequest { response: Response::wrong_method(), ..refused })
                }
            };
        }
        if let Some(coding) = request.compression() {
            let refused = RefusedRequest::with_status(
                IngestRefusal::Compressed,
                415,
                &format!("the body is compressed ({coding})"),
            );
            return RequestJudgement::Refused(RefusedRequest { response: Response::compressed(coding), ..refused });
        }
        let Some(body) = request.bytes() else {
            let reason = "the body is invalid base64";
            return RequestJudgement::Refused(RefusedRequest::with_status(IngestRefusal::Damaged, 400, reason));
        };
        if body.len() > LARGEST_BODY {
            return RequestJudgement::Refused(RefusedRequest::with_status(
                IngestRefusal::TooLarge,
                413,
                "the body is larger than 6 MB",
            ));
        }
        let headers = request.headers();
        let webhook = providers::Request { headers: &headers, body: &body };
        let now = self.env.now();
        let began = self.env.monotonic();
        let verified = self.keys.verify(source, webhook, now).await;
        *answer_by += self.env.monotonic().saturating_sub(began);
        match verified {
            Ok(Verified::Delivery) => {
                let received = Box::new(source.receive(webhook, now));
                let required_body = source.answer().map(str::to_owned);
                match received.ignored.is_some() {
                    false => RequestJudgement::Delivery(received, required_body),
                    true => RequestJudgement::Ignored(received, required_body),
                }
            }
            Ok(Verified::Ping) => RequestJudgement::Answer(match source.posted_challenge(webhook) {
                Some(value) => Response::challenged("challenge", &value),
                None => Response::fine(),
            }),
            // The source's secret may not have reached this instance yet.
            Err(Unverified::Mismatch) if !source.has_secret() => {
                let answer = "this source has no secret yet; send the webhook again";
                let refused = RefusedRequest::retry_later(IngestRefusal::NoSecret, answer);
                RequestJudgement::RefusedByKnown(match source.guessable().next() {
                    Some((which, what)) => {
                        RefusedRequest { reason: format!("{which} {what}, so it is not used"), ..refused }
                    }
                    None => refused,
                })
            }
            Err(reason @ Unverified::Stale(_)) => RequestJudgement::Refused(RefusedRequest::with_status(
                IngestRefusal::NotVerified,
                401,
                &reason.to_string(),
            )),
            Err(reason @ (Unverified::Unfetched(_) | Unverified::Unusable(..))) => {
                let answer = "the key that verifies the signature is unavailable; send the webhook again";
                RequestJudgement::Refused(RefusedRequest {
                    reason: reason.to_string(),
                    ..RefusedRequest::retry_later(IngestRefusal::NoKey, answer)
                })
            }
            Err(reason) => RequestJudgement::RefusedByKnown(RefusedRequest::with_status(
                IngestRefusal::NotVerified,
                401,
                &reason.to_string(),
            )),
        }
    }
}

/// Runs the ingest function in Lambda.
///
/// # Errors
///
/// The configuration is invalid, or Lambda's runtime API cannot be reached.
pub fn run() -> Result<(), Error> {
    super::start(Box::pin(async {
        let start = StartConfig::read(&Environment)?;
        let log = super::log(&start.env);
        super::trace(&start.env);
        let sources = start.warm_and_open(SourcesOrigin::read(&Environment)?, log.clone()).await?;
        let inbox = start.connect(log.clone()).inbox();
        let ingest = Ingest::new(sources, inbox, start.env);
        let answered = lambda_runtime::service_fn(|event: lambda_runtime::LambdaEvent<HttpRequest>| {
            let ingest = &ingest;
            let log = &log;
            async move { Ok::<_, Error>(super::logged(log, &event.context, ingest.process(&event.payload)).await?) }
        });
        super::traced(lambda_runtime::Runtime::new(answered)).await
    }))
}
