use anyhow::{Context, Result};
use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use webhook_serializer::tls::Roots;

use crate::local::samples::Webhook;

#[derive(Debug, Clone)]
pub struct Sender {
    client: Posting,
    base: String,
}

#[derive(Debug, Clone)]
enum Posting {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Encrypted(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub retry_after: Option<String>,
    pub body: String,
}

impl Sender {
    pub fn new(base: impl Into<String>) -> Self {
        Self::pooled(base.into(), usize::MAX)
    }

    /// Returns a client that opens a connection for each request, for a server that may restart at any time.
    pub fn without_pool(base: impl Into<String>) -> Self {
        Self::pooled(base.into(), 0)
    }

    fn pooled(base: String, idle: usize) -> Self {
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_max_idle_per_host(idle);
        let client = if base.starts_with("https://") {
            let tls = HttpsConnectorBuilder::new().with_tls_config(Roots::machine().trusted());
            Posting::Encrypted(client.build(tls.https_only().enable_http1().build()))
        } else {
            Posting::Plain(client.build_http())
        };
        Self { client, base }
    }

    pub async fn post(&self, webhook: &Webhook) -> Result<Answer> {
        self.request("POST", &webhook.path(), &webhook.headers, webhook.body.clone()).await
    }

    pub async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<Answer> {
        let mut request = hyper::Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        self.send(request.body(Full::new(Bytes::from(body)))?).await
    }

    pub async fn send(&self, request: hyper::Request<Full<Bytes>>) -> Result<Answer> {
        let response = match &self.client {
            Posting::Plain(client) => client.request(request).await,
            Posting::Encrypted(client) => client.request(request).await,
        };
        let response = response.with_context(|| format!("{} does not answer", self.base))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after");
        let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Answer { status, retry_after, body: String::from_utf8_lossy(&body).into_owned() })
    }
}
