//! Every sample in `events/` is what its sender would send: signed with the
//! secrets in `sources.toml`, at the time that it says.

use std::{collections::BTreeMap, fs, path::PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::Deserialize;

use crate::{
    protocol::entity::{DeliveryId, EntityKey},
    providers::{
        Address, Described, Generic, Headers, Keys, Provider, Request, RsaKey, Secret, Uncertified, Unverified,
        Verified, by_name,
    },
    time::Timestamp,
};

#[derive(Deserialize)]
struct Sources {
    sources: BTreeMap<String, Source>,
}

#[derive(Deserialize)]
struct Source {
    provider: String,
    #[serde(default)]
    secrets: Vec<Secret>,
    #[serde(alias = "webhook_id", alias = "client_id")]
    recipient: Option<String>,
    generic: Option<Generic>,
}

impl Source {
    fn provider(&self) -> &dyn Provider {
        match &self.generic {
            Some(generic) => generic,
            None => by_name(&self.provider).unwrap(),
        }
    }
}

/// The parts of a Function URL event that are looked at here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FunctionUrlEvent {
    version: String,
    raw_path: String,
    headers: BTreeMap<String, String>,
    request_context: RequestContext,
    body: String,
    is_base64_encoded: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestContext {
    http: Http,
    time_epoch: u64,
}

#[derive(Deserialize)]
struct Http {
    method: String,
    path: String,
}

struct Sample {
    source: Source,
    headers: Headers,
    body: Vec<u8>,
    at: Timestamp,
}

impl Sample {
    fn request(&self) -> Request<'_> {
        Request { headers: &self.headers, body: &self.body }
    }

    fn verify(&self) -> Result<Verified, Unverified> {
        let provider = self.source.provider();
        match provider.published() {
            None => provider.verify(self.request(), &self.source.secrets, self.at),
            Some(published) => {
                let recipients: Vec<String> = self.source.recipient.iter().cloned().collect();
                published.verify(self.request(), &recipients, &Development, self.at)
            }
        }
    }

    fn describe(&self) -> Described {
        self.source.provider().describe(self.request())
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../events")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

fn sources() -> BTreeMap<String, Source> {
    toml::from_str::<Sources>(&read("sources.toml")).unwrap().sources
}

fn sample(name: &str) -> Sample {
    let event: FunctionUrlEvent = serde_json::from_str(&read(name)).unwrap();
    assert_eq!((event.version.as_str(), event.request_context.http.method.as_str()), ("2.0", "POST"), "{name}");
    assert_eq!(event.raw_path, event.request_context.http.path, "{name}");
    assert!(event.headers.keys().all(|header| *header == header.to_lowercase()), "{name}");
    let source = sources().remove(event.raw_path.strip_prefix("/webhooks/").unwrap()).unwrap();
    let body = if event.is_base64_encoded { STANDARD.decode(event.body).unwrap() } else { event.body.into_bytes() };
    assert_eq!(event.headers["content-length"], body.len().to_string(), "{name}");
    Sample {
        source,
        headers: event.headers.into_iter().collect(),
        body,
        at: Timestamp::from_millis(event.request_context.time_epoch),
    }
}

/// The key that signed the samples of senders that publish theirs, as they would.
struct Development;

impl Keys for Development {
    fn find(&self, at: &Address) -> Option<Bytes> {
        let name = match at.file() {
            "cert_file" => "keys/certificate.pem",
            "public_key_file" => "keys/public.pem",
            "jwks_file" => "keys/jwks.json",
            other => panic!("{other}"),
        };
        Some(fs::read(path(name)).unwrap().into())
    }

    #[cfg(feature = "ingest")]
    fn certified(&self, pem: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        crate::functions::ingest::keys::key_in_certificate(pem).ok_or(Uncertified::Unreadable)
    }

    #[cfg(feature = "ingest")]
    fn has_signed(&self, key: &RsaKey, message: &[u8], signature: &[u8]) -> bool {
        crate::functions::ingest::keys::has_signed(key, message, signature)
    }

    #[cfg(not(feature = "ingest"))]
    fn certified(&self, _: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        unreachable!("no key is of use without the function that has what to use it with")
    }

    #[cfg(not(feature = "ingest"))]
    fn has_signed(&self, _: &RsaKey, _: &[u8], _: &[u8]) -> bool {
        unreachable!("no key is of use without the function that has what to use it with")
    }
}

const PING: &str = "woocommerce-ping.json";
const OTHER_TRIGGERS: [&str; 2] = ["schedule.json", "wake-up.json"];

/// A sample and what it describes: the delivery id (of WooCommerce's without
/// the body's hash), topic, family, event time in milliseconds, entity.
type Expected = (&'static str, &'static str, &'static str, &'static str, u64, &'static str);

const DELIVERIES: [Expected; 11] = [
    (
        "generic-order-updated.json",
        "dlv_01ExampleDev0001",
        "order.updated",
        "order",
        1_767_623_400_500,
        "order/9007199254740993",
    ),
    (
        "shopify-fulfillments-create.json",
        "example.myshopify.com/fulfillments/create/f8d6264d-6740-4873-a54f-6e70408aca33",
        "fulfillments/create",
        "fulfillments",
        1_767_712_500_000,
        "order/450789469",
    ),
    (
        "shopify-orders-cancelled.json",
        "example.myshopify.com/orders/cancelled/dbc3eca6-87e7-4589-af7f-99416438176e",
        "orders/cancelled",
        "orders",
        1_767_880_800_000,
        "order/450789469",
    ),
    (
        "shopify-orders-create.json",
        "example.myshopify.com/orders/create/15e8d2f1-73e1-49d3-ac54-9a486645fdcd",
        "orders/create",
        "orders",
        1_767_621_601_000,
        "order/450789469",
    ),
    (
        "shopify-orders-paid.json",
        "example.myshopify.com/orders/paid/1da83e8a-c086-4c42-a7eb-e6adac5e357b",
        "orders/paid",
        "orders",
        1_767_621_700_000,
        "order/450789469",
    ),
    (
        "shopify-refunds-create.json",
        "example.myshopify.com/refunds/create/2e04e520-97d1-406c-a777-5907d20cf181",
        "refunds/create",
        "refunds",
        1_767_801_600_660,
        "order/450789469",
    ),
    (
        "standard-webhooks-order-shipped.json",
        "msg_2vExampleDev0Shipped000001",
        "order.shipped",
        "order",
        1_767_712_470_250,
        "order/450789469",
    ),
    (
        "stripe-charge-refunded.json",
        "evt_3SmC8xExampleDev0refunded",
        "charge.refunded",
        "charge",
        1_767_801_602_000,
        "order/450789469",
    ),
    (
        "stripe-payment-intent-succeeded.json",
        "evt_3SmC8xExampleDev0succeeded",
        "payment_intent.succeeded",
        "payment_intent",
        1_767_621_697_000,
        "order/450789469",
    ),
    (
        "woocommerce-order-created.json",
        "https://store.example.com/order.created/727/sha256:-QgBVYGMzYm29QKmMyLkToWKlc-FtjgRena2cbmfFs0",
        "order.created",
        "order",
        1_767_621_600_000,
        "order/727",
    ),
    (
        "woocommerce-order-updated.json",
        "https://store.example.com/order.updated/727/sha256:KUWL4huWsqBr-E9nxAOQOR26vsEsaORNZJyJaTcW-QA",
        "order.updated",
        "order",
        1_767_621_700_000,
        "order/727",
    ),
];

/// Those whose senders publish their keys.
const PUBLISHED: [Expected; 5] = [
    (
        "adobe-io-events-sales-order.json",
        "6c1f4f0e-93c7-4d0e-8d2a-5a1b2c3d4e01",
        "com.adobe.commerce.observer.sales_order_save_commit_after",
        "sales_order",
        1_767_621_700_250,
        "order/9007199254740993",
    ),
    (
        "paypal-checkout-order-approved.json",
        "WH-0000000ExampleDev01-ORDERAPPROVED",
        "CHECKOUT.ORDER.APPROVED",
        "CHECKOUT.ORDER",
        1_767_621_688_000,
        "order/5O190127TN364715T",
    ),
    (
        "paypal-payment-capture-completed.json",
        "WH-0000000ExampleDev02-CAPTURECOMPLETED",
        "PAYMENT.CAPTURE.COMPLETED",
        "PAYMENT.CAPTURE",
        1_767_621_695_000,
        "order/5O190127TN364715T",
    ),
    (
        "paypal-payment-capture-refunded.json",
        "WH-0000000ExampleDev03-CAPTUREREFUNDED",
        "PAYMENT.CAPTURE.REFUNDED",
        "PAYMENT.CAPTURE",
        1_767_801_601_000,
        "order/5O190127TN364715T",
    ),
    (
        "shipstation-v2-track.json",
        "sha256:YwKlQkoe5v57VKKV8SrwWdpqFqoaQOQdxnNqKBJail4",
        "API_TRACK",
        "API_TRACK",
        1_767_777_120_000,
        "tracking/1Z999AA10123456784",
    ),
];

/// Those that can be verified: without ingest there is nothing to use a key with.
fn verifiable() -> impl Iterator<Item = Expected> {
    DELIVERIES.into_iter().chain(PUBLISHED.into_iter().filter(|_| cfg!(feature = "ingest")))
}

#[test]
fn every_sample_is_checked_here() {
    let listed = DELIVERIES.iter().chain(&PUBLISHED).map(|expected| expected.0).chain([PING]).chain(OTHER_TRIGGERS);
    let mut listed: Vec<String> = listed.map(str::to_owned).collect();
    let entries = fs::read_dir(path("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = entries.filter(|name| name.ends_with(".json")).collect();
    listed.sort();
    found.sort();
    assert_eq!(found, listed);
}

#[test]
fn every_sample_is_believed_at_its_own_time() {
    for (name, ..) in verifiable() {
        assert_eq!(sample(name).verify(), Ok(Verified::Delivery), "{name}");
    }
}

#[test]
fn every_sample_describes_what_it_is_about() {
    for (name, delivery_id, topic, family, event_time, entity) in DELIVERIES.into_iter().chain(PUBLISHED) {
        let expected = Described {
            delivery_id: DeliveryId::new(delivery_id),
            topic: topic.to_owned(),
            family: family.to_owned(),
            event_time: Some(Timestamp::from_millis(event_time)),
            entity: Some(entity.to_owned()),
        };
        assert_eq!(sample(name).describe(), expected, "{name}");
    }
}

/// The samples were signed by other means than this code.
#[test]
fn every_sample_would_be_signed_as_it_is() {
    for (name, ..) in DELIVERIES {
        let Sample { source, headers, body, at } = sample(name);
        for (header, value) in source.provider().sign(&headers, &body, &source.secrets[0], at) {
            let sent = headers.get(&header).unwrap();
            // Stripe's test mode adds a v0 signature to the one that counts.
            let sent = if header == "stripe-signature" { sent.split(",v0=").next().unwrap() } else { sent };
            assert_eq!(sent, value, "{name}: {header}");
        }
    }
}

#[test]
fn no_sample_is_believed_after_a_change_or_under_another_source() {
    for (name, ..) in verifiable() {
        let mut sample = sample(name);
        sample.body.push(b' ');
        assert_eq!(sample.verify(), Err(Unverified::Mismatch), "{name}");
        sample.body.pop();
        // ShipStation's says for nobody whom it is for.
        if sample.source.secrets.is_empty() && sample.source.recipient.take().is_none() {
            continue;
        }
        sample.source.secrets = vec![Secret::new("whsec_YW5vdGhlcg==")];
        assert_eq!(sample.verify(), Err(Unverified::Mismatch), "{name}");
    }
}

#[test]
fn the_activation_ping_is_one() {
    assert_eq!(sample(PING).verify(), Ok(Verified::Ping));
}

#[test]
fn every_secret_of_the_samples_is_usable() {
    for (name, source) in sources() {
        assert_eq!(source.provider == "generic", source.generic.is_some(), "{name}");
        assert!(source.secrets.iter().all(|secret| source.provider().objection(secret).is_none()), "{name}");
    }
}

#[test]
fn the_wake_up_is_for_the_order_of_the_shopify_samples() {
    let event: serde_json::Value = serde_json::from_str(&read("wake-up.json")).unwrap();
    let record = &event["Records"][0];
    assert_eq!(record["eventSource"], "aws:sqs");
    let body: serde_json::Value = serde_json::from_str(record["body"].as_str().unwrap()).unwrap();
    let key = EntityKey::parse(body["entity"].as_str().unwrap()).unwrap();
    let described = sample("shopify-orders-create.json").describe();
    assert_eq!(key.as_str(), format!("shopify/{}", described.entity.unwrap()));
}
