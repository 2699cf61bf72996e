//! Adobe I/O Events sends two RSA-SHA256 signatures over the body, each by a key that a header
//! names. One valid signature is enough.
//!
//! The keys are files on one host of Adobe, and no other host is accepted. Adobe signs the events of
//! all customers with the same keys, so the body's `recipient_client_id` must be the source's. To
//! register a webhook, Adobe sends a GET with a `challenge` that the answer must repeat. Neither the
//! headers nor the time of the attempt is signed.

use std::time::Duration;

use super::{
    Address, Described, Encoding, Keys, Proof, Provider, Published, Request, RsaKey, Secret, Unverified, describe,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    rule::{EntityKind, Example, Rule, RuleLine},
    tables,
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct AdobeIoEvents;

/// The two signature headers, each with the header that gives the path of its public key.
const SIGNATURES: [(&str, &str); 2] = [
    ("x-adobe-digital-signature-1", "x-adobe-public-key1-path"),
    ("x-adobe-digital-signature-2", "x-adobe-public-key2-path"),
];

const HOST: &str = "static.adobeioevents.com";

/// The locations of the recipient's id in the body: the first pointer for CloudEvents, the second
/// for older events.
const RECIPIENT: &[&str] = &["/recipientclientid", "/recipient_client_id"];

/// The locations of the entity's id in Adobe Commerce's events. Each event reports a saved object. The
/// object is an order, belongs to an order and holds the order's id, or is an entity of its own.
const LINES: &[RuleLine] = &[
    RuleLine {
        families: &["sales_order"],
        places: &["/data/value/entity_id", "/data/value/id", "/event/data/value/entity_id"],
        kind: EntityKind::Named("order"),
    },
    RuleLine {
        families: &[],
        places: &["/data/value/order_id", "/event/data/value/order_id"],
        kind: EntityKind::Named("order"),
    },
    RuleLine {
        families: &[],
        places: &["/data/value/entity_id", "/data/value/id", "/event/data/value/entity_id"],
        kind: EntityKind::Family,
    },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"type":"com.adobe.commerce.observer.sales_order_save_commit_after","data":{"value":{"entity_id":"7","increment_id":"000000007"}}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"type":"com.adobe.commerce.observer.sales_order_shipment_save_commit_after","data":{"value":{"entity_id":"1","order_id":"7"}}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"type":"com.adobe.commerce.observer.catalog_product_save_commit_after","data":{"value":{"entity_id":"7","sku":"pot"}}}"#,
            "catalog_product/7",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/id", "/event_id", "x-adobe-event-id"])],
    topic: &["/type", "/event_code", "x-adobe-event-code"],
    between_words: &['_'],
    account: &["/source"],
    event_time: &["/time", "/event/activitystreams:published"],
    horizon: Some(Duration::from_secs(24 * 3600)),
    lines: LINES,
    challenge: Some("challenge"),
    shop_order: ShopOrder::Own,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "none. The source has the `client_id` of the project in Adobe's developer console",
    signing: None,
    signature: "`x-adobe-digital-signature-1` and `-2`: base64 RSA-SHA256 of the body, each under its own key. One \
                valid signature is enough. `x-adobe-public-key1-path` and `x-adobe-public-key2-path` name the \
                keys. Ingest fetches them from `static.adobeioevents.com` only",
    signed: SignedParts::BODY,
    payload: Payload::Depends,
    resolution: Some(Resolution::Milliseconds),
    deadline: Some(Duration::from_secs(10)),
    retries: None,
    switches_off: "failures for a long time; Adobe first marks the registration as unstable",
    checks: "when the webhook is registered, answered `{\"challenge\": \"…\"}`",
    care: "Adobe uses the same keys for all customers. So ingest demands that `recipient_client_id` in the body \
           equals the source's `client_id`. Adobe retries after 429 and 5xx only. A Commerce event holds the fields \
           that its subscription asks for. The time of the attempt is not signed.",
    sources: &[
        "https://developer.adobe.com/events/docs/guides/sdk/sdk-signature-verification",
        "https://developer.adobe.com/events/docs/common/retry-doc",
    ],
};

/// Returns the name of the observed object, without the package and the action. For example,
/// `com.adobe.commerce.observer.sales_order_save_after` has the topic family `sales_order`.
fn family(topic: &str) -> &str {
    let observed = topic.rsplit_once('.').map_or(topic, |(_, observed)| observed);
    let ends = ["_save_commit_after", "_delete_commit_after", "_save_after", "_delete_after", "_place_after"];
    let family = ends.iter().find_map(|end| observed.strip_suffix(end)).unwrap_or(observed);
    if family.is_empty() { topic } else { family }
}

fn address(path: &str) -> Option<Address> {
    Address::new(HOST, path, "public_key_file").filter(|at| at.path().ends_with(".pem"))
}

impl Provider for AdobeIoEvents {
    fn objection(&self, _secret: &Secret) -> Option<&'static str> {
        Some("Adobe signs with its own keys: leave `secrets` out and set `client_id`")
    }

    fn describe(&self, request: Request<'_>) -> Described {
        tables::describe_by(&READS, family, request)
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn published(&self) -> Option<&dyn Published> {
        Some(self)
    }
}

impl Published for AdobeIoEvents {
    fn recipient(&self) -> Option<&'static str> {
        Some("client_id")
    }

    fn verify(
        &self,
        request: Request<'_>,
        client_ids: &[String],
        keys: &dyn Keys,
        _now: Timestamp,
    ) -> Result<Proof, Unverified> {
        let mut refusal = Unverified::Missing(SIGNATURES[0].0.into());
        let recipient = describe::first(request, RECIPIENT);
        let is_ours = recipient.is_some_and(|recipient| client_ids.contains(&recipient));
        for (name, of_key) in SIGNATURES {
            let Some(signature) = request.headers.get(name) else { continue };
            // Report the first signature's problem, unless a key that could still verify is missing.
            let mut refuse = |reason: Unverified| {
                let is_first = matches!(refusal, Unverified::Missing(_));
                let is_open =
                    |reason: &Unverified| matches!(reason, Unverified::Unfetched(_) | Unverified::Unusable(..));
                if is_first || (is_open(&reason) && !is_open(&refusal)) {
                    refusal = reason;
                }
            };
            let signature = match Encoding::Base64.read(name, signature) {
                Ok(signature) => signature,
                Err(malformed) => {
                    refuse(malformed);
                    continue;
                }
            };
            let Some(at) = request.headers.get(of_key).and_then(address) else {
                refuse(Unverified::malformed(of_key));
                continue;
            };
            if !is_ours {
                refuse(Unverified::Mismatch);
                continue;
            }
            let Some(pem) = keys.find(&at) else {
                refuse(Unverified::Unfetched(at));
                continue;
            };
            match RsaKey::in_pem(&pem) {
                Some(key) if key.verifies(request.body, &signature) => return Ok(Proof::DELIVERY),
                Some(_) => refuse(Unverified::Mismatch),
                None => refuse(Unverified::Unusable(at, "it is not a public key in PEM".into())),
            }
        }
        Err(refusal)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("adobe-io-events-sales-order.json", "6c1f4f0e-93c7-4d0e-8d2a-5a1b2c3d4e01", "com.adobe.commerce.observer.sales_order_save_commit_after", "sales_order", Some("urn:uuid:11111111-2222-4333-8444-555555555555"), Some(1_767_621_700_250), "order/9007199254740993"),
    ];

    #[test]
    fn topic_family_is_the_observed_object() {
        for (topic, expected) in [
            ("com.adobe.commerce.observer.sales_order_save_commit_after", "sales_order"),
            ("observer.sales_order_shipment_save_after", "sales_order_shipment"),
            ("asset_created", "asset_created"),
            ("com.adobe._save_after", "com.adobe._save_after"),
            ("unknown", "unknown"),
        ] {
            assert_eq!(family(topic), expected);
        }
    }

    #[test]
    fn key_url_must_be_on_adobe_host() {
        let path = "/prod/keys/pub-key-kruhWwu4Or.pem";
        let expected = "https://static.adobeioevents.com/prod/keys/pub-key-kruhWwu4Or.pem";
        assert_eq!(address(path).map(|at| at.to_string()).as_deref(), Some(expected));
        for path in ["https://example.com/a.pem", ".example.com/a.pem", "@example.com/a.pem", "/prod/keys/a.html", ""] {
            assert_eq!(address(path), None, "{path}");
        }
    }
}
