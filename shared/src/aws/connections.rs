//! The connections that all clients share: HTTP/1.1, which is what DynamoDB and
//! SQS speak.
//!
//! The SDK's own connector can more, HTTP/2 and proxies among it, and each
//! client builds three of them while it starts.

use std::time::Duration;

use aws_smithy_runtime_api::client::{
    http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
    runtime_components::RuntimeComponents,
};
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect},
    rt::{TokioExecutor, TokioTimer},
};

use crate::tls::Roots;

/// Time for one address to accept a connection. All else that may take long is
/// bounded by the time of the attempt it is part of.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// A pool of connections. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Connections(legacy::Client<HttpsConnector<connect::HttpConnector>, Full<Bytes>>);

impl Connections {
    /// No connection yet; those to come believe `roots`.
    pub(super) fn new(roots: Roots) -> Self {
        let mut tcp = connect::HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIME));
        let tls = HttpsConnectorBuilder::new().with_tls_config(roots.trusted());
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(tls.https_or_http().enable_http1().wrap_connector(tcp));
        Self(pool)
    }
}

impl HttpClient for Connections {
    /// The same whatever the settings: they are time limits, and those are ours.
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Connections {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let request = match whole(request) {
            Ok(request) => request,
            Err(error) => return HttpConnectorFuture::ready(Err(error)),
        };
        let answer = self.0.request(request);
        HttpConnectorFuture::new(async move {
            let response = answer.await.map_err(|error| ConnectorError::io(error.into()))?;
            HttpResponse::try_from(response.map(SdkBody::from_body_1_x))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

/// `request` with its body at hand, as it always is with these services.
fn whole(request: HttpRequest) -> Result<http::Request<Full<Bytes>>, ConnectorError> {
    let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
    let (head, body) = request.into_parts();
    let bytes = body.bytes().ok_or_else(|| ConnectorError::user("its body is a stream".into()))?;
    Ok(http::Request::from_parts(head, Full::new(Bytes::copy_from_slice(bytes))))
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::config::SharedHttpClient;
    use aws_smithy_runtime_api::client::orchestrator::HttpRequest;

    use crate::{
        aws::call,
        tls::{
            Roots,
            endpoint::{Endpoint, Reply},
        },
    };

    use super::*;

    async fn post(http: &SharedHttpClient, endpoint: &Endpoint) -> Option<u16> {
        let request = http::Request::post(endpoint.url()).body("asked".into()).unwrap();
        let answer = call::send(http, &endpoint.url(), HttpRequest::try_from(request).unwrap()).await;
        answer.map(|answer| answer.status)
    }

    #[tokio::test]
    async fn one_connection_serves_one_call_after_another() {
        let mut endpoint = Endpoint::start(|post| Reply::status(if post == 1 { 400 } else { 200 }).body(9000)).await;
        let http = SharedHttpClient::new(Connections::new(Roots::amazon()));
        for status in [200, 400, 200] {
            assert_eq!(post(&http, &endpoint).await, Some(status));
            assert_eq!(endpoint.posted().await.body, b"asked");
        }
        assert_eq!(endpoint.accepted(), 1);
    }

    #[tokio::test]
    async fn tls_believes_the_given_authorities_and_no_others() {
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let endpoint = Endpoint::start_tls(&certificate, |_| Reply::status(200)).await;
        let believing = |roots| SharedHttpClient::new(Connections::new(roots));
        assert_eq!(post(&believing(Roots::amazon()), &endpoint).await, None);
        let known = Roots::in_pem(certificate.cert.pem().as_bytes()).unwrap();
        assert_eq!(post(&believing(known), &endpoint).await, Some(200));
    }
}
