//! The HTTP client with which spans are sent to the collector.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use opentelemetry_http::{HttpClient, HttpError};

use crate::tls::Roots;

/// The time that an idle connection is kept. A busy Lambda function sends more often than this, and collectors
/// close idle connections only later.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// The maximum number of bytes of an answer that are read. Every valid answer is shorter.
const ANSWER_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct ExportClient(legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl ExportClient {
    pub(super) fn new(roots: Roots, patience: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(patience));
        let tls = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(roots.trusted());
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_timer(TokioTimer::new())
            .build(tls.https_or_http().enable_http1().wrap_connector(tcp));
        Self(client)
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = self.0.request(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }
}

impl HttpClient for ExportClient {
    fn send_bytes<'s, 'f>(
        &'s self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(self.send(request))
    }
}
