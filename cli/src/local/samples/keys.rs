//! The keys with which the samples of some providers are signed. Everybody knows the private key, so only a local
//! ingest accepts these keys.

use axum::body::Bytes;
use webhook_serializer::{
    functions::ingest::keys::key_in_certificate,
    providers::{Address, Keys, RsaKey, Uncertified},
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
