//! The ingest function: verify a webhook, find its entity, put it in the inbox,
//! wake a worker, answer.
//!
//! What is answered 2xx is durable. What cannot be believed is answered 4xx and
//! nothing of it is kept; what is believed is never refused for what it says.

mod http;

use std::sync::Arc;

use shared::{
    append::Inbox,
    aws::{Account, Parts},
    config::{Environment, StoreConfig, read_sources},
    delivery::LARGEST_BODY,
    providers::{self, Verified},
    sources::Sources,
    telemetry::{self, Log, Observer},
    time::Surroundings,
};

pub use http::{Http, Request, RequestContext, Response};

/// The function, ready for requests.
#[derive(Debug, Clone)]
pub struct Ingest {
    sources: Arc<Sources>,
    inbox: Inbox,
    surroundings: Surroundings,
}

impl Ingest {
    /// An ingest of `sources` into `inbox`.
    pub fn new(sources: Arc<Sources>, inbox: Inbox, surroundings: Surroundings) -> Self {
        Self { sources, inbox, surroundings }
    }

    /// Answers one request.
    pub async fn answer(&self, request: &Request) -> Response {
        let Some(source) = request.source().and_then(|name| self.sources.get(name)) else {
            return Response::refused(404, "there is no such source");
        };
        if request.request_context.http.method != "POST" {
            return Response::wrong_method();
        }
        let Some(body) = request.bytes() else {
            return Response::refused(400, "the body is not the base64 it is said to be");
        };
        if body.len() > LARGEST_BODY {
            return Response::refused(413, "the body is larger than 6 MB");
        }
        let headers = request.headers();
        let webhook = providers::Request { headers: &headers, body: &body };
        let now = self.surroundings.now();
        match source.verify(webhook, now) {
            Ok(Verified::Delivery) => {}
            Ok(Verified::Ping) => return Response::fine(),
            Err(reason) => {
                tracing::warn!(source = %source.name, %reason, "not verified");
                return Response::refused(401, &reason.to_string());
            }
        }
        match self.inbox.append(&source.delivery(webhook, now)).await {
            Ok(appended) => Response::accepted(appended.sequence),
            Err(error) => {
                tracing::error!(source = %source.name, %error, "not stored");
                Response::unavailable()
            }
        }
    }
}

/// Runs the function in Lambda, configured by its environment.
///
/// # Errors
///
/// The configuration is wrong, or Lambda's runtime API is not to be had.
pub fn run() -> Result<(), lambda_runtime::Error> {
    telemetry::init_log();
    // One thread is all that a small function's share of a processor can use.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let config = StoreConfig::read(&Environment)?;
        let sources = Arc::new(read_sources(&Environment)?);
        let surroundings = Surroundings::system();
        let Parts { store, waker } = Parts::connect(&Account::from_env()?, &config, &surroundings, None);
        let observer: Arc<dyn Observer> = Arc::new(Log);
        let ingest = Ingest::new(sources, Inbox::new(store, waker, config.retention, observer), surroundings);
        lambda_runtime::run(lambda_runtime::service_fn(|event: lambda_runtime::LambdaEvent<Request>| {
            let ingest = &ingest;
            async move { Ok::<_, lambda_runtime::Error>(ingest.answer(&event.payload).await) }
        }))
        .await
    })
}
