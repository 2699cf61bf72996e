//! Verifies a secret that the request itself holds: in the query of the URL, in a header, or as the user name and
//! password of Basic authentication.
//!
//! The secret is compared with every configured secret, in constant time. A match proves that the
//! sender knows the secret. It proves nothing about the body.

use std::borrow::Cow;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::{
    Encoding, Headers, Proof, Secret, Unverified,
    signature::{HmacKey, no_key},
    signing::Text,
};

/// The place of the secret in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenPlace {
    /// The query parameter with this name.
    Query(Text),
    Header {
        /// In lower case.
        name: Text,
        /// The text before the secret, such as `Bearer `.
        prefix: Text,
    },
    /// Basic authentication (RFC 7617). The secret is the user name, a colon and the password.
    Basic,
}

/// The query parameter `token`.
pub(super) const IN_URL: TokenPlace = TokenPlace::Query(Cow::Borrowed("token"));

const AUTHORIZATION: &str = "authorization";
const BASIC: &str = "Basic ";

impl TokenPlace {
    pub(super) fn is_sent(&self, headers: &Headers) -> bool {
        self.sent(headers).is_ok()
    }

    pub(super) fn verify(&self, headers: &Headers, secrets: &[Secret]) -> Result<Proof, Unverified> {
        // Hashes have equal lengths, so the time does not reveal the secret's length.
        let sent = Sha256::digest(&self.sent(headers)?);
        let mut matches = Choice::from(0);
        for secret in secrets.iter().filter(|secret| HmacKey::of(secret).is_some()) {
            matches |= Sha256::digest(secret.expose()).as_slice().ct_eq(sent.as_slice());
        }
        if matches.into() { Ok(Proof::DELIVERY) } else { Err(Unverified::Mismatch) }
    }

    /// Returns why no request can hold `secret`, or `None` if one can.
    pub(super) fn objection(&self, secret: &Secret) -> Option<&'static str> {
        if HmacKey::of(secret).is_none() {
            return Some(no_key(secret));
        }
        match self {
            Self::Query(_) => None,
            Self::Basic if !secret.expose().contains(&b':') => {
                Some("it lacks the colon between user name and password")
            }
            Self::Basic => None,
            Self::Header { .. } => {
                let is_sendable = |secret: &[u8]| {
                    secret.trim_ascii() == secret && secret.iter().all(|byte| (b' '..=b'~').contains(byte))
                };
                (!is_sendable(secret.expose())).then_some("it has characters that a header cannot hold")
            }
        }
    }

    /// Returns the headers with `secret`. Returns none if the URL holds it.
    pub(super) fn headers(&self, secret: &Secret) -> Vec<(String, String)> {
        match self {
            _ if HmacKey::of(secret).is_none() => Vec::new(),
            Self::Query(_) => Vec::new(),
            Self::Header { name, prefix } => {
                secret.text().map(|text| (name.to_string(), format!("{prefix}{text}"))).into_iter().collect()
            }
            Self::Basic => {
                vec![(AUTHORIZATION.to_owned(), format!("{BASIC}{}", Encoding::Base64.encode(secret.expose())))]
            }
        }
    }

    /// Returns the URL's query with `secret`. `None` if a header holds it.
    pub(super) fn query(&self, secret: &Secret) -> Option<String> {
        let Self::Query(name) = self else { return None };
        let mut query = format!("{name}=");
        for byte in secret.expose() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => query.push((*byte).into()),
                _ => query.push_str(&format!("%{byte:02X}")),
            }
        }
        HmacKey::of(secret).map(|_| query)
    }

    fn sent(&self, headers: &Headers) -> Result<Vec<u8>, Unverified> {
        let sent = match self {
            Self::Query(name) => {
                let fields = headers.query().split('&');
                let value = fields.filter_map(|field| field.strip_prefix(&**name)?.strip_prefix('=')).next();
                value.map(unescaped).filter(|value| !value.is_empty()).ok_or(Unverified::NoToken(name.to_string()))?
            }
            Self::Header { name, prefix } => {
                let token = headers.required(name)?.strip_prefix(&**prefix).map(str::trim);
                token.ok_or_else(|| Unverified::malformed(name))?.as_bytes().to_vec()
            }
            Self::Basic => {
                let value = headers.required(AUTHORIZATION)?;
                let scheme = value.get(..BASIC.len()).filter(|scheme| scheme.eq_ignore_ascii_case(BASIC));
                let encoded = scheme.and_then(|scheme| value.get(scheme.len()..));
                let decoded = encoded.and_then(|encoded| Encoding::Base64.decode(encoded.trim()));
                decoded.ok_or_else(|| Unverified::malformed(AUTHORIZATION))?
            }
        };
        Ok(sent)
    }
}

/// Percent-decodes `text`. An invalid escape, such as `%zz`, stays as it is.
pub(crate) fn unescaped(text: impl AsRef<[u8]>) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_ref();
    let mut unescaped = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(bytes.get(at + 1)), digit(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                unescaped.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                unescaped.push(*byte);
                at += 1;
            }
        }
    }
    unescaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::Verified;

    fn checked(query: &str, secrets: &[&str]) -> Result<(), Unverified> {
        let secrets: Vec<Secret> = secrets.iter().copied().map(Secret::new).collect();
        IN_URL.verify(&Headers::default().with_query(query), &secrets).map(|_| ())
    }

    #[test]
    fn url_token_may_be_any_configured_secret() {
        for query in ["token=secret", "a=b&token=secret", "token=secret&token=other", "token=s%65cret"] {
            assert_eq!(checked(query, &["former", "secret"]), Ok(()), "{query}");
        }
        for query in ["token=secre", "token=secrets", "token=other&token=secret", "token=Secret", "token=%"] {
            assert_eq!(checked(query, &["secret"]), Err(Unverified::Mismatch), "{query}");
        }
        for query in ["", "token", "token=", "tokens=secret", "Token=secret", "xtoken=secret"] {
            assert_eq!(checked(query, &["secret"]), Err(Unverified::NoToken("token".into())), "{query}");
        }
    }

    const KEY: TokenPlace = TokenPlace::Header { name: Cow::Borrowed("x-api-key"), prefix: Cow::Borrowed("") };
    const BEARER: TokenPlace =
        TokenPlace::Header { name: Cow::Borrowed(AUTHORIZATION), prefix: Cow::Borrowed("Bearer ") };

    #[test]
    fn token_is_read_from_header_or_basic_authentication() {
        let secrets = ["former:one", "user:secret"].map(Secret::new);
        let of = |place: &TokenPlace, name: &str, value: &str| {
            place.verify(&[(name, value)].into_iter().collect(), &secrets).map(|proof| proof.verified)
        };
        let good = Ok(Verified::Delivery);
        assert_eq!(of(&KEY, "X-Api-Key", "user:secret"), good);
        assert_eq!(of(&BEARER, AUTHORIZATION, "Bearer user:secret"), good);
        for value in ["Basic dXNlcjpzZWNyZXQ=", "basic dXNlcjpzZWNyZXQ", "Basic  Zm9ybWVyOm9uZQ=="] {
            assert_eq!(of(&TokenPlace::Basic, AUTHORIZATION, value), good, "{value}");
        }
        for (place, name, value) in [
            (&KEY, "x-api-key", "user:secre"),
            (&KEY, "x-api-key", ""),
            (&BEARER, AUTHORIZATION, "Bearer user:secret2"),
            (&TokenPlace::Basic, AUTHORIZATION, "Basic dXNlcjpvdGhlcg=="),
        ] {
            assert_eq!(of(place, name, value), Err(Unverified::Mismatch), "{value}");
        }
        for (place, value) in [(&BEARER, "user:secret"), (&TokenPlace::Basic, "Basic"), (&TokenPlace::Basic, "Basic %")]
        {
            assert_eq!(of(place, AUTHORIZATION, value), Err(Unverified::malformed(AUTHORIZATION)), "{value}");
        }
        assert_eq!(of(&KEY, "x-other", "user:secret"), Err(Unverified::Missing("x-api-key".into())));
    }

    #[test]
    fn token_of_each_place_is_accepted_as_made() {
        let secret = Secret::new("user:s%e+cr&t");
        for place in [IN_URL, KEY, BEARER, TokenPlace::Basic] {
            let headers: Headers = place.headers(&secret).into_iter().collect();
            let headers = headers.with_query(place.query(&secret).unwrap_or_default());
            assert!(place.verify(&headers, std::slice::from_ref(&secret)).is_ok(), "{place:?}");
            assert!(place.verify(&headers, &[Secret::new("user:other")]).is_err(), "{place:?}");
            assert!(place.verify(&headers, &[]).is_err() && place.is_sent(&headers), "{place:?}");
            assert_eq!(place.objection(&secret), None);
        }
    }

    #[test]
    fn secret_that_its_place_cannot_hold_is_refused() {
        assert!(TokenPlace::Basic.objection(&Secret::new("secret")).unwrap().contains("colon"));
        for text in [" padded", "l\u{e9}s", "a\n"] {
            assert!(KEY.objection(&Secret::new(text)).unwrap().contains("header"), "{text:?}");
            assert_eq!(IN_URL.objection(&Secret::new(text)), None);
        }
        assert_eq!(KEY.objection(&Secret::new("two words")), None);
        for place in [IN_URL, KEY, TokenPlace::Basic] {
            assert!(place.objection(&Secret::new("")).unwrap().contains("empty"));
        }
    }

    #[test]
    fn secret_round_trips_through_url_query_encoding() {
        for secret in ["plain-1.2_3~", "a b&c=d?e#f%41", "é😀", "%", "%4"] {
            let sent = IN_URL.query(&Secret::new(secret)).unwrap();
            assert!(sent.is_ascii() && !sent.contains([' ', '&', '?', '#']), "{sent}");
            assert_eq!(checked(&sent, &[secret]), Ok(()), "{sent}");
        }
    }

    #[test]
    fn invalid_percent_escape_is_left_unchanged() {
        for (text, expected) in [("%41%4", "A%4"), ("%zz", "%zz"), ("%+f", "%+f"), ("a+b", "a+b"), ("%c3%a9", "é")] {
            assert_eq!(unescaped(text), expected.as_bytes());
        }
    }

    #[test]
    fn binary_url_token_is_compared_as_bytes() {
        let secret = Secret::new("hex:ff00").decoded().unwrap();
        assert_eq!(IN_URL.query(&secret).as_deref(), Some("token=%FF%00"));
        let of = |query: &str| {
            IN_URL.verify(&Headers::default().with_query(query), std::slice::from_ref(&secret)).map(|_| ())
        };
        assert_eq!((of("token=%ff%00"), of("token=%fe%00")), (Ok(()), Err(Unverified::Mismatch)));
    }

    #[test]
    fn debug_output_of_headers_hides_the_query() {
        let headers = [("a", "b")].into_iter().collect::<Headers>().with_query("token=hush");
        assert_eq!(format!("{headers:?}"), r#"{"a": "b"}"#);
    }
}
