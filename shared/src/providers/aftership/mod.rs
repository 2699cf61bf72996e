//! AfterShip sends a base64 HMAC-SHA256 of the body, in a header whose name depends on the product.
//!
//! Tracking uses `aftership-hmac-sha256`; returns and warranty use `as-signature-hmac-sha256`.
//! Shipping, and returns of organizations created before October 2022, use
//! `am-webhook-signature: hmac-sha256=…`. AfterShip does not document the encoding in the last two
//! headers, so hexadecimal is accepted there as well. That makes a forgery no easier.

use super::{
    Encoding, HashName, Headers, Proof, Provider, Request, Secret, Unverified,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    rule::{EntityKind, Example, Rule, RuleLine},
    signature::{self, HmacKey},
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct AfterShip;

const TRACKING: &str = "aftership-hmac-sha256";
const RETURNS: &str = "as-signature-hmac-sha256";
const FORMER: &str = "am-webhook-signature";

/// Returns the name of the first signature header that the request has, and its decoded signature:
/// once for each of the header's possible encodings in which the value is valid. `None` if the
/// request has no signature header.
fn claimed(headers: &Headers) -> Option<(&'static str, Vec<Vec<u8>>)> {
    let both = |text: &str| [Encoding::Base64.decode(text), Encoding::Hex.decode(text)].into_iter().flatten().collect();
    if let Some(value) = headers.get(TRACKING) {
        return Some((TRACKING, Encoding::Base64.decode(value.trim()).into_iter().collect()));
    }
    if let Some(value) = headers.get(RETURNS) {
        return Some((RETURNS, both(value.trim())));
    }
    let value = headers.get(FORMER)?;
    Some((FORMER, value.trim().strip_prefix("hmac-sha256=").map(both).unwrap_or_default()))
}

const LINES: &[RuleLine] = &[
    RuleLine { families: &[], places: &["/msg/order_id"], kind: EntityKind::Named("order") },
    RuleLine { families: &[], places: &["/msg/tracking_number"], kind: EntityKind::Named("tracking") },
    RuleLine {
        families: &[],
        places: &["/data/order/external_id", "/data/order/id"],
        kind: EntityKind::Named("order"),
    },
    RuleLine { families: &[], places: &["/data/id"], kind: EntityKind::Family },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"event":"tracking_update","event_id":"1","msg":{"id":"5b7658cec7c33c0e007de3c5","tracking_number":"9400","order_id":"7"}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"event":"edd_revise","event_id":"2","msg":{"id":"5b7658cec7c33c0e007de3c5","tracking_number":"9400","order_id":"7"}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"event":"tracking_update","event_id":"3","msg":{"id":"5b7658cec7c33c0e007de3c6","tracking_number":"9401","order_id":null}}"#,
            "tracking/9401",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/event_id", "/id"])],
    topic: &["/event"],
    event_time: &["/ts", "/created_at"],
    lines: LINES,
    shop_order: ShopOrder::Copied {
        to: "`order_id` of the tracking",
        fields: &["/msg/order_id", "/data/order/external_id"],
    },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the webhook secret of your organization: *Settings → Webhooks*",
    signing: None,
    signature: "`aftership-hmac-sha256`: base64 HMAC-SHA256 of the body. Returns and warranty: \
                `as-signature-hmac-sha256`, formerly `am-webhook-signature: hmac-sha256=…`",
    signed: SignedParts::BODY,
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: None,
    retries: Some(14),
    switches_off: "not documented",
    checks: "none. *Send test webhook* sends a signed, normal delivery, which must be answered 2xx",
    care: "AfterShip's page on retries says that the n-th retry waits 2ⁿ times 30 s. A tracking knows its order only \
           if you told AfterShip its `order_id`.",
    sources: &[
        "https://www.aftership.com/docs/tracking/webhook/webhook-signature",
        "https://www.aftership.com/docs/returns/webhook/signature",
        "https://www.aftership.com/docs/tracking/webhook/webhook-specifications",
        "https://www.aftership.com/docs/tracking/webhook/webhook-overview",
    ],
};

impl Provider for AfterShip {
    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        let (name, claimed) = claimed(request.headers).ok_or_else(|| Unverified::Missing(TRACKING.into()))?;
        if claimed.is_empty() {
            return Err(Unverified::malformed(name));
        }
        signature::check(HashName::Sha256, secrets.iter().filter_map(HmacKey::of), &[request.body], &claimed)?;
        Ok(Proof::DELIVERY)
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        let Some(key) = HmacKey::of(secret) else { return Vec::new() };
        let signature = Encoding::Base64.encode(&HashName::Sha256.hmac(&key, &[body]));
        vec![match [TRACKING, RETURNS, FORMER].into_iter().find(|name| headers.get(name).is_some()) {
            Some(FORMER) => (FORMER.to_owned(), format!("hmac-sha256={signature}")),
            other => (other.unwrap_or(TRACKING).to_owned(), signature),
        }]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow { name: "aftership", header: Some("aftership-hmac-sha256".into()), ..PLAIN }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("aftership-edd-revise.json", "154eb3e7-5ee1-42a4-9fc0-b47552871ef1", "edd_revise", "edd_revise", None, Some(1_767_712_600_000), "order/450789469"),
        ("aftership-return-approved.json", "1aee6fb9-823b-48c4-b983-a1083e04814e", "return.approved", "return", None, Some(1_768_053_600_000), "order/450789469"),
        ("aftership-tracking-update.json", "2692a1de-ca5c-40b0-b250-1c7fd74e6b32", "tracking_update", "tracking_update", None, Some(1_767_880_860_000), "order/450789469"),
    ];

    /// The output of `printf '{}' | openssl dgst -sha256 -hmac secret`, in base64.
    const BASE64: &str = "dzJZAsrKgS3CWXM6rNBGtzgXNyx3e42VtAJkdHRRbhM=";
    const HEX: &str = "77325902caca812dc259733aacd046b73817372c777b8d95b402647474516e13";

    fn verify(headers: &[(&str, &str)]) -> Result<Verified, Unverified> {
        tests::verify(&AfterShip, headers, b"{}", &["secret"], 0)
    }

    #[test]
    fn signature_is_accepted_under_each_product_header() {
        let former = format!("hmac-sha256={BASE64}");
        let former_hex = format!("hmac-sha256={HEX}");
        for header in [
            ("aftership-hmac-sha256", BASE64),
            ("as-signature-hmac-sha256", BASE64),
            ("as-signature-hmac-sha256", HEX),
            ("am-webhook-signature", &former),
            ("am-webhook-signature", &former_hex),
        ] {
            assert_eq!(verify(&[header]), Ok(Verified::Delivery), "{header:?}");
        }
        for (header, value) in [("aftership-hmac-sha256", HEX), ("as-signature-hmac-sha256", &BASE64[4..])] {
            assert_eq!(verify(&[(header, value)]), Err(Unverified::Mismatch), "{header}");
        }
        assert_eq!(verify(&[(FORMER, BASE64)]), Err(Unverified::Malformed(FORMER.into())));
    }

    #[test]
    fn second_signature_header_cannot_replace_the_first() {
        let both = [(TRACKING, "AAAA"), (RETURNS, BASE64)];
        assert_eq!(verify(&both), Err(Unverified::Mismatch));
    }
}
