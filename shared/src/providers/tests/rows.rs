//! The table of providers for the shared test cases: each with its form of signature.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::providers::{Generic, NAMES, Signing, by_name, tests::senders::ProviderSender};
pub use crate::{
    providers::{Described, Encoding, Headers, Proof, Provider, Request, Secret, TOLERANCE, Unverified, Verified},
    time::Timestamp,
};

pub const NOW: Timestamp = Timestamp::from_secs(1_767_621_700);

pub struct ProviderRow {
    pub name: &'static str,
    /// The table `generic` of the source, in TOML. Empty for built-in providers.
    pub generic: &'static str,
    pub url: Option<&'static str>,
    pub secrets: [&'static str; 2],
    /// Creates a secret from any bytes. `None` if only some bytes make a secret.
    pub secret_of: Option<fn(&[u8]) -> Secret>,
    pub header: Option<String>,
    /// The text in front of the last signature in the signature header.
    pub mark: &'static str,
    /// A text that makes a signature longer when it is appended, and can still be decoded.
    pub more: &'static str,
    pub signs_body: bool,
    pub signs_time: bool,
    pub is_list: bool,
}

fn plain(bytes: &[u8]) -> Secret {
    Secret::new(bytes.iter().map(|byte| char::from(b'!' + byte % 94)).collect::<String>())
}

pub fn encoded(bytes: &[u8]) -> Secret {
    Secret::new(format!("whsec_{}", STANDARD.encode(bytes)))
}

/// The most common form of signature: base64 of the body's HMAC.
pub const PLAIN: ProviderRow = ProviderRow {
    name: "",
    generic: "",
    url: None,
    secrets: ["secret", "another"],
    secret_of: Some(plain),
    header: None,
    mark: "",
    more: "AAAA",
    signs_body: true,
    signs_time: false,
    is_list: false,
};

pub fn scheme() -> ProviderRow {
    ProviderRow { header: Some("webhook-signature".into()), mark: "v1,", signs_time: true, ..PLAIN }
}

/// The row of a provider that publishes its key. The secret of such a row is the private key, with
/// which [`ProviderSender`] signs.
pub const PUBLISHED: ProviderRow = ProviderRow {
    secrets: [include_str!("rsa-private.pem"), include_str!("rsa-another.pem")],
    secret_of: None,
    ..PLAIN
};

/// The name of a sample's file, and what its description must be: delivery id, topic, topic family,
/// account, event time in milliseconds, and entity.
pub type Expected =
    (&'static str, &'static str, &'static str, &'static str, Option<&'static str>, Option<u64>, &'static str);

/// The rows of all folders.
pub static ROWS: LazyLock<Vec<ProviderRow>> = LazyLock::new(crate::providers::rows);

const APART: [(&str, &str); 4] = [
    (
        "adobe-io-events",
        "the body must contain the source's client id, which the cases' body lacks; `vectors.rs` and the tests of \
         `ingest::keys` test it",
    ),
    ("adyen", "the signature is inside the body; the tests of `adyen` test it"),
    ("amazon-sp-api", "its events come by a queue, without a signature"),
    ("commercetools", "its events come by a queue, without a signature"),
];

impl ProviderRow {
    /// Returns the row of a provider that signs as `signing` says, under any secret.
    pub fn of(name: &'static str, signing: &'static Signing) -> Self {
        Self {
            name,
            header: Some(signing.name()),
            mark: &signing.prefix,
            more: if signing.encoding == Encoding::Hex { "00" } else { "AAAA" },
            signs_time: signing.time.is_some(),
            is_list: signing.separator.as_deref() == Some(","),
            ..PLAIN
        }
    }

    pub fn provider(&self) -> Box<dyn Provider> {
        match by_name(self.name) {
            None => Box::new(toml::from_str::<Generic>(self.generic).unwrap()),
            Some(provider) if provider.published().is_some() => Box::new(ProviderSender(provider)),
            Some(provider) => provider.with_url(self.url).unwrap().unwrap_or_else(|| Box::new(BuiltIn(provider))),
        }
    }

    pub fn signed(&self, body: &[u8], secret: &Secret) -> Headers {
        let provider = self.provider();
        let headers: Headers = provider.sign(&Headers::default(), body, secret, NOW).into_iter().collect();
        headers.with_query(provider.query(secret).unwrap_or_default())
    }

    pub fn verify(&self, headers: &Headers, body: &[u8], secrets: &[Secret]) -> Result<Verified, Unverified> {
        self.provider().verify(Request { headers, body }, secrets)?.near(NOW, TOLERANCE)
    }
}

#[derive(Debug)]
struct BuiltIn(&'static dyn Provider);

impl Provider for BuiltIn {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        self.0.objection(secret)
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        self.0.verify(request, secrets)
    }

    fn describe(&self, request: Request<'_>) -> Described {
        self.0.describe(request)
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, now: Timestamp) -> Vec<(String, String)> {
        self.0.sign(headers, body, secret, now)
    }

    fn query(&self, secret: &Secret) -> Option<String> {
        self.0.query(secret)
    }
}

#[test]
fn every_provider_has_test_row_matching_documented_facts() {
    for name in NAMES {
        let is_apart = APART.iter().any(|(apart, why)| *apart == name && !why.is_empty());
        assert_ne!(ROWS.iter().any(|row| row.name == name), is_apart, "{name} has no row here, or two");
    }
    for row in ROWS.iter() {
        let Some(rule) = crate::providers::rule_of(row.name) else { continue };
        let signed = rule.facts.signed;
        assert_eq!((signed.body, signed.time), (row.signs_body, row.signs_time), "{}", row.name);
        assert_eq!(signed.url, row.url.is_some(), "{}", row.name);
    }
}
