//! Provides one pool of HTTP/1.1 connections for all AWS clients.
//!
//! DynamoDB and SQS support only HTTP/1.1. The SDK's own connector also supports HTTP/2 and
//! proxies, and each client builds three of these connectors at start. The connector in this file
//! does only what the SDK requires: it applies the read timeout, and closes a connection after a
//! server error.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use aws_sdk_dynamodb::config::{AsyncSleep, SharedAsyncSleep};
use aws_smithy_runtime_api::client::{
    connection::{CaptureSmithyConnection, ConnectionMetadata},
    http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
    runtime_components::RuntimeComponents,
};
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use futures_util::future::{Either, select};
use hyper::body::{Body, Frame, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        self,
        connect::{self, CaptureConnection, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};

use super::dated;
use crate::{time::Env, tls::Roots};

/// The most bytes that are read of an answer to an SDK's client. DynamoDB's longest answer has 16 MB of items, which
/// base64 lengthens by a third.
const LONGEST_ANSWER: usize = 24 * 1024 * 1024;

/// A connection pool for AWS services, which all clients of a process share.
#[derive(Debug, Clone)]
pub struct Http {
    pool: legacy::Client<HttpsConnector<connect::HttpConnector>, SdkBody>,
    /// The clock that each reply's `Date` corrects.
    dated: Option<Env>,
}

impl Http {
    /// Creates a pool. Connecting needs no separate timeout, because the timeout of each request
    /// also covers the time to connect.
    pub(super) fn new(roots: Roots) -> Self {
        let mut tcp = connect::HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let tls = HttpsConnectorBuilder::new().with_tls_config(roots.trusted());
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(tls.https_or_http().enable_http1().wrap_connector(tcp));
        Self { pool, dated: None }
    }

    /// Returns the same pool, which notes in `env` the `Date` of each reply.
    pub fn dated(&self, env: &Env) -> Self {
        Self { dated: Some(env.clone()), ..self.clone() }
    }

    /// Sends a request. Reads at most `longest` bytes of the answer's body.
    pub(super) fn send(
        &self,
        request: http::Request<SdkBody>,
        longest: usize,
    ) -> impl Future<Output = Result<http::Response<Cut>, legacy::Error>> + Send + use<> {
        let dated = self.dated.clone().map(|env| (env.monotonic(), env));
        let response = self.pool.request(request);
        async move {
            let response = response.await?;
            if let Some((sent, env)) = dated {
                dated::note(&env, response.headers(), sent);
            }
            Ok(response.map(|body| Cut { body, left: longest }))
        }
    }
}

impl HttpClient for Http {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let limit = settings.read_timeout().zip(components.sleep_impl());
        SharedHttpConnector::new(Connector { http: self.clone(), limit })
    }
}

#[derive(Debug)]
struct Connector {
    http: Http,
    limit: Option<(Duration, SharedAsyncSleep)>,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let request = match closable_request(request) {
            Ok(request) => request,
            Err(error) => return HttpConnectorFuture::ready(Err(error)),
        };
        let answer = self.http.send(request, LONGEST_ANSWER);
        let too_late = self.limit.as_ref().map(|(limit, clock)| clock.sleep(*limit));
        HttpConnectorFuture::new(async move {
            let answer = match too_late {
                None => answer.await,
                Some(too_late) => match select(pin!(answer), too_late).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right(_) => return Err(ConnectorError::timeout("no answer in time".into())),
                },
            };
            let response = answer.map_err(|error| ConnectorError::io(error.into()))?;
            HttpResponse::try_from(response.map(SdkBody::from_body_1_x))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

pub(super) fn is_unconnected(error: &ConnectorError) -> bool {
    let source = std::error::Error::source(error);
    source.and_then(|source| source.downcast_ref::<legacy::Error>()).is_some_and(legacy::Error::is_connect)
}

/// Converts a request to the type that the pool sends, and lets the SDK close its connection.
fn closable_request(request: HttpRequest) -> Result<http::Request<SdkBody>, ConnectorError> {
    let mut request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
    let used = capture_connection(&mut request);
    if let Some(asked) = request.extensions().get::<CaptureSmithyConnection>() {
        asked.set_connection_retriever(move || closable(&used));
    }
    Ok(request)
}

/// Returns a handle with which the SDK can close the connection that the request was sent on.
fn closable(used: &CaptureConnection) -> Option<ConnectionMetadata> {
    used.connection_metadata().as_ref()?;
    let used = used.clone();
    let close = move || {
        if let Some(connection) = used.connection_metadata().as_ref() {
            connection.poison();
        }
    };
    Some(ConnectionMetadata::builder().proxied(false).poison_fn(close).build())
}

/// The beginning of an answer's body. If the body is longer, its connection is closed.
pub(super) struct Cut {
    body: Incoming,
    left: usize,
}

impl Body for Cut {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let left = self.left;
        let frame = frame.map(|frame| frame.map(|frame| frame.map_data(|data| data.slice(..data.len().min(left)))));
        if let Some(Ok(frame)) = &frame {
            self.left -= frame.data_ref().map_or(0, Bytes::len);
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::{
        config::{BehaviorVersion, retry::RetryConfig, timeout::TimeoutConfig},
        error::SdkError,
    };

    use crate::{
        aws::{Account, call},
        tls::{
            Roots,
            endpoint::{Endpoint, EndpointReply},
        },
    };

    use super::*;

    async fn post(http: &Http, endpoint: &Endpoint) -> Option<u16> {
        let request = http::Request::post(endpoint.url()).body("asked".into()).unwrap();
        let answer = call::send(http, request, super::super::ATTEMPT_TIMEOUT, &Env::system()).await;
        answer.ok().map(|answer| answer.status)
    }

    #[tokio::test]
    async fn aws_calls_reuse_one_connection() {
        let mut endpoint =
            Endpoint::start(|post| EndpointReply::status(if post == 1 { 400 } else { 200 }).body(9000)).await;
        let http = Http::new(Roots::amazon());
        for status in [200, 400, 200] {
            assert_eq!(post(&http, &endpoint).await, Some(status));
            assert_eq!(endpoint.posted().await.body, b"asked");
        }
        assert_eq!(endpoint.accepted(), 1);
    }

    #[tokio::test]
    async fn connection_is_closed_after_a_server_error() {
        let endpoint = Endpoint::start(|post| EndpointReply::status(if post == 0 { 500 } else { 200 }).body(2)).await;
        let account = Account::local(endpoint.url(), endpoint.url());
        let dynamodb = account.dynamodb(&account.http_client());
        // The first answer has status 500, after which the connection is closed.
        for accepted in [1, 2, 2] {
            let _ = dynamodb.list_tables().send().await;
            assert_eq!(endpoint.accepted(), accepted);
        }
    }

    #[tokio::test]
    async fn missing_response_fails_at_the_read_timeout() {
        let endpoint = Endpoint::start(|_| EndpointReply::Never).await;
        let account = Account::local(endpoint.url(), endpoint.url());
        let limits = TimeoutConfig::builder().read_timeout(Duration::from_millis(20)).build();
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(account.region.clone())
            .credentials_provider(account.credentials.clone())
            .http_client(account.http_client())
            .retry_config(RetryConfig::disabled())
            .timeout_config(limits)
            .endpoint_url(endpoint.url());
        let error = aws_sdk_dynamodb::Client::from_conf(config.build()).list_tables().send().await.unwrap_err();
        let SdkError::DispatchFailure(error) = error else { panic!("{error:?}") };
        assert!(error.is_timeout(), "{error:?}");
    }

    #[tokio::test]
    async fn tls_trusts_only_configured_authorities() {
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let endpoint = Endpoint::start_tls(&certificate, |_| EndpointReply::status(200)).await;
        assert_eq!(post(&Http::new(Roots::amazon()), &endpoint).await, None);
        let known = Roots::in_pem(certificate.cert.pem().as_bytes()).unwrap();
        assert_eq!(post(&Http::new(known), &endpoint).await, Some(200));
    }
}
