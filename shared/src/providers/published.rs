//! Providers that sign with a private key and publish the public key.
//!
//! These providers perform no I/O. They name a key by its [`Address`] and look it up in
//! [`Keys`]. If the key is missing there, verification fails with an error that holds the
//! address; the caller fetches the key and verifies again. The host of an address is a
//! constant, and its path is checked, so a request cannot choose the host of a connection.

use bytes::Bytes;

use super::{Proof, Request, RsaKey, Unverified};
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    host: &'static str,
    path: String,
    file: &'static str,
}

/// The longest accepted path of a key's address, in bytes. The paths that providers use have about
/// sixty.
const LONGEST_PATH: usize = 200;

impl Address {
    /// Creates an address, or returns `None` if a request could abuse `path` to reach another file. The
    /// segments may have letters, digits, `-`, `_` and `.`, and must not begin with a dot. The parameter
    /// `file` is the value of [`file`](Self::file).
    pub(super) fn new(host: &'static str, path: &str, file: &'static str) -> Option<Self> {
        let is_plain = |segment: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !segment.is_empty() && !segment.starts_with('.') && segment.bytes().all(is_allowed)
        };
        let is_path = path.len() <= LONGEST_PATH && path.strip_prefix('/').is_some_and(|p| p.split('/').all(is_plain));
        is_path.then(|| Self { host, path: path.to_owned(), file })
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the name of a command-line option, such as `cert_file`. The option gives a local file to
    /// use instead of fetching the key.
    pub fn file(&self) -> &'static str {
        self.file
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "https://{}{}", self.host, self.path)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Uncertified {
    #[error("it is not a certificate with an RSA key")]
    Unreadable,
    #[error("it has expired, or is not valid yet")]
    Expired,
    #[error("it was issued for another name")]
    Name,
    #[error("no trusted authority issued it")]
    Issuer,
}

pub trait Keys: Send + Sync {
    fn find(&self, at: &Address) -> Option<Bytes>;

    /// Returns the key of the first certificate in `pem`. That certificate must be issued for one of
    /// `names`, be valid at `now`, and chain to a trusted authority. The certificates after it in `pem`
    /// may be part of the chain.
    fn certified(&self, pem: &[u8], names: &[&'static str], now: Timestamp) -> Result<RsaKey, Uncertified>;
}

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

pub trait Published: Send + Sync {
    /// Returns the name of the source's option for the recipient's id, such as `webhook_id`. The provider
    /// signs for all its customers with the same key, so a webhook must name this recipient. `None` if
    /// the provider's signatures name no recipient.
    fn recipient(&self) -> Option<&'static str>;

    fn verify(
        &self,
        request: Request<'_>,
        recipients: &[String],
        keys: &dyn Keys,
        now: Timestamp,
    ) -> Result<Proof, Unverified>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_url_with_ambiguous_path_is_refused() {
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
