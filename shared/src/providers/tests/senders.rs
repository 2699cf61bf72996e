//! Providers that publish their key, combined with a private key, so that the shared test
//! cases can sign for them.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;

use crate::{
    providers::{
        Address, Described, Encoding, Headers, Keys, Proof, Provider, Request, RsaKey, Secret, Uncertified, Unverified,
        paypal::crc32, public_key::sign_by_rsa, tests::rows::NOW,
    },
    time::Timestamp,
};

#[derive(Debug)]
pub struct ProviderSender(pub &'static dyn Provider);

const WEBHOOK_ID: &str = "ours";

struct PublishedKey(RsaKey);

impl Keys for PublishedKey {
    fn find(&self, at: &Address) -> Option<Bytes> {
        let (modulus, exponent) = self.0.numbers();
        let [n, e] = [modulus, exponent].map(|number| URL_SAFE_NO_PAD.encode(number));
        let set = serde_json::json!({ "keys": [{ "kid": "own", "kty": "RSA", "n": n, "e": e }] });
        // `certified` ignores the content of a certificate.
        Some(if at.file() == "jwks_file" { set.to_string().into() } else { Bytes::new() })
    }

    fn certified(&self, _: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        Ok(self.0.clone())
    }
}

impl Provider for ProviderSender {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        RsaKey::in_pem(secret.expose()).is_none().then_some("it is no key")
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        let published = self.0.published().expect("it publishes its keys");
        let by = |key| published.verify(request, &[WEBHOOK_ID.to_owned()], &PublishedKey(key), NOW);
        let keys = secrets.iter().filter_map(|secret| RsaKey::in_pem(secret.expose()));
        let refused = by(RsaKey::of_numbers(&[1], &[3]));
        keys.map(by).find(|verified| *verified != Err(Unverified::Mismatch)).unwrap_or(refused)
    }

    fn describe(&self, request: Request<'_>) -> Described {
        self.0.describe(request)
    }

    fn sign(&self, _: &Headers, body: &[u8], secret: &Secret, now: Timestamp) -> Vec<(String, String)> {
        let time = now.to_string();
        let crc = crc32(body);
        let (message, headers): (Vec<u8>, &[(&str, &str)]) = match self.0.published().and_then(|own| own.recipient()) {
            Some("webhook_id") => (
                format!("own|{time}|{WEBHOOK_ID}|{crc}").into_bytes(),
                &[
                    ("paypal-transmission-id", "own"),
                    ("paypal-transmission-time", &time),
                    ("paypal-cert-url", "https://api.paypal.com/v1/notifications/certs/CERT-1"),
                    ("paypal-transmission-sig", ""),
                ],
            ),
            None => (
                [time.as_bytes(), b".", body].concat(),
                &[
                    ("x-shipengine-rsa-sha256-key-id", "own"),
                    ("x-shipengine-timestamp", &time),
                    ("x-shipengine-rsa-sha256-signature", ""),
                ],
            ),
            other => unreachable!("{other:?}"),
        };
        let Some(signature) = sign_by_rsa(secret.expose(), &message) else { return Vec::new() };
        let signature = Encoding::Base64.encode(&signature);
        let value = |value: &str| if value.is_empty() { signature.clone() } else { value.to_owned() };
        headers.iter().map(|(name, text)| ((*name).to_owned(), value(text))).collect()
    }
}
