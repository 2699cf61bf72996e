//! One row for each provider: all that the shared cases need to know of it. A
//! provider without one fails them.

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{
    providers::{
        Generic, Headers, NAMES, Options, Provider, Request, Secret, Unverified, Verified, by_name,
        tests::senders::Sender,
    },
    time::Timestamp,
};

pub const NOW: Timestamp = Timestamp::from_secs(1_767_621_700);

/// A provider, and how its signature looks in a request.
pub struct Row {
    /// Its name in the registry.
    pub name: &'static str,
    /// The `generic` table, in TOML; empty for the others.
    pub generic: &'static str,
    /// What its source says besides.
    pub url: Option<&'static str>,
    /// Two secrets of its form.
    pub secrets: [&'static str; 2],
    /// The secret that is made of any bytes, if it may have any.
    pub secret_of: Option<fn(&[u8]) -> Secret>,
    /// The header that its signature is in; `None`: it is known by its URL.
    pub header: Option<&'static str>,
    /// What stands in front of the last signature of that header.
    pub mark: &'static str,
    /// What makes the signature longer and leaves it readable.
    pub more: &'static str,
    /// Whether the body is signed.
    pub signs_body: bool,
    /// Whether a time is signed.
    pub signs_time: bool,
    /// Whether the header may list several signatures with commas between, so
    /// that two headers which a gateway joins are one that can be read.
    pub is_list: bool,
}

fn plain(bytes: &[u8]) -> Secret {
    Secret::new(bytes.iter().map(|byte| char::from(b'!' + byte % 94)).collect::<String>())
}

fn encoded(bytes: &[u8]) -> Secret {
    Secret::new(format!("whsec_{}", STANDARD.encode(bytes)))
}

/// What most providers are like: base64 of the body's HMAC.
const PLAIN: Row = Row {
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

/// What Standard Webhooks and those who use it are like.
const SCHEME: Row = Row { header: Some("webhook-signature"), mark: "v1,", signs_time: true, ..PLAIN };

/// What those are like who publish their keys: in place of a secret stand both
/// halves of the key, with which a [`Sender`] signs, and of which it publishes the
/// public one.
const PUBLISHED: Row =
    Row { secrets: [include_str!("rsa-private.pem"), include_str!("rsa-another.pem")], secret_of: None, ..PLAIN };

pub const ROWS: &[Row] = &[
    Row {
        name: "adobe-commerce",
        secrets: [include_str!("rsa-private.pem"), include_str!("rsa-another.pem")],
        secret_of: None,
        header: Some("x-adobe-commerce-webhook-signature"),
        ..PLAIN
    },
    Row { name: "aftership", header: Some("aftership-hmac-sha256"), ..PLAIN },
    Row { name: "bigcommerce", ..SCHEME },
    Row { name: "easypost", header: Some("x-hmac-signature"), mark: "hmac-sha256-hex=", more: "00", ..PLAIN },
    Row { name: "etsy", secrets: ["whsec_c2VjcmV0", "whsec_YW5vdGhlcg=="], secret_of: Some(encoded), ..SCHEME },
    Row {
        name: "generic",
        generic: "header = 'x-a'\nhash = 'sha1'\nencoding = 'hex'\nprefix = 'sha1='",
        header: Some("x-a"),
        mark: "sha1=",
        more: "00",
        ..PLAIN
    },
    Row {
        name: "generic",
        generic: "header = 'x-a'\nhash = 'sha512'\nencoding = 'base64'\nseparator = ' '\nentity = '/a'\ntopic = 'x-b'",
        header: Some("x-a"),
        ..PLAIN
    },
    Row {
        name: "generic",
        generic: "header = 'x-a'\nhash = 'sha256'\nencoding = 'hex'\nseparator = ','\nprefix = 'v1='\n\
                  timestamp_prefix = 't='\nsigned = '{timestamp}.{header:x-b}.{body}'\nevent_time = ['/a', 'x-b']",
        header: Some("x-a"),
        mark: "v1=",
        more: "00",
        signs_time: true,
        is_list: true,
        ..PLAIN
    },
    Row { name: "paypal", header: Some("paypal-transmission-sig"), ..PUBLISHED },
    Row {
        name: "shippo",
        header: Some("shippo-auth-signature"),
        mark: "v1=",
        more: "00",
        signs_time: true,
        is_list: true,
        ..PLAIN
    },
    Row { name: "shipstation-v1", signs_body: false, ..PLAIN },
    Row { name: "shipstation-v2", header: Some("x-shipengine-rsa-sha256-signature"), signs_time: true, ..PUBLISHED },
    Row { name: "shopify", header: Some("x-shopify-hmac-sha256"), ..PLAIN },
    Row {
        name: "square",
        url: Some("https://hooks.example.com/webhooks/square"),
        header: Some("x-square-hmacsha256-signature"),
        ..PLAIN
    },
    Row {
        name: "standard-webhooks",
        secrets: ["whsec_c2VjcmV0", "whsec_YW5vdGhlcg=="],
        secret_of: Some(encoded),
        ..SCHEME
    },
    Row {
        name: "standard-webhooks",
        // The seeds of RFC 8032, section 7.1, tests 2 and 1.
        secrets: [
            "whsk_TM0Imyj/ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U+4pvs=",
            "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=",
        ],
        secret_of: None,
        mark: "v1a,",
        ..SCHEME
    },
    Row {
        name: "stripe",
        header: Some("stripe-signature"),
        mark: "v1=",
        more: "00",
        signs_time: true,
        is_list: true,
        ..PLAIN
    },
    Row { name: "woocommerce", header: Some("x-wc-webhook-signature"), ..PLAIN },
];

/// Providers that the shared cases do not fit, and why.
const APART: [(&str, &str); 1] = [(
    "adobe-io-events",
    "a body is believed only if it names the source's client id, and those of the cases name nobody: what its own \
     tests believe and refuse is in `vectors.rs` and in the tests of `ingest::keys`",
)];

impl Row {
    /// The provider, as its source would have it.
    pub fn provider(&self) -> Box<dyn Provider> {
        let options = Options { url: self.url.map(str::to_owned) };
        match by_name(self.name) {
            None => Box::new(toml::from_str::<Generic>(self.generic).unwrap()),
            Some(provider) if provider.published().is_some() => Box::new(Sender(provider)),
            Some(provider) => provider.with(&options).unwrap().unwrap_or_else(|| Box::new(BuiltIn(provider))),
        }
    }

    /// The request's headers and query, signed at [`NOW`].
    pub fn signed(&self, body: &[u8], secret: &Secret) -> Headers {
        let provider = self.provider();
        let headers: Headers = provider.sign(&Headers::default(), body, secret, NOW).into_iter().collect();
        headers.with_query(provider.query(secret).unwrap_or_default())
    }

    /// Whether the request is believed at [`NOW`].
    pub fn verify(&self, headers: &Headers, body: &[u8], secrets: &[Secret]) -> Result<Verified, Unverified> {
        self.provider().verify(Request { headers, body }, secrets, NOW)
    }
}

/// A provider that is the same for all sources, in a box.
#[derive(Debug)]
struct BuiltIn(&'static dyn Provider);

impl Provider for BuiltIn {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        self.0.objection(secret)
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret], now: Timestamp) -> Result<Verified, Unverified> {
        self.0.verify(request, secrets, now)
    }

    fn describe(&self, request: Request<'_>) -> crate::providers::Described {
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
fn every_provider_has_a_row_matching_its_facts() {
    for name in NAMES {
        let is_apart = APART.iter().any(|(apart, why)| *apart == name && !why.is_empty());
        assert_ne!(ROWS.iter().any(|row| row.name == name), is_apart, "{name} has no row here, or two");
    }
    for row in ROWS {
        let Some(rule) = crate::providers::rule_of(row.name) else { continue };
        let signed = rule.facts.signed;
        assert_eq!((signed.body, signed.time), (row.signs_body, row.signs_time), "{}", row.name);
        assert_eq!(signed.url, row.url.is_some(), "{}", row.name);
    }
}
