//! The HTTP client of the handler `forward`, which connects only to allowed addresses.
//!
//! A host is resolved once for each connection. The connection is made to one of the host's
//! allowed addresses. There is no second lookup, which could return another address (DNS
//! rebinding). An address in a URL is checked when the sources are read.

use std::{
    error::Error,
    fmt,
    net::SocketAddr,
    task::{self, Poll},
    time::Duration,
    vec,
};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{
        self,
        connect::{
            HttpConnector,
            dns::{GaiResolver, Name},
        },
    },
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;
use tower_service::Service;

use super::payload::ForwardBody;
use crate::sources::destination::{AddressScope, address};

const CONNECT_TIME: Duration = Duration::from_secs(5);

/// The time for which an idle connection is kept. The servers Node, uvicorn and Apache close an idle
/// connection after five seconds. This time is shorter, so that no request is sent on a connection that the
/// server is closing.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// The most header lines of an answer that are read. The HTTP client's own limit of 100 lines would make the answer of
/// an endpoint with many cookies or links unreadable, although the endpoint has handled the delivery.
const HEADER_LINES: usize = 4096;

/// The longest head of an answer that is read, in bytes.
const HEAD_BYTES: usize = 1024 * 1024;

#[derive(Clone)]
pub(super) struct ForwardClient(legacy::Client<HttpsConnector<HttpConnector<Resolver>>, ForwardBody>);

impl ForwardClient {
    pub(super) fn new(scope: AddressScope, tls: &ClientConfig) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Resolver { scope, names: GaiResolver::new() });
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIME));
        let tls = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls.clone());
        let schemes = match scope {
            AddressScope::Public => tls.https_only(),
            AddressScope::Any => tls.https_or_http(),
        };
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_timer(TokioTimer::new())
            .http1_max_headers(HEADER_LINES)
            .http1_max_buf_size(HEAD_BYTES)
            // Only the status and two headers matter, so other headers may have any form.
            .http1_ignore_invalid_headers_in_responses(true)
            .http1_allow_spaces_after_header_name_in_responses(true)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .build(schemes.enable_http1().wrap_connector(tcp));
        Self(client)
    }

    /// Sends a request, without following redirects. If the caller drops the future, the connection is closed.
    pub(super) async fn send(&self, request: Request<ForwardBody>) -> Result<Response<Incoming>, Unsent> {
        self.0.request(request).await.map_err(Unsent)
    }
}

#[derive(Debug)]
pub(super) struct Unsent(legacy::Error);

impl Unsent {
    /// Returns whether the request failed because no connection was made. The request was then not sent.
    pub(super) fn is_connect(&self) -> bool {
        self.0.is_connect()
    }

    /// Returns whether the endpoint's answer is not HTTP, or has a head that is too long.
    pub(super) fn is_unreadable(&self) -> bool {
        let cause = self.0.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
        cause.is_some_and(hyper::Error::is_parse)
    }
}

impl fmt::Display for Unsent {
    /// Writes only the innermost cause, because an entity's row stores few bytes of an error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cause: &dyn Error = &self.0;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        write!(f, "{cause}")
    }
}

impl Error for Unsent {}

#[derive(Clone)]
struct Resolver {
    scope: AddressScope,
    names: GaiResolver,
}

/// The error for a host without an allowed address. The error holds an address that was refused, or
/// `None` if the host has no address at all.
#[derive(Debug, PartialEq, Eq)]
struct NotPublic(Option<SocketAddr>);

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => {
                write!(f, "{} is not a public address: set allow_private = true to allow it", address.ip())
            }
            None => f.write_str("the host has no address"),
        }
    }
}

impl Error for NotPublic {}

fn within(scope: AddressScope, addresses: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, NotPublic> {
    let may = |found: &SocketAddr| scope == AddressScope::Any || address::is_public(found.ip());
    let (allowed, refused): (Vec<_>, Vec<_>) = addresses.partition(may);
    if allowed.is_empty() { Err(NotPublic(refused.first().copied())) } else { Ok(allowed) }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.names.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = self.names.call(name);
        let scope = self.scope;
        Box::pin(async move { Ok(within(scope, found.await?)?.into_iter()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(scope: AddressScope, addresses: &[&str]) -> Result<Vec<String>, String> {
        let addresses = addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0));
        match within(scope, addresses) {
            Ok(allowed) => Ok(allowed.iter().map(|address| address.ip().to_string()).collect()),
            Err(refused) => Err(refused.to_string()),
        }
    }

    #[test]
    fn private_addresses_of_a_host_are_skipped() {
        let mixed = ["10.0.0.1", "8.8.8.8", "::1", "2606:4700::1"];
        assert_eq!(found(AddressScope::Public, &mixed).unwrap(), ["8.8.8.8", "2606:4700::1"]);
        assert_eq!(found(AddressScope::Any, &mixed).unwrap(), mixed);
    }

    #[test]
    fn host_with_only_private_addresses_is_refused() {
        let refused = found(AddressScope::Public, &["169.254.169.254", "::1"]).unwrap_err();
        assert_eq!(refused, "169.254.169.254 is not a public address: set allow_private = true to allow it");
        assert_eq!(found(AddressScope::Any, &[]).unwrap_err(), "the host has no address");
    }
}
