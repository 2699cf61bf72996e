//! Square sends a base64 HMAC-SHA256 of the notification URL and the body, under the subscription's
//! signature key.
//!
//! The source's option `url` is the subscription's URL, byte for byte. The URL is never taken
//! from the request, because a forger can choose the request's `Host`.

use std::{borrow::Cow, time::Duration};

use super::{
    Headers, Part, Proof, Provider, Request, Secret, Signing, Unverified,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    rule::{EntityKind, Example, Rule, RuleLine},
    signature::{self, HmacKey},
};
use crate::time::Timestamp;

/// Square's rules for one notification URL. With an empty URL, no webhook is accepted.
#[derive(Debug)]
pub(super) struct Square {
    pub(super) url: String,
}

pub(super) static WITHOUT_URL: Square = Square { url: String::new() };

const SIGNATURE: &str = "x-square-hmacsha256-signature";

/// The locations of the entity's id in Square's events. An object without an order, such as a
/// payment taken without one, is its own entity.
const LINES: &[RuleLine] = &[
    RuleLine { families: &["order", "order.fulfillment"], places: &["/data/id"], kind: EntityKind::Named("order") },
    RuleLine { families: &["payment"], places: &["/data/object/payment/order_id"], kind: EntityKind::Named("order") },
    RuleLine {
        families: &["refund", "terminal.refund"],
        places: &["/data/object/refund/order_id"],
        kind: EntityKind::Named("order"),
    },
    RuleLine {
        families: &["terminal.checkout"],
        places: &["/data/object/checkout/order_id"],
        kind: EntityKind::Named("order"),
    },
    RuleLine { families: &["invoice"], places: &["/data/object/invoice/order_id"], kind: EntityKind::Named("order") },
    RuleLine { families: &[], places: &["/data/id"], kind: EntityKind::Family },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"type":"order.updated","data":{"type":"order_updated","id":"o7","object":{"order_updated":{"order_id":"o7","version":2}}}}"#,
            "order/o7",
        ),
        Example::new(
            r#"{"type":"order.fulfillment.updated","data":{"type":"order_fulfillment_updated","id":"o7","object":{"order_fulfillment_updated":{"order_id":"o7"}}}}"#,
            "order/o7",
        ),
        Example::new(
            r#"{"type":"payment.updated","data":{"type":"payment","id":"p1","object":{"payment":{"id":"p1","order_id":"o7"}}}}"#,
            "order/o7",
        ),
        Example::new(
            r#"{"type":"refund.updated","data":{"type":"refund","id":"p1_r1","object":{"refund":{"id":"p1_r1","payment_id":"p1","order_id":"o7"}}}}"#,
            "order/o7",
        ),
        Example::new(
            r#"{"type":"terminal.refund.updated","data":{"type":"refund","id":"t1","object":{"refund":{"id":"t1","payment_id":"p1","order_id":"o7"}}}}"#,
            "order/o7",
        ),
        Example::new(
            r#"{"type":"terminal.checkout.updated","data":{"type":"checkout","id":"t2","object":{"checkout":{"id":"t2","order_id":"o7"}}}}"#,
            "order/o7",
        ),
        Example::new(
            r#"{"type":"customer.updated","data":{"type":"customer","id":"c1","object":{"customer":{"id":"c1"}}}}"#,
            "customer/c1",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

/// The locations of an event's fields in Square's requests. An order's `version` cannot serve as the
/// event's time: it is a counter, and counts only changes of the order itself.
const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/event_id"])],
    topic: &["/type"],
    account: &["/merchant_id"],
    event_time: &["/created_at"],
    horizon: Some(Duration::from_secs(24 * 3600)),
    lines: LINES,
    shop_order: ShopOrder::Own,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the subscription's signature key: *Webhooks → Subscriptions → Endpoint details → Signature key*",
    signing: None,
    signature: "`x-square-hmacsha256-signature`: base64 HMAC-SHA256 of the notification URL followed by the body",
    signed: SignedParts { url: true, ..SignedParts::BODY },
    payload: Payload::Depends,
    resolution: Some(Resolution::Milliseconds),
    deadline: Some(Duration::from_secs(10)),
    retries: Some(11),
    switches_off: "three weeks without a 2xx; Square sends an e-mail after each week",
    checks: "none. The console's test event is a signed, normal delivery",
    care: "The source needs `url`, exactly as in the subscription. Events of payments and refunds hold the whole \
           object. An order's events hold only its id, `state` and `version`; fetch the rest. Square does not \
           promise order.",
    sources: &[
        "https://developer.squareup.com/docs/webhooks/step3validate",
        "https://developer.squareup.com/docs/webhooks/overview",
        "https://developer.squareup.com/docs/webhooks/step4manage",
    ],
};

impl Square {
    fn signing(&self) -> Signing {
        let parts = vec![Part::Text(self.url.clone().into()), Part::Body];
        Signing { header: Cow::Borrowed(SIGNATURE), signed: parts.into(), ..Signing::BODY }
    }

    fn key(&self, secret: &Secret) -> Option<HmacKey> {
        HmacKey::of(secret).filter(|_| !self.url.is_empty())
    }
}

impl Provider for Square {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        let reason = "it is an access token, or an application's id or secret; use the subscription's signature key";
        signature::objection(secret, &["EAAA", "sq0csp-", "sq0atp-", "sq0idp-"], reason)
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        self.signing().verify(request, secrets.iter().filter_map(|secret| self.key(secret)))
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, now: Timestamp) -> Vec<(String, String)> {
        self.key(secret).map(|key| self.signing().sign(headers, body, &key, now)).unwrap_or_default()
    }

    fn with_url(&self, url: Option<&str>) -> Result<Option<Box<dyn Provider>>, String> {
        const NEEDED: &str = "provider = \"square\" needs `url`: the notification URL, exactly as in the subscription, \
                              because Square signs it";
        let url = url.filter(|url| !url.is_empty()).ok_or(NEEDED)?;
        Ok(Some(Box::new(Self { url: url.to_owned() })))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow {
            name: "square",
            url: Some("https://hooks.example.com/webhooks/square"),
            header: Some("x-square-hmacsha256-signature".into()),
            ..PLAIN
        }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("square-order-created.json", "ec7f5797-38d4-4c36-a184-10a07dfa91c6", "order.created", "order", Some("MLEXAMPLE0001"), Some(1_767_621_600_012), "order/eA3vssLHKJrv9H0IdJCM3gNqfdcZY"),
        ("square-order-fulfillment-updated.json", "0c709512-b8fc-417b-b206-d978cef3d9b9", "order.fulfillment.updated", "order.fulfillment", Some("MLEXAMPLE0001"), Some(1_767_712_500_077), "order/eA3vssLHKJrv9H0IdJCM3gNqfdcZY"),
        ("square-order-updated.json", "414e7e84-6660-4d3d-afa3-55f6bd66015b", "order.updated", "order", Some("MLEXAMPLE0001"), Some(1_767_621_700_421), "order/eA3vssLHKJrv9H0IdJCM3gNqfdcZY"),
        ("square-payment-updated.json", "bcdf920e-6898-4ef5-acca-f0e37b095a22", "payment.updated", "payment", Some("MLEXAMPLE0001"), Some(1_767_621_699_640), "order/eA3vssLHKJrv9H0IdJCM3gNqfdcZY"),
        ("square-refund-created.json", "5fe5c38b-6c57-48f3-ba51-31092ce20c56", "refund.created", "refund", Some("MLEXAMPLE0001"), Some(1_767_801_600_031), "order/eA3vssLHKJrv9H0IdJCM3gNqfdcZY"),
    ];

    /// The sample is from Square's documentation and SDKs (square-nodejs-sdk, `WebhooksHelper`).
    const URL: &str = "https://example.com/webhook";
    const BODY: &[u8] = br#"{"hello":"world"}"#;
    const GOOD: &str = "2kRE5qRU2tR+tBGlDwMEw2avJ7QM4ikPYD/PJ3bd9Og=";

    fn verify(url: &str, secret: &str) -> Result<Verified, Unverified> {
        tests::verify(&Square { url: url.into() }, &[("X-Square-HmacSha256-Signature", GOOD)], BODY, &[secret], 0)
    }

    #[test]
    fn published_signature_is_accepted_only_for_signed_url() {
        assert_eq!(verify(URL, "asdf1234"), Ok(Verified::Delivery));
        for url in ["https://example.com/webhook/", "https://example.com/webhooks", "http://example.com/webhook", ""] {
            assert_eq!(verify(url, "asdf1234"), Err(Unverified::Mismatch), "{url}");
        }
    }

    /// Python made the signature: `base64(hmac(b"asdf1234", b'{"hello":"world"}', sha256))`.
    #[test]
    fn signature_over_body_alone_is_refused() {
        let headers = [(SIGNATURE, "lKwOczI1TtKJsEXnCxx9TBMNBOHvuhU848A7Sa64ia8=")];
        let square = Square { url: String::new() };
        assert_eq!(tests::verify(&square, &headers, BODY, &["asdf1234"], 0), Err(Unverified::Mismatch));
        assert!(square.with_url(None).unwrap_err().contains("needs `url`"));
        assert!(square.with_url(Some("")).is_err());
    }

    #[test]
    fn payment_without_order_is_the_entity() {
        let entity = |body: &str| tests::describe(&Square { url: URL.into() }, &[], body).entity;
        let payment =
            r#"{"type":"payment.created","data":{"type":"payment","id":"p1","object":{"payment":{"id":"p1"}}}}"#;
        assert_eq!(entity(payment).as_deref(), Some("payment/p1"));
        assert_eq!(entity(r#"{"type":"oauth.authorization.revoked","data":{"type":"revocation"}}"#), None);
    }
}
