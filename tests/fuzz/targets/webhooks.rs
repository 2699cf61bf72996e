#![no_main]
//! Webhooks of every provider: any headers and body are believed only when
//! signed, and described without a panic.

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use webhook_serializer::{
    providers::{self, Headers, IdPart, Request, Verified},
    sources::Sources,
    time::Timestamp,
};
use std::sync::LazyLock;

#[derive(Debug, Arbitrary)]
struct Webhook {
    source: u8,
    now: u64,
    signed: bool,
    headers: Vec<(u8, String)>,
    query: String,
    body: Vec<u8>,
}

static SOURCES: LazyLock<Sources> =
    LazyLock::new(|| Sources::parse(include_str!("../../../events/sources.toml")).expect("the samples' own"));

/// The headers that any provider reads, so that the fuzzer need not guess them:
/// those in the registry's tables, and those that each source signs.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let of_tables = providers::NAMES.into_iter().filter_map(providers::rule_of).flat_map(|rule| {
        let of_ids = rule.reads.delivery_id.iter().flat_map(|part| match part {
            IdPart::At(places) | IdPart::Maybe(places) => *places,
            _ => &[],
        });
        let places = of_ids.chain(rule.reads.topic).chain(rule.reads.account).chain(rule.reads.event_time);
        let places = places.chain(rule.facts.signed.headers).filter(|place| !place.starts_with('/'));
        places.map(|place| (*place).to_owned()).collect::<Vec<_>>()
    });
    let now = Timestamp::from_millis(0);
    let of_sources = SOURCES.iter().flat_map(|source| source.sign(&Headers::default(), b"", now)).map(|(name, _)| name);
    // The other names of signatures, and what is read besides.
    let others = [
        "paypal-transmission-sig",
        "paypal-cert-url",
        "paypal-auth-algo",
        "x-adobe-digital-signature-1",
        "x-adobe-public-key1-path",
        "x-adobe-digital-signature-2",
        "x-adobe-public-key2-path",
        "x-shipengine-rsa-sha256-key-id",
        "x-shipengine-rsa-sha256-signature",
        "shopify-hmac-sha256",
        "shopify-action",
        "shopify-resource-id",
        "svix-signature",
        "as-signature-hmac-sha256",
        "am-webhook-signature",
        "x-acme-delivery",
        "content-type",
        "x-other",
    ];
    of_tables.chain(of_sources).chain(others.map(str::to_owned)).collect()
});

fuzz_target!(|webhook: Webhook| {
    let sources: Vec<_> = SOURCES.iter().collect();
    let source = sources[webhook.source as usize % sources.len()];
    let now = Timestamp::from_millis(webhook.now % (1 << 45));
    let mut headers: Vec<(String, String)> = webhook
        .headers
        .into_iter()
        .map(|(name, value)| (NAMES[name as usize % NAMES.len()].clone(), value))
        .collect();
    let mut query = webhook.query;
    if webhook.signed {
        let plain: Headers = headers.iter().cloned().collect();
        let signed = source.sign(&plain, &webhook.body, now);
        headers.retain(|(name, _)| !signed.iter().any(|(other, _)| other == name));
        headers.extend(signed);
        query = source.query().unwrap_or(query);
    }
    let headers = headers.into_iter().collect::<Headers>().with_query(query);
    let request = Request { headers: &headers, body: &webhook.body };
    let verified = source.verify(request, now);
    // One that signs with a key of its own signs nothing here.
    let can_sign = source.query().is_some() || !source.sign(&Headers::default(), b"", now).is_empty();
    if webhook.signed && can_sign {
        let own = verified.is_ok() || webhook.body.is_empty();
        assert!(own, "{} does not believe its own signature: {verified:?}", source.name);
    } else if verified == Ok(Verified::Delivery) {
        panic!("{} believes what nobody signed", source.name);
    }
    let incoming = source.delivery(request, now);
    assert!(incoming.entity.as_str().len() <= 512);
});
