//! The key that signed the samples of senders that publish theirs. Everyone has
//! it: nothing but a development's own ingest believes it.

use axum::body::Bytes;
use webhook_serializer::{
    functions::ingest::keys::key_in_certificate,
    providers::{Address, Keys, RsaKey, Uncertified},
    time::Timestamp,
};

/// What those senders would publish, if it were theirs.
#[derive(Debug, Clone, Copy)]
pub struct DevelopmentKeys;

const CERTIFICATE: &[u8] = include_bytes!("../../../events/keys/certificate.pem");

/// Where the samples say that their keys are, and what stands there.
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
