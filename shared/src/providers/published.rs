//! Providers that sign with a key of their own and publish the public one.
//!
//! They stay pure: which key they need is a value, an [`Address`], and what is
//! published there is asked of [`Keys`]. Where it is not at hand, they say so,
//! and whoever asked them fetches it and asks again. No part of an address is
//! taken from a request unchecked: the host is a constant, and so is the form of
//! the path.

use bytes::Bytes;

use super::{Request, RsaKey, Unverified, Verified};
use crate::time::Timestamp;

/// Where a key is published: over https, always.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    host: &'static str,
    path: String,
    file: &'static str,
}

/// The longest path of an address. Those that are known have some sixty bytes.
const LONGEST_PATH: usize = 200;

impl Address {
    /// The place `path` of `host`; `None`: no key is published at such a path.
    /// Its segments are letters, digits, `-`, `_` and `.`, and begin with none of
    /// the dots. `file` is what a file that stands in for it is called.
    pub(super) fn new(host: &'static str, path: &str, file: &'static str) -> Option<Self> {
        let is_plain = |segment: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !segment.is_empty() && !segment.starts_with('.') && segment.bytes().all(is_allowed)
        };
        let is_path = path.len() <= LONGEST_PATH && path.strip_prefix('/').is_some_and(|p| p.split('/').all(is_plain));
        is_path.then(|| Self { host, path: path.to_owned(), file })
    }

    /// The path on it, with a slash in front.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What a file that stands in for the fetch is called: `cert_file`, …
    pub fn file(&self) -> &'static str {
        self.file
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "https://{}{}", self.host, self.path)
    }
}

/// Why a certificate does not speak for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Uncertified {
    /// There is none, or one that cannot be read, or whose key is not RSA.
    #[error("it is no certificate of an RSA key")]
    Unreadable,
    /// It is not valid at that time.
    #[error("it has expired, or is not valid yet")]
    Expired,
    /// It is another's.
    #[error("it is for another name")]
    Name,
    /// No authority that is believed stands behind it.
    #[error("no known authority stands behind it")]
    Issuer,
}

/// Keys that were fetched, and the certificates among them.
pub trait Keys: Send + Sync {
    /// What is published at `at`; `None`: it was not fetched.
    fn find(&self, at: &Address) -> Option<Bytes>;

    /// The key of the first certificate in `pem`, if that is for one of `names`,
    /// valid at `now`, and issued by an authority that is believed, directly or
    /// by way of the certificates behind it.
    fn certified(&self, pem: &[u8], names: &[&'static str], now: Timestamp) -> Result<RsaKey, Uncertified>;
}

/// No key was fetched.
#[derive(Debug, Clone, Copy)]
pub struct NoKeys;

impl Keys for NoKeys {
    fn find(&self, _: &Address) -> Option<Bytes> {
        None
    }

    fn certified(&self, _: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        Err(Uncertified::Issuer)
    }
}

/// How a provider's webhooks are verified by the key that it publishes.
pub trait Published: Send + Sync {
    /// The field of a source that names us to the sender, such as `webhook_id`:
    /// without it nothing is believed, as the sender signs for everybody with
    /// the same key. `None`: what it signs does not say for whom.
    fn recipient(&self) -> Option<&'static str>;

    /// Whether the sender signed these bytes, for one of `recipients`.
    fn verify(
        &self,
        request: Request<'_>,
        recipients: &[String],
        keys: &dyn Keys,
        now: Timestamp,
    ) -> Result<Verified, Unverified>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_of_the_provider_s_and_a_plain_path() {
        let address = |path: &str| Address::new("keys.example.com", path, "public_key_file").map(|at| at.to_string());
        let whole = "https://keys.example.com/prod/keys/pub-key-1_a.pem";
        assert_eq!(address("/prod/keys/pub-key-1_a.pem").as_deref(), Some(whole));
        for path in [
            "",
            "/",
            "prod/a.pem",
            "//elsewhere.example.com/a.pem",
            "/a/../b.pem",
            "/.well-known/a",
            "/a//b",
            "/a?b=c",
            "/a#b",
            "/a%2f..",
            "/a@b",
            "/a:80",
            "/a b",
            "/a\r\nHost: b",
            "/é",
            &format!("/{}", "a".repeat(200)),
        ] {
            assert_eq!(address(path), None, "{path}");
        }
    }
}
