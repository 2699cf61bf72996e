//! A proxy in front of the ingest function, such as CloudFront with a firewall. The proxy sends a secret
//! in a header, so that requests which bypass the proxy are refused.

use std::fmt;

use subtle::ConstantTimeEq;

use super::reference::{FieldForm::OneOrMore, ORIGIN_SECRET, document_table};
use super::table::one_or_more;

#[cfg(any(test, feature = "verify"))]
use crate::providers::Secret;

pub const HEADER: &str = "x-origin-secret";

/// The minimum length of a proxy's secret, in bytes. A shorter secret could be guessed.
const SHORTEST: usize = 32;

/// The accepted secrets of the proxy in front of the ingest function. A request must carry one of them, and one
/// that a forger cannot guess. An empty list admits every request.
#[derive(Clone, Default)]
pub struct Origin(Vec<String>);

document_table! {
    /// For webhooks that come through your own proxy, such as [CloudFront](deploying.md#cloudfront-and-waf-in-front).
    /// Without this table, requests need not come through a proxy.
    #[table("[origin]")]
    pub(super) struct OriginEntry {
        /// The value of the header `x-origin-secret` that the proxy sends, at least 32 characters. A request without it
        /// is answered 403. During a rotation, give the old and the new one.
        #[field(
            OneOrMore(ORIGIN_SECRET),
            required,
            example(toml r#"["0123456789-0123456789-0123456789-new", "0123456789-0123456789-0123456789-old"]"#)
        )]
        secret: OriginSecrets,
    }
}

one_or_more!(OriginSecrets(String), "a secret is a text; several secrets, during a rotation, are a list of texts");

impl Origin {
    pub(super) fn check(entry: OriginEntry) -> Result<Self, String> {
        let secrets = Vec::from(entry.secret);
        if secrets.is_empty() {
            return Err("`origin` must have a secret".into());
        }
        if secrets.iter().any(|secret| secret.len() < SHORTEST) {
            return Err(format!("`origin`: each secret must have at least {SHORTEST} characters"));
        }
        Ok(Self(secrets))
    }

    pub(super) fn first(&self) -> Option<&str> {
        self.0.first().map(String::as_str)
    }

    /// Returns whether a request came through the proxy. The parameter `sent` is the value of [`HEADER`]. The
    /// comparison takes constant time.
    #[cfg(any(test, feature = "verify"))]
    pub(crate) fn admits(&self, sent: Option<&str>) -> bool {
        let sent = sent.unwrap_or_default().as_bytes();
        let mut usable = self.0.iter().filter(|secret| Secret::new(*secret).guessable().is_none());
        self.0.is_empty() || usable.any(|secret| bool::from(secret.as_bytes().ct_eq(sent)))
    }

    /// Returns why a forger can guess one of the secrets. Such a secret admits no request.
    #[cfg(any(test, feature = "verify"))]
    pub fn guessable(&self) -> Option<&'static str> {
        self.0.iter().find_map(|secret| Secret::new(secret).guessable())
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Origin({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "0123456789-0123456789-0123456789-new";
    const OLD: &str = "0123456789-0123456789-0123456789-old";

    fn origin(secrets: &[&str]) -> Result<Origin, String> {
        Origin::check(OriginEntry {
            secret: OriginSecrets::Several(secrets.iter().map(|&secret| secret.to_owned()).collect()),
        })
    }

    #[test]
    fn request_without_matching_origin_secret_is_refused() {
        let origin = origin(&[NEW, OLD]).unwrap();
        for (sent, is_admitted) in
            [(Some(NEW), true), (Some(OLD), true), (Some("x"), false), (Some(""), false), (None, false)]
        {
            assert_eq!(origin.admits(sent), is_admitted, "{sent:?}");
        }
        assert!(!format!("{origin:?}").contains(NEW));
        assert!(Origin::default().admits(None), "nothing stands in front");
    }

    #[test]
    fn guessable_origin_secret_admits_no_request() {
        for guessed in
            ["{{resolve:secretsmanager:origin:SecretString}}", "replace-me-with-your-webhook-signing-secret-0000"]
        {
            let origin = origin(&[guessed, NEW]).unwrap();
            assert!(origin.guessable().is_some(), "{guessed}");
            assert!(!origin.admits(Some(guessed)), "{guessed}");
            assert!(origin.admits(Some(NEW)));
        }
    }

    #[test]
    fn missing_or_short_origin_secret_is_refused() {
        assert_eq!(origin(&[]).unwrap_err(), "`origin` must have a secret");
        assert_eq!(origin(&[NEW, "short"]).unwrap_err(), "`origin`: each secret must have at least 32 characters");
    }
}
