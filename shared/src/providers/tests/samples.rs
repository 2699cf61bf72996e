//! Tests that every sample in `events/` verifies with the secrets in `sources.toml`, at the
//! sample's own time.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::Deserialize;

use crate::{
    protocol::entity::{DeliveryId, EntityKey},
    providers::{
        Address, Described, Generic, Headers, IdPart, Keys, NAMES, Provider, Reads, Request, RsaKey, Uncertified,
        Unverified, Verified, by_name, rule_of, samples, webhook_senders,
    },
    sources::{Source, Sources},
    time::Timestamp,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FunctionUrlEvent {
    version: String,
    raw_path: String,
    raw_query_string: String,
    headers: BTreeMap<String, String>,
    request_context: SampleContext,
    body: String,
    is_base64_encoded: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SampleContext {
    http: SampleHttp,
    time_epoch: u64,
}

#[derive(Deserialize)]
struct SampleHttp {
    method: String,
    path: String,
}

struct SignedSample {
    source: Arc<Source>,
    headers: Headers,
    body: Vec<u8>,
    at: Timestamp,
}

impl SignedSample {
    fn verify(&self) -> Result<Verified, Unverified> {
        self.verify_with(&self.headers, &self.body, self.at)
    }

    fn verify_with(&self, headers: &Headers, body: &[u8], at: Timestamp) -> Result<Verified, Unverified> {
        self.source.verify_with(Request { headers, body }, &SampleKeys, at)
    }

    fn describe(&self) -> Described {
        let request = Request { headers: &self.headers, body: &self.body };
        match by_name(&self.source.provider_name) {
            Some(provider) => provider.describe(request),
            None => generic().describe(request),
        }
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../events")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

fn sources() -> Sources {
    Sources::parse(&read("sources.toml")).unwrap()
}

fn generic() -> Generic {
    #[derive(Deserialize)]
    struct SampleDocument {
        sources: BTreeMap<String, SampleSource>,
    }
    #[derive(Deserialize)]
    struct SampleSource {
        generic: Option<Generic>,
    }
    let document: SampleDocument = toml::from_str(&read("sources.toml")).unwrap();
    document.sources.into_values().find_map(|entry| entry.generic).unwrap()
}

fn sample(name: &str) -> SignedSample {
    let event: FunctionUrlEvent = serde_json::from_str(&read(name)).unwrap();
    assert_eq!((event.version.as_str(), event.request_context.http.method.as_str()), ("2.0", "POST"), "{name}");
    assert_eq!(event.raw_path, event.request_context.http.path, "{name}");
    assert!(event.headers.keys().all(|header| *header == header.to_lowercase()), "{name}");
    let sources = sources();
    let source = sources.get(event.raw_path.strip_prefix("/webhooks/").unwrap()).unwrap();
    let body = if event.is_base64_encoded { STANDARD.decode(event.body).unwrap() } else { event.body.into_bytes() };
    assert_eq!(event.headers["content-length"], body.len().to_string(), "{name}");
    SignedSample {
        source: source.clone(),
        headers: event.headers.into_iter().collect::<Headers>().with_query(event.raw_query_string),
        body,
        at: Timestamp::from_millis(event.request_context.time_epoch),
    }
}

struct SampleKeys;

impl Keys for SampleKeys {
    fn find(&self, at: &Address) -> Option<Bytes> {
        let name = match at.file() {
            // The public key replaces the certificate.
            "cert_file" | "public_key_file" => "keys/public.pem",
            "jwks_file" => "keys/jwks.json",
            other => panic!("{other}"),
        };
        Some(fs::read(path(name)).unwrap().into())
    }

    fn certified(&self, pem: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        RsaKey::in_pem(pem).ok_or(Uncertified::Unreadable)
    }
}

const OTHER_TRIGGERS: [&str; 2] = ["schedule.json", "wake-up.json"];

fn files(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(path(folder)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|name| name.ends_with(".json")).collect();
    names.sort();
    names
}

fn webhooks() -> Vec<String> {
    files("").into_iter().filter(|name| !OTHER_TRIGGERS.contains(&name.as_str())).collect()
}

/// The folder of the events that SQS sends.
const QUEUES: &str = "queues/";

fn is_ping(name: &str) -> bool {
    name.ends_with("-ping.json")
}

fn deliveries() -> Vec<String> {
    webhooks().into_iter().filter(|name| !is_ping(name)).collect()
}

fn places(reads: &Reads) -> Vec<&'static str> {
    let of_ids = reads.delivery_id.iter().flat_map(|part| match part {
        IdPart::At(places) | IdPart::Maybe(places) => *places,
        IdPart::Account | IdPart::Topic | IdPart::Body | IdPart::Request => &[],
    });
    of_ids.chain(reads.topic).chain(reads.account).chain(reads.event_time).copied().collect()
}

#[test]
fn every_provider_has_samples_with_expected_fields() {
    let all = webhooks();
    for name in webhook_senders() {
        let of_it = |file: &&String| sample(file).source.provider_name == name;
        assert!(all.iter().any(|file| of_it(&file)), "{name} has no sample in events/");
    }
    let mut described: Vec<&str> = samples().iter().map(|expected| expected.0).collect();
    described.sort_unstable();
    let (of_queues, of_webhooks): (Vec<&str>, Vec<&str>) =
        described.into_iter().partition(|name| name.starts_with(QUEUES));
    assert_eq!(of_webhooks, deliveries());
    assert_eq!(of_queues, files(QUEUES).iter().map(|name| format!("{QUEUES}{name}")).collect::<Vec<_>>());
}

/// Promise: every sample is accepted; your own sources refuse the development keys.
#[test]
fn every_sample_verifies_at_the_signing_time() {
    for name in deliveries() {
        assert_eq!(sample(&name).verify(), Ok(Verified::Delivery), "{name}");
    }
}

fn retried_for(name: &str) -> Option<Duration> {
    let reads = rule_of(&sample(name).source.provider_name)?.reads;
    let has_id = samples().iter().any(|(file, id, ..)| *file == name && !id.starts_with("sha256:"));
    (reads.names_by_body() || !has_id).then(|| reads.retried_for())
}

#[test]
fn each_sample_yields_the_expected_webhook_fields() {
    let of_webhooks = samples().into_iter().filter(|expected| !expected.0.starts_with(QUEUES));
    for (name, delivery_id, topic, family, account, event_time, entity) in of_webhooks {
        let expected = Described {
            delivery_id: DeliveryId::new(delivery_id),
            repeated_within: retried_for(name),
            topic: topic.to_owned(),
            family: family.to_owned(),
            account: account.map(str::to_owned),
            event_time: event_time.map(Timestamp::from_millis),
            entity: Some(entity.to_owned()),
        };
        assert_eq!(sample(name).describe(), expected, "{name}");
    }
}

/// Promise: the presets find order, topic, id and time in each sample of a queue's message, bare or in the envelope of
/// EventBridge or CloudEvents.
#[test]
fn each_message_sample_yields_the_expected_fields() {
    let sources = Sources::parse(&read("queues/sources.toml")).unwrap();
    let mut used = Vec::new();
    for (name, delivery_id, topic, family, account, event_time, entity) in samples() {
        if !name.starts_with(QUEUES) {
            continue;
        }
        let event: serde_json::Value = serde_json::from_str(&read(name)).unwrap();
        let record = &event["Records"][0];
        let source = sources.of_queue(record["eventSourceARN"].as_str().unwrap()).unwrap();
        let message = record["body"].as_str().unwrap().as_bytes();
        let no_headers = Headers::default();
        let received =
            source.receive_message(Request { headers: &no_headers, body: message }, "m", Timestamp::from_millis(0));
        let incoming = received.incoming;
        assert_eq!((received.unrouted, received.ignored), (None, None), "{name}");
        assert_eq!(incoming.identity.delivery_id, DeliveryId::new(delivery_id), "{name}");
        assert_eq!((incoming.topic.as_str(), incoming.family.as_str()), (topic, family), "{name}");
        assert_eq!(incoming.event_time, event_time.map(Timestamp::from_millis), "{name}");
        assert_eq!(incoming.entity.as_str(), format!("{}/{entity}", source.name), "{name}");
        let provider = by_name(&source.provider_name).unwrap();
        let (body, headers) = provider.inlet().open(message);
        let described = provider.describe(Request { headers: &headers.unwrap_or_default(), body });
        assert_eq!(described.account.as_deref(), account, "{name}");
        used.push(source.provider_name.as_str());
    }
    let reads_queues = |name: &&&str| by_name(name).is_some_and(|provider| provider.inlet().envelopes().is_some());
    assert!(NAMES.iter().filter(reads_queues).all(|name| used.contains(name)), "{used:?}");
}

/// Code outside this project signed the samples, so equal headers show that `sign` is right.
#[test]
fn signing_each_sample_reproduces_the_signature_headers() {
    for name in deliveries() {
        let SignedSample { source, headers, body, at } = sample(&name);
        let with_token = headers.query().split('&').any(|field| source.query().is_none_or(|query| field == query));
        assert!(with_token, "{name}");
        // Shippo either signs or puts a token into the URL, as in this sample.
        if name == "shippo-track-updated-token.json" {
            continue;
        }
        for (header, value) in source.sign(&headers, &body, at) {
            let sent = headers.get(&header).unwrap_or_else(|| panic!("{name} has no {header}"));
            // Stripe's test mode adds a v0 signature.
            let sent = if header == "stripe-signature" { sent.split(",v0=").next().unwrap() } else { sent };
            assert_eq!(sent, value, "{name}: {header}");
        }
    }
}

/// Promise: providers' tables say exactly what a signature covers.
#[test]
fn changing_a_field_described_as_signed_breaks_verification() {
    // More than the tolerance of any sample source.
    let long = Duration::from_secs(200 * 365 * 86_400).as_millis() as u64;
    let mut unsigned_headers = 0;
    for name in deliveries() {
        let sample = sample(&name);
        let Some(rule) = rule_of(&sample.source.provider_name) else { continue };
        // The URL of this sample has a token; nothing is signed.
        if name == "shippo-track-updated-token.json" {
            continue;
        }
        let signed = rule.facts.signed;
        let changed_body = [&sample.body[..], b" "].concat();
        let is_accepted = sample.verify_with(&sample.headers, &changed_body, sample.at).is_ok();
        assert_eq!(is_accepted, !signed.body, "{name}: the body");
        let later = Timestamp::from_millis(sample.at.as_millis() + long);
        let is_accepted = sample.verify_with(&sample.headers, &sample.body, later).is_ok();
        assert_eq!(is_accepted, !signed.time, "{name}: the time");
        for place in places(&rule.reads).into_iter().chain(signed.headers.iter().copied()) {
            let Some(value) = sample.headers.get(place).filter(|_| !place.starts_with('/')) else { continue };
            let changed = sample.headers.iter().map(|(held, value)| match held == place {
                true => (held, format!("{value}0")),
                false => (held, value.to_owned()),
            });
            let changed = changed.collect::<Headers>().with_query(sample.headers.query());
            let is_accepted = sample.verify_with(&changed, &sample.body, sample.at).is_ok();
            assert_eq!(is_accepted, !signed.headers.contains(&place), "{name}: {place}: {value}");
            unsigned_headers += usize::from(is_accepted);
        }
    }
    assert!(unsigned_headers > 50, "{unsigned_headers}");
}

#[test]
fn every_ping_sample_is_recognised_as_ping() {
    for name in webhooks().iter().filter(|name| is_ping(name)) {
        assert_eq!(sample(name).verify(), Ok(Verified::Ping), "{name}");
    }
}

#[test]
fn wake_up_sample_names_order_of_shopify_sample() {
    let event: serde_json::Value = serde_json::from_str(&read("wake-up.json")).unwrap();
    let record = &event["Records"][0];
    assert_eq!(record["eventSource"], "aws:sqs");
    let body: serde_json::Value = serde_json::from_str(record["body"].as_str().unwrap()).unwrap();
    let key = EntityKey::parse(body["entity"].as_str().unwrap()).unwrap();
    let described = sample("shopify-orders-create.json").describe();
    assert_eq!(key.as_str(), format!("shopify/{}", described.entity.unwrap()));
}
