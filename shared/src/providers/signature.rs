//! HMACs and their comparison, shared by the providers.
//!
//! A signature is compared with the HMAC under every configured key, in constant time, even after
//! one key has matched. So the time that this takes reveals neither bytes of the HMAC nor which key
//! matched. An empty secret never becomes a [`HmacKey`], so no signature is valid under it.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use subtle::{Choice, ConstantTimeEq};

use super::{Secret, Unverified};
use crate::time::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashName {
    /// SHA-1 is broken as a hash, but not in an HMAC. Older senders use it.
    Sha1,
    Sha256,
    Sha512,
}

impl HashName {
    pub(super) fn hmac(self, key: &HmacKey, parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha1 => hmac_with::<Hmac<Sha1>>(key, parts),
            Self::Sha256 => hmac_with::<Hmac<Sha256>>(key, parts),
            Self::Sha512 => hmac_with::<Hmac<Sha512>>(key, parts),
        }
    }
}

/// Returns the HMAC-SHA256 of a message under each of `keys`. The message comes in pieces.
pub(super) fn hmacs_of_pieces(keys: &[HmacKey], pieces: impl Iterator<Item = Bytes>) -> Vec<Vec<u8>> {
    let new =
        |key: &HmacKey| <Hmac<Sha256> as KeyInit>::new_from_slice(&key.0).expect("an HMAC takes keys of any length");
    let mut macs: Vec<_> = keys.iter().map(new).collect();
    pieces.for_each(|piece| macs.iter_mut().for_each(|mac| mac.update(&piece)));
    macs.into_iter().map(|mac| mac.finalize().into_bytes().to_vec()).collect()
}

fn hmac_with<M: Mac + KeyInit>(key: &HmacKey, parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(&key.0).expect("an HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    Hex,
    /// Base64, in the standard or the URL-safe alphabet, with or without padding.
    Base64,
}

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Encoding {
    pub(super) fn decode(self, text: &str) -> Option<Vec<u8>> {
        let bytes = match self {
            Self::Hex => {
                let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
                let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
                digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
            }
            Self::Base64 => LENIENT.decode(text.replace('-', "+").replace('_', "/")).ok()?,
        };
        Some(bytes).filter(|bytes| !bytes.is_empty())
    }

    pub(super) fn read(self, name: &str, value: &str) -> Result<Vec<u8>, Unverified> {
        self.decode(value.trim()).ok_or_else(|| Unverified::malformed(name))
    }

    pub(super) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            Self::Base64 => STANDARD.encode(bytes),
        }
    }
}

#[derive(Clone)]
pub(super) struct HmacKey(Vec<u8>);

/// Returns why no HMAC key can be made of `secret`.
pub(super) fn no_key(secret: &Secret) -> &'static str {
    match secret.expose() {
        [] => "it is empty",
        [0, ..] => "it consists of zeros, and HMAC takes such a key for an empty one",
        _ => "it holds no key",
    }
}

/// Returns why `secret` cannot be an HMAC key, or `None` if it can. A secret that begins with one of
/// `prefixes` is a credential of another kind, as the parameter `reason` says.
pub(super) fn objection(secret: &Secret, prefixes: &[&str], reason: &'static str) -> Option<&'static str> {
    if prefixes.iter().any(|prefix| secret.expose().starts_with(prefix.as_bytes())) {
        return Some(reason);
    }
    HmacKey::of(secret).is_none().then(|| no_key(secret))
}

impl HmacKey {
    pub(super) fn of(secret: &Secret) -> Option<Self> {
        Self::new(secret.expose())
    }

    /// Creates a key, or returns `None` if `bytes` are empty or all zeros. HMAC pads keys with zeros, so a
    /// key of zeros equals an empty key.
    pub(super) fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        Some(bytes.into()).filter(|bytes| bytes.iter().any(|byte| *byte != 0)).map(Self)
    }
}

/// Verifies that one of the signatures in `claimed` is the HMAC of `parts` under one of `keys`. The
/// time taken does not reveal which key matched.
pub(super) fn check(
    hash: HashName,
    keys: impl Iterator<Item = HmacKey>,
    parts: &[&[u8]],
    claimed: &[Vec<u8>],
) -> Result<(), Unverified> {
    let mut matches = Choice::from(0);
    for key in keys {
        let expected = hash.hmac(&key, parts);
        for signature in claimed {
            matches |= expected.ct_eq(signature);
        }
    }
    if matches.into() { Ok(()) } else { Err(Unverified::Mismatch) }
}

/// Parses whole seconds since the Unix epoch. Signs and spaces are refused.
pub(super) fn seconds(text: &str) -> Option<Timestamp> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).map(Timestamp::from_secs)
}

pub(super) fn seconds_text(time: Timestamp) -> String {
    (time.as_millis() / 1000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors are test case 2 of RFC 4231 for SHA-2, and the same input in RFC 2202 for SHA-1.
    #[test]
    fn hmac_matches_published_vectors() {
        let key = HmacKey::new("Jefe").unwrap();
        let hex = |hash: HashName| Encoding::Hex.encode(&hash.hmac(&key, &[b"what do ya want ", b"for nothing?"]));
        assert_eq!(hex(HashName::Sha1), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        assert_eq!(hex(HashName::Sha256), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert_eq!(
            hex(HashName::Sha512),
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
             9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"
        );
    }

    #[test]
    fn empty_or_all_zero_key_is_refused() {
        assert!(HmacKey::new("").is_none());
        assert!(HmacKey::new("\0\0").is_none());
        assert!(HmacKey::new("\0a").is_some());
    }

    #[test]
    fn hexadecimal_is_decoded_in_either_case() {
        assert_eq!(Encoding::Hex.decode("00fFA0"), Some(vec![0, 0xff, 0xa0]));
        for text in ["", "0", "0g", "é0", "+1"] {
            assert_eq!(Encoding::Hex.decode(text), None, "{text:?}");
        }
    }

    #[test]
    fn base64_is_decoded_with_or_without_padding() {
        for text in ["+/8=", "+/8", "-_8=", "-_8"] {
            assert_eq!(Encoding::Base64.decode(text), Some(vec![0xfb, 0xff]), "{text:?}");
        }
        for text in ["", "=", "a", "+/8 =", "é"] {
            assert_eq!(Encoding::Base64.decode(text), None, "{text:?}");
        }
    }

    #[test]
    fn timestamp_seconds_must_be_digits() {
        assert_eq!(seconds("1614265330"), Some(Timestamp::from_secs(1_614_265_330)));
        for text in ["", "+1", "-1", "1.0", " 1", "99999999999999999999"] {
            assert_eq!(seconds(text), None, "{text:?}");
        }
    }
}
