//! Fetches the public keys that senders publish.
//!
//! A fetched copy is used for an hour, or for up to a day while fetching a newer one fails. A
//! fetch goes to one of the provider's hosts, over TLS with the public authorities. A fetch follows
//! no redirect, and is limited in time and size.
//!
//! Anybody who posts a webhook can cause fetches. So each address is fetched at most once per
//! [`SPACING`], and at most [`MOST`] addresses are remembered.

#[cfg(test)]
mod tests;
mod trust;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use crate::{
    providers::{Address, Keys, Request, RsaKey, Uncertified, Unverified, Verified},
    sources::Source,
    time::{Env, Timestamp},
    tls::Roots,
};

pub use trust::key_in_certificate;

/// The total time that one request waits for keys.
pub const PATIENCE: Duration = Duration::from_millis(1000);

/// The shortest time between the starts of two fetches of the same address.
pub const SPACING: Duration = Duration::from_secs(5);

/// A copy of this age or older is fetched again before a key in it is used.
pub const REFRESH: Duration = Duration::from_secs(3600);

/// A copy of this age or older is not used, even if fetching a newer copy fails.
pub const STALE: Duration = Duration::from_secs(86_400);

/// The maximum number of addresses that are remembered. All providers together have fewer keys.
pub const MOST: usize = 16;

/// The largest accepted answer, in bytes. Certificate chains have a few thousand bytes.
pub const LARGEST: usize = 65_536;

/// The maximum number of fetches for one request. No provider needs as many.
const MOST_FETCHES: usize = 3;

/// A cache of the keys that senders publish. Clones share the cache.
#[derive(Clone)]
pub struct PublishedKeys(Arc<Cache>);

struct Cache {
    env: Env,
    /// The URL origin that replaces every provider's host, in tests.
    origin: Option<String>,
    /// Local keys for development. A key from this set is used if the cache has no copy of it.
    known: Option<Arc<dyn Keys>>,
    roots: OnceLock<Roots>,
    client: OnceLock<HttpsClient>,
    copies: Mutex<Vec<Copy>>,
}

type HttpsClient = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

struct Copy {
    at: Address,
    /// The published bytes, and the monotonic time at which their fetch began.
    fetched: Option<(Bytes, Duration)>,
    /// The monotonic time at which the last fetch began, even if that fetch failed.
    tried: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFetched {
    #[error("the last fetch was a moment ago")]
    TooSoon,
    #[error("{0}")]
    Failed(String),
}

impl PublishedKeys {
    /// Creates an empty cache. The TLS client is created at the first fetch, because most deployments never need a key.
    pub fn new(env: Env) -> Self {
        Self::of(env, None, None, OnceLock::new())
    }

    /// Creates a cache that uses a key in `known` instead of fetching it, for development.
    pub fn beside(env: Env, known: Arc<dyn Keys>) -> Self {
        Self::of(env, Some(known), None, OnceLock::new())
    }

    /// Creates a cache for tests. Every fetch goes to `origin`, such as `https://127.0.0.1:9000`, and
    /// trusts the authorities in `roots`.
    pub fn standing_in(env: Env, origin: String, roots: Roots) -> Self {
        Self::of(env, None, Some(origin), OnceLock::from(roots))
    }

    fn of(env: Env, known: Option<Arc<dyn Keys>>, origin: Option<String>, roots: OnceLock<Roots>) -> Self {
        Self(Arc::new(Cache { env, origin, known, roots, client: OnceLock::new(), copies: Mutex::default() }))
    }

    /// Verifies a webhook of `source`, and fetches the keys that the verification needs. The errors
    /// [`Unverified::Unfetched`] and [`Unverified::Unusable`] mean that the webhook cannot be verified at
    /// the moment.
    pub async fn verify(&self, source: &Source, webhook: Request<'_>, now: Timestamp) -> Result<Verified, Unverified> {
        let asked = self.0.env.monotonic();
        let mut verified = source.verify_with(webhook, self, now);
        for _ in 0..MOST_FETCHES {
            let Err(Unverified::Unfetched(at) | Unverified::Outdated(at) | Unverified::Unusable(at, _)) = &verified
            else {
                break;
            };
            let left = PATIENCE.saturating_sub(self.0.env.monotonic().saturating_sub(asked));
            match self.fetch(at, left).await {
                Ok(()) => {}
                Err(NotFetched::TooSoon) => break,
                Err(NotFetched::Failed(reason)) => tracing::warn!(%at, reason, "the sender's key was not fetched"),
            }
            verified = source.verify_with(webhook, self, now);
        }
        verified
    }

    pub async fn fetch(&self, at: &Address, patience: Duration) -> Result<(), NotFetched> {
        let begun = self.0.env.monotonic();
        if !self.begin(at, begun) {
            return Err(NotFetched::TooSoon);
        }
        let got = self.0.env.within(patience, self.0.get(at)).await;
        let bytes = got.unwrap_or_else(|| Err("no answer in time".to_owned())).map_err(NotFetched::Failed)?;
        let mut copies = self.0.lock();
        if let Some(copy) = copies.iter_mut().find(|copy| copy.at == *at) {
            copy.fetched = Some((bytes, begun));
        }
        Ok(())
    }

    fn begin(&self, at: &Address, now: Duration) -> bool {
        let mut copies = self.0.lock();
        if let Some(copy) = copies.iter_mut().find(|copy| copy.at == *at) {
            if now.saturating_sub(copy.tried) < SPACING {
                return false;
            }
            copy.tried = now;
            return true;
        }
        if copies.len() >= MOST {
            // Addresses without a key are forgotten first, because any request can name such
            // an address.
            let key = |copy: &Copy| copy.fetched.as_ref().map(|(_, when)| *when);
            let least = (0..copies.len()).min_by_key(|index| (key(&copies[*index]), copies[*index].tried));
            least.map(|index| copies.swap_remove(index));
        }
        copies.push(Copy { at: at.clone(), fetched: None, tried: now });
        true
    }

    fn roots(&self) -> &Roots {
        self.0.roots()
    }
}

impl Cache {
    fn roots(&self) -> &Roots {
        self.roots.get_or_init(Roots::mozilla)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Copy>> {
        self.copies.lock().expect("no one panics while holding this")
    }

    async fn get(&self, at: &Address) -> Result<Bytes, String> {
        let url = match &self.origin {
            Some(origin) => format!("{origin}{}", at.path()),
            None => at.to_string(),
        };
        let client = self.client.get_or_init(|| client(self.roots().clone()));
        let request = http::Request::get(url).header("user-agent", "webhook-serializer").body(Full::default());
        let answer = client.request(request.map_err(|error| error.to_string())?).await;
        let answer = answer.map_err(|error| innermost(&error))?;
        if answer.status() != http::StatusCode::OK {
            return Err(format!("the server answered {}", answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), LARGEST).collect().await.map_err(|error| innermost(&*error))?;
        Ok(body.to_bytes())
    }
}

fn client(roots: Roots) -> HttpsClient {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = HttpsConnectorBuilder::new().with_tls_config(roots.trusted());
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        // The next fetch is an hour away, and Lambda freezes the function in between, so no
        // connection is kept.
        .pool_max_idle_per_host(0)
        .build(tls.https_only().enable_http1().wrap_connector(tcp))
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

impl Cache {
    fn copy(&self, at: &Address) -> Option<Bytes> {
        let now = self.env.monotonic();
        let copies = self.lock();
        let copy = copies.iter().find(|copy| copy.at == *at)?;
        let (bytes, when) = copy.fetched.as_ref()?;
        let age = now.saturating_sub(*when);
        // A later fetch has failed.
        let has_failed = copy.tried > *when && now.saturating_sub(copy.tried) < SPACING;
        (age < REFRESH || (age < STALE && has_failed)).then(|| bytes.clone())
    }
}

impl Keys for PublishedKeys {
    fn find(&self, at: &Address) -> Option<Bytes> {
        self.0.copy(at).or_else(|| self.0.known.as_ref()?.find(at))
    }

    fn certified(&self, pem: &[u8], names: &[&'static str], now: Timestamp) -> Result<RsaKey, Uncertified> {
        let known = self.0.known.as_ref().and_then(|known| known.certified(pem, names, now).ok());
        known.map_or_else(|| trust::certified(self.roots(), pem, names, now), Ok)
    }
}

impl std::fmt::Debug for PublishedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublishedKeys").field("addresses", &self.0.lock().len()).finish_non_exhaustive()
    }
}
