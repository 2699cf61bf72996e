//! An HTTP client that posts webhooks, and reads a limited part of each answer.

use anyhow::{Context, Result};
use axum::body::Bytes;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use webhook_serializer::{handlers::forward::payload::ForwardBody, tls::Roots};

use crate::local::samples::SignedWebhook;

/// The most bytes of an answer's body that are read: as many as Lambda sends for a function.
const ANSWER_BYTES: usize = 6 * 1024 * 1024;

/// The most header lines of an answer that are read, as by the handler `forward`.
const HEADER_LINES: usize = 4096;

#[derive(Debug, Clone)]
pub struct Sender {
    client: PostClient,
    base: String,
}

#[derive(Debug, Clone)]
enum PostClient {
    Plain(Client<HttpConnector, ForwardBody>),
    Encrypted(Client<HttpsConnector<HttpConnector>, ForwardBody>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    pub status: u16,
    pub retry_after: Option<String>,
    /// The beginning of the body, up to a limit, or as much as arrived before the connection broke.
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
        client.pool_max_idle_per_host(idle).http1_max_headers(HEADER_LINES);
        let client = if base.starts_with("https://") {
            let tls = HttpsConnectorBuilder::new().with_tls_config(Roots::machine().trusted());
            PostClient::Encrypted(client.build(tls.https_only().enable_http1().build()))
        } else {
            PostClient::Plain(client.build_http())
        };
        Self { client, base }
    }

    pub async fn post(&self, webhook: &SignedWebhook) -> Result<HttpAnswer> {
        self.request("POST", &webhook.path(), &webhook.headers, webhook.body.clone()).await
    }

    pub async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<HttpAnswer> {
        let mut request = hyper::Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        self.send(request.body(Bytes::from(body).into())?).await
    }

    pub async fn send(&self, request: hyper::Request<ForwardBody>) -> Result<HttpAnswer> {
        let response = match &self.client {
            PostClient::Plain(client) => client.request(request).await,
            PostClient::Encrypted(client) => client.request(request).await,
        };
        let response = response.with_context(|| format!("{} does not answer", self.base))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after");
        let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut rest = response.into_body();
        let mut body = Vec::new();
        while body.len() < ANSWER_BYTES
            && let Some(Ok(frame)) = rest.frame().await
        {
            let data = frame.into_data().unwrap_or_default();
            body.extend_from_slice(&data[..data.len().min(ANSWER_BYTES - body.len())]);
        }
        Ok(HttpAnswer { status, retry_after, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// Returns the answer to a request, if a server sends `head` and then repeats `body` this often.
    async fn answer(head: &'static str, body: &'static str, times: usize) -> HttpAnswer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..times {
                if stream.write_all(body.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
        Sender::new(url).request("POST", "/", &[], Vec::new()).await.unwrap()
    }

    #[tokio::test]
    async fn endless_answer_is_cut() {
        let endless = answer("HTTP/1.1 200 OK\r\n\r\n", "0123456789abcdef", usize::MAX).await;
        assert_eq!((endless.status, endless.body.len()), (200, ANSWER_BYTES));
    }

    #[tokio::test]
    async fn status_counts_if_body_breaks_off() {
        let broken = answer("HTTP/1.1 410 Gone\r\ncontent-length: 99\r\n\r\n", "gone", 1).await;
        assert_eq!((broken.status, &*broken.body), (410, "gone"));
    }

    #[tokio::test]
    async fn answer_with_many_headers_is_read() {
        let lines = "x: a\r\n".repeat(1000) + "content-length: 2\r\n\r\nok";
        let answer = answer("HTTP/1.1 200 OK\r\n", lines.leak(), 1).await;
        assert_eq!((answer.status, &*answer.body), (200, "ok"));
    }
}
