//! An HTTP endpoint for tests. The test controls every byte of the endpoint's answers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

pub(crate) enum EndpointReply {
    /// The endpoint sends these bytes, and closes the connection.
    Raw(Vec<u8>),
    /// The endpoint sends these bytes, and keeps the connection open.
    Whole(Vec<u8>),
    /// The endpoint sends these bytes, and then spaces until the client closes the connection.
    Endless(Vec<u8>),
    /// The endpoint sends nothing, and keeps the connection open.
    Never,
}

impl EndpointReply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Whole(format!("HTTP/1.1 {status} \r\nContent-Length: 0\r\n\r\n").into_bytes())
    }

    fn head(self) -> String {
        let Self::Whole(bytes) = self else { panic!("it has no headers") };
        String::from_utf8(bytes).unwrap()
    }

    pub(crate) fn of(body: &[u8]) -> Self {
        let head = format!("HTTP/1.1 200 \r\nContent-Length: {}\r\n\r\n", body.len());
        Self::Whole([head.as_bytes(), body].concat())
    }

    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        Self::Whole(self.head().replacen("\r\n", &format!("\r\n{name}: {value}\r\n"), 1).into_bytes())
    }

    pub(crate) fn body_never_sent(self, bytes: usize) -> Self {
        Self::Whole(self.head().replace("Content-Length: 0", &format!("Content-Length: {bytes}")).into_bytes())
    }

    pub(crate) fn body(self, bytes: usize) -> Self {
        let Self::Whole(mut reply) = self.body_never_sent(bytes) else { unreachable!() };
        reply.resize(reply.len() + bytes, b'.');
        Self::Whole(reply)
    }
}

pub(crate) struct Posted {
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Posted {
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut named = self.headers.iter().filter(|(held, _)| held == name);
        let (_, value) = named.next().unwrap_or_else(|| panic!("there is no {name}"));
        assert!(named.next().is_none(), "there are several {name}");
        value
    }
}

enum EndpointEvent {
    Posted(Posted),
    HungUp,
}

pub(crate) struct Endpoint {
    port: u16,
    scheme: &'static str,
    accepted: Arc<AtomicUsize>,
    served: Arc<EndpointState>,
    seen: mpsc::UnboundedReceiver<EndpointEvent>,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Starts an endpoint that answers the nth request, counted from 0, with `reply(n)`.
    pub(crate) async fn start(reply: impl Fn(usize) -> EndpointReply + Send + Sync + 'static) -> Self {
        Self::listen(None, reply).await
    }

    /// Starts an endpoint that uses TLS and answers the nth request, counted from 0, with `reply(n)`.
    pub(crate) async fn start_tls(
        certificate: &rcgen::CertifiedKey<rcgen::KeyPair>,
        reply: impl Fn(usize) -> EndpointReply + Send + Sync + 'static,
    ) -> Self {
        let key = PrivateKeyDer::Pkcs8(certificate.signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.cert.der().clone()], key)
            .unwrap();
        Self::listen(Some(TlsAcceptor::from(Arc::new(config))), reply).await
    }

    async fn listen(tls: Option<TlsAcceptor>, reply: impl Fn(usize) -> EndpointReply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let accepted = Arc::new(AtomicUsize::new(0));
        let (sender, seen) = mpsc::unbounded_channel();
        let served = Arc::new(EndpointState { reply: Box::new(reply), posts: AtomicUsize::new(0), sender });
        let counted = accepted.clone();
        let of_it = served.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let served = served.clone();
                let tls = tls.clone();
                connections.spawn(async move {
                    match tls {
                        None => served.serve(stream).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                served.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, scheme, accepted, served: of_it, seen, task }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn posts(&self) -> usize {
        self.served.posts.load(Ordering::SeqCst)
    }

    pub(crate) async fn posted(&mut self) -> Posted {
        match self.seen.recv().await {
            Some(EndpointEvent::Posted(posted)) => posted,
            _ => panic!("nothing was posted"),
        }
    }

    pub(crate) async fn hung_up(&mut self) {
        while !matches!(self.seen.recv().await.unwrap(), EndpointEvent::HungUp) {}
    }

    pub(crate) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

struct EndpointState {
    reply: Box<dyn Fn(usize) -> EndpointReply + Send + Sync>,
    posts: AtomicUsize,
    sender: mpsc::UnboundedSender<EndpointEvent>,
}

impl EndpointState {
    async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        while let Some(posted) = read(&mut stream).await {
            // Sending fails if the test has ended.
            let _ = self.sender.send(EndpointEvent::Posted(posted));
            match (self.reply)(self.posts.fetch_add(1, Ordering::SeqCst)) {
                EndpointReply::Whole(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                EndpointReply::Raw(bytes) => {
                    let _ = stream.write_all(&bytes).await;
                    return;
                }
                EndpointReply::Endless(bytes) => {
                    let mut sent = stream.write_all(&bytes).await;
                    while sent.is_ok() {
                        sent = stream.write_all(&[b' '; 8192]).await;
                    }
                    break;
                }
                EndpointReply::Never => {}
            }
        }
        let _ = self.sender.send(EndpointEvent::HungUp);
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Posted> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut posted = Posted { line, headers, body: Vec::new() };
    // A GET has no body.
    let length = posted.headers.iter().find(|(name, _)| name == "content-length");
    posted.body.resize(length.map_or(0, |(_, length)| length.parse().unwrap()), 0);
    stream.read_exact(&mut posted.body).await.ok()?;
    Some(posted)
}
