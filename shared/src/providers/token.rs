//! Verifies the secret in the query of the URL that the provider calls, `?token=…`.
//!
//! The secret is compared with every configured secret, in constant time. A match proves that the
//! sender knows the URL. It proves nothing about the body.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::{Headers, Secret, Unverified, signature::HmacKey};

const NAME: &str = "token";

pub(super) fn is_sent(headers: &Headers) -> bool {
    sent(headers).is_some()
}

pub(super) fn check(headers: &Headers, secrets: &[Secret]) -> Result<(), Unverified> {
    let sent = sent(headers).ok_or(Unverified::NoToken)?;
    // Hashes have equal lengths, so the time does not reveal the secret's length.
    let sent = Sha256::digest(&sent);
    let mut matches = Choice::from(0);
    for secret in secrets.iter().filter(|secret| HmacKey::of(secret).is_some()) {
        matches |= Sha256::digest(secret.expose()).as_slice().ct_eq(sent.as_slice());
    }
    if matches.into() { Ok(()) } else { Err(Unverified::Mismatch) }
}

pub(super) fn query(secret: &Secret) -> Option<String> {
    let mut query = format!("{NAME}=");
    for byte in secret.expose() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => query.push((*byte).into()),
            _ => query.push_str(&format!("%{byte:02X}")),
        }
    }
    HmacKey::of(secret).map(|_| query)
}

fn sent(headers: &Headers) -> Option<Vec<u8>> {
    let value = headers.query().split('&').find_map(|field| field.strip_prefix(NAME)?.strip_prefix('='))?;
    Some(unescaped(value)).filter(|value| !value.is_empty())
}

/// Percent-decodes `text`. An invalid escape, such as `%zz`, stays as it is.
pub(crate) fn unescaped(text: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
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

    fn checked(query: &str, secrets: &[&str]) -> Result<(), Unverified> {
        let secrets: Vec<Secret> = secrets.iter().copied().map(Secret::new).collect();
        check(&Headers::default().with_query(query), &secrets)
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
            assert_eq!(checked(query, &["secret"]), Err(Unverified::NoToken), "{query}");
        }
    }

    #[test]
    fn secret_round_trips_through_url_query_encoding() {
        for secret in ["plain-1.2_3~", "a b&c=d?e#f%41", "é😀", "%", "%4"] {
            let sent = query(&Secret::new(secret)).unwrap();
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
        assert_eq!(query(&secret).as_deref(), Some("token=%FF%00"));
        let of = |query: &str| check(&Headers::default().with_query(query), std::slice::from_ref(&secret));
        assert_eq!((of("token=%ff%00"), of("token=%fe%00")), (Ok(()), Err(Unverified::Mismatch)));
    }

    #[test]
    fn debug_output_of_headers_hides_the_query() {
        let headers = [("a", "b")].into_iter().collect::<Headers>().with_query("token=hush");
        assert_eq!(format!("{headers:?}"), r#"{"a": "b"}"#);
    }
}
