//! Webhooks of every provider: nothing panics, a signature with unknown secrets is never accepted, and our
//! own signature always is.
//!
//! The input is `SOURCE SECONDS QUERY`, lines of headers, an empty line, the body.
//! `FUZZ_SOURCE` restricts the run to one source. `.ci/fuzz` turns the samples of
//! `events/` into the first inputs.

#![no_main]

use std::sync::LazyLock;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use webhook_serializer::{
    functions::ingest::keys::key_in_certificate,
    providers::{Address, Headers, Keys, Request, RsaKey, Uncertified, Verified},
    sources::{Source, Sources},
    time::Timestamp,
};

const DOCUMENT: &str = include_str!("../../../events/sources.toml");

static SOURCES: LazyLock<Sources> = LazyLock::new(|| Sources::parse(DOCUMENT).expect("the samples' own"));

/// The same sources, with other secrets and ids that nobody signs with.
static STRANGERS: LazyLock<Sources> = LazyLock::new(|| {
    let another_id = DOCUMENT.replace("0DEVELOPMENT00001", "another").replace("development-client-id", "another");
    let mut secrets = false;
    let lines = another_id.lines().map(|line| {
        secrets |= line.starts_with("secrets = ");
        let is_last = secrets && line.ends_with(']');
        let kept = if secrets { "" } else { line };
        secrets &= !is_last;
        kept
    });
    let without = lines.collect::<Vec<_>>().join("\n");
    let given = SOURCES.iter().fold(without, |document, source| {
        let secret = match source.provider_name.as_str() {
            "paypal" | "adobe-io-events" | "shipstation-v2" => return document,
            "standard-webhooks" | "etsy" => "whsec_bm9ib2R5IGhhcyBldmVyIHNpZ25lZCB3aXRoIHRoaXM=",
            "adobe-commerce" => include_str!("../../../shared/src/providers/tests/rsa-another.pem"),
            _ => "nobody has ever signed with this",
        };
        let table = format!("[sources.{}]\n", source.name);
        document.replace(&table, &format!("{table}secrets = ['''{secret}''']\n"))
    });
    Sources::parse(&given).expect("the samples' own but for the secrets")
});

/// The published keys of the samples.
struct CertificateKey;

const CERTIFICATE: &[u8] = include_bytes!("../../../events/keys/certificate.pem");

impl Keys for CertificateKey {
    fn find(&self, at: &Address) -> Option<Bytes> {
        Some(Bytes::from_static(match at.file() {
            "cert_file" => CERTIFICATE,
            "jwks_file" => include_bytes!("../../../events/keys/jwks.json"),
            _ => include_bytes!("../../../events/keys/public.pem"),
        }))
    }

    fn certified(&self, pem: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        key_in_certificate(pem).ok_or(Uncertified::Unreadable)
    }
}

/// Finds the same document at every address.
struct OneDocument(Bytes);

impl Keys for OneDocument {
    fn find(&self, _: &Address) -> Option<Bytes> {
        Some(self.0.clone())
    }

    fn certified(&self, pem: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        key_in_certificate(pem).ok_or(Uncertified::Unreadable)
    }
}

/// Parses the source, the time, the headers and the body.
fn read(input: &[u8]) -> (&'static Source, Timestamp, Headers, &[u8]) {
    let head_ends = input.windows(2).position(|two| two == b"\n\n");
    let (head, body) = head_ends.map_or((input, &b""[..]), |at| (&input[..at], &input[at + 2..]));
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split('\n');
    let mut first = lines.next().unwrap_or_default().splitn(3, ' ');
    let name = first.next().unwrap_or_default();
    let seconds = first.next();
    let query = first.next();
    let asked = std::env::var("FUZZ_SOURCE").ok();
    let found = SOURCES.get(asked.as_deref().unwrap_or(name)).or_else(|| SOURCES.iter().nth(name.len() % 16));
    let now = Timestamp::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(0_u64) % (1 << 35));
    let fields = lines.filter_map(|line| line.split_once(": "));
    let headers = fields.collect::<Headers>().with_query(query.unwrap_or_default());
    (found.or_else(|| SOURCES.iter().next()).expect("there are sources"), now, headers, body)
}

fuzz_target!(|input: &[u8]| {
    let (source, now, headers, body) = read(input);
    let stranger = STRANGERS.get(source.name.as_str()).expect("there are as many strangers");
    let name = &source.name;

    let request = Request { headers: &headers, body };
    let _ = source.verify_with(request, &CertificateKey, now);
    let _ = source.verify_with(request, &OneDocument(Bytes::copy_from_slice(body)), now);
    let incoming = source.delivery(request, now);
    assert!(incoming.entity.as_str().len() <= 512);

    // ShipStation's signatures name no recipient.
    if source.provider_name != "shipstation-v2" {
        let accepted = stranger.verify_with(request, &CertificateKey, now);
        assert_ne!(accepted, Ok(Verified::Delivery), "{name} accepts a signature of another secret");
    }

    // For providers that publish their key, the private key is missing, so we cannot sign.
    let signed = source.sign(&headers, body, now);
    if signed.is_empty() && source.query().is_none() {
        return;
    }
    let kept = headers.iter().filter(|(name, _)| !signed.iter().any(|(other, _)| other == name));
    let all: Vec<(String, String)> =
        kept.map(|(name, value)| (name.into(), value.into())).chain(signed.clone()).collect();
    let query = source.query().unwrap_or_else(|| headers.query().to_owned());
    let own = all.into_iter().collect::<Headers>().with_query(query);
    let verified = source.verify(Request { headers: &own, body }, now);
    assert!(verified.is_ok() || body.is_empty(), "{name} refuses its own signature: {verified:?}");
});
