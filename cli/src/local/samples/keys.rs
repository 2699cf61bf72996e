//! The keys with which the samples of some providers are signed. Everybody knows the private key, so only a local
//! ingest accepts these keys.

use axum::body::Bytes;
use base64::{Engine, engine::general_purpose::STANDARD};
use webhook_serializer::{
    functions::ingest::keys::key_in_certificate,
    providers::{Address, Keys, RsaKey, Uncertified, crc32, sign_by_rsa},
    sources::Source,
    time::Timestamp,
};

#[derive(Debug, Clone, Copy)]
pub struct DevelopmentKeys;

const CERTIFICATE: &[u8] = include_bytes!("../../../events/keys/certificate.pem");

/// The key URLs that the samples name, each with its key.
const PUBLISHED: [(&str, &[u8]); 3] = [
    ("https://api.sandbox.paypal.com/v1/notifications/certs/CERT-development", CERTIFICATE),
    (
        "https://static.adobeioevents.com/development/keys/pub-key-development.pem",
        include_bytes!("../../../events/keys/public.pem"),
    ),
    ("https://api.shipengine.com/jwks", include_bytes!("../../../events/keys/jwks.json")),
];

impl Keys for DevelopmentKeys {
    fn find(&self, at: &Address) -> Option<Bytes> {
        let url = at.to_string();
        PUBLISHED.iter().find(|(known, _)| *known == url).map(|(_, bytes)| Bytes::from_static(bytes))
    }

    fn certified(&self, pem: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        let own = (pem == CERTIFICATE).then(|| key_in_certificate(pem));
        own.flatten().ok_or(Uncertified::Issuer)
    }
}

const PRIVATE: &[u8] = include_bytes!("../../../events/keys/private.pem");

/// The recipient of Adobe's samples, which is in their bodies.
const ADOBES_RECIPIENT: &str = "development-client-id";

/// Signs a sample of a sender with a published key for `source`, if its headers name the development key. Other
/// webhooks keep their signatures.
pub(super) fn sign(source: &Source, headers: &mut [(String, String)], body: &mut Vec<u8>, now: Timestamp) {
    let value = |name: &str| headers.iter().find(|(held, _)| held == name).map(|(_, value)| value.clone());
    let is_named = |name: &str| value(name).is_some_and(|value| value.contains("development"));
    let id = source.recipient().unwrap_or_default();
    let (message, name) = match source.provider_name.as_str() {
        "paypal" if is_named("paypal-cert-url") => {
            let [transmission, time] = ["paypal-transmission-id", "paypal-transmission-time"].map(value);
            let [transmission, time] = [transmission, time].map(Option::unwrap_or_default);
            (format!("{transmission}|{time}|{id}|{}", crc32(body)).into_bytes(), "paypal-transmission-sig")
        }
        "adobe-io-events" if is_named("x-adobe-public-key1-path") => {
            *body = String::from_utf8_lossy(body).replace(ADOBES_RECIPIENT, id).into_bytes();
            (body.clone(), "x-adobe-digital-signature-1")
        }
        "shipstation-v2" if is_named("x-shipengine-rsa-sha256-key-id") => {
            set(headers, "x-shipengine-timestamp", now.to_string());
            ([now.to_string().as_bytes(), b".", body].concat(), "x-shipengine-rsa-sha256-signature")
        }
        _ => return,
    };
    if let Some(signature) = sign_by_rsa(PRIVATE, &message) {
        set(headers, name, STANDARD.encode(signature));
    }
}

fn set(headers: &mut [(String, String)], name: &str, value: String) {
    if let Some((_, held)) = headers.iter_mut().find(|(held, _)| held == name) {
        *held = value;
    }
}
