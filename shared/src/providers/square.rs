//! Square sends a base64 HMAC-SHA256 of the notification URL and the body, under the subscription's
//! signature key.
//!
//! The source's option `url` is the subscription's URL, byte for byte. The URL is never taken
//! from the request, because a forger can choose the request's `Host`.

use std::time::Duration;

use super::{
    Described, Encoding, HashName, Headers, Provider, Request, Secret, Unverified, Verified, describe,
    facts::{Facts, IdPart, Payload, Reads, Resolution, Signed},
    rule::{Example, Kind, Line, Rule},
    signature::{self, Key},
    tables,
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
const LINES: &[Line] = &[
    Line { families: &["order", "order.fulfillment"], places: &["/data/id"], kind: Kind::Named("order") },
    Line { families: &["payment"], places: &["/data/object/payment/order_id"], kind: Kind::Named("order") },
    Line { families: &["refund"], places: &["/data/object/refund/order_id"], kind: Kind::Named("order") },
    Line { families: &["invoice"], places: &["/data/object/invoice/order_id"], kind: Kind::Named("order") },
    Line { families: &[], places: &["/data/id"], kind: Kind::Family },
];

pub(super) const RULE: Rule = Rule {
    lines: LINES,
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
    between_words: describe::BETWEEN_WORDS,
    account: &["/merchant_id"],
    event_time: &["/created_at"],
    horizon: Some(Duration::from_secs(24 * 3600)),
};

const FACTS: Facts = Facts {
    secret: "the subscription's signature key: *Webhooks → Subscriptions → Endpoint details → Signature key*",
    signature: "`x-square-hmacsha256-signature`: base64 HMAC-SHA256 of the notification URL followed by the body",
    signed: Signed { url: true, ..Signed::BODY },
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

impl Provider for Square {
    fn verify(&self, request: Request<'_>, secrets: &[Secret], _now: Timestamp) -> Result<Verified, Unverified> {
        let claimed = Encoding::Base64.read(SIGNATURE, request.headers.required(SIGNATURE)?)?;
        let keys = secrets.iter().filter_map(Key::of).filter(|_| !self.url.is_empty());
        signature::check(HashName::Sha256, keys, &[self.url.as_bytes(), request.body], &[claimed])?;
        Ok(Verified::Delivery)
    }

    fn describe(&self, request: Request<'_>) -> Described {
        tables::describe(&READS, LINES, request)
    }

    fn sign(&self, _headers: &Headers, body: &[u8], secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        let Some(key) = Key::of(secret).filter(|_| !self.url.is_empty()) else { return Vec::new() };
        let mac = HashName::Sha256.hmac(&key, &[self.url.as_bytes(), body]);
        vec![(SIGNATURE.to_owned(), Encoding::Base64.encode(&mac))]
    }

    fn with_url(&self, url: Option<&str>) -> Result<Option<Box<dyn Provider>>, String> {
        const NEEDED: &str = "provider = \"square\" needs `url`: the notification URL, exactly as in the subscription, \
                              because Square signs it";
        let url = url.filter(|url| !url.is_empty()).ok_or(NEEDED)?;
        Ok(Some(Box::new(Self { url: url.to_owned() })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::tests;

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
