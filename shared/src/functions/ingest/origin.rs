//! A shared secret that proves that a request came through the proxy in front of the
//! function, such as CloudFront with a firewall.

use std::fmt;

use subtle::ConstantTimeEq;

use super::Request;
use crate::config::{InvalidConfig, Variables};

/// The header that the proxy adds to every request.
const HEADER: &str = "x-origin-secret";

/// Shorter ones could be guessed.
const SHORTEST: usize = 32;

/// The accepted values of the header. None by default, for no proxy.
#[derive(Clone, Default)]
pub struct Origin(Vec<String>);

impl Origin {
    /// Reads `ORIGIN_SECRET`: one value, or two with a comma between them while it is
    /// changed. Without it, every request is accepted.
    ///
    /// # Errors
    ///
    /// It holds no value, or one shorter than 32 bytes.
    pub fn read(variables: &impl Variables) -> Result<Self, InvalidConfig> {
        let text = variables.value("ORIGIN_SECRET").unwrap_or_default();
        let secrets: Vec<_> = text.split(',').filter(|secret| !secret.is_empty()).map(str::to_owned).collect();
        if secrets.is_empty() && !text.is_empty() {
            return Err(InvalidConfig::new("ORIGIN_SECRET", "is set, and holds no secret"));
        }
        if secrets.iter().any(|secret| secret.len() < SHORTEST) {
            return Err(InvalidConfig::new("ORIGIN_SECRET", format!("has fewer than {SHORTEST} characters")));
        }
        Ok(Self(secrets))
    }

    /// Returns whether the request came through the proxy. Compares in constant time.
    pub(super) fn admits(&self, request: &Request) -> bool {
        let sent = request.headers.get(HEADER).map(String::as_bytes).unwrap_or_default();
        let fits = |secret: &String| bool::from(secret.as_bytes().ct_eq(sent));
        self.0.is_empty() || self.0.iter().any(fits)
    }
}

/// Omits the values.
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

    fn origin(secrets: &str) -> Result<Origin, InvalidConfig> {
        Origin::read(&[("ORIGIN_SECRET", secrets)].as_slice())
    }

    fn request(secret: Option<&str>) -> Request {
        let headers = secret.map(|secret| (HEADER.to_owned(), secret.to_owned()));
        Request { headers: headers.into_iter().collect(), ..Request::default() }
    }

    #[test]
    fn bypassed_proxy_is_detected_and_both_secrets_accepted() {
        let origin = origin(&format!("{NEW},{OLD}")).unwrap();
        for (sent, is_admitted) in
            [(Some(NEW), true), (Some(OLD), true), (Some("x"), false), (Some(""), false), (None, false)]
        {
            assert_eq!(origin.admits(&request(sent)), is_admitted, "{sent:?}");
        }
        assert!(!format!("{origin:?}").contains(NEW));
    }

    #[test]
    fn every_request_passes_without_origin_secret() {
        assert!(origin("").unwrap().admits(&request(None)));
    }

    #[test]
    fn origin_secret_of_commas_is_refused() {
        for secrets in [",", ",,"] {
            let refused = origin(secrets).unwrap_err().to_string();
            assert_eq!(refused, "ORIGIN_SECRET: is set, and holds no secret");
        }
    }

    #[test]
    fn short_origin_secret_is_refused() {
        let refused = origin(&format!("{NEW},short")).unwrap_err().to_string();
        assert_eq!(refused, "ORIGIN_SECRET: has fewer than 32 characters");
    }
}
