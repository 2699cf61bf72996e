//! Public keys that verify providers' signatures, and private keys for samples
//! and tests.

use base64::{Engine, engine::general_purpose::STANDARD};

mod kind;
#[cfg(not(any(test, feature = "public-keys")))]
mod off;
#[cfg(any(test, feature = "public-keys"))]
mod on;

#[cfg(not(any(test, feature = "public-keys")))]
use off as algorithm;
#[cfg(any(test, feature = "public-keys"))]
use on as algorithm;

pub(super) use algorithm::Ed25519;
pub use kind::PublicKeyKind;

/// An RSA public key, which verifies PKCS #1 v1.5 signatures with SHA-256.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RsaKey {
    modulus: Vec<u8>,
    exponent: Vec<u8>,
}

impl RsaKey {
    /// Creates a key from its modulus and its exponent, which are big-endian.
    pub(super) fn of_numbers(modulus: &[u8], exponent: &[u8]) -> Self {
        let without_zeros = |number: &[u8]| number.iter().copied().skip_while(|byte| *byte == 0).collect();
        Self { modulus: without_zeros(modulus), exponent: without_zeros(exponent) }
    }

    /// Parses a DER `SubjectPublicKeyInfo` (RFC 3279), as in certificates and `PUBLIC KEY` files. Returns
    /// `None` for a key that is not RSA.
    pub fn in_info(der: &[u8]) -> Option<Self> {
        /// The DER encoding of RSA's object identifier, 1.2.840.113549.1.1.1, and of its NULL parameters.
        const RSA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
        Self::in_pkcs1(bits_in_info(der, RSA)?)
    }

    fn in_pkcs1(der: &[u8]) -> Option<Self> {
        let (numbers, []) = element(der, SEQUENCE)? else { return None };
        let (modulus, behind) = element(numbers, INTEGER)?;
        let (exponent, []) = element(behind, INTEGER)? else { return None };
        Some(Self::of_numbers(modulus, exponent))
    }

    /// Parses the key in the first PEM block: a `PUBLIC KEY`, `RSA PUBLIC KEY`, `PRIVATE KEY` or `RSA
    /// PRIVATE KEY`. Line breaks in the block may be missing, as in an environment variable.
    pub(super) fn in_pem(pem: &[u8]) -> Option<Self> {
        match first_in_pem(pem)? {
            ("PUBLIC KEY", der) => Self::in_info(&der),
            ("RSA PUBLIC KEY", der) => Self::in_pkcs1(&der),
            (label, der) => Self::in_pkcs1(&algorithm::public_rsa(label, &der)?),
        }
    }

    #[cfg(test)]
    pub(crate) fn numbers(&self) -> (&[u8], &[u8]) {
        (&self.modulus, &self.exponent)
    }

    /// Returns whether `signature` is valid. Keys with less than 2048 bits verify nothing.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        algorithm::rsa_verifies(&self.modulus, &self.exponent, message, signature)
    }
}

/// Returns the bits of the key in a DER `SubjectPublicKeyInfo` (RFC 5280). Returns `None` for a key of another algorithm.
fn bits_in_info<'a>(der: &'a [u8], algorithm: &[u8]) -> Option<&'a [u8]> {
    let (info, []) = element(der, SEQUENCE)? else { return None };
    let (found, behind) = element(info, SEQUENCE)?;
    let (bits, []) = element(behind, BIT_STRING)? else { return None };
    // The leading zero says that the last byte has no unused bits.
    bits.strip_prefix(&[0]).filter(|_| found == algorithm)
}

/// Signs `message` with the private key in `pem`, for samples and tests. Returns `None` if `pem` has no private RSA
/// key.
pub fn sign_by_rsa(pem: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    let (label, der) = first_in_pem(pem)?;
    algorithm::sign_by_rsa(label, &der, message)
}

fn first_in_pem(pem: &[u8]) -> Option<(&str, Vec<u8>)> {
    let (_, rest) = std::str::from_utf8(pem).ok()?.split_once("-----BEGIN ")?;
    let (label, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    Some((label, STANDARD.decode(body.split_whitespace().collect::<String>()).ok()?))
}

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

/// Returns the contents of the DER element at the start of `der`, and the rest of `der` after this
/// element. Returns `None` if the element has another tag than `tag`, or is incomplete.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length, rest) = der.strip_prefix(&[tag])?.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A private key from `openssl genrsa -traditional`. The key is public, so it is only for tests.
    pub(in crate::providers) const PRIVATE: &str = include_str!("tests/rsa-private.pem");
    /// The key in [`PRIVATE`], converted by `openssl pkcs8 -topk8 -nocrypt`.
    const PRIVATE_PKCS8: &str = include_str!("tests/rsa-private-pkcs8.pem");
    /// The public key of [`PRIVATE`], from `openssl rsa -pubout`.
    pub(in crate::providers) const PUBLIC: &str = include_str!("tests/rsa-public.pem");
    /// The public key of [`PRIVATE`], from `openssl rsa -RSAPublicKey_out`.
    const PUBLIC_PKCS1: &str = include_str!("tests/rsa-public-pkcs1.pem");
    /// The signature from `printf body | openssl dgst -sha256 -sign tests/rsa-private.pem | base64`.
    const OF_BODY: &str = include_str!("tests/rsa-of-body.txt");

    #[test]
    fn openssl_signature_verifies_under_every_key_form() {
        let signature = STANDARD.decode(OF_BODY.trim()).unwrap();
        let in_one_line = PUBLIC.replace('\n', " ");
        for pem in [PUBLIC, PUBLIC_PKCS1, PRIVATE, PRIVATE_PKCS8, &in_one_line, &PUBLIC.replace('\n', "")] {
            let key = RsaKey::in_pem(pem.as_bytes()).unwrap();
            assert!(key.verifies(b"body", &signature));
            assert!(!key.verifies(b"Body", &signature));
            assert!(!key.verifies(b"body", &signature[..255]));
            assert!(!key.verifies(b"body", &[]));
        }
        for pem in [PRIVATE, PRIVATE_PKCS8] {
            assert_eq!(sign_by_rsa(pem.as_bytes(), b"body").as_ref(), Some(&signature));
        }
        assert_eq!(sign_by_rsa(PUBLIC.as_bytes(), b"body"), None);
    }

    #[test]
    fn malformed_or_non_rsa_key_is_refused() {
        let ec = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----";
        for text in ["", "secret", ec, &PUBLIC[..200], &PUBLIC.replace("PUBLIC", "SECRET"), &PUBLIC.replace('M', "N")] {
            assert!(RsaKey::in_pem(text.as_bytes()).is_none(), "{text}");
        }
        assert_eq!(RsaKey::in_pem(b"\xff"), None);
        let (_, der) = first_in_pem(PUBLIC.as_bytes()).unwrap();
        for cut in 0..der.len() {
            assert_eq!(RsaKey::in_info(&der[..cut]), None, "{cut}");
        }
        assert_eq!(RsaKey::in_info(&[der.as_slice(), &[0]].concat()), None);
    }

    /// The keys and the signature are those of RFC 8032, section 7.1, test 2.
    #[test]
    fn ed25519_matches_published_vector() {
        let hex = |text| super::super::Encoding::Hex.decode(text).unwrap();
        let seed = hex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
        let public = hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let expected = hex("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
                            085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
        let both = [seed.clone(), public.clone()].concat();
        for key in [&seed, &both] {
            assert_eq!(Ed25519::private(key).unwrap().sign(&[0x72]).as_deref(), Some(&expected[..]));
        }
        let public = Ed25519::public(public).unwrap();
        assert!(public.verifies(&[0x72], &expected) && !public.verifies(&[0x73], &expected));
        assert_eq!(public.sign(&[0x72]), None);
        assert!(Ed25519::private(&[seed.clone(), seed.clone()].concat()).is_none(), "halves of different keys");
        assert!(Ed25519::private(&seed[1..]).is_none() && Ed25519::public(seed[1..].to_vec()).is_none());
    }

    proptest! {
        #[test]
        fn public_key_parsers_never_panic(der in any::<Vec<u8>>(), text in any::<String>()) {
            let pem = |label: &str| format!("-----BEGIN {label}-----\n{}\n-----END {label}-----", STANDARD.encode(&der));
            for text in [text.clone(), pem("PUBLIC KEY"), pem("RSA PUBLIC KEY"), pem("PRIVATE KEY"), pem("RSA PRIVATE KEY")] {
                if let Some(key) = RsaKey::in_pem(text.as_bytes()) {
                    key.verifies(&der, &der);
                }
            }
            RsaKey::of_numbers(&der, text.as_bytes()).verifies(&der, &der);
            let _ = (Ed25519::private(&der), element(&der, SEQUENCE));
        }
    }
}
