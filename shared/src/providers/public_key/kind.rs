//! The kinds of public keys that `generic` takes, in each form in which senders show them.

use serde::Deserialize;

use super::{Ed25519, RsaKey, algorithm, bits_in_info, first_in_pem, sign_by_rsa};
use crate::providers::{Encoding, Secret, Unverified};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublicKeyKind {
    Ed25519,
    /// ECDSA on the curve P-256, over a SHA-256.
    EcdsaP256,
    /// PKCS #1 v1.5, over a SHA-256.
    Rsa,
}

pub(in crate::providers) enum PublicKey {
    Ed25519(Ed25519),
    /// A point in SEC 1's uncompressed form.
    EcdsaP256(Vec<u8>),
    Rsa(RsaKey),
}

/// The maximum number of signatures of a request that are tried. Each try costs a pass over the body.
const MOST_TRIED: usize = 4;

/// The DER encodings of the algorithms in a `SubjectPublicKeyInfo`, by RFC 8410 and RFC 5480.
const ED25519: &[u8] = b"\x06\x03\x2b\x65\x70";
const P256: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";

impl PublicKeyKind {
    /// Reads a key of this kind. The secret is PEM, or the key's DER or bare bytes in base64 or hexadecimal. Samples and
    /// tests have private keys in PEM. Of such a key, this returns the public key.
    pub(in crate::providers) fn read(self, secret: &Secret) -> Option<PublicKey> {
        let text = secret.text().map(str::trim);
        if let Some(pem) = text.filter(|text| text.starts_with("-----BEGIN ")) {
            return self.in_pem(pem.as_bytes());
        }
        match text {
            Some(text) => [Encoding::Hex, Encoding::Base64].iter().find_map(|form| self.in_bytes(&form.decode(text)?)),
            None => self.in_bytes(secret.expose()),
        }
    }

    fn in_pem(self, pem: &[u8]) -> Option<PublicKey> {
        let (label, der) = first_in_pem(pem)?;
        match (self, label) {
            (Self::Rsa, _) => RsaKey::in_pem(pem).map(PublicKey::Rsa),
            (_, "PUBLIC KEY") => self.in_bytes(&der),
            (Self::Ed25519, "PRIVATE KEY") => Ed25519::in_pkcs8(&der).map(PublicKey::Ed25519),
            (Self::EcdsaP256, "PRIVATE KEY") => algorithm::public_p256(&der).map(PublicKey::EcdsaP256),
            _ => None,
        }
    }

    fn in_bytes(self, bytes: &[u8]) -> Option<PublicKey> {
        match self {
            Self::Rsa => RsaKey::in_info(bytes).map(PublicKey::Rsa),
            Self::Ed25519 => {
                Ed25519::public(bits_in_info(bytes, ED25519).unwrap_or(bytes).to_vec()).map(PublicKey::Ed25519)
            }
            Self::EcdsaP256 => {
                let point = bits_in_info(bytes, P256).unwrap_or(bytes);
                (point.len() == 65 && point[0] == 4).then(|| PublicKey::EcdsaP256(point.to_vec()))
            }
        }
    }

    /// Returns what is wrong with a secret that [`read`](Self::read) cannot read.
    pub(in crate::providers) fn objection(self) -> &'static str {
        match self {
            Self::Ed25519 => "it is no Ed25519 public key, in PEM, base64 or hexadecimal",
            Self::EcdsaP256 => "it is no public key of the curve P-256, in PEM, base64 or hexadecimal",
            Self::Rsa => "it is no RSA public key, in PEM or base64",
        }
    }

    /// Verifies that one of `claimed` is a signature of `message` by one of `keys`.
    pub(in crate::providers) fn check(
        self,
        keys: &[PublicKey],
        message: &[u8],
        claimed: &[Vec<u8>],
    ) -> Result<(), Unverified> {
        let mut tried = claimed.iter().take(MOST_TRIED);
        let is_valid = tried.any(|signature| keys.iter().any(|key| key.verifies(message, signature)));
        if is_valid { Ok(()) } else { Err(Unverified::Mismatch) }
    }

    /// Signs `message` with the private key in `secret`, for samples and tests. Returns `None` for a public key.
    pub(in crate::providers) fn sign(self, secret: &Secret, message: &[u8]) -> Option<Vec<u8>> {
        let pem = secret.expose();
        let pkcs8 = || first_in_pem(pem).filter(|(label, _)| *label == "PRIVATE KEY");
        match self {
            Self::Rsa => sign_by_rsa(pem, message),
            Self::Ed25519 => Ed25519::in_pkcs8(&pkcs8()?.1)?.sign(message),
            Self::EcdsaP256 => algorithm::sign_by_p256(&pkcs8()?.1, message),
        }
    }
}

impl PublicKey {
    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Ed25519(key) => key.verifies(message, signature),
            Self::EcdsaP256(point) => algorithm::p256_verifies(point, message, signature),
            Self::Rsa(key) => key.verifies(message, signature),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests as rsa, *};
    use crate::providers::{Generic, Provider, Verified, tests::verify};

    /// Keys from `openssl genpkey`, and their public keys from `openssl pkey -pubout`. The keys are public, so they are
    /// only for tests.
    const P256_PRIVATE: &str = include_str!("../tests/p256-private.pem");
    const P256_PUBLIC: &str = include_str!("../tests/p256-public.pem");
    const ED25519_PRIVATE: &str = include_str!("../tests/ed25519-private.pem");
    const ED25519_PUBLIC: &str = include_str!("../tests/ed25519-public.pem");
    /// Signatures of `body`, from `openssl dgst -sha256 -sign` and `openssl pkeyutl -sign -rawin`.
    const BY_P256: &str =
        "MEQCIHOdkIKGoFcX4GA4jkaibdwDTaYEwgArhLDBexhYqts6AiBxS0jkolfKLhDU9dhdgE1yrMo7wHfprL7TCMWgivkfVw==";
    const BY_ED25519: &str = "z83BPnSeLthQpRFmq8EaqqES0bgzdW5ic4lkn25hBiJk1NkirzsUFpnV9pgmRtAGxu6J+WXLt0BtFxxIzbAiBQ==";
    const BY_RSA: &str = include_str!("../tests/rsa-of-body.txt");

    const KINDS: [(PublicKeyKind, &str, &str, &str); 3] = [
        (PublicKeyKind::Ed25519, ED25519_PRIVATE, ED25519_PUBLIC, BY_ED25519),
        (PublicKeyKind::EcdsaP256, P256_PRIVATE, P256_PUBLIC, BY_P256),
        (PublicKeyKind::Rsa, rsa::PRIVATE, rsa::PUBLIC, BY_RSA),
    ];

    fn der(pem: &str) -> Vec<u8> {
        first_in_pem(pem.as_bytes()).expect("a key").1
    }

    /// Returns the forms in which senders show a public key of this kind.
    fn forms(kind: PublicKeyKind, public: &str) -> Vec<String> {
        let der = der(public);
        let mut forms = vec![public.to_owned(), public.replace('\n', " "), Encoding::Base64.encode(&der)];
        if kind != PublicKeyKind::Rsa {
            let algorithm = if kind == PublicKeyKind::Ed25519 { ED25519 } else { P256 };
            let bare = bits_in_info(&der, algorithm).expect("its bits");
            forms.extend([Encoding::Hex, Encoding::Base64].map(|form| form.encode(bare)));
        }
        forms
    }

    /// Promise: `generic` verifies signatures of Ed25519, ECDSA and RSA keys.
    #[test]
    fn openssl_signatures_verify_under_every_form_of_their_key() {
        for (kind, private, public, signature) in KINDS {
            let signature = Encoding::Base64.decode(signature.trim()).unwrap();
            for form in forms(kind, public).into_iter().chain([private.to_owned()]) {
                let keys = [kind.read(&Secret::new(form.as_str())).unwrap_or_else(|| panic!("{kind:?}: {form}"))];
                assert_eq!(kind.check(&keys, b"body", std::slice::from_ref(&signature)), Ok(()), "{form}");
                assert!(kind.check(&keys, b"Body", std::slice::from_ref(&signature)).is_err(), "{form}");
                assert!(kind.check(&keys, b"body", &[Vec::new()]).is_err(), "{form}");
            }
            let own = kind.sign(&Secret::new(private), b"text").unwrap();
            let keys = [kind.read(&Secret::new(public)).unwrap()];
            assert_eq!(kind.check(&keys, b"text", std::slice::from_ref(&own)), Ok(()));
            let late = [vec![signature; MOST_TRIED], vec![own]].concat();
            assert_eq!(kind.check(&keys, b"text", &late), Err(Unverified::Mismatch), "too many signatures");
            assert_eq!(kind.sign(&Secret::new(public), b"text"), None);
        }
    }

    #[test]
    fn key_of_another_kind_or_form_is_refused() {
        for (kind, ..) in KINDS {
            for (other, private, public, _) in KINDS {
                for secret in [private, public, &Encoding::Base64.encode(&der(public))] {
                    assert_eq!(kind.read(&Secret::new(secret)).is_some(), kind == other, "{kind:?} {secret}");
                }
            }
            for secret in ["", "secret", "-----BEGIN PUBLIC KEY-----", &P256_PUBLIC[..100]] {
                assert!(kind.read(&Secret::new(secret)).is_none(), "{kind:?} {secret:?}");
            }
        }
    }

    /// A P-256 signature of a browser or of Java may be the two numbers, without DER.
    #[test]
    fn p256_signature_of_two_numbers_is_accepted() {
        let der = PublicKeyKind::EcdsaP256.sign(&Secret::new(P256_PRIVATE), b"body").unwrap();
        let (numbers, []) = super::super::element(&der, super::super::SEQUENCE).unwrap() else { panic!() };
        let (first, behind) = super::super::element(numbers, super::super::INTEGER).unwrap();
        let (second, _) = super::super::element(behind, super::super::INTEGER).unwrap();
        let fixed: Vec<u8> = [first, second]
            .into_iter()
            .flat_map(|number| {
                let digits = number.strip_prefix(&[0]).unwrap_or(number);
                [vec![0; 32 - digits.len()], digits.to_vec()].concat()
            })
            .collect();
        let keys = [PublicKeyKind::EcdsaP256.read(&Secret::new(P256_PUBLIC)).unwrap()];
        assert_eq!(PublicKeyKind::EcdsaP256.check(&keys, b"body", &[fixed]), Ok(()));
    }

    /// The key, the signature and the payload are those in the tests of SendGrid's library for Python.
    #[test]
    fn published_signature_of_sendgrid_is_accepted() {
        let generic: Generic = toml::from_str(
            r#"header = "x-twilio-email-event-webhook-signature"
            public_key = "ecdsa-p256"
            encoding = "base64"
            signed = "{timestamp}{body}"
            timestamp_header = "x-twilio-email-event-webhook-timestamp""#,
        )
        .unwrap();
        let key = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
        let headers = [
            (
                "x-twilio-email-event-webhook-signature",
                "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM=",
            ),
            ("x-twilio-email-event-webhook-timestamp", "1600112502"),
        ];
        let body = concat!(
            r#"[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address","#,
            r#""sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA","#,
            r#""sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0","#,
            r#""smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>","timestamp":1600112492}]"#,
            "\r\n"
        )
        .as_bytes();
        assert_eq!(verify(&generic, &headers, body, &[key], 1_600_112_502), Ok(Verified::Delivery));
        assert_eq!(verify(&generic, &headers, &body[1..], &[key], 1_600_112_502), Err(Unverified::Mismatch));
        assert_eq!(verify(&generic, &headers, body, &[P256_PUBLIC, key], 1_600_112_502), Ok(Verified::Delivery));
        assert!(generic.objection(&Secret::new(key)).is_none());
        assert_eq!(generic.objection(&Secret::new("secret")), Some(PublicKeyKind::EcdsaP256.objection()));
    }
}
