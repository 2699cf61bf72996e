#![no_main]
//! Webhooks of every provider: any headers and body are believed only when
//! signed, and described without a panic.

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use webhook_serializer::{providers::{Headers, Request, Verified}, sources::Sources, time::Timestamp};
use std::sync::LazyLock;

#[derive(Debug, Arbitrary)]
struct Webhook {
    source: u8,
    now: u64,
    signed: bool,
    headers: Vec<(u8, String)>,
    body: Vec<u8>,
}

static SOURCES: LazyLock<Sources> =
    LazyLock::new(|| Sources::parse(include_str!("../../../events/sources.toml")).expect("the samples' own"));

/// The headers that any provider reads, so that the fuzzer need not guess them.
const NAMES: [&str; 36] = [
    "x-shopify-hmac-sha256",
    "shopify-hmac-sha256",
    "x-shopify-topic",
    "shopify-topic",
    "x-shopify-webhook-id",
    "x-shopify-shop-domain",
    "x-shopify-triggered-at",
    "shopify-resource-id",
    "stripe-signature",
    "x-wc-webhook-signature",
    "x-wc-webhook-topic",
    "x-wc-webhook-id",
    "x-wc-webhook-source",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "svix-id",
    "svix-timestamp",
    "svix-signature",
    "paypal-transmission-id",
    "paypal-transmission-time",
    "paypal-transmission-sig",
    "paypal-cert-url",
    "paypal-auth-algo",
    "x-adobe-digital-signature-1",
    "x-adobe-public-key1-path",
    "x-adobe-digital-signature-2",
    "x-adobe-public-key2-path",
    "x-shipengine-rsa-sha256-key-id",
    "x-shipengine-timestamp",
    "x-shipengine-rsa-sha256-signature",
    "x-acme-signature",
    "x-acme-timestamp",
    "x-acme-delivery",
    "content-type",
    "x-other",
];

fuzz_target!(|webhook: Webhook| {
    let sources: Vec<_> = SOURCES.iter().collect();
    let source = sources[webhook.source as usize % sources.len()];
    let now = Timestamp::from_millis(webhook.now % (1 << 45));
    let mut headers: Vec<(String, String)> = webhook
        .headers
        .into_iter()
        .map(|(name, value)| (NAMES[name as usize % NAMES.len()].to_owned(), value))
        .collect();
    if webhook.signed {
        let plain: Headers = headers.iter().cloned().collect();
        let signed = source.sign(&plain, &webhook.body, now);
        headers.retain(|(name, _)| !signed.iter().any(|(other, _)| other == name));
        headers.extend(signed);
    }
    let headers: Headers = headers.into_iter().collect();
    let request = Request { headers: &headers, body: &webhook.body };
    let verified = source.verify(request, now);
    // One that signs with a key of its own signs nothing here.
    if webhook.signed && !source.sign(&Headers::default(), b"", now).is_empty() {
        let own = verified.is_ok() || webhook.body.is_empty();
        assert!(own, "{} does not believe its own signature: {verified:?}", source.name);
    } else if verified == Ok(Verified::Delivery) {
        panic!("{} believes what nobody signed", source.name);
    }
    let incoming = source.delivery(request, now);
    assert!(incoming.entity.as_str().len() <= 512);
});
