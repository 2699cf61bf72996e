//! The table of providers for the shared test cases: each with its form of signature.

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{
    providers::{
        Generic, Headers, NAMES, Provider, Request, Secret, Unverified, Verified, by_name, tests::senders::Sender,
    },
    time::Timestamp,
};

pub const NOW: Timestamp = Timestamp::from_secs(1_767_621_700);

pub struct Row {
    pub name: &'static str,
    /// The table `generic` of the source, in TOML. Empty for built-in providers.
    pub generic: &'static str,
    pub url: Option<&'static str>,
    pub secrets: [&'static str; 2],
    /// Creates a secret from any bytes. `None` if only some bytes make a secret.
    pub secret_of: Option<fn(&[u8]) -> Secret>,
    pub header: Option<&'static str>,
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

fn encoded(bytes: &[u8]) -> Secret {
    Secret::new(format!("whsec_{}", STANDARD.encode(bytes)))
}

/// The most common form of signature: base64 of the body's HMAC.
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

const SCHEME: Row = Row { header: Some("webhook-signature"), mark: "v1,", signs_time: true, ..PLAIN };

/// The row of a provider that publishes its key. The secret of such a row is the private key, with
/// which [`Sender`] signs.
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
        secrets: ["whsec_one", "whsec_two"],
        mark: "v1=",
        more: "00",
        signs_time: true,
        is_list: true,
        ..PLAIN
    },
    Row { name: "woocommerce", header: Some("x-wc-webhook-signature"), ..PLAIN },
];

const APART: [(&str, &str); 1] = [(
    "adobe-io-events",
    "the body must contain the source's client id, which the cases' body lacks; `vectors.rs` and the tests of \
     `ingest::keys` test it",
)];

impl Row {
    pub fn provider(&self) -> Box<dyn Provider> {
        match by_name(self.name) {
            None => Box::new(toml::from_str::<Generic>(self.generic).unwrap()),
            Some(provider) if provider.published().is_some() => Box::new(Sender(provider)),
            Some(provider) => provider.with_url(self.url).unwrap().unwrap_or_else(|| Box::new(BuiltIn(provider))),
        }
    }

    pub fn signed(&self, body: &[u8], secret: &Secret) -> Headers {
        let provider = self.provider();
        let headers: Headers = provider.sign(&Headers::default(), body, secret, NOW).into_iter().collect();
        headers.with_query(provider.query(secret).unwrap_or_default())
    }

    pub fn verify(&self, headers: &Headers, body: &[u8], secrets: &[Secret]) -> Result<Verified, Unverified> {
        self.provider().verify(Request { headers, body }, secrets, NOW)
    }
}

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
fn every_provider_has_test_row_matching_documented_facts() {
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
